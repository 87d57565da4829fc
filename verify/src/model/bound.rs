//! The bound (B8): "a capacity in distinct keys known (ready, waiting, held)".

use super::{Entry, Model, Phase, Refused};

/// A key that made room, and its value.
pub type Dropped = (u64, Option<Vec<u32>>);

impl Model {
    /// Number of further keys that fit; `None` without a bound.
    #[must_use]
    pub fn room(&self) -> Option<usize> {
        let count = self.keys.values().filter(|entry| entry.counts()).count();
        self.options.bound.map(|bound| bound.checked_sub(count).expect("the bound is exceeded"))
    }

    /// The key to drop so that there is room for this key behind `behind` waiting callers; `None` if none
    /// must be dropped. "A trigger for a known key never needs room."
    fn room_for(&self, key: u64, behind: usize) -> Result<Option<u64>, Refused> {
        let counts = self.keys.get(&key).is_some_and(Entry::counts);
        match self.room() {
            Some(room) if room <= behind && !counts => {
                // "drop the oldest ready"; where nothing is ready: refused
                let oldest = self.line.first().filter(|_| self.options.drop_oldest);
                oldest.copied().map(Some).ok_or(Refused::Full)
            }
            _ => Ok(None),
        }
    }

    /// Finds the key to drop for a trigger that is otherwise admitted.
    pub(super) fn look_for_room(&self, key: u64) -> Result<Option<u64>, Refused> {
        self.room_for(key, self.behind)
    }

    /// Drops this key after a trigger was taken. Not before: the trigger might not be taken, and a group that
    /// has both keys keeps its turn.
    pub(super) fn make_room(&mut self, goes: Option<u64>) {
        if let Some(oldest) = goes {
            let cancelled = self.cancel(oldest, false).expect("it was ready");
            self.dropped.push((oldest, cancelled.value));
        }
    }

    /// A trigger that waits for room: `None` while it waits. `place` is its place among the waiting callers,
    /// "FIFO".
    pub fn when_room<T>(
        &mut self,
        place: &mut Option<u64>,
        key: u64,
        priority: i16,
        trigger: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        let before = |other: &&u64| place.is_none_or(|place| **other < place);
        let behind = self.adders.iter().filter(before).count();
        let taken = self.phase == Phase::Open && (priority == 0 || self.has_priorities());
        if taken && self.room_for(key, behind) == Err(Refused::Full) {
            place.get_or_insert_with(|| {
                self.calls += 1;
                self.adders.push(self.calls);
                self.calls
            });
            return None;
        }
        self.leave_room(place);
        self.behind = behind;
        let answer = trigger(self);
        self.behind = 0;
        Some(answer)
    }

    /// Stops waiting for room.
    pub fn leave_room(&mut self, place: &mut Option<u64>) {
        if let Some(place) = place.take() {
            self.adders.retain(|other| *other != place);
        }
    }

    /// Number of callers that wait before this one.
    #[must_use]
    pub fn adders_before(&self, place: u64) -> usize {
        self.adders.iter().filter(|other| **other < place).count()
    }

    /// The keys that made room since this was last asked.
    pub fn take_dropped(&mut self) -> Vec<Dropped> {
        std::mem::take(&mut self.dropped)
    }
}

//! Control (B7): cancel, restore, snapshot.

use super::{Accepted, InBackoff, Model, Nanos, Policy, Refused, Setter};

/// Result of `cancel`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancelled {
    /// Whether it was in line.
    pub ready: bool,
    /// Whether it was held, with one more run due.
    pub dirty: bool,
    /// Instant when its timer would have fired.
    pub due: Option<Nanos>,
    /// It was in the list of unfinished keys.
    pub unfinished: bool,
    /// The value in its slot.
    pub value: Option<Vec<u32>>,
}

/// Earlier state of a key that is put back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The limiter's record.
    pub failures: u32,
    /// The attempt of its next run.
    pub attempt: u32,
    /// Instant when its timer fires; `None` if it is ready.
    pub due: Option<Nanos>,
    /// The priority of its next run.
    pub priority: i16,
}

impl Model {
    /// `restore`: "a key put back with failures, attempt, due instant and value". It is a
    /// trigger; the attempt is that of a key that was neither ready, waiting nor held.
    ///
    /// # Errors
    ///
    /// Refused once the queue is closed.
    pub fn restore(&mut self, key: u64, known: Restored, value: Option<u32>) -> Result<Accepted, Refused> {
        let goes = self.outside(key, known.priority)?;
        if known.due.is_some() {
            self.fire_if_due(key);
        }
        let idle = self.keys.get(&key).is_none_or(|e| !e.ready && e.run.is_none() && e.due().is_none());
        let added = match known.due.filter(|due| *due > self.now) {
            None => self.trigger_now(key, InBackoff::Run, known.priority),
            Some(due) => {
                let setter = Setter::Trigger(InBackoff::Run);
                self.set_timer(key, due - self.now, Policy::Earliest, setter, known.priority)
            }
        };
        self.merge_newer(key, value);
        self.told.coalesced += u64::from(added == Accepted::Coalesced);
        if known.failures > self.num_requeues(key) {
            let expires = self.expires(known.due.map_or(self.now, |due| due.max(self.now)));
            self.failures.insert(key, (known.failures, expires));
        }
        if idle && (known.attempt > 1 || known.failures > 0) {
            let entry = self.keys.get_mut(&key).expect("it was triggered");
            entry.failed = known.attempt.saturating_sub(1);
            if let Some(timer) = &mut entry.timer {
                (timer.by_outcome, timer.back_off) = (true, true);
            }
        }
        self.make_room(goes);
        Ok(added)
    }

    /// Keys of a snapshot, with their failures: all keys that are ready, held or waiting, or have failures on
    /// record.
    #[must_use]
    pub fn known(&self) -> Vec<(u64, u32)> {
        let failed = self.failures.keys().copied().filter(|key| self.num_requeues(*key) > 0);
        let mut keys: Vec<u64> = self.keys.keys().copied().chain(failed).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().map(|key| (key, self.num_requeues(key))).collect()
    }

    /// `cancel`: "takes ready, waiting, dirty and value; not the run, not the failures". It is
    /// `None` where there was nothing of these. With `forget` the failures are forgotten too.
    pub fn cancel(&mut self, key: u64, forget: bool) -> Option<Cancelled> {
        if forget {
            self.forget(key);
        }
        let unfinished = self.unlist(key);
        let entry = self.keys.get_mut(&key)?;
        let (ready, dirty) = (std::mem::take(&mut entry.ready), std::mem::take(&mut entry.dirty));
        let due = entry.due();
        (entry.timer, entry.window) = (None, None);
        let value = entry.slot.take();
        // the triggers' policies in a back-off go with them
        (entry.respects, entry.reset) = (false, false);
        if ready {
            self.line.retain(|other| *other != key);
            self.sort_turns();
            self.touches.remove(&key);
        }
        self.tidy(key);
        self.drains_may_end();
        (ready || dirty || due.is_some() || unfinished).then_some(Cancelled {
            ready,
            dirty,
            due,
            unfinished,
            value,
        })
    }
}

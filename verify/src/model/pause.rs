//! Pause and resume (B7).

use super::{Model, Nanos, Phase};

impl Model {
    /// Puts a ready key at the back of the line, unless it is paused: "paused keys count in len", and gets
    /// skip them.
    pub(super) fn stand(&mut self, key: u64, since: Nanos) {
        let others = self.line.iter().map(|other| self.keys[other].in_line_since).max().unwrap_or(0);
        let entry = self.keys.get_mut(&key).expect("a ready key is known");
        if !entry.paused {
            entry.in_line_since = since.max(others);
            self.line.push(key);
            self.sort_turns();
        }
    }

    /// Number of keys that a getter could take.
    #[must_use]
    pub fn servable(&self) -> usize {
        if self.paused { 0 } else { self.open().min(self.tokens()) }
    }

    /// `pause`: whether it is taken. "drain and shut_down lift pauses", and refuse later ones.
    pub fn pause(&mut self) -> bool {
        let taken = !self.refuses_pauses();
        if taken {
            self.paused = true;
            self.pause_begins(None);
        }
        taken
    }

    /// `resume`: whether the queue was paused.
    pub fn resume(&mut self) -> bool {
        self.pause_ends(None);
        std::mem::take(&mut self.paused)
    }

    /// Whether the queue is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// `pause_key`: whether it is taken. A key that is not known is from then on.
    pub fn pause_key(&mut self, key: u64) -> bool {
        if self.refuses_pauses() {
            return false;
        }
        let entry = self.keys.entry(key).or_default();
        if !std::mem::replace(&mut entry.paused, true) {
            self.paused_keys.push(key);
            self.line.retain(|other| *other != key);
            self.sort_turns();
            self.touches.remove(&key);
        }
        true
    }

    /// `resume_key`: returns whether the key was paused. A ready one goes to the back of the line.
    pub fn resume_key(&mut self, key: u64) -> bool {
        let Some(entry) = self.keys.get_mut(&key) else { return false };
        let was = std::mem::take(&mut entry.paused);
        if was {
            self.paused_keys.retain(|other| *other != key);
            if self.keys[&key].ready {
                self.stand(key, self.now);
            }
            self.tidy(key);
        }
        was
    }

    /// The group of a key, if there are groups.
    fn group_of(&self, key: u64) -> Option<u64> {
        Some(self.fair()?.groups.group(key))
    }

    /// `pause_group`: whether it is taken. The group need have no keys.
    pub fn pause_group(&mut self, key: u64) -> bool {
        let Some(group) = self.group_of(key).filter(|_| !self.refuses_pauses()) else { return false };
        if !self.paused_groups.contains(&group) {
            self.pause_begins(Some(group));
            self.paused_groups.push(group);
            self.sort_turns();
        }
        true
    }

    /// `resume_group`: whether the group was paused.
    pub fn resume_group(&mut self, key: u64) -> bool {
        let Some(group) = self.group_of(key).filter(|group| self.paused_groups.contains(group)) else {
            return false;
        };
        self.pause_ends(Some(group));
        self.paused_groups.retain(|other| *other != group);
        self.sort_turns();
        true
    }

    /// Whether the group of a key is paused.
    #[must_use]
    pub fn is_group_paused(&self, key: u64) -> bool {
        self.group_of(key).is_some_and(|group| self.paused_groups.contains(&group))
    }

    /// Whether the group of a key is paused, and the key is not by itself.
    #[must_use]
    pub fn is_in_paused_group(&self, key: u64) -> bool {
        let by_itself = self.keys.get(&key).is_some_and(|entry| entry.paused);
        !by_itself && self.is_group_paused(key)
    }

    fn refuses_pauses(&self) -> bool {
        self.phase == Phase::ShutDown || self.drain_waits.is_some()
    }

    /// "drain and shut_down lift pauses".
    pub(super) fn lift_pauses(&mut self) {
        self.resume();
        while !self.paused_groups.is_empty() {
            let group = self.paused_groups.remove(0);
            self.pause_ends(Some(group));
            self.sort_turns();
        }
        for key in self.paused_keys.clone() {
            self.resume_key(key);
        }
    }
}

//! Debounce (B4): "run after `quiet` without triggers, at the latest `max` after the window's first".

use super::{Accepted, InBackoff, Model, Nanos};

/// Debounce of immediate triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debounce {
    /// Time without a trigger after which a window ends.
    pub quiet: Nanos,
    /// Maximum time that a window is open.
    pub max: Nanos,
    /// "The first runs now."
    pub leading: bool,
}

/// A window that is open.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) began: Nanos,
    pub(super) ends: Nanos,
    /// The place among equal instants.
    pub(super) call: u64,
    /// A run comes at its end. After a leading edge none does, until a trigger comes.
    pub(super) owes: bool,
    /// Opened during the run that is on by triggers that all respect a back-off.
    pub(super) respects: bool,
    /// "Its highest."
    pub(super) priority: i16,
}

impl Model {
    /// A trigger for now, which may be debounced.
    pub(super) fn trigger_at_once(
        &mut self,
        key: u64,
        in_backoff: InBackoff,
        priority: i16,
        debounce: Option<Debounce>,
    ) -> Accepted {
        match debounce.or(self.options.debounce) {
            Some(debounce) if debounce.quiet > 0 && debounce.max > 0 => {
                self.debounced(key, in_backoff, priority, debounce)
            }
            _ => self.trigger_now(key, in_backoff, priority),
        }
    }

    fn debounced(&mut self, key: u64, in_backoff: InBackoff, priority: i16, debounce: Debounce) -> Accepted {
        self.fire_if_due(key);
        let respects = in_backoff == InBackoff::Respect;
        // "Respect: joins", as without a window
        if respects && self.waits_out_a_failure(key) {
            self.join_timer(key, priority);
            return Accepted::Coalesced;
        }
        let entry = self.keys.get(&key);
        let idle = entry.is_none_or(|entry| !entry.ready && entry.run.is_none());
        // "Triggers for a ready key coalesce", and so do those for a dirty one
        let pending = entry.is_some_and(|e| e.ready || e.dirty && (respects || !e.respects));
        let leads = debounce.leading && idle && entry.is_none_or(|entry| entry.window.is_none());
        if pending || leads {
            let added = self.trigger_now(key, in_backoff, priority);
            if leads {
                self.push_back(key, debounce, |_| ());
            }
            return added;
        }
        if in_backoff == InBackoff::Reset {
            self.reset(key);
        }
        // "for a held key they open a window"
        let mut owed = false;
        self.push_back(key, debounce, |window| {
            owed = window.owes;
            window.respects = respects && !idle && (!owed || window.respects);
            window.priority = if owed { window.priority.max(priority) } else { priority };
            window.owes = true;
        });
        if owed { Accepted::Coalesced } else { Accepted::Waiting }
    }

    /// Opens a window, or pushes its end back.
    fn push_back(&mut self, key: u64, debounce: Debounce, change: impl FnOnce(&mut Window)) {
        self.calls += 1;
        let (now, call) = (self.now, self.calls);
        let entry = self.keys.entry(key).or_default();
        let new = Window { began: now, ends: 0, call, owes: false, respects: false, priority: 0 };
        let window = entry.window.get_or_insert(new);
        let latest = window.began.saturating_add(debounce.max);
        let ends = now.saturating_add(debounce.quiet).min(latest).max(window.ends);
        if std::mem::replace(&mut window.ends, ends) != ends {
            window.call = call;
        }
        change(window);
    }

    /// Something makes the key ready or dirty: that covers a window's triggers, unless it respects
    /// a back-off and they do not. The priority with theirs.
    pub(super) fn cover(&mut self, key: u64, respects: bool, priority: i16) -> i16 {
        let Some(entry) = self.keys.get_mut(&key) else { return priority };
        let held = entry.run.is_some();
        let covered = entry.window.take_if(|window| window.owes && (!held || !respects || window.respects));
        covered.map_or(priority, |window| window.priority.max(priority))
    }

    /// A window ends by time, or a shutdown closes it.
    pub(super) fn end_window(&mut self, key: u64) {
        let entry = self.keys.get_mut(&key).expect("a window belongs to a key");
        let window = entry.window.take().expect("it was found by its window");
        if window.owes {
            self.told.fired += u64::from(window.ends <= self.reading);
            let since = window.ends.min(self.now);
            self.make_due(key, false, window.respects, since, window.priority);
        } else {
            self.tidy(key);
        }
    }
}

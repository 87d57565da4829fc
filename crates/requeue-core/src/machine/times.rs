//! [`Times`]: the timestamps that metrics need.

use crate::chain::{Link, Linked, List};
use crate::column::Column;
use crate::time::Instant;
use alloc::vec::Vec;
use core::time::Duration;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamp {
    /// The first trigger of the next run.
    pub(super) triggered: Instant,
    /// Link in the list of ready keys, or of held ones: since the key became ready, or since its current run
    /// started.
    pub(super) link: Link,
}

impl Linked for Stamp {
    #[inline]
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// The timestamps that metrics need.
#[derive(Debug)]
pub(super) struct Times {
    pub(super) stamps: Column<Stamp>,
    pub(super) ready: List,
    pub(super) held: List,
    /// Sum of the starts of all held keys, so that the unfinished work needs no walk.
    pub(super) starts: u128,
    /// Lateness of fired timers not yet read: at most a batch of [`advance`](super::Core::advance), if they are read
    /// after each hold.
    pub(super) late: Vec<Duration>,
}

impl Times {
    pub(super) fn new() -> Self {
        Self { stamps: Column::new(), ready: List::EMPTY, held: List::EMPTY, starts: 0, late: Vec::new() }
    }

    #[inline]
    pub(super) fn of(&self, slot: u32) -> Stamp {
        self.stamps.get(slot).copied().unwrap_or_default()
    }

    pub(super) fn triggered(&mut self, slot: u32, at: Instant) {
        self.stamps.entry(slot).triggered = at;
    }

    /// Records that the key became ready; its trigger is known.
    #[inline]
    pub(super) fn readied(&mut self, slot: u32, at: Instant) {
        self.ready.enter(&mut self.stamps, slot, at);
    }

    /// Records that the key became ready by a trigger.
    #[inline]
    pub(super) fn triggered_ready(&mut self, slot: u32, at: Instant) {
        self.ready.enter(&mut self.stamps, slot, at).triggered = at;
    }

    /// Records how late a timer fired.
    pub(super) fn fired(&mut self, late: Duration) {
        self.late.push(late);
    }

    /// Records that the ready key is handed out. Returns how long it waited.
    #[inline]
    pub(super) fn started(&mut self, slot: u32, now: Instant) -> Duration {
        let stamp = self.of(slot);
        self.ready.leave(&mut self.stamps, stamp.link);
        self.held.enter(&mut self.stamps, slot, now);
        self.starts += u128::from(now.as_nanos());
        now.saturating_since(stamp.triggered)
    }

    /// Records that the ready key will not run.
    pub(super) fn left(&mut self, slot: u32) {
        let stamp = self.of(slot);
        self.ready.leave(&mut self.stamps, stamp.link);
    }

    /// Records that the key is no longer held. Returns the stamp of its run.
    #[inline]
    pub(super) fn let_go(&mut self, slot: u32) -> Stamp {
        let stamp = self.of(slot);
        self.held.leave(&mut self.stamps, stamp.link);
        self.starts -= u128::from(stamp.link.since.as_nanos());
        stamp
    }

    /// Records that the held key is ready again, as if its run had not been: the first trigger of its next
    /// run is the one that it had.
    pub(super) fn put_back(&mut self, slot: u32, now: Instant) {
        self.let_go(slot);
        self.readied(slot, now);
    }

    /// Records that the key's run ended. Returns how long it took.
    #[inline]
    pub(super) fn ended(&mut self, slot: u32, now: Instant) -> Duration {
        let stamp = self.let_go(slot);
        now.saturating_since(stamp.link.since)
    }

    /// How long the first key of a list has been in it.
    pub(super) fn oldest(&self, list: &List, now: Instant) -> Duration {
        list.oldest().map_or(Duration::ZERO, |slot| now.saturating_since(self.of(slot).link.since))
    }

    /// The sum of the times of all runs, and the longest.
    pub(super) fn running(&self, now: Instant, held: usize) -> (Duration, Duration) {
        if self.held.oldest().is_none() {
            return Default::default();
        }
        let all = u128::from(now.as_nanos()) * held as u128 - self.starts;
        let secs = u64::try_from(all / 1_000_000_000).unwrap_or(u64::MAX);
        let unfinished = Duration::new(secs, (all % 1_000_000_000) as u32);
        (unfinished, self.oldest(&self.held, now))
    }

    pub(super) fn free_page(&mut self, chunk: u32) {
        self.stamps.free_page(chunk);
    }
}

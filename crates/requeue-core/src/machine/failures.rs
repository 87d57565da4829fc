//! Failures of keys: counted, forgotten, expired.

use super::options::Limit;
use super::state::{Core, Record};
use crate::time::Instant;
use core::time::Duration;

/// The record to make after a limiter was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) failures: u32,
    pub(super) expires: Instant,
}

impl<K, V> Core<K, V> {
    /// Sets how long after the end of its last delay a failure count expires, unless the limiter says another
    /// time.
    pub fn expire_failures_after(&mut self, after: Option<Duration>) {
        self.expire_after = after;
    }

    pub(super) fn failures(&self, slot: u32) -> u32 {
        self.records.get(slot).map_or(0, |r| r.failures_at(self.now))
    }

    /// Makes the key's next run attempt 1.
    #[inline]
    pub(super) fn restart_attempts(&mut self, slot: u32) {
        if let Some(record) = self.records.get_mut(slot) {
            record.attempts_before = 0;
        }
    }

    /// The key's record, created if needed.
    #[inline]
    pub(super) fn record_of(&mut self, slot: u32) -> &mut Record {
        self.note(slot);
        self.records.entry(slot)
    }

    pub(super) fn forget_failures(&mut self, slot: u32) {
        if let Some(record) = self.records.get_mut(slot) {
            record.failures = 0;
            record.expires = Instant::NEVER;
        }
    }

    /// Checks the next record, and removes it if it has expired.
    pub(super) fn expire_one_record(&mut self) {
        if self.arena.slots() == 0 {
            return;
        }
        self.expiry_cursor = (self.expiry_cursor + 1) % self.arena.slots();
        let slot = self.expiry_cursor;
        let now = self.now;
        let Some(record) = self.records.get_mut(slot) else { return };
        // one without failures never expires
        if record.expires <= now {
            record.failures = 0;
            record.expires = Instant::NEVER;
            if let Some(key) = self.release(slot) {
                self.discard(Some(key), None);
            }
        }
    }

    /// The delay of a limiter whose count the queue keeps, for a key with these failures, and the record to
    /// make.
    #[inline]
    pub(super) fn ask_limit(&self, failures: u32, limit: &Limit<'_>) -> (Duration, Option<Failed>) {
        let now = self.now;
        let delay = (limit.delay)(failures, now);
        let expire_after = limit.expire_after.or(self.expire_after);
        let expires = expire_after.map_or(Instant::NEVER, |after| now + delay + after);
        let failed = Failed { failures: failures.saturating_add(1), expires };
        (delay, limit.counts.then_some(failed))
    }

    /// Records that a limiter was asked.
    #[inline]
    pub(super) fn store_failures(&mut self, slot: u32, failed: Option<Failed>) {
        if let Some(Failed { failures, expires }) = failed {
            let record = self.record_of(slot);
            record.failures = failures;
            record.expires = expires;
        }
    }

    /// Checks two other records before a record may be made, so that unused ones are freed faster than new
    /// ones are made. Must not be called while the current key is half changed.
    #[inline]
    pub(super) fn expire_some(&mut self, limit: &Limit<'_>) {
        if limit.counts && limit.expire_after.or(self.expire_after).is_some() {
            self.expire_one_record();
            self.expire_one_record();
        }
    }

    pub(super) fn count_failure(&mut self, slot: u32, limit: &Limit<'_>) -> Duration {
        let failures = if limit.counts { self.failures(slot) } else { 0 };
        let (delay, failed) = self.ask_limit(failures, limit);
        self.store_failures(slot, failed);
        delay
    }
}

//! The ledger of a process's runs: recorded by the queue in memory, sent by the [exchange](crate::exchange).

use crate::add_batcher::{fitting, micros};
use crate::lease_clock::LeaseClock;
use requeue::{Clock, Fence, Instant};
use requeue_engine::{Journal, Key, Known};
use serde::Serialize;
use serde_json::value::RawValue;
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// A key that the server has handed out.
pub(crate) struct Claimed {
    pub(crate) key: Vec<u8>,
    pub(crate) fence: i64,
    pub(crate) attempt: u32,
    pub(crate) failures: u32,
    pub(crate) priority: i16,
    /// A JSON array.
    pub(crate) value: Option<Box<RawValue>>,
}

/// How a run ended.
#[derive(Clone)]
pub(crate) enum How {
    Done,
    Back {
        due: Due,
        failures: u32,
        attempt: u32,
        value: Option<Box<RawValue>>,
    },
    /// A failure, with the values that the run had.
    Failed {
        due: Due,
        failures: u32,
        attempt: u32,
    },
    GaveUp(String),
    /// The key is as it was before the run.
    PutBack,
}

impl How {
    /// Size of its values in bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Back { value: Some(value), .. } => value.get().len(),
            _ => 0,
        }
    }
}

/// When a key comes back.
#[derive(Clone, Copy)]
pub(crate) enum Due {
    Now,
    /// By the clock of the queue in memory.
    At(Instant),
    After(Duration),
}

impl Due {
    pub(crate) fn micros(self, clock: Option<&Arc<dyn Clock>>) -> i64 {
        match self {
            Self::Now => 0,
            Self::After(delay) => micros(delay),
            // not 0, which is now and forgets that it failed
            Self::At(due) => clock.map_or(0, |clock| micros(due.saturating_since(clock.now()))).max(1),
        }
    }
}

/// The end of a run, to be sent.
#[derive(Clone)]
pub(crate) struct End {
    pub(crate) key: Vec<u8>,
    pub(crate) fence: i64,
    pub(crate) how: How,
    /// A user's transaction has ended the run, if it was committed: then this end changes nothing, and no
    /// other process has the key.
    pub(crate) may_have_ended: bool,
    /// An unanswered call included it: the server may have accepted it.
    pub(crate) is_told_again: bool,
}

/// A run of this process, or a key that waits in memory for a worker.
#[derive(Default)]
struct Given {
    fence: i64,
    failures: u32,
    attempt: u32,
    /// Its end is part of a user's transaction.
    in_transaction: bool,
    /// Its lease is lost: its end is not sent.
    lost: bool,
    /// The queue in memory does not have it yet. If the ledger is closed meanwhile, the giver puts it back;
    /// closing skips it.
    coming: bool,
    /// The key is being cancelled in memory; the canceller decides its end.
    cancelling: bool,
    /// The key was claimed again while that run goes on: it is given to the queue when that has ended.
    next: Option<Claimed>,
}

struct Runs<K> {
    given: HashMap<K, Given>,
    giving_up: HashMap<K, String>,
    /// Runs that ended while they were being cancelled.
    undecided: HashMap<K, Given>,
    ends: Vec<End>,
    /// Number of ends that were taken for sending, with an unknown outcome.
    on_their_way: usize,
    /// The lease was lost meanwhile: of these ends, those that are taken back are dropped.
    drop_unsent: bool,
    /// Claims of keys whose earlier run has ended: they can be given to the queue in memory now.
    freed: Vec<Claimed>,
}

impl<K: Clone> Runs<K> {
    /// The keys like these that the queue in memory has.
    fn in_memory(&self, like: impl Fn(&Given) -> bool) -> Vec<K> {
        let all = self.given.iter().filter(|(_, given)| !given.coming && like(given));
        all.map(|(key, _)| key.clone()).collect()
    }

    /// The fences of claimed keys that the queue in memory does not have yet because an earlier run went on.
    fn to_begin(&self) -> impl Iterator<Item = i64> {
        let next = self.given.values().filter_map(|given| given.next.as_ref());
        next.chain(&self.freed).map(|claimed| claimed.fence)
    }
}

/// The back-off stored with the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) base: Duration,
    pub(crate) max: Duration,
}

impl Backoff {
    fn delay(self, failures: u32) -> Duration {
        let factor = 2_u32.checked_pow(failures).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.max)
    }
}

pub(crate) struct RunLedger<K> {
    pub(crate) queue: i32,
    pub(crate) backoff: Backoff,
    pub(crate) lease: LeaseClock,
    runs: Mutex<Runs<K>>,
    /// Wakes the exchange.
    pub(crate) signal: Arc<Notify>,
    pub(crate) front_clock: OnceLock<Arc<dyn Clock>>,
    /// Number of ends that the server has refused, because the run had lost the key, or that were not sent
    /// because the lease was lost.
    pub(crate) ends_refused: AtomicU64,
    /// No keys are claimed any more: the last handle was dropped, or the queue was left. Set under the lock
    /// of `runs`.
    pub(crate) closed: AtomicBool,
    /// The error of the last call for keys and ends, if it failed.
    trouble: Mutex<Option<String>>,
}

/// Result of recording a claimed key.
pub(crate) enum Gave {
    /// Give it to the queue.
    Now(Claimed),
    /// A run that has lost its lease still has it.
    Later,
    /// The ledger is closed: the key is not needed any more.
    Closed(Claimed),
}

impl<K: Key> RunLedger<K> {
    pub(crate) fn new(queue: i32, backoff: Backoff, lease: Duration) -> Self {
        let runs = Runs {
            given: HashMap::new(),
            giving_up: HashMap::new(),
            undecided: HashMap::new(),
            ends: Vec::new(),
            on_their_way: 0,
            drop_unsent: false,
            freed: Vec::new(),
        };
        Self {
            queue,
            backoff,
            lease: LeaseClock::new(lease),
            runs: Mutex::new(runs),
            signal: Arc::default(),
            front_clock: OnceLock::new(),
            ends_refused: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            trouble: Mutex::default(),
        }
    }

    /// The error of the last call for keys and ends, if it failed.
    pub(crate) fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runs(&self) -> MutexGuard<'_, Runs<K>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a claimed key, before the queue in memory has it.
    pub(crate) fn give(&self, key: &K, claimed: Claimed) -> Gave {
        let mut runs = self.runs();
        if self.closed.load(Relaxed) {
            return Gave::Closed(claimed);
        }
        if let Some(given) = runs.given.get_mut(key) {
            given.next = Some(claimed);
            return Gave::Later;
        }
        let Claimed { fence, failures, attempt, .. } = claimed;
        let given = Given { fence, failures, attempt, coming: true, ..Given::default() };
        runs.given.insert(key.clone(), given);
        Gave::Now(claimed)
    }

    /// Records that the queue in memory has the key. True if the ledger was closed or the lease lost
    /// meanwhile, and the key must be put back.
    pub(crate) fn came(&self, key: &K) -> bool {
        let mut runs = self.runs();
        // a worker may have ended it already
        let Some(given) = runs.given.get_mut(key) else { return false };
        given.coming = false;
        given.lost || self.closed.load(Relaxed)
    }

    /// Stops claiming. Returns the keys in memory.
    pub(crate) fn close(&self) -> Vec<K> {
        let runs = self.runs();
        self.closed.store(true, Relaxed);
        runs.in_memory(|_| true)
    }

    /// Records the end of a key that left memory without a run.
    pub(crate) fn take_back(&self, key: &K, how: How) {
        let mut runs = self.runs();
        if let Some(given) = runs.given.remove(key) {
            self.end(&mut runs, key, given, how);
        }
        drop(runs);
        self.signal.notify_one();
    }

    /// Puts back a key that no worker has begun: `cancel` removes it from the queue in memory, and returns
    /// whether it was in line.
    pub(crate) fn put_back(&self, key: &K, cancel: impl FnOnce() -> bool) {
        match self.runs().given.get_mut(key) {
            Some(given) if !given.cancelling => given.cancelling = true,
            // another caller does it, or it has left memory
            _ => return,
        }
        let was_ready = cancel();
        let mut runs = self.runs();
        if let Some(given) = runs.given.get_mut(key) {
            // a worker has it
            given.cancelling = false;
        }
        if let Some(given) = runs.undecided.remove(key) {
            // else a worker has ended it just now
            let how = if was_ready { How::PutBack } else { How::Done };
            self.end(&mut runs, key, given, how);
        }
        drop(runs);
        self.signal.notify_one();
    }

    fn end(&self, runs: &mut Runs<K>, key: &K, given: Given, how: How) {
        let (key, fence) = (key.to_bytes().into(), given.fence);
        let end = End { key, fence, how, may_have_ended: given.in_transaction, is_told_again: false };
        if given.lost {
            self.count_dropped(&[end]);
        } else {
            runs.ends.push(end);
        }
        runs.freed.extend(given.next);
    }

    /// Counts ends that are dropped unsent, because the lease is lost, as refused, if the key would have needed
    /// no further run: it gets one.
    fn count_dropped(&self, ends: &[End]) {
        let is_the_last = |end: &&End| matches!(end.how, How::Done | How::GaveUp(_)) && !end.may_have_ended;
        self.ends_refused.fetch_add(ends.iter().filter(is_the_last).count() as u64, Relaxed);
    }

    /// Records the end of a claimed key that the queue in memory does not get.
    pub(crate) fn end_claimed(&self, claimed: Claimed, how: How) {
        let Claimed { key, fence, .. } = claimed;
        self.runs().ends.push(End { key, fence, how, may_have_ended: false, is_told_again: false });
        self.signal.notify_one();
    }

    /// Takes ends to be sent, at most `most`.
    pub(crate) fn ends(&self, most: usize) -> Vec<End> {
        let mut runs = self.runs();
        let most = fitting(runs.ends.iter().take(most).map(|end| end.how.bytes()));
        (runs.on_their_way, runs.drop_unsent) = (most, false);
        runs.ends.drain(..most).collect()
    }

    /// Takes back those of the ends that [`ends`](Self::ends) returned which the server does not have, to be sent
    /// before all others if `first`, else behind them. The rest has reached the server.
    pub(crate) fn take_back_ends(&self, ends: Vec<End>, first: bool) {
        let mut runs = self.runs();
        runs.on_their_way = 0;
        if runs.drop_unsent {
            return self.count_dropped(&ends);
        }
        let at = if first { 0 } else { runs.ends.len() };
        runs.ends.splice(at..at, ends);
    }

    /// Claimed keys that can be given to the queue now.
    pub(crate) fn freed(&self) -> Vec<Claimed> {
        std::mem::take(&mut self.runs().freed)
    }

    /// Whether there are runs, or keys in memory, whose leases are not lost.
    pub(crate) fn has_runs(&self) -> bool {
        self.runs().given.values().any(|given| !given.lost)
    }

    /// Whether the server has all ends of runs.
    pub(crate) fn has_sent(&self) -> bool {
        let runs = self.runs();
        runs.ends.is_empty() && runs.on_their_way == 0
    }

    /// Whether nothing is left to be sent, and no run goes on.
    pub(crate) fn is_idle(&self) -> bool {
        let runs = self.runs();
        runs.given.is_empty() && runs.ends.is_empty()
    }

    /// The fences of this process's runs, including those whose ends it has not sent.
    pub(crate) fn fences(&self) -> Vec<i64> {
        let runs = self.runs();
        let given = runs.given.values().filter(|given| !given.lost).map(|given| given.fence);
        given.chain(runs.to_begin()).chain(runs.ends.iter().map(|end| end.fence)).collect()
    }

    /// The fences of runs that go on or are to begin, and have not ended on the server, even by a handler's
    /// transaction.
    pub(crate) fn going_on(&self) -> Vec<i64> {
        let runs = self.runs();
        let go_on = |given: &&Given| !given.lost && !given.in_transaction;
        runs.given.values().filter(go_on).map(|given| given.fence).chain(runs.to_begin()).collect()
    }

    /// The keys in memory whose leases are lost.
    pub(crate) fn keys_without_lease(&self) -> Vec<K> {
        self.runs().in_memory(|given| given.lost)
    }

    /// Marks all runs as having lost their leases.
    pub(crate) fn lose_all(&self) {
        let mut runs = self.runs();
        for given in runs.given.values_mut() {
            given.lost = true;
            given.next = None;
        }
        runs.drop_unsent = true;
        self.count_dropped(&runs.ends);
        runs.ends.clear();
        runs.freed.clear();
    }

    /// Records that the run's end becomes part of a user's transaction.
    pub(crate) fn ends_in_transaction(&self, key: &K, fence: i64) {
        if let Some(given) = self.runs().given.get_mut(key).filter(|given| given.fence == fence) {
            given.in_transaction = true;
        }
    }
}

impl<K: Key, V: Serialize> Journal<K, V> for RunLedger<K> {
    fn changed(&self, key: &K, known: Option<Known<'_, V>>) {
        if known.as_ref().is_some_and(|known| known.held) {
            return;
        }
        let mut runs = self.runs();
        let gave_up = runs.giving_up.remove(key);
        let Some(given) = runs.given.remove(key) else { return };
        if given.cancelling && known.is_none() && gave_up.is_none() && !given.in_transaction {
            runs.undecided.insert(key.clone(), given);
            return;
        }
        let how = match known {
            None if given.in_transaction => {
                // If that was committed this changes nothing. If not the run has failed.
                let (failures, attempt) = (given.failures + 1, given.attempt);
                let due = Due::After(self.backoff.delay(given.failures));
                How::Failed { due, failures, attempt }
            }
            None => gave_up.map_or(How::Done, How::GaveUp),
            Some(Known { due, failures, attempt, value, .. }) => How::Back {
                due: due.map_or(Due::Now, Due::At),
                failures,
                attempt: attempt.saturating_sub(1),
                // a value that can't be encoded can't have been added
                value: value.and_then(|value| serde_json::value::to_raw_value(&[value]).ok()),
            },
        };
        self.end(&mut runs, key, given, how);
        drop(runs);
        self.signal.notify_one();
    }

    fn refused(&self, key: &K) {
        self.take_back(key, How::PutBack);
    }

    fn applied(&self, _: u64) {}

    fn gives_up(&self, key: &K, why: &dyn fmt::Display) {
        // PostgreSQL's text has no NUL
        let why = why.to_string().replace('\0', "\u{fffd}");
        self.runs().giving_up.insert(key.clone(), why);
    }

    fn fence(&self, key: &K) -> Fence {
        Fence(self.runs().given.get(key).map_or(0, |given| given.fence.unsigned_abs()))
    }

    /// A process that was stopped past its lease may wake with a worker first, before it has noticed the loss.
    fn may_begin(&self, key: &K) -> bool {
        let is_over = self.lease.is_over();
        let mut runs = self.runs();
        let Some(given) = runs.given.get_mut(key) else { return true };
        given.lost |= is_over;
        !given.lost
    }

    fn engine(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn takes_back(&self) -> bool {
        true
    }

    fn wanted(&self) {
        if !self.closed.load(Relaxed) {
            self.signal.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> RunLedger<u64> {
        let (base, max) = (Duration::from_secs(1), Duration::from_secs(60));
        let ledger = RunLedger::new(1, Backoff { base, max }, Duration::from_secs(30));
        let (key, value) = (7_u64.to_bytes().into(), None);
        let claimed = Claimed { key, fence: 3, attempt: 1, failures: 0, priority: 0, value };
        assert!(matches!(ledger.give(&7, claimed), Gave::Now(_)));
        assert!(!ledger.came(&7));
        ledger
    }

    fn leaves(ledger: &RunLedger<u64>) {
        Journal::<u64, ()>::changed(ledger, &7, None);
    }

    /// One removes the key from the queue in memory, and the other one finds it gone before the first can say so.
    #[test]
    fn a_key_that_two_callers_put_back_at_once_is_put_back() {
        let ledger = ledger();
        let mut gone = false;
        ledger.put_back(&7, || {
            ledger.put_back(&7, || {
                gone = true;
                leaves(&ledger);
                false
            });
            if !gone {
                leaves(&ledger);
            }
            true
        });
        let ends = ledger.ends(9);
        assert!(matches!(&*ends, [End { fence: 3, how: How::PutBack, .. }]), "its run would be lost");
    }
}

//! The ledger of runs: it carries the ends of runs from the queue in memory to the file.

use crate::key;
use crate::rows::{Clocks, EndRow, KeyRecord, Place, TriggerRow, Wall, micros};
use crate::schedule::{RULES, Rule};
use crate::writer::Writer;
use requeue::{Clock, Fence, Instant};
use requeue_engine::{Journal, Key, Known, StoredTrigger};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The time of day.
pub(crate) type WallClock = Arc<dyn Fn() -> Wall + Send + Sync>;

/// Gives the queue in memory a trigger that is written.
pub(crate) type Applies<K> = Arc<dyn Fn(K, StoredTrigger, u64) + Send + Sync>;

/// Options of other processes' requests that this queue does not support: the keys run without them.
#[derive(Default)]
pub(crate) struct Ignored(AtomicU8);

impl Ignored {
    pub(crate) const PRIORITIES: u8 = 1;
    pub(crate) const VALUES: u8 = 2;

    pub(crate) fn note(&self, what: u8) {
        self.0.fetch_or(what, Relaxed);
    }

    /// In words; `None` if there was none.
    pub(crate) fn told(&self) -> Option<&'static str> {
        match self.0.load(Relaxed) {
            0 => None,
            Self::PRIORITIES => Some("priorities"),
            Self::VALUES => Some("values"),
            _ => Some("priorities and values"),
        }
    }
}

/// The ledger of runs: receives the ends of runs from the queue in memory, on their way to the file.
pub(crate) struct RunLedger<K: Key> {
    pub(crate) writer: Arc<Writer>,
    pub(crate) queue: i64,
    /// The last trigger in the queue in memory. Accessed under that queue's lock.
    applied: AtomicU64,
    /// The last fence.
    fences: AtomicU64,
    pub(crate) clocks: Arc<BothClocks>,
    runs: Mutex<Runs<K>>,
    pub(crate) ignored: Ignored,
    /// Set before the queue is worked on.
    pub(crate) applies: OnceLock<Applies<K>>,
}

/// State of runs before they end.
pub(crate) struct Runs<K> {
    /// Reasons of runs that are about to give up.
    giving_up: HashMap<K, String>,
    /// Keys that come again: the interval after each run, or the schedule.
    every: HashMap<K, Duration>,
    rules: HashMap<K, Rule>,
    /// Running keys, and since when.
    pub(crate) begun: HashMap<K, Begun>,
    /// Keys whose runs are shown to others, and have ended.
    pub(crate) over: Vec<K>,
}

impl<K> Default for Runs<K> {
    fn default() -> Self {
        Self {
            giving_up: HashMap::new(),
            every: HashMap::new(),
            rules: HashMap::new(),
            begun: HashMap::new(),
            over: Vec::new(),
        }
    }
}

impl<K: Key> Runs<K> {
    /// Sets when the key comes again: the interval after each run, or the schedule. True if it came again before.
    pub(crate) fn set_every(&mut self, key: &K, every: Duration, rule: Option<Rule>) -> bool {
        match rule {
            Some(rule) => self.rules.insert(key.clone(), rule),
            None => self.rules.remove(key),
        };
        self.every.insert(key.clone(), every).is_some()
    }

    /// Time until the key comes again, if its run began at `began`; `None` if it does not.
    pub(crate) fn next(&mut self, key: &K, began: Wall, now: Wall) -> Option<Duration> {
        match self.rules.get_mut(key) {
            Some(rule) => rule.next(began, now),
            None => self.every.get(key).copied().filter(|every| micros(*every) < RULES),
        }
    }
}

/// A current run.
pub(crate) struct Begun {
    pub(crate) at: Wall,
    /// Whether it is shown to others.
    pub(crate) is_shown: bool,
    fence: Fence,
}

pub(crate) struct BothClocks {
    /// Set before the queue is worked on.
    pub(crate) queue: OnceLock<Arc<dyn Clock>>,
    pub(crate) wall: WallClock,
}

impl BothClocks {
    pub(crate) fn now(&self) -> Instant {
        self.queue.get().map_or(Instant::ORIGIN, Clock::now)
    }
}

impl Clocks for BothClocks {
    fn wall(&self) -> Wall {
        (self.wall)()
    }

    fn until(&self, due: Instant) -> Duration {
        due.saturating_since(self.now())
    }
}

impl<K: Key> RunLedger<K> {
    pub(crate) fn new(writer: Arc<Writer>, queue: i64, fence: u64, wall: WallClock) -> Self {
        Self {
            writer,
            queue,
            applied: AtomicU64::new(0),
            fences: AtomicU64::new(fence),
            clocks: Arc::new(BothClocks { queue: OnceLock::new(), wall }),
            runs: Mutex::default(),
            ignored: Ignored::default(),
            applies: OnceLock::new(),
        }
    }

    /// Takes the queue back from the writer, after its last handle was dropped.
    pub(crate) fn closes(&self) {
        self.writer.take_back(self.queue);
    }

    pub(crate) fn runs(&self) -> MutexGuard<'_, Runs<K>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, key: &K) -> Place {
        (self.queue, key.to_bytes().into())
    }

    /// Records that a key comes again after each run. The transaction with the end of its run has it too.
    pub(crate) fn comes_again(&self, key: &K, every: Option<Duration>) {
        let every = every.filter(|every| !every.is_zero());
        let row = TriggerRow {
            queue: self.queue,
            key: key.to_bytes().into(),
            ticket: 0,
            at: (self.clocks.wall)(),
            delay: every,
            priority: 0,
            value: None,
            every: None,
            absorbs: false,
        };
        let (key, asked) = (key.clone(), StoredTrigger { delay: every, priority: 0, absorbs: false });
        let applies = self.applies.get().cloned();
        self.writer.push(row, |ticket| {
            Box::new(move |written| {
                if let (Ok(()), Some(applies)) = (written, applies) {
                    applies(key, asked, ticket);
                }
            })
        });
    }

    /// Records that the key no longer comes again after its runs. False if it did not.
    pub(crate) fn unschedule(&self, key: &K) -> bool {
        let mut runs = self.runs();
        let known = runs.every.remove(key).is_some();
        runs.rules.remove(key);
        drop(runs);
        if known {
            self.writer.push_unscheduled(self.place(key));
        }
        known
    }
}

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> Journal<K, V> for RunLedger<K> {
    fn changed(&self, key: &K, known: Option<Known<'_, V>>) {
        // of a key that is held it tells in the middle of its run
        let held = known.as_ref().is_some_and(|known| known.held);
        let mut runs = self.runs();
        let dead = if held { None } else { runs.giving_up.remove(key) };
        let begun = if held { None } else { runs.begun.remove(key) };
        if begun.as_ref().is_some_and(|begun| begun.is_shown) {
            runs.over.push(key.clone());
        }
        // One that failed comes again by its back-off, and one that is ready runs first.
        let is_over = !held && known.as_ref().is_none_or(|known| known.failures == 0 && !known.ready);
        let now = (self.clocks.wall)();
        let next = if is_over { runs.next(key, begun.map_or(now, |begun| begun.at), now) } else { None };
        drop(runs);
        let record = known.map(|Known { ready, held, due, failures, attempt, priority, value, .. }| {
            // a value that can't be encoded can't have been added
            let value = value.and_then(|value| key::encode(value).ok());
            KeyRecord { ord: 0, ready, held, due, failures, attempt, priority, value }
        });
        let applied = self.applied.load(Relaxed);
        self.writer.push_end(self.place(key), |ord| EndRow {
            record: record.map(|record| KeyRecord { ord, ..record }),
            dead,
            applied,
            clocks: self.clocks.clone(),
        });
        if next.is_some() {
            self.comes_again(key, next);
        }
    }

    fn applied(&self, ticket: u64) {
        self.applied.store(ticket, Relaxed);
    }

    fn gives_up(&self, key: &K, why: &dyn fmt::Display) {
        self.runs().giving_up.insert(key.clone(), why.to_string());
    }

    fn refused(&self, key: &K) {
        let mut runs = self.runs();
        if runs.begun.remove(key).is_some_and(|begun| begun.is_shown) {
            runs.over.push(key.clone());
        }
    }

    fn fence(&self, key: &K) -> Fence {
        let at = (self.clocks.wall)();
        let mut runs = self.runs();
        if let Some(begun) = runs.begun.get(key) {
            return begun.fence;
        }
        let is_first = runs.begun.is_empty();
        let fence = Fence(self.fences.fetch_add(1, Relaxed) + 1);
        runs.begun.insert(key.clone(), Begun { at, is_shown: false, fence });
        drop(runs);
        if is_first {
            self.writer.shows_soon();
        }
        fence
    }
}

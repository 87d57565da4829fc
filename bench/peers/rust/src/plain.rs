//! A queue that a good engineer writes in an afternoon: one mutex and one condition variable, a slab of keys,
//! a hash table over it with a fast hasher, a line of slot numbers, and a binary heap of timers that each
//! getter checks.
//!
//! It keeps the promises of a work queue (one holder per key, no lost trigger, order), and nothing else: no
//! drain, no limits, and a getter that is woken in vain sleeps again.

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
use parking_lot::{Condvar, Mutex, MutexGuard};
use requeue_bench::Key;
use requeue_bench::queues::{Delaying, Fifo, Metered};
use requeue_bench::sink::Sink;
use slab::Slab;
use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

/// The queue.
#[derive(Debug)]
pub struct Plain<K> {
    state: Mutex<State<K>>,
    ready: Condvar,
    hasher: RandomState,
}

/// A key that was handed out, and its slot.
#[derive(Debug)]
pub struct Item<K> {
    key: K,
    slot: u32,
}

/// A key is known while one of the flags is set.
#[derive(Debug)]
struct Slot<K> {
    key: K,
    hash: u64,
    ready: bool,
    held: bool,
    /// A trigger came while it was held.
    dirty: bool,
    /// Whether it has a timer: see `State::due`.
    waiting: bool,
}

#[derive(Debug)]
struct State<K> {
    slots: Slab<Slot<K>>,
    known: HashTable<u32>,
    line: VecDeque<u32>,
    /// The timers. An entry whose instant differs from `due` is skipped.
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
    due: HashMap<u32, Instant, RandomState>,
    shut: bool,
    told: Option<Told>,
}

/// Metrics, and when each slot's key became ready and was handed out.
#[derive(Debug)]
struct Told {
    sink: Sink,
    times: Vec<(Instant, Instant)>,
}

impl<K: Key> State<K> {
    /// The key's slot; a new one if it is not known. `own` makes the key that is kept.
    fn enter<B: Borrow<K>>(&mut self, hash: u64, key: B, own: fn(B) -> K) -> u32 {
        let slots = &mut self.slots;
        if let Some(slot) = self.known.find(hash, |slot| slots[*slot as usize].key == *key.borrow()) {
            return *slot;
        }
        let new = Slot { key: own(key), hash, ready: false, held: false, dirty: false, waiting: false };
        let slot = slots.insert(new) as u32;
        self.known.insert_unique(hash, slot, |slot| slots[*slot as usize].hash);
        slot
    }

    /// Asks for a run; whether the key has come into the line.
    fn trigger(&mut self, slot: u32) -> bool {
        let of = &mut self.slots[slot as usize];
        let wanted = if of.held { &mut of.dirty } else { &mut of.ready };
        if std::mem::replace(wanted, true) {
            return false;
        }
        let held = of.held;
        if let Some(told) = &mut self.told {
            told.sink.added(1);
            told.times(slot).0 = Instant::now();
        }
        if !held {
            self.line.push_back(slot);
        }
        !held
    }

    fn take(&mut self) -> Option<Item<K>> {
        let slot = self.line.pop_front()?;
        let of = &mut self.slots[slot as usize];
        (of.ready, of.held) = (false, true);
        if let Some(told) = &mut self.told {
            let now = Instant::now();
            let times = told.times(slot);
            times.1 = now;
            let waited = now - times.0;
            told.sink.handed_out(waited);
        }
        Some(Item { key: of.key.clone(), slot })
    }

    /// Ends a run; whether the key has come into the line again.
    fn done(&mut self, slot: u32) -> bool {
        if let Some(told) = &mut self.told {
            let took = told.times(slot).1.elapsed();
            told.sink.run_ended(took);
        }
        let of = &mut self.slots[slot as usize];
        of.held = false;
        if std::mem::take(&mut of.dirty) {
            of.ready = true;
            self.line.push_back(slot);
            return true;
        }
        if !of.waiting {
            let hash = of.hash;
            if let Ok(entry) = self.known.find_entry(hash, |other| *other == slot) {
                entry.remove();
            }
            self.slots.remove(slot as usize);
        }
        false
    }

    /// Makes the keys ready whose timers are due. Returns their number, and the next due instant.
    fn fire(&mut self) -> (usize, Option<Instant>) {
        let mut fired = 0;
        if self.timers.is_empty() {
            return (0, None);
        }
        let now = Instant::now();
        while let Some(&Reverse((at, slot))) = self.timers.peek() {
            if at > now {
                return (fired, Some(at));
            }
            self.timers.pop();
            if self.due.get(&slot) == Some(&at) {
                self.due.remove(&slot);
                self.slots[slot as usize].waiting = false;
                fired += usize::from(self.trigger(slot));
            }
        }
        (fired, None)
    }
}

impl Told {
    fn times(&mut self, slot: u32) -> &mut (Instant, Instant) {
        let slot = slot as usize;
        if self.times.len() <= slot {
            let now = Instant::now();
            self.times.resize(slot + 1, (now, now));
        }
        &mut self.times[slot]
    }
}

impl<K: Key> Plain<K> {
    fn add_as<B: Borrow<K>>(&self, key: B, own: fn(B) -> K) {
        let hash = self.hasher.hash_one(key.borrow());
        let mut state = self.state.lock();
        if state.shut {
            return;
        }
        let slot = state.enter(hash, key, own);
        let pushed = state.trigger(slot);
        drop(state);
        if pushed {
            self.ready.notify_one();
        }
    }

    fn wait(&self, mut state: MutexGuard<'_, State<K>>) -> Option<Item<K>> {
        loop {
            let (fired, next) = state.fire();
            // one of them is for this getter
            for _ in 1..fired {
                self.ready.notify_one();
            }
            if let Some(item) = state.take() {
                return Some(item);
            }
            if state.shut {
                return None;
            }
            match next {
                Some(at) => _ = self.ready.wait_until(&mut state, at),
                None => self.ready.wait(&mut state),
            }
        }
    }
}

impl<K: Key> Fifo for Plain<K> {
    const NAME: &'static str = "plain";
    type Key = K;
    type Item<'q> = Item<K>;

    fn new() -> Self {
        let state = State {
            slots: Slab::new(),
            known: HashTable::new(),
            line: VecDeque::new(),
            timers: BinaryHeap::new(),
            due: HashMap::default(),
            shut: false,
            told: None,
        };
        Self { state: Mutex::new(state), ready: Condvar::new(), hasher: RandomState::default() }
    }
    fn add(&self, key: K) {
        self.add_as(key, |key| key);
    }
    fn add_ref(&self, key: &K) {
        self.add_as(key, K::clone);
    }
    fn get(&self) -> Option<Item<K>> {
        self.wait(self.state.lock())
    }
    fn key(item: &Item<K>) -> &K {
        &item.key
    }
    fn done(&self, item: Item<K>) {
        let pushed = self.state.lock().done(item.slot);
        if pushed {
            self.ready.notify_one();
        }
    }
    fn next(&self, item: Item<K>) -> Option<Item<K>> {
        let mut state = self.state.lock();
        state.done(item.slot);
        self.wait(state)
    }
    fn shut_down(&self, _: usize) {
        self.state.lock().shut = true;
        self.ready.notify_all();
    }
}

impl<K: Key> Delaying for Plain<K> {
    fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let hash = self.hasher.hash_one(&key);
        let at = Instant::now() + delay;
        let mut state = self.state.lock();
        if state.shut {
            return;
        }
        let slot = state.enter(hash, key, |key| key);
        state.slots[slot as usize].waiting = true;
        if state.due.get(&slot).is_none_or(|set| at < *set) {
            state.due.insert(slot, at);
            state.timers.push(Reverse((at, slot)));
            let soonest = state.timers.peek() == Some(&Reverse((at, slot)));
            drop(state);
            if soonest {
                self.ready.notify_one();
            }
        }
    }
}

impl<K: Key> Metered for Plain<K> {
    fn metered() -> Self {
        let plain = Self::new();
        plain.state.lock().told = Some(Told { sink: Sink::default(), times: Vec::new() });
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_bench::{Args, stress};

    #[test]
    fn it_passes_the_stress_check() {
        let mut args = Args::parse(["stress".to_string(), "rounds=4".to_string()]).unwrap();
        stress::run::<Plain<u64>>(&mut args).unwrap();
    }

    #[test]
    fn a_key_whose_timer_is_set_runs_when_it_is_due_and_only_once() {
        let q = Plain::<u64>::new();
        q.add_after(1, Duration::from_millis(30));
        // the earlier one counts
        q.add_after(1, Duration::from_millis(10));
        q.add_after(1, Duration::from_secs(3600));
        let start = Instant::now();
        let item = q.get().unwrap();
        assert!(start.elapsed() <= Duration::from_secs(60) && item.key == 1);
        q.done(item);
        q.shut_down(1);
        assert!(q.get().is_none());
        assert!(q.state.lock().slots.is_empty() && q.state.lock().known.is_empty());
    }

    #[test]
    fn with_metrics_each_add_is_counted_once() {
        let q = Plain::<u64>::metered();
        q.add(1);
        q.add(1);
        let item = q.get().unwrap();
        q.add(1);
        q.add(1);
        let item = q.next(item).unwrap();
        q.done(item);
        assert_eq!(q.state.lock().told.as_ref().unwrap().sink.adds(), 2);
    }
}

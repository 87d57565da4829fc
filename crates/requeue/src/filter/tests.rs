//! The filter through the queue. That an `add` takes no lock is seen by holding
//! the lock meanwhile, on another thread.

use super::*;
use crate::{Added, Item, Order, ReadyOrder, Ticket as Place, WorkQueue};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::AtomicUsize as Count;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

type Queue<K, S = crate::RandomState> = WorkQueue<K, (), S>;

/// What `add` says while the lock is taken; `None` if it waits for it. The adder
/// must have met a redundant add before, for a record of its own.
fn without_the_lock<K, S>(q: &Queue<K, S>, keys: impl Fn() -> K + Sync) -> Option<Added>
where
    K: Hash + Eq + Send + Sync,
    S: BuildHasher + Sync,
{
    thread::scope(|s| {
        let (tell, told) = channel();
        let (go, gone) = channel();
        let keys = &keys;
        s.spawn(move || {
            // gets the thread its record
            assert!(q.add(keys()).is_ok());
            tell.send(None).expect("heard");
            gone.recv().expect("told to go on");
            let _ = tell.send(q.add(keys()).ok());
        });
        assert_eq!(told.recv().expect("it adds"), None);
        let held = q.shared.lock();
        go.send(()).expect("it waits");
        // an add that waits for the lock makes this wait in vain
        let said = told.recv_timeout(Duration::from_secs(60));
        drop(held);
        said.ok().flatten()
    })
}

/// A hasher by which the keys choose: a `u64` is its own hash.
#[derive(Clone, Copy, Default)]
struct Plain;

impl BuildHasher for Plain {
    type Hasher = Same;
    fn build_hasher(&self) -> Same {
        Same(0)
    }
}

struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }
    fn write_u64(&mut self, i: u64) {
        self.0 = i;
    }
}

/// A key that is no integer, counts those that are alive, and does something when
/// it is compared.
struct Key {
    number: u64,
    alive: Arc<Count>,
}

thread_local!(static WHEN_COMPARED: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) });

fn when_compared(what: impl FnMut() + 'static) {
    WHEN_COMPARED.with(|w| *w.borrow_mut() = Some(Box::new(what)));
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        let what = WHEN_COMPARED.with(|w| w.borrow_mut().take());
        if let Some(mut what) = what {
            what();
        }
        self.number == other.number
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.number);
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Relaxed);
    }
}

/// Makes keys, and knows how many are alive.
#[derive(Clone, Default)]
struct Keys(Arc<Count>);

impl Keys {
    fn key(&self, number: u64) -> Key {
        self.0.fetch_add(1, Relaxed);
        Key { number, alive: self.0.clone() }
    }
    fn alive(&self) -> usize {
        self.0.load(Relaxed)
    }
}

fn queue_of_keys() -> (Arc<Queue<Key, Plain>>, Keys) {
    let q = WorkQueue::<Key>::builder().hasher(Plain).build().expect("no metrics");
    (Arc::new(q), Keys::default())
}

#[test]
fn redundant_adds_take_no_lock() {
    let q = Queue::<u64>::new();
    assert_eq!(q.shared.filter.gate.load(Relaxed), EMPTY);
    q.add(7).expect("open");
    assert_eq!(q.shared.filter.gate.load(Relaxed), EMPTY, "no table for what is not redundant");
    assert_eq!(without_the_lock(&q, || 7), Some(Added::Coalesced));
    let q = Queue::<String>::new();
    q.add_ref("a").expect("open");
    assert_eq!(without_the_lock(&q, || "a".to_string()), Some(Added::Coalesced));
    // a key that borrows
    let text = String::from("b");
    let q = Queue::<&str>::new();
    q.add(&text).expect("open");
    assert_eq!(without_the_lock(&q, || text.as_str()), Some(Added::Coalesced));
    // a held key that is dirty, and what becomes of it
    let q = Queue::<i8>::new();
    q.add(-3).expect("open");
    let held = q.try_get().expect("ready");
    q.add(-3).expect("open");
    assert_eq!(without_the_lock(&q, || -3), Some(Added::Coalesced));
    drop(held);
    assert_eq!(without_the_lock(&q, || -3), Some(Added::Coalesced), "ready, and it never stopped pending");
}

#[test]
fn other_adds_take_the_lock() {
    let (q, keys) = queue_of_keys();
    q.add(keys.key(1)).unwrap_or_else(|_| panic!("open"));
    assert_eq!(without_the_lock(&q, || keys.key(1)), Some(Added::Coalesced));
    let held = q.try_get().expect("ready");
    assert!(q.add(keys.key(1)).is_ok_and(|added| added == Added::Dirty));
    drop(held);
    assert_eq!(q.len(), 1);
    drop(q.try_get().expect("ready"));
    assert!(q.add(keys.key(1)).is_ok_and(|added| added == Added::Ready), "idle again");
    // keys of one hash are told apart
    let q = Queue::<String, Plain>::clone(&WorkQueue::builder().hasher(Plain).build().expect("no metrics"));
    let (one, other) = ("\u{1}12345678".to_string(), "\u{2}12345678".to_string());
    q.add_ref(&one).expect("open");
    assert_eq!(without_the_lock(&q, || one.clone()), Some(Added::Coalesced));
    assert_eq!(q.add_ref(&other), Ok(Added::Ready));
}

#[test]
fn an_order_of_ones_own_hears_of_every_add() {
    #[derive(Default)]
    struct Counts(Arc<Count>, BTreeSet<Place>);
    impl ReadyOrder<u64> for Counts {
        fn push(&mut self, _: &u64, ticket: Place) {
            self.1.insert(ticket);
        }
        fn touch(&mut self, _: &u64, _: Place) {
            self.0.fetch_add(1, Relaxed);
        }
        fn pop(&mut self) -> Option<Place> {
            self.1.pop_first()
        }
    }
    let touched = Arc::new(Count::new(0));
    let order = Counts(touched.clone(), BTreeSet::new());
    let q = WorkQueue::builder().order(Order::Own(Box::new(order))).build().expect("no metrics");
    for _ in 0..5 {
        q.add(1).expect("open");
    }
    assert_eq!(touched.load(Relaxed), 4);
}

#[test]
fn a_thread_takes_the_lock_now_and_then() {
    let q = Queue::<u64>::new();
    q.add(1).expect("open");
    q.add(1).expect("open");
    let filter = &q.shared.filter;
    let refused = thread::scope(|s| {
        s.spawn(|| {
            let key = 1u64;
            let hash = q.hash_of(&key);
            let open = filter.open().expect("it has a key");
            (0..4 * 257).filter(|_| !filter.finds(open, &key, hash)).count()
        })
        .join()
        .expect("no panic")
    });
    assert_eq!(refused, 4);
}

#[test]
fn keys_that_share_a_bucket_stand_beside_and_oust_each_other() {
    let q = WorkQueue::<u64>::builder().hasher(Plain).build().expect("no metrics");
    // not 0, a hash that is never published
    let same = |i: u64| (i + 1) << 14;
    let fast = |i| without_the_lock(&q, move || same(i)).is_some();
    for i in 0..4 {
        q.add(same(i)).expect("open");
    }
    assert!((0..4).all(fast), "a bucket has four ways");
    assert!((0..4).all(fast), "and none has ousted another");
    q.add(same(4)).expect("open");
    assert!(fast(4));
    let entered = |i: u64| {
        let bucket = q.shared.filter.words.bucket(0, same(i) as u32).expect("a table");
        bucket.entries().iter().any(|e| table::Entry::holds(e, same(i)))
    };
    assert_eq!((0..5).filter(|&i| entered(i)).count(), 4, "one has gone");
    // the one that was ousted is withdrawn like the others, and comes back
    for _ in 0..5 {
        drop(q.try_get().expect("ready"));
    }
    assert_eq!((0..5).filter(|&i| entered(i)).count(), 0);
    assert!((0..5).all(|i| q.add(same(i)).is_ok_and(|added| added == Added::Ready)));
}

#[test]
fn a_table_that_is_too_small_is_followed_by_larger_ones() {
    let q = Queue::<u64>::new();
    let keys = if cfg!(miri) { 1_500 } else { 10_000 };
    (0..keys).for_each(|key| drop(q.add(key)));
    let filter = &q.shared.filter;
    for _ in 0..4 {
        (0..keys).for_each(|key| drop(q.add(key)));
    }
    let found = |key: &u64| filter.finds(filter.open().expect("in use"), key, q.hash_of(key));
    let known = (0..keys).filter(found).count();
    if !cfg!(miri) {
        assert_eq!((filter.words.made(), filter.gate.load(Relaxed)), (3, 3));
        assert!(known > 9_000, "{known} of 10,000 keys");
    }
    assert!(known > keys as usize / 2, "{known} of {keys} keys");
    // what stood in the first tables is withdrawn as well
    while let Ok(item) = q.try_get() {
        let key = *item.key();
        drop(item);
        assert!(!found(&key));
        let empty = (0..LEVELS).filter_map(|level| filter.words.bucket(level, q.hash_of(&key)));
        let left = empty.flat_map(table::Bucket::entries).filter(|e| table::Entry::holds(*e, key)).count();
        assert_eq!(left, 0, "key {key}");
    }
    // a few keys need no larger table: there is room for them although all share a bucket
    let q = Queue::<u64>::new();
    for _ in 0..5_000 {
        (0..4).for_each(|key| drop(q.add(key)));
    }
    assert_eq!(q.shared.filter.words.made(), 1);
}

#[test]
fn a_key_that_is_read_is_kept_and_then_dropped() {
    let (q, keys) = queue_of_keys();
    let add = |number| q.add(keys.key(number)).unwrap_or_else(|_| panic!("open"));
    for key in [1, 1, 2, 2] {
        add(key);
    }
    let filter = &q.shared.filter;
    let hazards = filter.hazards.as_ref().expect("no integers");
    let item = q.try_get().expect("ready");
    let claim = hazards.hold_own(ptr::from_ref(item.key()).addr());
    item.done();
    assert_eq!((q.stats().known, q.stats().ready), (1, 1), "in limbo is not known");
    assert!(q.state(&keys.key(1)).is_none());
    assert_eq!(keys.alive(), 2);
    // another call while it is still being read
    assert!(filter.owes_a_look());
    assert_eq!((q.len(), keys.alive()), (1, 2));
    drop(claim);
    assert_eq!((q.len(), keys.alive()), (1, 1), "gone with the next call");
    assert!(!filter.owes_a_look());
    drop(q.try_get().expect("ready"));
    assert_eq!((q.stats().known, keys.alive()), (0, 0));
}

#[test]
fn a_key_in_limbo_may_be_triggered_again() {
    let (q, keys) = queue_of_keys();
    let add = |number| q.add(keys.key(number)).unwrap_or_else(|_| panic!("open"));
    for key in [1, 1] {
        add(key);
    }
    let hazards = q.shared.filter.hazards.as_ref().expect("no integers");
    let item = q.try_get().expect("ready");
    let claim = hazards.hold_own(ptr::from_ref(item.key()).addr());
    item.done();
    assert_eq!(q.stats().known, 0);
    assert_eq!(add(1), Added::Ready);
    assert_eq!((q.stats().known, keys.alive()), (1, 1), "the same, where it was");
    let item = q.try_get().expect("ready");
    drop(claim);
    item.done();
    assert_eq!((q.stats().known, keys.alive()), (0, 0));
    // and may outlive a shutdown
    for key in [1, 1] {
        add(key);
    }
    let item = q.try_get().expect("ready");
    let claim = hazards.hold_own(ptr::from_ref(item.key()).addr());
    q.shut_down();
    item.done();
    assert_eq!(keys.alive(), 1);
    drop(claim);
    assert_eq!((q.len(), keys.alive()), (0, 0));
}

#[test]
fn who_stops_reading_lets_the_key_go() {
    let (q, keys) = queue_of_keys();
    let add = |number| q.add(keys.key(number)).unwrap_or_else(|_| panic!("open"));
    for key in [1, 1] {
        add(key);
    }
    let ran = {
        let q = q.clone();
        move || drop(q.try_get().expect("ready"))
    };
    when_compared(ran);
    assert_eq!(add(1), Added::Coalesced, "it was pending when it was found");
    assert_eq!(keys.alive(), 0, "no further call was needed");
}

#[test]
fn an_eq_that_calls_the_queue_takes_the_lock() {
    let (q, keys) = queue_of_keys();
    let add = |number| q.add(keys.key(number)).unwrap_or_else(|_| panic!("open"));
    for key in [1, 1, 2, 2] {
        add(key);
    }
    let nested = {
        let (q, keys) = (q.clone(), keys.clone());
        move || assert!(q.add(keys.key(2)).is_ok_and(|added| added == Added::Coalesced))
    };
    when_compared(nested);
    assert_eq!(add(1), Added::Coalesced);
    assert_eq!(add(2), Added::Coalesced);
    q.shut_down();
    while let Some(item) = q.get_blocking() {
        item.done();
    }
    assert_eq!(keys.alive(), 0);
}

#[test]
fn an_eq_that_panics_leaves_no_claim() {
    let (q, keys) = queue_of_keys();
    let add = |number| q.add(keys.key(number)).unwrap_or_else(|_| panic!("open"));
    for key in [1, 1] {
        add(key);
    }
    let (ran, reached) = (q.clone(), Rc::new(Cell::new(false)));
    let reach = reached.clone();
    when_compared(move || {
        reach.set(true);
        drop(ran.try_get().expect("ready"));
        panic!("an Eq of the user's");
    });
    let panicked = catch_unwind(AssertUnwindSafe(|| add(1)));
    assert!(panicked.is_err() && reached.get());
    assert_eq!(keys.alive(), 0, "the key's run has ended, and nobody reads it");
    assert_eq!((add(1), add(1)), (Added::Ready, Added::Coalesced));
    assert_eq!(without_the_lock(&q, || keys.key(1)), Some(Added::Coalesced));
}

#[test]
fn nothing_is_found_once_the_queue_refuses() {
    let ends: [fn(&Queue<u64>); 4] = [
        |q| assert!(q.shut_down().ready < 2),
        Queue::close,
        |q| drop(q.shut_down_with_drain()),
        |q| drop(q.shut_down_with(crate::DrainOptions::default().waiting_keys(crate::WaitingKeys::Wait))),
    ];
    for end in ends {
        let q = Queue::<u64>::new();
        q.add(1).expect("open");
        q.add(1).expect("open");
        let held = q.try_get().expect("ready");
        q.add(1).expect("open");
        q.add(1).expect("open");
        end(&q);
        assert!(q.add(1).is_err() && q.add_ref(&1).is_err());
        // what stands in the table is withdrawn all the same
        held.done();
        q.try_get().expect("dirty").done();
        assert_eq!(q.stats().known, 0);
    }
}

#[test]
fn a_guard_may_outlive_the_handles_of_a_published_key() {
    let (q, keys) = queue_of_keys();
    for _ in 0..3 {
        q.add(keys.key(1)).unwrap_or_else(|_| panic!("open"));
    }
    let item: Item<'static, Key> = q.try_get().expect("ready").into_owned();
    drop(q);
    assert_eq!((item.key().number, keys.alive()), (1, 1));
    drop(item);
    assert_eq!(keys.alive(), 0);
    // and a queue that goes takes pending keys with it
    let (q, keys) = queue_of_keys();
    for number in [1, 1, 2, 2] {
        q.add(keys.key(number)).unwrap_or_else(|_| panic!("open"));
    }
    drop(q);
    assert_eq!(keys.alive(), 0);
}

#[test]
fn integers_are_told_from_other_keys() {
    fn word<K: 'static>(key: &K) -> Option<u64> {
        raw::word::<K, K>(key)
    }
    assert_eq!((word(&7u8), word(&-1i64), word(&usize::MAX)), (Some(7), Some(u64::MAX), Some(u64::MAX)));
    assert_eq!((word(&-1i8), word(&i32::MIN)), (Some(u64::MAX), Some(0xffff_ffff_8000_0000)));
    struct Own(#[expect(dead_code, reason = "looks like an integer")] u64);
    assert_eq!(
        (word(&Own(7)), word(&'a'), word(&7u128), word(&"a"), word(&())),
        (None, None, None, None, None)
    );
    assert!(raw::is_integer::<u16>() && !raw::is_integer::<Own>() && !raw::is_integer::<&u16>());
    assert_eq!(raw::word::<u64, u32>(&7), None, "another type than the key's");
    assert_eq!(raw::word::<Own, u64>(&7), None);
}

/// Threads that add, get and end runs of keys that are read by their address: for
/// Miri, which sees a key that is read after it was moved or freed.
#[test]
fn keys_that_are_read_come_and_go() {
    let (q, keys) = queue_of_keys();
    let rounds = if cfg!(miri) { 40 } else { 20_000 };
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                for round in 0..rounds {
                    q.add(keys.key(round % 3)).unwrap_or_else(|_| panic!("open"));
                }
            });
        }
        s.spawn(|| {
            for _ in 0..rounds {
                if let Ok(item) = q.try_get() {
                    item.done();
                }
                thread::yield_now();
            }
        });
    });
    q.shut_down();
    while let Some(item) = q.get_blocking() {
        item.done();
    }
    assert_eq!((q.stats().known, keys.alive()), (0, 0));
}

#[test]
fn a_batch_withdraws_each_of_its_keys() {
    fn check<K: Hash + Eq + Clone + Send + Sync + 'static>(keys: &[K], order: Order<K>) {
        let q = WorkQueue::builder().order(order).build().unwrap();
        for key in keys.iter().cycle().take(3 * keys.len()) {
            q.add(key.clone()).unwrap();
        }
        let items = q.try_get_many(keys.len()).unwrap();
        assert_eq!(items.len(), keys.len());
        for key in keys {
            assert_eq!(q.add(key.clone()).ok(), Some(Added::Dirty));
        }
    }
    let numbers: Vec<u32> = (0..100).collect();
    let names: Vec<String> = numbers.iter().map(u32::to_string).collect();
    check(&numbers, Order::Fifo);
    check(&numbers, Order::Lifo);
    check(&names, Order::Fifo);
    check(&names, Order::Lifo);
}

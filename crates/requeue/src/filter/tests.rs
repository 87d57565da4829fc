//! Tests of the filter through the queue. To show that an `add` takes no lock, another thread holds the lock
//! meanwhile.

use super::*;
use crate::{Added, Order, ReadyOrder, Ticket as Place, WorkQueue};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Count;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

type Queue<K, S = crate::RandomState> = WorkQueue<K, (), S>;

/// Result of an add while the lock is taken; `None` if it waits for the lock.
fn without_the_lock<K, S>(q: &Queue<K, S>, add: impl FnOnce() -> Option<Added> + Send) -> Option<Added>
where
    K: Send + Sync,
    S: Sync,
{
    thread::scope(|s| {
        let (tell, told) = channel();
        let held = q.shared.lock();
        s.spawn(move || {
            let _ = tell.send(add());
        });
        // an add that waits for the lock makes this wait in vain
        let said = told.recv_timeout(Duration::from_secs(60));
        drop(held);
        said.ok().flatten()
    })
}

/// A hasher for which a `u64` is its own hash, so that a test chooses the buckets.
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

#[test]
fn redundant_adds_of_integers_take_no_lock() {
    let q = Queue::<u64>::new();
    assert_eq!(q.shared.filter.gate.load(Relaxed), EMPTY);
    q.add(7).expect("open");
    assert_eq!(q.shared.filter.gate.load(Relaxed), EMPTY, "no table for what is not redundant");
    q.add(7).expect("open");
    assert_eq!(without_the_lock(&q, || q.add(7).ok()), Some(Added::Coalesced));
    assert_eq!(without_the_lock(&q, || q.add_ref(&7).ok()), Some(Added::Coalesced));
    // a held key that is dirty, and what becomes of it
    let q = Queue::<i8>::new();
    q.add(-3).expect("open");
    let held = q.try_get().expect("ready");
    for _ in 0..2 {
        q.add(-3).expect("open");
    }
    assert_eq!(without_the_lock(&q, || q.add(-3).ok()), Some(Added::Coalesced));
    drop(held);
    let added = without_the_lock(&q, || q.add(-3).ok());
    assert_eq!(added, Some(Added::Coalesced), "ready, and it never stopped pending");
}

#[test]
fn adds_of_integers_that_are_not_redundant_take_the_lock() {
    let q = Queue::<u64>::new();
    for _ in 0..2 {
        q.add(1).expect("open");
    }
    let held = q.try_get().expect("ready");
    assert_eq!(q.add(1).ok(), Some(Added::Dirty));
    drop(held);
    assert_eq!(q.len(), 1);
    drop(q.try_get().expect("ready"));
    assert_eq!(q.add(1).ok(), Some(Added::Ready), "idle again");
}

#[test]
fn an_add_of_a_key_that_was_cancelled_takes_the_lock() {
    let q = Queue::<u64>::new();
    for _ in 0..2 {
        q.add(1).expect("open");
    }
    assert!(q.cancel(&1).is_some());
    assert_eq!(q.add(1).ok(), Some(Added::Ready));
    // held and dirty
    let held = q.try_get().expect("ready");
    for _ in 0..2 {
        q.add(1).expect("open");
    }
    assert!(q.cancel(&1).is_some());
    assert_eq!(q.add(1).ok(), Some(Added::Dirty));
    drop(held);
    assert_eq!(q.len(), 1);
}

#[test]
fn redundant_adds_of_other_keys_take_the_lock() {
    fn check<K: Hash + Eq + Clone>(key: &K) {
        let q = Queue::<K>::new();
        for added in [Added::Ready, Added::Coalesced, Added::Coalesced] {
            assert_eq!(q.add(key.clone()).ok(), Some(added));
        }
        assert_eq!(q.add_ref(key), Ok(Added::Coalesced));
        assert_eq!(q.shared.filter.gate.load(Relaxed), EMPTY);
    }
    // whose `Eq` is its own, so that two of one number may be two keys
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Id(u64);
    check(&Id(7));
    check(&"a".to_owned());
    check(&7u128);
    let text = String::from("a key that borrows");
    check(&text.as_str());
    check(&&7u64);
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
    let q = WorkQueue::builder().order(Order::Custom(Box::new(order))).build().expect("no metrics");
    for _ in 0..5 {
        q.add(1).expect("open");
    }
    assert_eq!(touched.load(Relaxed), 4);
}

#[test]
fn keys_that_share_a_bucket_stand_beside_and_oust_each_other() {
    let q = WorkQueue::<u64>::builder().hasher(Plain).build().expect("no metrics");
    // not 0, a hash that is never published
    let same = |i: u64| (i + 1) << 14;
    let fast = |i| without_the_lock(&q, || q.add(same(i)).ok()).is_some();
    for i in [0, 1, 2, 3, 0, 1, 2, 3] {
        q.add(same(i)).expect("open");
    }
    assert!((0..4).all(fast), "a bucket has four ways");
    assert!((0..4).all(fast), "and none has ousted another");
    for _ in 0..2 {
        q.add(same(4)).expect("open");
    }
    assert!(fast(4));
    let entered = |i: u64| q.shared.filter.tables.entries_of(0, same(i), same(i) as u32) > 0;
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
    let keys = 10_000;
    (0..keys).for_each(|key| drop(q.add(key)));
    let filter = &q.shared.filter;
    for _ in 0..4 {
        (0..keys).for_each(|key| drop(q.add(key)));
    }
    let found = |key: &u64| filter.finds(filter.open(key).expect("in use"), key, q.hash_of(key));
    let known = (0..keys).filter(found).count();
    assert_eq!((filter.tables.made(), filter.gate.load(Relaxed)), (3, 3));
    assert!(known > 9_000, "{known} of 10,000 keys");
    // the keys of the first tables are withdrawn as well
    while let Ok(item) = q.try_get() {
        let key = *item.key();
        drop(item);
        assert!(!found(&key));
        let left = (0..LEVELS).map(|level| filter.tables.entries_of(level, key, q.hash_of(&key)));
        assert_eq!(left.sum::<usize>(), 0, "key {key}");
    }
    // a few keys need no larger table: there is room for them although all share a bucket
    let q = Queue::<u64>::new();
    for _ in 0..5_000 {
        (0..4).for_each(|key| drop(q.add(key)));
    }
    assert_eq!(q.shared.filter.tables.made(), 1);
}

#[test]
fn nothing_is_found_once_the_queue_refuses() {
    let ends: [fn(&Queue<u64>); 4] = [
        |q| assert!(q.shut_down().ready < 2),
        Queue::close,
        |q| drop(q.drain(crate::DrainOptions::default())),
        |q| drop(q.drain(crate::DrainOptions::default().waiting_keys(crate::WaitingKeys::Wait))),
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
        // entries of the table are withdrawn all the same
        held.done();
        q.try_get().expect("dirty").done();
        assert_eq!(q.stats().known, 0);
    }
}

#[test]
fn integers_are_told_from_other_keys() {
    assert_eq!((word(&7u8), word(&-1i64), word(&usize::MAX)), (Some(7), Some(u64::MAX), Some(u64::MAX)));
    assert_eq!((word(&-1i8), word(&i32::MIN)), (Some(u64::MAX), Some(0xffff_ffff_8000_0000)));
    struct Own(#[expect(dead_code, reason = "looks like an integer")] u64);
    assert_eq!(
        (word(&Own(7)), word(&'a'), word(&7u128), word("a"), word(&())),
        (None, None, None, None, None)
    );
    assert_eq!((word(&&7u64), word(&(7u8, 7u8)), word(&NonZeroU64::MIN)), (None, None, None));
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

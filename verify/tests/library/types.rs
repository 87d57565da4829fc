//! The bounds on keys, values and hashers: these and no more.

use requeue::{Clock, DrainOptions, FakeClock, Item, WorkQueue};
use std::cell::Cell;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// Neither `Clone` nor `Debug` nor `Ord`.
#[derive(PartialEq, Eq, Hash)]
struct Plain(u32);

#[test]
fn q_a_key_need_not_be_clone_but_where_it_leaves_while_the_queue_keeps_it() {
    let clock = FakeClock::new();
    let q = WorkQueue::<Plain, Cell<u32>>::merging(|old: &mut Cell<u32>, new| old.set(old.get() + new.get()))
        .clock(clock.clone())
        .retry_dropped(true)
        .build()
        .unwrap();
    q.add_value(Plain(1), Cell::new(1)).unwrap();
    q.add_value(Plain(1), Cell::new(2)).unwrap();
    q.add_after(Plain(2), Duration::from_millis(1)).unwrap();
    q.add_rate_limited(Plain(3)).unwrap();
    assert!(q.state(&Plain(1)).is_some_and(|state| state.ready));
    let one = q.try_get().unwrap().into_owned();
    assert_eq!(one.value().map(Cell::get), Some(3));
    assert!(one.retry().is_ok());
    q.forget(&Plain(1));
    assert_eq!(q.num_requeues(&Plain(3)), 1);
    assert!(q.done(&Plain(2)).is_err());
    clock.advance(Duration::from_secs(1));
    while let Ok(item) = q.try_get() {
        item.succeed();
    }
    assert!(q.drain(DrainOptions::default()).wait().complete);
    assert!(!format!("{q:?}").is_empty(), "Debug asks nothing of the key");
}

/// Sends every key to the same place.
#[derive(Clone, Default)]
struct Same;

impl BuildHasher for Same {
    type Hasher = Same;
    fn build_hasher(&self) -> Same {
        Same
    }
}

impl Hasher for Same {
    fn finish(&self) -> u64 {
        42
    }
    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn q2_keys_whose_hashes_collide_are_told_apart() {
    let clock = FakeClock::new();
    let q = WorkQueue::<u32>::builder().clock(clock.clone()).hasher(Same).build().unwrap();
    for key in 0..2_000 {
        q.add(key).unwrap();
        q.add(key / 2).unwrap();
    }
    for key in 0..2_000 {
        let item = q.try_get().unwrap();
        assert_eq!(*item.key(), key);
        q.add(key).unwrap();
        assert!(q.state(&key).is_some_and(|state| state.dirty));
    }
    assert_eq!(q.len(), 2_000);
    assert!(clock.now() == requeue::Instant::ORIGIN);
}

#[test]
fn q6_handles_guards_and_waits_cross_threads() {
    fn send<T: Send>(_: &T) {}
    fn sync<T: Sync>(_: &T) {}
    fn both<K: Send + Sync, V: Send>(q: &WorkQueue<K, V>, item: Option<&Item<'static, K, V>>) {
        send(q);
        sync(q);
        send(&q.get());
        send(&q.get().timeout(Duration::ZERO));
        send(&q.drain(DrainOptions::default()));
        let _ = item.map(send);
    }
    // A value need not be Sync.
    both::<String, Cell<u32>>(&WorkQueue::merging(|_, _| {}).build().unwrap(), None);
}

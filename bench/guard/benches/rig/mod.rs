//! The queue that is measured, and keys for it.

use foldhash::quality::FixedState;
use requeue::limiter::default_per_item;
use requeue::{Alarm, Builder as QueueBuilder, Clock, Instant, WorkQueue};
use requeue_guard::OPERATIONS;
use std::hash::Hash;
use std::hint::black_box;
use std::task::Waker;

pub(crate) type Queue<K> = WorkQueue<K, (), FixedState>;

struct Still;

impl Clock for Still {
    fn now(&self) -> Instant {
        Instant::from_nanos(1_000_000_000)
    }

    fn wake_at(&self, _: Instant, _: &Waker) -> Alarm {
        Alarm::default()
    }
}

/// A queue, and keys that it does not know.
pub(crate) struct Rig<K> {
    pub(crate) q: Queue<K>,
    pub(crate) keys: Vec<K>,
}

pub(crate) fn number(i: usize) -> u64 {
    (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A string of 31 bytes.
#[allow(dead_code, reason = "not every program has such keys")]
pub(crate) fn string(i: usize) -> String {
    format!("namespace-0/deployment-{i:08}")
}

pub(crate) type Builder<K> = QueueBuilder<K, (), FixedState>;

/// A queue that has worked already, so that all one-time growth is over; its clock stands still.
#[allow(dead_code, reason = "not every program has such a queue")]
pub(crate) fn rig<K: Hash + Eq + Clone + Send + Sync + 'static>(key: fn(usize) -> K) -> Rig<K> {
    rig_of(key, |builder| builder.clock(Still))
}

/// A rig of a queue with other settings.
pub(crate) fn rig_of<K: Hash + Eq + Clone + Send + Sync + 'static>(
    key: fn(usize) -> K,
    build: impl FnOnce(Builder<K>) -> Builder<K>,
) -> Rig<K> {
    let builder = WorkQueue::<K>::builder().hasher(FixedState::with_seed(17)).limiter(default_per_item());
    let q = build(builder).build().expect("a queue");
    for i in 0..1_000 {
        q.add(key(i)).expect("open");
    }
    while let Ok(item) = q.try_get() {
        item.done();
    }
    Rig { q, keys: (0..OPERATIONS).map(|i| key(i + 50_000_000)).collect() }
}

/// Add, get and done of each key.
#[allow(dead_code, reason = "not every program counts this")]
pub(crate) fn cycle<K: Hash + Eq>(Rig { q, keys }: Rig<K>) -> Queue<K> {
    for key in keys {
        let _ = black_box(q.add(black_box(key)));
        if let Some(item) = q.get_blocking() {
            black_box(item).done();
        }
    }
    q
}

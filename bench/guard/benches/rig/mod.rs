//! The queue that is measured, and keys for it.

use foldhash::quality::FixedState;
use requeue::limiter::default_per_item;
use requeue::{Alarm, Clock, Instant, WorkQueue};
use requeue_guard::OPERATIONS;
use std::hash::Hash;
use std::task::Waker;

pub type Queue<K> = WorkQueue<K, (), FixedState>;

struct Still;

impl Clock for Still {
    fn now(&self) -> Instant {
        Instant::from_nanos(1_000_000_000)
    }

    fn wake_at(&self, _: Instant, _: &Waker) -> Alarm {
        Alarm::none()
    }
}

/// A queue, and keys that it does not know.
pub struct Rig<K> {
    pub q: Queue<K>,
    pub keys: Vec<K>,
}

pub fn number(i: usize) -> u64 {
    (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Of 31 bytes.
pub fn string(i: usize) -> String {
    format!("namespace-0/deployment-{i:08}")
}

/// A queue that has worked already, so that what grows once has grown.
pub fn rig<K: Hash + Eq + Clone + Send + Sync + 'static>(key: fn(usize) -> K) -> Rig<K> {
    let q = WorkQueue::<K>::builder()
        .hasher(FixedState::with_seed(17))
        .clock(Still)
        .limiter(default_per_item())
        .build()
        .expect("a queue");
    for i in 0..1_000 {
        q.add(key(i)).expect("open");
    }
    while let Ok(item) = q.try_get() {
        item.done();
    }
    Rig { q, keys: (0..OPERATIONS).map(|i| key(i + 50_000_000)).collect() }
}

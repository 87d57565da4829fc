//! The paths whose instructions are counted. Nothing in here depends on time, threads or chance: the hasher
//! has a fixed seed, the clock stands still, keys are built before. Return values are dropped after the
//! counting.
//!
//! Paths in one program influence each other's inlining, so adding a path here moves the others: batches are
//! a separate program.

mod rig;

use requeue_guard::{OPERATIONS, count, row};
use rig::{Queue, Rig, cycle, number, rig, string};
use std::hash::Hash;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

/// A rig with ten thousand ready keys.
fn pending<K: Hash + Eq + Clone + Send + Sync + 'static>(key: fn(usize) -> K) -> Rig<K> {
    let rig = rig(key);
    for i in 0..10_000 {
        rig.q.add(key(i)).expect("open");
    }
    rig
}

/// A rig with a hundred ready keys, which are added again and again.
fn redundant<K: Hash + Eq + Clone + Send + Sync + 'static>(key: fn(usize) -> K) -> Rig<K> {
    let Rig { q, .. } = rig(key);
    for i in 0..100 {
        q.add(key(i)).expect("open");
        q.add(key(i)).expect("open");
    }
    Rig { q, keys: (0..OPERATIONS).map(|i| key(i % 100)).collect() }
}

/// Between one and three seconds.
fn delay(i: usize) -> Duration {
    Duration::from_nanos(1_000_000_000 + number(i) % 2_000_000_000)
}

/// A rig with ten thousand waiting keys, and delays for further ones.
fn waiting() -> (Rig<u64>, Vec<Duration>) {
    let rig = rig(number);
    for i in 0..10_000 {
        rig.q.add_after(number(i), delay(i)).expect("open");
    }
    (rig, (0..OPERATIONS).map(|i| delay(i + 77_777)).collect())
}

fn next<K: Hash + Eq>(Rig { q, mut keys }: Rig<K>) -> Queue<K> {
    let first = keys.pop().expect("a key");
    let _ = q.add(first);
    let mut item = q.get_blocking();
    for key in keys {
        let _ = black_box(q.add(black_box(key)));
        item = item.and_then(|item| black_box(item).next().wait());
    }
    drop(item);
    q
}

/// [`next`] in two calls: what `next` must stay below.
fn done_and_get<K: Hash + Eq>(Rig { q, mut keys }: Rig<K>) -> Queue<K> {
    let first = keys.pop().expect("a key");
    let _ = q.add(first);
    let mut item = q.get_blocking();
    for key in keys {
        let _ = black_box(q.add(black_box(key)));
        item = item.and_then(|item| {
            black_box(item).done();
            q.get_blocking()
        });
    }
    drop(item);
    q
}

fn bulk<K: Hash + Eq>(Rig { q, keys }: Rig<K>) -> Queue<K> {
    for key in keys {
        let _ = black_box(q.add(black_box(key)));
    }
    while let Ok(item) = q.try_get() {
        black_box(item).done();
    }
    q
}

fn cycle_u64(rig: Rig<u64>) -> Queue<u64> {
    cycle(rig)
}

fn cycle_string(rig: Rig<String>) -> Queue<String> {
    cycle(rig)
}

fn next_u64(rig: Rig<u64>) -> Queue<u64> {
    next(rig)
}

fn next_string(rig: Rig<String>) -> Queue<String> {
    next(rig)
}

fn done_and_get_u64(rig: Rig<u64>) -> Queue<u64> {
    done_and_get(rig)
}

fn done_and_get_string(rig: Rig<String>) -> Queue<String> {
    done_and_get(rig)
}

fn bulk_u64(rig: Rig<u64>) -> Queue<u64> {
    bulk(rig)
}

fn bulk_string(rig: Rig<String>) -> Queue<String> {
    bulk(rig)
}

fn redundant_u64(Rig { q, keys }: Rig<u64>) -> (Queue<u64>, Vec<u64>) {
    for &key in &keys {
        let _ = black_box(q.add(black_box(key)));
    }
    (q, keys)
}

fn redundant_string(Rig { q, keys }: Rig<String>) -> (Queue<String>, Vec<String>) {
    for key in &keys {
        let _ = black_box(q.add_ref(black_box(key.as_str())));
    }
    (q, keys)
}

fn timer_set_u64((Rig { q, keys }, delays): (Rig<u64>, Vec<Duration>)) -> Queue<u64> {
    for (key, delay) in keys.into_iter().zip(delays) {
        let _ = black_box(q.add_after(black_box(key), delay));
    }
    q
}

fn limited<K: Hash + Eq>(Rig { q, keys }: Rig<K>) -> Queue<K> {
    for key in keys {
        let _ = black_box(q.add_rate_limited(black_box(key)));
    }
    q
}

fn backoff_u64(rig: Rig<u64>) -> Queue<u64> {
    limited(rig)
}

fn backoff_string(rig: Rig<String>) -> Queue<String> {
    limited(rig)
}

fn main() -> ExitCode {
    count::main(&[
        row!("cycle_u64 fresh", rig(number), cycle_u64),
        row!("cycle_u64 pending", pending(number), cycle_u64),
        row!("cycle_string fresh", rig(string), cycle_string),
        row!("cycle_string pending", pending(string), cycle_string),
        row!("next_u64 fresh", rig(number), next_u64),
        row!("next_string fresh", rig(string), next_string),
        row!("done_and_get_u64 fresh", rig(number), done_and_get_u64),
        row!("done_and_get_string fresh", rig(string), done_and_get_string),
        row!("bulk_u64 fresh", rig(number), bulk_u64),
        row!("bulk_string fresh", rig(string), bulk_string),
        row!("redundant_u64 value", redundant(number), redundant_u64),
        row!("redundant_string reference", redundant(string), redundant_string),
        row!("timer_set_u64 waiting", waiting(), timer_set_u64),
        row!("backoff_u64 fresh", rig(number), backoff_u64),
        row!("backoff_string fresh", rig(string), backoff_string),
    ])
}

//! The paths whose instructions are counted. Nothing in here depends on time, threads or chance: the hasher
//! has a fixed seed, the clock stands still, keys are built before. Return values are dropped after the
//! counting.
//!
//! Paths in one program influence each other's inlining, so adding a path here moves the others: batches are
//! a separate program.

// for the macros' output
#![allow(missing_docs, unreachable_pub)]

mod rig;

use gungraun::prelude::*;
use requeue_guard::OPERATIONS;
use rig::{Queue, Rig, cycle, number, rig, string};
use std::hash::Hash;
use std::hint::black_box;
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

#[library_benchmark]
#[bench::fresh(rig(number))]
#[bench::pending(pending(number))]
fn cycle_u64(rig: Rig<u64>) -> Queue<u64> {
    cycle(rig)
}

#[library_benchmark]
#[bench::fresh(rig(string))]
#[bench::pending(pending(string))]
fn cycle_string(rig: Rig<String>) -> Queue<String> {
    cycle(rig)
}

#[library_benchmark]
#[bench::fresh(rig(number))]
fn next_u64(rig: Rig<u64>) -> Queue<u64> {
    next(rig)
}

#[library_benchmark]
#[bench::fresh(rig(string))]
fn next_string(rig: Rig<String>) -> Queue<String> {
    next(rig)
}

#[library_benchmark]
#[bench::fresh(rig(number))]
fn done_and_get_u64(rig: Rig<u64>) -> Queue<u64> {
    done_and_get(rig)
}

#[library_benchmark]
#[bench::fresh(rig(string))]
fn done_and_get_string(rig: Rig<String>) -> Queue<String> {
    done_and_get(rig)
}

#[library_benchmark]
#[bench::fresh(rig(number))]
fn bulk_u64(rig: Rig<u64>) -> Queue<u64> {
    bulk(rig)
}

#[library_benchmark]
#[bench::fresh(rig(string))]
fn bulk_string(rig: Rig<String>) -> Queue<String> {
    bulk(rig)
}

#[library_benchmark]
#[bench::value(redundant(number))]
fn redundant_u64(Rig { q, keys }: Rig<u64>) -> (Queue<u64>, Vec<u64>) {
    for &key in &keys {
        let _ = black_box(q.add(black_box(key)));
    }
    (q, keys)
}

#[library_benchmark]
#[bench::reference(redundant(string))]
fn redundant_string(Rig { q, keys }: Rig<String>) -> (Queue<String>, Vec<String>) {
    for key in &keys {
        let _ = black_box(q.add_ref(black_box(key.as_str())));
    }
    (q, keys)
}

#[library_benchmark]
#[bench::waiting(waiting())]
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

#[library_benchmark]
#[bench::fresh(rig(number))]
fn backoff_u64(rig: Rig<u64>) -> Queue<u64> {
    limited(rig)
}

#[library_benchmark]
#[bench::fresh(rig(string))]
fn backoff_string(rig: Rig<String>) -> Queue<String> {
    limited(rig)
}

library_benchmark_group!(
    name = paths;
    benchmarks =
        cycle_u64, cycle_string, next_u64, next_string, done_and_get_u64,
        done_and_get_string, bulk_u64, bulk_string,
        redundant_u64, redundant_string, timer_set_u64, backoff_u64, backoff_string
);

main!(library_benchmark_groups = paths);

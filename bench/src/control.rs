//! Calls that take a hand in one key of many: how long the longest of them takes.
//!
//! The longest call of one round is the scheduler's as often as the queue's. So the same
//! calls are made in the same order in several rounds, and of each call the shortest time
//! counts: what the queue does is the same in all rounds, what disturbs it is not.
//!
//! Keys are numbers: freeing a million strings makes glibc's allocator put all of their chunks in
//! order in one call of `free`, which takes milliseconds and is not the queue's.

use crate::keys::{Random, keys};
use crate::measure::Percentiles;
use crate::ours::NAME;
use crate::{Args, Line, Usage};
use requeue::{Add, FakeClock, Only, Scope, WorkQueue};
use std::time::{Duration, Instant};

/// Number of priority levels of the keys in `what=raise`.
const LEVELS: usize = 100;

/// Reads the parameters and measures. An operation is a call.
///
/// `what=cancel`: each of `n` keys is cancelled, in any order; `raise`: each is added again with a higher
/// priority; `pause`: each is paused; `resume`: each was paused, and is resumed; `explain`: for each, the
/// reason why it does not run is asked; `page`: all of them, in pages of 1,000. Before that the keys are
/// `state=ready`, `waiting` or `held` (and triggered again, but for `page`).
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run(args: &mut Args) -> Result<Line, Usage> {
    let what = args.choice("what", &["cancel", "raise", "pause", "resume", "explain", "page"])?;
    let state = args.choice("state", &["ready", "waiting", "held"])?;
    let (n, rounds) = (args.number("n", 1_000_000)?, args.number("rounds", 5)?);
    let params = args.finish()?;
    let start = Instant::now();
    let mut shortest: Vec<u64> = Vec::new();
    for _ in 0..rounds.max(1) {
        let took = round(what, state, n);
        match shortest.is_empty() {
            true => shortest = took,
            false => shortest.iter_mut().zip(took).for_each(|(least, took)| *least = took.min(*least)),
        }
    }
    let calls = shortest.len() as u64 * rounds.max(1) as u64;
    let mut line = Line::new(NAME, "control", params, calls, start.elapsed());
    let percentiles = Percentiles::of(shortest);
    line.extra.insert("p99_99_us", percentiles.us(0.9999));
    Ok(line.percentiles(&percentiles))
}

fn round(what: &str, state: &str, n: usize) -> Vec<u64> {
    let builder = WorkQueue::<u64>::builder().clock(FakeClock::new());
    let builder = if what == "raise" { builder.priorities() } else { builder };
    let q = builder.build().expect("the options go together");
    let mut keys = keys::<u64>(0, n);
    let add = |(i, key): (usize, &u64)| {
        let level = if what == "raise" { (i % LEVELS) as i16 } else { 0 };
        let added = match state {
            "waiting" => {
                let after = Duration::from_secs(3_600 + i as u64);
                q.add_with(*key, Add::after(after).priority(level))
            }
            _ => q.add_with(*key, Add::now().priority(level)),
        };
        added.expect("it is open");
    };
    keys.iter().enumerate().for_each(add);
    let held = if state == "held" { q.try_get_many(n).ok() } else { None };
    if held.is_some() && what != "page" {
        // so that there is something to take away, or to raise
        keys.iter().enumerate().for_each(add);
    }
    let mut random = Random::new(12);
    for i in (1..n).rev() {
        keys.swap(i, random.below(i as u64 + 1) as usize);
    }
    let took = match what {
        "cancel" => each(keys, |key| {
            let _ = q.cancel(&key);
        }),
        "raise" => each(keys, |key| {
            let _ = q.add_with(key, Add::now().priority(LEVELS as i16));
        }),
        "pause" => each(keys, |key| {
            let _ = q.pause(Scope::Key(key));
        }),
        "resume" => {
            keys.iter().for_each(|key| {
                let _ = q.pause(Scope::Key(*key));
            });
            each(keys, |key| {
                let _ = q.resume(Scope::Key(&key));
            })
        }
        "explain" => each(keys, |key| {
            let _ = std::hint::black_box(q.explain(&key));
        }),
        _ => pages(&q, state),
    };
    drop(held);
    took
}

fn each(keys: Vec<u64>, mut call: impl FnMut(u64)) -> Vec<u64> {
    let time = |key: u64| {
        let start = Instant::now();
        call(key);
        start.elapsed().as_nanos() as u64
    };
    keys.into_iter().map(time).collect()
}

/// Time of each page, including the clones of its keys outside the lock.
fn pages(q: &WorkQueue<u64>, state: &str) -> Vec<u64> {
    let only = match state {
        "waiting" => Only::Waiting,
        "held" => Only::Held,
        _ => Only::Ready,
    };
    let mut pages = q.snapshot().only(only);
    std::iter::from_fn(|| {
        let start = Instant::now();
        let page = pages.next()?;
        let took = start.elapsed().as_nanos() as u64;
        drop(page);
        Some(took)
    })
    .collect()
}

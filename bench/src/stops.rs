//! The worst stop, how long one call makes everybody wait.
//!
//! The worst of a run is the scheduler's as often as the queue's: what counts is
//! the smallest worst of several.

use crate::crew::{Form, Tally, consume_in_threads};
use crate::cycle::ready;
use crate::keys::{keys, unscramble};
use crate::measure::Percentiles;
use crate::queues::{Delaying, Fifo};
use crate::timers::{CONSUMERS, delays_of};
use crate::{Args, Key, Line, Usage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time that the prober sleeps between two calls.
const PAUSE: Duration = Duration::from_micros(20);

/// Reads the parameters and measures.
///
/// `what=grow`: `max_us` is the worst add of `n`. `what=shrink`: the worst done while `n` keys are worked
/// off. `what=due`: `n` timers fall due within two seconds, two consumers work them off, and a third thread
/// adds a key now and then: its worst add. That stands for the worst hold of the queue's lock, which cannot
/// be seen from outside: no hold is longer than this, and a hold is missed only if no add falls into it.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run<Q: Delaying<Key = u64>>(args: &mut Args) -> Result<Line, Usage> {
    let what = args.choice("what", &["grow", "shrink", "due"])?;
    let n = args.number("n", 1_000_000)?;
    let params = args.finish()?;
    Ok(match what {
        "grow" => grow::<Q>(params, n),
        "shrink" => shrink::<Q>(params, n),
        _ => due::<Q>(params, n),
    })
}

fn timed(f: impl FnOnce()) -> Duration {
    let start = Instant::now();
    f();
    start.elapsed()
}

fn worst<Q: Fifo>(params: String, n: usize, wall: Duration, worst: Duration) -> Line {
    let mut line = Line::new(Q::NAME, "stops", params, n as u64, wall);
    line.max_us = Some(worst.as_nanos() as f64 / 1e3);
    line
}

fn grow<Q: Fifo<Key = u64>>(params: String, n: usize) -> Line {
    let (q, keys) = (Q::new(), keys::<u64>(0, n));
    let start = Instant::now();
    let longest = keys.into_iter().map(|key| timed(|| q.add(key))).max().unwrap_or_default();
    worst::<Q>(params, n, start.elapsed(), longest)
}

fn shrink<Q: Fifo<Key = u64>>(params: String, n: usize) -> Line {
    let q = Q::new();
    keys::<u64>(0, n).into_iter().for_each(|key| q.add(key));
    let start = Instant::now();
    let done = |_| {
        let item = ready(&q);
        timed(|| q.done(item))
    };
    let longest = (0..n).map(done).max().unwrap_or_default();
    worst::<Q>(params, n, start.elapsed(), longest)
}

fn due<Q: Delaying<Key = u64>>(params: String, n: usize) -> Line {
    let q = Arc::new(Q::new());
    let (keys, delays) = (keys::<u64>(0, n), delays_of("uniform", n));
    let tally = Tally::new(CONSUMERS);
    let states = (0..CONSUMERS).map(|which| (which, n as u64, Arc::clone(&tally))).collect();
    let consumers =
        consume_in_threads(&q, Form::Plain, states, |(which, n, tally): &mut (_, _, Arc<Tally>), key| {
            // the prober's keys are others
            if unscramble(*key) < *n {
                tally.count(*which);
            }
        });
    let start = Instant::now();
    for (key, delay) in keys.into_iter().zip(delays) {
        q.add_after(key, delay);
    }
    let over = Arc::new(AtomicBool::new(false));
    let prober = {
        let (q, over) = (Arc::clone(&q), Arc::clone(&over));
        std::thread::spawn(move || {
            let mut took = Vec::with_capacity(1 << 20);
            for i in n as u64.. {
                if over.load(Relaxed) && !took.is_empty() {
                    break;
                }
                let key = u64::nth(i);
                took.push(timed(|| q.add(key)).as_nanos() as u64);
                std::thread::sleep(PAUSE);
            }
            took
        })
    };
    tally.wait_for(n as u64);
    let wall = start.elapsed();
    over.store(true, Relaxed);
    let took = prober.join().expect("it ends well");
    q.shut_down(CONSUMERS);
    consumers.join();
    let mut line = Line::new(Q::NAME, "stops", params, n as u64, wall);
    line.extra.insert("probes", took.len() as f64);
    line.percentiles(&Percentiles::of(took))
}

//! Rate limits.

use crate::crew::on_threads;
use crate::keys::keys;
use crate::measure::{Spent, Stopwatch};
use crate::queues::{Bucket, Exponential, Limiter, RateLimited};
use crate::{Args, Line, Usage};
use std::hint::black_box;

/// Reads the parameters of `backoff` and measures. An operation is an `add_rate_limited` of a key that was never
/// seen. Keys that come due meanwhile (the first delay is 1 ms) become ready, and no caller takes them.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run<U: RateLimited<Key = u64>, S: RateLimited<Key = String>>(args: &mut Args) -> Result<Line, Usage> {
    let key = args.choice("key", &["u64", "string"])?;
    let by =
        if args.choice("limiter", &["builtin", "own"])? == "own" { Limiter::Own } else { Limiter::Builtin };
    let n = args.number("n", 1_000_000)?;
    let params = args.finish()?;
    let spent = match key {
        "u64" => add::<U>(by, n),
        _ => add::<S>(by, n),
    };
    Ok(Line::spent(U::NAME, "backoff", params, n as u64, spent))
}

fn add<Q: RateLimited>(by: Limiter, n: usize) -> Spent {
    let (q, keys) = (Q::limited(by), keys(0, n));
    let watch = Stopwatch::start();
    keys.into_iter().for_each(|key| q.add_rate_limited(key));
    watch.stop()
}

/// Reads the parameters of `when` and measures. An operation is a `when` of a
/// key that was never seen.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn when<U: Exponential<Key = u64>, S: Exponential<Key = String>>(args: &mut Args) -> Result<Line, Usage> {
    let key = args.choice("key", &["u64", "string"])?;
    let n = args.number("n", 1_000_000)?;
    let params = args.finish()?;
    let spent = match key {
        "u64" => ask::<U>(n),
        _ => ask::<S>(n),
    };
    Ok(Line::spent(U::NAME, "when", params, n as u64, spent))
}

fn ask<L: Exponential>(n: usize) -> Spent {
    let (limiter, keys) = (L::new(), keys(0, n));
    let watch = Stopwatch::start();
    for key in &keys {
        black_box(limiter.when(key));
    }
    watch.stop()
}

/// Reads the parameters of `bucket` and measures. An operation is the
/// reservation of a token, reading the clock included.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn bucket<B: Bucket>(args: &mut Args) -> Result<Line, Usage> {
    let threads = args.number("threads", 1)?;
    let n = args.number("n", 4_000_000)?;
    let params = args.finish()?;
    let bucket = B::new(1e6, 100);
    let spent = on_threads(threads, n, |_, n| {
        for _ in 0..n {
            black_box(bucket.reserve());
        }
    });
    Ok(Line::spent(B::NAME, "bucket", params, n as u64, spent))
}

//! One thread adds, gets and ends a million distinct keys.

use crate::keys::keys;
use crate::measure::{Spent, Stopwatch};
use crate::{Args, Fifo, Line, Usage};

/// Keys a call in the form `batch32`.
const BATCH: usize = 32;

/// Number of other ready keys in the shape `pending`.
pub(crate) const PENDING: usize = 100_000;

/// Reads the parameters and measures: `U` is the queue for `key=u64`, `S` the
/// one for `key=string`. An operation is a key's add, get and done.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run<U: Fifo<Key = u64>, S: Fifo<Key = String>>(args: &mut Args) -> Result<Line, Usage> {
    one_thread("cycle", ("shape", &["cycle", "pending", "bulk"]), behind::<U>, behind::<S>, args)
}

/// A queue in which other keys are ready already, if that is the shape.
fn behind<Q: Fifo>(shape: &str, n: usize) -> Q {
    let q = Q::new();
    if shape == "pending" {
        keys(n, PENDING).into_iter().for_each(|key| q.add(key));
    }
    q
}

/// The common part of `cycle`, `metrics` and `fartimers`: one thread works off `n` keys on a queue made in one of several ways.
/// `ways` is the parameter that selects the way, with its possible words.
pub(crate) fn one_thread<U: Fifo<Key = u64>, S: Fifo<Key = String>>(
    workload: &str,
    ways: (&'static str, &[&'static str]),
    u64s: fn(&str, usize) -> U,
    strings: fn(&str, usize) -> S,
    args: &mut Args,
) -> Result<Line, Usage> {
    let key = args.choice("key", &["u64", "string"])?;
    let way = args.choice(ways.0, ways.1)?;
    let form = args.choice("form", &["plain", "next", "batch32"])?;
    let n = args.number("n", 1_000_000)?;
    let params = args.finish()?;
    if form == "batch32" && !(U::BATCHES && S::BATCHES) {
        return Err(Usage::Cannot(format!("{} has one key a call", U::NAME)));
    }
    let spent = match key {
        "u64" => work_off(&u64s(way, n), way, form, n),
        _ => work_off(&strings(way, n), way, form, n),
    };
    Ok(Line::spent(U::NAME, workload, params, n as u64, spent))
}

fn work_off<Q: Fifo>(q: &Q, way: &str, form: &str, n: usize) -> Spent {
    let keys = keys(0, n);
    match (way, form) {
        ("bulk", "batch32") => bulk_batch(q, keys),
        (_, "batch32") => cycle_batch(q, keys),
        ("bulk", "plain") => bulk(q, keys),
        ("bulk", _) => bulk_next(q, keys),
        (_, "plain") => cycle(q, keys),
        _ => cycle_next(q, keys),
    }
}

/// Result of `get` with a ready key.
pub(crate) fn ready<Q: Fifo>(q: &Q) -> Q::Item<'_> {
    q.get().expect("a key is ready")
}

fn cycle<Q: Fifo>(q: &Q, keys: Vec<Q::Key>) -> Spent {
    let watch = Stopwatch::start();
    for key in keys {
        q.add(key);
        q.done(ready(q));
    }
    watch.stop()
}

/// Like `cycle`, but a run's end and the next `get` are one call.
fn cycle_next<Q: Fifo>(q: &Q, keys: Vec<Q::Key>) -> Spent {
    let mut held = None;
    let watch = Stopwatch::start();
    for key in keys {
        q.add(key);
        held = match held.take() {
            Some(item) => q.next(item),
            None => q.get(),
        };
    }
    if let Some(last) = held {
        q.done(last);
    }
    watch.stop()
}

fn bulk<Q: Fifo>(q: &Q, keys: Vec<Q::Key>) -> Spent {
    let n = keys.len();
    let watch = Stopwatch::start();
    keys.into_iter().for_each(|key| q.add(key));
    for _ in 0..n {
        q.done(ready(q));
    }
    watch.stop()
}

fn bulk_next<Q: Fifo>(q: &Q, keys: Vec<Q::Key>) -> Spent {
    let n = keys.len();
    let watch = Stopwatch::start();
    keys.into_iter().for_each(|key| q.add(key));
    let mut item = ready(q);
    for _ in 1..n {
        item = q.next(item).expect("a key is ready");
    }
    q.done(item);
    watch.stop()
}

fn cycle_batch<Q: Fifo>(q: &Q, keys: Vec<Q::Key>) -> Spent {
    let mut keys = keys.into_iter();
    let watch = Stopwatch::start();
    while keys.len() > 0 {
        q.add_many(keys.by_ref().take(BATCH));
        q.work_off(BATCH);
    }
    watch.stop()
}

fn bulk_batch<Q: Fifo>(q: &Q, keys: Vec<Q::Key>) -> Spent {
    let mut left = keys.len();
    let mut keys = keys.into_iter();
    let watch = Stopwatch::start();
    while keys.len() > 0 {
        q.add_many(keys.by_ref().take(BATCH));
    }
    while left > 0 {
        left -= q.work_off(BATCH);
    }
    watch.stop()
}

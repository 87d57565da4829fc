//! W3: ten million adds of a hundred keys that are ready already.

use crate::keys::keys;
use crate::measure::{Spent, Stopwatch};
use crate::{Args, Fifo, Line, Usage};
use std::sync::Barrier;

/// How many keys there are.
const KEYS: usize = 100;

/// Reads the parameters and measures. An operation is an `add`; where strings are
/// passed by value, the caller's clone is part of it.
///
/// # Errors
///
/// Where a parameter is wrong.
pub fn run<U: Fifo<Key = u64>, S: Fifo<Key = String>>(args: &mut Args) -> Result<Line, Usage> {
    let key = args.choice("key", &["u64", "string"])?;
    let pass = args.choice("pass", &["value", "ref"])?;
    let threads = args.number("threads", 1)?;
    let n = args.number("n", 10_000_000)?;
    let params = args.finish()?;
    let spent = match key {
        "u64" => measure::<U>(pass, threads, n),
        _ => measure::<S>(pass, threads, n),
    };
    Ok(Line::spent(U::NAME, "w3", params, n as u64, spent))
}

fn measure<Q: Fifo>(pass: &str, threads: usize, n: usize) -> Spent {
    let q = Q::new();
    let keys = keys::<Q::Key>(0, KEYS);
    keys.iter().for_each(|key| q.add_ref(key));
    let barrier = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (q, barrier) = (&q, &barrier);
            // a copy of its own for each thread, and another key to begin with
            let keys = keys.clone();
            let n = n / threads + usize::from(thread < n % threads);
            scope.spawn(move || {
                let keys = keys.iter().cycle().skip(thread * KEYS / threads).take(n);
                barrier.wait();
                match pass {
                    "value" => keys.for_each(|key| q.add(key.clone())),
                    _ => keys.for_each(|key| q.add_ref(key)),
                }
                barrier.wait();
            });
        }
        barrier.wait();
        let watch = Stopwatch::start();
        barrier.wait();
        watch.stop()
    })
}

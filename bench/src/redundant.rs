//! Ten million adds of a hundred keys that are ready already.

use crate::crew::on_threads;
use crate::keys::keys;
use crate::measure::Spent;
use crate::{Args, Fifo, Line, Usage};

/// Number of keys.
const KEYS: usize = 100;

/// Reads the parameters and measures. An operation is an `add`; if strings are passed by value, the caller's
/// clone is part of it.
///
/// # Errors
///
/// If a parameter is wrong.
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
    Ok(Line::spent(U::NAME, "redundant", params, n as u64, spent))
}

fn measure<Q: Fifo>(pass: &str, threads: usize, n: usize) -> Spent {
    let q = Q::new();
    let keys = keys::<Q::Key>(0, KEYS);
    keys.iter().for_each(|key| q.add_ref(key));
    // a copy of its own for each thread, and another key to begin with
    let copies: Vec<_> = (0..threads).map(|_| keys.clone()).collect();
    on_threads(threads, n, |which, n| {
        let keys = copies[which].iter().cycle().skip(which * KEYS / threads).take(n);
        match pass {
            "value" => keys.for_each(|key| q.add(key.clone())),
            _ => keys.for_each(|key| q.add_ref(key)),
        }
    })
}

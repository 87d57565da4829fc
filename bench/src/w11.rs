//! W11: W1's cycle on a queue that has timers set, none of which is due.

use crate::keys::keys;
use crate::measure::Spent;
use crate::queues::Delaying;
use crate::w1::{cycle, cycle_next};
use crate::{Args, Fifo, Line, Usage};
use std::time::Duration;

/// How many keys wait where many do.
const MANY: usize = 10_000;

/// Reads the parameters and measures. An operation is a key's add, get and done.
///
/// # Errors
///
/// Where a parameter is wrong.
pub fn run<U: Delaying<Key = u64>, S: Delaying<Key = String>>(args: &mut Args) -> Result<Line, Usage> {
    let key = args.choice("key", &["u64", "string"])?;
    let timers = args.choice("timers", &["one", "many", "none"])?;
    let form = args.choice("form", &["plain", "next"])?;
    let n = args.number("n", 1_000_000)?;
    let params = args.finish()?;
    let spent = match key {
        "u64" => measure::<U>(timers, form, n),
        _ => measure::<S>(timers, form, n),
    };
    Ok(Line::spent(U::NAME, "w11", params, n as u64, spent))
}

fn measure<Q: Delaying>(timers: &str, form: &str, n: usize) -> Spent {
    let q = <Q as Fifo>::new();
    let set = match timers {
        "one" => 1,
        "many" => MANY,
        _ => 0,
    };
    for (i, key) in keys(n, set).into_iter().enumerate() {
        // between one hour and two, as those of keys that fail for long
        q.add_after(key, Duration::from_secs(3600 + (i * 3600 / MANY) as u64));
    }
    let keys = keys(0, n);
    if form == "next" { cycle_next(&q, keys) } else { cycle(&q, keys) }
}

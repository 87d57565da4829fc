//! W8: W1's cycle, told to counters and histograms.

use crate::keys::keys;
use crate::measure::Spent;
use crate::queues::{Fifo, Metered};
use crate::w1::{cycle, cycle_next};
use crate::{Args, Line, Usage};

/// Reads the parameters and measures. An operation is a key's add, get and done.
///
/// # Errors
///
/// Where a parameter is wrong.
pub fn run<U: Metered<Key = u64>, S: Metered<Key = String>>(args: &mut Args) -> Result<Line, Usage> {
    let key = args.choice("key", &["u64", "string"])?;
    let metrics = args.choice("metrics", &["off", "on"])?;
    let form = args.choice("form", &["plain", "next"])?;
    let n = args.number("n", 1_000_000)?;
    let params = args.finish()?;
    let spent = match key {
        "u64" => measure::<U>(metrics, form, n),
        _ => measure::<S>(metrics, form, n),
    };
    Ok(Line::spent(U::NAME, "w8", params, n as u64, spent))
}

fn measure<Q: Metered>(metrics: &str, form: &str, n: usize) -> Spent {
    let q = if metrics == "on" { Q::metered() } else { <Q as Fifo>::new() };
    let keys = keys(0, n);
    if form == "next" { cycle_next(&q, keys) } else { cycle(&q, keys) }
}

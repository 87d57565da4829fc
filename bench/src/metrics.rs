//! The cycle, with counters and histograms.

use crate::cycle::one_thread;
use crate::queues::Metered;
use crate::{Args, Line, Usage};

/// Reads the parameters and measures. An operation is a key's add, get and done.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run<U: Metered<Key = u64>, S: Metered<Key = String>>(args: &mut Args) -> Result<Line, Usage> {
    one_thread("metrics", ("metrics", &["off", "on"]), told::<U>, told::<S>, args)
}

fn told<Q: Metered>(metrics: &str, _: usize) -> Q {
    if metrics == "on" { Q::metered() } else { Q::new() }
}

//! The cycle on a queue that has timers set, none of which is due.

use crate::cycle::one_thread;
use crate::keys::keys;
use crate::queues::Delaying;
use crate::{Args, Line, Usage};
use std::time::Duration;

/// Number of waiting keys in the shape with many.
const MANY: usize = 10_000;

/// Reads the parameters and measures. An operation is a key's add, get and done.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run<U: Delaying<Key = u64>, S: Delaying<Key = String>>(args: &mut Args) -> Result<Line, Usage> {
    one_thread("fartimers", ("timers", &["one", "many", "none"]), timed::<U>, timed::<S>, args)
}

fn timed<Q: Delaying>(timers: &str, n: usize) -> Q {
    let q = Q::new();
    let set = match timers {
        "one" => 1,
        "many" => MANY,
        _ => 0,
    };
    for (i, key) in keys(n, set).into_iter().enumerate() {
        // between one hour and two, as those of keys that fail for long
        q.add_after(key, Duration::from_secs(3600 + (i * 3600 / MANY) as u64));
    }
    q
}

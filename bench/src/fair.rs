//! Whether every key runs when there is more to do than can be done, in virtual
//! time: 200 keys, one worker, 10 ms a run, a minute.

use crate::keys::Random;
use crate::{Args, Key, Line, Usage};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const KEYS: u64 = 200;
const RUN: Duration = Duration::from_millis(10);
const RUNS: u64 = 6000;

/// A queue whose time stands still until it is moved.
pub trait Virtual {
    /// The name under which it is measured.
    const NAME: &'static str;
    /// An empty queue.
    fn new() -> Self;
    /// Asks for a run now.
    fn add(&mut self, key: u64);
    /// Takes a key that is ready.
    fn get(&mut self) -> u64;
    /// Moves the time while the key runs.
    fn advance(&mut self, by: Duration);
    /// Ends the run.
    fn done(&mut self, key: u64);
}

/// Reads the parameters and counts: `load` triggers of random keys come in the
/// time of a run.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run<Q: Virtual>(args: &mut Args) -> Result<Line, Usage> {
    let load = args.number("load", 2)?;
    let params = args.finish()?;
    let (mut q, mut random) = (Q::new(), Random::new(1));
    let mut runs: HashMap<u64, u32> = (0..KEYS).map(|i| (u64::nth(i), 0)).collect();
    let start = Instant::now();
    let mut add = |q: &mut Q| (0..load).for_each(|_| q.add(u64::nth(random.below(KEYS))));
    add(&mut q);
    for _ in 0..RUNS {
        let key = q.get();
        *runs.entry(key).or_default() += 1;
        add(&mut q);
        q.advance(RUN);
        q.done(key);
    }
    let mut line = Line::new(Q::NAME, "fair", params, RUNS, start.elapsed());
    let count = |f: fn(&u32) -> bool| runs.values().filter(|n| f(n)).count() as f64;
    line.extra.insert("never_run", count(|n| *n == 0));
    line.extra.insert("min_runs", runs.values().min().copied().unwrap_or(0).into());
    line.extra.insert("max_runs", runs.values().max().copied().unwrap_or(0).into());
    Ok(line)
}

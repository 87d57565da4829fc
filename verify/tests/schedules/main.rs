//! The bounds of the contract's part B over random schedules, played by `requeue-sim`: the real
//! queue in virtual time, with producers, workers and failures.
//!
//! `REQUEUE_SCHEDULES` sets the number of schedules that each test plays, `REQUEUE_SEED` the first of them;
//! `verify/schedules.sh` is the long form.
#![cfg(not(any(requeue_loom, requeue_counted)))]

mod backoff;
mod bound;
mod debounce;
mod everything;
mod groups;
mod mixed;
mod priority;
mod rate;

use requeue_sim::{Key, Sim, Value, check};
use std::time::{Duration, Instant};

const SCHEDULES: u64 = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Plays the schedules, and prints a summary in the long form.
#[track_caller]
fn play<K: Key, V: Value>(name: &str, scenario: impl FnMut() -> Sim<K, V>) {
    let (count, first) = (number("REQUEUE_SCHEDULES"), number("REQUEUE_SEED").unwrap_or(0));
    let began = Instant::now();
    let all = check(first..first.saturating_add(count.unwrap_or(SCHEDULES)), scenario);
    assert!(all.runs > 0);
    if count.is_some() {
        let (schedules, steps, runs) = (all.schedules, all.steps, all.runs);
        let (hours, took) = (all.simulated.as_secs() / 3_600, began.elapsed().as_secs_f64());
        println!("{name}: {schedules} schedules, {steps} steps, {runs} runs, {hours} hours, in {took:.1} s");
    }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

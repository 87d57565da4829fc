//! The scenarios, as data: what every queue is given, and what comes back.

use requeue_bench::keys::Random;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A scenario: triggers at instants, and what runs do. Times are milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) lasting: u64,
    /// Duration of a run. There is one worker.
    pub(crate) run: u64,
    pub(crate) keys: usize,
    /// Instant, key, priority; by instant.
    pub(crate) triggers: Vec<(u64, usize, i16)>,
    /// Every run fails, and this long after its end there is an event of its own write.
    pub(crate) fails: bool,
    pub(crate) echo: u64,
    /// Run after so long without triggers, at the latest after so long.
    pub(crate) quiet: u64,
    pub(crate) max: u64,
    /// The first key of each tenant but the first.
    pub(crate) tenants: Vec<usize>,
}

/// The runs of one queue: key, and the instant of its beginning in milliseconds.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Ran {
    pub(crate) queue: String,
    pub(crate) script: String,
    pub(crate) runs: Vec<(usize, f64)>,
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// 200 keys, 10 ms a run, a minute; `load` triggers of random keys in the time of a run.
fn overload(name: &'static str, load: u64) -> Script {
    let (keys, run, lasting, mut random) = (200, 10, 60_000, Random::new(1));
    let mut key = || random.below(keys) as usize;
    let triggers = (0..lasting / run).flat_map(|i| (0..load).map(move |_| i * run));
    let triggers = triggers.map(|at| (at, key(), 0)).collect();
    Script { name, lasting, run, keys: keys as usize, triggers, ..Script::default() }
}

/// 100,000 keys of the initial list, two milliseconds a run; after ten seconds, in the middle of a run, an urgent
/// one.
fn urgent() -> Script {
    let keys = 100_001;
    let mut triggers: Vec<_> = (0..keys - 1).map(|key| (0, key, -100)).collect();
    triggers.push((10_001, keys - 1, 100));
    Script { name: "urgent", lasting: 210_000, run: 2, keys, triggers, ..Script::default() }
}

/// Three tenants, 5 ms a run, so 200 runs a second. One has 1,000 keys and 1,000 triggers a second; the
/// others ten keys and ten triggers a second each.
fn tenants() -> Script {
    let (lasting, mut random) = (60_000, Random::new(2));
    let mut triggers: Vec<_> = (0..lasting).map(|at| (at, random.below(1_000) as usize, 0)).collect();
    for first in [1_000, 1_010] {
        let quiet =
            (0..lasting / 100).map(|i| (i * 100 + first % 100, first as usize + (i % 10) as usize, 0));
        triggers.extend(quiet);
    }
    triggers.sort_by_key(|(at, ..)| *at);
    let tenants = vec![1_000, 1_010];
    Script { name: "tenants", lasting, run: 5, keys: 1_020, triggers, tenants, ..Script::default() }
}

/// A key whose runs fail; each writes the key's object, and the event of that comes 250 ms later.
fn echo() -> Script {
    let triggers = vec![(0, 0, 0)];
    let (lasting, run, keys, fails, echo) = (12_000, 1, 1, true, 250);
    Script { name: "echo", lasting, run, keys, triggers, fails, echo, ..Script::default() }
}

/// A trigger each 100 ms, to be run after a second without one, at the latest after five.
fn debounce(name: &'static str, lasting: u64, until: u64) -> Script {
    let triggers = (0..until / 100).map(|i| (i * 100, 0, 0)).collect();
    Script { name, lasting, run: 1, keys: 1, triggers, quiet: 1_000, max: 5_000, ..Script::default() }
}

/// All of them.
pub(crate) fn all() -> Vec<Script> {
    vec![
        overload("overload-2x", 2),
        overload("overload-4x", 4),
        urgent(),
        tenants(),
        echo(),
        debounce("debounce-burst", 20_000, 3_000),
        debounce("debounce-endless", 60_000, 60_000),
    ]
}

/// Waiting times in milliseconds of the triggers of the keys in the range: until the run that they led to
/// began, or until the end.
pub(crate) fn waits(script: &Script, ran: &Ran, keys: std::ops::Range<usize>) -> Vec<f64> {
    let mut begun = vec![Vec::new(); script.keys];
    for (key, at) in &ran.runs {
        begun[*key].push(*at);
    }
    let mut since: Vec<Option<f64>> = vec![None; script.keys];
    let mut next = vec![0; script.keys];
    let mut waits = Vec::new();
    for (at, key, _) in &script.triggers {
        let (at, key) = (*at as f64, *key);
        if !keys.contains(&key) {
            continue;
        }
        while let Some(begin) = begun[key].get(next[key]).filter(|begin| **begin < at) {
            next[key] += 1;
            waits.extend(since[key].take().map(|since| begin - since));
        }
        since[key].get_or_insert(at);
    }
    for key in keys {
        let begin = begun[key].get(next[key]).copied().unwrap_or(script.lasting as f64);
        waits.extend(since[key].map(|since| begin - since));
    }
    waits.sort_by(f64::total_cmp);
    waits
}

/// The value that so large a part of them is not above.
pub(crate) fn percentile(sorted: &[f64], part: f64) -> f64 {
    let place = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Number of runs of each key.
pub(crate) fn counts(script: &Script, ran: &Ran) -> Vec<u64> {
    let mut counts = vec![0; script.keys];
    for (key, _) in &ran.runs {
        counts[*key] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_from_the_first_trigger_to_the_run_that_follows_it() {
        let triggers = vec![(0, 0, 0), (5, 0, 0), (20, 0, 0), (25, 1, 0), (30, 0, 0)];
        let script = Script { lasting: 100, keys: 2, triggers, ..Script::default() };
        let ran = Ran { queue: String::new(), script: String::new(), runs: vec![(0, 10.0), (0, 30.0)] };
        assert_eq!(waits(&script, &ran, 0..1), [10.0, 10.0]);
        assert_eq!(waits(&script, &ran, 1..2), [75.0], "it never ran");
        assert_eq!(percentile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.0);
        assert_eq!(percentile(&[1.0, 2.0, 3.0, 4.0], 0.99), 4.0);
    }
}

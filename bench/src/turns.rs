//! The cost of turns: keys of a queue with priorities, or with groups, compared with those of a plain
//! one.
//!
//! A million integers are added, then each is got and its run ended, on one thread. The queues take turns in
//! one process, and the result is the processor time of each round compared with the plain queue's in the
//! same round.

use crate::keys::{Key, scramble};
use crate::measure::Stopwatch;
use crate::ours::NAME;
use crate::{Args, Line, Usage};
use requeue::{Add, Builder, WorkQueue};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Number of groups.
const GROUPS: u64 = 10_000;
const LEVELS: u64 = 100;

/// The queues that take turns, the plain one first, and the figures printed for each of the others.
const QUEUES: [(&str, [&str; 3]); 4] = [
    ("plain", ["plain_ns", "", ""]),
    ("priorities", ["priorities_ns", "priorities_to_plain", "priorities_to_plain_least"]),
    ("groups", ["groups_ns", "groups_to_plain", "groups_to_plain_least"]),
    ("sequence", ["sequence_ns", "sequence_to_plain", "sequence_to_plain_least"]),
];

/// Reads the parameters and measures. An operation is a key of the plain queue.
///
/// `only=all`: besides the plain queue one with a hundred priorities in no order, and two with 10,000 groups
/// whose keys come in no order (`groups`) and one group after another (`sequence`); or one of these. `_ns` is
/// the median of the rounds, `_to_plain` the median of the rounds' times in multiples of the plain queue's,
/// `_to_plain_least` the shortest round in multiples of the plain queue's shortest.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run(args: &mut Args) -> Result<Line, Usage> {
    let only = args.choice("only", &["all", "plain", "priorities", "groups", "sequence"])?;
    let (n, rounds) = (args.number("n", 1_000_000)?.max(1), args.number("rounds", 9)?.max(1));
    let params = args.finish()?;
    let chosen: Vec<usize> =
        (0..QUEUES.len()).filter(|i| *i == 0 || only == "all" || QUEUES[*i].0 == only).collect();
    let keys: Vec<Vec<u64>> = chosen.iter().map(|i| keys_of(QUEUES[*i].0, n)).collect();
    let start = Instant::now();
    let mut took = vec![Vec::new(); chosen.len()];
    for _ in 0..rounds {
        for ((i, keys), took) in chosen.iter().zip(&keys).zip(&mut took) {
            took.push(round(QUEUES[*i].0, keys).as_secs_f64() * 1e9 / n as f64);
        }
    }
    let mut line = Line::new(NAME, "turns", params, (n * rounds) as u64, start.elapsed());
    line.ns_per_op = median(&took[0]);
    for (i, took_it) in chosen.iter().zip(&took) {
        let [ns, ratio, least] = QUEUES[*i].1;
        line.extra.insert(ns, median(took_it));
        if *i > 0 {
            let ratios: Vec<f64> = took_it.iter().zip(&took[0]).map(|(it, plain)| it / plain).collect();
            line.extra.insert(ratio, median(&ratios));
            line.extra.insert(least, smallest(took_it) / smallest(&took[0]));
        }
    }
    Ok(line)
}

/// The keys of one of the queues: their group is `key % GROUPS`.
fn keys_of(queue: &str, n: usize) -> Vec<u64> {
    let in_sequence = |i: u64| scramble(i) / (2 * GROUPS) * GROUPS + i % GROUPS;
    (0..n as u64).map(|i| if queue == "sequence" { in_sequence(i) } else { u64::nth(i) }).collect()
}

/// The processor time of one round.
fn round(queue: &str, keys: &[u64]) -> Duration {
    let build = |builder: Builder<u64>| builder.build().expect("the options go together");
    let plain = |q: &WorkQueue<u64>, _: usize, key: u64| {
        let _ = black_box(q.add(key));
    };
    match queue {
        "plain" => add_and_run(&build(WorkQueue::builder()), keys, plain),
        "priorities" => add_and_run(&build(WorkQueue::builder().priorities()), keys, |q, i, key| {
            let level = (i as u64 * 37 % LEVELS) as i16;
            let _ = black_box(q.add_with(key, Add::now().priority(level)));
        }),
        _ => add_and_run(&build(WorkQueue::builder().group_by(|key: &u64| key % GROUPS)), keys, plain),
    }
}

#[inline(always)]
fn add_and_run(q: &WorkQueue<u64>, keys: &[u64], add: impl Fn(&WorkQueue<u64>, usize, u64)) -> Duration {
    let watch = Stopwatch::start();
    for (i, key) in keys.iter().enumerate() {
        add(q, i, *key);
    }
    let mut runs = 0;
    while let Ok(item) = q.try_get() {
        black_box(item).done();
        runs += 1;
    }
    let spent = watch.stop();
    assert_eq!(runs, keys.len(), "each key ran, and no two are alike");
    spent.cpu
}

fn median(of: &[f64]) -> f64 {
    let mut of = of.to_vec();
    of.sort_by(f64::total_cmp);
    f64::midpoint(of[(of.len() - 1) / 2], of[of.len() / 2])
}

fn smallest(of: &[f64]) -> f64 {
    of.iter().copied().fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_in_sequence_are_of_one_group_after_another_and_differ() {
        let keys = keys_of("sequence", 30_000);
        assert!(keys.iter().enumerate().all(|(i, key)| key % GROUPS == i as u64 % GROUPS));
        assert_eq!(keys.iter().collect::<std::collections::HashSet<_>>().len(), keys.len());
    }

    #[test]
    fn the_median_is_the_middle_one_or_between_two() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
    }
}

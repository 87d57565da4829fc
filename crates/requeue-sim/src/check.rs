//! Many schedules, and the search for a small one that fails.

use crate::engine::{play, tell};
use crate::source::Source;
use crate::trace::{Seconds, Trace, TraceError};
use crate::{Call, Key, Sim, Value};
use requeue::Instant;
use std::collections::HashSet;
use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

/// Maximum number of steps in the search for a smaller trace, or ten times the steps of the failure if that
/// is more.
const SEARCH: u64 = 5_000_000;

/// Up to this number of calls, the search tries many seeds.
const FEW: usize = 64;
const SEEDS: u64 = 32;

/// Totals of the schedules played.
///
/// ```
/// # use requeue::WorkQueue;
/// # use requeue_sim::{Sim, Trigger, explore};
/// # use std::time::Duration;
/// let summary = explore(0..10, || {
///     Sim::new(|clock| WorkQueue::builder().clock(clock).build().unwrap())
///         .producer(Duration::from_secs(1), |rng| Trigger::now(rng.below(3)))
/// })?;
/// assert_eq!((summary.schedules, summary.calls), (10, 600));
/// assert_eq!(summary.simulated, Duration::from_secs(600));
/// # Ok::<(), requeue_sim::Failure>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Schedules that were played to their end.
    pub schedules: u64,
    /// Steps: calls, looks of workers for a key, runs that began and ended.
    pub steps: u64,
    /// Calls.
    pub calls: u64,
    /// Runs that have begun.
    pub runs: u64,
    /// The time that passed in the simulations.
    pub simulated: Duration,
}

impl AddAssign for Summary {
    fn add_assign(&mut self, more: Self) {
        self.schedules += more.schedules;
        self.steps += more.steps;
        self.calls += more.calls;
        self.runs += more.runs;
        self.simulated = self.simulated.saturating_add(more.simulated);
    }
}

/// A schedule that breaks an invariant.
///
/// It is shown with its trace, which [`Sim::replay`] plays again.
///
/// ```
/// # use requeue::WorkQueue;
/// # use requeue_sim::{Sim, Trigger, explore};
/// # use std::time::Duration;
/// let scenario = || {
///     Sim::<u64>::new(|clock| WorkQueue::builder().clock(clock).build().unwrap())
///         .producer(Duration::from_secs(1), |rng| Trigger::now(rng.below(100)))
///         .invariant("nobody asks for 7", |world| match world.key(&7) {
///             Some(_) => Err("somebody does".into()),
///             None => Ok(()),
///         })
/// };
/// let failure = explore(0..100, scenario).unwrap_err();
/// assert_eq!((failure.calls, failure.keys), (1, 1));
/// assert!(failure.trace.ends_with(" add \"7\"\n"));
/// assert!(scenario().replay(&failure.trace).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// Seed of the schedule that failed. The trace may need another one, which it names.
    pub seed: u64,
    /// The invariant's name.
    pub invariant: String,
    /// The violation.
    pub why: String,
    /// Time since the simulation began.
    pub at: Duration,
    /// Number of calls in the trace.
    pub calls: usize,
    /// Number of their keys.
    pub keys: usize,
    /// The trace to replay: the seed, and each call with its instant, one per line. Consequences are between
    /// them as comments.
    pub trace: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, invariant, why, at, calls, keys, trace } = self;
        let at = Seconds(*at);
        writeln!(f, "{invariant:?} is broken at {at}: {why}")?;
        writeln!(f, "found with seed {seed}; calls: {calls}, keys: {keys}; `Sim::replay` plays this again:")?;
        f.write_str(trace)
    }
}

impl std::error::Error for Failure {}

/// Error of a replay.
///
/// ```
/// # use requeue::WorkQueue;
/// # use requeue_sim::{ReplayError, Sim};
/// let sim = Sim::<u32>::new(|clock| WorkQueue::builder().clock(clock).build().unwrap());
/// assert!(matches!(sim.replay("what?"), Err(ReplayError::Trace(_))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayError {
    /// The schedule fails, as it should or in another way.
    Failed(Failure),
    /// The trace cannot be read.
    Trace(TraceError),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => failure.fmt(f),
            Self::Trace(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReplayError {}

/// Plays a schedule for each seed, until one fails. It then searches for a smaller trace, with fewer keys and
/// calls, that breaks that invariant.
///
/// The scenario is built anew for each schedule, and must always be equal.
///
/// # Errors
///
/// The first failure.
///
/// ```
/// use requeue::WorkQueue;
/// use requeue_sim::{Plan, Sim, Trigger, explore};
/// use std::time::Duration;
///
/// let seconds = Duration::from_secs;
/// let scenario = || {
///     Sim::new(|clock| WorkQueue::builder().clock(clock).priorities().build().unwrap())
///         .lasting(seconds(600))
///         // urgent objects, more of them than can be served, and two others
///         .producer(seconds(1)..=seconds(4), |rng| Trigger::now(rng.below(20)).priority(10))
///         .producer(seconds(60), |rng| Trigger::now(100 + rng.below(2)))
///         .handler(move |_, rng| Plan::done().taking(rng.between(seconds(2)..=seconds(5))))
///         .invariant("no key is ready for more than 20 s", move |world| {
///             match world.ready().find(|(_, waited)| *waited > seconds(20)) {
///                 Some((key, waited)) => Err(format!("{key} has been for {waited:?}")),
///                 None => Ok(()),
///             }
///         })
/// };
/// let failure = explore(0..100, scenario).unwrap_err();
/// // the one that waits, and those that it takes to keep it waiting
/// assert!(failure.calls < 30, "{failure}");
/// // the same, in a file say
/// assert!(scenario().replay(&failure.trace).is_err());
/// ```
pub fn explore<K: Key, V: Value>(
    seeds: impl IntoIterator<Item = u64>,
    mut scenario: impl FnMut() -> Sim<K, V>,
) -> Result<Summary, Failure> {
    let mut all = Summary::default();
    for seed in seeds {
        let played = play(scenario(), seed, Source::producers(), true);
        match played.verdict {
            Ok(summary) => all += summary,
            Err(failure) => {
                let mut search = Search { scenario: &mut scenario, seed, failure, budget: 0 };
                search.budget = SEARCH.max(played.steps.saturating_mul(10));
                return Err(search.smaller(played.calls));
            }
        }
    }
    Ok(all)
}

/// Like [`explore`], for tests.
///
/// # Panics
///
/// If a schedule fails, with the failure and its trace.
///
/// ```
/// # use requeue::WorkQueue;
/// # use requeue_sim::{Sim, Trigger, check};
/// # use std::time::Duration;
/// check(0..100, || {
///     Sim::new(|clock| WorkQueue::builder().clock(clock).build().unwrap())
///         .producer(Duration::from_secs(1), |rng| Trigger::now(rng.below(3)))
///         .invariant("at most three keys", |world| match world.queue().stats().known {
///             0..=3 => Ok(()),
///             more => Err(format!("{more}")),
///         })
/// });
/// ```
#[track_caller]
pub fn check<K: Key, V: Value>(
    seeds: impl IntoIterator<Item = u64>,
    scenario: impl FnMut() -> Sim<K, V>,
) -> Summary {
    match explore(seeds, scenario) {
        Ok(summary) => summary,
        Err(failure) => panic!("{failure}"),
    }
}

type Calls<K, V> = Vec<(Instant, Call<K, V>)>;

/// Length of a list of calls: a call of several triggers counts once for each.
fn length<K, V>(calls: &[(Instant, Call<K, V>)]) -> usize {
    calls.iter().map(|(_, call)| call.keys().count().max(1)).sum()
}

struct Search<'a, F> {
    scenario: &'a mut F,
    /// Seed of the smallest trace so far.
    seed: u64,
    /// Failure of that trace. Its seed is that of the first failure.
    failure: Failure,
    /// Number of steps left for the search.
    budget: u64,
}

impl<F> Search<'_, F> {
    /// Removes whole keys, then pieces of the list: half of it, a quarter and so on. Repeats until nothing
    /// can be removed.
    fn smaller<K: Key, V: Value>(mut self, mut calls: Calls<K, V>) -> Failure
    where
        F: FnMut() -> Sim<K, V>,
    {
        loop {
            let before = length(&calls);
            calls = self.without_keys(calls);
            calls = self.without_pieces(calls, 1);
            if calls.len() <= FEW {
                calls = self.without_pieces(calls, SEEDS);
            }
            if length(&calls) == before {
                break;
            }
        }
        let trace = tell((self.scenario)(), &Trace { seed: self.seed, calls });
        Failure { trace, ..self.failure }
    }

    fn without_keys<K: Key, V: Value>(&mut self, mut calls: Calls<K, V>) -> Calls<K, V>
    where
        F: FnMut() -> Sim<K, V>,
    {
        let mut seen = HashSet::new();
        let keys: Vec<K> = calls.iter().flat_map(|(_, call)| call.keys().cloned()).collect();
        let keys: Vec<K> = keys.into_iter().filter(|key| seen.insert(key.clone())).collect();
        // half of the keys at once, a quarter and so on: there may be very many
        let mut size = keys.len().div_ceil(2).max(1);
        let mut gone: HashSet<K> = HashSet::new();
        loop {
            for some in keys.chunks(size) {
                if some.iter().all(|key| gone.contains(key)) {
                    continue;
                }
                let less: Calls<K, V> = calls
                    .iter()
                    .filter_map(|(at, call)| Some((*at, call.without(|key| some.contains(key))?)))
                    .collect();
                if length(&less) < length(&calls) && self.fails(&less) {
                    calls = less;
                    gone.extend(some.iter().cloned());
                }
            }
            if size == 1 {
                return calls;
            }
            size = size.div_ceil(2);
        }
    }

    /// Tries each shorter list with this number of seeds: it may fail with another seed only, because the
    /// runs follow from the seed.
    fn without_pieces<K: Key, V: Value>(&mut self, mut calls: Calls<K, V>, seeds: u64) -> Calls<K, V>
    where
        F: FnMut() -> Sim<K, V>,
    {
        let mut size = calls.len().div_ceil(2).max(1);
        loop {
            let mut from = 0;
            while from < calls.len() {
                let to = (from + size).min(calls.len());
                let less: Calls<K, V> = calls[..from].iter().chain(&calls[to..]).cloned().collect();
                let seed = self.seed;
                let fails = (0..seeds).any(|more| {
                    self.seed = seed.wrapping_add(more);
                    self.fails(&less)
                });
                if fails {
                    calls = less;
                } else {
                    (self.seed, from) = (seed, to);
                }
            }
            if size == 1 {
                return calls;
            }
            size = size.div_ceil(2);
        }
    }

    /// Whether these calls break the invariant. If so, the failure is kept.
    fn fails<K: Key, V: Value>(&mut self, calls: &[(Instant, Call<K, V>)]) -> bool
    where
        F: FnMut() -> Sim<K, V>,
    {
        if self.budget == 0 {
            return false;
        }
        let played = play((self.scenario)(), self.seed, Source::calls(calls), true);
        self.budget = self.budget.saturating_sub(played.steps);
        match played.verdict {
            // calls that come after the failure are not made
            Err(failure) if failure.invariant == self.failure.invariant && failure.calls == calls.len() => {
                self.failure = Failure { seed: self.failure.seed, ..failure };
                true
            }
            _ => false,
        }
    }
}

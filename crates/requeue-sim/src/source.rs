//! [`Source`]: where the calls of a schedule come from.

use crate::rng::mix;
use crate::sim::Producer;
use crate::{Call, Rng};
use requeue::Instant;

/// A source of calls.
pub(crate) enum Source<'a, K, V> {
    /// The simulation's producers: each with its next instant and its random numbers.
    Producers { next: Vec<(Instant, Rng)>, until: Instant, due: Vec<Call<K, V>> },
    /// A list, by instant, of which `made` were made.
    Calls { list: &'a [(Instant, Call<K, V>)], made: usize },
}

impl<'a, K: Clone, V: Clone> Source<'a, K, V> {
    pub(crate) fn producers() -> Self {
        Self::Producers { next: Vec::new(), until: Instant::NEVER, due: Vec::new() }
    }

    pub(crate) fn calls(list: &'a [(Instant, Call<K, V>)]) -> Self {
        Self::Calls { list, made: 0 }
    }

    pub(crate) fn begin(&mut self, seed: u64, producers: &[Producer<K, V>], last: Instant) {
        if let Self::Producers { next, until, .. } = self {
            *until = last;
            next.extend(producers.iter().enumerate().map(|(i, producer)| {
                let mut rng = Rng::new(mix(&[seed, i as u64]));
                (Instant::ORIGIN + producer.gap.draw(&mut rng), rng)
            }));
        }
    }

    pub(crate) fn soonest(&self) -> Option<Instant> {
        match self {
            Self::Producers { next, until, .. } => {
                next.iter().map(|(at, _)| *at).min().filter(|at| at <= until)
            }
            Self::Calls { list, made } => list.get(*made).map(|(at, _)| *at),
        }
    }

    /// Collects the calls due at this instant.
    pub(crate) fn come_to(&mut self, now: Instant, producers: &mut [Producer<K, V>]) {
        if let Self::Producers { next, until, due } = self {
            for ((at, rng), producer) in next.iter_mut().zip(producers) {
                if *at <= now && *at <= *until {
                    due.push((producer.make)(rng));
                    *at = now + producer.gap.draw(rng);
                }
            }
            due.reverse();
        }
    }

    pub(crate) fn has_due(&self, now: Instant) -> bool {
        match self {
            Self::Producers { due, .. } => !due.is_empty(),
            Self::Calls { list, made } => list.get(*made).is_some_and(|(at, _)| *at <= now),
        }
    }

    pub(crate) fn take(&mut self) -> Option<Call<K, V>> {
        match self {
            Self::Producers { due, .. } => due.pop(),
            Self::Calls { list, made } => {
                let call = list.get(*made)?.1.clone();
                *made += 1;
                Some(call)
            }
        }
    }
}

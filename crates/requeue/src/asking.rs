//! Limiters that keep their own counts: asked outside the lock. A shutdown may overtake the call, and the limiter may
//! panic, so the state machine is told before and after.

use crate::hold::Shared;
use requeue_core::{Asking, Instant, Refused, RunRef};
use std::time::Duration;

impl<K, V> Shared<K, V> {
    /// Asks for the delay of a run's retry. The limiter is not asked for a run whose retry will be a fresh start.
    pub(crate) fn ask(
        &self,
        run: &RunRef<K>,
        instead: Option<Duration>,
        now: Instant,
    ) -> Result<(Duration, Asking), Refused> {
        let (asking, afresh) = self.hold(Some(now)).with(|hold| {
            let asking = hold.core.ask(Some(run)).inspect_err(|_| {
                if let Some(delay) = instead {
                    hold.core.refused_to_come_after(run, delay);
                }
            })?;
            Ok((asking, hold.core.starts_afresh(run)))
        })?;
        if afresh {
            self.limiter.forget(run.key());
            return Ok((Duration::ZERO, asking));
        }
        Ok((self.asked(run.key(), now, asking, false), asking))
    }

    /// The limiter's delay, once the state machine knows that it is asked. If the key starts afresh, the
    /// limiter forgets it first. A refused trigger never gets here, so it forgets nothing.
    pub(crate) fn asked(&self, key: &K, now: Instant, asking: Asking, resets: bool) -> Duration {
        let unasked = Unask { shared: self, asking, left: 1 };
        if resets {
            self.limiter.forget(key);
        }
        let delay = self.limiter.when(key, now);
        std::mem::forget(unasked);
        delay
    }
}

/// On drop, withdraws limiter calls whose triggers do not come because the limiter panicked.
pub(crate) struct Unask<'a, K, V> {
    pub(crate) shared: &'a Shared<K, V>,
    pub(crate) asking: Asking,
    /// Number of calls to withdraw.
    pub(crate) left: usize,
}

impl<K, V> Drop for Unask<'_, K, V> {
    fn drop(&mut self) {
        if self.left > 0 {
            // without letting time pass: that is not ours to do while unwinding
            self.shared.lock().with(|hold| {
                for _ in 0..self.left {
                    hold.core.unask(self.asking);
                }
            });
        }
    }
}

//! [`Fence`]: what a process may do while it leads, and how it knows by the clock that it does not.

use super::clock::Moment;
use requeue_prometheus::prometheus_client::metrics::gauge::Gauge;
use std::error::Error as StdError;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Error: this process does not hold the lease, or not for certain, because its renewal is overdue.
///
/// A client with [`client_layer`](super::client_layer) refuses to write with this error;
/// [`is_in`](Self::is_in) finds it in the client's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process does not lead: the lease is not held, or was not renewed in time")]
#[non_exhaustive]
pub struct NotLeader;

impl NotLeader {
    /// Whether this error is, or comes from, a [`NotLeader`].
    ///
    /// ```
    /// use requeue_kube::lease::NotLeader;
    ///
    /// fn is_over(error: &kube::Error) -> bool {
    ///     NotLeader::is_in(error)
    /// }
    /// # assert!(!is_over(&kube::Error::LinesCodecMaxLineLengthExceeded));
    /// ```
    #[must_use]
    pub fn is_in(error: &(dyn StdError + 'static)) -> bool {
        let mut next = Some(error);
        while let Some(error) = next {
            if error.is::<Self>() {
                return true;
            }
            // Some variants of kube's error show what they wrap as their own text and not as a source.
            if let Some(kube::Error::Service(inner)) = error.downcast_ref() {
                return Self::is_in(&**inner);
            }
            next = error.source();
        }
        false
    }
}

/// A time in which this process leads without a break.
#[derive(Clone, Copy, Debug)]
struct Term {
    token: u32,
    /// When the request of the last successful renewal began.
    renewed: Moment,
}

/// The durations that a fence uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Time after a renewal for which the fence holds.
    pub(super) renew_deadline: Duration,
    /// Time after a renewal for which a run may continue.
    pub(super) over: Duration,
}

/// State that the election shares with all fences.
pub(super) struct Terms {
    times: Times,
    term: Mutex<Known>,
    leads: watch::Sender<Option<u32>>,
    runs: watch::Sender<usize>,
    /// 1 while `leads` has a token.
    gauge: Option<Gauge>,
}

#[derive(Default)]
struct Known {
    term: Option<Term>,
    /// The last term and the renewal it ended with, unless a release ended it.
    last: Option<Term>,
}

impl Terms {
    pub(super) fn new(times: Times, gauge: Option<Gauge>) -> Self {
        let (leads, runs) = (watch::Sender::new(None), watch::Sender::new(0));
        Self { times, term: Mutex::default(), leads, runs, gauge }
    }

    fn known<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.term.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that a request that began at `began` has taken or renewed the lease. Returns `false`, and does
    /// nothing, if it is too late: a term has no gap.
    pub(super) fn renewed(&self, token: u32, began: Moment) -> bool {
        let limit = self.times.renew_deadline;
        let in_time = self.known(|known| {
            let has_gap = known.term.is_some_and(|old| old.renewed.elapsed() >= limit);
            if has_gap || began.elapsed() >= limit {
                return false;
            }
            let term = Term { token, renewed: began };
            (known.term, known.last) = (Some(term), Some(term));
            true
        });
        if in_time {
            self.tell(Some(token));
        }
        in_time
    }

    /// Ends the term, because it has ended or may have.
    pub(super) fn lost(&self) {
        self.known(|known| known.term = None);
        self.tell(None);
    }

    /// Ends the term because the lease is given away: current runs have no time left.
    pub(super) fn given_up(&self) {
        self.known(|known| (known.term, known.last) = (None, None));
        self.tell(None);
    }

    fn tell(&self, token: Option<u32>) {
        self.leads.send_if_modified(|told| {
            // Under the lock of the channel, so that two changes can't pass each other.
            if let Some(gauge) = &self.gauge {
                gauge.set(token.is_some().into());
            }
            std::mem::replace(told, token) != token
        });
    }

    /// The token of the current term, if the clock confirms it.
    pub(super) fn token(&self) -> Option<u32> {
        let term = self.known(|known| known.term)?;
        (term.renewed.elapsed() < self.times.renew_deadline).then_some(term.token)
    }

    /// Remaining time of the term without a renewal. `None` if this process does not lead.
    pub(super) fn left(&self) -> Option<Duration> {
        let term = self.known(|known| known.term)?;
        let left = self.times.renew_deadline.checked_sub(term.renewed.elapsed())?;
        (!left.is_zero()).then_some(left)
    }

    pub(super) fn leads(&self) -> watch::Receiver<Option<u32>> {
        self.leads.subscribe()
    }

    /// Waits until the controllers have no current run.
    pub(super) async fn no_run(&self) {
        // The sender is `self`.
        drop(self.runs.subscribe().wait_for(|runs| *runs == 0).await);
    }

    /// Time for which a run of this term may continue.
    fn time_of_run(&self, token: u32) -> Duration {
        match self.known(|known| known.last) {
            Some(term) if term.token == token => self.times.over.saturating_sub(term.renewed.elapsed()),
            _ => Duration::ZERO,
        }
    }
}

/// Tells whether this process leads, by checking the clock at each call: even right after the process was
/// stopped for a while, before any of its tasks has run.
///
/// ```no_run
/// use requeue_kube::lease::{Fence, NotLeader};
///
/// async fn charge_the_card(fence: &Fence) -> Result<(), NotLeader> {
///     fence.check()?;
///     // an effect outside of the cluster; a system that compares numbers gets `fence.token()` with it
///     Ok(())
/// }
/// ```
///
/// The fence of an [`Elector`](super::Elector) holds in each of its terms; that of a run
/// ([`Current::fence`](crate::Current::fence)), or a [`bound`](Self::bound) one, only in one term.
#[derive(Clone)]
pub struct Fence {
    terms: Arc<Terms>,
    bound: Option<u32>,
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").field("holds", &self.check().is_ok()).field("bound", &self.bound).finish()
    }
}

impl Fence {
    pub(super) fn new(terms: Arc<Terms>) -> Self {
        Self { terms, bound: None }
    }

    /// Whether this process leads now.
    ///
    /// # Errors
    ///
    /// If it does not lead, or its last renewal began longer ago than the renew deadline.
    pub fn check(&self) -> Result<(), NotLeader> {
        match self.terms.token() {
            Some(token) if self.bound.is_none_or(|bound| bound == token) => Ok(()),
            _ => Err(NotLeader),
        }
    }

    /// A number that grows with each term, for systems that refuse a smaller one than they have seen: the
    /// lease's `leaseTransitions`. If this process does not lead, that of its last term, or 0 before the
    /// first.
    ///
    /// If the lease is deleted, a process that has not seen it before begins at 0.
    #[must_use]
    pub fn token(&self) -> u32 {
        self.bound.unwrap_or_else(|| self.terms.known(|known| known.last.map_or(0, |term| term.token)))
    }

    /// The fence of only the current term: it does not hold after this process has lost the lease, even if it
    /// leads again.
    ///
    /// # Errors
    ///
    /// If this process does not lead.
    pub fn bound(&self) -> Result<Self, NotLeader> {
        self.check()?;
        let bound = self.bound.or_else(|| self.terms.token()).ok_or(NotLeader)?;
        Ok(Self { terms: self.terms.clone(), bound: Some(bound) })
    }

    /// Waits until the fence no longer holds.
    pub async fn lost(&self) {
        let mut leads = self.terms.leads();
        while self.check().is_ok() {
            let left = self.terms.left().unwrap_or_default();
            tokio::select! {
                () = tokio::time::sleep(left) => (),
                _ = leads.changed() => (),
            }
        }
    }

    /// Begins a run of this term. The lease is not given away until the guard is dropped.
    pub(crate) fn run_begins(&self) -> FencedRun {
        self.terms.runs.send_modify(|runs| *runs += 1);
        FencedRun(self.terms.clone())
    }

    /// Whether a run of this term must end, because another process may lead soon.
    fn is_over(&self) -> bool {
        let token = self.bound.unwrap_or_default();
        self.check().is_err() && self.terms.time_of_run(token).is_zero()
    }

    /// Waits until a run of this term must end. It checks the clock whenever it is polled.
    pub(crate) async fn over(&self) {
        let token = self.bound.unwrap_or_default();
        let mut waiting = pin!(async {
            let mut leads = self.terms.leads();
            while !self.is_over() {
                let left = self.terms.time_of_run(token);
                tokio::select! {
                    () = tokio::time::sleep_until(Instant::now() + left) => (),
                    _ = leads.changed() => (),
                }
            }
        });
        poll_fn(|cx| if self.is_over() { Poll::Ready(()) } else { waiting.as_mut().poll(cx) }).await;
    }
}

/// A run of a controller in a term.
pub(crate) struct FencedRun(Arc<Terms>);

impl Drop for FencedRun {
    fn drop(&mut self) {
        self.0.runs.send_modify(|runs| *runs -= 1);
    }
}

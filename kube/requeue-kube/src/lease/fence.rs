//! What a process may do while it leads, and how it knows by the clock that it does not.

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

/// This process does not hold the lease, or not for certain: its renewal is due for too long.
///
/// A client with [`client_layer`](super::client_layer) refuses to write with this error;
/// [`is_in`](Self::is_in) finds it there.
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

/// The time in which this process leads without a break.
#[derive(Clone, Copy, Debug)]
struct Term {
    token: u32,
    /// When the request of the last successful renewal began.
    renewed: Moment,
}

/// The times that matter to a fence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// So long after a renewal the fence holds.
    pub(super) renew_deadline: Duration,
    /// So long after a renewal a run may go on.
    pub(super) over: Duration,
}

/// What the election tells all fences.
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
    /// The last term and the renewal it ended with, unless it ended by a release.
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

    /// A request that began then has made the lease ours, or renewed it. `false`, and nothing else, if that comes too
    /// late: a term has no gap.
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

    /// The term has ended, or may have.
    pub(super) fn lost(&self) {
        self.known(|known| known.term = None);
        self.tell(None);
    }

    /// The term ends because the lease is given away: what runs has no time left.
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

    /// The token of the term that this process is in, if the clock says so too.
    pub(super) fn token(&self) -> Option<u32> {
        let term = self.known(|known| known.term)?;
        (term.renewed.elapsed() < self.times.renew_deadline).then_some(term.token)
    }

    /// So long the term goes on without a renewal. `None` if this process leads no more.
    pub(super) fn left(&self) -> Option<Duration> {
        let term = self.known(|known| known.term)?;
        let left = self.times.renew_deadline.checked_sub(term.renewed.elapsed())?;
        (!left.is_zero()).then_some(left)
    }

    pub(super) fn leads(&self) -> watch::Receiver<Option<u32>> {
        self.leads.subscribe()
    }

    /// Waits until no run of a controller goes on.
    pub(super) async fn no_run(&self) {
        // The sender is `self`.
        drop(self.runs.subscribe().wait_for(|runs| *runs == 0).await);
    }

    /// So long a run of this term may go on.
    fn time_of_run(&self, token: u32) -> Duration {
        match self.known(|known| known.last) {
            Some(term) if term.token == token => self.times.over.saturating_sub(term.renewed.elapsed()),
            _ => Duration::ZERO,
        }
    }
}

/// Says whether this process leads, by looking at the clock each time: also right after the process was stopped for
/// a while, when no task of it has run yet.
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
/// ([`Current::fence`](crate::Current::fence)), or one that is [`bound`](Self::bound), in one term only.
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
    /// It does not, or its last renewal began longer ago than the renew deadline.
    pub fn check(&self) -> Result<(), NotLeader> {
        match self.terms.token() {
            Some(token) if self.bound.is_none_or(|bound| bound == token) => Ok(()),
            _ => Err(NotLeader),
        }
    }

    /// A number that is greater with each term, for systems that refuse a smaller one than they have seen: the
    /// `leaseTransitions` of the lease. That of the last term if this process does not lead, and 0 before its first.
    ///
    /// If the lease is deleted, a process that has not seen it before begins at 0.
    #[must_use]
    pub fn token(&self) -> u32 {
        self.bound.unwrap_or_else(|| self.terms.known(|known| known.last.map_or(0, |term| term.token)))
    }

    /// The fence of the present term only: when this process has lost the lease and leads again, it does not hold.
    ///
    /// # Errors
    ///
    /// This process does not lead.
    pub fn bound(&self) -> Result<Self, NotLeader> {
        self.check()?;
        let bound = self.bound.or_else(|| self.terms.token()).ok_or(NotLeader)?;
        Ok(Self { terms: self.terms.clone(), bound: Some(bound) })
    }

    /// Waits until the fence does not hold.
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

    /// A run of this term begins. The lease is not given away before the guard goes.
    pub(crate) fn run_begins(&self) -> FencedRun {
        self.terms.runs.send_modify(|runs| *runs += 1);
        FencedRun(self.terms.clone())
    }

    /// Whether a run of this term must not go on, because another process may lead soon.
    fn is_over(&self) -> bool {
        let token = self.bound.unwrap_or_default();
        self.check().is_err() && self.terms.time_of_run(token).is_zero()
    }

    /// Waits until a run of this term must not go on. It looks at the clock whenever it is polled.
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

//! Waits for tokens: one implementation for threads and tasks.

use super::bucket::TokenBucket;
use super::ledger::Promise;
use super::pace::Refusal;
use crate::clock::{Alarm, Clock, Parker};
use crate::panics::FirstPanic;
use crate::wait::TimeLimit;
use requeue_core::Instant;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Waits for tokens of a [`TokenBucket`]: `.await` it, or block with
/// [`wait`](Self::wait). Made by [`TokenBucket::acquire`].
///
/// The tokens are reserved at the first poll, so waits are served in that order. The wait ends at the instant
/// promised then, even if the rate changes meanwhile.
///
/// # Errors
///
/// [`AcquireError::Never`] if the bucket could never grant so many tokens, [`AcquireError::TimedOut`] if they
/// come too late. Both are returned at once, without waiting, and nothing is taken.
///
/// # Cancel safety
///
/// Dropping it before its end returns its reservation as [`Reservation::cancel`](super::Reservation::cancel)
/// does; if it was never polled it took nothing. After its end the tokens belong to the caller, and dropping
/// it changes nothing.
///
/// ```
/// use requeue::{FakeClock, limiter::TokenBucket};
/// use std::time::Duration;
/// let clock = FakeClock::new();
/// let bucket = TokenBucket::new(10.0, 1)?;
/// bucket.acquire(1, &clock).wait()?;
/// std::thread::scope(|s| {
///     let waiter = s.spawn(|| bucket.acquire(1, &clock).wait());
///     clock.wait_for_alarms(1);
///     clock.advance(Duration::from_millis(100));
///     waiter.join().unwrap()
/// })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use = "an Acquire takes nothing and waits for nothing until it is awaited or `.wait()`ed on"]
pub struct Acquire<'b> {
    bucket: &'b TokenBucket,
    clock: &'b dyn Clock,
    n: u32,
    limit: TimeLimit,
    stage: Stage,
    /// Wakes the task that polled last.
    alarm: Option<Alarm>,
}

enum Stage {
    New,
    Waiting(Promise),
    Ended(Result<(), AcquireError>),
}

/// Error of [`Acquire`].
///
/// ```
/// use requeue::{FakeClock, limiter::{TokenBucket, AcquireError}};
/// let (bucket, clock) = (TokenBucket::new(10.0, 5)?, FakeClock::new());
/// assert_eq!(bucket.acquire(6, &clock).wait(), Err(AcquireError::Never));
/// # Ok::<_, requeue::limiter::LimiterError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// The bucket could never grant so many tokens: they exceed its burst, or no token comes any more.
    Never,
    /// The tokens would have come after the timeout.
    TimedOut,
}

messages!(AcquireError {
    Never =>
        "the bucket can never grant this many tokens: ask for at most its burst, and use a rate above 0",
    TimedOut => "the tokens would come after the timeout",
});

impl<'b> Acquire<'b> {
    pub(super) fn new(bucket: &'b TokenBucket, n: u32, clock: &'b dyn Clock) -> Self {
        Self { bucket, clock, n, limit: TimeLimit::After(Duration::MAX), stage: Stage::New, alarm: None }
    }

    /// Waits until `limit` at most: for a [`Duration`] from the first poll, or until an [`Instant`] of the clock
    /// that this waits with. The wait's length is known from the start, so one that would be too long fails at
    /// once.
    ///
    /// ```
    /// use requeue::{Clock, FakeClock, limiter::{TokenBucket, AcquireError}};
    /// use std::time::Duration;
    /// let (bucket, clock) = (TokenBucket::new(1.0, 1)?, FakeClock::new());
    /// bucket.acquire(1, &clock).wait().unwrap();
    /// let soon = Duration::from_millis(999);
    /// assert_eq!(bucket.acquire(1, &clock).timeout(soon).wait(), Err(AcquireError::TimedOut));
    /// assert_eq!(bucket.acquire(1, &clock).timeout(clock.now() + soon).wait(), Err(AcquireError::TimedOut));
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    pub fn timeout(mut self, limit: impl Into<TimeLimit>) -> Self {
        self.limit = limit.into();
        self
    }

    /// Blocks the calling thread until the tokens are available.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Never`] and [`AcquireError::TimedOut`], at once.
    ///
    /// # Panics
    ///
    /// If [`Parker::current`] does: late in a thread's own end.
    ///
    /// ```
    /// use requeue::{FakeClock, limiter::TokenBucket};
    /// let (bucket, clock) = (TokenBucket::new(1.0, 3)?, FakeClock::new());
    /// bucket.acquire(3, &clock).wait()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(mut self) -> Result<(), AcquireError> {
        let mut parker = None;
        loop {
            match self.step() {
                Step::Ended(result) => return result,
                Step::Until(at) => self.clock.park_until(at, parker.get_or_insert_with(Parker::current)),
            }
        }
    }

    /// Reserves the tokens if that is still to do, and checks whether their time has come. Reads the clock
    /// once.
    fn step(&mut self) -> Step {
        if let Stage::Ended(result) = self.stage {
            return Step::Ended(result);
        }
        let now = self.clock.now();
        if let Stage::New = self.stage {
            let at_most = self.limit.at(Some(now)).saturating_since(now);
            let promise = match self.bucket.try_reserve(self.n, now, at_most) {
                Ok(promise) => promise,
                Err(Refusal::Never) => return self.end(Err(AcquireError::Never)),
                Err(Refusal::Later) => return self.end(Err(AcquireError::TimedOut)),
            };
            self.stage = Stage::Waiting(promise);
        }
        match self.ready_at().filter(|at| *at > now) {
            Some(at) => Step::Until(at),
            None => self.end(Ok(())),
        }
    }

    fn ready_at(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Waiting(promise) => Some(promise.grant.ready_at()),
            _ => None,
        }
    }

    fn end(&mut self, result: Result<(), AcquireError>) -> Step {
        self.stage = Stage::Ended(result);
        self.alarm = None;
        Step::Ended(result)
    }
}

enum Step {
    Ended(Result<(), AcquireError>),
    Until(Instant),
}

impl Future for Acquire<'_> {
    type Output = Result<(), AcquireError>;

    /// Returns its answer again if it is polled after its end.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match this.step() {
            Step::Ended(result) => Poll::Ready(result),
            Step::Until(at) => {
                // Set anew at every poll: a clock may have fired a little early, and then the old alarm does
                // not fire again.
                this.alarm = Some(this.clock.wake_at(at, cx.waker()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Ended(Ok(())));
        if let Stage::Waiting(promise) = stage {
            // to the bucket an instant that has passed is the latest that it knows of
            let (mut now, mut panic) = (Instant::ORIGIN, FirstPanic::default());
            panic.catch(|| now = self.clock.now());
            self.bucket.give_back(&promise, now);
            panic.resume();
        }
    }
}

debug!([] Acquire<'_>, |acquire| { n: acquire.n, ready_at: acquire.ready_at(), .. });

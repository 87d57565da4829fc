//! The token bucket, as a type and as a limiter.

use super::acquire::Acquire;
use super::error::LimiterError;
use super::ledger::{Ledger, Promise};
use super::pace::Refusal;
use super::rate_limiter::{Keeps, RateLimiter, sealed};
use crate::clock::Clock;
use crate::lock::Lock;
use requeue_core::Instant;
use std::time::Duration;

/// A token bucket: it holds at most `burst` tokens, starts full, and fills at `rate` tokens per second.
///
/// Its operations are those of Go's `golang.org/x/time/rate`. A token can be reserved before it is available,
/// so that callers that come at once are spread out at the rate ([`reserve`](Self::reserve)); taken only if
/// it is there ([`allow`](Self::allow)); or waited for ([`acquire`](Self::acquire)). It owns no clock: every
/// call passes the time. An instant earlier than one already used counts as that one.
///
/// The rate is taken as the simplest fraction that the `f64` can mean. The time of a token is kept to 2^-30 nanoseconds, and
/// the returned instant is rounded up to a nanosecond, so that no error accumulates within a billion tokens. The algorithm is
/// the generic cell rate algorithm (ITU-T I.371) in its virtual-scheduling form.
///
/// | | |
/// |---|---|
/// | rate 0 | the burst, then never |
/// | infinite rate | everything at once, whatever the burst |
/// | more tokens than the burst | never |
/// | 0 tokens | when the debt is paid |
///
/// A refused call takes nothing. (Tokens that would only be there after [`Instant::NEVER`], 584 years past
/// the clock's origin, are refused.)
///
/// ```
/// use requeue::{Instant, limiter::TokenBucket};
/// use std::time::Duration;
/// let bucket = TokenBucket::new(10.0, 2)?;
/// let now = Instant::ORIGIN;
/// let delays: Vec<_> = (0..4).map(|_| bucket.reserve(1, now).delay().as_millis()).collect();
/// assert_eq!(delays, [0, 0, 100, 200]);
/// assert!(!bucket.allow(1, now));
/// assert!(bucket.allow(1, now + Duration::from_millis(300)));
/// # Ok::<_, requeue::limiter::LimiterError>(())
/// ```
#[doc(alias("Limiter"))]
pub struct TokenBucket(Lock<Ledger>);

impl TokenBucket {
    /// A full bucket that holds `burst` tokens and fills at `rate` tokens per second.
    ///
    /// A rate below 5.4e-11 (one token in 584 years) counts as 0.
    ///
    /// # Errors
    ///
    /// [`LimiterError::NotARate`] if the rate is negative or NaN. A rate or burst of 0 is allowed: see the
    /// table above.
    ///
    /// ```
    /// use requeue::limiter::TokenBucket;
    /// assert!(TokenBucket::new(f64::INFINITY, 0).is_ok());
    /// assert!(TokenBucket::new(-1.0, 5).is_err());
    /// ```
    #[doc(alias("NewLimiter", "Every", "Inf"))]
    pub fn new(rate: f64, burst: u32) -> Result<Self, LimiterError> {
        checked(rate)?;
        Ok(Self(Lock::new(Ledger::new(rate, burst))))
    }

    /// Takes `n` tokens that are there now or will be later, and returns when.
    ///
    /// The tokens are gone whether the caller waits for them or not: see
    /// [`Reservation::cancel`]. If they can never be had, [`ready_at`](Reservation::ready_at) is
    /// [`Instant::NEVER`] and nothing is taken.
    ///
    /// ```
    /// use requeue::{Instant, limiter::TokenBucket};
    /// let bucket = TokenBucket::new(1.0, 5)?;
    /// assert!(bucket.reserve(6, Instant::ORIGIN).ready_at().is_never());
    /// assert!(bucket.reserve(5, Instant::ORIGIN).delay().is_zero());
    /// assert_eq!(bucket.reserve(2, Instant::ORIGIN).delay().as_secs(), 2);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[inline]
    #[doc(alias("ReserveN"))]
    pub fn reserve(&self, n: u32, now: Instant) -> Reservation<'_> {
        Reservation { bucket: self, promise: self.try_reserve(n, now, Duration::MAX).ok() }
    }

    /// Like [`reserve`](Self::reserve), unless it takes longer than `at_most`. Says why nothing is taken.
    #[inline]
    pub(super) fn try_reserve(&self, n: u32, now: Instant, at_most: Duration) -> Result<Promise, Refusal> {
        let at_most = u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
        self.0.lock().take(n, now, at_most)
    }

    /// Returns reserved tokens: [`Reservation::cancel`].
    pub(super) fn give_back(&self, promise: &Promise, now: Instant) {
        self.0.lock().give_back(promise, now);
    }

    /// The delay of a reservation for one token.
    #[inline]
    fn take_one(&self, now: Instant) -> Duration {
        self.0.lock().take(1, now, u64::MAX).map_or(Duration::MAX, |promise| promise.grant.delay())
    }

    /// Takes `n` tokens if they are there now. Returns whether it did.
    ///
    /// ```
    /// use requeue::{Instant, limiter::TokenBucket};
    /// let bucket = TokenBucket::new(1.0, 3)?;
    /// assert!(bucket.allow(2, Instant::ORIGIN));
    /// assert!(!bucket.allow(2, Instant::ORIGIN), "one is left");
    /// assert!(bucket.allow(1, Instant::ORIGIN));
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[inline]
    #[must_use = "the tokens are taken only if this returns `true`"]
    #[doc(alias("AllowN"))]
    pub fn allow(&self, n: u32, now: Instant) -> bool {
        self.0.lock().take(n, now, 0).is_ok()
    }

    /// Waits for `n` tokens on `clock`: `.await` it or call [`Acquire::wait`]. [`Acquire`] says what dropping
    /// the wait does. A task that owns its reference to the bucket begins the wait itself:
    ///
    /// ```
    /// use requeue::{SystemClock, limiter::TokenBucket};
    /// use std::sync::Arc;
    /// let bucket = Arc::new(TokenBucket::new(10.0, 1)?);
    /// let task = smol::spawn(async move { bucket.acquire(1, &SystemClock).await });
    /// smol::block_on(task)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("Wait", "WaitN"))]
    pub fn acquire<'b>(&'b self, n: u32, clock: &'b dyn Clock) -> Acquire<'b> {
        Acquire::new(self, n, clock)
    }

    /// Sets the rate from `now` on. The bucket's tokens, or its debt, stay.
    ///
    /// Earlier reservations keep their instants. So a smaller rate is exceeded until they have come, and a
    /// larger one is not used up.
    ///
    /// A new rate takes effect only over time, even an infinite one: at the instant of the change no debt is
    /// forgiven and no token given. With an infinite rate the bucket grants everything at once, taking no
    /// tokens, and is full after any time. If the rate is made finite again at the very instant at which it
    /// became infinite, the debt is as before.
    ///
    /// # Errors
    ///
    /// [`LimiterError::NotARate`] if the rate is negative or NaN; the rate is then unchanged.
    ///
    /// ```
    /// use requeue::{Instant, limiter::TokenBucket};
    /// let bucket = TokenBucket::new(1.0, 1)?;
    /// assert!(bucket.allow(1, Instant::ORIGIN));
    /// bucket.set_rate(100.0, Instant::ORIGIN)?;
    /// assert_eq!(bucket.reserve(1, Instant::ORIGIN).delay().as_millis(), 10);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[doc(alias("SetLimit", "SetLimitAt"))]
    pub fn set_rate(&self, rate: f64, now: Instant) -> Result<(), LimiterError> {
        checked(rate)?;
        let mut ledger = self.0.lock();
        let burst = ledger.pace.burst;
        ledger.change(rate, burst, now);
        Ok(())
    }

    /// Sets the burst from `now` on. A larger burst does not fill the bucket; tokens that do not fit into a
    /// smaller one are lost. A debt stays, and reservations keep their instants.
    ///
    /// ```
    /// use requeue::{Instant, limiter::TokenBucket};
    /// let bucket = TokenBucket::new(1.0, 10)?;
    /// bucket.set_burst(3, Instant::ORIGIN);
    /// assert_eq!(bucket.tokens(Instant::ORIGIN), 3.0);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[doc(alias("SetBurst", "SetBurstAt"))]
    pub fn set_burst(&self, burst: u32, now: Instant) {
        let mut ledger = self.0.lock();
        let rate = ledger.per_second;
        ledger.change(rate, burst, now);
    }

    /// Number of tokens at `now`: at most the burst, and negative if more were reserved than there were.
    /// Takes nothing.
    ///
    /// ```
    /// use requeue::{Instant, limiter::TokenBucket};
    /// let bucket = TokenBucket::new(1.0, 2)?;
    /// for _ in 0..3 {
    ///     let _ = bucket.reserve(1, Instant::ORIGIN);
    /// }
    /// assert_eq!(bucket.tokens(Instant::ORIGIN), -1.0);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[must_use]
    #[doc(alias("TokensAt"))]
    pub fn tokens(&self, now: Instant) -> f64 {
        self.0.lock().tokens(now)
    }

    /// Tokens per second.
    ///
    /// ```
    /// # use requeue::limiter::TokenBucket;
    /// assert_eq!(TokenBucket::new(0.5, 2)?.rate(), 0.5);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[must_use]
    #[doc(alias("Limit"))]
    pub fn rate(&self) -> f64 {
        self.0.lock().per_second
    }

    /// Maximum number of tokens in the bucket.
    ///
    /// ```
    /// # use requeue::limiter::TokenBucket;
    /// assert_eq!(TokenBucket::new(0.5, 2)?.burst(), 2);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[must_use]
    pub fn burst(&self) -> u32 {
        self.0.lock().pace.burst
    }
}

debug!([] TokenBucket, |bucket| { rate: bucket.rate(), burst: bucket.burst(), .. });

fn checked(rate: f64) -> Result<(), LimiterError> {
    // Not `rate < 0.0`: a NaN is neither.
    if rate >= 0.0 { Ok(()) } else { Err(LimiterError::NotARate { rate }) }
}

/// Tokens taken from a [`TokenBucket`], and when they are available.
///
/// Dropping it returns nothing; [`cancel`](Self::cancel) does.
///
/// ```
/// use requeue::{Instant, limiter::TokenBucket};
/// use std::time::Duration;
/// let bucket = TokenBucket::new(1.0, 1)?;
/// let now = Instant::ORIGIN;
/// assert_eq!(bucket.reserve(1, now).delay(), Duration::ZERO);
/// let second = bucket.reserve(1, now);
/// assert_eq!(second.ready_at(), now + Duration::from_secs(1));
/// second.cancel(now); // too long
/// assert_eq!(bucket.tokens(now), 0.0);
/// # Ok::<_, requeue::limiter::LimiterError>(())
/// ```
#[must_use = "the tokens are taken, but may be there only later: see `delay`"]
pub struct Reservation<'b> {
    bucket: &'b TokenBucket,
    /// `None`: it never comes, and nothing was taken.
    promise: Option<Promise>,
}

impl Reservation<'_> {
    /// Time from the reservation until the tokens are available, rounded up to a nanosecond;
    /// [`Duration::MAX`] if never.
    ///
    /// If the bucket had already used a later instant than the reservation's, the delay counts from that.
    ///
    /// ```
    /// # use requeue::{Instant, limiter::TokenBucket};
    /// let bucket = TokenBucket::new(3.0, 1)?;
    /// assert_eq!(bucket.reserve(1, Instant::ORIGIN).delay().as_nanos(), 0);
    /// assert_eq!(bucket.reserve(1, Instant::ORIGIN).delay().as_nanos(), 333_333_334);
    /// assert_eq!(bucket.reserve(1, Instant::ORIGIN).delay().as_nanos(), 666_666_667);
    /// assert_eq!(bucket.reserve(1, Instant::ORIGIN).delay().as_nanos(), 1_000_000_000);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[must_use]
    #[doc(alias("DelayFrom", "InfDuration"))]
    pub fn delay(&self) -> Duration {
        self.promise.as_ref().map_or(Duration::MAX, |promise| promise.grant.delay())
    }

    /// The instant when the tokens are available; [`Instant::NEVER`] if never: then nothing was taken.
    ///
    /// ```
    /// # use requeue::{Instant, limiter::TokenBucket};
    /// let bucket = TokenBucket::new(0.0, 1)?;
    /// let now = Instant::from_nanos(5);
    /// assert_eq!(bucket.reserve(1, now).ready_at(), now);
    /// assert_eq!(bucket.reserve(1, now).ready_at(), Instant::NEVER);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[must_use]
    #[doc(alias("OK"))]
    pub fn ready_at(&self) -> Instant {
        self.promise.as_ref().map_or(Instant::NEVER, |promise| promise.grant.ready_at())
    }

    /// Returns those of the `n` reserved tokens that no later reservation relies on: `n - rate x (latest
    /// granted instant - its own)`, at least 0 and at most `n`, with the rate at the reservation. Returns
    /// none once its instant has passed, or if there was or is no limit.
    ///
    /// The latest granted instant is that of the last reservation that was not cancelled. This takes the
    /// reservation by value: in `x/time/rate`, cancelling one twice returns three tokens for one.
    ///
    /// ```
    /// # use requeue::{Instant, limiter::TokenBucket};
    /// let bucket = TokenBucket::new(10.0, 5)?;
    /// let now = Instant::ORIGIN;
    /// bucket.reserve(3, now).cancel(now);
    /// assert_eq!(bucket.tokens(now), 5.0);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[doc(alias("CancelAt"))]
    pub fn cancel(self, now: Instant) {
        if let Some(promise) = &self.promise {
            self.bucket.give_back(promise, now);
        }
    }
}

debug!([] Reservation<'_>, |reservation| {
    n: reservation.promise.as_ref().map_or(0, |promise| promise.n),
    ready_at: reservation.ready_at()
});

/// One token bucket for all keys: overall at most `rate` keys per second after the first `burst`. client-go's
/// `BucketRateLimiter`.
///
/// Each call reserves a token, so keys that come at once are spread out at the rate. It ignores the key:
/// forgetting does nothing, `num_requeues` is 0.
///
/// ```
/// use requeue::{Instant, RateLimiter, limiter::Bucket};
/// let limiter = Bucket::new(10.0, 2)?;
/// let delays: Vec<_> = ["a", "b", "c", "d"].iter().map(|key| limiter.when(key, Instant::ORIGIN)).collect();
/// assert_eq!(delays.iter().map(|d| d.as_millis()).collect::<Vec<_>>(), [0, 0, 100, 200]);
/// # Ok::<_, requeue::limiter::LimiterError>(())
/// ```
#[derive(Debug)]
#[doc(alias("BucketRateLimiter", "TypedBucketRateLimiter"))]
pub struct Bucket(TokenBucket);

impl Bucket {
    /// A bucket of `rate` tokens per second that holds at most `burst`; full at first. An infinite rate is no
    /// limit.
    ///
    /// # Errors
    ///
    /// [`LimiterError::NoRate`] if the rate is 0, negative or NaN, [`LimiterError::NoBurst`] if the burst is
    /// 0: no key would ever run. (A [`TokenBucket`] may have either.)
    ///
    /// ```
    /// use requeue::limiter::{Bucket, LimiterError};
    /// assert_eq!(Bucket::new(10.0, 0).unwrap_err(), LimiterError::NoBurst);
    /// ```
    pub fn new(rate: f64, burst: u32) -> Result<Self, LimiterError> {
        can_grant(rate, burst)?;
        TokenBucket::new(rate, burst).map(Self)
    }

    /// The token bucket of this limiter, to change its rate or burst while it is in use.
    ///
    /// ```
    /// use requeue::{Instant, limiter::Bucket};
    /// use std::sync::Arc;
    /// let limiter = Arc::new(Bucket::new(10.0, 100)?); // one clone goes to the queue
    /// limiter.token_bucket().set_rate(50.0, Instant::ORIGIN)?;
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[must_use]
    pub fn token_bucket(&self) -> &TokenBucket {
        &self.0
    }
}

/// Refuses a bucket that could never grant anything.
pub(super) fn can_grant(rate: f64, burst: u32) -> Result<(), LimiterError> {
    if rate.is_nan() || rate <= 0.0 {
        return Err(LimiterError::NoRate { rate });
    }
    if burst == 0 { Err(LimiterError::NoBurst) } else { Ok(()) }
}

impl<K: ?Sized> RateLimiter<K> for Bucket {
    keeps_no_records!(self: Keeps::Nothing, |_, now| self.0.take_one(now));
}

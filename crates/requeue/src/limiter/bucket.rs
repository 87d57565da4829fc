//! The token bucket, as a type of its own and as a limiter.

use super::acquire::Acquire;
use super::ledger::{Ledger, Promise};
use super::pace::Refusal;
use super::swift::{Swift, Swiftly};
use super::{Keeps, LimiterError, RateLimiter, sealed};
use crate::Instant;
use crate::clock::Clock;
use crate::sync::Mutex;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// A token bucket: it holds at most `burst` tokens, is full at first, and fills
/// at `rate` tokens a second.
///
/// Its operations are those of Go's `golang.org/x/time/rate`, whose users'
/// expectations it keeps: a token may be reserved before it is there, so that
/// those who come at once are spread out at the rate ([`reserve`](Self::reserve));
/// taken only if it is there ([`allow`](Self::allow)); or waited for
/// ([`acquire`](Self::acquire)). It owns no clock: every call says what time it is. An
/// instant that is earlier than one already counted counts as that one.
///
/// The arithmetic is exact: the rate is taken as the simplest fraction that the
/// `f64` can mean, debts are counted in whole numbers, and only the instant that
/// is handed out is rounded, up to a nanosecond. The algorithm is the generic
/// cell rate algorithm (ITU-T I.371) in its virtual-scheduling form.
///
/// | | |
/// |---|---|
/// | rate 0 | the burst, then never |
/// | infinite rate | everything at once, whatever the burst |
/// | more tokens than the burst | never |
/// | 0 tokens | when the debt is paid |
///
/// Reserving takes no lock: a compare-and-swap, at any number of threads. Once
/// rate or burst have been changed it takes one, as it does where rate or instants
/// are such that the exact sums do not fit into 64 bits (a rate like 0.123456789, or
/// decades after the clock's origin); that is slower, and nothing else.
///
/// What is never granted takes nothing. (That includes what would only be there
/// after [`Instant::NEVER`], 584 years past the clock's origin.)
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
pub struct TokenBucket {
    /// Holds the level as long as rate and burst are those that the bucket was
    /// built with, and it fits; the ledger does afterwards.
    swift: Option<Swift>,
    ledger: Mutex<Ledger>,
}

impl TokenBucket {
    /// A full bucket that holds `burst` tokens and fills at `rate` tokens a second.
    ///
    /// A rate below 5.4e-11 (a token in 584 years) is as good as 0.
    ///
    /// # Errors
    ///
    /// [`LimiterError::NotARate`] where the rate is negative or not a number. A
    /// rate or a burst of 0 is none: see the table above.
    ///
    /// ```
    /// use requeue::limiter::TokenBucket;
    /// assert!(TokenBucket::new(f64::INFINITY, 0).is_ok());
    /// assert!(TokenBucket::new(-1.0, 5).is_err());
    /// ```
    #[doc(alias("NewLimiter", "Every", "Inf"))]
    pub fn new(rate: f64, burst: u32) -> Result<Self, LimiterError> {
        checked(rate)?;
        let ledger = Ledger::new(rate, burst);
        Ok(Self { swift: Swift::new(&ledger), ledger: Mutex::new(ledger) })
    }

    /// Takes `n` tokens that are there now or will be later, and says when.
    ///
    /// The tokens are gone whether the caller waits for them or not: see
    /// [`Reservation::cancel`].
    ///
    /// ```
    /// use requeue::{Instant, limiter::TokenBucket};
    /// let bucket = TokenBucket::new(1.0, 5)?;
    /// assert!(bucket.reserve(6, Instant::ORIGIN).is_never());
    /// assert!(bucket.reserve(5, Instant::ORIGIN).delay().is_zero());
    /// assert_eq!(bucket.reserve(2, Instant::ORIGIN).delay().as_secs(), 2);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[inline]
    #[doc(alias("ReserveN"))]
    pub fn reserve(&self, n: u32, now: Instant) -> Reservation<'_> {
        self.reserve_within(n, now, Duration::MAX)
    }

    /// [`reserve`](Self::reserve), unless it takes longer than `at_most`: then
    /// nothing is taken, and the reservation never comes.
    ///
    /// ```
    /// use requeue::{Instant, limiter::TokenBucket};
    /// use std::time::Duration;
    /// let bucket = TokenBucket::new(1.0, 1)?;
    /// assert!(bucket.allow(1, Instant::ORIGIN));
    /// assert!(bucket.reserve_within(1, Instant::ORIGIN, Duration::from_millis(999)).is_never());
    /// assert!(!bucket.reserve_within(1, Instant::ORIGIN, Duration::from_secs(1)).is_never());
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[inline]
    pub fn reserve_within(&self, n: u32, now: Instant, at_most: Duration) -> Reservation<'_> {
        let at_most = u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
        let promise = match self.swift.as_ref().and_then(|swift| swift.take(n, now, at_most)) {
            Some(Ok(grant)) => Promised::Swiftly(n, grant),
            Some(Err(_)) => Promised::Never,
            None => self.promise_locked(n, now, at_most).map_or(Promised::Never, Promised::Locked),
        };
        Reservation { bucket: Lent::Borrowed(self), promise }
    }

    /// [`reserve`](Self::reserve) with a reference to the bucket of its own, so that the
    /// reservation can be moved into a task or kept in a struct.
    ///
    /// ```
    /// use requeue::{Instant, limiter::TokenBucket};
    /// use std::sync::Arc;
    /// let bucket = Arc::new(TokenBucket::new(1.0, 5)?);
    /// let reservation = bucket.reserve_owned(5, Instant::ORIGIN);
    /// std::thread::spawn(move || reservation.cancel(Instant::ORIGIN)).join().unwrap();
    /// assert_eq!(bucket.tokens(Instant::ORIGIN), 5.0);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    pub fn reserve_owned(self: &Arc<Self>, n: u32, now: Instant) -> Reservation<'static> {
        Reservation { bucket: Lent::Owned(self.clone()), promise: self.reserve(n, now).promise }
    }

    #[cold]
    fn promise_locked(&self, n: u32, now: Instant, at_most: u64) -> Result<Promise, Refusal> {
        self.locked(|ledger| {
            let grant = ledger.take(n, now, at_most)?;
            Ok(Promise { n, grant, rate: ledger.pace.rate })
        })
    }

    /// The delay in nanoseconds of tokens that are not given back.
    #[inline]
    fn take(&self, n: u32, now: Instant, at_most: u64) -> Result<u64, Refusal> {
        match self.swift.as_ref().and_then(|swift| swift.take(n, now, at_most)) {
            Some(grant) => Ok(grant?.delay),
            None => self.take_locked(n, now, at_most),
        }
    }

    #[cold]
    fn take_locked(&self, n: u32, now: Instant, at_most: u64) -> Result<u64, Refusal> {
        self.locked(|ledger| ledger.take(n, now, at_most)).map(|grant| grant.delay)
    }

    /// Does with the whole bucket what one atomic cannot.
    fn locked<R>(&self, f: impl FnOnce(&mut Ledger) -> R) -> R {
        let ledger = &mut *self.ledger.lock();
        let Some(swift) = &self.swift else { return f(ledger) };
        let open = swift.shut(ledger);
        let result = f(ledger);
        if open {
            swift.open(ledger);
        }
        result
    }

    /// What [`reserve_within`](Self::reserve_within) promises, telling why there is nothing.
    pub(super) fn try_reserve(&self, n: u32, now: Instant, at_most: Duration) -> Result<Promised, Refusal> {
        let at_most = u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
        Ok(match self.swift.as_ref().and_then(|swift| swift.take(n, now, at_most)) {
            Some(grant) => Promised::Swiftly(n, grant?),
            None => Promised::Locked(self.promise_locked(n, now, at_most)?),
        })
    }

    /// The delay of a reservation for one token.
    #[inline]
    fn take_one(&self, now: Instant) -> Duration {
        self.take(1, now, u64::MAX).map_or(Duration::MAX, Duration::from_nanos)
    }

    /// Takes `n` tokens if they are there now, and says whether it did.
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
    #[must_use = "the tokens are taken only if this says so"]
    #[doc(alias("AllowN"))]
    pub fn allow(&self, n: u32, now: Instant) -> bool {
        self.take(n, now, 0).is_ok()
    }

    /// Whether reservations take no lock.
    #[cfg(all(test, not(requeue_loom)))]
    pub(super) fn is_swift(&self) -> bool {
        self.swift.as_ref().is_some_and(Swift::is_open)
    }

    /// Waits for `n` tokens on `clock`: `.await` it or call [`Acquire::wait`]. See
    /// there for what a dropped wait does.
    ///
    /// ```
    /// use requeue::{FakeClock, limiter::TokenBucket};
    /// let (bucket, clock) = (TokenBucket::new(10.0, 1)?, FakeClock::new());
    /// bucket.acquire(1, &clock).wait()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("Wait", "WaitN"))]
    pub fn acquire<'b>(&'b self, n: u32, clock: &'b dyn Clock) -> Acquire<'b> {
        Acquire::new(Lent::Borrowed(self), n, Lent::Borrowed(clock))
    }

    /// [`acquire`](Self::acquire) with references of its own, so that the wait can be moved
    /// into a task.
    ///
    /// ```
    /// use requeue::{SystemClock, limiter::TokenBucket};
    /// use std::sync::Arc;
    /// let bucket = Arc::new(TokenBucket::new(10.0, 1)?);
    /// let task = smol::spawn(bucket.acquire_owned(1, Arc::new(SystemClock)));
    /// smol::block_on(task)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_owned(self: &Arc<Self>, n: u32, clock: Arc<dyn Clock>) -> Acquire<'static> {
        Acquire::new(Lent::Owned(self.clone()), n, Lent::Owned(clock))
    }

    /// From `now` on the bucket fills at `rate` tokens a second. What it holds or
    /// owes stays.
    ///
    /// Reservations that were made before keep the instants that they were
    /// promised, so a rate that is made smaller is exceeded until they have come,
    /// and one that is made larger is not used up.
    ///
    /// A new rate takes effect over time only, an infinite one too: at the instant of the
    /// change no debt is forgiven and no token is given. So a bucket whose rate is
    /// infinite grants everything at once, and is full after any time of that; if its rate
    /// is made finite again at the very instant at which it became infinite, it owes what
    /// it owed before. What is granted while the rate is infinite takes no tokens.
    ///
    /// # Errors
    ///
    /// [`LimiterError::NotARate`] where the rate is negative or not a number; the
    /// rate is then unchanged.
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
        self.locked(|ledger| ledger.change(rate, ledger.pace.burst, now));
        Ok(())
    }

    /// From `now` on the bucket holds at most `burst` tokens. A larger one is not
    /// filled up by that; what does not fit into a smaller one is lost. A debt
    /// stays, and reservations keep the instants that they were promised.
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
        self.locked(|ledger| ledger.change(ledger.per_second, burst, now));
    }

    /// How many tokens there are at `now`: at most the burst, and negative where
    /// more were reserved than there were. Takes nothing.
    ///
    /// The sum is exact, its last step into an `f64` is not.
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
        self.locked(|ledger| ledger.tokens(now))
    }

    /// Tokens a second.
    ///
    /// ```
    /// # use requeue::limiter::TokenBucket;
    /// assert_eq!(TokenBucket::new(0.5, 2)?.rate(), 0.5);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[must_use]
    #[doc(alias("Limit"))]
    pub fn rate(&self) -> f64 {
        self.ledger.lock().per_second
    }

    /// How many tokens the bucket can hold.
    ///
    /// ```
    /// # use requeue::limiter::TokenBucket;
    /// assert_eq!(TokenBucket::new(0.5, 2)?.burst(), 2);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[must_use]
    pub fn burst(&self) -> u32 {
        self.ledger.lock().pace.burst
    }
}

impl fmt::Debug for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, burst) = {
            let ledger = self.ledger.lock();
            (ledger.per_second, ledger.pace.burst)
        };
        f.debug_struct("TokenBucket").field("rate", &rate).field("burst", &burst).finish_non_exhaustive()
    }
}

fn checked(rate: f64) -> Result<(), LimiterError> {
    // Not `rate < 0.0`: a NaN is neither.
    if rate >= 0.0 { Ok(()) } else { Err(LimiterError::NotARate { rate }) }
}

/// Tokens that were taken from a [`TokenBucket`], and when they are there.
///
/// Dropping it gives nothing back; [`cancel`](Self::cancel) does.
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
    bucket: Lent<'b, TokenBucket>,
    promise: Promised,
}

/// Borrowed, or with a reference of its own.
pub(super) enum Lent<'b, T: ?Sized> {
    Borrowed(&'b T),
    Owned(Arc<T>),
}

impl<T: ?Sized> Deref for Lent<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        match self {
            Self::Borrowed(lent) => lent,
            Self::Owned(own) => own,
        }
    }
}

/// What a reservation was promised, by whom.
pub(super) enum Promised {
    /// Nothing, and nothing was taken.
    Never,
    Swiftly(u32, Swiftly),
    Locked(Promise),
}

impl Promised {
    pub(super) fn ready_at(&self) -> Instant {
        match self {
            Self::Never => Instant::NEVER,
            Self::Swiftly(_, grant) => grant.now + Duration::from_nanos(grant.delay),
            Self::Locked(promise) => promise.grant.ready_at(),
        }
    }

    /// Gives the tokens back to the bucket that promised them: [`Reservation::cancel`].
    pub(super) fn cancel(self, bucket: &TokenBucket, now: Instant) {
        let promise = match (self, &bucket.swift) {
            (Self::Locked(promise), _) => promise,
            (Self::Swiftly(n, grant), Some(swift)) => swift.promise(n, grant),
            _ => return,
        };
        bucket.locked(|ledger| ledger.give_back(&promise, now));
    }
}

impl Reservation<'_> {
    /// How long from the instant of the reservation until the tokens are there,
    /// rounded up to a nanosecond; [`Duration::MAX`] where that is never.
    ///
    /// Where that instant was earlier than one that the bucket had already
    /// counted, the delay is from the latter.
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
        match &self.promise {
            Promised::Never => Duration::MAX,
            Promised::Swiftly(_, grant) => Duration::from_nanos(grant.delay),
            Promised::Locked(promise) => Duration::from_nanos(promise.grant.delay),
        }
    }

    /// When the tokens are there; [`Instant::NEVER`] where they never are.
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
    pub fn ready_at(&self) -> Instant {
        self.promise.ready_at()
    }

    /// Whether the tokens can never be had. Nothing was taken then.
    ///
    /// ```
    /// # use requeue::{Instant, limiter::TokenBucket};
    /// let bucket = TokenBucket::new(10.0, 5)?;
    /// assert!(bucket.reserve(6, Instant::ORIGIN).is_never());
    /// assert_eq!(bucket.tokens(Instant::ORIGIN), 5.0);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[must_use]
    #[doc(alias("OK"))]
    pub fn is_never(&self) -> bool {
        matches!(self.promise, Promised::Never)
    }

    /// Gives back of the `n` reserved tokens those that nobody after it relies
    /// on: `n - rate x (latest granted instant - its own)`, at least 0 and at
    /// most `n`, with the rate at the reservation. Nothing once its instant has
    /// passed, or where there was or is no limit.
    ///
    /// The latest granted instant is that of the reservation made last, among
    /// those that were not cancelled. It takes the reservation by value: in
    /// `x/time/rate`, cancelling one twice gives back three tokens for one.
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
        self.promise.cancel(&self.bucket, now);
    }
}

impl fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = match &self.promise {
            Promised::Never => 0,
            Promised::Swiftly(n, _) | Promised::Locked(Promise { n, .. }) => *n,
        };
        f.debug_struct("Reservation").field("n", &n).field("ready_at", &self.ready_at()).finish()
    }
}

/// One token bucket for all keys: overall at most `rate` keys a second after the
/// first `burst`. client-go's `BucketRateLimiter`.
///
/// Each call reserves a token, so keys that come at once are spread out at the
/// rate. It looks at no key: forgetting does nothing, `num_requeues` is 0.
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
    /// `rate` tokens a second, of which the bucket holds at most `burst`; full at
    /// first. An infinite rate is no limit.
    ///
    /// # Errors
    ///
    /// [`LimiterError::NoRate`] where the rate is 0, negative or not a number,
    /// [`LimiterError::NoBurst`] where the burst is 0: no key would ever run. (A
    /// [`TokenBucket`] may have either.)
    ///
    /// ```
    /// use requeue::limiter::{Bucket, LimiterError};
    /// assert_eq!(Bucket::new(10.0, 0).unwrap_err(), LimiterError::NoBurst);
    /// ```
    pub fn new(rate: f64, burst: u32) -> Result<Self, LimiterError> {
        can_grant(rate, burst)?;
        TokenBucket::new(rate, burst).map(Self)
    }

    /// The bucket itself, to change its rate or burst while it is used.
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
    fn when(&self, _: &K, now: Instant) -> Duration {
        self.0.take_one(now)
    }
    fn forget(&self, _: &K) {}
    fn num_requeues(&self, _: &K) -> u32 {
        0
    }
    fn keeps(&self, _: sealed::Token) -> Keeps {
        Keeps::Nothing
    }
    fn when_counted(&self, _: u32, now: Instant, _: sealed::Token) -> Duration {
        self.0.take_one(now)
    }
}

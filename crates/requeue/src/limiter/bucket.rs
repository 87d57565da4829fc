//! The token bucket, as a type of its own and as a limiter.

use super::pace::{Exact, Grant, Level, Pace, Rate, Refusal, convert};
use super::wait::Wait;
use super::{Keeps, LimiterError, RateLimiter, sealed};
use crate::Instant;
use crate::clock::Clock;
use crate::sync::Mutex;
use std::fmt;
use std::time::Duration;

/// A token bucket: it holds at most `burst` tokens, is full at first, and fills
/// at `rate` tokens a second.
///
/// Its operations are those of Go's `golang.org/x/time/rate`, whose users'
/// expectations it keeps: a token may be reserved before it is there, so that
/// those who come at once are spread out at the rate ([`reserve`](Self::reserve));
/// taken only if it is there ([`allow`](Self::allow)); or waited for
/// ([`wait`](Self::wait)). It owns no clock: every call says what time it is. An
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
pub struct TokenBucket(Mutex<State>);

struct State {
    /// Tokens a second, as it was given.
    per_second: f64,
    pace: Pace,
    level: Level,
    /// The instant that the latest reservation was promised, of those that were
    /// not cancelled.
    latest: Exact,
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
    pub fn new(rate: f64, burst: u32) -> Result<Self, LimiterError> {
        checked(rate)?;
        let pace = Pace::new(rate, burst);
        let level = pace.full();
        Ok(Self(Mutex::new(State { per_second: rate, pace, level, latest: Exact::ORIGIN })))
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
        Reservation { bucket: self, promise: self.promise(n, now, at_most).ok() }
    }

    #[inline]
    fn promise(&self, n: u32, now: Instant, at_most: Duration) -> Result<Promise, Refusal> {
        let at_most = u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
        let mut state = self.0.lock();
        let grant = state.take(n, now, at_most)?;
        Ok(Promise { n, grant, rate: state.pace.rate })
    }

    /// [`reserve_within`](Self::reserve_within), telling why there is nothing.
    pub(super) fn try_reserve(
        &self,
        n: u32,
        now: Instant,
        at_most: Duration,
    ) -> Result<Reservation<'_>, Refusal> {
        let promise = self.promise(n, now, at_most)?;
        Ok(Reservation { bucket: self, promise: Some(promise) })
    }

    /// The delay of a reservation for one token.
    #[inline]
    fn take_one(&self, now: Instant) -> Duration {
        let grant = self.0.lock().take(1, now, u64::MAX);
        grant.map_or(Duration::MAX, |grant| Duration::from_nanos(grant.delay))
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
    pub fn allow(&self, n: u32, now: Instant) -> bool {
        self.0.lock().take(n, now, 0).is_ok()
    }

    /// Waits for `n` tokens on `clock`: `.await` it or call [`Wait::wait`]. See
    /// there for what a dropped wait does.
    ///
    /// ```
    /// use requeue::{FakeClock, limiter::TokenBucket};
    /// let (bucket, clock) = (TokenBucket::new(10.0, 1)?, FakeClock::new());
    /// bucket.wait(1, &clock).wait()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait<'b>(&'b self, n: u32, clock: &'b dyn Clock) -> Wait<'b> {
        Wait::new(self, n, clock)
    }

    /// From `now` on the bucket fills at `rate` tokens a second. What it holds or
    /// owes stays.
    ///
    /// Reservations that were made before keep the instants that they were
    /// promised, so a rate that is made smaller is exceeded until they have come,
    /// and one that is made larger is not used up. Coming from an infinite rate
    /// the bucket is full.
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
    pub fn set_rate(&self, rate: f64, now: Instant) -> Result<(), LimiterError> {
        checked(rate)?;
        let state = &mut *self.0.lock();
        let burst = state.pace.burst;
        state.change(rate, burst, now);
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
    pub fn set_burst(&self, burst: u32, now: Instant) {
        let state = &mut *self.0.lock();
        let rate = state.per_second;
        state.change(rate, burst, now);
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
    pub fn tokens(&self, now: Instant) -> f64 {
        let state = self.0.lock();
        match state.pace.rate {
            None => f64::from(state.pace.burst),
            Some(rate) => state.pace.balance(rate, state.level, now) as f64 / rate.token as f64,
        }
    }

    /// Tokens a second.
    ///
    /// ```
    /// # use requeue::limiter::TokenBucket;
    /// assert_eq!(TokenBucket::new(0.5, 2)?.rate(), 0.5);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.0.lock().per_second
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
        self.0.lock().pace.burst
    }
}

impl fmt::Debug for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, burst) = {
            let state = self.0.lock();
            (state.per_second, state.pace.burst)
        };
        f.debug_struct("TokenBucket").field("rate", &rate).field("burst", &burst).finish_non_exhaustive()
    }
}

fn checked(rate: f64) -> Result<(), LimiterError> {
    // Not `rate < 0.0`: a NaN is neither.
    if rate >= 0.0 { Ok(()) } else { Err(LimiterError::NotARate { rate }) }
}

impl State {
    #[inline]
    fn take(&mut self, n: u32, now: Instant, at_most: u64) -> Result<Grant, Refusal> {
        let grant = self.pace.take(&mut self.level, n, now, at_most)?;
        self.latest = grant.exact;
        Ok(grant)
    }

    fn change(&mut self, per_second: f64, burst: u32, now: Instant) {
        // No clock shows NEVER; were it counted, every later call would count as it.
        let now = if now.is_never() { self.level.last } else { now.max(self.level.last) };
        let (old, new) = (self.pace, Pace::new(per_second, burst));
        self.per_second = per_second;
        self.pace = new;
        self.level.last = now;
        let Some(to) = new.rate else { return };
        self.level = match old.rate {
            Some(from) => {
                let balance = old.balance(from, self.level, now);
                new.with_balance(to, convert(balance, from, to), now)
            }
            None => new.with_balance(to, i128::MAX, now),
        };
    }

    fn give_back(&mut self, promise: &Promise, now: Instant) {
        let Promise { n, grant, rate: Some(rate) } = promise else {
            return;
        };
        let now = now.max(self.level.last);
        let Some(current) = self.pace.rate else {
            return;
        };
        if grant.ready_at() < now {
            return;
        }
        let n = rate.token * i128::from(*n);
        let own = grant.exact.units_of(*rate);
        let later = self.latest.units_of(*rate) - own;
        let back = convert((n - later).clamp(0, n), *rate, current);
        if self.latest == grant.exact {
            // The latest is now what came before, or what has passed anyway.
            let before = (own - n).max(rate.units(now));
            self.latest = if rate.per_nano == 0 {
                Exact::at(now, *rate)
            } else {
                Exact { units: before, per_nano: rate.per_nano }
            };
        }
        let balance = self.pace.balance(current, self.level, now);
        self.level = self.pace.with_balance(current, balance + back, now);
    }
}

impl Grant {
    fn ready_at(&self) -> Instant {
        self.now + Duration::from_nanos(self.delay)
    }
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
    bucket: &'b TokenBucket,
    /// `None`: it never comes, and nothing was taken.
    promise: Option<Promise>,
}

/// What a reservation was promised, and what its cancelling is reckoned from.
struct Promise {
    n: u32,
    grant: Grant,
    /// The rate at the reservation; `None`: there was no limit.
    rate: Option<Rate>,
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
    pub fn delay(&self) -> Duration {
        self.promise.as_ref().map_or(Duration::MAX, |promise| Duration::from_nanos(promise.grant.delay))
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
        self.promise.as_ref().map_or(Instant::NEVER, |promise| promise.grant.ready_at())
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
    pub fn is_never(&self) -> bool {
        self.promise.is_none()
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
    pub fn cancel(self, now: Instant) {
        if let Some(promise) = &self.promise {
            self.bucket.0.lock().give_back(promise, now);
        }
    }
}

impl fmt::Debug for Reservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("n", &self.promise.as_ref().map_or(0, |promise| promise.n))
            .field("ready_at", &self.ready_at())
            .finish()
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
    /// limiter.tokens().set_rate(50.0, Instant::ORIGIN)?;
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[must_use]
    pub fn tokens(&self) -> &TokenBucket {
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

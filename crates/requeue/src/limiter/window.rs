//! A number of calls in each window of time.

use super::{Keeps, LimiterError, RateLimiter, sealed};
use crate::Instant;
use crate::sync::Mutex;
use std::fmt;
use std::time::Duration;

/// At most `quota` keys in a window of `period`.
///
/// A window opens at the first call that finds none. When it is full the next
/// begins a period after it began, so those who come at once are spread over
/// several windows; a call that comes when the last window is over opens a new
/// one at once. It does not slide: the end of one window and the beginning of
/// the next can bring twice the quota close together. It looks at no key:
/// forgetting does nothing, `num_requeues` is 0.
///
/// ```
/// use requeue::{Instant, RateLimiter, limiter::Window};
/// use std::time::Duration;
/// let limiter = Window::new(Duration::from_secs(1), 4)?;
/// let delays: Vec<_> = (0..10).map(|key| limiter.when(&key, Instant::ORIGIN).as_secs()).collect();
/// assert_eq!(delays, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
/// # Ok::<_, requeue::limiter::LimiterError>(())
/// ```
pub struct Window {
    period: Duration,
    quota: u32,
    open: Mutex<Option<Open>>,
}

/// The latest window that calls were put into; it may begin in the future.
#[derive(Clone, Copy)]
struct Open {
    begin: Instant,
    used: u32,
}

impl Window {
    /// Windows of `period`, each for `quota` calls. A period of zero never delays.
    ///
    /// # Errors
    ///
    /// [`LimiterError::NoQuota`] where the quota is 0: no key would ever run.
    ///
    /// ```
    /// use requeue::limiter::{LimiterError, Window};
    /// use std::time::Duration;
    /// assert_eq!(Window::new(Duration::from_secs(1), 0).unwrap_err(), LimiterError::NoQuota);
    /// ```
    pub fn new(period: Duration, quota: u32) -> Result<Self, LimiterError> {
        if quota == 0 {
            return Err(LimiterError::NoQuota);
        }
        Ok(Self { period, quota, open: Mutex::new(None) })
    }

    fn take(&self, now: Instant) -> Duration {
        let mut open = self.open.lock();
        let (begin, used) = match *open {
            Some(Open { begin, .. }) if begin + self.period <= now => (now, 0),
            Some(Open { begin, used }) if used >= self.quota => (begin + self.period, 0),
            Some(Open { begin, used }) => (begin, used),
            None => (now, 0),
        };
        if begin.is_never() {
            // No window ever begins again; what was taken stays as it is.
            return Duration::MAX;
        }
        *open = Some(Open { begin, used: used + 1 });
        begin.saturating_since(now)
    }
}

impl<K: ?Sized> RateLimiter<K> for Window {
    fn when(&self, _: &K, now: Instant) -> Duration {
        self.take(now)
    }
    fn forget(&self, _: &K) {}
    fn num_requeues(&self, _: &K) -> u32 {
        0
    }
    fn keeps(&self, _: sealed::Token) -> Keeps {
        Keeps::Nothing
    }
    fn when_counted(&self, _: u32, now: Instant, _: sealed::Token) -> Duration {
        self.take(now)
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("period", &self.period)
            .field("quota", &self.quota)
            .finish_non_exhaustive()
    }
}

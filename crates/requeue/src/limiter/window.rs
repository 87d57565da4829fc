//! [`Window`]: a number of calls in each window of time.

use super::error::LimiterError;
use super::rate_limiter::{Keeps, RateLimiter, sealed};
use crate::sync::Mutex;
use requeue_core::Instant;
use std::time::Duration;

/// At most `quota` keys in a window of `period`.
///
/// A window opens at the first call that finds none. The call that fills it fixes the next one, which begins
/// a period after the full one began, so that calls that come at once are spread over several windows. A call
/// after the end of the newest window opens a new one at once. The window does not slide: the end of one and
/// the beginning of the next can bring twice the quota close together. It ignores the key: forgetting does
/// nothing, `num_requeues` is 0.
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

/// The newest window. The next call goes into it unless it is over by then. It may begin in the future.
#[derive(Clone, Copy)]
struct Open {
    begin: Instant,
    /// Less than the quota: the call that fills a window fixes the next.
    used: u32,
}

impl Window {
    /// Windows of `period`, each for `quota` calls. A period of zero never delays.
    ///
    /// # Errors
    ///
    /// [`LimiterError::NoQuota`] if the quota is 0: no key would ever run.
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
        let newest = open.filter(|newest| now < newest.begin + self.period);
        let Open { begin, used } = newest.unwrap_or(Open { begin: now, used: 0 });
        if begin.is_never() {
            // No window ever begins again; what was taken stays as it is.
            return Duration::MAX;
        }
        let used = used + 1;
        let full = used >= self.quota;
        *open = Some(if full { Open { begin: begin + self.period, used: 0 } } else { Open { begin, used } });
        begin.saturating_since(now)
    }
}

impl<K: ?Sized> RateLimiter<K> for Window {
    keeps_no_records!(self: Keeps::Nothing, |_, now| self.take(now));
}

debug!([] Window, |window| { period: window.period, quota: window.quota, .. });

//! Time as the queue counts it: nanoseconds in a `u64`, saturating.

use core::fmt;
use core::ops::Add;
use core::time::Duration;

/// A point on a queue's clock: nanoseconds since an origin that the clock chose.
///
/// Eight bytes, and every operation saturates, so that no delay can overflow:
/// `u64` nanoseconds reach 584 years past the origin, and what lies beyond is
/// [`Instant::NEVER`]. Instants of different clocks must not be compared. The default is the origin.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The clock's origin.
    pub const ORIGIN: Self = Self(0);
    /// An instant that never comes: later than every instant a clock shows.
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// `self + d`, or [`Instant::NEVER`] if that exceeds 64 bits of nanoseconds.
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, d: Duration) -> Self {
        // in 64 bits, which saturate where the sum would: `as_nanos` has 128
        let nanos = d.as_secs().saturating_mul(1_000_000_000).saturating_add(d.subsec_nanos() as u64);
        Self(self.0.saturating_add(nanos))
    }

    /// Time from `earlier` to `self`; zero if `earlier` is not earlier.
    #[must_use]
    #[doc(alias("Since"))]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Whether this is [`Instant::NEVER`].
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.0 == u64::MAX
    }
}

/// [`Instant::saturating_add`].
impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        self.saturating_add(d)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_never() {
            return f.write_str("Instant(never)");
        }
        write!(f, "Instant({:?})", Duration::from_nanos(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d8_no_duration_overflows_an_instant() {
        for d in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_nanos(u64::MAX)] {
            assert_eq!(Instant::from_nanos(1) + d, Instant::NEVER);
        }
        assert_eq!(Instant::ORIGIN + Duration::from_nanos(u64::MAX - 1), Instant(u64::MAX - 1));
        assert_eq!(Instant::NEVER + Duration::from_nanos(1), Instant::NEVER);
    }

    #[test]
    fn since_never_goes_below_zero() {
        let (a, b) = (Instant::from_nanos(5), Instant::from_nanos(9));
        assert_eq!(a.saturating_since(b), Duration::ZERO);
        assert_eq!(b.saturating_since(a), Duration::from_nanos(4));
    }

    #[test]
    fn debug_speaks_of_never() {
        extern crate std;
        assert_eq!(std::format!("{:?}", Instant::NEVER), "Instant(never)");
        assert_eq!(std::format!("{:?}", Instant::from_nanos(1_500_000)), "Instant(1.5ms)");
    }
}

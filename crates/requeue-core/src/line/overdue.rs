//! Overdue keys (`max_wait`, rule B2): when a key is overdue, and which hand-outs overdue keys get.

use crate::time::Instant;
use core::time::Duration;

/// A bound on waiting for the orders that pass keys over.
///
/// A key that has been ready for `after` is overdue. While keys are overdue, one of every `every`
/// hand-outs goes to the oldest of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxWait {
    /// Time for which a key is ready until it is overdue.
    pub after: Duration,
    /// One of this many hand-outs goes to an overdue key. Less than 2 counts as 2.
    pub every: u32,
}

impl MaxWait {
    /// One of 8 hand-outs goes to the oldest overdue key.
    #[must_use]
    pub const fn new(after: Duration) -> Self {
        Self { after, every: 8 }
    }
}

/// A [`MaxWait`] in numbers that are compared without a division.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overdue {
    /// After how many nanoseconds a key is overdue.
    after: u64,
    /// Number of hand-outs by priority after one of an overdue key.
    between: u32,
}

impl Overdue {
    /// Changes after how long a key is overdue.
    pub(super) fn set(&mut self, after: Duration) {
        self.after = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
    }

    /// Whether a key that is ready `since` then is overdue `now`, both by one clock.
    #[inline]
    pub(super) fn is(self, since: Instant, now: Instant) -> bool {
        now.as_nanos().saturating_sub(since.as_nanos()) >= self.after
    }

    /// The oldest key, if it is overdue and this hand-out goes to an overdue key. `before` is the number of
    /// keys still to be handed out before that. `oldest` returns the key and since when it is ready.
    #[inline]
    pub(super) fn takes<T>(
        self,
        before: &mut u32,
        now: Instant,
        oldest: impl FnOnce() -> Option<(T, Instant)>,
    ) -> Option<T> {
        if *before > 0 {
            *before -= 1;
            return None;
        }
        let (oldest, since) = oldest()?;
        self.is(since, now).then(|| {
            *before = self.between;
            oldest
        })
    }
}

impl From<MaxWait> for Overdue {
    fn from(MaxWait { after, every }: MaxWait) -> Self {
        Self { after: u64::try_from(after.as_nanos()).unwrap_or(u64::MAX), between: every.max(2) - 1 }
    }
}

/// The clock by which keys age. It stands still while they are paused, so a pause ages no key, and no
/// pause has to visit its keys.
///
/// Its time for instants before its last stop or start may be too early. No call asks for them: all that is
/// due has happened before the clock is stopped or started, because these calls are looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgeClock {
    /// Since when it stands still; never if it runs.
    stands_since: Instant,
    /// Nanoseconds for which it has stood still so far.
    stood: u64,
}

impl Default for AgeClock {
    fn default() -> Self {
        Self { stands_since: Instant::NEVER, stood: 0 }
    }
}

impl AgeClock {
    /// The time that it shows at this instant.
    #[inline]
    pub(super) fn at(&self, now: Instant) -> Instant {
        Instant::from_nanos(now.min(self.stands_since).as_nanos().saturating_sub(self.stood))
    }

    /// The instant at which it shows this time, if all stops so far were before: the inverse of
    /// [`at`](Self::at).
    #[inline]
    pub(super) fn was(&self, shown: Instant) -> Instant {
        Instant::from_nanos(shown.as_nanos().saturating_add(self.stood))
    }

    /// Stops it, if it runs.
    pub(super) fn stop(&mut self, now: Instant) {
        self.stands_since = self.stands_since.min(now);
    }

    /// Starts it again, if it stands still.
    pub(super) fn go_on(&mut self, now: Instant) {
        let since = core::mem::replace(&mut self.stands_since, Instant::NEVER);
        self.stood = self.stood.saturating_add(now.as_nanos().saturating_sub(since.as_nanos()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_clock_that_stands_counts_no_time() {
        let mut clock = AgeClock::default();
        assert_eq!(clock.at(at(7)), at(7));
        clock.stop(at(10));
        clock.stop(at(15));
        assert_eq!((clock.at(at(10)), clock.at(at(50))), (at(10), at(10)));
        clock.go_on(at(60));
        clock.go_on(at(70));
        assert_eq!((clock.at(at(60)), clock.at(at(65))), (at(10), at(15)));
        assert_eq!(clock.was(at(15)), at(65));
        clock.stop(at(65));
        clock.go_on(at(66));
        assert_eq!(clock.at(at(66)), at(15));
    }

    #[test]
    fn the_ends_of_time_overflow_nothing() {
        let mut clock = AgeClock::default();
        clock.stop(at(0));
        clock.go_on(Instant::NEVER);
        clock.stop(at(0));
        clock.go_on(Instant::NEVER);
        assert_eq!(clock.at(Instant::NEVER), at(0));
        assert!(clock.was(at(1)).is_never());
    }
}

//! Keys of a file that come again at times of the calendar.

use crate::rows::{Wall, micros};
use requeue_engine::Schedule;
use std::time::{Duration, UNIX_EPOCH};

/// From here on `every` of a row is the number of a rule instead of an interval in microseconds.
pub(crate) const RULES: i64 = 1 << 62;

/// A schedule, and the time for which its timer is set.
pub(crate) struct Rule {
    schedule: Schedule,
    due: Wall,
}

/// How early a timer may end before its time of day, if the clock was set back by a little.
const EARLY: i64 = 1_000_000;

impl Rule {
    /// A rule of a file. If this system does not know the zone, the times are in UTC.
    pub(crate) fn stored(text: Option<&str>, due: Wall) -> Option<Self> {
        Some(Self { schedule: Schedule::stored(text?)?, due })
    }

    /// Time until the next of the times, after a run that began at `began`: zero if it has passed meanwhile.
    /// `None` if there is none.
    pub(crate) fn next(&mut self, began: Wall, now: Wall) -> Option<Duration> {
        // a run that was asked for by hand stands for no later time
        let stands_for = if (0..=EARLY).contains(&(self.due - began)) { self.due } else { began };
        let instant = |at: Wall| UNIX_EPOCH.checked_add(Duration::from_micros(u64::try_from(at).ok()?));
        let next = self.schedule.next(instant(stands_for)?)?;
        self.due = micros(next.duration_since(UNIX_EPOCH).ok()?);
        Some(Duration::from_micros(u64::try_from(self.due - now).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn wall(instant: &str) -> Wall {
        instant.parse::<Timestamp>().unwrap().as_microsecond()
    }

    #[test]
    fn e37_the_next_time_is_after_the_beginning_of_a_run_however_long_that_takes() {
        let daily = "at 2030-03-01T18:00:00+00:00[UTC] every 86400s";
        let after = |began: &str, ended: &str| {
            let mut rule = Rule::stored(Some(daily), wall("2030-03-05T18:00:00Z")).unwrap();
            let now = wall(ended);
            let next = rule.next(wall(began), now).unwrap();
            Timestamp::from_microsecond(now + micros(next)).unwrap().to_string()
        };
        assert_eq!(after("2030-03-05T18:00:01Z", "2030-03-05T23:00:00Z"), "2030-03-06T18:00:00Z");
        assert_eq!(
            after("2030-03-05T17:59:59.5Z", "2030-03-05T17:59:59.9Z"),
            "2030-03-06T18:00:00Z",
            "early"
        );
        assert_eq!(after("2030-03-05T12:00:00Z", "2030-03-05T12:01:00Z"), "2030-03-05T18:00:00Z", "by hand");
        // the times that came meanwhile are one run, now
        assert_eq!(after("2030-03-05T18:00:01Z", "2030-03-09T11:00:00Z"), "2030-03-09T11:00:00Z");
    }
}

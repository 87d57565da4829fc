//! Times of day: `requeue add --at`.

use std::time::Duration;

use jiff::civil::{DateTime, Time};
use jiff::fmt::temporal::Pieces;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Reads a time in the future.
///
/// # Errors
///
/// The problem with it.
pub(crate) fn parse(text: &str) -> Result<Zoned, String> {
    let now = Zoned::now();
    let at = read(text, &now)?;
    let zone = std::env::var_os("TZ").unwrap_or_default();
    if at.time_zone().is_unknown() && !zone.is_empty() {
        return Err(format!("TZ is {}, and there is no such time zone", zone.to_string_lossy()));
    }
    if at <= now {
        return Err(format!("{} has passed", at.timestamp()));
    }
    Ok(at)
}

fn read(text: &str, now: &Zoned) -> Result<Zoned, String> {
    let local = |at: DateTime| at.to_zoned(now.time_zone().clone());
    // A date alone would be midnight, which nobody means.
    let has_time = text.contains(':');
    if let Some(at) = text.parse::<Zoned>().ok().filter(|_| has_time) {
        return Ok(at);
    }
    if let Some(at) = text.parse::<Timestamp>().ok().filter(|_| has_time) {
        let offset = Pieces::parse(text).ok().and_then(|pieces| pieces.to_numeric_offset());
        return Ok(at.to_zoned(offset.map_or(TimeZone::UTC, TimeZone::fixed)));
    }
    let read = || -> Result<Zoned, jiff::Error> {
        // A time is read out of a date and time as well, so that is the second to be tried.
        if let Ok(at) = text.parse::<DateTime>() {
            return local(at);
        }
        let time = text.parse::<Time>()?;
        let today = local(now.date().to_datetime(time))?;
        let is_over = today <= *now;
        if is_over { local(now.date().tomorrow()?.to_datetime(time)) } else { Ok(today) }
    };
    // the largest `Timestamp` is in the evening of that day
    let form = "write 18:00, 2031-12-24T18:00 or 2031-12-24T18:00:00Z; times go to 9999-12-30";
    if has_time { read().map_err(|_| form.to_owned()) } else { Err(form.to_owned()) }
}

/// The first time of a schedule. Refuses a time zone that has no name by which the schedule could keep it.
pub(crate) fn first(at: &Zoned) -> Result<&Zoned, String> {
    let zone = at.time_zone();
    let is_kept = zone.iana_name().is_some() || zone.to_fixed_offset().is_ok();
    is_kept.then_some(at).ok_or_else(|| {
        "this system's time zone has no name that could be kept: set TZ to one, such as Europe/Berlin, or write it behind the time, as in 2031-12-24T18:00[Europe/Berlin]".to_owned()
    })
}

/// Time until then.
pub(crate) fn delay(at: &Zoned) -> Duration {
    Duration::try_from(at.timestamp().duration_since(Timestamp::now())).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_local_but_where_they_say_otherwise() {
        let now: Zoned = "2030-03-30T12:00[+01:00]".parse().unwrap();
        let read = |text: &str| read(text, &now).map(|at| at.timestamp().to_string());
        let well = [
            ("18:00", "2030-03-30T17:00:00Z"),
            ("18:00:30", "2030-03-30T17:00:30Z"),
            ("12:00", "2030-03-31T11:00:00Z"),
            ("02:30", "2030-03-31T01:30:00Z"),
            ("2031-12-24T18:00", "2031-12-24T17:00:00Z"),
            ("2031-12-24 18:00:01", "2031-12-24T17:00:01Z"),
            ("2031-12-24T18:00:00Z", "2031-12-24T18:00:00Z"),
            ("2031-12-24T18:00:00-08:00", "2031-12-25T02:00:00Z"),
            ("2031-12-24T18:00:00[Europe/Berlin]", "2031-12-24T17:00:00Z"),
        ];
        for (text, at) in well {
            assert_eq!(read(text), Ok(at.to_owned()), "{text}");
        }
        for text in [
            "",
            "noon",
            "18",
            "25:00",
            "2031-12-24",
            "2031-02-30T12:00",
            "18:00 tomorrow",
            "99999-01-01T00:00",
            "9999-12-31T00:00:00Z",
            "9999-12-31T18:00",
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains("18:00") && why.ends_with("times go to 9999-12-30"), "{text}: {why}");
        }
        assert!(read("9999-12-30T00:00:00Z").is_ok());
    }

    #[test]
    fn what_has_passed_is_refused() {
        assert_eq!(parse("2001-01-01T00:00:00Z").unwrap_err(), "2001-01-01T00:00:00Z has passed");
    }
}

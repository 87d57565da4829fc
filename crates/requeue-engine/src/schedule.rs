//! Schedules: times at which a key comes again.

use cronexpr::{Crontab, MakeTimestamp};
use jiff::civil::DateTime;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(86_400);

/// Times at which a key comes again, however long its runs take: for example each day at 18:00, or by a cron
/// expression.
///
/// Times of day are in a time zone. [`FromStr`] reads these forms:
///
/// - `at 2031-12-24T18:00:00+01:00[Europe/Berlin] every 86400s`: from then on each day. A whole number of
///   days is counted on the calendar, so that it stays 18:00 when clocks change; any other interval is
///   elapsed time. Seconds may have a fraction.
/// - `cron 0 18 * * 1-5 Europe/Berlin`: minute, hour, day, month, day of the week, zone. A time that is
///   skipped when clocks change comes later by the change, and one that occurs twice comes once; but if
///   minute or hour begin with `*` it comes whenever clocks show it.
///
/// ```
/// use requeue_engine::Schedule;
/// use std::time::{Duration, SystemTime};
///
/// let daily: Schedule = "at 2031-12-24T18:00:00+01:00[+01:00] every 86400s".parse()?;
/// let first = daily.next(SystemTime::now()).unwrap();
/// assert_eq!(daily.next(first), Some(first + Duration::from_secs(86_400)));
/// assert!("cron 0 25 * * * UTC".parse::<Schedule>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    At { first: Zoned, every: Duration },
    Cron(Cron),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cron {
    /// Five fields.
    fields: String,
    zone: TimeZone,
    /// The name of the zone, as given.
    zone_name: String,
}

impl Schedule {
    /// Reads a schedule that an engine has stored. If this system does not know the zone of a cron expression, its times are in UTC.
    ///
    /// ```
    /// # use requeue_engine::Schedule;
    /// let stored = Schedule::stored("cron 0 18 * * * Nowhere/Atall").unwrap();
    /// assert_eq!(stored.to_string(), "cron 0 18 * * * UTC");
    /// ```
    #[must_use]
    pub fn stored(text: &str) -> Option<Self> {
        text.parse().ok().or_else(|| format!("{} UTC", text.rsplit_once(' ')?.0).parse().ok())
    }

    /// The first of its times after `instant`. `None` if there is none, or it is too far away for a calendar.
    ///
    /// ```
    /// # use requeue_engine::Schedule;
    /// # use std::time::{Duration, SystemTime};
    /// let hourly: Schedule = "cron 0 * * * * UTC".parse()?;
    /// let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(12 * 3600);
    /// assert_eq!(hourly.next(noon), Some(noon + Duration::from_secs(3600)));
    /// # Ok::<(), String>(())
    /// ```
    #[must_use]
    pub fn next(&self, instant: SystemTime) -> Option<SystemTime> {
        let after = Timestamp::try_from(instant).ok()?;
        let next = match &self.0 {
            Kind::At { first, every } => next_of_steps(first, *every, after)?,
            Kind::Cron(cron) => cron.next(after)?,
        };
        Some(next.into())
    }
}

fn next_of_steps(first: &Zoned, every: Duration, after: Timestamp) -> Option<Timestamp> {
    if after < first.timestamp() {
        return Some(first.timestamp());
    }
    let passed = Duration::try_from(after.duration_since(first.timestamp())).ok()?;
    // where clocks have changed it may be one more or less
    let near = (passed.as_nanos() / every.as_nanos()).saturating_sub(1);
    let step = |n: u128| -> Option<Timestamp> {
        let n = i64::try_from(n).ok()?;
        if every.subsec_nanos() == 0 && every.as_secs() % DAY.as_secs() == 0 {
            let days = i64::try_from(every.as_secs() / DAY.as_secs()).ok()?.checked_mul(n)?;
            return Some(first.checked_add(Span::new().try_days(days).ok()?).ok()?.timestamp());
        }
        let nanos = i128::try_from(every.as_nanos()).ok()?.checked_mul(n.into())?;
        Timestamp::from_nanosecond(first.timestamp().as_nanosecond().checked_add(nanos)?).ok()
    };
    (near..near + 4).filter_map(step).find(|at| *at > after)
}

impl Cron {
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let crontab = |zone: &str| cronexpr::parse_crontab(&format!("{} {zone}", self.fields));
        let begins_with_any = self.fields.split(' ').take(2).any(|field| field.starts_with('*'));
        if let (true, Ok(crontab)) = (begins_with_any, crontab(&self.zone_name)) {
            return crontab.find_next(MakeTimestamp(after)).ok().map(|at| at.timestamp());
        }
        // Clocks of UTC never change: what they show next is found, and then when clocks of the zone show that.
        let crontab = crontab("UTC").ok()?;
        let mut shown = after.to_zoned(self.zone.clone()).datetime();
        loop {
            shown = next_shown(&crontab, shown)?;
            let at = shown.to_zoned(self.zone.clone()).ok()?.timestamp();
            if at > after {
                return Some(at);
            }
        }
    }
}

fn next_shown(crontab: &Crontab, shown: DateTime) -> Option<DateTime> {
    let shown = shown.to_zoned(TimeZone::UTC).ok()?.timestamp();
    crontab.find_next(MakeTimestamp(shown)).ok().map(|next| next.datetime())
}

/// Reads an instant with its zone, or with its offset from UTC if this system does not know the zone.
fn zoned(text: &str) -> Option<Zoned> {
    static PARSER: DateTimeParser = DateTimeParser::new();
    PARSER.parse_zoned(text).ok().or_else(|| {
        let pieces = PARSER.parse_pieces(text).ok()?;
        let offset = pieces.to_numeric_offset()?;
        pieces.date().to_datetime(pieces.time()?).to_zoned(TimeZone::fixed(offset)).ok()
    })
}

fn read_at(text: &str) -> Option<Kind> {
    let (first, every) = text.split_once(" every ")?;
    let seconds = every.strip_suffix('s')?.parse::<f64>().ok()?;
    let every = Duration::try_from_secs_f64(seconds).ok().filter(|every| !every.is_zero())?;
    Some(Kind::At { first: zoned(first)?, every })
}

fn read_cron(text: &str) -> Result<Kind, String> {
    let text = match text.split_whitespace().next() {
        Some("@hourly") => text.replacen("@hourly", "0 * * * *", 1),
        Some("@daily") => text.replacen("@daily", "0 0 * * *", 1),
        Some("@weekly") => text.replacen("@weekly", "0 0 * * 0", 1),
        Some("@monthly") => text.replacen("@monthly", "0 0 1 * *", 1),
        Some("@yearly") => text.replacen("@yearly", "0 0 1 1 *", 1),
        _ => text.to_owned(),
    };
    let fields: Vec<_> = text.split_whitespace().collect();
    let (fields, zone_name) = match *fields.as_slice() {
        [ref fields @ .., zone] if fields.len() == 5 => (without_zeros(fields), zone.to_owned()),
        ref fields if fields.len() == 5 => (without_zeros(fields), local_zone()?),
        ref fields => return Err(format!("it has {} fields", fields.len())),
    };
    if let Err(why) = cronexpr::parse_crontab(&format!("{fields} UTC")) {
        // behind pictures of where it is
        let why = why.to_string();
        return Err(why.lines().last().unwrap_or_default().trim_matches(['^', ' ']).to_owned());
    }
    let zone = match Timestamp::UNIX_EPOCH.in_tz(&zone_name) {
        Ok(at) => at.time_zone().clone(),
        Err(_) => {
            let named = format!("1970-01-01T00:00:00[{zone_name}]");
            let zone = named.parse::<Zoned>().map_err(|_| format!("there is no time zone {zone_name}"))?;
            zone.time_zone().clone()
        }
    };
    Ok(Kind::Cron(Cron { fields, zone, zone_name }))
}

/// The fields without zeros in front of numbers, which cron reads and this parser does not.
fn without_zeros(fields: &[&str]) -> String {
    let fields = fields.join(" ");
    let bytes = fields.as_bytes();
    let is_needed = |at: usize| {
        let mut before = bytes[..at].iter().rev().take_while(|byte| byte.is_ascii_digit());
        let is_in_front = bytes[at] == b'0' && before.all(|byte| *byte == b'0');
        !(is_in_front && bytes.get(at + 1).is_some_and(u8::is_ascii_digit))
    };
    fields.char_indices().filter(|(at, _)| is_needed(*at)).map(|(_, c)| c).collect()
}

/// The name of this system's time zone, or its offset from UTC if that never changes.
fn local_zone() -> Result<String, String> {
    let zone = TimeZone::system();
    if zone.is_unknown() {
        let set = std::env::var_os("TZ").unwrap_or_default();
        let none = || format!("TZ is {}, and there is no such time zone", set.to_string_lossy());
        return if set.is_empty() { Ok("UTC".to_owned()) } else { Err(none()) };
    }
    match (zone.iana_name(), zone.to_fixed_offset()) {
        (Some(name), _) => Ok(name.to_owned()),
        (None, Ok(offset)) => Ok(offset.to_string()),
        (None, Err(_)) => Err("this system's time zone has no name that could be kept".to_owned()),
    }
}

impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(at) = text.strip_prefix("at ") {
            let at = read_at(at);
            return at.map(Self).ok_or_else(|| format!("{text}: write at TIME[ZONE] every SECONDSs"));
        }
        let Some(cron) = text.strip_prefix("cron ") else {
            return Err(format!("{text}: write at TIME[ZONE] every SECONDSs, or cron EXPRESSION"));
        };
        let form =
            "write MINUTE HOUR DAY MONTH WEEKDAY, such as '0 18 * * 1-5', and a time zone if it is not yours";
        let schedule = read_cron(cron).map(Self).map_err(|why| format!("{cron:?}: {why}; {form}"))?;
        match schedule.next(SystemTime::now()) {
            Some(_) => Ok(schedule),
            None => Err(format!("{cron:?}: this time does not come within four years")),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::At { first, every } => write!(f, "at {first} every {}s", every.as_secs_f64()),
            Kind::Cron(Cron { fields, zone_name, .. }) => write!(f, "cron {fields} {zone_name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times after an instant, as clocks of the zone show them, with the offset from UTC.
    fn after(schedule: &str, instant: &str, zone: &str, count: usize) -> Vec<String> {
        let schedule: Schedule = schedule.parse().unwrap();
        assert_eq!(schedule.to_string().parse::<Schedule>().unwrap(), schedule);
        let zone = TimeZone::get(zone).unwrap();
        let mut at = SystemTime::from(instant.parse::<Timestamp>().unwrap());
        let next = |_| {
            at = schedule.next(at).unwrap();
            let shown = Timestamp::try_from(at).unwrap().to_zoned(zone.clone());
            shown.strftime("%m-%d %H:%M%:z").to_string()
        };
        (0..count).map(next).collect()
    }

    const BERLIN: &str = "Europe/Berlin";

    #[test]
    fn e37_a_day_is_one_on_the_calendar_also_where_clocks_change() {
        let daily = "at 2030-03-29T18:00:00+01:00[Europe/Berlin] every 86400s";
        let days = ["03-30 18:00+01:00", "03-31 18:00+02:00", "04-01 18:00+02:00"];
        assert_eq!(after(daily, "2030-03-29T17:00:00Z", BERLIN, 3), days);
        assert_eq!(after(daily, "2030-03-29T16:59:59Z", BERLIN, 1), ["03-29 18:00+01:00"]);
        let autumn = ["10-26 18:00+02:00", "10-27 18:00+01:00", "10-28 18:00+01:00"];
        assert_eq!(after(daily, "2030-10-26T10:00:00Z", BERLIN, 3), autumn);
        // Clocks leave it out on one day, and it is as before on the next.
        let at_night = "at 2030-03-29T02:30:00+01:00[Europe/Berlin] every 86400s";
        let days = ["03-30 02:30+01:00", "03-31 03:30+02:00", "04-01 02:30+02:00"];
        assert_eq!(after(at_night, "2030-03-29T12:00:00Z", BERLIN, 3), days);
    }

    #[test]
    fn e37_what_is_no_number_of_days_is_that_time() {
        let twice = "at 2030-03-30T18:00:00+01:00[Europe/Berlin] every 43200s";
        let times = ["03-31 07:00+02:00", "03-31 19:00+02:00"];
        assert_eq!(after(twice, "2030-03-30T17:00:00Z", BERLIN, 2), times);
        let short: Schedule = "at 2030-03-30T18:00:00+00:00[UTC] every 0.25s".parse().unwrap();
        let first = SystemTime::from("2030-03-30T18:00:00Z".parse::<Timestamp>().unwrap());
        let year = Duration::from_secs(365 * 86_400);
        assert_eq!(short.next(first + year), Some(first + year + Duration::from_millis(250)));
    }

    #[test]
    fn e37_a_cron_time_that_clocks_leave_out_comes_later_and_one_that_they_show_twice_once() {
        let night = "cron 30 2 * * * Europe/Berlin";
        let spring = ["03-30 02:30+01:00", "03-31 03:30+02:00", "04-01 02:30+02:00"];
        assert_eq!(after(night, "2030-03-29T12:00:00Z", BERLIN, 3), spring);
        let autumn = ["10-26 02:30+02:00", "10-27 02:30+02:00", "10-28 02:30+01:00"];
        assert_eq!(after(night, "2030-10-25T12:00:00Z", BERLIN, 3), autumn);
        let always = "cron */30 * * * * Europe/Berlin";
        let autumn = ["10-27 02:30+02:00", "10-27 02:00+01:00", "10-27 02:30+01:00", "10-27 03:00+01:00"];
        assert_eq!(after(always, "2030-10-27T00:00:00Z", BERLIN, 4), autumn);
        let workdays = ["03-29 18:00+01:00", "04-01 18:00+02:00"];
        assert_eq!(after("cron 0 18 * * 1-5 Europe/Berlin", "2030-03-29T12:00:00Z", BERLIN, 2), workdays);
        assert_eq!(
            after("cron 05 04,006-08 * 03 * UTC", "2030-03-29T06:00:00Z", "UTC", 2),
            ["03-29 06:05+00:00", "03-29 07:05+00:00"]
        );
        assert_eq!(after("cron @monthly UTC", "2030-03-29T12:00:00Z", "UTC", 1), ["04-01 00:00+00:00"]);
    }

    #[test]
    fn e37_without_its_zone_a_time_is_as_far_from_utc_as_it_was() {
        let daily: Schedule = "at 2030-03-29T18:00:00+01:00[Nowhere/Atall] every 86400s".parse().unwrap();
        let first = SystemTime::from("2030-03-29T17:00:00Z".parse::<Timestamp>().unwrap());
        assert_eq!(daily.next(first), Some(first + DAY));
    }

    #[test]
    fn e37_what_is_no_schedule_is_told_in_one_line() {
        for (text, why) in [
            ("cron 0 25 * * *", "write MINUTE HOUR"),
            ("cron 0 18 * *", "it has 4 fields"),
            ("cron 0 18 * * * Nowhere/Atall", "there is no time zone Nowhere/Atall"),
            ("cron 0 0 30 2 *", "does not come within four years"),
            ("cron", "write at TIME"),
            ("cron ", "it has 0 fields"),
            ("at 18:00 every 1s", "write at TIME"),
            ("at 2030-03-29T18:00:00+01:00[+01:00] every 0s", "write at TIME"),
        ] {
            let said = text.parse::<Schedule>().unwrap_err();
            assert!(said.contains(why) && !said.contains('\n'), "{text}: {said}");
        }
    }
}

//! Durations in the usual form: `5ms`, `1.5s`, `2h30m`.
//!
//! The grammar is small on purpose, so that a slip is refused and not guessed at: numbers, each with its
//! unit, units from large to small, each at most once; the number may have a fraction. A number without a
//! unit is refused, because programs disagree whether `5` means seconds or milliseconds.

use std::time::Duration;

/// Units with their length in nanoseconds, from large to small.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

const EXPECTED: &str =
    "write a number with its unit, such as 5ms, 1.5s or 2h30m (units: d, h, m, s, ms, us, ns)";

/// Reads a duration above zero.
///
/// # Errors
///
/// Like [`parse`].
pub(crate) fn positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("it must be longer than nothing".to_owned()),
        d => Ok(d),
    }
}

/// Reads a duration.
///
/// # Errors
///
/// The problem and a valid form, to be put after the option's name.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text;
    let mut total: u128 = 0;
    // Index of the first unit that may still come.
    let mut from = 0;
    if rest.is_empty() {
        return Err(EXPECTED.to_owned());
    }
    while !rest.is_empty() {
        let number_ends = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(number_ends);
        let unit_ends = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_ends);
        if number.is_empty() {
            return Err(EXPECTED.to_owned());
        }
        if unit.is_empty() {
            return Err(format!("the unit after {number} is missing; {EXPECTED}"));
        }
        let Some(index) = UNITS.iter().position(|(name, _)| *name == unit) else {
            return Err(format!("there is no unit {unit:?}; {EXPECTED}"));
        };
        if index < from {
            return Err("units go from large to small, each at most once, as in 2h30m".to_owned());
        }
        from = index + 1;
        let part = scaled(number, UNITS[index].1)?;
        total = total.checked_add(part).ok_or_else(too_long)?;
        rest = tail;
    }
    nanoseconds(total).ok_or_else(too_long)
}

fn too_long() -> String {
    "it is too long; the longest is 213503982334601d".to_owned()
}

fn nanoseconds(total: u128) -> Option<Duration> {
    let seconds = u64::try_from(total / 1_000_000_000).ok()?;
    let rest = u32::try_from(total % 1_000_000_000).ok()?;
    Some(Duration::new(seconds, rest))
}

/// `number` (digits, with or without a fraction) times `unit`, exactly.
fn scaled(number: &str, unit: u128) -> Result<u128, String> {
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (whole, fraction),
        None => (number, "0"),
    };
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err(format!("{number:?} is not a number; {EXPECTED}"));
    }
    let whole: u128 = whole.parse().map_err(|_| too_long())?;
    let mut total = whole.checked_mul(unit).ok_or_else(too_long)?;
    // Digit by digit: no rounding, so what cannot be said in nanoseconds is noticed.
    let mut place = unit;
    let mut numerator: u128 = 0;
    let mut denominator: u128 = 1;
    for digit in fraction.trim_end_matches('0').bytes() {
        place /= 10;
        numerator = numerator * 10 + u128::from(digit - b'0');
        denominator *= 10;
        if place == 0 {
            return Err("it is finer than a nanosecond".to_owned());
        }
    }
    let product = numerator * unit;
    if product % denominator != 0 {
        return Err("it is finer than a nanosecond".to_owned());
    }
    total = total.checked_add(product / denominator).ok_or_else(too_long)?;
    Ok(total)
}

/// Formats a duration, rounded for people: `350ms`, `1.2s`, `2m30s`.
pub(crate) fn show(d: Duration) -> String {
    if d < Duration::from_micros(1) {
        return exact(d);
    }
    if d < Duration::from_millis(1) {
        return format!("{}us", d.as_nanos().div_ceil(1_000));
    }
    if d < Duration::from_secs(1) {
        return format!("{}ms", d.as_millis());
    }
    if d < Duration::from_secs(60) {
        let tenths = d.as_millis() / 100;
        return if tenths % 10 == 0 {
            format!("{}s", tenths / 10)
        } else {
            format!("{}.{}s", tenths / 10, tenths % 10)
        };
    }
    let mut out = String::new();
    let mut left = d.as_secs();
    for (name, seconds) in [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)] {
        if left >= seconds {
            out.push_str(&format!("{}{name}", left / seconds));
            left %= seconds;
        }
    }
    out
}

/// Formats a duration exactly: `512ms`, `1.024s`, `1000s`. Seconds are the largest unit, so that numbers in a
/// column compare at a glance.
pub(crate) fn exact(d: Duration) -> String {
    let (unit, length) = match d.as_nanos() {
        0 => return "0s".to_owned(),
        n => UNITS[3..].iter().copied().find(|(_, length)| n >= *length).unwrap_or(("ns", 1)),
    };
    let (whole, rest) = (d.as_nanos() / length, d.as_nanos() % length);
    if rest == 0 {
        return format!("{whole}{unit}");
    }
    let digits = length.ilog10() as usize;
    let fraction = format!("{rest:0digits$}");
    format!("{whole}.{}{unit}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_the_documentation_are_read() {
        let cases = [
            ("5ms", Duration::from_millis(5)),
            ("1.5s", Duration::from_millis(1500)),
            ("2h30m", Duration::from_secs(9000)),
            ("0s", Duration::ZERO),
            ("1d", Duration::from_secs(86_400)),
            ("1m30.5s", Duration::from_millis(90_500)),
            ("0.25h", Duration::from_secs(900)),
            ("250us", Duration::from_micros(250)),
            ("1.001us", Duration::from_nanos(1001)),
            ("7ns", Duration::from_nanos(7)),
            ("1.50s", Duration::from_millis(1500)),
            ("213503982334601d", Duration::from_secs(213_503_982_334_601 * 86_400)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "5",
            "s",
            "ms",
            "-1s",
            "+1s",
            " 1s",
            "1s ",
            "1 s",
            "1,5s",
            "1..5s",
            ".5s",
            "1.s",
            "1s1s",
            "30m2h",
            "1ms1s",
            "1S",
            "1sec",
            "1min",
            "1y",
            "1w",
            "1e3s",
            "inf",
            "forever",
            "0x1s",
            "1.5ns",
            "1.0000000001s",
            "1s2",
            "٣s",
            "99999999999999999999d",
            "99999999999999999999999999999999999999999999s",
            "1µs",
            "NaN",
            "1.5.5s",
            ".",
            "..s",
        ] {
            assert!(parse(text).is_err(), "{text:?} was read as {:?}", parse(text));
        }
    }

    #[test]
    fn a_refusal_says_what_would_be_right() {
        let missing = parse("5").unwrap_err();
        assert!(missing.contains("unit") && missing.contains("1.5s"), "{missing}");
        let unknown = parse("5sec").unwrap_err();
        assert!(unknown.contains("\"sec\"") && unknown.contains("2h30m"), "{unknown}");
    }

    #[test]
    fn shown_durations_are_short_and_in_the_same_notation() {
        let cases = [
            (Duration::ZERO, "0s"),
            (Duration::from_nanos(1), "1ns"),
            (Duration::from_nanos(999), "999ns"),
            (Duration::from_nanos(1_001), "2us"),
            (Duration::from_micros(250), "250us"),
            (Duration::from_millis(350), "350ms"),
            (Duration::from_secs(1), "1s"),
            (Duration::from_millis(1250), "1.2s"),
            (Duration::from_secs(150), "2m30s"),
            (Duration::from_secs(3600), "1h"),
        ];
        for (d, text) in cases {
            assert_eq!(show(d), text);
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn exact_durations_are_read_back_to_the_nanosecond() {
        let cases = [
            (Duration::ZERO, "0s"),
            (Duration::from_nanos(1), "1ns"),
            (Duration::from_nanos(1_001), "1.001us"),
            (Duration::from_millis(512), "512ms"),
            (Duration::from_micros(116_250), "116.25ms"),
            (Duration::from_millis(1024), "1.024s"),
            (Duration::from_secs(90), "90s"),
            (Duration::from_secs(1000), "1000s"),
            (Duration::new(3, 333_333_334), "3.333333334s"),
            (Duration::MAX, "18446744073709551615.999999999s"),
        ];
        for (d, text) in cases {
            assert_eq!(exact(d), text);
            assert_eq!(parse(text), Ok(d), "{text}");
        }
    }
}

//! Parsers of option values.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use requeue::InBackoff;

use crate::config::{Form, Merge, On, Rate};
use crate::text::duration;

/// A value by its name.
pub(super) type Named<T> = (&'static str, T);

pub(super) const MERGES: [Named<Merge>; 3] =
    [("last", Merge::Last), ("concat", Merge::Concat), ("count", Merge::Count)];
pub(super) const EVENTS: [Named<On>; 3] =
    [("initial", On::Initial), ("write", On::Write), ("delete", On::Delete)];
pub(super) const IN_BACKOFF: [Named<InBackoff>; 3] =
    [("run", InBackoff::Run), ("respect", InBackoff::Respect), ("reset", InBackoff::Reset)];
pub(super) const FORMS: [Named<Form>; 3] = [("text", Form::Text), ("json", Form::Json), ("off", Form::Off)];

/// Parses one of these names.
pub(super) fn one_of<T: Copy + Send + Sync + 'static>(
    values: &'static [Named<T>; 3],
) -> impl TypedValueParser<Value = T> {
    let [first, second, third] = values;
    PossibleValuesParser::new(values.iter().map(|(name, _)| *name)).map(move |name| match name {
        name if name == first.0 => first.1,
        name if name == second.0 => second.1,
        _ => third.1,
    })
}

/// Parses a quiet time, and an optional maximum.
pub(super) fn quiet(text: &str) -> Result<(Duration, Option<Duration>), String> {
    let (quiet, max) = text.split_once(':').map_or((text, None), |(quiet, max)| (quiet, Some(max)));
    Ok((duration::parse(quiet)?, max.map(duration::parse).transpose()?))
}

pub(super) fn workers(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .ok()
        .filter(|n: &NonZeroUsize| n.get() <= 10_000)
        .ok_or_else(|| "give a number from 1 to 10000".to_owned())
}

pub(super) fn rate_or_none(text: &str) -> Result<Rate, String> {
    if text == "none" {
        return Ok(Rate::NoLimit);
    }
    starts(text).map(Rate::Most).map_err(|why| format!("{why}; or none"))
}

/// Reads a cap: a number as for workers, or `none` for any number.
pub(super) fn group_cap(text: &str) -> Result<NonZeroUsize, String> {
    if text == "none" {
        return Ok(NonZeroUsize::MAX);
    }
    workers(text).map_err(|why| format!("{why}, or none"))
}

pub(super) fn bound(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "give a number of keys, at least 1".to_owned())
}

pub(super) fn at_least_one(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("give a number from 1 to {}", u32::MAX))
}

pub(super) fn attempts(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("give a number from 1 to {}, or 0 for no limit", u32::MAX))
}

pub(super) fn exit_status(text: &str) -> Result<u8, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "give an exit status from 1 to 255".to_owned())
}

pub(super) fn number(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.parse().ok().filter(|_| plain)
}

pub(super) fn fraction(text: &str) -> Result<f64, String> {
    number(text).filter(|f| *f <= 1.0).ok_or_else(|| "give a number from 0 to 1, such as 0.2".to_owned())
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    a_second("retries", text)
}

pub(super) fn starts(text: &str) -> Result<f64, String> {
    let (count, seconds) = match text.split_once('/') {
        None | Some((_, "s")) => (text.trim_end_matches("/s"), 1.0),
        Some((count, "m")) => (count, 60.0),
        Some((count, "h")) => (count, 3_600.0),
        Some(_) => ("", 1.0),
    };
    number(count).map(|count| count / seconds).filter(|r| (1e-6..=1e6).contains(r)).ok_or_else(|| {
        "give starts a second, such as 10 or 0.5, or a minute or an hour, such as 90/m or 20/h: \
         from 0.000001 to 1000000 a second"
            .to_owned()
    })
}

pub(super) fn a_second(what: &str, text: &str) -> Result<f64, String> {
    number(text)
        .filter(|r| *r >= 1e-6 && *r <= 1e6)
        .ok_or_else(|| format!("give {what} a second from 0.000001 to 1000000, such as 10 or 0.5"))
}

const EXPECTED: &str = "give a port, such as 9090 (then on 127.0.0.1 only), or an IP address and a port, \
                        such as 0.0.0.0:9090 or [::]:9090";

/// Reads an address. A port alone means this machine.
///
/// # Errors
///
/// A valid form, to be put after the option's name.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").or(text.strip_prefix(':')).unwrap_or(text);
    // a number that is parsed may have a plus in front
    if port.bytes().all(|b| b.is_ascii_digit()) {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        return port.parse().map(|port| SocketAddr::new(here, port)).map_err(|_| EXPECTED.to_owned());
    }
    text.parse().map_err(|_| EXPECTED.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_this_machine_only() {
        for text in ["9090", ":9090", "localhost:9090", "127.0.0.1:9090"] {
            assert_eq!(address(text).unwrap().to_string(), "127.0.0.1:9090", "{text}");
        }
        assert_eq!(address("0.0.0.0:80").unwrap().to_string(), "0.0.0.0:80");
        assert_eq!(address("[::]:0").unwrap().to_string(), "[::]:0");
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_would_be_right() {
        for text in [
            "",
            ":",
            "65536",
            "-1",
            "+80",
            ":+80",
            "host:80",
            "127.0.0.1",
            "[::1]",
            "::1",
            "1.2.3.4:x",
            " 80",
        ] {
            assert_eq!(address(text).unwrap_err(), EXPECTED, "{text:?}");
        }
    }
}

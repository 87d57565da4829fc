//! Parsers of option values.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::text::duration;

/// The quiet time, and an optional maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quiet {
    pub(super) quiet: Duration,
    pub(super) max: Option<Duration>,
}

impl Quiet {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (quiet, max) = text.split_once(':').map_or((text, None), |(quiet, max)| (quiet, Some(max)));
        Ok(Self { quiet: duration::parse(quiet)?, max: max.map(duration::parse).transpose()? })
    }
}

pub(super) fn workers(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .ok()
        .filter(|n: &NonZeroUsize| n.get() <= 10_000)
        .ok_or_else(|| "give a number from 1 to 10000".to_owned())
}

/// Number of runs that may start per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    Most(f64),
    /// Any number, even if the server has a rate for the queue.
    NoLimit,
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

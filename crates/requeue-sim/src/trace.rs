//! Schedules as text, one step per line.

use crate::text::read_call;
use crate::{Call, Value};
use requeue::Instant;
use std::fmt::{self, Display, Write};
use std::str::FromStr;
use std::time::Duration;

/// A schedule's input: everything else follows from it.
pub(crate) struct Trace<K, V> {
    pub(crate) seed: u64,
    /// By instant.
    pub(crate) calls: Vec<(Instant, Call<K, V>)>,
}

/// A trace that cannot be read, and why.
///
/// ```
/// # use requeue::WorkQueue;
/// # let sim = requeue_sim::Sim::<u32>::new(|clock| WorkQueue::builder().clock(clock).build().unwrap());
/// let error = sim.replay("0s add \"1\"").unwrap_err();
/// assert_eq!(error.to_string(), "the trace has no line `seed NUMBER`");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The line's number, from 1, and its text.
    line: Option<(usize, String)>,
    why: String,
}

impl Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.line {
            Some((number, text)) => write!(f, "line {number} of the trace, `{text}`: {}", self.why),
            None => f.write_str(&self.why),
        }
    }
}

impl std::error::Error for TraceError {}

/// A duration in seconds, exact to the nanosecond.
pub(crate) struct Seconds(pub(crate) Duration);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        if nanos == 0 {
            return write!(f, "{whole}s");
        }
        let digits = format!("{nanos:09}");
        write!(f, "{whole}.{}s", digits.trim_end_matches('0'))
    }
}

pub(crate) fn seconds(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s')?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 9 {
        return None;
    }
    Some(Duration::new(whole.parse().ok()?, format!("{part:0<9}").parse().ok()?))
}

pub(crate) fn since_origin(at: Instant) -> Seconds {
    Seconds(at.saturating_since(Instant::ORIGIN))
}

/// A key, in quotes.
pub(crate) struct Quoted<'a, K>(pub(crate) &'a K);

impl<K: Display> Display for Quoted<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.to_string().chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// Splits `text` into the contents of the quotes that it begins with, and the rest.
pub(crate) fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut chars = text.strip_prefix('"')?.chars();
    let mut inside = String::new();
    loop {
        match chars.next()? {
            '"' => return Some((inside, chars.as_str())),
            '\\' => inside.push(match chars.next()? {
                'n' => '\n',
                'r' => '\r',
                c @ ('"' | '\\') => c,
                _ => return None,
            }),
            c => inside.push(c),
        }
    }
}

impl<K: FromStr, V: Value> FromStr for Trace<K, V> {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let mut seed = None;
        let mut calls: Vec<(Instant, Call<K, V>)> = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: String| TraceError { line: Some((i + 1, line.to_string())), why };
            let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
            if first == "seed" {
                seed = Some(rest.parse().map_err(|_| wrong(format!("{rest} is no seed")))?);
                continue;
            }
            let at = seconds(first).ok_or_else(|| wrong(format!("{first} is no time such as 1.5s")))?;
            let at = Instant::ORIGIN + at;
            if calls.last().is_some_and(|(last, _)| *last > at) {
                return Err(wrong("it is earlier than the line before".into()));
            }
            calls.push((at, read_call(rest).map_err(wrong)?));
        }
        match seed {
            Some(seed) => Ok(Self { seed, calls }),
            None => Err(TraceError { line: None, why: "the trace has no line `seed NUMBER`".into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact() {
        for (nanos, text) in
            [(0, "0s"), (1, "0.000000001s"), (1_500_000_000, "1.5s"), (60_000_000_000, "60s")]
        {
            let time = Duration::from_nanos(nanos);
            assert_eq!(Seconds(time).to_string(), text);
            assert_eq!(seconds(text), Some(time));
        }
        for wrong in ["", "s", "1", "1.5", "-1s", "1.0000000001s", "1e3s", "+1s"] {
            assert!(seconds(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_line() {
        let why =
            |text: &str| text.parse::<Trace<u32, u8>>().err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(why("seed x"), "line 1 of the trace, `seed x`: x is no seed");
        assert!(
            why("seed 1\n# fine\n1s fly \"1\"")
                .starts_with("line 3 of the trace, `1s fly \"1\"`: fly is no call")
        );
        assert!(why("seed 1\n1s add 1").ends_with("a key in quotes is missing"));
        assert!(why("seed 1\n1s add \"x\"").ends_with("\"x\" is no key of this queue"));
        assert!(why("seed 1\n1s add \"1\" soon").ends_with("add has no option soon"));
        assert!(why("seed 1\n1s add \"1\" after=soon").ends_with("soon is no time such as 1.5s"));
        assert!(why("seed 1\n1s cancel \"1\" keep").ends_with("cancel has no option keep"));
        let ends = |text: &str, what: &str| assert!(why(text).ends_with(what), "{}", why(text));
        ends("seed 1\n1s add \"1\" debounce=1s", "1s is no debounce such as 0.5s:2s:leading");
        ends("seed 1\n1s add \"1\" debounce=1s:2s:both", "1s:2s:both is no debounce such as 0.5s:2s:leading");
        ends("seed 1\n1s restore \"1\" failures=-1", "-1 is no number");
        ends("seed 1\n1s restore \"1\" keep", "restore has no option keep");
        ends("seed 1\n1s add \"1\" value=256", "\"256\" is no value of this queue");
        ends("seed 1\n1s add \"1\", \"2\"", "add is about one key");
        ends("seed 1\n1s add-many \"1\" keep, two", "a key in quotes is missing");
        ends("seed 1\n1s add \"1\" timeout=1s", "add has no option timeout");
        ends("seed 1\n1s drain waiting=long", "long is not drop, run-now, wait or retries");
        ends("seed 1\n1s workers", "workers wants a number");
        ends("seed 1\n1s pause-group \"1\" tier=1", "pause-group has no option tier");
        ends("seed 1\n1s close now", "close has no option now");
        assert!(why("seed 1\n2s close\n1s close").ends_with("it is earlier than the line before"));
        assert_eq!(why("seed 1\n\n1s close"), "");
    }
}

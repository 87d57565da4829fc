//! The format of an input line: with `--priority` a number and a tab, then the key, then with `--merge` a tab
//! and a value. Lines are read here, and written to files that can be used as input.

use std::io;

use crate::config::{Lines, Merge};
use crate::input::keys::Piece;
use crate::input::payload::Payload;
use crate::input::unpassable::Unpassable;

/// The options of the line format.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Format {
    priorities: bool,
    merge: Option<Merge>,
    /// Maximum number of bytes of values kept for a run.
    longest: usize,
}

/// The parts of a trigger other than its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    pub(crate) priority: i16,
    pub(crate) payload: Option<Payload>,
}

impl Beside {
    /// Joins the parts of a later trigger.
    pub(crate) fn join(&mut self, later: Self) {
        self.priority = self.priority.max(later.priority);
        Payload::join(&mut self.payload, later.payload);
    }
}

/// The priority, the key and the value of a line.
type Parts<'a> = (i16, &'a [u8], Option<&'a [u8]>);

impl Format {
    pub(crate) fn new(lines: &Lines) -> Self {
        Self { priorities: lines.priorities, merge: lines.merge, longest: lines.longest }
    }

    /// Whether a line that repeats the previous one adds nothing. With values it does.
    pub(crate) fn folds(&self) -> bool {
        self.merge.is_none()
    }

    /// The parts for a key that is not from a line.
    pub(crate) fn unread(&self) -> Beside {
        Beside { priority: 0, payload: self.payload(None) }
    }

    /// Splits a line; the rest of it is the key.
    pub(crate) fn read<'a>(&self, piece: Piece<'a>) -> (Beside, Piece<'a>) {
        let nothing = Beside::default();
        match piece {
            Piece::Key(line) => match self.cut(line) {
                Ok((priority, key, value)) => {
                    (Beside { priority, payload: self.payload(value) }, Piece::Key(key))
                }
                Err(why) => (nothing, Piece::NoKey(line, why)),
            },
            // the key is there all the same where it is the value that makes the line so long
            Piece::TooLong { start, .. } => match self.cut(start) {
                Ok((priority, key, Some(value))) if self.merge == Some(Merge::Count) => {
                    (Beside { priority, payload: self.payload(Some(value)) }, Piece::Key(key))
                }
                Ok((_, key, Some(_))) => (nothing, Piece::NoKey(key, Unpassable::PayloadTooLong)),
                _ => (nothing, piece),
            },
            Piece::Repeated | Piece::NoKey(..) | Piece::Pause => (nothing, piece),
        }
    }

    /// The parts of a line, or the reason why it has no key.
    fn cut<'a>(&self, line: &'a [u8]) -> Result<Parts<'a>, Unpassable> {
        let (priority, rest) = self.priority(line).ok_or(Unpassable::NoPriority)?;
        let (key, value) = match memchr::memchr(b'\t', rest).filter(|_| self.merge.is_some()) {
            Some(tab) => (&rest[..tab], Some(&rest[tab + 1..])),
            None => (rest, None),
        };
        if key.is_empty() {
            return Err(if value.is_some() { Unpassable::NoKey } else { Unpassable::NoPriority });
        }
        Ok((priority, key, value))
    }

    fn priority<'a>(&self, line: &'a [u8]) -> Option<(i16, &'a [u8])> {
        if !self.priorities {
            return Some((0, line));
        }
        let tab = memchr::memchr(b'\t', line)?;
        let priority = std::str::from_utf8(&line[..tab]).ok()?.parse().ok()?;
        Some((priority, &line[tab + 1..]))
    }

    fn payload(&self, value: Option<&[u8]>) -> Option<Payload> {
        match self.merge? {
            Merge::Last => value.map(|value| Payload::Last(value.to_vec())),
            Merge::Concat => value.map(|value| Payload::concat(value, self.longest)),
            Merge::Count => Some(Payload::Count(1)),
        }
    }

    /// Writes lines that give the key its present parts when they are read again.
    ///
    /// # Errors
    ///
    /// If they could not be written.
    pub(crate) fn write(
        &self,
        out: &mut dyn io::Write,
        key: &[u8],
        beside: &Beside,
        separator: u8,
    ) -> io::Result<()> {
        let mut line = |value: Option<&[u8]>| {
            if self.priorities {
                write!(out, "{}\t", beside.priority)?;
            }
            out.write_all(key)?;
            if let Some(value) = value {
                out.write_all(b"\t")?;
                out.write_all(value)?;
            }
            out.write_all(&[separator])
        };
        match &beside.payload {
            None => line(None),
            Some(Payload::Last(value)) => line(Some(value)),
            Some(Payload::Concat { .. }) => {
                beside.payload.iter().flat_map(Payload::values).try_for_each(|value| line(Some(value)))
            }
            Some(Payload::Count(count)) => (0..*count).try_for_each(|_| line(None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(priorities: bool, merge: Option<Merge>) -> Format {
        Format { priorities, merge, longest: 1_000 }
    }

    fn read(format: Format, line: &[u8]) -> (Beside, Piece<'_>) {
        format.read(Piece::Key(line))
    }

    #[test]
    fn a_priority_is_a_number_and_a_tab_and_the_rest_is_the_key() {
        for (line, priority, key) in [
            (&b"5\ta"[..], 5, &b"a"[..]),
            (b"-100\ta b", -100, b"a b"),
            (b"+7\ta\tb", 7, b"a\tb"),
            (b"-32768\t\xff", i16::MIN, b"\xff"),
            (b"32767\t\t", i16::MAX, b"\t"),
        ] {
            let beside = Beside { priority, payload: None };
            assert_eq!(read(format(true, None), line), (beside, Piece::Key(key)));
            let without = (Beside::default(), Piece::Key(line));
            assert_eq!(read(format(false, None), line), without, "without the option");
        }
        for line in ["a", "5 a", "5", "5\t", "\ta", " 5\ta", "1.5\ta", "32768\ta", "-\ta", "0x1\ta"] {
            let line = line.as_bytes();
            let none = (Beside::default(), Piece::NoKey(line, Unpassable::NoPriority));
            assert_eq!(read(format(true, None), line), none);
        }
        assert_eq!(format(true, None).read(Piece::Repeated), (Beside::default(), Piece::Repeated));
    }

    #[test]
    fn a_value_stands_behind_the_first_tab_after_the_key() {
        let last = |value: &[u8]| Some(Payload::Last(value.to_vec()));
        for (priorities, line, priority, key, payload) in [
            (false, &b"a\tb c"[..], 0, &b"a"[..], last(b"b c")),
            (false, b"a\tb\tc", 0, b"a", last(b"b\tc")),
            (false, b"a\t", 0, b"a", last(b"")),
            (false, b"a", 0, b"a", None),
            (true, b"7\ta\tb", 7, b"a", last(b"b")),
            (true, b"7\ta", 7, b"a", None),
        ] {
            let expected = (Beside { priority, payload }, Piece::Key(key));
            assert_eq!(read(format(priorities, Some(Merge::Last)), line), expected);
        }
        let too_long = |start: &'static [u8]| Piece::TooLong { start, bytes: 1 << 40 };
        for (merge, start, payload, piece) in [
            (Merge::Last, &b"a\tb"[..], None, Piece::NoKey(b"a", Unpassable::PayloadTooLong)),
            (Merge::Concat, b"a\tb", None, Piece::NoKey(b"a", Unpassable::PayloadTooLong)),
            (Merge::Count, b"a\tb", Some(Payload::Count(1)), Piece::Key(b"a")),
            (Merge::Last, b"ab", None, too_long(b"ab")),
        ] {
            let read = format(false, Some(merge)).read(too_long(start));
            assert_eq!(read, (Beside { priority: 0, payload }, piece), "{merge:?}");
        }
        for line in [&b"\tvalue"[..], b"\t"] {
            let none = (Beside::default(), Piece::NoKey(line, Unpassable::NoKey));
            assert_eq!(read(format(false, Some(Merge::Last)), line), none);
        }
    }

    #[test]
    fn what_is_written_is_read_again_as_what_it_was() {
        let lines: [&[u8]; 5] = [b"a\tone", b"a", b"a\t", b"a\ttwo\t", b"a\tone"];
        for merge in [None, Some(Merge::Last), Some(Merge::Concat), Some(Merge::Count)] {
            for priorities in [false, true] {
                let format = format(priorities, merge);
                let all = |lines: &mut dyn Iterator<Item = Vec<u8>>| {
                    let mut all: Option<Beside> = None;
                    for line in lines {
                        let (beside, Piece::Key(_)) = read(format, &line) else { panic!("{line:?}") };
                        match &mut all {
                            None => all = Some(beside),
                            Some(all) => Payload::join(&mut all.payload, beside.payload),
                        }
                    }
                    all.unwrap()
                };
                let before = if priorities { &b"-3\t"[..] } else { b"" };
                let first = all(&mut lines.iter().map(|line| [before, line].concat()));
                let mut text = Vec::new();
                format.write(&mut text, b"a", &first, b'\n').unwrap();
                let again =
                    all(&mut text.split_inclusive(|b| *b == b'\n').map(|l| l[..l.len() - 1].to_vec()));
                assert_eq!(again, first, "{merge:?} {priorities}: {text:?}");
            }
        }
    }
}

//! `--merge`: merges the values of a run's triggers into one, which PROGRAM gets in `REQUEUE_PAYLOAD`.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::input::keys::LONGEST;

/// The values of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "Kept")]
pub(crate) enum Payload {
    /// The latest value.
    Last(Vec<u8>),
    /// All values in their order.
    Concat {
        /// Each value behind its length, because a value may contain any byte.
        values: Vec<u8>,
        /// Maximum length: no system passes more bytes to a program.
        longest: usize,
    },
    /// Number of triggers.
    Count(u64),
}

/// A payload in a durable queue's form.
#[derive(Serialize, Deserialize)]
enum Kept {
    #[serde(rename = "--merge last")]
    Last(Bytes),
    #[serde(rename = "--merge concat")]
    Concat { values: Vec<Bytes>, longest: usize },
    #[serde(rename = "--merge count")]
    Count(u64),
    /// A value added by another program.
    #[serde(untagged)]
    Others(serde_json::Value),
}

/// Text if they are valid text, for readers of a listing.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Bytes {
    Text(String),
    Other(Vec<u8>),
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Other(bytes.to_vec()),
        }
    }
}

impl From<Bytes> for Vec<u8> {
    fn from(bytes: Bytes) -> Self {
        match bytes {
            Bytes::Text(text) => text.into_bytes(),
            Bytes::Other(bytes) => bytes,
        }
    }
}

impl From<Payload> for Kept {
    fn from(payload: Payload) -> Self {
        match &payload {
            Payload::Last(value) => Self::Last(value[..].into()),
            Payload::Concat { longest, .. } => {
                Self::Concat { values: payload.values().map(Bytes::from).collect(), longest: *longest }
            }
            Payload::Count(count) => Self::Count(*count),
        }
    }
}

/// Any JSON that another program has added can be read. A value that is nested too deeply for [`Kept`], or
/// has a number that Rust's types cannot hold, is passed to PROGRAM as written: a key that could not be read
/// would give up silently.
impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let kept = serde_json::from_str::<Kept>(text.get());
        Ok(kept.map_or_else(|_| Self::concat(text.get().as_bytes(), LONGEST), Self::from))
    }
}

impl From<Kept> for Payload {
    fn from(kept: Kept) -> Self {
        match kept {
            Kept::Last(value) => Self::Last(value.into()),
            Kept::Concat { values, longest } => {
                let with_length = |value| {
                    let value = Vec::from(value);
                    [&value.len().to_ne_bytes()[..], &value].concat()
                };
                Self::Concat { values: values.into_iter().flat_map(with_length).collect(), longest }
            }
            Kept::Count(count) => Self::Count(count),
            // all of them, as JSON, a line each
            Kept::Others(value) => Self::concat(value.to_string().as_bytes(), LONGEST),
        }
    }
}

const LENGTH: usize = size_of::<usize>();

impl Payload {
    pub(crate) fn concat(value: &[u8], longest: usize) -> Self {
        Self::Concat { values: [&value.len().to_ne_bytes(), value].concat(), longest }
    }

    /// Joins the payload of a run with that of later triggers.
    pub(crate) fn join(older: &mut Option<Self>, newer: Option<Self>) {
        match (older, newer) {
            (Some(older), Some(newer)) => older.merge(newer),
            (older @ None, newer) => *older = newer,
            (Some(_), None) => {}
        }
    }

    fn merge(&mut self, newer: Self) {
        match (self, newer) {
            (Self::Concat { values, longest }, Self::Concat { values: more, .. }) => {
                if values.len() <= *longest {
                    values.extend_from_slice(&more);
                }
            }
            (Self::Count(count), Self::Count(more)) => *count = count.saturating_add(more),
            (older, newer) => *older = newer,
        }
    }

    /// The joined values, one by one.
    pub(crate) fn values(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest: &[u8] = match self {
            Self::Concat { values, .. } => values,
            _ => &[],
        };
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<LENGTH>()?;
            let (value, behind) = behind.split_at_checked(usize::from_ne_bytes(*length))?;
            rest = behind;
            Some(value)
        })
    }

    /// The text for PROGRAM.
    pub(crate) fn text(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Last(value) => Cow::Borrowed(value),
            Self::Concat { .. } => Cow::Owned(self.values().collect::<Vec<_>>().join(&b'\n')),
            Self::Count(count) => Cow::Owned(count.to_string().into_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(payloads: impl IntoIterator<Item = Option<Payload>>) -> Option<Payload> {
        payloads.into_iter().fold(None, |mut older, newer| {
            Payload::join(&mut older, newer);
            older
        })
    }

    fn text(payload: &Option<Payload>) -> Option<Vec<u8>> {
        payload.as_ref().map(|payload| payload.text().into_owned())
    }

    #[test]
    fn the_last_value_stands_and_a_trigger_without_one_leaves_it() {
        let last = |value: &[u8]| Some(Payload::Last(value.to_vec()));
        assert_eq!(text(&joined([None, None])), None);
        assert_eq!(text(&joined([last(b"a"), last(b"b"), None])), Some(b"b".to_vec()));
        assert_eq!(text(&joined([last(b"a"), last(b"")])), Some(b"".to_vec()));
    }

    #[test]
    fn all_values_stand_in_their_order_a_line_each() {
        let concat = |value: &[u8]| Some(Payload::concat(value, 100));
        let all = joined([concat(b"a"), None, concat(b""), concat(b"b\tc"), concat(b"a")]);
        assert_eq!(text(&all), Some(b"a\n\nb\tc\na".to_vec()));
        let values: Vec<_> = all.iter().flat_map(Payload::values).collect();
        assert_eq!(values, [&b"a"[..], b"", b"b\tc", b"a"]);
    }

    #[test]
    fn values_that_no_program_can_get_use_no_more_memory() {
        let part = || Some(Payload::concat(&[b'x'; 100], 1_000));
        let all = joined(std::iter::repeat_with(part).take(100_000));
        let length = text(&all).unwrap().len();
        assert!((1_000..1_200).contains(&length), "{length}");
    }

    #[test]
    fn what_is_kept_is_what_it_was() {
        let concat = |value: &[u8]| Some(Payload::concat(value, 100));
        let all = [
            (Some(Payload::Last(b"a".to_vec())), r#"{"--merge last":"a"}"#),
            (Some(Payload::Last(b"\xff".to_vec())), r#"{"--merge last":[255]}"#),
            (
                joined([concat(b"a"), concat(b""), concat(b"b\n")]),
                r#"{"--merge concat":{"values":["a","","b\n"],"longest":100}}"#,
            ),
            (Some(Payload::Count(7)), r#"{"--merge count":7}"#),
            (None, "null"),
        ];
        for (payload, text) in all {
            assert_eq!(serde_json::to_string(&payload).unwrap(), text);
            assert_eq!(serde_json::from_str::<Option<Payload>>(text).unwrap(), payload);
        }
    }

    #[test]
    fn values_of_other_programs_are_their_json_a_line_each() {
        let values =
            [r#"{"count":7}"#, r#""a b""#, "[1,null]"].map(|it| Some(serde_json::from_str(it).unwrap()));
        assert_eq!(text(&joined(values)), Some(b"{\"count\":7}\n\"a b\"\n[1,null]".to_vec()));
    }

    #[test]
    fn values_that_are_nested_deeply_or_have_large_numbers_are_told_as_they_are_written() {
        let deep = ["[", "]"].map(|it| it.repeat(3000)).concat();
        let values: Vec<Option<Payload>> =
            serde_json::from_str(&format!("[{deep}, 1e400, null, 7]")).unwrap();
        assert_eq!(text(&joined(values)), Some(format!("{deep}\n1e400\n7").into_bytes()));
    }

    #[test]
    fn triggers_are_counted() {
        let count = |n| Some(Payload::Count(n));
        assert_eq!(text(&joined([count(1), count(1), count(1)])), Some(b"3".to_vec()));
        assert_eq!(joined([count(u64::MAX), count(1)]), count(u64::MAX));
    }
}

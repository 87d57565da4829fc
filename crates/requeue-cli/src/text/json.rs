//! JSON as the command writes it, and checks what it reads.

use std::fmt::{self, Write as _};
use std::time::Duration;

/// A value that can be written as JSON.
pub(crate) trait Json {
    fn write(&self, out: &mut String);
}

macro_rules! as_displayed {
    ($($kind:ty),*) => {$(
        impl Json for $kind {
            fn write(&self, out: &mut String) {
                let _ = write!(out, "{self}");
            }
        }
    )*};
}

as_displayed!(bool, u8, u32, u64, usize, i16, i32, f64, Object, Raw<'_>);

/// A value that is JSON already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a>(pub(crate) &'a str);

impl fmt::Display for Raw<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Control characters are escaped, so that a terminal can show it.
impl Json for str {
    fn write(&self, out: &mut String) {
        out.push('"');
        for c in self.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c if c.is_control() => {
                    let _ = write!(out, "\\u{:04x}", u32::from(c));
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

impl Json for String {
    fn write(&self, out: &mut String) {
        self.as_str().write(out);
    }
}

impl<T: Json + ?Sized> Json for &T {
    fn write(&self, out: &mut String) {
        (**self).write(out);
    }
}

impl<T: Json> Json for Option<T> {
    fn write(&self, out: &mut String) {
        match self {
            Some(value) => value.write(out),
            None => out.push_str("null"),
        }
    }
}

impl<T: Json> Json for Vec<T> {
    fn write(&self, out: &mut String) {
        out.push('[');
        for (nth, value) in self.iter().enumerate() {
            if nth > 0 {
                out.push(',');
            }
            value.write(out);
        }
        out.push(']');
    }
}

/// Seconds, exactly.
impl Json for Duration {
    fn write(&self, out: &mut String) {
        let _ = write!(out, "{}", self.as_secs());
        if self.subsec_nanos() > 0 {
            let fraction = format!(".{:09}", self.subsec_nanos());
            out.push_str(fraction.trim_end_matches('0'));
        }
    }
}

/// A value as JSON text.
pub(crate) fn text(value: impl Json) -> String {
    let mut out = String::new();
    value.write(&mut out);
    out
}

/// An object, built member by member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object {
    members: String,
}

impl Object {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Json) -> Self {
        if !self.members.is_empty() {
            self.members.push(',');
        }
        let _ = write!(self.members, "\"{name}\":");
        value.write(&mut self.members);
        self
    }

    /// Adds bytes as text. If they are not UTF-8 the text has replacement characters, and a member `NAME_hex` has the exact
    /// bytes.
    #[must_use]
    pub(crate) fn with_bytes(self, name: &str, bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.with(name, text),
            Err(_) => {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                self.with(name, &*String::from_utf8_lossy(bytes)).with(&format!("{name}_hex"), hex)
            }
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}}}", self.members)
    }
}

/// Checks that a text is JSON, without changing it.
///
/// # Errors
///
/// If the text is not JSON.
pub(crate) fn read(text: &str) -> Result<String, String> {
    let parsed: Result<Box<serde_json::value::RawValue>, _> = serde_json::from_str(text);
    parsed
        .map(|value| value.get().to_owned())
        .map_err(|e| format!("it is no JSON: {e}; text stands in double quotes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_what_a_json_reader_reads() {
        let string = "a\"b\\c\n\t\r\u{1}\u{7f}\u{85}é\u{1F600}";
        let object = Object::new()
            .with_bytes("key", b"a\xff")
            .with("string", string)
            .with("seconds", Duration::new(7, 1_000_000))
            .with("many", vec![Some(Duration::from_secs(1)), None])
            .with("inner", Object::new())
            .with("raw", Raw("[7]"));
        let read: serde_json::Value = serde_json::from_str(&object.to_string()).unwrap();
        let expected = serde_json::json!({
            "key": "a\u{fffd}", "key_hex": "61ff", "string": string, "seconds": 7.001, "many": [1, null], "inner": {}, "raw": [7]
        });
        assert_eq!(read, expected);
        assert!(!object.to_string().chars().any(char::is_control));
    }
}

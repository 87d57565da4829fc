//! Values as JSON.

use std::fmt::Write as _;

/// A JSON string, quotes included.
pub(crate) fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
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
    out
}

/// The members for a key in a JSON object: `"key":"…"`; if the key is not UTF-8 the text has replacement
/// characters, and `"key_hex"` has the exact bytes.
pub(crate) fn key(bytes: &[u8]) -> String {
    named("key", bytes)
}

/// The members for other bytes, with this name.
pub(crate) fn named(name: &str, bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => format!("\"{name}\":{}", string(text)),
        Err(_) => {
            let mut out = format!("\"{name}\":{},\"{name}_hex\":\"", string(&String::from_utf8_lossy(bytes)));
            for b in bytes {
                let _ = write!(out, "{b:02x}");
            }
            out.push('"');
            out
        }
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
    fn json_strings_are_what_a_json_reader_reads() {
        let text = "a\"b\\c\n\t\r\u{1}\u{7f}\u{85}é\u{1F600}";
        let read: String = serde_json::from_str(&string(text)).unwrap();
        assert_eq!(read, text);
        let object = format!("{{{}}}", key(b"a\xff"));
        let read: serde_json::Value = serde_json::from_str(&object).unwrap();
        assert_eq!(read["key"], "a\u{fffd}");
        assert_eq!(read["key_hex"], "61ff");
    }
}

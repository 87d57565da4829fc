//! Keys and arguments as text for people, shells and JSON readers.
//!
//! Keys are bytes. On a terminal a key must not be able to move the cursor or to look like two keys, so it is
//! shown as a shell would want it typed: plain if that is safe, quoted if not, `$'…'` if bytes cannot be
//! printed.

use std::fmt::Write as _;

/// Approximate maximum length of keys in messages; files and JSON have them whole.
const SHOWN: usize = 160;

/// One word of a shell command line that stands for exactly these bytes.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"_-./:=@%+,^".contains(b);
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        if !text.chars().any(char::is_control) {
            // Within single quotes only the quote itself is special.
            return format!("'{}'", text.replace('\'', r"'\''"));
        }
    }
    let mut out = String::from("$'");
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' | '\\' => {
                    out.push('\\');
                    out.push(c);
                }
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                c if c.is_control() => {
                    let mut utf8 = [0; 4];
                    escape_bytes(&mut out, c.encode_utf8(&mut utf8).as_bytes());
                }
                c => out.push(c),
            }
        }
        escape_bytes(&mut out, chunk.invalid());
    }
    out.push('\'');
    out
}

/// Octal with three digits: unlike `\x`, the next character cannot be taken for a digit.
fn escape_bytes(out: &mut String, bytes: &[u8]) {
    for b in bytes {
        let _ = write!(out, "\\{b:03o}");
    }
}

/// A key in a message: quoted if needed, and cut if it is long.
pub(crate) fn key(bytes: &[u8]) -> String {
    if bytes.len() <= SHOWN {
        return quoted(bytes);
    }
    let mut end = SHOWN;
    // A cut within a character would show the character's bytes as broken.
    while end > SHOWN - 4 && bytes[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    format!("{}… ({} bytes)", quoted(&bytes[..end]), bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_where_a_shell_needs_it() {
        let cases: [(&[u8], &str); 11] = [
            (b"a.txt", "a.txt"),
            (b"ns/pod-1", "ns/pod-1"),
            (b"", "''"),
            (b"a b", "'a b'"),
            (b"it's", r"'it'\''s'"),
            (b"$HOME", "'$HOME'"),
            ("käse".as_bytes(), "'käse'"),
            (b"a\nb", r"$'a\nb'"),
            (b"\xff1", r"$'\3771'"),
            (b"\x1b[2J'", r"$'\033[2J\''"),
            ("\u{85}".as_bytes(), r"$'\302\205'"),
        ];
        for (bytes, text) in cases {
            assert_eq!(quoted(bytes), text);
        }
    }

    #[test]
    fn a_shell_reads_back_the_same_bytes() {
        let every: Vec<u8> = (1..=255).collect();
        for bytes in [&every[..], b"it's", b"\x01\x31", "ä\u{85}1".as_bytes()] {
            let output = std::process::Command::new("bash")
                .args(["-c", &format!("printf %s {}", quoted(bytes))])
                .env("LC_ALL", "C")
                .output()
                .unwrap();
            assert_eq!(output.stdout, bytes);
        }
    }

    #[test]
    fn long_keys_are_cut_between_characters() {
        let long = "é".repeat(100_000);
        let shown = key(long.as_bytes());
        assert!(shown.len() < 250, "{shown}");
        assert!(shown.ends_with("… (200000 bytes)"), "{shown}");
        assert!(!shown.contains('\\'), "{shown}");
        assert_eq!(key(b"short"), "short");
    }
}

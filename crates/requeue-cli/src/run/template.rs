//! The template: from a key to the arguments of PROGRAM.
//!
//! The placeholders are those of GNU parallel, and odd keys (`a/`, `.bashrc`, `//`) are treated as GNU
//! parallel does.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use memchr::{memchr_iter, memrchr};

use crate::input::unpassable::Unpassable;
use crate::text::show;

/// The placeholders for the key, anywhere in an argument, with their replacements.
const PLACES: [(&[u8], Part); 5] =
    [(b"{}", whole), (b"{.}", without_extension), (b"{/}", base_name), (b"{//}", directory), (b"{/.}", stem)];

/// The part of a key that replaces a placeholder.
type Part = fn(&[u8]) -> &[u8];

/// A part of an argument.
#[derive(Clone, Debug)]
enum Piece {
    Text(Vec<u8>),
    Place(Part),
}

/// The command line with placeholders for the key.
#[derive(Debug)]
pub(crate) struct Template {
    /// The file to execute.
    pub(crate) file: PathBuf,
    /// PROGRAM as given: the program's own name.
    pub(crate) name: OsString,
    args: Vec<Vec<Piece>>,
    /// No argument has a placeholder for the key.
    append: bool,
    longest_string: usize,
}

impl Template {
    pub(crate) fn new(file: PathBuf, name: OsString, args: Vec<OsString>) -> Self {
        let args: Vec<_> = args.into_iter().map(|arg| pieces(arg.as_bytes())).collect();
        let append = !args.iter().flatten().any(|piece| matches!(piece, Piece::Place(_)));
        Self { file, name, args, append, longest_string: longest_string() }
    }

    /// Uses the key only in placeholders.
    pub(crate) fn without_key(self) -> Self {
        Self { append: false, ..self }
    }

    /// The arguments of PROGRAM for this key.
    ///
    /// # Errors
    ///
    /// If the system cannot pass the key.
    pub(crate) fn arguments(&self, key: &[u8]) -> Result<Vec<OsString>, Unpassable> {
        if memchr::memchr(0, key).is_some() {
            return Err(Unpassable::HoldsNul);
        }
        // `REQUEUE_KEY=` and the NUL behind it count too.
        if key.len() + "REQUEUE_KEY=".len() >= self.longest_string {
            return Err(Unpassable::TooLong);
        }
        let mut out = Vec::with_capacity(self.args.len() + 1);
        for arg in &self.args {
            let arg = fill(arg, key);
            if arg.len() >= self.longest_string {
                return Err(Unpassable::TooLong);
            }
            out.push(OsString::from_vec(arg));
        }
        if self.append {
            out.push(OsStr::from_bytes(key).to_owned());
        }
        Ok(out)
    }

    /// The value of `REQUEUE_PAYLOAD` for these bytes.
    ///
    /// # Errors
    ///
    /// If the system cannot pass them.
    pub(crate) fn payload(&self, text: &[u8]) -> Result<OsString, Unpassable> {
        if memchr::memchr(0, text).is_some() {
            return Err(Unpassable::PayloadHoldsNul);
        }
        if text.len() + "REQUEUE_PAYLOAD=".len() >= self.longest_string {
            return Err(Unpassable::PayloadTooLong);
        }
        Ok(OsStr::from_bytes(text).to_owned())
    }

    /// The command line for this key as one would type it.
    pub(crate) fn command_line(&self, key: &[u8]) -> Result<String, Unpassable> {
        let mut line = show::quoted(self.name.as_bytes());
        for arg in self.arguments(key)? {
            line.push(' ');
            line.push_str(&show::quoted(arg.as_bytes()));
        }
        Ok(line)
    }
}

/// Splits an argument at its placeholders. Done once, so that a key that looks like a placeholder is never
/// taken for one.
fn pieces(arg: &[u8]) -> Vec<Piece> {
    let mut out = Vec::new();
    let mut from = 0;
    for at in memchr_iter(b'{', arg) {
        let found = PLACES.iter().find(|(place, _)| arg[at..].starts_with(place));
        let Some((place, part)) = found else { continue };
        out.push(Piece::Text(arg[from..at].to_vec()));
        out.push(Piece::Place(*part));
        from = at + place.len();
    }
    out.push(Piece::Text(arg[from..].to_vec()));
    out
}

fn fill(arg: &[Piece], key: &[u8]) -> Vec<u8> {
    let parts = arg.iter().map(|piece| match piece {
        Piece::Text(text) => text,
        Piece::Place(part) => part(key),
    });
    parts.collect::<Vec<_>>().concat()
}

fn whole(key: &[u8]) -> &[u8] {
    key
}

/// The key without its extension: the text after the last dot of the last name, and that dot.
fn without_extension(key: &[u8]) -> &[u8] {
    match memrchr(b'.', key) {
        Some(dot) if memrchr(b'/', key).is_none_or(|slash| slash < dot) => &key[..dot],
        _ => key,
    }
}

/// The text after the last slash.
fn base_name(key: &[u8]) -> &[u8] {
    memrchr(b'/', key).map_or(key, |slash| &key[slash + 1..])
}

/// The directory as in `dirname`: `.` for a name without a slash.
fn directory(key: &[u8]) -> &[u8] {
    match memrchr(b'/', without_slashes(key)) {
        Some(slash) => match without_slashes(&key[..slash]) {
            b"" => b"/",
            directory => directory,
        },
        None if key.starts_with(b"/") => b"/",
        None => b".",
    }
}

fn stem(key: &[u8]) -> &[u8] {
    without_extension(base_name(key))
}

/// The key without trailing slashes.
fn without_slashes(key: &[u8]) -> &[u8] {
    &key[..key.iter().rposition(|b| *b != b'/').map_or(0, |last| last + 1)]
}

/// Maximum length of one argument or variable with its NUL. Linux: `MAX_ARG_STRLEN`, 32 pages. On other
/// systems only the sum is bounded, and reported at the start.
fn longest_string() -> usize {
    if cfg!(target_os = "linux") { 32 * rustix::param::page_size() } else { usize::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(args: &[&str]) -> Template {
        Template::new("/bin/p".into(), "p".into(), args.iter().map(OsString::from).collect())
    }

    #[test]
    fn the_key_is_appended_where_it_has_no_place() {
        assert_eq!(template(&[]).arguments(b"k").unwrap(), ["k"]);
        assert_eq!(template(&["-v", "{ }"]).arguments(b"k").unwrap(), ["-v", "{ }", "k"]);
    }

    #[test]
    fn every_place_becomes_the_key() {
        let t = template(&["{}", "a{}b{}", "-o={}.out", "plain"]);
        assert_eq!(t.arguments(b"k").unwrap(), ["k", "akbk", "-o=k.out", "plain"]);
        assert_eq!(template(&["{}"]).arguments(b"{}{}").unwrap(), ["{}{}"]);
        assert_eq!(template(&["{{}}"]).arguments(b"k").unwrap(), ["{k}"]);
    }

    /// The results of GNU parallel 20221122 for these keys: {.}, {/}, {//}, {/.}.
    #[test]
    fn parts_of_keys_are_those_of_gnu_parallel() {
        for (key, parts) in [
            ("a.jpg", ["a", "a.jpg", ".", "a"]),
            ("d.x/a", ["d.x/a", "a", "d.x", "a"]),
            ("d.x/.bashrc", ["d.x/", ".bashrc", "d.x", ""]),
            ("a..", ["a.", "a..", ".", "a."]),
            ("a.b.c", ["a.b", "a.b.c", ".", "a.b"]),
            ("/", ["/", "", "/", ""]),
            ("//", ["//", "", "/", ""]),
            ("/a", ["/a", "a", "/", "a"]),
            ("/a/", ["/a/", "", "/", ""]),
            ("a/", ["a/", "", ".", ""]),
            ("a/b/", ["a/b/", "", "a", ""]),
            ("a//b", ["a//b", "b", "a", "b"]),
            ("//a/b", ["//a/b", "b", "//a", "b"]),
            ("../x.y", ["../x", "x.y", "..", "x"]),
            ("x/..", ["x/.", "..", "x", "."]),
            ("a b/c d.e", ["a b/c d", "c d.e", "a b", "c d"]),
        ] {
            let t = template(&["{.}", "{/}", "{//}", "{/.}"]);
            assert_eq!(t.arguments(key.as_bytes()).unwrap(), parts, "{key}");
        }
    }

    #[test]
    fn parts_stand_beside_the_key_and_beside_text() {
        let t = template(&["-o", "{//}/thumbs/{/.}.png", "{}", "{ .}{/", "{.}}"]);
        let expected = ["-o", "d/thumbs/{.}.png", "d/{.}.jpg", "{ .}{/", "d/{.}}"];
        assert_eq!(t.arguments(b"d/{.}.jpg").unwrap(), expected);
        // A place of any kind is a place: the key is not appended.
        assert_eq!(template(&["{/}"]).arguments(b"d/k").unwrap(), ["k"]);
    }

    #[test]
    fn keys_are_bytes() {
        let t = template(&["<{}>"]);
        assert_eq!(t.arguments(b"\xff\xfe").unwrap()[0].as_bytes(), b"<\xff\xfe>");
    }

    #[test]
    fn what_the_system_cannot_pass_is_said_beforehand() {
        let t = template(&["{}{}"]);
        assert_eq!(t.arguments(b"a\0b"), Err(Unpassable::HoldsNul));
        let limit = t.longest_string;
        assert_eq!(t.arguments(&vec![b'x'; limit / 2]), Err(Unpassable::TooLong));
        assert!(t.arguments(&vec![b'x'; limit / 2 - 1]).is_ok());
        let t = template(&[]);
        assert_eq!(t.arguments(&vec![b'x'; limit - 12]), Err(Unpassable::TooLong));
        assert!(t.arguments(&vec![b'x'; limit - 13]).is_ok());
    }

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let t = template(&["-n", "{}", "it's"]);
        assert_eq!(t.command_line(b"a b").unwrap(), r"p -n 'a b' 'it'\''s'");
    }
}

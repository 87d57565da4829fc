//! From a key to the arguments of PROGRAM.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use memchr::memmem;

use crate::show;

/// Stands for the key, anywhere in an argument.
const PLACE: &[u8] = b"{}";

/// Why a key cannot reach the program at all: trying again would not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unpassable {
    /// An argument ends at its first NUL.
    HoldsNul,
    /// Longer than the system takes for one argument or variable.
    TooLong,
}

impl std::fmt::Display for Unpassable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::HoldsNul => "the key holds a NUL, which no argument can",
            Self::TooLong => "the key is longer than the system can pass to a program",
        })
    }
}

/// The command line with places for the key.
#[derive(Debug)]
pub(crate) struct Template {
    /// The file to execute.
    pub(crate) file: PathBuf,
    /// PROGRAM as it was written: what the program sees as its own name.
    pub(crate) name: OsString,
    args: Vec<Vec<u8>>,
    /// No argument has a place for the key.
    append: bool,
    longest_string: usize,
}

impl Template {
    pub(crate) fn new(file: PathBuf, name: OsString, args: Vec<OsString>) -> Self {
        let args: Vec<_> = args.into_iter().map(OsString::into_vec).collect();
        let append = !args.iter().any(|arg| memmem::find(arg, PLACE).is_some());
        Self { file, name, args, append, longest_string: longest_string() }
    }

    /// The arguments behind PROGRAM for this key.
    ///
    /// # Errors
    ///
    /// The system cannot pass the key.
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
            let arg = if self.append { arg.clone() } else { fill(arg, key) };
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

fn fill(arg: &[u8], key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(arg.len() + key.len());
    let mut from = 0;
    for at in memmem::find_iter(arg, PLACE) {
        out.extend_from_slice(&arg[from..at]);
        out.extend_from_slice(key);
        from = at + PLACE.len();
    }
    out.extend_from_slice(&arg[from..]);
    out
}

/// Linux: `MAX_ARG_STRLEN`, 32 pages for one argument or variable with its NUL.
/// Elsewhere only the sum is bounded, and the system says so at the start.
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

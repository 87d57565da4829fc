//! The globs' decision which names are keys. `.gitignore` files are handled in `gitignore.rs`.

use std::path::Path;

use ignore::Match;
use ignore::overrides::{Override, OverrideBuilder};

use crate::disk::Kind;
use crate::gitignore::GIT;
use crate::report::WatchError;

/// The decision of the rules on a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Key,
    /// A directory that is not a key itself, but may contain keys.
    Enter,
    Hidden,
}

/// The rules from the options.
#[derive(Debug)]
pub(crate) struct Rules {
    globs: Override,
    pub(crate) gitignore: bool,
}

impl Rules {
    /// # Errors
    ///
    /// Fails if a glob is invalid.
    pub(crate) fn new(only: &[String], ignore: &[String], gitignore: bool) -> Result<Self, WatchError> {
        let refused = |glob: &str, why: String| WatchError::Glob { glob: glob.to_owned(), why };
        let mut builder = OverrideBuilder::new("");
        for glob in only.iter().chain(ignore) {
            if glob.starts_with('!') {
                return Err(refused(
                    glob,
                    "it begins with \"!\"; glob and ignore are the two options".into(),
                ));
            }
            if glob.is_empty() {
                return Err(refused(glob, "it is empty".into()));
            }
        }
        for glob in only {
            builder.add(glob).map_err(|e| refused(glob, e.to_string()))?;
        }
        // After the others, so that they have the last word.
        for glob in ignore {
            builder.add(&format!("!{glob}")).map_err(|e| refused(glob, e.to_string()))?;
        }
        let globs = builder.build().map_err(|e| refused("", e.to_string()))?;
        Ok(Self { globs, gitignore })
    }

    /// Decides by the globs, and refuses git's own directory. `relative` is the path below the root.
    pub(crate) fn judge(&self, relative: &Path, kind: Kind) -> Verdict {
        if kind == Kind::Other || (self.gitignore && relative.file_name().is_some_and(|name| name == GIT)) {
            return Verdict::Hidden;
        }
        match self.globs.matched(relative, kind == Kind::Dir) {
            Match::Ignore(_) => Verdict::Hidden,
            Match::Whitelist(_) => Verdict::Key,
            Match::None if self.globs.num_whitelists() == 0 => Verdict::Key,
            Match::None if kind == Kind::Dir => Verdict::Enter,
            Match::None => Verdict::Hidden,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(only: &[&str], ignore: &[&str]) -> Result<Rules, WatchError> {
        let own = |globs: &[&str]| globs.iter().map(|g| (*g).to_owned()).collect::<Vec<_>>();
        Rules::new(&own(only), &own(ignore), true)
    }

    #[test]
    fn globs_choose_files_and_ignores_have_the_last_word() {
        use Verdict::{Enter, Hidden, Key};
        let rules = rules(&["*.rs", "docs/**"], &["target", "*.tmp.rs"]).unwrap();
        for (path, kind, verdict) in [
            ("a.rs", Kind::File, Key),
            ("x/y/a.rs", Kind::File, Key),
            ("a.txt", Kind::File, Hidden),
            ("docs/a.txt", Kind::File, Key),
            ("x", Kind::Dir, Enter),
            ("x/target", Kind::Dir, Hidden),
            ("a.tmp.rs", Kind::File, Hidden),
            ("a.rs", Kind::Other, Hidden),
            (".git", Kind::Dir, Hidden),
        ] {
            assert_eq!(rules.judge(Path::new(path), kind), verdict, "{path}");
        }
    }

    #[test]
    fn what_is_no_glob_is_refused_by_name() {
        for glob in ["[", "a{b", "!a", ""] {
            let why = rules(&[], &[glob]).unwrap_err().to_string();
            assert!(why.starts_with(&format!("{glob:?} is not a glob")), "{why}");
        }
    }
}

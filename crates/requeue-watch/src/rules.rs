//! Which names are keys: globs, and what `.gitignore` files say.

use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ignore::overrides::{Override, OverrideBuilder};

use crate::disk::{Disk, Kind};
use crate::report::WatchError;

pub(crate) const GITIGNORE: &str = ".gitignore";
const GIT: &str = ".git";

/// What the rules say of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Key,
    /// A directory that is no key itself, but what is in it may be.
    Enter,
    Hidden,
}

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Rules {
    globs: Override,
    pub(crate) gitignore: bool,
}

impl Rules {
    /// # Errors
    ///
    /// A glob is none.
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

    /// What the globs say, and whether it is git's own directory. `relative` is the
    /// path below the root.
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

/// The rules in the `.gitignore` of the directory `dir`, which is a real path.
pub(crate) fn parse(dir: &Path, text: &[u8]) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new(dir);
    for line in String::from_utf8_lossy(text).lines() {
        // A line that git could not read either hides nothing.
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}

/// The rules of the directories above `root` (a real path), the nearest first: those of
/// the repository that it is in.
pub(crate) fn above(root: &Path, disk: &mut impl Disk) -> Vec<Gitignore> {
    let mut rules = Vec::new();
    for dir in root.ancestors() {
        if dir != root {
            rules.extend(disk.read(&dir.join(GITIGNORE)).and_then(|text| parse(dir, &text)));
        }
        if matches!(disk.look(&dir.join(GIT)), Ok(Some(_))) {
            return rules;
        }
    }
    Vec::new()
}

/// What the `.gitignore` files say of a real path, the nearest first.
pub(crate) fn hidden<'a>(
    rules: impl Iterator<Item = &'a Gitignore>,
    path: impl FnOnce() -> PathBuf,
    kind: Kind,
) -> bool {
    let mut rules = rules.peekable();
    if rules.peek().is_none() {
        return false;
    }
    let path = path();
    for each in rules {
        match each.matched(&path, kind == Kind::Dir) {
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => return false,
            Match::None => {}
        }
    }
    false
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

    #[test]
    fn the_nearest_gitignore_has_the_last_word() {
        let outer = parse(Path::new("/r"), b"*.log\nbuild/\n# comment\n\xff*\n").unwrap();
        let inner = parse(Path::new("/r/a"), b"!keep.log\n").unwrap();
        let hides = |path: &str, kind| hidden([&inner, &outer].into_iter(), || path.into(), kind);
        assert!(hides("/r/a/x.log", Kind::File));
        assert!(!hides("/r/a/keep.log", Kind::File));
        assert!(hides("/r/b/build", Kind::Dir));
        assert!(!hides("/r/b/build", Kind::File));
    }
}

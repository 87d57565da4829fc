//! The rules of `.gitignore` files and `.git/info/exclude`, line by line as git reads them.
//!
//! A space, a tab, a `\r` or a byte order mark at the edge of a line is treated as git does. A test compares
//! all of this with `git check-ignore`.
//!
//! Files named by git's own configuration (`core.excludesFile`) are not read.

use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::disk::{Disk, Kind};
use crate::pattern::Pattern;

pub(crate) const GITIGNORE: &str = ".gitignore";
pub(crate) const GIT: &str = ".git";

/// The rules for one directory and all below it.
#[derive(Debug)]
pub(crate) struct Gitignore {
    /// The directory, as a real path.
    dir: PathBuf,
    /// The directory is the top of a repository: rules above it do not apply in it.
    top: bool,
    /// The last one that matches decides.
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    /// It shows what an earlier line hides.
    shows: bool,
    /// It matches only directories.
    dirs: bool,
    /// It has no slash, so it matches the last name of a path.
    name: bool,
    pattern: Pattern,
}

impl Line {
    /// `None` if the line is a comment, or can match nothing.
    fn new(line: &[u8]) -> Option<Self> {
        // To git a line is a string of C.
        let line = line.split(|b| *b == 0).next().unwrap_or_default();
        if line.starts_with(b"#") {
            return None;
        }
        let line = without_trailing_spaces(line.strip_suffix(b"\r").unwrap_or(line));
        let (shows, line) = line.strip_prefix(b"!").map_or((false, line), |rest| (true, rest));
        let (dirs, line) = line.strip_suffix(b"/").map_or((false, line), |rest| (true, rest));
        let pattern = Pattern::new(line.strip_prefix(b"/").unwrap_or(line))?;
        Some(Self { shows, dirs, name: !line.contains(&b'/'), pattern })
    }

    /// Whether it matches this path, which is relative to the directory of the rules.
    fn matches(&self, path: &[u8], kind: Kind) -> bool {
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
        (kind == Kind::Dir || !self.dirs) && self.pattern.matches(if self.name { name } else { path })
    }
}

/// Strips trailing spaces, except one after a backslash.
fn without_trailing_spaces(line: &[u8]) -> &[u8] {
    let (mut end, mut at) = (0, 0);
    while let Some(byte) = line.get(at) {
        at = line.len().min(at + if *byte == b'\\' { 2 } else { 1 });
        if *byte != b' ' {
            end = at;
        }
    }
    &line[..end]
}

fn lines(text: &[u8]) -> impl Iterator<Item = Line> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    text.split(|b| *b == b'\n').filter_map(Line::new)
}

/// The rules for this directory and all below it, from its own `.gitignore` and, if it is the top of a
/// repository, from `info/exclude`. `place` is the directory's path for system calls, `real` its path without
/// links.
pub(crate) fn of_dir(place: &Path, real: &Path, top: bool, disk: &mut impl Disk) -> Option<Gitignore> {
    let excluded = if top { exclude(place, disk) } else { None };
    let own = disk.read(&place.join(GITIGNORE));
    // A .gitignore has the last word against the exclude file.
    let lines: Vec<_> = [excluded, own].iter().flatten().flat_map(|text| lines(text)).collect();
    (top || !lines.is_empty()).then(|| Gitignore { dir: real.to_owned(), top, lines })
}

/// The text of the repository's `info/exclude`.
fn exclude(top: &Path, disk: &mut impl Disk) -> Option<Vec<u8>> {
    let git = top.join(GIT);
    // In another worktree and in a submodule, `.git` is a file with the path of the repository.
    let git = match disk.read(&git).as_deref().and_then(|text| path_in(text, b"gitdir: ")) {
        Some(dir) => top.join(dir),
        None => git,
    };
    let common = match disk.read(&git.join("commondir")).as_deref().and_then(|text| path_in(text, b"")) {
        Some(dir) => git.join(dir),
        None => git,
    };
    let file = common.join("info/exclude");
    let file = disk.real(&file).unwrap_or(file);
    disk.read(&file)
}

fn path_in(text: &[u8], before: &[u8]) -> Option<PathBuf> {
    let path = text.strip_prefix(before)?.trim_ascii_end();
    Some(std::ffi::OsString::from_vec(path.to_vec()).into())
}

/// The rules of the directories above `root` (a real path), the nearest first: those of
/// the repository that it is in.
pub(crate) fn above(root: &Path, disk: &mut impl Disk) -> Vec<Gitignore> {
    let mut rules = Vec::new();
    for dir in root.ancestors() {
        let top = matches!(disk.look(&dir.join(GIT)), Ok(Some(_)));
        if dir != root {
            rules.extend(of_dir(dir, dir, top, disk));
        }
        if top {
            return rules;
        }
    }
    Vec::new()
}

/// The verdict of the rules, nearest first, on a real path.
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
        let Ok(below) = path.strip_prefix(&each.dir) else { continue };
        let below = below.as_os_str().as_bytes();
        if let Some(last) = each.lines.iter().rev().find(|line| line.matches(below, kind)) {
            return !last.shows;
        }
        if each.top {
            break;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(dir: &str, top: bool, text: &[u8]) -> Gitignore {
        Gitignore { dir: dir.into(), top, lines: lines(text).collect() }
    }

    /// The names that these lines hide.
    fn hides<'a>(text: &[u8], names: &[&'a str]) -> Vec<&'a str> {
        let rules = rules("/r", true, text);
        let hides = |name: &str| hidden([&rules].into_iter(), || Path::new("/r").join(name), Kind::File);
        names.iter().copied().filter(|name| hides(name)).collect()
    }

    #[test]
    fn the_nearest_gitignore_has_the_last_word() {
        let outer = rules("/r", true, b"*.log\nbuild/\n# comment\n");
        let inner = rules("/r/a", false, b"!keep.log\n");
        let hides = |path: &str, kind| hidden([&inner, &outer].into_iter(), || path.into(), kind);
        assert!(hides("/r/a/x.log", Kind::File));
        assert!(!hides("/r/a/keep.log", Kind::File));
        assert!(hides("/r/b/build", Kind::Dir));
        assert!(!hides("/r/b/build", Kind::File));
    }

    #[test]
    fn a_repository_inside_another_knows_nothing_of_what_that_one_hides() {
        let (outer, inner) = (rules("/r", true, b"*.log\n"), rules("/r/sub", true, b"x\n"));
        let hides = |path: &str| hidden([&inner, &outer].into_iter(), || path.into(), Kind::File);
        assert!(hides("/r/sub/x") && !hides("/r/sub/a.log"));
    }

    #[test]
    fn what_git_takes_literally_is_literal_here() {
        for (text, names, hidden) in [
            // To git these are no choice between two names.
            (&b"{a,b}\n*.{c,d}\n"[..], &["a", "b", "{a,b}", "x.c", "x.{c,d}"][..], &["{a,b}", "x.{c,d}"][..]),
            (b"a\t\n", &["a", "a\t"], &["a\t"]),
            (b"a  \nb\\ \nc\\  \n", &["a", "a ", "b", "b ", "c", "c "], &["a", "b ", "c "]),
            (b"[[:alpha:]]x\n", &["ax", "1x", ":x"], &["ax"]),
            (b"[a\\]b]\n", &["a", "]", "b", "ab]", "\\"], &["a", "]", "b"]),
            (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", &["a", "b"], &["a"]),
            (b"a\n!\n/\n//\n", &["a", "b"], &["a"]),
            (b"a\r\nb\r", &["a", "b", "a\r"], &["a", "b"]),
            (b"#a\n\\#b\n\\!c\n", &["a", "#a", "#b", "!c"], &["#b", "!c"]),
        ] {
            assert_eq!(hides(text, names), hidden, "{}", String::from_utf8_lossy(text));
        }
    }
}

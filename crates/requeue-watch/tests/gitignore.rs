//! Compares the watcher's reports with `git check-ignore`, on random trees with random patterns.
//!
//! `REQUEUE_TREES` is the number of trees (1,000 by default), `REQUEUE_SEED` the first seed. Without git on
//! this machine nothing is compared, and the test prints SKIPPED.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fastrand::Rng;
use requeue_watch::{Options, Report, Watcher};

/// Number of trees side by side in one repository, so that git is started rarely.
const SIDE_BY_SIDE: u64 = 50;

const NAMES: [&str; 29] = [
    "a", "b", "c", "ab", "abc", "a.log", "b.log", "A", "1", "é", "a b", "a ", "b\t", " ", "{a,b}", "[a]",
    "a]b", "]", "-", "!a", "#a", "a\\b", "\\", "a*", "$a", "^", "!", "a,b", "a\r",
];

/// Parts of patterns, beside names.
const PIECES: [&str; 38] = [
    "*",
    "*",
    "*",
    "**",
    "**/",
    "/**",
    "?",
    "/",
    "/",
    "[ab]",
    "[!a]",
    "[^a]",
    "[a-c]",
    "[c-a]",
    "[]a]",
    "[a",
    "[!]a]",
    "[a\\]b]",
    "[\\a-c]",
    "[[:alpha:]]",
    "[[:space:]]",
    "[[:punct:]]",
    "[[:digit:]x]",
    "[[:nope:]]",
    "[[:alpha]",
    "[a-]",
    "[-a]",
    "\\",
    "\\ ",
    " ",
    "\t",
    "{a,b}",
    "{",
    "}",
    "!",
    "#",
    ".log",
    "\\*",
];

fn of<'a>(dice: &mut Rng, list: &[&'a str]) -> &'a str {
    list[dice.usize(..list.len())]
}

/// True once in `n` times.
fn one_in(dice: &mut Rng, n: u32) -> bool {
    dice.u32(..n) == 0
}

fn pattern(dice: &mut Rng) -> String {
    let mut line = String::new();
    for (before, odds) in [("!", 4), ("/", 5), ("\\", 20)] {
        if one_in(dice, odds) {
            line += before;
        }
    }
    for _ in 0..1 + dice.usize(..3) {
        line += if dice.bool() { of(dice, &NAMES) } else { of(dice, &PIECES) };
    }
    for (behind, odds) in [("/", 5), (" ", 12), ("\\ ", 20), ("\t", 20), ("\r", 20)] {
        if one_in(dice, odds) {
            line += behind;
        }
    }
    line
}

fn patterns(dice: &mut Rng, most: usize) -> String {
    let mut text = String::new();
    if one_in(dice, 8) {
        text += "\u{feff}";
    }
    for _ in 0..1 + dice.usize(..most) {
        text += &pattern(dice);
        text += "\n";
    }
    if one_in(dice, 4) {
        text.pop();
    }
    text
}

/// Creates some files in some directories, with `.gitignore` files among them.
fn grow(dice: &mut Rng, tree: &Path) {
    fs::create_dir(tree).unwrap();
    for _ in 0..12 {
        let depth = 1 + dice.usize(..4);
        let path = (0..depth).fold(tree.to_owned(), |path, _| path.join(of(dice, &NAMES)));
        // A path that cannot be made, because a file is in the way, is left out.
        let _ = fs::create_dir_all(path.parent().unwrap()).and_then(|()| fs::write(&path, ""));
        if one_in(dice, 6) {
            let _ = fs::write(path.with_file_name(".gitignore"), patterns(dice, 3));
        }
    }
    fs::write(tree.join(".gitignore"), patterns(dice, 5)).unwrap();
}

fn git(repository: &Path, args: &[&str]) -> Command {
    let mut git = Command::new("git");
    // Nothing of the one who runs the test.
    git.env("HOME", repository).env("XDG_CONFIG_HOME", repository).env("GIT_CONFIG_NOSYSTEM", "1");
    git.args(args).current_dir(repository);
    git
}

fn files(top: &Path, dir: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name() == Some(OsStr::new(".git")) {
            continue;
        }
        match path.is_dir() {
            true => files(top, &path, found),
            false => drop(found.insert(path.strip_prefix(top).unwrap().to_owned())),
        }
    }
}

/// The files that git ignores.
fn ignored(repository: &Path, files: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let mut git = git(repository, &["check-ignore", "-z", "--stdin", "--no-index"]);
    let mut git = git.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = Vec::new();
    for file in files {
        // With a path before it, or git would take ":" and "!" for its own.
        input.extend_from_slice(b"./");
        input.extend_from_slice(file.as_os_str().as_bytes());
        input.push(0);
    }
    let mut stdin = git.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = git.wait_with_output().unwrap();
    feeder.join().unwrap().unwrap();
    assert!(output.status.code().is_some_and(|code| code < 2), "{output:?}");
    let names = output.stdout.split(|b| *b == 0).filter(|name| !name.is_empty());
    names.map(|name| Path::new(OsStr::from_bytes(name)).strip_prefix(".").unwrap().to_owned()).collect()
}

fn told(repository: &Path) -> BTreeSet<PathBuf> {
    let (stop, _open) = UnixStream::pair().unwrap();
    let mut told = BTreeSet::new();
    let watcher = Watcher::new(&Options::new(), [repository]).unwrap();
    let ended = watcher.run(stop, |report| match report {
        Report::Change(change) => told.insert(change.relative),
        Report::Ready { .. } => false,
        other => panic!("{other:?}"),
    });
    ended.unwrap();
    told
}

/// The rules that apply to a file, with the files that contain them.
fn rules(repository: &Path, file: &Path) -> Vec<(PathBuf, String)> {
    let above = file.ancestors().skip(1).map(|dir| repository.join(dir).join(".gitignore"));
    let all = above.chain([repository.join(".git/info/exclude")]);
    all.filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?))).collect()
}

fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text}: give a number")),
        Err(_) => otherwise,
    }
}

#[test]
fn what_is_told_is_what_git_does_not_ignore() {
    if Command::new("git").arg("--version").output().is_err() {
        println!("SKIPPED: there is no git to compare with");
        return;
    }
    let (trees, first) = (number("REQUEUE_TREES", 1000), number("REQUEUE_SEED", 1));
    let (mut hidden, mut shown, mut wrong) = (0, 0, Vec::new());
    for seed in (first..first + trees).step_by(SIDE_BY_SIDE as usize) {
        let mut dice = Rng::with_seed(seed);
        let dir = tempfile::tempdir().unwrap();
        let repository = dir.path().join("repository");
        fs::create_dir(&repository).unwrap();
        assert!(git(&repository, &["init", "-q"]).status().unwrap().success());
        fs::create_dir_all(repository.join(".git/info")).unwrap();
        fs::write(repository.join(".git/info/exclude"), patterns(&mut dice, 2)).unwrap();
        if dice.bool() {
            fs::write(repository.join(".gitignore"), patterns(&mut dice, 2)).unwrap();
        }
        for n in 0..SIDE_BY_SIDE.min(first + trees - seed) {
            grow(&mut dice, &repository.join(format!("t{n}")));
        }
        let mut all = BTreeSet::new();
        files(&repository, &repository, &mut all);
        let (ignored, told) = (ignored(&repository, &all), told(&repository));
        hidden += ignored.len();
        shown += told.len();
        for file in all {
            if ignored.contains(&file) == told.contains(&file) {
                let git = if ignored.contains(&file) { "ignores" } else { "shows" };
                wrong.push(format!("seed {seed}: git {git} {file:?}: {:?}", rules(&repository, &file)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} files, the first: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
    // Neither says always the same.
    assert!(hidden as u64 > trees && shown as u64 > trees, "{hidden} hidden, {shown} shown");
}

#[test]
fn the_exclude_file_of_a_worktree_and_of_a_submodule_is_that_of_its_repository() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    for path in ["main/.git/info", "main/.git/worktrees/w", "main/.git/modules/s/info", "w", "main/s"] {
        fs::create_dir_all(at(path)).unwrap();
    }
    fs::write(at("main/.git/info/exclude"), "hidden\n").unwrap();
    fs::write(at("main/.git/worktrees/w/commondir"), "../..\n").unwrap();
    fs::write(at("main/.git/modules/s/info/exclude"), "secret\n").unwrap();
    let gitdir = [&b"gitdir: "[..], at("main/.git/worktrees/w").as_os_str().as_bytes(), b"\n"].concat();
    fs::write(at("w/.git"), OsString::from_vec(gitdir).as_bytes()).unwrap();
    fs::write(at("main/s/.git"), "gitdir: ../.git/modules/s\n").unwrap();
    for file in ["w/hidden", "w/secret", "main/hidden", "main/secret", "main/s/hidden", "main/s/secret"] {
        fs::write(at(file), "").unwrap();
    }
    let told = |root: &str| told(&at(root)).into_iter().collect::<Vec<_>>();
    assert_eq!(told("w"), [Path::new("secret")]);
    // A submodule's own rules hold in it, and only they.
    assert_eq!(told("main"), [Path::new("s/hidden"), Path::new("secret")]);
    assert_eq!(told("main/s"), [Path::new("hidden")]);
}

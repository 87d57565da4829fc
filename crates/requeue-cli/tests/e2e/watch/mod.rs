//! `--watch`: on real directories, with a program that writes down what it saw.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::harness::{Done, Job, requeue, start, until};

mod gone;
mod keys;
mod loss;
mod options;
mod trouble;

/// Writes key, event, the path below the root, and the first line of the file as it is
/// when the program looks. Each ends with a NUL: names can hold anything else.
const LOOK: &str = r#"
if [ -f "$1" ]; then read -r text < "$1"; else text=GONE; fi
printf '%s\0%s\0%s\0%s\0' "$1" "$REQUEUE_EVENT" "$REQUEUE_REL" "$text" >> "$D/seen"
"#;

/// A command that watches, in a directory of its own.
struct Watching {
    job: Job,
    dir: tempfile::TempDir,
}

/// One run of the program: what it was told and what it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    key: PathBuf,
    event: String,
    relative: String,
    text: String,
}

fn command(args: &[&str], dir: &Path, script: &str) -> Command {
    let mut command = requeue(&["--summary", "json"]);
    command.args(args).args(["sh", "-c", script, "sh"]).env("D", dir).current_dir(dir.join("tree"));
    command
}

/// The directory `tree` with these files, each holding `old`.
fn tree(files: &[&str]) -> tempfile::TempDir {
    let dir = crate::harness::dir();
    std::fs::create_dir(dir.path().join("tree")).unwrap();
    for file in files {
        let path = dir.path().join("tree").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "old\n").unwrap();
    }
    dir
}

/// Watches a tree that begins with these files; the program is [`LOOK`]. Waits until
/// everything that was there has been told.
fn watch(args: &[&str], files: &[&str]) -> Watching {
    watch_with(args, files, LOOK)
}

fn watch_with(args: &[&str], files: &[&str], script: &str) -> Watching {
    let dir = tree(files);
    let job = start(command(args, dir.path(), script));
    job.said("watching ");
    Watching { job, dir }
}

impl Watching {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("tree").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), format!("{text}\n")).unwrap();
    }

    /// All runs so far, in their order for each key.
    fn runs(&self) -> Vec<Seen> {
        runs(self.dir.path())
    }

    /// Waits until the last run of each of these keys saw this.
    fn sees(&self, last: &HashMap<PathBuf, String>) {
        until("the last state of every file", || {
            let seen: HashMap<_, _> = self.runs().into_iter().map(|run| (run.key, run.text)).collect();
            last.iter().all(|(key, text)| seen.get(key) == Some(text))
        });
    }

    fn sees_one(&self, key: &str, text: &str) {
        self.sees(&HashMap::from([(key.into(), text.to_owned())]));
    }

    /// Asks for the end, and waits for it.
    fn end(self) -> (Done, tempfile::TempDir) {
        self.job.signal(Signal::TERM);
        (self.job.done(), self.dir)
    }

    /// Ends, which must leave nothing.
    fn ends_well(self) -> (Done, Vec<Seen>) {
        let (done, dir) = self.end();
        assert_eq!((done.status, done.number("left")), (0, 0), "{}", done.err);
        (done, runs(dir.path()))
    }
}

fn runs(dir: &Path) -> Vec<Seen> {
    let log = std::fs::read(dir.join("seen")).unwrap_or_default();
    let parts: Vec<&[u8]> = log.split(|b| *b == 0).collect();
    // The last part is what follows the last NUL.
    parts[..parts.len() - 1]
        .chunks_exact(4)
        .map(|parts| {
            let text = |n: usize| String::from_utf8_lossy(parts[n]).into_owned();
            let key = OsString::from_vec(parts[0].to_vec()).into();
            Seen { key, event: text(1), relative: text(2), text: text(3) }
        })
        .collect()
}

/// The keys of these runs, sorted, each once.
fn keys_of(runs: &[Seen]) -> Vec<&str> {
    let mut keys: Vec<_> = runs.iter().map(|run| run.key.to_str().unwrap()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

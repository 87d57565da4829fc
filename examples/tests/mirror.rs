//! The example `mirror`, killed again and again.
#![cfg(target_os = "linux")]

#[path = "../examples/mirror.rs"]
#[expect(dead_code, reason = "its main is not run here")]
mod mirror;

use fastrand::Rng;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Set for the process that mirrors and is killed: this very test, started once more.
const CHILD: &str = "REQUEUE_MIRROR_IN";
const NAME: &str = "killed_at_any_moment_it_leaves_whole_files_and_converges_when_it_is_started_again";
/// The file that shows that it is about to begin.
const BEGUN: &str = "begun";
const ROUNDS: u32 = 100;

/// Contents of a file: a number and a length, repeated that many times.
fn content(dice: &mut Rng) -> String {
    let times = 1 + dice.u64(..2000) as usize;
    format!("{:08}{times:08}", dice.u64(..100_000_000)).repeat(times)
}

fn is_whole(text: &str) -> bool {
    let Some(first) = text.get(..16) else { return false };
    first[8..].parse() == Ok(text.len() / 16) && text.len() % 16 == 0 && {
        let mut pieces = text.as_bytes().chunks(16);
        pieces.all(|piece| piece == first.as_bytes())
    }
}

/// Makes one change of the source. Files appear whole: a reader of the source could not tell a partly written
/// file from a finished one.
fn change(dice: &mut Rng, dir: &Path) {
    let source = dir.join("source");
    let path = |dice: &mut Rng| {
        let depth = 1 + dice.u64(..3);
        (0..depth).fold(source.clone(), |path, _| path.join(["a", "b", "c", "d"][dice.u64(..4) as usize]))
    };
    let (one, other) = (path(dice), path(dice));
    // A step that fails, because something else has that name, is left out.
    let _ = match dice.u64(..10) {
        0..5 => {
            let beside = dir.join("beside");
            fs::write(&beside, content(dice)).unwrap();
            fs::rename(beside, one)
        }
        5..7 => fs::create_dir_all(one),
        7 => fs::remove_dir_all(&one).or_else(|_| fs::remove_file(one)),
        _ => fs::rename(one, other),
    };
}

fn files(top: &Path) -> Vec<PathBuf> {
    let (mut files, mut todo) = (Vec::new(), vec![top.to_owned()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true if entry.file_name() == ".mirror" => {}
                true => todo.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files
}

/// Starts the mirror; it is at work when this returns.
fn start(dir: &Path) -> Child {
    let begun = dir.join(BEGUN);
    let _ = fs::remove_file(&begun);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env(CHILD, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !begun.exists() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended by itself");
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9), "it ended by itself");
}

#[test]
fn killed_at_any_moment_it_leaves_whole_files_and_converges_when_it_is_started_again() {
    if let Some(dir) = std::env::var_os(CHILD) {
        let dir = Path::new(&dir);
        fs::write(dir.join(BEGUN), "").unwrap();
        mirror::mirror(&dir.join("source"), &dir.join("target"), std::io::stdin()).unwrap();
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (source, target) = (dir.join("source"), dir.join("target"));
    fs::create_dir(&source).unwrap();
    let mut dice = Rng::with_seed(0);
    let mut mirrored = 0;
    for round in 0..ROUNDS {
        let child = start(dir);
        // The moment is what is random here; nothing is waited for.
        let moment = Instant::now() + Duration::from_micros(dice.u64(..40_000));
        while Instant::now() < moment {
            change(&mut dice, dir);
            std::thread::sleep(Duration::from_micros(dice.u64(..2_000)));
        }
        kill(child);
        for file in files(&target) {
            let text = fs::read_to_string(&file).unwrap();
            assert!(is_whole(&text), "round {round}: {} is torn", file.display());
        }
        for _ in 0..dice.u64(..10) {
            change(&mut dice, dir);
        }
        if round % 10 == 9 {
            let child = start(dir);
            mirror::converge(&source, &target).unwrap_or_else(|e| panic!("round {round}: {e}"));
            kill(child);
            mirrored += files(&target).len();
        }
    }
    assert!(mirrored > 0, "there was something to mirror");
}

#[test]
fn a_torn_file_is_told_from_a_whole_one() {
    let whole = content(&mut Rng::with_seed(7));
    assert!(is_whole(&whole) && whole.len() > 16);
    assert!(!is_whole(&whole[..whole.len() - 16]) && !is_whole(&whole[..whole.len() - 1]) && !is_whole(""));
}

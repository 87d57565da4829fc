//! The watcher on a real directory with thousands of random changes, as fast as possible: in the end it has
//! reported the last state of every file.
#![cfg(target_os = "linux")]

use std::collections::HashMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fastrand::Rng;
use requeue_watch::{Options, Report, Watcher};

fn files(top: &Path) -> HashMap<PathBuf, String> {
    let (mut files, mut todo) = (HashMap::new(), vec![top.to_owned()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => todo.push(path),
                false => drop(files.insert(path.clone(), fs::read_to_string(path).unwrap())),
            }
        }
    }
    files
}

/// Makes a random change, unless something else is in its way.
fn stir(dice: &mut Rng, n: u32, dir: &Path) {
    let path = |dice: &mut Rng| {
        let depth = 1 + dice.u64(..4);
        (0..depth).fold(dir.join("root"), |path, _| path.join(["a", "b", "c"][dice.u64(..3) as usize]))
    };
    let (one, other) = (path(dice), path(dice));
    let _ = match dice.u64(..16) {
        0..6 => fs::write(one, n.to_string()),
        6..10 => fs::create_dir_all(one),
        10 => fs::remove_dir_all(&one).or_else(|_| fs::remove_file(one)),
        11 => fs::rename(one, dir.join("outside")),
        12 => fs::rename(dir.join("outside"), one),
        13 => fs::remove_dir_all(dir.join("outside")).or_else(|_| fs::remove_file(dir.join("outside"))),
        _ => fs::rename(one, other),
    };
}

#[test]
fn the_last_state_of_every_file_is_told() {
    for seed in 1..=8 {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        let mut dice = Rng::with_seed(seed);
        for n in 0..50 {
            stir(&mut dice, n, dir.path());
        }
        let (stop, hang_up) = UnixStream::pair().unwrap();
        // The contents as a program saw them that reads each file when it is told of it.
        let seen: Mutex<HashMap<PathBuf, String>> = Mutex::default();
        std::thread::scope(|scope| {
            // In here, so that a failure ends the watcher too.
            let hang_up = hang_up;
            let watching = scope.spawn(|| {
                Watcher::new(&Options::new(), [&root]).unwrap().run(stop, |report| {
                    if let Report::Change(change) = report {
                        let mut seen = seen.lock().unwrap();
                        match fs::read_to_string(&change.path) {
                            Ok(text) => seen.insert(change.path, text),
                            Err(_) => seen.remove(&change.path),
                        };
                    }
                    true
                })
            });
            for n in 50..5000 {
                stir(&mut dice, n, dir.path());
            }
            let is = files(&root);
            let end = Instant::now() + Duration::from_secs(300);
            while *seen.lock().unwrap() != is {
                let seen = seen.lock().unwrap();
                assert!(Instant::now() < end, "seed {seed}: seen {seen:#?}, is {is:#?}");
                drop(seen);
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(hang_up);
            watching.join().unwrap().unwrap();
        });
    }
}

//! Delayed runs beside immediate ones: each comes, unless `--absorb` says otherwise.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::{dir, read, requeue, run, start, until};

fn on_file(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.args(args).env("REQUEUE_ENGINE", format!("sqlite:{}", dir.join("q.db").display())).env("D", dir);
    command
}

#[test]
fn d6_a_key_that_is_added_now_still_comes_when_its_delay_is_over() {
    let dir = dir();
    let dir = dir.path();
    for args in [&["add", "--after", "300ms", "k"][..], &["add", "k"]] {
        assert_eq!(run(on_file(dir, args), b"").status, 0);
    }
    let job = start(on_file(dir, &["work", "-j1", "sh", "-c", "echo ran >>$D/ran"]));
    until("both runs", || read(dir.join("ran")) == "ran\nran\n");
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 0);
}

#[test]
fn d6_with_absorb_a_run_stands_for_the_delayed_one() {
    let dir = dir();
    let dir = dir.path();
    for args in [&["add", "--after", "1h", "k"][..], &["add", "k"]] {
        assert_eq!(run(on_file(dir, args), b"").status, 0);
    }
    let waits = |args: &[&str]| {
        let job = start(on_file(dir, args));
        until("a run", || read(dir.join("ran")) == "ran\n");
        job.signal(Signal::TERM);
        assert_eq!(job.done().status, 0);
        std::fs::remove_file(dir.join("ran")).unwrap();
        run(on_file(dir, &["ls"]), b"").text().contains("waiting k")
    };
    assert!(waits(&["work", "sh", "-c", "echo ran >>$D/ran"]));
    assert_eq!(run(on_file(dir, &["add", "k"]), b"").status, 0);
    assert!(!waits(&["work", "--absorb", "sh", "-c", "echo ran >>$D/ran"]));
}

#[test]
fn d6_an_add_with_absorb_stands_for_the_delayed_run() {
    let dir = dir();
    let dir = dir.path();
    let add = |args: &[&str]| run(on_file(dir, &[&["add"], args].concat()), b"");
    let listed = || run(on_file(dir, &["ls"]), b"").text().to_owned();
    assert_eq!(add(&["--after", "1h", "k"]).status, 0);
    assert_eq!(add(&["--absorb", "k"]).status, 0);
    assert_eq!(listed(), "ready   k\n");
    let job = start(on_file(dir, &["work", "-j1", "sh", "-c", "echo ran >>$D/ran"]));
    until("a run", || read(dir.join("ran")) == "ran\n");
    // beside one that works as well
    assert_eq!(add(&["--after", "1h", "k"]).status, 0);
    assert_eq!(add(&["--absorb", "k"]).status, 0);
    until("another run", || read(dir.join("ran")) == "ran\nran\n" && listed().is_empty());
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 0);
    let refused = add(&["--absorb", "--after", "1h", "k"]);
    assert!(refused.status == 2 && refused.err.contains("cannot be used with"), "{}", refused.err);
}

#[test]
fn d6_in_memory_a_retry_comes_beside_a_trigger_unless_it_is_absorbed() {
    for (args, runs) in [(&["--absorb"][..], 2), (&[], 3)] {
        let dir = dir();
        let dir = dir.path();
        let mut command = requeue(args);
        let script = "echo x >>$D/ran; [ $(wc -l <$D/ran) != 1 ]";
        command.args(["-j1", "--base-delay", "1s", "--jitter", "0", "sh", "-c", script]).env("D", dir);
        let mut job = start(command);
        job.send(b"k\n");
        job.said("again in 1s");
        job.send(b"k\n");
        job.close();
        let done = job.done();
        assert_eq!(done.status, 0, "{}", done.err);
        assert_eq!(read(dir.join("ran")).lines().count(), runs, "{args:?}: {}", done.err);
    }
}

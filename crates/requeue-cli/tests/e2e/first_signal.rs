//! The first signal to a command that works on a file: what is ready stays there.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::{Gate, dir, read, run, script, start, until};

fn requeue(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.args(args).env("REQUEUE_ENGINE", format!("sqlite:{}", dir.join("q.db").display())).env("D", dir);
    command
}

/// The output of `requeue ls` for the file.
fn listed(dir: &Path) -> String {
    run(requeue(dir, &["ls"]), b"").text().to_owned()
}

const HELD: &str = "echo $REQUEUE_KEY >>$D/ran; [ $REQUEUE_KEY != held ] || cat $D/gate";

#[test]
fn e36_the_first_signal_to_work_begins_no_further_run_and_what_is_left_is_no_failure() {
    for signal in [Signal::TERM, Signal::INT] {
        let dir = dir();
        let dir = dir.path();
        let gate = Gate::new(dir, "gate");
        assert_eq!(run(requeue(dir, &["add", "held", "a", "b"]), b"").status, 0);
        let mut work = requeue(dir, &["work", "-j1", "sh", "-c"]);
        work.arg(HELD);
        let job = start(work);
        let waiting = gate.reached();
        job.signal(signal);
        job.said("nothing more is claimed");
        drop(waiting);
        let done = job.done();
        assert_eq!((done.status, read(dir.join("ran"))), (0, "held\n".to_owned()), "{}", done.err);
        assert!(done.err.contains("1 run, 0 retries, 0 gave up, 2 left"), "{}", done.err);
        assert_eq!(listed(dir), "ready   a\nready   b\n");
    }
}

#[test]
fn e36_a_run_that_fails_after_the_signal_waits_for_its_retry_in_the_file() {
    let dir = dir();
    let dir = dir.path();
    let gate = Gate::new(dir, "gate");
    assert_eq!(run(requeue(dir, &["add", "held"]), b"").status, 0);
    let mut work = requeue(dir, &["work", "-j1", "sh", "-c"]);
    work.arg("cat $D/gate; exit 1");
    let job = start(work);
    let waiting = gate.reached();
    job.signal(Signal::TERM);
    job.said("nothing more is claimed");
    drop(waiting);
    let done = job.done();
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.err.contains("1 left"), "{}", done.err);
    assert!(listed(dir).contains("held"), "{}", listed(dir));
}

#[test]
fn e36_run_with_a_file_leaves_what_is_ready_there_and_its_status_says_that_it_was_stopped() {
    let dir = dir();
    let dir = dir.path();
    let gate = Gate::new(dir, "gate");
    let file = dir.join("q.db");
    let mut job = start(script(&["--state", file.to_str().unwrap(), "-j1"], dir, HELD));
    job.send(b"held\n");
    let waiting = gate.reached();
    job.put(b"a\nb\n");
    job.close();
    job.signal(Signal::TERM);
    job.said("nothing more is claimed");
    drop(waiting);
    let done = job.done();
    assert_eq!((done.status, read(dir.join("ran"))), (143, "held\n".to_owned()), "{}", done.err);
    assert!(done.err.contains("2 left"), "{}", done.err);
    assert_eq!(listed(dir), "ready   a\nready   b\n");
}

#[test]
fn e36_without_a_file_the_first_signal_works_off_what_is_ready() {
    let dir = dir();
    let dir = dir.path();
    let gate = Gate::new(dir, "gate");
    let mut job = start(script(&["-j1"], dir, HELD));
    job.send(b"held\n");
    let waiting = gate.reached();
    job.put(b"a\nb\n");
    job.signal(Signal::TERM);
    job.said("working off what is ready");
    drop(waiting);
    job.done();
    assert_eq!(read(dir.join("ran")), "held\na\nb\n");
}

#[test]
fn e36_a_delayed_run_that_was_added_during_the_last_run_stays_in_the_file() {
    let dir = dir();
    let dir = dir.path();
    let gate = Gate::new(dir, "gate");
    assert_eq!(run(requeue(dir, &["add", "held"]), b"").status, 0);
    let mut work = requeue(dir, &["work", "-j1", "sh", "-c"]);
    work.arg("cat $D/gate");
    let job = start(work);
    let waiting = gate.reached();
    assert_eq!(run(requeue(dir, &["add", "--after", "1h", "held"]), b"").status, 0);
    until("the command to know of it", || listed(dir).contains("due in"));
    job.signal(Signal::TERM);
    job.said("nothing more is claimed");
    drop(waiting);
    let done = job.done();
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(listed(dir).starts_with("waiting held  due in "), "{}", listed(dir));
}

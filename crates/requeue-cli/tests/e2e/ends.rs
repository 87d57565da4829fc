//! How it ends: signals, time, the first failure.

use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;

use crate::harness::{
    Gate, Job, Waiting, alive, dir, ignores, read, requeue, run, script, start, start_as_set, until,
};

/// One worker: `held` waits at the gate, `fails` waits out an hour's back-off, `ready`
/// and `fails2` are in line.
fn four_keys(dir: &Path) -> (Job, Waiting) {
    let gate = Gate::new(dir, "gate");
    let mut job = start(script(
        &["-j1", "--base-delay", "1h", "--max-delay", "1h", "--jitter", "0", "--summary", "json"],
        dir,
        "echo $REQUEUE_KEY; case $REQUEUE_KEY in fails*) exit 1;; held) cat $D/gate;; esac",
    ));
    job.send(b"fails\n");
    job.said("again in 1h");
    job.send(b"held\n");
    let held = gate.reached();
    job.put(b"ready\nfails2\n");
    (job, held)
}

fn first_signal(signal: Signal, status: i32, name: &str) {
    let dir = dir();
    let (job, held) = four_keys(dir.path());
    job.signal(signal);
    job.said(&format!("{name}: working off what is ready; once more to stop"));
    drop(held);
    // The input is still open: the command does not wait for it.
    let done = job.done();
    assert_eq!(done.status, status, "{}", done.err);
    assert_eq!(done.text(), "fails\nheld\nready\nfails2\n");
    assert!(done.err.contains("fails2: exit status 1 (attempt 1 of 5), left without a retry"));
    assert_eq!((done.number("runs"), done.number("left"), done.number("gave_up")), (4, 2, 0));
}

#[test]
fn the_first_int_works_off_the_ready_keys_and_drops_the_retries() {
    first_signal(Signal::INT, 130, "SIGINT");
}

#[test]
fn the_first_term_works_off_the_ready_keys_and_drops_the_retries() {
    first_signal(Signal::TERM, 143, "SIGTERM");
}

fn second_signal(signal: Signal, status: i32) {
    let dir = dir();
    let (job, held) = four_keys(dir.path());
    job.signal(signal);
    job.said("working off");
    job.signal(signal);
    let done = job.done();
    drop(held);
    assert_eq!(done.status, status, "{}", done.err);
    // Ready keys are not begun any more.
    assert_eq!(done.text(), "fails\nheld\n");
    assert_eq!((done.number("runs"), done.number("left"), done.number("gave_up")), (2, 4, 0));
}

#[test]
fn a_signal_with_nothing_left_is_no_failure() {
    // under nohup the command leaves HUP alone, see `nohup` below
    let hup = (!ignores(Signal::HUP)).then_some(Signal::HUP);
    for signal in [Signal::INT, Signal::TERM].into_iter().chain(hup) {
        let dir = dir();
        let gate = Gate::new(dir.path(), "gate");
        // no pipe: for a moment a program that another test starts may have its end too, and it has not
        // ended then
        std::fs::write(dir.path().join("keys"), "a\n").unwrap();
        let mut command = script(&["--summary", "json"], dir.path(), "cat $D/gate");
        command.stdin(std::fs::File::open(dir.path().join("keys")).unwrap());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let job = start_as_set(command);
        let waiting = gate.reached();
        job.signal(signal);
        job.said("working off");
        drop(waiting);
        let done = job.done();
        assert_eq!((done.status, done.number("left")), (0, 0), "{}", done.err);
        assert_eq!(done.summary()["unread"], false);
    }
}

#[test]
fn a_key_that_gave_up_is_1_also_after_a_signal() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = start(script(&["-j1", "--max-attempts", "1"], dir.path(), "cat $D/gate; exit 1"));
    job.send(b"a\n");
    let waiting = gate.reached();
    job.close();
    job.signal(Signal::INT);
    job.said("working off");
    drop(waiting);
    assert_eq!(job.done().status, 1);
}

#[test]
fn the_second_int_stops_the_programs_and_leaves() {
    second_signal(Signal::INT, 130);
}

#[test]
fn the_second_term_stops_the_programs_and_leaves() {
    second_signal(Signal::TERM, 143);
}

#[test]
fn a_program_that_ignores_term_is_killed_with_its_group() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = start(script(
        &["-j1", "--grace", "50ms"],
        dir.path(),
        "trap '' TERM; echo $$ > $D/child
         sh -c 'echo $$ > $D/grandchild; cat $D/gate; while :; do sleep 1; done' & wait",
    ));
    job.send(b"a\n");
    drop(gate.reached());
    job.signal(Signal::TERM);
    job.said("working off");
    job.signal(Signal::INT);
    let done = job.done();
    assert_eq!(done.status, 143, "the first signal counts: {}", done.err);
    for name in ["child", "grandchild"] {
        let pid = read(dir.path().join(name));
        until("its death", || !alive(&pid));
    }
}

#[test]
fn the_third_signal_does_not_wait_for_the_grace() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = start(script(
        &["-j1", "--grace", "1h"],
        dir.path(),
        "trap '' TERM; cat $D/gate; while :; do sleep 1; done",
    ));
    job.send(b"a\n");
    drop(gate.reached());
    job.signal(Signal::INT);
    job.said("working off");
    job.signal(Signal::INT);
    job.said("once more to kill it");
    job.signal(Signal::INT);
    assert_eq!(job.done().status, 130);
}

#[test]
fn a_program_can_use_its_grace() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = start(script(
        &["-j1", "--grace", "1h"],
        dir.path(),
        "trap 'echo cleaned; exit' TERM; cat $D/gate & wait",
    ));
    job.send(b"a\n");
    let waiting = gate.reached();
    job.signal(Signal::INT);
    job.said("working off");
    job.signal(Signal::INT);
    let done = job.done();
    drop(waiting);
    assert_eq!((done.status, done.text()), (130, "cleaned\n"), "{}", done.err);
}

#[test]
fn unread_input_counts_as_work_left() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = start(script(&["-j1"], dir.path(), "cat $D/gate"));
    job.send(b"a\n");
    let held = gate.reached();
    // No newline: this is not a key yet, and it is not read to its end.
    job.send(b"half a ke");
    job.signal(Signal::INT);
    job.said("working off");
    drop(held);
    let done = job.done();
    assert_eq!(done.status, 130, "{}", done.err);
    assert!(done.err.contains("the input was not read to its end"), "{}", done.err);
}

#[test]
fn the_end_of_the_input_works_off_retries_too() {
    let dir = dir();
    let done = run(
        script(
            &["--base-delay", "20ms"],
            dir.path(),
            "echo $REQUEUE_KEY$REQUEUE_ATTEMPT; [ $REQUEUE_ATTEMPT = 3 ]",
        ),
        b"a\nb\n",
    );
    assert_eq!(done.status, 0);
    assert_eq!(done.lines(), ["a1", "a2", "a3", "b1", "b2", "b3"]);
}

#[test]
fn the_drain_timeout_bounds_the_end_of_the_input() {
    let done = run(requeue(&["--drain-timeout", "50ms", "--summary", "json", "sleep"]), b"1000\n1001\n");
    assert_eq!(done.status, 1, "{}", done.err);
    assert!(done.err.contains("--drain-timeout 50ms is over"), "{}", done.err);
    assert_eq!((done.number("left"), done.number("gave_up")), (2, 0));
    let done = run(
        requeue(&[
            "--drain-timeout",
            "50ms",
            "--base-delay",
            "1h",
            "--max-delay",
            "1h",
            "--summary",
            "json",
            "false",
        ]),
        b"a\n",
    );
    assert_eq!((done.status, done.number("left")), (1, 1), "{}", done.err);
}

#[test]
fn the_drain_timeout_bounds_the_end_by_a_signal() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = start(script(
        &["--drain-timeout", "50ms", "--summary", "json"],
        dir.path(),
        "cat $D/gate; exec sleep 1000",
    ));
    job.send(b"a\n");
    drop(gate.reached());
    job.signal(Signal::INT);
    let done = job.done();
    assert_eq!((done.status, done.number("left")), (130, 1), "{}", done.err);
}

#[test]
fn the_drain_timeout_does_not_bound_the_reading() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = start(script(&["--drain-timeout", "0s"], dir.path(), "cat $D/gate; echo end"));
    job.send(b"a\n");
    drop(gate.reached());
    until("the end of the run", || job.out_seen(b"end\n"));
    job.close();
    let _ = job.done();
}

#[test]
fn fail_fast_begins_no_further_run() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let other = Gate::new(dir.path(), "other");
    let mut job = start(script(
        &["-j2", "--fail-fast", "--max-attempts", "1", "--summary", "json"],
        dir.path(),
        "echo $REQUEUE_KEY; case $REQUEUE_KEY in
           bad) cat $D/gate; exit 1;; slow) cat $D/other;; esac",
    ));
    job.put(b"slow\nbad\nlater\nlater2\n");
    let slow = other.reached();
    drop(gate.reached());
    job.said("gave up");
    drop(slow);
    let done = job.done();
    assert_eq!(done.status, 1, "{}", done.err);
    // Programs that ran were allowed to end; ready keys were not begun.
    assert_eq!(done.lines(), ["bad", "slow"]);
    assert_eq!((done.number("runs"), done.number("gave_up"), done.number("left")), (2, 1, 2));
}

#[test]
fn a_hang_up_that_was_ignored_stays_ignored() {
    let dir = dir();
    let (a, b) = (Gate::new(dir.path(), "a"), Gate::new(dir.path(), "b"));
    let mut command = std::process::Command::new("sh");
    let nohup = "trap '' HUP; exec \"$0\" run sh -c 'cat $D/$REQUEUE_KEY; echo end'";
    command.args(["-c", nohup, env!("CARGO_BIN_EXE_requeue")]).env("D", dir.path());
    let mut job = start(command);
    job.send(b"a\n");
    let waiting = a.reached();
    job.signal(Signal::HUP);
    // Would it be heard, this key would not be read any more.
    job.put(b"b\n");
    job.close();
    drop(waiting);
    drop(b.reached());
    let done = job.done();
    assert_eq!((done.status, done.text()), (0, "end\nend\n"), "{}", done.err);
}

/// An ignored `SIGCHLD` stays ignored across `exec`, and has the system forget how each
/// child ended.
#[test]
fn a_parent_that_ignores_the_end_of_its_children_hinders_nothing() {
    // Of the shells, dash cannot ignore this signal.
    let mut command = std::process::Command::new("bash");
    command.args(["-c", "trap '' CHLD; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_requeue"), "run", "-j2"]);
    command.args(["--max-attempts", "1", "sh", "-c"]);
    // Nor is it ignored in the program, which may have children of its own.
    command.arg("grep -qs '^SigIgn:.*[13579bdf]....$' /proc/self/status && exit 9; exit $REQUEUE_KEY");
    let done = run(command, b"0\n3\n");
    assert_eq!(done.status, 1, "{}", done.err);
    assert!(done.err.contains("requeue: 3: exit status 3 (attempt 1 of 1), gave up\n"), "{}", done.err);
    assert!(done.err.contains("2 keys, 2 triggers, 2 runs, "), "{}", done.err);
}

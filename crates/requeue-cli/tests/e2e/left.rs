//! Unfinished keys are reported by name, and whether the input had ended.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use rustix::process::Signal;

use crate::harness::{Gate, Job, dir, executable, read, requeue, run, script, start};

/// One worker: `held` waits at the gate, the others are not begun.
fn held(dir: &Path, args: &[&str], gate: &Gate) -> Job {
    let left = dir.join("left");
    let mut all = vec!["-j1", "--summary", "json", "--left-to", left.to_str().unwrap()];
    all.extend(args);
    let mut job = start(script(&all, dir, "echo $REQUEUE_KEY; [ $REQUEUE_KEY != held ] || cat $D/gate"));
    job.send(b"held\n");
    drop(gate.reached());
    job
}

#[test]
fn what_waits_for_a_retry_what_was_cut_short_and_what_was_ready_is_left_by_name() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let left = dir.path().join("left");
    let args = ["-j1", "--base-delay", "1h", "--max-delay", "1h", "--left-to", left.to_str().unwrap()];
    let text = "case $REQUEUE_KEY in fails) exit 1;; held) cat $D/gate; exec sleep 1000;; esac";
    let mut job = start(script(&args, dir.path(), text));
    job.send(b"fails\n");
    job.said("again in 1h");
    job.send(b"held\n");
    drop(gate.reached());
    job.put(b"ready 1\nready\xff2\n");
    job.signal(Signal::INT);
    job.said("working off");
    job.signal(Signal::INT);
    let done = job.done();
    assert_eq!(done.status, 130, "{}", done.err);
    assert!(done.err.contains(" 0 gave up, 4 left, "), "{}", done.err);
    assert_eq!(std::fs::read(&left).unwrap(), b"fails\nheld\nready 1\nready\xff2\n");
    // From the very file that is written in the end.
    let mut command = requeue(&["-j1", "--left-to", left.to_str().unwrap(), "echo"]);
    let output = command.stdin(File::open(&left).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, b"fails\nheld\nready 1\nready\xff2\n");
    assert_eq!(read(&left), "");
}

#[test]
fn a_key_of_any_length_is_left_whole() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let left = dir.path().join("left");
    let args = ["-j1", "--summary", "json", "--left-to", left.to_str().unwrap()];
    let mut job = start(script(&args, dir.path(), "exec cat $D/gate"));
    job.send(b"held\n");
    let _waiting = gate.reached();
    let long = "k".repeat((1 << 20) + 1);
    job.put(format!("{long}\nready\n").as_bytes());
    job.signal(Signal::INT);
    job.said("working off");
    job.signal(Signal::INT);
    let done = job.done();
    assert_eq!((done.number("gave_up"), done.number("left")), (0, 3));
    let left = read(left);
    assert!(left == format!("held\n{long}\nready\n"), "{} bytes", left.len());
}

#[test]
fn an_input_that_had_not_ended_is_said_after_a_signal() {
    let mut job = start(requeue(&["--log", "json", "--summary", "json", "true"]));
    job.send(b"a\n");
    job.said("\"event\":\"done\"");
    job.signal(Signal::TERM);
    // Nothing is left, but the writer of the input may have had more.
    let done = job.done();
    assert_eq!((done.status, done.number("left")), (143, 0), "{}", done.err);
    assert_eq!(done.summary()["unread"], true);
}

#[test]
fn what_of_the_input_had_come_when_the_signals_came_is_left_by_name() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = held(dir.path(), &[], &gate);
    // It sees all of this at once, in any order.
    job.signal(Signal::STOP);
    job.send(b"a\nb\nb\nc\nhalf a ke");
    job.signal(Signal::INT);
    job.signal(Signal::TERM);
    job.signal(Signal::CONT);
    let done = job.done();
    assert!(done.status > 128, "{}", done.err);
    let left = read(dir.path().join("left"));
    let ran: BTreeSet<&str> = done.text().lines().collect();
    let told: BTreeSet<&str> = left.lines().chain(ran).collect();
    assert_eq!(told, BTreeSet::from(["a", "b", "c", "held"]), "{left:?}");
    assert!(!left.contains("half"), "what is cut is no key");
    assert_eq!((done.number("left"), &done.summary()["unread"]), (left.lines().count() as u64, &true.into()));
}

#[test]
fn fail_fast_and_the_drain_timeout_leave_by_name_what_they_leave() {
    let dir = dir();
    let left = dir.path().join("left");
    let keys: Vec<String> = (0..5000).map(|i| format!("k{i}")).collect();
    let input = format!("bad\n{}\n", keys.join("\n"));
    for ends in [["--fail-fast", "--max-attempts=1"], ["--drain-timeout=0s", "--max-attempts=2"]] {
        let mut args = vec!["-j1", "--log", "off", "--summary", "off", "--left-to", left.to_str().unwrap()];
        args.extend(ends);
        let done = run(script(&args, dir.path(), "echo $0; exit 1"), input.as_bytes());
        assert_eq!(done.status, 1, "{}", done.err);
        let left = read(&left);
        let told: BTreeSet<&str> = left.lines().chain(done.text().lines()).collect();
        assert_eq!(told.len(), 5001, "{ends:?}");
    }
}

#[test]
fn with_null_what_is_left_is_nul_separated_too() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let job = held_null(dir.path(), &gate);
    job.signal(Signal::INT);
    job.said("working off");
    job.signal(Signal::INT);
    assert_eq!(job.done().status, 130);
    assert_eq!(read(dir.path().join("left")), "a\nb\0");
}

fn held_null(dir: &Path, gate: &Gate) -> Job {
    let left = dir.join("left");
    let mut job = start(script(&["-0", "--left-to", left.to_str().unwrap()], dir, "cat $D/gate; sleep 1000"));
    job.send(b"a\nb\0");
    drop(gate.reached());
    job
}

#[test]
fn a_program_that_cannot_be_executed_leaves_its_keys_by_name() {
    let dir = dir();
    let left = dir.path().join("left");
    let program = dir.path().join("program");
    executable(&program, b"#!/no/such/interpreter\n");
    let args = ["-j1", "--left-to", left.to_str().unwrap(), program.to_str().unwrap()];
    let done = run(requeue(&args), b"a\nb\n");
    assert_eq!(done.status, 126, "{}", done.err);
    assert_eq!(read(&left), "a\nb\n");
}

#[test]
fn a_full_disk_under_what_is_left_is_said() {
    let mut job =
        start(requeue(&["--left-to", "/dev/full", "--base-delay", "1h", "--max-delay", "1h", "false"]));
    job.send(b"a\n");
    job.said("again in 1h");
    job.close();
    job.signal(Signal::INT);
    let done = job.done();
    assert_eq!(done.status, 130, "{}", done.err);
    assert!(done.err.contains("--left-to /dev/full: No space left on device"), "{}", done.err);
}

#[test]
fn two_options_do_not_write_one_file() {
    let dir = dir();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    let (a, b) = (dir.path().join("file"), dir.path().join("sub/../file"));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    for (one, other) in [("--failed-to", "--left-to"), ("--failed-to", "--joblog"), ("--left-to", "--joblog")]
    {
        let done = run(requeue(&[one, a, other, b, "echo"]), b"a\n");
        assert_eq!((done.status, done.text()), (2, ""), "{}", done.err);
        assert!(done.err.contains(one) && done.err.contains(other), "{}", done.err);
        assert!(done.err.contains("same file"), "{}", done.err);
    }
    // Where nothing takes the place of anything both may go.
    let done =
        run(requeue(&["-q", "--failed-to", "/dev/stdout", "--left-to", "/dev/stdout", "true"]), b"a\n");
    assert_eq!(done.status, 0, "{}", done.err);
}

#[test]
fn metrics_do_not_take_the_place_of_the_input() {
    let dir = dir();
    let (input, link) = (dir.path().join("in"), dir.path().join("link"));
    std::fs::write(&input, "a\n").unwrap();
    std::fs::hard_link(&input, &link).unwrap();
    for name in [&input, &link] {
        let mut command = requeue(&["--metrics-to", name.to_str().unwrap(), "echo"]);
        let output = command.stdin(File::open(&input).unwrap()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(2), &b""[..]), "{said}");
        let why = format!("--metrics-to {} would take the place of the input", name.display());
        assert!(said.contains(&why), "{said}");
        assert_eq!(read(&input), "a\n");
    }
}

#[test]
fn a_second_file_that_cannot_be_written_is_said_before_the_first_run() {
    let dir = dir();
    let missing = dir.path().join("no/such/place");
    for option in ["--left-to", "--joblog"] {
        let done = run(requeue(&[option, missing.to_str().unwrap(), "echo"]), b"a\n");
        assert_eq!((done.status, done.text()), (2, ""), "{}", done.err);
        assert!(done.err.contains(option) && done.err.lines().count() == 1, "{}", done.err);
    }
}

#[test]
fn a_key_that_gave_up_and_is_to_run_again_is_left_and_not_failed() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let (failed, left) = (dir.path().join("failed"), dir.path().join("left"));
    let args = ["-j1", "--max-attempts", "1", "--failed-to", failed.to_str().unwrap()];
    let args = [&args[..], &["--left-to", left.to_str().unwrap()]].concat();
    let text = "mkdir $D/first && exit 1; cat $D/gate; exec sleep 1000";
    let mut job = start(script(&args, dir.path(), text));
    job.send(b"a\n");
    job.said("gave up");
    job.send(b"a\n");
    drop(gate.reached());
    job.signal(Signal::INT);
    job.said("working off");
    job.signal(Signal::INT);
    let done = job.done();
    assert_eq!((&*read(failed), &*read(left)), ("", "a\n"), "{}", done.err);
    assert!(done.err.contains(" 0 gave up, 1 left, "), "{}", done.err);
}

#[test]
fn a_command_that_is_killed_leaves_no_temporary_file() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let names = ["failed", "left", "metrics"].map(|name| dir.path().join(name));
    let [failed, left, metrics] = names.each_ref().map(|path| path.to_str().unwrap());
    let args = ["-j1", "--failed-to", failed, "--left-to", left, "--metrics-to", metrics];
    let mut job = start(script(&args, dir.path(), "cat $D/gate"));
    job.send(b"a\n");
    let waiting = gate.reached();
    job.signal(Signal::KILL);
    // The program, which is no longer waited for, has the outputs.
    drop(waiting);
    assert_eq!(job.done().status, 1009);
    let there = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(there.collect::<Vec<_>>(), ["gate"]);
}

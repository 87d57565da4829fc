//! `--keep-order`: the output of runs, in the order in which their keys were read.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;

use crate::harness::{Gate, Job, dir, pipe, read, run, script, start, start_as_is, until};

/// Key `a` waits at the gate between two lines; the others write theirs.
const WAITS: &str = "echo $0 1; echo $0 2 >&2; [ $0 != a ] || cat $D/gate; echo $0 3";

/// `requeue run --keep-order` with these arguments and a joblog.
fn ordered(args: &[&str], dir: &Path, text: &str) -> Job {
    start(command(args, dir, text))
}

fn command(args: &[&str], dir: &Path, text: &str) -> std::process::Command {
    let log = dir.join("log");
    let args = [args, &["--keep-order", "--joblog", log.to_str().unwrap()]].concat();
    script(&args, dir, text)
}

/// Waits until so many runs have ended.
fn ended(dir: &Path, runs: usize) {
    until("ends of runs", || read(dir.join("log")).lines().count() > runs);
}

#[test]
fn output_comes_in_the_order_of_the_keys_and_runs_do_not_wait_for_it() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = ordered(&["-j2", "-q", "--tag"], dir.path(), WAITS);
    job.send(b"a\n");
    let waiting = gate.reached();
    job.send(b"b\nc\nd\n");
    ended(dir.path(), 3);
    assert!(!job.out_seen(b"b") && !job.err_seen("b"), "a has not ended");
    drop(waiting);
    job.close();
    let done = job.done();
    let expected = "a\ta 1\na\ta 3\nb\tb 1\nb\tb 3\nc\tc 1\nc\tc 3\nd\td 1\nd\td 3\n";
    assert_eq!((done.status, done.text()), (0, expected));
    assert_eq!(done.err, "a\ta 2\nb\tb 2\nc\tc 2\nd\td 2\n");
}

#[test]
fn many_runs_that_end_in_any_order_are_passed_on_in_that_of_their_keys() {
    let dir = dir();
    let keys: String = (0..300).map(|i| format!("{i}\n")).collect();
    // Which ends first is left to the system; every seventh key fails once.
    let text = "echo $0; [ $(($0 % 7)) != 0 ] || [ $REQUEUE_ATTEMPT = 2 ]";
    let done =
        run(command(&["-j8", "--summary", "off", "--base-delay", "1ms"], dir.path(), text), keys.as_bytes());
    assert_eq!(done.status, 0, "{}", done.err);
    let expected: String =
        (0..300).map(|i| format!("{i}\n").repeat(if i % 7 == 0 { 2 } else { 1 })).collect();
    assert_eq!(done.text(), expected);
}

#[test]
fn one_worker_goes_on_while_a_key_waits_for_its_retry_and_holds_the_output_back() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    // a fails until c has run
    let text = "echo $0; case $0 in a) [ -e $D/c ];; c) cat $D/gate; : > $D/c;; esac";
    let args =
        ["-j1", "--summary", "off", "--base-delay", "1ms", "--max-delay", "1ms", "--max-attempts", "0"];
    let mut job = ordered(&args, dir.path(), text);
    job.send(b"a\nb\nc\n");
    let waiting = gate.reached();
    assert!(read(dir.path().join("log")).contains("\nb\t"), "b has ended");
    assert!(!job.out_seen(b"a") && !job.out_seen(b"b"));
    drop(waiting);
    job.close();
    let done = job.done();
    assert_eq!(done.status, 0, "{}", done.err);
    let mut lines: Vec<&str> = done.text().lines().collect();
    assert!(lines.iter().filter(|line| **line == "a").count() > 1, "{}", done.text());
    lines.dedup();
    assert_eq!(lines, ["a", "b", "c"]);
}

#[test]
fn a_key_that_gives_up_lets_the_others_go() {
    let dir = dir();
    let args = ["-j2", "-q", "--base-delay", "1ms", "--max-attempts", "3"];
    let mut job = ordered(&args, dir.path(), "echo $0 $REQUEUE_ATTEMPT; [ $0 != a ]");
    job.send(b"a\nb\n");
    // the input is open: nothing but the end of a lets b go
    until("the output of b", || job.out_seen(b"b 1\n"));
    job.close();
    let done = job.done();
    assert_eq!((done.status, done.text()), (1, "a 1\na 2\na 3\nb 1\n"));
}

#[test]
fn a_key_that_comes_again_has_its_next_place_at_the_end() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let text = "echo $0; [ $0 != a ] || [ -e $D/a ] || { : > $D/a; cat $D/gate; }";
    let mut job = ordered(&["-j2", "-q"], dir.path(), text);
    job.send(b"a\n");
    let waiting = gate.reached();
    job.put(b"b\nb\n");
    ended(dir.path(), 1);
    job.put(b"a\nc\n");
    drop(waiting);
    job.close();
    let done = job.done();
    assert_eq!(done.status, 0, "{}", done.err);
    // b came twice, perhaps during its run
    let mut lines: Vec<&str> = done.text().lines().collect();
    lines.dedup();
    assert_eq!(lines, ["a", "b", "a", "c"]);
}

#[test]
fn more_output_than_memory_is_for_comes_whole_and_in_order() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let text = "yes $0 | head -n 500000; [ $0 != a ] || cat $D/gate";
    let mut job = ordered(&["-j3", "-q"], dir.path(), text);
    job.send(b"a\n");
    let waiting = gate.reached();
    job.send(b"b\nc\nd\ne\n");
    ended(dir.path(), 4);
    drop(waiting);
    job.close();
    let done = job.done();
    assert_eq!((done.status, done.out.len()), (0, 5 * 1_000_000), "{}", done.err);
    let mut turns: Vec<&str> = done.text().lines().collect();
    turns.dedup();
    assert_eq!(turns, ["a", "b", "c", "d", "e"]);
}

#[test]
fn without_room_output_is_not_in_order_and_not_lost() {
    let dir = dir();
    let text = "[ $0 != a ] || [ -e $D/b ] || exit 1; yes $0 | head -n 300000; : > $D/$0";
    let args = ["-j1", "--summary", "off", "--base-delay", "1ms", "--max-attempts", "0"];
    let mut command = command(&args, dir.path(), text);
    command.env("TMPDIR", dir.path().join("no/such"));
    let done = run(command, b"a\nb\n");
    assert_eq!((done.status, done.out.len()), (0, 2 * 600_000), "{}", done.err);
    assert!(done.err.contains("requeue: --keep-order: "), "{}", done.err);
}

#[test]
fn a_signal_that_drops_a_retry_lets_out_what_it_held_back() {
    let dir = dir();
    let args = ["-j1", "--summary", "off", "--base-delay", "1h", "--max-delay", "1h", "--jitter", "0"];
    let mut job = ordered(&args, dir.path(), "echo $0; [ $0 != a ]");
    job.send(b"a\nb\n");
    ended(dir.path(), 2);
    assert!(!job.out_seen(b"a") && !job.out_seen(b"b"));
    job.signal(Signal::INT);
    let done = job.done();
    assert_eq!((done.status, done.text()), (130, "a\nb\n"), "{}", done.err);
}

#[test]
fn a_second_signal_lets_out_what_runs_have_written() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = ordered(&["-j2", "--summary", "off"], dir.path(), WAITS);
    job.send(b"a\n");
    let _waiting = gate.reached();
    job.send(b"b\n");
    ended(dir.path(), 1);
    job.signal(Signal::INT);
    job.said("working off");
    job.signal(Signal::INT);
    let done = job.done();
    assert_eq!((done.status, done.text()), (130, "a 1\nb 1\nb 3\n"), "{}", done.err);
}

#[test]
fn a_closed_output_ends_the_command_with_141() {
    let dir = dir();
    let (reader, writer) = pipe();
    let mut command = command(&["-j2", "-q"], dir.path(), "yes $0 | head -n 100000");
    command.stdout(writer).stderr(Stdio::piped());
    let mut job = start_as_is(command);
    let keys: String = (0..50).map(|i| format!("{i}\n")).collect();
    job.send(keys.as_bytes());
    let mut line = String::new();
    BufReader::new(std::fs::File::from(reader)).read_line(&mut line).unwrap();
    assert_eq!(line, "0\n");
    let done = job.done();
    assert_eq!((done.status, done.err.as_str()), (141, ""));
}

#[test]
fn work_has_no_order_of_input_to_keep() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.args(["work", "--engine", "sqlite:no/such.db", "--keep-order", "true"]);
    let done = run(command, b"");
    assert_eq!(done.status, 2);
    assert!(done.err.contains("--keep-order has no meaning for work"), "{}", done.err);
}

//! The log of runs, and going on with it.

use std::path::Path;

use rustix::process::Signal;

use crate::harness::{Done, Gate, dir, read, requeue, run, script, start};

fn logged(log: &Path, more: &[&str], text: &str, input: &[u8]) -> Done {
    let mut args = vec!["-j1", "--joblog", log.to_str().unwrap()];
    args.extend(more);
    run(script(&args, log.parent().unwrap(), text), input)
}

#[test]
fn every_run_has_a_line_that_says_how_it_ended() {
    let dir = dir();
    let log = dir.path().join("log");
    let text =
        "case $REQUEUE_KEY$REQUEUE_ATTEMPT in twice1) exit 3;; dies*) kill -9 $$;; slow*) sleep 1000;; esac";
    let more = ["--max-attempts", "2", "--base-delay", "1ms", "--timeout", "1h"];
    let done = logged(&log, &more, text, b"ok\ntwice\ndies\n");
    assert_eq!(done.status, 1, "{}", done.err);
    let done = logged(&log, &["--timeout", "1ms", "--max-attempts", "1"], text, b"slow\n");
    assert_eq!(done.status, 1, "{}", done.err);
    let text = read(&log);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("key\tattempt\tstart\tseconds\tstatus\tsignal"));
    let mut rows: Vec<String> = Vec::new();
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        let [key, attempt, start, seconds, status, signal] = fields[..] else { panic!("{line:?}") };
        assert!(start.parse::<f64>().unwrap() > 1.7e9, "{line:?}");
        assert!(seconds.parse::<f64>().unwrap() >= 0.0, "{line:?}");
        rows.push([key, attempt, status, signal].join(" "));
    }
    rows.sort_unstable();
    let expected =
        ["dies 1 137 9", "dies 2 137 9", "ok 1 0 0", "slow 1 124 15", "twice 1 3 0", "twice 2 0 0"];
    assert_eq!(rows, expected);
}

#[test]
fn resume_runs_what_has_not_ended_well() {
    let dir = dir();
    let log = dir.path().join("log");
    let input = b"ok\nbad\nok\nlast\n";
    let done = logged(&log, &["--max-attempts", "1"], "[ $REQUEUE_KEY != bad ]", input);
    assert_eq!(done.status, 1, "{}", done.err);
    let again = ["--resume", "--summary", "json"];
    let done = logged(&log, &again, "echo $REQUEUE_KEY", b"new\nok\nbad\nok\nok\nlast\n");
    assert_eq!((done.status, done.text()), (0, "new\nbad\n"), "{}", done.err);
    assert_eq!((done.number("skipped"), done.number("keys"), done.number("runs")), (4, 2, 2));
    // By now all have ended well, as the same log says.
    let done = logged(&log, &["--resume"], "echo $REQUEUE_KEY", b"new\nbad\nlast\n");
    assert_eq!((done.status, done.text()), (0, ""), "{}", done.err);
    assert!(done.err.contains("3 triggers were skipped"), "{}", done.err);
    let shown = logged(&log, &["--resume", "--dry-run"], "exit", b"ok\nfresh\n");
    assert_eq!(shown.text(), "sh -c exit fresh\n", "{}", shown.err);
}

#[test]
fn resume_goes_on_after_a_kill() {
    let dir = dir();
    let log = dir.path().join("log");
    let gate = Gate::new(dir.path(), "gate");
    let text = "echo $REQUEUE_KEY; [ ! -p $D/gate ] || [ $REQUEUE_KEY != b ] || cat $D/gate";
    let mut job = start(script(&["-j1", "--joblog", log.to_str().unwrap()], dir.path(), text));
    job.send(b"a\nb\nc\n");
    let waiting = gate.reached();
    job.signal(Signal::KILL);
    assert_eq!(job.done().status, 1009);
    drop(waiting);
    std::fs::remove_file(dir.path().join("gate")).unwrap();
    // The first `--resume` may as well be the first run of all.
    let done = logged(&log, &["--resume"], text, b"a\nb\nc\n");
    assert_eq!((done.status, done.text()), (0, "b\nc\n"), "{}", done.err);
}

#[test]
fn keys_with_any_bytes_are_known_again() {
    let dir = dir();
    let log = dir.path().join("log");
    let input = b"a\tb\nc\0\\x41\0\xff\xfe\x01\0\x1b[2J\0";
    let done = logged(&log, &["-0"], "true", input);
    assert_eq!(done.status, 0, "{}", done.err);
    let text = read(&log);
    assert_eq!(text.lines().count(), 5, "{text:?}");
    assert!(text.contains("a\\tb\\nc\t1\t") && text.contains("\\xff\\xfe\\x01\t1\t"), "{text:?}");
    let done = logged(&log, &["-0", "--resume"], "echo ran", &[&input[..], b"A\0"].concat());
    assert_eq!(done.text(), "ran\n", "{}", done.err);
}

#[test]
fn a_log_that_was_torn_is_gone_on_with() {
    let dir = dir();
    let log = dir.path().join("log");
    assert_eq!(logged(&log, &[], "true", b"a\nb\n").status, 0);
    let whole = std::fs::read(&log).unwrap();
    std::fs::write(&log, &whole[..whole.len() - 6]).unwrap();
    let done = logged(&log, &["--resume"], "echo $REQUEUE_KEY", b"a\nb\nc\n");
    assert_eq!((done.status, done.text()), (0, "b\nc\n"), "{}", done.err);
    assert!(done.err.contains("1 line is no row"), "{}", done.err);
    let done = logged(&log, &["--resume"], "echo $REQUEUE_KEY", b"a\nb\nc\n");
    assert_eq!((done.status, done.text()), (0, ""), "{}", done.err);
}

#[test]
fn a_file_that_is_no_joblog_is_refused_and_kept() {
    let dir = dir();
    let keys = dir.path().join("keys");
    std::fs::write(&keys, "a\nb\n").unwrap();
    for more in [&[][..], &["--resume"]] {
        let done = logged(&keys, more, "echo ran", b"a\n");
        assert_eq!((done.status, done.text()), (2, ""), "{}", done.err);
        assert!(done.err.contains("it is no joblog"), "{}", done.err);
        assert_eq!(read(&keys), "a\nb\n");
    }
    let done = run(requeue(&["--joblog", "/dev/full", "echo"]), b"a\n");
    assert_eq!((done.status, done.text()), (2, ""), "{}", done.err);
    assert!(done.err.contains("--joblog /dev/full: No space left"), "{}", done.err);
    let done = run(requeue(&["--joblog", "/dev/null", "--resume", "echo"]), b"a\n");
    assert_eq!((done.status, done.text()), (2, ""), "{}", done.err);
    assert!(done.err.contains("no regular file"), "{}", done.err);
}

#[test]
fn rows_that_find_no_room_are_said_and_the_runs_go_on() {
    // A pipe without a reader has no room, as a full disk has none.
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let pipe = dir.path().join("pipe");
    let _log = Gate::new(dir.path(), "pipe");
    // A reader in this process would not do: another test that starts a program at the same
    // instant gives it a copy of the open pipe, until that program begins.
    let mut reader = std::process::Command::new("head");
    let mut reader = reader.args(["-n", "1"]).arg(&pipe).stdout(std::process::Stdio::null()).spawn().unwrap();
    let args = ["-j1", "--joblog", pipe.to_str().unwrap()];
    let mut job = start(script(&args, dir.path(), "[ $REQUEUE_KEY != a ] || cat $D/gate; echo $REQUEUE_KEY"));
    job.send(b"a\nb\n");
    let waiting = gate.reached();
    // it reads the head line and ends
    assert!(reader.wait().unwrap().success());
    drop(waiting);
    job.close();
    let done = job.done();
    assert_eq!((done.status, done.text()), (1, "a\nb\n"), "{}", done.err);
    assert_eq!(done.err.matches("the runs go on").count(), 1, "{}", done.err);
    assert!(done.err.contains("2 runs are not in it"), "{}", done.err);
}

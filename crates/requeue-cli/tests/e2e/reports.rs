//! Log, summary, and the file of the keys that gave up.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{dir, read, requeue, run, script, start};

#[test]
fn the_summary_has_every_number() {
    let done = run(requeue(&["-j1", "true"]), b"a\na\na\nb\n");
    assert_eq!(done.status, 0);
    let line = done.err.trim_end();
    assert!(
        line.starts_with("requeue: 2 keys, 4 triggers, 2 runs, 2 coalesced, 0 retries, 0 gave up, 0 left, "),
        "{line}"
    );
}

#[test]
fn the_json_summary_is_one_line_of_json() {
    let done = run(
        requeue(&["--summary", "json", "--log", "off", "--max-attempts", "1", "-j1", "sh", "-c", "exit 4"]),
        b"a\n\"q\"\n\xff\n",
    );
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    let summary = done.summary();
    for (name, number) in [
        ("keys", 3),
        ("triggers", 3),
        ("runs", 3),
        ("coalesced", 0),
        ("retries", 0),
        ("gave_up", 3),
        ("left", 0),
        ("exit_status", 1),
    ] {
        assert_eq!(summary[name], number, "{name}: {}", done.err);
    }
    assert!(summary["wall_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(summary["unread"], false);
    let keys = summary["gave_up_keys"].as_array().unwrap();
    assert_eq!(keys[0]["key"], "a");
    assert_eq!(keys[0]["reason"], "exit status 4");
    assert_eq!(keys[0]["exit_status"], 4);
    assert_eq!(keys[0]["attempts"], 1);
    assert_eq!(keys[1]["key"], "\"q\"");
    assert_eq!(keys[2]["key"], "\u{fffd}");
    assert_eq!(keys[2]["key_hex"], "ff");
}

#[test]
fn the_json_log_is_json_line_by_line() {
    let dir = dir();
    let done = run(
        script(
            &[
                "-j1",
                "--log",
                "json",
                "--summary",
                "off",
                "--base-delay",
                "1ms",
                "--again-after",
                "1ms",
                "--fatal-code",
                "9",
            ],
            dir.path(),
            "case $REQUEUE_KEY$REQUEUE_ATTEMPT in bad*) exit 9;; *1) [ -e $D/x ] && exit 3; : > $D/x; exit 75;; *) exit 0;; esac",
        ),
        b"a b\nbad\n",
    );
    assert_eq!(done.status, 1);
    let events: Vec<Value> = done.err.lines().map(|l| serde_json::from_str(l).expect(l)).collect();
    let of = |key: &str| -> Vec<&str> {
        let of_key = events.iter().filter(|e| e["key"] == key);
        of_key.map(|e| e["event"].as_str().unwrap()).collect()
    };
    assert_eq!(of("a b"), ["again", "retry", "done"], "{}", done.err);
    assert_eq!(of("bad"), ["gave_up"]);
    let retry = events.iter().find(|e| e["event"] == "retry").unwrap();
    assert_eq!((&retry["exit_status"], &retry["attempt"]), (&3.into(), &1.into()));
    assert!(retry["delay_seconds"].as_f64().unwrap() >= 0.001);
    assert!(retry["time"].as_f64().unwrap() > 1.7e9);
}

#[test]
fn the_text_log_tells_failures_and_nothing_else() {
    let dir = dir();
    let args = ["-j1", "--base-delay", "2h", "--max-delay", "2h", "--summary", "off"];
    let mut job = start(script(&args, dir.path(), "[ \"$REQUEUE_KEY\" = ok ] || exit 6"));
    job.send(b"ok\nan 'odd' key\n");
    job.said("again in 2h");
    job.signal(Signal::TERM);
    let done = job.done();
    assert_eq!(done.status, 143);
    let mut lines = done.err.lines();
    assert_eq!(
        lines.next().unwrap(),
        r"requeue: 'an '\''odd'\'' key': exit status 6 (attempt 1 of 5), again in 2h"
    );
    let end = "requeue: SIGTERM: working off what is ready; once more to stop";
    assert_eq!((lines.next(), lines.next()), (Some(end), None));
}

#[test]
fn off_and_quiet_are_silent() {
    for args in [&["--quiet"][..], &["--log", "off", "--summary", "off"]] {
        let mut command = requeue(args);
        command.args(["--max-attempts", "1", "false"]);
        let done = run(command, b"a\n");
        assert_eq!((done.status, done.err.as_str()), (1, ""));
    }
    let done = run(requeue(&["-q", "--summary", "text", "true"]), b"");
    assert!(done.err.starts_with("requeue: 0 keys"), "{}", done.err);
}

fn failed_to(file: &Path, more: &[&str], text: &str, input: &[u8]) -> crate::harness::Done {
    let mut args = vec!["-j1", "--max-attempts", "1", "--failed-to", file.to_str().unwrap()];
    args.extend(more);
    run(script(&args, file.parent().unwrap(), text), input)
}

#[test]
fn keys_that_gave_up_are_fit_to_be_fed_back_in() {
    let dir = dir();
    let file = dir.path().join("failed");
    let done =
        failed_to(&file, &[], "case $REQUEUE_KEY in *bad*) exit 1;; esac", b"ok\nbad 1\nbad\xff2\nok2\n");
    assert_eq!(done.status, 1);
    let failed = std::fs::read(&file).unwrap();
    assert_eq!(failed, b"bad 1\nbad\xff2\n");
    // From the very file that is written in the end.
    let mut command =
        script(&["--failed-to", file.to_str().unwrap(), "-j1"], dir.path(), "echo \"$REQUEUE_KEY\"");
    command.stdin(std::fs::File::open(&file).unwrap());
    let output = command.output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, failed);
    assert_eq!(read(file), "");
}

#[test]
fn with_null_the_file_is_nul_separated_too() {
    let dir = dir();
    let file = dir.path().join("failed");
    let done = failed_to(&file, &["-0"], "false", b"a\nb\0c\0");
    assert_eq!(done.status, 1);
    assert_eq!(read(file), "a\nb\0c\0");
}

#[test]
fn the_file_is_there_and_empty_when_nothing_gave_up() {
    let dir = dir();
    let file = dir.path().join("failed");
    std::fs::write(&file, "stale\n").unwrap();
    assert_eq!(failed_to(&file, &[], "true", b"a\n").status, 0);
    assert_eq!(std::fs::read(&file).unwrap(), b"");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_full_disk_under_the_file_is_said() {
    let done = run(requeue(&["--max-attempts", "1", "--failed-to", "/dev/full", "false"]), b"a\n");
    assert_eq!(done.status, 1);
    assert!(done.err.contains("--failed-to /dev/full: No space left on device"), "{}", done.err);
    assert!(done.err.contains("gave up: a: exit status 1"), "still listed: {}", done.err);
    assert!(!done.err.contains("panic"), "{}", done.err);
}

#[test]
fn a_file_that_cannot_be_written_is_said_before_the_first_run() {
    let dir = dir();
    let file = dir.path().join("no/such/place");
    let done = failed_to(&file, &[], "echo ran", b"a\n");
    assert_eq!((done.status, done.text()), (2, ""));
    assert!(done.err.contains("--failed-to") && done.err.lines().count() == 1, "{}", done.err);
    let done = failed_to(&dir.path().join("."), &[], "echo ran", b"a\n");
    assert_eq!((done.status, done.text()), (2, ""), "{}", done.err);
}

#[test]
fn the_file_may_be_a_pipe() {
    let done = run(requeue(&["--max-attempts", "1", "--failed-to", "/dev/stdout", "false"]), b"a\nb\n");
    assert_eq!((done.status, done.lines()), (1, vec!["a", "b"]));
}

#[test]
fn keys_that_gave_up_go_behind_what_else_goes_to_standard_output() {
    let dir = dir();
    let path = dir.path().join("all");
    std::fs::write(&path, "before\n").unwrap();
    let all = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    let mut command = script(
        &["-q", "-j1", "--max-attempts", "1", "--failed-to", "/dev/stdout"],
        dir.path(),
        "echo ran $0; test $0 = b",
    );
    let mut child = command.stdin(std::process::Stdio::piped()).stdout(all).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"a\nb\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(read(&path), "before\nran a\nran b\na\n");
}

#[test]
fn a_summary_that_no_pipe_holds_is_whole_after_the_programs_were_stopped() {
    let dir = dir();
    let keys: String = (0..150).map(|i| format!("{i}-{}\n", "k".repeat(1000))).collect();
    let mut job = start(script(
        &["-j1", "--log", "off", "--summary", "json", "--max-attempts", "1", "--drain-timeout", "1ms"],
        dir.path(),
        "case $0 in slow) echo runs; exec sleep 1000;; esac; exit 1",
    ));
    job.put(keys.as_bytes());
    job.put(b"slow\n");
    crate::harness::until("the last key runs", || job.out_seen(b"runs"));
    job.close();
    let done = job.done();
    let line = done.err.lines().rfind(|line| line.starts_with('{')).expect("a summary");
    assert!(line.len() > 100_000, "{} bytes", line.len());
    let summary: Value = serde_json::from_str(line).unwrap();
    assert_eq!(summary["gave_up"], 150);
}

#[test]
fn the_summary_names_ten_that_gave_up_and_counts_the_others() {
    // Too long for any argument, so that no program needs to be started.
    let long = "k".repeat(200_000);
    let input: String = (0..25).map(|key| format!("{key}{long}\n")).collect();
    let done = run(requeue(&["-q", "--summary", "text", "true"]), input.as_bytes());
    assert_eq!(done.status, 1);
    let named = done.err.lines().filter(|line| line.starts_with("requeue: gave up: ")).count();
    assert_eq!(named, 10);
    let last = done.err.lines().last();
    assert_eq!(last, Some("requeue: and 15 more gave up (--failed-to FILE has all of them)"));
}

#[test]
fn the_summary_does_not_refer_to_a_file_that_could_not_be_written() {
    let input: String = (0..25).map(|key| format!("{key}\n")).collect();
    let args = ["-q", "--summary", "text", "--max-attempts", "1", "--failed-to", "/dev/full", "false"];
    let done = run(requeue(&args), input.as_bytes());
    assert_eq!(done.status, 1);
    assert!(done.err.contains("--failed-to /dev/full: No space left on device"), "{}", done.err);
    assert_eq!(done.err.lines().last(), Some("requeue: and 15 more gave up"), "{}", done.err);
}

#[test]
fn metrics_are_written_to_a_file_at_the_end() {
    let dir = dir();
    let path = dir.path().join("metrics");
    std::fs::write(&path, "old").unwrap();
    let args = ["--metrics-to", path.to_str().unwrap(), "--base-delay", "1ms", "--max-attempts", "2"];
    let mut job = start(script(&args, dir.path(), "[ $REQUEUE_KEY = good ]"));
    job.send(b"good\nbad\n");
    job.close();
    let done = job.done();
    assert_eq!(done.status, 1);
    let text = read(&path);
    assert!(text.contains("workqueue_adds_total{name=\"run\"} 3\n"), "{text}");
    assert!(text.contains("workqueue_retries_total{name=\"run\"} 1\n"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn metrics_that_cannot_be_written_are_said_before_the_first_run() {
    let done = run(requeue(&["--metrics-to", "/no/such/place", "echo"]), b"a\n");
    assert_eq!((done.status, done.text()), (2, ""));
    assert!(done.err.starts_with("requeue: --metrics-to /no/such/place: "), "{}", done.err);
}

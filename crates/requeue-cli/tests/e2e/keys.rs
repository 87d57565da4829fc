//! The input that becomes a key.

use crate::harness::{Gate, dir, requeue, run, script, start};

#[test]
fn lines_are_keys_and_empty_lines_are_skipped() {
    let done = run(requeue(&["echo"]), b"a\n\nb c\n\n\nlast");
    assert_eq!(done.status, 0);
    assert_eq!(done.lines(), ["a", "b c", "last"]);
}

#[test]
fn nul_separates_where_asked_for() {
    let dir = dir();
    let command = script(&["-0", "-j1"], dir.path(), "printf '<%s>' \"$REQUEUE_KEY\" >> $D/got");
    let done = run(command, b"a\nb\0\0c d\0last");
    assert_eq!(done.status, 0);
    let got = std::fs::read(dir.path().join("got")).unwrap();
    assert_eq!(got, b"<a\nb><c d><last>");
}

#[test]
fn no_input_is_no_run() {
    let done = run(requeue(&["--summary", "json", "false"]), b"");
    assert_eq!(done.status, 0);
    assert_eq!((done.number("keys"), done.number("runs")), (0, 0));
}

#[test]
fn keys_need_not_be_utf8() {
    let dir = dir();
    let mut command = script(
        &["-j1", "--tag"],
        dir.path(),
        "printf '%s' \"$REQUEUE_KEY\" > $D/env; printf '%s' \"$1\" > $D/arg; echo out",
    );
    command.args(["sh", "x{}"]);
    let done = run(command, b"\xff\xfe-\x80\n");
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!(std::fs::read(dir.path().join("env")).unwrap(), b"\xff\xfe-\x80");
    assert_eq!(std::fs::read(dir.path().join("arg")).unwrap(), b"x\xff\xfe-\x80");
    assert_eq!(done.out, b"\xff\xfe-\x80\tout\n");
}

#[test]
fn a_key_with_a_nul_gives_up_with_that_reason() {
    let done = run(requeue(&["--summary", "json", "echo"]), b"a\0b\nc\n");
    assert_eq!(done.status, 1);
    assert_eq!(done.text(), "c\n");
    let summary = done.summary();
    assert_eq!(summary["gave_up_keys"][0]["key"], "a\0b");
    assert!(summary["gave_up_keys"][0]["reason"].as_str().unwrap().contains("NUL"));
    assert_eq!((done.number("runs"), done.number("retries")), (1, 0));
}

#[test]
fn a_key_that_is_too_long_gives_up_with_that_reason() {
    let dir = dir();
    let failed = dir.path().join("failed");
    let failed = failed.to_str().unwrap();
    let longest = 32 * rustix::param::page_size();
    // The first fits with `REQUEUE_KEY=` and the NUL; the second and the third do not.
    let fits = "x".repeat(longest - 13);
    let long = "y".repeat(longest);
    let endless = "z".repeat(3 << 20);
    let input = format!("{fits}\n{long}\n{endless}\nshort\n");
    let mut command = requeue(&["-j1", "--failed-to", failed]);
    command.args(["sh", "-c", "echo ${#0}"]);
    let done = run(command, input.as_bytes());
    assert_eq!(done.status, 1);
    assert_eq!(done.lines(), ["131059", "5"]);
    assert_eq!(done.err.matches("longer than the system can pass").count(), 4, "{}", done.err);
    assert!(done.err.contains("(3145728 bytes)"), "{}", done.err);
    assert!(done.err.len() < 4000, "keys in messages are cut");
    let failed = std::fs::read_to_string(failed).unwrap();
    assert!(failed == format!("{long}\n{endless}\n"), "{} bytes", failed.len());
}

#[test]
fn an_input_of_long_keys_that_is_also_failed_to_is_kept_whole() {
    let dir = dir();
    let path = dir.path().join("keys");
    let input = ["a", &"k".repeat((1 << 20) + 1), "b", &"l".repeat(3 << 20), ""].join("\n");
    std::fs::write(&path, &input).unwrap();
    let args = ["-j1", "--max-attempts", "1", "--failed-to", path.to_str().unwrap(), "false"];
    let mut command = requeue(&args);
    let output = command.stdin(std::fs::File::open(&path).unwrap()).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("4 keys, 4 triggers, 2 runs, 0 coalesced, 0 retries, 4 gave up"), "{err}");
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept == input, "{} bytes of {}", kept.len(), input.len());
}

#[test]
fn a_key_that_no_program_can_be_started_with_has_no_attempts() {
    let dir = dir();
    let failed = dir.path().join("failed");
    let input = ["k".repeat(200_000), "l".repeat((1 << 20) + 1)].join("\n");
    for files in [&[][..], &["--failed-to", failed.to_str().unwrap()]] {
        let done = run(requeue(&[files, &["--summary", "json", "true"]].concat()), input.as_bytes());
        assert_eq!((done.number("runs"), done.number("gave_up")), (0, 2));
        let summary = done.summary();
        let keys = summary["gave_up_keys"].as_array().unwrap();
        assert!(keys.iter().all(|key| key["attempts"] == 0), "{files:?}");
    }
}

#[test]
fn a_system_that_takes_less_is_asked() {
    // A quarter of the stack's limit is what arguments and environment may take.
    let key = "k".repeat(100_000);
    let mut command = std::process::Command::new("sh");
    let limited = format!("ulimit -s 1024; exec {} run true {{}} {{}}", env!("CARGO_BIN_EXE_requeue"));
    command.args(["-c", &limited]);
    let done = run(command, format!("{key}\nshort\n").as_bytes());
    assert_eq!(done.status, 1, "{}", done.err);
    assert!(done.err.contains("longer than the system can pass"), "{}", done.err);
    assert!(done.err.contains("2 keys, 2 triggers, 1 run,"), "{}", done.err);
}

#[test]
fn equal_keys_that_wait_are_one_run() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let text = "echo $REQUEUE_KEY; [ $REQUEUE_KEY != first ] || cat $D/gate";
    let mut job = start(script(&["-j1", "--summary", "json"], dir.path(), text));
    job.send(b"first\n");
    let waiting = gate.reached();
    job.put("a\nb\nb\n".repeat(500).as_bytes());
    drop(waiting);
    job.close();
    let done = job.done();
    assert_eq!((done.status, done.text()), (0, "first\na\nb\n"), "{}", done.err);
    assert_eq!((done.number("keys"), done.number("triggers")), (3, 1501));
    assert_eq!((done.number("runs"), done.number("coalesced")), (3, 1498));
}

#[test]
fn triggers_during_a_run_give_one_more_run() {
    let dir = dir();
    let (first, second) = (Gate::new(dir.path(), "gate1"), Gate::new(dir.path(), "gate2"));
    let text = "echo run >> $D/runs; cat $D/gate$(wc -l < $D/runs)";
    let mut job = start(script(&["-j2", "--summary", "json"], dir.path(), text));
    job.send(b"a\n");
    let waiting = first.reached();
    for _ in 0..100 {
        job.put(b"a\n");
    }
    drop(waiting);
    drop(second.reached());
    job.close();
    let done = job.done();
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!((done.number("runs"), done.number("triggers")), (2, 101));
    assert_eq!(done.number("coalesced"), 99);
}

#[test]
fn one_key_never_runs_twice_at_a_time() {
    let dir = dir();
    let lock = "mkdir $D/$REQUEUE_KEY || echo TWICE; rmdir $D/$REQUEUE_KEY";
    let input = "a\nb\nc\n".repeat(2000);
    let done = run(script(&["-j8"], dir.path(), lock), input.as_bytes());
    assert_eq!((done.status, done.text()), (0, ""), "{}", done.err);
}

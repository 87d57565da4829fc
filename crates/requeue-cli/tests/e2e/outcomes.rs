//! The meaning of a run's end.

use crate::harness::{Gate, alive, dir, read, requeue, run, script, start, until};

#[test]
fn exit_status_0_is_done_and_the_command_ends_with_0() {
    let done = run(requeue(&["--summary", "json", "true"]), b"a\nb\n");
    assert_eq!(done.status, 0);
    assert_eq!((done.number("keys"), done.number("runs"), done.number("gave_up")), (2, 2, 0));
}

#[test]
fn a_key_gives_up_after_its_attempts_and_the_command_ends_with_1() {
    let done = run(requeue(&["--base-delay", "1ms", "--max-attempts", "3", "sh", "-c", "exit 7"]), b"a\n");
    assert_eq!(done.status, 1);
    assert!(done.err.contains("1 key, 1 trigger, 3 runs, 0 coalesced, 2 retries, 1 gave up, 0 left"));
    assert!(done.err.contains("gave up: a: exit status 7 (3 attempts)"), "{}", done.err);
}

#[test]
fn five_attempts_are_the_default() {
    let done = run(requeue(&["--base-delay", "1ms", "--summary", "json", "false"]), b"a\n");
    assert_eq!((done.status, done.number("runs")), (1, 5));
}

#[test]
fn zero_attempts_are_for_ever() {
    let dir = dir();
    let done = run(
        script(
            &["--base-delay", "0s", "--max-attempts", "0", "--log", "off"],
            dir.path(),
            "[ $REQUEUE_ATTEMPT = 30 ] && echo $REQUEUE_FAILURES",
        ),
        b"a\n",
    );
    assert_eq!((done.status, done.text()), (0, "29\n"));
}

#[test]
fn death_by_a_signal_is_a_failure() {
    let done = run(requeue(&["--max-attempts", "1", "sh", "-c", "kill -9 $$"]), b"a\n");
    assert_eq!(done.status, 1);
    assert!(done.err.contains("gave up: a: killed by SIGKILL"), "{}", done.err);
}

#[test]
fn again_after_makes_75_no_failure() {
    let dir = dir();
    let command = script(
        &["--again-after", "1ms", "--max-attempts", "1", "--summary", "json"],
        dir.path(),
        "echo $REQUEUE_ATTEMPT $REQUEUE_FAILURES >> $D/log; [ $(wc -l < $D/log) = 4 ] || exit 75",
    );
    let done = run(command, b"a\n");
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!(read(dir.path().join("log")), "1 0\n".repeat(4));
    assert_eq!((done.number("runs"), done.number("retries")), (4, 0));
}

#[test]
fn without_again_after_75_is_a_failure() {
    let done = run(requeue(&["--base-delay", "1ms", "--max-attempts", "2", "sh", "-c", "exit 75"]), b"a\n");
    assert_eq!(done.status, 1);
    assert!(done.err.contains("exit status 75 (2 attempts)"), "{}", done.err);
}

#[test]
fn a_fatal_code_gives_up_at_once() {
    let args = ["--fatal-code", "3", "--fatal-code", "4", "--base-delay", "1ms", "--summary", "json"];
    let mut command = requeue(&args);
    command.args(["sh", "-c", "exit $0"]);
    let done = run(command, b"3\n4\n5\n");
    assert_eq!(done.status, 1);
    assert_eq!((done.number("runs"), done.number("gave_up")), (1 + 1 + 5, 3));
}

#[test]
fn a_key_that_gave_up_and_then_ends_well_is_well() {
    let dir = dir();
    let mut job = start(script(&["--max-attempts", "1", "-j1"], dir.path(), "[ -e $D/now ]"));
    job.send(b"a\n");
    job.said("gave up");
    std::fs::write(dir.path().join("now"), "").unwrap();
    job.send(b"a\n");
    job.close();
    let done = job.done();
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(
        done.err.contains("1 key, 2 triggers, 2 runs, 0 coalesced, 0 retries, 0 gave up"),
        "{}",
        done.err
    );
}

#[test]
fn a_time_out_ends_grandchildren_too() {
    let dir = dir();
    // A program that is too slow to begin within the time is tried again.
    let script_text = "[ -s $D/pids ] && exit 0
        trap '' TERM
        sh -c 'echo $$ >> $D/pids; while :; do sleep 1; done' &
        sh -c 'exec >/dev/null 2>&1; echo $$ >> $D/pids; while :; do sleep 1; done' &
        wait";
    let done = run(
        script(
            &["--timeout", "1s", "--grace", "50ms", "--base-delay", "1ms", "--max-attempts", "20"],
            dir.path(),
            script_text,
        ),
        b"a\n",
    );
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.err.contains("a: timed out after 1s (attempt 1 of 20)"), "{}", done.err);
    let pids = read(dir.path().join("pids"));
    assert!(!pids.is_empty());
    for pid in pids.lines() {
        until("the grandchild's death", || !alive(pid));
    }
}

#[test]
fn a_program_may_end_by_itself_when_its_time_is_over() {
    let dir = dir();
    let begun = "trap 'echo cleaned > $D/cleaned; exit 0' TERM; while :; do sleep 0.05; done";
    let done = run(
        script(
            &["--timeout", "500ms", "--grace", "1h", "--max-attempts", "3", "--base-delay", "1ms"],
            dir.path(),
            &format!("[ -s $D/cleaned ] && exit 3; {begun}"),
        ),
        b"a\n",
    );
    // Its exit status 0 does not make it a success; and without the trap having been
    // reached it would have died at once and been run again.
    assert_eq!(done.status, 1, "{}", done.err);
    assert!(done.err.contains("timed out after 500ms"), "{}", done.err);
}

#[test]
fn a_program_that_ends_in_time_is_not_touched() {
    let done = run(requeue(&["--timeout", "1h", "echo"]), b"a\n");
    assert_eq!((done.status, done.text()), (0, "a\n"));
}

#[test]
fn somebody_left_behind_does_not_hold_up_the_run() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = start(script(
        &["-j1", "--tag"],
        dir.path(),
        "case $REQUEUE_KEY in
           a) (cat $D/gate; echo late; : > $D/late) & echo early;;
           b) while [ ! -e $D/late ]; do sleep 0.01; done; echo b;;
         esac",
    ));
    job.send(b"a\nb\n");
    job.close();
    // That b runs on the only worker shows that a's run has ended.
    drop(gate.reached());
    let done = job.done();
    assert_eq!(done.status, 0);
    assert_eq!(done.lines(), ["a\tearly", "a\tlate", "b\tb"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_time_out_does_not_wait_for_somebody_who_has_left_the_group() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let args = ["--timeout", "1s", "--grace", "1h", "--max-attempts", "20", "--base-delay", "1ms"];
    // The output stays open behind the program. A program that is too slow to leave the group within the time
    // is tried again.
    let text = "[ ! -e $D/left ] || exit 0; setsid sh -c ': > $D/left; exec cat $D/gate' & exec sleep 1000";
    let mut job = start(script(&args, dir.path(), text));
    job.send(b"a\n");
    job.close();
    let waiting = gate.reached();
    let done = job.done();
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.err.contains("a: timed out after 1s (attempt 1 of 20)"), "{}", done.err);
    drop(waiting);
}

#[test]
fn retries_keep_to_their_rate() {
    let started = std::time::Instant::now();
    let done = run(
        requeue(&[
            "--base-delay",
            "0s",
            "--max-attempts",
            "2",
            "--retry-rate",
            "20",
            "--retry-burst",
            "2",
            "--log",
            "off",
            "false",
        ]),
        b"a\nb\nc\nd\ne\nf\n",
    );
    assert_eq!(done.status, 1);
    // Six retries, two at once, four more at 20 a second.
    assert!(started.elapsed() >= std::time::Duration::from_millis(200));
}

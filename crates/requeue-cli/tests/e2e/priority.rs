//! Priorities in front of the keys.

use rustix::process::Signal;

use crate::harness::{Gate, dir, read, requeue, run, script, start};

const BLOCKS_AT_GATE: &str = "case $REQUEUE_KEY in gate) cat $D/gate;; *) echo $REQUEUE_KEY >> $D/ran;; esac";

#[test]
fn the_highest_priority_runs_first_and_a_key_that_comes_again_is_raised() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = start(script(&["--priority", "-j1", "--summary", "json"], dir.path(), BLOCKS_AT_GATE));
    job.put(b"0\tgate\n");
    let waiting = gate.reached();
    job.put(
        b"-100\tlisted\n0\tfirst\n7\turgent\n0\tsecond\n-100\tchanged\n3\tchanged\n-5\turgent\n0\tfirst\n",
    );
    drop(waiting);
    job.close();
    let done = job.done();
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!(read(dir.path().join("ran")), "urgent\nchanged\nfirst\nsecond\nlisted\n");
    assert_eq!((done.number("keys"), done.number("triggers"), done.number("coalesced")), (6, 9, 3));
}

#[test]
fn an_urgent_key_overtakes_those_that_wait_for_the_rate() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    // The gate has the token of the first half second: meanwhile all lines are read.
    let args = ["--priority", "--rate", "2", "-j1"];
    let mut job = start(script(&args, dir.path(), BLOCKS_AT_GATE));
    job.put(b"0\tgate\n");
    let waiting = gate.reached();
    job.put(b"0\tfirst\n0\tsecond\n7\turgent\n");
    drop(waiting);
    job.close();
    let done = job.done();
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!(read(dir.path().join("ran")), "urgent\nfirst\nsecond\n");
}

#[test]
fn one_of_every_8_runs_is_of_the_key_that_has_waited_for_max_wait() {
    // the gate was the first of N
    for (every, order) in [
        (&[][..], "a\nb\nc\nd\ne\nf\ng\nlisted\nh\n"),
        (&["--overdue-every", "3"], "a\nb\nlisted\nc\nd\ne\nf\ng\nh\n"),
    ] {
        let dir = dir();
        let gate = Gate::new(dir.path(), "gate");
        let args = [&["--priority", "--max-wait", "0s", "-j1"], every].concat();
        let mut job = start(script(&args, dir.path(), BLOCKS_AT_GATE));
        job.put(b"0\tgate\n");
        let waiting = gate.reached();
        job.put(b"-100\tlisted\n7\ta\n7\tb\n7\tc\n7\td\n7\te\n7\tf\n7\tg\n7\th\n");
        drop(waiting);
        job.close();
        assert_eq!(job.done().status, 0);
        assert_eq!(read(dir.path().join("ran")), order, "{every:?}");
    }
}

#[test]
fn a_retry_keeps_its_priority() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let args = ["--priority", "-j1", "--base-delay", "0s", "--jitter", "0"];
    let text = "case $REQUEUE_KEY in
        gate) [ $REQUEUE_ATTEMPT = 2 ] || { cat $D/gate; exit 1; };;
        esac
        echo $REQUEUE_KEY >> $D/ran";
    let mut job = start(script(&args, dir.path(), text));
    job.put(b"5\tgate\n");
    let waiting = gate.reached();
    job.put(b"4\tlower\n6\thigher\n");
    drop(waiting);
    job.close();
    assert_eq!(job.done().status, 0);
    assert_eq!(read(dir.path().join("ran")), "higher\ngate\nlower\n");
}

#[test]
fn priorities_hold_for_keys_that_wait_for_quiet_too() {
    let dir = dir();
    let args = ["--priority", "-j1", "--debounce", "1h", "--debounce-max", "1h"];
    let mut job = start(script(&args, dir.path(), "echo $REQUEUE_KEY >> $D/ran"));
    job.put(b"-1\tlow\n3\thigh\n-3\tlowest\n2\tlow\n1\tlow\n");
    // a key that waits for quiet is owed a run
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 143, "the input had not ended");
    assert_eq!(read(dir.path().join("ran")), "high\nlow\nlowest\n");
}

#[test]
fn a_line_without_a_priority_gives_up_and_says_what_is_right() {
    let done = run(requeue(&["--priority", "-j1", "--summary", "json", "echo"]), b"a\n5\tb\n5 c\n40000\td\n");
    assert_eq!((done.status, done.text()), (1, "b\n"), "{}", done.err);
    let why = "with --priority a line is a number from -32768 to 32767, a tab, and the key; gave up";
    assert_eq!(done.err.matches(why).count(), 3, "{}", done.err);
    assert_eq!((done.number("keys"), done.number("runs"), done.number("gave_up")), (4, 1, 3));
}

#[test]
fn without_the_option_a_number_and_a_tab_are_part_of_the_key() {
    let done = run(requeue(&["-j1", "echo"]), b"5\ta\n");
    assert_eq!((done.status, done.text()), (0, "5\ta\n"));
}

#[test]
fn a_dry_run_prints_the_keys_without_their_priorities() {
    let done = run(requeue(&["--priority", "--dry-run", "echo"]), b"5\ta\n7\ta\nb\n");
    assert_eq!((done.status, done.text()), (1, "echo a\n"), "{}", done.err);
    assert!(done.err.contains("b: with --priority a line is a number"), "{}", done.err);
}

//! A bound on the keys that are kept: input waits.

use rustix::process::Signal;

use crate::harness::{Gate, dir, read, requeue, run, script, start};

#[test]
fn input_is_read_as_keys_are_done_and_none_is_lost() {
    let input: String = (0..300).map(|key| format!("{key}\n{}\n", key / 2)).collect();
    for args in [["--bound", "1", "-j1"], ["--bound", "3", "-j4"]] {
        let done = run(requeue(&[&args[..], &["--summary", "json", "true"]].concat()), input.as_bytes());
        assert_eq!(done.status, 0, "{}", done.err);
        assert_eq!((done.number("keys"), done.number("triggers")), (300, 600), "{}", done.err);
        assert_eq!(done.number("runs") + done.number("coalesced"), 600, "{}", done.err);
    }
}

#[test]
fn a_key_that_waits_for_room_at_a_signal_is_left_and_told() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let left = dir.path().join("left");
    let args = ["--bound", "2", "-j1", "--left-to", left.to_str().unwrap(), "--summary", "json"];
    let text = "case $REQUEUE_KEY in gate) cat $D/gate;; esac; echo $REQUEUE_KEY >> $D/ran";
    let mut job = start(script(&args, dir.path(), text));
    job.put(b"gate\n");
    let waiting = gate.reached();
    job.send(b"a\na\nb\nc\n");
    job.close();
    job.signal(Signal::TERM);
    job.said("working off");
    drop(waiting);
    let done = job.done();
    assert_eq!(done.status, 143, "{}", done.err);
    let ran = read(dir.path().join("ran"));
    let all: Vec<String> = ran.lines().chain(read(&left).lines()).map(str::to_owned).collect();
    for key in ["gate", "a", "b", "c"] {
        assert!(all.iter().any(|other| other == key), "{key} is neither run nor left: {all:?}");
    }
}

#[test]
fn a_bound_of_nothing_is_refused() {
    let done = run(requeue(&["--bound", "0", "true"]), b"");
    assert_eq!(done.status, 2);
    assert!(done.err.contains("give a number of keys, at least 1"), "{}", done.err);
}

#[test]
fn the_maximum_of_a_debounce_may_stand_behind_it() {
    let dir = dir();
    let mut job = start(script(&["--debounce", "1h:2h", "-j1"], dir.path(), "echo $REQUEUE_KEY >> $D/ran"));
    job.put(b"a\nb\na\n");
    // a key that waits for quiet is owed a run
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 143, "the input had not ended");
    assert_eq!(read(dir.path().join("ran")).lines().count(), 2);
    let done = run(requeue(&["--debounce", "1ms:1s", "echo"]), b"a\n");
    assert_eq!((done.status, done.text()), (0, "a\n"));
    for (args, why) in [
        (&["--debounce", "2s:1s", "echo"][..], "--debounce 2s:1s waits for longer than its maximum"),
        (&["--debounce", "2s", "echo"], "--debounce 2s is longer than its maximum, 1s by default"),
        (&["--debounce", "3s", "--debounce-max", "2s", "echo"], "(3s) is longer than --debounce-max (2s)"),
        (&["--debounce", "1s:2s", "--debounce-max", "2s", "echo"], "say the same: leave one out"),
        (&["--debounce", "1s:", "echo"], "--debounce"),
    ] {
        let done = run(requeue(args), b"");
        assert_eq!(done.status, 2, "{args:?}");
        assert!(done.err.contains(why), "{}", done.err);
    }
}

//! `requeue cancel` of many keys, `ls --running`, values of `requeue add`.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::{Done, Gate, dir, read, run, start, until};

fn requeue(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.args(args).env("REQUEUE_ENGINE", format!("sqlite:{}", dir.join("q.db").display())).env("D", dir);
    command
}

fn done(dir: &Path, args: &[&str], input: &[u8]) -> Done {
    run(requeue(dir, args), input)
}

#[test]
fn many_keys_are_counted_before_they_are_cancelled() {
    let dir = dir();
    let dir = dir.path();
    let keys: String = (0..2500).map(|n| format!("a-{n}\n")).collect();
    assert_eq!(done(dir, &["add"], keys.as_bytes()).status, 0);
    assert_eq!(done(dir, &["add", "--after", "1h", "b-1", "b-2"], b"").status, 0);
    let counted = done(dir, &["cancel", "--prefix", "a-"], b"y\n");
    let why = "requeue: 2500 keys would be cancelled: say --yes, or --expect 2500; nothing was cancelled\n";
    assert_eq!((counted.status, &*counted.err), (1, why), "{counted:?}");
    let counted = done(dir, &["cancel", "--prefix", "b-", "--expect", "3"], b"");
    assert_eq!(counted.err, "requeue: there are 2 keys, and not 3; nothing was cancelled\n", "{counted:?}");
    let cancelled = done(dir, &["cancel", "--prefix", "a-", "--expect", "2500"], b"");
    assert_eq!((cancelled.status, cancelled.text()), (0, "2500\n"), "{cancelled:?}");
    let cancelled = done(dir, &["cancel", "--all", "--yes", "--json"], b"");
    assert_eq!((cancelled.status, cancelled.text()), (0, "{\"cancelled\":2}\n"), "{cancelled:?}");
    let none = done(dir, &["cancel", "--all"], b"");
    assert_eq!((none.status, none.text()), (1, "0\n"), "{none:?}");
    let empty = done(dir, &["cancel", "--prefix", "", "--yes"], b"");
    assert!(empty.status == 2 && empty.err.contains("for all keys say --all"), "{empty:?}");
    for wrong in [&["cancel"][..], &["cancel", "--all", "k"], &["cancel", "--all", "--prefix", "p"]] {
        assert_eq!(done(dir, wrong, b"").status, 2, "{wrong:?}");
    }
}

#[test]
fn beside_a_command_that_works_many_keys_are_cancelled_and_what_runs_goes_on_and_is_listed() {
    let dir = dir();
    let dir = dir.path();
    let gate = Gate::new(dir, "gate");
    assert_eq!(done(dir, &["add", "held", "a", "b"], b"").status, 0);
    let job = start(requeue(dir, &["work", "-j1", "sh", "-c", "echo $REQUEUE_KEY >>$D/ran; cat $D/gate"]));
    let waiting = gate.reached();
    until("the run to be shown", || done(dir, &["ls", "--running"], b"").text() == "held    held\n");
    let top = done(dir, &["top", "--times", "1", "--json"], b"");
    let top: serde_json::Value = serde_json::from_str(top.text()).unwrap();
    assert!(top["held"] == 1 && top["longest_held_seconds"].is_number(), "{top}");
    let cancelled = done(dir, &["cancel", "--all", "--yes"], b"");
    assert_eq!((cancelled.status, cancelled.text()), (0, "2\n"), "{cancelled:?}");
    assert_eq!(done(dir, &["ls"], b"").text(), "held    held\n");
    job.signal(Signal::TERM);
    job.said("nothing more is claimed");
    drop(waiting);
    assert_eq!(job.done().status, 0);
    assert_eq!(read(dir.join("ran")), "held\n");
}

#[test]
fn e29_what_a_stopped_command_is_asked_to_cancel_is_withdrawn_when_it_does_not_answer() {
    let dir = dir();
    let dir = dir.path();
    let gate = Gate::new(dir, "gate");
    assert_eq!(done(dir, &["add", "held", "a", "b", "c"], b"").status, 0);
    let script = "echo $REQUEUE_KEY >>$D/ran; [ $REQUEUE_KEY != held ] || cat $D/gate";
    let job = start(requeue(dir, &["work", "-j1", "sh", "-c", script]));
    let waiting = gate.reached();
    until("the run to be shown", || done(dir, &["ls", "--running"], b"").text() == "held    held\n");
    job.signal(Signal::STOP);
    let cancelled = done(dir, &["cancel", "--all", "--yes"], b"");
    assert!(cancelled.status == 1 && cancelled.text().is_empty(), "{cancelled:?}");
    let why = "the process that works on it does not answer\n";
    assert!(cancelled.err.starts_with("requeue: 0 of 3 keys were cancelled, then: "), "{cancelled:?}");
    assert!(cancelled.err.ends_with(why), "{cancelled:?}");
    job.signal(Signal::CONT);
    drop(waiting);
    until("all keys to run", || read(dir.join("ran")).lines().count() == 4);
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 0);
}

#[test]
fn keys_are_added_with_values_one_for_all_or_one_a_line() {
    let dir = dir();
    let dir = dir.path();
    assert_eq!(done(dir, &["add", "--value", "{\"n\": 1}", "k"], b"").status, 0);
    let lines = b"k\t\"two\"\nno value\nl\t3\nm\tthree\n\n\t4\n";
    let added = done(dir, &["add", "--values"], lines);
    assert_eq!(added.status, 1, "{added:?}");
    assert!(added.err.contains("line 2: there is no tab and no value behind the key"), "{added:?}");
    assert!(added.err.contains("line 4: it is no JSON"), "{added:?}");
    assert!(added.err.contains("line 6: there is no key before the tab"), "{added:?}");
    let wrong = done(dir, &["add", "--value", "one", "k"], b"");
    assert!(wrong.status == 2 && wrong.err.contains("text stands in double quotes"), "{wrong:?}");
    let job = start(requeue(
        dir,
        &["work", "-j1", "sh", "-c", "printf '%s: %s;' $REQUEUE_KEY \"$REQUEUE_PAYLOAD\" >>$D/ran"],
    ));
    until("the runs", || read(dir.join("ran")).matches(';').count() == 2);
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 0);
    assert_eq!(read(dir.join("ran")), "k: {\"n\":1}\n\"two\";l: 3;");
}

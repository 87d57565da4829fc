//! Groups that take turns.

use rustix::process::Signal;

use crate::harness::{Gate, dir, read, requeue, run, script, start, until};

const BLOCKS_AT_GATE: &str =
    "case $REQUEUE_KEY in gate|gate:1) cat $D/gate;; esac; echo $REQUEUE_KEY >> $D/ran";

/// The order in which these keys run, one at a time, after all of them have waited for another key's run.
fn order(args: &[&str], keys: &[u8]) -> String {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let args = [args, &["-j1"]].concat();
    let mut job = start(script(&args, dir.path(), BLOCKS_AT_GATE));
    job.put(if args.contains(&"--priority") { b"0\tgate\n" } else { b"gate\n" });
    let waiting = gate.reached();
    job.put(keys);
    drop(waiting);
    job.close();
    let done = job.done();
    assert_eq!(done.status, 0, "{}", done.err);
    read(dir.path().join("ran")).replace('\n', " ")
}

#[test]
fn keys_of_a_group_wait_for_those_of_the_others() {
    let keys = b"a/1\na/2\na/3\nb/1\na/4\nc\nb/2\n";
    assert_eq!(order(&[], keys), "gate a/1 a/2 a/3 b/1 a/4 c b/2 ");
    assert_eq!(order(&["--group-by", "/"], keys), "gate a/1 b/1 c a/2 b/2 a/3 a/4 ");
}

#[test]
fn an_expression_tells_the_group_and_what_it_does_not_match_is_one_group() {
    let keys = b"x1y\nz1\n-\nx2\n+\nz1y\n";
    assert_eq!(order(&["--group-by", "/[a-z]([0-9])/"], keys), "gate x1y - x2 z1 + z1y ");
}

#[test]
fn the_highest_priority_runs_first_and_groups_take_turns_within_it() {
    let keys = b"0\ta:1\n0\ta:2\n5\ta:3\n5\ta:4\n5\tb:1\n0\tb:2\n";
    let args = ["--group-by", ":", "--priority"];
    assert_eq!(order(&args, keys), "gate a:3 b:1 a:4 a:1 b:2 a:2 ");
}

#[test]
fn max_wait_leaves_the_turns_of_groups_as_they_are() {
    let keys = b"0\ta/1\n0\ta/2\n0\tb/1\n";
    let args = ["--group-by", "/", "--priority", "--max-wait", "0s"];
    assert_eq!(order(&args, keys), "gate a/1 b/1 a/2 ");
}

#[test]
fn no_more_runs_of_a_group_go_on_than_its_cap() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let args = ["--group-by", ":", "--group-cap", "1", "-j4", "--tag"];
    let mut job = start(script(&args, dir.path(), BLOCKS_AT_GATE));
    job.put(b"gate:1\n");
    let waiting = gate.reached();
    // three programs have room: it is the cap that holds the second key of the group
    for key in ["other:1", "third:1", "other:2"] {
        job.put(format!("gate:2\n{key}\n").as_bytes());
        let ran = dir.path().join("ran");
        until("the keys of other groups run", || {
            std::fs::read_to_string(&ran).is_ok_and(|ran| ran.contains(key))
        });
    }
    assert_eq!(read(dir.path().join("ran")), "other:1\nthird:1\nother:2\n");
    drop(waiting);
    job.close();
    let done = job.done();
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!(read(dir.path().join("ran")), "other:1\nthird:1\nother:2\ngate:1\ngate:2\n");
}

#[test]
fn runs_of_a_group_start_as_often_as_its_rate_says_and_those_of_others_go_before() {
    let dir = dir();
    let args = ["--group-by", ":", "--group-rate", "1/h", "-j2", "--log", "json", "--summary", "json"];
    let mut job = start(script(&args, dir.path(), "echo $REQUEUE_KEY >> $D/ran"));
    let ran = dir.path().join("ran");
    let ran = || std::fs::read_to_string(&ran).unwrap_or_default();
    job.put(b"a:1\na:2\nb:1\n");
    until("the first of each group has run", || ran().lines().count() == 2);
    // the group has had its run of this hour, and the others' go on
    job.put(b"a:3\nc:1\n");
    until("another group's key runs", || ran().contains("c:1"));
    let mut lines: Vec<_> = ran().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a:1", "b:1", "c:1"]);
    // the second signal stops what runs
    job.said_times("\"event\":\"done\"", 3);
    job.signal(Signal::INT);
    job.said("working off");
    job.signal(Signal::INT);
    let done = job.done();
    assert_eq!((done.number("runs"), done.number("left")), (3, 2), "{}", done.err);
}

#[test]
fn what_is_wrong_with_groups_is_told() {
    for (args, why) in [
        (&["--group-by", ""][..], "give what ends the group in a key, such as :, or an expression"),
        (&["--group-by", "/(/"], "unclosed group"),
        (&["--group-cap", "2"], "--group-by"),
        (&["--group-rate", "2"], "--group-by"),
        (&["--group-by", ":", "--group-rate", "0"], "give starts a second, such as 10 or 0.5"),
        (&["--group-by", ":", "--group-cap", "0"], "give a number from 1 to 10000"),
    ] {
        let done = run(requeue(&[args, &["echo"]].concat()), b"a\n");
        assert_eq!(done.status, 2, "{args:?}");
        assert!(done.err.contains(why), "{args:?}: {}", done.err);
    }
}

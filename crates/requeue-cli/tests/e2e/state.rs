//! `requeue run --state FILE`: what was accepted goes on after any end.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::harness::{Done, Gate, dir, read, requeue, run, script, start, start_as_set, until};

/// Runs another command while one works, or while there is none.
fn beside(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.args(args).env("REQUEUE_ENGINE", format!("sqlite:{}", dir.join("q.db").display()));
    let done = run(command, b"");
    assert!(done.status <= 1 && done.err.is_empty(), "{args:?}: {done:?}");
    done.text().to_owned()
}

/// The keys of the file, each with its status.
fn keys(dir: &Path) -> Vec<String> {
    let listed = beside(dir, &["ls", "--json"]);
    let keys = listed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let named = |key: serde_json::Value| {
        format!("{} {}", key["key"].as_str().unwrap(), key["status"].as_str().unwrap())
    };
    keys.map(named).collect()
}

fn with_state(dir: &Path, args: &[&str], text: &str) -> Command {
    let state = dir.join("q.db");
    let mut all = vec!["--state", state.to_str().unwrap()];
    all.extend(args);
    script(&all, dir, text)
}

#[test]
fn what_was_accepted_goes_on_after_kill_9_with_its_failures_priority_and_payload() {
    let dir = dir();
    let dir = dir.path();
    let gate = Gate::new(dir, "gate");
    let args = ["-j1", "--priority", "--merge", "concat", "--base-delay", "1h", "--max-delay", "1h"];
    let text = "case $REQUEUE_KEY in fails) exit 1;; held) exec cat $D/gate;; esac";
    let mut job = start(with_state(dir, &args, text));
    job.send(b"5\tfails\t1\n");
    job.said("again in 1h");
    job.send(b"0\theld\t1\n");
    let waiting = gate.reached();
    job.put(b"0\tlow\ta\n0\tlow\tb\xff\n7\thigh\t\n0\theld\t2\n");
    job.signal(Signal::KILL);
    assert_eq!(job.done().status, 1009);
    drop(waiting);
    assert_eq!(keys(dir), ["held ready", "low ready", "high ready", "fails waiting"]);
    assert!(beside(dir, &["retry", "fails"]).contains("ready"));
    let text = "echo $REQUEUE_KEY $REQUEUE_ATTEMPT $REQUEUE_FAILURES
                printf %s \"$REQUEUE_PAYLOAD\" | od -An -tx1 >> $D/payloads";
    let done = run(with_state(dir, &["-j1", "--priority", "--merge", "concat"], text), b"");
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!(done.text(), "high 1 0\nfails 2 1\nheld 1 0\nlow 1 0\n");
    assert!(done.err.contains("4 ready and 0 waiting go on"), "{}", done.err);
    let payloads = read(dir.join("payloads"));
    assert!(payloads.contains(" 61 0a 62 ff\n") && payloads.contains(" 31 0a 32\n"), "{payloads}");
    assert_eq!(keys(dir), [""; 0]);
}

#[test]
fn whenever_it_is_killed_no_accepted_key_is_lost() {
    let dir = dir();
    let dir = dir.path();
    let text = "echo $REQUEUE_KEY >> $D/ran";
    let mut accepted = Vec::new();
    for round in 0..8 {
        let mut job = start(with_state(dir, &["-j2"], text));
        for n in 0..20 {
            job.put(format!("{round}-{n}\n").as_bytes());
            accepted.push(format!("{round}-{n}"));
            if n == round * 2 {
                job.signal(Signal::KILL);
                break;
            }
        }
        assert_eq!(job.done().status, 1009);
    }
    let done = run(with_state(dir, &[], text), b"");
    assert_eq!(done.status, 0, "{}", done.err);
    let ran = read(dir.join("ran"));
    let lost: Vec<_> = accepted.iter().filter(|key| !ran.lines().any(|line| line == **key)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(keys(dir), [""; 0]);
}

#[test]
fn what_others_add_runs_and_a_signal_ends_the_stay() {
    let dir = dir();
    let dir = dir.path();
    let mut job = start(with_state(dir, &["--stay", "--queue", "jobs"], "echo $REQUEUE_KEY $REQUEUE_FENCE"));
    job.close();
    beside(dir, &["add", "--queue", "jobs", "a"]);
    until("a run", || job.out_seen(b"a 2199023255553\n"));
    beside(dir, &["add", "--queue", "jobs", "--after", "1h", "later"]);
    assert!(beside(dir, &["stats", "--queue", "jobs"]).contains(&format!("process {}", job.pid())));
    job.signal(Signal::TERM);
    let done = job.done();
    // a key that waits for its time stays where it is
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.err.contains("1 left"), "{}", done.err);
    assert!(beside(dir, &["ls", "--queue", "jobs"]).starts_with("waiting later  due in "));
}

#[test]
fn what_is_left_ready_gives_the_status_of_a_failure_and_runs_next_time() {
    let dir = dir();
    let dir = dir.path();
    let gate = Gate::new(dir, "gate");
    let mut job =
        start(with_state(dir, &["-j1"], "echo $REQUEUE_KEY; [ $REQUEUE_KEY != held ] || exec cat $D/gate"));
    job.send(b"held\n");
    let waiting = gate.reached();
    job.put(b"ready\n");
    job.signal(Signal::INT);
    job.said("nothing more is claimed");
    job.signal(Signal::INT);
    let done = job.done();
    assert_eq!(done.status, 130, "{}", done.err);
    drop(waiting);
    assert_eq!(keys(dir), ["held ready", "ready ready"]);
    let done = run(with_state(dir, &["-j1"], "echo $REQUEUE_KEY $REQUEUE_ATTEMPT"), b"");
    assert_eq!((done.status, done.text()), (0, "held 1\nready 1\n"), "{}", done.err);
}

#[test]
fn what_gave_up_is_told_of_and_comes_by_retry() {
    let dir = dir();
    let dir = dir.path();
    let done = run(with_state(dir, &["--max-attempts", "1"], "exit 3"), b"a\n");
    assert_eq!(done.status, 1);
    assert_eq!(beside(dir, &["ls"]), "dead    a  'exit status 3'\n");
    assert_eq!(beside(dir, &["retry", "a"]), "ready\n");
    assert_eq!(run(with_state(dir, &[], "true"), b"").status, 0);
    assert_eq!(keys(dir), [""; 0]);
}

#[test]
fn a_key_comes_every_hour_over_restarts() {
    let dir = dir();
    let dir = dir.path();
    beside(dir, &["add", "--every", "1h", "report"]);
    for _ in 0..2 {
        let done = run(with_state(dir, &[], "echo $REQUEUE_KEY"), b"");
        assert_eq!((done.status, done.text()), (0, "report\n"), "{}", done.err);
        let listed = beside(dir, &["ls"]);
        assert!(
            listed.starts_with("waiting report  due in ") && listed.ends_with("  every 1h\n"),
            "{listed}"
        );
        // not yet due
        assert_eq!(run(with_state(dir, &[], "echo $REQUEUE_KEY"), b"").text(), "");
        // it may come at once for once
        beside(dir, &["retry", "report"]);
    }
    assert_eq!(beside(dir, &["cancel", "report"]), "cancelled\n");
    assert_eq!(keys(dir), [""; 0]);
}

#[test]
fn a_second_one_is_told_who_works_and_leaves_it_alone() {
    let dir = dir();
    let dir = dir.path();
    let gate = Gate::new(dir, "gate");
    let mut job = start(with_state(dir, &[], "exec cat $D/gate"));
    job.send(b"held\n");
    let waiting = gate.reached();
    let second = run(with_state(dir, &[], "true"), b"other\n");
    let said = format!("process {} works on it, and one process at a time can", job.pid());
    assert!(second.status == 2 && second.err.contains(&said), "{second:?}");
    drop(waiting);
    job.close();
    assert_eq!(job.done().status, 0);
}

#[test]
fn what_is_no_queue_is_refused_and_stays_as_it_is() {
    let dir = dir();
    let text = dir.path().join("q.db");
    std::fs::write(&text, "no database, but longer than the header of one: ".repeat(9)).unwrap();
    let done: Done = run(with_state(dir.path(), &[], "true"), b"a\n");
    assert!(done.status == 2 && done.err.contains("no SQLite database"), "{done:?}");
    assert!(read(&text).starts_with("no database"));
    let done = run(requeue(&["--state", "/nowhere/q.db", "true"]), b"a\n");
    assert!(done.status == 2 && done.err.contains("/nowhere/q.db"), "{done:?}");
}

/// Files may not grow, as on a disk that is full.
#[test]
#[cfg(target_os = "linux")]
fn while_the_file_cannot_grow_nothing_is_accepted_and_all_goes_on_when_it_can() {
    let dir = dir();
    let dir = dir.path();
    let state = dir.join("q.db");
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -S -f 300; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_requeue")]);
    command.args([
        "run",
        "--state",
        state.to_str().unwrap(),
        "--summary",
        "json",
        "-j1",
        "sh",
        "-c",
        "echo $REQUEUE_KEY",
    ]);
    let keys: Vec<String> = (0..500).map(|n| format!("{n:04}-{}", "x".repeat(1600))).collect();
    let input = dir.join("input");
    std::fs::write(&input, keys.join("\n")).unwrap();
    let job = start_as_set({
        command.stdin(File::open(&input).unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    });
    job.said("nothing more is read until it can be written");
    let pid = Pid::from_raw(i32::try_from(job.pid()).unwrap());
    let _ = prlimit(pid, Resource::Fsize, Rlimit { current: None, maximum: None }).unwrap();
    let done = job.done();
    assert_eq!((done.status, done.number("keys"), done.number("left")), (0, 500, 0), "{}", done.err);
    assert!(done.err.contains("it can be written again"), "{}", done.err);
    assert!(done.lines() == keys, "{} lines", done.lines().len());
}

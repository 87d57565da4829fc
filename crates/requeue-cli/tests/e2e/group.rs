//! The output of a run, in one piece.

use std::process::Stdio;

use crate::harness::{Gate, dir, read, run, script, start};

/// Key `a` writes, waits until `b` has run, and writes more.
const TWO: &str = "echo $0 1; echo $0 2 >&2; [ $0 = b ] || cat $D/gate; echo $0 3; echo $0 4 >&2";

#[test]
fn the_output_of_a_run_comes_in_one_piece_at_its_end() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = start(script(&["-j2", "-q", "--group"], dir.path(), TWO));
    job.send(b"a\n");
    let waiting = gate.reached();
    job.send(b"b\n");
    // both outputs: they are passed on one after the other
    crate::harness::until("the end of b", || job.out_seen(b"b 3\n") && job.err_seen("b 4\n"));
    assert!(!job.out_seen(b"a 1"), "it has not ended");
    drop(waiting);
    job.close();
    let done = job.done();
    assert_eq!((done.status, done.text()), (0, "b 1\nb 3\na 1\na 3\n"));
    assert_eq!(done.err, "b 2\nb 4\na 2\na 4\n");
}

#[test]
fn both_outputs_stay_together_where_they_are_one_file() {
    let dir = dir();
    let path = dir.path().join("all");
    let file = std::fs::File::create(&path).unwrap();
    let mut command = script(&["-j1", "-q", "--group", "--tag"], dir.path(), "echo 1; echo 2 >&2; printf 3");
    command.stdin(Stdio::piped()).stdout(file.try_clone().unwrap()).stderr(file);
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"a\nb\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(read(&path), "a\t1\na\t3\na\t2\nb\t1\nb\t3\nb\t2\n");
}

#[test]
fn many_runs_that_end_together_keep_both_outputs_together() {
    let dir = dir();
    let path = dir.path().join("all");
    let file = std::fs::File::create(&path).unwrap();
    let mut command = script(&["-j8", "-q", "--group"], dir.path(), "echo $0; echo $0 >&2");
    command.stdin(Stdio::piped()).stdout(file.try_clone().unwrap()).stderr(file);
    let mut child = command.spawn().unwrap();
    let keys: String = (0..300).map(|i| format!("{i}\n")).collect();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), keys.as_bytes()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let all = read(&path);
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(lines.len(), 600);
    assert!(lines.chunks(2).all(|pair| pair[0] == pair[1]), "{all}");
}

#[test]
fn more_output_than_memory_is_for_comes_whole() {
    let dir = dir();
    let text = "yes $0 | head -n 500000";
    let done = run(script(&["-j4", "-q", "--group"], dir.path(), text), b"a\nb\nc\nd\n");
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!(done.out.len(), 4 * 1_000_000);
    let mut turns: Vec<&str> = done.text().lines().collect();
    turns.dedup();
    assert_eq!(turns.len(), 4, "each in one piece");
}

#[test]
fn without_room_the_output_is_not_kept_and_not_lost() {
    let dir = dir();
    let mut command =
        script(&["-j1", "--group", "--summary", "off"], dir.path(), "yes $0 | head -n 300000; echo end");
    command.env("TMPDIR", dir.path().join("no/such"));
    let done = run(command, b"a\n");
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!(done.out.len(), 600_004);
    assert!(done.err.contains("is not in one piece") && done.err.lines().count() == 1, "{}", done.err);
}

#[test]
fn a_run_that_fails_or_is_killed_shows_its_output_too() {
    let dir = dir();
    let text = "echo before $0; : > $D/$0; case $0 in a) exit 3;; b) kill -9 $$;; *) sleep 1000;; esac";
    let args = ["-j1", "-q", "--group", "--max-attempts", "1", "--timeout", "2s"];
    let done = run(script(&args, dir.path(), text), b"a\nb\nc\n");
    assert_eq!(done.status, 1, "{}", done.err);
    for key in ["a", "b", "c"] {
        // On a busy machine its time may be over before it has written anything.
        let wrote = dir.path().join(key).exists();
        assert!(!wrote || done.lines().contains(&&*format!("before {key}")), "{}", done.text());
    }
}

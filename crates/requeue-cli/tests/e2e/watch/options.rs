//! Each option of `--watch`.

use super::*;
use crate::harness::run;

fn found(args: &[&str], dir: &Path) -> Vec<String> {
    let mut all = vec!["--watch", ".", "--dry-run"];
    all.extend(args);
    let dry = command(&all, dir, "true").output().unwrap();
    assert!(dry.status.success(), "{}", String::from_utf8_lossy(&dry.stderr));
    let printed = String::from_utf8(dry.stdout).unwrap();
    let mut keys: Vec<_> =
        printed.lines().filter_map(|line| line.rsplit(' ').next()).map(str::to_owned).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn globs_choose_and_ignores_leave_out() {
    let dir = tree(&["a.rs", "a.txt", "sub/b.rs", "target/c.rs", "sub/target/d.rs"]);
    let at = dir.path();
    assert_eq!(
        found(&["--glob", "*.rs"], at),
        ["./a.rs", "./sub/b.rs", "./sub/target/d.rs", "./target/c.rs"]
    );
    assert_eq!(found(&["--glob", "*.rs", "--ignore", "target"], at), ["./a.rs", "./sub/b.rs"]);
    assert_eq!(found(&["--ignore", "/target", "--ignore", "*.txt", "--ignore", "a*"], at).len(), 2);
    assert_eq!(found(&["--glob", "sub/**", "--glob", "*.txt"], at).len(), 3);
}

#[test]
fn gitignore_is_respected_unless_told_not_to() {
    let dir = tree(&["a", "b.log", "sub/keep.log", "sub/b.log", ".git/config", "out/x"]);
    let at = dir.path();
    std::fs::write(at.join("tree/.gitignore"), "*.log\n/out\n").unwrap();
    std::fs::write(at.join("tree/sub/.gitignore"), "!keep.log\n").unwrap();
    assert_eq!(found(&[], at), ["./.gitignore", "./a", "./sub/.gitignore", "./sub/keep.log"]);
    assert_eq!(found(&["--no-gitignore"], at).len(), 8);
    // In a directory of the repository its rules hold too; a root is never hidden itself.
    let mut dry = command(&["--watch", ".", "--dry-run"], at, "true");
    let inner = dry.current_dir(at.join("tree/sub")).output().unwrap();
    let inner = String::from_utf8(inner.stdout).unwrap();
    assert!(inner.contains("keep.log") && !inner.contains("b.log"), "{inner}");
}

#[test]
fn a_gitignore_that_changes_holds_from_then_on() {
    let w = watch(&["--watch", "."], &["a.log", "b"]);
    w.sees_one("./a.log", "old");
    w.write(".gitignore", "*.log");
    w.sees_one("./.gitignore", "*.log");
    w.write("a.log", "hidden");
    w.write("new.log", "hidden");
    w.write("b", "seen");
    w.sees_one("./b", "seen");
    std::fs::remove_file(w.path(".gitignore")).unwrap();
    w.sees_one("./new.log", "hidden");
    let (_, runs) = w.ends_well();
    assert!(!runs.iter().any(|run| run.event == "delete" && run.key.ends_with("a.log")), "{runs:?}");
}

#[test]
fn directories_are_keys_where_asked_for() {
    let dir = tree(&["a", "sub/b"]);
    assert_eq!(found(&["--dirs"], dir.path()), [".", "./a", "./sub", "./sub/b"]);
    let w = watch_with(
        &["--watch", ".", "--dirs"],
        &["a"],
        "[ -d \"$1\" ] && echo \"dir $REQUEUE_EVENT $REQUEUE_REL\" || echo \"no dir $REQUEUE_EVENT $REQUEUE_REL\"",
    );
    until("the root", || w.job.out_seen(b"dir initial .\n"));
    std::fs::create_dir(w.path("new")).unwrap();
    until("the new one", || w.job.out_seen(b"dir write new\n"));
    std::fs::remove_dir(w.path("new")).unwrap();
    until("its end", || w.job.out_seen(b"no dir delete new\n"));
    w.ends_well();
}

/// `doomed` is a root of its own: that it is gone is said after all that happened before.
pub(super) fn all_taken(w: &Watching) {
    std::fs::remove_dir(w.path("doomed")).unwrap();
    w.job.said("doomed is gone");
}

#[test]
fn a_burst_is_one_run_and_the_end_does_not_drop_what_waits_for_quiet() {
    let dir = tree(&["sub/a"]);
    std::fs::create_dir(dir.path().join("tree/doomed")).unwrap();
    let args = ["--watch", "sub", "--watch", "doomed", "--debounce", "1h", "--debounce-max", "1h"];
    let job = start(command(&args, dir.path(), LOOK));
    job.said("watching ");
    let w = Watching { job, dir };
    w.sees_one("sub/a", "old");
    for n in 0..100 {
        w.write("sub/a", &n.to_string());
        w.write("sub/b", &n.to_string());
    }
    all_taken(&w);
    assert_eq!(w.runs().len(), 1, "an hour is not over");
    let (done, runs) = w.ends_well();
    assert_eq!(runs.len(), 3, "{runs:?}");
    assert!(runs[1..].iter().all(|run| run.text == "99" && run.event == "write"), "{runs:?}");
    assert_eq!((done.number("runs"), done.number("keys")), (3, 2));
    assert_eq!(done.number("triggers"), done.number("coalesced") + 3);
}

#[test]
fn a_file_that_is_written_without_end_is_run_all_the_same() {
    // Without --debounce-max it would not be quiet for a second before the test gives up.
    let w = watch(&["--watch", ".", "--debounce", "1s", "--debounce-max", "1s"], &[]);
    let mut n = 0;
    until("a run", || {
        n += 1;
        w.write("a", &n.to_string());
        !w.runs().is_empty()
    });
    w.sees_one("./a", &n.to_string());
    w.ends_well();
}

#[test]
fn debounce_is_for_standard_input_too() {
    let dir = tree(&[]);
    let args = ["--debounce", "1h", "--debounce-max", "1h"];
    let mut job = start(command(&args, dir.path(), LOOK));
    job.put(&b"a\nb\n".repeat(1000));
    job.signal(Signal::TERM);
    let done = job.done();
    // The input had not ended.
    assert_eq!((done.status, done.number("runs"), done.number("left")), (143, 2, 0), "{}", done.err);
}

#[test]
fn resync_runs_every_key_again() {
    let w = watch(&["--watch", ".", "--resync", "20ms"], &["a", "sub/b"]);
    until("several rounds", || {
        let runs = w.runs();
        let of = |key: &str| runs.iter().filter(|run| run.key == Path::new(key)).count();
        of("./a") >= 3 && of("./sub/b") >= 3
    });
    let (_, runs) = w.ends_well();
    assert!(runs.iter().all(|run| run.event == "initial"), "{runs:?}");
}

#[test]
fn keys_come_from_standard_input_too_where_asked_for() {
    let mut w = watch(&["--watch", ".", "--stdin"], &["a"]);
    w.sees_one("./a", "old");
    w.job.send(b"typed\n./a\n");
    w.sees_one("typed", "GONE");
    // The end of the input is not the end.
    w.job.close();
    w.write("b", "new");
    w.sees_one("./b", "new");
    let (_, runs) = w.ends_well();
    let typed: Vec<_> = runs.iter().filter(|run| run.key == Path::new("typed")).collect();
    assert!(typed.iter().all(|run| run.event.is_empty() && run.relative.is_empty()), "{typed:?}");
    assert_eq!(runs.iter().filter(|run| run.key == Path::new("./a")).count(), 2);
}

#[test]
fn a_failing_key_is_tried_without_end_and_at_once_when_it_changes() {
    let w = watch_with(
        &["--watch", ".", "--base-delay", "1h", "--max-delay", "1h", "--log", "json"],
        &["a"],
        &format!("{LOOK}\n[ \"$text\" = good ]"),
    );
    w.job.said("\"event\":\"retry\"");
    w.write("a", "good");
    w.sees_one("./a", "good");
    w.ends_well();
}

#[test]
fn options_of_watch_need_it() {
    for args in [
        &["--stdin"][..],
        &["--dirs"],
        &["--glob", "x"],
        &["--ignore", "x"],
        &["--no-gitignore"],
        &["--resync", "1s"],
        &["--on", "write"],
        &["--no-initial"],
        &["--one"],
    ] {
        let mut command = requeue(args);
        let done = run(
            {
                command.arg("true");
                command
            },
            b"",
        );
        assert_eq!(done.status, 2);
        let why = format!("error: {} needs --watch PATH\n", args[0]);
        assert!(done.err.starts_with(&why), "{}", done.err);
    }
}

/// Each row of the joblog would bring about the next run.
#[test]
fn the_files_that_the_command_itself_writes_are_no_keys() {
    let dir = tree(&["a", ".requeue-notes"]);
    let joblog = dir.path().join("tree/joblog");
    std::os::unix::fs::symlink("tree/left", dir.path().join("link")).unwrap();
    let files = ["--joblog", joblog.to_str().unwrap(), "--failed-to", "failed", "--left-to", "../link"];
    let watched = ["--watch", ".", "--metrics-to", "./metrics"];
    let args = [&watched[..], &files].concat();
    let ended = |expected: &[&str]| {
        let job = start(command(&args, dir.path(), LOOK));
        job.said("watching ");
        let w = Watching { job, dir: crate::harness::dir() };
        until("the runs", || expected.iter().all(|key| seen_keys(dir.path()).contains(&(*key).to_owned())));
        std::fs::write(dir.path().join("tree/b"), "new").unwrap();
        until("the run of the change", || seen_keys(dir.path()).contains(&"./b".to_owned()));
        w.ends_well();
        let mut keys = seen_keys(dir.path());
        keys.sort();
        keys.dedup();
        assert_eq!(keys, ["./.requeue-notes", "./a", "./b"]);
    };
    ended(&["./a", "./.requeue-notes"]);
    // Now all of them are there from the begin on.
    for name in ["joblog", "failed", "metrics"] {
        assert!(dir.path().join("tree").join(name).exists(), "{name}");
    }
    std::fs::remove_file(dir.path().join("tree/b")).unwrap();
    std::fs::remove_file(dir.path().join("seen")).unwrap();
    ended(&["./a", "./.requeue-notes"]);
    let dry = command(&[&args[..], &["--dry-run"]].concat(), dir.path(), "true").output().unwrap();
    assert_eq!(String::from_utf8(dry.stdout).unwrap().lines().count(), 3);
}

fn seen_keys(dir: &Path) -> Vec<String> {
    let text = crate::harness::read(dir.join("seen"));
    text.split('\0').step_by(4).filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

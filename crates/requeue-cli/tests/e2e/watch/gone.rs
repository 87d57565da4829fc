//! Files that come and go, and what is run for them.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::*;
use crate::harness::run;

/// Writes down what it was told, and fails where the file is gone.
const COUNT: &str = r#"printf '%s %s\n' "$REQUEUE_EVENT" "$1" >> "$D/log"; wc -l < "$1" > /dev/null"#;

fn log(dir: &Path) -> Vec<String> {
    crate::harness::read(dir.join("log")).lines().map(str::to_owned).collect()
}

fn has_run(w: &Watching, line: &str) {
    until(line, || log(w.dir.path()).iter().any(|other| other == line));
}

/// Ends the command, which must leave no key and none that gave up.
fn ends_well(w: Watching) -> (Done, Vec<String>) {
    let (done, dir) = w.end();
    let counts = ["left", "gave_up"].map(|name| done.number(name));
    assert_eq!((done.status, counts), (0, [0, 0]), "{}", done.err);
    (done, log(dir.path()))
}

#[test]
fn a_hundred_of_sed_i_leave_nothing_behind() {
    let w = watch_with(&["--watch", "."], &["a"], COUNT);
    has_run(&w, "initial ./a");
    let mut slow = 0;
    for n in 0..100 {
        let mut sed = Command::new("sed");
        let sed = sed.args(["-i", &format!("s/.*/{n}/"), "a"]).current_dir(w.dir.path().join("tree"));
        let began = Instant::now();
        assert!(sed.status().unwrap().success());
        // so long a key of a watch waits for quiet
        slow += usize::from(began.elapsed() >= Duration::from_millis(50));
    }
    w.write("last", "1");
    has_run(&w, "write ./last");
    let (done, log) = ends_well(w);
    // Where this machine was slow a file of sed's lived long enough to be seen, once or twice: then it is
    // told, and so is its deletion.
    let of_sed: HashSet<_> = log.iter().filter_map(|line| line.strip_prefix("write ./sed")).collect();
    assert!(of_sed.len() <= slow, "{slow} of sed's files may have lived for so long: {of_sed:?}");
    let keys = 2 + of_sed.len() as u64;
    assert_eq!(done.number("keys"), keys, "those that were never run are not counted");
}

#[test]
fn a_file_that_is_gone_before_its_run_has_none() {
    // Without quiet the key is ready at once, and waits for the only worker.
    let w = watch_with(
        &["--watch", ".", "--debounce", "0s", "-j", "1"],
        &["a"],
        &format!("{COUNT}; [ \"$REQUEUE_EVENT $1\" != 'write ./block' ] || cat \"$D/gate\""),
    );
    has_run(&w, "initial ./a");
    let gate = crate::harness::Gate::new(w.dir.path(), "gate");
    w.write("block", "1");
    let waiting = gate.reached();
    for name in ["x.tmp", "4913", "sedAbCdE"] {
        w.write(name, "1");
        std::fs::rename(w.path(name), w.path("a")).unwrap();
        // The same name again, which the tree has just told as deleted.
        w.write(name, "2");
        std::fs::remove_file(w.path(name)).unwrap();
    }
    std::fs::remove_file(w.path("block")).unwrap();
    // All earlier events are in the queue when this one is.
    w.write("last", "1");
    drop(waiting);
    // A name that has come and gone in the past stays so.
    has_run(&w, "write ./last");
    let (_, mut log) = ends_well(w);
    log.sort();
    log.dedup();
    assert_eq!(log, ["delete ./block", "initial ./a", "write ./a", "write ./block", "write ./last"]);
}

#[test]
fn a_run_that_failed_for_a_file_that_is_gone_is_run_once_more_for_the_deletion() {
    // The program itself removes the file of its first run, and fails.
    let script = "printf '%s %s %s\\n' \"$REQUEUE_EVENT\" \"$REQUEUE_FAILURES\" \"$1\" >> \"$D/log\"; \
         rm -f \"$1\"; exit 1";
    for more in [&[][..], &["--max-attempts", "1"], &["--fatal-code", "1", "--fail-fast"]] {
        let w = watch_with(&[&["--watch", "."], more].concat(), &["a"], script);
        w.job.said("but the file is gone: ended");
        let (done, log) = ends_well(w);
        // The deletion's own event is no news by then.
        assert_eq!(log, ["initial 0 ./a", "delete 1 ./a"], "{}", done.err);
    }
}

#[test]
fn a_deletion_that_fails_is_tried_twice() {
    // The first run must not fail, also where the file goes before its end.
    let script =
        "printf '%s %s\\n' \"$REQUEUE_EVENT\" \"$1\" >> \"$D/log\"; [ \"$REQUEUE_EVENT\" != delete ]";
    let w = watch_with(&["--watch", "."], &["a"], script);
    has_run(&w, "initial ./a");
    std::fs::remove_file(w.path("a")).unwrap();
    w.job.said("but the file is gone: ended");
    let (done, log) = ends_well(w);
    assert_eq!(log, ["initial ./a", "delete ./a", "delete ./a"]);
    assert_eq!((done.number("runs"), done.number("retries")), (3, 1));
}

#[test]
fn on_chooses_the_events_that_are_run_for() {
    for (args, runs) in [
        (&["--on", "write"][..], &["write ./b", "write ./c"][..]),
        (&["--no-initial"], &["delete ./a", "delete ./b", "write ./b", "write ./c"]),
        (&["--on", "delete,initial"], &["delete ./a", "delete ./b", "initial ./a"]),
        (&["--on", "initial"], &["initial ./a"]),
    ] {
        let script = "printf '%s %s\\n' \"$REQUEUE_EVENT\" \"$1\" >> \"$D/log\"";
        let dir = tree(&["a"]);
        std::fs::create_dir(dir.path().join("doomed")).unwrap();
        let roots = ["--watch", ".", "--watch", "../doomed", "-j", "1"];
        let job = start(command(&[&roots, args].concat(), dir.path(), script));
        job.said("watching ");
        let w = Watching { job, dir };
        let wait = |w: &Watching, line: &str| {
            if runs.contains(&line) {
                has_run(w, line);
            }
        };
        wait(&w, "initial ./a");
        w.write("b", "1");
        std::fs::remove_dir(w.dir.path().join("doomed")).unwrap();
        w.job.said("doomed is gone");
        wait(&w, "write ./b");
        std::fs::remove_file(w.path("b")).unwrap();
        wait(&w, "delete ./b");
        std::fs::remove_file(w.path("a")).unwrap();
        wait(&w, "delete ./a");
        w.write("c", "1");
        wait(&w, "write ./c");
        let (_, mut log) = ends_well(w);
        log.sort();
        log.dedup();
        assert_eq!(log, runs, "{args:?}");
    }
}

#[test]
fn a_resync_is_asked_for_also_without_initial_runs() {
    let w = watch_with(&["--watch", ".", "--no-initial", "--resync", "20ms"], &["a"], COUNT);
    has_run(&w, "initial ./a");
    ends_well(w);
}

#[test]
fn a_dry_run_prints_what_would_be_run_at_the_start() {
    let dir = tree(&["a", "sub/b"]);
    let printed = |args: &[&str]| {
        let args = [&["--watch", ".", "--dry-run"], args].concat();
        let mut dry = requeue(&args);
        let done = run(
            {
                dry.args(["echo", "x"]).current_dir(dir.path().join("tree"));
                dry
            },
            b"",
        );
        assert_eq!(done.status, 0, "{}", done.err);
        done.lines().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(printed(&[]), ["echo x ./a", "echo x ./sub/b"]);
    assert!(printed(&["--on", "write,delete"]).is_empty());
    assert_eq!(printed(&["--one"]), ["echo x"]);
}

#[test]
fn all_changes_are_one_key_where_asked_for() {
    let dir = tree(&["src/a", "src/b", "doc/c"]);
    std::fs::create_dir(dir.path().join("tree/doomed")).unwrap();
    let roots = ["--watch", "src", "--watch", "doc", "--watch", "doomed"];
    let script = "echo \"run $# $REQUEUE_KEY\"; [ $REQUEUE_EVENT != initial ] || cat \"$D/gate\"";
    let mut command = requeue(&["--summary", "json", "--one", "--debounce", "0s"]);
    command.args(roots).args(["sh", "-c", script, "sh"]).env("D", dir.path());
    command.current_dir(dir.path().join("tree"));
    let gate = crate::harness::Gate::new(dir.path(), "gate");
    let job = start(command);
    let first = gate.reached();
    job.said("watching ");
    let w = Watching { job, dir };
    // While it runs, much changes; some of it is gone again.
    for n in 0..20 {
        w.write("src/a", &n.to_string());
        w.write("doc/new", &n.to_string());
        std::fs::remove_file(w.path("doc/new")).unwrap();
    }
    options::all_taken(&w);
    drop(first);
    let (done, _dir) = w.end();
    assert_eq!((done.status, done.number("keys"), done.number("left")), (0, 1, 0), "{}", done.err);
    assert_eq!(done.text(), "run 0 src\nrun 0 src\n");
}

#[test]
fn a_failing_run_for_all_changes_waits_for_the_next_change() {
    let w = watch_with(&["--watch", ".", "--one"], &["a"], "grep -q good a && echo well");
    w.job.said(".: exit status 1 (attempt 1 of 1), gave up");
    w.write("a", "good");
    until("the run that ends well", || w.job.out_seen(b"well\n"));
    let (done, _) = w.end();
    assert_eq!((done.status, done.number("gave_up")), (0, 0), "{}", done.err);
}

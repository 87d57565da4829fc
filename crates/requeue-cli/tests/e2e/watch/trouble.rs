//! Obstacles, and their messages.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant, SystemTime};

use super::*;
use crate::harness::run;

#[test]
fn a_path_that_is_not_there_is_refused() {
    let dir = tree(&["a"]);
    for (path, why) in [
        ("nope", "nope: cannot be watched: there is no such file or directory"),
        ("a/b", "a/b: cannot be watched: there is no such file or directory"),
        ("/dev/null", "/dev/null: cannot be watched: it is neither a file nor a directory"),
    ] {
        let done = run(command(&["--watch", ".", "--watch", path], dir.path(), LOOK), b"");
        assert_eq!(done.status, 2, "{}", done.err);
        assert_eq!(done.err, format!("requeue: {why}\n"));
    }
}

#[test]
fn a_glob_that_is_none_is_refused() {
    let dir = tree(&[]);
    let done = run(command(&["--watch", ".", "--ignore", "["], dir.path(), LOOK), b"");
    assert_eq!(done.status, 2);
    assert!(done.err.starts_with("requeue: \"[\" is not a glob: "), "{}", done.err);
}

#[test]
fn a_debounce_that_is_longer_than_its_maximum_is_refused() {
    let dir = tree(&[]);
    let done = run(command(&["--watch", ".", "--debounce", "2s"], dir.path(), LOOK), b"");
    assert_eq!(done.status, 2);
    let why = "--debounce 2s is longer than its maximum, 1s by default: give --debounce 2s:MAX";
    assert!(done.err.contains(why), "{}", done.err);
}

#[test]
fn a_program_that_writes_its_own_key_is_noticed() {
    let script = "echo x >> \"$1\"; echo \"$1\" >> \"$D/ran\"";
    let w = watch_with(&["--watch", "."], &["a"], script);
    w.job.said("./a: changed during each of its last 5 runs");
    // It is said, not stopped: the program may have its reasons.
    let so_far = crate::harness::read(w.dir.path().join("ran")).lines().count();
    until("a further run", || crate::harness::read(w.dir.path().join("ran")).lines().count() > so_far);
    let (done, _) = w.ends_well();
    assert_eq!(done.err.matches("during each of its last").count(), 1, "{}", done.err);
}

#[test]
fn two_files_whose_runs_write_each_other_are_noticed() {
    let script = "case $1 in ./a) echo x >> b ;; *) echo x >> a ;; esac";
    let w = watch_with(&["--watch", ".", "-j", "1"], &["a"], script);
    w.job.said(": changed during each of its last 5 runs, or the runs that those brought about");
    let (done, _) = w.end();
    assert_eq!(done.err.matches("changed during each").count(), 1, "{}", done.err);
}

#[test]
fn output_beside_its_input_is_noticed() {
    for args in [&["-j", "1"][..], &["-j", "4", "--debounce", "0s"]] {
        // The names grow until the system takes them no more.
        let script = "cp \"$1\" \"$1.thumb\"";
        let w = watch_with(&[&["--watch", "."], args].concat(), &["p", "q"], script);
        w.job.said(".thumb: made while the program ran for ");
        let (done, _) = w.end();
        assert_eq!(done.err.matches("made while").count(), 1, "{}", done.err);
    }
}

#[test]
fn somebody_who_writes_a_file_all_the_time_is_no_loop() {
    // The writer makes no pause as long as the time for which a run is put off. If the machine made it pause,
    // the test tries again.
    let (pause, said) =
        (0..10).map(|_| written_all_the_time()).find(|it| it.0 < TRIAL || it.1.is_empty()).unwrap();
    assert_eq!(said, "", "the longest pause was {pause:?}");
}

/// The shortest time for which a run is put off to see whether somebody else writes its file.
const TRIAL: Duration = Duration::from_millis(100);

/// The longest pause of who writes a file, and what is said of a loop.
fn written_all_the_time() -> (Duration, String) {
    // Each run lasts until the file has changed during it, as a slow one always would.
    let script = "echo run >> \"$D/ran\"; was=$(cat \"$1\"); \
         while [ \"$(cat \"$1\")\" = \"$was\" ]; do sleep 0.01; done";
    let w = watch_with(&["--watch", "."], &["a"], script);
    let (mut n, mut last, mut pause) = (0, Instant::now(), Duration::ZERO);
    let mut write = |w: &Watching| {
        n += 1;
        w.write("a", &n.to_string());
        pause = pause.max(last.elapsed());
        last = Instant::now();
        std::thread::sleep(Duration::from_millis(10));
    };
    until("twenty runs", || {
        write(&w);
        crate::harness::read(w.dir.path().join("ran")).lines().count() >= 20
    });
    // So that the last run ends, too.
    w.job.signal(Signal::TERM);
    until("the end of the last run", || {
        write(&w);
        w.job.err_seen("\"exit_status\"")
    });
    let done = w.job.done();
    let said = done.err.lines().filter(|line| line.contains("changed during")).collect();
    (pause, said)
}

#[test]
fn a_program_that_writes_beside_its_key_is_no_loop() {
    let script = "cat \"$1\" > \"$D/out\"";
    let w = watch_with(&["--watch", ".", "--debounce", "0s", "--log", "json"], &["a"], script);
    for n in 0..20 {
        // A change that comes while the program runs could be its own, and so could one
        // in the same tick of the file system's clock as its end.
        w.job.said_times("\"event\":\"done\"", n + 1);
        let (ended, probe) = (SystemTime::now(), w.dir.path().join("probe"));
        until("a tick", || {
            std::fs::write(&probe, "").unwrap();
            probe.metadata().unwrap().modified().unwrap() > ended
        });
        w.write("a", &n.to_string());
    }
    let (done, _) = w.ends_well();
    assert!(!done.err.contains("during each"), "{}", done.err);
}

/// The command as somebody whom permissions bind; none if that cannot be had here.
fn as_nobody(dir: &Path, args: &[&str]) -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        return Some(command(args, dir, LOOK));
    }
    let probe = Command::new("setpriv").arg("--version").output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return None;
    }
    // The program may have been built in a folder that another user cannot enter.
    let ours = dir.join("requeue");
    crate::harness::executable(&ours, &std::fs::read(env!("CARGO_BIN_EXE_requeue")).unwrap());
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(ours);
    command.args(["run", "--summary", "json"]).args(args).args(["sh", "-c", LOOK, "sh"]);
    command.env("D", dir).current_dir(dir.join("tree"));
    Some(command)
}

#[test]
fn a_directory_without_permission_is_said_once_and_the_rest_goes_on() {
    let dir = tree(&["a", "closed/b"]);
    let closed = dir.path().join("tree/closed");
    let mode = |mode| std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o000);
    let Some(command) = as_nobody(dir.path(), &["--watch", "."]) else {
        println!("SKIPPED: root, and no setpriv to be somebody else");
        mode(0o755);
        return;
    };
    let job = start(command);
    job.said("./closed: cannot be read: ");
    job.said("watching 1 file in 1 directory");
    let w = Watching { job, dir };
    w.write("c", "new");
    w.sees_one("./c", "new");
    // It is tried again.
    mode(0o755);
    w.sees_one("./closed/b", "old");
    w.write("closed/b", "new");
    w.sees_one("./closed/b", "new");
    let (done, _) = w.ends_well();
    assert_eq!(done.err.matches("cannot be read").count(), 1, "{}", done.err);
}

/// In a user namespace the limit is one's own, and can be lowered.
fn with_ten_watches(dir: &Path, args: &[&str]) -> Command {
    let inner = command(args, dir, LOOK);
    let mut outer = Command::new("unshare");
    let script = "echo 10 > /proc/sys/user/max_inotify_watches && exec \"$@\"";
    outer.args(["-U", "-r", "sh", "-c", script, "sh"]).arg(inner.get_program()).args(inner.get_args());
    outer.env("D", dir).current_dir(dir.join("tree"));
    outer
}

fn namespaces() -> bool {
    let script = "echo 10 > /proc/sys/user/max_inotify_watches";
    let probe = Command::new("unshare").args(["-U", "-r", "sh", "-c", script]).output();
    let there = probe.is_ok_and(|output| output.status.success());
    if !there {
        println!("SKIPPED: no user namespaces, in which the limit on watches could be lowered");
    }
    there
}

#[test]
fn without_watches_left_it_says_which_limit_and_how_much_it_should_be() {
    if !namespaces() {
        return;
    }
    let dir = tree(&[]);
    for n in 0..30 {
        std::fs::create_dir(dir.path().join(format!("tree/{n}"))).unwrap();
    }
    let done = run(with_ten_watches(dir.path(), &["--watch", "."]), b"");
    assert_eq!(done.status, 1, "{}", done.err);
    assert!(done.err.contains("no inotify watch is left for it"), "{}", done.err);
    assert!(done.err.contains("\"sysctl fs.inotify.max_user_watches="), "{}", done.err);
}

#[test]
fn when_watches_run_out_later_what_is_known_is_worked_off() {
    if !namespaces() {
        return;
    }
    let dir = tree(&["a"]);
    let job = start(with_ten_watches(dir.path(), &["--watch", "."]));
    job.said("watching ");
    let w = Watching { job, dir };
    w.sees_one("./a", "old");
    w.write("a", "new");
    for n in 0..30 {
        std::fs::create_dir(w.path(&n.to_string())).unwrap();
    }
    let done = w.job.done();
    assert_eq!(done.status, 1, "{}", done.err);
    assert!(done.err.contains("no inotify watch is left for it"), "{}", done.err);
    let last = runs(w.dir.path()).pop().unwrap();
    assert_eq!(last.text, "new", "the debounced run was not dropped");
}

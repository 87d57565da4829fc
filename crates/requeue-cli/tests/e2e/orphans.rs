//! Programs of a command that was killed: they end, and no other command runs their keys before.

use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::harness::{Job, alive, dir, read, run, start, until};

/// `requeue work ARGS sh -c SCRIPT` on a file with these keys.
fn work(dir: &Path, args: &[&str], keys: &[&str], text: &str) -> Job {
    let engine = format!("sqlite:{}", dir.join("q.db").display());
    let requeue = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
        command.env("REQUEUE_ENGINE", &engine).env("D", dir);
        command
    };
    if !keys.is_empty() {
        let mut add = requeue();
        add.arg("add").args(keys);
        assert_eq!(run(add, b"").status, 0);
    }
    let mut work = requeue();
    work.arg("work").args(args).args(["sh", "-c", text]);
    start(work)
}

/// Waits until the file has something, which it has at once, and gives it.
fn text(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    until("a file", || read(path).ends_with('\n'));
    read(path).trim().to_owned()
}

/// The process that ends the programs of this one.
fn reaper(of: &Job) -> Pid {
    let of = of.pid().to_string();
    let is_it = |pid: &str| {
        let stat = read(format!("/proc/{pid}/stat"));
        let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1));
        parent == Some(&*of) && stat.contains("(run-reaper)")
    };
    let mut found = None;
    until("its name", || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        found = processes.filter_map(|it| it.file_name().into_string().ok()).find(|pid| is_it(pid));
        found.is_some()
    });
    Pid::from_raw(found.unwrap().parse().unwrap()).unwrap()
}

#[test]
fn e38_programs_end_when_their_command_is_killed_and_what_they_started_too() {
    let dir = dir();
    let dir = dir.path();
    let script = "sleep 1000 & echo $! >$D/of-$REQUEUE_KEY; echo $$ >$D/$REQUEUE_KEY; wait";
    let job = work(dir, &["-j2"], &["a", "b"], script);
    let programs = ["a", "b", "of-a", "of-b"].map(|name| text(dir.join(name)));
    assert!(programs.iter().all(|pid| alive(pid)));
    job.signal(Signal::KILL);
    job.done();
    until("their end", || !programs.iter().any(|pid| alive(pid)));
}

#[test]
fn e38_a_program_that_is_stopped_ends_too() {
    let dir = dir();
    let dir = dir.path();
    let job = work(dir, &["--grace", "100ms"], &["a"], "echo $$ >$D/a; exec sleep 1000");
    let program = text(dir.join("a"));
    let pid = Pid::from_raw(program.parse().unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    job.said("the program was stopped");
    job.signal(Signal::KILL);
    job.done();
    until("its end", || !alive(&program));
}

#[test]
fn e38_the_next_command_runs_no_key_before_the_orphan_of_the_last_one_has_ended() {
    let dir = dir();
    let dir = dir.path();
    // It takes longer to end than a command waits for another one that works.
    let deaf = "trap : TERM; echo $$ >$D/first; while :; do sleep 0.1; done";
    let script = format!(
        "[ -e $D/first ] || {{ {deaf}; }}; ps -o stat= -p $(cat $D/first) | grep -v Z; echo ran >>$D/second"
    );
    let job = work(dir, &["--grace", "2s"], &["a"], &script);
    let program = text(dir.join("first"));
    job.signal(Signal::KILL);
    until("the end of the command", || !alive(&job.pid().to_string()));
    // The last one that closes the file takes its log away.
    let next = work(dir, &[], &["b"], &script);
    assert!(text(dir.join("second")).starts_with("ran"));
    assert!(!alive(&program));
    next.signal(Signal::TERM);
    let (first, next) = (job.done(), next.done());
    assert_eq!(next.text(), "", "the orphan was there");
    assert_eq!((first.status, next.status), (1009, 0), "{next:?}");
}

#[test]
fn e38_whoever_kills_the_group_of_a_command_ends_its_programs_too() {
    use std::os::unix::process::CommandExt as _;
    let dir = dir();
    let dir = dir.path();
    let engine = format!("sqlite:{}", dir.join("q.db").display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.env("REQUEUE_ENGINE", &engine).env("D", dir).process_group(0);
    let mut add = Command::new(env!("CARGO_BIN_EXE_requeue"));
    assert_eq!(
        run(
            {
                add.args(["add", "--engine", &engine, "a"]);
                add
            },
            b""
        )
        .status,
        0
    );
    command.args(["work", "sh", "-c", "echo $$ >$D/a; exec sleep 1000"]);
    let job = start(command);
    let program = text(dir.join("a"));
    kill_process_group(Pid::from_raw(job.pid().cast_signed()).unwrap(), Signal::KILL).unwrap();
    job.done();
    until("its end", || !alive(&program));
}

#[test]
#[cfg(target_os = "linux")]
fn e38_the_process_that_ends_programs_is_started_again_if_it_is_killed() {
    let dir = dir();
    let dir = dir.path();
    let job = work(dir, &["-j2"], &["a"], "echo $$ >$D/$REQUEUE_KEY; exec sleep 1000");
    let first = text(dir.join("a"));
    let before = reaper(&job);
    kill_process(before, Signal::KILL).unwrap();
    until("its end", || !alive(&before.to_string()));
    let engine = format!("sqlite:{}", dir.join("q.db").display());
    let mut add = Command::new(env!("CARGO_BIN_EXE_requeue"));
    add.args(["add", "--engine", &engine, "b"]);
    assert_eq!(run(add, b"").status, 0);
    let second = text(dir.join("b"));
    // The one that was there before is known to the new process as well.
    job.signal(Signal::KILL);
    job.done();
    until("their end", || !alive(&first) && !alive(&second));
}

#[test]
fn e38_a_program_that_left_its_group_and_one_whose_run_has_ended_are_the_users_own() {
    let dir = dir();
    let dir = dir.path();
    let script =
        "[ $REQUEUE_KEY = b ] || { sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >$D/left; exit 0; }
        setsid sh -c 'echo $$ >$D/daemon; exec sleep 1000' & echo $$ >$D/b; wait";
    let job = work(dir, &["-j1"], &["a", "b"], script);
    let [left, daemon, program] = ["left", "daemon", "b"].map(|name| text(dir.join(name)));
    job.signal(Signal::KILL);
    until("its end", || !alive(&program));
    let next = work(dir, &[], &["c"], "echo ran >$D/c");
    text(dir.join("c"));
    assert!(alive(&left) && alive(&daemon));
    for pid in [&left, &daemon] {
        kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    }
    next.signal(Signal::TERM);
    next.done();
    job.done();
}

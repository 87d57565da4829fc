//! Shortages: the system has too little for as many programs as were asked for.

#[cfg(target_os = "linux")]
use std::io::Read as _;
#[cfg(target_os = "linux")]
use std::os::unix::process::CommandExt as _;
use std::process::Command;
#[cfg(target_os = "linux")]
use std::process::Stdio;

#[cfg(target_os = "linux")]
use rustix::process::Signal;

use crate::harness::{Done, dir, read, run};
#[cfg(target_os = "linux")]
use crate::harness::{Gate, start, start_as_set};
#[cfg(target_os = "linux")]
use crate::people::terminal;

/// The command under limits of the shell, on so many keys.
fn limited(limits: &str, args: &str, keys: u32) -> Done {
    limited_by(Command::new("sh"), limits, args, keys)
}

/// The command under limits, with a shell of the caller's choice.
fn limited_by(mut command: Command, limits: &str, args: &str, keys: u32) -> Done {
    let line = format!("{limits}; exec \"$0\" run --summary json {args}");
    command.args(["-c", &line, env!("CARGO_BIN_EXE_requeue")]);
    let input: String = (0..keys).map(|key| format!("{key}\n")).collect();
    run(command, input.as_bytes())
}

fn nothing_was_lost(done: &Done, keys: u64) {
    assert_eq!(done.status, 0, "{}", done.err);
    let numbers = ["runs", "retries", "gave_up", "left"].map(|name| done.number(name));
    assert_eq!(numbers, [keys, 0, 0, 0], "{}", done.err);
}

#[test]
fn too_few_descriptors_are_no_failure_of_a_key_and_are_told_of_once() {
    // Sixty at a time would need nearly two hundred.
    let done = limited("ulimit -n 64", "-j 60 sh -c 'sleep 0.1'", 200);
    nothing_was_lost(&done, 200);
    assert_eq!(done.err.matches("fewer programs than asked for run at once").count(), 1, "{}", done.err);
    assert_eq!(done.err.lines().count(), 2, "{}", done.err);
}

#[test]
fn too_few_descriptors_for_one_program_are_told_of_with_how_many_are_needed() {
    let done = limited("ulimit -n 12", "-j1 true", 1);
    assert_eq!(done.status, 1, "{}", done.err);
    let (_, after) = done.err.split_once("the limit is 12, and ").unwrap_or_else(|| panic!("{}", done.err));
    let (needed, _) = after.split_once(" are needed; raise it with ulimit -n\n").unwrap();
    let needed: u32 = needed.parse().unwrap();
    // More than three where the test itself has inherited some.
    assert!(needed >= 21, "{needed}");
    nothing_was_lost(&limited(&format!("ulimit -n {needed}"), "-j1 true", 3), 3);
    let done = limited(&format!("ulimit -n {}", needed - 1), "-j1 true", 1);
    assert!(done.status == 1 && done.err.contains(&format!("and {needed} are needed")), "{}", done.err);
}

#[test]
fn with_1024_descriptors_400_at_a_time_lose_nothing() {
    // Long enough that 400 would run at a time, with three descriptors each.
    nothing_was_lost(&limited("ulimit -n 1024", "-j 400 sh -c 'sleep 3'", 400), 400);
}

#[test]
fn a_file_that_may_not_grow_any_more_is_an_error_and_not_the_end() {
    let dir = dir();
    let (joblog, failed) = (dir.path().join("joblog"), dir.path().join("failed"));
    let files = format!("--joblog {} --failed-to {}", joblog.display(), failed.display());
    // One block holds some of the rows, and all of the keys.
    let program = "sh -c 'test $(ulimit -f) = 1 && kill -XFSZ $$'";
    let done = limited("ulimit -f 1", &format!("-j1 --max-attempts 1 {files} {program}"), 60);
    assert_eq!((done.status, done.number("gave_up")), (1, 60), "{}", done.err);
    assert!(done.err.contains("File too large") && done.err.contains("runs are not in it"), "{}", done.err);
    // The programs are ended by it as ever.
    assert_eq!(done.err.matches("killed by SIGXFSZ (attempt").count(), 60, "{}", done.err);
    assert_eq!(read(&failed).lines().count(), 60);
    // Not even its first line.
    let new = dir.path().join("new");
    let done = limited("ulimit -f 0", &format!("-j1 --joblog {} true", new.display()), 1);
    assert!(done.status == 2 && done.err.contains("File too large"), "{}", done.err);
}

#[test]
fn e27_an_add_to_a_file_that_may_not_grow_is_not_killed_and_says_how_many_keys_were_added() {
    let dir = dir();
    let requeue = |shell: &str, input: &[u8]| {
        let mut command = Command::new("sh");
        command.args(["-c", shell, env!("CARGO_BIN_EXE_requeue")]);
        command.env("REQUEUE_ENGINE", format!("sqlite:{}", dir.path().join("q.db").display()));
        run(command, input)
    };
    let keys: String = (0..20_000).map(|key| format!("{key}\n")).collect();
    let done = requeue("ulimit -f 600; exec \"$0\" add", keys.as_bytes());
    assert_eq!(done.status, 1, "{}", done.err);
    let (before, _) = done.err.split_once(" keys were added; ").unwrap_or_else(|| panic!("{}", done.err));
    let added: u64 = before.rsplit(' ').next().unwrap().parse().unwrap();
    let stats = requeue("exec \"$0\" stats --json", b"");
    let stats: serde_json::Value = serde_json::from_str(stats.text()).unwrap();
    assert!(added > 0 && stats["ready"].as_u64() >= Some(added), "{} {stats}", done.err);
}

#[cfg(target_os = "linux")]
#[test]
fn with_little_address_space_fewer_run_at_once_and_nothing_is_lost() {
    let done = limited("ulimit -v 200000", "-j 400 true", 100);
    nothing_was_lost(&done, 100);
    assert!(done.err.starts_with("requeue: little address space (ulimit -v): "), "{}", done.err);
}

#[cfg(target_os = "linux")]
#[test]
fn with_few_processes_the_workers_leave_some_to_the_programs() {
    let mut bash = Command::new("bash");
    let (most, asked, started) = if become_nobody_else(&mut bash, 0).is_some() {
        (12, 20, 2)
    } else {
        // Whatever else runs of this user counts, too.
        (3000, 1100, 998)
    };
    // Each program starts another, which must not fail either.
    let forks = format!("--max-attempts 1 -j {asked} sh -c 'sleep 0.02; true'");
    let done = limited_by(bash, &format!("ulimit -u {most}"), &forks, 30);
    nothing_was_lost(&done, 30);
    let said = format!("requeue: few processes (ulimit -u): it goes on as with -j {started}\n");
    assert!(done.err.starts_with(&said), "{}", done.err);
}

/// Makes the command one of a user of whom nothing else runs, because root has no limit on
/// its processes. `None`, and nothing is done, where we may not. Tests beside each other
/// have numbers of their own.
#[cfg(target_os = "linux")]
fn become_nobody_else(command: &mut Command, number: u32) -> Option<u32> {
    let user = 20_000 + std::process::id() % 40_000 * 8 + number;
    rustix::process::getuid().is_root().then(|| {
        command.uid(user).gid(user).current_dir("/");
        user
    })
}

/// `requeue run ARGS` of such a user, under this limit on processes. `before` is run by the
/// shell that then becomes the command.
#[cfg(target_os = "linux")]
fn with_processes(number: u32, most: u32, before: &str, args: &str) -> Option<(Command, u32)> {
    // Other shells have another letter for this limit, or none.
    let mut bash = Command::new("bash");
    let user = become_nobody_else(&mut bash, number)?;
    let line = format!("ulimit -u {most}; {before} exec \"$0\" run {args}");
    bash.args(["-c", &line, env!("CARGO_BIN_EXE_requeue")]);
    Some((bash, user))
}

#[cfg(target_os = "linux")]
#[test]
fn too_few_processes_for_one_program_are_told_of_with_how_many_are_needed() {
    // Nothing is started that this could be short of, so it may be any user but root.
    let Some((command, _)) = with_processes(1, 4, "", "--max-attempts 1 sh -c 'sleep 0; true'") else {
        return;
    };
    let done = run(command, b"a\n");
    let said =
        "requeue: too few processes are allowed: the limit is 4, and 5 are needed; raise it with ulimit -u\n";
    assert_eq!((done.status, &*done.err), (1, said));
    let (command, _) = with_processes(1, 5, "", "--max-attempts 1 -q sh -c 'sleep 0; true'").unwrap();
    let done = run(command, b"a\nb\nc\n");
    assert_eq!((done.status, done.err.contains("fork")), (0, false), "{}", done.err);
}

/// The command, which has so many other processes of its user beside it: they end when the
/// pipe that is returned is closed. Its input is empty.
#[cfg(target_os = "linux")]
fn beside_others(number: u32, others: usize, args: &str) -> Option<(Command, std::os::fd::OwnedFd)> {
    let (theirs, ours) = crate::harness::pipe();
    let before = "cat <&0 >/dev/null 2>&1 & ".repeat(others);
    let (mut command, _) = with_processes(number, 5, &before, &format!("{args} </dev/null"))?;
    command.stdin(theirs).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some((command, ours))
}

#[cfg(target_os = "linux")]
#[test]
fn a_thread_that_cannot_be_had_is_told_of_and_is_no_panic() {
    let watched = dir();
    std::fs::set_permissions(watched.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // The reader of the input beside a watch; the worker.
    let watch = format!("-j1 --stdin --watch {} true", watched.path().display());
    for (number, others, args) in [(2, 2, &*watch), (3, 3, "-j1 true")] {
        let Some((command, _others)) = beside_others(number, others, args) else { return };
        let done = start_as_set(command).done();
        assert_eq!(done.status, 1, "{}", done.err);
        assert!(done.err.contains("requeue: no thread could be started: "), "{}", done.err);
        assert!(!done.err.contains("panicked"), "{}", done.err);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_engine_that_gets_no_thread_says_so_and_is_no_panic() {
    // The shell becomes the command, so that no other process of its user is there.
    for (number, args) in [(6, "ls"), (7, "work true")] {
        let mut bash = Command::new("bash");
        if become_nobody_else(&mut bash, number).is_none() {
            return;
        }
        let line = format!("ulimit -u 1; exec \"$0\" {args}");
        bash.args(["-c", &line, env!("CARGO_BIN_EXE_requeue")]);
        bash.env("REQUEUE_ENGINE", "postgres://a@localhost/b");
        let done = run(bash, b"");
        assert_eq!(done.status, 1, "{}", done.err);
        assert!(done.err.starts_with("requeue: no thread could be started: "), "{}", done.err);
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn without_a_thread_for_the_progress_there_is_none_and_no_panic() {
    let (ours, theirs) = terminal();
    let Some((mut command, _others)) = beside_others(4, 3, "-j1 true") else { return };
    command.stderr(theirs);
    let job = start_as_set(command);
    let mut said = Vec::new();
    // Reading a terminal that no process has open any more is an error.
    let _ = std::fs::File::from(ours).read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("requeue: no thread could be started: ") && !said.contains("panicked"), "{said}");
    assert_eq!(job.done().status, 1, "{said}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_is_told_of_where_no_thread_is_left_for_it() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    // The command has two threads and a worker; with these two its user has no more.
    let held = format!("-j1 sh -c 'cat {}; true'", dir.path().join("gate").display());
    let Some((command, user)) = with_processes(5, 5, "", &held) else { return };
    for path in [dir.path(), &dir.path().join("gate")] {
        std::os::unix::fs::chown(path, Some(user), None).unwrap();
    }
    let mut job = start(command);
    job.send(b"a\n");
    let waiting = gate.reached();
    job.signal(Signal::INT);
    job.said("requeue: SIGINT: working off what is ready; once more to stop");
    drop(waiting);
    assert_eq!(job.done().status, 130);
}

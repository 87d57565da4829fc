//! What happens where the system has too little for as many programs as were asked for.

#[cfg(target_os = "linux")]
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::harness::{Done, run};

/// The command under limits of the shell, on so many keys.
fn limited(limits: &str, args: &str, keys: u32) -> Done {
    limited_by(Command::new("sh"), limits, args, keys)
}

/// The same with a shell of the caller's choice.
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
    // Other shells have another letter for this limit, or none.
    let mut bash = Command::new("bash");
    let (most, asked, started) = if rustix::process::getuid().is_root() {
        // Root has no such limit, so this is a user of whom nothing else runs.
        let user = 20_000 + std::process::id() % 40_000;
        bash.uid(user).gid(user).current_dir("/");
        (12, 20, 4)
    } else {
        // Whatever else runs of this user counts, too.
        (3000, 1100, 1000)
    };
    let done = limited_by(bash, &format!("ulimit -u {most}"), &format!("-j {asked} true"), 30);
    nothing_was_lost(&done, 30);
    let said = format!("requeue: few processes (ulimit -u): it goes on as with -j {started}\n");
    assert!(done.err.starts_with(&said), "{}", done.err);
}

//! Programs that want a terminal which is not theirs.
#![cfg(target_os = "linux")]

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use crate::harness::{Gate, dir, read, start_as_set, until};
use crate::people::terminal;

/// `requeue run ARGS sh -c SCRIPT` on the key `a`, as the first process of a terminal.
fn on_terminal(args: &str, script: &str) -> (Command, std::fs::File) {
    let (ours, theirs) = terminal();
    let line = format!("printf 'a\\n' | \"$0\" run {args} sh -c \"$1\"");
    // The terminal becomes that of whom setsid executes.
    let mut command = Command::new("setsid");
    command.args(["-c", "sh", "-c", &line, env!("CARGO_BIN_EXE_requeue"), script]);
    command.stdin(theirs).stdout(Stdio::piped()).stderr(Stdio::piped());
    (command, ours.into())
}

#[test]
fn a_program_that_reads_the_terminal_is_told_of_and_fails() {
    let (command, _terminal) = on_terminal("--max-attempts 1", "read line < /dev/tty");
    let done = start_as_set(command).done();
    assert_eq!(done.status, 1, "{}", done.err);
    let why = "wanted the terminal, which no program gets here (stopped by SIGTTIN)";
    assert!(done.err.contains(why), "{}", done.err);
}

#[test]
fn a_program_that_sets_the_terminal_is_told_of_and_fails() {
    let (command, _terminal) = on_terminal("--max-attempts 1 --log json", "stty -echo < /dev/tty");
    let done = start_as_set(command).done();
    assert_eq!(done.status, 1, "{}", done.err);
    assert!(done.err.contains("(stopped by SIGTTOU)\",\"signal\":22"), "{}", done.err);
}

#[test]
fn a_program_that_somebody_stopped_is_left_alone() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let stops = "echo $$ > $D/pid; (cat $D/gate; kill -CONT $$) & kill -STOP $$; echo went on";
    let (mut command, _terminal) = on_terminal("--max-attempts 1", stops);
    command.env("D", dir.path());
    let job = start_as_set(command);
    let waiting = gate.reached();
    until("the stop", || {
        let stat = read(format!("/proc/{}/stat", read(dir.path().join("pid")).trim()));
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    });
    drop(waiting);
    let done = job.done();
    assert_eq!((done.status, done.text()), (0, "went on\n"), "{}", done.err);
}

#[test]
fn ctrl_c_on_the_terminal_ends_the_programs_too() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let (mut command, mut terminal) = on_terminal("--max-attempts 1", "cat $D/gate; exec sleep 1000");
    command.env("D", dir.path());
    let job = start_as_set(command);
    let _waiting = gate.reached();
    terminal.write_all(b"\x03").unwrap();
    job.said("SIGINT: working off what is ready");
    terminal.write_all(b"\x03").unwrap();
    let done = job.done();
    assert!(done.err.contains("a: stopped, left"), "{}", done.err);
    assert!(done.err.contains("1 left"), "{}", done.err);
    let mut echoed = [0; 4];
    assert_eq!(terminal.read(&mut echoed).unwrap(), 4);
    assert_eq!(&echoed, b"^C^C");
}

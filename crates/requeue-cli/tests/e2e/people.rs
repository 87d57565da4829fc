//! What people see: help, and progress on a terminal.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::harness::{Gate, dir, script, start_as_is};

/// A terminal: our side, and the side that the command gets.
fn terminal() -> (OwnedFd, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let theirs = rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap();
    (ours, theirs)
}

/// Runs one key that waits at a gate until the terminal has shown `awaited`, and gives
/// all that the terminal has shown.
fn shown(args: &[&str], awaited: &str) -> String {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let (ours, theirs) = terminal();
    let mut command = script(args, dir.path(), "echo before; cat $D/gate; echo after >&2");
    command.stdout(Stdio::null()).stderr(theirs);
    let mut job = start_as_is(command);
    job.send(b"a\n");
    let waiting = gate.reached();
    let mut terminal = std::fs::File::from(ours);
    let mut seen = Vec::new();
    let mut chunk = [0; 1024];
    while !String::from_utf8_lossy(&seen).contains(awaited) {
        let n = terminal.read(&mut chunk).unwrap();
        seen.extend_from_slice(&chunk[..n]);
    }
    drop(waiting);
    job.close();
    let reader = std::thread::spawn(move || {
        // The terminal's other side is gone: an error on Linux, an end elsewhere.
        while let Ok(n @ 1..) = terminal.read(&mut chunk) {
            seen.extend_from_slice(&chunk[..n]);
        }
        String::from_utf8(seen).unwrap()
    });
    assert_eq!(job.done().status, 0);
    reader.join().unwrap()
}

#[test]
fn a_terminal_shows_progress_and_it_goes_away_at_the_end() {
    let seen = shown(&[], "0 done, 1 running, 0 ready, 0 waiting, 0 failed");
    // Cleared before every other line, so that no line is appended to it.
    for line in ["after", "requeue: 1 key"] {
        let at = seen.find(line).unwrap_or_else(|| panic!("{line}: {seen:?}"));
        let before = &seen[..at];
        assert!(before.ends_with("\r\x1b[K") || before.ends_with('\n'), "{seen:?}");
    }
}

#[test]
fn quiet_shows_no_progress() {
    let seen = shown(&["-q", "--log", "text"], "");
    assert_eq!(seen, "after\r\n");
}

#[test]
fn without_a_terminal_there_is_no_progress() {
    let done = crate::harness::run(crate::harness::requeue(&["sh", "-c", "sleep 0.5"]), b"a\n");
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    assert!(!done.err.contains('\r'), "{:?}", done.err);
}

#[test]
fn help_has_examples_and_the_exit_statuses() {
    for flag in ["--help", "-h"] {
        let output = Command::new(env!("CARGO_BIN_EXE_requeue")).args(["run", flag]).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let help = String::from_utf8(output.stdout).unwrap();
        for part in
            ["Examples:", "Exit status:", "REQUEUE_ATTEMPT", "--failed-to", "--again-after", "126", "141"]
        {
            assert!(help.contains(part), "{part}: {help}");
        }
    }
}

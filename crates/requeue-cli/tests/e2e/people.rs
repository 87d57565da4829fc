//! The interface for people: help, and progress on a terminal.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::harness::{Gate, dir, script, start_as_is};

/// A terminal: our side, and the side that the command gets.
pub(crate) fn terminal() -> (OwnedFd, OwnedFd) {
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

/// A terminal's output.
struct Screen {
    terminal: std::fs::File,
    seen: Vec<u8>,
}

impl Screen {
    fn new(terminal: OwnedFd) -> Self {
        Self { terminal: terminal.into(), seen: Vec::new() }
    }

    /// Everything so far, once it has this text.
    fn shows(&mut self, awaited: &str) -> String {
        let mut chunk = [0; 1024];
        while !String::from_utf8_lossy(&self.seen).contains(awaited) {
            let n = self.terminal.read(&mut chunk).unwrap();
            assert!(n > 0, "waited in vain for {awaited}: {:?}", String::from_utf8_lossy(&self.seen));
            self.seen.extend_from_slice(&chunk[..n]);
        }
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Types this.
    fn types(&mut self, text: &str) {
        std::io::Write::write_all(&mut self.terminal, text.as_bytes()).unwrap();
    }
}

#[test]
fn nothing_is_drawn_over_keys_that_are_typed() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let (ours, theirs) = terminal();
    let mut screen = Screen::new(ours);
    let mut command = script(&["-j1"], dir.path(), "[ \"$0\" != first ] || cat $D/gate");
    command.stdin(theirs.try_clone().unwrap()).stdout(Stdio::null()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    screen.types("first\n");
    let waiting = gate.reached();
    screen.types("half a");
    let seen = screen.shows("half a");
    assert_eq!(seen, "first\r\nhalf a");
    // No more keys are typed after the end of the input.
    screen.types(" key\n\x04");
    screen.shows("0 done, 1 running, 1 ready");
    drop(waiting);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_background_job_leaves_the_terminal_to_the_shell() {
    let dir = dir();
    let (gate, shell) = (Gate::new(dir.path(), "gate"), Gate::new(dir.path(), "shell"));
    let (ours, theirs) = terminal();
    let mut screen = Screen::new(ours);
    std::fs::write(dir.path().join("keys"), "a\n").unwrap();
    let job = "\"$REQUEUE\" run sh -c 'cat $D/gate' < $D/keys & cat $D/shell; echo prompt; fg > /dev/null";
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", "bash", "-mc", job]);
    command.env("REQUEUE", env!("CARGO_BIN_EXE_requeue")).env("D", dir.path());
    command.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    let waiting = gate.reached();
    drop(shell.reached());
    let seen = screen.shows("1 running");
    let (before, _) = seen.split_once("prompt").unwrap_or_else(|| panic!("{seen:?}"));
    assert!(!before.contains('\x1b') && !before.contains("running"), "{seen:?}");
    drop(waiting);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn once_the_input_has_ended_the_line_tells_when_all_will_be_done() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let (ours, theirs) = terminal();
    let mut screen = Screen::new(ours);
    let mut command = script(&["-j1"], dir.path(), "[ $0 != b ] || cat $D/gate");
    command.stdout(Stdio::null()).stderr(theirs);
    let mut job = start_as_is(command);
    job.send(b"a\nb\nc\n");
    let waiting = gate.reached();
    let in_line = "1 done, 1 running, 1 ready";
    screen.shows(in_line);
    job.close();
    let seen = screen.shows("/s, eta ");
    let first = seen.split('\r').find(|line| line.contains(in_line)).unwrap();
    assert!(!first.contains("eta"), "more keys may have come: {seen:?}");
    drop(waiting);
    assert_eq!(job.done().status, 0);
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

/// The repository's README, as a stranger types its first command in a clone; what stands before it installs this program.
#[test]
fn readmes_first_command_counts_the_bytes_of_every_file() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = crate::harness::read(root.join("README.md"));
    let (_, line) = readme.split_once("/requeue-cli && ").unwrap();
    let files = Command::new("git").args(["ls-files", "--full-name"]).current_dir(&root).output();
    let missing = Command::new("git").args(["ls-files", "--deleted"]).current_dir(&root).output();
    let (Ok(files), Ok(missing)) = (files, missing) else { return println!("SKIPPED: there is no git") };
    if !files.status.success() || files.stdout.is_empty() || !missing.stdout.is_empty() {
        return println!("SKIPPED: this is no clone, or one whose files were removed");
    }
    let mut shell = Command::new("sh");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_requeue")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    shell.args(["-c", line.lines().next().unwrap()]).env("PATH", path).current_dir(&root);
    let done = shell.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let counted = String::from_utf8(done.stdout).unwrap();
    for file in String::from_utf8(files.stdout).unwrap().lines().map(|line| line.trim_matches('"')) {
        // `--tag` writes the key and a tab before the line
        assert!(counted.lines().any(|line| line.starts_with(&format!("{file}\t"))), "{file}");
    }
}

//! Wrong command lines, programs that cannot be run, and what does not run anything.

use std::process::Command;

use crate::harness::{dir, executable, requeue, run};

#[test]
fn wrong_invocations_end_with_2_and_name_what_is_wrong() {
    let cases: [(&[&str], &str); 40] = [
        (&[], "PROGRAM"),
        (&["-j2"], "PROGRAM"),
        (&["--"], "PROGRAM"),
        (&["--bogus", "echo"], "--bogus"),
        (&["-x", "echo"], "-x"),
        (&["-j", "echo"], "--workers"),
        (&["-j0", "echo"], "--workers"),
        (&["-j", "-1", "echo"], "-1"),
        (&["--workers", "1.5", "echo"], "--workers"),
        (&["--workers=99999", "echo"], "10000"),
        (&["--base-delay", "5", "echo"], "--base-delay"),
        (&["--max-delay", "5 s", "echo"], "--max-delay"),
        (&["--timeout", "1y", "echo"], "--timeout"),
        (&["--timeout", "0s", "echo"], "--timeout"),
        (&["--drain-timeout", "soon", "echo"], "--drain-timeout"),
        (&["--again-after", "1m1h", "echo"], "--again-after"),
        (&["--grace", "", "echo"], "--grace"),
        (&["--base-delay", "2s", "--max-delay", "1s", "echo"], "--max-delay"),
        (&["--jitter", "-1", "echo"], "-1"),
        (&["--jitter", "nan", "echo"], "--jitter"),
        (&["--jitter", "2", "echo"], "--jitter"),
        (&["--retry-rate", "0", "echo"], "--retry-rate"),
        (&["--retry-rate", "inf", "echo"], "--retry-rate"),
        (&["--retry-burst", "3", "echo"], "--retry-rate"),
        (&["--retry-rate", "1", "--retry-burst", "0", "echo"], "--retry-burst"),
        (&["--max-attempts", "-1", "echo"], "-1"),
        (&["--max-attempts", "many", "echo"], "--max-attempts"),
        (&["--fatal-code", "0", "echo"], "--fatal-code"),
        (&["--fatal-code", "256", "echo"], "--fatal-code"),
        (&["--fatal-code", "75", "--again-after", "1s", "echo"], "--again-after"),
        (&["--log", "xml", "echo"], "--log"),
        (&["--summary", "yes", "echo"], "--summary"),
        (&["--rate", "0", "echo"], "give starts a second"),
        (&["--rate", "fast", "echo"], "--rate"),
        (&["--limiter", "exp", "echo"], "there is no limiter \"exp\""),
        (&["--limiter", "default", "--base-delay", "1s", "echo"], "--base-delay"),
        (&["--limiter", "default", "--retry-rate", "1", "echo"], "--retry-rate"),
        (&["--resume", "echo"], "--joblog"),
        (&["--resume", "--joblog", "f", "--watch", ".", "echo"], "--watch"),
        (&["--joblog", "./f", "--left-to", "f", "echo"], "--left-to and --joblog name the same file"),
    ];
    for (args, named) in cases {
        let done = run(requeue(args), b"a\n");
        assert_eq!(done.status, 2, "{args:?}: {}", done.err);
        assert_eq!(done.text(), "", "{args:?}");
        assert!(done.err.contains(named), "{args:?}: {}", done.err);
        assert!(done.err.starts_with("error:"), "{args:?}: {}", done.err);
    }
}

#[test]
fn a_bad_duration_says_what_would_be_right() {
    let done = run(requeue(&["--timeout", "10", "echo"]), b"");
    assert!(done.err.contains("'10' for '--timeout <D>'"), "{}", done.err);
    assert!(done.err.contains("5ms, 1.5s or 2h30m"), "{}", done.err);
}

#[test]
fn good_durations_are_taken() {
    for d in ["5ms", "1.5s", "2h30m", "1d", "100us"] {
        let done = run(requeue(&["--timeout", d, "--max-delay", "1d", "--base-delay", d, "true"]), b"");
        assert_eq!(done.status, 0, "{d}: {}", done.err);
    }
}

#[test]
fn without_a_subcommand_there_is_help_and_status_2() {
    let output = Command::new(env!("CARGO_BIN_EXE_requeue")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = Command::new(env!("CARGO_BIN_EXE_requeue")).arg("walk").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// Asserts that the command ends with this status and one line that says this, and has run nothing.
fn cannot_run(program: &str, status: i32, says: &str) {
    for input in [&b"a\nb\nc\n"[..], b""] {
        let done = run(requeue(&["-j2", program]), input);
        // Without any key the file's contents do not matter yet.
        if input.is_empty() && done.status == 0 && says.contains("format") {
            continue;
        }
        assert_eq!(done.status, status, "{program}: {}", done.err);
        assert_eq!(done.text(), "");
        assert_eq!(done.err.lines().count(), 1, "{program}: {}", done.err);
        assert!(done.err.contains(says), "{program}: {}", done.err);
    }
}

#[test]
fn a_negative_value_is_refused_by_its_option() {
    for option in ["--base-delay", "--timeout", "--jitter", "-j", "--max-attempts", "--fatal-code"] {
        let done = run(requeue(&[option, "-1", "true"]), b"");
        assert_eq!(done.status, 2, "{option}");
        assert!(done.err.contains("invalid value '-1'"), "{option}: {}", done.err);
    }
}

#[test]
fn a_program_whose_interpreter_is_missing_is_126() {
    let dir = dir();
    let program = dir.path().join("script");
    executable(&program, b"#!/no/such/interpreter\n");
    let done = run(requeue(&[program.to_str().unwrap()]), b"a\n");
    assert_eq!(done.status, 126, "{}", done.err);
    assert!(done.err.contains("interpreter"), "{}", done.err);
}

#[test]
fn a_program_that_is_not_found_is_127() {
    cannot_run("no-such-program", 127, "no-such-program: not found in PATH");
    cannot_run("./no-such-program", 127, "./no-such-program: not found");
    cannot_run("/no/such/program", 127, "not found");
    cannot_run("", 127, "not found");
}

#[test]
fn a_program_that_cannot_be_executed_is_126() {
    let dir = dir();
    cannot_run(dir.path().to_str().unwrap(), 126, "it is a directory");
    cannot_run("/dev/null", 126, "not a regular file");
    let file = dir.path().join("plain");
    std::fs::write(&file, "#!/bin/sh\necho ran\n").unwrap();
    cannot_run(file.to_str().unwrap(), 126, "permission denied");
    // Text would be a script for sh, see `program.rs`.
    executable(&file, b"no\0program\n");
    cannot_run(file.to_str().unwrap(), 126, "format");
}

#[test]
fn a_relative_path_and_the_search_path_are_honoured() {
    let dir = dir();
    let file = dir.path().join("tool");
    executable(&file, b"#!/bin/sh\necho $0 $1\n");
    let mut command = requeue(&["./tool"]);
    command.current_dir(dir.path());
    assert_eq!(run(command, b"k\n").text(), "./tool k\n");
    let mut command = requeue(&["tool"]);
    command.env("PATH", dir.path());
    assert_eq!(run(command, b"k\n").text().trim_end(), format!("{} k", file.display()));
    // An empty entry is the current directory.
    let mut command = requeue(&["tool"]);
    command.current_dir(dir.path()).env("PATH", ":/nowhere");
    assert_eq!(run(command, b"k\n").status, 0);
}

#[test]
fn dry_run_prints_each_key_once_and_runs_nothing() {
    let dir = dir();
    let mut command = requeue(&["--dry-run", "sh", "-c", "touch ran-{}", "x y", "{}"]);
    command.current_dir(dir.path());
    let done = run(command, b"b\na b\nb\n\xff\n");
    assert_eq!((done.status, done.err.as_str()), (0, ""));
    assert_eq!(
        done.text(),
        "sh -c 'touch ran-b' 'x y' b\nsh -c 'touch ran-a b' 'x y' 'a b'\nsh -c $'touch ran-\\377' 'x y' $'\\377'\n"
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn dry_run_tells_what_could_not_be_run() {
    let done = run(requeue(&["--dry-run", "echo"]), b"a\0b\nc\n");
    assert_eq!((done.status, done.text()), (1, "echo c\n"));
    assert!(done.err.contains("NUL"), "{}", done.err);
    assert_eq!(run(requeue(&["--dry-run", "no-such-program"]), b"").status, 127);
}

#[test]
fn dry_run_reports_a_full_disk() {
    let mut command = requeue(&["--dry-run", "echo"]);
    command.stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    command.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"a\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("standard output: No space left"), "{err}");
}

#[test]
fn an_input_that_cannot_be_read_is_said() {
    let mut command = requeue(&["echo"]);
    command.stdin(std::fs::File::open("/").unwrap());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("standard input: Is a directory"), "{err}");
}

#[test]
fn the_default_of_on_is_shown_as_it_can_be_given() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    let help = command.args(["run", "--help"]).output().unwrap().stdout;
    assert!(String::from_utf8(help).unwrap().contains("[default: initial,write,delete]"));
}

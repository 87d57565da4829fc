//! Standard descriptors that are closed when the command starts.

use std::process::{Command, Stdio};

use crate::harness::{Done, dir, run};

/// Runs `requeue LINE` in a shell, with the keys `a` and `b` in the file `in`.
fn shell(line: &str) -> Done {
    let dir = dir();
    std::fs::write(dir.path().join("in"), "a\nb\n").unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("\"$0\" {line}"), env!("CARGO_BIN_EXE_requeue")]);
    command.current_dir(dir.path());
    run(command, b"")
}

#[test]
fn a_closed_standard_output_is_an_error_of_every_command_that_writes_to_it() {
    let why = "requeue: standard output is closed; open it, or send it to /dev/null\n";
    for line in [
        "run echo <in >&-",
        "run --dry-run echo <in >&-",
        "run -q true <in >&-",
        "plan bucket --rate 1 --burst 1 -n 1 >&-",
        "plan bucket --rate 1 --burst 1 -n 1 --plot >&-",
        "--version >&-",
        "--help >&-",
        "run --help >&-",
    ] {
        let done = shell(line);
        assert_eq!((done.status, done.text(), done.err.as_str()), (2, "", why), "{line}");
    }
    let done = shell("plan bucket --rate 1 --burst 1 -n 1 --svg picture >&-");
    assert_eq!((done.status, done.err.as_str()), (0, ""), "it writes a file only");
}

#[test]
fn a_closed_standard_input_is_an_error_of_a_command_that_reads_it() {
    let why = "requeue: standard input is closed; open it, or read from /dev/null\n";
    for line in [
        "run echo <&-",
        "run --dry-run echo <&-",
        "run --watch . --stdin echo <&-",
        "add --engine sqlite:q.db <&-",
    ] {
        let done = shell(line);
        assert_eq!((done.status, done.text(), done.err.as_str()), (2, "", why), "{line}");
    }
    let done = shell("add --engine sqlite:q.db a <&-");
    assert_eq!((done.status, done.err.as_str()), (0, ""), "it reads nothing");
    let done = shell("run --watch . --dry-run echo <&-");
    assert_eq!((done.status, done.text()), (0, "echo ./in\n"), "{}", done.err);
}

#[test]
fn a_closed_standard_error_hinders_nothing() {
    let done = shell("run -j1 --tag sh -c 'echo $0; echo e >&2' <in 2>&-");
    assert_eq!((done.status, done.text(), done.err.as_str()), (0, "a\ta\nb\tb\n", ""));
}

/// Python's `subprocess.DEVNULL` is open for reading and for writing, as what the runtime
/// opens in place of a closed descriptor.
#[test]
fn nobody_at_either_end_is_no_closed_descriptor() {
    let null = || std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    let done =
        command.args(["run", "echo"]).stdin(null()).stdout(null()).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(0), "{said}");
    assert!(said.starts_with("requeue: 0 keys, "), "{said}");
}

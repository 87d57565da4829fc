//! The promises about runs and memory, measured: those that do not depend on how
//! busy the machine is. The comparison with xargs is `bench/run-beside-xargs.sh`.
#![cfg(target_os = "linux")]

use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

fn requeue(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.arg("run").args(args);
    command
}

/// Waits until the command has added every key that was written to its input: what was
/// written is in the pipe or read, and an empty line that is taken from the empty pipe
/// tells that the keys before it have been added.
fn wait_until_added(mut stdin: &ChildStdin) {
    let end = Instant::now() + Duration::from_secs(60);
    for portion in ["", "\n"] {
        stdin.write_all(portion.as_bytes()).unwrap();
        while rustix::io::ioctl_fionread(stdin).unwrap() > 0 {
            assert!(Instant::now() < end, "the keys are not read");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_flood_of_equal_lines_during_a_run_is_one_more_run() {
    let dir = tempfile::tempdir().unwrap();
    let (log, go) = (dir.path().join("runs"), dir.path().join("go"));
    let text = format!("date +%s%N >> {}; until [ -e {} ]; do sleep 0.02; done", log.display(), go.display());
    let mut command = requeue(&["-j", "1", "sh", "-c", &text]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let runs = || -> Vec<u128> {
        let runs = std::fs::read_to_string(&log).unwrap_or_default();
        runs.lines().map(|l| l.parse().unwrap()).collect()
    };
    let lines = b"a\n".repeat(1_000_000);
    stdin.write_all(&lines[..2]).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while runs().is_empty() {
        assert!(Instant::now() < end, "the first run does not begin");
        std::thread::sleep(Duration::from_millis(1));
    }
    stdin.write_all(&lines[4..]).unwrap();
    let before_the_last = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    stdin.write_all(&lines[..2]).unwrap();
    wait_until_added(&stdin);
    drop(stdin);
    std::fs::write(&go, "").unwrap();
    assert!(child.wait().unwrap().success());
    let runs = runs();
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert!(runs[1] > before_the_last);
}

#[test]
fn a_million_waiting_keys_stay_under_200_mb() {
    let mut child =
        requeue(&["-j", "2", "-q", "sh", "-c", "sleep 1000"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = String::new();
    for key in 1..=1_000_000 {
        lines.push_str(&key.to_string());
        lines.push('\n');
    }
    stdin.write_all(lines.as_bytes()).unwrap();
    wait_until_added(&stdin);
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    let peak: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    println!("{peak} kB at most");
    let pid = rustix::process::Pid::from_child(&child);
    // Three: finish, stop, kill. The second may arrive together with the first.
    while child.try_wait().unwrap().is_none() {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(peak < 200_000, "{peak} kB");
}

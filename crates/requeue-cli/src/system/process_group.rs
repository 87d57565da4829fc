//! The processes of a process group.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;

use memchr::memmem;
use rustix::process::Pid;

/// Whether the group has a process that has not ended, other than `except`. True if the system cannot tell.
pub(crate) fn has_process(group: Pid, except: Option<Pid>) -> bool {
    let name = group.to_string();
    let except = except.map(|pid| pid.to_string());
    // whether the system shows what it must have
    let mut shows = false;
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some((state, its_group)) = state_and_group(&process.path()) else { continue };
        let is_except = except.as_ref().is_some_and(|except| process.file_name() == **except);
        shows |= is_except || except.is_none();
        if !is_except && its_group == name && state != "Z" && state != "X" {
            return true;
        }
    }
    let is_none = Err(rustix::io::Errno::SRCH);
    !shows && (except.is_some() || rustix::process::test_kill_process_group(group) != is_none)
}

/// The process group of a program that was started in this session with `text`, `NAME=VALUE`, in its
/// environment. Processes that the program has started have it too, and are younger; those that left the
/// session are not searched. Only on Linux.
pub(crate) fn started_with(text: &[u8]) -> Option<Pid> {
    let [_, session] = own()?;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let leaders = processes.filter_map(|process| {
        let name = process.file_name().into_string().ok()?;
        let pid = Pid::from_raw(name.parse().ok()?)?;
        let fields = stat(&process.path())?;
        let mut fields = fields.split(' ').skip(2);
        // behind the state and the parent: group, session, and after fifteen others when it was started
        let is_leader = fields.next()? == name && fields.next()? == session;
        let started: u64 = fields.nth(15)?.parse().ok()?;
        let environment =
            if is_leader { fs::read(process.path().join("environ")).ok()? } else { return None };
        environment.split(|byte| *byte == 0).any(|it| it == text).then_some((started, pid))
    });
    leaders.min_by_key(|(started, _)| *started).map(|(_, pid)| pid)
}

/// Returns whether this process is in the foreground of `terminal`, or the system cannot tell.
pub(crate) fn is_in_foreground(terminal: BorrowedFd<'_>) -> bool {
    let Ok(foreground) = rustix::termios::tcgetpgrp(terminal) else { return true };
    if cfg!(target_os = "linux") {
        own().is_none_or(|[group, _]| group == foreground.to_string())
    } else {
        rustix::process::getpgrp() == foreground
    }
}

/// Returns the process group and the session of this process. Each is "0" if its leader is outside of the PID
/// namespace, where `getpgrp` and `getsid` of `rustix`, whose `Pid` is never zero, are undefined behavior.
fn own() -> Option<[String; 2]> {
    let fields = stat(Path::new("/proc/self"))?;
    let mut fields = fields.split(' ').skip(2);
    Some([fields.next()?.to_owned(), fields.next()?.to_owned()])
}

/// Reads the state and group of the process with this directory in `/proc`.
fn state_and_group(process: &Path) -> Option<(String, String)> {
    let fields = stat(process)?;
    let mut fields = fields.split(' ');
    let state = fields.next()?.to_owned();
    Some((state, fields.nth(1)?.to_owned()))
}

/// The fields after the name of a process, which may contain anything: state, parent, group, session …
fn stat(process: &Path) -> Option<String> {
    let stat = fs::read(process.join("stat")).ok()?;
    let end = memmem::rfind(&stat, b") ")?;
    String::from_utf8(stat[end + 2..].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};

    fn start(program: &str, args: &[&str], run: &str) -> Child {
        let mut command = Command::new(program);
        command.args(args).env("RUN", run).process_group(0).stdin(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_group_has_a_process_until_the_last_has_ended() {
        let mut cat = start("cat", &[], "");
        let group = Pid::from_child(&cat);
        assert!(has_process(group, None));
        assert!(!has_process(group, Some(group)));
        drop(cat.stdin.take());
        // It has ended, and its exit status was not collected yet.
        while has_process(group, None) {
            std::thread::yield_now();
        }
        cat.wait().unwrap();
        assert!(!has_process(group, None));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn e38_a_program_is_found_by_all_of_the_text_in_its_environment_and_not_what_it_started_in_a_session_of_its_own()
     {
        let name = format!("{}-1", std::process::id());
        let script = "setsid sh -c 'echo; exec cat <&3' 3<&0 & exec cat";
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("RUN", &name).process_group(0);
        let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // both are there now
        std::io::Read::read_exact(program.stdout.as_mut().unwrap(), &mut [0; 1]).unwrap();
        let found = |text: String| started_with(text.as_bytes());
        assert_eq!(found(format!("RUN={name}")), Some(Pid::from_child(&program)));
        assert_eq!(found(format!("RUN={name}0")), None);
        assert_eq!(found(format!("UN={name}")), None);
        program.kill().unwrap();
        program.wait().unwrap();
        assert_eq!(found(format!("RUN={name}")), None, "the other one has left");
    }

    /// A container is such a namespace, and so is the environment of `docker exec`.
    #[test]
    #[cfg(target_os = "linux")]
    fn e38_a_program_is_found_too_where_the_leader_of_the_session_is_outside_of_the_pid_namespace() {
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork", "--mount-proc"]);
            command
        };
        if !unshare().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: no PID namespace can be made here");
            return;
        }
        let test = "system::process_group::tests::\
            e38_a_program_is_found_by_all_of_the_text_in_its_environment_and_not_what_it_started_in_a_session_of_its_own";
        let done = unshare().arg(std::env::current_exe().unwrap()).args(["--exact", test]).output().unwrap();
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && text.contains("1 passed"), "{text}");
    }
}

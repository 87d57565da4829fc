//! One run of PROGRAM: started in a process group of its own, listened to, ended when
//! its time is over or when we must leave.
//!
//! The worker's thread does all of it in one `poll` loop over the two outputs and a
//! descriptor of the process, so a run costs no thread and no signal handler.
//!
//! The process is not reaped before its group has been dealt with: while it is a
//! zombie its number, which is the group's, cannot be given to anyone else.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::control::Control;
use crate::group::Group;
use crate::linger::Linger;
use crate::output::{Console, Relay, Stream};

/// How long to sleep between two looks at a process whose end cannot be polled for.
const LOOK: Duration = Duration::from_millis(10);

/// What a dead child's pipes are read for before its run counts as ended: more than a
/// pipe holds, so that everything the child itself wrote comes out first.
const AFTERMATH: usize = 2 << 20;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Exit(i32),
    Signal(i32),
    TimedOut,
    /// We had to leave.
    Stopped,
}

/// What is the same for every run.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) timeout: Option<Duration>,
    /// Between TERM and KILL.
    pub(crate) grace: Duration,
    pub(crate) control: Arc<Control>,
    pub(crate) console: Arc<Console>,
    pub(crate) linger: Linger,
    /// The output of a run comes in one piece, at its end.
    pub(crate) groups: bool,
    /// PROGRAM has been started at least once.
    pub(crate) started: AtomicBool,
}

/// A pipe that no other child inherits: what we read, and what the child writes.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// One of the child's outputs, until it is closed.
pub(crate) struct Output {
    pub(crate) fd: OwnedFd,
    pub(crate) relay: Relay,
}

impl Output {
    /// Reads once. False at the end.
    pub(crate) fn read(&mut self, scratch: &mut [u8], console: &Console) -> Option<usize> {
        match rustix::io::read(&self.fd, &mut scratch[..]) {
            Ok(0) => None,
            Ok(n) => {
                self.relay.feed(&scratch[..n], console);
                Some(n)
            }
            Err(Errno::INTR | Errno::AGAIN) => Some(0),
            Err(_) => None,
        }
    }
}

impl Keeper {
    /// Whether the program has started at least once.
    pub(crate) fn ever_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// Runs `command` to its end. `scratch` is the worker's buffer for reading.
    ///
    /// # Errors
    ///
    /// The program could not be started.
    pub(crate) fn run(
        &self,
        command: Command,
        tag: Option<Arc<[u8]>>,
        scratch: &mut [u8],
    ) -> io::Result<Ended> {
        self.run_watched(command, tag, scratch, Process::of)
    }

    fn run_watched(
        &self,
        mut command: Command,
        tag: Option<Arc<[u8]>>,
        scratch: &mut [u8],
        watch: impl FnOnce(&Child) -> Process,
    ) -> io::Result<Ended> {
        let (out, child_out) = pipe()?;
        let (err, child_err) = pipe()?;
        command.stdin(Stdio::null()).stdout(child_out).stderr(child_err).process_group(0);
        let child = command.spawn()?;
        self.started.store(true, Ordering::Relaxed);
        // It holds our copies of the write ends; with them the outputs would never end.
        drop(command);
        let together = self.groups.then(|| Arc::new(Group::new()));
        let mut run = Run {
            keeper: self,
            group: Pid::from_child(&child),
            process: watch(&child),
            child,
            outputs: [
                Some(Output { fd: out, relay: Relay::new(Stream::Out, tag.clone(), together.clone()) }),
                Some(Output { fd: err, relay: Relay::new(Stream::Err, tag, together.clone()) }),
            ],
            exited: false,
            phase: Phase::Running { until: self.timeout.and_then(|d| Instant::now().checked_add(d)) },
        };
        let status = run.see_through(scratch);
        if let Some(together) = together {
            together.end(&self.console);
        }
        let status = status?;
        let ended = match run.phase {
            Phase::Running { .. } => match status.code() {
                Some(code) => Ended::Exit(code),
                None => Ended::Signal(status.signal().unwrap_or(0)),
            },
            Phase::Ending { why, .. } | Phase::Killed { why } => why,
        };
        for output in run.outputs.into_iter().flatten() {
            self.linger.take(output);
        }
        Ok(ended)
    }
}

#[derive(Clone, Copy)]
enum Phase {
    Running {
        until: Option<Instant>,
    },
    /// TERM is sent.
    Ending {
        why: Ended,
        kill_at: Option<Instant>,
    },
    /// KILL is sent.
    Killed {
        why: Ended,
    },
}

/// The process as something to poll for.
enum Process {
    #[cfg(target_os = "linux")]
    Fd(OwnedFd),
    /// The system has no such descriptor, or does not give it.
    Look,
}

impl Process {
    fn of(child: &Child) -> Self {
        #[cfg(target_os = "linux")]
        {
            use rustix::process::{PidfdFlags, pidfd_open};
            if let Ok(fd) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) {
                return Self::Fd(fd);
            }
        }
        let _ = child;
        Self::Look
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Fd(fd) => Some(fd.as_fd()),
            Self::Look => None,
        }
    }
}

struct Run<'a> {
    keeper: &'a Keeper,
    child: Child,
    group: Pid,
    process: Process,
    outputs: [Option<Output>; 2],
    exited: bool,
    phase: Phase,
}

impl Run<'_> {
    /// Until the child has ended and nothing of a group that must go is left.
    fn see_through(&mut self, scratch: &mut [u8]) -> io::Result<ExitStatus> {
        loop {
            if self.exited {
                let silent = self.outputs.iter().all(Option::is_none);
                match self.phase {
                    Phase::Running { .. } | Phase::Killed { .. } => break,
                    // Others of the group have until `kill_at` too, as long as one can
                    // see them: by the outputs that they hold.
                    Phase::Ending { why, .. } if silent => {
                        self.kill(why);
                        break;
                    }
                    Phase::Ending { .. } => {}
                }
            }
            self.wait(scratch)?;
            self.move_on();
        }
        let status = self.child.wait()?;
        self.read_aftermath(scratch);
        Ok(status)
    }

    /// Waits for the next thing to happen, and reads what there is.
    fn wait(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        let control = &self.keeper.control;
        let (deadline, notice) = match self.phase {
            Phase::Running { until } => (until, Some(control.children_stop.fd())),
            Phase::Ending { kill_at, .. } => (kill_at, Some(control.children_die.fd())),
            Phase::Killed { .. } => (None, None),
        };
        let mut timeout = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let mut fds = Vec::with_capacity(4);
        for output in self.outputs.iter().flatten() {
            fds.push(PollFd::new(&output.fd, PollFlags::IN));
        }
        let outputs = fds.len();
        let process = match self.process.fd() {
            Some(fd) if !self.exited => {
                fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
                Some(outputs)
            }
            Some(_) => None,
            None => {
                timeout = Some(timeout.map_or(LOOK, |t| t.min(LOOK)));
                None
            }
        };
        fds.extend(notice.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout =
            timeout.map(|t| Timespec::try_from(t).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 }));
        match poll(&mut fds, timeout.as_ref()) {
            Err(Errno::INTR) => return Ok(()),
            other => other?,
        };
        let mut ready = [false; 2];
        for (slot, fd) in ready.iter_mut().zip(&fds[..outputs]) {
            *slot = !fd.revents().is_empty();
        }
        if process.is_some_and(|at| !fds[at].revents().is_empty()) {
            self.exited = true;
        }
        drop(fds);
        let mut ready = ready.into_iter();
        for place in &mut self.outputs {
            if let Some(output) = place {
                if ready.next() == Some(true) && output.read(scratch, &self.keeper.console).is_none() {
                    output.relay.finish(&self.keeper.console);
                    *place = None;
                }
            }
        }
        if self.process.fd().is_none() && !self.exited {
            self.exited = self.has_exited()?;
        }
        Ok(())
    }

    /// Looks without reaping.
    fn has_exited(&self) -> io::Result<bool> {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        Ok(waitid(WaitId::Pid(self.group), options)?.is_some())
    }

    /// What time and notices ask for.
    fn move_on(&mut self) {
        let passed = |at: Option<Instant>| at.is_some_and(|at| Instant::now() >= at);
        let control = &self.keeper.control;
        match self.phase {
            // Both may have come in one wake-up: what has ended by itself has ended.
            Phase::Running { .. } if self.exited => {}
            Phase::Running { .. } if control.reached(crate::control::Level::Stop) => {
                self.term(Ended::Stopped);
            }
            Phase::Running { until } if passed(until) => self.term(Ended::TimedOut),
            Phase::Ending { why, kill_at }
                if passed(kill_at) || control.reached(crate::control::Level::Kill) =>
            {
                self.kill(why);
            }
            _ => {}
        }
    }

    fn term(&mut self, why: Ended) {
        let kill_at = Instant::now().checked_add(self.keeper.grace);
        self.phase = Phase::Ending { why, kill_at };
        // It fails where nobody is left, which is what we want.
        let _ = kill_process_group(self.group, Signal::TERM);
        // A stopped process would not see TERM before it is continued.
        let _ = kill_process_group(self.group, Signal::CONT);
    }

    fn kill(&mut self, why: Ended) {
        self.phase = Phase::Killed { why };
        let _ = kill_process_group(self.group, Signal::KILL);
    }

    /// Takes what the child has left in its pipes. Somebody else may hold them open.
    fn read_aftermath(&mut self, scratch: &mut [u8]) {
        for place in &mut self.outputs {
            let mut taken = 0;
            while let Some(output) = place {
                let mut fds = [PollFd::new(&output.fd, PollFlags::IN)];
                let something = matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1));
                if !something || taken > AFTERMATH {
                    break;
                }
                match output.read(scratch, &self.keeper.console) {
                    Some(n) => taken += n,
                    None => {
                        output.relay.finish(&self.keeper.console);
                        *place = None;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Level;

    fn keeper(timeout: Option<Duration>) -> Keeper {
        let control = Arc::new(Control::new(|| {}).unwrap());
        let console = Arc::new(Console::new(Arc::clone(&control)));
        let grace = Duration::from_millis(20);
        Keeper {
            timeout,
            grace,
            control,
            linger: Linger::new(Arc::clone(&console)),
            groups: false,
            started: AtomicBool::new(false),
            console,
        }
    }

    fn sh(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    /// The tests from outside cover the way with a descriptor; this is the other.
    #[test]
    fn a_process_that_can_only_be_looked_at_is_seen_through_too() {
        let mut scratch = [0; 1024];
        let mut run = |keeper: &Keeper, script| {
            keeper.run_watched(sh(script), None, &mut scratch, |_| Process::Look).unwrap()
        };
        assert_eq!(run(&keeper(None), "exit 3"), Ended::Exit(3));
        assert_eq!(run(&keeper(None), "exec >&- 2>&-; sleep 0.1; exit 4"), Ended::Exit(4));
        assert_eq!(run(&keeper(None), "kill -9 $$"), Ended::Signal(9));
        let short = keeper(Some(Duration::from_millis(20)));
        assert_eq!(run(&short, "trap '' TERM; while :; do sleep 1; done"), Ended::TimedOut);
        let stopped = keeper(None);
        stopped.control.raise(Level::Stop);
        assert_eq!(run(&stopped, "sleep 1000"), Ended::Stopped);
    }
}

//! One run of PROGRAM: starts it in a process group of its own, reads its output, and ends it at its time
//! limit or when the command must leave.
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

use crate::output::console::{Console, Meanwhile, Stream};
use crate::output::group::Group;
use crate::output::order::Order;
use crate::output::orphan_output::OrphanOutput;
use crate::output::relay::{Output, Relay};
use crate::report::log::{Log, Subject};
use crate::report::outcome::Ended;
use crate::run::process_slots::ProcessSlots;
use crate::run::reaper::{Mark, RUN, Reaper};
use crate::system::control::{Control, Level};
use crate::system::lookup;
use crate::system::pipe::pipe;
use crate::system::process_group::has_process;

/// Interval for checking a process whose end cannot be polled for.
const LOOK: Duration = Duration::from_millis(10);

/// Interval for checking conditions without an event: whether a process was stopped, whether a group that is
/// ending is empty, and whether a blocked reader is still waited for.
const GLANCE: Duration = Duration::from_millis(250);

/// How much of a dead child's pipes is read before its run counts as ended: more than a pipe holds, so that
/// all its own output comes out first.
const AFTERMATH: usize = 2 << 20;

/// A run that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finish {
    pub(crate) ended: Ended,
    /// It failed, and its output was not read completely: still to be reported.
    pub(crate) output_lost: bool,
    /// When the end of the program was noticed.
    pub(crate) at: Instant,
}

/// Settings shared by all runs.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) timeout: Option<Duration>,
    /// Time between TERM and KILL.
    pub(crate) grace: Duration,
    /// How long the keys of the runs belong to this process, unless it extends that.
    pub(crate) lease: Option<Lease>,
    pub(crate) control: Arc<Control>,
    pub(crate) console: Arc<Console>,
    pub(crate) log: Arc<Log>,
    pub(crate) orphan_output: OrphanOutput,
    pub(crate) process_slots: ProcessSlots,
    /// Ends the programs if we are killed. `None` if no queue outlives us, or if it could not be started.
    pub(crate) reaper: Option<Reaper>,
    /// The output of a run comes in one piece, at its end.
    pub(crate) groups: bool,
    /// The output of runs comes in the order of their keys.
    pub(crate) order: Option<Arc<Order>>,
    /// PROGRAM is a script without `#!`, for `sh`.
    pub(crate) by_shell: AtomicBool,
    /// PROGRAM has been started at least once.
    pub(crate) started: AtomicBool,
}

/// Time limits for ending programs whose runs have lost their lease.
///
/// A run is told that its lease is lost when two thirds of the lease are over. The exact moment is unknown,
/// but it was after the last look that found the lease kept: from that look on, at least a third is left. The
/// end of that third is the latest moment for KILL, less a margin for the clocks of two machines and for
/// delays of the system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    /// Time that a program has at most from the last look that found its lease kept.
    left: Duration,
    /// Interval between two looks.
    look: Duration,
}

impl Lease {
    pub(crate) fn new(length: Duration) -> Self {
        Self { left: length / 3 - length / 15, look: (length / 30).min(GLANCE) }
    }

    /// The time between TERM and KILL for programs whose command was killed: `grace`, or the safe rest of the
    /// lease.
    pub(crate) fn grace(self, grace: Duration) -> Duration {
        grace.min(self.left)
    }
}

impl Supervisor {
    /// Whether the program has started at least once.
    pub(crate) fn ever_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// Runs `command` to its end, for `subject`, or until `is_lost` says that the run belongs to another
    /// process. `scratch` is a buffer for reading. `None` if there was no room for it before the
    /// last run had to begin.
    ///
    /// # Errors
    ///
    /// If the program could not be started.
    pub(crate) fn run(
        &self,
        command: Command,
        subject: Subject<'_>,
        tags: Option<[Arc<[u8]>; 2]>,
        is_lost: &dyn Fn() -> bool,
        scratch: &mut [u8],
    ) -> io::Result<Option<Finish>> {
        self.run_watched(command, subject, tags, is_lost, scratch, Process::of)
    }

    fn run_watched(
        &self,
        mut command: Command,
        subject: Subject<'_>,
        tags: Option<[Arc<[u8]>; 2]>,
        is_lost: &dyn Fn() -> bool,
        scratch: &mut [u8],
        watch: impl FnOnce(&Child) -> Process,
    ) -> io::Result<Option<Finish>> {
        if self.by_shell.load(Ordering::Relaxed) {
            command = for_shell(&command);
        }
        let start = || {
            let (out, child_out) = pipe()?;
            let (err, child_err) = pipe()?;
            let mark = self.reaper.as_ref().map(Reaper::begin).transpose()?;
            match &mark {
                Some(mark) => command.env(RUN, mark.name()),
                // Not that of a command that runs us.
                None => command.env_remove(RUN),
            };
            command.stdin(Stdio::null()).stdout(child_out).stderr(child_err).process_group(0);
            let child = command.spawn()?;
            Ok((child, mark, out, err))
        };
        let started = match self.process_slots.start(&self.control, |text| self.log.note(text), start) {
            Err(e) if is_for_shell(&e, &command) => {
                self.by_shell.store(true, Ordering::Relaxed);
                return self.run_watched(command, subject, tags, is_lost, scratch, watch);
            }
            started => started?,
        };
        let Some((_place, (child, mark, out, err))) = started else { return Ok(None) };
        if let Some(mark) = &mark {
            // Where it can't be noted it is found by its environment.
            let _ = mark.runs(Pid::from_child(&child));
        }
        self.started.store(true, Ordering::Relaxed);
        // It holds our copies of the write ends; with them the outputs would never end.
        drop(command);
        let [tag, err_tag] = tags.map_or([None, None], |tags| tags.map(Some));
        let option = if self.order.is_some() { "--keep-order" } else { "--group" };
        let together = (self.groups || self.order.is_some()).then(|| Arc::new(Group::new(option)));
        let until = self.timeout.and_then(|d| Instant::now().checked_add(d));
        let course = Course {
            supervisor: self,
            subject,
            is_lost,
            group: Pid::from_child(&child),
            exited: None,
            stopped: None,
            kept: None,
            lost: [false; 2],
            phase: Phase::Running { until },
        };
        let mut run = Run {
            process: watch(&child),
            child,
            mark,
            outputs: [
                Some(Output { fd: out, relay: Relay::new(Stream::Out, tag, together.clone()) }),
                Some(Output { fd: err, relay: Relay::new(Stream::Err, err_tag, together.clone()) }),
            ],
            course,
        };
        let status = run.see_through(scratch);
        match (together, &self.order) {
            (None, _) => {}
            (Some(together), None) => together.end(&self.console, &mut run.course),
            (Some(together), Some(order)) => {
                if let Some(kept) = together.take_kept() {
                    order.keep(subject.key, kept, &self.console, &mut run.course);
                }
            }
        }
        let status = status?;
        let Course { phase, exited, lost, .. } = run.course;
        let lost = lost.contains(&true);
        let ended = match phase {
            Phase::Running { .. } => match status.map(|status| (status.code(), status.signal())) {
                Some((Some(0), _)) if lost => Ended::Unheard,
                Some((Some(code), _)) => Ended::Exit(code),
                Some((None, signal)) => Ended::Signal(signal.unwrap_or(0)),
                None => Ended::Unknown,
            },
            Phase::Ending { why, .. } | Phase::Killed { why } => why,
        };
        for output in run.outputs.into_iter().flatten() {
            self.orphan_output.take(output);
        }
        let output_lost = lost && !matches!(ended, Ended::Unheard | Ended::Stopped);
        Ok(Some(Finish { ended, output_lost, at: exited.unwrap_or_else(Instant::now) }))
    }
}

/// Whether PROGRAM is a script without `#!`. `sh` itself is not.
fn is_for_shell(e: &io::Error, command: &Command) -> bool {
    e.raw_os_error() == Some(Errno::NOEXEC.raw_os_error())
        && lookup::is_script(command.get_program().as_ref())
}

/// The command run by `sh`, as `execvp` does it.
fn for_shell(command: &Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

#[derive(Clone, Copy)]
enum Phase {
    Running {
        until: Option<Instant>,
    },
    /// TERM was sent.
    Ending {
        why: Ended,
        kill_at: Option<Instant>,
    },
    /// KILL was sent.
    Killed {
        why: Ended,
    },
}

/// The process in a form that can be polled.
enum Process {
    #[cfg(target_os = "linux")]
    Fd(OwnedFd),
    /// The system has no such descriptor, or refuses it.
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

/// The progress of a run.
struct Course<'a> {
    supervisor: &'a Supervisor,
    subject: Subject<'a>,
    /// Whether the run belongs to another process by now.
    is_lost: &'a dyn Fn() -> bool,
    group: Pid,
    /// When its exit was noticed.
    exited: Option<Instant>,
    stopped: Option<Stopped>,
    /// The last look that found the run ours.
    kept: Option<Instant>,
    phase: Phase,
    /// The outputs of which something is lost.
    lost: [bool; 2],
}

/// The process was stopped by this signal.
#[derive(Clone, Copy)]
struct Stopped {
    signal: i32,
    told: bool,
}

impl Course<'_> {
    /// Checks whether the process has ended, without reaping it.
    fn look_for_end(&mut self) {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        // We have not reaped it. That there is no such child means that it has ended all the
        // same: the system or somebody else in this process has taken its exit status.
        if self.exited.is_none()
            && matches!(waitid(WaitId::Pid(self.group), options), Ok(Some(_)) | Err(Errno::CHILD))
        {
            self.exited = Some(Instant::now());
        }
    }

    /// The signal by which it is stopped.
    fn stopping_signal(&self) -> Option<i32> {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(self.group), options).ok()??.stopping_signal()
    }

    /// Handles a stopped process. If the system stopped it because it wanted the terminal, which is not its
    /// own, it would never be continued, so it is ended. If a user stopped it, it stays stopped until the
    /// command must end, which would have to wait for it.
    fn is_stopped(&mut self, signal: i32) {
        if [Signal::TTIN.as_raw(), Signal::TTOU.as_raw()].contains(&signal) {
            self.term(Ended::WantedTerminal(signal));
        } else if self.supervisor.control.reached(Level::WorkOff) {
            self.term(Ended::Stopped);
        } else {
            self.stopped.get_or_insert(Stopped { signal, told: false });
        }
    }

    /// Reports once that it is stopped. Not during a write, which holds the lock that this needs.
    fn tell(&mut self) {
        if let Some(Stopped { signal, told: told @ false }) = &mut self.stopped {
            *told = true;
            let (supervisor, signal) = (self.supervisor, *signal);
            supervisor.log.stopped(self.subject, signal, self.group, self);
        }
    }

    /// Handles deadlines and notices.
    fn move_on(&mut self) {
        let passed = |at: Option<Instant>| at.is_some_and(|at| Instant::now() >= at);
        let control = &self.supervisor.control;
        // before it is asked: it may be lost a moment later
        let now = Instant::now();
        let is_lost = (self.is_lost)();
        if !is_lost {
            self.kept = Some(now);
        }
        match self.phase {
            // Both may have come in one wake-up: what has ended by itself has ended.
            Phase::Running { .. } if self.exited.is_some() => {}
            Phase::Running { .. } if control.reached(Level::Stop) => self.term(Ended::Stopped),
            Phase::Running { .. } if is_lost => self.term(Ended::LeaseLost),
            Phase::Running { until } if passed(until) => self.term(Ended::TimedOut),
            Phase::Running { .. } => {
                if let Some(signal) = self.stopping_signal() {
                    self.is_stopped(signal);
                }
            }
            // Others may get the key also while it ends for another reason.
            Phase::Ending { why, kill_at }
                if passed(kill_at)
                    || is_lost && passed(self.lease_ends())
                    || control.reached(Level::Kill) =>
            {
                self.kill(why);
            }
            _ => {}
        }
    }

    /// When everything of a run that is no longer ours must have ended, if a lease says so.
    fn lease_ends(&self) -> Option<Instant> {
        let lease = self.supervisor.lease?;
        // one that was never seen kept is over already
        Some(self.kept.and_then(|kept| kept.checked_add(lease.left)).unwrap_or_else(Instant::now))
    }

    fn term(&mut self, why: Ended) {
        let kill_at = Instant::now().checked_add(self.supervisor.grace);
        let lease_ends = self.lease_ends().filter(|_| why == Ended::LeaseLost);
        let kill_at = kill_at.into_iter().chain(lease_ends).min();
        self.phase = Phase::Ending { why, kill_at };
        // It fails if no process is left, which is what we want.
        let _ = kill_process_group(self.group, Signal::TERM);
        // A stopped process would not see TERM before it is continued.
        let _ = kill_process_group(self.group, Signal::CONT);
    }

    fn kill(&mut self, why: Ended) {
        self.phase = Phase::Killed { why };
        let _ = kill_process_group(self.group, Signal::KILL);
    }
}

/// The child's care while the reader of our output blocks the worker.
impl Meanwhile for Course<'_> {
    fn until(&self) -> Option<Instant> {
        let glance = Instant::now() + self.supervisor.lease.map_or(GLANCE, |lease| lease.look);
        let at = match self.phase {
            Phase::Running { .. } if self.exited.is_some() => return None,
            Phase::Running { until: at } | Phase::Ending { kill_at: at, .. } => at,
            Phase::Killed { .. } => None,
        };
        Some(at.map_or(glance, |at| at.min(glance)))
    }

    fn look(&mut self) {
        self.look_for_end();
        self.move_on();
    }

    fn hurries(&self) -> bool {
        match self.phase {
            Phase::Running { .. } => false,
            Phase::Ending { .. } => self.exited.is_some(),
            Phase::Killed { .. } => true,
        }
    }

    fn loses(&mut self, stream: Stream) {
        self.lost[stream as usize] = true;
    }

    fn has_lost(&self, stream: Stream) -> bool {
        self.lost[stream as usize]
    }
}

struct Run<'a> {
    course: Course<'a>,
    child: Child,
    /// Dropped before the child is reaped: then its number may belong to another process.
    mark: Option<Mark<'a>>,
    process: Process,
    outputs: [Option<Output>; 2],
}

impl Run<'_> {
    /// Waits until the child has ended and a group that must end is empty. `None` if its exit status is lost.
    fn see_through(&mut self, scratch: &mut [u8]) -> io::Result<Option<ExitStatus>> {
        loop {
            if self.course.exited.is_some() {
                let silent = self.outputs.iter().all(Option::is_none);
                match self.course.phase {
                    Phase::Running { .. } | Phase::Killed { .. } => break,
                    // Others of the group have until `kill_at` too, as long as one can
                    // see them: by the outputs that they hold. Somebody else who holds
                    // them has left the group, and is not waited for.
                    Phase::Ending { why, .. }
                        if silent || !has_process(self.course.group, Some(self.course.group)) =>
                    {
                        self.course.kill(why);
                        break;
                    }
                    Phase::Ending { .. } => {}
                }
            }
            self.wait(scratch)?;
            // Afresh: the reader may have kept us waiting.
            self.course.look();
            self.course.tell();
        }
        self.mark = None;
        let status = match self.child.wait() {
            Err(e) if e.raw_os_error() == Some(Errno::CHILD.raw_os_error()) => None,
            status => Some(status?),
        };
        self.read_aftermath(scratch);
        Ok(status)
    }

    /// Waits for the next event, and reads the available output.
    fn wait(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        let Self { course, process, outputs, .. } = self;
        let (control, console) = (&course.supervisor.control, &course.supervisor.console);
        let notice = match course.phase {
            Phase::Running { .. } => Some(control.children_stop.fd()),
            Phase::Ending { .. } => Some(control.children_die.fd()),
            Phase::Killed { .. } => None,
        };
        let mut timeout = course.until().map(|at| at.saturating_duration_since(Instant::now()));
        let mut fds = Vec::with_capacity(4);
        for output in outputs.iter().flatten() {
            fds.push(PollFd::new(&output.fd, PollFlags::IN));
        }
        let open = fds.len();
        match process.fd() {
            Some(fd) if course.exited.is_none() => fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            Some(_) => {}
            None => timeout = Some(timeout.map_or(LOOK, |t| t.min(LOOK))),
        }
        fds.extend(notice.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout =
            timeout.map(|t| Timespec::try_from(t).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 }));
        match poll(&mut fds, timeout.as_ref()) {
            Err(Errno::INTR) => return Ok(()),
            other => other?,
        };
        let ready: Vec<bool> = fds[..open].iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        // Before the outputs, whose reader may keep us waiting.
        course.look_for_end();
        let mut ready = ready.into_iter();
        for place in outputs {
            if let Some(output) = place {
                if ready.next() == Some(true) && output.read(scratch, console, course).is_none() {
                    output.relay.finish(console, course);
                    *place = None;
                }
            }
        }
        Ok(())
    }

    /// Reads the child's remaining output from its pipes, which others may hold open.
    fn read_aftermath(&mut self, scratch: &mut [u8]) {
        let Self { course, outputs, .. } = self;
        let console = &course.supervisor.console;
        for place in outputs {
            let mut taken = 0;
            while let Some(output) = place {
                let mut fds = [PollFd::new(&output.fd, PollFlags::IN)];
                let something = matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1));
                if !something || taken > AFTERMATH {
                    break;
                }
                match output.read(scratch, console, course) {
                    Some(n) => taken += n,
                    None => {
                        output.relay.finish(console, course);
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
    use crate::system::control::Level;

    fn supervisor(timeout: Option<Duration>) -> Supervisor {
        let control = Arc::new(Control::new(|_| {}).unwrap());
        let console = Arc::new(Console::new(Arc::clone(&control)));
        let grace = Duration::from_millis(20);
        Supervisor {
            timeout,
            grace,
            lease: None,
            control,
            log: Arc::new(Log::new(crate::config::Form::Off, Arc::clone(&console), 0)),
            orphan_output: OrphanOutput::new(Arc::clone(&console)),
            process_slots: ProcessSlots::default(),
            reaper: None,
            groups: false,
            order: None,
            by_shell: AtomicBool::new(false),
            started: AtomicBool::new(false),
            console,
        }
    }

    const ANY: Subject<'_> = Subject { key: b"key", attempt: 1 };

    fn sh(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    /// The end-to-end tests cover the path with a descriptor; this is the other.
    #[test]
    fn a_process_that_can_only_be_looked_at_is_seen_through_too() {
        let mut scratch = [0; 1024];
        let mut run = |supervisor: &Supervisor, script| {
            let finish =
                supervisor.run_watched(sh(script), ANY, None, &|| false, &mut scratch, |_| Process::Look);
            finish.unwrap().unwrap().ended
        };
        assert_eq!(run(&supervisor(None), "exit 3"), Ended::Exit(3));
        assert_eq!(run(&supervisor(None), "exec >&- 2>&-; sleep 0.1; exit 4"), Ended::Exit(4));
        assert_eq!(run(&supervisor(None), "kill -9 $$"), Ended::Signal(9));
        let short = supervisor(Some(Duration::from_millis(20)));
        assert_eq!(run(&short, "trap '' TERM; while :; do sleep 1; done"), Ended::TimedOut);
        let stopped = supervisor(None);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stopped.ever_started() {
                    std::thread::yield_now();
                }
                stopped.control.raise(Level::Stop);
            });
            assert_eq!(run(&stopped, "exec sleep 1000"), Ended::Stopped);
        });
        let none = stopped.run(sh("exit 0"), ANY, None, &|| false, &mut []);
        assert_eq!(none.unwrap(), None, "no further run begins");
    }

    /// A run that belongs to another process has no time left for TERM.
    #[test]
    fn a_program_that_ignores_term_is_killed_when_its_lease_ends_and_not_after_the_grace() {
        let lease = Duration::from_millis(300);
        let hour = Duration::from_secs(3600);
        let supervisor =
            |timeout| Supervisor { grace: hour, lease: Some(Lease::new(lease)), ..supervisor(timeout) };
        let dir = tempfile::tempdir().unwrap();
        let is_deaf = dir.path().join("deaf");
        let deaf = || {
            let mut command = sh("trap '' TERM; : >$F; while :; do sleep 1; done");
            command.env("F", &is_deaf);
            command
        };
        let ended = |supervisor: Supervisor, is_lost: &dyn Fn() -> bool| {
            supervisor.run(deaf(), ANY, None, is_lost, &mut [0; 1024]).unwrap().unwrap().ended
        };
        assert_eq!(ended(supervisor(None), &|| is_deaf.exists()), Ended::LeaseLost);
        // it is there by now
        assert_eq!(ended(supervisor(None), &|| true), Ended::LeaseLost);
        // TERM has come for another reason, when it is lost
        std::fs::remove_file(&is_deaf).unwrap();
        let looks = std::cell::Cell::new(0);
        let later = || is_deaf.exists() && looks.replace(looks.get() + 1) > 20;
        assert_eq!(ended(supervisor(Some(Duration::from_millis(100))), &later), Ended::TimedOut);
    }

    #[test]
    fn what_is_left_of_a_lease_is_less_than_a_third_with_the_look_that_finds_it_lost() {
        for length in [300, 3_000, 30_000, 3_600_000].map(Duration::from_millis) {
            let Lease { left, look } = Lease::new(length);
            // TERM is not KILL's: there is something between them
            assert!(left < length / 3 && look < left / 4, "{left:?} {look:?}");
        }
    }

    #[test]
    fn a_process_whose_exit_status_somebody_else_took_has_ended() {
        let takes_it = |child: &Child| {
            let _ =
                rustix::process::waitpid(Some(Pid::from_child(child)), rustix::process::WaitOptions::empty());
            Process::of(child)
        };
        let finish =
            supervisor(None).run_watched(sh("exit 0"), ANY, None, &|| false, &mut [0; 1024], takes_it);
        assert_eq!(finish.unwrap().unwrap().ended, Ended::Unknown);
    }
}

//! The reaper: ends the programs of a command that works on a durable queue and is killed (`kill -9`, out of
//! memory).
//!
//! A killed command can no longer act, and its programs would go on while the next command runs their keys.
//! So a separate process waits for the command's end: this program again, started under the name [`NAME`].
//! Only the command has the other end of its standard input, a pipe that any end of the command closes. The
//! list of current programs is a file in memory, its standard output. Its standard error has a lock of the
//! queue's file, so that no other command works on the queue until the programs have ended.
//!
//! The pipe shows the end of the command only when every program that was being started has been executed,
//! because until then that program has the pipe too. Its group may be unknown then, but its environment has
//! the text [`RUN`], and Linux shows the environment of processes.

use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::config::engine::ENGINE;
use crate::system::process_group::{has_process, started_with};

/// The name of the process, as `ps` shows it. `pkill requeue` does not find it.
const NAME: &str = "run-reaper";

/// The environment variable of a program that names its run.
pub(crate) const RUN: &str = "REQUEUE_RUN";

/// Size of a record: the number of the run, the process group, and whether there is a run and a group.
const RECORD: usize = 16;
const STARTING: u32 = 1;
const RUNNING: u32 = 2;

/// Interval for checking programs that are ending.
const LOOK: Duration = Duration::from_millis(20);

/// The process that ends the programs if this one is killed.
#[derive(Debug)]
pub(crate) struct Reaper {
    /// A record for each run.
    table: File,
    /// A number that no other process has in the names of its runs.
    name: u64,
    /// Time between TERM and KILL.
    grace: Duration,
    /// Kept until the programs have ended.
    lock: Option<OwnedFd>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    process: Option<(Child, OwnedFd)>,
    runs: u64,
    /// Free places in the table.
    free: Vec<u64>,
    places: u64,
}

/// A run known to the reaper, until this is dropped.
#[derive(Debug)]
pub(crate) struct Mark<'a> {
    reaper: &'a Reaper,
    run: u64,
    place: u64,
}

impl Reaper {
    /// Starts the process. It keeps `lock` until the programs have ended.
    ///
    /// # Errors
    ///
    /// If the system has no room for the process, or `/proc` is missing.
    pub(crate) fn start(grace: Duration, lock: Option<OwnedFd>) -> io::Result<Self> {
        let name = RandomState::new().hash_one(std::process::id());
        let reaper = Self { table: table()?, name, grace, lock, state: Mutex::default() };
        reaper.state().see_that_it_runs(&reaper)?;
        Ok(reaper)
    }

    /// Records that a program is about to be started.
    ///
    /// # Errors
    ///
    /// If the reaper was killed, and the system has no room for another.
    pub(crate) fn begin(&self) -> io::Result<Mark<'_>> {
        let mut state = self.state();
        state.see_that_it_runs(self)?;
        let place = state.free.pop().unwrap_or_else(|| {
            state.places += 1;
            state.places - 1
        });
        state.runs += 1;
        let mark = Mark { reaper: self, run: state.runs, place };
        drop(state);
        mark.note(STARTING, 0)?;
        Ok(mark)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Starts another reaper if it was killed.
    fn see_that_it_runs(&mut self, reaper: &Reaper) -> io::Result<()> {
        if let Some((process, _)) = &mut self.process {
            if process.try_wait()?.is_none() {
                return Ok(());
            }
        }
        let (lifeline, ours) = crate::system::pipe::pipe()?;
        let lock = reaper.lock.as_ref().map(OwnedFd::try_clone).transpose()?;
        let mut command = Command::new(this_program()?);
        command
            .arg0(NAME)
            .args([format!("{:016x}", reaper.name), reaper.grace.as_millis().to_string()])
            .stdin(lifeline)
            .stdout(reaper.table.try_clone()?)
            .stderr(lock.map_or_else(Stdio::null, Stdio::from))
            // signals to a shell's job must not reach the reaper
            .process_group(0)
            .current_dir("/")
            .env_remove(ENGINE);
        self.process = Some((command.spawn()?, ours));
        Ok(())
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        if let Some((mut process, lifeline)) = self.state().process.take() {
            drop(lifeline);
            // It has nothing to do, and ends at once.
            let _ = process.wait();
        }
    }
}

impl Mark<'_> {
    /// The value of [`RUN`] in the program's environment.
    pub(crate) fn name(&self) -> String {
        name_of(self.reaper.name, self.run)
    }

    /// Records the group of the program.
    ///
    /// # Errors
    ///
    /// If the memory is full.
    pub(crate) fn runs(&self, group: Pid) -> io::Result<()> {
        self.note(RUNNING, group.as_raw_nonzero().get().unsigned_abs())
    }

    fn note(&self, what: u32, group: u32) -> io::Result<()> {
        let mut record = [0; RECORD];
        record[..8].copy_from_slice(&self.run.to_ne_bytes());
        record[8..12].copy_from_slice(&group.to_ne_bytes());
        record[12..].copy_from_slice(&what.to_ne_bytes());
        self.reaper.table.write_all_at(&record, self.place * RECORD as u64)
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        // The record is there already, so that this needs no memory.
        let _ = self.note(0, 0);
        self.reaper.state().free.push(self.place);
    }
}

fn name_of(name: u64, run: u64) -> String {
    format!("{name:016x}-{run}")
}

/// A file without a name. In memory, because the disk may be full.
fn table() -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{MemfdFlags, memfd_create};
        if let Ok(file) = memfd_create("runs", MemfdFlags::CLOEXEC) {
            return Ok(file.into());
        }
    }
    tempfile::tempfile()
}

/// The file of this program, even if another version has replaced it.
fn this_program() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

/// Acts as the reaper in a process started as [`NAME`], and returns its exit status. `None` in any other
/// process.
pub(crate) fn reap() -> Option<u8> {
    let mut args = std::env::args_os();
    if args.next()? != NAME {
        return None;
    }
    let mut text = || args.next()?.into_string().ok();
    let (name, grace) = (u64::from_str_radix(&text()?, 16).ok()?, text()?.parse().ok()?);
    // A service manager sends these to all processes of a service. This one ends when the command has.
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2] {
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(c"run-reaper");
    while matches!(rustix::io::read(rustix::stdio::stdin(), &mut [0; 1]), Ok(1..) | Err(Errno::INTR)) {}
    end(programs(name), Duration::from_millis(grace));
    Some(0)
}

/// The groups of the remaining programs.
fn programs(name: u64) -> Vec<Pid> {
    let mut groups = Vec::new();
    let mut record = [0; RECORD];
    for place in 0.. {
        match rustix::io::pread(rustix::stdio::stdout().as_fd(), &mut record, place * RECORD as u64) {
            Ok(RECORD) => {}
            Err(Errno::INTR) => continue,
            _ => break,
        }
        let [run, group] = [&record[..8], &record[8..]].map(|it| {
            let mut eight = [0; 8];
            eight.copy_from_slice(it);
            eight
        });
        let [group, what] = [&group[..4], &group[4..]].map(|it| {
            let mut four = [0; 4];
            four.copy_from_slice(it);
            u32::from_ne_bytes(four)
        });
        match what {
            RUNNING => groups.extend(i32::try_from(group).ok().and_then(Pid::from_raw)),
            STARTING => {
                let text = format!("{RUN}={}", name_of(name, u64::from_ne_bytes(run)));
                groups.extend(started_with(text.as_bytes()));
            }
            _ => {}
        }
    }
    groups
}

/// Ends these groups, and waits until they are empty.
fn end(mut groups: Vec<Pid>, grace: Duration) {
    let kill_at = Instant::now() + grace;
    for group in &groups {
        // It fails if no process is left. A stopped process would not see TERM before it is continued.
        let _ = kill_process_group(*group, Signal::TERM);
        let _ = kill_process_group(*group, Signal::CONT);
    }
    loop {
        groups.retain(|group| has_process(*group, None));
        if groups.is_empty() {
            return;
        }
        if Instant::now() >= kill_at {
            for group in &groups {
                let _ = kill_process_group(*group, Signal::KILL);
            }
        }
        std::thread::sleep(LOOK);
    }
}

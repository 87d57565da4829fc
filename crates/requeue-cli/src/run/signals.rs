//! Signals: of INT, TERM and HUP the first asks to finish, the second to leave, the third insists; QUIT
//! insists at once.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::{Handle, Signals};

use crate::report::log::Log;
use crate::system::control::{Control, Level};
use crate::system::limits;

/// Message of a first signal after which ready keys stay in the durable queue.
const CLAIMS_NO_MORE: &str =
    "the running programs may end, and nothing more is claimed; once more to stop them";

/// The effect of the first signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// It ends the input: ready keys are nowhere else, and are run.
    Input,
    /// It ends the claims of a process on a server: claimed keys are run.
    Claims,
    /// It ends the runs of a file: ready keys stay in it.
    Runs,
}

/// Listens for signals from `new` until it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    first: Arc<AtomicI32>,
    messages: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Listener {
    /// # Errors
    ///
    /// If the system refuses the handlers or the thread.
    pub(crate) fn new(control: Arc<Control>, log: Arc<Log>, first_ends: First) -> io::Result<Self> {
        let mut wanted = vec![SIGINT, SIGTERM, SIGQUIT];
        // `nohup requeue …` asks to outlive its terminal.
        if !ignored(SIGHUP) {
            wanted.push(SIGHUP);
        }
        let mut signals = Signals::new(wanted)?;
        let handle = signals.handle();
        let first = Arc::new(AtomicI32::new(0));
        let seen = Arc::clone(&first);
        let messages: Arc<Mutex<Vec<JoinHandle<()>>>> = Arc::default();
        let theirs = Arc::clone(&messages);
        let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for (count, signal) in signals.forever().enumerate() {
                let _ = seen.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("signal");
                let (level, message) = match (count, first_ends) {
                    // or the programs, in groups of their own, would outlive us
                    _ if signal == SIGQUIT => (Level::Kill, "killing what runs"),
                    (0, First::Input) => (Level::WorkOff, "working off what is ready; once more to stop"),
                    (0, First::Claims) => (Level::WorkOff, CLAIMS_NO_MORE),
                    (0, First::Runs) => (Level::LastRuns, CLAIMS_NO_MORE),
                    (1, _) => (Level::Stop, "stopping what runs; once more to kill it"),
                    _ => (Level::Kill, "killing what runs"),
                };
                // In a thread of its own: if standard error is not read, the message waits, and the next
                // signal must not wait. The message comes after the change: its reader finds the queue shut.
                let log = Arc::clone(&log);
                let say = move || log.note(&format!("{name}: {message}"));
                let (raised, is_raised) = std::sync::mpsc::channel::<()>();
                let saying = std::thread::Builder::new().spawn({
                    let say = say.clone();
                    move || {
                        let _ = is_raised.recv(); // returns when `raised` is dropped
                        say();
                    }
                });
                let alone = saying.is_err();
                theirs.lock().unwrap_or_else(PoisonError::into_inner).extend(saying);
                control.raise(level);
                drop(raised);
                if alone {
                    say();
                }
            }
        });
        let thread = thread.map_err(|e| limits::no_thread(&e))?;
        Ok(Self { handle, thread: Some(thread), first, messages })
    }

    /// The signal that began the end.
    pub(crate) fn first(&self) -> Option<i32> {
        match self.first.load(Ordering::SeqCst) {
            0 => None,
            n => Some(n),
        }
    }
}

impl Listener {
    /// Waits until all messages about signals so far are written.
    pub(crate) fn messages_said(&self) {
        let messages = std::mem::take(&mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner));
        for message in messages {
            let _ = message.join();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes the system keep the exit status of a program until we read it.
///
/// Our parent may have ignored `SIGCHLD` (`trap '' CHLD`), and an ignored signal stays ignored across `exec`:
/// the system then forgets each program as soon as it ends. An empty handler replaces that: the default
/// action could only be set by unsafe code, and our programs have the default action again because no handler
/// outlives `exec`. If it is unknown whether the signal is ignored, there is always such a handler. Called
/// before there is any thread or program.
///
/// # Errors
///
/// If the system refuses the handler.
pub(crate) fn keep_exit_statuses() -> io::Result<()> {
    if cfg!(not(target_os = "linux")) || ignored(SIGCHLD) {
        signal_hook::flag::register(SIGCHLD, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// Makes a file at its size limit (`ulimit -f`) an error of the write, like a full disk, and not the end of
/// the command. A handler and not `SIG_IGN`, which the programs would inherit.
///
/// # Errors
///
/// If the system refuses the handler.
pub(crate) fn keep_going_without_room() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}

/// Whether our parent had this signal ignored. Only Linux tells this without unsafe code; on other systems
/// the answer is no.
fn ignored(signal: i32) -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return false;
    };
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

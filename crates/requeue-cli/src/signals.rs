//! INT, TERM and HUP: the first asks to finish, the second to leave, the third insists;
//! QUIT insists at once.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::{Handle, Signals};

use crate::control::{Control, Level};
use crate::limits;
use crate::log::Log;

/// Message of a first signal that leaves in a durable queue what is ready there.
const CLAIMS_NO_MORE: &str =
    "the running programs may end, and nothing more is claimed; once more to stop them";

/// The work that the first signal ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// Only the input: what is ready is nowhere else, and is run.
    Input,
    /// The claims of a process on a server: what it has claimed is run.
    Claims,
    /// The runs of a file: what is ready stays in it.
    Runs,
}

/// Listens from `new` on; dropped, it listens no more.
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
    /// The system refuses the handlers or the thread.
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
                // Beside: where standard error is not read a message waits, and the
                // next signal must not. After what it is about: who reads that we work
                // off what is ready finds the queue shut.
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
    /// Waits until all that was to be said about signals so far is said.
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

/// Sees to it that the system keeps the exit status of a program until we ask for it.
///
/// Whoever started us may have had `SIGCHLD` ignored (`trap '' CHLD`), and an ignored signal
/// stays ignored across `exec`: the system then forgets each program as soon as it ends. A
/// handler takes the place of that, one that does nothing of use: the default action could
/// only be set by unsafe code, and each program that we start has the default action again
/// because no handler outlives `exec`. Where one cannot ask whether the signal is ignored,
/// there is always such a handler. Called before there is any thread or program.
///
/// # Errors
///
/// The system refuses the handler.
pub(crate) fn keep_exit_statuses() -> io::Result<()> {
    if cfg!(not(target_os = "linux")) || ignored(SIGCHLD) {
        signal_hook::flag::register(SIGCHLD, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// Sees to it that a file which may not grow any more (`ulimit -f`) is an error of the write,
/// as a full disk is, and not the end of the command. A handler and not `SIG_IGN`, which the
/// programs would inherit.
///
/// # Errors
///
/// The system refuses the handler.
pub(crate) fn keep_going_without_room() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}

/// Whether whoever started us had this signal ignored. Only Linux can be asked
/// without unsafe code; elsewhere the answer is no.
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

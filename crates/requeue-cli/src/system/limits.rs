//! Resource limits of the process: open files, memory, and processes.

use std::io;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit, getuid, setrlimit};
use rustix::stdio::stderr;

/// Maximum number of descriptors of one run, while it is started: two pipes, the child's input, the process,
/// and those of the start itself.
const EACH: u64 = 8;

/// Number of descriptors that are open besides those of the runs.
const OURS: u64 = 32;

/// Additional descriptors of `--listen`.
const SERVED: u64 = crate::http::CLIENTS as u64 + 8;

/// Address space of one thread: its stack, and the C library's allocator.
const THREAD: u64 = 2 << 20;
const ARENA: u64 = 64 << 20;
/// Number of threads per core that get an allocation arena of their own.
const ARENAS: u64 = 8;

/// Number of workers, of this number, that the limits allow, and the limit that allows least.
pub(crate) fn with_room(workers: usize) -> (usize, &'static str) {
    let memory = (in_memory(), "little address space (ulimit -v)");
    let processes = (in_processes(), "few processes (ulimit -u)");
    let (most, scarce) = if processes.0 < memory.0 { processes } else { memory };
    (workers.min(usize::try_from(most).unwrap_or(usize::MAX)).max(1), scarce)
}

/// Number of workers that the limit on the address space allows: half of it is reserved for all else, because
/// a failed allocation ends the process.
fn in_memory() -> u64 {
    let Some(limit) = getrlimit(Resource::As).current else { return u64::MAX };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let (spare, arenas) = (limit / 2, ARENAS * cores as u64);
    let with_arena = (spare / (ARENA + THREAD)).min(arenas);
    let without = (spare - with_arena * (ARENA + THREAD)) / THREAD;
    if with_arena < arenas { with_arena } else { with_arena + without }
}

/// Number of threads besides the workers: the main thread, and those for signals, `--listen`, the progress,
/// and left-behind output. A thread counts as a process.
const THREADS: u64 = 5;

/// Processes per worker: itself, the program, and one that it starts.
const EACH_WORKER: u64 = 3;

/// Minimum number of processes for one program that starts another: the first thread and the one for signals
/// always exist.
const LEAST_PROCESSES: u64 = 2 + EACH_WORKER;

/// Number of workers that the limit on the user's processes allows.
fn in_processes() -> u64 {
    processes().map_or(u64::MAX, |limit| limit.saturating_sub(THREADS) / EACH_WORKER)
}

/// The limit on the user's processes. Root has none, whatever is set.
fn processes() -> Option<u64> {
    getrlimit(Resource::Nproc).current.filter(|_| !getuid().is_root())
}

/// The error for a thread that the system refuses.
pub(crate) fn no_thread(e: &io::Error) -> io::Error {
    io::Error::new(
        e.kind(),
        format!("no thread could be started: {e}; the limits are those of ulimit -u and ulimit -v"),
    )
}

/// Threads of an engine on a server: its own, and the one in which the server's name is looked up.
const ENGINE: usize = 2;

/// Checks that the system has threads for an engine on a server. The look-up of a name panics without one.
///
/// # Errors
///
/// If a thread cannot be started.
pub(crate) fn check_threads() -> io::Result<()> {
    let gate = parking_lot::Mutex::new(());
    std::thread::scope(|scope| {
        // all of them at the same time
        let closed = gate.lock();
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, || drop(gate.lock())).map(drop);
        let started = (0..ENGINE).try_for_each(start);
        drop(closed);
        started.map_err(|e| no_thread(&e))
    })
}

/// Descriptors for one run at a time: [`EACH`], four notices and the signals.
const LEAST: u64 = EACH + 4 * 2 + 2;

/// Checks that there are processes for one run at a time, and descriptors in addition to those already open.
///
/// # Errors
///
/// The available and the required number.
pub(crate) fn check() -> Result<(), String> {
    // Where others of our user have the rest, it may be there again: see `ProcessSlots`.
    if let Some(limit) = processes().filter(|limit| *limit < LEAST_PROCESSES) {
        return Err(format!(
            "too few processes are allowed: the limit is {limit}, and {LEAST_PROCESSES} are needed; \
             raise it with ulimit -u"
        ));
    }
    let free = (0..LEAST).map_while(|_| fcntl_dupfd_cloexec(stderr(), 0).ok());
    let free = free.collect::<Vec<_>>().len() as u64;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if free < LEAST => Err(format!(
            "too few open files are allowed: the limit is {limit}, and {} are needed; raise it with ulimit -n",
            limit + LEAST - free
        )),
        // A shortage of the whole system may pass: see `ProcessSlots`.
        _ => Ok(()),
    }
}

/// Raises the limit of descriptors as needed for this number of workers and as far as permitted. A sufficient
/// limit is left alone, because the programs inherit it.
pub(crate) fn raise_for(workers: usize, listens: bool) {
    let needed = OURS + EACH * workers as u64 + if listens { SERVED } else { 0 };
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
        // Where it fails, fewer run at once: see `ProcessSlots`.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

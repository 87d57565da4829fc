//! Our limits: on open files, on memory, and on processes.

use std::io;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit, getuid, setrlimit};
use rustix::stdio::stderr;

/// Descriptors of one run while it is started, when it has most: two pipes, the
/// child's input, the process, and what the start itself takes.
const EACH: u64 = 8;

/// What we have open beside the runs.
const OURS: u64 = 32;

/// What `--listen` takes beside that.
const SERVED: u64 = crate::http::CLIENTS as u64 + 8;

/// Address space of one thread: its stack, and what the C library keeps for allocating.
const THREAD: u64 = 2 << 20;
const ARENA: u64 = 64 << 20;
/// So many threads get an arena of their own from the C library, for each core.
const ARENAS: u64 = 8;

/// How many of so many workers our limits have room for, and which of them has least.
pub(crate) fn with_room(workers: usize) -> (usize, &'static str) {
    let memory = (in_memory(), "little address space (ulimit -v)");
    let processes = (in_processes(), "few processes (ulimit -u)");
    let (most, scarce) = if processes.0 < memory.0 { processes } else { memory };
    (workers.min(usize::try_from(most).unwrap_or(usize::MAX)).max(1), scarce)
}

/// How many workers the limit on our address space has room for: half of it stays for
/// all else, because who finds none for a few bytes is ended.
fn in_memory() -> u64 {
    let Some(limit) = getrlimit(Resource::As).current else { return u64::MAX };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let (spare, arenas) = (limit / 2, ARENAS * cores as u64);
    let with_arena = (spare / (ARENA + THREAD)).min(arenas);
    let without = (spare - with_arena * (ARENA + THREAD)) / THREAD;
    if with_arena < arenas { with_arena } else { with_arena + without }
}

/// Our threads beside the workers: the first, and those for signals, for `--listen`, for
/// the progress, and for what programs leave behind. A thread counts as a process.
const THREADS: u64 = 5;

/// What a worker takes with its program: itself, the program, and one that it starts.
const EACH_WORKER: u64 = 3;

/// With fewer processes not even one program that starts another could run: the first
/// thread and the one for signals are always there.
const LEAST_PROCESSES: u64 = 2 + EACH_WORKER;

/// How many workers the limit on our user's processes has room for.
fn in_processes() -> u64 {
    processes().map_or(u64::MAX, |limit| limit.saturating_sub(THREADS) / EACH_WORKER)
}

/// The limit on our user's processes. Root has none, whatever is set.
fn processes() -> Option<u64> {
    getrlimit(Resource::Nproc).current.filter(|_| !getuid().is_root())
}

/// What is said where the system gives us no thread.
pub(crate) fn no_thread(e: &io::Error) -> io::Error {
    io::Error::new(
        e.kind(),
        format!("no thread could be started: {e}; the limits are those of ulimit -u and ulimit -v"),
    )
}

/// Threads of an engine on a server: its own, and the one in which the server's name is looked up.
const ENGINE: usize = 2;

/// Whether the system gives an engine on a server its threads. The look-up of a name panics where there is none.
///
/// # Errors
///
/// There is no thread to be had.
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

/// What one run at a time takes: [`EACH`], four notices to all and the signals.
const LEAST: u64 = EACH + 4 * 2 + 2;

/// Whether there are processes for one run at a time, and descriptors beside those that
/// are open by now.
///
/// # Errors
///
/// How many there are, and how many are needed.
pub(crate) fn check() -> Result<(), String> {
    // Where others of our user have the rest, it may be there again: see `Room`.
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
        // What the whole system has too little of may be there again: see `Room`.
        _ => Ok(()),
    }
}

/// Raises our limit as far as that many workers need it and the system lets us. It is
/// left alone where it is enough, because the programs inherit it.
pub(crate) fn raise_for(workers: usize, listens: bool) {
    let needed = OURS + EACH * workers as u64 + if listens { SERVED } else { 0 };
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
        // Where it fails, fewer run at once: see `Room`.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

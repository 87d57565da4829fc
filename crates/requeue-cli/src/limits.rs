//! Our limits: on open files, and on memory.

use rustix::process::{Resource, getrlimit, setrlimit};

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

/// How many of so many workers the limit on our address space (`ulimit -v`) has room
/// for: half of it stays for all else, because who finds none for a few bytes is ended.
pub(crate) fn with_room(workers: usize) -> usize {
    match getrlimit(Resource::As).current {
        None => workers,
        Some(limit) => {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
            let (spare, arenas) = (limit / 2, ARENAS * cores as u64);
            let with_arena = (spare / (ARENA + THREAD)).min(arenas);
            let without = (spare - with_arena * (ARENA + THREAD)) / THREAD;
            let threads = if with_arena < arenas { with_arena } else { with_arena + without };
            workers.min(usize::try_from(threads).unwrap_or(usize::MAX)).max(1)
        }
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

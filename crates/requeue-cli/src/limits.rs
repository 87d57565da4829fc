//! The limit on open files.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Descriptors of one run while it is started, when it has most: two pipes, the
/// child's input, the process, and what the start itself takes.
const EACH: u64 = 8;

/// What we have open beside the runs.
const OURS: u64 = 32;

/// What `--listen` takes beside that.
const SERVED: u64 = crate::http::CLIENTS as u64 + 8;

/// Raises our limit as far as that many workers need it and the system lets us. It is
/// left alone where it is enough, because the programs inherit it.
pub(crate) fn raise_for(workers: usize, listens: bool) {
    let needed = OURS + EACH * workers as u64 + if listens { SERVED } else { 0 };
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
        // Where it fails, starts may fail; they are retried like every failure.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

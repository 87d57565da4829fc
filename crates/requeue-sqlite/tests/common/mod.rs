//! Helpers to reopen what tests have just released.

use requeue_engine::EngineError;
use std::time::{Duration, Instant};

/// A generous time limit: on the slowest machine only an event that never comes reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// Opens it, waiting for threads of this process that are about to release the file or the queue. The library
/// waits a second; a busy machine needs longer.
pub(crate) fn once_free<T>(open: impl Fn() -> Result<T, EngineError>) -> Result<T, EngineError> {
    let begun = Instant::now();
    loop {
        let opened = open();
        let taken = |e: &EngineError| {
            let why = e.to_string();
            why.contains(" works on it") || why.contains(" is open in this process")
        };
        if begun.elapsed() > LONG || !opened.as_ref().is_err_and(taken) {
            return opened;
        }
    }
}

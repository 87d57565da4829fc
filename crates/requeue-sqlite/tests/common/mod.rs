//! How tests open what they have just let go of.

use requeue::EngineError;
use std::time::{Duration, Instant};

/// Whatever is waited for comes within this time, however slow the machine is, unless it never comes.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// Opens it. Threads of this process may be about to let go of the file or of the queue: they are waited for a second, and on a
/// busy machine they need longer.
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

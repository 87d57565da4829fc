//! The Tokio runtime in which timers are set and waited for by plain threads.

use std::mem::forget;
use std::sync::OnceLock;
use tokio::runtime::Runtime;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

thread_local! {
    /// Leaked: the guard must not be dropped while the thread ends.
    static ENTERED: () = forget(runtime().enter());
}

/// A runtime whose one worker only turns the wheel of timers.
fn runtime() -> &'static Runtime {
    RUNTIME.get_or_init(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_time().build().expect("a runtime with one thread")
    })
}

/// Lets this thread use Tokio's timers.
#[inline]
pub fn enter() {
    ENTERED.with(|()| ());
}

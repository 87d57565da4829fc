//! Turns a hang into a failure that names the test.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Time after which a test counts as hung. No test waits for time to pass, so a test that still runs after
/// this is stuck, however slow the machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs `test` under a watchdog.
///
/// A deadlocked test cannot be unwound: the process is aborted, after a line
/// that names the test.
///
/// # Panics
///
/// If `test` does.
pub fn run(name: &str, test: impl FnOnce() + Send + 'static) {
    run_for(name, PATIENCE, test);
}

/// [`run`] with a patience of the caller's own, for tests that work for long.
///
/// # Panics
///
/// If `test` does.
pub fn run_for(name: &str, patience: Duration, test: impl FnOnce() + Send + 'static) {
    let (tell, told) = mpsc::channel::<Result<(), Box<dyn Any + Send>>>();
    let thread = thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let end = catch_unwind(AssertUnwindSafe(test));
            let _ = tell.send(end);
        })
        .expect("a thread for the test");
    let Ok(end) = told.recv_timeout(patience) else {
        eprintln!("{name}: still running after {patience:?}: a deadlock, or a wake-up that never came");
        std::process::abort();
    };
    let _ = thread.join();
    if let Err(panic) = end {
        resume_unwind(panic);
    }
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    #[should_panic(expected = "as it was")]
    fn a_panic_of_the_test_comes_out_as_it_was() {
        run("inner", || panic!("as it was"));
    }
}

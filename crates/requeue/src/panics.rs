//! Panics of users' code where nobody can receive them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

/// Runs foreign code whose panic nobody here can receive. A payload may panic
/// when it is dropped; that one is leaked.
pub(crate) fn quietly(foreign: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(foreign)) {
        if let Err(worse) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(worse);
        }
    }
}

/// Does what a `Drop` does. During unwinding a panic of users' code is caught: a
/// second one would abort the process.
#[inline]
pub(crate) fn in_drop(what: impl FnOnce()) {
    if std::thread::panicking() {
        quietly(what);
    } else {
        what();
    }
}

/// Wakes all of them: one that panics must not keep the rest asleep.
pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        quietly(|| waker.wake());
    }
}

/// The first of several panics, to go on once all is done.
#[derive(Default)]
pub(crate) struct FirstPanic(Option<Box<dyn Any + Send>>);

impl FirstPanic {
    /// Whether `what` did not panic.
    pub(crate) fn catch(&mut self, what: impl FnOnce()) -> bool {
        let Err(panic) = catch_unwind(AssertUnwindSafe(what)) else { return true };
        match &self.0 {
            None if !std::thread::panicking() => self.0 = Some(panic),
            _ => quietly(|| drop(panic)),
        }
        false
    }

    pub(crate) fn resume(self) {
        if let Some(panic) = self.0 {
            resume_unwind(panic);
        }
    }
}

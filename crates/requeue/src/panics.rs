//! Panics of users' code where nobody can receive them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

/// Runs foreign code whose panic nobody here can receive; `None` if it panicked. A payload may panic
/// when it is dropped; that one is leaked.
pub(crate) fn quietly<T>(foreign: impl FnOnce() -> T) -> Option<T> {
    let payload = match catch_unwind(AssertUnwindSafe(foreign)) {
        Ok(answer) => return Some(answer),
        Err(payload) => payload,
    };
    if let Err(worse) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(worse);
    }
    None
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

/// Drops a key and a value. One that panics does not keep the other from being dropped, nor
/// does its panic meet another one.
#[inline]
pub(crate) fn drop_both<K, V>(key: Option<K>, value: Option<V>) {
    if std::mem::needs_drop::<(K, V)>() && (key.is_some() || value.is_some()) {
        let mut first = FirstPanic::default();
        first.catch(|| drop(key));
        first.catch(|| drop(value));
        first.resume();
    }
}

/// Takes out what stands there and drops it, as a `Drop` does: also where a panic unwinds
/// through whoever has it.
pub(crate) struct DropsQuietly<'a, T>(pub(crate) &'a mut Option<T>);

impl<T> Drop for DropsQuietly<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_some() {
            in_drop(|| drop(self.0.take()));
        }
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
    /// `None` if `what` panicked.
    pub(crate) fn catch<T>(&mut self, what: impl FnOnce() -> T) -> Option<T> {
        let panic = match catch_unwind(AssertUnwindSafe(what)) {
            Ok(answer) => return Some(answer),
            Err(panic) => panic,
        };
        match &self.0 {
            None if !std::thread::panicking() => self.0 = Some(panic),
            _ => _ = quietly(|| drop(panic)),
        }
        None
    }

    pub(crate) fn resume(self) {
        if let Some(panic) = self.0 {
            resume_unwind(panic);
        }
    }
}

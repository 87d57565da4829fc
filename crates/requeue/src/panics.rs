//! Handling of panics in user code that no caller can receive.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

/// Runs user code and catches its panic; `None` if it panicked. If the payload panics when dropped, it is
/// leaked.
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

/// Runs the body of a `Drop`. During unwinding a panic of user code is caught: a second one would abort the
/// process.
#[inline]
pub(crate) fn in_drop(what: impl FnOnce()) {
    if std::thread::panicking() {
        quietly(what);
    } else {
        what();
    }
}

/// Drops a key and a value. If one panics, the other is still dropped, outside the unwinding.
#[inline]
pub(crate) fn drop_both<K, V>(key: Option<K>, value: Option<V>) {
    if std::mem::needs_drop::<(K, V)>() && (key.is_some() || value.is_some()) {
        let mut first = FirstPanic::default();
        first.catch(|| drop(key));
        first.catch(|| drop(value));
        first.resume();
    }
}

/// Drops the value in a slot as a `Drop` does, even if a panic unwinds through its owner.
pub(crate) struct DropsQuietly<'a, T>(pub(crate) &'a mut Option<T>);

impl<T> Drop for DropsQuietly<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_some() {
            in_drop(|| drop(self.0.take()));
        }
    }
}

/// Wakes all wakers. One that panics must not keep the rest asleep.
pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        quietly(|| waker.wake());
    }
}

/// The first of several panics, resumed when all is done.
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

//! The one door through which locks, atomics and parking come in, so that the
//! models can swap in loom's under the private cfg `requeue_loom`, and the test of
//! what each call costs a lock that is counted, under `requeue_counted`.

#[cfg(all(requeue_counted, not(requeue_loom)))]
pub(crate) use self::counted::{Mutex, count_lock, locks};
#[cfg(requeue_loom)]
pub(crate) use self::modelled::*;
#[cfg(not(requeue_loom))]
pub(crate) use self::real::*;

/// Whether a part of a protocol is left out, to see tests fail: in the models
/// the one that the environment's `REQUEUE_FAULT` names, else one that was named by
/// `--cfg requeue_fault="..."`.
#[inline]
pub(crate) fn leaves_out(part: &str) -> bool {
    #[cfg(requeue_loom)]
    {
        static FAULT: std::sync::LazyLock<Option<String>> =
            std::sync::LazyLock::new(|| std::env::var("REQUEUE_FAULT").ok());
        FAULT.as_deref() == Some(part)
    }
    #[cfg(not(requeue_loom))]
    match part {
        "adder_barrier" => cfg!(requeue_fault = "adder_barrier"),
        "getter_barrier" => cfg!(requeue_fault = "getter_barrier"),
        _ => false,
    }
}

#[cfg(not(requeue_loom))]
mod real {
    #[cfg(not(requeue_counted))]
    pub(crate) use parking_lot::Mutex;
    pub(crate) use parking_lot::MutexGuard;
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread;
}

#[cfg(all(requeue_counted, not(requeue_loom)))]
mod counted {
    use parking_lot::MutexGuard;
    use std::cell::Cell;

    thread_local! {
        static LOCKS: Cell<u64> = const { Cell::new(0) };
    }

    /// How often this thread has taken a lock of this crate, whichever it was.
    pub(crate) fn locks() -> u64 {
        LOCKS.get()
    }

    pub(crate) fn count_lock() {
        LOCKS.set(LOCKS.get() + 1);
    }

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }
        #[inline]
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            count_lock();
            self.0.lock()
        }
    }
}

#[cfg(requeue_loom)]
mod modelled {
    pub(crate) use loom::sync::{MutexGuard, atomic};
    pub(crate) use loom::thread;

    /// The queue's lock in its models: loom's mutex. (Ours has models of its own: `lock/models.rs`.)
    #[derive(Debug)]
    pub(crate) struct RawLock(Mutex<()>);

    /// The holder's token; empty once given back.
    #[derive(Debug, Default)]
    pub(crate) struct Taken<'a>(Option<MutexGuard<'a, ()>>);

    impl RawLock {
        pub(crate) fn new() -> Self {
            Self(Mutex::new(()))
        }
        pub(crate) fn lock(&self) -> Taken<'_> {
            Taken(Some(self.0.lock()))
        }
        pub(crate) fn release(&self, taken: Taken<'_>) {
            drop(taken.0);
        }
    }

    /// loom's mutex with parking_lot's signature: a lock that is not poisoned.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            match self.0.lock() {
                Ok(guard) => guard,
                Err(poisoned) => poisoned.into_inner(),
            }
        }
    }
}

//! The source of locks, atomics and threads for code that has models. Under the private cfg `requeue_loom`
//! they are loom's (`sync/modelled.rs`); under `requeue_counted` the lock is counted (`sync/counted.rs`), for
//! the test of what each call costs.

#[cfg(all(requeue_counted, not(requeue_loom)))]
mod counted;
#[cfg(requeue_loom)]
mod modelled;

#[cfg(all(requeue_counted, not(requeue_loom)))]
pub(crate) use self::counted::{Mutex, count_lock, locks};
#[cfg(requeue_loom)]
pub(crate) use self::modelled::*;
#[cfg(not(requeue_loom))]
pub(crate) use self::real::*;

/// Whether a part of a protocol is left out, to see tests fail: in the models the part named by the
/// environment's `REQUEUE_FAULT`, otherwise one named by `--cfg requeue_fault="..."`.
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

    /// A byte per thread, whose address no other thread has at the same time.
    #[repr(align(4))]
    struct Here(#[allow(dead_code, reason = "only its address counts")] u8);

    thread_local! {
        static HERE: Here = const { Here(0) };
    }

    /// The number of this thread: a multiple of 4, and not 0. Another thread may get it after this one has
    /// ended.
    #[inline]
    pub(crate) fn this_thread() -> usize {
        HERE.with(|here| std::ptr::from_ref(here).addr())
    }
}

//! The one door through which locks, atomics and parking come in, so that the
//! models can swap in loom's under the private cfg `requeue_loom`.

#[cfg(requeue_loom)]
pub(crate) use self::modelled::*;
#[cfg(not(requeue_loom))]
pub(crate) use self::real::*;

#[cfg(not(requeue_loom))]
mod real {
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread;
}

#[cfg(requeue_loom)]
mod modelled {
    pub(crate) use loom::sync::{MutexGuard, atomic};
    pub(crate) use loom::thread;

    /// loom's mutex with parking_lot's signature: a lock that is not poisoned.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }
        pub(crate) fn get_mut(&mut self) -> &mut T {
            match self.0.get_mut() {
                Ok(value) => value,
                Err(poisoned) => poisoned.into_inner(),
            }
        }
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            match self.0.lock() {
                Ok(guard) => guard,
                Err(poisoned) => poisoned.into_inner(),
            }
        }
    }
}

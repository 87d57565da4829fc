//! The queue of threads that sleep for a lock: `parking_lot`'s, which identifies it by the lock's address.
//!
//! Under loom a lot is a list (`lot/modelled.rs`), so that the models can try all orders.

#[cfg(requeue_loom)]
mod modelled;

#[cfg(requeue_loom)]
pub(super) use self::modelled::Lot;
#[cfg(not(requeue_loom))]
pub(super) use self::real::Lot;

/// Message from a waking thread to a sleeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// The lock was handed over: it belongs to the sleeper.
    WithTheLock,
    /// The lock may be free.
    ToTry,
}

pub(super) enum Parked {
    Woken(Woken),
    /// The thread should not sleep any more.
    Not,
}

/// Facts given to a waking thread, inside the lot's own lock.
pub(super) struct Unparked {
    /// A thread is woken by this.
    pub(super) any: bool,
    /// Other threads stay asleep.
    pub(super) more: bool,
    /// The lock should be handed over, because it has not been for a while (half a millisecond on average).
    pub(super) fair: bool,
}

#[cfg(not(requeue_loom))]
#[expect(unsafe_code, reason = "parking_lot's queue asks for keys and callbacks that keep its rules")]
mod real {
    use super::{Parked, Unparked, Woken};
    use parking_lot_core::{DEFAULT_PARK_TOKEN, ParkResult, UnparkResult, UnparkToken};

    const HANDED_OVER: UnparkToken = UnparkToken(1);
    const TO_TRY: UnparkToken = UnparkToken(0);

    #[derive(Debug, Default)]
    pub(in crate::lock) struct Lot {
        /// Gives the lot an address of its own, which identifies it.
        _somewhere: u8,
    }

    impl Lot {
        fn address(&self) -> usize {
            std::ptr::from_ref(self) as usize
        }

        /// Sleeps until another thread wakes this one, if `is_to_sleep` says so inside the lot's own lock.
        pub(in crate::lock) fn park(&self, is_to_sleep: impl FnOnce() -> bool) -> Parked {
            // SAFETY: no other code uses this address as a key, because it is that of a byte of ours. What is
            // called back reads two atomics, neither panics nor calls the queue, and there is no time after
            // which it is called.
            let result = unsafe {
                parking_lot_core::park(
                    self.address(),
                    is_to_sleep,
                    || {},
                    |_, _| {},
                    DEFAULT_PARK_TOKEN,
                    None,
                )
            };
            match result {
                ParkResult::Unparked(HANDED_OVER) => Parked::Woken(Woken::WithTheLock),
                ParkResult::Unparked(_) => Parked::Woken(Woken::ToTry),
                ParkResult::Invalid | ParkResult::TimedOut => Parked::Not,
            }
        }

        /// Wakes the longest sleeper, if there is one. `how` decides, inside the lot's own lock.
        pub(in crate::lock) fn unpark_one(&self, how: impl FnOnce(Unparked) -> Woken) {
            let how = |result: UnparkResult| {
                let woken = how(Unparked {
                    any: result.unparked_threads > 0,
                    more: result.have_more_threads,
                    fair: result.be_fair,
                });
                if woken == Woken::WithTheLock { HANDED_OVER } else { TO_TRY }
            };
            // SAFETY: as above: the key is ours, and what is called back writes two atomics.
            unsafe { parking_lot_core::unpark_one(self.address(), how) };
        }
    }
}

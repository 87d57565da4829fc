//! Blocking waits of a thread: look, then sleep until woken or until an instant.

use crate::clock::{Clock, Parker};
use crate::wait::Step;
use requeue_core::Instant;
use std::cell::OnceCell;
use std::task::Waker;

/// The calling thread, with a parker once it has to sleep.
#[derive(Default)]
pub(crate) struct ThisThread(OnceCell<Parker>);

impl ThisThread {
    fn parker(&self) -> &Parker {
        self.0.get_or_init(Parker::current)
    }

    /// The waker that ends this thread's sleep.
    pub(crate) fn waker(&self) -> &Waker {
        self.parker().waker()
    }

    /// Sleeps after a step that had no answer.
    pub(crate) fn sleep(&self, until: Option<Instant>, clock: &dyn Clock) {
        match until {
            Some(at) => clock.park_until(at, self.parker()),
            None => self.park(),
        }
    }

    /// Sleeps until woken.
    pub(crate) fn park(&self) {
        self.parker().park();
    }
}

/// Blocks the calling thread until `step` has an answer.
pub(crate) fn block_on<W, T>(
    waits: &mut W,
    clock: impl Fn(&W) -> &dyn Clock,
    mut step: impl FnMut(&mut W, &ThisThread) -> Step<T>,
) -> T {
    let thread = ThisThread::default();
    loop {
        match step(waits, &thread) {
            Step::Ready(answer) => return answer,
            Step::Sleep(until) => thread.sleep(until, clock(waits)),
        }
    }
}

//! The sleep of a blocking wait.
//!
//! `std::thread::park` alone has two drawbacks: its token is shared by all code that parks this thread, and a
//! wake-up costs a system call or at least an access to the thread's handle. A [`Parker`] adds a flag of its
//! own. A thread that finds the flag set need not park, and a waker that sets it for a thread that does not
//! sleep is done.
//!
//! A wait runs user code between its sleeps (the drop of a key, a waker), and that code may wait on the same
//! thread too. Each wait must see its own flag, or the inner one would swallow the outer one's wake-up. So
//! [`Parker::current`] *takes* the thread's cached parker and puts it back when it is dropped; a nested wait
//! gets a fresh one. Nested waits still share the thread's token. That can only make one of them return
//! spuriously, because the flag is set before the token.

use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::thread;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Wake, Waker};
#[cfg(not(requeue_loom))]
use std::{cell::Cell, time::Duration};

/// Neither woken nor asleep.
const IDLE: u8 = 0;
/// The owner sleeps or is about to: a waker must unpark its thread.
const ASLEEP: u8 = 1;
/// Woken; the next sleep returns at once.
const WOKEN: u8 = 2;

#[cfg(not(requeue_loom))]
thread_local! {
    /// This thread's parker, unless a wait of this thread is using it.
    static CACHED: Cell<Option<Rc<Core>>> = const { Cell::new(None) };
}

/// A thread's place to sleep in a blocking wait: one flag and the thread that owns it.
///
/// A parker belongs to the thread that asked for it and does not leave it; its
/// [`waker`](Parker::waker) may go anywhere. A wake-up that comes before the
/// sleep is not lost: the sleep then returns at once. Several wake-ups before
/// one sleep are one.
///
/// Sleeps may end spuriously, so check the condition again after each. A wait inside a wait, on one thread,
/// has a parker of its own and takes no wake-up from the outer one.
///
/// ```
/// use requeue::Parker;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// let parker = Parker::current();
/// let waker = parker.waker().clone();
/// let ready = AtomicBool::new(false);
/// std::thread::scope(|s| {
///     s.spawn(|| {
///         ready.store(true, Ordering::Release);
///         waker.wake();
///     });
///     while !ready.load(Ordering::Acquire) {
///         parker.park();
///     }
/// });
/// ```
pub struct Parker {
    /// `Rc`, because a parker must stay on its thread, and because the cache
    /// then gets its share without an atomic operation.
    core: Rc<Core>,
}

struct Core {
    sleeper: Arc<Sleeper>,
    /// Kept beside the sleeper so that lending it costs nothing.
    waker: Waker,
}

struct Sleeper {
    /// [`IDLE`], [`ASLEEP`] or [`WOKEN`]. Only the owner makes it `IDLE` or
    /// `ASLEEP`; anybody may make it `WOKEN`.
    state: AtomicU8,
    thread: thread::Thread,
}

impl Parker {
    /// A parker for the calling thread: the thread's own, or a fresh one if a wait further up the stack uses
    /// that.
    ///
    /// # Panics
    ///
    /// If it is called from the destructor of a thread-local value so late that the thread's handle is gone
    /// (see [`std::thread::current`]).
    ///
    /// ```
    /// use requeue::Parker;
    /// let outer = Parker::current();
    /// let inner = Parker::current();
    /// assert!(!inner.waker().will_wake(outer.waker()));
    /// ```
    #[must_use]
    pub fn current() -> Self {
        #[cfg(not(requeue_loom))]
        if let Ok(Some(core)) = CACHED.try_with(Cell::take) {
            // The wake-up was for a wait that is over.
            core.sleeper.state.store(IDLE, Ordering::Relaxed);
            return Self { core };
        }
        let sleeper = Arc::new(Sleeper { state: AtomicU8::new(IDLE), thread: thread::current() });
        let waker = Waker::from(Arc::clone(&sleeper));
        Self { core: Rc::new(Core { sleeper, waker }) }
    }

    /// The waker that ends this parker's sleep. It may be cloned, kept beyond
    /// the parker and called from any thread; it never blocks.
    ///
    /// ```
    /// let parker = requeue::Parker::current();
    /// parker.waker().wake_by_ref();
    /// parker.park(); // returns at once
    /// ```
    #[must_use]
    pub fn waker(&self) -> &Waker {
        &self.core.waker
    }

    /// Sleeps until the parker is woken, or spuriously. Returns at once if it was woken since its last sleep,
    /// and consumes that wake-up.
    ///
    /// Writes of the waking thread before the wake-up are visible afterwards.
    ///
    /// ```
    /// let parker = requeue::Parker::current();
    /// let waker = parker.waker().clone();
    /// std::thread::spawn(move || waker.wake());
    /// parker.park();
    /// ```
    pub fn park(&self) {
        self.core.sleeper.sleep(thread::park);
    }

    /// Like [`park`](Self::park), but for at most this time by the system's clock, not the queue's. A clock
    /// that runs at the system's pace uses it in [`Clock::park_until`](crate::Clock::park_until). Every
    /// duration is accepted, [`Duration::MAX`] included.
    ///
    /// ```
    /// use std::time::Duration;
    /// let parker = requeue::Parker::current();
    /// parker.park_timeout(Duration::from_micros(50)); // nobody wakes it
    /// parker.waker().wake_by_ref();
    /// parker.park_timeout(Duration::MAX); // returns at once
    /// ```
    // Not under loom, whose threads cannot sleep for a time: there every timed wait uses an alarm of the
    // model's clock.
    #[cfg(not(requeue_loom))]
    pub fn park_timeout(&self, at_most: Duration) {
        if !at_most.is_zero() {
            self.core.sleeper.sleep(|| thread::park_timeout(at_most));
        } else {
            // Nothing to sleep, but a wake-up that has come is used up.
            self.core.sleeper.state.swap(IDLE, Ordering::Acquire);
        }
    }
}

impl Sleeper {
    fn sleep(&self, park: impl FnOnce()) {
        let fell_asleep = self.state.compare_exchange(IDLE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed);
        if fell_asleep.is_ok() {
            park();
        }
        // A swap and not a store: it must read from the last wake-up, so as to acquire all of them (each is a
        // read-modify-write and continues the release sequence of those before it).
        self.state.swap(IDLE, Ordering::Acquire);
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Always a read-modify-write, also where it is WOKEN already: the owner
        // must see what this caller did, not only what the first one did.
        if self.state.swap(WOKEN, Ordering::Release) == ASLEEP {
            self.thread.unpark();
        }
    }
}

impl Drop for Parker {
    fn drop(&mut self) {
        // During the thread's own end there is no cache any more.
        #[cfg(not(requeue_loom))]
        let _ = CACHED.try_with(|cached| cached.set(Some(Rc::clone(&self.core))));
    }
}

debug!([] Parker, |parker| {
    thread: parker.core.sleeper.thread.id(),
    woken: parker.core.sleeper.state.load(Ordering::Relaxed) == WOKEN
});

#[cfg(all(test, not(requeue_loom)))]
#[path = "tests/park.rs"]
mod tests;

#[cfg(all(test, requeue_loom))]
#[path = "tests/park_loom.rs"]
mod models;

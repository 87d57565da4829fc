//! A clock that follows a Tokio runtime's, `tokio::time::pause` and `advance`
//! included.

use super::{Alarm, Clock, SystemClock};
use crate::panics::quietly;
use crate::sync::Mutex;
use ::tokio::runtime::Handle;
use ::tokio::time::Instant as TokioInstant;
use requeue_core::Instant;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

/// A clock that follows `tokio::time` of one runtime, so that a test with `start_paused = true` drives the
/// queue too.
///
/// It counts from when it is built. Clones share that origin; clocks built separately do not, and their
/// instants must not be compared. The runtime rounds its timers up to a millisecond: never early, and at most
/// a millisecond later than with [`SystemClock`].
///
/// Each alarm is a task on the runtime, so it fires only while the runtime is driven: the wait that it shall
/// end must not block a runtime with one thread. Once the runtime is gone, the clock goes on (or stands still
/// if it was paused). Its alarms, set and to come, move to [`SystemClock`]'s thread, so no wait is left
/// without its wake-up.
///
/// ```
/// use requeue::{Clock, TokioClock};
/// use std::time::Duration;
///
/// #[tokio::main(flavor = "current_thread", start_paused = true)]
/// async fn main() -> std::io::Result<()> {
///     let clock = TokioClock::new(tokio::runtime::Handle::current())?;
///     let before = clock.now();
///     tokio::time::advance(Duration::from_secs(60)).await;
///     assert_eq!(clock.now(), before + Duration::from_secs(60));
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct TokioClock {
    runtime: Handle,
    origin: TokioInstant,
}

impl TokioClock {
    /// A clock on this runtime; the caller need not be in it.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](io::ErrorKind::Unsupported) if the runtime's timer is not enabled. (Tokio answers that
    /// question only by a panic; it is caught here, but the panic hook reports it.)
    ///
    /// ```
    /// use requeue::TokioClock;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let clock = TokioClock::new(tokio::runtime::Handle::current())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(runtime: Handle) -> io::Result<Self> {
        let origin = {
            let _in_runtime = runtime.enter();
            let timer = AssertUnwindSafe(|| drop(::tokio::time::sleep_until(TokioInstant::now())));
            catch_unwind(timer).map_err(|_| {
                let why = "the Tokio runtime has no timer: call enable_time or enable_all on its builder";
                io::Error::new(io::ErrorKind::Unsupported, why)
            })?;
            TokioInstant::now()
        };
        Ok(Self { runtime, origin })
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        // Whether time is paused is known in the runtime's context only.
        let _in_runtime = self.runtime.enter();
        Instant::ORIGIN.saturating_add(self.origin.elapsed())
    }

    fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm {
        let now = self.now();
        if at <= now {
            waker.wake_by_ref();
            return Alarm::default();
        }
        let since_origin = at.saturating_since(Instant::ORIGIN);
        let deadline = self.origin.checked_add(since_origin);
        let Some(deadline) = deadline.filter(|_| !at.is_never()) else {
            return Alarm::default();
        };
        let slot = Arc::new(Mutex::new(Slot::Here(waker.clone())));
        let ringer = Ringer { slot: Arc::clone(&slot), at, clock: self.clone() };
        let task = self.runtime.spawn(async move {
            ::tokio::time::sleep_until(deadline).await;
            ringer.ring();
        });
        Alarm::on_drop(move || {
            // The waker first: the task that ends without ringing must find none.
            drop(take(&slot));
            task.abort();
        })
    }
}

/// State shared by an alarm and its task. Emptied by the first of the two: the task that fires, or the alarm
/// that is dropped.
enum Slot {
    Here(Waker),
    /// The runtime is gone: fires on the system's clock, unless this slot goes first.
    Elsewhere {
        _alarm: Alarm,
    },
    Empty,
}

fn take(slot: &Mutex<Slot>) -> Slot {
    std::mem::replace(&mut *slot.lock(), Slot::Empty)
}

/// The part owned by an alarm's task.
struct Ringer {
    slot: Arc<Mutex<Slot>>,
    at: Instant,
    clock: TokioClock,
}

impl Ringer {
    fn ring(&self) {
        if let Slot::Here(waker) = take(&self.slot) {
            waker.wake();
        }
    }
}

impl Drop for Ringer {
    fn drop(&mut self) {
        // A waker that is still here was not taken back: the task ends before
        // its time because the runtime does.
        if let Slot::Here(waker) = take(&self.slot) {
            quietly(|| {
                let left = self.at.saturating_since(self.clock.now());
                let _alarm = SystemClock.wake_at(SystemClock.now() + left, &waker);
                // An alarm that is taken back just now has emptied the slot
                // before; then the slot, and this alarm in it, die with `self`.
                drop(std::mem::replace(&mut *self.slot.lock(), Slot::Elsewhere { _alarm }));
            });
        }
    }
}

debug!([] TokioClock, |clock| { now: clock.now(), .. });

#[cfg(all(test, not(requeue_loom)))]
#[path = "tests/tokio.rs"]
mod tests;

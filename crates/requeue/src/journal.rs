//! [`Journal`]: what a queue tells the engine that stores its keys.

use requeue_core::{Instant, KeyState};
use std::any::Any;
use std::fmt;

/// The number of a run: larger than that of each earlier run of the key, even in another process. A store
/// that runs write to can refuse a smaller number than it has seen.
///
/// ```
/// # use requeue::Fence;
/// assert!(Fence(7) > Fence(6));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An engine's callbacks from its front. [`changed`](Self::changed) and [`applied`](Self::applied) are called
/// under the queue's lock: they must be short, must not call the queue, and should not panic (a panic is
/// caught, and what was to be written is lost).
///
/// ```
/// # use requeue::{Fence, Outcome, WorkQueue, Worker, engine::{Journal, Known, with_journal}};
/// # use std::sync::{Arc, Mutex};
/// /// Keeps in memory what an engine would write.
/// struct Recorder(Mutex<Vec<String>>);
/// impl Journal<&'static str, ()> for Recorder {
///     fn changed(&self, key: &&'static str, known: Option<Known<'_, ()>>) {
///         let known = known.map(|known| (known.ready, known.failures));
///         self.0.lock().unwrap().push(format!("{key}: {known:?}"));
///     }
///     fn applied(&self, _ticket: u64) {}
///     fn gives_up(&self, key: &&'static str, why: &dyn std::fmt::Display) {
///         self.0.lock().unwrap().push(format!("{key} gives up: {why}"));
///     }
///     fn fence(&self, _: &&'static str) -> Fence {
///         Fence(1)
///     }
/// }
/// let recorder = Arc::new(Recorder(Mutex::default()));
/// let q = with_journal(WorkQueue::builder(), recorder.clone()).build()?;
/// q.add("a")?;
/// q.try_get()?.retry_after(std::time::Duration::ZERO).expect("open");
/// q.try_get()?.succeed();
/// assert_eq!(*recorder.0.lock().unwrap(), ["a: Some((true, 1))", "a: None"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Journal<K, V>: Send + Sync {
    /// The key's state from now on; `None` if nothing is known of it.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Recorder;
    /// # impl Journal<u32, ()> for Recorder {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// Recorder.changed(&4711, None); // the queue calls it
    /// ```
    fn changed(&self, key: &K, known: Option<Known<'_, V>>);

    /// The trigger with this ticket is in the queue: calls of [`changed`](Self::changed) from now on include
    /// it.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Recorder;
    /// # impl Journal<u32, ()> for Recorder {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// Recorder.applied(7); // the queue calls it
    /// ```
    fn applied(&self, ticket: u64);

    /// A run of this key has ended without a result: it was to come back, and the queue is shut down. The key
    /// is as it was before that run. Called under the queue's lock.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Recorder;
    /// # impl Journal<u32, ()> for Recorder {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// Recorder.refused(&4711); // the queue calls it
    /// ```
    fn refused(&self, _key: &K) {}

    /// A run of this key is about to end without a retry, for this reason. Called outside the lock; the next
    /// [`changed`](Self::changed) of the key reports the end of that run.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Recorder;
    /// # impl Journal<u32, ()> for Recorder {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// Recorder.gives_up(&4711, &"no such order"); // the queue calls it
    /// ```
    fn gives_up(&self, key: &K, why: &dyn fmt::Display);

    /// The number of the key's current run: one number for all calls until the run ends.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Recorder;
    /// # impl Journal<u32, ()> for Recorder {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// assert_eq!(Recorder.fence(&4711), Fence(3));
    /// ```
    fn fence(&self, key: &K) -> Fence;

    /// Whether a run of this key may begin now. If not the queue forgets the key and hands out the next one;
    /// [`refused`](Self::refused) is called for it. Called under the queue's lock, of queues whose store hands keys
    /// out ([`takes_back`](Self::takes_back)).
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Recorder;
    /// # impl Journal<u32, ()> for Recorder {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// assert!(Recorder.may_begin(&4711));
    /// ```
    fn may_begin(&self, _key: &K) -> bool {
        true
    }

    /// The value of [`engine_of`](crate::engine::engine_of), where the engine's own calls for its runs find what
    /// they need.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Recorder;
    /// # impl Journal<u32, ()> for Recorder {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// assert!(Recorder.engine().is_none());
    /// ```
    fn engine(&self) -> Option<&dyn Any> {
        None
    }

    /// Whether the store hands keys out instead of the queue in memory. Then the queue forgets a key at each
    /// end of a run, after [`changed`](Self::changed) has reported it, and the engine gives it back by
    /// [`restore`](crate::WorkQueue::restore) when it is to run again. Called once, when the queue is built.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Recorder;
    /// # impl Journal<u32, ()> for Recorder {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// assert!(!Recorder.takes_back());
    /// ```
    fn takes_back(&self) -> bool {
        false
    }

    /// A caller waits for a key, and none is in line: [`LocalQueue::wanted`](crate::engine::LocalQueue::wanted) returns
    /// how many are missing. Called under the queue's lock.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Recorder;
    /// # impl Journal<u32, ()> for Recorder {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// Recorder.wanted(); // the queue calls it
    /// ```
    fn wanted(&self) {}
}

/// State of a key, as a queue knows it.
///
/// ```
/// # use requeue::engine::Known;
/// fn is_idle(known: &Known<'_, String>) -> bool {
///     !known.ready && !known.held && known.due.is_none()
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Known<'a, V> {
    /// It is in line.
    pub ready: bool,
    /// A worker has it. A cancel then concerns the next run.
    pub held: bool,
    /// When its timer is due.
    pub due: Option<Instant>,
    /// Number of failed runs since the last successful one.
    pub failures: u32,
    /// The attempt of its next run, counted from 1.
    pub attempt: u32,
    /// The priority of its next run.
    pub priority: i16,
    /// The value of its next run.
    pub value: Option<&'a V>,
}

impl<'a, V> Known<'a, V> {
    pub(crate) fn of(state: &KeyState, value: Option<&'a V>) -> Option<Self> {
        let KeyState { ready, held, waiting_until: due, failures, attempt, priority, .. } = *state;
        let known = Self { ready, held, due, failures, attempt, priority, value };
        (ready || held || due.is_some() || failures > 0).then_some(known)
    }
}

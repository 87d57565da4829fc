//! What a queue tells the engine that writes down what is known of its keys.

use crate::Instant;
use requeue_core::KeyState;
use std::any::Any;
use std::fmt;

/// The number of a run: larger than that of each run of the same key before it, also if an earlier process had that
/// one. Whoever is written to by runs can refuse a smaller number than it has seen.
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

/// What an engine is told by its front. [`changed`](Self::changed) and [`applied`](Self::applied) are called under the queue's lock: they must be short,
/// must not call the queue, and should not panic (a panic is caught, and what was to be written is lost).
///
/// ```
/// # use requeue::{Fence, Outcome, WorkQueue, Worker, engine::{Journal, Known}};
/// # use std::sync::{Arc, Mutex};
/// /// Keeps in memory what an engine would write.
/// struct Pen(Mutex<Vec<String>>);
/// impl Journal<&'static str, ()> for Pen {
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
/// let pen = Arc::new(Pen(Mutex::default()));
/// let q = WorkQueue::builder().journal(pen.clone()).build()?;
/// q.add("a")?;
/// q.try_get()?.retry_after(std::time::Duration::ZERO).expect("open");
/// q.try_get()?.succeed();
/// assert_eq!(*pen.0.lock().unwrap(), ["a: Some((true, 1))", "a: None"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Journal<K, V>: Send + Sync {
    /// What is known of the key from now on; `None` if nothing is.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Pen;
    /// # impl Journal<u32, ()> for Pen {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// Pen.changed(&4711, None); // the queue calls it
    /// ```
    fn changed(&self, key: &K, known: Option<Known<'_, V>>);

    /// The trigger of this ticket is in the queue: what [`changed`](Self::changed) tells from now on knows of it.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Pen;
    /// # impl Journal<u32, ()> for Pen {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// Pen.applied(7); // the queue calls it
    /// ```
    fn applied(&self, ticket: u64);

    /// A run of this key has ended without an end that counts: it was to come back, and the queue is shut down. The key is as
    /// it was before that run. Called under the queue's lock.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Pen;
    /// # impl Journal<u32, ()> for Pen {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// Pen.refused(&4711); // the queue calls it
    /// ```
    fn refused(&self, _key: &K) {}

    /// A worker is about to end a run of this key as one that is not tried again. Not called under the lock; what
    /// [`changed`](Self::changed) tells of the key next is the end of that run.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Pen;
    /// # impl Journal<u32, ()> for Pen {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// Pen.gives_up(&4711, &"no such order"); // a worker calls it
    /// ```
    fn gives_up(&self, key: &K, why: &dyn fmt::Display);

    /// The number of a run of this key that begins now.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Pen;
    /// # impl Journal<u32, ()> for Pen {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// assert_eq!(Pen.fence(&4711), Fence(3));
    /// ```
    fn fence(&self, key: &K) -> Fence;

    /// What [`Run::engine`](crate::Run::engine) gives: the engine's own calls for its runs find what they need in it.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Pen;
    /// # impl Journal<u32, ()> for Pen {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// assert!(Pen.engine().is_none());
    /// ```
    fn engine(&self) -> Option<&dyn Any> {
        None
    }

    /// Whether the store hands keys out, and not the queue in memory: at each end of a run the queue forgets the key, once
    /// [`changed`](Self::changed) has told what became of it. The engine gives it back by
    /// [`restore`](crate::WorkQueue::restore) when it is to run again. Asked once, as the queue is built.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Pen;
    /// # impl Journal<u32, ()> for Pen {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// assert!(!Pen.takes_back());
    /// ```
    fn takes_back(&self) -> bool {
        false
    }

    /// Somebody waits for a key, and none is in line: [`Front::wanted`](crate::engine::Front::wanted) says how many are
    /// missing. Called under the queue's lock.
    ///
    /// ```
    /// # use requeue::{Fence, engine::{Journal, Known}};
    /// # struct Pen;
    /// # impl Journal<u32, ()> for Pen {
    /// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
    /// # fn applied(&self, _: u64) {}
    /// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
    /// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
    /// # }
    /// Pen.wanted(); // the queue calls it
    /// ```
    fn wanted(&self) {}
}

/// What a queue knows of a key.
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
    /// A worker has it: what was cancelled is not what runs.
    pub held: bool,
    /// When its timer is due.
    pub due: Option<Instant>,
    /// How often its runs have failed since the last successful run.
    pub failures: u32,
    /// What its next run is, counted from 1.
    pub attempt: u32,
    /// The priority of its next run.
    pub priority: i16,
    /// What its next run gets.
    pub value: Option<&'a V>,
}

impl<'a, V> Known<'a, V> {
    pub(crate) fn of(state: &KeyState, value: Option<&'a V>) -> Option<Self> {
        let KeyState { ready, held, waiting_until: due, failures, attempt, priority, .. } = *state;
        let known = Self { ready, held, due, failures, attempt, priority, value };
        (ready || held || due.is_some() || failures > 0).then_some(known)
    }
}

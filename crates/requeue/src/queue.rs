//! [`WorkQueue`]: the queue's handle and its calls.

use crate::add::Add;
use crate::add_many::AddedMany;
use crate::drain::{Drain, DrainOptions, ShutDown, UnfinishedKey};
use crate::ending::after_end;
use crate::error::{AddError, Added, GetError, NotHeld, Refused};
use crate::explain::Explanation;
use crate::get::{Get, get_blocking, try_get};
use crate::get_many::{GetMany, try_get_many};
use crate::getter::Getter;
use crate::hash::RandomState;
use crate::hold::{Later, Shared};
use crate::item::Item;
use crate::items::Items;
use crate::key::AsKey;
use crate::limiter::sealed::Token;
use crate::owner::Owner;
use crate::panics::in_drop;
use crate::phase::Phase;
#[cfg(feature = "stream")]
use crate::stream::ItemStream;
use crate::sync::atomic::Ordering::{AcqRel, Relaxed};
use requeue_core::{Delay, Instant, KeyState, Policy, Stats, Trigger, TriggerOptions};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A queue of keys: client-go's FIFO, delaying and rate-limiting queue in one.
///
/// This is a handle; a clone is another handle to the same queue. When the last handle is dropped the queue
/// is shut down. Guards, waiting callers and workers are not handles.
///
/// The [crate's documentation](crate) says what it promises.
///
/// ```
/// use requeue::WorkQueue;
/// let q = WorkQueue::new();
/// q.add("a")?;
/// q.add("b")?;
/// q.add("a")?; // is ready already: one run
/// q.shut_down();
/// let mut seen = Vec::new();
/// while let Some(item) = q.get_blocking() {
///     seen.push(*item.key());
/// }
/// assert_eq!(seen, ["a", "b"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("Type", "Typed"))]
pub struct WorkQueue<K, V = (), S = RandomState> {
    pub(crate) shared: Arc<Shared<K, V>>,
    hasher: S,
}

impl<K: Hash + Eq> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V, S> WorkQueue<K, V, S> {
    pub(crate) fn from_parts(shared: Shared<K, V>, hasher: S) -> Self {
        Self { shared: Arc::new(shared), hasher }
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> WorkQueue<K, V, S> {
    /// Hashes a key before the lock is taken: a hasher is user code.
    #[inline]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        let hash = self.hasher.hash_one(key);
        // both halves, for hashers that are weak in one
        (hash ^ (hash >> 32)) as u32
    }

    #[cfg(test)]
    pub(crate) fn hash_of(&self, key: &K) -> u32 {
        self.hash(key)
    }

    /// Asks for a run of `key`.
    ///
    /// A ready key stays in its place in line. A held key becomes dirty: it runs once more when its run ends.
    /// Any other key goes to the back of the line. Some run of the key starts after this call began, and sees
    /// everything that the caller wrote before it.
    ///
    /// If the key is already ready, or held and dirty, an `add` changes nothing. For integer keys (of at most
    /// 64 bits, and not wrapped in another type) such an add mostly takes no lock: many threads may repeat it
    /// at little cost. (The run sees the caller's writes through atomics and locks. `unsafe` code that passes
    /// plain memory to the run must order that itself, by a store with `Release` and a load with `Acquire`.)
    ///
    /// # Errors
    ///
    /// [`AddError`](crate::AddError) with the key, if the queue is shut down or closed, or has a
    /// [bound](crate::Builder::bound) and no room.
    ///
    /// ```
    /// # use requeue::{Added, WorkQueue};
    /// let q = WorkQueue::new();
    /// assert_eq!(q.add("a")?, Added::Ready);
    /// assert_eq!(q.add("a")?, Added::Coalesced);
    /// let held = q.try_get()?;
    /// assert_eq!(q.add("a")?, Added::Dirty);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn add(&self, key: K) -> Result<Added, AddError<K, V>> {
        let hash = self.hash(&key);
        self.shared.add_now(key, hash)
    }

    /// Like [`add`](Self::add), but by reference: the key is cloned only if the queue does not know it.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the queue is shut down or closed, or has a
    /// [bound](crate::Builder::bound) and no room.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::<String>::new();
    /// q.add_ref("default/web")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_ref<Q: Hash + Eq + ToOwned<Owned = K> + ?Sized>(&self, key: &Q) -> Result<Added, Refused>
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        self.shared.add_ref(key, hash)
    }

    /// Like [`add`](Self::add), with a value, which merges into the value that the key has.
    ///
    /// # Errors
    ///
    /// [`AddError`](crate::AddError) with key and value, if the queue is shut down or closed, or has a
    /// [bound](crate::Builder::bound) and no room.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::merging(|old: &mut Vec<u8>, new| old.extend(new)).build()?;
    /// q.add_value("a", vec![1])?;
    /// q.add_value("a", vec![2])?;
    /// assert_eq!(q.try_get()?.value(), Some(&vec![1, 2]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_value(&self, key: K, value: V) -> Result<Added, AddError<K, V>> {
        self.add_with(key, Add::now().value(value))
    }

    /// Asks for a run of `key` after `delay`; zero is an [`add`](Self::add).
    ///
    /// A second timer for a waiting key keeps the earlier instant. An `add` meanwhile makes the key ready and
    /// leaves the timer: its run comes too. A run is never early. A delay that reaches beyond 584 years is
    /// never due.
    ///
    /// # Errors
    ///
    /// [`AddError`](crate::AddError) with the key, if the queue is shut down or closed, or has a
    /// [bound](crate::Builder::bound) and no room.
    ///
    /// ```
    /// # use requeue::{FakeClock, WorkQueue};
    /// # use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let q = WorkQueue::builder().clock(clock.clone()).build()?;
    /// q.add_after("a", Duration::from_secs(60))?;
    /// assert!(q.try_get().is_err());
    /// clock.advance(Duration::from_secs(60));
    /// assert_eq!(*q.try_get()?.key(), "a");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("AddAfter"))]
    pub fn add_after(&self, key: K, delay: Duration) -> Result<Added, AddError<K, V>> {
        self.add_with(key, Add::after(delay))
    }

    /// Asks for a run of `key` with the options of `how`: see [`Add`].
    ///
    /// # Errors
    ///
    /// [`AddError`](crate::AddError) with key and value, if the queue is shut down or closed,
    /// if the trigger has a priority and the queue was built without
    /// [`priorities`](crate::Builder::priorities), or if the queue has a
    /// [`bound`](crate::Builder::bound) and is full.
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// # let q = WorkQueue::new();
    /// q.add_with("a", Add::after(std::time::Duration::from_secs(1)).replace())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_with(&self, key: K, how: Add<V>) -> Result<Added, AddError<K, V>> {
        let hash = self.hash(&key);
        let Add { value, options } = how;
        self.shared.trigger(Trigger::new(key, value), hash, &options, None).map(|accepted| accepted.added)
    }

    /// Asks for a run of each key like [`add`](Self::add), in the order of the keys and in one lock hold.
    ///
    /// A key that comes twice is coalesced. The size of the batch decides how long others wait for the lock:
    /// 30 to 60 ns for each `u64` (Intel Xeon, 2 shared cores, rustc 1.95, commit 5f6b634).
    ///
    /// The returned [`AddedMany`] has the result for each key, and each refused key; `.all()?` is the short
    /// way.
    ///
    /// # Panics
    ///
    /// If user code panics. The iterator and `Hash` run before anything is accepted. If `Eq`, a merge
    /// function or a user's order panics, the triggers before that one are accepted, and it and the later
    /// ones are not.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add_many(["a", "b", "a"]).all()?;
    /// assert_eq!(q.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn add_many(&self, keys: impl IntoIterator<Item = K>) -> AddedMany<K, V> {
        self.add_many_with(keys.into_iter().map(|key| (key, Add::now())))
    }

    /// Asks for a run of each key with its own options, see [`Add`], in the order of the keys, by one reading
    /// of the clock and in one lock hold; otherwise like [`add_many`](Self::add_many).
    ///
    /// A limiter is asked once for each key that wants it; a user's limiter outside the lock, before the
    /// hold.
    ///
    /// # Panics
    ///
    /// Like [`add_many`](Self::add_many), and if a user's limiter panics: the triggers before that one are
    /// accepted then too.
    ///
    /// ```
    /// # use requeue::{Add, FakeClock, WorkQueue};
    /// # use std::time::Duration;
    /// # let q = WorkQueue::builder().clock(FakeClock::new()).build()?;
    /// q.add_many_with([
    ///     ("now", Add::now()),
    ///     ("soon", Add::after(Duration::from_secs(1)).replace()),
    ///     ("failed", Add::rate_limited()),
    /// ])
    /// .all()?;
    /// assert_eq!((q.stats().ready, q.stats().waiting), (1, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn add_many_with(&self, triggers: impl IntoIterator<Item = (K, Add<V>)>) -> AddedMany<K, V> {
        let mut batch = AddedMany::collect(triggers.into_iter(), |key| self.hash(key));
        self.shared.trigger_many(&mut batch);
        batch
    }

    /// Asks for a run of `key` after the limiter's delay. Every call asks the limiter once, even for a key
    /// that is already waiting.
    ///
    /// Returns the limiter's delay. (The key runs earlier if it is ready or has an earlier timer: see
    /// [`state`](Self::state).)
    ///
    /// The default limiter has one bucket for all keys, in addition to each key's back-off: a burst of 100,
    /// then 10 per second. So if 1,000 keys fail at once, the last of them waits 90 s, although each has
    /// failed only once. If your keys fail independently, give the queue
    /// [`default_controller_without_bucket`](crate::limiter::default_controller_without_bucket)
    /// ([`Builder::limiter`](crate::Builder::limiter)).
    ///
    /// # Errors
    ///
    /// [`AddError`](crate::AddError) with the key, if the queue is shut down or closed, or has a
    /// [bound](crate::Builder::bound) and no room. The limiter is not asked then.
    ///
    /// # Panics
    ///
    /// If a user's limiter panics. The trigger is not accepted then.
    ///
    /// ```
    /// # use requeue::{limiter, WorkQueue};
    /// # use std::time::Duration;
    /// let q = WorkQueue::builder().limiter(limiter::default_per_item()).build()?;
    /// assert_eq!(q.add_rate_limited("a")?, Duration::from_millis(1));
    /// assert_eq!(q.add_rate_limited("a")?, Duration::from_millis(2));
    /// assert_eq!(q.num_requeues("a"), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("AddRateLimited"))]
    pub fn add_rate_limited(&self, key: K) -> Result<Duration, AddError<K, V>> {
        let hash = self.hash(&key);
        let options = TriggerOptions::after(Delay::Limited(Policy::default()));
        self.shared.trigger(Trigger::new(key, None), hash, &options, None).map(|accepted| accepted.delay)
    }

    /// Clears the limiter's record of the key. The key's timer stays.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add_rate_limited("a")?;
    /// q.forget("a");
    /// assert_eq!(q.num_requeues("a"), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "Forget")]
    pub fn forget(&self, key: impl AsKey<K>) {
        key.with_key(|key| {
            self.shared.forget_own(key);
            let hash = self.hash(key);
            let gone = self.shared.hold(None).with(|hold| {
                let gone = hold.core.forget(key, hash);
                self.shared.tell_known(&hold.core, gone.as_ref(), |core| core.slot_of(key, hash));
                gone
            });
            drop(gone);
        });
    }

    /// Number of requeues of the key through the limiter since it was last forgotten.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add_rate_limited("a")?;
    /// q.add_rate_limited("a")?;
    /// assert_eq!(q.num_requeues("a"), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    #[doc(alias = "NumRequeues")]
    pub fn num_requeues(&self, key: impl AsKey<K>) -> u32 {
        key.with_key(|key| {
            let now = self.shared.now();
            if self.shared.keeps_own() {
                return self.shared.limiter.num_requeues_at(key, now, Token(()));
            }
            let hash = self.hash(key);
            self.shared.hold(Some(now)).with(|hold| hold.core.num_requeues(key, hash))
        })
    }

    /// Ends the run of a key whose guard was [detached](Item::detach). If the guard still exists it becomes
    /// inert; its key stays readable. The key's failures stay on record: [`forget`](Self::forget) clears
    /// them.
    ///
    /// # Errors
    ///
    /// [`NotHeld`] if the key is not held: nothing has changed.
    ///
    /// ```
    /// # use requeue::{NotHeld, WorkQueue};
    /// let q = WorkQueue::<String>::new();
    /// q.add_ref("a")?;
    /// let (key, _) = q.try_get()?.detach();
    /// q.done(&key)?;
    /// assert_eq!(q.done("a"), Err(NotHeld));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn done<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Result<(), NotHeld>
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        let ended = self.shared.hold(None).with(|hold| {
            let mut ended = hold.core.done(key, hash)?;
            self.shared.tell_end(&mut hold.core, &mut ended, |core| core.slot_of(key, hash));
            Ok(ended)
        })?;
        after_end(&self.shared, ended);
        Ok(())
    }

    /// State of a key: ready, waiting, held, dirty, its failures. `None` if the queue does not know it.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use std::time::Duration;
    /// let q = WorkQueue::<String>::new();
    /// q.add_ref("a")?;
    /// q.add_after("a".to_string(), Duration::from_secs(9))?;
    /// let state = q.state("a").expect("it is known");
    /// assert!(state.ready && state.waiting_until.is_some() && !state.held);
    /// assert!(q.state("b").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn state<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<KeyState>
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        self.shared.look_at(self.shared.now()).with(|hold| hold.core.state(key, hash))
    }

    /// Explains why a key is running or not, in words: its [`state`](Self::state), and anything else that
    /// holds it back, as text for people. All of it is of one instant, except for the
    /// [worker](crate::Run::worker) that has the key, which is asked a moment later.
    ///
    /// ```
    /// # use requeue::{FakeClock, WorkQueue};
    /// # use std::time::Duration;
    /// let q = WorkQueue::builder().clock(FakeClock::new()).build()?;
    /// q.add_after("a", Duration::from_secs(90))?;
    /// assert_eq!(q.explain("a").to_string(), "waiting: due in 1 min 30 s");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn explain<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Explanation
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        let at = self.shared.now();
        let (mut explanation, held) = self.shared.look_at(at).with(|hold| {
            let state = hold.core.state(key, hash);
            let ahead = hold.core.ahead_of(key, hash);
            let explanation = Explanation {
                state,
                at,
                due_in: state.and_then(|state| state.waiting_until).map(|due| due.saturating_since(at)),
                held_for: state.and_then(|state| state.held_since).map(|since| at.saturating_since(since)),
                worker: None,
                ahead: ahead.map(|ahead| ahead.keys),
                ahead_is_exact: ahead.is_some_and(|ahead| ahead.exact),
                next_token: hold.core.next_token(),
                waiting_for_room: hold.adders.len(),
                shutting_down: hold.core.shutting_down(),
            };
            (explanation, hold.core.held_slot(key, hash))
        });
        // workers are asked without the lock
        explanation.worker = held.and_then(|slot| self.shared.who_has(slot));
        explanation
    }
}

impl<K, V, S> WorkQueue<K, V, S> {
    /// Waits for a key: await it, call [`wait`](Get::wait) or
    /// [`timeout`](Get::timeout) on it. `None` means that the queue is shut down
    /// and worked off.
    ///
    /// It waits as long as any [`WorkQueue`] exists to add with, this one included: shut the queue down, or
    /// use a [`getter`](Self::getter), which keeps no queue open. [`close`](Self::close) does not end it.
    ///
    /// While keys are ready it is ready at once, however often it is called: it takes part in no runtime's
    /// cooperative budget. A loop over keys that are always ready, with a body that never waits, keeps its
    /// thread from the executor's other tasks. Yield in it now and then (`tokio::task::yield_now().await`).
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// async fn worker(q: WorkQueue<String>) {
    ///     while let Some(item) = q.get().await {
    ///         println!("look at {}", item.key());
    ///     }
    /// }
    /// # let q = WorkQueue::<String>::new();
    /// # q.add_ref("a")?;
    /// # q.shut_down();
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(worker(q.clone()));
    /// # assert!(q.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no key and no wake-up.
    pub fn get(&self) -> Get<'_, K, V> {
        Get::new(Owner::Borrowed(&self.shared), None)
    }

    /// Blocks until there is a key: `get().wait()`.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// q.shut_down();
    /// while let Some(item) = q.get_blocking() {
    ///     println!("look at {}", item.key());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use = "dropping the item ends its run as done; `None` means that the queue is shut down and worked off"]
    pub fn get_blocking(&self) -> Option<Item<'_, K, V>> {
        get_blocking(&self.shared)
    }

    /// Takes a key if one is ready.
    ///
    /// # Errors
    ///
    /// [`GetError::Empty`], or [`GetError::ShutDown`] once no key will be ready any more.
    ///
    /// ```
    /// # use requeue::{GetError, WorkQueue};
    /// let q = WorkQueue::<u32>::new();
    /// assert_eq!(q.try_get().err(), Some(GetError::Empty));
    /// ```
    #[inline]
    pub fn try_get(&self) -> Result<Item<'_, K, V>, GetError> {
        try_get(&self.shared)
    }

    /// Waits for keys, and takes all that are ready, at most `most`, in one lock
    /// hold: await it, call [`wait`](GetMany::wait) or
    /// [`timeout`](GetMany::timeout) on it. `None` means that the queue is shut
    /// down and worked off.
    ///
    /// While keys are ready it is ready at once, and does not yield to other tasks: see [`get`](Self::get).
    ///
    /// [`Items::next`] ends the runs of these keys and takes the next ones in one hold. The size of the batch
    /// decides how long others wait for the lock: 30 ns for each `u64`, and 30 to 40 for its end (Intel Xeon,
    /// 2 shared cores, rustc 1.95, commit 5f6b634).
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add_many(["a", "b", "c"]).all()?;
    /// q.shut_down();
    /// while let Some(items) = q.get_many(32).wait() {
    ///     for item in &items {
    ///         println!("look at {}", item.key());
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no key and no wake-up.
    pub fn get_many(&self, most: usize) -> GetMany<'_, K, V> {
        GetMany::new(Owner::Borrowed(&self.shared), most, Vec::new())
    }

    /// Takes the ready keys, at most `most`, in one lock hold. (If more than 256 are asked for and ready, it
    /// takes two holds.)
    ///
    /// # Errors
    ///
    /// [`GetError::Empty`], or [`GetError::ShutDown`] once no key will be ready any more. If asked for
    /// 0 keys it returns no items instead of `Empty`.
    ///
    /// # Panics
    ///
    /// If a user's order panics. Then all keys are ready as before.
    ///
    /// ```
    /// # use requeue::{GetError, WorkQueue};
    /// let q = WorkQueue::new();
    /// assert_eq!(q.try_get_many(32).err(), Some(GetError::Empty));
    /// q.add_many(["a", "b", "c"]).all()?;
    /// assert_eq!(q.try_get_many(2)?.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn try_get_many(&self, most: usize) -> Result<Items<'_, K, V>, GetError> {
        try_get_many(&self.shared, most)
    }

    /// The keys as a stream, for stream combinators and `select!` loops: each next item is
    /// a [`get`](Self::get), and it ends once the queue is shut down and worked off.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use smol::stream::StreamExt;
    /// # smol::block_on(async {
    /// # let q = WorkQueue::new();
    /// q.add_many(["a", "b"]).all()?;
    /// q.shut_down();
    /// let seen: Vec<&str> = q.stream().map(|item| *item.key()).collect().await;
    /// assert_eq!(seen, ["a", "b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    #[cfg(feature = "stream")]
    #[cfg_attr(docsrs, doc(cfg(feature = "stream")))]
    pub fn stream(&self) -> ItemStream<'_, K, V> {
        self.get().into_stream()
    }

    /// A handle that only gets. It does not keep the queue open: when the last [`WorkQueue`] is dropped, the
    /// queue is shut down, and getters end once all is worked off. So a program whose workers have getters
    /// ends when its producers do.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::new();
    /// let getter = q.getter();
    /// let worker = std::thread::spawn(move || {
    ///     let mut runs = 0;
    ///     while let Some(_item) = getter.get_blocking() {
    ///         runs += 1;
    ///     }
    ///     runs
    /// });
    /// q.add("a")?;
    /// drop(q); // the last producer
    /// assert_eq!(worker.join().unwrap(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn getter(&self) -> Getter<K, V> {
        Getter::new(self.shared.clone())
    }

    /// Number of ready keys. Waiting and held keys are counted separately, see [`stats`](Self::stats).
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// q.add_after("b", std::time::Duration::from_secs(1))?;
    /// assert_eq!(q.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.hold_to_look(&mut None).with(|hold| hold.core.len())
    }

    /// Whether no key is ready.
    ///
    /// ```
    /// assert!(requeue::WorkQueue::<u32>::new().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Numbers of keys by state, and of waiting callers, at one moment.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// let item = q.try_get()?;
    /// q.add("a")?;
    /// let stats = q.stats();
    /// assert_eq!((stats.ready, stats.held, stats.dirty), (0, 1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.shared.hold_to_look(&mut None).with(|hold| hold.stats())
    }

    /// The name that the queue was built with, empty if none.
    ///
    /// ```
    /// let q = requeue::WorkQueue::<u32>::builder().name("pods").build()?;
    /// assert_eq!(q.name(), "pods");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Whether adds are refused: after [`close`](Self::close), a drain or [`shut_down`](Self::shut_down). See
    /// also [`phase`](Self::phase).
    ///
    /// ```
    /// let q = requeue::WorkQueue::<u32>::new();
    /// q.shut_down();
    /// assert!(q.shutting_down());
    /// ```
    #[must_use]
    #[doc(alias("ShuttingDown"))]
    pub fn shutting_down(&self) -> bool {
        self.shared.lock().with(|hold| hold.core.shutting_down())
    }

    /// Progress of the queue's shutdown: which calls may still trigger runs, and whether all is over.
    ///
    /// ```
    /// # use requeue::{Phase, WorkQueue};
    /// # let q = WorkQueue::new();
    /// q.add("a")?;
    /// assert_eq!(q.phase(), Phase::Open);
    /// q.close();
    /// assert_eq!(q.phase(), Phase::Closed);
    /// q.shut_down();
    /// assert_eq!(q.phase(), Phase::ShutDown); // "a" is still to run
    /// q.try_get()?.done();
    /// assert_eq!(q.phase(), Phase::Over);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.shared.phase()
    }

    /// Refuses adds. Holders may still retry the keys that they hold.
    ///
    /// It does not end getters: a key may still come back, so they go on waiting even if nothing is ready,
    /// waiting or held. [`shut_down`](Self::shut_down) and a drain end them; a drain that waits for waiting
    /// keys closes first.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// let item = q.try_get()?;
    /// q.close();
    /// assert!(q.add("b").is_err());
    /// assert!(item.retry().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.shared.close();
    }

    /// Refuses all triggers and drops the timers. Ready keys are still handed
    /// out, and a held dirty key still gets its run. Releases every drain.
    ///
    /// May be called any number of times.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// q.add_after("b", std::time::Duration::from_secs(1))?;
    /// let left = q.shut_down();
    /// assert_eq!((left.ready, left.dropped), (1, 1));
    /// assert!(q.get_blocking().is_some() && q.get_blocking().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("ShutDown"))]
    pub fn shut_down(&self) -> ShutDown {
        self.shared.shut_down(self.shared.now())
    }

    /// Refuses triggers at once and waits until nothing is ready, dirty or held: await it or call
    /// [`wait`](Drain::wait). [`DrainOptions`] say what becomes of waiting keys, and when it ends; by default their
    /// timers are dropped, and it has no end. Keys whose timers are dropped, or whose retry is refused, go to the
    /// [list](Self::take_unfinished) of unfinished keys.
    ///
    /// Callers of [`get`](Self::get) work the keys off: without a worker this waits for ever.
    ///
    /// ```
    /// use requeue::{DrainOptions, WaitingKeys, WorkQueue};
    /// use std::time::Duration;
    /// let q = WorkQueue::new();
    /// std::thread::scope(|s| {
    ///     s.spawn(|| while let Some(item) = q.get_blocking() { item.done() });
    ///     q.add("a").expect("open");
    ///     let drained = q.drain(DrainOptions::default()).wait();
    ///     assert!(drained.complete);
    /// });
    ///
    /// let q = WorkQueue::<u64>::new();
    /// let options = DrainOptions::default().waiting_keys(WaitingKeys::RunNow).timeout(Duration::ZERO);
    /// assert!(q.drain(options).wait().complete);
    /// ```
    #[doc(alias("ShutDownWithDrain", "shut_down_with_drain"))]
    pub fn drain(&self, options: impl Into<DrainOptions>) -> Drain<'_, K, V> {
        Drain::begin(Owner::Borrowed(&self.shared), options.into())
    }

    /// Takes the keys that drains of this queue have left unfinished, in that order: keys whose run failed
    /// and whose retry was refused, and keys whose timer was dropped. Each is returned once, and can go on in
    /// another queue by [`restore`](Self::restore). The list is empty before the first drain.
    ///
    /// A key that is also ready or held stays in the list until its run has ended, and one that a guard still
    /// reads until that is dropped. Workers are told of each unfinished key once ([`on_give_up`]).
    ///
    /// On the front of an engine the keys are in the store too, where the next process finds them. They are
    /// not lost if they stay in the list, and would run twice if they went on in another queue.
    ///
    /// ```
    /// # use requeue::*;
    /// # let q = WorkQueue::new();
    /// q.add("a")?;
    /// let item = q.try_get()?;
    /// let drain = q.drain(DrainOptions::default());
    /// drop(item.retry().expect_err("it does not wait for retries"));
    /// let drained = drain.wait();
    /// assert!(!drained.complete && drained.unfinished == 1);
    /// let list = q.take_unfinished();
    /// assert_eq!((list[0].key, list[0].attempt, list[0].retry_refused), ("a", 2, true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`on_give_up`]: crate::WorkerBuilder::on_give_up
    #[must_use = "the keys that are taken are in no list any more"]
    pub fn take_unfinished(&self) -> Vec<UnfinishedKey<K, V>> {
        self.shared.take_unfinished()
    }

    /// Number of locks that this thread has taken, and of key lookups in this queue. For the test of what
    /// each call costs.
    #[cfg(all(requeue_counted, not(requeue_loom)))]
    #[doc(hidden)]
    #[must_use]
    pub fn counted(&self) -> (u64, u64) {
        self.shared.counted()
    }
}

impl<K, V, S: Clone> WorkQueue<K, V, S> {
    /// A handle that does not keep the queue open, and can become a [`WorkQueue`] again while another handle
    /// exists. For code that triggers runs but must not delay the end, such as a cache, a callback, or the
    /// queue's own handler.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::new();
    /// let weak = q.downgrade();
    /// weak.upgrade().expect("q is there").add("a")?;
    /// assert_eq!(q.len(), 1);
    /// drop(q);
    /// assert!(weak.upgrade().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn downgrade(&self) -> WeakQueue<K, V, S> {
        WeakQueue { shared: Arc::downgrade(&self.shared), hasher: self.hasher.clone() }
    }
}

/// A handle that does not keep its queue open: [`WorkQueue::downgrade`].
///
/// ```
/// use requeue::{WeakQueue, WorkQueue};
/// let q = WorkQueue::new();
/// let weak: WeakQueue<&str> = q.downgrade();
/// let on_change = move |name| match weak.upgrade() {
///     Some(q) => q.add(name).is_ok(),
///     None => false, // there is nobody left to look at it
/// };
/// assert!(on_change("a"));
/// drop(q);
/// assert!(!on_change("b"));
/// ```
pub struct WeakQueue<K, V = (), S = RandomState> {
    shared: Weak<Shared<K, V>>,
    hasher: S,
}

impl<K, V, S: Clone> WeakQueue<K, V, S> {
    /// A handle, which keeps the queue open. `None` once the last other one was dropped, even if getters,
    /// guards or workers still use the queue.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::<u32>::new();
    /// let again = q.downgrade().upgrade();
    /// drop(q);
    /// assert!(again.is_some_and(|q| !q.shutting_down()));
    /// ```
    #[must_use]
    pub fn upgrade(&self) -> Option<WorkQueue<K, V, S>> {
        let shared = self.shared.upgrade()?;
        // before it counts as a handle, as in `WorkQueue::clone`
        let hasher = self.hasher.clone();
        // at 0 the queue has been shut down, and stays so
        let more = |handles: usize| if handles > 0 { handles.checked_add(1) } else { None };
        shared.handles.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(WorkQueue { shared, hasher })
    }
}

impl<K, V, S: Clone> Clone for WeakQueue<K, V, S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), hasher: self.hasher.clone() }
    }
}

debug!([K, V, S] WeakQueue<K, V, S>, |_| { .. });

impl<K, V, S: Clone> Clone for WorkQueue<K, V, S> {
    fn clone(&self) -> Self {
        // the hasher first: if its clone panics there is no handle to be counted
        let hasher = self.hasher.clone();
        self.shared.handles.fetch_add(1, Relaxed);
        Self { shared: self.shared.clone(), hasher }
    }
}

impl<K, V, S> Drop for WorkQueue<K, V, S> {
    fn drop(&mut self) {
        if self.shared.handles.fetch_sub(1, AcqRel) == 1 && !self.shared.defers(|| Later::ShutDown) {
            in_drop(|| {
                // a clock that panics must not keep the queue open
                let now = catch_unwind(AssertUnwindSafe(|| self.shared.now()));
                self.shared.shut_down(now.unwrap_or(Instant::ORIGIN));
            });
        }
    }
}

debug!([K, V, S] WorkQueue<K, V, S>, |queue| { name: queue.name(), stats: queue.stats(), .. });

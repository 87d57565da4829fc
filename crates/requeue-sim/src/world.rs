//! [`World`]: what an invariant sees.

use crate::{Call, End, Run};
use requeue::{Added, Drained, Instant, KeyState, Refused, WorkQueue};
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

/// The latest event.
///
/// ```
/// use requeue::WorkQueue;
/// use requeue_sim::{Event, Sim};
///
/// // a state of the invariant's own: how many runs have ended
/// let mut ended = 0;
/// let sim = Sim::new(|clock| WorkQueue::<u32>::builder().clock(clock).build().unwrap())
///     .invariant("at most a thousand runs", move |world| {
///         ended += u32::from(matches!(world.event(), Event::Ended { .. }));
///         if ended <= 1_000 { Ok(()) } else { Err("more".into()) }
///     });
/// # drop(sim);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<K, V = ()> {
    /// A call was made. With the queue's answer, if it was a trigger.
    Called {
        /// The call.
        call: Call<K, V>,
        /// The answer to a trigger or a restore; `None` while it waits for room.
        answer: Option<Result<Added, Refused>>,
    },
    /// A trigger that waited for room was accepted or refused.
    Answered {
        /// The call, a [`Call::AddWhenRoom`].
        call: Call<K, V>,
        /// The answer: [`Refused::Full`] if its time was up.
        answer: Result<Added, Refused>,
    },
    /// A worker was handed a key. If it got several at once, each is reported, in order.
    Began(Run<K, V>),
    /// A run ended.
    Ended {
        /// The run.
        run: Run<K, V>,
        /// How it ended.
        end: End,
        /// Whether the queue accepted the run's end: false if a retry was refused.
        taken: bool,
    },
    /// A drain is over: all is worked off, or its time is up.
    Drained(Drained),
    /// The simulation's time is over. The last event.
    Over,
}

/// History of a key: what was asked for, and what happened.
///
/// ```
/// # use requeue::WorkQueue;
/// # use requeue_sim::Sim;
/// let sim = Sim::new(|clock| WorkQueue::<u32>::builder().clock(clock).build().unwrap())
///     .invariant("no key runs ten times", |world| {
///         match world.keys().find(|log| log.runs >= 10) {
///             Some(log) => Err(format!("{} ran {} times", log.key, log.runs)),
///             None => Ok(()),
///         }
///     });
/// # drop(sim);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeyLog<K> {
    /// The key.
    pub key: K,
    /// Number of accepted triggers.
    pub triggers: u64,
    /// Number of runs that have begun.
    pub runs: u64,
    /// Number of runs that have failed: retry, panic or giving up.
    pub failures: u64,
    /// The longest time it was ready before a run.
    pub longest_wait: Duration,
    /// When its latest run began.
    pub began: Option<Instant>,
    /// When its latest run ended.
    pub ended: Option<Instant>,
    ready_since: Option<Instant>,
    /// Its timer, and whether it was held, as of the last event about it.
    due: Option<Instant>,
    held: bool,
    /// A trigger was accepted, and no run has begun since.
    pub(crate) owed: bool,
    /// Number of earlier runs of the key that began at the same instant as its latest run.
    pub(crate) at_once: u64,
    /// A guard of it was leaked: it is held for ever.
    pub(crate) leaked: bool,
}

/// An invariant's view: the time, the latest event, the queue itself, and the history of each key.
///
/// ```
/// use requeue::WorkQueue;
/// use requeue_sim::Sim;
/// use std::time::Duration;
///
/// let sim = Sim::new(|clock| WorkQueue::<u32>::builder().clock(clock).build().unwrap())
///     .invariant("no key waits for a minute", |world| {
///         let late = world.ready().find(|(_, waited)| *waited > Duration::from_secs(60));
///         late.map_or(Ok(()), |(key, _)| Err(format!("{key} does")))
///     });
/// # drop(sim);
/// ```
pub struct World<K: Hash + Eq, V: 'static = ()> {
    pub(crate) queue: WorkQueue<K, V>,
    pub(crate) now: Instant,
    pub(crate) event: Event<K, V>,
    /// By worker, its runs in the order in which they began.
    pub(crate) running: Vec<Vec<Run<K, V>>>,
    pub(crate) runs: u64,
    pub(crate) calls: u64,
    logs: Vec<KeyLog<K>>,
    places: HashMap<K, usize>,
}

impl<K: Hash + Eq + Clone, V: 'static> World<K, V> {
    pub(crate) fn new(queue: WorkQueue<K, V>, now: Instant, workers: usize) -> Self {
        let running = (0..workers).map(|_| Vec::new()).collect();
        let (logs, places) = (Vec::new(), HashMap::new());
        Self { queue, now, event: Event::Over, running, runs: 0, calls: 0, logs, places }
    }

    /// The time.
    ///
    /// ```
    /// # use requeue::{Instant, WorkQueue};
    /// # let new = |clock| WorkQueue::<u32>::builder().clock(clock).build().unwrap();
    /// let sim = requeue_sim::Sim::new(new)
    ///     .invariant("time passes", |world| {
    ///         if world.now() < Instant::NEVER { Ok(()) } else { Err("never".into()) }
    ///     });
    /// # drop(sim);
    /// ```
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The latest event.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_sim::{Event, Sim};
    /// # let new = |clock| WorkQueue::<u32>::builder().clock(clock).build().unwrap();
    /// let sim = Sim::new(new).invariant("runs begin at once", |world| match world.event() {
    ///     Event::Began(run) if !run.waited.is_zero() => Err(format!("{} waited", run.key)),
    ///     _ => Ok(()),
    /// });
    /// # drop(sim);
    /// ```
    #[must_use]
    pub fn event(&self) -> &Event<K, V> {
        &self.event
    }

    /// The queue, for its counts and key states. Do not change it from here: a trace does not record that.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # let new = |clock| WorkQueue::<u32>::builder().clock(clock).build().unwrap();
    /// let sim = requeue_sim::Sim::new(new).invariant("a short line", |world| {
    ///     if world.queue().len() <= 100 { Ok(()) } else { Err("more than 100 keys".into()) }
    /// });
    /// # drop(sim);
    /// ```
    #[must_use]
    pub fn queue(&self) -> &WorkQueue<K, V> {
        &self.queue
    }

    /// The current runs, by worker.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # let new = |clock| WorkQueue::<u32>::builder().clock(clock).build().unwrap();
    /// let sim = requeue_sim::Sim::new(new).invariant("7 runs alone", |world| {
    ///     let alone = world.running().all(|run| run.key != 7) || world.running().count() == 1;
    ///     if alone { Ok(()) } else { Err("beside others".into()) }
    /// });
    /// # drop(sim);
    /// ```
    pub fn running(&self) -> impl Iterator<Item = &Run<K, V>> {
        self.running.iter().flatten()
    }

    /// Histories of the keys that were called for, in the order of their first calls.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # let new = |clock| WorkQueue::<u32>::builder().clock(clock).build().unwrap();
    /// let sim = requeue_sim::Sim::new(new).invariant("each key runs in the end", |world| {
    ///     let never = world.keys().find(|log| world.is_over() && log.runs == 0);
    ///     never.map_or(Ok(()), |log| Err(format!("{} does not", log.key)))
    /// });
    /// # drop(sim);
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = &KeyLog<K>> {
        self.logs.iter()
    }

    /// History of a key; `None` if it was not called for yet.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # let new = |clock| WorkQueue::<u32>::builder().clock(clock).build().unwrap();
    /// let sim = requeue_sim::Sim::new(new).invariant("7 does not fail", |world| {
    ///     let failures = world.key(&7).map_or(0, |log| log.failures);
    ///     if failures == 0 { Ok(()) } else { Err(format!("{failures} times")) }
    /// });
    /// # drop(sim);
    /// ```
    #[must_use]
    pub fn key(&self, key: &K) -> Option<&KeyLog<K>> {
        self.places.get(key).map(|&place| &self.logs[place])
    }

    /// Time since an instant.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use std::time::Duration;
    /// # let new = |clock| WorkQueue::<u32>::builder().clock(clock).build().unwrap();
    /// let sim = requeue_sim::Sim::new(new).invariant("no run takes a minute", |world| {
    ///     let late = world.running().find(|run| world.since(run.began) >= Duration::from_secs(60));
    ///     late.map_or(Ok(()), |run| Err(format!("that of {} does", run.key)))
    /// });
    /// # drop(sim);
    /// ```
    #[must_use]
    pub fn since(&self, at: Instant) -> Duration {
        self.now.saturating_since(at)
    }

    /// The ready keys, each with how long it has been ready.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # let new = |clock| WorkQueue::<u32>::builder().clock(clock).build().unwrap();
    /// let sim = requeue_sim::Sim::new(new).invariant("the queue counts right", |world| {
    ///     if world.ready().count() == world.queue().len() { Ok(()) } else { Err("it does not".into()) }
    /// });
    /// # drop(sim);
    /// ```
    pub fn ready(&self) -> impl Iterator<Item = (&K, Duration)> {
        self.logs.iter().filter_map(|log| Some((&log.key, self.since(log.ready_since(self.now)?))))
    }

    /// Number of runs that have begun.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # let new = |clock| WorkQueue::<u32>::builder().clock(clock).build().unwrap();
    /// let sim = requeue_sim::Sim::new(new).invariant("something runs", |world| {
    ///     if world.runs() > 0 || !world.is_over() { Ok(()) } else { Err("nothing does".into()) }
    /// });
    /// # drop(sim);
    /// ```
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Whether the simulation's time is over: nothing follows.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # let new = |clock| WorkQueue::<u32>::builder().clock(clock).build().unwrap();
    /// let sim = requeue_sim::Sim::new(new).invariant("all is done in the end", |world| {
    ///     if !world.is_over() || world.queue().is_empty() { Ok(()) } else { Err("it is not".into()) }
    /// });
    /// # drop(sim);
    /// ```
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.event, Event::Over)
    }

    pub(crate) fn log(&mut self, key: &K) -> &mut KeyLog<K> {
        let place = match self.places.get(key) {
            Some(&place) => place,
            None => {
                self.logs.push(KeyLog::new(key.clone()));
                self.places.insert(key.clone(), self.logs.len() - 1);
                self.logs.len() - 1
            }
        };
        &mut self.logs[place]
    }

    /// Records the queue's state of a key after an event.
    pub(crate) fn look(&mut self, key: &K) -> KeyState {
        let state = self.queue.state(key).unwrap_or_default();
        let now = self.now;
        let log = self.log(key);
        let since = log.ready_since(now).unwrap_or(now);
        log.ready_since = state.ready.then_some(since);
        // The end of a window that owes no run makes nothing ready. A timer behind it is seen when it has ended.
        let due = state.waiting_until.filter(|_| state.waiting_until != state.quiet_until);
        (log.due, log.held) = (due, state.held);
        state
    }
}

impl<K> KeyLog<K> {
    fn new(key: K) -> Self {
        Self {
            key,
            triggers: 0,
            runs: 0,
            failures: 0,
            longest_wait: Duration::ZERO,
            began: None,
            ended: None,
            ready_since: None,
            due: None,
            held: false,
            owed: false,
            at_once: 0,
            leaked: false,
        }
    }

    /// Since when it is ready. A timer that fired since the key's last event made it so.
    pub(crate) fn ready_since(&self, now: Instant) -> Option<Instant> {
        self.ready_since.or(self.due.filter(|due| *due <= now && !self.held))
    }
}

impl<K: Hash + Eq, V> fmt::Debug for World<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now).field("runs", &self.runs).finish_non_exhaustive()
    }
}

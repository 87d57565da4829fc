//! What asks for a run: add, add_after, add_rate_limited.

use super::run::RunRef;
use super::shutdown::Phase;
use super::{Core, HELD, READY};
use crate::Instant;
use crate::arena::Arena;
use crate::line::{Line, Ticket};
use crate::slots::{Newcomer, Slots};
use crate::table::Found;
use core::borrow::Borrow;
use core::fmt;
use core::time::Duration;

/// What became of an accepted trigger.
///
/// ```
/// # use requeue_core::{Added, Config, Core, Delay, Got, Trigger};
/// # let mut core = Core::<&str>::new(Config::default());
/// assert_eq!(core.add(&mut Trigger::new("a", None), 7, Delay::Now)?.added, Added::Ready);
/// assert_eq!(core.add(&mut Trigger::new("a", None), 7, Delay::Now)?.added, Added::Coalesced);
/// let Got::Item(item) = core.get() else { panic!("a is ready") };
/// assert_eq!(core.add(&mut Trigger::new("a", None), 7, Delay::Now)?.added, Added::Dirty);
/// # let _ = core.finish(item.run, true);
/// # Ok::<(), requeue_core::Refused>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Added {
    /// The key became ready: it went to the back of the line.
    Ready,
    /// The key is held and became dirty: it goes to the back of the line when
    /// its run ends.
    Dirty,
    /// The key's timer was set, or moved.
    Waiting,
    /// What was pending already covers it: the key was ready or dirty, or its
    /// timer stayed as it was.
    Coalesced,
}

/// Why a trigger was refused. A refused trigger changes nothing.
///
/// ```
/// # use requeue_core::{Config, Core, Delay, Refused, ShutDown, Trigger};
/// # let mut core = Core::<&str>::new(Config::default());
/// core.shut_down();
/// let refused = core.add(&mut Trigger::new("a", None), 7, Delay::Now).unwrap_err();
/// assert_eq!(refused, Refused::ShutDown);
/// assert_eq!(refused.to_string(), "the queue is shut down and takes no more keys");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refused {
    /// The queue is shut down, drains, or was closed.
    ShutDown,
    /// The run that was to be ended with a retry has ended already, by
    /// `done(&key)`.
    NotHeld,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ShutDown => "the queue is shut down and takes no more keys",
            Self::NotHeld => "the run has ended already: the key was said done",
        })
    }
}

impl core::error::Error for Refused {}

/// A trigger as it is handed to [`Core::add`], which takes out of it what it
/// keeps: all that is left is the caller's, to be dropped outside the lock, also
/// where users' code panicked.
///
/// ```
/// # use requeue_core::{Config, Core, Delay, Trigger};
/// # let mut core = Core::<&str, u32>::new(Config::default());
/// let mut trigger = Trigger::new("a", Some(1));
/// core.add(&mut trigger, 7, Delay::Now)?;
/// assert_eq!(trigger.take(), (None, None)); // the queue has both
/// # Ok::<(), requeue_core::Refused>(())
/// ```
#[derive(Debug)]
pub struct Trigger<K, V = ()> {
    key: Option<K>,
    value: Option<V>,
}

impl<K, V> Trigger<K, V> {
    /// Of a key, with or without a payload.
    ///
    /// ```
    /// # use requeue_core::Trigger;
    /// let mut trigger = Trigger::new("a", Some(1));
    /// assert_eq!(trigger.take(), (Some("a"), Some(1)));
    /// ```
    #[inline]
    pub fn new(key: K, value: Option<V>) -> Self {
        Self { key: Some(key), value }
    }

    /// The key, while the queue has not taken it.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Trigger};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// let mut trigger = Trigger::new("a", None);
    /// assert_eq!(trigger.key(), Some(&"a"));
    /// core.add(&mut trigger, 7, Delay::Now)?;
    /// assert_eq!(trigger.key(), None);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[inline]
    pub fn key(&self) -> Option<&K> {
        self.key.as_ref()
    }

    /// Takes out what the queue did not take: both of a refused trigger, the key of one that the
    /// queue has a key of its own for.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Trigger};
    /// # let mut core = Core::<&str, u32>::new(Config::default());
    /// core.shut_down();
    /// let mut trigger = Trigger::new("a", Some(1));
    /// assert!(core.add(&mut trigger, 7, Delay::Now).is_err());
    /// assert_eq!(trigger.take(), (Some("a"), Some(1)));
    /// assert!(trigger.is_empty());
    /// ```
    #[inline]
    pub fn take(&mut self) -> (Option<K>, Option<V>) {
        (self.key.take(), self.value.take())
    }

    /// Whether the queue has taken all of it.
    ///
    /// ```
    /// # use requeue_core::Trigger;
    /// assert!(!Trigger::<_, ()>::new("a", None).is_empty());
    /// ```
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.key.is_none() && self.value.is_none()
    }
}

/// An accepted trigger.
///
/// ```
/// # use requeue_core::{Added, Config, Core, Delay, Policy, Trigger};
/// # use std::time::Duration;
/// # let mut core = Core::<&str>::new(Config::default());
/// let delay = Delay::After(Duration::from_secs(1), Policy::Earliest);
/// let accepted = core.add(&mut Trigger::new("a", None), 7, delay)?;
/// assert_eq!((accepted.added, accepted.delay), (Added::Waiting, Duration::from_secs(1)));
/// # Ok::<(), requeue_core::Refused>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// What became of it.
    pub added: Added,
    /// The delay that was decided, zero for an immediate trigger.
    pub delay: Duration,
    /// Stands for the key, as long as the lock is held.
    #[doc(hidden)]
    pub ticket: Ticket,
}

/// What a timer does when the key has one already (rule D6).
///
/// ```
/// # use requeue_core::{Config, Core, Delay, Instant, Policy, Trigger};
/// # use std::time::Duration;
/// # let mut core = Core::<&str>::new(Config::default());
/// for (secs, policy) in [(5, Policy::Earliest), (9, Policy::Earliest), (7, Policy::Replace)] {
///     core.add(&mut Trigger::new("a", None), 7, Delay::After(Duration::from_secs(secs), policy))?;
/// }
/// let state = core.state("a", 7).expect("it waits");
/// assert_eq!(state.waiting_until, Some(Instant::ORIGIN + Duration::from_secs(7)));
/// # Ok::<(), requeue_core::Refused>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The earlier instant stays.
    #[default]
    Earliest,
    /// The later instant stays, but none later than `max` after the first such
    /// call: a debounce.
    Latest {
        /// How long after the window's first trigger the key runs at the latest.
        max: Duration,
    },
    /// The new instant replaces the old one.
    Replace,
    /// The old instant stays.
    Keep,
}

/// A built-in limiter as the state machine sees it: a function of the count.
///
/// ```
/// # use requeue_core::{Config, Core, Delay, Limit, Policy, Trigger};
/// # use std::time::Duration;
/// # let mut core = Core::<&str>::new(Config::default());
/// let five_more = |failures: u32, _| Duration::from_secs(5).saturating_mul(failures.saturating_add(1));
/// let limit = Limit { delay: &five_more, counts: true, expire_after: None };
/// for secs in [5, 10, 15] {
///     let accepted = core.add(&mut Trigger::new("a", None), 7, Delay::Limited(limit, Policy::Earliest))?;
///     assert_eq!(accepted.delay, Duration::from_secs(secs));
/// }
/// # Ok::<(), requeue_core::Refused>(())
/// ```
#[derive(Clone, Copy)]
pub struct Limit<'a> {
    /// The delay of a key that has failed so often before. Must not panic.
    pub delay: &'a dyn Fn(u32, Instant) -> Duration,
    /// Whether the limiter counts at all.
    pub counts: bool,
    /// How long after the end of its last delay a count expires.
    pub expire_after: Option<Duration>,
}

impl fmt::Debug for Limit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// When a trigger wants its run.
///
/// ```
/// # use requeue_core::{Added, Config, Core, Delay, Policy, Trigger};
/// # use std::time::Duration;
/// # let mut core = Core::<&str>::new(Config::default());
/// let never = Delay::After(Duration::MAX, Policy::Earliest);
/// assert_eq!(core.add(&mut Trigger::new("a", None), 7, never)?.added, Added::Waiting);
/// assert_eq!(core.add(&mut Trigger::new("a", None), 7, Delay::Now)?.added, Added::Ready);
/// # Ok::<(), requeue_core::Refused>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Delay<'a> {
    /// Now.
    Now,
    /// So much later; zero is now.
    After(Duration, Policy),
    /// At this instant; one that has come is now.
    At(Instant, Policy),
    /// When a limiter that the key's own count feeds says.
    Limited(Limit<'a>, Policy),
    /// When a limiter said that was asked without the lock, see [`Core::ask`].
    Asked(Duration, Policy, Asking),
}

/// A limiter is being asked without the lock: for a shutdown that comes
/// meanwhile the trigger counts as a waiting key.
///
/// ```
/// # use requeue_core::{Asking, Config, Core};
/// # let mut core = Core::<&str>::new(Config::default());
/// let asking: Asking = core.ask(None)?;
/// assert_eq!(core.shut_down().dropped, 1); // while the limiter thinks
/// assert!(!core.unask(asking));
/// # Ok::<(), requeue_core::Refused>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "to be handed back by the trigger it was taken for, or by `unask`"]
pub struct Asking {
    epoch: u64,
    /// The reading that the limiter is asked with: its delay counts from here,
    /// however long it thinks.
    pub(super) at: Instant,
}

impl<K, V> Core<K, V> {
    /// Begins to ask a limiter without the lock, for a trigger from outside or
    /// for the retry of the holder of `run`.
    ///
    /// # Errors
    ///
    /// [`Refused`] where the trigger itself would be refused; nothing is asked then.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Instant, Policy, Trigger};
    /// # use std::time::Duration;
    /// # let mut core = Core::<&str>::new(Config::default());
    /// let asking = core.ask(None)?;
    /// core.advance(Instant::ORIGIN + Duration::from_secs(1)); // so long the limiter thinks, and says 5 s
    /// let delay = Delay::Asked(Duration::from_secs(5), Policy::Earliest, asking);
    /// core.add(&mut Trigger::new("a", None), 7, delay)?;
    /// assert_eq!(core.next_wake(), Some(Instant::ORIGIN + Duration::from_secs(5)));
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    pub fn ask(&mut self, run: Option<&RunRef<K>>) -> Result<Asking, Refused> {
        match run {
            Some(run) => self.admits_holder(run)?,
            None => self.admits_outside()?,
        }
        self.asking += 1;
        Ok(Asking { epoch: self.ask_epoch, at: self.now })
    }

    /// Whether the holder of `run` may retry.
    ///
    /// # Errors
    ///
    /// [`Refused`], counted, if not.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Got, Refused, ShutDown, Trigger};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// # core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
    /// let Got::Item(item) = core.get() else { panic!("a is ready") };
    /// core.close();
    /// assert_eq!(core.admits_holder(&item.run), Ok(()));
    /// core.shut_down();
    /// assert_eq!(core.admits_holder(&item.run), Err(Refused::ShutDown));
    /// # let _ = core.finish(item.run, true);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    pub fn admits_holder(&mut self, run: &RunRef<K>) -> Result<(), Refused> {
        if self.is_inert(run) {
            return Err(Refused::NotHeld);
        }
        if !self.accepts(true) {
            self.refused_retries += 1;
            return Err(Refused::ShutDown);
        }
        Ok(())
    }

    fn admits_outside(&mut self) -> Result<(), Refused> {
        if !self.accepts(false) {
            self.refused += 1;
            return Err(Refused::ShutDown);
        }
        Ok(())
    }

    /// Ends the asking; false if a shutdown dropped the trigger meanwhile.
    ///
    /// ```
    /// # use requeue_core::{Config, Core};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// let asking = core.ask(None)?;
    /// assert!(core.unask(asking)); // the limiter panicked, say
    /// assert_eq!(core.shut_down().dropped, 0);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    pub fn unask(&mut self, asking: Asking) -> bool {
        let live = asking.epoch == self.ask_epoch;
        if live {
            self.asking -= 1;
        }
        live
    }

    #[inline]
    pub(super) fn accepts(&self, holder: bool) -> bool {
        match self.phase {
            Phase::Open => true,
            Phase::Closed => holder,
            Phase::ShutDown => false,
        }
    }

    /// What a delay does to the key's timer; nothing has changed yet.
    pub(super) fn plan_timer(&self, slot: u32, from: Instant, delay: Duration, policy: Policy) -> TimerPlan {
        let new = from + delay;
        let old = self.timers.due(slot);
        let mut window = None;
        let due = match (policy, old) {
            (Policy::Keep, Some(old)) => old,
            (Policy::Earliest, Some(old)) => old.min(new),
            (Policy::Latest { max }, _) => {
                let began = self.windows.get(slot).copied().flatten().unwrap_or(self.now);
                window = Some(began);
                new.min(began + max).max(old.unwrap_or(Instant::ORIGIN))
            }
            (Policy::Replace | Policy::Earliest | Policy::Keep, _) => new,
        };
        TimerPlan { due, moved: old != Some(due), window }
    }

    /// Sets the key's timer as planned; false if it stays as it was.
    pub(super) fn set_timer(&mut self, slot: u32, plan: TimerPlan) -> bool {
        if plan.window.is_some() {
            *self.windows.entry(slot) = plan.window;
        } else if plan.moved {
            // the window was that of the timer which this one replaces
            if let Some(window) = self.windows.get_mut(slot) {
                *window = None;
            }
        }
        if plan.moved {
            self.time(slot, plan.due);
        }
        plan.moved
    }

    /// Sets the timer of a key that was not known before.
    #[inline]
    fn set_first_timer(&mut self, slot: u32, plan: TimerPlan) {
        if plan.window.is_some() {
            *self.windows.entry(slot) = plan.window;
        }
        self.time(slot, plan.due);
    }

    /// What the limiter says of a key whose count the queue keeps, which failed so
    /// often, and what is to be recorded of it.
    #[inline]
    pub(super) fn ask_limit(&self, failures: u32, limit: Limit<'_>) -> (Duration, Option<Failed>) {
        let now = self.now;
        let delay = (limit.delay)(failures, now);
        let expire_after = limit.expire_after.or(self.expire_after);
        let expires = expire_after.map_or(Instant::NEVER, |after| now + delay + after);
        let failed = Failed { failures: failures.saturating_add(1), expires };
        (delay, limit.counts.then_some(failed))
    }

    /// Records that a limiter was asked.
    #[inline]
    pub(super) fn record(&mut self, slot: u32, failed: Option<Failed>) {
        if let Some(Failed { failures, expires }) = failed {
            let record = self.record_of(slot);
            record.failures = failures;
            record.expires = expires;
        }
    }

    /// Before a record may be made: looks at two others, so that those which
    /// nobody asks for are freed faster than new ones are made. Not while the
    /// key in hand is between two states.
    pub(super) fn turn_the_hand(&mut self, limit: Limit<'_>) {
        if limit.counts && limit.expire_after.or(self.expire_after).is_some() {
            self.expire_one_record();
            self.expire_one_record();
        }
    }
}

/// What a delay does to a key's timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimerPlan {
    due: Instant,
    moved: bool,
    /// When the window of a timer that is pushed back began.
    window: Option<Instant>,
}

impl TimerPlan {
    /// [`Core::plan_timer`] for a key that was not known before.
    #[inline]
    fn first(from: Instant, delay: Duration, policy: Policy, now: Instant) -> Self {
        let new = from + delay;
        match policy {
            Policy::Latest { max } => Self { due: new.min(now + max), moved: true, window: Some(now) },
            Policy::Earliest | Policy::Replace | Policy::Keep => Self { due: new, moved: true, window: None },
        }
    }

    /// Whether it makes the key due at once: no timer then.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.moved && self.due <= now
    }
}

/// What is to be recorded of a key that a limiter was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    failures: u32,
    expires: Instant,
}

/// A key that is looked for, and entered where it is not found.
struct Entering<'a, K> {
    arena: &'a mut Arena<K>,
    line: &'a mut Line<K>,
    key: &'a mut Option<K>,
    hash: u32,
    /// Whether it enters as ready, and so at the back of the line too.
    ready: bool,
}

impl<K: Eq> Newcomer for Entering<'_, K> {
    #[inline(always)]
    fn is_in(&self, slot: u32) -> bool {
        self.arena.matches(slot, self.hash, |known| self.key.as_ref() == Some(known))
    }

    #[inline(always)]
    fn enter(&mut self) -> u32 {
        let Some(key) = self.key.take() else { unreachable!("a trigger is handed in once") };
        let slot = self.arena.next_slot();
        let place = self.ready.then(|| self.line.enter_new(self.arena, slot));
        self.arena.fill(slot, key, self.hash, if self.ready { READY } else { 0 }, place);
        slot
    }
}

impl<K> Slots for Entering<'_, K> {
    #[inline]
    fn hash(&self, slot: u32) -> u32 {
        self.arena.hash(slot)
    }
    #[inline]
    fn prefetch(&self, slot: u32) {
        self.arena.prefetch(slot);
    }
}

impl<K: Eq, V> Core<K, V> {
    /// A trigger from outside.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the queue takes no more triggers.
    ///
    /// # Panics
    ///
    /// If users' code does (`Eq`, merge, their order), and then the trigger is
    /// not accepted; or if `trigger` has been handed in before.
    ///
    /// ```
    /// # use requeue_core::{Added, Config, Core, Delay, Trigger};
    /// let mut core = Core::<String>::new(Config::default());
    /// let accepted = core.add(&mut Trigger::new("a".to_owned(), None), 7, Delay::Now)?;
    /// assert_eq!(accepted.added, Added::Ready);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[inline(always)]
    pub fn add(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        delay: Delay<'_>,
    ) -> Result<Accepted, Refused> {
        match delay {
            Delay::Now => self.add_now(trigger, hash).map(|(added, ticket)| Accepted {
                added,
                delay: Duration::ZERO,
                ticket,
            }),
            _ => self.add_in_full(trigger, hash, delay),
        }
    }

    /// [`add`](Self::add) of an immediate trigger, with an answer that fits into registers.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the queue takes no more triggers.
    ///
    /// # Panics
    ///
    /// As `add`.
    ///
    /// ```
    /// # use requeue_core::{Added, Config, Core, Trigger};
    /// let mut core = Core::<String>::new(Config::default());
    /// let (added, _) = core.add_now(&mut Trigger::new("a".to_owned(), None), 7)?;
    /// assert_eq!(added, Added::Ready);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[doc(hidden)]
    #[inline(always)]
    pub fn add_now(&mut self, trigger: &mut Trigger<K, V>, hash: u32) -> Result<(Added, Ticket), Refused> {
        self.admits_outside()?;
        // a key that goes straight into a line of ours meets no users' code any more
        if self.line.is_custom() {
            return Ok(self.add_now_in_full(trigger, hash));
        }
        let Trigger { key, value } = trigger;
        match self.find_or_enter(key, hash, true) {
            Found::Known(slot) => Ok((self.trigger_now(slot, value), Ticket(slot))),
            Found::New(slot) => {
                self.entered_ready(slot);
                if value.is_some() {
                    self.merge_in(slot, value.take());
                }
                Ok((Added::Ready, Ticket(slot)))
            }
        }
    }

    #[inline(never)]
    fn add_now_in_full(&mut self, trigger: &mut Trigger<K, V>, hash: u32) -> (Added, Ticket) {
        let Accepted { added, ticket, .. } = self.enter_in_full(trigger, hash, Delay::Now);
        (added, ticket)
    }

    #[inline(never)]
    fn add_in_full(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        delay: Delay<'_>,
    ) -> Result<Accepted, Refused> {
        let Some(delay) = self.admit(delay)? else {
            return Ok(Accepted { added: Added::Waiting, delay: Duration::ZERO, ticket: Ticket::NONE });
        };
        Ok(self.enter_in_full(trigger, hash, delay))
    }

    /// Enters a trigger that is admitted.
    fn enter_in_full(&mut self, trigger: &mut Trigger<K, V>, hash: u32, delay: Delay<'_>) -> Accepted {
        if let Delay::Limited(limit, _) = delay {
            self.turn_the_hand(limit);
        }
        let Trigger { key, value } = trigger;
        match self.find_or_enter(key, hash, false) {
            Found::Known(slot) => self.trigger(slot, value, delay, false),
            Found::New(slot) => {
                self.suspect(Some(slot));
                self.trigger(slot, value, delay, true)
            }
        }
    }

    /// The slot of a key, which is entered if it is not known; if `ready`, then at the back of
    /// the line too.
    #[inline(always)]
    fn find_or_enter(&mut self, key: &mut Option<K>, hash: u32, ready: bool) -> Found {
        let Self { table, arena, line, .. } = self;
        match table.find_or_enter(&mut Entering { arena, line, key, hash, ready }, hash) {
            Some(found) => found,
            None => self.find_or_enter_further(key, hash, ready),
        }
    }

    #[inline(never)]
    fn find_or_enter_further(&mut self, key: &mut Option<K>, hash: u32, ready: bool) -> Found {
        let Self { table, arena, line, .. } = self;
        table.find_or_enter_further(&mut Entering { arena, line, key, hash, ready }, hash)
    }

    /// A key was entered as ready.
    #[inline(always)]
    fn entered_ready(&mut self, slot: u32) {
        self.ready += 1;
        self.counts.adds += 1;
        if let Some(times) = &mut self.times {
            times.triggered_ready(slot, self.now);
        }
    }

    /// An immediate trigger from outside for a key that is known already: `None` if it is
    /// not, and then nothing has changed.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the queue takes no more triggers.
    ///
    /// ```
    /// # use requeue_core::{Added, Config, Core, Delay, Trigger};
    /// let mut core = Core::<String>::new(Config::default());
    /// assert_eq!(core.add_known("a", 7)?, None);
    /// core.add(&mut Trigger::new("a".to_owned(), None), 7, Delay::Now)?;
    /// let accepted = core.add_known("a", 7)?.expect("it is known now");
    /// assert_eq!(accepted.added, Added::Coalesced);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[inline]
    pub fn add_known<Q>(&mut self, key: &Q, hash: u32) -> Result<Option<Accepted>, Refused>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.admits_outside()?;
        let Some(slot) = self.find(hash, key) else { return Ok(None) };
        let added = self.trigger_now(slot, &mut None);
        Ok(Some(Accepted { added, delay: Duration::ZERO, ticket: Ticket(slot) }))
    }

    /// Whether the trigger is taken, and what of its delay is left to decide;
    /// `None` if a shutdown dropped it while its limiter was asked.
    #[inline]
    fn admit<'a>(&mut self, delay: Delay<'a>) -> Result<Option<Delay<'a>>, Refused> {
        if let Delay::Asked(after, policy, asking) = delay {
            return Ok(self.unask(asking).then(|| self.answered(after, policy, asking)));
        }
        self.admits_outside().map(|()| Some(delay))
    }

    /// The delay of a trigger that was admitted before its limiter was asked: a
    /// drain that runs waiting keys now may have begun meanwhile.
    fn answered(&self, after: Duration, policy: Policy, asking: Asking) -> Delay<'static> {
        if self.phase == Phase::ShutDown { Delay::Now } else { Delay::Asked(after, policy, asking) }
    }

    /// The trigger itself. Users' code (merge, their order) runs before
    /// anything changes, so that its panic leaves the key as it was.
    #[inline]
    fn trigger(&mut self, slot: u32, value: &mut Option<V>, delay: Delay<'_>, new: bool) -> Accepted {
        let mut failed = None;
        let now = self.now;
        let immediate = match delay {
            Delay::Now => true,
            Delay::After(delay, _) => delay.is_zero(),
            Delay::At(..) | Delay::Asked(..) | Delay::Limited(..) => false,
        };
        if !immediate && !new {
            self.fire_if_due(slot);
        }
        let (from, delay, policy) = match delay {
            Delay::Now => (now, Duration::ZERO, Policy::Keep),
            Delay::After(delay, policy) => (now, delay, policy),
            Delay::At(at, policy) => (now, at.saturating_since(now), policy),
            Delay::Asked(delay, policy, asking) => (asking.at, delay, policy),
            Delay::Limited(limit, policy) => {
                // there are no failures of a key that was not known
                let failures = if limit.counts && !new { self.failures(slot) } else { 0 };
                let (delay, asked) = self.ask_limit(failures, limit);
                failed = asked;
                (now, delay, policy)
            }
        };
        let timer = (!delay.is_zero())
            .then(|| {
                if new {
                    TimerPlan::first(from, delay, policy, now)
                } else {
                    self.plan_timer(slot, from, delay, policy)
                }
            })
            .filter(|plan| !plan.is_due(now));
        let added = match timer {
            None => self.trigger_now(slot, value),
            Some(plan) => {
                self.merge_in(slot, value.take());
                if new {
                    self.set_first_timer(slot, plan);
                    Added::Waiting
                } else if self.set_timer(slot, plan) {
                    Added::Waiting
                } else {
                    self.coalesced()
                }
            }
        };
        self.record(slot, failed);
        self.suspect(None);
        Accepted { added, delay, ticket: Ticket(slot) }
    }

    #[inline(never)]
    fn trigger_now(&mut self, slot: u32, value: &mut Option<V>) -> Added {
        let flags = self.arena.flags(slot);
        if flags & HELD != 0 {
            self.merge_in(slot, value.take());
            if self.make_dirty(slot, self.now) { Added::Dirty } else { self.coalesced() }
        } else if flags & READY != 0 {
            self.line.touch(&mut self.arena, slot);
            self.merge_in(slot, value.take());
            self.coalesced()
        } else {
            self.line.announce(&mut self.arena, slot);
            self.merge_in(slot, value.take());
            self.restart_attempts(slot);
            self.make_ready(slot, self.now);
            self.line.enter_announced(&mut self.arena, slot);
            Added::Ready
        }
    }

    /// The trigger changed nothing.
    #[inline]
    fn coalesced(&mut self) -> Added {
        self.counts.coalesced += 1;
        Added::Coalesced
    }
}

//! Pauses: the queue, a group or a key is not handed out for a while (rule B7).
//!
//! A paused key is known until it is resumed, in any state. If it is ready it counts as ready, but is not in
//! line: [`Line::enter`](crate::line::Line::enter) leaves it out. A paused group is held back like one at its
//! cap, and is known until it is resumed. A drain or a shutdown lifts all pauses: the queue's at once, those
//! of groups and keys one batch per lock hold, as the timers are dropped.

use super::shutdown::BATCH;
use super::{Core, PAUSED, READY};
use core::borrow::Borrow;

/// The kind of pause that keeps a key from being handed out.
///
/// ```
/// # use requeue_core::{Config, Core, Paused};
/// # let mut core = Core::<&str>::new(Config::default());
/// core.pause_key(&mut Some("a"), 7);
/// let state = core.state("a", 7).expect("a key that is paused is known");
/// assert_eq!((state.paused, state.ready), (Some(Paused::Key), false));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Paused {
    /// The whole queue is paused.
    Queue,
    /// A group of the key is.
    Group,
    /// The key is.
    Key,
}

impl<K, V> Core<K, V> {
    /// Hands out no key until [`resume`](Self::resume), or until a drain or a shutdown. Returns false, and
    /// changes nothing, if one has begun.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Got, Trigger};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
    /// assert!(core.pause());
    /// assert!(matches!(core.get(), Got::Empty));
    /// assert_eq!((core.len(), core.servable()), (1, 0));
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    pub fn pause(&mut self) -> bool {
        let may_be = !self.is_ending();
        if may_be {
            self.line.pause(self.now);
        }
        may_be
    }

    /// Hands out keys again; false if the queue was not paused. Keys that are themselves paused stay paused.
    ///
    /// ```
    /// # use requeue_core::{Config, Core};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// core.pause();
    /// assert!(core.resume() && !core.resume());
    /// ```
    pub fn resume(&mut self) -> bool {
        self.line.resume(self.now)
    }

    /// Whether the whole queue is paused.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Instant, WaitingKeys};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// core.pause();
    /// assert!(core.is_paused());
    /// core.shut_down(); // lifts it
    /// assert!(!core.is_paused());
    /// ```
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.line.is_paused()
    }

    /// Lifts the rate of the queue and those of its groups; false if there was none. Call
    /// [`advance`](Self::advance) until it has no more to do.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Rate, Trigger};
    /// let rate = Rate { per_nano: 1, token: 1_000, burst: 1 };
    /// let mut core = Core::<&str>::new(Config { rate: Some(rate), ..Config::default() });
    /// for (key, hash) in [("a", 7), ("b", 8)] {
    ///     core.add(&mut Trigger::new(key, None), hash, Delay::Now)?;
    /// }
    /// assert_eq!(core.servable(), 1);
    /// assert!(core.lift_rate() && !core.lift_rate());
    /// assert_eq!(core.servable(), 2);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    pub fn lift_rate(&mut self) -> bool {
        let lifted = self.line.lift_rate();
        if lifted {
            // the rest is left for the next look
            self.line.refill(self.now, BATCH);
        }
        self.watch_time();
        lifted
    }

    /// Hands out no key of this key's group until [`resume_group`](Self::resume_group), or until a drain or a
    /// shutdown. The key itself need not be known, and does not become known. Returns false, and changes
    /// nothing, if there are no groups, or if a drain or a shutdown has begun.
    ///
    /// # Panics
    ///
    /// If user code panics (the function of groups). Then nothing has changed.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Got, GroupRules, Groups, Order, Trigger};
    /// let groups = Groups::by(|key: &u32| key / 10, GroupRules::new(), std::hash::RandomState::new());
    /// let order = Order::Fair { groups, priorities: false, within: false, max_wait: None };
    /// let mut core = Core::<u32>::new(Config { order, ..Config::default() });
    /// core.add(&mut Trigger::new(42, None), 7, Delay::Now)?;
    /// assert!(core.pause_group(&40));
    /// assert!(core.is_group_paused(&49) && !core.is_group_paused(&50));
    /// assert!(matches!(core.get(), Got::Empty));
    /// assert!(core.resume_group(&41) && !core.resume_group(&41));
    /// # let Got::Item(item) = core.get() else { panic!("it is ready") };
    /// # let _ = core.finish(item.run, true);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    pub fn pause_group(&mut self, key: &K) -> bool {
        !self.is_ending() && self.line.pause_group(key, self.now)
    }

    /// Hands out the keys of this key's group again: the group goes behind those that wait. False if it was
    /// not paused.
    ///
    /// # Panics
    ///
    /// Like [`pause_group`](Self::pause_group).
    ///
    /// ```
    /// # use requeue_core::{Config, Core};
    /// let mut core = Core::<u32>::new(Config::default());
    /// assert!(!core.resume_group(&42)); // there are no groups
    /// ```
    pub fn resume_group(&mut self, key: &K) -> bool {
        self.line.resume_group(key, self.now)
    }

    /// Whether this key's group is paused.
    ///
    /// # Panics
    ///
    /// Like [`pause_group`](Self::pause_group).
    ///
    /// ```
    /// # use requeue_core::{Config, Core};
    /// let core = Core::<u32>::new(Config::default());
    /// assert!(!core.is_group_paused(&42)); // there are no groups
    /// ```
    #[must_use]
    pub fn is_group_paused(&self, key: &K) -> bool {
        self.line.fair().is_some_and(|fair| fair.is_group_paused(key))
    }

    /// Stops handing out this key until [`resume_key`](Self::resume_key), or until a drain or a shutdown. An
    /// unknown key becomes known. Returns false, and changes nothing, if a drain or a shutdown has begun.
    /// Drop the rest of `key` outside the lock.
    ///
    /// # Panics
    ///
    /// If user code panics (`Eq`, a user's order or groups), and then nothing has changed; or if `key` is
    /// `None`.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Got, Trigger};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// assert!(core.pause_key(&mut Some("a"), 7));
    /// core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
    /// assert!(matches!(core.get(), Got::Empty));
    /// assert_eq!(core.resume_key("a", 7), (true, None));
    /// let Got::Item(item) = core.get() else { panic!("a is ready") };
    /// # let _ = core.finish(item.run, true);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    pub fn pause_key(&mut self, key: &mut Option<K>, hash: u32) -> bool
    where
        K: Eq,
    {
        if self.is_ending() {
            return false;
        }
        let (slot, _) = self.find_or_know(key, hash);
        let flags = self.arena.flags(slot);
        if flags & PAUSED == 0 {
            if flags & READY != 0 {
                self.line.leave(&mut self.arena, slot);
            }
            self.line.pause_key(&mut self.arena, slot, self.now, flags & READY != 0);
        }
        true
    }

    /// Hands this key out again: if it is ready it goes to the back of the line. The first part of the answer
    /// is whether it was paused. The second is the key, if there is no reason left to know it; drop it
    /// outside the lock.
    ///
    /// ```
    /// # use requeue_core::{Config, Core};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// core.pause_key(&mut Some("a"), 7);
    /// assert_eq!(core.resume_key("a", 7), (true, Some("a")));
    /// assert_eq!(core.resume_key("a", 7), (false, None));
    /// ```
    pub fn resume_key<Q>(&mut self, key: &Q, hash: u32) -> (bool, Option<K>)
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        match self.find(hash, key).filter(|slot| self.arena.flags(*slot) & PAUSED != 0) {
            Some(slot) => (true, self.lift(slot)),
            None => (false, None),
        }
    }

    /// Lifts the pause of a paused key. Returns the key, to be dropped, if there is no other reason to know
    /// it.
    fn lift(&mut self, slot: u32) -> Option<K> {
        self.line.resume_key(&mut self.arena, slot);
        if self.arena.flags(slot) & READY != 0 {
            self.line.enter(&mut self.arena, slot, self.now);
        }
        self.release(slot)
    }

    /// Whether pauses are refused, because a drain or a shutdown has begun and lifts the existing ones.
    fn is_ending(&self) -> bool {
        self.waiting_drain.is_some() || self.is_shut_down()
    }

    /// Whether keys or groups are still paused although a drain or a shutdown has begun.
    #[inline]
    pub(super) fn is_lifting(&self) -> bool {
        (self.line.paused_keys() > 0 || self.line.has_paused_groups()) && self.is_ending()
    }

    /// Lifts at most `most` pauses of groups, then of keys, in the order in which they were made. Returns
    /// true if some are left.
    #[cold]
    pub(super) fn lift_some(&mut self, most: usize) -> bool {
        for _ in 0..most {
            if self.line.lift_first_group(self.now) {
                continue;
            }
            let Some(slot) = self.line.first_paused() else { break };
            if let Some(key) = self.lift(slot) {
                self.discard(Some(key), None);
            }
        }
        let more = self.line.paused_keys() > 0 || self.line.has_paused_groups();
        if !more {
            self.watch_end();
        }
        more
    }
}

//! Keys that leave the line without a run, or go before the others: what cancelling,
//! priorities and a bound will stand on.

use super::{Core, DIRTY, PENDING, READY};
use core::borrow::Borrow;

impl<K, V> Core<K, V> {
    /// Takes away that a key is ready, or dirty: it is not handed out for the triggers that it
    /// had. Its timer, its failures and the run that is on stay. Returns what is to be dropped
    /// outside the lock: the key, if there is no reason left to know it, and the payload, if
    /// no run is left to hand it to. `None` if the key is not pending.
    ///
    /// `withdraw` as in [`get_up_to`](Self::get_up_to).
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Got, Trigger};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
    /// assert_eq!(core.leave("a", 7, |_, _| ()), Some((Some("a"), None)));
    /// assert!(matches!(core.get(), Got::Empty));
    /// assert_eq!(core.leave("a", 7, |_, _| ()), None);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[doc(hidden)]
    pub fn leave<Q>(
        &mut self,
        key: &Q,
        hash: u32,
        withdraw: impl FnOnce(&K, u32),
    ) -> Option<(Option<K>, Option<V>)>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let slot = self.find(hash, key)?;
        let flags = self.arena.flags(slot);
        if flags & (READY | DIRTY) == 0 {
            return None;
        }
        if flags & READY != 0 {
            self.line.leave(&mut self.arena, slot);
            if let Some(times) = &mut self.times {
                times.left(slot);
            }
        }
        self.arena.set_flags(slot, flags & !PENDING);
        self.end_pending(slot, flags, withdraw);
        let value = self.dead_value(slot);
        Some((self.release(slot), value))
    }

    /// Moves a ready key before all that were not raised, in any order of the line; true if it
    /// was moved.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Got, Trigger};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// for (key, hash) in [("a", 7), ("b", 8)] {
    ///     core.add(&mut Trigger::new(key, None), hash, Delay::Now)?;
    /// }
    /// assert!(core.raise("b", 8));
    /// assert_eq!(core.oldest(), Some(&"a"));
    /// let Got::Item(item) = core.get() else { panic!("two are ready") };
    /// assert_eq!(*item.run.key(), "b");
    /// # let _ = core.finish(item.run, true);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[doc(hidden)]
    pub fn raise<Q>(&mut self, key: &Q, hash: u32) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.find(hash, key).is_some_and(|slot| self.line.raise(&mut self.arena, slot))
    }

    /// The key that has stood in line longest, of those that were not raised; where all were,
    /// the one that was raised first.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Order, Trigger};
    /// # let mut core = Core::<&str>::new(Config { order: Order::Lifo, ..Config::default() });
    /// for (key, hash) in [("a", 7), ("b", 8)] {
    ///     core.add(&mut Trigger::new(key, None), hash, Delay::Now)?;
    /// }
    /// assert_eq!(core.oldest(), Some(&"a"));
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[doc(hidden)]
    #[must_use]
    pub fn oldest(&self) -> Option<&K> {
        self.line.oldest().map(|slot| self.arena.key(slot))
    }
}

//! Keys that are pending and published, so that whoever adds them again can see
//! it without the lock.
//!
//! Who publishes, who reads and in what order is the caller's business: see the
//! crate `requeue`, `filter/`. Kept here is what must not be forgotten: that a
//! pending key was published, so that whoever takes it withdraws it; and that a key which
//! is read by its address stays where it is.

use super::shutdown::Phase;
use super::{Core, DIRTY, HELD, PENDING, PUBLISHED, READY, attention};
use crate::line::Ticket;
use crate::slots::Slots;
use alloc::boxed::Box;

/// Whether somebody may still read a key that was published by its address and
/// withdrawn since. It is asked under the lock and must not panic.
///
/// ```
/// # use requeue_core::MayRead;
/// use std::sync::{Arc, atomic::{AtomicUsize, Ordering}};
/// let readers = Arc::new(AtomicUsize::new(1));
/// let counted = Arc::clone(&readers);
/// let may_read: MayRead<String> = Box::new(move |_| counted.load(Ordering::SeqCst) > 0);
/// assert!(may_read(&"a".to_owned()));
/// readers.store(0, Ordering::SeqCst);
/// assert!(!may_read(&"a".to_owned()));
/// ```
#[doc(hidden)]
pub type MayRead<K> = Box<dyn Fn(&K) -> bool + Send>;

impl<K, V> Core<K, V> {
    /// Notes that a key is being published, and returns it with its hash. `None`
    /// where it may not be: it is not pending (ready, or held and dirty), not
    /// everybody may trigger it, or a user's order is to hear of each trigger.
    ///
    /// With `may_read` it is published by its address: from here on it stays in
    /// its place, until nothing else keeps it and `may_read` (the one that was
    /// given first) says no.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Got, MayRead, Trigger};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// let accepted = core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
    /// assert_eq!(core.publish(accepted.ticket, None::<fn() -> MayRead<&'static str>>), Some((&"a", 7)));
    /// let mut withdrawn = None;
    /// let got = core.get_and(|key, hash| withdrawn = Some((*key, hash)));
    /// assert_eq!(withdrawn, Some(("a", 7)));
    /// # let Got::Item(item) = got else { panic!("a is ready") };
    /// # let _ = core.finish(item.run, true);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[doc(hidden)]
    pub fn publish(
        &mut self,
        ticket: Ticket,
        may_read: Option<impl FnOnce() -> MayRead<K>>,
    ) -> Option<(&K, u32)> {
        let slot = ticket.0;
        let flags = self.arena.flags_if_occupied(slot)?;
        if flags & (READY | DIRTY) == 0 || self.phase != Phase::Open || self.line.is_own() {
            return None;
        }
        if let Some(may_read) = may_read {
            self.may_read.get_or_insert_with(may_read);
            self.arena.pin(slot);
        }
        self.arena.set_flags(slot, flags | PUBLISHED);
        Some((self.arena.key(slot), self.arena.hash(slot)))
    }

    /// The one end of pending, whoever asks for it: the key, which had these `flags`, is neither
    /// ready nor dirty any more. If it was published `withdraw` is given it and its hash. The
    /// caller has taken [`PENDING`] from its flags, and it out of the line.
    #[inline]
    pub(super) fn end_pending(&mut self, slot: u32, flags: u32, withdraw: impl FnOnce(&K, u32)) {
        debug_assert!(flags & (READY | DIRTY) != 0 && self.arena.flags(slot) & PENDING == 0);
        if flags & PUBLISHED != 0 {
            withdraw(self.arena.key(slot), self.arena.hash(slot));
        }
        if flags & READY != 0 {
            self.ready -= 1;
        } else {
            self.dirty -= 1;
        }
    }

    /// Whether a key that is kept in its place may go. One that only a reader
    /// keeps waits for that in limbo.
    #[cold]
    pub(super) fn may_go(&mut self, slot: u32) -> bool {
        if !self.is_idle(slot) {
            return false;
        }
        if self.may_read.as_ref().is_some_and(|may_read| may_read(self.arena.key(slot))) {
            if !self.limbo.contains(&slot) {
                self.limbo.push(slot);
                self.attention |= attention::TRASH;
            }
            return false;
        }
        self.arena.unpin(slot);
        true
    }

    /// Looks again at keys that only readers kept: those that nobody reads any
    /// more go to the [trash](Self::take_trash). True if some are left: call this
    /// in the following lock holds.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Got, MayRead, Trigger};
    /// # use std::sync::atomic::{AtomicBool, Ordering};
    /// # static READ: AtomicBool = AtomicBool::new(true);
    /// # let mut core = Core::<&str>::new(Config::default());
    /// let accepted = core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
    /// let may_read = || -> MayRead<&str> { Box::new(|_| READ.load(Ordering::SeqCst)) };
    /// core.publish(accepted.ticket, Some(may_read));
    /// # let Got::Item(item) = core.get() else { panic!("a is ready") };
    /// let _ = core.finish(item.run, true);
    /// assert!(core.retry_limbo()); // it is still read
    /// READ.store(false, Ordering::SeqCst);
    /// assert!(!core.retry_limbo());
    /// assert_eq!(core.take_trash(), [(Some("a"), None)]);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[doc(hidden)]
    #[cold]
    pub fn retry_limbo(&mut self) -> bool {
        for slot in core::mem::take(&mut self.limbo) {
            // It may have gone since. Where it was triggered again, or the slot is another
            // key's, there is a reason to know the key, and it stays.
            if self.arena.flags_if_occupied(slot).is_none() {
                continue;
            }
            if let Some(key) = self.release(slot) {
                self.discard(Some(key), None);
            }
        }
        self.set_attention(attention::TRASH, self.trash.len() + self.limbo.len() > 0);
        !self.limbo.is_empty()
    }

    /// How many keys only readers keep.
    pub(super) fn in_limbo(&self) -> usize {
        let only_read = |&&slot: &&u32| self.arena.flags_if_occupied(slot).is_some() && self.is_idle(slot);
        self.limbo.iter().filter(only_read).count()
    }

    /// Whether there is no reason to know a key.
    fn is_idle(&self, slot: u32) -> bool {
        self.arena.flags(slot) & (READY | HELD) == 0
            && !self.arena.is_lent(slot)
            && self.timers.due(slot).is_none()
            && self.failures(slot) == 0
    }
}

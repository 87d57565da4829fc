//! Limiters that are asked outside the lock: a shutdown may come meanwhile.

use super::answers::{Refused, RunRef};
use super::options::{Asking, How};
use super::state::{Core, Phase};
use core::borrow::Borrow;

impl<K, V> Core<K, V> {
    /// Begins to ask a limiter outside the lock, for a trigger from outside or for the retry of the holder of
    /// `run`.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the trigger itself would be refused. Then nothing is asked.
    pub fn ask(&mut self, run: Option<&RunRef<K>>) -> Result<Asking, Refused> {
        match run {
            Some(run) if self.is_inert(run) => return Err(Refused::NotHeld),
            Some(run) if !self.accepts(true) => {
                self.refused_retries += 1;
                self.note_refusal(run.slot(), &How::Done, true);
                return Err(Refused::ShutDown);
            }
            Some(_) => {}
            None => self.admits_outside()?,
        }
        self.asking += 1;
        Ok(Asking { epoch: self.ask_epoch, place: false, at: self.now })
    }

    pub(super) fn admits_outside(&mut self) -> Result<(), Refused> {
        if !self.accepts(false) {
            self.refused += 1;
            return Err(Refused::ShutDown);
        }
        Ok(())
    }

    /// Ends the asking; false if a shutdown dropped the trigger meanwhile.
    pub fn unask(&mut self, asking: Asking) -> bool {
        let live = self.is_live(asking);
        if live {
            self.asking -= 1;
            self.leave_place(asking);
        } else {
            self.note_dropped_asking();
        }
        live
    }

    /// Whether the trigger of this asking was not dropped by a shutdown.
    pub(super) fn is_live(&self, asking: Asking) -> bool {
        asking.epoch == self.ask_epoch
    }

    #[inline]
    pub(super) fn accepts(&self, holder: bool) -> bool {
        match self.phase {
            Phase::Open => true,
            Phase::Closed => holder,
            Phase::ShutDown => false,
        }
    }

    /// Like [`ask`](Self::ask), for a trigger from outside of this key: on a queue with a bound it reserves a
    /// place, if the key has none.
    ///
    /// # Errors
    ///
    /// Those of [`ask`](Self::ask), and [`Refused::Full`].
    pub fn ask_for<Q: Eq + ?Sized>(&mut self, key: &Q, hash: u32) -> Result<Asking, Refused>
    where
        K: Borrow<Q>,
    {
        if self.bound.is_none() {
            return self.ask(None);
        }
        self.admits_outside()?;
        let place = self.room_for(key, hash)?.is_none() && !self.has_place(key, hash);
        let mut asking = self.ask(None)?;
        if let (true, Some(room)) = (place, &mut self.bound) {
            asking.place = true;
            room.asking += 1;
        }
        Ok(asking)
    }
}

//! The queue's own alarm: what leads where tasks wait.
//!
//! A thread that waits sleeps until the soonest timer is due; a task cannot, and
//! it may be stuck elsewhere when the time comes. So no task leads. The queue asks
//! its clock for one wake-up, and when that comes it fires what is due, wakes
//! whoever is to have it, and asks for the next. Tasks that come and go find the
//! alarm set and have nothing to do with the clock.
//!
//! One caller at a time tends it; others that find it tended only say that it
//! must be looked at again. So the alarm that is set is always that of the latest
//! look, and a clock that rings before it returns begins no recursion.

use crate::Instant;
use crate::clock::Alarm;
use crate::shared::Shared;
use crate::sync::Mutex;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

#[derive(Debug)]
pub(crate) struct Bell(Mutex<Slot>);

#[derive(Debug, Default)]
struct Slot {
    /// What the clock wakes: a [`Ring`]. `None` until the first task waits.
    ring: Option<Waker>,
    /// When the alarm rings; `None` where none is set or it has rung.
    at: Option<Instant>,
    alarm: Option<Alarm>,
    /// Somebody looks after it, and looks once more if `again`.
    tended: bool,
    again: bool,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Slot::default()))
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static> Shared<K, V> {
    /// Sees to it that the alarm rings in time, for a task that waits since
    /// `reading`.
    pub(crate) fn set_bell(self: &Arc<Self>, reading: Option<Instant>) {
        {
            let mut slot = self.bell.0.lock();
            if slot.ring.is_none() {
                slot.ring = Some(Arc::new(Ring(Arc::downgrade(self))).into());
            }
        }
        self.tend(reading);
    }
}

impl<K, V> Shared<K, V> {
    /// Brings the alarm up to date, after letting time pass to `reading` if there
    /// is one. Not under any lock.
    pub(crate) fn tend(&self, mut reading: Option<Instant>) {
        {
            let mut slot = self.bell.0.lock();
            slot.again = slot.tended;
            if std::mem::replace(&mut slot.tended, true) {
                return;
            }
        }
        let tending = Tending(self);
        loop {
            let mut session = match reading {
                Some(now) => self.enter_at(now),
                None => self.lock(),
            };
            let next = session.core.next_wake();
            let at = session.waiters.alarm(next);
            drop(session);
            self.set(at);
            let mut slot = self.bell.0.lock();
            if !std::mem::take(&mut slot.again) {
                slot.tended = false;
                drop(slot);
                std::mem::forget(tending);
                return;
            }
            drop(slot);
            reading = Some(self.now());
        }
    }

    fn set(&self, at: Option<Instant>) {
        let ring = {
            let mut slot = self.bell.0.lock();
            if slot.at == at {
                return;
            }
            // before the clock is asked, which may ring at once
            slot.at = at;
            slot.ring.clone()
        };
        let mut alarm = at.zip(ring).map(|(at, ring)| self.clock.wake_at(at, &ring));
        let mut slot = self.bell.0.lock();
        if slot.at == at {
            std::mem::swap(&mut slot.alarm, &mut alarm);
        }
        drop(slot);
        // the new one was set before this one goes, so that a clock's thread
        // does not end in between
        drop(alarm);
    }
}

/// Lets go of a bell whose clock panics: the next that waits tends it.
struct Tending<'a, K, V>(&'a Shared<K, V>);

impl<K, V> Drop for Tending<'_, K, V> {
    fn drop(&mut self) {
        {
            let mut slot = self.0.bell.0.lock();
            slot.at = None;
            slot.tended = false;
        }
        self.0.lock().waiters.alarm(None);
    }
}

/// What the clock wakes. It does not keep the queue alive.
struct Ring<K, V>(Weak<Shared<K, V>>);

impl<K: Send + Sync + 'static, V: Send + 'static> Wake for Ring<K, V> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(queue) = self.0.upgrade() else { return };
        let rung = {
            let mut slot = queue.bell.0.lock();
            // it may have rung early: what is due is for the clock to say
            slot.at = None;
            slot.again = slot.tended;
            (!slot.tended).then(|| slot.alarm.take())
        };
        if rung.is_some() {
            drop(rung);
            queue.tend(Some(queue.now()));
        }
    }
}

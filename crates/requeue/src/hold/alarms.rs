//! The queue's alarms: one for the soonest timer if no thread waits, and one that checks whether a woken task
//! has come (the watch).
//!
//! A waiting thread sleeps until the soonest timer is due. A task cannot, and it may be stuck elsewhere when
//! the time comes, so the queue asks its clock for a wake-up. That wakes a task, which looks at the queue and
//! fires the timers that are due. Tasks that come and go find the alarm set and do not use the clock. The
//! watch checks whether the woken task comes: see `wait.rs`.
//!
//! **An alarm only wakes.** The clock fires alarms on a thread that serves other queues too. On that thread
//! no time passes for this queue: no timer fires, no sink is called and no key is dropped. Only the queue's
//! lock can block it, and user code that is called there: wakers and the clock.
//!
//! One caller at a time sets the alarms. Callers that come meanwhile only set `again`, and the first one then
//! looks once more. So the alarms finally set are those of the latest look, and a clock that fires inside
//! `wake_at` causes no recursion.

use crate::clock::Alarm;
use crate::hold::Shared;
use crate::sync::Mutex;
use requeue_core::Instant;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Wake, Waker};

/// Selects one of the two alarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Timer,
    Watch,
}

#[derive(Debug)]
pub(crate) struct QueueAlarms {
    /// The wakers given to the clock. Made before the first task is entered among the waiters: no alarm is
    /// needed before.
    rings: OnceLock<[Waker; 2]>,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    /// Indexed by [`Which`].
    slots: [Slot; 2],
    /// A caller is setting the alarms. It looks once more if `again` is set.
    tended: bool,
    again: bool,
}

#[derive(Debug, Default)]
struct Slot {
    /// When the alarm fires; `None` if none is set or it has fired.
    at: Option<Instant>,
    alarm: Option<Alarm>,
}

impl QueueAlarms {
    pub(crate) fn new() -> Self {
        Self { rings: OnceLock::new(), slots: Mutex::new(Slots::default()) }
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static> Shared<K, V> {
    /// Creates the wakers that the clock will call. Called before a task waits.
    #[inline]
    pub(crate) fn install_alarms(self: &Arc<Self>) {
        self.alarms.rings.get_or_init(|| {
            [Which::Timer, Which::Watch].map(|which| {
                let queue = Arc::downgrade(self);
                Arc::new(AlarmWaker { queue, which }).into()
            })
        });
    }
}

impl<K, V> Shared<K, V> {
    /// Brings the alarms up to date. `now` is the time, if the caller has read it; otherwise the clock is
    /// read if the watch is to be set. Must not be called under a lock.
    pub(crate) fn update_alarms(&self, now: Option<Instant>) {
        {
            let mut slots = self.alarms.slots.lock();
            slots.again = slots.tended;
            if std::mem::replace(&mut slots.tended, true) {
                return;
            }
        }
        let tending = Tending(self);
        let mut now = now;
        loop {
            let alarms = self.with_waiters(|waiters, _, next, over| waiters.alarms(next, now, over));
            if alarms.wants_time {
                now = Some(self.now());
                continue;
            }
            self.set(Which::Timer, alarms.timer);
            self.set(Which::Watch, alarms.watch);
            let mut slots = self.alarms.slots.lock();
            if !std::mem::take(&mut slots.again) {
                slots.tended = false;
                drop(slots);
                std::mem::forget(tending);
                return;
            }
            // that reading is old by now
            now = None;
        }
    }

    fn set(&self, which: Which, at: Option<Instant>) {
        {
            let slot = &mut self.alarms.slots.lock().slots[which as usize];
            if slot.at == at {
                return;
            }
            // before the clock is called, which may fire the alarm at once
            slot.at = at;
        }
        let ring = self.alarms.rings.get().map(|rings| &rings[which as usize]);
        let mut alarm = at.zip(ring).map(|(at, ring)| match which {
            Which::Timer => self.clock.wake_at(at, ring),
            Which::Watch => self.clock.watch_at(at, ring),
        });
        let mut slots = self.alarms.slots.lock();
        let slot = &mut slots.slots[which as usize];
        if slot.at == at {
            std::mem::swap(&mut slot.alarm, &mut alarm);
        }
        drop(slots);
        // the new one was set before this one is removed, so that a clock's thread does not end in between
        drop(alarm);
    }

    /// Handles an alarm that has fired: wakes the waiter that is to look.
    fn alarm_fired(&self, which: Which) {
        let (at, fired) = {
            let slot = &mut self.alarms.slots.lock().slots[which as usize];
            // it may have fired early: the clock decides what is due
            (slot.at.take(), slot.alarm.take())
        };
        drop(fired);
        // an alarm that was cancelled as it began to fire
        let Some(at) = at else { return };
        let wakes = self.with_waiters(|waiters, ready, next, over| {
            match which {
                Which::Timer => waiters.timer_alarm_fired(at),
                Which::Watch => waiters.watch_fired(),
            }
            waiters.wakes(ready, next, over)
        });
        self.deliver(wakes, None);
    }
}

/// If the clock panics, forgets the alarms that were set, so that the next waiting caller sets them anew.
struct Tending<'a, K, V>(&'a Shared<K, V>);

impl<K, V> Drop for Tending<'_, K, V> {
    fn drop(&mut self) {
        {
            let mut slots = self.0.alarms.slots.lock();
            for slot in &mut slots.slots {
                slot.at = None;
            }
            slots.tended = false;
        }
        self.0.with_waiters(|waiters, _, _, _| waiters.no_alarms());
    }
}

/// The waker called by the clock. It does not keep the queue alive.
struct AlarmWaker<K, V> {
    queue: Weak<Shared<K, V>>,
    which: Which,
}

impl<K: Send + Sync + 'static, V: Send + 'static> Wake for AlarmWaker<K, V> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(queue) = self.queue.upgrade() else { return };
        queue.alarm_fired(self.which);
        // this may be the last reference by now: dropping it drops the queue's keys, and that is
        // users' code, which must not run on the clock's thread
        if let Some(queue) = Arc::into_inner(queue) {
            elsewhere(move || drop(queue));
        }
    }
}

/// Runs `what` on a new thread, or here if no thread can be started.
#[cfg(not(requeue_loom))]
fn elsewhere(what: impl FnOnce() + Send + 'static) {
    drop(std::thread::Builder::new().name("requeue-drop".to_owned()).spawn(what));
}

/// Runs `what` here: the models have few threads, and do not track which one drops a key.
#[cfg(requeue_loom)]
fn elsewhere(what: impl FnOnce()) {
    what();
}

//! The alarm that spares looks for a key the reading of the clock.
//!
//! A look must know which timers are due. While keys are in line, the soonest timer is mostly far away, and a reading of the
//! clock costs more than the rest of the look. So after [`FIRST`] such looks the queue has its clock note, by a flag, when the
//! timer comes near. Until then a look that finds keys in line reads no clock.
//!
//! This is done on real clocks only ([`Clock::is_real`]), and while nothing but timers makes the time matter. The alarm fires
//! [`BEFORE`] the timer is due, so that a clock's thread that is a little late makes no key late. Where it is very late, each
//! [`EVERY`]th look reads the clock all the same.

use crate::clock::{Alarm, Clock};
use crate::sync::{Mutex, atomic};
use atomic::AtomicBool;
use atomic::Ordering::{Acquire, Relaxed, Release};
use requeue_core::{Core, Instant};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

/// Looks that find keys and nothing due before an alarm is set, which costs about as much as their readings.
const FIRST: u32 = 32;

/// While the alarm is set, one look of this number reads the clock.
const EVERY: u32 = 256;

/// How long before the timer the alarm fires.
const BEFORE: Duration = Duration::from_millis(2);

/// The longest time until the alarm fires, so that what else depends on the time is not far behind.
const LONGEST: Duration = Duration::from_secs(1);

/// The alarm, and what looks read of it without the queue's lock.
pub(super) struct FarAlarm {
    /// Whether an alarm is ever set: the clock is real, and nothing but timers makes the time matter.
    pub(super) may_spare: bool,
    /// Whether looks may go without a reading now. A hint: the truth is checked under the lock.
    pub(super) spares: AtomicBool,
    fired: Arc<Fired>,
    set: Mutex<Option<(Instant, Alarm)>>,
    /// A look sets the alarm: from before that until it has noted so under the queue's lock. One look at a time, so that the
    /// alarm that is set last is not later than the one that is noted.
    setting: AtomicBool,
}

/// The part of it under the queue's lock.
#[derive(Default)]
pub(super) struct FarState {
    /// The timer before which the alarm fires. The alarm says nothing of sooner ones.
    due: Option<Instant>,
    /// How often the last timer has gone, and the alarm with it.
    ends: u64,
    /// Looks since an alarm was last set or thought of.
    looks: u32,
}

/// An alarm that is worth setting.
pub(super) struct Plan {
    pub(super) at: Instant,
    due: Instant,
    ends: u64,
}

struct Fired(AtomicBool);

impl Wake for Fired {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

impl FarAlarm {
    pub(super) fn new(may_spare: bool) -> Self {
        let fired = Arc::new(Fired(AtomicBool::new(false)));
        let (spares, setting) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { may_spare, spares, fired, set: Mutex::new(None), setting }
    }

    /// Whether this look sets the alarm: no other does now.
    pub(super) fn begins_to_set(&self) -> bool {
        !self.setting.swap(true, Acquire)
    }

    /// Sets an alarm for this instant. An alarm that is set for an earlier one stays. Must not be called
    /// under the queue's lock.
    pub(super) fn set(&self, clock: &dyn Clock, at: Instant) {
        let fired = &self.fired.0;
        let mut set = self.set.lock();
        if set.as_ref().is_some_and(|(earlier, _)| *earlier <= at) && !fired.load(Relaxed) {
            return;
        }
        // one that is replaced may still fire: that costs a reading
        fired.store(false, Relaxed);
        let old = set.take();
        drop(set);
        let alarm = clock.wake_at(at, &Waker::from(self.fired.clone()));
        let other = self.set.lock().replace((at, alarm));
        drop((old, other));
    }

    /// Cancels the alarm, when no timer is left. Must not be called under the queue's lock.
    pub(super) fn end(&self) {
        let set = self.set.lock().take();
        self.spares.store(false, Relaxed);
        drop(set);
    }
}

impl FarState {
    /// Whether this look, which has not read the clock, need not: there are keys in line, and no timer can be due.
    #[inline]
    pub(super) fn spares_look<K, V>(&mut self, alarm: &FarAlarm, core: &Core<K, V>) -> bool {
        self.looks += 1;
        self.looks < EVERY
            && !alarm.fired.0.load(Relaxed)
            && core.servable() > 0
            && core.timers_alone().is_some_and(|soonest| self.due.is_some_and(|due| due <= soonest))
    }

    /// A look at `now` has fired all that was due. Returns the alarm to be set, if it is worth one.
    #[inline]
    pub(super) fn looked<K, V>(&mut self, now: Instant, core: &Core<K, V>) -> Option<Plan> {
        self.looks += 1;
        if self.looks < FIRST {
            return None;
        }
        self.looks = 0;
        let due = if core.servable() > 0 { core.timers_alone()? } else { return None };
        let before = Instant::from_nanos(due.as_nanos().saturating_sub(BEFORE.as_nanos() as u64));
        let at = before.min(now + LONGEST);
        (at > now + BEFORE).then_some(Plan { at, due, ends: self.ends })
    }

    /// Notes whether the alarm is set. `false` if the last timer has gone meanwhile: then it must be cancelled.
    pub(super) fn note_set(&mut self, alarm: &FarAlarm, plan: &Plan, is_set: bool) -> bool {
        let holds = self.ends == plan.ends;
        if holds && is_set {
            self.due = Some(plan.due);
            alarm.spares.store(true, Relaxed);
        }
        alarm.setting.store(false, Release);
        holds
    }

    /// Notes that the last timer has gone.
    pub(super) fn note_end(&mut self) {
        self.ends += 1;
    }
}

//! Who works: how many workers there are and are to be, who of them rests, who runs
//! a key, and how many runs have ended.
//!
//! A worker is one thread, one task, or one seat of a [`WorkerFuture`]; here it is a
//! *place*. It asks the roster before each look for a key, and that is where it
//! learns that it is to leave: a worker is never ended while it has a key, but it is
//! woken where it rests.
//!
//! [`WorkerFuture`]: super::WorkerFuture

use super::run::Told;
use super::stop::StopReport;
use crate::clock::Clock;
use crate::drain::DrainOptions;
use crate::hold::Shared;
use crate::panics::wake_each;
use crate::sync::{Mutex, MutexGuard};
use crate::wait::WakerSet;
use crate::{Instant, ReadWorkers, Stats, WorkerCounts};
use requeue_core::{DrainBase, Drained};
use std::io;
use std::sync::{Arc, Weak};
use std::task::Waker;

/// What a drain still waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Keys are or become ready, as long as somebody is there who takes them.
    Keys,
    /// Runs that have not ended, whoever has them.
    Runs,
    Nothing,
}

/// What a worker's end needs of its queue, whatever its keys are.
pub(super) trait Source: Send + Sync {
    fn clock(&self) -> &dyn Clock;
    fn begin_drain(&self, options: DrainOptions, now: Instant) -> DrainBase;
    /// What is known of the keys, and what a drain has to tell.
    fn report(&self, drain: Option<&DrainBase>, now: Instant) -> (Stats, Option<Drained>);
    /// What a drain still waits for. If that is anything, `waker` is woken when nothing is
    /// left of the queue.
    fn left(&self, base: &DrainBase, now: Instant, place: &mut Option<usize>, waker: &Waker) -> Left;
    /// Gives the place of somebody back who waited for the end of the queue.
    fn leave_drain(&self, place: usize);
}

impl<K: Send + Sync, V: Send> Source for Shared<K, V> {
    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }
    fn begin_drain(&self, options: DrainOptions, now: Instant) -> DrainBase {
        self.begin_drain(options, now).0
    }
    fn report(&self, drain: Option<&DrainBase>, now: Instant) -> (Stats, Option<Drained>) {
        self.enter_at(now).with(|hold| (hold.core.stats(), drain.map(|base| hold.core.drain_counts(base))))
    }
    fn left(&self, base: &DrainBase, now: Instant, place: &mut Option<usize>, waker: &Waker) -> Left {
        // not under the lock: a clone is users' code
        let waker = waker.clone();
        let mut hold = self.enter_at(now);
        let left = if !hold.core.is_over() {
            Left::Keys
        } else if !hold.core.drain_is_over(base) {
            Left::Runs
        } else {
            Left::Nothing
        };
        let old = if left == Left::Nothing { Some(waker) } else { hold.drains().set(place, waker) };
        hold.close();
        drop(old);
        left
    }
    fn leave_drain(&self, place: usize) {
        drop(self.leave_drain(place));
    }
}

/// Brings in workers: on threads, on an executor, or in a future.
pub(super) trait Hire: Send + Sync {
    /// Brings one in at this place; false if it was turned away, in which case it has
    /// left its place again, as after an error.
    fn hire(self: Arc<Self>, place: usize) -> io::Result<bool>;
    /// The worker has ended: nobody is left, and nobody will come.
    fn ended(&self) {}
}

/// The most workers that there can be. Each task costs memory before it has a key, so
/// that a number like `usize::MAX` must not be taken at its word.
const MOST_WORKERS: usize = 1 << 20;

/// How more workers are brought in. A worker's handle has it and the roster does not
/// keep it alive, for it holds the handler, which is to go with the last worker; it is
/// emptied when that one has left for good.
pub(super) struct Hiring(Mutex<Option<Arc<dyn Hire>>>);

impl Hiring {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(None)))
    }
    pub(super) fn open(&self, staff: Arc<dyn Hire>) {
        *self.0.lock() = Some(staff);
    }
    fn close(&self) {
        let staff = self.0.lock().take();
        if let Some(staff) = staff {
            staff.ended();
        }
    }
    fn staff(&self) -> Option<Arc<dyn Hire>> {
        self.0.lock().clone()
    }
}

/// Ends the run of a place from outside, once it has been told to end.
pub(super) trait Ends: Send + Sync {
    /// Drops the handler, or wakes whoever will.
    fn end(&self);
    /// Whether whoever was woken drops it as soon as it is polled, so that a report
    /// that can wait for that waits.
    fn ends_soon(&self) -> bool;
}

/// A run that goes on: what its handler is told, and what ends it, if anything can.
type Running = (Arc<Told>, Option<Arc<dyn Ends>>);

/// One worker.
#[derive(Default)]
struct Place {
    /// Wakes it while it rests.
    waker: Option<Waker>,
    running: Option<Running>,
    /// The run was told to end, at the deadline.
    told: bool,
    /// It drops its handler as soon as it is polled.
    ends_soon: bool,
    /// It looks for a key, and may have got one: for a moment only.
    looking: bool,
}

impl Place {
    /// It has a key, or may have got one.
    fn is_busy(&self) -> bool {
        self.looking || self.running.is_some()
    }
}

#[derive(Default)]
pub(super) struct State {
    places: Vec<Place>,
    /// Places that nobody has.
    free: Vec<usize>,
    /// How many places are busy.
    busy: usize,
    /// How many workers there are to be.
    wanted: usize,
    /// Workers that have not left.
    pub(super) alive: usize,
    /// They are threads: one that is woken leaves without anybody else's doing, and a stop
    /// waits for that. A task, or the seat of a future, leaves when it is polled, and
    /// whoever is to poll it may be busy for long.
    threads: bool,
    /// No more keys are taken.
    stopping: bool,
    /// A worker has learnt that the queue is shut down and worked off.
    over: bool,
    /// The deadline has come: runs that begin all the same are told at once.
    cancelling: bool,
    /// Runs that ended, but for those that were told to.
    done: u64,
    /// Runs that were told to end.
    cancelled: usize,
    pub(super) stops: WakerSet,
}

impl State {
    fn has_ended(&self) -> bool {
        self.alive == 0 && (self.stopping || self.over)
    }
    fn is_to_leave(&self) -> bool {
        self.stopping || self.alive > self.wanted
    }
    /// What a stop, which lets nobody take a key any more, waits for of its own workers.
    /// Before its deadline: the ends of runs, and that threads have left. Then: that
    /// handlers are dropped which only need to be polled once more, where the caller can
    /// wait for it. Always: those who tell in a moment whether they run.
    pub(super) fn is_awaited(&self, late: bool, patient: bool) -> bool {
        if late {
            self.places.iter().any(|place| place.looking || (patient && place.ends_soon))
        } else {
            self.busy > 0 || (self.threads && self.alive > 0)
        }
    }
    /// Changes a place. Nothing else makes one busy or idle.
    fn change<R>(&mut self, place: usize, how: impl FnOnce(&mut Place) -> R) -> R {
        let at = &mut self.places[place];
        let was_busy = at.is_busy();
        let result = how(at);
        self.busy = self.busy + usize::from(at.is_busy()) - usize::from(was_busy);
        result
    }
    /// Something has changed: takes those out who wait for it.
    fn tell_stops(&mut self, wakers: &mut Vec<Waker>) {
        let told = !self.stops.is_empty()
            && (self.alive == 0 || self.cancelling || (self.stopping && self.busy == 0));
        if told {
            self.stops.take_all(wakers);
        }
    }
}

/// What the workers and their handle share.
pub(super) struct Roster {
    pub(super) queue: Arc<dyn Source>,
    hiring: Weak<Hiring>,
    pub(super) state: Mutex<State>,
}

impl Roster {
    pub(super) fn new(queue: Arc<dyn Source>, hiring: &Arc<Hiring>) -> Self {
        Self { queue, hiring: Arc::downgrade(hiring), state: Mutex::new(State::default()) }
    }

    /// Its workers are threads.
    pub(super) fn has_threads(&self) {
        self.state.lock().threads = true;
    }

    /// Workers that have not left.
    pub(super) fn workers(&self) -> usize {
        self.state.lock().alive
    }

    /// From now on there are to be so many: brings the missing ones in, and lets the
    /// surplus ones leave, those that rest now and others after their run. Nothing once
    /// the worker is stopped or its queue worked off.
    pub(super) fn resize(&self, wanted: usize, hiring: &Hiring) -> io::Result<()> {
        if wanted > MOST_WORKERS {
            let why = format!(
                "{wanted} workers are too many: give the number of keys that are to be worked on at once, \
                 at most {MOST_WORKERS}"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut wakers = Vec::new();
        let mut state = self.state.lock();
        state.wanted = wanted;
        let missing = wanted.saturating_sub(state.alive);
        let surplus = state.alive.saturating_sub(wanted);
        wakers.extend(state.places.iter_mut().filter_map(|place| place.waker.take()).take(surplus));
        drop(state);
        wake_each(wakers);
        let Some(staff) = hiring.staff() else { return Ok(()) };
        for _ in 0..missing {
            let Some(place) = self.vacancy() else { break };
            let hired = staff.clone().hire(place);
            if !matches!(hired, Ok(true)) {
                // who does not come is not missed
                let mut state = self.state.lock();
                state.wanted = state.wanted.min(state.alive);
                drop(state);
                return hired.map(drop);
            }
        }
        Ok(())
    }

    /// A place for one more worker, if one is wanted.
    fn vacancy(&self) -> Option<usize> {
        let mut state = self.state.lock();
        if state.stopping || state.over || state.alive >= state.wanted {
            return None;
        }
        state.alive += 1;
        Some(state.free.pop().unwrap_or_else(|| {
            state.places.push(Place::default());
            state.places.len() - 1
        }))
    }

    /// A worker wants a key; false if it is to take no more, and has left its place.
    pub(super) fn looks(&self, place: usize) -> bool {
        let mut state = self.state.lock();
        if state.is_to_leave() {
            self.vacate(state, place);
            return false;
        }
        let rested = state.change(place, |at| {
            at.looking = true;
            at.waker.take()
        });
        drop(state);
        drop(rested);
        true
    }

    /// A worker found no key and rests; false if it is to look again, because the
    /// worker was stopped or resized meanwhile.
    pub(super) fn rests(&self, place: usize, waker: Waker) -> bool {
        let (rests, old) = self.ends_look(place, |state| {
            let old = state.places[place].waker.replace(waker);
            (!state.is_to_leave(), old)
        });
        drop(old);
        rests
    }

    /// A worker's look ended in a panic.
    pub(super) fn looked(&self, place: usize) {
        self.ends_look(place, |_| ());
    }

    /// A worker got a key: its run can be told to end. Where the worker was stopped
    /// meanwhile and the deadline has come, it is told at once.
    pub(super) fn run_begins(&self, place: usize, told: &Arc<Told>, ends: Option<Arc<dyn Ends>>) {
        self.ends_look(place, |state| {
            let cancelling = state.cancelling;
            state.change(place, |at| {
                at.running = Some((told.clone(), ends));
                at.told = cancelling;
            });
            if cancelling {
                state.cancelled += 1;
                told.cancel();
            }
        });
    }

    /// A look has ended: those who make a report may have waited for that.
    fn ends_look<R>(&self, place: usize, how: impl FnOnce(&mut State) -> R) -> R {
        self.tells(self.state.lock(), |state| {
            let result = how(state);
            state.change(place, |at| at.looking = false);
            result
        })
    }

    pub(super) fn run_ended(&self, place: usize) {
        let gone = self.tells(self.state.lock(), |state| {
            let gone = state.change(place, std::mem::take);
            state.done += u64::from(!gone.told);
            gone
        });
        drop(gone);
    }

    /// A worker leaves, or did not come.
    pub(super) fn leave(&self, place: usize) {
        self.vacate(self.state.lock(), place);
    }

    /// A worker leaves because the queue is shut down and worked off.
    pub(super) fn is_over(&self, place: usize) {
        let mut state = self.state.lock();
        state.over = true;
        self.vacate(state, place);
    }

    fn vacate(&self, state: MutexGuard<'_, State>, place: usize) {
        let gone = self.tells(state, |state| {
            state.free.push(place);
            state.alive -= 1;
            state.change(place, std::mem::take)
        });
        drop(gone);
    }

    /// Something changes that those who make a report may wait for, or that ends the worker.
    /// What is dropped of users' code is given back, to be dropped without the lock.
    fn tells<R>(&self, mut state: MutexGuard<'_, State>, how: impl FnOnce(&mut State) -> R) -> R {
        let mut wakers = Vec::new();
        let result = how(&mut state);
        state.tell_stops(&mut wakers);
        let ended = state.has_ended();
        drop(state);
        wake_each(wakers);
        if ended {
            self.end();
        }
        result
    }

    /// Whether a worker that was lost to its executor is to be replaced: then its place
    /// is kept, else it has left.
    pub(super) fn is_replaced(&self, place: usize) -> bool {
        let mut state = self.state.lock();
        if state.over || state.is_to_leave() {
            self.vacate(state, place);
            return false;
        }
        let gone = state.change(place, std::mem::take);
        drop(state);
        drop(gone);
        true
    }

    /// Lets the workers take no more keys.
    pub(super) fn stop_taking(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        let wakers: Vec<Waker> = state.places.iter_mut().filter_map(|p| p.waker.take()).collect();
        let ended = state.has_ended();
        drop(state);
        wake_each(wakers);
        if ended {
            self.end();
        }
    }

    /// Nobody is left who could work, and nobody may come any more.
    pub(super) fn abandon(&self) {
        self.tells(self.state.lock(), |state| state.over = true);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().has_ended()
    }

    fn end(&self) {
        if let Some(hiring) = self.hiring.upgrade() {
            hiring.close();
        }
    }

    /// Tells all that run to end, and ends those that can be.
    pub(super) fn cancel_all(&self) {
        let mut running = Vec::new();
        let mut state = self.state.lock();
        state.cancelling = true;
        let State { places, cancelled, .. } = &mut *state;
        for place in places.iter_mut().filter(|place| !place.told) {
            let Some((told, ends)) = &place.running else { continue };
            told.cancel();
            place.told = true;
            place.ends_soon = ends.as_ref().is_some_and(|ends| ends.ends_soon());
            *cancelled += 1;
            running.extend(ends.clone());
        }
        drop(state);
        // dropping a handler is users' code
        for run in running {
            run.end();
        }
    }

    /// What there is to report of the worker, with what its queue reports.
    pub(super) fn report(&self, (stats, drained): (Stats, Option<Drained>)) -> StopReport {
        let state = self.state.lock();
        let left = drained.is_some() && (stats.ready > 0 || stats.held > 0 || stats.waiting > 0);
        let still_running = state.places.iter().filter(|p| p.running.is_some()).count();
        let Drained { dropped, refused, refused_retries, .. } = drained.unwrap_or_default();
        StopReport {
            complete: still_running == 0 && state.cancelled == 0 && !left,
            done: state.done,
            cancelled: state.cancelled,
            still_running,
            held: stats.held,
            ready: stats.ready,
            waiting: stats.waiting,
            dropped,
            refused,
            refused_retries,
        }
    }
}

impl ReadWorkers for Roster {
    fn workers(&self) -> WorkerCounts {
        let state = self.state.lock();
        let busy = state.places.iter().filter(|place| place.running.is_some()).count();
        WorkerCounts { workers: state.alive, busy }
    }
}

#[cfg(all(test, not(requeue_loom)))]
#[path = "tests/roster.rs"]
mod tests;

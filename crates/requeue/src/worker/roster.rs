//! Who works: how many workers there are and are to be, who of them rests, who runs
//! a key, and how many runs have ended.
//!
//! A worker is one thread, one task, or one seat of a [`WorkerFuture`]; here it is a
//! *place*. It asks the roster before each look for a key, and that is where it
//! learns that it is to leave: a worker is never ended while it has a key, but it is
//! woken where it rests.
//!
//! [`WorkerFuture`]: super::WorkerFuture

use super::hiring::Hiring;
use super::run::Told;
use super::size::CrewSize;
use super::stop::StopReport;
use crate::clock::Clock;
use crate::drain::DrainOptions;
use crate::hold::{Holders, Seen, Shared};
use crate::panics::{quietly, wake_each};
use crate::sync::{Mutex, MutexGuard};
use crate::wait::{WaiterId, WakerSet};
use crate::{Instant, ReadWorkers, Stats, WorkerCounts};
use requeue_core::{DrainBase, Drained};
use std::any::Any;
use std::io;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;

/// What a drain still waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Keys are ready or may become ready. A drain waits for them only while there are workers to
    /// take them.
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
    /// See [`Shared::tell_unfinished`].
    fn tell_unfinished(&self);
    /// What a drain still waits for. Unless that is nothing, `waker` is woken once the queue is
    /// worked off.
    fn left(&self, base: &DrainBase, now: Instant, place: &mut Option<usize>, waker: &Waker) -> Left;
    /// Gives up a place that `left` took among those who wait for the end of the queue.
    fn leave_drain(&self, place: usize);
    /// See [`Shared::keep_lookout`].
    fn keep_lookout(self: Arc<Self>, place: &mut Option<WaiterId>, waker: Waker) -> Seen;
    /// See [`Shared::end_lookout`].
    fn end_lookout(&self, place: &mut Option<WaiterId>);
}

impl<K: Send + Sync + 'static, V: Send + 'static> Source for Shared<K, V> {
    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }
    fn begin_drain(&self, options: DrainOptions, now: Instant) -> DrainBase {
        self.begin_drain(options, now).0
    }
    fn report(&self, drain: Option<&DrainBase>, now: Instant) -> (Stats, Option<Drained>) {
        self.enter_at(now).with(|hold| (hold.core.stats(), drain.map(|base| self.drained(&hold.core, base))))
    }
    fn tell_unfinished(&self) {
        self.tell_unfinished(false);
    }
    fn left(&self, base: &DrainBase, now: Instant, place: &mut Option<usize>, waker: &Waker) -> Left {
        // not under the lock: a clone is users' code
        let waker = waker.clone();
        let mut hold = self.enter_at(now);
        let Stats { ready, dirty, waiting, held, .. } = hold.core.stats();
        // a run may still ask for a retry, of a drain that works failed keys off
        let only_runs = held > 0 && ready + dirty + waiting == 0;
        let left = if !hold.core.is_over() && !only_runs {
            Left::Keys
        } else if !hold.core.drain_is_over(base) {
            Left::Runs
        } else {
            Left::Nothing
        };
        let old = if left == Left::Nothing { Some(waker) } else { hold.drains().set(place, waker) };
        hold.close();
        quietly(|| drop(old));
        left
    }
    fn leave_drain(&self, place: usize) {
        let old = self.leave_drain(place);
        quietly(|| drop(old));
    }
    fn keep_lookout(self: Arc<Self>, place: &mut Option<WaiterId>, waker: Waker) -> Seen {
        Shared::keep_lookout(&self, place, waker)
    }
    fn end_lookout(&self, place: &mut Option<WaiterId>) {
        self.end_lookout(place);
    }
}

/// Ends the run of a place from outside, once it has been told to end.
pub(super) trait Ends: Send + Sync {
    /// Drops the handler, or wakes whoever will.
    fn end(&self);
    /// Whether the handler is dropped at the next poll of its worker. A report whose caller can
    /// wait then waits for that.
    fn ends_soon(&self) -> bool;
}

/// A run in progress: the flags that its handler can read, and the means to end it from outside.
/// There is none for a handler on a thread.
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
    /// How many of them have a key.
    running: usize,
    /// Workers that come without being asked for, and that stay although they are idle.
    least: usize,
    /// The most workers that there may be.
    most: usize,
    /// There is a lookout that was not woken, or somebody is about to start it.
    lookout: bool,
    /// The system had no thread for a worker, just now.
    no_thread: bool,
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
        self.stopping || self.alive > self.most
    }
    /// No worker is wanted beyond those who are there, without the `leaving` ones.
    fn wants_no_more(&mut self, leaving: usize) {
        let workers = self.alive - leaving;
        (self.least, self.most) = (self.least.min(workers), self.most.min(workers));
    }
    /// Whether the number of workers follows the work.
    fn is_on_demand(&self) -> bool {
        self.least < self.most && !self.stopping && !self.over
    }
    /// Whether more than the least are there: one that waits for long leaves.
    fn is_spare(&self) -> bool {
        self.alive > self.least && self.is_on_demand()
    }
    /// Whether nobody is there to take the next key, and one more may come.
    fn is_short(&self) -> bool {
        self.is_on_demand() && !self.no_thread && self.alive < self.most && self.alive == self.running
    }
    /// Whether the lookout must be started or ended, which is done without this lock. It is asked in
    /// each hold that changes what it depends on.
    fn is_lookout_stale(&self) -> bool {
        self.is_short() != self.lookout
    }
    /// Whether there are workers, or one is started when there is work.
    pub(super) fn has_workers(&self) -> bool {
        self.alive > 0 || self.is_on_demand()
    }
    /// Whether a stop still waits for its own workers, none of which takes a key any more. Before
    /// its deadline it waits until the runs have ended and threads have left. After it (`late`) it
    /// waits for workers that are just looking for a key, because they say in a moment whether they
    /// have one. A `patient` caller then also waits for handlers that are dropped at the next poll
    /// of their worker.
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
        let (was_busy, had_key) = (at.is_busy(), at.running.is_some());
        let result = how(at);
        self.busy = self.busy + usize::from(at.is_busy()) - usize::from(was_busy);
        self.running = self.running + usize::from(at.running.is_some()) - usize::from(had_key);
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
    /// Kept for as long as somebody may ask for a report: what is called for keys that a drain leaves unfinished.
    pub(super) kept_hook: OnceLock<Box<dyn Any + Send + Sync>>,
    hiring: Weak<Hiring>,
    /// How long a worker waits for a key that is one more than the least.
    idle_timeout: Duration,
    pub(super) state: Mutex<State>,
}

/// What becomes of a worker that found no key.
pub(super) enum Rest {
    /// It waits, and is woken if it is to leave.
    Rests,
    /// It is to look again, because the worker was stopped or resized meanwhile.
    LooksAgain,
    /// It has left its place, for it was idle for long.
    Left,
}

impl Roster {
    pub(super) fn new(queue: Arc<dyn Source>, hiring: Weak<Hiring>, idle_timeout: Duration) -> Self {
        Self { queue, kept_hook: OnceLock::new(), hiring, idle_timeout, state: Mutex::new(State::default()) }
    }

    /// Its workers are threads.
    pub(super) fn has_threads(&self) {
        self.state.lock().threads = true;
    }

    /// Workers that have not left.
    pub(super) fn workers(&self) -> usize {
        self.state.lock().alive
    }

    /// From now on there are to be so many: brings those in that are missing to the least, and
    /// lets the surplus ones leave, those that rest now and others after their run. Nothing once
    /// the worker is stopped or its queue worked off.
    pub(super) fn resize(&self, size: CrewSize, hiring: &Arc<Hiring>) -> io::Result<()> {
        size.check()?;
        let mut wakers = Vec::new();
        let mut state = self.state.lock();
        (state.least, state.most) = (size.least, size.most);
        let missing = size.least.saturating_sub(state.alive);
        // in a crew on demand each learns anew whether it leaves when it is idle
        let learn = if state.is_on_demand() { usize::MAX } else { state.alive.saturating_sub(size.most) };
        wakers.extend(state.places.iter_mut().filter_map(|place| place.waker.take()).take(learn));
        state.no_thread = false;
        // where no worker is there and none is started on demand any more, a stop waits for nothing
        state.tell_stops(&mut wakers);
        drop(state);
        wake_each(wakers);
        let hired = self.hire_least(missing, hiring);
        self.update_lookout_if_stale();
        hired
    }

    fn hire_least(&self, missing: usize, hiring: &Arc<Hiring>) -> io::Result<()> {
        let Some(staff) = hiring.staff() else { return Ok(()) };
        for _ in 0..missing {
            let Some(place) = self.vacancy(|state| state.alive < state.least) else { break };
            let hired = staff.clone().hire(place, hiring.clone());
            if !matches!(hired, Ok(true)) {
                // a worker that could not be started is no longer wanted
                let mut state = self.state.lock();
                state.wants_no_more(0);
                drop(state);
                return hired.map(drop);
            }
        }
        Ok(())
    }

    /// An executor has turned a task away. It is not asked again before the next resize.
    pub(super) fn turned_away(&self, place: usize) {
        let mut state = self.state.lock();
        state.wants_no_more(1);
        self.vacate(state, place);
    }

    /// A place for one more worker, if one is wanted.
    fn vacancy(&self, is_wanted: impl FnOnce(&State) -> bool) -> Option<usize> {
        let mut state = self.state.lock();
        if state.stopping || state.over || !is_wanted(&state) {
            return None;
        }
        state.alive += 1;
        Some(state.free.pop().unwrap_or_else(|| {
            state.places.push(Place::default());
            state.places.len() - 1
        }))
    }

    /// A place for one more worker, if the crew is still short.
    pub(super) fn vacancy_on_demand(&self) -> Option<usize> {
        self.lookout_is_woken();
        self.vacancy(State::is_short)
    }

    /// Whether there is to be a lookout; whoever asks makes it so.
    pub(super) fn begins_lookout(&self) -> bool {
        let mut state = self.state.lock();
        state.lookout = state.is_short();
        state.lookout
    }

    /// The lookout was woken, or has seen a key: it is none any more.
    pub(super) fn lookout_is_woken(&self) {
        self.state.lock().lookout = false;
    }

    /// The system had no thread for one more worker, or it is time to try again.
    pub(super) fn has_no_thread(&self, none: bool) {
        self.state.lock().no_thread = none;
    }

    fn update_lookout_if_stale(&self) {
        if self.state.lock().is_lookout_stale() {
            self.update_lookout();
        }
    }

    /// Starts the lookout or ends it. Whoever changes the roster so that this is due is a worker or
    /// has the handle, and so keeps what is upgraded here.
    fn update_lookout(&self) {
        if let Some(hiring) = self.hiring.upgrade() {
            hiring.update_lookout();
        }
    }

    /// A worker wants a key; `None` if it is to take no more, and has left its place. Else
    /// whether it leaves if it finds none for long.
    pub(super) fn looks(&self, place: usize) -> Option<bool> {
        let mut state = self.state.lock();
        if state.is_to_leave() {
            self.vacate(state, place);
            return None;
        }
        let rested = state.change(place, |at| {
            at.looking = true;
            at.waker.take()
        });
        let spare = state.is_spare();
        drop(state);
        drop(rested);
        Some(spare)
    }

    /// Whether a worker has waited for long that is one more than the least. `until` is when
    /// that is, once it is known.
    pub(super) fn is_idle(&self, until: &mut Option<Instant>) -> bool {
        let now = self.queue.clock().now();
        now >= *until.get_or_insert(now + self.idle_timeout)
    }

    /// A worker found no key. `spare` is what it was told before its look, `idle` whether it
    /// has waited for long.
    pub(super) fn rests(&self, place: usize, waker: Waker, spare: bool, idle: bool) -> Rest {
        let state = self.state.lock();
        if idle && state.is_spare() && !state.is_to_leave() {
            self.vacate(state, place);
            return Rest::Left;
        }
        let (rests, old) = self.ends_look(state, place, |state| {
            let old = state.places[place].waker.replace(waker);
            (!state.is_to_leave() && state.is_spare() == spare, old)
        });
        quietly(|| drop(old));
        if rests { Rest::Rests } else { Rest::LooksAgain }
    }

    /// A worker's look ended in a panic.
    pub(super) fn looked(&self, place: usize) {
        self.ends_look(self.state.lock(), place, |_| ());
    }

    /// A worker got a key: its run can be told to end. Where the worker was stopped
    /// meanwhile and the deadline has come, it is told at once.
    pub(super) fn run_begins(&self, place: usize, told: &Arc<Told>, ends: Option<Arc<dyn Ends>>) {
        self.ends_look(self.state.lock(), place, |state| {
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
    fn ends_look<R>(
        &self,
        state: MutexGuard<'_, State>,
        place: usize,
        how: impl FnOnce(&mut State) -> R,
    ) -> R {
        self.tells(state, |state| {
            let result = how(state);
            state.change(place, |at| at.looking = false);
            result
        })
    }

    /// A worker has no key any more, and looks for the next one: what that finds shows whether
    /// the crew is short. The lookout is not brought up to date before: it would end here and begin
    /// again with the next key.
    pub(super) fn run_ended(&self, place: usize) {
        let gone = self.tells_stops(self.state.lock(), |state| {
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

    /// Something changes that those who make a report may wait for, or that ends the worker; then
    /// the lookout is brought up to date. What is dropped of users' code is given back, to be
    /// dropped without the lock.
    fn tells<R>(&self, state: MutexGuard<'_, State>, how: impl FnOnce(&mut State) -> R) -> R {
        let (result, stale) = self.tells_stops(state, |state| (how(state), state.is_lookout_stale()));
        if stale {
            self.update_lookout();
        }
        result
    }

    /// The same, and leaves the lookout as it is.
    fn tells_stops<R>(&self, mut state: MutexGuard<'_, State>, how: impl FnOnce(&mut State) -> R) -> R {
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
        let was_on_demand = state.is_on_demand();
        state.stopping = true;
        let mut wakers: Vec<Waker> = state.places.iter_mut().filter_map(|p| p.waker.take()).collect();
        if was_on_demand {
            // there may be nobody whose leaving tells them
            state.tell_stops(&mut wakers);
        }
        let (ended, stale) = (state.has_ended(), state.is_lookout_stale());
        drop(state);
        wake_each(wakers);
        if stale {
            self.update_lookout();
        }
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

    /// Tells all that run to end, and ends those that can be; and those that begin all the same.
    pub(super) fn cancel_all(&self) {
        let mut state = self.state.lock();
        state.cancelling = true;
        self.cancel_running(state);
    }

    /// Tells all that run to end, and ends those that can be.
    fn cancel_running(&self, mut state: MutexGuard<'_, State>) {
        let mut running = Vec::new();
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
        let left = drained.is_some_and(|drained| !drained.complete);
        let still_running = state.places.iter().filter(|p| p.running.is_some()).count();
        let Drained { unfinished, durable, dropped, refused, refused_retries, .. } =
            drained.unwrap_or_default();
        StopReport {
            complete: still_running == 0 && state.cancelled == 0 && !left,
            done: state.done,
            cancelled: state.cancelled,
            still_running,
            held: stats.held,
            ready: stats.ready,
            waiting: stats.waiting,
            unfinished,
            durable,
            dropped,
            refused,
            refused_retries,
        }
    }
}

impl Holders for Roster {
    fn cancel_runs(&self) {
        self.cancel_running(self.state.lock());
    }

    fn who_has(&self, slot: u32, who: &mut Vec<usize>) {
        let state = self.state.lock();
        let has = |place: &Place| place.running.as_ref().is_some_and(|(told, _)| told.slot == Some(slot));
        who.extend((1..).zip(&state.places).filter(|(_, place)| has(place)).map(|(number, _)| number));
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

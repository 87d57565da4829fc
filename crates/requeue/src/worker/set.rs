//! The set of workers: how many there are and are to be, which of them are to leave, and the report at the end.
//!
//! A worker is one thread, one task, or a part of a [`WorkerFuture`]. It has a number, and a [slot](WorkerSlot) that says what
//! it does. It is never ended while it has a key, but it is woken where it waits for one.
//!
//! **Who sees whom.** From run to run a worker takes no lock of the set: it looks at [`WorkerSet::control`], which is 0 unless
//! workers are to leave or their number follows the work. Otherwise it takes the set's lock as it begins a look and as it ends
//! one, and [`Member`] says what it was found to do then. A call that sets a bit of `control` reads all slots after it, with the
//! queue's lock ([`State::read_slots`]). No worker is overlooked:
//!
//! - A worker that ends a run and takes the next key in one hold of the queue's lock does so before the reading hold, which
//!   then sees its run, or after it: then it finds the bit in that hold, and takes no key.
//! - Any other look sets `looking` before it reads `control`, and clears it before it reads `control` again, with a full barrier
//!   between the two; and there is one between the bit and the reading. So the slot is seen to be looking, or the worker finds the bit.
//!
//! [`WorkerFuture`]: super::WorkerFuture

use super::pool_size::PoolSize;
use super::slot::{RunCounts, WorkerSlot};
use super::stop::StopReport;
use super::supply::WorkerSupply;
use crate::clock::Clock;
use crate::drain::DrainOptions;
use crate::hold::{Holders, InHold, Seen, Shared};
use crate::panics::{quietly, wake_each};
use crate::sync::{Mutex, MutexGuard, atomic};
use crate::unfinished::CancelRun;
use crate::wait::{WaiterId, WakerSet};
use crate::{Instant, ReadWorkers, Stats, WorkerCounts};
use atomic::Ordering::{Relaxed, SeqCst};
use atomic::fence;
use requeue_core::{DrainBase, Drained};
use std::any::Any;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;

/// The reason why a drain still waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Keys are ready or may become ready. A drain waits for them only while there are workers to
    /// take them.
    Keys,
    /// Runs that have not ended, whoever has them.
    Runs,
    Nothing,
}

/// The calls of a queue that the end of its workers needs, without the types of keys and values.
pub(super) trait Source: Send + Sync {
    fn clock(&self) -> &dyn Clock;
    fn begin_drain(&self, options: DrainOptions, now: Instant) -> DrainBase;
    /// The numbers of keys, and a drain's answer.
    fn report(&self, drain: Option<&DrainBase>, now: Instant) -> (Stats, Option<Drained>);
    /// See [`Shared::tell_unfinished`].
    fn tell_unfinished(&self);
    /// Why a drain still waits. Unless nothing is left, `waker` is woken once the queue is
    /// worked off.
    fn left(&self, base: &DrainBase, now: Instant, place: &mut Option<usize>, waker: &Waker) -> Left;
    /// Gives up a place that `left` took among those who wait for the end of the queue.
    fn leave_drain(&self, place: usize);
    /// See [`Shared::keep_lookout`].
    fn keep_lookout(self: Arc<Self>, place: &mut Option<WaiterId>, waker: Waker) -> Seen;
    /// See [`Shared::end_lookout`].
    fn end_lookout(&self, place: &mut Option<WaiterId>);
    /// Does this in a hold of the queue's lock, after which nothing follows: it changes nothing of the queue.
    fn locked(&self, what: &mut dyn FnMut());
}

impl<K: Send + Sync + 'static, V: Send + 'static> Source for Shared<K, V> {
    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }
    fn begin_drain(&self, options: DrainOptions, now: Instant) -> DrainBase {
        self.begin_drain(options, now).0
    }
    fn report(&self, drain: Option<&DrainBase>, now: Instant) -> (Stats, Option<Drained>) {
        self.look_at(now).with(|hold| (hold.core.stats(), drain.map(|base| self.drained(&hold.core, base))))
    }
    fn tell_unfinished(&self) {
        self.tell_unfinished(false);
    }
    fn left(&self, base: &DrainBase, now: Instant, place: &mut Option<usize>, waker: &Waker) -> Left {
        // not under the lock: a clone is users' code
        let waker = waker.clone();
        let mut hold = self.look_at(now);
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
    fn locked(&self, what: &mut dyn FnMut()) {
        let hold = self.lock();
        what();
        hold.release();
    }
}

/// Ends the run of a worker from outside, once it has been told to end.
pub(super) trait Ends: Send + Sync {
    /// Drops the handler, or wakes whoever will.
    fn end(&self);
    /// Whether the handler is dropped at the next poll of its worker. A report whose caller can
    /// wait then waits for that.
    fn ends_soon(&self) -> bool;
}

/// Workers are to leave: all of them, or as many as are too many.
pub(super) const LEAVE: u32 = 1;
/// The number of workers follows the work.
const ON_DEMAND: u32 = 2;

/// One worker, or the place of one that has left.
struct Member {
    slot: Arc<WorkerSlot>,
    /// Drops its handler; nothing does on a thread.
    ends: Option<Weak<dyn Ends>>,
    /// The run whose handler is dropped as soon as its worker is polled.
    ends_soon: u64,
    /// It was found to look for a key, and may have got one.
    looking: bool,
    /// It was found to have a run.
    running: bool,
}

impl Member {
    fn new(at: usize) -> Self {
        let slot = Arc::new(WorkerSlot::new(at));
        Self { slot, ends: None, ends_soon: 0, looking: false, running: false }
    }
    fn is_busy(&self) -> bool {
        self.looking || self.running
    }
    fn ends_soon(&self) -> bool {
        self.slot.is_told() && self.ends_soon == self.slot.run()
    }
}

#[derive(Default)]
pub(super) struct State {
    members: Vec<Member>,
    /// Those that have left.
    free: Vec<usize>,
    /// How many were found to be busy; of no meaning while `control` is 0.
    busy: usize,
    /// How many of them were found to have a run.
    running: usize,
    /// Workers that come without being asked for, and that stay although they are idle.
    least: usize,
    /// The most workers that there may be.
    most: usize,
    /// There is a watcher that was not woken, or somebody is about to start it.
    watcher: bool,
    /// The system had no thread for a worker, just now.
    no_thread: bool,
    /// Workers that have not left.
    pub(super) alive: usize,
    /// They are threads: one that is woken leaves without anybody else's doing, and a stop
    /// waits for that. A task, or a part of a future, leaves when it is polled, and
    /// whoever is to poll it may be busy for long.
    threads: bool,
    /// No more keys are taken.
    stopping: bool,
    /// A worker has learnt that the queue is shut down and worked off.
    over: bool,
    /// The deadline has come: runs that begin all the same are told at once.
    cancelling: bool,
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
    /// Whether the watcher must be started or ended, which is done without this lock. It is asked in
    /// each hold that changes what it depends on.
    fn is_watcher_stale(&self) -> bool {
        self.is_short() != self.watcher
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
            self.members.iter().any(|member| member.looking || (patient && member.ends_soon()))
        } else {
            self.busy > 0 || (self.threads && self.alive > 0)
        }
    }
    /// Notes what a worker does now.
    fn read_slot(&mut self, at: usize) {
        let member = &mut self.members[at];
        let (was_busy, was_running) = (member.is_busy(), member.running);
        (member.looking, member.running) = (member.slot.is_looking(), member.slot.has_run());
        self.busy = self.busy + usize::from(member.is_busy()) - usize::from(was_busy);
        self.running = self.running + usize::from(member.running) - usize::from(was_running);
    }
    /// Notes what all workers do. In a hold of the queue's lock.
    fn read_slots(&mut self) {
        (0..self.members.len()).for_each(|at| self.read_slot(at));
    }
    /// The value that `control` is to have.
    fn control(&self) -> u32 {
        let leave = if self.is_to_leave() { LEAVE } else { 0 };
        leave | if self.is_on_demand() { ON_DEMAND } else { 0 }
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

/// A word that each worker reads once a run, on a cache line apart from what is written.
#[repr(align(128))]
pub(super) struct Control(atomic::AtomicU32);

impl Deref for Control {
    type Target = atomic::AtomicU32;
    fn deref(&self) -> &atomic::AtomicU32 {
        &self.0
    }
}

/// The part that the workers and their handle share.
pub(super) struct WorkerSet {
    /// [`LEAVE`], [`ON_DEMAND`]. Written with the lock of `state`.
    pub(super) control: Control,
    pub(super) queue: Arc<dyn Source>,
    /// Kept for as long as somebody may ask for a report: what is called for keys that a drain leaves unfinished.
    pub(super) kept_hook: OnceLock<Box<dyn Any + Send + Sync>>,
    supply: Weak<WorkerSupply>,
    /// How long a worker waits for a key that is one more than the least.
    idle_timeout: Duration,
    pub(super) state: Mutex<State>,
}

/// The next step of a worker that found no key.
pub(super) enum Rest {
    /// It waits, and is woken if it is to leave.
    Rests,
    /// It is to look again, because the worker was stopped or resized meanwhile.
    LooksAgain,
    /// It has left, for it was idle for long.
    Left,
}

impl WorkerSet {
    pub(super) fn new(queue: Arc<dyn Source>, supply: Weak<WorkerSupply>, idle_timeout: Duration) -> Self {
        Self {
            control: Control(atomic::AtomicU32::new(0)),
            queue,
            kept_hook: OnceLock::new(),
            supply,
            idle_timeout,
            state: Mutex::new(State::default()),
        }
    }

    /// Brings `control` up to date after a change of the state, and that with it which workers keep to themselves while it is 0.
    fn update_control(&self, state: &mut State) {
        let (was, is) = (self.control.load(Relaxed), state.control());
        if was != is {
            self.control.store(is, Relaxed);
            if is & !was != 0 {
                fence(SeqCst);
                self.queue.locked(&mut || state.read_slots());
            }
        }
    }

    /// The slot of this worker.
    pub(super) fn slot(&self, at: usize) -> Arc<WorkerSlot> {
        self.state.lock().members[at].slot.clone()
    }

    /// This ends the runs of this worker.
    pub(super) fn ends_with(&self, at: usize, ends: Weak<dyn Ends>) {
        self.state.lock().members[at].ends = Some(ends);
    }

    /// Its workers are threads.
    pub(super) fn has_threads(&self) {
        self.state.lock().threads = true;
    }

    /// Workers that have not left.
    pub(super) fn workers(&self) -> usize {
        self.state.lock().alive
    }

    /// From now on there are to be so many: starts those that are missing to the least, and
    /// lets the surplus ones leave, those that wait for a key now and others after their run. Does nothing once
    /// the worker is stopped or its queue worked off.
    pub(super) fn resize(&self, size: PoolSize, supply: &Arc<WorkerSupply>) -> io::Result<()> {
        size.check()?;
        let mut wakers = Vec::new();
        let mut state = self.state.lock();
        // where their number follows the work each worker learns anew whether it leaves when it is idle
        let was_on_demand = state.is_on_demand();
        (state.least, state.most) = (size.least, size.most);
        self.update_control(&mut state);
        let missing = size.least.saturating_sub(state.alive);
        let learn = if was_on_demand || state.is_on_demand() {
            usize::MAX
        } else {
            state.alive.saturating_sub(size.most)
        };
        wakers.extend(state.members.iter().filter_map(|member| member.slot.take_waker()).take(learn));
        state.no_thread = false;
        // where no worker is there and none is started on demand any more, a stop waits for nothing
        state.tell_stops(&mut wakers);
        drop(state);
        wake_each(wakers);
        let started = self.start_least(missing, supply);
        let stale = self.state.lock().is_watcher_stale();
        if stale {
            self.update_watcher();
        }
        started
    }

    fn start_least(&self, missing: usize, supply: &Arc<WorkerSupply>) -> io::Result<()> {
        let Some(spawner) = supply.spawner() else { return Ok(()) };
        for _ in 0..missing {
            let Some(at) = self.vacancy(|state| state.alive < state.least) else { break };
            let started = spawner.clone().spawn(at, supply.clone());
            if !matches!(started, Ok(true)) {
                // a worker that could not be started is no longer wanted
                let mut state = self.state.lock();
                state.wants_no_more(0);
                self.update_control(&mut state);
                drop(state);
                return started.map(drop);
            }
        }
        Ok(())
    }

    /// An executor has turned a task away. It is not asked again before the next resize.
    pub(super) fn turned_away(&self, at: usize) {
        let mut state = self.state.lock();
        state.wants_no_more(1);
        self.vacate(state, at);
    }

    /// The number for one more worker, if one is wanted.
    fn vacancy(&self, is_wanted: impl FnOnce(&State) -> bool) -> Option<usize> {
        let mut state = self.state.lock();
        if state.stopping || state.over || !is_wanted(&state) {
            return None;
        }
        state.alive += 1;
        let at = state.free.pop().unwrap_or_else(|| {
            let at = state.members.len();
            state.members.push(Member::new(at));
            at
        });
        self.update_control(&mut state);
        Some(at)
    }

    /// The number for one more worker, if nobody is there to take the next key.
    pub(super) fn vacancy_on_demand(&self) -> Option<usize> {
        self.watcher_is_woken();
        self.vacancy(State::is_short)
    }

    /// Whether there is to be a watcher; whoever asks makes it so.
    pub(super) fn begins_to_watch(&self) -> bool {
        let mut state = self.state.lock();
        state.watcher = state.is_short();
        state.watcher
    }

    /// The watcher was woken, or has seen a key: it is none any more.
    pub(super) fn watcher_is_woken(&self) {
        self.state.lock().watcher = false;
    }

    /// The system had no thread for one more worker, or it is time to try again.
    pub(super) fn has_no_thread(&self, none: bool) {
        self.state.lock().no_thread = none;
    }

    /// Starts the watcher or ends it. Whoever changes the set so that this is due is a worker or
    /// has the handle, and so keeps what is upgraded here.
    fn update_watcher(&self) {
        if let Some(supply) = self.supply.upgrade() {
            supply.update_watcher();
        }
    }

    /// A worker wants a key; `None` if it is to take no more, and has left. Otherwise
    /// whether it leaves if it finds none for long.
    #[inline]
    pub(super) fn looks(&self, slot: &WorkerSlot) -> Option<bool> {
        slot.set_looking(true);
        if self.control.load(Relaxed) == 0 {
            return Some(false);
        }
        let mut state = self.state.lock();
        if state.is_to_leave() {
            self.vacate(state, slot.at);
            return None;
        }
        state.read_slot(slot.at);
        Some(state.is_spare())
    }

    /// Whether a worker has waited for long that is one more than the least. `until` is when
    /// that is, once it is known.
    pub(super) fn is_idle(&self, until: &mut Option<Instant>) -> bool {
        let now = self.queue.clock().now();
        now >= *until.get_or_insert(now + self.idle_timeout)
    }

    /// A worker found no key. `spare` is what it was told before its look, `idle` whether it
    /// has waited for long.
    pub(super) fn rests(&self, slot: &WorkerSlot, waker: &Waker, spare: bool, idle: bool) -> Rest {
        let old = slot.waits(waker);
        quietly(|| drop(old));
        slot.set_looking(false);
        if self.control.load(Relaxed) == 0 {
            return if spare { Rest::LooksAgain } else { Rest::Rests };
        }
        let state = self.state.lock();
        if idle && state.is_spare() && !state.is_to_leave() {
            self.vacate(state, slot.at);
            return Rest::Left;
        }
        let rests = self.tells(state, |state| {
            state.read_slot(slot.at);
            !state.is_to_leave() && state.is_spare() == spare
        });
        if rests { Rest::Rests } else { Rest::LooksAgain }
    }

    /// A worker's look has ended, with a key or in a panic. If the worker was stopped meanwhile and the deadline has come, a run
    /// that begins is told to end at once.
    pub(super) fn look_ended(&self, slot: &WorkerSlot) {
        slot.set_looking(false);
        if self.control.load(Relaxed) != 0 {
            self.tells(self.state.lock(), |state| {
                if state.cancelling {
                    self.queue.locked(&mut || _ = slot.tell());
                }
                state.read_slot(slot.at);
            });
        }
    }

    /// A worker's run has ended, and it may not look for another one soon. The watcher is not brought up to date: the worker's
    /// next look shows whether another one is wanted.
    pub(super) fn run_ended(&self, slot: &WorkerSlot) {
        self.queue.locked(&mut || slot.end_run());
        if self.control.load(Relaxed) != 0 {
            self.tells_stops(self.state.lock(), |state| state.read_slot(slot.at));
        }
    }

    /// A worker leaves, or did not come.
    pub(super) fn leave(&self, at: usize) {
        self.vacate(self.state.lock(), at);
    }

    /// A worker leaves because the queue is shut down and worked off.
    pub(super) fn is_over(&self, slot: &WorkerSlot) {
        let mut state = self.state.lock();
        state.over = true;
        self.vacate(state, slot.at);
    }

    fn vacate(&self, state: MutexGuard<'_, State>, at: usize) {
        let waker = self.tells(state, |state| {
            state.free.push(at);
            state.alive -= 1;
            let member = &mut state.members[at];
            member.ends = None;
            let waker = member.slot.clear();
            state.read_slot(at);
            self.update_control(state);
            waker
        });
        quietly(|| drop(waker));
    }

    /// Something changes that those who make a report may wait for, or that ends the worker; then
    /// the watcher is brought up to date.
    fn tells<R>(&self, state: MutexGuard<'_, State>, how: impl FnOnce(&mut State) -> R) -> R {
        let (result, stale) = self.tells_stops(state, |state| (how(state), state.is_watcher_stale()));
        if stale {
            self.update_watcher();
        }
        result
    }

    /// [`tells`](Self::tells), which leaves the watcher as it is.
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

    /// Whether a worker that was lost to its executor is to be replaced by another one with its number. Otherwise it has left.
    pub(super) fn is_replaced(&self, at: usize) -> bool {
        let state = self.state.lock();
        if state.over || state.is_to_leave() {
            self.vacate(state, at);
            return false;
        }
        let waker = self.tells(state, |state| {
            let waker = state.members[at].slot.clear();
            state.read_slot(at);
            waker
        });
        quietly(|| drop(waker));
        true
    }

    /// Lets the workers take no more keys.
    pub(super) fn stop_taking(&self) {
        let mut state = self.state.lock();
        let was_on_demand = state.is_on_demand();
        state.stopping = true;
        self.update_control(&mut state);
        let mut wakers: Vec<Waker> =
            state.members.iter().filter_map(|member| member.slot.take_waker()).collect();
        if was_on_demand {
            // there may be nobody whose leaving tells them
            state.tell_stops(&mut wakers);
        }
        let (ended, stale) = (state.has_ended(), state.is_watcher_stale());
        drop(state);
        wake_each(wakers);
        if stale {
            self.update_watcher();
        }
        if ended {
            self.end();
        }
    }

    /// Nobody is left who could work, and nobody may come any more.
    pub(super) fn abandon(&self) {
        self.tells(self.state.lock(), |state| {
            state.over = true;
            self.update_control(state);
        });
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().has_ended()
    }

    fn end(&self) {
        if let Some(supply) = self.supply.upgrade() {
            supply.close();
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
        self.queue.locked(&mut || {
            for member in &mut state.members {
                if !member.slot.tell() {
                    continue;
                }
                let Some(ends) = member.ends.as_ref().and_then(Weak::upgrade) else { continue };
                if ends.ends_soon() {
                    member.ends_soon = member.slot.run();
                }
                running.push(ends);
            }
        });
        drop(state);
        // dropping a handler is users' code
        for run in running {
            run.end();
        }
    }

    /// The report of the worker, made of its queue's and its own numbers.
    pub(super) fn report(&self, (stats, drained): (Stats, Option<Drained>)) -> StopReport {
        let left = drained.is_some_and(|drained| !drained.complete);
        let RunCounts { done, cancelled, running } = self.counts();
        let Drained { unfinished, durable, dropped, refused, refused_retries, .. } =
            drained.unwrap_or_default();
        StopReport {
            complete: running == 0 && cancelled == 0 && !left,
            done,
            cancelled: cancelled as usize,
            still_running: running as usize,
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

    /// The runs of all workers.
    fn counts(&self) -> RunCounts {
        let state = self.state.lock();
        let mut all = RunCounts::default();
        self.queue.locked(&mut || {
            for RunCounts { done, cancelled, running } in
                state.members.iter().map(|member| member.slot.counts())
            {
                all.done += done;
                all.cancelled += cancelled;
                all.running += running;
            }
        });
        all
    }
}

impl Holders for WorkerSet {
    fn cancel_runs(&self) {
        self.cancel_running(self.state.lock());
    }

    fn cancel_run(&self, in_hold: &mut InHold<'_>, how: CancelRun) -> bool {
        let state = self.state.lock();
        let (mut running, mut cancels) = (Vec::new(), false);
        in_hold(&mut |slot| {
            for member in state.members.iter().filter(|member| member.slot.has_key(slot)) {
                if member.slot.cancel(how) {
                    cancels = true;
                    running.extend(member.ends.as_ref().and_then(Weak::upgrade));
                }
            }
        });
        drop(state);
        // dropping a handler is users' code
        for run in running {
            run.end();
        }
        cancels
    }

    fn who_has(&self, slot: u32, who: &mut Vec<usize>) {
        let state = self.state.lock();
        let has = state.members.iter().filter(|member| member.slot.has_key(slot));
        who.extend(has.map(|member| member.slot.at + 1));
    }
}

impl ReadWorkers for WorkerSet {
    fn workers(&self) -> WorkerCounts {
        let state = self.state.lock();
        let busy = state.members.iter().filter(|member| member.slot.has_run()).count();
        WorkerCounts { workers: state.alive, busy }
    }
}

#[cfg(all(test, not(requeue_loom)))]
#[path = "tests/set.rs"]
mod tests;

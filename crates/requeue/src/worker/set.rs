//! The set of workers: their number, which of them must leave, and the report at the end.
//!
//! A worker is one thread, one task, or a part of a [`WorkerFuture`]. It has a number and a [status](WorkerStatus), which shows
//! what it does. A worker with a key is never ended; a worker that waits for a key is woken to leave.
//!
//! **How a change reaches the workers.** From run to run a worker does not take the set's lock. It reads
//! [`WorkerSet::control`], which is 0 unless workers must leave or their number follows the work. If it is not 0, the worker
//! takes the set's lock at the beginning and at the end of each look for a key, and has its status noted in its [`Member`]. A call
//! that sets a bit of `control` then reads the status of each worker under the queue's lock ([`State::read_all`]). It misses no worker:
//!
//! - A worker may end a run and take the next key in one hold of the queue's lock. If that hold comes before the reading, the
//!   reading sees the run. If it comes after, the worker finds the bit in that hold and takes no key.
//! - Any other look sets `looking` before it reads `control`, and clears it before it reads `control` again, with a full barrier
//!   between the two. There is a full barrier between the bit and the reading too. So either the reading sees `looking`, or the
//!   worker sees the bit.
//!
//! [`WorkerFuture`]: super::WorkerFuture

use super::pool_size::PoolSize;
use super::status::{RunCounts, WorkerStatus};
use super::stop::StopReport;
use super::supply::WorkerSupply;
use crate::cancel_run::CancelRun;
use crate::clock::Clock;
use crate::drain::DrainOptions;
use crate::hold::{Holders, InHold, Seen, Shared};
use crate::panics::{quietly, wake_each};
use crate::sync::{Mutex, MutexGuard, atomic};
use crate::wait::{WaiterId, WakerSet};
use atomic::Ordering::{Relaxed, SeqCst};
use atomic::fence;
use requeue_core::{DrainBase, Drained, Instant, Stats};
use std::any::Any;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;

/// The reason why a drain still waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DrainWaitsFor {
    /// Keys are ready or may become ready. A drain waits for them only while there are workers to
    /// take them.
    Keys,
    /// Runs that have not ended, also those without a worker.
    Runs,
    Nothing,
}

/// The queue as its workers' set needs it, without the types of keys and values.
pub(super) trait ErasedQueue: Send + Sync {
    fn clock(&self) -> &dyn Clock;
    fn begin_drain(&self, options: DrainOptions, now: Instant) -> DrainBase;
    /// The numbers of keys, and a drain's answer.
    fn report(&self, drain: Option<&DrainBase>, now: Instant) -> (Stats, Option<Drained>);
    /// See [`Shared::tell_unfinished`].
    fn tell_unfinished(&self);
    /// Why a drain still waits. Wakes `waker` once the queue is worked off, unless nothing is left now.
    fn drain_waits_for(
        &self,
        base: &DrainBase,
        now: Instant,
        place: &mut Option<usize>,
        waker: &Waker,
    ) -> DrainWaitsFor;
    /// Gives up the place that `drain_waits_for` took among the waiters for the end of the queue.
    fn leave_drain(&self, place: usize);
    /// See [`Shared::watch_for_work`].
    fn watch_for_work(self: Arc<Self>, place: &mut Option<WaiterId>, waker: Waker) -> Seen;
    /// See [`Shared::stop_watching`].
    fn stop_watching(&self, place: &mut Option<WaiterId>);
    /// Runs `what` in a hold of the queue's lock. It must not change the queue: no work follows the hold.
    fn locked(&self, what: &mut dyn FnMut());
}

impl<K: Send + Sync + 'static, V: Send + 'static> ErasedQueue for Shared<K, V> {
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
    fn drain_waits_for(
        &self,
        base: &DrainBase,
        now: Instant,
        place: &mut Option<usize>,
        waker: &Waker,
    ) -> DrainWaitsFor {
        // not under the lock: a clone is users' code
        let waker = waker.clone();
        let mut hold = self.look_at(now);
        let Stats { ready, dirty, waiting, held, .. } = hold.core.stats();
        // a run may still ask for a retry, of a drain that works failed keys off
        let only_runs = held > 0 && ready + dirty + waiting == 0;
        let waits_for = if !hold.core.is_over() && !only_runs {
            DrainWaitsFor::Keys
        } else if !hold.core.drain_is_over(base) {
            DrainWaitsFor::Runs
        } else {
            DrainWaitsFor::Nothing
        };
        let old =
            if waits_for == DrainWaitsFor::Nothing { Some(waker) } else { hold.drains().set(place, waker) };
        hold.unlock();
        quietly(|| drop(old));
        waits_for
    }
    fn leave_drain(&self, place: usize) {
        let old = self.leave_drain(place);
        quietly(|| drop(old));
    }
    fn watch_for_work(self: Arc<Self>, place: &mut Option<WaiterId>, waker: Waker) -> Seen {
        Shared::watch_for_work(&self, place, waker)
    }
    fn stop_watching(&self, place: &mut Option<WaiterId>) {
        self.stop_watching(place);
    }
    fn locked(&self, what: &mut dyn FnMut()) {
        let hold = self.lock();
        what();
        hold.release();
    }
}

/// Ends the run of a worker from outside, once it has been told to end.
pub(super) trait Ends: Send + Sync {
    /// Drops the handler, or has it dropped at the next poll of the worker.
    fn end(&self);
    /// Whether the handler is dropped at the next poll of the worker. A report then waits for that poll, if its caller can
    /// wait.
    fn ends_soon(&self) -> bool;
}

/// Workers must leave: all, or the surplus ones.
pub(super) const LEAVE: u32 = 1;
/// The number of workers follows the work.
const ON_DEMAND: u32 = 2;

/// One worker, or the place of one that has left.
struct Member {
    status: Arc<WorkerStatus>,
    /// Ends its run; `None` on a thread, whose handler cannot be dropped.
    ends: Option<Weak<dyn Ends>>,
    /// The run whose handler is dropped as soon as its worker is polled.
    ends_soon: u64,
    /// It looked for a key when its status was last read, and may have got one.
    looking: bool,
    /// It had a run when its status was last read.
    running: bool,
}

impl Member {
    fn new(at: usize) -> Self {
        let status = Arc::new(WorkerStatus::new(at));
        Self { status, ends: None, ends_soon: 0, looking: false, running: false }
    }
    fn is_busy(&self) -> bool {
        self.looking || self.running
    }
    fn ends_soon(&self) -> bool {
        self.status.is_told() && self.ends_soon == self.status.run()
    }
}

#[derive(Default)]
pub(super) struct State {
    members: Vec<Member>,
    /// Numbers of workers that have left.
    free: Vec<usize>,
    /// Number of workers that look or run, as their status was last read. Not kept while `control` is 0.
    busy: usize,
    /// Number of those that run.
    running: usize,
    /// The number of workers that are started at once, and stay when they are idle.
    least: usize,
    /// The largest number of workers.
    most: usize,
    /// There is a watcher that was not woken, or one is about to be started.
    watcher: bool,
    /// The system had no thread for the last worker that was to be started.
    no_thread: bool,
    /// Workers that have not left.
    pub(super) alive: usize,
    /// The workers are threads. A thread that is woken leaves by itself, and a stop waits for it. A task, or a part of a
    /// future, leaves when it is polled, which may take long: a stop does not wait for it.
    threads: bool,
    /// No more keys are taken.
    stopping: bool,
    /// A worker has learnt that the queue is shut down and worked off.
    over: bool,
    /// The deadline has come: a run that begins now is told to end at once.
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
    /// Lowers the numbers so that no worker is started beyond those there are, less the `leaving` ones.
    fn wants_no_more(&mut self, leaving: usize) {
        let workers = self.alive - leaving;
        (self.least, self.most) = (self.least.min(workers), self.most.min(workers));
    }
    /// Whether the number of workers follows the work.
    fn is_on_demand(&self) -> bool {
        self.least < self.most && !self.stopping && !self.over
    }
    /// Whether there are more workers than the least: one that waits for long leaves.
    fn is_spare(&self) -> bool {
        self.alive > self.least && self.is_on_demand()
    }
    /// Whether all workers have a run, and one more may be started.
    fn is_short(&self) -> bool {
        self.is_on_demand() && !self.no_thread && self.alive < self.most && self.alive == self.running
    }
    /// Whether the watcher must be started or ended, which is done without this lock. Checked in each hold that changes the
    /// answer.
    fn is_watcher_stale(&self) -> bool {
        self.is_short() != self.watcher
    }
    /// Whether there are workers, or one is started when a key comes.
    pub(super) fn has_workers(&self) -> bool {
        self.alive > 0 || self.is_on_demand()
    }
    /// Whether a stop still waits for its workers, none of which takes a key any more. Before its deadline it waits until the
    /// runs have ended and threads have left. After it (`late`) it waits only for workers that look for a key at the moment,
    /// and, if its caller is `patient`, for handlers that are dropped at the next poll of their worker.
    pub(super) fn is_awaited(&self, late: bool, patient: bool) -> bool {
        if late {
            self.members.iter().any(|member| member.looking || (patient && member.ends_soon()))
        } else {
            self.busy > 0 || (self.threads && self.alive > 0)
        }
    }
    /// Reads the status of a worker.
    fn read_status(&mut self, at: usize) {
        let member = &mut self.members[at];
        let (was_busy, was_running) = (member.is_busy(), member.running);
        (member.looking, member.running) = (member.status.is_looking(), member.status.has_run());
        self.busy = self.busy + usize::from(member.is_busy()) - usize::from(was_busy);
        self.running = self.running + usize::from(member.running) - usize::from(was_running);
    }
    /// Reads the status of each worker. In a hold of the queue's lock.
    fn read_all(&mut self) {
        (0..self.members.len()).for_each(|at| self.read_status(at));
    }
    /// The value that `control` is to have.
    fn control(&self) -> u32 {
        let leave = if self.is_to_leave() { LEAVE } else { 0 };
        leave | if self.is_on_demand() { ON_DEMAND } else { 0 }
    }
    /// Takes the wakers of the stops, if they have something to see.
    fn take_stop_wakers(&mut self, wakers: &mut Vec<Waker>) {
        let told = !self.stops.is_empty()
            && (self.alive == 0 || self.cancelling || (self.stopping && self.busy == 0));
        if told {
            self.stops.take_all(wakers);
        }
    }
}

/// A word that each worker reads once a run, on a cache line that is rarely written.
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
    pub(super) queue: Arc<dyn ErasedQueue>,
    /// The hook for keys that a drain leaves unfinished. Kept as long as a report may be asked for.
    pub(super) kept_hook: OnceLock<Box<dyn Any + Send + Sync>>,
    supply: Weak<WorkerSupply>,
    /// How long a worker beyond the least waits for a key.
    idle_timeout: Duration,
    pub(super) state: Mutex<State>,
}

/// The next step of a worker that found no key.
pub(super) enum Rest {
    /// It waits, and is woken if it must leave.
    Rests,
    /// It looks again, because the set was stopped or resized meanwhile.
    LooksAgain,
    /// It has left, because it was idle for long.
    HasLeft,
}

impl WorkerSet {
    pub(super) fn new(
        queue: Arc<dyn ErasedQueue>,
        supply: Weak<WorkerSupply>,
        idle_timeout: Duration,
    ) -> Self {
        Self {
            control: Control(atomic::AtomicU32::new(0)),
            queue,
            kept_hook: OnceLock::new(),
            supply,
            idle_timeout,
            state: Mutex::new(State::default()),
        }
    }

    /// Brings `control` up to date after a change of the state, and reads the status of each worker if a bit was set.
    fn update_control(&self, state: &mut State) {
        let (was, is) = (self.control.load(Relaxed), state.control());
        if was != is {
            self.control.store(is, Relaxed);
            if is & !was != 0 {
                fence(SeqCst);
                self.queue.locked(&mut || state.read_all());
            }
        }
    }

    /// The status of this worker.
    pub(super) fn status(&self, at: usize) -> Arc<WorkerStatus> {
        self.state.lock().members[at].status.clone()
    }

    /// Sets what ends the runs of this worker.
    pub(super) fn ends_with(&self, at: usize, ends: Weak<dyn Ends>) {
        self.state.lock().members[at].ends = Some(ends);
    }

    /// Notes that the workers are threads.
    pub(super) fn note_threads(&self) {
        self.state.lock().threads = true;
    }

    /// Workers that have not left.
    pub(super) fn workers(&self) -> usize {
        self.state.lock().alive
    }

    /// Sets the number of workers. Missing ones are started, up to the least. Surplus ones leave: those that wait for a key
    /// now, others after their run. Once the set is stopped or the queue worked off it does nothing.
    pub(super) fn resize(&self, size: PoolSize, supply: &Arc<WorkerSupply>) -> io::Result<()> {
        size.check()?;
        let mut wakers = Vec::new();
        let mut state = self.state.lock();
        // on demand each worker must learn anew whether it leaves when it is idle
        let was_on_demand = state.is_on_demand();
        (state.least, state.most) = (size.least, size.most);
        self.update_control(&mut state);
        let missing = size.least.saturating_sub(state.alive);
        let learn = if was_on_demand || state.is_on_demand() {
            usize::MAX
        } else {
            state.alive.saturating_sub(size.most)
        };
        wakers.extend(state.members.iter().filter_map(|member| member.status.take_waker()).take(learn));
        state.no_thread = false;
        // if no worker is there and none is started on demand any more, a stop has nothing to wait for
        state.take_stop_wakers(&mut wakers);
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

    /// Notes that an executor has turned a task away. It is not asked again before the next resize.
    pub(super) fn turned_away(&self, at: usize) {
        let mut state = self.state.lock();
        state.wants_no_more(1);
        self.vacate(state, at);
    }

    /// Takes a number for one more worker, if one is wanted.
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

    /// Takes a number for one more worker, if all others have a run.
    pub(super) fn vacancy_on_demand(&self) -> Option<usize> {
        self.watcher_is_woken();
        self.vacancy(State::is_short)
    }

    /// Whether there must be a watcher. The caller then starts or ends it.
    pub(super) fn begins_to_watch(&self) -> bool {
        let mut state = self.state.lock();
        state.watcher = state.is_short();
        state.watcher
    }

    /// Notes that the watcher was woken or has seen a key, and is none any more.
    pub(super) fn watcher_is_woken(&self) {
        self.state.lock().watcher = false;
    }

    /// Notes whether the system lately had no thread for a worker.
    pub(super) fn note_no_thread(&self, none: bool) {
        self.state.lock().no_thread = none;
    }

    /// Starts or ends the watcher. The caller is a worker or has the handle, and so keeps the supply alive.
    fn update_watcher(&self) {
        if let Some(supply) = self.supply.upgrade() {
            supply.update_watcher();
        }
    }

    /// Begins a worker's look for a key. Returns whether it leaves if it finds none for long; `None` if it has left instead.
    #[inline]
    pub(super) fn looks(&self, status: &WorkerStatus) -> Option<bool> {
        status.set_looking(true);
        if self.control.load(Relaxed) == 0 {
            return Some(false);
        }
        let mut state = self.state.lock();
        if state.is_to_leave() {
            self.vacate(state, status.at);
            return None;
        }
        state.read_status(status.at);
        Some(state.is_spare())
    }

    /// Whether a worker beyond the least has waited for long. `until` is the end of that time; the first call sets it.
    pub(super) fn is_idle(&self, until: &mut Option<Instant>) -> bool {
        let now = self.queue.clock().now();
        now >= *until.get_or_insert(now + self.idle_timeout)
    }

    /// Ends a look that found no key. `spare` is the answer of [`looks`](Self::looks), `idle` whether the worker has waited for
    /// long.
    pub(super) fn rests(&self, status: &WorkerStatus, waker: &Waker, spare: bool, idle: bool) -> Rest {
        let old = status.waits(waker);
        quietly(|| drop(old));
        status.set_looking(false);
        if self.control.load(Relaxed) == 0 {
            return if spare { Rest::LooksAgain } else { Rest::Rests };
        }
        let state = self.state.lock();
        if idle && state.is_spare() && !state.is_to_leave() {
            self.vacate(state, status.at);
            return Rest::HasLeft;
        }
        let rests = self.change(state, |state| {
            state.read_status(status.at);
            !state.is_to_leave() && state.is_spare() == spare
        });
        if rests { Rest::Rests } else { Rest::LooksAgain }
    }

    /// Ends a look with a key, or in a panic. If the deadline of a stop has come meanwhile, the run that begins is told to end
    /// at once.
    pub(super) fn look_ended(&self, status: &WorkerStatus) {
        status.set_looking(false);
        if self.control.load(Relaxed) != 0 {
            self.change(self.state.lock(), |state| {
                if state.cancelling {
                    self.queue.locked(&mut || _ = status.tell_to_end());
                }
                state.read_status(status.at);
            });
        }
    }

    /// Ends a run of a worker that may not look for another key soon. The watcher is not brought up to date: the worker's next
    /// look shows whether it is needed.
    pub(super) fn run_ended(&self, status: &WorkerStatus) {
        self.queue.locked(&mut || status.note_idle());
        if self.control.load(Relaxed) != 0 {
            self.change_without_watcher(self.state.lock(), |state| state.read_status(status.at));
        }
    }

    /// Notes that a worker leaves, or could not be started.
    pub(super) fn leave(&self, at: usize) {
        self.vacate(self.state.lock(), at);
    }

    /// Notes that a worker leaves because the queue is shut down and worked off.
    pub(super) fn leave_as_over(&self, status: &WorkerStatus) {
        let mut state = self.state.lock();
        state.over = true;
        self.vacate(state, status.at);
    }

    fn vacate(&self, state: MutexGuard<'_, State>, at: usize) {
        let waker = self.change(state, |state| {
            state.free.push(at);
            state.alive -= 1;
            let member = &mut state.members[at];
            member.ends = None;
            let waker = member.status.clear();
            state.read_status(at);
            self.update_control(state);
            waker
        });
        quietly(|| drop(waker));
    }

    /// Changes the state, wakes the stops, ends the set if that was the last worker, and brings the watcher up to date.
    fn change<R>(&self, state: MutexGuard<'_, State>, how: impl FnOnce(&mut State) -> R) -> R {
        let (result, stale) =
            self.change_without_watcher(state, |state| (how(state), state.is_watcher_stale()));
        if stale {
            self.update_watcher();
        }
        result
    }

    /// Like [`change`](Self::change), without the watcher.
    fn change_without_watcher<R>(
        &self,
        mut state: MutexGuard<'_, State>,
        how: impl FnOnce(&mut State) -> R,
    ) -> R {
        let mut wakers = Vec::new();
        let result = how(&mut state);
        state.take_stop_wakers(&mut wakers);
        let ended = state.has_ended();
        drop(state);
        wake_each(wakers);
        if ended {
            self.end();
        }
        result
    }

    /// Whether a worker whose task was dropped must be replaced by one with its number. Otherwise it has left.
    pub(super) fn is_replaced(&self, at: usize) -> bool {
        let state = self.state.lock();
        if state.over || state.is_to_leave() {
            self.vacate(state, at);
            return false;
        }
        let waker = self.change(state, |state| {
            let waker = state.members[at].status.clear();
            state.read_status(at);
            waker
        });
        quietly(|| drop(waker));
        true
    }

    /// Lets the workers take no more keys. Not by [`change`](Self::change): a stop, which calls this each time it looks, would wake
    /// itself until the last thread has left.
    pub(super) fn stop_taking(&self) {
        let mut state = self.state.lock();
        let was_on_demand = state.is_on_demand();
        state.stopping = true;
        self.update_control(&mut state);
        let mut wakers: Vec<Waker> =
            state.members.iter().filter_map(|member| member.status.take_waker()).collect();
        if was_on_demand {
            // there may be no worker whose leaving tells them
            state.take_stop_wakers(&mut wakers);
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

    /// Ends the set: no worker can work any more.
    pub(super) fn abandon(&self) {
        self.change(self.state.lock(), |state| {
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

    /// Tells all runs to end, also those that begin from now on, and ends those that can be ended.
    pub(super) fn cancel_all(&self) {
        let mut state = self.state.lock();
        state.cancelling = true;
        self.cancel_running(state);
    }

    /// Tells all runs to end, and ends those that can be ended.
    fn cancel_running(&self, mut state: MutexGuard<'_, State>) {
        let mut running = Vec::new();
        self.queue.locked(&mut || {
            for member in &mut state.members {
                if !member.status.tell_to_end() {
                    continue;
                }
                let Some(ends) = member.ends.as_ref().and_then(Weak::upgrade) else { continue };
                if ends.ends_soon() {
                    member.ends_soon = member.status.run();
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

    /// Makes the report from the queue's numbers and the set's own.
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
                state.members.iter().map(|member| member.status.counts())
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
            for member in state.members.iter().filter(|member| member.status.has_key(slot)) {
                if member.status.cancel(how) {
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

    fn alive_and_busy(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.alive, state.members.iter().filter(|member| member.status.has_run()).count())
    }

    fn who_has(&self, slot: u32, who: &mut Vec<usize>) {
        let state = self.state.lock();
        let has = state.members.iter().filter(|member| member.status.has_key(slot));
        who.extend(has.map(|member| member.status.at + 1));
    }
}

#[cfg(all(test, not(requeue_loom)))]
#[path = "tests/set.rs"]
mod tests;

//! The end of a run: the guard's part, and the work after the lock hold.
//!
//! ```text
//!   done, drop, succeed    finish   the hold; Core::try_fast_end, if nothing else is known of the key
//!                             └─► slow_finish ─► end_in_hold ─► Core::end
//!   retry                  Ending::retry   reads the clock, asks a limiter that counts for itself
//!   again, give_up         Ending::again, Ending::give_up
//!                             └─► Ending::end   the hold; Core::end
//!   next                   end_in_hold, in the hold of the next get (`get.rs`, `get_many.rs`)
//!   after each             after_end   tells the metrics, drops key and value
//! ```

use crate::failure::Failure;
use crate::hold::{Hold, Later, Shared};
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::owner::Owner;
use crate::panics::{DropsQuietly, FirstPanic, drop_both, quietly};
use requeue_core::{Core, Ended, How, Instant, Limit, Refused, RefusedEnd, RetryDelay, RunEnd, RunRef};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The part of an item that ends the run, whether the item is dropped or consumed.
pub(crate) struct Guard<'q, K, V> {
    pub(crate) owner: Owner<'q, K, V>,
    /// `None` once the run was ended, or is left to another guard to end.
    pub(crate) run: Option<RunRef<K>>,
}

/// How far a retry got, for a caller that catches its panic.
#[derive(Default)]
pub(crate) struct RetryProgress {
    /// The reading of the clock, the caller's or its own.
    pub(crate) reading: Cell<Option<Instant>>,
    /// The delay of the limiter. If the run has ended, it comes back after that: merge has panicked.
    pub(crate) limiter_said: Cell<Option<Duration>>,
}

/// A run to be ended: with its guard, or under a guard that readers of the key still hold and that becomes
/// inert.
pub(crate) enum Ending<'a, K> {
    Taking(&'a mut Option<RunRef<K>>),
    Keeping(&'a RunRef<K>),
}

impl<K> Ending<'_, K> {
    fn run(&self) -> Option<&RunRef<K>> {
        match self {
            Self::Taking(run) => run.as_ref(),
            Self::Keeping(run) => Some(run),
        }
    }

    /// The key, until the run has ended.
    pub(crate) fn key(&self) -> Option<&K> {
        self.run().map(RunRef::key)
    }

    /// Whether the run has ended, even in a call that panicked afterwards.
    pub(crate) fn has_ended<V>(&self, shared: &Shared<K, V>) -> bool {
        self.run().is_none_or(|run| shared.lock().with(|hold| hold.core.is_inert(run)))
    }

    /// Ends the run in a way that asks no limiter, and tells the journal if `told`. A delay counts from `reading`. If the end
    /// is refused, the run is unchanged.
    fn end<V>(
        &mut self,
        shared: &Shared<K, V>,
        how: How<'_>,
        value: Option<V>,
        reading: Option<Instant>,
        told: bool,
    ) -> Result<Duration, RefusedEnd<V>> {
        let ended = match self {
            Self::Keeping(run) => shared.hold(reading).with(|hold| {
                let mut ended = hold.core.end_keeping(run, how, value)?;
                if told {
                    shared.tell_end(&mut hold.core, &mut ended, |_| Some(run.slot()));
                } else {
                    shared.tell_journal(|journal| journal.refused(run.key()));
                }
                Ok(ended)
            })?,
            Self::Taking(place) => {
                let mut hold = shared.hold(reading);
                // only now: what runs before may panic, and the guard must still have it
                let Some(run) = place.take() else { return Ok(Duration::ZERO) };
                let slot = run.slot();
                // of a run that has ended under its guard it has heard
                if !told && !hold.core.is_inert(&run) {
                    shared.tell_journal(|journal| journal.refused(run.key()));
                }
                let mut ended = hold.core.end(run, how, value);
                if let (true, Ok(ended)) = (told, &mut ended) {
                    shared.tell_end(&mut hold.core, ended, |_| Some(slot));
                }
                hold.unlock();
                match ended {
                    Ok(ended) => ended,
                    Err((run, refused)) => {
                        **place = Some(run);
                        return Err(refused);
                    }
                }
            }
        };
        let delay = ended.delay;
        after_end(shared, ended);
        Ok(delay)
    }

    /// Ends the run with a failure, and puts its value back. With `instead` the limiter is still asked, and
    /// its delay replaced. If a limiter panics, or the retry is refused, run and value stay.
    pub(crate) fn retry<V>(
        &mut self,
        shared: &Shared<K, V>,
        instead: Option<Duration>,
        value: &mut Option<V>,
        progress: &RetryProgress,
    ) -> Result<Duration, Refused> {
        let Some(run) = self.run() else { return Ok(Duration::ZERO) };
        let now = progress.reading.get().unwrap_or_else(|| shared.now());
        progress.reading.set(Some(now));
        let ended = if shared.keeps_own() {
            let (delay, asking) = shared.ask(run, instead, now)?;
            progress.limiter_said.set(Some(delay));
            let how = How::Retry(RetryDelay::Asked(instead.unwrap_or(delay), asking));
            self.end(shared, how, value.take(), Some(now), true)
        } else {
            shared.with_limit(|limit| {
                let delay = |failures, now| {
                    let delay = (limit.delay)(failures, now);
                    progress.limiter_said.set(Some(delay));
                    delay
                };
                let limit = Limit { delay: &delay, ..limit };
                let how = How::Retry(RetryDelay::Limited(limit, instead));
                self.end(shared, how, value.take(), Some(now), true)
            })
        };
        match ended {
            Ok(delay) => {
                shared.tell_metrics(Metrics::retried);
                Ok(delay)
            }
            Err(refused) => {
                *value = refused.value;
                Err(refused.reason)
            }
        }
    }

    /// Ends the run without a failure, to run again, with a value that goes back. If that is refused, run and value stay.
    pub(crate) fn again<V>(
        &mut self,
        shared: &Shared<K, V>,
        delay: Duration,
        value: &mut Option<V>,
    ) -> Result<(), Refused> {
        let now = Some(shared.now());
        let (how, goes_back) = (How::Again(delay), value.take());
        let ended = if let (true, Some(run)) = (shared.keeps_own(), self.run()) {
            // a limiter forgets outside the lock, and not for a refused call: the
            // key stays lent meanwhile
            let ended = Ending::Keeping(run).end(shared, how, goes_back, now, true);
            if ended.is_ok() {
                shared.forget_own(run.key());
                let _ = self.end(shared, How::Done, None::<V>, now, true);
            }
            ended
        } else {
            self.end(shared, how, goes_back, now, true)
        };
        if let Err(refused) = ended {
            *value = refused.value;
            return Err(refused.reason);
        }
        shared.tell_metrics(Metrics::retried);
        Ok(())
    }

    pub(crate) fn succeed<V>(&mut self, shared: &Shared<K, V>) {
        let panic = self.forget_own(shared);
        match self {
            Self::Taking(run) => finish(shared, run, true, None, &mut None),
            Self::Keeping(_) => _ = self.end(shared, How::Succeed, None::<V>, None, true),
        }
        panic.resume();
    }

    /// Ends the run of a guard that gives its key up, and tells this queue's workers and the journal why, unless the
    /// run has ended already.
    pub(crate) fn give_up_for<V>(&mut self, shared: &Shared<K, V>, failure: &Failure) {
        if let Some(key) = self.key().filter(|_| !self.has_ended(shared)) {
            for hook in shared.give_up_hooks() {
                quietly(|| hook(key, failure));
            }
            shared.tell_journal(|journal| journal.gives_up(key, failure));
        }
        self.give_up(shared);
    }

    pub(crate) fn give_up<V>(&mut self, shared: &Shared<K, V>) {
        let panic = self.forget_own(shared);
        let _ = self.end(shared, How::GiveUp, None::<V>, None, true);
        panic.resume();
    }

    /// Tells a limiter that keeps its own counts to forget the key. The run ends even if it panics.
    fn forget_own<V>(&self, shared: &Shared<K, V>) -> FirstPanic {
        let mut panic = FirstPanic::default();
        if let (true, Some(run)) = (shared.keeps_own(), self.run()) {
            panic.catch(|| shared.forget_own(run.key()));
        }
        panic
    }

    /// Ends a run whose retry was refused. In memory it is done, and unfinished if a drain has begun. The
    /// journal is told of the refusal, so that an engine keeps the key as it was before the run, and the next
    /// process runs it again.
    pub(crate) fn end_refused<V>(
        &mut self,
        shared: &Shared<K, V>,
        reading: Option<Instant>,
        value: &mut Option<V>,
    ) {
        let _ = self.end(shared, How::Done, value.take(), reading, false);
    }
}

/// Ends a run as done or as succeeded, if it has not ended. The value stays, unless the key is unfinished.
#[inline(always)]
pub(crate) fn finish<K, V>(
    shared: &Shared<K, V>,
    run: &mut Option<RunRef<K>>,
    succeeded: bool,
    reading: Option<Instant>,
    value: &mut Option<V>,
) {
    // the run is taken only in the hold: what runs before may panic, and the guard must still have it
    let mut hold = shared.hold(reading);
    if shared.journal.is_none() {
        if let Some((key, worked)) = hold.core.try_fast_end(run) {
            hold.unlock_telling(|shared| shared.tell_worked(worked, RunEnd::Done));
            // it is already inert: marked where the guard's drop sees it without a look
            *run = None;
            return drop(key);
        }
    }
    slow_finish(shared, hold, run, succeeded, value);
}

/// Slow path of [`finish`]: the queue knows more of the key than this run, or will. Separate function, because its large
/// result would be moved through memory in the other cases too.
#[inline(never)]
fn slow_finish<K, V>(
    shared: &Shared<K, V>,
    mut hold: Hold<'_, K, V>,
    run: &mut Option<RunRef<K>>,
    succeeded: bool,
    value: &mut Option<V>,
) {
    let ended = end_in_hold(shared, &mut hold, run, succeeded, value);
    hold.unlock();
    if let Some(ended) = ended {
        after_end(shared, ended);
    }
}

/// In a lock hold: ends a run that was not [ended fast](requeue_core::Core::try_fast_end), if there is one, as done or as
/// succeeded, and tells the journal, if there is one. Takes the value of a run whose retry was refused.
pub(crate) fn end_in_hold<K, V>(
    shared: &Shared<K, V>,
    hold: &mut Hold<'_, K, V>,
    run: &mut Option<RunRef<K>>,
    succeeded: bool,
    value: &mut Option<V>,
) -> Option<Ended<K, V>> {
    let run = run.take()?;
    let (slot, inert) = (run.slot(), hold.core.is_inert(&run));
    let refused = !succeeded && hold.core.was_refused(&run);
    if refused {
        shared.tell_journal(|journal| journal.refused(run.key()));
    }
    let mut ended = end(&mut hold.core, run, succeeded, value, refused);
    // it has heard of the end of a run that is inert, or that it was refused: nothing has ended now
    if !inert && !refused {
        shared.tell_end(&mut hold.core, &mut ended, |_| Some(slot));
    }
    Some(ended)
}

/// Ends a run as done or as succeeded in the state machine, with its value if its retry was `refused`.
#[inline]
pub(crate) fn end<K, V>(
    core: &mut Core<K, V>,
    run: RunRef<K>,
    succeeded: bool,
    value: &mut Option<V>,
    refused: bool,
) -> Ended<K, V> {
    let goes_back = if refused { value.take() } else { None };
    match core.end(run, if succeeded { How::Succeed } else { How::Done }, goes_back) {
        Ok(ended) => ended,
        Err(_) => unreachable!("only retries are refused"),
    }
}

/// Work after the end of a run, outside the lock: tells the metrics, and drops what is left of the run.
#[inline]
pub(crate) fn after_end<K, V>(shared: &Shared<K, V>, ended: Ended<K, V>) {
    shared.tell_worked(ended.worked, ended.end);
    drop_both(ended.key, ended.value);
}

impl<K, V> Guard<'_, K, V> {
    #[inline]
    pub(crate) fn ending(&mut self) -> (&Arc<Shared<K, V>>, Ending<'_, K>) {
        (self.owner.shared(), Ending::Taking(&mut self.run))
    }

    /// The run, to be ended while readers still hold the key through this guard; `None` if it has ended.
    pub(crate) fn keeping(&self) -> Option<Ending<'_, K>> {
        self.run.as_ref().map(Ending::Keeping)
    }

    pub(crate) fn key(&self) -> &K {
        match &self.run {
            Some(run) => run.key(),
            // only what consumes the guard, or its item, takes the run
            None => unreachable!("a guard has its run until it is consumed"),
        }
    }

    pub(crate) fn journal(&self) -> Option<&Arc<dyn Journal<K, V>>> {
        self.owner.shared().journal.as_ref()
    }

    pub(crate) fn priority(&self) -> i16 {
        self.run.as_ref().map_or(0, RunRef::priority)
    }

    /// Ends the run of a guard that is dropped; nothing if its run was taken.
    ///
    /// User code (merge, a limiter, a clock) may panic. The run ends all the same, and during unwinding a
    /// second panic would abort.
    #[inline(never)]
    pub(crate) fn let_go(&mut self, value: &mut Option<V>, reading: Option<Instant>) {
        let Self { owner, run } = self;
        let shared = owner.shared();
        let value = DropsQuietly(value);
        if run.is_some() {
            abandon_in_drop(shared, run, value.0, reading);
        }
    }
}

/// Ends a run whose guard was dropped before a call has ended it.
#[inline]
fn abandon<K, V>(
    shared: &Shared<K, V>,
    run: &mut Option<RunRef<K>>,
    value: &mut Option<V>,
    reading: Option<Instant>,
) {
    if !shared.retry_dropped {
        return finish(shared, run, false, reading, value);
    }
    let mut ending = Ending::Taking(run);
    // one reading for both, where both are asked
    let progress = RetryProgress { reading: Cell::new(reading), ..RetryProgress::default() };
    if ending.retry(shared, None, value, &progress).is_err() {
        ending.end_refused(shared, progress.reading.get(), value);
    }
}

/// Puts the key of a run back into line, with its value. The run counts as an attempt if `counted`.
pub(crate) fn put_back<K, V>(
    shared: &Shared<K, V>,
    run: &mut Option<RunRef<K>>,
    value: &mut Option<V>,
    counted: bool,
) {
    let mut hold = shared.hold(None);
    // only now: what runs before may panic, and the guard must still have it
    let Some(run) = run.take() else { return };
    let slot = run.slot();
    let is_inert = hold.core.is_inert(&run);
    let mut ended = hold.core.put_back(run, value.take(), counted);
    if !is_inert {
        shared.tell_end(&mut hold.core, &mut ended, |_| Some(slot));
    }
    hold.unlock();
    after_end(shared, ended);
}

/// Ends a run without reading the clock or calling user code. The journal is not told of an end that user
/// code prevented.
fn force_end<K, V>(shared: &Shared<K, V>, run: &mut Option<RunRef<K>>) {
    if let Some(run) = run.take() {
        if let Ok(ended) = shared.lock().with(|hold| hold.core.end(run, How::Done, None)) {
            quietly(|| after_end(shared, ended));
        }
    }
}

/// Ends a run in a drop, as its guard does that is dropped.
#[inline]
pub(crate) fn abandon_in_drop<K, V>(
    shared: &Shared<K, V>,
    run: &mut Option<RunRef<K>>,
    value: &mut Option<V>,
    reading: Option<Instant>,
) {
    let end = |run: &mut _, value: &mut _| abandon(shared, run, value, reading);
    end_in_drop(shared, run, value, end, |run, value| Later::End { run, value });
}

/// Ends a run in a drop, as done or as succeeded.
pub(crate) fn done_in_drop<K, V>(shared: &Shared<K, V>, run: &mut Option<RunRef<K>>, succeeded: bool) {
    let end = |run: &mut _, value: &mut _| finish(shared, run, succeeded, None, value);
    end_in_drop(shared, run, &mut None, end, |run, _| Later::Done(run));
}

/// Ends a run in a drop: calls `end`, and if that panics before the run has ended, ends it without user code; later, if user code
/// drops it under the lock.
#[inline]
fn end_in_drop<K, V>(
    shared: &Shared<K, V>,
    run: &mut Option<RunRef<K>>,
    value: &mut Option<V>,
    end: impl FnOnce(&mut Option<RunRef<K>>, &mut Option<V>),
    later: impl FnOnce(RunRef<K>, Option<V>) -> Later<K, V>,
) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| end(run, value))) {
        if !shared.is_held_here() {
            force_end(shared, run);
        } else if let Some(run) = run.take() {
            shared.note_later(later(run, value.take()));
        }
        if !std::thread::panicking() {
            resume_unwind(panic);
        }
        quietly(|| drop(panic));
    }
}

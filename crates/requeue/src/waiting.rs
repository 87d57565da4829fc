//! A caller that waits for keys: one implementation for threads and tasks, for one key and for several.
//!
//! ```text
//!   wait, poll, block      a thread, a task, a thread with a deadline
//!      └─► look            opens the hold: due timers fire
//!             └─► take     Poller::take ─► Core::get    one key (`get.rs`), several (`get_many.rs`)
//!             │      └─► LookRemains::hand_out ends the hold, Poller::got makes the guard
//!             └─► stay     nothing is ready: the end, or `register` among the waiters (`wait.rs`)
//! ```

use crate::blocking::{ThisThread, block_on};
use crate::clock::{Clock, TaskAlarm};
use crate::error::GetError;
use crate::hold::{Hold, Later, Shared};
use crate::owner::Owner;
use crate::panics::{in_drop, quietly};
use crate::wait::{Sleeper, Step, TimeLimit, WaiterId};
use requeue_core::Instant;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The request of a waiting caller at each look: one key, or several.
///
/// A look is one lock hold, and more only if something must be done outside the lock first.
pub(crate) trait Poller<'q, K, V> {
    /// The result for the caller.
    type Got;
    /// The part taken in the hold.
    type Taken;
    type Remains: LookRemains<K, V, Self::Taken>;

    /// Allocates room for `keys` keys, before the hold. One key needs none.
    #[inline]
    fn make_room(&mut self, _keys: usize, _: &Shared<K, V>, _: &mut Self::Remains) {}

    /// In the hold: ends the previous run if that is quick. Otherwise returns false, and [`take`](Self::take)
    /// ends it.
    #[inline]
    fn ends_at_once(&mut self, _: &mut Hold<'_, K, V>, _: &mut Self::Remains) -> bool {
        true
    }

    /// In the hold: ends the previous runs, and takes what is ready.
    fn take(
        &mut self,
        hold: &mut Hold<'_, K, V>,
        owner: &Owner<'q, K, V>,
        remains: &mut Self::Remains,
    ) -> PollResult<Self::Taken>;

    /// After the hold: makes the result of what was taken. It does not unwind.
    fn got(taken: Self::Taken, owner: &Owner<'q, K, V>) -> Self::Got;
}

/// Remains of a look, to be reported to the metrics and dropped after the hold.
pub(crate) trait LookRemains<K, V, T>: Default {
    /// Ends a hold in which keys were taken. Nothing in here unwinds, not even the drop of `waker`: a key would stay held.
    fn hand_out(self, taken: &T, hold: Hold<'_, K, V>, waker: Option<Waker>);

    /// After a hold in which no key was taken.
    fn drop_after(self, shared: &Shared<K, V>);
}

/// Result of a look.
pub(crate) enum PollResult<T> {
    Keys(T),
    /// No key is ready now.
    Nothing,
    /// Room for this number of keys must be allocated first, outside the lock.
    NoRoom(usize),
}

/// One look at the queue, with all its holds.
struct PollState<L: Default> {
    reading: Option<Instant>,
    deadline: Option<Instant>,
    who: Sleeper,
    remains: RemainsOfLook<L>,
}

/// Remains of a look. Dropped quietly if a panic of user code unwinds through the look.
#[derive(Default)]
struct RemainsOfLook<L: Default>(L);

impl<L: Default> RemainsOfLook<L> {
    #[inline(always)]
    fn take(&mut self) -> L {
        std::mem::take(&mut self.0)
    }

    #[inline]
    fn into_inner(mut self) -> L {
        let remains = self.take();
        // nothing is left in it, but its drop would look all the same
        std::mem::forget(self);
        remains
    }
}

impl<L: Default> Drop for RemainsOfLook<L> {
    #[inline]
    fn drop(&mut self) {
        if std::mem::needs_drop::<L>() && std::thread::panicking() {
            // taken first: what the closure refers to would be kept in memory everywhere
            let remains = self.take();
            quietly(|| drop(remains));
        }
    }
}

/// Result of a wait with or without a deadline.
pub(crate) type Waited<T> = Result<Option<T>, GetError>;

/// A caller's place among the waiters.
pub(crate) struct Waiting<'q, K, V> {
    owner: Owner<'q, K, V>,
    waiter: Option<WaiterId>,
}

impl<'q, K, V> Waiting<'q, K, V> {
    pub(crate) fn owner(&self) -> Owner<'q, K, V> {
        self.owner.clone()
    }

    #[inline]
    pub(crate) fn new(owner: Owner<'q, K, V>) -> Self {
        Self { owner, waiter: None }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<K, V>> {
        self.owner.shared()
    }

    /// Whether the caller is entered among the waiters.
    pub(crate) fn is_entered(&self) -> bool {
        self.waiter.is_some()
    }

    /// Looks at the queue once: a key, the end, or how long to sleep.
    #[inline]
    pub(crate) fn look<'w, A: Poller<'q, K, V>>(
        &mut self,
        ask: &mut A,
        waker: impl Fn() -> &'w Waker,
        limit: Option<&mut TimeLimit>,
        who: Sleeper,
    ) -> Step<Waited<A::Got>> {
        let Self { owner, waiter } = self;
        let shared = owner.shared();
        let mut reading = limit.is_some().then(|| shared.now());
        let deadline = limit.map(|limit| limit.at(reading));
        let mut remains = A::Remains::default();
        ask.make_room(0, shared, &mut remains);
        let hold = shared.look_for_key(&mut reading);
        let look = PollState { reading, deadline, who, remains: RemainsOfLook(remains) };
        Self::look_on(owner, waiter, ask, hold, look, waker)
    }

    /// Continues a look in the hold that it has opened.
    #[inline]
    fn look_on<'a, 'w, A: Poller<'q, K, V>>(
        owner: &'a Owner<'q, K, V>,
        waiter: &mut Option<WaiterId>,
        ask: &mut A,
        hold: Hold<'a, K, V>,
        mut look: PollState<A::Remains>,
        waker: impl Fn() -> &'w Waker,
    ) -> Step<Waited<A::Got>> {
        match Self::take(owner, waiter, ask, hold, &mut look) {
            Ok(got) => Step::Ready(Ok(Some(got))),
            Err(hold) => {
                let step = Self::stay(owner, waiter, ask, hold, &mut look, waker);
                // nothing is left where keys were handed out
                look.remains.take().drop_after(owner.shared());
                step
            }
        }
    }

    /// Hands out what is ready.
    #[inline(always)]
    fn take<'a, A: Poller<'q, K, V>>(
        owner: &'a Owner<'q, K, V>,
        waiter: &mut Option<WaiterId>,
        ask: &mut A,
        mut hold: Hold<'a, K, V>,
        look: &mut PollState<A::Remains>,
    ) -> Result<A::Got, Hold<'a, K, V>> {
        loop {
            if let Some(id) = waiter {
                hold.waiters().looks(id);
            }
            match ask.take(&mut hold, owner, &mut look.remains.0) {
                PollResult::Keys(taken) => {
                    let old = waiter.take().and_then(|id| hold.waiters().leave(id));
                    look.remains.take().hand_out(&taken, hold, old);
                    return Ok(A::got(taken, owner));
                }
                PollResult::Nothing => return Err(hold),
                PollResult::NoRoom(keys) => {
                    hold.unlock();
                    ask.make_room(keys, owner.shared(), &mut look.remains.0);
                    hold = owner.shared().hold_to_look(&mut look.reading);
                }
            }
        }
    }

    /// Ends a look that found no key: with an answer, or by entering the caller among the waiters.
    #[inline(never)]
    fn stay<'a, 'w, A: Poller<'q, K, V>>(
        owner: &'a Owner<'q, K, V>,
        waiter: &mut Option<WaiterId>,
        ask: &mut A,
        mut hold: Hold<'a, K, V>,
        look: &mut PollState<A::Remains>,
        waker: impl Fn() -> &'w Waker,
    ) -> Step<Waited<A::Got>> {
        let mut clone: Option<Waker> = None;
        loop {
            let over = if hold.core.is_over() {
                Some(Ok(None))
            } else if look.deadline.is_some_and(|at| look.reading.is_some_and(|now| now >= at)) {
                Some(Err(GetError::Empty))
            } else {
                None
            };
            if let Some(answer) = over {
                let old = waiter.take().and_then(|id| hold.waiters().leave(id));
                let idle = hold.unlock_after_leaving();
                quietly(|| drop(old));
                if idle {
                    owner.shared().update_alarms(None);
                }
                return Step::Ready(answer);
            }
            // neither made nor cloned under the lock: a clone is users' code
            if waiter.is_none() && clone.is_none() {
                hold.unlock();
                clone = Some(waker().clone());
            } else {
                match Self::register(waiter, hold, waker(), clone.take(), look.who) {
                    Ok((lead, old)) => {
                        quietly(|| drop(old));
                        let deadline = look.deadline.filter(|at| !at.is_never());
                        return Step::Sleep(lead.into_iter().chain(deadline).min());
                    }
                    Err(NeedsClone) => clone = Some(waker().clone()),
                }
            }
            let again = owner.shared().hold_to_look(&mut look.reading);
            hold = match Self::take(owner, waiter, ask, again, look) {
                Ok(got) => return Step::Ready(Ok(Some(got))),
                Err(hold) => hold,
            };
        }
    }

    /// Enters the caller among the waiters, if a waker of its own is available. Returns what
    /// [`Waiters::enter`](crate::wait::Waiters::enter) does, and a waker to be dropped.
    fn register(
        waiter: &mut Option<WaiterId>,
        mut hold: Hold<'_, K, V>,
        waker: &Waker,
        clone: Option<Waker>,
        who: Sleeper,
    ) -> Result<(Option<Instant>, Option<Waker>), NeedsClone> {
        let next = hold.core.next_wake();
        let (sleep, old) = match (&*waiter, clone) {
            (Some(id), clone) if hold.waiters().is_current(id, waker, who) => {
                (hold.waiters().lead(id, next), clone)
            }
            (_, None) => return Err(NeedsClone),
            (Some(id), Some(clone)) => {
                let (old, sleep) = hold.waiters().again(id, clone, next, who);
                (sleep, old)
            }
            (None, Some(clone)) => {
                let (id, sleep) = hold.waiters().enter(clone, next, who);
                *waiter = Some(id);
                (sleep, None)
            }
        };
        hold.owner().tell_journal(|journal| journal.wanted());
        hold.unlock();
        Ok((sleep, old))
    }

    /// Blocks until there are keys, or the queue is over.
    ///
    /// Mostly there are keys, so the first look is separate: its result goes straight to the caller. Through
    /// [`block`](Self::block) it would be moved three times, which costs `Item::next` 100 instructions.
    #[inline]
    pub(crate) fn wait<A: Poller<'q, K, V>>(&mut self, ask: &mut A) -> Option<A::Got> {
        let Self { owner, waiter } = &mut *self;
        let shared = owner.shared();
        if waiter.is_none() {
            let (mut reading, mut remains) = (None, RemainsOfLook(A::Remains::default()));
            ask.make_room(0, shared, &mut remains.0);
            let mut hold = shared.look_for_key(&mut reading);
            if ask.ends_at_once(&mut hold, &mut remains.0) {
                if let PollResult::Keys(taken) = ask.take(&mut hold, owner, &mut remains.0) {
                    remains.into_inner().hand_out(&taken, hold, None);
                    return Some(A::got(taken, owner));
                }
            }
            let look = PollState { reading, deadline: None, who: Sleeper::Thread, remains };
            if let Some(got) = Self::wait_on(owner, waiter, ask, hold, look) {
                return got;
            }
        }
        self.block(ask, None).unwrap_or(None)
    }

    /// Like [`wait`](Self::wait), continuing a first look in a lock hold that has begun.
    pub(crate) fn wait_in<A: Poller<'q, K, V>>(
        &mut self,
        ask: &mut A,
        hold: Hold<'_, K, V>,
        reading: Option<Instant>,
    ) -> Option<A::Got> {
        let look =
            PollState { reading, deadline: None, who: Sleeper::Thread, remains: RemainsOfLook::default() };
        match Self::wait_on(&self.owner, &mut self.waiter, ask, hold, look) {
            Some(got) => got,
            None => self.block(ask, None).unwrap_or(None),
        }
    }

    /// The rest of a first look, and the sleep after it: `None`.
    #[inline(never)]
    fn wait_on<'a, A: Poller<'q, K, V>>(
        owner: &'a Owner<'q, K, V>,
        waiter: &mut Option<WaiterId>,
        ask: &mut A,
        hold: Hold<'a, K, V>,
        look: PollState<A::Remains>,
    ) -> Option<Option<A::Got>> {
        let thread = ThisThread::default();
        match Self::look_on(owner, waiter, ask, hold, look, || thread.waker()) {
            Step::Ready(outcome) => Some(outcome.unwrap_or(None)),
            Step::Sleep(until) => {
                thread.sleep(until, &*owner.shared().clock);
                None
            }
        }
    }

    /// Blocks until there is an answer.
    pub(crate) fn block<A: Poller<'q, K, V>>(
        &mut self,
        ask: &mut A,
        mut limit: Option<TimeLimit>,
    ) -> Waited<A::Got> {
        block_on(
            self,
            |waiting| &*waiting.shared().clock,
            |waiting, thread| waiting.look(ask, || thread.waker(), limit.as_mut(), Sleeper::Thread),
        )
    }
}

impl<'q, K: Send + Sync + 'static, V: Send + 'static> Waiting<'q, K, V> {
    pub(crate) fn poll<A: Poller<'q, K, V>>(
        &mut self,
        ask: &mut A,
        cx: &mut Context<'_>,
        mut deadline: Option<&mut Deadline>,
    ) -> Poll<Waited<A::Got>> {
        self.owner.shared().install_alarms();
        let limit = deadline.as_deref_mut().map(|deadline| &mut deadline.limit);
        match self.look(ask, || cx.waker(), limit, Sleeper::Task) {
            Step::Ready(outcome) => {
                // a panic of its waker's drop must not take the keys that were handed out
                if let Some(deadline) = deadline {
                    deadline.alarm.end();
                }
                Poll::Ready(outcome)
            }
            Step::Sleep(_) => {
                if let Some(deadline) = deadline {
                    deadline.set_alarm(&*self.owner.shared().clock, cx.waker());
                }
                Poll::Pending
            }
        }
    }
}

/// A waker must be cloned before the caller can be entered.
struct NeedsClone;

impl<K, V> Shared<K, V> {
    /// Gives up a place among the callers that wait for keys. A wake-up that its caller got is passed on as the lock hold ends.
    pub(crate) fn leave_waiting(&self, id: WaiterId) {
        if self.is_held_here() {
            self.note_later(Later::Waiter(id));
            return self.refuses_itself();
        }
        // The clock is not read: if it panicked, an entry would stay behind without an owner.
        let mut hold = self.lock();
        let old = hold.waiters().leave(id);
        if hold.unlock_after_leaving() {
            in_drop(|| self.update_alarms(None));
        }
        in_drop(|| drop(old));
    }
}

impl<K, V> Drop for Waiting<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        if let Some(id) = self.waiter.take() {
            self.owner.shared().leave_waiting(id);
        }
    }
}

/// The deadline of a wait.
pub(crate) struct Deadline {
    pub(crate) limit: TimeLimit,
    alarm: TaskAlarm,
}

impl Deadline {
    pub(crate) fn new(limit: TimeLimit) -> Self {
        Self { limit, alarm: TaskAlarm::default() }
    }

    /// Has the clock wake the task at the deadline.
    pub(crate) fn set_alarm(&mut self, clock: &dyn Clock, task: &Waker) {
        self.alarm.set(clock, self.limit.at(None), task);
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests;

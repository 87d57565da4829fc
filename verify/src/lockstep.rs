//! Random operation sequences, run by the reference model and by a queue side by
//! side: after every step both must have answered the same and must look the
//! same from outside.
//!
//! This also checks the wake-ups, which the model does not have: while a key is ready and a caller waits for
//! one, some waiting caller has been woken and has not polled since; and at the end of the queue all have
//! been woken.

use crate::adapter::{
    Accepted, Adapter, Config, Drained, Dropped, Exponential, Held, InBackoff, Limiter, Line, Many, Nothing,
    Polled, Rate, Rejected, Restored, Said, Seen, Subject, TestClock, Waiters, When, sound,
};
use crate::limits::Metered;
use crate::model::{self, DrainId, Model, Options, Run};
use crate::probe::Value;
use crate::reference::{ask, debounce, seen, unfinished};
use crate::suite::b_value::Smallest;
use crate::wake::Count;
use requeue::{Debounce, Instant, Only, RunEnd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Number of different keys in the operations: few, so that operations meet.
pub const KEYS: u64 = 4;

/// One operation. An index selects one of the existing objects, modulo their number; without any, the
/// operation does nothing.
#[expect(clippy::large_enum_variant, reason = "boxed it could not be copied, and there are few at a time")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A trigger.
    Trigger(Wish),
    /// The first of these triggers, as a batch of this number.
    TriggerMany([Wish; BATCH], usize),
    /// `add` by reference.
    AddRef(u64),
    /// `try_get`.
    TryGet,
    /// `try_get` of so many keys at once.
    TryGetMany(usize),
    /// Ends runs that were handed out together.
    EndMany(usize, WordMany),
    /// Ends a current run, or an inert guard.
    End(usize, Word),
    /// `done` by key.
    Done(u64),
    /// `forget`.
    Forget(u64),
    /// Reads the next page, of this many keys, of the open snapshot; or begins a new one if none is open.
    Page(usize),
    /// Reads a whole snapshot of these keys.
    Snapshot(usize, Option<Only>),
    /// `restore` of a key with so many failures, this attempt, due at that instant or ready,
    /// with a value or without, and a priority; its `when` is not looked at.
    Restore(Wish, u32, u32, Option<u64>),
    /// `cancel`; with `true` it forgets too.
    Cancel(u64, bool),
    /// `pause`, or with `false` `resume`.
    Pause(bool),
    /// `lift_rate`.
    LiftRate,
    /// `pause_key`, or with `false` `resume_key`.
    PauseKey(u64, bool),
    /// `pause_group` of a key's group, or with `false` `resume_group`.
    PauseGroup(u64, bool),
    /// Takes the value out of a guard.
    TakeValue(usize),
    /// Time passes.
    Advance(u64),
    /// Begins to wait for a key.
    Get,
    /// Begins to wait for keys, so many at once.
    GetMany(usize),
    /// A trigger that waits for room.
    AddWhenRoom(Wish),
    /// Polls a caller that waits for room, woken or not.
    PollAdder(usize),
    /// Drops a caller that waits for room.
    LeaveAdder(usize),
    /// Polls a waiting caller, woken or not.
    Poll(usize),
    /// Drops a waiting caller.
    Leave(usize),
    /// `close`.
    Close,
    /// `shut_down`.
    ShutDown,
    /// Begins a drain.
    Drain(Waiters, Option<u64>),
    /// Nobody waits for that drain any more.
    LeaveDrain(usize),
    /// The list of unfinished keys is taken.
    TakeUnfinished,
}

/// A trigger as it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The key.
    pub key: u64,
    /// The kind of trigger.
    pub when: When,
    /// Whether it has a value.
    pub valued: bool,
    /// The priority, if the queue has priorities.
    pub priority: i16,
    /// The debounce of an immediate trigger.
    pub debounce: Option<Debounce>,
}

impl Wish {
    fn is_timed(&self) -> bool {
        self.when.has_delay() || self.debounce.is_some()
    }
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// `done`.
    Done,
    /// `succeed`.
    Succeed,
    /// `give_up`.
    GiveUp,
    /// `put_back`.
    PutBack,
    /// `retry`.
    Retry,
    /// `retry_after`.
    RetryAfter(u64),
    /// `again`.
    RequeueAfter(u64),
    /// The guard is dropped.
    Drop,
    /// Detaches the guard; the run goes on.
    Detach,
    /// Done and get the next, which leaves if there is none.
    Next,
}

/// Maximum number of triggers in a batch.
pub const BATCH: usize = 4;

/// The end of runs that were handed out together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordMany {
    /// `done`.
    Done,
    /// `succeed`.
    Succeed,
    /// All are dropped.
    Drop,
    /// Each is used separately.
    Singles,
    /// The first items of this number are used separately, the others are dropped.
    Some(usize),
    /// Done and get the next, so many at once, which leaves if there are none.
    Next(usize),
    /// Items of this number are taken out, and then a panic unwinds through the iterator; through the batch
    /// itself if none is taken out.
    Unwind(usize),
}

/// Which queue, and how closely it is looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// The order of the ready line.
    pub order: model::Order,
    /// Rate limit of hand-outs.
    pub rate: Option<Rate>,
    /// `timers absorbed`.
    pub absorbed: bool,
    /// A dropped guard retries.
    pub unfinished_retries: bool,
    /// Default behaviour of triggers in a back-off.
    pub in_backoff: InBackoff,
    /// Default debounce of immediate triggers.
    pub debounce: Option<Debounce>,
    /// Maximum number of known keys.
    pub bound: Option<usize>,
    /// The oldest makes room for another.
    pub drop_oldest: bool,
    /// So long after the end of a limiter's delay its count expires.
    pub expire_after: Option<u64>,
    /// The limiter keeps its counts itself, as a user's own does.
    pub own_limiter: bool,
    /// Metrics are on.
    pub metered: bool,
}

const BASE: Duration = Duration::from_nanos(2);
const MAX: Duration = Duration::from_nanos(9);

enum Getting<'q, A: Adapter> {
    One(Polled<'q, Option<A::Held<'q>>>),
    Many(usize, Polled<'q, Option<A::Many<'q>>>),
}

struct Waits<'q, A: Adapter> {
    getting: Getting<'q, A>,
    count: Arc<Count>,
    /// Its wake-ups when it last looked.
    looked: usize,
}

struct Adds<'q> {
    wish: Wish,
    value: Option<u32>,
    place: Option<u64>,
    adding: Polled<'q, Result<Accepted, Rejected>>,
    count: Arc<Count>,
    looked: usize,
}

struct Drains<'q> {
    id: DrainId,
    drain: Polled<'q, Drained>,
    count: Arc<Count>,
    looked: Option<usize>,
}

impl Drains<'_> {
    fn is_woken(&self) -> bool {
        self.looked.is_none_or(|looked| self.count.wakes() > looked)
    }
}

struct Step<'q, A: Adapter> {
    q: &'q Subject<A>,
    clock: TestClock,
    metrics: Arc<Metered>,
    model: Model,
    setup: Setup,
    guards: Vec<(A::Held<'q>, Run)>,
    batches: Vec<(A::Many<'q>, Vec<Run>)>,
    waits: Vec<Waits<'q, A>>,
    drains: Vec<Drains<'q>>,
    adds: Vec<Adds<'q>>,
    dropped: Dropped,
    values: u32,
    walk: Option<Walk>,
}

/// A snapshot that is read while other things happen.
struct Walk {
    from: u32,
    told: Vec<u64>,
    /// The keys that were known all the time since it began.
    there: Vec<u64>,
}

/// Runs `steps`. The flag of each step decides whether the whole state is compared after it, because a
/// comparison may itself bring the queue up to date.
///
/// # Panics
///
/// If the queue and the model differ.
pub fn run<A: Adapter>(setup: Setup, steps: &[(Op, bool)]) {
    let on = |debounce: &Debounce| !debounce.quiet().is_zero() && !debounce.longest().is_zero();
    let setup = Setup { debounce: setup.debounce.filter(on), ..setup };
    // that of the user's own has none
    let expire_after = setup.expire_after.filter(|_| !setup.own_limiter).map(Duration::from_nanos);
    let exponential = Exponential { base: BASE, max: MAX, expire_after };
    let metrics = Metered::new();
    let own = requeue::limiter::Exponential::new(BASE, MAX).expect("a limiter");
    let dropped = Dropped::default();
    let drops = setup.drop_oldest && setup.bound.is_some() && setup.order != model::Order::Custom;
    let q = Subject::<A>::with(Config {
        order: match setup.order {
            model::Order::Fifo => Line::Fifo,
            model::Order::Lifo => Line::Lifo,
            model::Order::Custom => Line::Own(Box::new(Smallest::default())),
            model::Order::Fair(fair) => Line::Fair(fair),
            model::Order::Priority { max_wait } => Line::Priority(max_wait),
        },
        rate: setup.rate,
        absorbed: setup.absorbed,
        unfinished_retries: setup.unfinished_retries,
        in_backoff: setup.in_backoff,
        debounce: setup.debounce,
        bound: setup.bound,
        dropped: drops.then(|| dropped.clone()),
        limiter: setup.own_limiter.then(|| Limiter(Arc::new(own))),
        exponential: Some(exponential),
        metrics: setup.metered.then(|| Arc::clone(&metrics)),
        ..Config::default()
    });
    let options = Options {
        order: setup.order,
        rate: setup.rate,
        absorbed: setup.absorbed,
        unfinished_retries: setup.unfinished_retries,
        in_backoff: setup.in_backoff,
        debounce: setup.debounce.map(debounce),
        bound: setup.bound,
        drop_oldest: drops,
        base: nanos(BASE),
        max: nanos(MAX),
        expire_after: expire_after.map(nanos),
    };
    let mut both = Step {
        q: &q,
        clock: q.clock.clone(),
        metrics,
        model: Model::new(options),
        setup,
        guards: Vec::new(),
        batches: Vec::new(),
        waits: Vec::new(),
        drains: Vec::new(),
        adds: Vec::new(),
        dropped,
        values: 0,
        walk: None,
    };
    for (op, look) in steps {
        both.step(*op);
        both.walk_on();
        both.same_dropped();
        both.wakes();
        if *look {
            both.look();
        }
    }
    both.look();
    // Whatever is left ends without a panic, guards before queues.
    both.drop_guards();
    both.take_unfinished();
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

fn items(value: Option<&Value>) -> Option<Vec<u32>> {
    value.map(|value| value.items.clone())
}

impl<'q, A: Adapter> Step<'q, A> {
    /// The model for a call that is a look.
    fn model(&mut self) -> &mut Model {
        self.model.look(self.clock.at().as_nanos());
        &mut self.model
    }

    /// The model for a call that is no look, and that reads the clock for itself, or only
    /// for metrics or because keys grow old, or because groups have rates.
    fn holding(&mut self, reads: bool) -> &mut Model {
        let ages = match self.setup.order {
            model::Order::Priority { max_wait } => max_wait.is_some(),
            model::Order::Fair(fair) => fair.priorities && fair.max_wait.is_some() || fair.is_rated(),
            _ => false,
        };
        let reads = reads || self.setup.metered || ages || self.setup.debounce.is_some();
        self.model.hold(reads.then(|| self.clock.at().as_nanos()));
        &mut self.model
    }

    /// Drops all guards, each separately.
    fn drop_guards(&mut self) {
        for (guard, run) in std::mem::take(&mut self.guards) {
            self.dropping().drop_guard(&run);
            drop(guard);
        }
        for (guards, runs) in std::mem::take(&mut self.batches) {
            runs.iter().for_each(|run| self.dropping().drop_guard(run));
            drop(guards);
        }
    }

    /// The model for guards that are dropped.
    fn dropping(&mut self) -> &mut Model {
        self.holding(self.setup.unfinished_retries)
    }

    /// The state that a look would find now, without looking.
    fn peek(&self) -> Model {
        let mut model = self.model.clone();
        model.look(self.clock.at().as_nanos());
        model
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Trigger(wish) => self.trigger(wish),
            Op::TriggerMany(batch, len) => {
                let batch = &batch[..len];
                // one of the batch may drop a key for room that a later one makes known again
                if let (true, Some(walk)) = (self.setup.drop_oldest, &mut self.walk) {
                    walk.there.retain(|key| batch.iter().all(|wish| wish.key != *key));
                }
                self.trigger_many(batch);
            }
            Op::AddRef(key) => {
                let expected = self.holding(false).add(key, None, None, 0, None).ok();
                let added = sound(self.q.queue.add_ref(&key.into())).ok();
                assert_eq!(added, expected, "add_ref");
            }
            Op::TryGet => {
                let expected = self.model().try_get();
                let found = self.q.try_get();
                self.handed_out(found, expected);
            }
            Op::TryGetMany(most) => {
                let expected = self.model().get_many(most);
                let found = self.q.try_get_many(most);
                self.handed_out_many(found, expected);
            }
            Op::EndMany(index, word) => {
                if !self.batches.is_empty() {
                    let (items, runs) = self.batches.remove(index % self.batches.len());
                    self.end_many(items, runs, word);
                }
            }
            Op::End(index, word) => {
                if !self.guards.is_empty() {
                    let (guard, run) = self.guards.remove(index % self.guards.len());
                    self.end(guard, run, word);
                }
            }
            Op::Done(key) => {
                let expected = self.holding(false).done(key);
                assert_eq!(self.q.done(key), expected, "done by key");
            }
            Op::Forget(key) => {
                self.holding(false).forget(key);
                self.q.forget(key);
            }
            Op::Page(most) => self.page(most),
            Op::Snapshot(most, only) => {
                let expected = self.known_as(only);
                let told = self.q.snapshot(most, only);
                assert_eq!(told, expected, "the keys of a snapshot, {only:?}");
            }
            Op::Restore(wish, failures, attempt, due) => {
                // a limiter that counts by itself takes none
                let failures = if self.setup.own_limiter { 0 } else { failures };
                let (wish, value) = self.wish(wish);
                let Wish { key, priority, .. } = wish;
                let known = model::Restored { failures, attempt, due, priority };
                let expected = self.holding(due.is_some() || failures > 0).restore(key, known, value);
                let known = Restored { failures, attempt, due: due.map(Instant::from_nanos), priority };
                let restored = self.q.restore(key, known, value.map(Value::of));
                same_answer(restored, expected, wish, value);
            }
            Op::Cancel(key, forget) => {
                let expected = self.model().cancel(key, forget);
                let took = if forget { self.q.cancel_and_forget(key) } else { self.q.cancel(key) };
                let took = took.map(|took| model::Cancelled {
                    ready: took.ready,
                    dirty: took.dirty,
                    due: took.due.map(Instant::as_nanos),
                    unfinished: took.unfinished,
                    value: items(took.value.as_ref()),
                });
                assert_eq!(took, expected, "cancel");
            }
            Op::Pause(true) => {
                let expected = self.model().pause();
                assert_eq!(self.q.pause(), expected, "pause");
            }
            Op::Pause(false) => {
                let expected = self.model().resume();
                assert_eq!(self.q.resume(), expected, "resume");
            }
            Op::LiftRate => {
                let expected = self.model().lift_rate();
                assert_eq!(self.q.lift_rate(), expected, "lift_rate");
            }
            Op::PauseKey(key, true) => {
                let expected = self.model().pause_key(key);
                assert_eq!(self.q.pause_key(key), expected, "pause_key");
            }
            Op::PauseKey(key, false) => {
                let expected = self.model().resume_key(key);
                assert_eq!(self.q.resume_key(key), expected, "resume_key");
            }
            Op::PauseGroup(key, true) => {
                let expected = self.model().pause_group(key);
                assert_eq!(self.q.pause_group(key), expected, "pause_group");
            }
            Op::PauseGroup(key, false) => {
                let expected = self.model().resume_group(key);
                assert_eq!(self.q.resume_group(key), expected, "resume_group");
            }
            Op::TakeValue(index) => {
                if !self.guards.is_empty() {
                    let index = index % self.guards.len();
                    let (guard, run) = &mut self.guards[index];
                    assert_eq!(items(guard.take_value().as_ref()), run.value.take(), "take_value");
                }
            }
            Op::Advance(by) => self.clock.advance(Duration::from_nanos(by)),
            Op::Get => {
                let getting = Getting::One(self.q.getting());
                self.wait(getting);
            }
            Op::GetMany(most) => {
                let getting = Getting::Many(most, self.q.queue.getting_many(most));
                self.wait(getting);
            }
            Op::AddWhenRoom(wish) => {
                if self.adds.len() < 4 {
                    let (wish, value) = self.wish(wish);
                    let adding = self.q.adding(said(wish, value));
                    self.adds.push(Adds { wish, value, place: None, adding, count: Count::new(), looked: 0 });
                    self.poll_adder(self.adds.len() - 1);
                }
            }
            Op::PollAdder(index) => {
                if !self.adds.is_empty() {
                    self.poll_adder(index % self.adds.len());
                }
            }
            Op::LeaveAdder(index) => {
                if !self.adds.is_empty() {
                    let mut adds = self.adds.remove(index % self.adds.len());
                    self.model.leave_room(&mut adds.place);
                }
            }
            Op::Poll(index) => {
                if !self.waits.is_empty() {
                    self.poll(index % self.waits.len());
                }
            }
            Op::Leave(index) => {
                if !self.waits.is_empty() {
                    drop(self.waits.remove(index % self.waits.len()));
                }
            }
            Op::Close => {
                self.holding(false).close();
                self.q.close();
            }
            Op::ShutDown => {
                let expected = self.model().shut_down();
                assert_eq!(self.q.shut_down(), expected, "shut_down");
            }
            Op::Drain(waiters, deadline) => self.drain(waiters, deadline),
            Op::LeaveDrain(index) => {
                if !self.drains.is_empty() {
                    drop(self.drains.remove(index % self.drains.len()));
                }
            }
            Op::TakeUnfinished => self.take_unfinished(),
        }
    }

    /// The keys of a snapshot. The failures are compared only if the queue counts them.
    fn known_as(&mut self, only: Option<Only>) -> Vec<u64> {
        let counts = !self.setup.own_limiter;
        let model = self.model();
        let known = model.known().into_iter().filter(|(key, failures)| {
            let seen = model.state(*key);
            let failed = counts && *failures > 0;
            match only {
                None => seen.is_some() || failed,
                Some(Only::Ready) => seen.is_some_and(|seen| seen.ready),
                Some(Only::Held) => seen.is_some_and(|seen| seen.held),
                Some(Only::Dirty) => seen.is_some_and(|seen| seen.dirty),
                Some(Only::Waiting) => seen.is_some_and(|seen| seen.due.is_some()),
                Some(Only::Paused) => seen.is_some_and(|seen| seen.paused),
                Some(Only::GroupPaused) => (seen.is_some() || failed) && model.is_in_paused_group(*key),
                Some(_) => failed,
            }
        });
        known.map(|(key, _)| key).collect()
    }

    /// Which keys were known all the time, after a step.
    fn walk_on(&mut self) {
        let now = self.clock.at().as_nanos();
        let counts = !self.setup.own_limiter;
        if let Some(walk) = &mut self.walk {
            let mut model = self.model.clone();
            let before = model.known();
            model.look(now);
            let known = |known: &[(u64, u32)], model: &Model, key: u64| {
                known.iter().any(|(other, failures)| {
                    *other == key && (model.state(key).is_some() || counts && *failures > 0)
                })
            };
            walk.there.retain(|key| known(&before, &self.model, *key) && known(&model.known(), &model, *key));
        }
    }

    fn page(&mut self, most: usize) {
        let there = self.known_as(None);
        let mut walk = self.walk.take().unwrap_or(Walk { from: 0, told: Vec::new(), there });
        let page = self.q.page(walk.from, most, None);
        assert_eq!(page.totals, self.model().counts(), "totals of the page's instant");
        for (key, state, _) in page.keys {
            let expected = self.model().state(key).map(seen);
            let group_paused = self.model().is_in_paused_group(key);
            let expected = expected.unwrap_or(Seen { group_paused, ..Seen::default() });
            assert_eq!(state, expected, "key {key} in a page");
            walk.told.push(key);
        }
        let times = |key: &u64| walk.told.iter().filter(|told| *told == key).count();
        assert!(walk.there.iter().all(|key| times(key) <= 1), "told twice: {:?}", walk.told);
        match page.next {
            Some(next) => self.walk = Some(Walk { from: next, ..walk }),
            None => {
                assert!(walk.there.iter().all(|key| times(key) == 1), "missed one of {:?}", walk.there);
            }
        }
    }

    fn wait(&mut self, getting: Getting<'q, A>) {
        if self.waits.len() < 4 {
            self.waits.push(Waits { getting, count: Count::new(), looked: 0 });
            self.poll(self.waits.len() - 1);
        }
    }

    fn trigger(&mut self, wish: Wish) {
        let (wish, value) = self.wish(wish);
        let expected = self.expect_trigger(wish, value);
        let added = self.q.say(said(wish, value));
        same_answer(added, expected, wish, value);
    }

    fn trigger_many(&mut self, batch: &[Wish]) {
        let resets = |wish: &Wish| wish.when.parts().1.unwrap_or(self.setup.in_backoff) == InBackoff::Reset;
        let limited = |wish: &Wish| wish.when.parts().0 == When::RateLimited;
        // a limiter of the user's own is asked before the hold, and told of resets after it
        if self.setup.own_limiter && batch.iter().any(resets) && batch.iter().any(limited) {
            return;
        }
        let triggers: Vec<_> = batch.iter().map(|wish| self.wish(*wish)).collect();
        let expected: Vec<_> =
            triggers.iter().map(|(wish, value)| self.expect_trigger(*wish, *value)).collect();
        let added = self.q.trigger_many(triggers.iter().map(|(wish, value)| said(*wish, *value)).collect());
        assert_eq!(added.len(), expected.len(), "an answer for each trigger");
        for ((added, expected), (wish, value)) in added.into_iter().zip(expected).zip(triggers) {
            same_answer(added, expected, wish, value);
        }
    }

    /// A trigger that is drawn, as this queue can have it, and its value.
    fn wish(&mut self, wish: Wish) -> (Wish, Option<u32>) {
        self.values += 1;
        let has_priorities = match self.setup.order {
            model::Order::Priority { .. } => true,
            model::Order::Fair(fair) => fair.priorities,
            _ => false,
        };
        let priority = if has_priorities { wish.priority } else { 0 };
        let debounce = wish.debounce.filter(|_| wish.when.parts().0 == When::Now);
        (Wish { priority, debounce, ..wish }, wish.valued.then_some(self.values))
    }

    fn expect_trigger(&mut self, wish: Wish, value: Option<u32>) -> Result<Accepted, model::Refused> {
        let model = self.holding(wish.is_timed());
        expect(model, wish, value)
    }

    fn poll_adder(&mut self, index: usize) {
        let mut adds = self.adds.remove(index);
        adds.looked = adds.count.wakes();
        let (wish, value) = (adds.wish, adds.value);
        let model = self.holding(wish.is_timed());
        let expected =
            model.when_room(&mut adds.place, wish.key, wish.priority, |model| expect(model, wish, value));
        match (adds.count.poll(&mut adds.adding), expected) {
            (Poll::Ready(added), Some(expected)) => same_answer(sound(added), expected, wish, value),
            (Poll::Pending, None) => self.adds.insert(index, adds),
            (Poll::Ready(added), None) => panic!("there is no room, but the trigger says {added:?}"),
            (Poll::Pending, Some(expected)) => panic!("the trigger waits for room, and {expected:?} was due"),
        }
    }

    /// Checks that both dropped the same keys for room.
    fn same_dropped(&mut self) {
        let mut told = self.dropped.lock().expect("nobody panicked");
        let told: Vec<_> = told.drain(..).map(|(key, value)| (key, items(value.as_ref()))).collect();
        assert_eq!(told, self.model.take_dropped(), "keys that were dropped for room");
    }

    fn handed_out_many(
        &mut self,
        found: Result<A::Many<'q>, Nothing>,
        expected: Result<Vec<Run>, model::Nothing>,
    ) {
        match (found, expected) {
            (Ok(items), Ok(runs)) => {
                let keys: Vec<u64> = runs.iter().map(|run| run.key).collect();
                assert_eq!(items.keys(), keys, "keys handed out together");
                // the state of each item by itself is checked when they are split
                self.batches.push((items, runs));
            }
            (Err(nothing), Err(expected)) => assert_eq!(nothing, none(expected)),
            (Ok(items), Err(expected)) => panic!("{expected:?} expected, but {:?} came", items.keys()),
            (Err(nothing), Ok(runs)) => panic!("{nothing:?}, but {runs:?} are to be handed out"),
        }
    }

    fn end_many(&mut self, items: A::Many<'q>, runs: Vec<Run>, word: WordMany) {
        match word {
            WordMany::Succeed if runs.iter().all(|run| self.model.holds(run)) => {
                runs.iter().for_each(|run| self.holding(false).succeed(run));
                sound(items.succeed());
            }
            WordMany::Done | WordMany::Succeed => {
                runs.iter().for_each(|run| self.holding(false).end(run));
                sound(items.done());
            }
            WordMany::Drop => {
                runs.iter().for_each(|run| self.dropping().drop_guard(run));
                drop(items);
            }
            WordMany::Unwind(0) => {
                runs.iter().for_each(|run| self.holding(false).put_back(run, false));
                unwind_through(items);
            }
            WordMany::Unwind(most) => {
                let inside = self.take_out(items.singles(), runs, most);
                inside.1.iter().for_each(|run| self.holding(false).put_back(run, false));
                unwind_through(inside.0);
            }
            WordMany::Singles => self.apart(items, runs, usize::MAX),
            WordMany::Some(most) => self.apart(items, runs, most),
            WordMany::Next(most) => {
                if runs.is_empty() {
                    return;
                }
                runs.iter().for_each(|run| self.model().end(run));
                let expected = self.model().get_many(most);
                let mut next = items.nexting(most);
                match Count::new().poll(&mut next) {
                    Poll::Pending => {
                        assert_eq!(expected, Err(model::Nothing::Empty), "done and get the next");
                    }
                    Poll::Ready(found) => {
                        self.handed_out_many(sound(found).ok_or(Nothing::ShutDown), expected);
                    }
                }
            }
        }
    }

    fn apart(&mut self, items: A::Many<'q>, runs: Vec<Run>, most: usize) {
        let (singles, dropped) = self.take_out(items.singles(), runs, most);
        dropped.iter().for_each(|run| self.dropping().drop_guard(run));
        drop(singles);
    }

    /// Takes this many runs out of a batch. Returns the rest of it.
    fn take_out<I: Iterator<Item = A::Held<'q>>>(
        &mut self,
        mut singles: I,
        mut runs: Vec<Run>,
        most: usize,
    ) -> (I, Vec<Run>) {
        let left = runs.split_off(most.min(runs.len()));
        for run in runs {
            self.handed_out(Ok(singles.next().expect("one for each run")), Ok(run));
        }
        (singles, left)
    }

    fn handed_out(&mut self, found: Result<A::Held<'q>, Nothing>, expected: Result<Run, model::Nothing>) {
        match (found, expected) {
            (Ok(guard), Ok(run)) => {
                let handed = (guard.key().id, items(guard.value()), guard.attempt(), guard.priority());
                assert_eq!(
                    handed,
                    (run.key, run.value.clone(), run.attempt, run.priority),
                    "key, value, attempt and priority handed out"
                );
                self.guards.push((guard, run));
            }
            (Err(nothing), Err(expected)) => assert_eq!(nothing, none(expected)),
            (Ok(guard), Err(expected)) => {
                panic!("{expected:?} expected, but {:?} was handed out", guard.key())
            }
            (Err(nothing), Ok(run)) => panic!("{nothing:?}, but key {} is to be handed out", run.key),
        }
    }

    fn end(&mut self, guard: A::Held<'q>, run: Run, word: Word) {
        // A refused word gives the guard back, and the run goes on.
        let mut back = None;
        match word {
            Word::Done => {
                self.holding(false).end(&run);
                sound(guard.done());
            }
            // Whether an inert guard may still forget is not said.
            Word::Succeed => {
                if self.model.holds(&run) {
                    self.holding(false).succeed(&run);
                    sound(guard.succeed());
                }
            }
            Word::GiveUp => {
                if self.model.holds(&run) {
                    self.holding(false).give_up(&run);
                    sound(guard.give_up());
                }
            }
            Word::PutBack => {
                self.holding(false).put_back(&run, true);
                sound(guard.put_back());
            }
            Word::Retry => {
                let expected = self.holding(true).retry(&run, None).map(Duration::from_nanos);
                let answer = sound(guard.retry()).map_err(|guard| back = Some(guard));
                assert_eq!(answer.ok(), expected.ok(), "retry");
            }
            Word::RetryAfter(delay) => {
                let expected = self.holding(true).retry(&run, Some(delay)).map(Duration::from_nanos);
                let answer =
                    sound(guard.retry_after(Duration::from_nanos(delay))).map_err(|guard| back = Some(guard));
                assert_eq!(answer.ok(), expected.ok(), "retry_after");
            }
            Word::RequeueAfter(delay) => {
                let expected = self.holding(true).again(&run, delay);
                let answer =
                    sound(guard.again(Duration::from_nanos(delay))).map_err(|guard| back = Some(guard));
                assert_eq!(answer.ok(), expected.ok(), "again");
            }
            Word::Drop => {
                self.dropping().drop_guard(&run);
                drop(guard);
            }
            Word::Detach => {
                self.holding(false);
                let (key, value) = sound(guard.detach());
                assert_eq!((key.id, items(value.as_ref())), (run.key, run.value.clone()), "detach");
            }
            Word::Next => {
                self.model().end(&run);
                let expected = self.model().try_get();
                let mut next = guard.nexting();
                match Count::new().poll(&mut next) {
                    Poll::Pending => {
                        assert_eq!(expected, Err(model::Nothing::Empty), "done and get the next");
                    }
                    Poll::Ready(found) => self.handed_out(sound(found).ok_or(Nothing::ShutDown), expected),
                }
            }
        }
        if let Some(guard) = back {
            assert_eq!(
                (guard.key().id, items(guard.value())),
                (run.key, run.value.clone()),
                "what comes back"
            );
            self.guards.push((guard, run));
        }
    }

    fn poll(&mut self, index: usize) {
        let mut waits = self.waits.remove(index);
        waits.looked = waits.count.wakes();
        match &mut waits.getting {
            Getting::One(getting) => {
                let expected = self.model().try_get();
                if let Poll::Ready(found) = waits.count.poll(getting) {
                    return self.handed_out(sound(found).ok_or(Nothing::ShutDown), expected);
                }
                assert_eq!(expected, Err(model::Nothing::Empty), "get waits");
            }
            Getting::Many(most, getting) => {
                let expected = self.model().get_many(*most);
                if let Poll::Ready(found) = waits.count.poll(getting) {
                    return self.handed_out_many(sound(found).ok_or(Nothing::ShutDown), expected);
                }
                assert_eq!(expected, Err(model::Nothing::Empty), "get of many waits");
            }
        }
        self.waits.insert(index, waits);
    }

    fn drain(&mut self, waiters: Waiters, deadline: Option<u64>) {
        let id = self.model().drain(waiters, deadline);
        let drain = self.q.queue.drain(waiters, deadline.map(Duration::from_nanos));
        self.drains.push(Drains { id, drain, count: Count::new(), looked: None });
    }
}

impl<A: Adapter> Step<'_, A> {
    /// Takes the list of unfinished keys, but those that a guard still reads.
    fn take_unfinished(&mut self) {
        let singles = self.guards.iter().map(|(_, run)| run.key);
        let batches = self.batches.iter().flat_map(|(_, runs)| runs.iter().map(|run| run.key));
        let lent: Vec<u64> = singles.chain(batches).collect();
        let counts = !self.setup.own_limiter;
        let expected = self.model().take_unfinished(counts, |key| lent.contains(&key));
        let expected: Vec<_> = expected.into_iter().map(unfinished).collect();
        assert_eq!(self.q.take_unfinished(), expected, "the list of unfinished keys");
    }

    /// Checks that each waiter with a reason to be woken was woken.
    fn wakes(&mut self) {
        let (ready, over) = {
            let model = self.peek();
            (model.servable(), model.is_over())
        };
        if !self.waits.is_empty() {
            let woken = self.waits.iter().any(|waits| waits.count.wakes() > waits.looked);
            assert!(
                ready == 0 || woken,
                "{ready} keys may be handed out, somebody waits, and nobody was woken"
            );
            // The first waiter that is woken may have to wake the others.
            if over {
                while let Some(index) = self.waits.iter().position(|waits| waits.count.wakes() > waits.looked)
                {
                    self.poll(index);
                }
                assert!(self.waits.is_empty(), "the queue is over, and somebody who waits was not told");
            }
        }
        // so many of those who wait for room as there is room for
        let model = self.peek();
        let room = if model.shutting_down() { usize::MAX } else { model.room().unwrap_or(usize::MAX) };
        for adds in &self.adds {
            let first = adds.place.is_none_or(|place| model.adders_before(place) < room);
            let woken = adds.count.wakes() > adds.looked;
            assert!(!first || woken, "there is room, and who waits was not woken");
        }
        // Drains look when they are woken, as on an executor, so that one of them
        // may tell the others.
        while let Some(index) = self.drains.iter().position(Drains::is_woken) {
            let id = self.drains[index].id;
            let expected = self.model().drained(id);
            let Drains { drain, count, looked, .. } = &mut self.drains[index];
            *looked = Some(count.wakes());
            match (count.poll(drain), expected) {
                (Poll::Pending, None) => {}
                (Poll::Pending, Some(answer)) => panic!("the drain is over, and still waits: {answer:?}"),
                (Poll::Ready(answer), None) => panic!("the drain is not over, but says {answer:?}"),
                (Poll::Ready(answer), Some(expected)) => {
                    assert_eq!(sound(answer), expected);
                    self.drains.remove(index);
                }
            }
        }
        for index in 0..self.drains.len() {
            let id = self.drains[index].id;
            let waits = self.peek().drained(id).is_none();
            assert!(waits, "a drain is over and was not told");
        }
    }

    /// Compares everything that can be seen from outside.
    fn look(&mut self) {
        let counts = self.model().counts();
        assert_eq!(self.q.counts(), counts, "stats");
        assert_eq!(self.q.len(), counts.ready, "len");
        assert_eq!(self.q.is_empty(), counts.ready == 0, "is_empty");
        assert_eq!(self.q.room(), self.model().room(), "room");
        for key in 0..KEYS {
            let expected = self.model().state(key).map(seen);
            assert_eq!(self.q.state(key), expected, "state of key {key}");
            let expected = self.model().is_group_paused(key);
            assert_eq!(self.q.is_group_paused(key), expected, "group of key {key}");
            assert_eq!(
                self.q.num_requeues(key),
                self.holding(true).num_requeues(key),
                "num_requeues of key {key}"
            );
        }
        if self.setup.metered {
            let gauges = self.metrics.all_gauges().expect("the queue is there");
            let gauges = model::Gauges {
                keys: model::Counts {
                    ready: gauges.depth,
                    held: gauges.held,
                    dirty: gauges.dirty,
                    waiting: gauges.waiting,
                },
                oldest_ready: nanos(gauges.oldest_ready),
                unfinished: nanos(gauges.unfinished_work),
                longest: nanos(gauges.longest_running),
            };
            assert_eq!(gauges, self.model().gauges(), "gauges");
            assert_eq!(self.metrics.depths(), self.model().depths(), "depth by priority");
            assert_eq!(self.metrics.groups(), self.model().groups(), "groups");
            let told = self.metrics.told();
            let all = |durations: &[Duration]| durations.iter().map(|d| nanos(*d)).collect();
            let told = model::Told {
                adds: told.adds,
                retries: told.retries,
                waited: all(&told.waited),
                worked: all(&told.worked),
                ends: told.ends.into_iter().map(end).collect(),
                coalesced: told.coalesced,
                fired: told.late.len() as u64,
            };
            assert_eq!(&told, self.model().told(), "what the metrics were told");
        }
        assert_eq!(self.q.shutting_down(), self.model().shutting_down(), "shutting_down");
        assert_eq!(self.q.is_paused(), self.model().is_paused(), "is_paused");
        for (guard, run) in &self.guards {
            let seen = (guard.key().id, items(guard.value()), guard.attempt(), guard.priority());
            let expected = (run.key, run.value.clone(), run.attempt, run.priority);
            assert_eq!(seen, expected, "a guard that is out");
        }
    }
}

/// The model's answer to a trigger.
fn expect(model: &mut Model, wish: Wish, value: Option<u32>) -> Result<Accepted, model::Refused> {
    let Wish { key, when, priority, debounce, .. } = wish;
    ask(model, key, when, value, priority, debounce)
}

/// Lets a panic unwind through something, without a message.
pub fn unwind_through<T>(something: T) {
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _inside = something;
        resume_unwind(Box::new(()));
    }));
    assert!(unwound.is_err());
}

fn said(Wish { key, when, priority, debounce, .. }: Wish, value: Option<u32>) -> Said {
    Said::from((key.into(), when, value.map(Value::of))).priority(priority).debounce(debounce)
}

/// Compares the answer to a trigger; a refused one brings everything back.
fn same_answer(
    added: Result<Accepted, Rejected>,
    expected: Result<Accepted, model::Refused>,
    Wish { key, when, .. }: Wish,
    value: Option<u32>,
) {
    if let Err(back) = &added {
        assert_eq!(back.full, expected == Err(model::Refused::Full), "whether the queue is full");
        assert_eq!(
            (back.key.id, items(back.value.as_ref())),
            (key, value.map(|v| vec![v])),
            "what comes back"
        );
    }
    assert_eq!(added.ok(), expected.ok(), "{when:?}");
}

fn none(expected: model::Nothing) -> Nothing {
    match expected {
        model::Nothing::Empty => Nothing::Empty,
        model::Nothing::ShutDown => Nothing::ShutDown,
    }
}

fn end(end: RunEnd) -> model::End {
    match end {
        RunEnd::Done => model::End::Done,
        RunEnd::Again => model::End::Again,
        RunEnd::Retry => model::End::Retry,
        RunEnd::GiveUp => model::End::GiveUp,
        other => panic!("a run ended as {other:?}"),
    }
}

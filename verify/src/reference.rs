//! The reference model behind the suite's adapter: a mutex and a list of
//! wakers, everybody woken at every change.
//!
//! So the suite checks the model, and the model and the suite cannot read the contract differently. It has no
//! limiter but its own, no metrics and no users' code: the rules about these run against the library only.

use crate::adapter::{
    Accepted, Adapter, Cancelled, Config, Counts, Down, Drained, Dropped, Fallible, Held, LeftOut, Line,
    Many, Nothing, Page, Policy, Polled, Rejected, Restored, Said, Seen, TestClock, UnfinishedKey, Waiters,
    When,
};
use crate::model::{self, Model, Run};
use crate::probe::{Key, Value};
use crate::wake::block_on;
use requeue::{Alarm, Clock, Instant, Only};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A queue that is the model.
#[derive(Clone)]
pub struct Reference {
    handle: Arc<Handle>,
}

/// Dropping the last handle is `shut_down`; waiting calls and guards are not handles.
struct Handle(Arc<Shared>);

struct Shared {
    model: Mutex<Model>,
    clock: TestClock,
    waiting: Mutex<Vec<Waker>>,
    dropped: Option<Dropped>,
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reference")
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.change(Model::shut_down);
    }
}

impl Shared {
    fn look(&self) -> MutexGuard<'_, Model> {
        let now = self.clock.now();
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        model.look(now.as_nanos());
        model
    }

    /// The model for a call that is no look.
    fn hold(&self) -> MutexGuard<'_, Model> {
        let now = self.clock.now();
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        model.hold(Some(now.as_nanos()));
        model
    }

    /// A call that is a look.
    fn change<T>(&self, step: impl FnOnce(&mut Model) -> T) -> T {
        let answer = step(&mut self.look());
        self.changed(answer)
    }

    /// A call that is no look.
    fn change_holding<T>(&self, step: impl FnOnce(&mut Model) -> T) -> T {
        let answer = step(&mut self.hold());
        self.changed(answer)
    }

    fn changed<T>(&self, answer: T) -> T {
        let dropped = self.model.lock().unwrap_or_else(PoisonError::into_inner).take_dropped();
        if let (Some(told), false) = (&self.dropped, dropped.is_empty()) {
            let dropped = dropped.into_iter().map(|(key, value)| (key, value.map(value_of)));
            told.lock().unwrap_or_else(PoisonError::into_inner).extend(dropped);
        }
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        waiting.into_iter().for_each(Waker::wake);
        answer
    }

    /// Asks `step` until it has an answer, woken by changes and by the clock.
    fn poll<T>(
        &self,
        context: &mut Context<'_>,
        alarm: &mut Option<Alarm>,
        until: Option<Instant>,
        step: impl FnOnce(&mut Model) -> Option<T>,
    ) -> Poll<T> {
        let waker = context.waker();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(waker.clone());
        let mut model = self.look();
        let answer = step(&mut model);
        let due = [until, model.next_due().map(Instant::from_nanos)].into_iter().flatten().min();
        drop(model);
        if let Some(answer) = answer {
            self.change(|_| ());
            return Poll::Ready(answer);
        }
        *alarm = due.map(|at| self.clock.wake_at(at, waker));
        Poll::Pending
    }
}

/// `get` of one key, or of several at once.
fn get<T>(
    shared: Arc<Shared>,
    limit: Option<Duration>,
    take: impl Fn(&mut Model) -> Result<T, model::Nothing> + Send,
) -> impl Future<Output = Fallible<Result<(Arc<Shared>, T), Nothing>>> + Send {
    let until = limit.map(|limit| shared.clock.at() + limit);
    let mut alarm = None;
    poll_fn(move |context| {
        let passed = until.is_some_and(|at| at <= shared.clock.at());
        let found = shared.poll(context, &mut alarm, until, |model| match take(model) {
            Ok(run) => Some(Ok(run)),
            Err(model::Nothing::ShutDown) => Some(Err(Nothing::ShutDown)),
            Err(model::Nothing::Empty) if passed => Some(Err(Nothing::TimedOut)),
            Err(model::Nothing::Empty) => None,
        });
        found.map(|found| Ok(found.map(|taken| (Arc::clone(&shared), taken))))
    })
}

fn hand((shared, run): (Arc<Shared>, Run)) -> Hand<'static> {
    Hand::new(&shared, run)
}

fn hands((shared, runs): (Arc<Shared>, Vec<Run>)) -> Hands<'static> {
    Hands(runs.into_iter().map(|run| Hand::new(&shared, run)).collect())
}

/// Runs of the model that were handed out together, as a batch and as its iterator.
pub struct Hands<'q>(VecDeque<Hand<'q>>);

impl<'q> Iterator for Hands<'q> {
    type Item = Hand<'q>;
    fn next(&mut self) -> Option<Hand<'q>> {
        self.0.pop_front()
    }
}

impl Drop for Hands<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.for_each(|hand| hand.end(|model, run| model.put_back(run, false)));
        }
    }
}

impl fmt::Debug for Hands<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hands({:?})", self.0)
    }
}

impl<'q> Many<'q> for Hands<'q> {
    type One = Hand<'q>;

    fn keys(&self) -> Vec<u64> {
        self.0.iter().map(|hand| hand.key.id).collect()
    }
    fn take_value(&mut self, index: usize) -> Option<Value> {
        self.0[index].take_value()
    }
    fn singles(self) -> impl Iterator<Item = Hand<'q>> {
        self
    }
    fn done(mut self) -> Fallible<()> {
        self.try_for_each(Hand::done)
    }
    fn succeed(mut self) -> Fallible<()> {
        self.try_for_each(Hand::succeed)
    }
    fn next(self, most: usize) -> Fallible<Option<Self>> {
        block_on(self.nexting(most))
    }
    fn nexting(self, most: usize) -> Polled<'q, Option<Self>> {
        let shared = Arc::clone(&self.0.front().expect("the suite ends no empty batch").shared);
        let mut ending = Some(self);
        let mut getting = Box::pin(get(shared, None, move |model| model.get_many(most)));
        Box::pin(poll_fn(move |context| {
            if let Some(ended) = ending.take() {
                ended.done()?;
            }
            getting.as_mut().poll(context).map(|found| Ok(found?.ok().map(hands)))
        }))
    }
}

/// A run of the model as a guard.
pub struct Hand<'q> {
    shared: Arc<Shared>,
    run: Option<Run>,
    key: Key,
    value: Option<Value>,
    queue: PhantomData<&'q ()>,
}

impl fmt::Debug for Hand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hand({:?})", self.run)
    }
}

impl Hand<'_> {
    fn new(shared: &Arc<Shared>, run: Run) -> Self {
        let value = run.value.clone().map(value_of);
        Self { shared: Arc::clone(shared), key: run.key.into(), value, run: Some(run), queue: PhantomData }
    }

    fn end<T>(mut self, step: impl FnOnce(&mut Model, &Run) -> T) -> T {
        let mut run = self.run.take().expect("a guard ends once");
        run.value = self.value.take().map(|value| value.items.clone());
        self.shared.change_holding(|model| step(model, &run))
    }

    fn may_end<T>(
        mut self,
        step: impl FnOnce(&mut Model, &Run) -> Result<T, model::Refused>,
    ) -> Result<T, Self> {
        let mut run = self.run.take().expect("a guard ends once");
        run.value = self.value.as_ref().map(|value| value.items.clone());
        let answer = self.shared.change_holding(|model| step(model, &run));
        answer.map_err(|_| {
            self.run = Some(run);
            self
        })
    }
}

fn value_of(items: Vec<u32>) -> Value {
    let mut value = Value::default();
    value.items = items;
    value
}

impl Drop for Hand<'_> {
    fn drop(&mut self) {
        if let Some(mut run) = self.run.take() {
            run.value = self.value.take().map(|value| value.items.clone());
            self.shared.change_holding(|model| model.drop_guard(&run));
        }
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Adapter for Reference {
    type Held<'q> = Hand<'q>;
    type Many<'q> = Hands<'q>;

    fn leaves_out() -> &'static [LeftOut] {
        const LEFT_OUT: &[LeftOut] = &[LeftOut {
            why: "the model wakes everybody at every change, and runs no users' code",
            tests: &[
                "b6_who_waits_is_woken_when_the_token_is_there",
                "b6_a_key_that_comes_before_its_token_wakes_who_waits_at_the_token",
                "b6_a_paused_queue_wakes_nobody_for_a_token",
                "b7_a_pause_in_which_users_code_panics_changes_nothing",
                "b7_who_waits_sleeps_through_a_pause_and_a_resume_wakes_as_many_as_there_are_keys",
            ],
        }];
        LEFT_OUT
    }

    fn build(config: Config) -> Fallible<Self> {
        let order = match config.order {
            Line::Fifo => model::Order::Fifo,
            Line::Lifo => model::Order::Lifo,
            Line::Own(_) => model::Order::Custom,
            Line::Fair(fair) => model::Order::Fair(fair),
            Line::Priority(max_wait) => model::Order::Priority { max_wait },
        };
        let options = model::Options {
            order,
            rate: config.rate,
            absorbed: config.absorbed,
            unfinished_retries: config.unfinished_retries,
            in_backoff: config.in_backoff,
            debounce: config.debounce.map(debounce),
            bound: config.bound,
            drop_oldest: config.dropped.is_some(),
            base: config.exponential.map_or(1_000_000, |limiter| nanos(limiter.base)),
            max: config.exponential.map_or(1_000_000_000_000, |limiter| nanos(limiter.max)),
            expire_after: config.exponential.and_then(|limiter| limiter.expire_after).map(nanos),
        };
        let shared = Shared {
            model: Mutex::new(Model::new(options)),
            clock: config.clock,
            waiting: Mutex::default(),
            dropped: config.dropped,
        };
        Ok(Self { handle: Arc::new(Handle(Arc::new(shared))) })
    }

    fn trigger(&self, said: Said) -> Fallible<Result<Accepted, Rejected>> {
        Ok(self.handle.0.change_holding(|model| trigger(model, said)))
    }

    fn trigger_many(&self, batch: Vec<Said>) -> Fallible<Vec<Result<Accepted, Rejected>>> {
        let answer = self
            .handle
            .0
            .change_holding(|model| batch.into_iter().map(|said| trigger(model, said)).collect());
        Ok(answer)
    }

    fn add_ref(&self, key: &Key) -> Fallible<Result<Accepted, ()>> {
        Ok(self.handle.0.change_holding(|model| model.add(key.id, None, None, 0, None)).map_err(drop))
    }

    fn forget(&self, key: &Key) -> Fallible<()> {
        self.handle.0.change_holding(|model| model.forget(key.id));
        Ok(())
    }

    fn num_requeues(&self, key: &Key) -> Fallible<u32> {
        Ok(self.handle.0.hold().num_requeues(key.id))
    }

    fn get(&self) -> Fallible<Option<Hand<'_>>> {
        Ok(block_on(get(Arc::clone(&self.handle.0), None, Model::try_get))?.ok().map(hand))
    }

    fn get_timeout(&self, limit: Duration) -> Fallible<Result<Hand<'_>, Nothing>> {
        Ok(block_on(get(Arc::clone(&self.handle.0), Some(limit), Model::try_get))?.map(hand))
    }

    fn try_get(&self) -> Fallible<Result<Hand<'_>, Nothing>> {
        let run = self.handle.0.change(Model::try_get);
        Ok(match run {
            Ok(run) => Ok(Hand::new(&self.handle.0, run)),
            Err(model::Nothing::Empty) => Err(Nothing::Empty),
            Err(model::Nothing::ShutDown) => Err(Nothing::ShutDown),
        })
    }

    fn getting(&self) -> Polled<'_, Option<Hand<'_>>> {
        let get = get(Arc::clone(&self.handle.0), None, Model::try_get);
        Box::pin(async move { Ok(get.await?.ok().map(hand)) })
    }

    fn getting_timeout(&self, limit: Duration) -> Polled<'_, Result<Hand<'_>, Nothing>> {
        let get = get(Arc::clone(&self.handle.0), Some(limit), Model::try_get);
        Box::pin(async move { Ok(get.await?.map(hand)) })
    }

    fn get_many(&self, most: usize) -> Fallible<Option<Hands<'_>>> {
        let get = get(Arc::clone(&self.handle.0), None, move |model| model.get_many(most));
        Ok(block_on(get)?.ok().map(hands))
    }

    fn get_many_timeout(&self, most: usize, limit: Duration) -> Fallible<Result<Hands<'_>, Nothing>> {
        let get = get(Arc::clone(&self.handle.0), Some(limit), move |model| model.get_many(most));
        Ok(block_on(get)?.map(hands))
    }

    fn try_get_many(&self, most: usize) -> Fallible<Result<Hands<'_>, Nothing>> {
        let runs = self.handle.0.change(|model| model.get_many(most));
        Ok(match runs {
            Ok(runs) => Ok(hands((Arc::clone(&self.handle.0), runs))),
            Err(model::Nothing::Empty) => Err(Nothing::Empty),
            Err(model::Nothing::ShutDown) => Err(Nothing::ShutDown),
        })
    }

    fn getting_many(&self, most: usize) -> Polled<'_, Option<Hands<'_>>> {
        let get = get(Arc::clone(&self.handle.0), None, move |model| model.get_many(most));
        Box::pin(async move { Ok(get.await?.ok().map(hands)) })
    }

    fn done(&self, key: &Key) -> Fallible<bool> {
        Ok(self.handle.0.change_holding(|model| model.done(key.id)))
    }

    fn len(&self) -> Fallible<usize> {
        Ok(self.handle.0.look().len())
    }

    fn is_empty(&self) -> Fallible<bool> {
        Ok(self.handle.0.look().is_empty())
    }

    fn counts(&self) -> Fallible<Counts> {
        Ok(self.handle.0.look().counts())
    }

    fn state(&self, key: &Key) -> Fallible<Option<Seen>> {
        Ok(self.handle.0.look().state(key.id).map(seen))
    }

    fn page(&self, from: u32, most: usize, only: Option<Only>) -> Fallible<Page> {
        let model = self.handle.0.look();
        let known = model.known().into_iter();
        let known =
            known.map(|(key, failures)| (key, model.state(key).map(seen).unwrap_or_default(), failures));
        let wanted = known.filter(|(key, seen, failures)| {
            *key >= u64::from(from)
                && match only {
                    Some(Only::Ready) => seen.ready,
                    Some(Only::Held) => seen.held,
                    Some(Only::Dirty) => seen.dirty,
                    Some(Only::Waiting) => seen.due.is_some(),
                    Some(Only::Failed) => *failures > 0,
                    Some(Only::GroupPaused) => seen.group_paused,
                    _ => true,
                }
        });
        let mut keys: Vec<_> = wanted.take(most.max(1) + 1).collect();
        let more = keys.len() > most.max(1);
        let next = more.then(|| keys.pop()).flatten();
        let next = next.map(|(key, ..)| u32::try_from(key).expect("the suite's keys are small"));
        Ok(Page { keys, totals: model.counts(), next })
    }

    fn restore(
        &self,
        key: Key,
        known: Restored,
        value: Option<Value>,
    ) -> Fallible<Result<Accepted, Rejected>> {
        let Restored { failures, attempt, due, priority } = known;
        let known = model::Restored { failures, attempt, due: due.map(Instant::as_nanos), priority };
        let item = value.as_ref().map(|value| value.items[0]);
        let answer = self.handle.0.change_holding(|model| model.restore(key.id, known, item));
        Ok(answer.map_err(|refused| Rejected { key, value, full: refused == model::Refused::Full }))
    }

    fn adding(&self, said: Said, limit: Option<Duration>) -> Polled<'_, Result<Accepted, Rejected>> {
        let mut place = Place { shared: Arc::clone(&self.handle.0), ticket: None };
        let until = limit.map(|limit| self.handle.0.clock.at() + limit);
        let (mut said, mut alarm) = (Some(said), None);
        Box::pin(poll_fn(move |context| {
            let Place { shared, ticket } = &mut place;
            let passed = until.is_some_and(|at| at <= shared.clock.at());
            let Some(Said { key, priority, .. }) = &said else { return Poll::Pending };
            let (key, priority) = (key.id, *priority);
            let answer = shared.poll(context, &mut alarm, until, |model| {
                let answer = model.when_room(ticket, key, priority, |model| {
                    trigger(model, said.take().expect("not answered yet"))
                });
                if answer.is_none() && passed {
                    model.leave_room(ticket);
                    let Said { key, value, .. } = said.take()?;
                    return Some(Err(Rejected { key, value, full: true }));
                }
                answer
            });
            answer.map(Ok)
        }))
    }

    fn add_wait(&self, said: Said, limit: Option<Duration>) -> Fallible<Result<Accepted, Rejected>> {
        block_on(self.adding(said, limit))
    }

    fn room(&self) -> Fallible<Option<usize>> {
        Ok(self.handle.0.look().room())
    }

    fn pause(&self, pause: bool) -> Fallible<bool> {
        Ok(self.handle.0.change(|model| if pause { model.pause() } else { model.resume() }))
    }

    fn lift_rate(&self) -> Fallible<bool> {
        Ok(self.handle.0.change(Model::lift_rate))
    }

    fn is_paused(&self) -> Fallible<bool> {
        Ok(self.handle.0.hold().is_paused())
    }

    fn pause_key(&self, key: Key) -> Fallible<bool> {
        Ok(self.handle.0.change(|model| model.pause_key(key.id)))
    }

    fn resume_key(&self, key: &Key) -> Fallible<bool> {
        Ok(self.handle.0.change(|model| model.resume_key(key.id)))
    }

    fn pause_group(&self, key: &Key, pause: bool) -> Fallible<bool> {
        let call = if pause { Model::pause_group } else { Model::resume_group };
        Ok(self.handle.0.change(|model| call(model, key.id)))
    }

    fn is_group_paused(&self, key: &Key) -> Fallible<bool> {
        Ok(self.handle.0.look().is_group_paused(key.id))
    }

    fn cancel(&self, key: &Key, forget: bool) -> Fallible<Option<Cancelled>> {
        let cancelled = self.handle.0.change(|model| model.cancel(key.id, forget));
        Ok(cancelled.map(|model::Cancelled { ready, dirty, due, unfinished, value }| Cancelled {
            unfinished,
            ready,
            dirty,
            due: due.map(Instant::from_nanos),
            value: value.map(value_of),
        }))
    }

    fn close(&self) -> Fallible<()> {
        self.handle.0.change_holding(Model::close);
        Ok(())
    }

    fn shutting_down(&self) -> Fallible<bool> {
        Ok(self.handle.0.hold().shutting_down())
    }

    fn shut_down(&self) -> Fallible<Down> {
        Ok(self.handle.0.change(Model::shut_down))
    }

    fn drain(&self, waiters: Waiters, deadline: Option<Duration>) -> Polled<'_, Drained> {
        let shared = Arc::clone(&self.handle.0);
        let until = deadline.map(|limit| shared.clock.at() + limit);
        let id = shared.change(|model| model.drain(waiters, deadline.map(nanos)));
        let mut alarm = None;
        Box::pin(poll_fn(move |context| {
            shared.poll(context, &mut alarm, until, |model| model.drained(id)).map(Ok)
        }))
    }

    fn take_unfinished(&self) -> Fallible<Vec<UnfinishedKey>> {
        let list = self.handle.0.change(|model| model.take_unfinished(true, |_| false));
        Ok(list.into_iter().map(unfinished).collect())
    }

    fn drain_wait(&self, waiters: Waiters, deadline: Option<Duration>) -> Fallible<Drained> {
        block_on(self.drain(waiters, deadline))
    }
}

/// A place among the callers that wait for room.
struct Place {
    shared: Arc<Shared>,
    ticket: Option<u64>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let ticket = &mut self.ticket;
        if ticket.is_some() {
            self.shared.change_holding(|model| model.leave_room(ticket));
        }
    }
}

fn trigger(model: &mut Model, said: Said) -> Result<Accepted, Rejected> {
    let Said { key, when, value, priority, debounce } = said;
    let answer = ask(model, key.id, when, value.as_ref().map(|value| value.items[0]), priority, debounce);
    answer.map_err(|refused| Rejected { key, value, full: refused == model::Refused::Full })
}

/// The model's answer to a trigger.
pub(crate) fn ask(
    model: &mut Model,
    key: u64,
    when: When,
    value: Option<u32>,
    priority: i16,
    debounced: Option<requeue::Debounce>,
) -> Result<Accepted, model::Refused> {
    let (plain, in_backoff) = when.parts();
    match plain {
        When::RateLimited => model.add_rate_limited(key, value, in_backoff, priority),
        When::After(delay, policy) => {
            let policy = match policy {
                Policy::Earliest => model::Policy::Earliest,
                Policy::Latest(max) => model::Policy::Latest(nanos(max)),
                Policy::Replace => model::Policy::Replace,
                Policy::Keep => model::Policy::Keep,
            };
            model.add_after(key, nanos(delay), policy, value, in_backoff, priority)
        }
        _ => model.add(key, value, in_backoff, priority, debounced.map(debounce)),
    }
}

/// A debounce in the model's words.
pub(crate) fn debounce(debounce: requeue::Debounce) -> model::Debounce {
    let (quiet, max) = (nanos(debounce.quiet()), nanos(debounce.longest()));
    model::Debounce { quiet, max, leading: debounce.is_leading() }
}

/// A key's state in the suite's words.
pub(crate) fn seen(state: model::Seen) -> Seen {
    let model::Seen { ready, held, dirty, due, paused, group_paused } = state;
    Seen { ready, held, dirty, due: due.map(Instant::from_nanos), paused, group_paused }
}

/// A key of the model's list.
pub(crate) fn unfinished(left: model::Unfinished) -> UnfinishedKey {
    let model::Unfinished { key, value, failures, attempt, due, priority, refused } = left;
    UnfinishedKey { key, value, failures, attempt, due: due.map(Instant::from_nanos), priority, refused }
}

impl<'q> Held<'q> for Hand<'q> {
    type Owned = Hand<'static>;

    fn key(&self) -> &Key {
        &self.key
    }
    fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }
    fn take_value(&mut self) -> Option<Value> {
        self.value.take()
    }
    fn attempt(&self) -> u32 {
        self.run.as_ref().map_or(0, |run| run.attempt)
    }
    fn priority(&self) -> i16 {
        self.run.as_ref().map_or(0, |run| run.priority)
    }
    fn done(self) -> Fallible<()> {
        self.end(Model::end);
        Ok(())
    }
    fn succeed(self) -> Fallible<()> {
        self.end(Model::succeed);
        Ok(())
    }
    fn retry(self) -> Fallible<Result<Duration, Self>> {
        Ok(self.may_end(|model, run| model.retry(run, None)).map(Duration::from_nanos))
    }
    fn retry_after(self, delay: Duration) -> Fallible<Result<Duration, Self>> {
        Ok(self.may_end(|model, run| model.retry(run, Some(nanos(delay)))).map(Duration::from_nanos))
    }
    fn again(self, delay: Duration) -> Fallible<Result<(), Self>> {
        Ok(self.may_end(|model, run| model.again(run, nanos(delay))))
    }
    fn give_up(self) -> Fallible<()> {
        self.succeed()
    }
    fn put_back(self) -> Fallible<()> {
        self.end(|model, run| model.put_back(run, true));
        Ok(())
    }
    fn next(self) -> Fallible<Option<Self>> {
        block_on(self.nexting())
    }
    fn nexting(self) -> Polled<'q, Option<Self>> {
        // The run ends at the first poll, or with the future.
        let mut ending = Some(self);
        let shared = ending.as_ref().map(|hand| Arc::clone(&hand.shared)).expect("just put there");
        let mut alarm = None;
        Box::pin(poll_fn(move |context| {
            if let Some(hand) = ending.take() {
                hand.end(Model::end);
            }
            let found = shared.poll(context, &mut alarm, None, |model| match model.try_get() {
                Ok(run) => Some(Some(run)),
                Err(model::Nothing::ShutDown) => Some(None),
                Err(model::Nothing::Empty) => None,
            });
            found.map(|found| Ok(found.map(|run| Hand::new(&shared, run))))
        }))
    }
    fn into_owned(mut self) -> Hand<'static> {
        Hand {
            shared: Arc::clone(&self.shared),
            run: self.run.take(),
            key: self.key.clone(),
            value: self.value.take(),
            queue: PhantomData,
        }
    }
    fn detach(mut self) -> Fallible<(Key, Option<Value>)> {
        self.run = None;
        Ok((self.key.clone(), self.value.take()))
    }
}

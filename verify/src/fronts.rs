//! The library behind the suite's adapter, once for each manner of waiting.
//!
//! One adapter serves all fronts: they differ in how a future of the queue is awaited, and in whether guards
//! borrow the queue.

use crate::adapter::{
    Accepted, Adapter, Cancelled, Config, Counts, Down, Drained, Exponential, Failed, Fair, Fallible, Held,
    InBackoff, Line, Many, MaxWait, Nothing, OwnOrder, Page, Policy, Polled, Rate, Rejected, Restored, Said,
    Seen, UnfinishedKey, Waiters, When,
};
use crate::probe::{Key, Value};
use requeue::{
    Add, AddError, AddWhenRoom, Added, Builder, Debounce, Drain, DrainOptions, Get, GetError, GetMany,
    GroupRules, Item, Items, Only, Order, ReadyOrder, Refused, Scope, Ticket, Timeout, WaitingKeys,
    WorkQueue,
};
use requeue_engine::Op;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

/// How a front waits, and the kind of its guards.
pub trait Manner: Clone + Send + Sync + 'static {
    /// Waits for a key.
    fn get<'q>(get: Get<'q, Key, Value>) -> Option<Item<'q, Key, Value>>;
    /// Waits for a key until a deadline.
    fn get_timeout<'q>(get: Timeout<Get<'q, Key, Value>>) -> Result<Item<'q, Key, Value>, GetError>;
    /// Waits for several keys.
    fn get_many<'q>(get: GetMany<'q, Key, Value>) -> Option<Items<'q, Key, Value>>;
    /// Waits for several keys until a deadline.
    fn get_many_timeout<'q>(get: Timeout<GetMany<'q, Key, Value>>)
    -> Result<Items<'q, Key, Value>, GetError>;
    /// Waits for room.
    fn add(add: AddWhenRoom<'_, Key, Value>) -> Result<Added, AddError<Key, Value>>;
    /// Waits for a call of an engine.
    fn op<T, E>(op: Op<T, E>) -> Result<T, E>;
    /// Waits for a drain.
    fn drain(drain: Drain<'_, Key, Value>) -> requeue::Drained;
    /// Converts a guard to this front's form.
    fn guard<'q>(item: Item<'q, Key, Value>) -> Item<'q, Key, Value> {
        item
    }
    /// Converts guards to this front's form.
    fn guards<'q>(items: Items<'q, Key, Value>) -> Items<'q, Key, Value> {
        items
    }
}

/// Threads: every wait blocks, guards borrow the queue.
#[derive(Clone, Debug)]
pub struct Threads;

impl Manner for Threads {
    fn get<'q>(get: Get<'q, Key, Value>) -> Option<Item<'q, Key, Value>> {
        get.wait()
    }
    fn get_timeout<'q>(get: Timeout<Get<'q, Key, Value>>) -> Result<Item<'q, Key, Value>, GetError> {
        get.wait()
    }
    fn get_many<'q>(get: GetMany<'q, Key, Value>) -> Option<Items<'q, Key, Value>> {
        get.wait()
    }
    fn get_many_timeout<'q>(
        get: Timeout<GetMany<'q, Key, Value>>,
    ) -> Result<Items<'q, Key, Value>, GetError> {
        get.wait()
    }
    fn add(add: AddWhenRoom<'_, Key, Value>) -> Result<Added, AddError<Key, Value>> {
        add.wait()
    }
    fn op<T, E>(op: Op<T, E>) -> Result<T, E> {
        op.wait()
    }
    fn drain(drain: Drain<'_, Key, Value>) -> requeue::Drained {
        drain.wait()
    }
}

/// A manner that awaits on an executor; guards are owned, as tasks want them.
macro_rules! awaits {
    ($(#[$doc:meta])* $name:ident, $block_on:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name;

        impl Manner for $name {
            fn get<'q>(get: Get<'q, Key, Value>) -> Option<Item<'q, Key, Value>> {
                $block_on(get)
            }
            fn get_timeout<'q>(get: Timeout<Get<'q, Key, Value>>) -> Result<Item<'q, Key, Value>, GetError> {
                $block_on(get)
            }
            fn get_many<'q>(get: GetMany<'q, Key, Value>) -> Option<Items<'q, Key, Value>> {
                $block_on(get)
            }
            fn get_many_timeout<'q>(
                get: Timeout<GetMany<'q, Key, Value>>,
            ) -> Result<Items<'q, Key, Value>, GetError> {
                $block_on(get)
            }
            fn add(add: AddWhenRoom<'_, Key, Value>) -> Result<Added, AddError<Key, Value>> {
                $block_on(add)
            }
            fn op<T, E>(op: Op<T, E>) -> Result<T, E> {
                $block_on(op)
            }
            fn drain(drain: Drain<'_, Key, Value>) -> requeue::Drained {
                $block_on(drain)
            }
            fn guard<'q>(item: Item<'q, Key, Value>) -> Item<'q, Key, Value> {
                item.into_owned()
            }
            fn guards<'q>(items: Items<'q, Key, Value>) -> Items<'q, Key, Value> {
                items.into_owned()
            }
        }
    };
}

awaits!(
    /// Async without a runtime.
    Bare,
    crate::wake::block_on
);
awaits!(
    /// Async under tokio's multi-thread runtime.
    Tokio,
    |future| tokio_runtime().block_on(future)
);
awaits!(
    /// Async under smol, with its executor running in another thread.
    Smol,
    |future| smol::block_on(smol_executor().run(future))
);

/// The runtime that all tests of the tokio front share.
pub fn tokio_runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .expect("a runtime without drivers")
    })
}

/// The executor that all tests of the smol front share.
pub fn smol_executor() -> &'static smol::Executor<'static> {
    static EXECUTOR: OnceLock<smol::Executor<'static>> = OnceLock::new();
    EXECUTOR.get_or_init(smol::Executor::new)
}

/// The library's queue, waited for in manner `M`.
pub struct Front<M>(WorkQueue<Key, Value>, PhantomData<M>);

/// Blocking threads.
pub type Blocking = Front<Threads>;
/// Async on a bare `block_on`.
pub type BareAsync = Front<Bare>;
/// Async on tokio.
pub type TokioAsync = Front<Tokio>;
/// Async on smol.
pub type SmolAsync = Front<Smol>;

impl<M> Front<M> {
    /// The queue itself.
    pub fn in_memory(&self) -> &WorkQueue<Key, Value> {
        &self.0
    }
}

impl<M> fmt::Debug for Front<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Front").field(&self.0).finish()
    }
}

impl<M> Clone for Front<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

/// A test's order by key numbers as the library's order by tickets.
pub(crate) struct Ordered {
    order: Box<dyn OwnOrder>,
    tickets: BTreeMap<u64, Ticket>,
}

impl Ordered {
    pub(crate) fn new(order: Box<dyn OwnOrder>) -> Self {
        Self { order, tickets: BTreeMap::new() }
    }
}

impl ReadyOrder<Key> for Ordered {
    fn push(&mut self, key: &Key, ticket: Ticket) {
        self.order.push(key.id);
        self.tickets.insert(key.id, ticket);
    }
    fn touch(&mut self, key: &Key, _: Ticket) {
        self.order.touch(key.id);
    }
    fn pop(&mut self) -> Option<Ticket> {
        let key = self.order.pop()?;
        self.tickets.get(&key).copied()
    }
    fn leave(&mut self, key: &Key, _: Ticket) {
        self.order.left(key.id);
    }
}

/// Guard returned by `get`, waited for in manner `M`.
pub struct Guard<'q, M>(Item<'q, Key, Value>, PhantomData<M>);

impl<M> fmt::Debug for Guard<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

pub(crate) fn guard<'q, M: Manner>(item: Item<'q, Key, Value>) -> Guard<'q, M> {
    Guard(M::guard(item), PhantomData)
}

/// Guards returned by a get of several keys, waited for in manner `M`.
pub struct Guards<'q, M>(Items<'q, Key, Value>, PhantomData<M>);

impl<M> fmt::Debug for Guards<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

pub(crate) fn guards<'q, M: Manner>(items: Items<'q, Key, Value>) -> Guards<'q, M> {
    Guards(M::guards(items), PhantomData)
}

fn rejected(refused: AddError<Key, Value>) -> Rejected {
    Rejected { key: refused.key, value: refused.value, full: refused.reason == Refused::Full }
}

fn answer(answer: Result<Added, AddError<Key, Value>>) -> Fallible<Result<Accepted, Rejected>> {
    match answer {
        Ok(added) => Ok(Ok(accepted(added)?)),
        Err(refused) => Ok(Err(rejected(refused))),
    }
}

impl<M> Front<M> {
    fn when_room(&self, said: Said, limit: Option<Duration>) -> AddWhenRoom<'_, Key, Value> {
        let Said { key, when, value, priority, debounce } = said;
        let add = self.0.add_when_room(key, how(when, value, priority, debounce));
        limit.into_iter().fold(add, AddWhenRoom::timeout)
    }
}

/// Converts a trigger's options to the library's type.
pub(crate) fn how(when: When, value: Option<Value>, priority: i16, debounce: Option<Debounce>) -> Add<Value> {
    let (plain, said) = when.parts();
    let how = match plain {
        When::RateLimited => Add::rate_limited(),
        When::After(delay, Policy::Earliest) => Add::after(delay),
        When::After(delay, Policy::Latest(max)) => Add::after(delay).latest(max),
        When::After(delay, Policy::Replace) => Add::after(delay).replace(),
        When::After(delay, Policy::Keep) => Add::after(delay).keep(),
        _ => debounce.map_or_else(Add::now, Add::debounced),
    };
    let how = said.into_iter().fold(how, |how, said| how.in_backoff(in_backoff(said)));
    let how = how.priority(priority);
    value.into_iter().fold(how, Add::value)
}

/// Converts the option for a back-off to the library's type.
pub(crate) fn in_backoff(said: InBackoff) -> requeue::InBackoff {
    match said {
        InBackoff::Run => requeue::InBackoff::Run,
        InBackoff::Respect => requeue::InBackoff::Respect,
        InBackoff::Reset => requeue::InBackoff::Reset,
    }
}

pub(crate) fn accepted(added: Added) -> Fallible<Accepted> {
    Ok(match added {
        Added::Ready => Accepted::Ready,
        Added::Dirty => Accepted::Dirty,
        Added::Waiting => Accepted::Waiting,
        Added::Coalesced => Accepted::Coalesced,
        other => return Err(Failed(format!("an answer that the suite does not know: {other:?}"))),
    })
}

pub(crate) fn options(waiters: Waiters, deadline: Option<Duration>) -> DrainOptions {
    let options = DrainOptions::default().waiting_keys(match waiters {
        Waiters::Drop => WaitingKeys::Drop,
        Waiters::RunNow => WaitingKeys::RunNow,
        Waiters::Wait => WaitingKeys::Wait,
        Waiters::Retries => WaitingKeys::WaitForRetries,
    });
    match deadline {
        Some(deadline) => options.timeout(deadline),
        None => options,
    }
}

fn count(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

pub(crate) fn seen(state: requeue::KeyState) -> Seen {
    Seen {
        ready: state.ready,
        held: state.held,
        dirty: state.dirty,
        due: state.waiting_until,
        paused: state.paused == Some(requeue::Paused::Key),
        group_paused: state.paused == Some(requeue::Paused::Group),
    }
}

pub(crate) fn counts(stats: requeue::Stats) -> Counts {
    Counts { ready: stats.ready, held: stats.held, dirty: stats.dirty, waiting: stats.waiting }
}

pub(crate) fn cancelled(took: requeue::Cancelled<Value>) -> Cancelled {
    let requeue::Cancelled { ready, dirty, waiting_until, unfinished, value, .. } = took;
    Cancelled { ready, dirty, due: waiting_until, unfinished, value }
}

pub(crate) fn down(left: requeue::ShutDown) -> Down {
    Down {
        ready: left.ready,
        held: left.held,
        dropped: left.dropped,
        refused: count(left.refused),
        refused_retries: count(left.refused_retries),
    }
}

pub(crate) fn drained(answer: requeue::Drained) -> Drained {
    Drained {
        complete: answer.complete,
        unfinished: answer.unfinished,
        done: count(answer.done),
        dropped: count(answer.dropped),
        refused: count(answer.refused),
        refused_retries: count(answer.refused_retries),
        ready: answer.ready,
        held: answer.held,
        waiting: answer.waiting,
    }
}

pub(crate) fn unfinished(list: Vec<requeue::UnfinishedKey<Key, Value>>) -> Vec<UnfinishedKey> {
    let one = |left: requeue::UnfinishedKey<Key, Value>| UnfinishedKey {
        key: left.key.id,
        value: left.value.map(|value| value.items.clone()),
        failures: left.failures,
        attempt: left.attempt,
        due: left.due,
        priority: left.priority,
        refused: left.retry_refused,
    };
    list.into_iter().map(one).collect()
}

pub(crate) fn no_key(error: GetError) -> Nothing {
    match error {
        GetError::Empty => Nothing::TimedOut,
        GetError::ShutDown => Nothing::ShutDown,
    }
}

fn with_groups(builder: Builder<Key, Value>, fair: Fair) -> Builder<Key, Value> {
    let groups = fair.groups;
    let rules = GroupRules::new().weight(move |group: &u64| groups.weight(*group));
    let rules = rules.cap_of(move |group: &u64| groups.cap(*group));
    let rules = match groups.rate {
        Some(rate) => rules.rate(f64::from(rate.keys) * 1e9 / f64::from(rate.nanos), rate.burst),
        None => rules,
    };
    // those of an even number have no name
    let rules = rules.metrics(|group: &u64| (group % 2 == 1).then(|| group.to_string()));
    let mut builder = builder.group_by_with(move |key: &Key| groups.group(key.id), rules);
    if fair.priorities {
        builder = builder.priorities();
    }
    if fair.within {
        builder = builder.priorities_within_groups();
    }
    match fair.max_wait {
        Some(max_wait) => with_max_wait(builder, max_wait),
        None => builder,
    }
}

fn with_max_wait(builder: Builder<Key, Value>, max_wait: MaxWait) -> Builder<Key, Value> {
    builder.max_wait(Duration::from_nanos(max_wait.after)).overdue_every(max_wait.every)
}

/// A builder of a queue with these options.
pub(crate) fn configure(mut builder: Builder<Key, Value>, config: Config) -> Fallible<Builder<Key, Value>> {
    builder = builder.name("under test").clock(config.clock);
    builder = match config.order {
        Line::Fifo => builder,
        Line::Lifo => builder.order(Order::Lifo),
        Line::Own(order) => builder.order(Order::Custom(Box::new(Ordered::new(order)))),
        Line::Priority(None) => builder.priorities(),
        Line::Priority(Some(max_wait)) => with_max_wait(builder.priorities(), max_wait),
        Line::Fair(fair) => with_groups(builder, fair),
    };
    if config.absorbed {
        builder = builder.timers_absorbed(true);
    }
    if config.in_backoff != InBackoff::default() {
        builder = builder.in_backoff(in_backoff(config.in_backoff));
    }
    if let Some(debounce) = config.debounce {
        builder = builder.debounce(debounce);
    }
    if let Some(bound) = config.bound {
        builder = builder.bound(bound);
    }
    if let Some(dropped) = config.dropped {
        builder = builder.drop_oldest(move |key: &Key, value| {
            dropped.lock().unwrap_or_else(PoisonError::into_inner).push((key.id, value));
        });
    }
    if let Some(Rate { keys, nanos, burst }) = config.rate {
        builder = builder.rate(f64::from(keys) * 1e9 / f64::from(nanos), burst);
    }
    if config.unfinished_retries {
        builder = builder.retry_dropped(true);
    }
    // The limiter whose delays the tests without one of their own expect.
    builder = match (config.limiter, config.exponential) {
        (Some(limiter), _) => builder.limiter(limiter),
        (None, Some(Exponential { base, max, expire_after })) => {
            let limiter = requeue::limiter::Exponential::new(base, max);
            let limiter = limiter.map_err(|error| Failed(error.to_string()))?;
            match expire_after {
                Some(after) => builder.limiter(limiter.expire_after(after)),
                None => builder.limiter(limiter),
            }
        }
        (None, None) => builder.limiter(requeue::limiter::default_per_item()),
    };
    if let Some(metrics) = config.metrics {
        builder = builder.metrics(metrics);
    }
    Ok(builder)
}

/// The calls of an adapter that hand out and look: the same ones of the queue in memory and of a durable one.
macro_rules! hands_out_and_looks {
    () => {
        fn num_requeues(&self, key: &Key) -> Fallible<u32> {
            Ok(self.in_memory().num_requeues(key))
        }

        fn get(&self) -> Fallible<Option<Guard<'_, M>>> {
            Ok(M::get(self.0.get()).map(guard))
        }

        fn get_timeout(&self, limit: Duration) -> Fallible<Result<Guard<'_, M>, Nothing>> {
            Ok(M::get_timeout(self.0.get().timeout(limit)).map(guard).map_err(no_key))
        }

        fn try_get(&self) -> Fallible<Result<Guard<'_, M>, Nothing>> {
            Ok(self.0.try_get().map(guard).map_err(|error| match error {
                GetError::Empty => Nothing::Empty,
                GetError::ShutDown => Nothing::ShutDown,
            }))
        }

        fn getting(&self) -> Polled<'_, Option<Guard<'_, M>>> {
            let get = self.0.get();
            Box::pin(async move { Ok(get.await.map(guard)) })
        }

        fn getting_timeout(&self, limit: Duration) -> Polled<'_, Result<Guard<'_, M>, Nothing>> {
            let get = self.0.get().timeout(limit);
            Box::pin(async move { Ok(get.await.map(guard).map_err(no_key)) })
        }

        fn get_many(&self, most: usize) -> Fallible<Option<Guards<'_, M>>> {
            Ok(M::get_many(self.0.get_many(most)).map(guards))
        }

        fn get_many_timeout(&self, most: usize, limit: Duration) -> Fallible<Result<Guards<'_, M>, Nothing>> {
            Ok(M::get_many_timeout(self.0.get_many(most).timeout(limit)).map(guards).map_err(no_key))
        }

        fn try_get_many(&self, most: usize) -> Fallible<Result<Guards<'_, M>, Nothing>> {
            Ok(self.0.try_get_many(most).map(guards).map_err(|error| match error {
                GetError::Empty => Nothing::Empty,
                GetError::ShutDown => Nothing::ShutDown,
            }))
        }

        fn getting_many(&self, most: usize) -> Polled<'_, Option<Guards<'_, M>>> {
            let get = self.0.get_many(most);
            Box::pin(async move { Ok(get.await.map(guards)) })
        }

        fn done(&self, key: &Key) -> Fallible<bool> {
            Ok(self.0.done(key).is_ok())
        }

        fn len(&self) -> Fallible<usize> {
            Ok(self.in_memory().len())
        }

        fn is_empty(&self) -> Fallible<bool> {
            Ok(self.in_memory().is_empty())
        }

        fn counts(&self) -> Fallible<Counts> {
            Ok(counts(self.in_memory().stats()))
        }

        fn state(&self, key: &Key) -> Fallible<Option<Seen>> {
            let Some(state) = self.in_memory().state(key) else { return Ok(None) };
            let seen = seen(state);
            // A key of which only failures are left is as good as unknown here.
            Ok(Some(seen).filter(|seen| Seen { group_paused: false, ..*seen } != Seen::default()))
        }

        fn page(&self, from: u32, most: usize, only: Option<Only>) -> Fallible<Page> {
            let snapshot = self.in_memory().snapshot().page(most).resume(from);
            let mut snapshot = only.into_iter().fold(snapshot, requeue::Snapshot::only);
            let Some(page) = snapshot.next() else {
                return Err(Failed("a snapshot without a page".to_owned()));
            };
            let keys = page.keys.into_iter().map(|(key, state)| (key.id, seen(state), state.failures));
            Ok(Page { keys: keys.collect(), totals: counts(page.totals), next: page.next })
        }

        fn close(&self) -> Fallible<()> {
            self.in_memory().close();
            Ok(())
        }

        fn shutting_down(&self) -> Fallible<bool> {
            Ok(self.in_memory().shutting_down())
        }

        fn shut_down(&self) -> Fallible<Down> {
            Ok(down(self.0.shut_down()))
        }

        fn drain(&self, waiters: Waiters, deadline: Option<Duration>) -> Polled<'_, Drained> {
            let drain = self.0.drain(options(waiters, deadline));
            Box::pin(async move { Ok(drained(drain.await)) })
        }

        fn drain_wait(&self, waiters: Waiters, deadline: Option<Duration>) -> Fallible<Drained> {
            Ok(drained(M::drain(self.0.drain(options(waiters, deadline)))))
        }
    };
}
pub(crate) use hands_out_and_looks;

impl<M: Manner> Adapter for Front<M> {
    type Held<'q> = Guard<'q, M>;
    type Many<'q> = Guards<'q, M>;

    fn take_unfinished(&self) -> Fallible<Vec<UnfinishedKey>> {
        Ok(unfinished(self.0.take_unfinished()))
    }

    fn build(config: Config) -> Fallible<Self> {
        let builder = configure(WorkQueue::merging(Value::merge), config)?;
        let queue = builder.build().map_err(|error| Failed(error.to_string()))?;
        Ok(Self(queue, PhantomData))
    }

    hands_out_and_looks!();

    fn trigger(&self, said: Said) -> Fallible<Result<Accepted, Rejected>> {
        let q = &self.0;
        let Said { key, when, value, priority, debounce } = said;
        let answer = match (when, value, priority) {
            (when, value, priority) if debounce.is_some() => {
                q.add_with(key, how(when, value, priority, debounce))
            }
            (When::Now, None, 0) => q.add(key),
            (When::Now, None, priority) => q.add_with(key, Add::now().priority(priority)),
            (When::Now, Some(value), 0) => q.add_value(key, value),
            (When::After(delay, Policy::Earliest), None, 0) => q.add_after(key, delay),
            (when, value, priority) => q.add_with(key, how(when, value, priority, None)),
        };
        self::answer(answer)
    }

    fn trigger_many(&self, batch: Vec<Said>) -> Fallible<Vec<Result<Accepted, Rejected>>> {
        let is_plain = |said: &Said| {
            !said.is_timed() && said.when == When::Now && said.value.is_none() && said.priority == 0
        };
        let added = if batch.iter().all(is_plain) {
            self.0.add_many(batch.into_iter().map(|said| said.key))
        } else {
            let said = batch.into_iter();
            self.0.add_many_with(
                said.map(|said| (said.key, how(said.when, said.value, said.priority, said.debounce))),
            )
        };
        let seen: Vec<Option<Added>> = added.iter().map(Result::ok).collect();
        let all = added.all().is_ok();
        let apart: Vec<_> = added.into_iter().collect();
        if seen.iter().copied().ne(apart.iter().map(|result| result.as_ref().ok().copied()))
            || all != apart.iter().all(Result::is_ok)
        {
            return Err(Failed("the answers of a batch differ from themselves".to_owned()));
        }
        apart.into_iter().map(answer).collect()
    }

    fn add_ref(&self, key: &Key) -> Fallible<Result<Accepted, ()>> {
        self.0.add_ref(key).map_or(Ok(Err(())), |added| accepted(added).map(Ok))
    }

    fn forget(&self, key: &Key) -> Fallible<()> {
        self.0.forget(key);
        Ok(())
    }

    fn restore(
        &self,
        key: Key,
        known: Restored,
        value: Option<Value>,
    ) -> Fallible<Result<Accepted, Rejected>> {
        let Restored { failures, attempt, due, priority } = known;
        let mut unfinished = requeue::UnfinishedKey::new(key);
        (unfinished.failures, unfinished.attempt, unfinished.priority) = (failures, attempt, priority);
        (unfinished.due, unfinished.value) = (due, value);
        answer(self.0.restore(unfinished))
    }

    fn adding(&self, said: Said, limit: Option<Duration>) -> Polled<'_, Result<Accepted, Rejected>> {
        let add = self.when_room(said, limit);
        Box::pin(async move { answer(add.await) })
    }

    fn add_wait(&self, said: Said, limit: Option<Duration>) -> Fallible<Result<Accepted, Rejected>> {
        answer(M::add(self.when_room(said, limit)))
    }

    fn room(&self) -> Fallible<Option<usize>> {
        Ok(self.0.stats().room)
    }

    fn pause(&self, pause: bool) -> Fallible<bool> {
        Ok(if pause { self.0.pause(Scope::Queue) } else { self.0.resume(Scope::Queue) })
    }

    fn lift_rate(&self) -> Fallible<bool> {
        Ok(self.0.lift_rate())
    }

    fn pause_key(&self, key: Key) -> Fallible<bool> {
        Ok(self.0.pause(Scope::Key(key)))
    }

    fn resume_key(&self, key: &Key) -> Fallible<bool> {
        Ok(self.0.resume(Scope::Key(key)))
    }

    fn pause_group(&self, key: &Key, pause: bool) -> Fallible<bool> {
        Ok(if pause { self.0.pause(Scope::GroupOf(key.clone())) } else { self.0.resume(Scope::GroupOf(key)) })
    }

    fn is_paused(&self) -> Fallible<bool> {
        Ok(self.0.paused(Scope::Queue))
    }

    fn is_group_paused(&self, key: &Key) -> Fallible<bool> {
        Ok(self.0.paused(Scope::GroupOf(key)))
    }

    fn cancel(&self, key: &Key, forget: bool) -> Fallible<Option<Cancelled>> {
        if forget {
            self.0.forget(key);
        }
        Ok(self.0.cancel(key).map(cancelled))
    }
}

impl<'q, M: Manner> Held<'q> for Guard<'q, M> {
    type Owned = Guard<'static, M>;

    fn key(&self) -> &Key {
        self.0.key()
    }
    fn value(&self) -> Option<&Value> {
        self.0.value()
    }
    fn take_value(&mut self) -> Option<Value> {
        self.0.take_value()
    }
    fn attempt(&self) -> u32 {
        self.0.attempt()
    }
    fn priority(&self) -> i16 {
        self.0.priority()
    }
    fn done(self) -> Fallible<()> {
        self.0.done();
        Ok(())
    }
    fn succeed(self) -> Fallible<()> {
        self.0.succeed();
        Ok(())
    }
    fn retry(self) -> Fallible<Result<Duration, Self>> {
        Ok(self.0.retry().map_err(|refused| Self(refused.item, PhantomData)))
    }
    fn retry_after(self, delay: Duration) -> Fallible<Result<Duration, Self>> {
        Ok(self.0.retry_after(delay).map_err(|refused| Self(refused.item, PhantomData)))
    }
    fn again(self, delay: Duration) -> Fallible<Result<(), Self>> {
        Ok(self.0.again(delay).map_err(|refused| Self(refused.item, PhantomData)))
    }
    fn give_up(self) -> Fallible<()> {
        self.0.give_up("hopeless");
        Ok(())
    }
    fn put_back(self) -> Fallible<()> {
        self.0.put_back();
        Ok(())
    }
    fn next(self) -> Fallible<Option<Self>> {
        Ok(M::get(self.0.next()).map(guard))
    }
    fn nexting(self) -> Polled<'q, Option<Self>> {
        let next = self.0.next();
        Box::pin(async move { Ok(next.await.map(guard)) })
    }
    fn into_owned(self) -> Guard<'static, M> {
        Guard(self.0.into_owned(), PhantomData)
    }
    fn detach(self) -> Fallible<(Key, Option<Value>)> {
        Ok(self.0.detach())
    }
}

impl<'q, M: Manner> Many<'q> for Guards<'q, M> {
    type One = Guard<'q, M>;

    fn keys(&self) -> Vec<u64> {
        self.0.iter().map(|item| item.key().id).collect()
    }
    fn take_value(&mut self, index: usize) -> Option<Value> {
        self.0[index].take_value()
    }
    fn singles(self) -> impl Iterator<Item = Guard<'q, M>> {
        self.0.into_iter().map(|item| Guard(item, PhantomData))
    }
    fn done(self) -> Fallible<()> {
        self.0.done();
        Ok(())
    }
    fn succeed(self) -> Fallible<()> {
        self.0.succeed();
        Ok(())
    }
    fn next(self, most: usize) -> Fallible<Option<Self>> {
        Ok(M::get_many(self.0.next(most)).map(guards))
    }
    fn nexting(self, most: usize) -> Polled<'q, Option<Self>> {
        let next = self.0.next(most);
        Box::pin(async move { Ok(next.await.map(guards)) })
    }
}

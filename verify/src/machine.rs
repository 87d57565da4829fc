//! The state machine alone behind the suite's adapter, for the lock-step test: it never waits and wakes
//! nobody. Hashes of its keys collide on purpose.

use crate::adapter::{
    Accepted, Adapter, Cancelled, Config, Counts, Down, Drained, Dropped, Exponential, Failed, Fallible,
    Held, Line, Many, Nothing, Page, Policy, Polled, Rate, Rejected, Restored, Said, Seen, TestClock,
    UnfinishedKey, Waiters, When,
};
use crate::fronts::{Ordered, in_backoff};
use crate::model::{Fair, MaxWait};
use crate::probe::{Key, Value};
use requeue::Clock;
use requeue_core::{
    Bound, Core, Delay, Got, GroupRules, Groups, How, Instant, Limit, Only, Order, RetryDelay, RunRef,
    Trigger, WaitingKeys,
};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

struct Inner {
    core: Mutex<Core<Key, Value>>,
    clock: TestClock,
    limiter: Exponential,
    unfinished_retries: bool,
    /// Whether every call reads the clock, because keys become overdue or there is a rate.
    ages: bool,
    dropped: Option<Dropped>,
    /// Callers that wait for room, in the order in which they began.
    adders: Mutex<BTreeSet<u64>>,
}

/// A queue that is nothing but the state machine.
#[derive(Clone)]
pub struct Machine(Arc<Inner>);

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Machine")
    }
}

/// One of two hashes, so that most keys collide.
fn hash(key: &Key) -> u32 {
    (key.id % 2) as u32
}

impl Inner {
    /// Does what the state machine demands of callers that look: settle until nothing is left to do,
    /// conclude, and take what must be dropped.
    fn with<T>(&self, step: impl FnOnce(&mut Core<Key, Value>) -> T) -> T {
        let now = self.clock.now();
        self.step(
            |core| while core.advance(now) {},
            |core| {
                let answer = step(core);
                while core.advance(now) {}
                answer
            },
        )
    }

    /// Holds the lock for a call that is not a look. `reads`: it reads the clock for a delay.
    fn hold<T>(&self, reads: bool, step: impl FnOnce(&mut Core<Key, Value>) -> T) -> T {
        let reading = (reads || self.ages).then(|| self.clock.now());
        self.step(
            |core| {
                if core.begin(reading) {
                    while reading.is_some_and(|now| core.advance(now)) {}
                }
            },
            step,
        )
    }

    fn step<T>(
        &self,
        before: impl FnOnce(&mut Core<Key, Value>),
        step: impl FnOnce(&mut Core<Key, Value>) -> T,
    ) -> T {
        let mut core: MutexGuard<'_, _> = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        before(&mut core);
        let answer = step(&mut core);
        core.conclude();
        let trash = core.take_trash();
        for (loan, value) in core.take_dropped() {
            if let Some(dropped) = &self.dropped {
                dropped.lock().unwrap_or_else(PoisonError::into_inner).push((loan.get().id, value));
            }
            core.take_back(loan);
        }
        drop(core);
        drop(trash);
        answer
    }

    fn limited<T>(&self, step: impl FnOnce(Limit<'_>) -> T) -> T {
        let Exponential { base, max, expire_after } = self.limiter;
        let delay = |failures: u32, _: Instant| {
            let times = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
            base.saturating_mul(times).min(max)
        };
        step(Limit { delay: &delay, counts: true, expire_after })
    }
}

/// A run of the state machine as a guard.
pub struct Hand<'q> {
    inner: Arc<Inner>,
    run: Option<RunRef<Key>>,
    value: Option<Value>,
    attempt: u32,
    queue: PhantomData<&'q ()>,
}

impl fmt::Debug for Hand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hand({:?})", self.run)
    }
}

impl Hand<'_> {
    /// Ends the run; a refused retry gives the guard back.
    fn end(mut self, how: How<'_>) -> Result<Duration, Self> {
        let Some(run) = self.run.take() else { return Ok(Duration::ZERO) };
        let inner = Arc::clone(&self.inner);
        let goes_back = match how {
            How::Retry(_) => true,
            How::Done => inner.hold(false, |core| core.was_refused(&run)),
            _ => false,
        };
        let value = if goes_back { self.value.take() } else { None };
        let reads = matches!(how, How::Retry(_) | How::Again(_));
        let mut run = Some(run);
        let ended = inner.hold(reads, |core| {
            // as the queue does: fast where that is enough
            if matches!(how, How::Done | How::Succeed) && value.is_none() && core.finish(&mut run).is_some() {
                return None;
            }
            run.map(|run| core.end(run, how, value))
        });
        let Some(ended) = ended else { return Ok(Duration::ZERO) };
        match ended {
            Ok(ended) => Ok(ended.delay),
            Err((run, refused)) => {
                self.run = Some(run);
                self.value = refused.value.or(self.value.take());
                Err(self)
            }
        }
    }
}

impl Drop for Hand<'_> {
    fn drop(&mut self) {
        let Some(run) = self.run.take() else { return };
        let mut hand = Hand {
            inner: Arc::clone(&self.inner),
            run: Some(run),
            value: self.value.take(),
            attempt: self.attempt,
            queue: PhantomData,
        };
        if self.inner.unfinished_retries {
            let inner = Arc::clone(&self.inner);
            match inner.limited(|limit| hand.end(How::Retry(RetryDelay::Limited(limit)))) {
                Ok(_) => return,
                Err(refused) => hand = refused,
            }
        }
        let ended = hand.end(How::Done);
        assert!(ended.is_ok(), "done is never refused");
    }
}

fn trigger(said: Said) -> (u32, Trigger<Key, Value>) {
    let Said { key, when, value, priority, debounce } = said;
    let hash = hash(&key);
    let trigger = Trigger::new(key, value)
        .priority(priority)
        .delay(delay(when))
        .in_backoff(when.parts().1.map(in_backoff))
        .debounce(debounce.filter(|_| when.parts().0 == When::Now));
    (hash, trigger)
}

/// Converts a trigger's delay to the state machine's type.
fn delay(when: When) -> Delay {
    match when.parts().0 {
        When::RateLimited => Delay::Limited(requeue_core::Policy::Earliest),
        When::After(delay, policy) => Delay::After(
            delay,
            match policy {
                Policy::Earliest => requeue_core::Policy::Earliest,
                Policy::Latest(max) => requeue_core::Policy::Latest { max },
                Policy::Replace => requeue_core::Policy::Replace,
                Policy::Keep => requeue_core::Policy::Keep,
            },
        ),
        _ => Delay::Now,
    }
}

/// Adds as the queue does: fast where that is enough.
fn add(
    core: &mut Core<Key, Value>,
    trigger: &mut Trigger<Key, Value>,
    hash: u32,
    limit: Limit<'_>,
) -> Result<requeue_core::Accepted, requeue_core::Refused> {
    let added = if trigger.has_options() { None } else { core.add_now(trigger, hash) };
    match added {
        Some((added, ticket)) => Ok(requeue_core::Accepted { added, delay: Duration::ZERO, ticket }),
        None => core.trigger(trigger, hash, limit),
    }
}

fn answer(
    mut trigger: Trigger<Key, Value>,
    answer: Result<requeue_core::Accepted, requeue_core::Refused>,
) -> Fallible<Result<Accepted, Rejected>> {
    match answer {
        Ok(accepted) => Ok(Ok(crate::fronts::accepted(accepted.added)?)),
        Err(refused) => match trigger.take() {
            (Some(key), value) => {
                Ok(Err(Rejected { key, value, full: refused == requeue_core::Refused::Full }))
            }
            (None, _) => Err(Failed("a refused trigger lost its key".to_owned())),
        },
    }
}

/// A place among the callers that wait for room.
struct Place {
    inner: Arc<Inner>,
    ticket: Option<u64>,
}

impl Place {
    fn adders(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.inner.adders.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn behind(&self) -> usize {
        self.adders().range(..self.ticket.unwrap_or(u64::MAX)).count()
    }
    fn wait(&mut self) {
        if self.ticket.is_none() {
            let next = self.adders().last().map_or(0, |last| last + 1);
            self.adders().insert(next);
            self.ticket = Some(next);
        }
    }
    fn leave(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.adders().remove(&ticket);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

fn bound_on_waiting(MaxWait { after, every }: MaxWait) -> requeue_core::MaxWait {
    requeue_core::MaxWait { after: Duration::from_nanos(after), every }
}

fn fair_order(fair: Fair) -> Order<Key> {
    let Fair { groups, priorities, within, max_wait } = fair;
    let rules = GroupRules::new()
        .weight(move |group: &u64| groups.weight(*group))
        .cap_of(move |group: &u64| groups.cap(*group))
        .exact_rate(groups.rate.map(|rate| requeue_core::Rate {
            per_nano: u64::from(rate.keys),
            token: u128::from(rate.nanos),
            burst: rate.burst,
        }));
    let groups = Groups::by(move |key: &Key| groups.group(key.id), rules, requeue::RandomState::new());
    Order::Fair { groups, priorities, within, max_wait: max_wait.map(bound_on_waiting) }
}

/// Runs that were handed out together, as a batch and as its iterator.
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
            let Some(inner) = self.0.front().map(|hand| Arc::clone(&hand.inner)) else { return };
            let ended = inner.hold(false, |core| {
                let runs = self.0.iter_mut().filter_map(|hand| Some((hand.run.take()?, hand.value.take())));
                runs.map(|(run, value)| core.put_back(run, value, false)).collect::<Vec<_>>()
            });
            drop(ended);
        }
    }
}

impl fmt::Debug for Hands<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hands({:?})", self.0)
    }
}

impl Hands<'_> {
    /// Ends all runs in one hold.
    fn end(mut self, how: How<'_>) {
        let Some(inner) = self.0.front().map(|hand| Arc::clone(&hand.inner)) else { return };
        let runs: Vec<_> = self.0.iter_mut().filter_map(|hand| hand.run.take()).collect();
        let ended: Vec<_> =
            inner.hold(false, |core| runs.into_iter().map(|run| core.end(run, how, None).is_ok()).collect());
        assert!(ended.iter().all(|ended| *ended), "done is never refused");
    }
}

impl<'q> Many<'q> for Hands<'q> {
    type One = Hand<'q>;

    fn keys(&self) -> Vec<u64> {
        self.0.iter().map(|hand| hand.key().id).collect()
    }
    fn take_value(&mut self, index: usize) -> Option<Value> {
        self.0[index].take_value()
    }
    fn singles(self) -> impl Iterator<Item = Hand<'q>> {
        self
    }
    fn done(self) -> Fallible<()> {
        self.end(How::Done);
        Ok(())
    }
    fn succeed(self) -> Fallible<()> {
        self.end(How::Succeed);
        Ok(())
    }
    fn next(self, _: usize) -> Fallible<Option<Self>> {
        Err(Failed("the state machine does not wait".to_owned()))
    }
    fn nexting(self, most: usize) -> Polled<'q, Option<Self>> {
        let machine = Machine(Arc::clone(&self.0.front().expect("a run").inner));
        let mut ending = Some(self);
        Box::pin(poll_fn(move |_| {
            if let Some(hands) = ending.take() {
                // one call, which is a look: what is due fires before the runs end
                machine.0.with(|_| ());
                hands.end(How::Done);
            }
            match machine.try_get_many(most)? {
                Ok(hands) => Poll::Ready(Ok(Some(Hands(hands.map(Hand::into_owned).collect())))),
                Err(Nothing::ShutDown) => Poll::Ready(Ok(None)),
                Err(_) => Poll::Pending,
            }
        }))
    }
}

impl Adapter for Machine {
    type Held<'q> = Hand<'q>;
    type Many<'q> = Hands<'q>;

    fn build(config: Config) -> Fallible<Self> {
        let mut rated = false;
        let order = match config.order {
            Line::Fifo => Order::Fifo,
            Line::Lifo => Order::Lifo,
            Line::Own(order) => Order::Custom(Box::new(Ordered::new(order))),
            Line::Priority(max_wait) => Order::Priority { max_wait: max_wait.map(bound_on_waiting) },
            Line::Fair(fair) => {
                rated = fair.is_rated();
                fair_order(fair)
            }
        };
        let ages = config.rate.is_some()
            || rated
            || config.debounce.is_some()
            || matches!(order, Order::Priority { max_wait: Some(_) } | Order::Fair { max_wait: Some(_), .. });
        let rate = config.rate.map(|Rate { keys, nanos, burst }| requeue_core::Rate {
            per_nano: keys.into(),
            token: nanos.into(),
            burst,
        });
        let core = Core::new(requeue_core::Config {
            order,
            rate,
            merge: Some(Box::new(Value::merge)),
            timers_absorbed: config.absorbed,
            in_backoff: in_backoff(config.in_backoff),
            debounce: config.debounce,
            bound: config.bound.map(|keys| Bound { keys, drop_oldest: config.dropped.is_some() }),
            ..requeue_core::Config::default()
        });
        let limiter = config.exponential.ok_or_else(|| Failed("it counts by itself only".to_owned()))?;
        Ok(Self(Arc::new(Inner {
            core: Mutex::new(core),
            clock: config.clock,
            limiter,
            unfinished_retries: config.unfinished_retries,
            ages,
            dropped: config.dropped,
            adders: Mutex::default(),
        })))
    }

    fn trigger(&self, said: Said) -> Fallible<Result<Accepted, Rejected>> {
        let (hash, mut trigger) = trigger(said);
        let timed = trigger.is_timed();
        let added = self.0.limited(|limit| self.0.hold(timed, |core| add(core, &mut trigger, hash, limit)));
        answer(trigger, added)
    }

    fn trigger_many(&self, batch: Vec<Said>) -> Fallible<Vec<Result<Accepted, Rejected>>> {
        let timed = batch.iter().any(Said::is_timed);
        let mut triggers: Vec<_> = batch.into_iter().map(trigger).collect();
        let added: Vec<_> = self.0.limited(|limit| {
            self.0.hold(timed, |core| {
                let added = triggers.iter_mut();
                added.map(|(hash, trigger)| add(core, trigger, *hash, limit)).collect()
            })
        });
        triggers.into_iter().zip(added).map(|((_, trigger), added)| answer(trigger, added)).collect()
    }

    fn add_ref(&self, key: &Key) -> Fallible<Result<Accepted, ()>> {
        let known = self.0.hold(false, |core| core.add_known(key, hash(key)));
        match known {
            Err(_) => Ok(Err(())),
            Ok(Some(accepted)) => crate::fronts::accepted(accepted.added).map(Ok),
            Ok(None) => Ok(self.trigger((key.clone(), When::Now, None).into())?.map_err(drop)),
        }
    }

    fn forget(&self, key: &Key) -> Fallible<()> {
        drop(self.0.hold(false, |core| core.forget(key, hash(key))));
        Ok(())
    }

    fn num_requeues(&self, key: &Key) -> Fallible<u32> {
        Ok(self.0.hold(true, |core| core.num_requeues(key, hash(key))))
    }

    fn get(&self) -> Fallible<Option<Hand<'_>>> {
        Err(Failed("the state machine does not wait".to_owned()))
    }

    fn get_timeout(&self, _: Duration) -> Fallible<Result<Hand<'_>, Nothing>> {
        Err(Failed("the state machine does not wait".to_owned()))
    }

    fn try_get(&self) -> Fallible<Result<Hand<'_>, Nothing>> {
        Ok(match self.0.with(Core::get) {
            Got::Empty => Err(Nothing::Empty),
            Got::ShutDown => Err(Nothing::ShutDown),
            Got::Item(handout) => Ok(Hand {
                inner: Arc::clone(&self.0),
                run: Some(handout.run),
                value: handout.value,
                attempt: handout.attempt,
                queue: PhantomData,
            }),
        })
    }

    fn get_many(&self, _: usize) -> Fallible<Option<Hands<'_>>> {
        Err(Failed("the state machine does not wait".to_owned()))
    }

    fn get_many_timeout(&self, _: usize, _: Duration) -> Fallible<Result<Hands<'_>, Nothing>> {
        Err(Failed("the state machine does not wait".to_owned()))
    }

    fn try_get_many(&self, most: usize) -> Fallible<Result<Hands<'_>, Nothing>> {
        let mut hands = VecDeque::new();
        let over = self.0.with(|core| {
            core.get_up_to(
                most,
                |_, _| (),
                |handout| {
                    hands.push_back(Hand {
                        inner: Arc::clone(&self.0),
                        run: Some(handout.run),
                        value: handout.value,
                        attempt: handout.attempt,
                        queue: PhantomData,
                    });
                },
            );
            core.is_over()
        });
        Ok(match hands.is_empty() {
            true if over => Err(Nothing::ShutDown),
            true if most > 0 => Err(Nothing::Empty),
            _ => Ok(Hands(hands)),
        })
    }

    fn getting_many(&self, most: usize) -> Polled<'_, Option<Hands<'_>>> {
        Box::pin(poll_fn(move |_| match self.try_get_many(most) {
            Ok(Ok(hands)) => Poll::Ready(Ok(Some(hands))),
            Ok(Err(Nothing::Empty | Nothing::TimedOut)) => Poll::Pending,
            Ok(Err(Nothing::ShutDown)) => Poll::Ready(Ok(None)),
            Err(failed) => Poll::Ready(Err(failed)),
        }))
    }

    /// Tries at each poll. It is never woken.
    fn getting(&self) -> Polled<'_, Option<Hand<'_>>> {
        Box::pin(poll_fn(|_| match self.try_get() {
            Ok(Ok(hand)) => Poll::Ready(Ok(Some(hand))),
            Ok(Err(Nothing::Empty | Nothing::TimedOut)) => Poll::Pending,
            Ok(Err(Nothing::ShutDown)) => Poll::Ready(Ok(None)),
            Err(failed) => Poll::Ready(Err(failed)),
        }))
    }

    fn getting_timeout(&self, _: Duration) -> Polled<'_, Result<Hand<'_>, Nothing>> {
        Box::pin(async { Err(Failed("the state machine does not wait".to_owned())) })
    }

    fn done(&self, key: &Key) -> Fallible<bool> {
        Ok(self.0.hold(false, |core| core.done(key, hash(key)).is_ok()))
    }

    fn len(&self) -> Fallible<usize> {
        Ok(self.0.with(|core| core.len()))
    }

    fn is_empty(&self) -> Fallible<bool> {
        Ok(self.0.with(|core| core.is_empty()))
    }

    fn counts(&self) -> Fallible<Counts> {
        Ok(crate::fronts::counts(self.0.with(|core| core.stats())))
    }

    fn state(&self, key: &Key) -> Fallible<Option<Seen>> {
        let Some(state) = self.0.with(|core| core.state(key, hash(key))) else { return Ok(None) };
        let seen = crate::fronts::seen(state);
        Ok(Some(seen).filter(|seen| Seen { group_paused: false, ..*seen } != Seen::default()))
    }

    fn page(&self, from: u32, most: usize, only: Option<Only>) -> Fallible<Page> {
        let mut told = Vec::new();
        let (next, stats) =
            self.0.with(|core| core.page(from, most.max(1), only, |loan, state| told.push((loan, state))));
        let keys =
            told.iter().map(|(loan, state)| (loan.get().id, crate::fronts::seen(*state), state.failures));
        let keys = keys.collect();
        self.0.hold(false, |core| told.into_iter().for_each(|(loan, _)| core.take_back(loan)));
        Ok(Page { keys, totals: crate::fronts::counts(stats), next })
    }

    fn restore(
        &self,
        key: Key,
        known: Restored,
        value: Option<Value>,
    ) -> Fallible<Result<Accepted, Rejected>> {
        let hash = hash(&key);
        let Restored { failures, attempt, due, priority } = known;
        let mut trigger = Trigger::new(key, value).priority(priority);
        let reads = due.is_some() || failures > 0;
        let known = requeue_core::Restored { failures, attempt, due };
        let restored =
            self.0.limited(|limit| self.0.hold(reads, |core| core.restore(&mut trigger, hash, known, limit)));
        answer(trigger, restored)
    }

    /// Tries at each poll. It is never woken.
    fn adding(&self, said: Said, _: Option<Duration>) -> Polled<'_, Result<Accepted, Rejected>> {
        let (hash, trigger) = trigger(said);
        let mut trigger = Some(trigger);
        let mut place = Place { inner: Arc::clone(&self.0), ticket: None };
        Box::pin(poll_fn(move |_| {
            let Some(mut tried) = trigger.take() else { return Poll::Pending };
            let behind = place.behind();
            let added = self.0.limited(|limit| {
                self.0.hold(tried.is_timed(), |core| {
                    core.behind(behind, |core| add(core, &mut tried, hash, limit))
                })
            });
            if added == Err(requeue_core::Refused::Full) {
                trigger = Some(tried);
                place.wait();
                return Poll::Pending;
            }
            place.leave();
            Poll::Ready(answer(tried, added))
        }))
    }

    fn add_wait(&self, _: Said, _: Option<Duration>) -> Fallible<Result<Accepted, Rejected>> {
        Err(Failed("the state machine does not wait".to_owned()))
    }

    fn room(&self) -> Fallible<Option<usize>> {
        Ok(self.0.with(|core| core.room()))
    }

    fn pause(&self, pause: bool) -> Fallible<bool> {
        Ok(self.0.with(|core| if pause { core.pause() } else { core.resume() }))
    }

    fn lift_rate(&self) -> Fallible<bool> {
        Ok(self.0.with(Core::lift_rate))
    }

    fn is_paused(&self) -> Fallible<bool> {
        Ok(self.0.hold(false, |core| core.is_paused()))
    }

    fn pause_key(&self, key: Key) -> Fallible<bool> {
        let hash = hash(&key);
        let mut key = Some(key);
        Ok(self.0.with(|core| core.pause_key(&mut key, hash)))
    }

    fn resume_key(&self, key: &Key) -> Fallible<bool> {
        let (was, gone) = self.0.with(|core| core.resume_key(key, hash(key)));
        drop(gone);
        Ok(was)
    }

    fn pause_group(&self, key: &Key, pause: bool) -> Fallible<bool> {
        let call = if pause { Core::pause_group } else { Core::resume_group };
        Ok(self.0.with(|core| call(core, key)))
    }

    fn is_group_paused(&self, key: &Key) -> Fallible<bool> {
        Ok(self.0.with(|core| core.is_group_paused(key)))
    }

    fn cancel(&self, key: &Key, forget: bool) -> Fallible<Option<Cancelled>> {
        let (cancelled, gone) = self.0.with(|core| core.cancel(key, hash(key), forget, |_, _| ()));
        drop(gone);
        Ok(cancelled.map(crate::fronts::cancelled))
    }

    fn close(&self) -> Fallible<()> {
        self.0.hold(false, Core::close);
        Ok(())
    }

    fn shutting_down(&self) -> Fallible<bool> {
        Ok(self.0.hold(false, |core| core.shutting_down()))
    }

    fn shut_down(&self) -> Fallible<Down> {
        Ok(crate::fronts::down(self.0.with(Core::shut_down)))
    }

    fn drain(&self, waiters: Waiters, deadline: Option<Duration>) -> Polled<'_, Drained> {
        let waiting = match waiters {
            Waiters::Drop => WaitingKeys::Drop,
            Waiters::RunNow => WaitingKeys::RunNow,
            Waiters::Wait => WaitingKeys::Wait,
            Waiters::Retries => WaitingKeys::WaitForRetries,
        };
        let deadline = deadline.map_or(Instant::NEVER, |limit| self.0.clock.at() + limit);
        let base = self.0.with(|core| core.begin_drain(waiting, deadline));
        Box::pin(poll_fn(move |_| {
            let now = self.0.clock.at();
            self.0.with(|core| {
                if core.drain_is_over(&base) || deadline <= now {
                    return Poll::Ready(Ok(crate::fronts::drained(core.drain_counts(&base))));
                }
                Poll::Pending
            })
        }))
    }

    fn take_unfinished(&self) -> Fallible<Vec<UnfinishedKey>> {
        let mut list = Vec::new();
        self.0.with(|core| core.take_unfinished(0, usize::MAX, |key| list.push(key)));
        Ok(crate::fronts::unfinished(list))
    }

    fn drain_wait(&self, _: Waiters, _: Option<Duration>) -> Fallible<Drained> {
        Err(Failed("the state machine does not wait".to_owned()))
    }
}

impl<'q> Held<'q> for Hand<'q> {
    type Owned = Hand<'static>;

    fn key(&self) -> &Key {
        self.run.as_ref().expect("a guard has its run").key()
    }
    fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }
    fn take_value(&mut self) -> Option<Value> {
        self.value.take()
    }
    fn attempt(&self) -> u32 {
        self.attempt
    }
    fn priority(&self) -> i16 {
        self.run.as_ref().map_or(0, RunRef::priority)
    }
    fn done(self) -> Fallible<()> {
        self.end(How::Done).map(drop).map_err(|_| Failed("done was refused".to_owned()))
    }
    fn succeed(self) -> Fallible<()> {
        self.end(How::Succeed).map(drop).map_err(|_| Failed("succeed was refused".to_owned()))
    }
    fn retry(self) -> Fallible<Result<Duration, Self>> {
        let inner = Arc::clone(&self.inner);
        Ok(inner.limited(|limit| self.end(How::Retry(RetryDelay::Limited(limit)))))
    }
    fn retry_after(self, delay: Duration) -> Fallible<Result<Duration, Self>> {
        let inner = Arc::clone(&self.inner);
        Ok(inner.limited(|limit| self.end(How::Retry(RetryDelay::Instead(limit, delay)))))
    }
    fn again(self, delay: Duration) -> Fallible<Result<(), Self>> {
        Ok(self.end(How::Again(delay)).map(drop))
    }
    fn give_up(self) -> Fallible<()> {
        self.succeed()
    }
    fn put_back(mut self) -> Fallible<()> {
        let (run, value) = (self.run.take(), self.value.take());
        drop(self.inner.hold(false, |core| run.map(|run| core.put_back(run, value, true))));
        Ok(())
    }
    fn next(self) -> Fallible<Option<Self>> {
        Err(Failed("the state machine does not wait".to_owned()))
    }
    fn nexting(self) -> Polled<'q, Option<Self>> {
        let machine = Machine(Arc::clone(&self.inner));
        let mut ending = Some(self);
        Box::pin(poll_fn(move |_| {
            if let Some(mut hand) = ending.take() {
                // one call, which is a look: what is due fires before the run ends
                machine.0.with(|core| {
                    if let Some(run) = &hand.run {
                        core.leave_payload(run, &mut hand.value);
                    }
                });
                hand.value = None;
                hand.done()?;
            }
            match machine.try_get()? {
                Ok(hand) => Poll::Ready(Ok(Some(hand.into_owned()))),
                Err(Nothing::ShutDown) => Poll::Ready(Ok(None)),
                Err(_) => Poll::Pending,
            }
        }))
    }
    fn into_owned(mut self) -> Hand<'static> {
        Hand {
            inner: Arc::clone(&self.inner),
            run: self.run.take(),
            value: self.value.take(),
            attempt: self.attempt,
            queue: PhantomData,
        }
    }
    fn detach(mut self) -> Fallible<(Key, Option<Value>)> {
        let key = self.key().clone();
        let value = self.value.take();
        if let Some(run) = self.run.take() {
            drop(self.inner.hold(false, |core| core.detach(run)));
        }
        Ok((key, value))
    }
}

//! X: mistakes of other queues, as far as they apply here.

use crate::adapter::{
    Accepted, Adapter, Config, Drained, Exponential, Held, Line, Nothing, OwnOrder, Policy, Seen, Subject,
    Waiters, When, ms, sound,
};
use crate::limits::Metered;
use crate::probe::{Key, Probe, Value};
use crate::wake::{Count, poll_once};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

pub fn x01_a_drain_does_not_return_while_ready_keys_are_left<A: Adapter>() {
    let q = Subject::<A>::new();
    for key in 0..3 {
        q.add(key);
    }
    let mut drain = q.drain(Waiters::Drop);
    for key in 0..3 {
        assert!(poll_once(&mut drain).is_pending(), "{} keys are left", 3 - key);
        sound(q.take(key).done());
    }
    assert!(poll_once(&mut drain).is_ready());
}

pub fn x02_drains_and_getters_that_wait_together_all_wake_up<A: Adapter>() {
    for _ in 0..100 {
        let q = Subject::<A>::new();
        q.add(1);
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    while let Some(item) = q.get_or_end() {
                        sound(item.done());
                    }
                });
            }
            s.spawn(|| assert!(q.drain_wait(Waiters::Drop).complete));
            s.spawn(|| assert!(q.drain_wait(Waiters::Drop).complete));
        });
        q.is_over();
    }
}

pub fn x02_shut_down_racing_two_drains_leaves_nobody_asleep<A: Adapter>() {
    for _ in 0..100 {
        let q = Subject::<A>::new();
        q.add(1);
        let one = q.take(1);
        thread::scope(|s| {
            s.spawn(|| q.get_or_end().is_none());
            s.spawn(|| q.drain_wait(Waiters::Wait));
            s.spawn(|| q.drain_wait(Waiters::Drop));
            s.spawn(|| q.shut_down());
            s.spawn(|| sound(one.done()));
        });
        q.shut_down();
        q.is_over();
    }
}

pub fn x03_done_without_get_duplicates_no_entry<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    assert!(!q.done(1));
    q.add(1);
    assert!(!q.done(1));
    q.has(1, 0, 0, 0);
    assert_eq!(q.work_off(), [1]);
}

pub fn x04_a_second_shutdown_does_not_panic<A: Adapter>() {
    let q = Subject::<A>::new();
    q.shut_down();
    q.shut_down();
    assert!(q.drain_wait(Waiters::Drop).complete);
    q.shut_down();
    q.close();
    assert!(q.drain_wait(Waiters::Wait).complete);
    q.is_over();
}

/// Number of drops of a probed key at the end of `life`.
fn dropped<A: Adapter>(q: &Subject<A>, id: u64, life: impl FnOnce(&Subject<A>, Key)) -> usize {
    let probe = Probe::new();
    life(q, Key::probed(id, &probe));
    probe.drop.runs()
}

pub fn x05_a_key_that_was_handed_out_is_referred_to_by_no_buffer<A: Adapter>() {
    for order in [|| Line::Fifo, || Line::Lifo] {
        let q = Subject::<A>::with(Config { order: order(), ..Config::default() });
        // Others before and behind it, so that the line's and the heap's buffers
        // are in use when it leaves them.
        for key in 100..110 {
            q.add(key);
            q.add_after(key, ms(1_000_000));
        }
        let ready = dropped(&q, 1, |q, key| {
            q.add(key);
            q.work_off();
        });
        assert_eq!(ready, 1, "a ready key");
        let waiting = dropped(&q, 2, |q, key| {
            q.add_after(key, ms(5));
            q.clock.advance(ms(5));
            q.work_off();
        });
        assert_eq!(waiting, 1, "a waiting key");
        let again = dropped(&q, 3, |q, key| {
            q.add(key);
            while let Ok(item) = q.try_get() {
                if item.key().id == 3 && item.attempt() == 1 {
                    assert!(sound(item.retry_after(ms(1))).is_ok());
                } else {
                    sound(item.succeed());
                }
            }
            q.clock.advance(ms(1));
            sound(q.take(3).succeed());
        });
        assert_eq!(again, 1, "a retried key");
        let redundant = dropped(&q, 4, |q, key| {
            q.add(4);
            q.add(key);
        });
        assert_eq!(redundant, 1, "a redundant key");
        let own = dropped(&q, 5, |q, key| {
            q.add(key);
            while let Ok(item) = q.try_get() {
                drop(sound(item.detach()));
            }
            assert!(q.done(5));
        });
        assert_eq!(own, 2, "the key and its clone that was detached");
    }
}

pub fn x05_values_and_waiting_keys_that_were_dropped_are_referred_to_by_no_buffer<A: Adapter>() {
    let q = Subject::<A>::new();
    let probes: Vec<_> = (0..20).map(|_| (Probe::new(), Probe::new())).collect();
    for (id, (key, value)) in (0..).zip(&probes) {
        let delay = When::After(ms(5 + id % 3), Policy::Earliest);
        let when = if id % 2 == 0 { When::Now } else { delay };
        q.trigger(Key::probed(id, key), when, Some(Value::probed(1, value))).unwrap();
    }
    q.shut_down();
    q.work_off();
    for (id, (key, value)) in probes.iter().enumerate() {
        assert_eq!((key.drop.runs(), value.drop.runs()), (1, 1), "key {id}");
    }
}

pub fn x06_a_drain_leaves_no_alarm_behind<A: Adapter>() {
    for waiters in [Waiters::Drop, Waiters::RunNow, Waiters::Wait] {
        let q = Subject::<A>::new();
        q.add_after(1, ms(5));
        let mut getting = q.getting();
        assert!(poll_once(&mut getting).is_pending());
        let mut drain = q.queue.drain(waiters, Some(ms(100)));
        let over = poll_once(&mut drain).is_ready();
        q.clock.advance(ms(5));
        drop(poll_once(&mut getting));
        drop(getting);
        q.work_off();
        assert!(over || poll_once(&mut drain).is_ready());
        drop(drain);
        assert_eq!(q.clock.alarms(), 0, "{waiters:?}");
    }
}

pub fn x08_a_timer_is_set_relative_to_the_clock_of_its_call_although_it_moves<A: Adapter>() {
    let exponential = Some(Exponential { base: ms(10), max: ms(100), expire_after: None });
    let q = Subject::<A>::with(Config { exponential, ..Config::default() });
    q.clock.drift(ms(1));
    let now = q.clock.at();
    q.add_after(1, ms(10));
    assert_eq!(q.state(1).and_then(|seen| seen.due), Some(now + ms(10)));
    let now = q.clock.at();
    q.add_rate_limited(2);
    assert_eq!(q.state(2).and_then(|seen| seen.due), Some(now + ms(10)));
}

pub fn x09_get_after_shutdown_does_not_hang<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.shut_down();
    assert_eq!(q.get().key().id, 1);
    for _ in 0..3 {
        assert!(q.get_or_end().is_none());
        assert_eq!(sound(q.queue.get_timeout(ms(1_000_000))).err(), Some(Nothing::ShutDown));
    }
}

pub fn x10_a_wake_up_at_shutdown_that_calls_the_queue_does_not_deadlock<A: Adapter>() {
    let q = Subject::<A>::new();
    let inner = q.clone();
    let count = Count::then(move || {
        inner.shut_down();
        let _ = inner.len();
        inner.is_over();
    });
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    q.shut_down();
    assert_eq!(count.wakes(), 1);
    assert!(count.poll(&mut getting).is_ready());
}

pub fn x11_the_ready_order_may_change_while_it_is_worked_off<A: Adapter>() {
    let q = Subject::<A>::new();
    for key in 0..10 {
        q.add(key);
    }
    let mut runs = Vec::new();
    while let Ok(item) = q.try_get() {
        let key = item.key().id;
        runs.push(key);
        if runs.len() <= 20 {
            q.add(key);
            q.add(key + 100);
            q.add((key + 1) % 10);
        }
        sound(item.done());
    }
    let mut first = runs[..10].to_vec();
    first.sort_unstable();
    assert_eq!(first, (0..10).collect::<Vec<_>>(), "a key was lost or came twice while the line changed");
    q.has(0, 0, 0, 0);
}

pub fn x14_the_depth_gauge_is_len_at_every_step<A: Adapter>() {
    let metrics = Metered::new();
    let q = Subject::<A>::with(Config { metrics: Some(Arc::clone(&metrics)), ..Config::default() });
    let mut held = Vec::new();
    for step in 0..500_u64 {
        match step % 7 {
            0 | 3 => drop(q.trigger(step % 11, When::Now, None)),
            1 => drop(q.trigger(step % 5, When::After(ms(step % 3), Policy::Earliest), None)),
            2 | 4 => held.extend(q.try_get().ok()),
            5 => drop(held.pop()),
            _ => q.clock.advance(ms(1)),
        }
        assert_eq!(metrics.gauges().unwrap().0, q.len(), "step {step}");
        if step == 400 {
            q.shut_down();
        }
    }
    drop(held);
    q.work_off();
    assert_eq!(metrics.gauges().unwrap().0, 0);
}

/// Puts every option of a trigger before every other one: none takes anything from its neighbour.
pub fn x15_the_first_keys_options_do_not_leak_into_the_rest_of_a_batch<A: Adapter>() {
    let all = [
        (When::Now, None),
        (When::Now, Some(1)),
        (When::After(ms(7), Policy::Earliest), None),
        (When::After(ms(7), Policy::Latest(ms(9))), Some(2)),
        (When::After(ms(7), Policy::Replace), None),
        (When::After(ms(7), Policy::Keep), Some(3)),
        (When::After(ms(0), Policy::Keep), None),
        (When::RateLimited, None),
        (When::RateLimited, Some(4)),
    ];
    for first in all {
        for second in all {
            let (together, apart) = (Subject::<A>::new(), Subject::<A>::new());
            for q in [&together, &apart] {
                // a timer there already, for the policies to differ on
                q.add_after(1, ms(20));
                q.add_after(2, ms(3));
            }
            let asked = [(1_u64, first), (2, second), (1, second)];
            let asked = || asked.into_iter().map(|(key, (when, item))| (key, when, item.map(Value::of)));
            let one =
                together.trigger_many(asked().map(|(key, when, value)| (key.into(), when, value)).collect());
            let other: Vec<_> = asked().map(|(key, when, value)| apart.trigger(key, when, value)).collect();
            let accepted =
                |answer: Vec<Result<Accepted, _>>| answer.into_iter().map(Result::ok).collect::<Vec<_>>();
            assert_eq!(accepted(one), accepted(other), "{first:?}, then {second:?}");
            for key in [1, 2] {
                let seen = |q: &Subject<A>| (q.state(key), q.num_requeues(key));
                assert_eq!(seen(&together), seen(&apart), "key {key} of {first:?}, then {second:?}");
            }
            let runs = |q: &Subject<A>| {
                q.clock.advance(ms(30));
                let values = std::iter::from_fn(|| {
                    let item = q.try_get().ok()?;
                    Some((item.key().id, item.value().map(|value| value.items.clone())))
                });
                values.collect::<Vec<_>>()
            };
            assert_eq!(runs(&together), runs(&apart), "{first:?}, then {second:?}");
        }
    }
}

pub fn x19_a_consumer_that_feeds_its_own_queue_does_not_deadlock<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(0);
    let mut runs = 0_u64;
    while let Ok(item) = q.try_get() {
        runs += 1;
        if runs < 3_000 {
            for _ in 0..2 {
                q.add_after(runs, ms(0));
                q.add(runs + 10_000);
                q.add(item.key().id);
            }
        } else {
            q.shut_down();
        }
        sound(item.done());
    }
    assert!(runs >= 3_000);
}

pub fn x20_a_key_does_not_stay_marked_as_scheduled<A: Adapter>() {
    for absorbed in [false, true] {
        let q = Subject::<A>::with(Config { absorbed, ..Config::default() });
        let marks: [fn(&Subject<A>); 6] = [
            |q| assert_eq!(q.add_after(1, ms(5)), Accepted::Waiting),
            |q| assert_eq!(q.add_after_with(1, Duration::MAX, Policy::Keep), Accepted::Waiting),
            |q| assert_eq!(q.add_after_with(1, ms(9), Policy::Latest(ms(20))), Accepted::Waiting),
            |q| assert_eq!(q.add_rate_limited(1), Accepted::Waiting),
            |q| {
                q.add(1);
                assert!(sound(q.take(1).retry()).is_ok());
            },
            |q| {
                q.add(1);
                assert!(sound(q.take(1).again(ms(3))).is_ok());
            },
        ];
        for mark in marks {
            mark(&q);
            // It runs now, and whatever timer is left runs out.
            q.add(1);
            sound(q.take(1).succeed());
            q.add_after_with(1, ms(1), Policy::Replace);
            q.clock.advance(ms(1));
            assert_eq!(q.work_off(), [1], "the key never runs again");
            assert_eq!(q.state(1), None);
        }
    }
}

pub fn x21_a_far_future_delay_does_not_panic<A: Adapter>() {
    let q = Subject::<A>::new();
    let far = [Duration::MAX, Duration::from_secs(u64::MAX / 2), Duration::from_secs(584 * 366 * 86_400)];
    for (key, delay) in (0..).zip(far) {
        q.clock.advance(ms(1));
        assert_eq!(q.add_after(key, delay), Accepted::Waiting);
    }
    let mut getting = q.getting();
    assert!(poll_once(&mut getting).is_pending());
    q.is_idle();
    let mut drain = q.queue.drain(Waiters::Wait, Some(Duration::MAX));
    assert!(poll_once(&mut drain).is_pending());
    assert_eq!(q.shut_down().dropped, 3);
}

pub fn x22_the_next_timer_is_prompt_when_the_soonest_is_replaced<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    q.add_after(2, ms(10));
    let count = Count::new();
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    q.add_after_with(1, ms(1_000), Policy::Replace);
    step_until(&q, &count, &mut getting, ms(10), 2);
}

pub fn x22_the_next_timer_is_prompt_when_the_soonest_is_absorbed<A: Adapter>() {
    let q = Subject::<A>::with(Config { absorbed: true, ..Config::default() });
    q.add_after(1, ms(5));
    q.add_after(2, ms(10));
    let count = Count::new();
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    q.add(1);
    sound(q.take(1).done());
    step_until(&q, &count, &mut getting, ms(10), 2);
}

pub fn x22_the_next_timer_is_prompt_when_the_soonest_is_cancelled<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    q.add_after(2, ms(10));
    let count = Count::new();
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    assert!(q.cancel(1).is_some());
    step_until(&q, &count, &mut getting, ms(10), 2);
}

/// Polls as an executor does, only when woken, and moves the clock by `limit` in
/// steps: by then `key` must have been handed out.
fn step_until<T: HandedOut>(
    q: &Subject<impl Adapter>,
    count: &Arc<Count>,
    getting: &mut (impl Future<Output = T> + Unpin),
    limit: Duration,
    key: u64,
) {
    let mut seen = 0;
    let mut poll = || {
        let woken = count.wakes() > seen;
        seen = count.wakes();
        woken.then(|| count.poll(getting))
    };
    for _ in 0..limit.as_millis() {
        while let Some(poll) = poll() {
            assert!(poll.is_pending(), "before it was due");
        }
        q.clock.advance(ms(1));
    }
    loop {
        match poll() {
            Some(Poll::Ready(item)) => return assert_eq!(item.id(), key),
            Some(Poll::Pending) => {}
            None => panic!("nobody was woken for the timer"),
        }
    }
}

/// The key in the result of a polled get.
pub trait HandedOut {
    fn id(&self) -> u64;
}

impl<'q, H: Held<'q>> HandedOut for crate::adapter::Fallible<Option<H>> {
    fn id(&self) -> u64 {
        match self {
            Ok(Some(item)) => item.key().id,
            _ => panic!("no key"),
        }
    }
}

pub fn x23_the_value_handed_out_is_not_stale<A: Adapter>() {
    let q = Subject::<A>::new();
    for item in 1..=3 {
        q.add_value(1, item);
        q.add_after(1, ms(u64::from(item)));
    }
    let newest = |q: &Subject<A>| q.take(1).value().and_then(|value| value.items.last().copied());
    assert_eq!(newest(&q), Some(3), "merged up to the hand-out");
    q.clock.advance(ms(1));
    assert_eq!(newest(&q), None, "and gone with it");
}

pub fn x24_under_overload_every_key_runs_in_the_order_in_which_it_was_due<A: Adapter>() {
    let q = Subject::<A>::new();
    // Each step two keys come due and one is served.
    let mut last = 0;
    let mut next = 0;
    for step in 0..500 {
        for _ in 0..2 {
            q.add_after(next, ms(1));
            next += 1;
        }
        q.clock.advance(ms(1));
        let item = q.take(step);
        last = item.key().id;
        sound(item.done());
    }
    assert_eq!(last, 499);
    assert_eq!(q.work_off(), (500..1_000).collect::<Vec<_>>());
}

pub fn x24_a_debounce_with_a_maximum_fires_however_often_it_is_pushed_back<A: Adapter>() {
    let q = Subject::<A>::new();
    let mut runs = 0;
    for _ in 0..100 {
        q.add_after_with(1, ms(10), Policy::Latest(ms(30)));
        q.clock.advance(ms(1));
        runs += q.work_off().len();
    }
    assert_eq!(runs, 3, "once every 30 ms");
}

pub fn x25_key_and_payload_do_not_race<A: Adapter>() {
    let q = Subject::<A>::new();
    let sum = AtomicUsize::new(0);
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while let Some(mut item) = q.get_or_end() {
                    let value = item.take_value().expect("every trigger brought a value");
                    sum.fetch_add(value.items.len(), Ordering::Relaxed);
                    sound(item.done());
                }
            });
        }
        let producers: Vec<_> = (0..2)
            .map(|_| {
                s.spawn(|| {
                    for i in 0..2_000 {
                        q.add_value(u64::from(i % 3), i);
                    }
                })
            })
            .collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        q.shut_down();
    });
    assert_eq!(sum.load(Ordering::Relaxed), 4_000, "a payload was lost or came twice");
}

pub fn x27_a_newer_trigger_gives_the_key_its_attempts_back<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    for attempt in 1..=3 {
        let item = q.take(1);
        assert_eq!(item.attempt(), attempt);
        assert!(sound(item.retry_after(ms(0))).is_ok());
    }
    let last = q.take(1);
    assert_eq!(last.attempt(), 4);
    q.add(1);
    sound(last.give_up());
    assert_eq!(q.take(1).attempt(), 1);
}

pub fn x28_an_exponential_delay_does_not_overflow<A: Adapter>() {
    // 1 ns doubled 63 times is exactly 2^63.
    let limiter =
        requeue::limiter::Exponential::new(Duration::from_nanos(1), Duration::MAX).expect("a limiter");
    let q = Subject::<A>::limited(limiter);
    let mut last = Duration::ZERO;
    q.add(1);
    for _ in 0..70 {
        let delay = sound(q.take(1).retry()).ok().expect("open");
        assert!(delay >= last, "a delay became shorter: {delay:?} after {last:?}");
        last = delay;
        q.add(1);
    }
}

pub fn x29_a_drain_does_not_wait_for_a_timer_when_the_getters_have_left<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add_after(1, ms(1_000));
    q.add_after(2, ms(1_000));
    let getting = q.getting();
    let count = Count::new();
    let mut drain = q.drain(Waiters::Drop);
    assert!(count.poll(&mut drain).is_pending());
    drop(getting);
    sound(one.done());
    assert!(count.wakes() > 0);
    let Poll::Ready(answer) = count.poll(&mut drain) else { panic!("it waits for a timer that was dropped") };
    assert_eq!(sound(answer), Drained { done: 1, dropped: 2, unfinished: 2, ..Drained::default() });
}

pub fn x29_a_drain_that_waits_is_told_of_the_end_although_nobody_gets<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(10));
    let count = Count::new();
    let mut drain = q.queue.drain(Waiters::Wait, Some(ms(50)));
    assert!(count.poll(&mut drain).is_pending());
    // A getter came, watched the clock, and left.
    let mut getting = q.getting();
    assert!(poll_once(&mut getting).is_pending());
    drop(getting);
    q.clock.advance(ms(10));
    assert_eq!(q.state(1), Some(Seen { ready: true, ..Seen::default() }));
    q.clock.advance(ms(40));
    assert!(count.wakes() > 0, "not even at its deadline");
    let Poll::Ready(answer) = count.poll(&mut drain) else { panic!("past its deadline") };
    assert_eq!(sound(answer).ready, 1);
}

pub fn x29_a_drain_ends_at_the_deadline_of_the_latest_although_that_one_has_left<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(100));
    let count = Count::new();
    let mut drain = q.drain(Waiters::Wait);
    assert!(count.poll(&mut drain).is_pending());
    // The latest decides; nobody waits for its answer, and nobody gets.
    drop(q.queue.drain(Waiters::Wait, Some(ms(10))));
    // It may be woken to watch the new deadline.
    if count.wakes() > 0 {
        assert!(count.poll(&mut drain).is_pending());
    }
    let before = count.wakes();
    q.clock.advance(ms(10));
    assert!(
        count.wakes() > before,
        "a drain's deadline has shut the queue down, and the other drain was not told"
    );
    assert!(count.poll(&mut drain).is_ready());
}

pub fn x30_what_was_written_before_a_redundant_add_is_visible_to_the_run<A: Adapter>() {
    let q = Subject::<A>::new();
    let cells: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
    let seen: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|s| {
        let (q, cells, seen) = (&q, &cells, &seen);
        for _ in 0..2 {
            s.spawn(move || {
                while let Some(item) = q.get_or_end() {
                    let at = usize::try_from(item.key().id).unwrap();
                    // Begins with a plain load: a read-modify-write here would
                    // hide the fault that this looks for.
                    let value = cells[at].load(Ordering::Relaxed);
                    if value > seen[at].load(Ordering::Relaxed) {
                        seen[at].store(value, Ordering::Relaxed);
                    }
                    sound(item.done());
                }
            });
        }
        let producers: Vec<_> = (0..4)
            .map(|at| {
                s.spawn(move || {
                    for value in 1..=5_000 {
                        cells[at].store(value, Ordering::Relaxed);
                        q.add(at as u64);
                    }
                })
            })
            .collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        q.shut_down();
    });
    for seen in &seen {
        assert_eq!(seen.load(Ordering::Relaxed), 5_000, "the last write was seen by no run");
    }
}

/// An order that changes at every step.
#[derive(Default)]
struct Restless(Vec<u64>);

impl OwnOrder for Restless {
    fn push(&mut self, key: u64) {
        self.0.push(key);
        self.0.reverse();
    }
    fn touch(&mut self, key: u64) {
        if let Some(at) = self.0.iter().position(|ready| *ready == key) {
            self.0.swap(0, at);
        }
    }
    fn pop(&mut self) -> Option<u64> {
        self.0.pop()
    }
}

pub fn x11_an_order_that_changes_at_every_step_loses_no_key<A: Adapter>() {
    let q =
        Subject::<A>::with(Config { order: Line::Own(Box::new(Restless::default())), ..Config::default() });
    let mut runs = vec![0; 10];
    for round in 0..100 {
        for key in 0..10 {
            q.add((key * 3 + round) % 10);
            q.add(key);
        }
        for key in q.work_off() {
            runs[usize::try_from(key).unwrap()] += 1;
        }
    }
    assert_eq!(runs, [100; 10]);
}

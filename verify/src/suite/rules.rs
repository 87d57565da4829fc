//! The opening rules: one clock reading a call, and a refused trigger changes
//! nothing.

use crate::adapter::{Adapter, Config, Held, Limiter, Policy, Subject, Waiters, When, ignore, ms, sound};
use crate::limits::{Asked, Metered, Scripted};
use crate::probe::{Probe, Value};
use crate::wake::{Count, poll_once};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// A queue with everything on that may want the time.
fn watched<A: Adapter>(limiter: &Arc<Scripted>) -> (Subject<A>, Arc<Metered>) {
    let metrics = Metered::new();
    let q = Subject::with(Config {
        limiter: Some(Limiter(Arc::<Scripted>::clone(limiter))),
        metrics: Some(Arc::clone(&metrics)),
        ..Config::default()
    });
    (q, metrics)
}

/// Each call of the queue, on keys in the state that the call needs.
fn one_reading<A: Adapter>(name: &str, q: &Subject<A>, call: impl FnOnce()) {
    let reads = q.clock.reads_of(call);
    assert!(reads <= 1, "{name} read the clock {reads} times");
}

pub fn rules_every_trigger_reads_the_clock_at_most_once<A: Adapter>() {
    let (q, _metrics) = watched::<A>(&Scripted::new(ms(3)));
    for _ in 0..2 {
        one_reading("add", &q, || ignore(q.add(1)));
        one_reading("add_value", &q, || ignore(q.add_value(2, 1)));
        one_reading("add_ref", &q, || ignore(sound(q.queue.add_ref(&3.into()))));
        one_reading("add_after", &q, || ignore(q.add_after(4, ms(5))));
        one_reading("add_after zero", &q, || ignore(q.add_after(5, ms(0))));
        one_reading("add_rate_limited", &q, || ignore(q.add_rate_limited(6)));
        for policy in [Policy::Latest(ms(50)), Policy::Replace, Policy::Keep] {
            one_reading("add_after with a policy", &q, || ignore(q.add_after_with(7, ms(9), policy)));
        }
        // Once more, when timers are due.
        q.clock.advance(ms(10));
    }
}

pub fn rules_every_look_reads_the_clock_at_most_once<A: Adapter>() {
    let (q, _metrics) = watched::<A>(&Scripted::new(ms(3)));
    q.add(1);
    q.add_after(2, ms(5));
    for _ in 0..2 {
        one_reading("len", &q, || ignore(q.len()));
        one_reading("is_empty", &q, || ignore(q.is_empty()));
        one_reading("stats", &q, || ignore(q.counts()));
        one_reading("state", &q, || ignore(q.state(1)));
        one_reading("num_requeues", &q, || ignore(q.num_requeues(1)));
        one_reading("forget", &q, || q.forget(1));
        one_reading("shutting_down", &q, || ignore(q.shutting_down()));
        q.clock.advance(ms(10));
    }
}

pub fn rules_every_hand_out_reads_the_clock_at_most_once<A: Adapter>() {
    let (q, _metrics) = watched::<A>(&Scripted::new(ms(3)));
    for key in 0..20 {
        q.add(key);
    }
    one_reading("try_get", &q, || std::mem::forget(q.take(0)));
    one_reading("get", &q, || std::mem::forget(q.get()));
    let mut getting = q.getting();
    one_reading("a poll of get", &q, || std::mem::forget(poll_once(&mut getting)));
    let next = q.take(3);
    one_reading("done and get the next", &q, || std::mem::forget(sound(next.next())));
    let timed = || sound(q.queue.get_timeout(ms(5))).map(std::mem::forget).is_ok();
    assert!(q.clock.reads_of(timed) <= 2, "the deadline and the get that finds a key");
}

pub fn rules_every_end_of_a_run_reads_the_clock_at_most_once<A: Adapter>() {
    let (q, _metrics) = watched::<A>(&Scripted::new(ms(3)));
    for key in 0..9 {
        q.add(key);
    }
    let mut items: Vec<_> = (0..9).map(|key| q.take(key)).collect();
    q.add_after(9, ms(1));
    q.clock.advance(ms(1));
    let mut end = |name: &str, how: &dyn Fn(A::Held<'_>)| {
        let item = items.pop().expect("as many as words");
        one_reading(name, &q, || how(item));
    };
    end("drop", &|item| drop(item));
    end("done", &|item| sound(item.done()));
    end("succeed", &|item| sound(item.succeed()));
    end("give_up", &|item| sound(item.give_up()));
    end("retry", &|item| drop(sound(item.retry())));
    end("retry_after", &|item| drop(sound(item.retry_after(ms(5)))));
    end("again", &|item| drop(sound(item.again(ms(5)))));
    let detach = items.pop().unwrap();
    let mut detached = 0;
    one_reading("detach", &q, || detached = sound(detach.detach()).0.id);
    one_reading("done by key", &q, || assert!(q.done(detached)));
}

pub fn rules_every_shutdown_reads_the_clock_at_most_once<A: Adapter>() {
    for waiters in [Waiters::Drop, Waiters::RunNow, Waiters::Wait] {
        let (q, _metrics) = watched::<A>(&Scripted::new(ms(3)));
        q.add_after(1, ms(5));
        one_reading("close", &q, || q.close());
        let mut drain = None;
        one_reading("drain", &q, || drain = Some(q.drain(waiters)));
        one_reading("a poll of a drain", &q, || ignore(poll_once(drain.as_mut().unwrap())));
        one_reading("shut_down", &q, || ignore(q.shut_down()));
    }
}

pub fn rules_a_waiting_get_reads_the_clock_once_a_poll_and_not_in_between<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    let count = Count::new();
    let mut getting = q.getting();
    for _ in 0..3 {
        assert!(q.clock.reads_of(|| assert!(count.poll(&mut getting).is_pending())) <= 1);
    }
    assert_eq!(q.clock.reads_of(|| q.clock.advance(ms(4))), 0);
    assert!(q.clock.reads_of(|| q.clock.advance(ms(1))) <= 1, "a wake-up may read it once");
    assert!(q.clock.reads_of(|| assert!(count.poll(&mut getting).is_ready())) <= 1);
}

pub fn rules_limiter_and_due_instant_use_the_one_reading<A: Adapter>() {
    let limiter = Scripted::new(ms(3));
    let (q, _metrics) = watched::<A>(&limiter);
    q.add(2);
    let two = q.take(2);
    // A second reading of the clock shows another millisecond.
    q.clock.drift(ms(1));
    let now = q.clock.at();
    q.add_rate_limited(1);
    assert_eq!(limiter.take_asked(), [Asked::When(1, now)]);
    assert_eq!(q.state(1).and_then(|seen| seen.due), Some(now + ms(3)));
    let now = q.clock.at();
    assert!(sound(two.retry()).is_ok());
    assert_eq!(limiter.take_asked(), [Asked::When(2, now)]);
    assert_eq!(q.state(2).and_then(|seen| seen.due), Some(now + ms(3)));
    let now = q.clock.at();
    q.add_after(4, ms(7));
    assert_eq!(q.state(4).and_then(|seen| seen.due), Some(now + ms(7)));
}

pub fn rules_metrics_use_the_one_reading<A: Adapter>() {
    let (q, metrics) = watched::<A>(&Scripted::new(ms(3)));
    q.clock.drift(ms(1));
    let added = q.clock.at();
    q.add(1);
    let started = q.clock.at();
    let one = q.take(1);
    assert_eq!(metrics.told().waited, [started.saturating_since(added)]);
    let ended = q.clock.at();
    sound(one.done());
    assert_eq!(metrics.told().worked, [ended.saturating_since(started)]);
}

pub fn rules_timers_due_by_the_reading_fire_by_instant_then_by_call_before_any_look<A: Adapter>() {
    type Look<A> = fn(&Subject<A>);
    let looks: [(&str, Look<A>); 6] = [
        ("try_get", |q| sound(q.take(2).done())),
        ("len", |q| assert_eq!(q.len(), 3)),
        ("state", |q| assert!(q.state(1).unwrap().ready)),
        ("stats", |q| assert_eq!(q.counts().ready, 3)),
        ("shut_down", |q| assert_eq!(q.shut_down().ready, 3)),
        ("drain", |q| ignore(q.drain(Waiters::Drop))),
    ];
    for (name, look) in looks {
        let q = Subject::<A>::new();
        for (key, delay) in [(1, 5), (2, 4), (3, 5), (4, 6)] {
            q.add_after(key, ms(delay));
        }
        q.clock.advance(ms(5));
        look(&q);
        // a key that is added now stands behind what the look has fired
        let added = !matches!(name, "shut_down" | "drain");
        if added {
            q.add(9);
        }
        let mut runs = q.work_off();
        assert!(!added || runs.pop() == Some(9), "{name}");
        let expected: &[u64] = if name == "try_get" { &[1, 3] } else { &[2, 1, 3] };
        assert_eq!(runs, expected, "{name}");
    }
}

pub fn rules_an_add_or_the_end_of_a_run_fires_nothing<A: Adapter>() {
    type Call<A> = for<'q> fn(&'q Subject<A>, <A as Adapter>::Held<'q>);
    let calls: [(&str, Call<A>); 8] = [
        ("add", |q, held| {
            q.add(8);
            sound(held.done());
        }),
        ("add_after", |q, held| {
            q.add_after(8, ms(1));
            q.add_after(8, ms(0));
            sound(held.done());
        }),
        ("add_many", |q, held| {
            let added = q.trigger_many(vec![
                (8.into(), When::Now, None),
                (7.into(), When::After(ms(9), Policy::Earliest), None),
            ]);
            assert!(added.into_iter().all(|answer| answer.is_ok()));
            sound(held.done());
        }),
        ("done", |q, held| {
            q.add(8);
            sound(held.done());
        }),
        ("succeed", |q, held| {
            q.add(8);
            sound(held.succeed());
        }),
        ("drop", |q, held| {
            q.add(8);
            drop(held);
        }),
        ("retry", |_, held| assert!(sound(held.retry_after(ms(0))).is_ok())),
        ("again", |_, held| assert!(sound(held.again(ms(0))).is_ok())),
    ];
    for (name, call) in calls {
        let q = Subject::<A>::new();
        q.add(8);
        let held = q.take(8);
        for (key, delay) in [(1, 5), (2, 4)] {
            q.add_after(key, ms(delay));
        }
        q.clock.advance(ms(5));
        call(&q, held);
        assert_eq!(q.work_off()[..3], [8, 2, 1], "{name}");
    }
}

pub fn rules_a_call_with_a_delay_takes_a_due_timer_of_its_own_key_as_fired_first<A: Adapter>() {
    let q = Subject::<A>::new();
    for (key, delay) in [(1, 5), (2, 4), (3, 5)] {
        q.add_after(key, ms(delay));
    }
    q.add(3);
    let three = q.take(3);
    q.clock.advance(ms(5));
    let now = q.clock.at();
    q.add_after(1, ms(10));
    // its timer came during its run
    assert!(sound(three.again(ms(20))).is_ok());
    assert_eq!(q.state(1).and_then(|state| state.due), Some(now + ms(10)));
    assert_eq!(q.state(3).and_then(|state| state.due), Some(now + ms(20)));
    assert_eq!(q.work_off(), [1, 3, 2], "the other key's timer fired with the look");
}

pub fn rules_many_timers_due_at_once_fire_as_if_at_once<A: Adapter>() {
    // More than any batch that a call may fire in one lock hold.
    let q = Subject::<A>::new();
    for key in 0..1_000 {
        q.add_after(key, ms(1_000 - key));
    }
    q.clock.advance(ms(1_000));
    q.has(1_000, 0, 0, 0);
    q.add(5_000);
    let expected: Vec<u64> = (0..1_000).rev().chain([5_000]).collect();
    assert_eq!(q.work_off(), expected);
}

/// Every way to have a trigger refused from outside.
fn refused<A: Adapter>(q: &Subject<A>) {
    let whens = [
        When::Now,
        When::After(ms(0), Policy::Earliest),
        When::After(ms(9), Policy::Replace),
        When::RateLimited,
    ];
    for key in [1, 2, 3] {
        for when in whens {
            let probe = Probe::new();
            let value = Value::probed(7, &probe);
            let back = q.trigger(key, when, Some(value)).expect_err("refused");
            assert_eq!(back.key.id, key, "the key comes back");
            assert_eq!(
                back.value.as_ref().map(|value| value.items.clone()),
                Some(vec![7]),
                "the value comes back"
            );
            assert_eq!(probe.drop.runs(), 0, "the value itself, not a copy");
        }
    }
}

pub fn rules_a_refused_trigger_changes_nothing<A: Adapter>() {
    let ends: [fn(&Subject<A>); 3] =
        [|q| q.close(), |q| ignore(q.shut_down()), |q| ignore(q.drain(Waiters::Wait))];
    for end in ends {
        let limiter = Scripted::new(ms(3));
        let (q, metrics) = watched::<A>(&limiter);
        q.add_value(1, 1);
        q.add(2);
        let one = q.take(1);
        end(&q);
        let before = (q.counts(), q.state(1), q.state(2), q.state(3), metrics.counts());
        limiter.take_asked();
        refused(&q);
        assert_eq!(limiter.take_asked(), [], "a limiter was asked");
        assert_eq!((q.counts(), q.state(1), q.state(2), q.state(3), metrics.counts()), before);
        assert_eq!(one.value().map(|value| value.items.clone()), Some(vec![1]));
        drop(one);
        let two = q.take(2);
        assert!(two.value().is_none(), "a refused value was merged");
        drop(two);
    }
}

pub fn rules_a_refused_trigger_takes_no_token<A: Adapter>() {
    let bucket = || requeue::limiter::Bucket::new(1.0, 2).expect("a bucket");
    let q = Subject::<A>::limited(bucket());
    q.add(9);
    let nine = q.take(9);
    q.close();
    for key in 0..10 {
        assert!(q.trigger(key, When::RateLimited, None).is_err());
    }
    assert_eq!(sound(nine.retry()).ok(), Some(Duration::ZERO), "the first token is still there");
    assert_eq!(sound(q.take(9).retry()).ok(), Some(Duration::ZERO), "and the second");
    // a bucket that others share, and a retry
    let bucket = Arc::new(bucket());
    let q = Subject::<A>::limited(Arc::clone(&bucket));
    q.add(9);
    let nine = q.take(9);
    q.shut_down();
    assert!(sound(nine.retry()).is_err());
    assert_eq!(bucket.token_bucket().tokens(q.clock.at()), 2.0);
}

pub fn rules_a_refused_retry_asks_no_limiter_and_counts_no_retry<A: Adapter>() {
    let limiter = Scripted::new(ms(3));
    let (q, metrics) = watched::<A>(&limiter);
    q.add_value(1, 1);
    let one = q.take(1);
    q.shut_down();
    limiter.take_asked();
    let before = metrics.counts();
    let one = sound(one.retry()).expect_err("refused");
    let one = sound(one.retry_after(ms(1))).expect_err("refused");
    let one = sound(one.again(ms(1))).expect_err("refused");
    assert_eq!(limiter.take_asked(), []);
    assert_eq!(metrics.counts(), before);
    assert_eq!(q.num_requeues(1), 0);
    assert_eq!(one.value().map(|value| value.items.clone()), Some(vec![1]));
}

pub fn rules_a_trigger_whose_limiter_is_asked_at_shut_down_is_dropped_and_counted<A: Adapter>() {
    let limiter = Scripted::new(ms(3));
    let q = Subject::<A>::limited(Limiter(Arc::<Scripted>::clone(&limiter)));
    let inner = q.clone();
    limiter.on_when.set(move || assert_eq!(inner.shut_down().dropped, 1));
    let answer = q.trigger(1, When::RateLimited, None);
    limiter.on_when.clear();
    assert!(answer.is_ok(), "it was accepted, and then dropped as a waiting key is");
    q.has(0, 0, 0, 0);
    assert_eq!(q.state(1).and_then(|seen| seen.due), None);
    q.is_over();
}

pub fn rules_a_trigger_whose_limiter_is_asked_when_a_drain_drops_is_counted_by_it<A: Adapter>() {
    let limiter = Scripted::new(ms(3));
    let q = Subject::<A>::limited(Limiter(Arc::<Scripted>::clone(&limiter)));
    let inner = q.clone();
    limiter.on_when.set(move || {
        let mut drain = inner.drain(Waiters::Drop);
        let Poll::Ready(answer) = poll_once(&mut drain) else { panic!("nothing is left") };
        assert_eq!(sound(answer).dropped, 1);
    });
    assert!(q.trigger(1, When::RateLimited, None).is_ok());
    limiter.on_when.clear();
    q.has(0, 0, 0, 0);
    q.is_over();
}

pub fn rules_a_drain_that_waits_waits_for_a_trigger_whose_limiter_is_asked<A: Adapter>() {
    let limiter = Scripted::new(ms(3));
    let q = Subject::<A>::limited(Limiter(Arc::<Scripted>::clone(&limiter)));
    let inner = q.clone();
    limiter.on_when.set(move || {
        let mut drain = inner.drain(Waiters::Wait);
        assert!(poll_once(&mut drain).is_pending(), "a limiter is being asked");
        inner.is_idle();
    });
    assert!(q.trigger(1, When::RateLimited, None).is_ok());
    limiter.on_when.clear();
    q.is_idle();
    q.has(0, 0, 0, 1);
    q.clock.advance(ms(3));
    assert_eq!(q.work_off(), [1]);
    q.is_over();
}

pub fn rules_a_drain_that_runs_now_runs_a_trigger_whose_limiter_is_asked<A: Adapter>() {
    let limiter = Scripted::new(ms(3));
    let q = Subject::<A>::limited(Limiter(Arc::<Scripted>::clone(&limiter)));
    let inner = q.clone();
    limiter.on_when.set(move || {
        let mut drain = inner.drain(Waiters::RunNow);
        assert!(poll_once(&mut drain).is_pending(), "a waiting key is to run now");
        inner.is_idle();
    });
    assert!(q.trigger(1, When::RateLimited, None).is_ok());
    limiter.on_when.clear();
    assert_eq!(q.work_off(), [1]);
    q.is_over();
}

pub fn rules_a_retry_whose_limiter_is_asked_at_shut_down_is_dropped_and_the_run_ends<A: Adapter>() {
    let limiter = Scripted::new(ms(3));
    let q = Subject::<A>::limited(Limiter(Arc::<Scripted>::clone(&limiter)));
    q.add(1);
    let one = q.take(1);
    let inner = q.clone();
    limiter.on_when.set(move || assert_eq!(inner.shut_down().dropped, 1));
    drop(sound(one.retry()));
    limiter.on_when.clear();
    q.has(0, 0, 0, 0);
    q.is_over();
}

//! B5 where the model does not reach: limiters of the user's own, metrics, the clock, users' code.

use crate::adapter::{Adapter, Config, Held, InBackoff, Limiter, Subject, When, ignore, ms, sound};
use crate::limits::{Asked, Metered, Scripted};
use crate::probe::{Probe, Value};
use requeue::{Debounce, RunEnd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn scripted<A: Adapter>(in_backoff: InBackoff) -> (Subject<A>, Arc<Scripted>) {
    let limiter = Scripted::new(ms(100));
    let config =
        Config { in_backoff, limiter: Some(Limiter(Arc::clone(&limiter) as _)), ..Config::default() };
    (Subject::with(config), limiter)
}

pub fn b5_a_limiter_of_ones_own_is_told_of_a_reset_and_not_asked_for_the_retry<A: Adapter>() {
    let (q, limiter) = scripted::<A>(InBackoff::Run);
    q.add(1);
    assert!(sound(q.take(1).retry()).is_ok());
    assert_eq!(limiter.take_whens(), 1);
    q.add_in(1, InBackoff::Respect);
    assert_eq!(limiter.take_asked(), []);
    q.add_in(1, InBackoff::Reset);
    assert_eq!(limiter.take_asked(), [Asked::Forget(1)]);
    let two = q.take(1);
    q.add_in(1, InBackoff::Reset);
    assert_eq!(sound(two.retry()).ok(), Some(ms(0)));
    assert_eq!(limiter.take_whens(), 0, "a fresh start asks nobody");
    q.has(1, 0, 0, 0);
    assert_eq!(q.num_requeues(1), 0);
}

pub fn b5_a_limiter_of_ones_own_is_told_of_a_reset_in_every_way_to_add<A: Adapter>() {
    let (q, limiter) = scripted::<A>(InBackoff::Reset);
    let wait = |q: &Subject<A>| {
        q.add(1);
        assert!(sound(q.take(1).retry()).is_ok());
        assert_eq!(q.num_requeues(1), 1);
        limiter.take_asked();
    };
    type Act<A> = fn(&Subject<A>);
    let adds: [Act<A>; 5] = [
        |q| ignore(q.add(1)),
        |q| ignore(q.add_value(1, 7)),
        |q| ignore(q.add_many([1])),
        |q| ignore(sound(q.queue.add_ref(&1.into()))),
        |q| ignore(q.trigger(1, When::RateLimitedIn(InBackoff::Reset), None)),
    ];
    for (n, add) in adds.iter().enumerate() {
        wait(&q);
        add(&q);
        assert_eq!(limiter.take_asked().first(), Some(&Asked::Forget(1)), "way {n}");
        q.clock.advance(ms(100));
        q.work_off();
    }
}

/// A window that owes no run is something to reset, but no reason to have room.
pub fn b5_a_trigger_that_is_refused_makes_no_limiter_of_ones_own_forget<A: Adapter>() {
    let limiter = Scripted::new(ms(100));
    let q = Subject::<A>::with(Config {
        bound: Some(1),
        debounce: Some(Debounce::new(ms(500)).leading()),
        limiter: Some(Limiter(Arc::clone(&limiter) as _)),
        ..Config::default()
    });
    q.add_rate_limited(1);
    q.clock.advance(ms(100));
    sound(q.take(1).done());
    q.add(1);
    sound(q.take(1).done());
    q.add(2);
    assert_eq!(limiter.take_whens(), 1);
    for when in [When::NowIn(InBackoff::Reset), When::RateLimitedIn(InBackoff::Reset)] {
        assert!(q.say((1.into(), when, None).into()).is_err_and(|refused| refused.full), "{when:?}");
        assert_eq!(limiter.take_asked(), [], "{when:?}");
    }
    assert_eq!(q.num_requeues(1), 1);
}

pub fn b5_a_limiter_of_ones_own_forgets_without_the_lock_and_its_panic_is_nobodys<A: Adapter>() {
    let (q, limiter) = scripted::<A>(InBackoff::Run);
    q.add(1);
    assert!(sound(q.take(1).retry()).is_ok());
    let inner = q.clone();
    limiter.on_forget.set(move || {
        let _ = inner.len();
        panic!("on purpose");
    });
    let added = catch_unwind(AssertUnwindSafe(|| q.add_in(1, InBackoff::Reset)));
    limiter.on_forget.clear();
    assert!(added.is_ok(), "the trigger was accepted");
    q.has(1, 0, 0, 0);
}

pub fn b5_a_merge_that_panics_resets_nothing<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    assert!(sound(q.take(1).retry_after(ms(100))).is_ok());
    let probe = Probe::new();
    probe.merge.panics();
    let value = Value::probed(2, &probe);
    let added = catch_unwind(AssertUnwindSafe(|| q.trigger(1, When::NowIn(InBackoff::Reset), Some(value))));
    assert!(added.is_err(), "the panic reaches the caller");
    q.has(0, 0, 0, 1);
    assert_eq!(q.num_requeues(1), 1);
}

pub fn b5_metrics_count_what_became_ready_or_dirty_and_each_retry<A: Adapter>() {
    let metrics = Metered::new();
    let q = Subject::<A>::with(Config { metrics: Some(Arc::clone(&metrics)), ..Config::default() });
    q.add(1);
    let one = q.take(1);
    q.clock.advance(ms(10));
    q.add_in(1, InBackoff::Respect); // dirty
    assert!(sound(one.retry_after(ms(100))).is_ok());
    q.add_in(1, InBackoff::Respect); // joins
    q.clock.advance(ms(100));
    let two = q.take(1);
    q.clock.advance(ms(1));
    q.add_in(1, InBackoff::Reset); // dirty
    q.clock.advance(ms(2));
    assert!(sound(two.retry()).is_ok());
    ignore(q.take(1));
    let told = metrics.told();
    assert_eq!((told.adds, told.retries, told.coalesced), (4, 2, 1));
    // from the due instant what waited out its failure, from the first trigger a fresh start
    assert_eq!(told.waited, [ms(0), ms(0), ms(2)]);
    assert_eq!(told.ends, [RunEnd::Retry, RunEnd::Retry, RunEnd::Done]);
}

pub fn b5_an_immediate_trigger_reads_no_clock_whatever_it_says<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    assert!(sound(q.take(1).retry_after(ms(100))).is_ok());
    for in_backoff in [InBackoff::Respect, InBackoff::Run, InBackoff::Reset] {
        assert_eq!(q.clock.reads_of(|| q.add_in(1, in_backoff)), 0, "{in_backoff:?}");
    }
}

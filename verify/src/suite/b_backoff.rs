//! B5: triggers for a key that waits out a failure, and during a run that fails.

use crate::adapter::{
    Accepted, Adapter, Config, Exponential, Held, InBackoff, Policy, Seen, Subject, Waiters, When, ignore,
    ms, sound,
};
use crate::probe::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const ALL: [InBackoff; 3] = [InBackoff::Run, InBackoff::Respect, InBackoff::Reset];
const POLICIES: [Policy; 4] = [Policy::Earliest, Policy::Latest(ms(1)), Policy::Replace, Policy::Keep];

fn queue<A: Adapter>(in_backoff: InBackoff) -> Subject<A> {
    Subject::with(Config { in_backoff, ..Config::default() })
}

/// Retries the ready run, which must be of key 1, with this delay.
fn fail<A: Adapter>(q: &Subject<A>, delay: Duration) {
    assert!(sound(q.take(1).retry_after(delay)).is_ok(), "the queue is open");
}

/// A queue whose key 1 has failed once and waits for 100 ms.
fn failed<A: Adapter>() -> Subject<A> {
    let q = Subject::<A>::new();
    q.add(1);
    fail(&q, ms(100));
    q
}

fn after(delay: u64, policy: Policy, in_backoff: InBackoff) -> When {
    When::AfterIn(ms(delay), policy, in_backoff)
}

fn trigger<A: Adapter>(q: &Subject<A>, when: When) -> Accepted {
    q.trigger(1, when, None).expect("the queue takes triggers")
}

/// Asserts that the only coming event is a run of key 1 in this many milliseconds.
fn runs_only_in<A: Adapter>(q: &Subject<A>, delay: u64) {
    q.is_idle();
    if delay > 0 {
        q.clock.advance(ms(delay - 1));
        q.is_idle();
        q.clock.advance(ms(1));
    }
    ignore(q.take(1));
    q.is_idle();
    q.has(0, 0, 0, 0);
}

pub fn b5_by_default_a_trigger_in_a_back_off_runs_now_and_leaves_timer_and_failures<A: Adapter>() {
    for when in [When::Now, When::NowIn(InBackoff::Run)] {
        let q = failed::<A>();
        assert_eq!(trigger(&q, when), Accepted::Ready);
        assert_eq!(q.num_requeues(1), 1);
        q.has(1, 0, 0, 1);
        ignore(q.take(1));
        runs_only_in(&q, 100);
    }
}

pub fn b5_respect_joins_the_back_offs_run_and_is_never_earlier<A: Adapter>() {
    let q = failed::<A>();
    for _ in 0..20 {
        assert_eq!(q.add_in(1, InBackoff::Respect), Accepted::Coalesced);
        q.clock.advance(ms(1));
    }
    q.has(0, 0, 0, 1);
    runs_only_in(&q, 80);
}

pub fn b5_reset_takes_the_timer_away_forgets_the_failures_and_runs_now<A: Adapter>() {
    let q = failed::<A>();
    assert_eq!(q.add_in(1, InBackoff::Reset), Accepted::Ready);
    q.has(1, 0, 0, 0);
    assert_eq!(q.num_requeues(1), 0);
    let one = q.take(1);
    assert_eq!(one.attempt(), 1);
    assert_eq!(sound(one.retry()).ok(), Some(ms(1)), "its next back-off is the first again");
}

pub fn b5_respect_during_the_run_that_fails_joins_its_back_off<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    assert_eq!(q.add_in(1, InBackoff::Respect), Accepted::Dirty);
    assert_eq!(q.add_in(1, InBackoff::Respect), Accepted::Coalesced);
    q.has(0, 1, 1, 0);
    assert_eq!(sound(one.retry_after(ms(100))).ok(), Some(ms(100)));
    q.has(0, 0, 0, 1);
    assert_eq!(q.num_requeues(1), 1, "the run's failure, and no other");
    runs_only_in(&q, 100);
}

pub fn b5_respect_during_the_run_of_a_retry_without_delay_gives_one_run<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add_in(1, InBackoff::Respect);
    assert!(sound(one.retry_after(ms(0))).is_ok());
    q.has(1, 0, 0, 0);
    assert_eq!(q.work_off(), [1]);
}

pub fn b5_run_during_the_run_that_fails_runs_at_once<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add_in(1, InBackoff::Run);
    assert!(sound(one.retry_after(ms(100))).is_ok());
    q.has(1, 0, 0, 1);
    assert_eq!(q.num_requeues(1), 1);
}

pub fn b5_a_reset_during_the_failed_run_makes_its_retry_a_fresh_start<A: Adapter>() {
    for (own_delay, delayed) in [(false, false), (false, true), (true, false), (true, true)] {
        let q = Subject::<A>::new();
        q.add(1);
        fail(&q, ms(1));
        q.clock.advance(ms(1));
        let two = q.take(1);
        assert_eq!((two.attempt(), q.num_requeues(1)), (2, 1));
        let when = if delayed {
            after(50, Policy::Earliest, InBackoff::Reset)
        } else {
            When::NowIn(InBackoff::Reset)
        };
        trigger(&q, when);
        let retried = if own_delay { two.retry_after(ms(100)) } else { two.retry() };
        assert_eq!(sound(retried).ok(), Some(ms(0)), "ready at once");
        assert_eq!(q.num_requeues(1), 0, "no failure is counted, and those before are forgotten");
        q.has(1, 0, 0, usize::from(delayed));
        assert_eq!(q.take(1).attempt(), 1);
    }
}

pub fn b5_what_comes_during_a_run_that_does_not_fail_gives_one_more_run_at_once<A: Adapter>() {
    type Ends<A> = fn(<A as Adapter>::Held<'_>);
    let ends: [Ends<A>; 4] = [
        |item| sound(item.done()),
        |item| sound(item.succeed()),
        |item| sound(item.give_up()),
        |item| ignore(sound(item.again(ms(100)))),
    ];
    for in_backoff in ALL {
        for end in ends {
            let q = Subject::<A>::new();
            q.add(1);
            let one = q.take(1);
            q.add_in(1, in_backoff);
            end(one);
            assert_eq!(q.take(1).attempt(), 1, "{in_backoff:?}");
        }
    }
}

/// Asserts what a key's failure and these two triggers lead to: reset before run, run before respect.
fn the_stronger_counts<A: Adapter>(q: &Subject<A>, first: InBackoff, second: InBackoff) {
    let seen = (q.len(), q.counts().waiting, q.num_requeues(1));
    let expected = match (first, second) {
        (InBackoff::Reset, _) | (_, InBackoff::Reset) => (1, 0, 0),
        (InBackoff::Run, _) | (_, InBackoff::Run) => (1, 1, 1),
        (InBackoff::Respect, InBackoff::Respect) => (0, 1, 1),
    };
    assert_eq!(seen, expected, "{first:?}, {second:?}");
}

pub fn b5_of_several_during_the_run_the_strongest_wins<A: Adapter>() {
    for first in ALL {
        for second in ALL {
            let q = Subject::<A>::new();
            q.add(1);
            let one = q.take(1);
            q.add_in(1, first);
            q.add_in(1, second);
            assert!(sound(one.retry_after(ms(100))).is_ok());
            the_stronger_counts(&q, first, second);
        }
    }
}

pub fn b5_of_several_in_a_back_off_the_strongest_wins<A: Adapter>() {
    for first in ALL {
        for second in ALL {
            let q = failed::<A>();
            q.add_in(1, first);
            q.add_in(1, second);
            the_stronger_counts(&q, first, second);
        }
    }
}

pub fn b5_the_queue_has_a_say_and_the_trigger_has_the_last_word<A: Adapter>() {
    for of_the_queue in ALL {
        for said in [None, Some(InBackoff::Run), Some(InBackoff::Respect), Some(InBackoff::Reset)] {
            let q = queue::<A>(of_the_queue);
            q.add(1);
            fail(&q, ms(100));
            trigger(&q, said.map_or(When::Now, When::NowIn));
            let expected = match said.unwrap_or(of_the_queue) {
                InBackoff::Run => (1, 1, 1),
                InBackoff::Respect => (0, 1, 1),
                InBackoff::Reset => (1, 0, 0),
            };
            let seen = (q.len(), q.counts().waiting, q.num_requeues(1));
            assert_eq!(seen, expected, "{of_the_queue:?}, {said:?}");
        }
    }
}

pub fn b5_the_queues_say_is_about_adds_by_reference_too<A: Adapter>() {
    for (of_the_queue, expected) in
        [(InBackoff::Run, (1, 1)), (InBackoff::Respect, (0, 1)), (InBackoff::Reset, (1, 0))]
    {
        let q = queue::<A>(of_the_queue);
        q.add(1);
        fail(&q, ms(100));
        assert!(sound(q.queue.add_ref(&1.into())).is_ok());
        assert_eq!((q.len(), q.counts().waiting), expected, "{of_the_queue:?}");
    }
}

pub fn b5_under_respect_a_delayed_trigger_joins_too_whatever_its_delay<A: Adapter>() {
    for policy in POLICIES {
        for delay in [1, 99, 100, 5_000] {
            let q = failed::<A>();
            assert_eq!(trigger(&q, after(delay, policy, InBackoff::Respect)), Accepted::Coalesced);
            runs_only_in(&q, 100);
        }
    }
}

pub fn b5_under_respect_a_delayed_trigger_during_the_run_that_fails_joins_too<A: Adapter>() {
    for policy in POLICIES {
        for delay in [1, 99, 5_000] {
            let q = Subject::<A>::new();
            q.add(1);
            let one = q.take(1);
            trigger(&q, after(delay, policy, InBackoff::Respect));
            assert!(sound(one.retry_after(ms(100))).is_ok());
            runs_only_in(&q, 100);
        }
    }
}

pub fn b5_a_timer_that_fires_during_the_run_says_what_its_trigger_said<A: Adapter>() {
    for (in_backoff, ready) in [(InBackoff::Run, 1), (InBackoff::Respect, 0)] {
        let q = Subject::<A>::new();
        q.add(1);
        let one = q.take(1);
        trigger(&q, after(5, Policy::Earliest, in_backoff));
        q.clock.advance(ms(5));
        q.has(0, 1, 1, 0);
        assert!(sound(one.retry_after(ms(100))).is_ok());
        q.has(ready, 0, 0, 1);
    }
}

pub fn b5_a_delayed_trigger_during_a_run_that_does_not_fail_keeps_its_timer<A: Adapter>() {
    for in_backoff in ALL {
        let q = Subject::<A>::new();
        q.add(1);
        let one = q.take(1);
        trigger(&q, after(5, Policy::Earliest, in_backoff));
        sound(one.done());
        runs_only_in(&q, 5);
    }
}

pub fn b5_a_timer_of_others_stays_where_a_respectful_trigger_joins<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add_after(1, ms(10));
    q.add_in(1, InBackoff::Respect);
    assert!(sound(one.retry_after(ms(100))).is_ok());
    runs_only_in(&q, 10);
}

pub fn b5_a_delayed_trigger_that_resets_takes_the_place_of_the_back_off<A: Adapter>() {
    for (policy, delay) in [(Policy::Earliest, 5_000), (Policy::Keep, 5_000), (Policy::Replace, 7)] {
        let q = failed::<A>();
        assert_eq!(trigger(&q, after(delay, policy, InBackoff::Reset)), Accepted::Waiting);
        assert_eq!(q.num_requeues(1), 0);
        runs_only_in(&q, delay);
    }
}

pub fn b5_a_timer_that_run_has_moved_is_joined_too<A: Adapter>() {
    let q = failed::<A>();
    assert_eq!(trigger(&q, after(10, Policy::Earliest, InBackoff::Run)), Accepted::Waiting);
    assert_eq!(q.add_in(1, InBackoff::Respect), Accepted::Coalesced);
    runs_only_in(&q, 10);
}

pub fn b5_no_trigger_counts_as_a_failure_by_itself<A: Adapter>() {
    for in_backoff in [InBackoff::Run, InBackoff::Respect] {
        let q = failed::<A>();
        for delay in 0..20 {
            q.add_in(1, in_backoff);
            trigger(&q, after(delay, Policy::Earliest, in_backoff));
        }
        assert_eq!(q.num_requeues(1), 1, "{in_backoff:?}");
    }
}

pub fn b5_a_run_that_a_trigger_brings_forward_and_that_fails_counts<A: Adapter>() {
    let q = failed::<A>();
    q.add_in(1, InBackoff::Run);
    assert_eq!(sound(q.take(1).retry()).ok(), Some(ms(2)));
    assert_eq!(q.num_requeues(1), 2);
}

pub fn b5_a_key_that_has_not_failed_heeds_no_say<A: Adapter>() {
    for in_backoff in ALL {
        let q = Subject::<A>::new();
        assert_eq!(q.add_in(1, in_backoff), Accepted::Ready);
        assert_eq!(q.add_in(1, in_backoff), Accepted::Coalesced);
        q.add_after(2, ms(100));
        assert_eq!(q.add_in(2, in_backoff), Accepted::Ready);
        assert_eq!(q.work_off(), [1, 2]);
        q.has(0, 0, 0, 1);
        // one that comes again without having failed
        q.add(3);
        assert!(sound(q.take(3).again(ms(50))).is_ok());
        assert_eq!(q.add_in(3, in_backoff), Accepted::Ready);
        q.has(1, 0, 0, 2);
    }
}

pub fn b5_a_run_ends_the_back_off_before_it<A: Adapter>() {
    let q = failed::<A>();
    q.add_in(1, InBackoff::Run);
    sound(q.take(1).done());
    q.has(0, 0, 0, 1);
    assert_eq!(
        q.add_in(1, InBackoff::Respect),
        Accepted::Ready,
        "a timer from before that run is no back-off"
    );
}

pub fn b5_a_value_that_joins_stands_behind_that_of_the_failed_run<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    let one = q.take(1);
    q.trigger(1, When::NowIn(InBackoff::Respect), Some(Value::of(2))).unwrap();
    q.trigger(1, after(3, Policy::Earliest, InBackoff::Respect), Some(Value::of(3))).unwrap();
    assert!(sound(one.retry_after(ms(100))).is_ok());
    q.trigger(1, When::NowIn(InBackoff::Respect), Some(Value::of(4))).unwrap();
    q.clock.advance(ms(100));
    let two = q.take(1);
    assert_eq!(two.value().map(|value| value.items.clone()), Some(vec![1, 2, 3, 4]));
}

pub fn b5_a_value_of_a_trigger_that_resets_goes_to_the_fresh_start<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    let one = q.take(1);
    q.trigger(1, When::NowIn(InBackoff::Reset), Some(Value::of(2))).unwrap();
    assert!(sound(one.retry()).is_ok());
    assert_eq!(q.take(1).value().map(|value| value.items.clone()), Some(vec![1, 2]));
}

pub fn b5_attempts_go_on_where_a_trigger_respects_and_restart_where_it_does_not<A: Adapter>() {
    for (in_backoff, attempt) in [(InBackoff::Respect, 2), (InBackoff::Run, 1), (InBackoff::Reset, 1)] {
        let during = Subject::<A>::new();
        during.add(1);
        let one = during.take(1);
        during.add_in(1, in_backoff);
        assert!(sound(one.retry_after(ms(100))).is_ok());
        let after = failed::<A>();
        after.add_in(1, in_backoff);
        for q in [during, after] {
            if in_backoff == InBackoff::Respect {
                q.clock.advance(ms(100));
            }
            assert_eq!(q.take(1).attempt(), attempt, "{in_backoff:?}");
        }
    }
}

pub fn b5_a_batch_says_it_key_by_key<A: Adapter>() {
    let q = Subject::<A>::new();
    for key in 1..=4 {
        q.add(key);
        assert!(sound(q.take(key).retry_after(ms(100))).is_ok());
    }
    let whens = [InBackoff::Run, InBackoff::Respect, InBackoff::Reset].map(When::NowIn);
    let batch = [(1, whens[0]), (2, whens[1]), (3, whens[2]), (4, after(5, Policy::Keep, InBackoff::Reset))];
    let added = q.trigger_many(batch.map(|(key, when)| (key.into(), when, None)).into());
    let expected = [Accepted::Ready, Accepted::Coalesced, Accepted::Ready, Accepted::Waiting];
    assert!(added.into_iter().map(Result::unwrap).eq(expected));
    assert_eq!([1, 2, 3, 4].map(|key| q.num_requeues(key)), [1, 1, 0, 0]);
    assert_eq!(q.work_off(), [1, 3]);
    q.clock.advance(ms(5));
    assert_eq!(q.work_off(), [4]);
    q.clock.advance(ms(95));
    assert_eq!(q.work_off(), [1, 2]);
}

pub fn b5_what_is_put_back_through_the_limiter_waits_out_a_failure<A: Adapter>() {
    let q = queue::<A>(InBackoff::Respect);
    q.add(1);
    let one = q.take(1);
    q.add(1);
    q.add_rate_limited(1);
    q.add(1);
    sound(one.done());
    q.has(0, 0, 0, 1);
    assert_eq!(q.add(1), Accepted::Coalesced);
    assert_eq!(q.num_requeues(1), 1);
    runs_only_in(&q, 1);
}

pub fn b5_a_queue_that_resets_still_backs_off_what_is_put_back_through_the_limiter<A: Adapter>() {
    let q = queue::<A>(InBackoff::Reset);
    q.add(1);
    for failures in 0..5 {
        let item = q.take(1);
        q.add_rate_limited(1);
        sound(item.done());
        assert_eq!(q.num_requeues(1), failures + 1);
        q.is_idle();
        q.clock.advance(ms(1 << failures));
    }
    ignore(q.take(1));
    q.add_rate_limited(1);
    assert_eq!(q.add(1), Accepted::Ready);
    q.has(1, 0, 0, 0);
    assert_eq!(q.num_requeues(1), 0);
}

pub fn b5_a_rate_limited_trigger_that_says_so_respects_or_resets_and_asks_once<A: Adapter>() {
    let q = failed::<A>();
    assert_eq!(trigger(&q, When::RateLimitedIn(InBackoff::Respect)), Accepted::Coalesced);
    assert_eq!(q.num_requeues(1), 2, "each accepted call asks the limiter");
    assert_eq!(q.state(1), Some(Seen { due: Some(q.clock.at() + ms(100)), ..Seen::default() }));
    assert_eq!(trigger(&q, When::RateLimitedIn(InBackoff::Reset)), Accepted::Waiting);
    assert_eq!(q.num_requeues(1), 1, "it forgets, and then asks");
    runs_only_in(&q, 1);
}

pub fn b5_a_refused_trigger_resets_nothing<A: Adapter>() {
    let q = failed::<A>();
    q.close();
    assert!(q.trigger(1, When::NowIn(InBackoff::Reset), None).is_err());
    q.has(0, 0, 0, 1);
    assert_eq!(q.num_requeues(1), 1);
}

pub fn b5_a_respectful_trigger_gets_its_run_where_the_retry_is_refused<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add_in(1, InBackoff::Respect);
    q.shut_down();
    let Err(one) = sound(one.retry()) else { panic!("a retry on a queue that is shut down") };
    sound(one.done());
    assert_eq!(q.work_off(), [1]);
    q.is_over();
}

pub fn b5_a_drain_that_waits_waits_for_what_has_joined_a_back_off<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add_in(1, InBackoff::Respect);
    let drain = q.drain(Waiters::Wait);
    assert!(sound(one.retry_after(ms(100))).is_ok());
    q.is_idle();
    q.clock.advance(ms(100));
    assert_eq!(q.work_off(), [1]);
    q.is_over();
    drop(drain);
}

pub fn b5_a_batch_that_is_put_back_is_ready_whatever_came_meanwhile<A: Adapter>() {
    for in_backoff in ALL {
        let q = Subject::<A>::new();
        q.add(1);
        let items = q.take_many(1);
        q.add_in(1, in_backoff);
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _items = items;
            panic!("on purpose");
        }));
        assert!(unwound.is_err());
        q.has(1, 0, 0, 0);
        fail(&q, ms(100));
        q.has(0, 0, 0, 1);
    }
}

pub fn b5_timers_absorbed_go_with_their_back_off<A: Adapter>() {
    let q = Subject::<A>::with(Config { absorbed: true, ..Config::default() });
    q.add(1);
    fail(&q, ms(100));
    q.add_in(1, InBackoff::Run);
    let two = q.take(1);
    q.has(0, 1, 0, 0);
    q.add_in(1, InBackoff::Respect);
    assert!(sound(two.retry_after(ms(50))).is_ok());
    runs_only_in(&q, 50);
}

/// Runs key 1, which fails at each run, for this many milliseconds, on a queue whose first back-off is 5 ms.
/// `echo` is called during each run and at each millisecond, with the time since the last run. Returns the
/// instants of the runs.
fn failing<A: Adapter>(
    in_backoff: InBackoff,
    millis: u64,
    echo: impl Fn(&Subject<A>, u64, Option<u64>),
) -> (Vec<u64>, u32) {
    let exponential = Exponential { base: ms(5), max: Duration::from_secs(1_000), expire_after: None };
    let q = Subject::<A>::with(Config { in_backoff, exponential: Some(exponential), ..Config::default() });
    q.add(1);
    let mut runs = Vec::new();
    for at in 0..millis {
        // as often as it is ready: it may be at once again
        for _ in 0..3 {
            let Ok(item) = q.try_get() else { break };
            runs.push(at);
            echo(&q, at, None);
            assert!(sound(item.retry()).is_ok());
        }
        echo(&q, at, runs.last().map(|last| at - last));
        q.clock.advance(ms(1));
    }
    (runs, q.num_requeues(1))
}

pub fn b5_a_key_that_fails_and_echoes_itself_runs_as_often_as_one_that_does_not<A: Adapter>() {
    let echo = |q: &Subject<A>, _, since: Option<u64>| {
        // its own write comes back once during the run and once three milliseconds later
        if since.is_none_or(|since| since == 3) {
            q.add(1);
        }
    };
    let (quiet, _) = failing::<A>(InBackoff::Run, 12_000, |_, _, _| ());
    assert_eq!(quiet, [0, 5, 15, 35, 75, 155, 315, 635, 1_275, 2_555, 5_115, 10_235]);
    let (echoing, failures) = failing::<A>(InBackoff::Respect, 12_000, echo);
    assert_eq!(echoing, quiet, "12 runs in 12 s");
    assert_eq!(failures, 12);
    let (original, _) = failing::<A>(InBackoff::Run, 12_000, echo);
    assert!(original.len() > 40, "by default it runs by its own echo, as in the original");
}

pub fn b5_twenty_events_in_200_ms_are_no_twenty_failures<A: Adapter>() {
    let event = |q: &Subject<A>, at: u64, since: Option<u64>| {
        if at % 10 == 0 && since.is_some() {
            q.add(1);
        }
    };
    let (_, quiet) = failing::<A>(InBackoff::Run, 200, |_, _, _| ());
    let (_, failures) = failing::<A>(InBackoff::Respect, 200, event);
    assert_eq!((quiet, failures), (6, 6));
    let (_, original) = failing::<A>(InBackoff::Run, 200, event);
    assert!(original >= 20, "by default each of them brings a run forward, and that one fails");
}

//! R: add_rate_limited, forget and num_requeues of the queue, and the lifetime of records. (Limiters have
//! tests in their own files.)

use crate::adapter::{
    Accepted, Adapter, Config, Exponential, Held, Limiter, Policy, Seen, Subject, When, ms, sound,
};
use crate::limits::{Asked, Scripted};
use crate::probe::Value;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A queue with an exponential limiter whose counts it keeps, and one with an equal limiter of the user's
/// own, which keeps its counts itself.
fn both<A: Adapter>(test: impl Fn(&Subject<A>)) {
    let exponential = Some(Exponential { base: ms(1), max: ms(50), expire_after: None });
    test(&Subject::with(Config { exponential, ..Config::default() }));
    test(&Subject::limited(requeue::limiter::Exponential::new(ms(1), ms(50)).expect("a limiter")));
}

fn scripted<A: Adapter>(delay: Duration) -> (Subject<A>, Arc<Scripted>) {
    let limiter = Scripted::new(delay);
    (Subject::limited(Limiter(Arc::<Scripted>::clone(&limiter))), limiter)
}

pub fn r_add_rate_limited_is_add_after_what_the_limiter_says<A: Adapter>() {
    both::<A>(|q| {
        for delay in [1, 2, 4, 8, 16, 32, 50, 50] {
            let now = q.clock.at();
            assert_eq!(q.add_rate_limited(1), Accepted::Waiting);
            assert_eq!(q.state(1), Some(Seen { due: Some(now + ms(delay)), ..Seen::default() }));
            q.clock.advance(ms(delay) - Duration::from_nanos(1));
            q.is_idle();
            q.clock.advance(Duration::from_nanos(1));
            sound(q.take(1).done());
        }
    });
}

pub fn r_a_limiter_that_says_zero_is_add<A: Adapter>() {
    let (q, _limiter) = scripted::<A>(ms(0));
    assert_eq!(q.add_rate_limited(1), Accepted::Ready);
    assert_eq!(q.add_rate_limited(1), Accepted::Coalesced);
    let one = q.take(1);
    assert_eq!(q.add_rate_limited(1), Accepted::Dirty);
    sound(one.done());
    assert_eq!(q.work_off(), [1]);
}

pub fn r_never_as_a_delay_is_duration_max<A: Adapter>() {
    let (q, _limiter) = scripted::<A>(Duration::MAX);
    assert_eq!(q.add_rate_limited(1), Accepted::Waiting);
    q.clock.advance(Duration::from_secs(1 << 33));
    q.is_idle();
    assert_eq!(q.add(1), Accepted::Ready);
}

pub fn r_every_accepted_call_asks_the_limiter_once_duplicates_too<A: Adapter>() {
    let (q, limiter) = scripted::<A>(ms(5));
    let now = q.clock.at();
    for count in 1..=3 {
        q.add_rate_limited(1);
        assert_eq!(limiter.take_asked(), [Asked::When(1, now)], "call {count}");
        assert_eq!(q.num_requeues(1), count);
        limiter.take_asked();
    }
    // Ready, held, dirty: the same.
    q.add(1);
    q.add_rate_limited(1);
    let one = q.take(1);
    q.add_rate_limited(1);
    q.add(1);
    q.trigger(1, When::RateLimited, Some(Value::of(1))).unwrap();
    assert_eq!(limiter.take_whens(), 3);
    drop(one);
}

pub fn r_other_triggers_ask_no_limiter<A: Adapter>() {
    let (q, limiter) = scripted::<A>(ms(5));
    q.add(1);
    q.add_value(1, 1);
    q.add_after(1, ms(5));
    q.add_after_with(2, ms(5), Policy::Replace);
    sound(q.take(1).done());
    assert_eq!(limiter.take_asked(), []);
}

pub fn r_the_earlier_of_two_rate_limited_calls_wins<A: Adapter>() {
    both::<A>(|q| {
        q.add_rate_limited(1);
        assert_eq!(q.add_rate_limited(1), Accepted::Coalesced);
        assert_eq!(q.num_requeues(1), 2, "the failure counts all the same");
        q.clock.advance(ms(1));
        assert_eq!(q.work_off(), [1]);
    });
}

pub fn r_forget_clears_the_record_and_leaves_a_timer_alone<A: Adapter>() {
    both::<A>(|q| {
        q.add_rate_limited(1);
        q.add_rate_limited(1);
        let due = q.state(1).and_then(|seen| seen.due);
        q.forget(1);
        assert_eq!(q.num_requeues(1), 0);
        assert_eq!(q.state(1), Some(Seen { due, ..Seen::default() }));
        q.clock.advance(ms(1));
        assert_eq!(q.work_off(), [1]);
        let now = q.clock.at();
        q.add_rate_limited(1);
        assert_eq!(q.state(1).and_then(|seen| seen.due), Some(now + ms(1)), "from the beginning");
    });
}

pub fn r_forget_of_an_unknown_key_is_nothing<A: Adapter>() {
    both::<A>(|q| {
        q.forget(1);
        assert_eq!(q.num_requeues(1), 0);
        assert_eq!(q.state(1), None);
        q.has(0, 0, 0, 0);
    });
}

pub fn r_num_requeues_reads_the_record_which_done_leaves<A: Adapter>() {
    both::<A>(|q| {
        for count in 1..=4 {
            q.add_rate_limited(1);
            q.clock.advance(ms(50));
            assert_eq!(q.num_requeues(1), count);
            sound(q.take(1).done());
            assert_eq!(q.num_requeues(1), count, "done does not forget");
        }
        assert_eq!(q.num_requeues(2), 0);
        assert_eq!(q.state(1), None, "only its failures are left of the key");
        q.forget(1);
        assert_eq!(q.num_requeues(1), 0);
    });
}

pub fn r_records_are_the_keys_own<A: Adapter>() {
    both::<A>(|q| {
        for key in 0..50 {
            for _ in 0..key % 4 {
                q.add_rate_limited(key);
            }
        }
        for key in 0..50 {
            assert_eq!(u64::from(q.num_requeues(key)), key % 4);
        }
        q.forget(7);
        assert_eq!((q.num_requeues(7), q.num_requeues(11)), (0, 3));
    });
}

pub fn r_retry_asks_once_and_succeed_forgets<A: Adapter>() {
    let (q, limiter) = scripted::<A>(ms(5));
    q.add(1);
    assert_eq!(sound(q.take(1).retry()).ok(), Some(ms(5)));
    assert_eq!(limiter.take_asked(), [Asked::When(1, q.clock.at())]);
    q.clock.advance(ms(5));
    let one = q.take(1);
    limiter.take_asked();
    sound(one.succeed());
    assert_eq!(limiter.take_asked(), [Asked::Forget(1)]);
}

pub fn r_retry_after_asks_once_and_again_and_give_up_forget<A: Adapter>() {
    let (q, limiter) = scripted::<A>(ms(5));
    for key in 1..=3 {
        q.add(key);
    }
    assert_eq!(sound(q.take(1).retry_after(ms(9))).ok(), Some(ms(9)));
    assert_eq!(limiter.take_asked(), [Asked::When(1, q.clock.at())]);
    assert!(sound(q.take(2).again(ms(9))).is_ok());
    assert_eq!(limiter.take_asked(), [Asked::Forget(2)]);
    sound(q.take(3).give_up());
    assert_eq!(limiter.take_asked(), [Asked::Forget(3)]);
}

pub fn r_a_bucket_takes_a_token_for_each_accepted_call_and_ignores_the_key<A: Adapter>() {
    let q = Subject::<A>::limited(requeue::limiter::Bucket::new(1.0, 2).expect("a bucket"));
    assert_eq!(q.add_rate_limited(1), Accepted::Ready);
    assert_eq!(q.add_rate_limited(1), Accepted::Coalesced, "a duplicate takes a token too");
    assert_eq!(q.add_rate_limited(2), Accepted::Waiting);
    assert_eq!(q.state(2).and_then(|seen| seen.due), Some(q.clock.at() + ms(1_000)));
    assert_eq!(q.num_requeues(1), 0, "a bucket keeps no record");
}

pub fn r_the_count_is_exact_under_concurrent_calls<A: Adapter>() {
    both::<A>(|q| {
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..250 {
                        q.add_rate_limited(1);
                    }
                });
            }
        });
        assert_eq!(q.num_requeues(1), 1_000);
        q.has(0, 0, 0, 1);
    });
}

fn expiring<A: Adapter>(after: Duration) -> Subject<A> {
    let exponential = Some(Exponential { base: ms(1), max: ms(1_000), expire_after: Some(after) });
    Subject::with(Config { exponential, ..Config::default() })
}

pub fn r_a_record_expires_after_a_time_since_the_end_of_the_last_delay_that_it_gave<A: Adapter>() {
    let q = expiring::<A>(ms(100));
    q.add_rate_limited(1);
    q.clock.advance(ms(50));
    q.add_rate_limited(1);
    q.work_off();
    // Its last delay was 2 ms: it ends at 52 ms and expires at 152 ms.
    q.clock.advance(ms(102) - Duration::from_nanos(1));
    assert_eq!(q.num_requeues(1), 2);
    q.clock.advance(Duration::from_nanos(1));
    assert_eq!(q.num_requeues(1), 0, "an expired one reads 0");
    let now = q.clock.at();
    q.add_rate_limited(1);
    assert_eq!(q.state(1).and_then(|seen| seen.due), Some(now + ms(1)), "from the beginning");
    assert_eq!(q.num_requeues(1), 1);
}

pub fn r_reading_does_not_extend_a_record<A: Adapter>() {
    let q = expiring::<A>(ms(10));
    q.add_rate_limited(1);
    for _ in 0..10 {
        assert_eq!(q.num_requeues(1), 1);
        q.clock.advance(ms(1));
        q.state(1);
        q.work_off();
    }
    q.clock.advance(ms(1));
    assert_eq!(q.num_requeues(1), 0);
}

pub fn r_by_default_records_never_expire<A: Adapter>() {
    both::<A>(|q| {
        q.add_rate_limited(1);
        q.clock.advance(Duration::from_secs(1 << 32));
        assert_eq!(q.num_requeues(1), 1);
    });
}

pub fn r_a_record_does_not_expire_while_its_delay_runs<A: Adapter>() {
    let q = expiring::<A>(ms(1));
    for _ in 0..10 {
        q.add_rate_limited(1);
    }
    assert_eq!(q.num_requeues(1), 10);
    // The last delay is 512 ms.
    q.clock.advance(ms(512));
    assert_eq!(q.num_requeues(1), 10);
    q.clock.advance(ms(1));
    assert_eq!(q.num_requeues(1), 0);
}

pub fn r_an_expired_record_of_a_key_that_is_worked_on_counts_from_the_beginning<A: Adapter>() {
    let q = expiring::<A>(ms(10));
    q.add(1);
    assert_eq!(sound(q.take(1).retry()).ok(), Some(ms(1)));
    q.clock.advance(ms(1));
    assert_eq!(sound(q.take(1).retry()).ok(), Some(ms(2)));
    q.clock.advance(ms(2));
    let one = q.take(1);
    q.clock.advance(ms(10));
    assert_eq!(sound(one.retry()).ok(), Some(ms(1)));
}

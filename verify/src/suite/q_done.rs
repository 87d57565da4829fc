//! Q12: an implicit done, and the explicit ends of a guard.

use crate::adapter::{Adapter, Config, Drained, Held, Seen, Subject, Waiters, ms, sound};
use crate::probe::Value;
use crate::wake::{Count, poll_once};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::thread;

fn retrying<A: Adapter>() -> Subject<A> {
    Subject::with(Config { unfinished_retries: true, ..Config::default() })
}

fn items(value: Option<&Value>) -> Vec<u32> {
    value.map(|value| value.items.clone()).unwrap_or_default()
}

pub fn q12_dropping_the_guard_is_done<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add(1);
    drop(one);
    q.has(1, 0, 0, 0);
    drop(q.take(1));
    q.has(0, 0, 0, 0);
}

pub fn q12_dropping_the_guard_is_done_after_shut_down_and_during_drains<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    let mut drain = q.drain(Waiters::Drop);
    assert!(poll_once(&mut drain).is_pending());
    drop(one);
    assert!(poll_once(&mut drain).is_ready());
}

pub fn q12_dropping_the_guard_is_done_during_unwinding<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _one = q.take(1);
        q.add(1);
        panic!("a handler panics");
    }));
    assert!(panic.is_err());
    q.has(1, 0, 0, 0);
    assert_eq!(q.work_off(), [1]);
}

pub fn q12_the_guard_may_be_dropped_on_another_thread_and_after_the_queue<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1).into_owned();
    thread::spawn(move || drop(one)).join().unwrap();
    q.has(0, 0, 0, 0);
    q.add(2);
    let two = q.take(2).into_owned();
    drop(q);
    assert_eq!(two.key().id, 2);
    drop(two);
}

pub fn q12_an_owned_guard_is_the_same_run<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 5);
    let one = q.take(1).into_owned();
    q.has(0, 1, 0, 0);
    assert_eq!((one.key().id, one.attempt(), items(one.value())), (1, 1, vec![5]));
    q.add(1);
    sound(one.done());
    assert_eq!(q.work_off(), [1]);
}

pub fn q12_by_option_a_guard_dropped_without_a_word_ends_as_retry_does<A: Adapter>() {
    let q = retrying::<A>();
    q.add_value(1, 5);
    let one = q.take(1);
    q.trigger(1, crate::adapter::When::After(ms(50), Default::default()), Some(Value::of(6))).unwrap();
    drop(one);
    assert_eq!(q.num_requeues(1), 1, "the limiter was asked");
    q.has(0, 0, 0, 1);
    q.clock.advance(ms(50));
    let one = q.take(1);
    assert_eq!(items(one.value()), [5, 6], "the payload was merged back, in front");
    sound(one.succeed());
    assert_eq!(q.num_requeues(1), 0);
}

pub fn q12_by_option_an_unwinding_guard_retries_with_its_attempt_counted<A: Adapter>() {
    let q = retrying::<A>();
    q.add(1);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _one = q.take(1);
        panic!("a handler panics");
    }));
    assert!(panic.is_err());
    q.has(0, 0, 0, 1);
    q.clock.advance(ms(1));
    assert_eq!(q.take(1).attempt(), 2);
}

pub fn q12_by_option_a_guard_that_says_done_is_done<A: Adapter>() {
    let q = retrying::<A>();
    for key in 1..=3 {
        q.add(key);
    }
    sound(q.take(1).done());
    sound(q.take(2).succeed());
    sound(q.take(3).give_up());
    q.has(0, 0, 0, 0);
    for key in 1..=3 {
        assert_eq!(q.num_requeues(key), 0);
    }
}

pub fn q12_by_option_a_dropped_guard_whose_retry_is_refused_is_done_and_counted_as_left<A: Adapter>() {
    let q = retrying::<A>();
    q.add(1);
    let one = q.take(1);
    let mut drain = q.drain(Waiters::Drop);
    drop(one);
    let Poll::Ready(answer) = poll_once(&mut drain) else { panic!("the run has ended") };
    let answer = sound(answer);
    assert_eq!((answer.done, answer.refused, answer.refused_retries), (1, 0, 1));
    assert_eq!(q.num_requeues(1), 0, "the limiter was not asked");
}

pub fn q12_by_default_a_dropped_guard_asks_no_limiter<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    drop(q.take(1));
    assert_eq!(q.num_requeues(1), 0);
    q.has(0, 0, 0, 0);
}

pub fn q12_a_refused_retry_gives_the_guard_back_with_its_payload<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 5);
    let one = q.take(1);
    q.shut_down();
    let mut one = sound(one.retry()).expect_err("refused");
    assert_eq!(one.take_value().map(|value| value.items.clone()), Some(vec![5]));
    q.has(0, 1, 0, 0);
    drop(one);
    q.has(0, 0, 0, 0);
}

pub fn q12_done_and_get_the_next_hands_out_the_next<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.add(2);
    let one = q.take(1);
    let two = sound(one.next()).expect("the next");
    assert_eq!(two.key().id, 2);
    q.has(0, 1, 0, 0);
    q.shut_down();
    assert!(sound(two.next()).is_none());
    q.has(0, 0, 0, 0);
}

pub fn q12_done_and_get_the_next_of_a_dirty_key_may_be_the_same_key<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add(1);
    let one = sound(one.next()).expect("its next run");
    assert_eq!(one.key().id, 1);
    q.has(0, 1, 0, 0);
}

pub fn q12_done_and_get_the_next_ends_the_run_at_the_first_poll<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    let mut next = one.nexting();
    q.has(0, 1, 0, 0);
    assert!(poll_once(&mut next).is_pending());
    q.has(0, 0, 0, 0);
    q.add(2);
    let Poll::Ready(two) = poll_once(&mut next) else { panic!("a key is ready") };
    assert_eq!(sound(two).unwrap().key().id, 2);
}

pub fn q12_done_and_get_the_next_ends_the_run_at_the_drop_of_the_future<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.add(2);
    let next = q.take(1).nexting();
    q.has(1, 1, 0, 0);
    drop(next);
    q.has(1, 0, 0, 0);
    assert_eq!(q.work_off(), [2], "the drop loses no key");
}

pub fn q12_dropping_done_and_get_the_next_after_a_wake_up_loses_no_key<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let mut next = q.take(1).nexting();
    assert!(poll_once(&mut next).is_pending());
    let count = Count::new();
    let mut other = q.getting();
    assert!(count.poll(&mut other).is_pending());
    q.add(2);
    drop(next);
    assert!(count.wakes() > 0, "the wake-up went with the future");
    assert!(count.poll(&mut other).is_ready());
}

pub fn q12_done_for_a_key_that_is_not_held_is_an_error_value<A: Adapter>() {
    let q = Subject::<A>::new();
    assert!(!q.done(1), "unknown");
    q.add(1);
    assert!(!q.done(1), "ready");
    q.add_after(2, ms(5));
    assert!(!q.done(2), "waiting");
    q.has(1, 0, 0, 1);
    let (key, _) = sound(q.take(1).detach());
    assert!(q.done(key.id));
    assert!(!q.done(key.id), "done already");
    q.clock.advance(ms(5));
    assert_eq!(q.work_off(), [2]);
}

pub fn q12_the_guard_free_pair_hands_out_the_key_and_done_ends_the_run<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 5);
    let (key, value) = sound(q.take(1).detach());
    assert_eq!((key.id, items(value.as_ref())), (1, vec![5]));
    q.has(0, 1, 0, 0);
    q.add(1);
    q.is_idle();
    assert!(q.done(1));
    let (key, value) = sound(q.take(1).detach());
    assert!(value.is_none());
    assert!(q.done(key.id));
    q.has(0, 0, 0, 0);
}

pub fn q12_a_guard_whose_run_was_ended_by_key_is_inert_and_its_key_stays_readable<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let inert = q.take(1);
    assert!(q.done(1));
    q.has(0, 0, 0, 0);
    assert_eq!(inert.key().id, 1);
    q.add(1);
    let second = q.take(1);
    assert_eq!(inert.key().id, 1);
    q.add(1);
    drop(inert);
    q.has(0, 1, 1, 0);
    q.is_idle();
    sound(second.done());
    assert_eq!(q.work_off(), [1]);
    q.has(0, 0, 0, 0);
}

pub fn q12_no_word_of_an_inert_guard_ends_another_run<A: Adapter>() {
    let words: [fn(A::Held<'_>); 6] = [
        |guard| sound(guard.done()),
        |guard| sound(guard.succeed()),
        |guard| sound(guard.give_up()),
        |guard| drop(sound(guard.retry())),
        |guard| drop(sound(guard.again(ms(1)))),
        |guard| drop(guard.nexting()),
    ];
    for (index, word) in words.into_iter().enumerate() {
        let q = Subject::<A>::new();
        q.add(1);
        let inert = q.take(1);
        assert!(q.done(1));
        q.add(1);
        let second = q.take(1);
        word(inert);
        let seen = Some(Seen { held: true, ..Seen::default() });
        assert_eq!(q.state(1), seen, "word {index} of a guard that is inert changed something");
        assert_eq!(q.num_requeues(1), 0, "word {index} of a guard that is inert asked the limiter");
        sound(second.done());
    }
}

pub fn q12_an_inert_guard_keeps_its_key_readable_after_the_queue_has_forgotten_it<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let inert = q.take(1).into_owned();
    assert!(q.done(1));
    for key in 100..1_000 {
        q.add(key);
    }
    q.work_off();
    assert_eq!(inert.key().id, 1);
    drop(q);
    assert_eq!(inert.key().id, 1);
}

pub fn q12_a_detached_run_holds_its_key_until_done_by_key<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let detached = sound(q.take(1).detach());
    drop(detached);
    q.has(0, 1, 0, 0);
    let mut drain = q.drain(Waiters::Drop);
    assert!(poll_once(&mut drain).is_pending());
    assert!(q.done(1));
    assert!(poll_once(&mut drain).is_ready());
}

pub fn q12_put_back_by_its_holder_a_key_is_in_line_with_an_attempt_and_no_failure<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 10);
    assert!(sound(q.take(1).retry()).is_ok());
    q.clock.advance(ms(1));
    let item = q.take(1);
    q.add(2);
    assert_eq!(item.attempt(), 2);
    sound(item.put_back());
    q.has(2, 0, 0, 0);
    sound(q.take(2).done());
    let item = q.take(1);
    assert_eq!((item.attempt(), q.num_requeues(1)), (3, 1), "an attempt, and no failure");
    assert_eq!(item.value().map(|value| value.items.clone()), Some(vec![10]));
    // a trigger during the run restarts the attempts (W)
    q.add_value(1, 11);
    sound(item.put_back());
    q.has(1, 0, 0, 0);
    let item = q.take(1);
    assert_eq!((item.attempt(), q.num_requeues(1)), (1, 1));
    assert_eq!(item.value().map(|value| value.items.clone()), Some(vec![10, 11]), "older first");
    sound(item.done());
}

pub fn q12_put_back_by_its_holder_is_never_refused<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let item = q.take(1);
    let mut drain = q.drain(Waiters::Drop);
    assert!(poll_once(&mut drain).is_pending());
    sound(item.put_back());
    q.has(1, 0, 0, 0);
    sound(q.take(1).put_back());
    assert!(poll_once(&mut drain).is_pending(), "the key is still to run");
    assert_eq!(q.work_off(), [1]);
    let Poll::Ready(answer) = poll_once(&mut drain) else { panic!("nothing is left") };
    assert_eq!(sound(answer), Drained { complete: true, done: 1, ..Drained::default() });
}

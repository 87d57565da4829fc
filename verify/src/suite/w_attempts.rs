//! The attempts of W, as the guards of the queue count them, and their outcomes.

use crate::adapter::{Adapter, Config, Held, Policy, Subject, ms, sound};

/// Fails the next run of `key`, which must be this attempt; its back-off.
fn fail<A: Adapter>(q: &Subject<A>, key: u64, attempt: u32) -> std::time::Duration {
    let item = q.take(key);
    assert_eq!(item.attempt(), attempt);
    sound(item.retry()).ok().expect("the queue is open")
}

pub fn w_attempts_count_the_runs_that_failed_in_a_row<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    for attempt in 1..=5 {
        let delay = fail(&q, 1, attempt);
        q.clock.advance(delay);
    }
    let six = q.take(1);
    assert_eq!(six.attempt(), 6);
    sound(six.succeed());
    q.add(1);
    assert_eq!(q.take(1).attempt(), 1, "a success ends the row");
}

pub fn w_attempts_are_the_keys_own<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.add(2);
    fail(&q, 1, 1);
    sound(q.take(2).done());
    q.add(2);
    q.clock.advance(ms(1));
    assert_eq!(q.take(2).attempt(), 1);
    assert_eq!(q.take(1).attempt(), 2);
}

pub fn w_attempts_are_not_read_from_the_limiter<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    fail(&q, 1, 1);
    q.forget(1);
    assert_eq!(q.num_requeues(1), 0);
    q.clock.advance(ms(1));
    assert_eq!(q.take(1).attempt(), 2, "forget clears the limiter's record, not the attempts");
    q.add_rate_limited(2);
    q.add_rate_limited(2);
    q.clock.advance(ms(10));
    assert_eq!(q.num_requeues(2), 2);
    assert_eq!(q.take(2).attempt(), 1, "the limiter's record is no attempt");
}

pub fn w_attempts_restart_when_a_trigger_makes_the_held_key_dirty<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let delay = fail(&q, 1, 1);
    q.clock.advance(delay);
    let two = q.take(1);
    assert_eq!(two.attempt(), 2);
    q.add(1);
    assert!(sound(two.retry()).is_ok());
    assert_eq!(q.take(1).attempt(), 1);
}

pub fn w_attempts_restart_when_a_timer_set_during_the_run_makes_the_key_dirty<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add_after(1, ms(5));
    q.clock.advance(ms(5));
    assert!(sound(one.retry()).is_ok());
    assert_eq!(q.take(1).attempt(), 1);
}

pub fn w_attempts_restart_when_a_timer_set_before_the_hand_out_makes_the_key_dirty<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    q.add(1);
    let one = q.take(1);
    q.clock.advance(ms(5));
    assert!(sound(one.retry()).is_ok());
    assert_eq!(q.take(1).attempt(), 1);
}

pub fn w_attempts_restart_when_a_trigger_readies_a_key_that_waits_out_a_failure<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    fail(&q, 1, 1);
    q.add(1);
    assert_eq!(q.take(1).attempt(), 1);
}

pub fn w_attempts_restart_when_a_trigger_with_a_sooner_timer_readies_it<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    assert!(sound(q.take(1).retry_after(ms(100))).is_ok());
    q.add_after(1, ms(10));
    q.clock.advance(ms(10));
    assert_eq!(q.take(1).attempt(), 1);
}

pub fn w_attempts_go_on_when_a_trigger_with_a_later_timer_changes_nothing<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    assert!(sound(q.take(1).retry_after(ms(10))).is_ok());
    q.add_after(1, ms(100));
    q.add_after_with(1, ms(1), Policy::Keep);
    q.clock.advance(ms(10));
    assert_eq!(q.take(1).attempt(), 2, "the back-off's own timer readied it");
}

pub fn w_attempts_restart_when_a_timer_set_before_the_hand_out_readies_it<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    q.add(1);
    assert!(sound(q.take(1).retry_after(ms(100))).is_ok());
    q.clock.advance(ms(5));
    assert_eq!(q.take(1).attempt(), 1);
}

pub fn w_attempts_a_trigger_for_a_key_that_is_ready_changes_nothing<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let delay = fail(&q, 1, 1);
    q.clock.advance(delay);
    q.has(1, 0, 0, 0);
    q.add(1);
    q.add_after(1, ms(0));
    assert_eq!(q.take(1).attempt(), 2, "its back-off had made it ready already");
}

pub fn w_attempts_a_retry_at_once_is_the_next_attempt<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    for attempt in 1..=4 {
        let item = q.take(1);
        assert_eq!(item.attempt(), attempt);
        assert_eq!(sound(item.retry_after(ms(0))).ok(), Some(ms(0)));
    }
}

pub fn w_attempts_again_after_is_not_a_failure_it_forgets<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let delay = fail(&q, 1, 1);
    q.clock.advance(delay);
    assert_eq!(q.num_requeues(1), 1);
    let two = q.take(1);
    assert_eq!(two.attempt(), 2);
    assert!(sound(two.again(ms(7))).is_ok());
    assert_eq!(q.num_requeues(1), 0);
    q.clock.advance(ms(7));
    assert_eq!(q.take(1).attempt(), 1);
}

pub fn w_attempts_give_up_forgets_and_a_dirty_key_still_gets_its_next_run_at_attempt_1<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let delay = fail(&q, 1, 1);
    q.clock.advance(delay);
    let two = q.take(1);
    q.add(1);
    sound(two.give_up());
    assert_eq!(q.num_requeues(1), 0);
    let again = q.take(1);
    assert_eq!(again.attempt(), 1);
    sound(again.give_up());
    q.has(0, 0, 0, 0);
    assert_eq!(q.state(1), None);
}

pub fn w_retry_with_its_own_delay_still_asks_the_limiter_and_replaces_its_delay<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    assert_eq!(sound(q.take(1).retry_after(ms(7))).ok(), Some(ms(7)));
    assert_eq!(q.num_requeues(1), 1);
    q.clock.advance(ms(6));
    q.is_idle();
    q.clock.advance(ms(1));
    assert_eq!(sound(q.take(1).retry()).ok(), Some(ms(2)), "the limiter's second delay");
}

pub fn w_retry_of_a_dirty_key_runs_now_and_after_the_back_off<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add(1);
    assert!(sound(one.retry_after(ms(5))).is_ok());
    q.has(1, 0, 0, 1);
    assert_eq!(q.work_off(), [1]);
    q.clock.advance(ms(5));
    assert_eq!(q.work_off(), [1]);
}

pub fn w_attempts_of_a_back_off_that_outlives_another_run_restart<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    assert!(sound(q.take(1).retry_after(ms(5))).is_ok());
    q.add(1);
    sound(q.take(1).done());
    q.clock.advance(ms(5));
    assert_eq!(q.take(1).attempt(), 1, "a run in between did not fail");
}

pub fn w_attempts_restart_when_an_older_back_off_readies_it<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    assert!(sound(q.take(1).retry_after(ms(5))).is_ok());
    q.add(1);
    let again = q.take(1);
    assert_eq!(again.attempt(), 1);
    assert!(sound(again.retry_after(ms(100))).is_ok());
    q.clock.advance(ms(5));
    assert_eq!(q.take(1).attempt(), 1, "that timer was set before the hand-out");
}

pub fn w_attempts_end_with_a_run_that_does_not_fail<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let delay = fail(&q, 1, 1);
    q.clock.advance(delay);
    let two = q.take(1);
    assert_eq!(two.attempt(), 2);
    sound(two.done());
    q.add(1);
    assert_eq!(q.take(1).attempt(), 1);
    assert_eq!(q.num_requeues(1), 1, "the limiter's record stays until it is forgotten");
}

pub fn w_attempts_survive_a_close_and_a_drain_that_waits<A: Adapter>() {
    let q = Subject::<A>::with(Config { absorbed: true, ..Config::default() });
    q.add(1);
    fail(&q, 1, 1);
    let _drain = q.drain(crate::adapter::Waiters::Wait);
    q.clock.advance(ms(1));
    assert_eq!(q.take(1).attempt(), 2);
}

//! B7: what the queue says of a key, in words.

use requeue::{DrainOptions, limiter};
use requeue::{FakeClock, Instant, RateLimiter, WaitingKeys, WorkQueue};
use requeue_verify::limits::Metered;
use std::sync::Arc;
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn b7_explain_tells_why_a_key_runs_or_does_not_in_words() {
    let clock = FakeClock::new();
    let q = WorkQueue::<u64>::builder()
        .clock(clock.clone())
        .limiter(limiter::default_per_item())
        .build()
        .unwrap();
    let says = |words: &str| assert_eq!(q.explain(&1).to_string(), words);
    says("unknown: nothing is to be done for it");
    q.add_after(1, ms(4_200)).unwrap();
    says("waiting: due in 4.2 s");
    q.add(1).unwrap();
    says("ready; due again in 4.2 s");
    let item = q.try_get().unwrap();
    says("held; due again in 4.2 s");
    q.add(1).unwrap();
    says("held; dirty; due again in 4.2 s");
    drop(item);
    clock.advance(ms(4_200));
    says("ready");
    for _ in 0..3 {
        clock.advance(ms(10));
        q.try_get().unwrap().retry().unwrap();
    }
    says("waiting: 3 failures, due in 4 ms");
    clock.advance(ms(4));
    says("ready: 3 failures");
    let item = q.try_get().unwrap();
    says("held: 3 failures");
    item.done();
    says("idle: 3 failures");
    q.forget(&1);
    says("unknown: nothing is to be done for it");
    q.add_after(1, Duration::MAX).unwrap();
    says("waiting: due never");
}

#[test]
fn b7_explain_tells_for_how_long_a_key_is_held_where_timestamps_are_kept() {
    let clock = FakeClock::new();
    let metrics = Metered::new();
    let q = WorkQueue::<u64>::builder()
        .clock(clock.clone())
        .name("q")
        .metrics(Arc::clone(&metrics))
        .build()
        .unwrap();
    q.add(1).unwrap();
    let _item = q.try_get().unwrap();
    clock.advance(ms(12_000));
    q.add(1).unwrap();
    let said = q.explain(&1);
    assert_eq!(said.to_string(), "held for 12 s; dirty");
    assert_eq!((said.held_for(), said.due_in()), (Some(ms(12_000)), None));
}

#[test]
fn b7_explain_counts_failures_in_a_row_where_the_users_limiter_counts() {
    struct Fixed;
    impl<K: ?Sized> RateLimiter<K> for Fixed {
        fn when(&self, _: &K, _: Instant) -> Duration {
            ms(5)
        }
        fn forget(&self, _: &K) {}
        fn num_requeues(&self, _: &K) -> u32 {
            0
        }
    }
    let q = WorkQueue::<u64>::builder().clock(FakeClock::new()).limiter(Fixed).build().unwrap();
    q.add(1).unwrap();
    q.try_get().unwrap().retry().unwrap();
    assert_eq!(q.explain(&1).to_string(), "waiting: 1 failure, due in 5 ms");
}

#[test]
fn b7_explain_says_that_the_queue_takes_no_more_triggers() {
    let q = WorkQueue::<u64>::builder().clock(FakeClock::new()).build().unwrap();
    q.add_after(1, ms(5)).unwrap();
    let _drain = q.shut_down_with(DrainOptions::default().waiting_keys(WaitingKeys::Wait));
    assert_eq!(q.explain(&1).to_string(), "waiting: due in 5 ms; the queue takes no more triggers");
    q.shut_down();
    let said = q.explain(&1);
    assert_eq!(said.to_string(), "unknown: nothing is to be done for it; the queue takes no more triggers");
    assert!(said.state.is_none() && said.shutting_down);
}

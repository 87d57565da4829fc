//! D4, D7-D10: promptness, sizes, shutdown, the clock.

use crate::adapter::{Accepted, Adapter, Down, Drained, Held, Policy, Seen, Subject, Waiters, ms, sound};
use crate::wake::{Count, poll_once};
use requeue::Instant;
use std::task::Poll;
use std::thread;
use std::time::Duration;

pub fn d4_a_timer_wakes_a_waiting_get_at_its_due_instant_without_another_call<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(10));
    let count = Count::new();
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    q.clock.advance(ms(10) - Duration::from_nanos(1));
    let early = count.wakes();
    q.clock.advance(Duration::from_nanos(1));
    assert!(count.wakes() > early, "the clock woke nobody at the due instant");
    let Poll::Ready(item) = count.poll(&mut getting) else { panic!("due") };
    assert_eq!(sound(item).unwrap().key().id, 1);
}

pub fn d4_a_timer_set_after_the_wait_began_is_prompt_too<A: Adapter>() {
    let q = Subject::<A>::new();
    let count = Count::new();
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    q.add_after(1, ms(10));
    pending_if_woken(&count, &mut getting);
    let before = count.wakes();
    q.clock.advance(ms(10));
    assert!(count.wakes() > before, "a timer set after the wait began woke nobody");
    assert!(count.poll(&mut getting).is_ready());
}

pub fn d4_a_sooner_timer_set_after_the_wait_began_is_prompt_too<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(100));
    let count = Count::new();
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    for (key, delay) in [(2, 50), (3, 20), (4, 5)] {
        q.add_after(key, ms(delay));
        pending_if_woken(&count, &mut getting);
    }
    let before = count.wakes();
    q.clock.advance(ms(5));
    assert!(count.wakes() > before, "a sooner timer woke nobody");
    let Poll::Ready(item) = count.poll(&mut getting) else { panic!("due") };
    assert_eq!(sound(item).unwrap().key().id, 4);
}

/// A getter may be woken to watch another instant.
fn pending_if_woken<F: Future + Unpin>(count: &std::sync::Arc<Count>, future: &mut F) {
    if count.wakes() > 0 {
        assert!(count.poll(future).is_pending());
    }
}

pub fn d4_a_timer_that_was_moved_earlier_is_prompt_too<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(100));
    let count = Count::new();
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    q.add_after_with(1, ms(5), Policy::Replace);
    pending_if_woken(&count, &mut getting);
    let before = count.wakes();
    q.clock.advance(ms(5));
    assert!(count.wakes() > before, "the moved timer woke nobody");
    assert!(count.poll(&mut getting).is_ready());
}

pub fn d4_every_due_key_finds_a_getter_when_all_are_waiting<A: Adapter>() {
    let q = Subject::<A>::new();
    let counts: Vec<_> = (0..4).map(|_| Count::new()).collect();
    let mut gets: Vec<_> = (0..4).map(|_| Some(q.getting())).collect();
    for (get, count) in gets.iter_mut().zip(&counts) {
        assert!(count.poll(get.as_mut().unwrap()).is_pending());
    }
    for key in 0..4 {
        q.add_after(key, ms(5));
    }
    // Only those who are woken look again, as an executor does it.
    let mut polled = [0; 4];
    let mut keys = Vec::new();
    let mut hold = Vec::new();
    for round in 0..40 {
        if round == 10 {
            q.clock.advance(ms(5));
        }
        for i in 0..4 {
            if counts[i].wakes() > polled[i] {
                polled[i] = counts[i].wakes();
                let Some(get) = gets[i].as_mut() else { continue };
                if let Poll::Ready(item) = counts[i].poll(get) {
                    let item = sound(item).unwrap();
                    keys.push(item.key().id);
                    hold.push(item);
                    gets[i] = None;
                }
            }
        }
    }
    assert_eq!(keys, [0, 1, 2, 3], "a due key was left although getters wait");
}

pub fn d4_a_worker_that_waits_in_its_own_manner_gets_the_key_at_its_due_instant<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(10));
    thread::scope(|s| {
        let getter = s.spawn(|| q.get().key().id);
        q.clock.wait_for_alarms(1);
        q.clock.advance(ms(10));
        assert_eq!(getter.join().unwrap(), 1);
    });
}

pub fn d4_a_sooner_timer_reaches_a_worker_that_waits_in_its_own_manner<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(1_000_000));
    thread::scope(|s| {
        let getter = s.spawn(|| q.get().key().id);
        q.clock.wait_for_alarms(1);
        q.add_after(2, ms(10));
        let due = q.clock.at() + ms(10);
        // It must come to watch the new instant; nothing else happens here.
        while q.clock.next_alarm() != Some(due) {
            thread::yield_now();
        }
        q.clock.advance(ms(10));
        assert_eq!(getter.join().unwrap(), 2);
    });
}

pub fn d4_promotion_shows_wherever_one_looks<A: Adapter>() {
    let q = Subject::<A>::new();
    for key in 0..3 {
        q.add_after(key, ms(5));
    }
    q.clock.advance(ms(5));
    assert_eq!(q.state(0), Some(Seen { ready: true, ..Seen::default() }));
    assert_eq!(q.len(), 3);
    q.has(3, 0, 0, 0);
    assert_eq!(q.add(1), Accepted::Coalesced, "it is ready already");
    assert_eq!(q.shut_down(), Down { ready: 3, ..Down::default() });
}

pub fn d7_add_after_never_waits_whatever_the_number_of_waiting_keys<A: Adapter>() {
    let q = Subject::<A>::new();
    // Nobody takes anything; the original blocks beyond 1,000 unread entries.
    for key in 0..2_000 {
        assert_eq!(q.add_after(key, ms(1 + key % 7)), Accepted::Waiting);
    }
    q.has(0, 0, 0, 2_000);
    q.clock.advance(ms(10));
    assert_eq!(q.work_off().len(), 2_000);
}

pub fn d8_any_duration_is_accepted_and_does_what_it_says<A: Adapter>() {
    let q = Subject::<A>::new();
    q.clock.advance(Duration::from_secs(1));
    let delays = [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_nanos(u64::MAX), ms(5)];
    for (key, delay) in (0..).zip(delays) {
        for policy in [Policy::Earliest, Policy::Replace, Policy::Keep, Policy::Latest(Duration::MAX)] {
            q.add_after_with(key, delay, policy);
        }
    }
    q.has(0, 0, 0, 4);
    assert_eq!(q.state(0).and_then(|seen| seen.due), Some(Instant::NEVER));
    q.clock.advance(Duration::from_secs(3_000_000_000));
    assert_eq!(q.work_off(), [3]);
    q.clock.advance(Duration::MAX);
    assert!(q.work_off().iter().all(|key| *key == 2), "never comes never");
    assert!(q.counts().waiting >= 2);
}

pub fn d8_a_waiting_get_sleeps_through_a_far_future_delay<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, Duration::MAX);
    let mut getting = q.getting();
    assert!(poll_once(&mut getting).is_pending());
    q.add(2);
    let Poll::Ready(item) = poll_once(&mut getting) else { panic!("a key is ready") };
    assert_eq!(sound(item).unwrap().key().id, 2);
}

pub fn d8_requeue_and_retry_take_any_duration<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.add(2);
    assert!(sound(q.take(1).again(Duration::MAX)).is_ok());
    assert!(sound(q.take(2).retry_after(Duration::MAX)).is_ok());
    q.has(0, 0, 0, 2);
    q.clock.advance(Duration::from_secs(u64::MAX));
    q.is_idle();
}

pub fn d9_shut_down_drops_the_timers_and_counts_them<A: Adapter>() {
    let q = Subject::<A>::new();
    for key in 0..10 {
        q.add_after(key, ms(5 + key));
    }
    q.add(3);
    let three = q.take(3);
    q.add(4);
    assert_eq!(q.shut_down(), Down { ready: 1, held: 1, dropped: 10, ..Down::default() });
    q.has(1, 1, 0, 0);
    q.clock.advance(ms(1_000));
    drop(three);
    assert_eq!(q.work_off(), [4]);
    q.is_over();
    assert_eq!(q.state(5), None);
}

pub fn d9_shut_down_fires_what_is_due_before_it_drops_the_rest<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    q.add_after(2, ms(6));
    q.clock.advance(ms(5));
    assert_eq!(q.shut_down(), Down { ready: 1, dropped: 1, ..Down::default() });
    assert_eq!(q.work_off(), [1]);
}

pub fn d9_no_alarm_outlives_the_shut_down<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    let mut getting = q.getting();
    assert!(poll_once(&mut getting).is_pending());
    assert_eq!(q.clock.alarms(), 1);
    q.shut_down();
    assert!(poll_once(&mut getting).is_ready());
    drop(getting);
    assert_eq!(q.clock.alarms(), 0, "an alarm of a queue that is shut down");
}

pub fn d9_a_drain_drops_waiting_keys_by_default<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    q.add(2);
    let mut drain = q.drain(Waiters::default());
    q.has(1, 0, 0, 0);
    assert_eq!(q.work_off(), [2]);
    let Poll::Ready(answer) = poll_once(&mut drain) else { panic!("nothing is left") };
    assert_eq!(sound(answer), Drained { done: 1, dropped: 1, unfinished: 1, ..Drained::default() });
}

pub fn d9_a_drain_can_run_waiting_keys_now_in_the_order_of_their_instants<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(9));
    q.add_after(2, ms(5));
    q.add_after(3, ms(9));
    q.add(4);
    let four = q.take(4);
    q.add_after(4, ms(7));
    q.add(5);
    let mut drain = q.drain(Waiters::RunNow);
    q.has(4, 1, 1, 0);
    sound(four.done());
    assert_eq!(q.work_off(), [5, 2, 1, 3, 4]);
    let Poll::Ready(answer) = poll_once(&mut drain) else { panic!("nothing is left") };
    assert_eq!(sound(answer), Drained { complete: true, done: 6, ..Drained::default() });
}

pub fn d9_a_drain_that_runs_waiting_keys_now_wakes_a_getter<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(9));
    let count = Count::new();
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    let _drain = q.drain(Waiters::RunNow);
    assert!(count.wakes() > 0, "keys became ready and nobody was woken");
    assert!(count.poll(&mut getting).is_ready());
}

pub fn d9_a_drain_can_wait_for_waiting_keys<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    q.add_after(2, ms(9));
    let mut drain = q.drain(Waiters::Wait);
    assert!(poll_once(&mut drain).is_pending());
    q.clock.advance(ms(5));
    assert_eq!(q.work_off(), [1]);
    assert!(poll_once(&mut drain).is_pending());
    q.clock.advance(ms(4));
    assert_eq!(q.work_off(), [2]);
    let Poll::Ready(answer) = poll_once(&mut drain) else { panic!("nothing is left") };
    assert_eq!(sound(answer), Drained { complete: true, done: 2, ..Drained::default() });
}

pub fn d10_all_time_comes_from_the_queues_clock<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, Duration::from_nanos(1));
    // However long this takes, on a clock that stands still nothing comes due.
    for _ in 0..1_000 {
        q.is_idle();
    }
    q.clock.advance(Duration::from_nanos(1));
    assert_eq!(q.work_off(), [1]);
}

pub fn d10_a_clock_that_goes_back_makes_nothing_early<A: Adapter>() {
    let q = Subject::<A>::new();
    q.clock.advance(ms(100));
    q.add_after(1, ms(10));
    q.clock.set(Instant::from_nanos(0));
    q.is_idle();
    q.add_after(2, ms(1));
    q.clock.set(Instant::from_nanos(0) + ms(109));
    assert!(!q.work_off().contains(&1), "never early");
    q.clock.advance(ms(1));
    assert!(q.work_off().contains(&1));
}

pub fn d10_a_step_over_many_instants_at_once_keeps_their_order<A: Adapter>() {
    let q = Subject::<A>::new();
    for (key, delay) in [(1, 30), (2, 10), (3, 20)] {
        q.add_after(key, ms(delay));
    }
    q.clock.advance(Duration::from_secs(3_600));
    assert_eq!(q.work_off(), [2, 3, 1]);
}

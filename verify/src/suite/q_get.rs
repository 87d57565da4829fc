//! Q5-Q8: freshness, many to many, the forms of get, cancellation.

use crate::adapter::{Adapter, Held, Nothing, Subject, Waiters, ms, sound};
use crate::wake::{Count, poll_once};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

pub fn q5_after_an_add_a_run_starts_that_sees_what_was_written_before_it<A: Adapter>() {
    let q = Subject::<A>::new();
    let written = AtomicU64::new(0);
    let seen = AtomicU64::new(0);
    thread::scope(|s| {
        s.spawn(|| {
            while let Some(item) = q.get_or_end() {
                seen.fetch_max(written.load(Ordering::Relaxed), Ordering::Relaxed);
                sound(item.done());
            }
        });
        for value in 1..=20_000 {
            written.store(value, Ordering::Relaxed);
            q.add(1);
        }
        q.drain_wait(Waiters::Drop);
    });
    assert_eq!(seen.load(Ordering::Relaxed), 20_000, "no run saw the last write");
}

pub fn q5_an_add_during_a_run_is_not_satisfied_by_that_run<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add(1);
    sound(one.done());
    assert_eq!(q.work_off(), [1], "a run that starts later than the add");
}

pub fn q6_many_producers_and_consumers_threads_and_tasks_share_one_queue<A: Adapter>() {
    let q = Subject::<A>::new();
    let runs: Vec<AtomicUsize> = (0..64).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|s| {
        for consumer in 0..4 {
            let (q, runs) = (&q, &runs);
            s.spawn(move || {
                let next = || if consumer % 2 == 0 { q.get_or_end() } else { polled(q) };
                while let Some(item) = next() {
                    runs[usize::try_from(item.key().id).unwrap()].fetch_add(1, Ordering::Relaxed);
                    sound(item.done());
                }
            });
        }
        let producers: Vec<_> = (0..4)
            .map(|producer| {
                let q = &q;
                s.spawn(move || {
                    for key in 0..16 {
                        q.add(producer * 16 + key);
                    }
                })
            })
            .collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        q.shut_down();
    });
    assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1), "{runs:?}");
}

/// A get as a task without a runtime would make it.
fn polled<A: Adapter>(q: &Subject<A>) -> Option<A::Held<'_>> {
    sound(crate::wake::block_on(q.getting()))
}

pub fn q7_get_waits_until_it_can_hand_out_a_key<A: Adapter>() {
    let q = Subject::<A>::new();
    thread::scope(|s| {
        let getter = s.spawn(|| q.get().key().id);
        q.add(1);
        assert_eq!(getter.join().unwrap(), 1);
    });
}

pub fn q7_a_waiting_get_is_woken_by_an_add<A: Adapter>() {
    let q = Subject::<A>::new();
    let count = Count::new();
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    assert_eq!(count.wakes(), 0);
    q.add(1);
    assert!(count.wakes() > 0, "the add woke nobody");
    let Poll::Ready(item) = count.poll(&mut getting) else { panic!("woken, but no key") };
    assert_eq!(sound(item).map(|item| item.key().id), Some(1));
}

pub fn q7_a_waiting_get_is_woken_by_the_done_of_a_dirty_key<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add(1);
    let count = Count::new();
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    sound(one.done());
    assert!(count.wakes() > 0, "the done woke nobody");
    assert!(count.poll(&mut getting).is_ready());
}

pub fn q7_get_says_shut_down_when_the_queue_is_shut_down_and_nothing_is_left<A: Adapter>() {
    let q = Subject::<A>::new();
    q.shut_down();
    assert!(q.get_or_end().is_none());
    q.is_over();
}

pub fn q7_a_waiting_get_is_woken_by_shut_down_and_says_so<A: Adapter>() {
    let q = Subject::<A>::new();
    let counts = [Count::new(), Count::new(), Count::new()];
    let mut gets = [q.getting(), q.getting(), q.getting()];
    for (get, count) in gets.iter_mut().zip(&counts) {
        assert!(count.poll(get).is_pending());
    }
    q.shut_down();
    for (get, count) in gets.iter_mut().zip(&counts) {
        assert!(count.wakes() > 0, "a getter was not told of the end");
        let Poll::Ready(end) = count.poll(get) else { panic!("no end") };
        assert!(sound(end).is_none());
    }
}

pub fn q7_get_does_not_say_shut_down_while_a_held_key_is_dirty<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add(1);
    q.shut_down();
    let mut getting = q.getting();
    assert!(poll_once(&mut getting).is_pending(), "the dirty key still gets its run");
    q.is_idle();
    sound(one.done());
    let Poll::Ready(item) = poll_once(&mut getting) else { panic!("the dirty key is ready now") };
    assert_eq!(sound(item).map(|item| item.key().id), Some(1));
    q.is_over();
}

pub fn q7_the_done_of_the_last_dirty_key_tells_the_other_getters_of_the_end<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add(1);
    q.shut_down();
    let counts = [Count::new(), Count::new()];
    let mut gets = [q.getting(), q.getting()];
    for (get, count) in gets.iter_mut().zip(&counts) {
        assert!(count.poll(get).is_pending());
    }
    sound(one.done());
    // The getter that is woken takes the key; the other must learn that it is over.
    let mut keys = 0;
    for _ in 0..2 {
        for (get, count) in gets.iter_mut().zip(&counts) {
            if count.wakes() > 0 && keys < 2 {
                *get = match count.poll(get) {
                    Poll::Ready(Ok(Some(item))) => {
                        keys += 1;
                        sound(item.done());
                        q.getting()
                    }
                    Poll::Ready(Ok(None)) => {
                        keys += 10;
                        q.getting()
                    }
                    Poll::Ready(Err(failed)) => panic!("{failed:?}"),
                    Poll::Pending => continue,
                };
            }
        }
    }
    assert!(keys >= 11, "one getter was not told of the end: {keys}");
}

pub fn q7_a_held_key_that_is_not_dirty_does_not_delay_the_end<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.shut_down();
    q.is_over();
    assert!(q.get_or_end().is_none());
    sound(one.done());
    q.is_over();
}

pub fn q7_get_does_not_say_shut_down_while_a_key_waits_under_a_drain_that_waits<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(10));
    let mut drain = q.drain(Waiters::Wait);
    assert!(poll_once(&mut drain).is_pending());
    let mut getting = q.getting();
    assert!(poll_once(&mut getting).is_pending());
    q.is_idle();
    q.clock.advance(ms(10));
    let Poll::Ready(item) = poll_once(&mut getting) else { panic!("the waiting key is due") };
    sound(sound(item).expect("the waiting key, not the end").done());
    assert!(poll_once(&mut drain).is_ready());
    q.is_over();
}

pub fn q8_try_get_does_not_wait<A: Adapter>() {
    let q = Subject::<A>::new();
    q.is_idle();
    q.add(1);
    let one = q.take(1);
    q.is_idle();
    drop(one);
    q.shut_down();
    q.is_over();
}

pub fn q8_a_get_with_a_deadline_times_out_at_its_deadline<A: Adapter>() {
    let q = Subject::<A>::new();
    let count = Count::new();
    let mut getting = q.queue.getting_timeout(ms(10));
    assert!(count.poll(&mut getting).is_pending());
    q.clock.advance(ms(10) - Duration::from_nanos(1));
    assert!(count.poll(&mut getting).is_pending(), "timed out early");
    q.clock.advance(Duration::from_nanos(1));
    assert!(count.wakes() > 0, "the clock woke nobody at the deadline");
    let Poll::Ready(answer) = count.poll(&mut getting) else { panic!("the deadline has passed") };
    assert_eq!(sound(answer).err(), Some(Nothing::TimedOut));
}

pub fn q8_a_waiting_get_with_a_deadline_times_out_in_its_own_manner_of_waiting<A: Adapter>() {
    let q = Subject::<A>::new();
    thread::scope(|s| {
        let getter = s.spawn(|| sound(q.queue.get_timeout(ms(10))).err());
        q.clock.wait_for_alarms(1);
        q.clock.advance(ms(10));
        assert_eq!(getter.join().unwrap(), Some(Nothing::TimedOut));
    });
}

pub fn q8_a_get_with_a_deadline_gets_a_key_that_comes_before_it<A: Adapter>() {
    let q = Subject::<A>::new();
    thread::scope(|s| {
        let getter = s.spawn(|| sound(q.queue.get_timeout(ms(10))).map(|item| item.key().id));
        q.clock.wait_for_alarms(1);
        q.add(1);
        assert_eq!(getter.join().unwrap(), Ok(1));
    });
}

pub fn q8_at_the_deadline_a_key_comes_before_shut_down_before_timed_out<A: Adapter>() {
    let q = Subject::<A>::new();
    let mut key = q.queue.getting_timeout(ms(10));
    let mut end = q.queue.getting_timeout(ms(10));
    assert!(poll_once(&mut key).is_pending());
    assert!(poll_once(&mut end).is_pending());
    q.clock.advance(ms(20));
    q.add(1);
    q.shut_down();
    let Poll::Ready(answer) = poll_once(&mut key) else { panic!("past its deadline") };
    assert_eq!(sound(answer).expect("a key before shut down").key().id, 1);
    let Poll::Ready(answer) = poll_once(&mut end) else { panic!("past its deadline") };
    assert_eq!(sound(answer).err(), Some(Nothing::ShutDown), "shut down before timed out");
}

pub fn q8_a_timer_due_at_the_deadline_is_handed_out<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(10));
    let mut getting = q.queue.getting_timeout(ms(10));
    assert!(poll_once(&mut getting).is_pending());
    q.clock.advance(ms(10));
    let Poll::Ready(answer) = poll_once(&mut getting) else { panic!("past its deadline") };
    assert_eq!(sound(answer).map(|item| item.key().id), Ok(1));
}

pub fn q8_a_deadline_in_the_past_is_try_get<A: Adapter>() {
    let q = Subject::<A>::new();
    let now = |q: &Subject<A>| sound(q.queue.get_timeout(Duration::ZERO)).map(|item| item.key().id);
    assert_eq!(now(&q), Err(Nothing::TimedOut));
    q.add(1);
    assert_eq!(now(&q), Ok(1));
    q.shut_down();
    assert_eq!(now(&q), Err(Nothing::ShutDown));
}

pub fn q8_a_deadline_of_any_length_is_accepted<A: Adapter>() {
    let q = Subject::<A>::new();
    let mut getting = q.queue.getting_timeout(Duration::MAX);
    assert!(poll_once(&mut getting).is_pending());
    q.clock.advance(Duration::from_secs(1 << 30));
    assert!(poll_once(&mut getting).is_pending());
    q.add(1);
    assert!(poll_once(&mut getting).is_ready());
}

pub fn q8_a_key_is_taken_only_in_the_poll_that_returns_it<A: Adapter>() {
    let q = Subject::<A>::new();
    let mut getting = q.getting();
    q.add(1);
    q.has(1, 0, 0, 0);
    let mut waiting = q.getting();
    assert!(poll_once(&mut getting).is_ready());
    assert!(poll_once(&mut waiting).is_pending());
    q.add(2);
    q.has(1, 0, 0, 0);
}

pub fn q8_dropping_a_get_that_was_never_polled_loses_nothing<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    drop(q.getting());
    assert_eq!(q.work_off(), [1]);
}

pub fn q8_dropping_a_get_that_was_woken_loses_no_key<A: Adapter>() {
    let q = Subject::<A>::new();
    let mut getting = q.getting();
    assert!(poll_once(&mut getting).is_pending());
    q.add(1);
    drop(getting);
    assert_eq!(q.work_off(), [1]);
}

pub fn q8_dropping_a_get_that_was_woken_passes_the_wake_up_on<A: Adapter>() {
    for chosen in 0..3 {
        let q = Subject::<A>::new();
        let counts = [Count::new(), Count::new(), Count::new()];
        let mut gets: Vec<_> = counts.iter().map(|_| Some(q.getting())).collect();
        for (get, count) in gets.iter_mut().zip(&counts) {
            assert!(count.poll(get.as_mut().unwrap()).is_pending());
        }
        q.add(1);
        // The getter that was woken leaves; then the next; the last one must have the key.
        for _ in 0..2 {
            let woken =
                (0..3).find(|i| gets[(i + chosen) % 3].is_some() && counts[(i + chosen) % 3].wakes() > 0);
            let woken = (woken.expect("a key is ready, getters wait, and nobody was woken") + chosen) % 3;
            gets[woken] = None;
        }
        let last = gets.iter().position(Option::is_some).unwrap();
        assert!(counts[last].wakes() > 0, "the wake-up was lost with the getters that left");
        assert!(counts[last].poll(gets[last].as_mut().unwrap()).is_ready());
    }
}

pub fn q8_dropping_the_get_that_watches_the_clock_leaves_another_to_watch<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(10));
    for first in 0..2 {
        let counts = [Count::new(), Count::new()];
        let mut gets = [Some(q.getting()), Some(q.getting())];
        for (get, count) in gets.iter_mut().zip(&counts) {
            assert!(count.poll(get.as_mut().unwrap()).is_pending());
        }
        gets[first] = None;
        let left = 1 - first;
        let get = gets[left].as_mut().unwrap();
        // It may have been asked to look again, to take over the watch.
        if counts[left].wakes() > 0 {
            assert!(counts[left].poll(get).is_pending());
        }
        let before = counts[left].wakes();
        q.clock.advance(ms(10));
        assert!(counts[left].wakes() > before, "nobody watched the clock after the getter left");
        let Poll::Ready(item) = counts[left].poll(get) else { panic!("due") };
        sound(sound(item).unwrap().again(ms(10))).ok().unwrap();
    }
}

pub fn q8_a_get_is_polled_with_another_waker_and_wakes_the_latest<A: Adapter>() {
    let q = Subject::<A>::new();
    let (old, new) = (Count::new(), Count::new());
    let mut getting = q.getting();
    assert!(old.poll(&mut getting).is_pending());
    assert!(new.poll(&mut getting).is_pending());
    q.add(1);
    assert!(new.wakes() > 0, "the waker of the latest poll was not woken");
}

pub fn q8_dropping_a_get_with_a_deadline_takes_its_alarm_back<A: Adapter>() {
    let q = Subject::<A>::new();
    let mut getting = q.queue.getting_timeout(ms(10));
    assert!(poll_once(&mut getting).is_pending());
    assert_eq!(q.clock.alarms(), 1);
    drop(getting);
    assert_eq!(q.clock.alarms(), 0);
}

//! Q11: drain.

use crate::adapter::{Adapter, Drained, Held, Nothing, Subject, Waiters, ms, sound};
use crate::wake::{Count, poll_once};
use std::task::Poll;
use std::thread;
use std::time::Duration;

/// The answer of a drain that must be over.
fn over<F: Future<Output = Result<Drained, crate::adapter::Failed>> + Unpin>(drain: &mut F) -> Drained {
    let Poll::Ready(answer) = poll_once(drain) else { panic!("the drain is not over") };
    sound(answer)
}

pub fn q11_an_empty_queue_is_drained_at_once<A: Adapter>() {
    let q = Subject::<A>::new();
    assert_eq!(q.drain_wait(Waiters::Drop), Drained { complete: true, ..Drained::default() });
    q.is_over();
}

pub fn q11_a_drain_refuses_outside_triggers_at_once_before_it_is_polled<A: Adapter>() {
    for waiters in [Waiters::Drop, Waiters::RunNow, Waiters::Wait] {
        let q = Subject::<A>::new();
        q.add(1);
        let drain = q.drain(waiters);
        assert!(q.refuses(2));
        assert!(q.refuses(1));
        assert!(q.shutting_down());
        drop(drain);
        assert!(q.refuses(2), "a drain that nobody waits for has still shut down");
    }
}

pub fn q11_a_drain_waits_for_ready_keys<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let mut drain = q.drain(Waiters::Drop);
    assert!(poll_once(&mut drain).is_pending(), "a ready key is left");
    sound(q.take(1).done());
    assert!(over(&mut drain).complete);
}

pub fn q11_a_drain_waits_for_held_keys<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    let mut drain = q.drain(Waiters::Drop);
    assert!(poll_once(&mut drain).is_pending(), "a held key is left");
    sound(one.done());
    assert!(over(&mut drain).complete);
}

pub fn q11_a_drain_waits_for_the_run_of_a_dirty_key<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add(1);
    let mut drain = q.drain(Waiters::Drop);
    sound(one.done());
    assert!(poll_once(&mut drain).is_pending(), "the dirty key is ready now");
    let one = q.take(1);
    assert!(poll_once(&mut drain).is_pending(), "and held now");
    sound(one.done());
    assert!(over(&mut drain).complete);
    q.is_over();
}

pub fn q11_the_done_of_the_last_key_wakes_the_drain<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.add(2);
    let (one, two) = (q.take(1), q.take(2));
    let count = Count::new();
    let mut drain = q.drain(Waiters::Drop);
    assert!(count.poll(&mut drain).is_pending());
    sound(one.done());
    sound(two.done());
    assert!(count.wakes() > 0, "the drain was not woken");
    assert!(count.poll(&mut drain).is_ready());
}

pub fn q11_several_drains_return_together<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    let counts = [Count::new(), Count::new(), Count::new()];
    let mut drains = [q.drain(Waiters::Drop), q.drain(Waiters::RunNow), q.drain(Waiters::Drop)];
    for (drain, count) in drains.iter_mut().zip(&counts) {
        assert!(count.poll(drain).is_pending());
    }
    sound(one.done());
    for (drain, count) in drains.iter_mut().zip(&counts) {
        assert!(count.wakes() > 0, "one of the drains was not woken");
        assert!(over(drain).complete);
    }
}

pub fn q11_several_drains_return_together_in_their_own_manner_of_waiting<A: Adapter>() {
    let q = Subject::<A>::new();
    for key in 0..20 {
        q.add(key);
    }
    let one = q.take(0);
    thread::scope(|s| {
        let drains: Vec<_> = (0..3).map(|_| s.spawn(|| q.drain_wait(Waiters::Drop))).collect();
        assert_eq!(q.work_off().len(), 19);
        sound(one.done());
        for drain in drains {
            assert!(drain.join().unwrap().complete);
        }
    });
}

pub fn q11_the_latest_drain_decides_about_waiting_keys<A: Adapter>() {
    // Wait, then drop.
    let q = Subject::<A>::new();
    q.add_after(1, ms(10));
    let mut waits = q.drain(Waiters::Wait);
    assert!(poll_once(&mut waits).is_pending());
    let mut drops = q.drain(Waiters::Drop);
    assert_eq!(over(&mut drops), Drained { dropped: 1, unfinished: 1, ..Drained::default() });
    assert_eq!(over(&mut waits), Drained { dropped: 1, unfinished: 1, ..Drained::default() });
    // Wait, then run now.
    let q = Subject::<A>::new();
    q.add_after(1, ms(10));
    let mut waits = q.drain(Waiters::Wait);
    let mut runs = q.drain(Waiters::RunNow);
    assert!(poll_once(&mut waits).is_pending());
    assert_eq!(q.work_off(), [1]);
    assert_eq!(over(&mut waits), Drained { complete: true, done: 1, ..Drained::default() });
    assert_eq!(over(&mut runs), Drained { complete: true, done: 1, ..Drained::default() });
}

pub fn q11_shut_down_called_later_drops_the_timers_and_releases_all_drains<A: Adapter>() {
    let q = Subject::<A>::new();
    for key in 1..=2 {
        q.add(key);
    }
    q.add_after(3, ms(10));
    let one = q.take(1);
    let counts = [Count::new(), Count::new()];
    let mut drains = [q.drain(Waiters::Wait), q.drain(Waiters::Wait)];
    for (drain, count) in drains.iter_mut().zip(&counts) {
        assert!(count.poll(drain).is_pending());
    }
    assert_eq!(q.shut_down().dropped, 1);
    for (drain, count) in drains.iter_mut().zip(&counts) {
        assert!(count.wakes() > 0, "a drain was not released");
        let answer = Drained { dropped: 1, unfinished: 1, ready: 1, held: 1, ..Drained::default() };
        assert_eq!(over(drain), answer);
    }
    drop(one);
    assert_eq!(q.work_off(), [2]);
    q.is_over();
}

pub fn q11_shut_down_releases_a_drain_that_waits_in_its_own_manner<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let _one = q.take(1);
    thread::scope(|s| {
        let drain = s.spawn(|| sound(q.queue.drain_wait(Waiters::Drop, Some(ms(1_000_000)))));
        q.clock.wait_for_alarms(1);
        q.shut_down();
        assert!(!drain.join().unwrap().complete);
    });
}

pub fn q11_a_drain_has_a_deadline_past_which_the_queue_stays_shut_down<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.add(2);
    let one = q.take(1);
    let count = Count::new();
    let mut drain = q.queue.drain(Waiters::Drop, Some(ms(10)));
    assert!(count.poll(&mut drain).is_pending());
    q.clock.advance(ms(10) - Duration::from_nanos(1));
    assert!(count.poll(&mut drain).is_pending(), "over before its deadline");
    q.clock.advance(Duration::from_nanos(1));
    assert!(count.wakes() > 0, "the clock woke nobody");
    let Poll::Ready(answer) = count.poll(&mut drain) else { panic!("past its deadline") };
    assert_eq!(sound(answer), Drained { complete: false, ready: 1, held: 1, ..Drained::default() });
    assert!(q.refuses(3));
    assert!(q.shutting_down());
    sound(one.done());
    assert_eq!(q.work_off(), [2]);
    q.is_over();
}

pub fn q11_the_deadline_ends_a_drain_that_waits_in_its_own_manner<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let _one = q.take(1);
    thread::scope(|s| {
        let drain = s.spawn(|| sound(q.queue.drain_wait(Waiters::Drop, Some(ms(10)))));
        q.clock.wait_for_alarms(1);
        q.clock.advance(ms(10));
        assert_eq!(drain.join().unwrap(), Drained { held: 1, ..Drained::default() });
    });
}

pub fn q11_a_drain_that_is_complete_at_its_deadline_is_complete<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    let mut drain = q.queue.drain(Waiters::Drop, Some(ms(10)));
    assert!(poll_once(&mut drain).is_pending());
    sound(one.done());
    q.clock.advance(ms(10));
    assert!(over(&mut drain).complete);
}

pub fn q11_a_deadline_of_any_length_is_accepted<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let mut drain = q.queue.drain(Waiters::Drop, Some(Duration::MAX));
    assert!(poll_once(&mut drain).is_pending());
    q.clock.advance(Duration::from_secs(1 << 30));
    assert!(poll_once(&mut drain).is_pending());
    q.work_off();
    assert!(over(&mut drain).complete);
}

pub fn q11_the_answer_counts_what_was_done_dropped_and_refused_since_the_drain_began<A: Adapter>() {
    let q = Subject::<A>::new();
    for key in 1..=5 {
        q.add(key);
    }
    q.add_after(8, ms(10));
    q.add_after(9, ms(10));
    // Not since it began:
    sound(q.take(1).done());
    let two = q.take(2);
    let mut drain = q.drain(Waiters::Drop);
    assert!(poll_once(&mut drain).is_pending());
    let two = sound(two.retry()).expect_err("a drain that does not wait refuses it");
    sound(two.done());
    assert!(q.refuses(6) && q.refuses(3));
    assert_eq!(q.work_off(), [3, 4, 5]);
    let answer = over(&mut drain);
    // refused triggers from outside are counted apart from those of holders
    let refused = Drained { refused: 2, refused_retries: 1, ..Drained::default() };
    assert_eq!(answer, Drained { done: 4, dropped: 2, unfinished: 3, ..refused });
}

pub fn q11_each_drain_counts_since_it_began_itself<A: Adapter>() {
    let q = Subject::<A>::new();
    for key in 1..=3 {
        q.add(key);
    }
    q.add_after(9, ms(10));
    let mut first = q.drain(Waiters::Drop);
    sound(q.take(1).done());
    let mut second = q.drain(Waiters::Drop);
    assert_eq!(q.work_off(), [2, 3]);
    // the list is that of the queue, whichever drain has dropped its timer
    assert_eq!(over(&mut first), Drained { done: 3, dropped: 1, unfinished: 1, ..Drained::default() });
    assert_eq!(over(&mut second), Drained { done: 2, unfinished: 1, ..Drained::default() });
}

pub fn q11_ready_keys_are_handed_out_during_a_drain_and_then_get_says_shut_down<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.add(2);
    let _drain = q.drain(Waiters::Drop);
    assert_eq!(q.work_off(), [1, 2]);
    assert_eq!(q.try_get().err(), Some(Nothing::ShutDown));
}

pub fn q11_a_drain_after_shut_down_waits_for_what_is_left<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.shut_down();
    let mut drain = q.drain(Waiters::Drop);
    assert!(poll_once(&mut drain).is_pending());
    assert_eq!(q.work_off(), [1]);
    assert_eq!(over(&mut drain), Drained { complete: true, done: 1, ..Drained::default() });
}

pub fn q11_dropping_a_drain_leaves_the_others_and_the_queue_as_they_are<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    let count = Count::new();
    let mut gone = q.drain(Waiters::Drop);
    let mut stays = q.drain(Waiters::Drop);
    assert!(poll_once(&mut gone).is_pending());
    assert!(count.poll(&mut stays).is_pending());
    drop(gone);
    sound(one.done());
    assert!(count.wakes() > 0, "the wake-up went with the drain that was dropped");
    assert!(over(&mut stays).complete);
}

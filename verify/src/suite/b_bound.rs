//! B8: a bound on how many keys are known, and the mistake about it.

use crate::adapter::{
    Accepted, Adapter, Config, Dropped, Held, Many, Nothing, Policy, Rejected, Restored, Said, Subject,
    Waiters, When, ignore, ms, sound,
};
use crate::lockstep::unwind_through;
use crate::probe::Value;
use crate::wake::Count;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;

fn after(delay: u64) -> When {
    When::After(ms(delay), Policy::Earliest)
}

fn said(key: u64, when: When) -> Said {
    Said::from((key.into(), when, None))
}

fn valued(key: u64, when: When, item: u32) -> Said {
    Said::from((key.into(), when, Some(Value::of(item))))
}

/// Keys dropped for room, with their values, since the last call.
fn told(dropped: &Dropped) -> Vec<(u64, Option<Vec<u32>>)> {
    let dropped = dropped.lock().unwrap().drain(..).collect::<Vec<_>>();
    dropped.into_iter().map(|(key, value)| (key, value.map(|value| value.items.clone()))).collect()
}

/// A refusal because the queue is full: the key and the value that come back.
fn full(refused: Result<Accepted, Rejected>) -> (u64, Option<Vec<u32>>) {
    let refused = refused.expect_err("the queue is full");
    assert!(refused.full, "it says that the queue is full");
    (refused.key.id, refused.value.map(|value| value.items.clone()))
}

pub fn b8_a_trigger_of_one_key_too_many_is_refused_and_changes_nothing<A: Adapter>() {
    let q = Subject::<A>::bounded(2);
    q.add(1);
    q.add_after(2, ms(5));
    assert_eq!(q.room(), Some(0));
    for when in [When::Now, after(1), When::RateLimited] {
        assert_eq!(full(q.say(valued(3, when, 7))), (3, Some(vec![7])), "{when:?}: key and value come back");
        assert_eq!(full(q.say(said(3, when))), (3, None));
    }
    assert!(sound(q.queue.add_ref(&3.into())).is_err());
    assert_eq!(q.num_requeues(3), 0, "no limiter was asked");
    q.has(1, 0, 0, 1);
    assert_eq!(q.state(3), None);
    assert_eq!(q.shut_down().refused, 0, "that counts whom the end refuses");
}

pub fn b8_a_trigger_of_a_known_key_never_needs_room<A: Adapter>() {
    let q = Subject::<A>::bounded(3);
    q.add(1);
    let held = q.take(1);
    q.add(2);
    q.add_after(3, ms(5));
    assert!(q.is_full_for(4));
    for when in [When::Now, after(1), When::RateLimited, When::Now] {
        for key in 1..=3 {
            assert!(q.say(said(key, when)).is_ok(), "{when:?} of key {key}");
        }
    }
    for key in 1..=3_u64 {
        assert!(sound(q.queue.add_ref(&key.into())).is_ok());
    }
    assert_eq!(q.room(), Some(0));
    assert!(q.is_full_for(4));
    sound(held.done());
    q.has(3, 0, 0, 3);
}

pub fn b8_a_key_counts_once_whatever_it_is<A: Adapter>() {
    let q = Subject::<A>::bounded(2);
    assert_eq!(q.room(), Some(2));
    q.add(1);
    q.add_after(1, ms(5));
    assert_eq!(q.room(), Some(1), "ready and waiting");
    let item = q.take(1);
    q.add(1);
    assert_eq!(q.room(), Some(1), "held, dirty and waiting");
    sound(item.done());
    assert_eq!(q.room(), Some(1), "ready and waiting again");
    sound(q.take(1).done());
    assert_eq!(q.room(), Some(1), "it waits");
    q.clock.advance(ms(5));
    assert_eq!(q.room(), Some(1), "ready");
    sound(q.take(1).done());
    assert_eq!(q.room(), Some(2), "known no more");
}

pub fn b8_failures_alone_do_not_count_and_such_a_key_needs_room<A: Adapter>() {
    let q = Subject::<A>::bounded(1);
    q.add_rate_limited(1);
    q.clock.advance(ms(1));
    sound(q.take(1).done());
    assert_eq!((q.num_requeues(1), q.room()), (1, Some(1)));
    q.add(2);
    assert!(q.is_full_for(1));
    assert!(sound(q.queue.add_ref(&1.into())).is_err());
    assert_eq!(full(q.say(said(1, When::RateLimited))), (1, None));
    assert_eq!(q.num_requeues(1), 1, "a refused trigger asks no limiter");
    sound(q.take(2).done());
    assert_eq!(q.add(1), Accepted::Ready);
}

pub fn b8_a_guard_whose_run_was_ended_does_not_count<A: Adapter>() {
    let q = Subject::<A>::bounded(1);
    q.add(1);
    let item = q.take(1);
    assert!(q.done(1));
    assert_eq!(q.room(), Some(1));
    q.add(2);
    assert!(q.is_full_for(1));
    assert_eq!(item.key().id, 1);
    drop(item);
    assert_eq!(q.work_off(), [2]);
}

pub fn b8_what_a_holder_asks_for_needs_no_room<A: Adapter>() {
    let q = Subject::<A>::bounded(2);
    q.add_many([1, 2]);
    let (one, two) = (q.take(1), q.take(2));
    assert!(sound(one.retry()).is_ok());
    assert!(sound(two.again(ms(0))).is_ok());
    q.has(1, 0, 0, 1);
    assert!(q.is_full_for(3));
    let two = q.take(2);
    assert!(sound(two.retry_after(ms(0))).is_ok());
    q.clock.advance(ms(1));
    assert!(q.is_full_for(3));
    unwind_through(q.take_many(2));
    q.has(2, 0, 0, 0);
    assert!(q.is_full_for(3));
    let retries =
        Subject::<A>::with(Config { bound: Some(1), unfinished_retries: true, ..Config::default() });
    retries.add(1);
    drop(retries.take(1));
    assert_eq!((retries.room(), retries.num_requeues(1)), (Some(0), 1));
}

pub fn b8_whatever_ends_a_keys_last_reason_makes_room<A: Adapter>() {
    let q = Subject::<A>::with(Config { bound: Some(1), absorbed: true, ..Config::default() });
    q.add(1);
    ignore(q.cancel(1));
    q.add_after(2, ms(5));
    ignore(q.cancel(2));
    // the run absorbs the timer
    q.add_after(3, ms(5));
    q.add(3);
    sound(q.take(3).done());
    q.add(4);
    sound(q.take(4).give_up());
    q.add(5);
    q.add(5);
    let five = q.take(5);
    q.add(5);
    ignore(q.cancel(5));
    sound(five.done());
    assert_eq!(q.room(), Some(1));
    q.add_rate_limited(6);
    assert!(q.is_full_for(7));
    q.forget(6);
    assert!(q.is_full_for(7), "its timer stays");
    ignore(q.cancel(6));
    assert_eq!(q.add(7), Accepted::Ready);
}

pub fn b8_each_trigger_of_a_batch_finds_room_or_does_not<A: Adapter>() {
    let q = Subject::<A>::bounded(2);
    let answers = q.trigger_many([1, 2, 3, 1, 4, 2].map(|key| said(key, When::Now)).into());
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.map_err(|r| (r.key.id, r.full))).collect();
    let expected = [
        Ok(Accepted::Ready),
        Ok(Accepted::Ready),
        Err((3, true)),
        Ok(Accepted::Coalesced),
        Err((4, true)),
        Ok(Accepted::Coalesced),
    ];
    assert_eq!(answers, expected);
    sound(q.take_many(2).done());
    let answers =
        q.trigger_many(vec![said(1, after(1)), said(2, When::RateLimited), said(3, When::RateLimited)]);
    assert!(answers.iter().map(Result::is_ok).eq([true, true, false]));
    assert_eq!((q.num_requeues(2), q.num_requeues(3)), (1, 0));
}

pub fn b8_a_restore_needs_room_as_any_trigger<A: Adapter>() {
    let q = Subject::<A>::bounded(1);
    let known = Restored { failures: 3, attempt: 4, ..Restored::default() };
    assert!(q.restore(1, known, None).is_ok());
    assert_eq!(full(q.restore(2, known, Some(Value::of(7)))), (2, Some(vec![7])));
    assert_eq!(q.num_requeues(2), 0);
    assert!(q.restore(1, known, None).is_ok(), "it is known");
}

pub fn b8_a_wait_for_room_ends_when_there_is_some<A: Adapter>() {
    let q = Subject::<A>::bounded(1);
    q.add(1);
    thread::scope(|s| {
        let adds = s.spawn(|| sound(q.queue.add_wait(valued(2, When::Now, 7), None)));
        sound(q.take(1).done());
        assert_eq!(adds.join().unwrap().unwrap(), Accepted::Ready);
    });
    let mut item = q.take(2);
    assert_eq!(item.take_value().unwrap().items, [7]);
    // a timer, and the limiter
    for (key, when) in [(3, after(5)), (4, When::RateLimited)] {
        let (mut adding, count) = (q.adding(said(key, when)), Count::new());
        assert!(count.poll(&mut adding).is_pending());
        assert_eq!(q.num_requeues(key), 0);
        assert!(q.done(2));
        assert_eq!(count.wakes(), 1);
        assert!(matches!(count.poll(&mut adding), Poll::Ready(Ok(Ok(Accepted::Waiting)))));
        ignore(q.cancel(key));
        q.add(2);
        ignore(q.take(2));
        q.add(2);
        ignore(q.take(2).detach());
    }
    assert_eq!(q.num_requeues(4), 1, "asked once, when there was room");
}

pub fn b8_a_trigger_that_finds_room_or_a_known_key_does_not_wait<A: Adapter>() {
    let q = Subject::<A>::bounded(1);
    assert_eq!(sound(q.queue.add_wait(said(1, When::Now), None)).unwrap(), Accepted::Ready);
    assert_eq!(sound(q.queue.add_wait(said(1, When::Now), None)).unwrap(), Accepted::Coalesced);
    let item = q.take(1);
    assert_eq!(sound(q.queue.add_wait(said(1, When::Now), None)).unwrap(), Accepted::Dirty);
    assert_eq!(sound(q.queue.add_wait(said(1, after(1)), None)).unwrap(), Accepted::Waiting);
    sound(item.done());
    let unbounded = Subject::<A>::new();
    assert_eq!(unbounded.room(), None);
    for key in 0..100 {
        assert_eq!(sound(unbounded.queue.add_wait(said(key, When::Now), None)).unwrap(), Accepted::Ready);
    }
}

pub fn b8_those_who_wait_for_room_are_let_in_in_their_order<A: Adapter>() {
    let q = Subject::<A>::bounded(1);
    q.add(0);
    let mut adding: Vec<_> = (1..=3).map(|key| (q.adding(said(key, When::Now)), Count::new())).collect();
    for (adding, count) in &mut adding {
        assert!(count.poll(adding).is_pending());
    }
    for key in 1..=3_u64 {
        sound(q.take(key - 1).done());
        // those behind may look, and do not go before
        for (adding, count) in adding.iter_mut().skip(1) {
            assert!(count.poll(adding).is_pending());
        }
        let mut newcomer = q.adding(said(9, When::Now));
        assert!(Count::new().poll(&mut newcomer).is_pending());
        drop(newcomer);
        let (mut first, count) = adding.remove(0);
        assert!(count.wakes() > 0, "it was woken");
        assert!(matches!(count.poll(&mut first), Poll::Ready(Ok(Ok(Accepted::Ready)))));
    }
    assert_eq!(q.work_off(), [3]);
}

pub fn b8_so_many_are_woken_as_there_is_room_for<A: Adapter>() {
    let q = Subject::<A>::bounded(3);
    q.add_many([1, 2, 3]);
    let mut adding: Vec<_> = (4..=7).map(|key| (q.adding(said(key, When::Now)), Count::new())).collect();
    for (adding, count) in &mut adding {
        assert!(count.poll(adding).is_pending());
    }
    sound(q.take_many(3).done());
    let woken = adding.iter_mut().map(|(adding, count)| count.poll(adding).is_ready());
    assert!(woken.collect::<Vec<_>>().into_iter().eq([true, true, true, false]));
    assert_eq!(q.room(), Some(0));
    assert_eq!(q.work_off(), [4, 5, 6]);
}

pub fn b8_a_wait_for_room_that_is_dropped_adds_nothing_and_passes_its_turn_on<A: Adapter>() {
    let q = Subject::<A>::bounded(1);
    q.add(1);
    let (mut first, mut second) = (q.adding(said(2, When::Now)), q.adding(said(3, When::Now)));
    let counts = [Count::new(), Count::new()];
    assert!(counts[0].poll(&mut first).is_pending() && counts[1].poll(&mut second).is_pending());
    sound(q.take(1).done());
    assert_eq!(counts[0].wakes(), 1, "it is its turn");
    drop(first);
    assert!(counts[1].wakes() > 0, "now it is the other's");
    assert!(counts[1].poll(&mut second).is_ready());
    assert_eq!(q.work_off(), [3]);
    // and before its turn, or before it was polled at all
    q.add(1);
    let mut waiting = q.adding(said(2, When::Now));
    assert!(counts[0].poll(&mut waiting).is_pending());
    drop(waiting);
    drop(q.adding(said(2, When::Now)));
    assert_eq!(q.work_off(), [1]);
    assert_eq!(q.room(), Some(1));
}

pub fn b8_who_waits_for_room_is_woken_when_the_key_becomes_known<A: Adapter>() {
    for way in 0..3 {
        let q = Subject::<A>::bounded(1);
        q.add(1);
        let (mut first, first_count) = (q.adding(said(2, When::Now)), Count::new());
        let (mut waits, count) = (q.adding(said(3, When::Now)), Count::new());
        assert!(first_count.poll(&mut first).is_pending());
        assert!(count.poll(&mut waits).is_pending());
        sound(q.take(1).done());
        assert!(first_count.wakes() > 0, "there is room for one");
        let before = count.wakes();
        if before > 0 {
            // a count that wakes all of them must be polled again
            assert!(count.poll(&mut waits).is_pending());
        }
        match way {
            0 => assert_eq!(q.add(3), Accepted::Ready),
            1 => assert!(q.restore(3, Restored::default(), None).is_ok()),
            _ => assert!(q.say(said(3, after(5))).is_ok()),
        }
        assert_eq!(q.room(), Some(0));
        assert!(count.wakes() > before, "way {way}: the key is known, and needs no room");
        assert!(matches!(count.poll(&mut waits), Poll::Ready(Ok(Ok(_)))));
        assert!(first_count.poll(&mut first).is_pending(), "its key is not");
    }
}

pub fn b8_who_waits_for_room_is_woken_when_a_key_is_ready_that_may_be_dropped<A: Adapter>() {
    let (q, dropped) = Subject::<A>::dropping(1, Config::default());
    q.add(1);
    let item = q.take(1);
    q.add(1);
    let (mut adding, count) = (q.adding(said(2, When::Now)), Count::new());
    assert!(count.poll(&mut adding).is_pending(), "no key is ready");
    sound(item.done());
    assert_eq!(count.wakes(), 1, "the dirty key is ready");
    assert!(matches!(count.poll(&mut adding), Poll::Ready(Ok(Ok(Accepted::Ready)))));
    assert_eq!(told(&dropped), [(1, None)]);
}

pub fn b8_the_end_refuses_those_who_wait_for_room<A: Adapter>() {
    let ends: [fn(&Subject<A>); 4] = [
        |q| ignore(q.shut_down()),
        Subject::close,
        |q| drop(q.drain(Waiters::Drop)),
        |q| drop(q.drain(Waiters::Wait)),
    ];
    for end in ends {
        let q = Subject::<A>::bounded(1);
        q.add(1);
        let (mut adding, count) = (q.adding(valued(2, When::Now, 7)), Count::new());
        assert!(count.poll(&mut adding).is_pending());
        end(&q);
        assert_eq!(count.wakes(), 1);
        let Poll::Ready(answer) = count.poll(&mut adding) else { panic!("it waits on after the end") };
        let refused = sound(answer).expect_err("the queue takes no keys");
        assert_eq!((refused.key.id, refused.full), (2, false));
        assert_eq!(refused.value.unwrap().items, [7], "key and value come back");
        assert_eq!(q.work_off(), [1]);
    }
    let q = Subject::<A>::bounded(1);
    q.add(1);
    thread::scope(|s| {
        let adds = s.spawn(|| sound(q.queue.add_wait(said(2, When::Now), None)));
        q.shut_down();
        assert!(adds.join().unwrap().is_err());
    });
}

pub fn b8_a_wait_for_room_ends_at_its_deadline<A: Adapter>() {
    let q = Subject::<A>::bounded(1);
    q.add(1);
    assert_eq!(full(sound(q.queue.add_wait(valued(2, When::Now, 7), Some(ms(0))))), (2, Some(vec![7])));
    let (mut adding, count) = (q.queue.adding(said(2, When::Now), Some(ms(5))), Count::new());
    assert!(count.poll(&mut adding).is_pending());
    q.clock.advance(ms(4));
    assert!(count.poll(&mut adding).is_pending());
    q.clock.advance(ms(1));
    assert!(count.wakes() > 0, "the clock wakes it");
    let Poll::Ready(answer) = count.poll(&mut adding) else { panic!("its time is up") };
    assert_eq!(full(sound(answer)), (2, None));
    // room comes before the deadline
    let mut adding = q.queue.adding(said(2, When::Now), Some(ms(5)));
    assert!(count.poll(&mut adding).is_pending());
    sound(q.take(1).done());
    q.clock.advance(ms(5));
    assert!(matches!(count.poll(&mut adding), Poll::Ready(Ok(Ok(Accepted::Ready)))));
}

pub fn b8_a_trigger_that_does_not_wait_takes_room_when_there_is_some<A: Adapter>() {
    let q = Subject::<A>::bounded(1);
    q.add(1);
    let (mut adding, count) = (q.adding(said(2, When::Now)), Count::new());
    assert!(count.poll(&mut adding).is_pending());
    sound(q.take(1).done());
    assert_eq!(q.add(3), Accepted::Ready);
    assert!(count.poll(&mut adding).is_pending());
    sound(q.take(3).done());
    assert!(count.poll(&mut adding).is_ready(), "it has kept its place");
}

pub fn b8_the_oldest_ready_key_makes_room_and_is_told_of<A: Adapter>() {
    let (q, dropped) = Subject::<A>::dropping(2, Config::default());
    q.add_value(1, 7);
    q.add(2);
    q.add(1);
    assert_eq!(told(&dropped), [], "a known key needs no room");
    assert_eq!(q.add(3), Accepted::Ready);
    assert_eq!(told(&dropped), [(1, Some(vec![7]))]);
    assert_eq!((q.state(1), q.room()), (None, Some(0)));
    // whatever the trigger is
    assert_eq!(q.add_after(4, ms(5)), Accepted::Waiting);
    assert_eq!(told(&dropped), [(2, None)]);
    assert!(q.restore(5, Restored::default(), None).is_ok());
    assert_eq!(told(&dropped), [(3, None)]);
    assert_eq!(sound(q.queue.add_wait(said(6, When::Now), None)).unwrap(), Accepted::Ready);
    assert_eq!(told(&dropped), [(5, None)]);
    assert!(q.trigger_many(vec![said(7, When::Now), said(8, When::Now)]).iter().all(Result::is_ok));
    assert_eq!(told(&dropped), [(6, None), (7, None)]);
    assert_eq!(q.work_off(), [8]);
    q.has(0, 0, 0, 1);
}

pub fn b8_where_no_key_is_ready_none_is_dropped<A: Adapter>() {
    let (q, dropped) = Subject::<A>::dropping(2, Config::default());
    q.add(1);
    let item = q.take(1);
    q.add(1);
    q.add_after(2, ms(5));
    assert!(q.is_full_for(3));
    let (mut adding, count) = (q.adding(said(3, When::Now)), Count::new());
    assert!(count.poll(&mut adding).is_pending(), "it waits");
    sound(item.done());
    assert_eq!(told(&dropped), []);
    assert_eq!(q.add(4), Accepted::Ready);
    assert_eq!(told(&dropped), [(1, None)], "the run has ended, and the dirty key is ready");
    q.has(1, 0, 0, 1);
}

pub fn b8_a_key_that_makes_room_goes_with_its_timer_and_keeps_its_failures<A: Adapter>() {
    let (q, dropped) = Subject::<A>::dropping(1, Config::default());
    q.add_rate_limited(1);
    q.add(1);
    q.add(2);
    assert_eq!(told(&dropped), [(1, None)]);
    assert_eq!((q.num_requeues(1), q.state(1)), (1, None));
    q.clock.advance(ms(10));
    assert_eq!(q.work_off(), [2]);
    q.has(0, 0, 0, 0);
    // it may come again, as a new one
    q.add(1);
    let item = q.take(1);
    assert_eq!(item.attempt(), 1);
}

pub fn b8_the_oldest_goes_whatever_its_priority<A: Adapter>() {
    for max_wait in [None, Some(ms(5))] {
        let order = crate::adapter::Line::Priority(max_wait.map(crate::adapter::MaxWait::of));
        let (q, dropped) = Subject::<A>::dropping(3, Config { order, ..Config::default() });
        q.add_at(1, 5);
        q.add_at(2, -5);
        q.add_at(3, 0);
        q.add_at(2, 9);
        q.add_at(4, -7);
        assert_eq!(told(&dropped), [(1, None)]);
        q.add_at(5, 0);
        assert_eq!(told(&dropped), [(2, None)], "a raised key keeps its age");
        q.add_at(6, i16::MIN);
        assert_eq!(told(&dropped), [(3, None)]);
        assert_eq!(q.work_off(), [5, 4, 6]);
    }
}

pub fn b8_one_who_was_woken_for_a_key_that_is_dropped_gets_the_next<A: Adapter>() {
    let (q, dropped) = Subject::<A>::dropping(1, Config::default());
    let (mut getting, count) = (q.getting(), Count::new());
    assert!(count.poll(&mut getting).is_pending());
    q.add(1);
    assert_eq!(count.wakes(), 1);
    q.add(2);
    assert_eq!(told(&dropped), [(1, None)]);
    let Poll::Ready(item) = count.poll(&mut getting) else { panic!("key 2 is ready") };
    assert_eq!(sound(item).expect("not the end").key().id, 2);
    assert!(matches!(q.try_get(), Err(Nothing::Empty)));
}

pub fn x26_a_bound_is_not_overshot_however_many_add_at_once<A: Adapter>() {
    const BOUND: usize = 3;
    let q = Subject::<A>::bounded(BOUND);
    let (adders, refused) = (AtomicUsize::new(4), AtomicUsize::new(0));
    let refused_by = |answer: Result<Accepted, Rejected>| match answer {
        Ok(_) => (),
        Err(back) => {
            assert!(back.full, "the queue is open");
            refused.fetch_add(1, Ordering::Relaxed);
        }
    };
    let runs = AtomicUsize::new(0);
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while let Some(item) = q.get_or_end() {
                    runs.fetch_add(1, Ordering::Relaxed);
                    sound(item.done());
                }
            });
        }
        for adder in 0..4_u64 {
            let (q, adders, refused_by) = (&q, &adders, &refused_by);
            s.spawn(move || {
                for i in 0..500 {
                    let key = i % 7 + adder * 10;
                    match adder {
                        0 => refused_by(q.trigger(key, When::Now, None)),
                        1 => refused_by(sound(q.queue.add_wait(said(key, When::Now), None))),
                        2 => q
                            .trigger_many([key, key + 1, key + 2].map(|key| said(key, When::Now)).into())
                            .into_iter()
                            .for_each(refused_by),
                        _ => {
                            refused_by(q.trigger(key, after(1), None));
                            q.clock.advance(ms(1));
                        }
                    }
                    let counts = q.counts();
                    assert!(counts.ready + counts.held <= BOUND, "{counts:?}");
                }
                if adders.fetch_sub(1, Ordering::SeqCst) == 1 {
                    ignore(q.shut_down());
                }
            });
        }
    });
    assert!(runs.load(Ordering::Relaxed) > 0);
}

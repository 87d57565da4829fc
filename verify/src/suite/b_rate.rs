//! B6: dispatch rate.

use crate::adapter::{
    Accepted, Adapter, Config, Held, Line, Many, MaxWait, Nothing, Rate, Subject, Waiters, ms, sound,
};
use crate::lockstep::unwind_through;
use crate::wake::Count;
use std::task::Poll;
use std::time::Duration;

/// A key each 100 ms, and so many at once.
const fn ten(burst: u32) -> Option<Rate> {
    Some(Rate { keys: 1, nanos: 100_000_000, burst })
}

fn limited<A: Adapter>(burst: u32) -> Subject<A> {
    Subject::with(Config { rate: ten(burst), ..Config::default() })
}

pub fn b6_the_burst_goes_at_once_and_then_a_key_as_often_as_the_rate_says<A: Adapter>() {
    let q = limited::<A>(3);
    q.add_many(0..10);
    assert_eq!(q.work_off(), [0, 1, 2]);
    for key in 3..6 {
        q.clock.advance(ms(99));
        q.is_idle();
        q.clock.advance(ms(1));
        assert_eq!(q.work_off(), [key]);
    }
    // unused tokens are kept, up to the burst
    q.clock.advance(ms(10_000));
    assert_eq!(q.work_off(), [6, 7, 8]);
}

pub fn b6_no_rounding_is_carried_on<A: Adapter>() {
    let rate = Some(Rate { keys: 3, nanos: 10, burst: 2 });
    let q = Subject::<A>::with(Config { rate, ..Config::default() });
    q.add_many(0..40);
    let mut handed_out = q.work_off().len();
    for now in 1..=100_u64 {
        q.clock.advance(Duration::from_nanos(1));
        handed_out += q.work_off().len();
        assert_eq!(handed_out as u64, 2 + now * 3 / 10, "after {now} ns");
    }
}

pub fn b6_ready_without_a_token_is_empty_and_not_shut_down<A: Adapter>() {
    let q = limited::<A>(1);
    q.add_many([1, 2]);
    sound(q.take(1).done());
    q.is_idle();
    q.has(1, 0, 0, 0);
    assert!(matches!(q.try_get_many(5), Err(Nothing::Empty)));
    q.shut_down();
    q.is_idle();
    q.clock.advance(ms(100));
    sound(q.take(2).done());
    q.is_over();
}

pub fn b6_a_duplicate_costs_nothing<A: Adapter>() {
    let q = limited::<A>(2);
    for _ in 0..10_000 {
        q.add(1);
    }
    let run = q.take(1);
    for _ in 0..10_000 {
        q.add(1);
    }
    sound(run.done());
    sound(q.take(1).done());
    q.add(2);
    q.is_idle();
    q.clock.advance(ms(100));
    assert_eq!(q.work_off(), [2]);
}

pub fn b6_what_is_cancelled_or_waits_costs_nothing<A: Adapter>() {
    let q = limited::<A>(1);
    q.add_many([1, 2]);
    q.add_after(3, ms(50));
    assert!(q.cancel(1).is_some());
    q.clock.advance(ms(50));
    assert_eq!(q.work_off(), [2]);
    q.clock.advance(ms(100));
    assert_eq!(q.work_off(), [3]);
}

pub fn b6_a_batch_gets_as_many_keys_as_there_are_tokens<A: Adapter>() {
    let q = limited::<A>(4);
    q.add_many(0..10);
    let items = q.try_get_many(3).unwrap_or_else(|nothing| panic!("{nothing:?}"));
    assert_eq!(items.keys(), [0, 1, 2]);
    q.clock.advance(ms(100));
    let more = q.try_get_many(8).unwrap_or_else(|nothing| panic!("{nothing:?}"));
    assert_eq!(more.keys(), [3, 4]);
    drop((items, more));
}

pub fn b6_a_retry_and_what_is_put_back_take_a_token_each_time<A: Adapter>() {
    let q = limited::<A>(2);
    q.add(1);
    assert_eq!(sound(q.take(1).retry_after(ms(0))).ok(), Some(ms(0)));
    let items = q.try_get_many(1).unwrap_or_else(|nothing| panic!("{nothing:?}"));
    unwind_through(items);
    q.has(1, 0, 0, 0);
    q.is_idle();
    q.clock.advance(ms(100));
    assert_eq!(q.take(1).attempt(), 2);
}

pub fn b6_who_waits_is_woken_when_the_token_is_there<A: Adapter>() {
    let q = limited::<A>(1);
    let counts = [Count::new(), Count::new()];
    q.add_many([1, 2, 3]);
    sound(q.take(1).done());
    let mut gets = [q.getting(), q.getting()];
    for (count, get) in counts.iter().zip(&mut gets) {
        assert!(count.poll(get).is_pending());
    }
    q.clock.advance(ms(99));
    let wakes = || counts.iter().map(|count| count.wakes()).sum::<usize>();
    assert_eq!(wakes(), 0);
    q.clock.advance(ms(1));
    assert_eq!(wakes(), 1, "one, for there is one token");
    let first = (0..2).find(|i| counts[*i].wakes() > 0).expect("one was woken");
    let Poll::Ready(found) = counts[first].poll(&mut gets[first]) else { panic!("there is a token") };
    let run = sound(found).expect("not shut down");
    assert_eq!(run.key().id, 2);
    // and the other at the next, although nobody calls meanwhile
    q.clock.advance(ms(100));
    assert_eq!(counts[1 - first].wakes(), 1);
    assert!(counts[1 - first].poll(&mut gets[1 - first]).is_ready());
}

pub fn b6_a_key_that_comes_before_its_token_wakes_who_waits_at_the_token<A: Adapter>() {
    let q = limited::<A>(1);
    q.add(1);
    sound(q.take(1).done());
    let count = Count::new();
    let mut get = q.getting();
    assert!(count.poll(&mut get).is_pending());
    q.clock.advance(ms(40));
    q.add(2);
    assert_eq!(count.wakes(), 0);
    q.clock.advance(ms(60));
    assert_eq!(count.wakes(), 1);
    assert!(count.poll(&mut get).is_ready());
}

pub fn b6_a_paused_queue_wakes_nobody_for_a_token<A: Adapter>() {
    let q = limited::<A>(1);
    q.add_many([1, 2]);
    sound(q.take(1).done());
    assert!(q.pause());
    let count = Count::new();
    let mut get = q.getting();
    assert!(count.poll(&mut get).is_pending());
    q.clock.advance(ms(1_000));
    assert_eq!(count.wakes(), 0);
    assert!(q.resume());
    assert_eq!(count.wakes(), 1);
    assert!(count.poll(&mut get).is_ready());
}

pub fn b6_a_drain_keeps_to_the_rate<A: Adapter>() {
    let q = limited::<A>(1);
    q.add_many([1, 2]);
    let count = Count::new();
    let mut drain = q.queue.drain(Waiters::Drop, None);
    assert!(count.poll(&mut drain).is_pending());
    assert_eq!(q.work_off(), [1]);
    assert!(count.poll(&mut drain).is_pending());
    q.clock.advance(ms(100));
    assert_eq!(q.work_off(), [2]);
    let Poll::Ready(answer) = count.poll(&mut drain) else { panic!("all is worked off") };
    assert!(sound(answer).complete);
}

pub fn b6_the_next_token_is_for_whom_the_order_says<A: Adapter>() {
    let order = Line::Priority(Some(MaxWait::of(ms(150))));
    let q = Subject::<A>::with(Config { order, rate: ten(1), ..Config::default() });
    q.add_at(1, 0);
    q.add_at(2, 0);
    sound(q.take(1).done());
    q.add_at(3, 5);
    q.add_at(4, 6);
    q.clock.advance(ms(100));
    sound(q.take_at(4, 6).done());
    q.clock.advance(ms(100));
    // it has been ready for longer than the longest wait
    sound(q.take_at(2, 0).done());
    q.clock.advance(ms(100));
    sound(q.take_at(3, 5).done());
}

pub fn b6_every_order_keeps_to_the_rate<A: Adapter>() {
    use crate::suite::b_value::Smallest;
    for order in [Line::Lifo, Line::Priority(None), Line::Own(Box::new(Smallest::default()))] {
        let q = Subject::<A>::with(Config { order, rate: ten(2), ..Config::default() });
        q.add_many(0..5);
        assert_eq!(q.work_off().len(), 2);
        q.clock.advance(ms(100));
        assert_eq!(q.work_off().len(), 1);
        assert_eq!(q.add(9), Accepted::Ready);
        q.is_idle();
    }
}

pub fn b6_a_rate_that_is_lifted_holds_nobody_up_any_more<A: Adapter>() {
    let q = limited::<A>(1);
    q.add_many(0..5);
    assert_eq!(q.work_off(), [0]);
    let count = Count::new();
    let mut get = q.getting();
    assert!(count.poll(&mut get).is_pending());
    assert!(q.lift_rate() && !q.lift_rate());
    let Poll::Ready(found) = count.poll(&mut get) else { panic!("nothing holds it up") };
    drop(sound(found));
    assert!(count.wakes() > 0);
    assert_eq!(q.work_off(), [2, 3, 4]);
}

//! B6: the rate of each group. Key `k` is in group `k / 10`.

use crate::adapter::{Adapter, Fair, Grouping, Held, Many, Subject, Waiters, ms, sound};
use crate::model::Rate;
use crate::wake::Count;
use std::task::Poll;

/// A key each 100 ms, and so many at once.
const fn ten(burst: u32) -> Option<Rate> {
    Some(Rate { keys: 1, nanos: 100_000_000, burst })
}

fn limited<A: Adapter>(burst: u32) -> Subject<A> {
    Subject::with_groups(Fair::of(Grouping { rate: ten(burst), ..Grouping::of(10) }))
}

pub fn b6_each_group_has_a_rate_of_its_own_and_one_without_a_token_is_passed_by<A: Adapter>() {
    let q = limited::<A>(2);
    q.add_many([11, 12, 13, 14, 21]);
    assert_eq!(q.work_off(), [11, 21, 12]);
    q.has(2, 0, 0, 0);
    q.add_many([22, 23, 31]);
    assert_eq!(q.work_off(), [22, 31], "others have tokens");
    q.clock.advance(ms(99));
    q.is_idle();
    q.clock.advance(ms(1));
    assert_eq!(q.work_off(), [13, 23]);
    q.clock.advance(ms(100));
    assert_eq!(q.work_off(), [14]);
}

pub fn b6_a_group_that_leaves_and_comes_back_has_the_tokens_that_it_would_have<A: Adapter>() {
    let q = limited::<A>(2);
    for key in [11, 12] {
        q.add(key);
        assert_eq!(q.work_off(), [key]);
        assert_eq!(q.state(key), None, "no key of the group is known");
    }
    q.add(13);
    q.is_idle();
    assert!(q.cancel(13).is_some());
    q.clock.advance(ms(150));
    q.add_many([14, 15]);
    assert_eq!(q.work_off(), [14]);
    assert!(q.cancel(15).is_some());
    // away for long: the bucket is full, and no fuller
    q.clock.advance(ms(10_000));
    q.add_many([11, 12, 13]);
    assert_eq!(q.work_off(), [11, 12]);
}

pub fn b6_no_group_has_more_than_its_burst_and_rate_however_it_comes_and_goes<A: Adapter>() {
    let q = limited::<A>(3);
    let mut handed_out = 0_u64;
    for step in 0..400_u64 {
        q.add(10 + step % 7);
        handed_out += q.work_off().len() as u64;
        if step % 3 == 0 {
            for key in 10..20 {
                q.cancel(key);
            }
        }
        assert!(handed_out <= 3 + step * 7 / 100, "{handed_out} keys in {} ms", step * 7);
        q.clock.advance(ms(7));
    }
    assert!(handed_out > 25, "it is used: {handed_out}");
}

pub fn b6_a_duplicate_costs_a_group_nothing<A: Adapter>() {
    let q = limited::<A>(2);
    for _ in 0..100 {
        q.add(11);
    }
    assert_eq!(q.work_off(), [11]);
    q.add(12);
    assert_eq!(q.work_off(), [12]);
}

pub fn b6_a_getter_waits_for_the_token_of_a_group_and_is_woken_by_it<A: Adapter>() {
    let q = limited::<A>(1);
    q.add_many([11, 12]);
    sound(q.take(11).done());
    let (count, mut getting) = (Count::new(), q.getting());
    assert!(count.poll(&mut getting).is_pending());
    q.clock.advance(ms(99));
    assert!(count.poll(&mut getting).is_pending());
    q.clock.advance(ms(1));
    let Poll::Ready(item) = count.poll(&mut getting) else { panic!("its token is there") };
    assert_eq!(sound(item).map(|item| item.key().id), Some(12));
}

pub fn b6_a_batch_has_of_each_group_as_many_keys_as_it_has_tokens<A: Adapter>() {
    let q = limited::<A>(2);
    q.add_many([11, 12, 13, 21, 22, 23, 31]);
    let items = q.take_many(10);
    assert_eq!(items.keys(), [11, 21, 31, 12, 22]);
    sound(items.done());
    q.is_idle();
    q.has(2, 0, 0, 0);
}

pub fn b6_a_drain_keeps_to_the_rates_of_groups_and_to_lift_them_ends_that<A: Adapter>() {
    let q = limited::<A>(1);
    q.add_many([11, 12, 13, 21, 22]);
    let (count, mut drain) = (Count::new(), q.drain(Waiters::Drop));
    assert_eq!(q.work_off(), [11, 21]);
    assert!(count.poll(&mut drain).is_pending());
    q.clock.advance(ms(100));
    assert_eq!(q.work_off(), [12, 22]);
    assert!(q.lift_rate() && !q.lift_rate());
    assert_eq!(q.work_off(), [13]);
    assert!(count.poll(&mut drain).is_ready());
}

pub fn b6_to_lift_the_rates_of_many_groups_lets_all_of_them_go<A: Adapter>() {
    let q = Subject::<A>::with_groups(Fair::of(Grouping { rate: ten(1), ..Grouping::of(2) }));
    q.add_many(0..300);
    assert_eq!(q.work_off().len(), 150);
    q.is_idle();
    assert!(q.lift_rate());
    assert_eq!(q.work_off().len(), 150);
}

pub fn b6_a_group_that_is_paused_and_without_a_token_waits_for_both<A: Adapter>() {
    let q = limited::<A>(1);
    q.add_many([11, 12, 13]);
    sound(q.take(11).done());
    assert!(q.pause_group(11));
    q.clock.advance(ms(100));
    q.is_idle();
    assert!(q.resume_group(11));
    assert_eq!(q.work_off(), [12]);
    assert!(q.pause_group(11) && q.resume_group(11));
    q.is_idle();
    q.clock.advance(ms(100));
    assert_eq!(q.work_off(), [13]);
}

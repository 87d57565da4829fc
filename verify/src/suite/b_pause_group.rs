//! B7: pause and resume of groups. Key `k` is in group `k / 10`.

use crate::adapter::{
    Accepted, Adapter, Config, Fair, Grouping, Held, Line, Many, MaxWait, Seen, Subject, Waiters, ignore, ms,
    sound,
};
use crate::wake::Count;
use requeue::Only;
use std::task::Poll;

fn q<A: Adapter>() -> Subject<A> {
    Subject::with_groups(Fair::of(Grouping::of(10)))
}

const READY: Seen =
    Seen { ready: true, held: false, dirty: false, due: None, paused: false, group_paused: false };

pub fn b7_a_paused_groups_keys_stay_ready_and_are_not_handed_out<A: Adapter>() {
    let q = q::<A>();
    q.add_many([11, 21, 12, 22]);
    assert!(q.pause_group(19), "any key of the group will do");
    assert!(q.is_group_paused(11) && !q.is_group_paused(21));
    q.has(4, 0, 0, 0);
    assert_eq!(q.state(11), Some(Seen { group_paused: true, ..READY }));
    assert_eq!(q.state(21), Some(READY));
    assert_eq!(q.work_off(), [21, 22]);
    assert_eq!(q.add(11), Accepted::Coalesced);
    assert_eq!(q.add(13), Accepted::Ready);
    q.is_idle();
    q.has(3, 0, 0, 0);
    assert!(q.resume_group(10) && !q.is_group_paused(11));
    assert_eq!(q.work_off(), [11, 12, 13], "each has kept its place");
}

pub fn b7_a_resumed_group_comes_behind_those_that_wait<A: Adapter>() {
    let q = q::<A>();
    q.add_many([11, 12, 21, 22, 31]);
    assert!(q.pause_group(11));
    sound(q.take(21).done());
    assert!(q.resume_group(11));
    assert_eq!(q.work_off(), [31, 22, 11, 12]);
}

pub fn b7_pauses_of_a_group_do_not_add_up<A: Adapter>() {
    let q = q::<A>();
    assert!(!q.resume_group(11), "it was not paused");
    assert!(q.pause_group(11) && q.pause_group(12));
    assert!(q.resume_group(13) && !q.resume_group(13));
    q.add(11);
    assert_eq!(q.work_off(), [11]);
}

pub fn b7_a_group_without_known_keys_can_be_paused_and_is_until_it_is_resumed<A: Adapter>() {
    let q = q::<A>();
    assert!(q.pause_group(11));
    q.has(0, 0, 0, 0);
    assert_eq!((q.state(11), q.snapshot(10, None)), (None, vec![]), "the key is not known by that");
    for _ in 0..2 {
        q.add(12);
        q.is_idle();
        assert!(q.cancel(12).is_some_and(|took| took.ready));
        assert!(q.is_group_paused(11), "its last key has gone, and its pause stays");
    }
    q.add(12);
    assert!(q.resume_group(11));
    assert_eq!(q.work_off(), [12]);
}

pub fn b7_a_queue_without_groups_pauses_none<A: Adapter>() {
    let plain = Subject::<A>::new();
    assert!(!plain.pause_group(1) && !plain.resume_group(1) && !plain.is_group_paused(1));
    plain.add(1);
    assert_eq!(plain.work_off(), [1]);
}

pub fn b7_runs_of_a_paused_group_go_on_and_what_follows_from_them_waits<A: Adapter>() {
    let q = Subject::<A>::with_groups(Fair::of(Grouping { caps: [2; 4], ..Grouping::of(10) }));
    q.add_many([11, 12, 13]);
    q.add_after(14, ms(5));
    let (dirty, failed) = (q.take(11), q.take(12));
    assert!(q.pause_group(11));
    assert_eq!(q.add(11), Accepted::Dirty);
    sound(dirty.done());
    q.is_idle();
    assert_eq!(sound(failed.retry_after(ms(5))).ok(), Some(ms(5)));
    q.clock.advance(ms(5));
    q.is_idle();
    q.has(4, 0, 0, 0);
    assert!(q.resume_group(11));
    // its cap is what it was
    let items = q.take_many(10);
    assert_eq!(items.keys().len(), 2);
    q.is_idle();
    sound(items.done());
    assert_eq!(q.work_off().len(), 2);
}

pub fn b7_a_group_at_its_cap_that_is_paused_and_resumed_is_at_its_cap<A: Adapter>() {
    let q = Subject::<A>::with_groups(Fair::of(Grouping { caps: [1; 4], ..Grouping::of(10) }));
    q.add_many([11, 12, 13]);
    let eleven = q.take(11);
    assert!(q.pause_group(11) && q.resume_group(11));
    q.is_idle();
    assert!(q.pause_group(11));
    sound(eleven.done());
    q.is_idle();
    assert!(q.resume_group(11));
    let twelve = q.take(12);
    q.is_idle();
    sound(twelve.done());
    assert_eq!(q.work_off(), [13]);
}

pub fn b7_a_batch_and_priorities_and_ages_pass_a_paused_group_by<A: Adapter>() {
    let fair = Fair { priorities: true, max_wait: Some(MaxWait::of(ms(1))), ..Fair::of(Grouping::of(10)) };
    for fair in [fair, Fair { within: true, ..fair }, Fair { max_wait: None, ..fair }] {
        let q = Subject::<A>::with(Config { order: Line::Fair(fair), ..Config::default() });
        q.add_at(11, 9);
        q.add_at(12, 5);
        q.clock.advance(ms(1));
        q.add_at(21, 1);
        q.add_at(22, 0);
        assert!(q.pause_group(11));
        let items = q.take_many(10);
        assert_eq!(items.keys(), [21, 22]);
        sound(items.done());
        q.is_idle();
        assert!(q.resume_group(11));
        assert_eq!(q.work_off(), [11, 12]);
    }
}

pub fn b7_a_snapshot_tells_only_of_keys_of_paused_groups<A: Adapter>() {
    let q = q::<A>();
    q.add_many([11, 12, 13, 21]);
    let held = q.take(11);
    q.pause_key(12);
    assert!(q.pause_group(11));
    assert_eq!(q.snapshot(10, Some(Only::GroupPaused)), [11, 13], "12 is paused by itself");
    assert!(q.resume_group(11));
    assert_eq!(q.snapshot(10, Some(Only::GroupPaused)), [0_u64; 0]);
    drop(held);
}

pub fn b7_what_ends_the_queue_lifts_the_pauses_of_groups_and_refuses_later_ones<A: Adapter>() {
    let ends: [fn(&Subject<A>); 4] = [
        |q| ignore(q.shut_down()),
        |q| drop(q.drain(Waiters::Drop)),
        |q| drop(q.drain(Waiters::RunNow)),
        |q| drop(q.drain(Waiters::Wait)),
    ];
    for end in ends {
        let q = q::<A>();
        q.add_many([111, 121, 211]);
        assert!(q.pause_group(111) && q.pause_group(120) && q.pause_group(999));
        q.pause_key(211);
        end(&q);
        assert!(!q.is_group_paused(111) && !q.is_group_paused(121) && !q.is_group_paused(999));
        assert!(!q.pause_group(111));
        let mut handed_out = q.work_off();
        handed_out.sort_unstable();
        assert_eq!(handed_out, [111, 121, 211]);
        q.is_over();
    }
    let q = q::<A>();
    q.close();
    assert!(q.pause_group(11), "a close alone lifts no pause and refuses none");
}

pub fn b7_who_waits_is_woken_by_the_resume_of_a_group<A: Adapter>() {
    let q = q::<A>();
    assert!(q.pause_group(11));
    let (count, mut getting) = (Count::new(), q.getting());
    assert!(count.poll(&mut getting).is_pending());
    q.add_many([11, 12]);
    assert!(count.poll(&mut getting).is_pending());
    let before = count.wakes();
    assert!(q.resume_group(11));
    assert!(count.wakes() > before);
    let Poll::Ready(item) = count.poll(&mut getting) else { panic!("11 may be had") };
    assert_eq!(sound(item).map(|item| item.key().id), Some(11));
}

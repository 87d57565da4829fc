//! Q1-Q4 and Q9: the ready line, de-duplication, single flight.

use crate::adapter::{Accepted, Adapter, Counts, Held, Seen, Subject, ms, sound};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;

pub fn q1_keys_are_handed_out_in_the_order_in_which_they_became_ready<A: Adapter>() {
    let q = Subject::<A>::new();
    for key in [5, 3, 9, 1, 7] {
        assert_eq!(q.add(key), Accepted::Ready);
    }
    assert_eq!(q.work_off(), [5, 3, 9, 1, 7]);
}

pub fn q1_order_holds_across_keys_that_come_and_go<A: Adapter>() {
    let q = Subject::<A>::new();
    let mut expected = 0;
    for key in 0..2_000_u64 {
        q.add(key);
        if key % 3 == 0 {
            sound(q.take(expected).done());
            expected += 1;
        }
    }
    assert_eq!(q.work_off(), (expected..2_000).collect::<Vec<_>>());
}

pub fn q1_a_key_that_becomes_ready_at_done_stands_behind_those_that_were_ready_before<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add(1);
    q.add(2);
    sound(one.done());
    q.add(3);
    assert_eq!(q.work_off(), [2, 1, 3]);
}

pub fn q2_a_ready_key_that_is_added_again_gives_one_entry_and_one_run<A: Adapter>() {
    let q = Subject::<A>::new();
    assert_eq!(q.add(1), Accepted::Ready);
    for _ in 0..100 {
        assert_eq!(q.add(1), Accepted::Coalesced);
    }
    q.has(1, 0, 0, 0);
    assert_eq!(q.work_off(), [1]);
}

pub fn q2_a_ready_key_that_is_added_again_stays_where_it_is_in_line<A: Adapter>() {
    let q = Subject::<A>::new();
    for key in [1, 2, 3] {
        q.add(key);
    }
    q.add(1);
    q.add(2);
    assert_eq!(q.work_off(), [1, 2, 3]);
}

pub fn q2_a_key_that_is_done_may_be_added_anew<A: Adapter>() {
    let q = Subject::<A>::new();
    for _ in 0..3 {
        assert_eq!(q.add(1), Accepted::Ready);
        assert_eq!(q.work_off(), [1]);
    }
    q.is_idle();
}

pub fn q2_add_by_reference_is_add<A: Adapter>() {
    let q = Subject::<A>::new();
    let add = |key: u64| sound(q.queue.add_ref(&key.into()));
    assert_eq!(add(1), Ok(Accepted::Ready));
    assert_eq!(add(1), Ok(Accepted::Coalesced));
    let one = q.take(1);
    assert_eq!(add(1), Ok(Accepted::Dirty));
    assert_eq!(add(1), Ok(Accepted::Coalesced));
    sound(one.done());
    assert_eq!(q.work_off(), [1]);
    q.shut_down();
    assert_eq!(add(1), Err(()));
}

pub fn q3_a_held_key_is_not_handed_out_again_before_it_is_done<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add(1);
    q.is_idle();
    assert_eq!(q.state(1), Some(Seen { held: true, dirty: true, ..Seen::default() }));
    sound(one.done());
    sound(q.take(1).done());
    q.is_idle();
}

pub fn q3_no_two_workers_ever_hold_one_key<A: Adapter>() {
    let q = Subject::<A>::new();
    let held = Mutex::new(BTreeSet::new());
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                while let Some(item) = q.get_or_end() {
                    let key = item.key().id;
                    assert!(held.lock().unwrap().insert(key), "key {key} is held twice");
                    thread::yield_now();
                    assert!(held.lock().unwrap().remove(&key));
                    sound(item.done());
                }
            });
        }
        for i in 0..4_000 {
            q.add(i % 5);
        }
        q.shut_down();
    });
    q.is_over();
}

pub fn q4_a_trigger_for_a_held_key_makes_it_dirty_and_ready_at_done<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    assert_eq!(q.add(1), Accepted::Dirty);
    q.has(0, 1, 1, 0);
    sound(one.done());
    q.has(1, 0, 0, 0);
    assert_eq!(q.work_off(), [1]);
}

pub fn q4_a_dirty_key_goes_to_the_back_of_the_line<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add(1);
    q.add(2);
    q.add(3);
    sound(one.done());
    assert_eq!(q.work_off(), [2, 3, 1]);
}

pub fn q4_any_number_of_triggers_during_a_run_give_one_more_run<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    assert_eq!(q.add(1), Accepted::Dirty);
    for _ in 0..1_000 {
        assert_eq!(q.add(1), Accepted::Coalesced);
    }
    sound(one.done());
    assert_eq!(q.work_off(), [1]);
    q.has(0, 0, 0, 0);
}

pub fn q4_every_run_that_is_triggered_gives_one_more_and_no_further<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    for _ in 0..50 {
        let one = q.take(1);
        q.add(1);
        sound(one.done());
    }
    assert_eq!(q.work_off(), [1]);
}

pub fn q4_an_untriggered_run_gives_no_further_run<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    sound(q.take(1).done());
    q.is_idle();
    assert_eq!(q.state(1), None);
}

pub fn q9_len_is_the_number_of_ready_keys_and_the_others_are_counted_apart<A: Adapter>() {
    let q = Subject::<A>::new();
    assert!(q.is_empty());
    for key in 0..5 {
        q.add(key);
    }
    q.add_after(10, ms(1));
    q.add_after(11, ms(1));
    q.has(5, 0, 0, 2);
    assert!(!q.is_empty());
    let zero = q.take(0);
    let one = q.take(1);
    q.add(1);
    q.has(3, 2, 1, 2);
    sound(zero.done());
    sound(one.done());
    q.has(4, 0, 0, 2);
    assert_eq!(q.work_off(), [2, 3, 4, 1]);
    q.has(0, 0, 0, 2);
    assert!(q.is_empty());
}

pub fn q9_len_counts_a_key_whose_due_instant_has_come<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    q.clock.advance(ms(5));
    q.has(1, 0, 0, 0);
    assert!(!q.is_empty());
}

pub fn q9_a_key_that_is_waiting_and_ready_or_held_counts_as_both<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    q.add(1);
    q.has(1, 0, 0, 1);
    let one = q.take(1);
    q.has(0, 1, 0, 1);
    q.add(1);
    assert_eq!(q.counts(), Counts { ready: 0, held: 1, dirty: 1, waiting: 1 });
    drop(one);
}

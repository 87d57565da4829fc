//! B7: pause and resume.

use crate::adapter::{
    Accepted, Adapter, Config, Held, Line, Many, Nothing, Restored, Seen, Subject, Waiters, ms, sound,
};
use crate::probe::{Key, Probe};
use crate::suite::b_control_rules::Clinging;
use crate::suite::b_value::Smallest;
use crate::suite::users::panics;
use crate::wake::Count;
use requeue::Only;
use std::task::Poll;

const PAUSED: Seen =
    Seen { paused: true, group_paused: false, ready: false, held: false, dirty: false, due: None };

pub fn b7_a_paused_queue_hands_nothing_out_and_counts_what_is_ready<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many([1, 2]);
    assert!(q.pause() && q.is_paused());
    q.is_idle();
    assert!(matches!(q.try_get_many(5), Err(Nothing::Empty)));
    q.add(3);
    q.has(3, 0, 0, 0);
    assert!(q.resume() && !q.is_paused());
    assert_eq!(q.work_off(), [1, 2, 3], "each has kept its place");
}

pub fn b7_runs_go_on_and_timers_fire_while_the_queue_is_paused<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many([1, 2]);
    let runs = [q.take(1), q.take(2)];
    q.add(1);
    q.add_after(3, ms(5));
    assert!(q.pause());
    let [dirty, failed] = runs;
    sound(dirty.done());
    assert_eq!(sound(failed.retry_after(ms(0))).ok(), Some(ms(0)));
    q.clock.advance(ms(5));
    q.has(3, 0, 0, 0);
    q.is_idle();
    assert!(q.resume());
    assert_eq!(q.work_off(), [1, 2, 3]);
}

pub fn b7_pauses_do_not_add_up<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    assert!(!q.resume() && !q.resume_key(1), "nothing was paused");
    assert!(q.pause() && q.pause() && q.pause_key(1) && q.pause_key(1));
    assert!(q.resume() && !q.resume());
    assert!(q.resume_key(1) && !q.resume_key(1));
    assert_eq!(q.work_off(), [1]);
}

pub fn b7_gets_pass_a_paused_key_by_and_it_counts_in_len<A: Adapter>() {
    for order in [Line::Fifo, Line::Lifo, Line::Priority(None), Line::Own(Box::new(Smallest::default()))] {
        let q = Subject::<A>::with(Config { order, ..Config::default() });
        q.add_many([1, 2, 3]);
        assert!(q.pause_key(2));
        q.has(3, 0, 0, 0);
        assert_eq!(q.state(2), Some(Seen { ready: true, ..PAUSED }));
        let mut handed_out = q.work_off();
        handed_out.sort_unstable();
        assert_eq!(handed_out, [1, 3]);
        assert_eq!(q.add(2), Accepted::Coalesced, "a redundant add stays redundant");
        q.has(1, 0, 0, 0);
        q.is_idle();
        assert!(q.resume_key(2));
        assert_eq!(q.work_off(), [2]);
        assert_eq!(q.state(2), None);
    }
}

pub fn b7_a_batch_passes_paused_keys_by<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many(0..6);
    assert!(q.pause_key(1) && q.pause_key(4));
    let items = q.try_get_many(10).unwrap_or_else(|nothing| panic!("{nothing:?}"));
    assert_eq!(items.keys(), [0, 2, 3, 5]);
    sound(items.done());
    q.has(2, 0, 0, 0);
}

pub fn b7_a_key_that_is_not_known_can_be_paused_and_is_known_until_it_is_resumed<A: Adapter>() {
    let q = Subject::<A>::new();
    assert!(q.pause_key(1));
    assert_eq!(q.state(1), Some(PAUSED));
    assert_eq!(q.snapshot(10, Some(Only::Paused)), [1]);
    q.has(0, 0, 0, 0);
    assert_eq!(q.add(1), Accepted::Ready);
    q.is_idle();
    assert!(q.cancel(1).is_some_and(|took| took.ready));
    assert_eq!(q.state(1), Some(PAUSED), "a cancel lifts no pause");
    assert!(q.resume_key(1));
    assert_eq!(q.state(1), None);
    assert_eq!(q.snapshot(10, None), [0_u64; 0], "nothing is kept of it");
}

pub fn b7_the_run_of_a_paused_key_goes_on_and_what_follows_from_it_waits<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many([1, 2, 3]);
    let (dirty, failed, clean) = (q.take(1), q.take(2), q.take(3));
    for key in [1, 2, 3] {
        assert!(q.pause_key(key));
    }
    assert_eq!(q.state(1), Some(Seen { held: true, ..PAUSED }));
    assert_eq!(q.add(1), Accepted::Dirty);
    sound(dirty.done());
    assert_eq!(sound(failed.retry_after(ms(5))).ok(), Some(ms(5)));
    sound(clean.done());
    q.clock.advance(ms(5));
    q.has(2, 0, 0, 0);
    q.is_idle();
    assert_eq!(q.state(3), Some(PAUSED));
    assert!(q.resume_key(2));
    assert_eq!(q.take(2).attempt(), 2);
    assert!(q.resume_key(1));
    sound(q.take(1).done());
}

pub fn b7_a_timer_of_a_paused_key_fires_and_the_key_does_not_stand_in_line<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    assert!(q.pause_key(1));
    assert_eq!(q.state(1), Some(Seen { due: Some(q.clock.at() + ms(5)), ..PAUSED }));
    q.clock.advance(ms(5));
    q.has(1, 0, 0, 0);
    q.is_idle();
    assert!(q.resume_key(1));
    assert_eq!(q.work_off(), [1]);
}

pub fn b7_a_resumed_key_goes_to_the_back_of_the_line<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many([1, 2, 3]);
    assert!(q.pause_key(1) && q.resume_key(1));
    assert_eq!(q.work_off(), [2, 3, 1]);
}

pub fn b7_a_paused_key_keeps_its_priority_and_is_raised_by_what_comes<A: Adapter>() {
    let q = Subject::<A>::with(Config { order: Line::Priority(None), ..Config::default() });
    q.add_at(1, 5);
    q.add_at(2, 4);
    q.add_at(3, 7);
    assert!(q.pause_key(1) && q.pause_key(2));
    q.add_at(2, 9);
    q.add_at(2, -9);
    assert!(q.resume_key(1) && q.resume_key(2));
    drop((q.take_at(2, 9), q.take_at(3, 7), q.take_at(1, 5)));
}

/// Ends the queue in every way that there is.
fn ends<A: Adapter>() -> Vec<fn(&Subject<A>)> {
    vec![
        |q| {
            q.shut_down();
        },
        |q| drop(q.queue.drain(Waiters::Drop, None)),
        |q| drop(q.queue.drain(Waiters::RunNow, None)),
        |q| drop(q.queue.drain(Waiters::Wait, None)),
    ]
}

pub fn b7_what_ends_the_queue_lifts_all_pauses_and_refuses_later_ones<A: Adapter>() {
    for end in ends::<A>() {
        let q = Subject::<A>::new();
        q.add_many(0..200);
        for key in 0..200 {
            assert!(q.pause_key(key));
        }
        assert!(q.pause_key(1_000) && q.pause());
        end(&q);
        assert!(!q.is_paused() && !q.pause() && !q.pause_key(0) && !q.pause_key(2_000));
        assert_eq!((q.state(1_000), q.state(2_000)), (None, None));
        assert_eq!(q.work_off(), (0..200).collect::<Vec<_>>());
        q.is_over();
    }
}

pub fn b7_a_close_lifts_no_pause_and_refuses_none<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many([1, 2]);
    assert!(q.pause_key(1));
    q.close();
    assert!(q.pause());
    q.is_idle();
    assert!(q.resume());
    assert_eq!(q.work_off(), [2]);
    q.shut_down();
    assert_eq!(q.work_off(), [1]);
}

pub fn b7_a_queue_with_paused_ready_keys_is_not_over<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    assert!(q.pause());
    let count = Count::new();
    let mut drain = q.queue.drain(Waiters::Drop, None);
    assert!(count.poll(&mut drain).is_pending());
    assert_eq!(q.work_off(), [1]);
    let Poll::Ready(answer) = count.poll(&mut drain) else { panic!("all is worked off") };
    assert!(sound(answer).complete);
}

pub fn b7_who_waits_sleeps_through_a_pause_and_a_resume_wakes_as_many_as_there_are_keys<A: Adapter>() {
    let q = Subject::<A>::new();
    assert!(q.pause() && q.pause_key(3));
    let counts: Vec<_> = (0..3).map(|_| Count::new()).collect();
    let mut gets: Vec<_> = counts.iter().map(|_| q.getting()).collect();
    for (count, get) in counts.iter().zip(&mut gets) {
        assert!(count.poll(get).is_pending());
    }
    q.add_many([1, 2, 3]);
    assert_eq!(counts.iter().map(|count| count.wakes()).sum::<usize>(), 0, "there is nothing to be had");
    assert!(q.resume());
    // each that was woken looks, and passes the wake-up on
    let mut keys = Vec::new();
    let mut runs = Vec::new();
    while let Some(woken) =
        (0..gets.len()).find(|i| counts[*i].wakes() > 0 && !runs.iter().any(|(at, _)| at == i))
    {
        let Poll::Ready(found) = counts[woken].poll(&mut gets[woken]) else { panic!("a key is there") };
        let run = sound(found).expect("not shut down");
        keys.push(run.key().id);
        runs.push((woken, run));
    }
    assert_eq!(keys, [1, 2], "and the third sleeps on");
    assert!(q.resume_key(3));
    let last = (0..3).find(|i| !runs.iter().any(|(at, _)| at == i)).expect("one waits");
    assert_eq!(counts[last].wakes(), 1);
    assert!(counts[last].poll(&mut gets[last]).is_ready());
}

pub fn b7_a_restored_key_may_be_paused<A: Adapter>() {
    let q = Subject::<A>::new();
    assert!(q.pause_key(1));
    let known = Restored { failures: 2, attempt: 3, ..Restored::default() };
    assert_eq!(q.restore(1, known, None).ok(), Some(Accepted::Ready));
    q.is_idle();
    assert!(q.resume_key(1));
    assert_eq!(q.take(1).attempt(), 3);
}

pub fn b7_a_pause_in_which_users_code_panics_changes_nothing<A: Adapter>() {
    let q =
        Subject::<A>::with(Config { order: Line::Own(Box::new(Clinging::default())), ..Config::default() });
    q.add_many([1, 2]);
    let is_ready = || assert_eq!(q.state(1), Some(Seen { ready: true, ..Seen::default() }));
    for poison in [|probe: &Probe| probe.hash.panics(), |probe: &Probe| probe.eq.panics()] {
        let probe = Probe::new();
        let key = Key::probed(1, &probe);
        poison(&probe);
        panics(|| q.queue.resume_key(&key));
        panics(|| q.queue.pause_key(key));
        is_ready();
    }
    // and the order over the key that leaves
    panics(|| q.queue.pause_key(Key::from(1)));
    is_ready();
    assert_eq!(q.work_off(), [2, 1]);
}

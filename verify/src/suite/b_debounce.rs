//! B4: debounce with a maximum.

use crate::adapter::{
    Accepted, Adapter, Config, Held, InBackoff, Line, Policy, Said, Seen, Subject, Waiters, When, ignore, ms,
    sound,
};
use crate::lockstep::unwind_through;
use crate::probe::Value;
use crate::wake::Count;
use requeue::Debounce;
use std::time::Duration;

const QUIET: Duration = ms(10);

/// Ten milliseconds of quiet, at most twenty-five.
fn debounce() -> Debounce {
    Debounce::new(QUIET).max(ms(25))
}

fn q<A: Adapter>() -> Subject<A> {
    Subject::debouncing(debounce())
}

fn leading<A: Adapter>() -> Subject<A> {
    Subject::debouncing(debounce().leading())
}

fn after(delay: u64) -> When {
    When::After(ms(delay), Policy::Earliest)
}

fn due<A: Adapter>(q: &Subject<A>, key: u64) -> Option<Duration> {
    let due = q.state(key)?.due?;
    Some(due.saturating_since(requeue::Clock::now(&requeue::FakeClock::new())))
}

/// Takes the key and ends its run with done.
fn run<A: Adapter>(q: &Subject<A>, key: u64) {
    sound(q.take(key).done());
}

pub fn b4_a_key_runs_once_no_trigger_has_come_for_the_quiet_time<A: Adapter>() {
    let q = q::<A>();
    assert_eq!(q.add(1), Accepted::Waiting);
    q.clock.advance(ms(9));
    q.is_idle();
    assert_eq!(q.add(1), Accepted::Coalesced, "the end of the window is pushed back");
    q.clock.advance(ms(9));
    q.is_idle();
    q.clock.advance(ms(1));
    run(&q, 1);
    q.clock.advance(ms(100));
    q.has(0, 0, 0, 0);
    assert_eq!(q.add(1), Accepted::Waiting, "a new window");
}

pub fn b4_it_runs_at_the_latest_the_maximum_after_the_windows_first_trigger<A: Adapter>() {
    let q = q::<A>();
    for at in 0..25 {
        let expected = if at == 0 { Accepted::Waiting } else { Accepted::Coalesced };
        assert_eq!(q.add(1), expected, "{at} ms after the first");
        q.is_idle();
        q.clock.advance(ms(1));
    }
    run(&q, 1);
}

pub fn b4_by_default_the_maximum_is_ten_times_the_quiet_time<A: Adapter>() {
    let q = Subject::<A>::debouncing(Debounce::new(ms(2)));
    for _ in 0..20 {
        q.add(1);
        q.is_idle();
        q.clock.advance(ms(1));
    }
    run(&q, 1);
}

pub fn b4_a_maximum_below_the_quiet_time_ends_each_window<A: Adapter>() {
    let q = Subject::<A>::debouncing(Debounce::new(ms(10)).max(ms(3)));
    q.add(1);
    q.clock.advance(ms(2));
    assert_eq!(q.add(1), Accepted::Coalesced);
    q.clock.advance(ms(1));
    run(&q, 1);
}

pub fn b4_nothing_of_quiet_or_of_maximum_is_no_debounce<A: Adapter>() {
    for off in [Debounce::new(ms(0)), Debounce::new(ms(5)).max(ms(0)), Debounce::new(ms(0)).leading()] {
        let q = Subject::<A>::debouncing(off);
        assert_eq!(q.add(1), Accepted::Ready);
        run(&q, 1);
        let debouncing = self::q::<A>();
        assert_eq!(debouncing.add_debounced(1, off), Accepted::Ready, "the trigger has the last word");
    }
}

pub fn b4_a_trigger_says_itself_how_it_is_debounced<A: Adapter>() {
    let q = Subject::<A>::new();
    assert_eq!(q.add_debounced(1, debounce()), Accepted::Waiting);
    assert_eq!(q.add(2), Accepted::Ready, "the queue does not debounce");
    // longer, then shorter: the later end stays
    assert_eq!(q.add_debounced(1, Debounce::new(ms(20))), Accepted::Coalesced);
    assert_eq!(q.add_debounced(1, Debounce::new(ms(1))), Accepted::Coalesced);
    assert_eq!(due(&q, 1), Some(ms(20)));
    let batch = vec![
        Said::from((3.into(), When::Now, None)).debounce(Some(debounce())),
        Said::from((4.into(), When::Now, None)),
    ];
    assert!(q.trigger_many(batch).into_iter().map(Result::unwrap).eq([Accepted::Waiting, Accepted::Ready]));
    assert_eq!(q.work_off(), [2, 4]);
}

pub fn b4_all_triggers_for_now_are_debounced_and_no_others<A: Adapter>() {
    let q = q::<A>();
    q.add(1);
    q.add_value(2, 7);
    assert_eq!(sound(q.queue.add_ref(&3.into())).unwrap(), Accepted::Waiting);
    assert_eq!(q.add_many([4, 5]), [Accepted::Waiting; 2]);
    assert_eq!(q.add_after(6, ms(0)), Accepted::Waiting, "a delay of zero is add");
    assert_eq!(q.add_after(7, ms(1)), Accepted::Waiting);
    assert_eq!(q.add_rate_limited(8), Accepted::Waiting);
    assert!(q.restore(9, crate::adapter::Restored::default(), None).is_ok());
    assert_eq!(q.work_off(), [9]);
    q.clock.advance(ms(1));
    assert_eq!(q.work_off(), [7, 8]);
    q.clock.advance(ms(9));
    assert_eq!(q.work_off(), [1, 2, 3, 4, 5, 6], "in the order of the calls");
}

pub fn b4_triggers_for_a_ready_key_coalesce<A: Adapter>() {
    let q = q::<A>();
    q.add(1);
    q.clock.advance(QUIET);
    assert_eq!(q.len(), 1);
    assert_eq!(q.add(1), Accepted::Coalesced);
    run(&q, 1);
    q.clock.advance(ms(100));
    q.has(0, 0, 0, 0);
}

pub fn b4_triggers_for_a_held_key_open_a_window<A: Adapter>() {
    let q = q::<A>();
    q.add_debounced(1, Debounce::new(ms(0)));
    let item = q.take(1);
    assert_eq!(q.add(1), Accepted::Waiting);
    q.has(0, 1, 0, 1);
    sound(item.done());
    q.is_idle();
    q.clock.advance(QUIET);
    // and one that ends during the run makes the key dirty
    let item = q.take(1);
    q.add(1);
    q.clock.advance(QUIET);
    q.has(0, 1, 1, 0);
    assert_eq!(q.add(1), Accepted::Coalesced, "the key is dirty");
    sound(item.done());
    run(&q, 1);
    q.has(0, 0, 0, 0);
}

pub fn b4_timers_are_not_moved_by_windows_nor_windows_by_timers<A: Adapter>() {
    let q = q::<A>();
    q.add_after(1, ms(30));
    q.add(1);
    assert_eq!(due(&q, 1), Some(ms(10)), "the earlier of the two");
    q.clock.advance(QUIET);
    run(&q, 1);
    assert_eq!(due(&q, 1), Some(ms(30)), "the timer has stayed");
    // and the window, while the timer is moved
    q.add(1);
    for (delay, policy) in
        [(5, Policy::Replace), (50, Policy::Replace), (7, Policy::Earliest), (9, Policy::Latest(ms(90)))]
    {
        q.add_after_with(1, ms(delay), policy);
    }
    assert_eq!(due(&q, 1), Some(ms(19)), "the timer");
    q.add_after_with(1, ms(60), Policy::Replace);
    assert_eq!(due(&q, 1), Some(ms(20)), "the window, which has stayed");
    q.clock.advance(ms(10));
    run(&q, 1);
    assert_eq!(due(&q, 1), Some(ms(70)));
}

pub fn b4_a_timer_beside_a_window_keeps_its_place_among_equals<A: Adapter>() {
    let q = q::<A>();
    q.add_after(1, ms(30));
    q.add(1);
    q.add_after(2, ms(30));
    q.clock.advance(QUIET);
    run(&q, 1);
    q.clock.advance(ms(20));
    assert_eq!(q.work_off(), [1, 2], "as the calls that set them");
}

pub fn b4_a_run_that_comes_earlier_is_the_windows_too<A: Adapter>() {
    let q = q::<A>();
    // a timer
    q.add_after(1, ms(5));
    q.add(1);
    q.clock.advance(ms(5));
    run(&q, 1);
    q.clock.advance(ms(100));
    q.has(0, 0, 0, 0);
    // a trigger that is not debounced
    q.add(1);
    assert_eq!(q.add_debounced(1, Debounce::new(ms(0))), Accepted::Ready);
    q.has(1, 0, 0, 0);
    run(&q, 1);
    // and one that makes the key dirty, and a retry
    q.add_debounced(1, Debounce::new(ms(0)));
    let item = q.take(1);
    q.add(1);
    assert_eq!(q.add_debounced(1, Debounce::new(ms(0))), Accepted::Dirty);
    q.has(0, 1, 1, 0);
    sound(item.done());
    let item = q.take(1);
    q.add(1);
    assert!(sound(item.retry_after(ms(0))).is_ok());
    q.has(1, 0, 0, 0);
    run(&q, 1);
    q.clock.advance(ms(100));
    q.has(0, 0, 0, 0);
}

pub fn b4_with_a_leading_edge_the_first_trigger_runs_at_once<A: Adapter>() {
    let q = leading::<A>();
    assert_eq!(q.add(1), Accepted::Ready);
    run(&q, 1);
    assert_eq!(q.state(1).map(|seen| seen.due.is_some()), Some(true), "the window is open");
    q.clock.advance(QUIET);
    assert_eq!(q.state(1), None, "no trigger came, and no run is owed");
    q.is_idle();
    assert_eq!(q.add(1), Accepted::Ready);
}

pub fn b4_later_triggers_in_a_leading_window_give_one_trailing_run<A: Adapter>() {
    let q = leading::<A>();
    q.add(1);
    run(&q, 1);
    q.clock.advance(ms(5));
    assert_eq!(q.add(1), Accepted::Waiting);
    q.clock.advance(ms(5));
    assert_eq!(q.add(1), Accepted::Coalesced);
    q.clock.advance(ms(9));
    q.is_idle();
    q.clock.advance(ms(1));
    run(&q, 1);
    q.clock.advance(ms(100));
    q.has(0, 0, 0, 0);
    // the maximum counts from the first
    q.add(1);
    for _ in 0..25 {
        ignore(q.try_get().map(Held::done));
        q.clock.advance(ms(1));
        q.add(1);
    }
    assert_eq!(q.len(), 1);
    // and during the run
    run(&q, 1);
    q.clock.advance(ms(100));
    q.add(1);
    let item = q.take(1);
    assert_eq!(q.add(1), Accepted::Waiting, "for a held key it opens a window, or joins that");
    sound(item.done());
    q.is_idle();
    q.clock.advance(QUIET);
    run(&q, 1);
}

pub fn b4_a_leading_trigger_for_a_ready_key_coalesces_and_pushes_nothing_back<A: Adapter>() {
    let q = leading::<A>();
    q.add(1);
    q.clock.advance(ms(9));
    assert_eq!(q.add(1), Accepted::Coalesced);
    run(&q, 1);
    q.clock.advance(ms(1));
    assert_eq!(q.add(1), Accepted::Ready, "the window has ended");
}

pub fn b4_values_merge_at_each_trigger_of_a_window<A: Adapter>() {
    let q = q::<A>();
    for item in 1..=3 {
        q.add_value(1, item);
    }
    q.clock.advance(QUIET);
    assert_eq!(q.take(1).take_value().unwrap().items, [1, 2, 3]);
}

pub fn b4_a_window_applies_its_highest_priority_at_its_end<A: Adapter>() {
    let order = Line::Priority(None);
    let q = Subject::<A>::with(Config { order, debounce: Some(debounce()), ..Config::default() });
    q.add_at(1, 3);
    q.add_at(1, 7);
    q.add_at(1, -7);
    q.ask_at(1, after(5), 0);
    q.ask_at(2, after(5), 5);
    q.clock.advance(ms(5));
    // the timer's run is the window's too, with its priority
    assert_eq!(q.take_at(1, 7).key().id, 1);
    ignore(q.take_at(2, 5));
    q.add_at(3, 4);
    q.clock.advance(QUIET);
    ignore(q.take_at(3, 4));
}

pub fn b4_in_a_back_off_each_trigger_does_what_it_says<A: Adapter>() {
    let expected =
        [(InBackoff::Run, Some(10), 1), (InBackoff::Respect, None, 1), (InBackoff::Reset, Some(10), 0)];
    for (says, runs_at, failures) in expected {
        let q =
            Subject::<A>::with(Config { in_backoff: says, debounce: Some(debounce()), ..Config::default() });
        q.add_debounced(1, Debounce::new(ms(0)));
        assert!(sound(q.take(1).retry_after(ms(50))).is_ok());
        let added = q.add(1);
        assert_eq!(added == Accepted::Coalesced, says == InBackoff::Respect, "{says:?}");
        assert_eq!(q.num_requeues(1), failures);
        q.clock.advance(QUIET);
        assert_eq!(q.len(), usize::from(runs_at.is_some()), "{says:?}");
        if let Ok(item) = q.try_get() {
            assert_eq!(item.attempt(), 1);
            sound(item.done());
        }
        q.clock.advance(ms(40));
        assert_eq!(q.len(), usize::from(says != InBackoff::Reset), "the back-off's run, {says:?}");
    }
}

pub fn b4_during_the_run_that_fails_each_trigger_does_what_it_says<A: Adapter>() {
    for says in [InBackoff::Run, InBackoff::Respect, InBackoff::Reset] {
        let q =
            Subject::<A>::with(Config { in_backoff: says, debounce: Some(debounce()), ..Config::default() });
        q.add_debounced(1, Debounce::new(ms(0)));
        let item = q.take(1);
        assert_eq!(q.add(1), Accepted::Waiting);
        assert!(sound(item.retry_after(ms(50))).is_ok());
        match says {
            InBackoff::Run => assert_eq!(due(&q, 1), Some(ms(10)), "its window has stayed"),
            InBackoff::Respect => assert_eq!(due(&q, 1), Some(ms(50)), "it has joined the back-off"),
            InBackoff::Reset => {
                q.has(1, 0, 0, 0);
                assert_eq!(q.num_requeues(1), 0, "a fresh start");
            }
        }
        // a run that does not fail leaves windows alone
        let q =
            Subject::<A>::with(Config { in_backoff: says, debounce: Some(debounce()), ..Config::default() });
        q.add_debounced(1, Debounce::new(ms(0)));
        let item = q.take(1);
        q.add(1);
        sound(item.done());
        assert_eq!(due(&q, 1), Some(ms(10)), "{says:?}");
    }
}

pub fn b4_an_open_window_is_waiting_and_a_cancel_takes_it<A: Adapter>() {
    let q = q::<A>();
    q.add_value(1, 7);
    q.has(0, 0, 0, 1);
    assert_eq!(q.snapshot(10, Some(requeue::Only::Waiting)), [1]);
    let took = q.cancel(1).expect("it waits");
    assert_eq!((took.ready, took.value.unwrap().items.clone()), (false, vec![7]));
    assert!(took.due.is_some());
    q.clock.advance(ms(100));
    q.has(0, 0, 0, 0);
    // with its timer
    q.add_after(1, ms(1));
    q.add(1);
    ignore(q.cancel(1));
    q.clock.advance(ms(100));
    q.has(0, 0, 0, 0);
    let leading = leading::<A>();
    leading.add(1);
    ignore(leading.cancel(1));
    assert_eq!(leading.add(1), Accepted::Ready, "a new window");
}

pub fn b4_the_end_closes_windows_and_their_keys_become_ready<A: Adapter>() {
    let ends: [fn(&Subject<A>) -> usize; 3] = [
        |q| q.shut_down().dropped,
        |q| {
            drop(q.drain(Waiters::Drop));
            q.shut_down().dropped
        },
        |q| {
            drop(q.drain(Waiters::RunNow));
            q.shut_down().dropped
        },
    ];
    for (way, end) in ends.into_iter().enumerate() {
        let q = q::<A>();
        q.add_debounced(3, Debounce::new(ms(0)));
        let item = q.take(3);
        q.add(1);
        q.add_debounced(2, Debounce::new(ms(5)));
        q.add(3);
        q.add_after(1, ms(1));
        q.add_after(4, ms(1));
        let dropped = end(&q);
        q.has(if way == 2 { 3 } else { 2 }, 1, 1, 0);
        if way == 0 {
            assert_eq!(dropped, 2, "timers, and no windows");
        }
        sound(item.done());
        let keys = q.work_off();
        assert_eq!(keys, if way == 2 { vec![1, 4, 2, 3] } else { vec![2, 1, 3] });
        q.is_over();
    }
    let q = q::<A>();
    q.add(1);
    q.add_debounced(3, Debounce::new(ms(0)));
    let item = q.take(3);
    q.add(3);
    let down = q.shut_down();
    assert_eq!((down.ready, down.held, down.dropped), (1, 1, 0), "it tells of keys that become ready");
    drop(item);
    assert_eq!(q.work_off(), [1, 3]);
}

pub fn b4_a_drain_that_waits_waits_until_windows_end<A: Adapter>() {
    let q = q::<A>();
    q.add(1);
    let mut drain = q.drain(Waiters::Wait);
    let count = Count::new();
    assert!(count.poll(&mut drain).is_pending());
    q.is_idle();
    q.clock.advance(QUIET);
    run(&q, 1);
    let std::task::Poll::Ready(drained) = count.poll(&mut drain) else { panic!("all is worked off") };
    assert!(sound(drained).complete);
}

pub fn b4_the_priority_of_a_window_goes_to_the_fresh_start_and_to_no_timer_that_stays<A: Adapter>() {
    for reset in [true, false] {
        let q = Subject::<A>::with_priorities(None);
        q.add_at(1, 1);
        q.ask_at(1, after(500), -3);
        let one = q.take(1);
        // a window of the run that fails: it joins the retry, which is a fresh start after a reset
        let how = if reset { InBackoff::Reset } else { InBackoff::Respect };
        let said = Said::from((1.into(), When::NowIn(how), None)).priority(9);
        assert!(q.say(said.debounce(Some(debounce()))).is_ok());
        assert!(sound(one.retry_after(ms(50))).is_ok());
        if !reset {
            q.clock.advance(ms(50));
        }
        let again = q.take(1);
        assert_eq!(again.priority(), 9);
        sound(again.done());
        if reset {
            q.has(0, 0, 0, 1);
            q.clock.advance(ms(500));
            assert_eq!(q.take(1).priority(), -3, "the timer is another trigger's");
        }
    }
}

pub fn b4_a_drain_waits_for_no_window_that_owes_no_run<A: Adapter>() {
    for waiters in [Waiters::Wait, Waiters::Retries, Waiters::Drop, Waiters::RunNow] {
        for runs in [true, false] {
            let q = leading::<A>();
            q.add(1);
            if runs {
                run(&q, 1);
            }
            let (count, mut drain) = (Count::new(), q.queue.drain(waiters, Some(ms(1_000))));
            let mut over = count.poll(&mut drain);
            assert_eq!(over.is_ready(), runs);
            if !runs {
                // the run ends, and its window is still open
                run(&q, 1);
                assert!(count.wakes() > 0, "nobody told the drain");
                over = count.poll(&mut drain);
            }
            let std::task::Poll::Ready(drained) = over else { panic!("nothing is owed") };
            let drained = sound(drained);
            assert!(drained.complete && drained.waiting == 0 && drained.dropped == 0, "{drained:?}");
            q.is_over();
        }
    }
    // beside one that owes a run, which is waited for
    let q = leading::<A>();
    q.add(1);
    q.add(2);
    run(&q, 1);
    run(&q, 2);
    q.add(2);
    let (count, mut drain) = (Count::new(), q.drain(Waiters::Wait));
    assert!(count.poll(&mut drain).is_pending());
    q.clock.advance(QUIET);
    run(&q, 2);
    assert!(count.poll(&mut drain).is_ready());
}

pub fn b4_who_waits_is_woken_when_a_window_ends<A: Adapter>() {
    let q = q::<A>();
    let (mut getting, count) = (q.getting(), Count::new());
    assert!(count.poll(&mut getting).is_pending());
    q.add(1);
    q.clock.advance(ms(9));
    q.add(1);
    q.clock.advance(ms(1));
    assert!(count.poll(&mut getting).is_pending());
    let before = count.wakes();
    q.clock.advance(ms(9));
    assert!(count.wakes() > before, "the window has ended");
    assert!(count.poll(&mut getting).is_ready());
}

pub fn b4_a_window_that_is_due_ends_before_a_trigger_for_its_key<A: Adapter>() {
    let q = q::<A>();
    q.add(1);
    q.clock.advance(QUIET);
    assert_eq!(q.add(1), Accepted::Coalesced, "the key is ready by then");
    q.has(1, 0, 0, 0);
}

pub fn b4_a_run_that_a_panic_puts_back_is_the_windows_too<A: Adapter>() {
    let q = q::<A>();
    q.add_debounced(1, Debounce::new(ms(0)));
    let items = q.take_many(1);
    q.add(1);
    unwind_through(items);
    q.has(1, 0, 0, 0);
    assert_eq!(q.work_off(), [1]);
}

pub fn b4_timers_absorbed_absorbs_no_window<A: Adapter>() {
    let q = Subject::<A>::with(Config {
        absorbed: true,
        debounce: Some(debounce().leading()),
        ..Config::default()
    });
    q.add(1);
    q.add_after(1, ms(50));
    run(&q, 1);
    assert_eq!(due(&q, 1), Some(QUIET), "the timer has gone, the window is open");
    assert_eq!(q.add(1), Accepted::Waiting);
}

pub fn b4_a_key_with_an_open_window_has_its_place_in_a_bound<A: Adapter>() {
    let q = Subject::<A>::with(Config {
        bound: Some(1),
        debounce: Some(debounce().leading()),
        ..Config::default()
    });
    q.add(1);
    assert!(q.is_full_for(2));
    run(&q, 1);
    assert_eq!(q.room(), Some(1), "its window is open, and owes no run");
    q.add(1);
    assert!(q.is_full_for(2), "now it does");
    q.clock.advance(QUIET);
    run(&q, 1);
    assert_eq!(q.add(2), Accepted::Ready);
    run(&q, 2);
    q.add(3);
    assert!(q.is_full_for(2), "a trigger in such a window needs room");
}

pub fn b4_a_refused_trigger_opens_no_window<A: Adapter>() {
    let q = q::<A>();
    q.shut_down();
    assert!(q.refuses(1));
    assert_eq!(q.state(1), None::<Seen>);
    let said = Said::from((1.into(), When::Now, Some(Value::of(7)))).debounce(Some(debounce()));
    let refused = q.say(said).unwrap_err();
    assert_eq!((refused.key.id, refused.value.unwrap().items.clone()), (1, vec![7]));
}

pub fn x24_a_debounce_fires_however_many_triggers_come<A: Adapter>() {
    for debounce in [Debounce::new(ms(3)), Debounce::new(ms(3)).leading()] {
        let q = Subject::<A>::debouncing(debounce);
        let mut runs = 0;
        for _ in 0..3_000 {
            q.add(1);
            q.clock.advance(ms(1));
            if let Ok(item) = q.try_get() {
                runs += 1;
                sound(item.done());
            }
        }
        assert!(runs >= 3_000 / 31, "{runs} runs in 3 s, one in 30 ms is promised");
    }
}

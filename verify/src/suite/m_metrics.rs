//! M: metrics of the queue.

use crate::adapter::{Accepted, Adapter, Config, Held, Limiter, Line, Subject, Waiters, When, ms, sound};
use crate::limits::{Metered, Scripted};
use crate::suite::b_value::Smallest;
use crate::wake::{Count, poll_once};
use requeue::RunEnd;
use std::sync::Arc;
use std::time::Duration;

fn metered<A: Adapter>() -> (Subject<A>, Arc<Metered>) {
    metered_with(Config::default())
}

fn metered_with<A: Adapter>(config: Config) -> (Subject<A>, Arc<Metered>) {
    let metrics = Metered::new();
    (Subject::with(Config { metrics: Some(Arc::clone(&metrics)), ..config }), metrics)
}

/// The gauges: depth, unfinished work, longest running.
fn shows(metrics: &Metered, depth: usize, unfinished: Duration, longest: Duration) {
    assert_eq!(metrics.gauges(), Some((depth, unfinished, longest)));
}

pub fn m_depth_is_the_number_of_ready_keys_and_not_of_dirty_ones<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    let depth = || metrics.gauges().unwrap().0;
    assert_eq!(depth(), 0);
    q.add(1);
    q.add(1);
    q.add(2);
    q.add_after(3, ms(5));
    assert_eq!(depth(), 2);
    let one = q.take(1);
    q.add(1);
    assert_eq!(depth(), 1, "a dirty held key is not ready");
    drop(one);
    assert_eq!(depth(), 2);
    q.clock.advance(ms(5));
    assert_eq!(depth(), 3, "what is due is ready");
    q.work_off();
    assert_eq!(depth(), 0);
}

pub fn m_adds_counts_keys_that_became_ready_or_dirty<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    let adds = || metrics.told().adds;
    q.add(1);
    q.add(1);
    assert_eq!(adds(), 1, "a duplicate became nothing");
    let one = q.take(1);
    q.add(1);
    q.add(1);
    assert_eq!(adds(), 2, "dirty once");
    sound(one.done());
    assert_eq!(adds(), 2, "ready again, but counted when it became dirty");
    q.work_off();
    q.add_after(2, ms(5));
    assert_eq!(adds(), 2, "waiting is not ready");
    q.clock.advance(ms(5));
    q.work_off();
    assert_eq!(adds(), 3);
    q.add_after(3, ms(0));
    q.add_after(3, ms(5));
    q.clock.advance(ms(5));
    assert_eq!(q.work_off(), [3]);
    assert_eq!(adds(), 4, "a timer that fires for a ready key changes nothing");
}

pub fn m_adds_counts_retries_when_they_become_ready<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    q.add(1);
    assert!(sound(q.take(1).retry_after(ms(5))).is_ok());
    assert_eq!(metrics.told().adds, 1);
    q.clock.advance(ms(5));
    assert!(sound(q.take(1).retry_after(ms(0))).is_ok());
    q.work_off();
    assert_eq!(metrics.told().adds, 3);
}

pub fn m_retries_counts_every_accepted_add_after_and_add_rate_limited<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    let retries = || metrics.told().retries;
    q.add(1);
    q.add_value(1, 1);
    assert_eq!(retries(), 0);
    q.add_after(1, ms(5));
    q.add_after(1, ms(5));
    assert_eq!(retries(), 2);
    q.add_after(1, ms(0));
    assert_eq!(retries(), 3, "zero delays too");
    q.add_rate_limited(1);
    q.trigger(2, When::RateLimited, None).unwrap();
    assert_eq!(retries(), 5);
    q.shut_down();
    assert!(q.trigger(1, When::RateLimited, None).is_err());
    assert_eq!(retries(), 5, "refused");
}

pub fn m_retries_counts_what_holders_put_back<A: Adapter>() {
    let (q, metrics) = metered_with::<A>(Config { unfinished_retries: true, ..Config::default() });
    for key in 1..=5 {
        q.add(key);
    }
    assert!(sound(q.take(1).retry()).is_ok());
    assert!(sound(q.take(2).retry_after(ms(1))).is_ok());
    assert!(sound(q.take(3).again(ms(1))).is_ok());
    assert_eq!(metrics.told().retries, 3);
    drop(q.take(4));
    assert_eq!(metrics.told().retries, 4, "a guard that was dropped without a word");
    sound(q.take(5).done());
    assert_eq!(metrics.told().retries, 4);
}

pub fn m_queue_duration_runs_from_the_first_trigger_of_the_run<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    q.add(1);
    q.clock.advance(ms(3));
    q.add(1);
    q.clock.advance(ms(4));
    sound(q.take(1).done());
    assert_eq!(metrics.told().waited, [ms(7)]);
    q.add(1);
    sound(q.take(1).done());
    assert_eq!(metrics.told().waited, [ms(7), ms(0)]);
}

pub fn m_queue_duration_of_a_dirty_key_includes_the_run_that_it_waited_for<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    q.add(1);
    let one = q.take(1);
    q.clock.advance(ms(2));
    q.add(1);
    q.clock.advance(ms(3));
    q.add(1);
    sound(one.done());
    q.clock.advance(ms(4));
    sound(q.take(1).done());
    assert_eq!(metrics.told().waited, [ms(0), ms(7)]);
}

pub fn m_queue_duration_of_a_timer_begins_at_the_due_instant<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    q.add_after(1, ms(10));
    // Nobody looks until long after it was due.
    q.clock.advance(ms(25));
    let one = q.take(1);
    assert_eq!(metrics.told().waited, [ms(15)]);
    q.add_after(1, ms(10));
    q.clock.advance(ms(12));
    sound(one.done());
    q.clock.advance(ms(1));
    sound(q.take(1).done());
    assert_eq!(
        metrics.told().waited,
        [ms(15), ms(3)],
        "the timer made the held key dirty at its due instant"
    );
}

pub fn m_work_duration_runs_from_the_hand_out_to_done<A: Adapter>() {
    type End<A> = fn(&Subject<A>, <A as Adapter>::Held<'_>);
    let ends: [End<A>; 7] = [
        |_, item| sound(item.done()),
        |_, item| sound(item.succeed()),
        |_, item| assert!(sound(item.retry_after(ms(0))).is_ok()),
        |_, item| assert!(sound(item.again(ms(0))).is_ok()),
        |_, item| drop(item),
        |_, item| drop(item.nexting()),
        |q, item| assert!(q.done(sound(item.detach()).0.id)),
    ];
    for (index, end) in ends.into_iter().enumerate() {
        let (q, metrics) = metered::<A>();
        q.add(1);
        let item = q.take(1);
        q.clock.advance(ms(9));
        end(&q, item);
        assert_eq!(metrics.told().worked, [ms(9)], "way {index} to end a run");
    }
}

pub fn m_a_cycle_of_done_and_next_tells_all_and_reads_the_clock_twice<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    q.add(0);
    let mut item = Some(q.take(0));
    for key in 1..4 {
        q.clock.advance(ms(2));
        let reads = q.clock.reads_of(|| {
            q.add(key);
            item = sound(item.take().expect("each is followed by the next").next());
        });
        assert_eq!(reads, 2, "one for the trigger, one for the end and the hand-out");
        let told = metrics.told();
        assert_eq!((told.adds, told.waited.len()), (key + 1, key as usize + 1));
        assert_eq!(told.worked, vec![ms(2); key as usize]);
        assert!(told.waited.iter().all(Duration::is_zero));
    }
}

pub fn m_unfinished_and_longest_running_are_computed_when_they_are_read<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    for key in 1..=3 {
        q.add(key);
    }
    shows(&metrics, 3, ms(0), ms(0));
    let one = q.take(1);
    q.clock.advance(ms(10));
    let two = q.take(2);
    q.clock.advance(ms(5));
    shows(&metrics, 1, ms(20), ms(15));
    q.clock.advance(ms(1));
    shows(&metrics, 1, ms(22), ms(16));
    sound(one.done());
    shows(&metrics, 1, ms(6), ms(6));
    sound(two.done());
    shows(&metrics, 1, ms(0), ms(0));
}

pub fn m_longest_running_is_right_whichever_run_ends_first<A: Adapter>() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let (q, metrics) = metered::<A>();
        let mut items: Vec<_> = (0..3)
            .map(|key| {
                q.add(key);
                let item = q.take(key);
                q.clock.advance(ms(10));
                Some(item)
            })
            .collect();
        for end in order {
            items[end] = None;
            let running: Vec<u64> =
                (0..3).filter(|i| items[*i as usize].is_some()).map(|i| 30 - 10 * i).collect();
            let longest = running.iter().max().copied().unwrap_or(0);
            shows(&metrics, 0, ms(running.iter().sum()), ms(longest));
        }
    }
}

pub fn m_gauges_equal_the_state_at_and_after_shutdown<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    q.add(1);
    q.add(2);
    let one = q.take(1);
    q.clock.advance(ms(5));
    q.shut_down();
    shows(&metrics, 1, ms(5), ms(5));
    q.clock.advance(ms(5));
    shows(&metrics, 1, ms(10), ms(10));
    sound(one.done());
    q.work_off();
    shows(&metrics, 0, ms(0), ms(0));
    q.is_over();
    shows(&metrics, 0, ms(0), ms(0));
}

pub fn m_gauges_are_gone_with_the_queue<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    assert!(metrics.gauges().is_some());
    drop(q);
    assert!(metrics.gauges().is_none(), "a sink keeps no queue alive");
}

pub fn m_nothing_ticks<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    q.add(1);
    let one = q.take(1);
    let count = Count::new();
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    assert_eq!(q.clock.alarms(), 0, "an alarm although no timer is set");
    let before = metrics.told();
    let reads = q.clock.reads();
    for _ in 0..100 {
        q.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(count.wakes(), 0, "an idle queue costs no wake-ups");
    assert_eq!((metrics.told(), q.clock.reads()), (before, reads));
    drop(one);
}

pub fn m_metrics_are_the_queues_own<A: Adapter>() {
    let (one, of_one) = metered::<A>();
    let (two, of_two) = metered::<A>();
    one.add(1);
    assert_eq!((of_one.told().adds, of_two.told().adds), (1, 0));
    two.add(1);
    two.add(2);
    assert_eq!((of_one.told().adds, of_two.told().adds), (1, 2));
    assert_eq!((of_one.gauges().unwrap().0, of_two.gauges().unwrap().0), (1, 2));
}

pub fn m_a_queue_without_metrics_and_timers_reads_no_clock<A: Adapter>() {
    let q = Subject::<A>::new();
    let reads = q.clock.reads_of(|| {
        for key in 0..10 {
            q.add(key);
        }
        q.work_off();
    });
    assert_eq!(reads, 0, "nothing here needs the time");
}

pub fn m_a_drain_and_its_drops_are_told_once<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    q.add(1);
    q.add_after(2, ms(5));
    q.add_after(3, ms(5));
    let mut drain = q.drain(Waiters::RunNow);
    assert_eq!(metrics.told().adds, 3, "keys that are run now became ready");
    q.clock.advance(ms(1));
    q.work_off();
    assert!(poll_once(&mut drain).is_ready());
    let told = metrics.told();
    assert_eq!((told.waited.len(), told.worked.len()), (3, 3));
}

pub fn m_a_sink_may_call_the_queue<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    let inner = q.clone();
    metrics.on_push.set(move || {
        let _ = inner.len();
        let _ = inner.state(1);
        let _ = inner.done(77);
    });
    q.add(1);
    q.add_after(2, ms(1));
    let one = q.take(1);
    q.add(1);
    sound(one.done());
    q.clock.advance(ms(1));
    let mut getting = q.getting();
    assert!(poll_once(&mut getting).is_ready());
    drop(q.drain(Waiters::RunNow));
    q.work_off();
    assert!(metrics.on_push.runs() > 5, "the sink was not told, so this test shows nothing");
    metrics.on_push.clear();
}

pub fn m_a_sink_that_panics_loses_no_key<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    metrics.on_push.panics();
    let quietly = |call: &dyn Fn()| {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
    };
    quietly(&|| drop(q.trigger(1, When::Now, None)));
    quietly(&|| drop(q.trigger(2, When::Now, None)));
    quietly(&|| drop(q.try_get()));
    metrics.on_push.clear();
    q.work_off();
    q.has(0, 0, 0, 0);
    q.add(3);
    assert_eq!(q.work_off(), [3]);
}

pub fn m_coalesced_counts_accepted_triggers_that_changed_nothing<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    let coalesced = || metrics.told().coalesced;
    q.add(1);
    assert_eq!(coalesced(), 0);
    q.add(1);
    q.add_value(1, 1);
    assert_eq!(coalesced(), 2, "of a ready key, with a value too");
    let one = q.take(1);
    q.add(1);
    assert_eq!(coalesced(), 2, "it made the held key dirty");
    q.add(1);
    assert_eq!(coalesced(), 3);
    q.add_after(2, ms(5));
    q.add_after(2, ms(3));
    assert_eq!(coalesced(), 3, "both moved the timer");
    q.add_after(2, ms(9));
    assert_eq!(coalesced(), 4, "the earlier instant stayed");
    q.clock.advance(ms(3));
    assert_eq!(q.len(), 1);
    q.add_after(2, ms(0));
    assert_eq!(coalesced(), 5, "ready already");
    q.add_many([2, 3, 3]);
    assert_eq!(coalesced(), 7);
    q.add_after(3, ms(1));
    q.clock.advance(ms(1));
    assert_eq!(q.len(), 2);
    assert_eq!(coalesced(), 7, "a timer that fires for a ready key is no trigger");
    sound(one.done());
    q.shut_down();
    assert!(q.trigger(2, When::Now, None).is_err());
    assert_eq!(coalesced(), 7, "refused");
}

pub fn m_coalesced_counts_each_of_many_redundant_adds<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    q.add(1);
    for _ in 0..1000 {
        assert_eq!(q.add(1), Accepted::Coalesced);
        assert_eq!(sound(q.queue.add_ref(&1.into())), Ok(Accepted::Coalesced));
    }
    assert_eq!(metrics.told().coalesced, 2000, "also those that take no lock");
    assert_eq!(metrics.told().adds, 1);
}

pub fn m_each_end_of_a_run_tells_which_it_was<A: Adapter>() {
    type End<A> = fn(&Subject<A>, <A as Adapter>::Held<'_>);
    let ends: [(RunEnd, End<A>); 9] = [
        (RunEnd::Done, |_, item| sound(item.done())),
        (RunEnd::Done, |_, item| sound(item.succeed())),
        (RunEnd::Done, |_, item| drop(item)),
        (RunEnd::Done, |_, item| drop(item.nexting())),
        (RunEnd::Done, |q, item| assert!(q.done(sound(item.detach()).0.id))),
        (RunEnd::Again, |_, item| assert!(sound(item.again(ms(1))).is_ok())),
        (RunEnd::Retry, |_, item| assert!(sound(item.retry()).is_ok())),
        (RunEnd::Retry, |_, item| assert!(sound(item.retry_after(ms(1))).is_ok())),
        (RunEnd::GiveUp, |_, item| sound(item.give_up())),
    ];
    // with failures on record, and triggered meanwhile, a run ends the long way
    for long in [false, true] {
        for (index, (expected, end)) in ends.into_iter().enumerate() {
            let (q, metrics) = metered::<A>();
            if long {
                q.add_rate_limited(1);
            }
            q.add(1);
            let item = q.take(1);
            if long {
                q.add(1);
            }
            end(&q, item);
            assert_eq!(metrics.told().ends, [expected], "way {index} to end a run, the long one: {long}");
        }
    }
}

pub fn m_a_run_whose_retry_is_refused_is_done<A: Adapter>() {
    let (q, metrics) = metered_with::<A>(Config { unfinished_retries: true, ..Config::default() });
    q.add(1);
    q.add(2);
    let (one, two) = (q.take(1), q.take(2));
    drop(one);
    assert_eq!(metrics.told().ends, [RunEnd::Retry], "a guard that was dropped without a word");
    q.shut_down();
    drop(two);
    assert_eq!(metrics.told().ends, [RunEnd::Retry, RunEnd::Done]);
}

pub fn m_lateness_runs_from_the_due_instant_to_who_looks<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    let late = || metrics.told().late;
    q.add_after(1, ms(10));
    q.add_after(2, ms(12));
    q.clock.advance(ms(9));
    assert_eq!(q.len(), 0);
    assert_eq!(late(), [], "none has fired");
    q.clock.advance(ms(1));
    assert_eq!(q.len(), 1);
    assert_eq!(late(), [ms(0)]);
    // nobody looks until long after it was due
    q.clock.advance(ms(17));
    q.work_off();
    assert_eq!(late(), [ms(0), ms(15)]);
    q.add(3);
    q.add_after(3, ms(5));
    q.clock.advance(ms(6));
    q.work_off();
    assert_eq!(late(), [ms(0), ms(15), ms(1)], "also of a key that is ready");
}

pub fn m_lateness_is_not_told_of_timers_that_a_drain_fires_or_drops<A: Adapter>() {
    for waiters in [Waiters::RunNow, Waiters::Drop] {
        let (q, metrics) = metered::<A>();
        q.add_after(1, ms(5));
        q.clock.advance(ms(1));
        let mut drain = q.drain(waiters);
        q.work_off();
        assert!(poll_once(&mut drain).is_ready());
        assert_eq!(metrics.told().late, [], "{waiters:?}");
    }
}

pub fn m_gauges_count_waiting_held_and_dirty_keys<A: Adapter>() {
    let (q, metrics) = metered::<A>();
    let shows = |waiting, held, dirty| {
        let gauges = metrics.all_gauges().expect("the queue is there");
        assert_eq!((gauges.waiting, gauges.held, gauges.dirty), (waiting, held, dirty));
    };
    shows(0, 0, 0);
    q.add_after(1, ms(5));
    q.add(1);
    shows(1, 0, 0);
    let one = q.take(1);
    shows(1, 1, 0);
    q.add(1);
    shows(1, 1, 1);
    q.clock.advance(ms(5));
    shows(0, 1, 1);
    sound(one.done());
    shows(0, 0, 0);
    q.add_after(2, ms(5));
    q.shut_down();
    shows(0, 0, 0);
}

pub fn m_the_oldest_ready_key_is_the_one_that_became_ready_first<A: Adapter>() {
    for order in [Line::Fifo, Line::Lifo] {
        let (q, metrics) = metered_with::<A>(Config { order, ..Config::default() });
        let oldest = || metrics.all_gauges().expect("the queue is there").oldest_ready;
        assert_eq!(oldest(), ms(0));
        q.add(1);
        q.clock.advance(ms(3));
        q.add(2);
        q.add(1);
        q.clock.advance(ms(4));
        assert_eq!(oldest(), ms(7), "a second trigger changes nothing");
        let first = q.get().key().id;
        assert_eq!(oldest(), if first == 1 { ms(4) } else { ms(7) }, "after key {first}");
        q.work_off();
        assert_eq!(oldest(), ms(0), "none is ready");
        // a timer's key from its instant, a dirty one's from the end of its run
        q.add_after(3, ms(2));
        q.clock.advance(ms(5));
        assert_eq!(oldest(), ms(3));
        let three = q.take(3);
        q.add(3);
        q.clock.advance(ms(5));
        assert_eq!(oldest(), ms(0));
        sound(three.done());
        q.clock.advance(ms(1));
        assert_eq!(oldest(), ms(1));
        q.work_off();
        assert_eq!(oldest(), ms(0));
    }
}

pub fn m_the_oldest_ready_key_is_right_in_an_order_of_ones_own<A: Adapter>() {
    let order = Line::Own(Box::new(Smallest::default()));
    let (q, metrics) = metered_with::<A>(Config { order, ..Config::default() });
    for key in [5, 1, 4, 2, 3] {
        q.add(key);
        q.clock.advance(ms(10));
    }
    let mut ages = Vec::new();
    while !q.is_empty() {
        ages.push(metrics.all_gauges().expect("the queue is there").oldest_ready);
        sound(q.get().done());
    }
    // 1, 2, 3, 4 and 5 go in this order; 5 came first
    assert_eq!(ages, [ms(50); 5]);
    assert_eq!(metrics.all_gauges().expect("the queue is there").oldest_ready, ms(0));
}

pub fn m_a_metered_queue_forgets_at_each_end_that_forgets<A: Adapter>() {
    type End<A> = fn(<A as Adapter>::Held<'_>);
    let ends: [(u32, End<A>); 4] = [
        (1, |item| sound(item.done())),
        (0, |item| sound(item.succeed())),
        (0, |item| sound(item.give_up())),
        (0, |item| assert!(sound(item.again(ms(1))).is_ok())),
    ];
    let limiters: [Option<Limiter>; 2] = [None, Some(Limiter(Scripted::new(ms(3))))];
    for own in limiters {
        for (left, end) in ends {
            let limiter = own.clone();
            let config = Config { metrics: Some(Metered::new()), limiter, ..Config::default() };
            let q = Subject::<A>::with(config);
            q.add(1);
            assert!(sound(q.take(1).retry()).is_ok());
            assert_eq!(q.num_requeues(1), 1);
            q.add(1);
            end(q.take(1));
            assert_eq!(q.num_requeues(1), left);
            q.forget(1);
        }
    }
}

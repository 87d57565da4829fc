//! M: metrics of the queue's parts: priorities, groups, keys dropped for others.

use crate::adapter::{Adapter, Config, Fair, Grouping, Held, Line, Subject, sound};
use crate::limits::Metered;
use std::sync::Arc;

fn metered<A: Adapter>(config: Config) -> (Subject<A>, Arc<Metered>) {
    let metrics = Metered::new();
    (Subject::with(Config { metrics: Some(metrics.clone()), ..config }), metrics)
}

/// Queues with priorities, without groups and with them.
fn with_priorities<A: Adapter>() -> [(Subject<A>, Arc<Metered>); 3] {
    let fair = Fair { priorities: true, ..Fair::of(Grouping::of(10)) };
    let within = Fair { within: true, ..fair };
    let orders = [Line::Priority(None), Line::Fair(fair), Line::Fair(within)];
    orders.map(|order| metered(Config { order, ..Config::default() }))
}

pub fn m_depth_by_priority_counts_the_ready_keys_of_each_priority<A: Adapter>() {
    for (q, metrics) in with_priorities::<A>() {
        let shows = |expected: &[(i16, usize)]| {
            assert_eq!(metrics.depths().as_deref(), Some(expected));
            assert_eq!(expected.iter().map(|(_, keys)| keys).sum::<usize>(), q.len());
        };
        shows(&[]);
        for (key, priority) in [(1, -100), (2, 7), (13, -100), (4, i16::MAX), (15, i16::MIN)] {
            q.add_at(key, priority);
        }
        shows(&[(i16::MIN, 1), (-100, 2), (7, 1), (i16::MAX, 1)]);
        q.add_at(13, 7);
        shows(&[(i16::MIN, 1), (-100, 1), (7, 2), (i16::MAX, 1)]);
        let four = q.take_at(4, i16::MAX);
        q.add_at(4, 9);
        shows(&[(i16::MIN, 1), (-100, 1), (7, 2)]);
        sound(four.done());
        q.cancel(15);
        shows(&[(-100, 1), (7, 2), (9, 1)]);
        q.work_off();
        shows(&[]);
    }
}

pub fn m_depth_by_priority_counts_paused_keys_that_are_ready<A: Adapter>() {
    for (q, metrics) in with_priorities::<A>() {
        let shows = |expected: &[(i16, usize)]| assert_eq!(metrics.depths().as_deref(), Some(expected));
        q.add_at(1, 3);
        q.add_at(2, 3);
        q.pause_key(1);
        shows(&[(3, 2)]);
        q.add_at(1, 5);
        shows(&[(3, 1), (5, 1)]);
        q.cancel(1);
        shows(&[(3, 1)]);
        q.pause_key(9);
        shows(&[(3, 1)]);
        q.add_at(9, -1);
        shows(&[(-1, 1), (3, 1)]);
        q.resume_key(9);
        q.resume_key(1);
        shows(&[(-1, 1), (3, 1)]);
        q.add_at(1, 3);
        q.pause_key(1);
        q.shut_down();
        shows(&[(-1, 1), (3, 2)]);
        assert_eq!(q.work_off().len(), 3);
        shows(&[]);
    }
}

pub fn m_depth_by_priority_is_told_of_more_priorities_than_a_lock_hold_looks_at<A: Adapter>() {
    for (q, metrics) in with_priorities::<A>() {
        let priorities = -600..600_i16;
        for (key, priority) in (0..).zip(priorities.clone()) {
            q.add_at(key, priority);
        }
        q.pause_key(0);
        q.pause_key(700);
        let expected: Vec<_> = priorities.map(|priority| (priority, 1)).collect();
        assert_eq!(metrics.depths(), Some(expected));
    }
}

pub fn m_a_queue_without_priorities_and_groups_tells_of_none<A: Adapter>() {
    let (q, metrics) = metered::<A>(Config::default());
    q.add(1);
    assert_eq!((metrics.depths(), metrics.groups()), (None, vec![]));
    let (q, metrics) =
        metered::<A>(Config { order: Line::Fair(Fair::of(Grouping::of(10))), ..Config::default() });
    q.add(1);
    assert_eq!(metrics.depths(), None);
}

pub fn m_groups_that_have_a_name_tell_how_many_of_their_keys_are_ready_and_held<A: Adapter>() {
    // those of an odd number have one
    let order = Line::Fair(Fair::of(Grouping { caps: [1; 4], ..Grouping::of(10) }));
    let (q, metrics) = metered::<A>(Config { order, ..Config::default() });
    let shows = |expected: &[(&str, usize, usize)]| {
        let expected: Vec<_> =
            expected.iter().map(|(name, ready, held)| ((*name).to_owned(), *ready, *held)).collect();
        assert_eq!(metrics.groups(), expected);
    };
    shows(&[]);
    q.add_many([11, 12, 13, 21, 31]);
    shows(&[("1", 3, 0), ("3", 1, 0)]);
    let eleven = q.take(11);
    q.add(11);
    shows(&[("1", 2, 1), ("3", 1, 0)]);
    // a paused key is ready too
    q.pause_key(12);
    q.pause_key(14);
    q.add(14);
    shows(&[("1", 3, 1), ("3", 1, 0)]);
    sound(eleven.done());
    shows(&[("1", 4, 0), ("3", 1, 0)]);
    q.cancel(12);
    shows(&[("1", 3, 0), ("3", 1, 0)]);
    q.shut_down();
    shows(&[("1", 3, 0), ("3", 1, 0)]);
    q.work_off();
    shows(&[]);
}

pub fn m_groups_are_told_of_that_are_more_than_a_lock_hold_looks_at<A: Adapter>() {
    let order = Line::Fair(Fair::of(Grouping::of(1)));
    let (q, metrics) = metered::<A>(Config { order, ..Config::default() });
    q.add_many(0..2_000);
    let groups = metrics.groups();
    assert_eq!(groups.len(), 1_000);
    assert!(groups.iter().all(|(_, ready, held)| (*ready, *held) == (1, 0)));
    q.work_off();
    assert_eq!(metrics.groups(), []);
}

pub fn m_keys_that_made_room_are_counted<A: Adapter>() {
    let metrics = Metered::new();
    let config = Config { metrics: Some(metrics.clone()), ..Config::default() };
    let (q, dropped) = Subject::<A>::dropping(2, config);
    q.add_many([1, 2, 1]);
    assert_eq!(metrics.told().dropped, 0);
    q.add_many([3, 4]);
    q.add(5);
    assert_eq!(metrics.told().dropped, 3);
    assert_eq!(dropped.lock().unwrap().len(), 3);
    q.cancel(5);
    assert_eq!(metrics.told().dropped, 3, "a cancel makes no room for another");
}

//! Rules that concern one process.

use super::*;
use requeue::{Add, Added};

pub fn e1_tasks_and_threads_add_to_one_queue<E: Engine>(engine: E) {
    let queue = engine.open();
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let queue = &queue;
            threads.spawn(move || {
                for n in 0..25 {
                    let add = queue.add(format!("{thread}-{n}"));
                    let added = if thread % 2 == 0 { add.wait() } else { smol::block_on(add) };
                    assert_eq!(added.expect("it takes keys"), Added::Ready);
                }
            });
        }
    });
    let work = Work::on(&queue, |_| Outcome::Done);
    let mut keys = work.keys(100);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 100);
    assert_eq!(work.stop(), []);
}

pub fn e5_triggers_of_a_ready_key_are_one_run_and_those_during_a_run_one_more<E: Engine>(engine: E) {
    let queue = engine.open();
    for _ in 0..5 {
        queue.add(key("a")).wait().expect("open");
    }
    let held = Held::on(&queue, || Outcome::Done);
    held.begins();
    assert_eq!(queue.add(key("a")).wait().expect("open"), Added::Dirty);
    for _ in 0..5 {
        assert_eq!(queue.add(key("a")).wait().expect("open"), Added::Coalesced);
    }
    held.goes_on();
    held.begins();
    held.goes_on();
    until("the end of both runs", || is_idle::<E>(&queue, "a"));
    assert!(held.begun.try_recv().is_err(), "a third run");
    assert!(held.worker.stop(LONG).wait().complete);
}

pub fn e8_the_earlier_timer_of_a_key_stays<E: Engine>(engine: E) {
    let queue = engine.open();
    queue.add_after(key("a"), HOUR).wait().expect("open");
    let due = || E::state(&queue, "a").expect("it waits").due_in.expect("a timer");
    assert!(due() > HOUR / 2);
    queue.add_after(key("a"), 2 * HOUR).wait().expect("open");
    assert!(due() <= HOUR && due() > HOUR / 2);
    queue.add_after(key("a"), HOUR / 4).wait().expect("open");
    assert!(due() <= HOUR / 4);
    queue.add_after(key("b"), Duration::from_millis(1)).wait().expect("open");
    let work = Work::on(&queue, |_| Outcome::Done);
    assert_eq!(work.next().key, "b");
    assert_eq!(work.stop(), []);
}

pub fn e18_a_trigger_that_is_refused_gives_key_and_value_back<E: Engine>(engine: E) {
    let queue = engine.open();
    queue.shut_down();
    let failed = queue.add_with(key("a"), Add::now().value(vec![1])).wait().expect_err("it is shut down");
    assert_eq!((&*failed.key, failed.value), ("a", Some(vec![1])));
    assert!(E::state(&queue, "a").is_none());
}

pub fn e19_an_add_that_nobody_waits_for_is_accepted_all_the_same<E: Engine>(engine: E) {
    let queue = engine.open();
    drop(queue.add(key("a")));
    // accepted after it, for they stand in one line
    queue.add(key("b")).wait().expect("open");
    let work = Work::on(&queue, |_| Outcome::Done);
    assert_eq!(work.keys(2), ["a", "b"]);
    assert_eq!(work.stop(), []);
}

pub fn e20_a_run_that_panics_puts_its_key_back_as_a_failure<E: Engine>(engine: E) {
    let queue = engine.open();
    queue.add(key("a")).wait().expect("open");
    let runs = Arc::new(Mutex::new(Vec::new()));
    let saw = runs.clone();
    let worker = Worker::of(&queue).workers(1).start_threads(move |run: Run<String, Vec<u32>>| {
        saw.lock().expect("no panic").push(run.attempt());
        assert!(run.attempt() > 1, "the first one");
    });
    until("the second run", || *runs.lock().expect("no panic") == [1, 2]);
    until("its end", || is_idle::<E>(&queue, "a"));
    assert!(worker.expect("threads").stop(LONG).wait().complete);
}

pub fn e23_values_of_a_key_merge_the_older_first<E: Engine>(engine: E) {
    let queue = engine.open();
    for value in [1, 2] {
        queue.add_with(key("a"), Add::now().value(vec![value])).wait().expect("open");
    }
    queue.add(key("b")).wait().expect("open");
    let work = Work::on(&queue, |_| Outcome::Done);
    assert_eq!([work.next().value, work.next().value], [Some(vec![1, 2]), None]);
    assert_eq!(work.stop(), []);
}

pub fn e24_a_paused_queue_hands_out_nothing_until_it_is_resumed<E: Engine>(engine: E) {
    let queue = engine.open();
    E::pause(&queue, true);
    queue.add(key("a")).wait().expect("open");
    let work = Work::on(&queue, |_| Outcome::Done);
    assert_eq!(work.stop(), []);
    E::pause(&queue, false);
    let work = Work::on(&queue, |_| Outcome::Done);
    assert_eq!(work.next().key, "a");
    assert_eq!(work.stop(), []);
}

pub fn e29_what_is_cancelled_does_not_run<E: Engine>(engine: E) {
    let queue = engine.open();
    queue.add_after(key("late"), HOUR).wait().expect("open");
    for name in ["a", "b"] {
        queue.add(key(name)).wait().expect("open");
    }
    assert!(cancel(&queue, "late") && cancel(&queue, "a") && !cancel(&queue, "a"));
    let work = Work::on(&queue, |_| Outcome::Done);
    assert_eq!(work.next().key, "b");
    assert_eq!(work.stop(), []);
    assert!(is_idle::<E>(&queue, "late"));
}

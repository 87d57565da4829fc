//! Rules for data that outlives a process.

use super::*;
use requeue::Add;

pub fn e1_what_was_accepted_is_there_for_the_next_process_in_the_order_of_the_line<E: Engine>(engine: E) {
    let queue = engine.open();
    for name in ["b", "a", "c", "a"] {
        queue.add(key(name)).wait().expect("open");
    }
    queue.add_after(key("late"), HOUR).wait().expect("open");
    drop(queue);
    let queue = engine.open();
    let work = Work::on(&queue, |_| Outcome::Done);
    assert_eq!(work.keys(3), ["b", "a", "c"]);
    assert_eq!(work.stop(), []);
    drop(queue);
    // a key whose run has ended does not run again
    let queue = engine.open();
    assert!(["a", "b", "c"].iter().all(|name| is_idle::<E>(&queue, name)));
    assert!(E::state(&queue, "late").is_some_and(|state| state.due_in.is_some()));
}

pub fn e2_a_trigger_during_a_run_is_a_run_of_the_next_process<E: Engine>(engine: E) {
    let queue = engine.open();
    queue.add(key("a")).wait().expect("open");
    let held = Held::on(&queue, || Outcome::Done);
    held.begins();
    queue.add(key("a")).wait().expect("open");
    let stop = held.worker.stop(LONG);
    held.go_on.send(()).expect("a run waits");
    assert!(stop.wait().complete);
    drop((held, queue));
    let queue = engine.open();
    let work = Work::on(&queue, |_| Outcome::Done);
    assert_eq!(work.next().key, "a");
    assert_eq!(work.stop(), []);
}

pub fn e9_failures_attempt_value_and_priority_are_as_they_were<E: Engine>(engine: E) {
    let queue = engine.open();
    for (value, priority) in [(1, 0), (2, 7)] {
        let add = Add::now().value(vec![value]).priority(priority);
        queue.add_with(key("a"), add).wait().expect("open");
    }
    let work = Work::on(&queue, |_| Outcome::Retry("not yet".into()));
    let mut saw = vec![work.next(), work.next()];
    saw.extend(work.stop());
    for (saw, attempt) in saw.iter().zip(1..) {
        assert_eq!((saw.attempt, saw.priority, &saw.value), (attempt, 7, &Some(vec![1, 2])), "{saw:?}");
    }
    let runs = u32::try_from(saw.len()).expect("few");
    drop(queue);
    let queue = engine.open();
    let state = E::state(&queue, "a").expect("it is to run again");
    assert_eq!((state.failures, state.attempt, state.priority), (runs, runs + 1, 7));
    queue.add_with(key("a"), Add::now().value(vec![3])).wait().expect("open");
    let work = Work::on(&queue, |_| Outcome::Done);
    assert_eq!(work.next().value, Some(vec![1, 2, 3]));
    work.stop();
}

pub fn e9_a_retry_that_came_too_late_is_not_lost<E: Engine>(engine: E) {
    let queue = engine.open();
    queue.add(key("a")).wait().expect("open");
    let held = Held::on(&queue, || Outcome::Retry("cut short".into()));
    held.begins();
    queue.shut_down();
    held.goes_on();
    held.worker.join();
    drop((held, queue));
    let queue = engine.open();
    let work = Work::on(&queue, |_| Outcome::Done);
    assert_eq!(work.next().key, "a");
    assert_eq!(work.stop(), []);
}

pub fn e10_fences_grow_from_run_to_run_over_processes_also_where_the_key_was_gone<E: Engine>(engine: E) {
    let mut last = 0;
    for _ in 0..3 {
        let queue = engine.open();
        let work = Work::on(&queue, |_| Outcome::Done);
        for _ in 0..3 {
            queue.add(key("a")).wait().expect("open");
            let fence = work.next().fence;
            assert!(fence > last, "{fence} after {last}");
            last = fence;
            until("its end", || is_idle::<E>(&queue, "a"));
        }
        assert_eq!(work.stop(), []);
    }
}

pub fn e19_an_add_that_nobody_waits_for_is_there_for_the_next_process<E: Engine>(engine: E) {
    let queue = engine.open();
    drop(queue.add(key("a")));
    queue.add(key("b")).wait().expect("open");
    drop(queue);
    let queue = engine.open();
    let work = Work::on(&queue, |_| Outcome::Done);
    assert_eq!(work.keys(2), ["a", "b"]);
    assert_eq!(work.stop(), []);
}

pub fn e24_a_pause_holds_for_the_next_process<E: Engine>(engine: E) {
    let queue = engine.open();
    E::pause(&queue, true);
    queue.add(key("a")).wait().expect("open");
    drop(queue);
    let queue = engine.open();
    assert_eq!(Work::on(&queue, |_| Outcome::Done).stop(), []);
    E::pause(&queue, false);
    let work = Work::on(&queue, |_| Outcome::Done);
    assert_eq!(work.next().key, "a");
    assert_eq!(work.stop(), []);
}

pub fn e29_what_was_cancelled_does_not_come_back_with_the_next_process<E: Engine>(engine: E) {
    let queue = engine.open();
    queue.add(key("a")).wait().expect("open");
    queue.add_after(key("late"), HOUR).wait().expect("open");
    assert!(cancel(&queue, "a") && cancel(&queue, "late"));
    drop(queue);
    let queue = engine.open();
    assert!(is_idle::<E>(&queue, "a") && is_idle::<E>(&queue, "late"));
}

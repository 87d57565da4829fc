//! B11: runs that are cancelled by their key.

use super::{Front, Puppets, ms, puppets, queue, until, until_waiting};
use requeue::{Failure, Fate, Outcome, RunReport, Worker};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

type End = (u64, u32, Fate, bool);

/// A worker whose runs the test holds, and their ends: key, attempt, fate, and whether it was cancelled.
fn cancellable<F: Front>(q: &super::Lists) -> (Worker, Puppets, Receiver<End>) {
    let (tell, told) = channel();
    let (puppets, handler) = puppets();
    let hook = move |key: &u64, run: &RunReport<'_>| {
        let cancelled = matches!(run.failure, Some(Failure::Cancelled));
        tell.send((*key, run.attempt, run.fate, cancelled)).unwrap();
    };
    (F::start(Worker::of(q).workers(1).on_end(hook), handler), puppets, told)
}

/// A blocking handler is only told: it returns, and says that all went well.
fn returns<F: Front>(puppets: &Puppets) {
    if !F::DROPS {
        puppets.end(Outcome::Done);
    }
}

pub fn b11_a_cancelled_run_is_a_failure_and_its_key_comes_back<F: Front>() {
    let (q, clock) = queue();
    let (worker, puppets, told) = cancellable::<F>(&q);
    q.add_value(1, vec![7]).unwrap();
    puppets.run(1, 1);
    assert!(q.cancel_run(&1));
    returns::<F>(&puppets);
    assert_eq!(told.recv().unwrap(), (1, 1, Fate::Retry(ms(1)), true));
    until_waiting(&q, &clock, 1);
    assert_eq!(q.num_requeues(&1), 1);
    clock.advance(ms(1));
    puppets.run(1, 2);
    puppets.end(Outcome::Done);
    assert_eq!(told.recv().unwrap(), (1, 2, Fate::Done, false));
    let report = F::report(worker.drain(Duration::MAX));
    assert_eq!(
        (report.complete, report.done, report.cancelled),
        (true, 2, 0),
        "the worker itself was not stopped"
    );
}

pub fn b11_a_cancelled_run_is_given_up_if_asked_so<F: Front>() {
    let (q, _) = queue();
    let (worker, puppets, told) = cancellable::<F>(&q);
    q.add(1).unwrap();
    puppets.run(1, 1);
    // of two the stronger counts
    assert!(q.give_up_run(&1));
    assert!(F::DROPS || q.cancel_run(&1));
    returns::<F>(&puppets);
    assert_eq!(told.recv().unwrap(), (1, 1, Fate::GaveUp, true));
    until(|| q.state(&1).is_none());
    F::report(worker.stop(Duration::MAX));
}

pub fn b11_a_trigger_during_a_cancelled_run_still_gets_its_run<F: Front>() {
    let (q, _) = queue();
    let (worker, puppets, told) = cancellable::<F>(&q);
    q.add(1).unwrap();
    puppets.run(1, 1);
    q.add(1).unwrap();
    assert!(q.give_up_run(&1));
    returns::<F>(&puppets);
    assert_eq!(told.recv().unwrap(), (1, 1, Fate::GaveUp, true));
    puppets.run(1, 1);
    puppets.end(Outcome::Done);
    assert_eq!(told.recv().unwrap(), (1, 1, Fate::Done, false));
    F::report(worker.stop(Duration::MAX));
}

pub fn b11_a_cancel_ends_no_run_but_the_keys_own<F: Front>() {
    let (q, _) = queue();
    let (worker, puppets, told) = cancellable::<F>(&q);
    assert!(!q.cancel_run(&1), "nobody has heard of it");
    q.add(1).unwrap();
    puppets.run(1, 1);
    q.add(2).unwrap();
    assert!(!q.cancel_run(&2), "it is ready, and has no run");
    puppets.end(Outcome::Done);
    assert_eq!(told.recv().unwrap(), (1, 1, Fate::Done, false));
    puppets.run(2, 1);
    assert!(!q.cancel_run(&1), "its run has ended");
    puppets.end(Outcome::Done);
    assert_eq!(told.recv().unwrap(), (2, 1, Fate::Done, false));
    F::report(worker.stop(Duration::MAX));
    q.add(3).unwrap();
    let item = q.try_get().unwrap();
    assert!(!q.cancel_run(&3), "no worker has it");
    item.done();
}

pub fn b11_cancels_that_race_with_runs_end_no_other_run<F: Front>() {
    let (q, _) = queue();
    let (tell, told) = channel();
    let hook = move |key: &u64, run: &RunReport<'_>| tell.send((*key, run.fate)).unwrap();
    let worker = F::start(Worker::of(&q).workers(2).on_end(hook), |_| async { Outcome::Done });
    std::thread::scope(|s| {
        s.spawn(|| {
            for key in (0..2_000).step_by(2) {
                q.give_up_run(&key);
            }
        });
        for key in 0..2_000 {
            q.add(key).unwrap();
        }
    });
    for _ in 0..2_000 {
        let (key, fate) = told.recv().unwrap();
        assert!(fate == Fate::Done || (fate == Fate::GaveUp && key % 2 == 0), "{key} {fate:?}");
    }
    let report = F::report(worker.drain(Duration::MAX));
    assert_eq!((report.complete, report.done), (true, 2_000));
}

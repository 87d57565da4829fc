//! W and Q11: unfinished keys after a drain, as workers report them.

use super::{Front, ms, queue, until};
use requeue::{DrainOptions, Failure, Outcome, Run, WaitingKeys, Worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

pub fn w_a_drain_accounts_for_every_key_and_on_give_up_hears_of_the_unfinished_ones<F: Front>() {
    let (q, _clock) = queue();
    let (tell, given_up) = channel();
    let builder = Worker::of(&q).workers(2).on_give_up(move |key, why| {
        let Failure::TimerDropped = why else { panic!("{why}") };
        tell.send(*key).unwrap();
    });
    let worker = F::start(builder, |run: Run<u64, Vec<u32>>| async move {
        match run.key() % 2 {
            0 => Outcome::Done,
            _ => Outcome::RetryAfter(ms(1_000), "not yet".into()),
        }
    });
    for key in 0..100 {
        q.add(key).unwrap();
    }
    // half of them wait out a failure, and one more waits for no failure
    until(|| q.stats().waiting == 50 && q.stats().held == 0);
    q.add_after(100, ms(2_000)).unwrap();
    let report = F::report(worker.drain(DrainOptions::default().waiting_keys(WaitingKeys::Drop)));
    assert_eq!((report.complete, report.done, report.unfinished), (false, 100, 51));
    assert_eq!((report.dropped, report.refused_retries), (51, 0));
    let mut heard: Vec<_> = given_up.try_iter().collect();
    heard.sort_unstable();
    let unfinished = (1..100).step_by(2).chain([100]);
    assert!(heard.into_iter().eq(unfinished), "each once, with the reason");
    let mut list = q.take_unfinished();
    list.sort_by_key(|left| left.key);
    assert_eq!((list.len(), list[0].key, list[0].failures, list[0].attempt), (51, 1, 1, 2));
    assert_eq!((list[50].key, list[50].failures, list[50].attempt), (100, 0, 1));
    assert!(given_up.try_recv().is_err(), "once");
}

pub fn w_a_drain_with_a_deadline_works_failed_keys_off<F: Front>() {
    let (q, clock) = queue();
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    let builder = Worker::of(&q).workers(2).on_give_up(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let worker = F::start(builder, |run: Run<u64, Vec<u32>>| async move {
        if run.attempt() == 1 && run.key() % 2 == 1 {
            return Outcome::Retry("not yet".into());
        }
        Outcome::Done
    });
    for key in 0..100 {
        q.add(key).unwrap();
    }
    let drain = worker.drain(Duration::from_secs(30));
    until(|| q.stats().waiting == 50 && q.stats().held == 0);
    clock.advance(ms(1));
    let report = F::report(drain);
    assert_eq!((report.complete, report.done, report.unfinished), (true, 150, 0));
    assert_eq!(heard.load(Ordering::SeqCst), 0);
    assert!(q.take_unfinished().is_empty());
}

pub fn w_a_drain_of_the_queue_tells_its_workers_of_unfinished_keys<F: Front>() {
    let (q, _clock) = queue();
    let (tell, given_up) = channel();
    let (begins, began) = channel();
    let (go, gone) = smol::channel::unbounded::<()>();
    let builder = Worker::of(&q).workers(1).on_give_up(move |key, why| {
        tell.send((*key, why.to_string())).unwrap();
    });
    let worker = F::start(builder, move |run: Run<u64, Vec<u32>>| {
        begins.send(()).unwrap();
        let gone = gone.clone();
        async move {
            gone.recv().await.unwrap();
            drop(run);
            Outcome::Retry("not yet".into())
        }
    });
    q.add_with(1, requeue::Add::now().value(vec![7])).unwrap();
    began.recv().unwrap();
    q.add_after(2, ms(5)).unwrap();
    let drain = q.drain(DrainOptions::default().waiting_keys(WaitingKeys::Drop));
    go.send_blocking(()).unwrap();
    let drained = drain.wait();
    assert_eq!((drained.complete, drained.unfinished), (false, 2));
    worker.join();
    let mut heard: Vec<_> = given_up.try_iter().collect();
    heard.sort();
    assert_eq!(heard, [(1, Failure::RetryRefused.to_string()), (2, Failure::TimerDropped.to_string())]);
    let list = q.take_unfinished();
    let one = list.iter().find(|left| left.key == 1).expect("its retry was refused");
    assert_eq!((one.value.as_deref(), one.attempt), (Some(&[7][..]), 2), "the value goes back");
    assert_eq!(list.len(), 2);
}

pub fn w_what_is_postponed_under_a_drain_is_left_with_its_payload<F: Front>() {
    for (outcome, value) in [(Outcome::Postpone(ms(5)), Some(vec![7])), (Outcome::Again(ms(5)), None)] {
        let (q, _clock) = queue();
        let (begins, began) = channel();
        let (go, gone) = smol::channel::unbounded::<()>();
        let worker = F::start(Worker::of(&q).workers(1), move |run: Run<u64, Vec<u32>>| {
            begins.send(()).unwrap();
            let (gone, outcome) = (gone.clone(), outcome.clone());
            async move {
                gone.recv().await.unwrap();
                drop(run);
                outcome
            }
        });
        q.add_value(1, vec![7]).unwrap();
        began.recv().unwrap();
        let drain = q.drain(DrainOptions::default().waiting_keys(WaitingKeys::Drop));
        go.send_blocking(()).unwrap();
        assert_eq!(drain.wait().unfinished, 1);
        worker.join();
        let list = q.take_unfinished();
        assert_eq!((list.len(), list[0].key, list[0].attempt, &list[0].value), (1, 1, 1, &value));
    }
}

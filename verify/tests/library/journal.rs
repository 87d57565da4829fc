//! The journal of an engine, and runs whose retry is refused (Q11, E11).

use requeue::{DrainOptions, Fence, Outcome, Run, WaitingKeys, WorkQueue, Worker};
use requeue_engine::{Journal, Known, with_journal};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// A journal that records its calls, in order.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Journal<&'static str, u32> for Heard {
    fn changed(&self, key: &&'static str, known: Option<Known<'_, u32>>) {
        let known = known.map(|known| (known.ready, known.value.copied()));
        self.0.lock().unwrap().push(format!("{key}: {known:?}"));
    }
    fn applied(&self, _: u64) {}
    fn refused(&self, key: &&'static str) {
        self.0.lock().unwrap().push(format!("{key} refused"));
    }
    fn gives_up(&self, key: &&'static str, why: &dyn std::fmt::Display) {
        self.0.lock().unwrap().push(format!("{key} gives up: {why}"));
    }
    fn fence(&self, _: &&'static str) -> Fence {
        Fence(1)
    }
}

fn queue() -> (WorkQueue<&'static str, u32>, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let q = with_journal(WorkQueue::merging(|_: &mut u32, _| ()), heard.clone()).build().unwrap();
    (q, heard)
}

fn heard(heard: &Heard) -> Vec<String> {
    std::mem::take(&mut *heard.0.lock().unwrap())
}

/// The hook of a worker that has no threads hears of it, once; an item whose run has ended reports nothing.
#[test]
fn w_the_reason_of_an_item_that_gives_up_reaches_the_hooks_and_the_journal() {
    let (q, journal) = queue();
    let (tell, told) = mpsc::channel();
    let other = tell.clone();
    let worker = Worker::of(&q)
        .workers(0)
        .on_give_up(|_, _| panic!("a hook"))
        .on_give_up(move |key, why| tell.send(format!("{key}: {why}")).unwrap())
        .start_threads(|_| ())
        .unwrap();
    q.add("a").unwrap();
    q.add("b").unwrap();
    q.try_get().unwrap().give_up("no such order");
    let ended = q.try_get().unwrap();
    q.done("b").unwrap();
    ended.give_up("nobody hears this");
    drop(worker);
    drop(other);
    assert_eq!(told.iter().collect::<Vec<_>>(), ["a: no such order"]);
    let heard = heard(&journal);
    assert_eq!(heard[..2], ["a gives up: no such order", "a: None"]);
    assert!(!heard[2..].iter().any(|call| call.contains("gives up")), "{heard:?}");
}

/// With the hook `on_end` the key is read after the end of its run: the run is kept until the hook has
/// returned.
#[test]
fn q11_the_journal_hears_that_a_retry_was_refused_of_a_run_that_is_kept_and_of_one_that_is_not() {
    for kept in [true, false] {
        let (q, journal) = queue();
        let (begins, began) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let gone = Mutex::new(gone);
        let mut builder = Worker::of(&q).workers(1);
        if kept {
            builder = builder.on_end(|_, _| ());
        }
        let worker = builder
            .start_threads(move |run: Run<&'static str, u32>| {
                begins.send(*run.key()).unwrap();
                gone.lock().unwrap().recv().unwrap();
                Outcome::Retry("not yet".into())
            })
            .unwrap();
        q.add_value("a", 7).unwrap();
        began.recv().unwrap();
        let drain = worker.drain(DrainOptions::default().waiting_keys(WaitingKeys::Drop));
        go.send(()).unwrap();
        let report = drain.wait();
        assert_eq!((report.complete, report.unfinished, report.durable), (false, 1, true));
        assert_eq!(heard(&journal), ["a refused"], "and of no end: the store has it as before the run");
        let list = q.take_unfinished();
        assert_eq!((list[0].key, list[0].value), ("a", Some(7)));
        assert!(heard(&journal).is_empty(), "to take the list changes nothing in the store");
    }
}

#[test]
fn q11_the_journal_hears_of_no_end_of_an_item_that_is_dropped_after_its_retry_was_refused() {
    for batch in [false, true] {
        let (q, journal) = queue();
        q.add_value("a", 7).unwrap();
        let item = q.try_get().unwrap();
        let drain = q.drain(DrainOptions::default().timeout(Duration::ZERO));
        let refused = item.retry().unwrap_err();
        if batch {
            refused.item.done();
        } else {
            drop(refused);
        }
        assert_eq!(heard(&journal), ["a refused"]);
        let drained = drain.wait();
        assert_eq!((drained.complete, drained.unfinished, drained.durable), (false, 1, true));
    }
}

#[test]
fn q12_the_journal_hears_that_what_a_panic_put_back_is_ready_also_when_the_queue_is_over() {
    let (q, journal) = queue();
    q.add_value("a", 7).unwrap();
    let items = q.try_get_many(9).unwrap();
    q.shut_down();
    requeue_verify::lockstep::unwind_through(items);
    assert_eq!(heard(&journal), ["a: Some((true, Some(7)))"]);
    assert_eq!(q.len(), 1);
}

/// `done` by key ends the run under its guard, and the journal hears of that end; what becomes of the guard is none.
#[test]
fn q12_the_journal_hears_nothing_of_a_guard_whose_run_was_ended_by_its_key() {
    type End = fn(&WorkQueue<&'static str, u32>);
    let ends: [(&str, End); 3] = [
        ("an item", |q| {
            let item = q.try_get().unwrap();
            q.done("a").unwrap();
            drop(item);
        }),
        ("a batch", |q| {
            let items = q.try_get_many(9).unwrap();
            q.done("a").unwrap();
            drop(items);
        }),
        ("a worker's run", |q| {
            let (queue, key) = (q.downgrade(), "a");
            let worker = Worker::of(q).workers(1).start_threads(move |_: Run<&'static str, u32>| {
                queue.upgrade().unwrap().done(key).unwrap();
                Outcome::Retry("too late".into())
            });
            let worker = worker.unwrap();
            while q.state("a").is_some() {
                std::thread::yield_now();
            }
            assert!(worker.stop(Duration::MAX).wait().complete);
        }),
    ];
    for retries in [false, true] {
        for (what, end) in ends {
            let journal = Arc::new(Heard::default());
            let q =
                with_journal(WorkQueue::merging(|_: &mut u32, _| ()), journal.clone()).retry_dropped(retries);
            let q = q.build().unwrap();
            q.add_value("a", 7).unwrap();
            end(&q);
            assert_eq!(heard(&journal), ["a: None"], "{what}, {retries}");
        }
    }
}

/// A store that hands keys out. Runs of keys in capital letters may not begin.
struct Store(Arc<Heard>);

/// A value that reports its drop.
struct Told(Arc<Heard>, u32);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().push(format!("{} dropped", self.1));
    }
}

impl Journal<&'static str, Told> for Store {
    fn changed(&self, _: &&'static str, _: Option<Known<'_, Told>>) {}
    fn applied(&self, _: u64) {}
    fn refused(&self, key: &&'static str) {
        self.0.refused(key);
    }
    fn gives_up(&self, _: &&'static str, _: &dyn std::fmt::Display) {}
    fn fence(&self, _: &&'static str) -> Fence {
        Fence(1)
    }
    fn may_begin(&self, key: &&'static str) -> bool {
        key.chars().all(char::is_lowercase)
    }
    fn takes_back(&self) -> bool {
        true
    }
}

#[test]
fn e4_a_key_whose_run_may_not_begin_leaves_the_queue_however_it_is_asked_for() {
    type Takes = fn(&WorkQueue<&'static str, Told>) -> Vec<&'static str>;
    let ways: [(&str, Takes); 6] = [
        ("try_get", |q| q.try_get().iter().map(|item| *item.key()).collect()),
        ("get", |q| q.get().wait().iter().map(|item| *item.key()).collect()),
        ("get_blocking", |q| q.get_blocking().iter().map(|item| *item.key()).collect()),
        ("try_get_many", |q| q.try_get_many(9).unwrap().iter().map(|item| *item.key()).collect()),
        ("get_many", |q| q.get_many(9).wait().unwrap().iter().map(|item| *item.key()).collect()),
        ("a worker", |q| {
            let (tell, began) = mpsc::channel();
            let worker = Worker::of(q).workers(1).start_threads(move |run: Run<&'static str, Told>| {
                tell.send(*run.key()).unwrap();
            });
            let worker = worker.unwrap();
            let first = began.recv().unwrap();
            worker.stop(Duration::MAX).wait();
            vec![first]
        }),
    ];
    for (way, takes) in ways {
        let journal = Arc::new(Heard::default());
        let q = with_journal(WorkQueue::merging(|_: &mut Told, _| ()), Arc::new(Store(journal.clone())));
        let q = q.retry_dropped(false).build().unwrap();
        for (nth, key) in ["A", "B", "c", "D"].into_iter().enumerate() {
            q.add_value(key, Told(journal.clone(), u32::try_from(nth).unwrap())).unwrap();
        }
        assert_eq!(takes(&q), ["c"], "{way}");
        assert_eq!(std::iter::from_fn(|| q.try_get().ok()).count(), 0, "{way}");
        let mut heard = heard(&journal);
        heard.sort();
        let expected =
            ["0 dropped", "1 dropped", "2 dropped", "3 dropped", "A refused", "B refused", "D refused"];
        assert_eq!(heard, expected, "{way}");
        assert!(["A", "B", "c", "D"].iter().all(|key| q.state(key).is_none()), "{way}");
    }
}

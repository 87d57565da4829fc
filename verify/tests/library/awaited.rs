//! B12: runs that are awaited, of a queue in memory and of one in a file.

use requeue::limiter::Exponential;
use requeue::{
    Add, Added, AwaitedRun, Debounce, DrainOptions, FakeClock, GetError, InBackoff, Item, NoRun, Outcome,
    RunEnd, Scope, WaitingKeys, WorkQueue, Worker,
};
use requeue_sqlite::Sqlite;
use std::future::Future;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn merge(old: &mut Vec<u8>, new: Vec<u8>) {
    old.extend(new);
}

fn queue() -> (WorkQueue<u64, Vec<u8>>, FakeClock) {
    let clock = FakeClock::new();
    let back_off = Exponential::new(SECOND, SECOND).unwrap();
    (WorkQueue::merging(merge).clock(clock.clone()).limiter(back_off).build().unwrap(), clock)
}

/// A queue whose triggers are written to a file first, where there is one.
struct Written {
    in_memory: WorkQueue<u64, Vec<u8>>,
    in_file: Option<requeue_sqlite::Queue<u64, Vec<u8>>>,
    /// Removed after the queue.
    _folder: Option<tempfile::TempDir>,
}

impl Deref for Written {
    type Target = WorkQueue<u64, Vec<u8>>;
    fn deref(&self) -> &Self::Target {
        &self.in_memory
    }
}

impl Written {
    fn add(&self, key: u64) -> Added {
        match &self.in_file {
            Some(q) => q.add(key).wait().unwrap(),
            None => self.in_memory.add(key).unwrap(),
        }
    }

    fn add_after(&self, key: u64, delay: Duration) -> Added {
        match &self.in_file {
            Some(q) => q.add_after(key, delay).wait().unwrap(),
            None => self.in_memory.add_after(key, delay).unwrap(),
        }
    }

    /// The run, or the key that was refused.
    fn await_run(&self, key: u64, how: Add<Vec<u8>>) -> Result<AwaitedRun, u64> {
        match &self.in_file {
            Some(q) => q.await_run(key, how).wait().map_err(|failed| failed.key),
            None => self.in_memory.await_run(key, how).map_err(|refused| refused.key),
        }
    }

    fn await_now(&self) -> AwaitedRun {
        self.await_run(1, Add::now()).unwrap()
    }

    fn cancel(&self) {
        let cancelled = match &self.in_file {
            Some(q) => q.cancel(&1).wait().unwrap(),
            None => self.in_memory.cancel(&1),
        };
        assert!(cancelled.is_some());
    }
}

/// A queue in memory, and one in a file.
fn queues() -> [(Written, FakeClock); 2] {
    let (in_memory, clock) = queue();
    let memory = (Written { in_memory, in_file: None, _folder: None }, clock);
    let (folder, clock) = (requeue_verify::durable::folder(), FakeClock::new());
    let file = Sqlite::open(folder.path().join("q.db")).unwrap();
    let q = file.queue_with("awaited", merge).limiter(Exponential::new(SECOND, SECOND).unwrap());
    let q = q.front({
        let clock = clock.clone();
        |front| front.clock(clock)
    });
    let q = q.open().unwrap();
    let in_memory = q.in_memory().clone();
    [memory, (Written { in_memory, in_file: Some(q), _folder: Some(folder) }, clock)]
}

/// How an awaited run has ended, if it has.
fn ended(run: &mut AwaitedRun) -> Option<Result<RunEnd, NoRun>> {
    match pin!(run).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(how) => Some(how),
        Poll::Pending => None,
    }
}

fn await_now(q: &WorkQueue<u64, Vec<u8>>) -> AwaitedRun {
    q.await_run(1, Add::now()).unwrap()
}

#[test]
fn b12_many_callers_of_one_key_share_one_run() {
    for (q, _) in queues() {
        q.add(1);
        let mut all = [q.await_now(), q.await_now(), q.await_now()];
        let item = q.try_get().unwrap();
        assert!(all.iter_mut().all(|run| ended(run).is_none()));
        item.succeed();
        assert!(all.iter_mut().all(|run| ended(run) == Some(Ok(RunEnd::Done))));
        assert!(q.try_get().is_err() && q.state(&1).is_none());
    }
}

#[test]
fn b12_a_trigger_during_a_run_awaits_the_next_one() {
    for (q, _) in queues() {
        q.add(1);
        let item = q.try_get().unwrap();
        let mut run = q.await_now();
        item.done();
        assert_eq!(ended(&mut run), None);
        q.try_get().unwrap().done();
        assert_eq!(ended(&mut run), Some(Ok(RunEnd::Done)));
    }
}

#[test]
fn b12_each_end_of_a_run_is_told() {
    type End = fn(Item<'_, u64, Vec<u8>>);
    let ends: [(End, RunEnd); 4] = [
        (|item| item.succeed(), RunEnd::Done),
        (|item| item.again(SECOND).unwrap(), RunEnd::Again),
        (|item| _ = item.retry().unwrap(), RunEnd::Retry),
        (|item| item.give_up("hopeless"), RunEnd::GiveUp),
    ];
    for (end, told) in ends {
        for (q, _) in queues() {
            let mut run = q.await_now();
            end(q.try_get().unwrap());
            assert_eq!(ended(&mut run), Some(Ok(told)));
        }
    }
    for (q, _) in queues() {
        // without a guard, and in a batch
        let mut run = q.await_now();
        let _key = q.try_get().unwrap().detach();
        assert_eq!(ended(&mut run), None);
        q.done(&1).unwrap();
        assert_eq!(ended(&mut run), Some(Ok(RunEnd::Done)));
        let mut run = q.await_now();
        q.try_get_many(8).unwrap().done();
        assert_eq!(ended(&mut run), Some(Ok(RunEnd::Done)));
    }
    // a batch that is dropped has succeeded in memory
    let (q, _) = queue();
    let mut run = await_now(&q);
    drop(q.try_get_many(8).unwrap());
    assert_eq!(ended(&mut run), Some(Ok(RunEnd::Done)));
}

#[test]
fn b12_a_delayed_trigger_awaits_a_run_that_is_not_earlier() {
    for (q, clock) in queues() {
        let mut run = q.await_run(1, Add::after(SECOND)).unwrap();
        q.add(1);
        q.try_get().unwrap().done();
        assert_eq!(ended(&mut run), None, "that run came before the delay");
        clock.advance(SECOND);
        q.try_get().unwrap().done();
        assert_eq!(ended(&mut run), Some(Ok(RunEnd::Done)));
        // a timer that is brought forward brings the run forward
        let mut run = q.await_run(1, Add::after(9 * SECOND)).unwrap();
        q.add_after(1, SECOND);
        clock.advance(SECOND);
        q.try_get().unwrap().done();
        assert_eq!(ended(&mut run), Some(Ok(RunEnd::Done)));
    }
}

#[test]
fn b12_a_debounced_trigger_awaits_the_run_at_the_windows_end() {
    let (q, clock) = queue();
    let leading = Debounce::new(SECOND).leading();
    let mut first = q.await_run(1, Add::debounced(leading)).unwrap();
    q.try_get().unwrap().done();
    assert_eq!(ended(&mut first), Some(Ok(RunEnd::Done)));
    let mut second = q.await_run(1, Add::debounced(leading)).unwrap();
    assert!(q.try_get().is_err());
    assert_eq!(ended(&mut second), None);
    clock.advance(SECOND);
    q.try_get().unwrap().done();
    assert_eq!(ended(&mut second), Some(Ok(RunEnd::Done)));
}

#[test]
fn b12_a_trigger_that_joins_a_back_off_awaits_the_retry() {
    let (q, clock) = queue();
    q.add(1).unwrap();
    q.try_get().unwrap().retry().unwrap();
    let mut run = q.await_run(1, Add::now().in_backoff(InBackoff::Respect)).unwrap();
    clock.advance(SECOND);
    let item = q.try_get().unwrap();
    assert_eq!((ended(&mut run), item.attempt()), (None, 2));
    item.succeed();
    assert_eq!(ended(&mut run), Some(Ok(RunEnd::Done)));
}

#[test]
fn b12_a_key_that_is_put_back_is_answered_by_its_next_run() {
    for (q, _) in queues() {
        let mut run = q.await_now();
        q.try_get().unwrap().put_back();
        assert_eq!(ended(&mut run), None);
        q.try_get().unwrap().give_up("hopeless");
        assert_eq!(ended(&mut run), Some(Ok(RunEnd::GiveUp)));
    }
}

#[test]
fn b12_a_cancelled_key_says_so_and_a_run_that_is_on_is_not_cancelled() {
    for (q, _) in queues() {
        let mut running = q.await_now();
        let item = q.try_get().unwrap();
        let mut next = q.await_now();
        q.cancel();
        assert_eq!((ended(&mut running), ended(&mut next)), (None, Some(Err(NoRun::Cancelled))));
        item.done();
        assert_eq!(ended(&mut running), Some(Ok(RunEnd::Done)));
    }
}

#[test]
fn b12_a_shutdown_drops_timers_and_not_keys_in_line() {
    for how in 0..3 {
        for (q, _clock) in queues() {
            let mut ready = q.await_now();
            let mut waits = q.await_run(2, Add::after(SECOND)).unwrap();
            match how {
                0 => drop(q.shut_down()),
                1 => drop(q.drain(DrainOptions::default())),
                _ => drop(q.drain(DrainOptions::from(SECOND))),
            }
            assert_eq!((ended(&mut ready), ended(&mut waits)), (None, Some(Err(NoRun::Dropped))), "{how}");
            assert_eq!(q.await_run(3, Add::now()).unwrap_err(), 3);
            q.try_get().unwrap().done();
            assert_eq!(ended(&mut ready), Some(Ok(RunEnd::Done)));
        }
    }
    for (q, _) in queues() {
        let mut runs_now = q.await_run(1, Add::after(SECOND)).unwrap();
        let drain = q.drain(DrainOptions::default().waiting_keys(WaitingKeys::RunNow));
        q.try_get().unwrap().done();
        assert_eq!(ended(&mut runs_now), Some(Ok(RunEnd::Done)));
        assert!(drain.wait().complete);
    }
}

#[test]
fn b12_a_failure_whose_retry_is_refused_is_a_failure() {
    for (q, _) in queues() {
        let mut run = q.await_now();
        let item = q.try_get().unwrap();
        q.shut_down();
        drop(item.retry().unwrap_err());
        assert_eq!(ended(&mut run), Some(Ok(RunEnd::Retry)));
    }
}

#[test]
fn b12_a_key_that_goes_for_room_says_so() {
    let q = WorkQueue::<u64>::builder().bound(1).drop_oldest(|_, _| ()).build().unwrap();
    let mut run = q.await_run(1, Add::now()).unwrap();
    q.add(2).unwrap();
    assert_eq!(ended(&mut run), Some(Err(NoRun::Dropped)));
}

#[test]
fn b12_the_end_of_the_queue_is_told() {
    let (q, _) = queue();
    let mut run = await_now(&q);
    let getter = q.getter();
    drop(q);
    assert_eq!(ended(&mut run), None, "it is still in line");
    drop(getter);
    assert_eq!(ended(&mut run), Some(Err(NoRun::Dropped)));
}

#[test]
fn b12_a_dropped_future_takes_nothing_back_and_leaves_nothing_behind() {
    let (q, _) = queue();
    q.pause(Scope::Queue);
    // the memory test of this: a million callers that went away are no list of a million
    for _ in 0..1_000_000 {
        drop(await_now(&q));
    }
    let mut run = await_now(&q);
    q.resume(Scope::Queue);
    q.try_get().unwrap().done();
    assert_eq!(ended(&mut run), Some(Ok(RunEnd::Done)));
    assert!(q.try_get().is_err());
}

#[test]
fn b12_a_task_is_woken_once_by_its_latest_waker_and_may_call_the_queue() {
    struct Calls(WorkQueue<u64, Vec<u8>>, AtomicUsize);
    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.add(2).unwrap();
            self.1.fetch_add(1, Relaxed);
        }
    }
    let (q, _) = queue();
    let mut run = await_now(&q);
    let [old, latest] = [(); 2].map(|()| Arc::new(Calls(q.clone(), AtomicUsize::new(0))));
    for calls in [&old, &latest] {
        let waker = Waker::from(calls.clone());
        assert!(pin!(&mut run).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    q.try_get().unwrap().done();
    assert_eq!((old.1.load(Relaxed), latest.1.load(Relaxed)), (0, 1));
    assert_eq!((q.len(), ended(&mut run)), (1, Some(Ok(RunEnd::Done))));
}

#[test]
fn b12_a_thread_awaits_what_a_worker_says() {
    let q = WorkQueue::<u64>::new();
    let worker = Worker::of(&q)
        .workers(2)
        .start_threads(|run| match *run.key() {
            0 => Outcome::Done,
            1 => Outcome::GiveUp("no such object".into()),
            _ => {
                while !run.cancelled() {
                    std::thread::yield_now();
                }
                Outcome::Done
            }
        })
        .unwrap();
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                for _ in 0..1_000 {
                    assert_eq!(q.await_run(0, Add::now()).unwrap().wait(), Ok(RunEnd::Done));
                }
            });
        }
    });
    assert_eq!(q.await_run(1, Add::now()).unwrap().wait(), Ok(RunEnd::GiveUp));
    let run = q.await_run(2, Add::now()).unwrap();
    while !q.give_up_run(&2) {
        std::thread::yield_now();
    }
    assert_eq!(run.wait(), Ok(RunEnd::GiveUp));
    assert!(worker.stop(Duration::MAX).wait().complete);
    assert_eq!(q.get().timeout(Duration::ZERO).wait().err(), Some(GetError::Empty));
}

//! Misbehaving user code and tasks, and what must hold with them.

use requeue::{
    Clock, FakeClock, Gauges, Instant, Metrics, Order, Outcome, RateLimiter, ReadyOrder, RunEnd, Ticket,
    WorkQueue, Worker,
};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Count(AtomicUsize);
impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn d4_a_leading_task_that_is_stuck_elsewhere_holds_up_no_timer() {
    let clock = FakeClock::new();
    let q = WorkQueue::<u32>::builder().clock(clock.clone()).build().expect("no metrics");
    q.add_after(1, SEC).expect("open");
    q.add_after(2, SEC * 2).expect("open");
    let (stuck, idle) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let mut leader = pin!(q.get());
    assert!(leader.as_mut().poll(&mut Context::from_waker(&Waker::from(stuck))).is_pending());
    for key in [1, 2] {
        let waker = Waker::from(idle.clone());
        let mut follower = pin!(q.get());
        assert!(follower.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let woken = idle.0.load(SeqCst);
        clock.advance(SEC);
        // the stuck one is never polled again; an executor polls the woken one
        assert!(idle.0.load(SeqCst) > woken, "key {key} is due and nobody who comes was told");
        let Poll::Ready(Some(item)) = follower.as_mut().poll(&mut Context::from_waker(&waker)) else {
            panic!("key {key} is ready");
        };
        assert_eq!(*item.key(), key);
    }
}

/// Panics at its first pops.
struct PanicsTwice(Vec<Ticket>, u32);
impl ReadyOrder<u32> for PanicsTwice {
    fn push(&mut self, _: &u32, ticket: Ticket) {
        self.0.push(ticket);
    }
    fn pop(&mut self) -> Option<Ticket> {
        self.1 += 1;
        assert!(self.1 > 2, "as told");
        self.0.pop()
    }
}

#[test]
fn w_a_thread_survives_an_order_that_panics_as_it_takes_a_key() {
    let q = WorkQueue::builder()
        .order(Order::Custom(Box::new(PanicsTwice(Vec::new(), 0))))
        .build()
        .expect("no metrics");
    q.add(1).expect("open");
    let worker = Worker::of(&q).workers(1).start_threads(|_| ()).expect("a thread");
    let report = worker.drain(Duration::MAX).wait();
    assert_eq!((report.complete, report.done), (true, 1));
    worker.join();
}

/// A panic payload, or an error, whose drop panics with another.
#[derive(Debug)]
struct Bomb;
impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any(Bomb);
    }
}
impl std::fmt::Display for Bomb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a bomb")
    }
}
impl std::error::Error for Bomb {}

#[test]
fn w_payloads_and_errors_that_panic_when_dropped_end_nothing_else() {
    let q = WorkQueue::<u32>::builder().clock(FakeClock::new()).build().expect("no metrics");
    for key in 0..3 {
        q.add(key).expect("open");
    }
    let worker = Worker::of(&q).workers(1).on_failure(|_, _| std::panic::panic_any(Bomb));
    let worker = worker
        .start_threads(|run| match run.key() {
            0 => std::panic::panic_any(Bomb),
            1 => Outcome::Retry(Box::new(Bomb)),
            _ => Outcome::Done,
        })
        .expect("a thread");
    while q.stats().waiting < 2 || !q.is_empty() || q.stats().held > 0 {
        std::thread::yield_now();
    }
    assert_eq!((q.num_requeues(&0), q.num_requeues(&1), q.num_requeues(&2)), (1, 1, 0));
    assert_eq!(worker.stop(Duration::MAX).wait().done, 3);
}

#[test]
fn w_a_key_whose_limiter_panics_is_given_up_not_lost() {
    struct Panics;
    impl RateLimiter<u32> for Panics {
        fn when(&self, _: &u32, _: Instant) -> Duration {
            panic!("as told")
        }
        fn forget(&self, _: &u32) {}
        fn num_requeues(&self, _: &u32) -> u32 {
            0
        }
    }
    let q = WorkQueue::builder().limiter(Panics).build().expect("no metrics");
    q.add(1).expect("open");
    let told = Arc::new(Count::default());
    let given_up = told.clone();
    let worker = Worker::of(&q)
        .workers(1)
        .on_give_up(move |_, why| {
            assert!(why.to_string().contains("as told"));
            given_up.clone().wake();
        })
        .start_threads(|_| Outcome::Retry("no".into()))
        .expect("a thread");
    while told.0.load(SeqCst) == 0 {
        std::thread::yield_now();
    }
    assert!(worker.drain(Duration::MAX).wait().complete);
    assert_eq!((told.0.load(SeqCst), q.stats().known), (1, 0));
}

/// A clock that panics when it is told to.
struct Panics(FakeClock, Arc<AtomicUsize>);
impl Clock for Panics {
    fn now(&self) -> Instant {
        let left = self.1.load(SeqCst);
        if left > 0 {
            self.1.store(left - 1, SeqCst);
            panic!("as told");
        }
        self.0.now()
    }
    fn wake_at(&self, at: Instant, waker: &Waker) -> requeue::Alarm {
        self.0.wake_at(at, waker)
    }
}

/// Metrics that are never read.
struct Deaf;
impl Metrics for Deaf {}

#[test]
fn q12_a_clock_that_panics_leaves_no_key_held() {
    let panics = Arc::new(AtomicUsize::new(0));
    // with metrics every call reads the clock
    let q = WorkQueue::builder()
        .clock(Panics(FakeClock::new(), panics.clone()))
        .name("awkward")
        .metrics(Deaf)
        .build()
        .expect("a name");
    let ends: [fn(requeue::Item<'_, u32>); 4] = [
        |item| drop(item),
        |item| item.done(),
        |item| drop(item.next()),
        |item| {
            // it must panic: a key that was taken out would owe its done
            let (key, _) = item.detach();
            panic!("{key} was detached");
        },
    ];
    for end in ends {
        q.add(1).expect("open");
        let item = q.try_get().expect("ready");
        panics.store(1, SeqCst);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| end(item)));
        panics.store(0, SeqCst);
        drop(caught);
        assert_eq!(q.stats().held, 0);
    }
}

#[test]
fn rules_the_delay_of_a_limiter_counts_from_when_it_was_asked() {
    struct Thinks(FakeClock, WorkQueue<u32>);
    impl RateLimiter<u32> for Thinks {
        fn when(&self, _: &u32, _: Instant) -> Duration {
            self.0.advance(SEC * 10);
            assert!(self.1.is_empty());
            SEC * 15
        }
        fn forget(&self, _: &u32) {}
        fn num_requeues(&self, _: &u32) -> u32 {
            0
        }
    }
    let clock = FakeClock::new();
    let other = WorkQueue::new();
    let q =
        WorkQueue::builder().clock(clock.clone()).limiter(Thinks(clock.clone(), other)).build().expect("ok");
    q.add_rate_limited(1).expect("open");
    let due = q.state(&1).and_then(|s| s.waiting_until).expect("it waits");
    assert_eq!(due, Instant::ORIGIN + SEC * 15);
}

#[test]
fn users_waiting_keys_that_panic_when_dropped_abort_nothing_and_take_no_key() {
    #[derive(PartialEq, Eq, Hash)]
    struct Key(u32);
    impl Drop for Key {
        fn drop(&mut self) {
            assert!(self.0 == 1, "as told");
        }
    }
    let clock = FakeClock::new();
    let q = WorkQueue::<Key>::builder().clock(clock.clone()).build().expect("no metrics");
    for key in [2, 3] {
        q.add_after(Key(key), SEC * 9).expect("open");
    }
    q.add(Key(1)).expect("open");
    q.shut_down();
    let item = q.try_get().expect("it is ready");
    assert_eq!(item.key().0, 1);
}

#[test]
fn w_the_report_of_a_stop_is_exact_whatever_the_threads_do() {
    for _ in 0..200 {
        let q = WorkQueue::<u32>::new();
        let worker = Worker::of(&q).workers(3).start_threads(|_| ()).expect("threads");
        let report = worker.stop(Duration::ZERO).wait();
        assert_eq!((report.complete, report.cancelled, report.still_running), (true, 0, 0));
    }
}

/// So large that the queue keeps no empty chunk of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Large([u64; 40]);

#[derive(Default)]
struct Runs(std::sync::Mutex<Vec<Duration>>, std::sync::Mutex<Option<Read>>);

type Read = Arc<dyn Fn() -> Option<Gauges> + Send + Sync>;

impl Metrics for Runs {
    fn run_ended(&self, took: Duration, _: RunEnd) {
        self.0.lock().unwrap().push(took);
    }
    fn attach(&self, _: &str, _: &[(String, String)], gauges: Read) {
        *self.1.lock().unwrap() = Some(gauges);
    }
}

#[test]
fn the_last_large_key_of_a_chunk_takes_its_timestamps_with_it_only_when_its_run_has_ended() {
    let (clock, runs) = (FakeClock::new(), Arc::new(Runs::default()));
    clock.advance(Duration::from_secs(1_000));
    let q = WorkQueue::builder().clock(clock.clone()).name("large").metrics(runs.clone()).build().unwrap();
    for i in 0..3 {
        q.add(Large([i; 40])).unwrap_or_else(|_| panic!("open"));
        let item = q.try_get().expect("ready");
        clock.advance(Duration::from_secs(2));
        item.done();
    }
    assert_eq!(*runs.0.lock().unwrap(), [Duration::from_secs(2); 3]);
    q.add(Large([9; 40])).unwrap_or_else(|_| panic!("open"));
    let held = q.try_get().expect("ready");
    clock.advance(Duration::from_secs(5));
    let gauges = runs.1.lock().unwrap().as_ref().and_then(|gauges| gauges()).expect("it lives");
    assert_eq!(
        (gauges.unfinished_work, gauges.longest_running),
        (Duration::from_secs(5), Duration::from_secs(5))
    );
    drop(held);
}

#[test]
fn a_batch_of_all_ends_although_keys_come_faster_than_room_is_made_for_them() {
    let q = WorkQueue::<u64>::new();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            let mut key = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                q.add(key).expect("open");
                key += 1;
            }
        });
        while q.len() < 1_000 {
            std::thread::yield_now();
        }
        let batch = q.try_get_many(usize::MAX);
        // before the test can fail: the scope waits for the thread
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(batch.expect("ready").len() >= 256);
    });
}

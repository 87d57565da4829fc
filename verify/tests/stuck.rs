//! Tasks that were woken and are not polled, next to idle threads and tasks: no caller waits for them. And
//! users' code that blocks in one queue, next to another.
//!
//! The tests on the system's clock have no time limit but a guard, and a stuck task stays stuck until the
//! others have done their part: so the guard's time makes no difference. The tests on the fake clock check
//! when the next caller is woken.

use requeue::{Alarm, Clock, DrainOptions, FakeClock, Instant, Metrics, WaitingKeys, WorkQueue};
use requeue_verify::wake::Count;
use requeue_verify::watchdog::run;
use std::collections::BTreeSet;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

/// A wait that takes longer has failed.
const GUARD: Duration = Duration::from_secs(120);
const HOUR: Duration = Duration::from_secs(3_600);
/// Time after which an unanswered wake-up is passed on to the next waiting caller.
const PASSED_ON: Duration = Duration::from_millis(10);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn on_fake_clock() -> (WorkQueue<u32>, FakeClock) {
    let clock = FakeClock::new();
    (WorkQueue::builder().clock(clock.clone()).build().expect("no metrics"), clock)
}

/// Getters that do nothing else, on threads of their own.
struct Idle {
    q: WorkQueue<u32>,
    ran: Receiver<u32>,
    threads: Vec<JoinHandle<()>>,
}

impl Idle {
    fn new(q: &WorkQueue<u32>, n: usize, work: fn(&WorkQueue<u32>, &Sender<u32>)) -> Self {
        let before = q.stats().waiters;
        let (tell, ran) = channel();
        let start = |_| {
            let (q, tell) = (q.clone(), tell.clone());
            thread::spawn(move || work(&q, &tell))
        };
        let threads = (0..n).map(start).collect();
        while q.stats().waiters < before + n {
            thread::yield_now();
        }
        Self { q: q.clone(), ran, threads }
    }

    /// `n` threads that block.
    fn threads(q: &WorkQueue<u32>, n: usize) -> Self {
        Self::new(q, n, |q, ran| {
            while let Some(item) = q.get_blocking() {
                ran.send(*item.key()).expect("the test listens");
            }
        })
    }

    /// A task in a separate runtime.
    fn task(q: &WorkQueue<u32>) -> Self {
        Self::new(q, 1, |q, ran| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(async {
                while let Some(item) = q.get().await {
                    ran.send(*item.key()).expect("the test listens");
                }
            });
        })
    }

    /// The next key that one of them runs.
    fn runs(&self) -> u32 {
        self.ran.recv_timeout(GUARD).expect("an idle getter runs the key, whoever else was woken")
    }

    fn end(self) {
        self.q.shut_down();
        for thread in self.threads {
            thread.join().expect("no panic");
        }
    }
}

#[test]
fn d4_a_key_beside_a_task_that_awaits_something_else_is_run_by_an_idle_thread() {
    run("d4_a_key_beside_a_task_that_awaits_something_else_is_run_by_an_idle_thread", || {
        let q = WorkQueue::new();
        let idle = Idle::threads(&q, 4);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let mut get = std::pin::pin!(q.get());
            tokio::select! {
                biased;
                _ = &mut get => panic!("there is no key"),
                () = tokio::time::sleep(ms(20)) => {}
            }
            q.add(1).expect("open");
            assert_eq!(idle.runs(), 1);
        });
        idle.end();
    });
}

#[test]
fn d4_a_first_timer_beside_a_task_that_is_not_polled_is_served_by_an_idle_thread() {
    run("d4_a_first_timer_beside_a_task_that_is_not_polled_is_served_by_an_idle_thread", || {
        let q = WorkQueue::new();
        let idle = Idle::threads(&q, 1);
        let mut stuck = q.get();
        assert!(Count::new().poll(&mut stuck).is_pending());
        q.add_after(1, ms(5)).expect("open");
        assert_eq!(idle.runs(), 1);
        idle.end();
    });
}

#[test]
fn d4_a_sooner_timer_beside_a_task_that_is_not_polled_is_served_by_whoever_is_idle() {
    run("d4_a_sooner_timer_beside_a_task_that_is_not_polled_is_served_by_whoever_is_idle", || {
        for who in [|q: &_| Idle::threads(q, 1), Idle::task] {
            let q = WorkQueue::new();
            q.add_after(9, HOUR).expect("open");
            let idle = who(&q);
            let mut stuck = q.get();
            assert!(Count::new().poll(&mut stuck).is_pending());
            for key in 1..4 {
                q.add_after(key, ms(5)).expect("open");
                assert_eq!(idle.runs(), key);
            }
            idle.end();
        }
    });
}

#[test]
fn d4_of_two_runtimes_of_which_one_is_busy_the_idle_one_gets_the_key() {
    run("d4_of_two_runtimes_of_which_one_is_busy_the_idle_one_gets_the_key", || {
        let q = WorkQueue::new();
        let idle = Idle::task(&q);
        let busy = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        busy.block_on(async {
            for _ in 0..10 {
                let q = q.clone();
                tokio::spawn(async move { drop(q.get().await) });
            }
            while q.stats().waiters < 11 {
                tokio::task::yield_now().await;
            }
            // from here on this runtime polls nobody
            q.add(1).expect("open");
            assert_eq!(idle.runs(), 1);
            q.add_after(2, ms(5)).expect("open");
            assert_eq!(idle.runs(), 2);
        });
        drop(busy);
        idle.end();
    });
}

#[test]
fn q11_a_drain_behind_a_task_that_is_not_polled_is_worked_off_by_whoever_is_idle() {
    run("q11_a_drain_behind_a_task_that_is_not_polled_is_worked_off_by_whoever_is_idle", || {
        for who in [|q: &_| Idle::threads(q, 2), Idle::task] {
            let q = WorkQueue::new();
            let idle = who(&q);
            let mut stuck = q.get();
            assert!(Count::new().poll(&mut stuck).is_pending());
            q.add(1).expect("open");
            q.add_after(2, ms(30)).expect("open");
            let options = DrainOptions::default().waiting_keys(WaitingKeys::Wait).timeout(GUARD);
            let drained = q.drain(options).wait();
            assert!(drained.complete, "{drained:?}");
            // in the order in which the getters tell of them, which of two threads may be the other one
            let ran = BTreeSet::from([idle.runs(), idle.runs()]);
            assert_eq!(ran, BTreeSet::from([1, 2]));
            idle.end();
        }
    });
}

/// A sink that reports a fired timer, and continues when it is told to.
struct Blocks(Sender<()>, Mutex<Receiver<()>>);
impl Metrics for Blocks {
    fn timer_fired(&self, _: Duration) {
        let _ = self.0.send(());
        let _ = self.1.lock().expect("one at a time").recv();
    }
}

#[test]
fn m_a_sink_that_blocks_delays_no_timer_of_another_queue() {
    run("m_a_sink_that_blocks_delays_no_timer_of_another_queue", || {
        let ((tell, told), (go_on, wait)) = (channel(), channel());
        let sink = Blocks(tell, Mutex::new(wait));
        let slow = WorkQueue::builder().name("slow").metrics(sink).build().expect("a name");
        let in_slow = Idle::task(&slow);
        slow.add_after(1, ms(5)).expect("open");
        told.recv_timeout(GUARD).expect("the timer fires");
        // somebody is in the sink now, and stays there
        let q = WorkQueue::new();
        let idle = Idle::task(&q);
        q.add_after(2, ms(50)).expect("open");
        assert_eq!(idle.runs(), 2);
        drop(go_on);
        assert_eq!(in_slow.runs(), 1);
        in_slow.end();
        idle.end();
    });
}

/// The clock is the fake one so that no task can be too late: the counts depend only on whose turn it is.
#[test]
fn q6_of_as_many_threads_as_tasks_neither_get_less_than_a_quarter_of_the_keys() {
    run("q6_of_as_many_threads_as_tasks_neither_get_less_than_a_quarter_of_the_keys", || {
        const KEYS: u32 = 600;
        let (q, _clock) = on_fake_clock();
        let threads = Idle::threads(&q, 4);
        let tasks: Vec<_> = (0..4).map(|_| Idle::task(&q)).collect();
        for key in 0..KEYS {
            while q.stats().waiters < 8 {
                thread::yield_now();
            }
            q.add(key).expect("open");
        }
        let drained = q.drain(DrainOptions::default()).wait();
        assert!(drained.complete);
        let by_threads = threads.ran.try_iter().count();
        let by_tasks: usize = tasks.iter().map(|task| task.ran.try_iter().count()).sum();
        assert_eq!(by_threads + by_tasks, KEYS as usize);
        let quarter = KEYS as usize / 4;
        assert!(by_threads >= quarter && by_tasks >= quarter, "{by_threads} and {by_tasks}");
        threads.end();
        tasks.into_iter().for_each(Idle::end);
    });
}

/// Two getters that wait as tasks: one is polled again when the test wants it, and the other, which came
/// last, never.
macro_rules! idle_and_stuck {
    ($q:expr, $idle:ident, $get:ident, $stuck:ident) => {
        let ($idle, $stuck) = (Count::new(), Count::new());
        let (mut $get, mut never) = ($q.get(), $q.get());
        assert!($idle.poll(&mut $get).is_pending());
        assert!($stuck.poll(&mut never).is_pending());
    };
}

#[test]
fn d4_a_wake_up_that_a_task_does_not_answer_goes_to_the_next_after_some_milliseconds() {
    let (q, clock) = on_fake_clock();
    idle_and_stuck!(q, idle, get, stuck);
    q.add(1).expect("open");
    assert_eq!((idle.wakes(), stuck.wakes()), (0, 1));
    clock.advance(PASSED_ON);
    assert_eq!(idle.wakes(), 1);
    let Poll::Ready(Some(item)) = idle.poll(&mut get) else { panic!("it is ready") };
    assert_eq!(*item.key(), 1);
    item.done();
    // and the queue goes on without the stuck one
    let mut get = q.get();
    assert!(idle.poll(&mut get).is_pending());
    q.add(2).expect("open");
    assert_eq!(idle.wakes(), 2);
    assert!(idle.poll(&mut get).is_ready());
}

#[test]
fn d4_no_task_is_needed_to_set_the_alarm_nor_to_fire_the_timer() {
    let (q, clock) = on_fake_clock();
    idle_and_stuck!(q, idle, get, stuck);
    q.add_after(1, ms(50)).expect("open");
    assert_eq!(clock.next_alarm(), Some(Instant::ORIGIN + ms(50)));
    q.add_after(2, ms(5)).expect("open");
    assert_eq!(clock.next_alarm(), Some(Instant::ORIGIN + ms(5)));
    assert_eq!((idle.wakes(), stuck.wakes()), (0, 0));
    clock.advance(ms(5));
    assert_eq!((idle.wakes(), stuck.wakes()), (0, 1));
    clock.advance(PASSED_ON);
    let Poll::Ready(Some(item)) = idle.poll(&mut get) else { panic!("it is due") };
    assert_eq!((idle.wakes(), *item.key()), (1, 2));
    item.done();
    let mut get = q.get();
    assert!(idle.poll(&mut get).is_pending());
    clock.advance(ms(50));
    assert!(idle.poll(&mut get).is_ready());
}

#[test]
fn d4_a_woken_task_that_gives_up_as_it_counts_as_lost_loses_no_wake_up() {
    // it gives up before the watch rings, after, and after others were woken for it
    for late in [ms(0), ms(3), PASSED_ON] {
        let (q, clock) = on_fake_clock();
        let (idle, stuck) = (Count::new(), Count::new());
        let (mut get, mut leaves) = (q.get(), q.get());
        assert!(idle.poll(&mut get).is_pending());
        assert!(stuck.poll(&mut leaves).is_pending());
        q.add(1).expect("open");
        clock.advance(late);
        drop(leaves);
        assert_eq!(idle.wakes(), 1, "{late:?}");
        assert!(idle.poll(&mut get).is_ready());
        clock.advance(HOUR);
        assert_eq!(clock.alarms(), 0);
    }
}

#[test]
fn d4_a_shutdown_while_a_wake_up_is_not_answered_releases_everybody() {
    let (q, clock) = on_fake_clock();
    idle_and_stuck!(q, idle, get, stuck);
    q.add(1).expect("open");
    q.shut_down();
    assert_eq!((idle.wakes(), stuck.wakes()), (0, 1), "a key is left");
    clock.advance(PASSED_ON);
    assert_eq!(idle.wakes(), 1);
    let Poll::Ready(Some(item)) = idle.poll(&mut get) else { panic!("it is ready") };
    item.done();
    assert!(matches!(Count::new().poll(&mut q.get()), Poll::Ready(None)));
}

#[test]
fn q11_a_drain_waits_for_no_task_that_is_not_polled() {
    let (q, clock) = on_fake_clock();
    idle_and_stuck!(q, idle, get, stuck);
    q.add(1).expect("open");
    assert_eq!(stuck.wakes(), 1);
    let drains = Count::new();
    let mut drain = q.drain(DrainOptions::default());
    assert!(drains.poll(&mut drain).is_pending());
    clock.advance(PASSED_ON);
    assert_eq!(idle.wakes(), 1);
    let Poll::Ready(Some(item)) = idle.poll(&mut get) else { panic!("it is ready") };
    item.done();
    assert_eq!(drains.wakes(), 1);
    assert!(matches!(drains.poll(&mut drain), Poll::Ready(drained) if drained.complete));
}

/// Counts how often the queue asks it for the time and for a watch.
#[derive(Clone)]
struct Counted(FakeClock, Arc<[AtomicUsize; 2]>);
impl Clock for Counted {
    fn now(&self) -> Instant {
        self.1[0].fetch_add(1, Ordering::SeqCst);
        self.0.now()
    }
    fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm {
        self.0.wake_at(at, waker)
    }
    fn watch_at(&self, at: Instant, waker: &Waker) -> Alarm {
        self.1[1].fetch_add(1, Ordering::SeqCst);
        self.0.watch_at(at, waker)
    }
}

#[test]
fn d4_tasks_that_come_cost_no_alarm_and_no_reading_of_the_clock_each() {
    let clock = Counted(FakeClock::new(), Arc::default());
    let q = WorkQueue::<u32>::builder().clock(clock.clone()).build().expect("no metrics");
    let woken = Count::new();
    let mut others = q.get();
    assert!(Count::new().poll(&mut others).is_pending());
    for key in 0..1_000 {
        let mut get = q.get();
        assert!(woken.poll(&mut get).is_pending());
        q.add(key).expect("open");
        let Poll::Ready(Some(item)) = woken.poll(&mut get) else { panic!("it is ready") };
        item.done();
    }
    let read = clock.1.each_ref().map(|count| count.load(Ordering::SeqCst));
    assert_eq!((woken.wakes(), read), (1_000, [1, 1]));
    // it rings, finds nobody on the way, and is not set again
    clock.0.advance(HOUR);
    assert_eq!(clock.1[1].load(Ordering::SeqCst), 1);
}

#[test]
fn d10_the_thread_that_rings_fires_no_timer_and_tells_no_sink() {
    #[derive(Default)]
    struct Fired(AtomicUsize);
    impl Metrics for Fired {
        fn timer_fired(&self, _: Duration) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (clock, fired) = (FakeClock::new(), Arc::new(Fired::default()));
    let builder = WorkQueue::<u32>::builder().clock(clock.clone()).name("q").metrics(fired.clone());
    let q = builder.build().expect("a name");
    q.add_after(1, ms(5)).expect("open");
    let woken = Count::new();
    let mut get = q.get();
    assert!(woken.poll(&mut get).is_pending());
    clock.advance(ms(5));
    assert_eq!((woken.wakes(), fired.0.load(Ordering::SeqCst)), (1, 0));
    assert!(woken.poll(&mut get).is_ready());
    assert_eq!(fired.0.load(Ordering::SeqCst), 1);
}

/// A key that reports the thread on which it is dropped.
struct Key(u32, Sender<ThreadId>);
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for Key {}
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
impl Drop for Key {
    fn drop(&mut self) {
        let _ = self.1.send(thread::current().id());
    }
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task that drops itself as it is woken, and with it the last that keeps the queue.
#[test]
fn d10_the_keys_of_a_queue_that_goes_as_it_rings_are_dropped_on_another_thread() {
    run("d10_the_keys_of_a_queue_that_goes_as_it_rings_are_dropped_on_another_thread", || {
        let (clock, (tell, told)) = (FakeClock::new(), channel());
        let q = WorkQueue::builder().clock(clock.clone()).build().expect("no metrics");
        for key in 0..2 {
            q.add_after(Key(key, tell.clone()), ms(5)).unwrap_or_else(|_| panic!("open"));
        }
        let task: Arc<Mutex<Option<Task>>> = Arc::default();
        let dies = task.clone();
        let waker = Count::then(move || drop(dies.lock().expect("nobody panics").take()));
        let mut future: Task = Box::pin(async move { drop(q.get().await) });
        assert!(waker.poll(&mut future).is_pending());
        *task.lock().expect("nobody panics") = Some(future);
        clock.advance(ms(5));
        for _ in 0..2 {
            assert_ne!(told.recv_timeout(GUARD).expect("both are dropped"), thread::current().id());
        }
    });
}

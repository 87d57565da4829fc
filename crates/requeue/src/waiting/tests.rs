//! Tests of the waiters' alarms: as many as needed, and none left behind.

use crate::{Add, Alarm, Clock, Debounce, DrainOptions, FakeClock, Instant, WaitingKeys, WorkQueue};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A clock that counts alarms requested and alarms set.
#[derive(Clone, Default)]
struct Counting {
    time: FakeClock,
    asked: Arc<AtomicUsize>,
    set: Arc<AtomicUsize>,
}

impl Counting {
    fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
    fn set(&self) -> usize {
        self.set.load(SeqCst)
    }
}

impl Clock for Counting {
    fn now(&self) -> Instant {
        self.time.now()
    }
    fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm {
        self.asked.fetch_add(1, SeqCst);
        self.set.fetch_add(1, SeqCst);
        let (alarm, set) = (self.time.wake_at(at, waker), self.set.clone());
        Alarm::on_drop(move || {
            drop(alarm);
            set.fetch_sub(1, SeqCst);
        })
    }
}

fn queue() -> (WorkQueue<u32>, Counting) {
    let clock = Counting::default();
    (WorkQueue::builder().clock(clock.clone()).build().expect("a queue"), clock)
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_wait_that_the_same_task_polls_again_asks_the_clock_for_its_deadline_once() {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let (q, clock) = queue();
    let (mut get, task) = (q.get().timeout(10 * MS), Waker::from(Arc::new(Task)));
    for _ in 0..3 {
        assert!(Pin::new(&mut get).poll(&mut Context::from_waker(&task)).is_pending());
        assert_eq!((clock.asked(), clock.set()), (1, 1));
    }
}

#[test]
fn a_wait_whose_deadline_never_comes_asks_nothing_of_the_clock() {
    let (q, clock) = queue();
    let (mut after, mut at) = (q.get().timeout(Duration::MAX), q.get().timeout(Instant::NEVER));
    assert!(poll(&mut after).is_pending() && poll(&mut at).is_pending());
    assert_eq!(clock.asked(), 0);
}

#[test]
fn whoever_is_the_last_to_leave_takes_the_alarm_for_the_next_timer_back() {
    let (q, clock) = queue();
    q.add_after(1, 1_000 * MS).unwrap();
    let (mut first, mut last) = (q.get().timeout(10 * MS), q.get());
    assert!(poll(&mut first).is_pending() && poll(&mut last).is_pending());
    assert_eq!(clock.set(), 2, "the deadline's and the timer's");
    clock.time.advance(10 * MS);
    assert!(poll(&mut first).is_ready());
    assert_eq!(clock.set(), 1, "somebody still waits for the timer");
    drop(last);
    assert_eq!(clock.set(), 0, "who waits no longer");
    let mut alone = q.get().timeout(10 * MS);
    assert!(poll(&mut alone).is_pending());
    assert_eq!(clock.set(), 2);
    clock.time.advance(10 * MS);
    assert!(poll(&mut alone).is_ready());
    assert_eq!(clock.set(), 0, "whose time is up");
}

#[test]
fn debug_output_of_a_get_tells_whether_it_waits() {
    let (q, _) = queue();
    let (mut get, mut many) = (q.get(), q.get_many(3));
    for waiting in ["waiting: false", "waiting: true"] {
        let text = [format!("{get:?}"), format!("{many:?}")];
        assert!(text.iter().all(|text| text.contains(waiting)), "{text:?}");
        assert!(poll(&mut get).is_pending() && poll(&mut many).is_pending());
    }
}

#[test]
fn b4_a_drain_that_is_polled_ends_beside_a_window_that_owes_no_run() {
    let clock = FakeClock::new();
    let q = WorkQueue::<u32>::builder().clock(clock.clone()).build().expect("a queue");
    q.add_with(1, Add::debounced(Debounce::new(MS).leading())).expect("open");
    let item = q.try_get().expect("the leading edge");
    let mut drain = q.drain(DrainOptions::default().waiting_keys(WaitingKeys::Wait));
    let told = Arc::new(Told::default());
    let waker = Waker::from(told.clone());
    let mut cx = Context::from_waker(&waker);
    assert!(Pin::new(&mut drain).poll(&mut cx).is_pending(), "its run goes on");
    item.done();
    assert_eq!(told.0.load(SeqCst), 1, "the drain is told");
    assert!(Pin::new(&mut drain).poll(&mut cx).is_ready());
}

#[derive(Default)]
struct Told(AtomicUsize);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

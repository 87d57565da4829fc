//! Users' code that runs under the queue's lock and calls the queue: it would wait for itself for ever, and panics.
#![cfg(not(any(requeue_loom, requeue_counted)))]

use requeue::limiter::RateLimiter;
use requeue::{
    Add, DrainOptions, GetError, Instant, Order, ReadyOrder, Scope, Ticket, UnfinishedKey, WorkQueue,
};
use requeue_verify::watchdog;
use std::cell::RefCell;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Once};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

type Call = Box<dyn FnOnce()>;
type Queue = Arc<WorkQueue<Key, Load>>;

/// Users' code that runs under the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Eq,
    Merge,
    DropOfAValue,
    GroupBy,
    HashOfAGroup,
    EqOfAGroup,
    Weight,
    Push,
    Touch,
    Pop,
    Leave,
}

thread_local! {
    /// The call of this thread's next users' code of this kind.
    static CALL: RefCell<Option<(Code, Call)>> = const { RefCell::new(None) };
}

/// Users' code of this kind runs.
fn runs(code: Code) {
    let armed = CALL.take();
    match armed {
        Some((kind, call)) if kind == code => call(),
        other => CALL.set(other),
    }
}

#[derive(Clone, Debug)]
struct Key(u32);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        runs(Code::Eq);
        self.0 == other.0
    }
}

impl Eq for Key {}

#[derive(Debug, Default)]
struct Load;

impl Drop for Load {
    fn drop(&mut self) {
        runs(Code::DropOfAValue);
    }
}

struct Group(u32);

impl Hash for Group {
    fn hash<H: Hasher>(&self, state: &mut H) {
        runs(Code::HashOfAGroup);
        self.0.hash(state);
    }
}

impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        runs(Code::EqOfAGroup);
        self.0 == other.0
    }
}

impl Eq for Group {}

#[derive(Default)]
struct Stack(Vec<Ticket>);

impl ReadyOrder<Key> for Stack {
    fn push(&mut self, _: &Key, ticket: Ticket) {
        runs(Code::Push);
        self.0.push(ticket);
    }
    fn touch(&mut self, _: &Key, _: Ticket) {
        runs(Code::Touch);
    }
    fn pop(&mut self) -> Option<Ticket> {
        runs(Code::Pop);
        self.0.pop()
    }
    fn leave(&mut self, _: &Key, ticket: Ticket) {
        runs(Code::Leave);
        self.0.retain(|known| *known != ticket);
    }
}

/// A queue on which this code can run, with key 1 ready.
fn queue(code: Code) -> Queue {
    queue_with(code, false)
}

fn queue_with(code: Code, retries: bool) -> Queue {
    let builder = WorkQueue::merging(|old: &mut Load, new| {
        runs(Code::Merge);
        *old = new;
    });
    let builder = builder.retry_dropped(retries);
    let built = match code {
        Code::Push | Code::Touch | Code::Pop | Code::Leave => {
            builder.order(Order::Custom(Box::new(Stack::default()))).build()
        }
        _ => {
            let weight = |_: &Group| {
                runs(Code::Weight);
                1
            };
            let group = |key: &Key| {
                runs(Code::GroupBy);
                Group(key.0 % 2)
            };
            builder.group_by_with(group, requeue::GroupRules::new().weight(weight)).build()
        }
    };
    let q = Arc::new(built.expect("these go together"));
    q.add_value(Key(1), Load).expect("open");
    q
}

/// A call in which this code runs.
fn outer(code: Code, q: &Queue) {
    match code {
        Code::Eq | Code::Touch => drop(q.add(Key(1))),
        Code::Merge | Code::DropOfAValue => drop(q.add_value(Key(1), Load)),
        Code::GroupBy | Code::HashOfAGroup | Code::EqOfAGroup | Code::Push => drop(q.add(Key(3))),
        Code::Weight => drop(q.add(Key(2))),
        Code::Pop => drop(q.try_get()),
        Code::Leave => drop(q.cancel(&Key(1))),
    }
}

fn poll<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A way into the queue, and what it is called.
type Entry = (&'static str, fn(&Queue));

/// Every way into the queue.
fn entries() -> Vec<Entry> {
    vec![
        ("add", |q| drop(q.add(Key(7)))),
        ("add_value", |q| drop(q.add_value(Key(7), Load))),
        ("add_with", |q| drop(q.add_with(Key(7), Add::after(Duration::from_secs(1))))),
        ("add_after", |q| drop(q.add_after(Key(7), Duration::from_secs(1)))),
        ("add_rate_limited", |q| drop(q.add_rate_limited(Key(7)))),
        ("add_ref", |q| _ = q.add_ref(&Key(7))),
        ("add_many", |q| drop(q.add_many([Key(7), Key(8)]))),
        ("add_when_room", |q| drop(poll(q.add_when_room(Key(7), Add::now())))),
        ("restore", |q| drop(q.restore(UnfinishedKey::new(Key(7))))),
        ("try_get", |q| drop(q.try_get())),
        ("try_get_many", |q| drop(q.try_get_many(2))),
        ("get_blocking", |q| drop(q.get_blocking())),
        ("a get with a deadline", |q| drop(q.get().timeout(Duration::from_secs(1)).wait())),
        ("a task's get", |q| drop(poll(q.get()))),
        ("a task's get_many", |q| drop(poll(q.get_many(2)))),
        ("a getter's get", |q| drop(q.getter().try_get())),
        ("len", |q| _ = q.len()),
        ("stats", |q| _ = q.stats()),
        ("state", |q| _ = q.state(&Key(1))),
        ("explain", |q| _ = q.explain(&Key(1))),
        ("snapshot", |q| _ = q.snapshot().count()),
        ("done", |q| _ = q.done(&Key(1))),
        ("cancel", |q| drop(q.cancel(&Key(1)))),
        ("forget", |q| q.forget(&Key(1))),
        ("num_requeues", |q| _ = q.num_requeues(&Key(1))),
        ("pause", |q| _ = q.pause(Scope::Queue)),
        ("resume", |q| _ = q.resume(Scope::Queue)),
        ("pause_key", |q| _ = q.pause(Scope::Key(Key(1)))),
        ("resume_key", |q| _ = q.resume(Scope::Key(&Key(1)))),
        ("pause_group", |q| _ = q.pause(Scope::GroupOf(Key(1)))),
        ("is_paused", |q| _ = q.paused(Scope::Queue)),
        ("phase", |q| _ = q.phase()),
        ("close", |q| q.close()),
        ("shut_down", |q| _ = q.shut_down()),
        ("a thread's drain", |q| _ = q.drain(DrainOptions::default()).wait()),
        ("a task's drain", |q| _ = poll(q.drain(DrainOptions::default()))),
    ]
}

const CODES: [Code; 11] = [
    Code::Eq,
    Code::Merge,
    Code::DropOfAValue,
    Code::GroupBy,
    Code::HashOfAGroup,
    Code::EqOfAGroup,
    Code::Weight,
    Code::Push,
    Code::Touch,
    Code::Pop,
    Code::Leave,
];

const WORDS: &str = "a queue was called from code that it runs under its own lock";

/// The text of a panic.
fn text(panic: &dyn std::any::Any) -> &str {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    said.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default()
}

/// Hundreds of panics are expected: only others are written.
fn expect_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !text(info.payload()).contains(WORDS) {
                hook(info);
            }
        }));
    });
}

/// Asserts that `outer` panics in words that name the mistake, with `call` in this users' code.
fn is_told(what: &str, code: Code, call: impl FnOnce() + 'static, outer: impl FnOnce()) {
    expect_panics();
    CALL.set(Some((code, Box::new(call))));
    let panic = catch_unwind(AssertUnwindSafe(outer));
    assert!(CALL.take().is_none(), "{code:?} did not run");
    let Err(panic) = panic else { panic!("{what} in {code:?} went through") };
    let said = text(&*panic);
    assert!(said.contains(WORDS), "{what} in {code:?}: {said}");
}

/// Asserts that the queue still works.
fn goes_on(q: &Queue) {
    assert_eq!(q.phase(), requeue::Phase::Open, "the call that panicked did nothing");
    q.add(Key(5)).expect("open");
    let mut keys: Vec<_> = std::iter::from_fn(|| q.try_get().ok()).map(|item| item.key().0).collect();
    keys.sort_unstable();
    keys.retain(|key| *key != 2 && *key != 3);
    assert_eq!(keys, [1, 5]);
}

#[test]
fn users_code_under_the_lock_that_calls_the_queue_panics_with_words_whichever_call_it_is() {
    watchdog::run("reentry", || {
        for code in CODES {
            for (what, entry) in entries() {
                let q = queue(code);
                let inner = Arc::clone(&q);
                is_told(what, code, move || entry(&inner), || outer(code, &q));
                goes_on(&q);
            }
        }
    });
}

#[test]
fn users_code_under_the_lock_of_a_get_or_a_batch_that_a_task_polls_is_told_too() {
    watchdog::run("reentry in tasks", || {
        for (what, entry) in entries() {
            let q = queue(Code::Pop);
            let inner = Arc::clone(&q);
            is_told(what, Code::Pop, move || entry(&inner), || drop(poll(q.get())));
            goes_on(&q);
            let q = queue(Code::Merge);
            let inner = Arc::clone(&q);
            let batch = || drop(q.add_many_with([(Key(1), Add::now().value(Load))]));
            is_told(what, Code::Merge, move || entry(&inner), batch);
            goes_on(&q);
        }
    });
}

#[test]
fn users_code_under_the_lock_that_drops_a_guard_or_a_waiting_get_is_told() {
    watchdog::run("reentry by a drop", || {
        for code in [Code::Eq, Code::Merge, Code::DropOfAValue, Code::GroupBy, Code::Push] {
            let q = queue(code);
            q.add_value(Key(9), Load).expect("open");
            let items = q.try_get_many(2).expect("two are ready").into_iter().map(requeue::Item::into_owned);
            let mut items: Vec<_> = items.filter(|item| item.key().0 == 9).collect();
            let item = items.pop().expect("9 was ready");
            q.add_value(Key(1), Load).expect("open");
            is_told("a guard", code, move || drop(item), || outer(code, &q));
            assert!(q.state(&Key(9)).is_none(), "its run has ended when the lock was free");
            goes_on(&q);

            let q = queue(code);
            let mut get = Box::pin(q.get().into_owned());
            drop(q.try_get().expect("1 is ready"));
            assert!(get.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            q.add_value(Key(1), Load).expect("open");
            is_told("a get", code, move || drop(get), || outer(code, &q));
            assert_eq!(q.stats().waiters, 0, "its place is nobody's");
            goes_on(&q);
        }
    });
}

/// With keys 1, 9 and 11 held by a batch, and 1 ready or dirty.
fn with_a_batch(code: Code, retries: bool) -> (Queue, requeue::Items<'static, Key, Load>) {
    let q = queue_with(code, retries);
    q.add_value(Key(9), Load).expect("open");
    q.add_value(Key(11), Load).expect("open");
    let items = q.try_get_many(9).expect("three are ready").into_owned();
    q.add_value(Key(1), Load).expect("open");
    (q, items)
}

#[test]
fn users_code_under_the_lock_that_drops_a_batch_is_told_and_its_runs_end_when_the_lock_is_free() {
    watchdog::run("reentry by a batch", || {
        for code in [Code::Eq, Code::Merge, Code::DropOfAValue, Code::GroupBy, Code::Push] {
            for retries in [false, true] {
                for singles in [false, true] {
                    let (q, items) = with_a_batch(code, retries);
                    let call: Call =
                        if singles { Box::new(|| drop(items.into_iter())) } else { Box::new(|| drop(items)) };
                    is_told("a batch", code, call, || outer(code, &q));
                    let waits = if retries { 3 } else { 0 };
                    assert_eq!((q.stats().held, q.stats().waiting), (0, waits), "{code:?}, {retries}");
                }
                let (q, items) = with_a_batch(code, retries);
                is_told("a batch", code, || drop(items.next(2)), || outer(code, &q));
                assert_eq!((q.stats().held, q.stats().waiting), (0, 0), "done is done");
            }
        }
    });
}

#[test]
fn users_code_under_the_lock_through_which_a_panic_unwinds_puts_a_batch_back_when_the_lock_is_free() {
    watchdog::run("reentry by a batch that unwinds", || {
        for code in [Code::Eq, Code::Merge, Code::GroupBy, Code::Push] {
            let (q, items) = with_a_batch(code, false);
            let unwinds = move || {
                let _inside = items;
                resume_unwind(Box::new(()));
            };
            CALL.set(Some((code, Box::new(unwinds))));
            assert!(catch_unwind(AssertUnwindSafe(|| outer(code, &q))).is_err());
            assert_eq!((q.stats().held, q.stats().ready), (0, 3), "{code:?}");
        }
    });
}

#[test]
fn users_code_under_the_lock_that_drops_a_wait_for_room_or_for_a_drain_lets_others_go_on() {
    watchdog::run("reentry by waits", || {
        let new = || {
            let q = WorkQueue::<Key, Load>::merging(|_: &mut Load, _| runs(Code::Merge)).bound(1).build();
            let q = Arc::new(q.expect("a queue"));
            q.add_value(Key(1), Load).expect("there is room");
            q
        };
        let mut cx = Context::from_waker(Waker::noop());

        let q = new();
        let mut first = Box::pin(q.add_when_room(Key(2), Add::now()).into_owned());
        let mut second = Box::pin(q.add_when_room(Key(3), Add::now()).into_owned());
        assert!(first.as_mut().poll(&mut cx).is_pending() && second.as_mut().poll(&mut cx).is_pending());
        is_told("a wait for room", Code::Merge, move || drop(first), || outer(Code::Merge, &q));
        assert_eq!(q.stats().adders, 1);
        q.try_get().expect("1 is ready").done();
        assert!(matches!(second.as_mut().poll(&mut cx), Poll::Ready(Ok(_))), "nobody is before it");

        // a retry merges its value in front of the other
        let q = new();
        let item = q.try_get().expect("1 is ready").into_owned();
        q.add_value(Key(1), Load).expect("open");
        q.close();
        let wait = DrainOptions::default().waiting_keys(requeue::WaitingKeys::Wait);
        let mut drain = Box::pin(q.drain(wait).into_owned());
        assert!(drain.as_mut().poll(&mut cx).is_pending());
        is_told("a drain", Code::Merge, move || drop(drain), || drop(item.retry_after(Duration::ZERO)));
        q.try_get().expect("1 is ready").done();
        assert!(matches!(poll(q.drain(DrainOptions::default())), Poll::Ready(drained) if drained.complete));
    });
}

#[test]
fn users_code_under_the_lock_that_drops_the_last_handle_shuts_the_queue_down() {
    watchdog::run("reentry by a handle", || {
        let q = queue(Code::Merge);
        let getter = q.getter();
        let item = q.try_get().expect("1 is ready").into_owned();
        q.add_value(Key(1), Load).expect("open");
        is_told("a handle", Code::Merge, move || drop(q), || drop(item.retry_after(Duration::ZERO)));
        getter.try_get().expect("1 is ready").done();
        assert_eq!(getter.try_get().err(), Some(GetError::ShutDown));
    });
}

#[test]
fn users_code_under_the_lock_may_call_another_queue() {
    watchdog::run("another queue", || {
        for code in CODES {
            let (q, other) = (queue(code), queue(Code::Merge));
            let inner = Arc::clone(&other);
            CALL.set(Some((code, Box::new(move || drop(inner.add(Key(7)))))));
            outer(code, &q);
            assert!(CALL.take().is_none() && other.len() == 2, "{code:?}");
        }
    });
}

/// A limiter of the user's own, which looks at the queue.
struct Looks(Arc<std::sync::OnceLock<requeue::WeakQueue<u32>>>);

impl RateLimiter<u32> for Looks {
    fn when(&self, _: &u32, _: Instant) -> Duration {
        let len = self.0.get().and_then(requeue::WeakQueue::upgrade).map_or(0, |q| q.len());
        Duration::from_secs(len as u64)
    }
    fn forget(&self, _: &u32) {}
    fn num_requeues(&self, _: &u32) -> u32 {
        0
    }
}

#[test]
fn users_limiters_run_without_the_lock_and_may_call_the_queue() {
    watchdog::run("a limiter", || {
        let known = Arc::default();
        let q = WorkQueue::builder().limiter(Looks(Arc::clone(&known))).build().expect("a queue");
        known.set(q.downgrade()).expect("once");
        q.add(1).expect("open");
        assert_eq!(q.add_rate_limited(2).expect("open"), Duration::from_secs(1));
    });
}

#[test]
fn users_code_under_the_lock_keeps_other_threads_waiting_and_none_of_them_is_told() {
    watchdog::run("other threads", || {
        const THREADS: usize = 4;
        let q = WorkQueue::<u32, u32>::merging(|old, new| {
            // long enough that others sleep at the lock, and get it handed over
            (0..20).for_each(|_| std::thread::yield_now());
            *old += new;
        });
        let q = q.build().expect("a queue");
        let (barrier, panicked) = (Barrier::new(THREADS), AtomicBool::new(false));
        std::thread::scope(|s| {
            for _ in 0..THREADS {
                s.spawn(|| {
                    barrier.wait();
                    for _ in 0..500 {
                        let add = AssertUnwindSafe(|| q.add_value(1, 1).expect("open"));
                        panicked.fetch_or(catch_unwind(add).is_err(), Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(!panicked.into_inner(), "another thread's wait was taken for one of its own");
        assert_eq!(q.try_get().expect("1 is ready").take_value(), Some(THREADS as u32 * 500));
    });
}

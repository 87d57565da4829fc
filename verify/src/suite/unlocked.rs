//! Tests of code that runs outside the lock: wakers, limiters, drops, clones, the clock. Each calls the queue
//! back from inside; if the lock were held, that would deadlock, and the watchdog would name the test.

use crate::adapter::{Adapter, Config, Held, Limiter, Policy, Subject, Waiters, When, ignore, ms, sound};
use crate::limits::Scripted;
use crate::probe::{Hook, Key, Probe, Value};
use crate::wake::{Count, poll_once};
use std::sync::Arc;

/// A hook that takes the lock in each manner: a look, a trigger, a get and its done.
fn calls_back<A: Adapter>(q: &Subject<A>) -> impl Fn() + Send + Sync + 'static {
    let q = q.clone();
    move || {
        let _ = q.len();
        let _ = q.state(1);
        let _ = q.trigger(999, When::After(ms(1_000_000), Policy::Keep), None);
        let _ = q.num_requeues(998);
    }
}

/// The hook ran, and is done with: its handle would keep the queue open.
fn ran(hook: &Hook, what: &str) {
    assert!(hook.runs() > 0, "{what} did not run, so this test shows nothing");
    hook.clear();
}

pub fn unlocked_a_waker_may_call_the_queue<A: Adapter>() {
    type Act<A> = fn(&Subject<A>);
    let wakes: [(&str, Act<A>); 5] = [
        ("add", |q| ignore(q.add(1))),
        ("add_after", |q| {
            q.add_after(1, ms(5));
            q.clock.advance(ms(5));
        }),
        ("shut_down", |q| ignore(q.shut_down())),
        ("drain", |q| {
            q.add_after(1, ms(5));
            drop(q.drain(Waiters::RunNow));
        }),
        ("done", |q| {
            q.add(1);
            q.work_off();
        }),
    ];
    for (name, wake) in wakes {
        let q = Subject::<A>::new();
        let count = Count::then(calls_back(&q));
        let mut getting = q.getting();
        assert!(count.poll(&mut getting).is_pending());
        wake(&q);
        assert!(count.wakes() > 0, "{name} woke nobody, so this test shows nothing");
    }
}

pub fn unlocked_the_waker_of_a_drain_may_call_the_queue<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    let count = Count::then(calls_back(&q));
    let mut drain = q.drain(Waiters::Drop);
    assert!(count.poll(&mut drain).is_pending());
    sound(one.done());
    assert!(count.wakes() > 0);
}

pub fn unlocked_a_waker_may_take_the_key_that_it_was_woken_for<A: Adapter>() {
    let q = Subject::<A>::new();
    let inner = q.clone();
    let count = Count::then(move || ignore(inner.try_get().map(|item| item.key().id)));
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    q.add(1);
    assert!(count.wakes() > 0);
    assert!(count.poll(&mut getting).is_pending(), "the waker took it");
}

pub fn unlocked_dropping_a_get_may_call_the_queue_through_the_drop_of_its_waker<A: Adapter>() {
    struct CallsAtDrop(Box<dyn Fn() + Send + Sync>);
    impl std::task::Wake for CallsAtDrop {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for CallsAtDrop {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let q = Subject::<A>::new();
    for wake in [false, true] {
        let waker = std::task::Waker::from(Arc::new(CallsAtDrop(Box::new(calls_back(&q)))));
        let mut getting = q.getting();
        let poll = getting.as_mut().poll(&mut std::task::Context::from_waker(&waker));
        assert!(poll.is_pending());
        drop(waker);
        if wake {
            q.add(5);
        }
        // Another waker takes its place, or it goes with the future.
        drop(poll_once(&mut getting));
        drop(getting);
        q.work_off();
    }
}

fn limited<A: Adapter>(config: Config) -> (Subject<A>, Arc<Scripted>) {
    let limiter = Scripted::new(ms(3));
    let shared = Limiter(Arc::<Scripted>::clone(&limiter));
    (Subject::with(Config { limiter: Some(shared), ..config }), limiter)
}

pub fn unlocked_a_limiter_of_ones_own_may_call_the_queue<A: Adapter>() {
    let (q, limiter) = limited::<A>(Config::default());
    for key in 1..=4 {
        q.add(key);
    }
    limiter.on_when.set(calls_back(&q));
    limiter.on_forget.set(calls_back(&q));
    q.add_rate_limited(5);
    assert!(sound(q.take(1).retry()).is_ok());
    assert!(sound(q.take(2).retry_after(ms(1))).is_ok());
    sound(q.take(3).succeed());
    assert!(sound(q.take(4).again(ms(1))).is_ok());
    q.forget(5);
    ran(&limiter.on_when, "when");
    ran(&limiter.on_forget, "forget");
    let inner = q.clone();
    limiter.on_num_requeues.set(move || ignore(inner.len()));
    q.num_requeues(5);
    ran(&limiter.on_num_requeues, "num_requeues");
}

pub fn unlocked_a_limiter_may_call_the_queue_when_a_guard_is_dropped<A: Adapter>() {
    let (q, limiter) = limited::<A>(Config { unfinished_retries: true, ..Config::default() });
    q.add(1);
    let one = q.take(1);
    limiter.on_when.set(calls_back(&q));
    drop(one);
    ran(&limiter.on_when, "when");
}

pub fn unlocked_the_drop_of_a_redundant_key_may_call_the_queue<A: Adapter>() {
    let q = Subject::<A>::new();
    for when in [When::Now, When::After(ms(5), Policy::Earliest), When::RateLimited] {
        q.trigger(7, when, None).unwrap();
        let probe = Probe::new();
        let key = Key::probed(7, &probe);
        probe.drop.set(calls_back(&q));
        q.trigger(key, when, None).unwrap();
        ran(&probe.drop, "the drop of a redundant key");
    }
}

/// A queue with key 7 and a value, both of which call it back when dropped.
fn drops<A: Adapter>(when: When) -> (Subject<A>, [Arc<Probe>; 2]) {
    let q = Subject::<A>::new();
    let probes = [Probe::new(), Probe::new()];
    q.trigger(Key::probed(7, &probes[0]), when, Some(Value::probed(1, &probes[1]))).unwrap();
    for probe in &probes {
        probe.drop.set(calls_back(&q));
    }
    (q, probes)
}

pub fn unlocked_the_drop_of_a_key_or_value_that_is_done_may_call_the_queue<A: Adapter>() {
    let ends: [fn(A::Held<'_>); 5] = [
        |item| drop(item),
        |item| sound(item.done()),
        |item| sound(item.succeed()),
        |item| sound(item.give_up()),
        |item| drop(item.nexting()),
    ];
    for end in ends {
        let (q, [key, value]) = drops::<A>(When::Now);
        end(q.take(7));
        ran(&key.drop, "the drop of the key");
        ran(&value.drop, "the drop of the value");
    }
}

pub fn unlocked_the_drop_of_a_waiting_key_at_shut_down_may_call_the_queue<A: Adapter>() {
    let (q, [key, value]) = drops::<A>(When::After(ms(5), Policy::Earliest));
    ignore(q.shut_down());
    let _ = q.len();
    ran(&key.drop, "the drop of the key");
    ran(&value.drop, "the drop of the value");
}

pub fn unlocked_the_drop_of_a_value_whose_slot_died_may_call_the_queue<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(7);
    let seven = q.take(7);
    let probe = Probe::new();
    q.trigger(7, When::After(ms(5), Policy::Earliest), Some(Value::probed(1, &probe))).unwrap();
    probe.drop.set(calls_back(&q));
    q.shut_down();
    drop(seven);
    let _ = q.len();
    ran(&probe.drop, "the drop of the value");
}

pub fn unlocked_the_drop_of_a_forgotten_key_may_call_the_queue<A: Adapter>() {
    let q = Subject::<A>::new();
    let probe = Probe::new();
    q.add(Key::probed(7, &probe));
    assert!(sound(q.take(7).retry_after(ms(0))).is_ok());
    q.work_off();
    probe.drop.set(calls_back(&q));
    q.forget(7);
    // The queue may have let go of the key when its run ended, or now.
    let _ = q.len();
    ran(&probe.drop, "the drop of the key");
}

pub fn unlocked_the_clone_of_a_detached_key_may_call_the_queue<A: Adapter>() {
    let q = Subject::<A>::new();
    let probe = Probe::new();
    q.add(Key::probed(7, &probe));
    let seven = q.take(7);
    probe.clone.set(calls_back(&q));
    let (key, _) = sound(seven.detach());
    ran(&probe.clone, "the clone");
    assert!(q.done(key.id));
}

pub fn unlocked_a_clock_may_call_the_queue<A: Adapter>() {
    // A clock is users' code too: here it is read in the middle of each call.
    let q = Subject::<A>::new();
    let inner = q.clone();
    let inside = std::sync::atomic::AtomicBool::new(false);
    q.clock.on_read().set(move || {
        if !inside.swap(true, std::sync::atomic::Ordering::SeqCst) {
            let _ = inner.len();
            inside.store(false, std::sync::atomic::Ordering::SeqCst);
        }
    });
    q.add(1);
    q.add_after(2, ms(5));
    drop(q.take(1));
    q.clock.advance(ms(5));
    drop(q.take(2));
    q.shut_down();
    ran(q.clock.on_read(), "the reading");
}

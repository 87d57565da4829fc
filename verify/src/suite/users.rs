//! Users' code that panics, in every place where it may run.

use crate::adapter::{
    Accepted, Adapter, Config, Exponential, Held, Limiter, Line, OwnOrder, Policy, Subject, Waiters, When,
    ms, sound,
};
use crate::limits::Scripted;
use crate::probe::{Key, POISONED, Probe, Value};
use crate::wake::{Count, poll_once};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asserts that `call` panics with the user's panic, as it was.
pub(crate) fn panics<T>(call: impl FnOnce() -> T) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else {
        panic!("the panic did not reach the caller")
    };
    let message = panic.downcast_ref::<String>().map_or("", String::as_str);
    assert_eq!(message, POISONED, "another panic reached the caller");
}

/// Asserts that the queue holds nothing and works.
fn usable<A: Adapter>(q: &Subject<A>) {
    q.has(0, 0, 0, 0);
    q.add(1);
    q.add(2);
    let one = q.take(1);
    q.add(1);
    q.add_after(3, ms(5));
    sound(one.done());
    assert_eq!(q.work_off(), [2, 1]);
    q.clock.advance(ms(5));
    assert_eq!(q.work_off(), [3]);
    q.has(0, 0, 0, 0);
}

const WHENS: [When; 3] = [When::Now, When::After(ms(5), Policy::Earliest), When::RateLimited];

pub fn users_a_hash_that_panics_reaches_the_caller_and_the_trigger_is_not_accepted<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(7);
    for when in WHENS {
        let probe = Probe::new();
        probe.hash.panics();
        panics(|| q.trigger(Key::probed(8, &probe), when, None));
        q.has(1, 0, 0, 0);
        assert_eq!(q.state(8), None);
        assert_eq!(q.num_requeues(8), 0);
    }
    let probe = Probe::new();
    let key = Key::probed(7, &probe);
    probe.hash.panics();
    panics(|| q.queue.add_ref(&key));
    panics(|| q.queue.state(&key));
    panics(|| q.queue.done(&key));
    panics(|| q.queue.forget(&key));
    panics(|| q.queue.num_requeues(&key));
    q.has(1, 0, 0, 0);
    assert_eq!(q.work_off(), [7]);
    usable(&q);
}

pub fn users_an_eq_that_panics_reaches_the_caller_and_the_trigger_is_not_accepted<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(7);
    q.add_after(8, ms(50));
    q.add(9);
    for id in [7, 8] {
        for when in WHENS {
            let probe = Probe::new();
            probe.eq.panics();
            panics(|| q.trigger(Key::probed(id, &probe), when, Some(Value::of(1))));
            q.has(2, 0, 0, 1);
            assert_eq!(q.num_requeues(id), 0);
        }
    }
    let probe = Probe::new();
    probe.eq.panics();
    let key = Key::probed(7, &probe);
    panics(|| q.queue.add_ref(&key));
    panics(|| q.queue.state(&key));
    panics(|| q.queue.done(&key));
    let seven = q.take(7);
    assert!(seven.value().is_none(), "a trigger that was not accepted left its value");
    panics(|| q.queue.done(&key));
    panics(|| q.trigger(Key::probed(7, &probe), When::Now, None));
    q.has(1, 1, 0, 1);
    drop(seven);
    assert_eq!(q.work_off(), [9]);
    q.clock.advance(ms(50));
    assert_eq!(q.work_off(), [8]);
    usable(&q);
}

/// A value whose merge panics after it has been taken over.
fn poisoned(item: u32) -> Value {
    let probe = Probe::new();
    probe.merge.panics();
    Value::probed(item, &probe)
}

pub fn users_a_merge_that_panics_leaves_the_slot_as_merge_left_it_and_the_trigger_unaccepted<A: Adapter>() {
    let q = Subject::<A>::new();
    // Ready, waiting, held: the key stays what it was.
    q.add_value(1, 1);
    q.trigger(2, When::After(ms(50), Policy::Earliest), Some(Value::of(1))).unwrap();
    q.add(3);
    q.add(4);
    for when in [When::Now, When::After(ms(5), Policy::Earliest)] {
        panics(|| q.trigger(1, when, Some(poisoned(2))));
        panics(|| q.trigger(2, when, Some(poisoned(2))));
    }
    q.has(3, 0, 0, 1);
    assert_eq!(q.state(2).and_then(|seen| seen.due), Some(q.clock.at() + ms(50)));
    let one = q.take(1);
    assert_eq!(one.value().map(|value| value.items.clone()), Some(vec![1, 2, 2]), "what merge left");
    let three = q.take(3);
    q.trigger(3, When::After(ms(50), Policy::Earliest), Some(Value::of(1))).unwrap();
    panics(|| q.trigger(3, When::Now, Some(poisoned(2))));
    q.has(1, 2, 0, 2);
    drop((one, three));
    assert_eq!(q.work_off(), [4], "the unaccepted trigger made nothing dirty");
    q.clock.advance(ms(50));
    for key in [2, 3] {
        assert!(q.take(key).value().is_some_and(|value| value.items[..2] == [1, 2]));
    }
    usable(&q);
}

pub fn users_a_merge_that_panics_in_a_retry_still_ends_the_run<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    let one = q.take(1);
    // A retry merges the newer value, which is the poisoned one, into the old.
    q.trigger(1, When::Now, Some(poisoned(2))).unwrap();
    panics(|| one.retry());
    assert_eq!(q.counts().held, 0, "the run goes on");
    let again = q.take(1);
    assert_eq!(again.value().map(|value| value.items.clone()), Some(vec![1, 2]), "what merge left");
    drop(again);
    q.clock.advance(ms(5));
    q.work_off();
    q.forget(1);
    usable(&q);
}

pub fn users_a_merge_that_panics_in_again_still_ends_the_run<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    let one = q.take(1);
    q.trigger(1, When::Now, Some(poisoned(2))).unwrap();
    // Whether this merges at all is the queue's choice; the run ends either way.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(sound(one.again(ms(5))))));
    assert_eq!(q.counts().held, 0, "the run goes on");
    q.clock.advance(ms(5));
    q.work_off();
    q.work_off();
    usable(&q);
}

/// First in, first out, until it is told to panic.
#[derive(Default)]
struct Touchy {
    line: Vec<u64>,
    push: Arc<AtomicBool>,
    touch: Arc<AtomicBool>,
    pop: Arc<AtomicBool>,
}

impl OwnOrder for Touchy {
    fn push(&mut self, key: u64) {
        assert!(!self.push.load(Ordering::SeqCst), "{}", POISONED);
        self.line.push(key);
    }
    fn touch(&mut self, _: u64) {
        assert!(!self.touch.load(Ordering::SeqCst), "{}", POISONED);
    }
    fn pop(&mut self) -> Option<u64> {
        assert!(!self.pop.load(Ordering::SeqCst), "{}", POISONED);
        (!self.line.is_empty()).then(|| self.line.remove(0))
    }
}

struct Switches {
    push: Arc<AtomicBool>,
    touch: Arc<AtomicBool>,
    pop: Arc<AtomicBool>,
}

fn touchy<A: Adapter>() -> (Subject<A>, Switches) {
    touchy_with(Exponential { base: ms(1), max: ms(1_000), expire_after: None })
}

fn touchy_with<A: Adapter>(exponential: Exponential) -> (Subject<A>, Switches) {
    let order = Touchy::default();
    let switches = Switches {
        push: Arc::clone(&order.push),
        touch: Arc::clone(&order.touch),
        pop: Arc::clone(&order.pop),
    };
    (
        Subject::with(Config {
            order: Line::Own(Box::new(order)),
            exponential: Some(exponential),
            ..Config::default()
        }),
        switches,
    )
}

fn on(switch: &AtomicBool) {
    switch.store(true, Ordering::SeqCst);
}
fn off(switch: &AtomicBool) {
    switch.store(false, Ordering::SeqCst);
}

pub fn users_an_order_that_panics_at_push_reaches_the_caller_and_the_trigger_is_not_accepted<A: Adapter>() {
    let (q, switches) = touchy::<A>();
    q.add(7);
    on(&switches.push);
    panics(|| q.add(8));
    panics(|| q.add_value(8, 1));
    panics(|| q.add_after(8, ms(0)));
    panics(|| q.queue.add_ref(&8.into()));
    q.has(1, 0, 0, 0);
    assert_eq!(q.state(8), None);
    off(&switches.push);
    assert_eq!(q.add(8), Accepted::Ready);
    assert!(q.take(7).value().is_none());
    let eight = q.take(8);
    assert!(eight.value().is_none(), "a trigger that was not accepted left its value");
    drop(eight);
    usable(&q);
}

pub fn users_an_order_that_panics_under_a_delay_that_turns_out_to_be_none_leaves_nothing<A: Adapter>() {
    let (q, switches) = touchy_with::<A>(Exponential { base: ms(0), max: ms(1), expire_after: None });
    q.add_after(8, ms(50));
    on(&switches.push);
    panics(|| q.trigger(8, When::RateLimited, Some(Value::of(1))));
    panics(|| q.trigger(9, When::After(ms(5), Policy::Latest(ms(0))), Some(Value::of(2))));
    panics(|| q.trigger(9, When::RateLimited, Some(Value::of(1))));
    off(&switches.push);
    q.has(0, 0, 0, 1);
    q.clock.advance(ms(50));
    assert!(q.take(8).value().is_none(), "a trigger that was not accepted left its value");
    assert_eq!(
        (q.num_requeues(8), q.num_requeues(9)),
        (0, 0),
        "a trigger that was not accepted counts as a failure"
    );
    usable(&q);
}

pub fn users_an_order_that_panics_at_touch_reaches_the_caller_and_changes_nothing<A: Adapter>() {
    let (q, switches) = touchy::<A>();
    q.add(7);
    on(&switches.touch);
    panics(|| q.add(7));
    off(&switches.touch);
    q.has(1, 0, 0, 0);
    assert_eq!(q.work_off(), [7]);
    usable(&q);
}

pub fn users_an_order_that_panics_at_pop_reaches_the_caller_and_loses_no_key<A: Adapter>() {
    let (q, switches) = touchy::<A>();
    q.add(7);
    q.add(8);
    on(&switches.pop);
    panics(|| q.try_get().map(|item| item.key().id));
    q.has(2, 0, 0, 0);
    off(&switches.pop);
    assert_eq!(q.work_off(), [7, 8]);
    usable(&q);
}

pub fn users_an_order_that_panics_when_a_run_ends_still_ends_it_and_loses_no_key<A: Adapter>() {
    let (q, switches) = touchy::<A>();
    q.add(7);
    let seven = q.take(7);
    q.add(7);
    q.add(8);
    on(&switches.push);
    // Which call tells the order of the key is the queue's choice.
    let _ = catch_unwind(AssertUnwindSafe(|| sound(seven.done())));
    assert_eq!(q.counts().held, 0, "a run that was being ended still ends");
    let early = catch_unwind(AssertUnwindSafe(|| q.work_off())).unwrap_or_default();
    off(&switches.push);
    let mut runs = [early, q.work_off()].concat();
    runs.sort_unstable();
    assert_eq!(runs, [7, 8], "a key was lost");
    usable(&q);
}

pub fn users_an_order_that_panics_when_a_timer_fires_loses_no_key<A: Adapter>() {
    let (q, switches) = touchy::<A>();
    for key in 1..=3 {
        q.add_after(key, ms(5));
    }
    q.add(9);
    q.clock.advance(ms(5));
    on(&switches.push);
    for _ in 0..3 {
        let _ = catch_unwind(AssertUnwindSafe(|| q.len()));
    }
    off(&switches.push);
    let mut runs = q.work_off();
    runs.sort_unstable();
    assert_eq!(runs, [1, 2, 3, 9], "a key was lost");
    usable(&q);
}

fn scripted<A: Adapter>(config: Config) -> (Subject<A>, Arc<Scripted>) {
    let limiter = Scripted::new(ms(3));
    let shared = Limiter(Arc::<Scripted>::clone(&limiter));
    (Subject::with(Config { limiter: Some(shared), ..config }), limiter)
}

pub fn users_a_limiter_that_panics_reaches_the_caller_and_the_trigger_is_not_accepted<A: Adapter>() {
    let (q, limiter) = scripted::<A>(Config::default());
    q.add(7);
    limiter.on_when.panics();
    for _ in 0..3 {
        panics(|| q.add_rate_limited(8));
        panics(|| q.trigger(7, When::RateLimited, Some(Value::of(1))));
    }
    q.has(1, 0, 0, 0);
    assert_eq!(q.state(8), None);
    limiter.on_when.clear();
    let seven = q.take(7);
    assert!(seven.value().is_none(), "a trigger that was not accepted left its value");
    drop(seven);
    usable(&q);
    // Nobody must wait for the triggers that never came.
    assert!(q.drain_wait(Waiters::Wait).complete);
}

pub fn users_a_limiter_that_panics_in_a_retry_reaches_the_caller_and_holds_nothing_up<A: Adapter>() {
    let (q, limiter) = scripted::<A>(Config::default());
    q.add(7);
    let seven = q.take(7);
    limiter.on_when.panics();
    panics(|| seven.retry());
    limiter.on_when.clear();
    assert_eq!(q.counts().held, 0, "a key that nobody can end any more");
    q.clock.advance(ms(5));
    q.work_off();
    usable(&q);
    assert!(q.drain_wait(Waiters::Wait).complete);
}

pub fn users_a_limiter_that_panics_at_forget_reaches_the_caller_and_the_run_ends<A: Adapter>() {
    let (q, limiter) = scripted::<A>(Config::default());
    q.add(7);
    limiter.on_forget.panics();
    panics(|| q.forget(7));
    limiter.on_num_requeues.panics();
    panics(|| q.num_requeues(7));
    limiter.on_num_requeues.clear();
    let seven = q.take(7);
    panics(|| seven.succeed());
    assert_eq!(q.counts().held, 0, "a key that nobody can end any more");
    q.add(7);
    let seven = q.take(7);
    panics(|| seven.again(ms(5)));
    assert_eq!(q.counts().held, 0, "a key that nobody can end any more");
    limiter.on_forget.clear();
    q.clock.advance(ms(5));
    q.work_off();
    usable(&q);
}

/// Unwinds while it holds a guard that it does not end. A second panic that got
/// out of the guard's drop would abort the process.
fn unwind_with<A: Adapter>(item: A::Held<'_>) {
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _item = item;
        panic!("the handler's own panic");
    }));
    let panic = panic.expect_err("it panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the handler's own panic"));
}

pub fn users_a_panic_of_the_limiter_during_unwinding_is_caught<A: Adapter>() {
    let (q, limiter) = scripted::<A>(Config { unfinished_retries: true, ..Config::default() });
    q.add(7);
    let seven = q.take(7);
    limiter.on_when.panics();
    unwind_with::<A>(seven);
    limiter.on_when.clear();
    assert_eq!(q.counts().held, 0);
    q.clock.advance(ms(5));
    q.work_off();
    usable(&q);
}

pub fn users_a_panic_of_merge_during_unwinding_is_caught<A: Adapter>() {
    let (q, _limiter) = scripted::<A>(Config { unfinished_retries: true, ..Config::default() });
    q.add_value(7, 1);
    let seven = q.take(7);
    q.trigger(7, When::Now, Some(poisoned(2))).unwrap();
    unwind_with::<A>(seven);
    assert_eq!(q.counts().held, 0);
    q.clock.advance(ms(5));
    q.work_off();
    usable(&q);
}

pub fn users_a_panic_of_the_order_during_unwinding_is_caught<A: Adapter>() {
    let (q, switches) = touchy::<A>();
    q.add(7);
    let seven = q.take(7);
    q.add(7);
    on(&switches.push);
    unwind_with::<A>(seven);
    off(&switches.push);
    assert_eq!(q.work_off(), [7]);
    usable(&q);
}

pub fn users_a_panic_of_a_drop_during_unwinding_is_caught<A: Adapter>() {
    let q = Subject::<A>::new();
    let probe = Probe::new();
    q.trigger(7, When::Now, Some(Value::probed(1, &probe))).unwrap();
    let seven = q.take(7);
    probe.drop.panics();
    unwind_with::<A>(seven);
    probe.drop.clear();
    let probe = Probe::new();
    q.add(Key::probed(8, &probe));
    let eight = q.take(8);
    probe.drop.panics();
    unwind_with::<A>(eight);
    probe.drop.clear();
    usable(&q);
}

pub fn users_a_panic_of_a_waker_during_unwinding_is_caught<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(7);
    let seven = q.take(7);
    q.add(7);
    let poison = Arc::new(AtomicBool::new(true));
    let armed = Arc::clone(&poison);
    let count = Count::then(move || assert!(!armed.load(Ordering::SeqCst), "{}", POISONED));
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    unwind_with::<A>(seven);
    off(&poison);
    drop(getting);
    assert_eq!(q.work_off(), [7]);
    usable(&q);
}

pub fn users_a_drop_that_panics_reaches_the_caller_and_the_run_has_ended<A: Adapter>() {
    let q = Subject::<A>::new();
    let probe = Probe::new();
    q.add(Key::probed(7, &probe));
    let seven = q.take(7);
    probe.drop.panics();
    let _ = catch_unwind(AssertUnwindSafe(|| sound(seven.done())));
    probe.drop.clear();
    usable(&q);
    let probe = Probe::new();
    q.add(7);
    probe.drop.panics();
    let _ = catch_unwind(AssertUnwindSafe(|| q.add(Key::probed(7, &probe))));
    probe.drop.clear();
    assert_eq!(q.work_off(), [7]);
    usable(&q);
}

pub fn users_a_waker_that_panics_loses_no_key_and_no_other_wake_up<A: Adapter>() {
    let q = Subject::<A>::new();
    let poison = Arc::new(AtomicBool::new(true));
    let armed = Arc::clone(&poison);
    let bad = Count::then(move || assert!(!armed.load(Ordering::SeqCst), "{}", POISONED));
    let mut first = q.getting();
    assert!(bad.poll(&mut first).is_pending());
    let _ = catch_unwind(AssertUnwindSafe(|| q.add(7)));
    let _ = catch_unwind(AssertUnwindSafe(|| q.shut_down()));
    off(&poison);
    drop(first);
    assert_eq!(q.work_off(), [7]);
    let mut getting = q.getting();
    assert!(poll_once(&mut getting).is_ready());
    q.is_over();
}

//! B9 and the opening rules: the clock, the metrics, wake-ups, and users' code in the middle of a batch.

use crate::adapter::{
    Accepted, Adapter, Asked, Config, Held, Limiter, Line, Many, OwnOrder, Policy, Subject, Waiters, When,
    ms, sound,
};
use crate::limits::{Metered, Scripted};
use crate::lockstep::unwind_through;
use crate::probe::{Key, POISONED, Probe, Value};
use crate::wake::{Count, poll_once};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

fn after(delay: u64) -> When {
    When::After(ms(delay), Policy::Earliest)
}

fn now(key: impl Into<Key>) -> Asked {
    (key.into(), When::Now, None)
}

fn limited(key: impl Into<Key>) -> Asked {
    (key.into(), When::RateLimited, None)
}

/// Asserts that `call` panics with the user's panic, as it was.
fn panics<T>(call: impl FnOnce() -> T) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else {
        panic!("the panic did not reach the caller")
    };
    let message = panic.downcast_ref::<String>().map_or("", String::as_str);
    assert_eq!(message, POISONED, "another panic reached the caller");
}

fn scripted<A: Adapter>(config: Config) -> (Subject<A>, Arc<Scripted>) {
    let limiter = Scripted::new(ms(3));
    let shared = Limiter(Arc::<Scripted>::clone(&limiter));
    (Subject::with(Config { limiter: Some(shared), ..config }), limiter)
}

pub fn b9_every_batch_reads_the_clock_at_most_once<A: Adapter>() {
    for unfinished_retries in [false, true] {
        for own in [false, true] {
            let config = || Config { metrics: Some(Metered::new()), unfinished_retries, ..Config::default() };
            let q = if own { scripted::<A>(config()).0 } else { Subject::with(config()) };
            q.add_after(999, ms(50));
            let reads = q.clock.reads_of(|| {
                q.trigger_many(vec![now(1), limited(2), (3.into(), after(5), None), limited(4), now(5)])
            });
            assert_eq!(reads, 1, "add");
            q.clock.advance(ms(10));
            q.add_many(10..600);
            let mut items = None;
            assert_eq!(q.clock.reads_of(|| items = q.try_get_many(3).ok()), 1, "get");
            let items = items.expect("ready");
            assert_eq!(q.clock.reads_of(|| sound(items.done())), 1, "done");
            assert_eq!(q.clock.reads_of(|| items_of(&q)), 1, "get more than there is room for at once");
            let items = q.take_many(2);
            assert_eq!(q.clock.reads_of(|| drop(items)), 1, "drop");
            let items = q.take_many(1);
            assert_eq!(q.clock.reads_of(|| sound(items.succeed())), 1, "succeed");
            let items = q.take_many(1);
            assert_eq!(q.clock.reads_of(|| std::mem::forget(sound(items.next(2)))), 1, "next");
        }
    }
}

fn items_of<A: Adapter>(q: &Subject<A>) {
    let items = q.take_many(500);
    assert_eq!(items.keys().len(), 500);
    std::mem::forget(items);
}

pub fn b9_a_batch_tells_the_metrics_of_each_key<A: Adapter>() {
    let metrics = Metered::new();
    let q = Subject::<A>::with(Config { metrics: Some(Arc::clone(&metrics)), ..Config::default() });
    q.trigger_many(vec![now(1), now(2), now(1), (3.into(), after(5), None), limited(4)]);
    assert_eq!(metrics.counts(), (2, 2, 0, 0));
    q.clock.advance(ms(7));
    let items = q.take_many(9);
    assert_eq!(metrics.told().waited, [ms(7), ms(7), ms(6), ms(2)]);
    q.clock.advance(ms(4));
    q.add(1);
    let items = sound(items.next(9)).expect("open");
    assert_eq!(metrics.told().worked, [ms(4); 4]);
    assert_eq!(metrics.counts(), (5, 2, 5, 4));
    assert_eq!(metrics.gauges().map(|gauges| gauges.0), Some(0));
    drop(items);
    assert_eq!(metrics.counts(), (5, 2, 5, 5));
}

pub fn b9_a_batch_wakes_one_who_passes_on_what_it_leaves<A: Adapter>() {
    let q = Subject::<A>::new();
    let counts = [(); 4].map(|()| Count::new());
    let mut getting = [2, 2, 1, 1].map(|most| q.queue.getting_many(most));
    for (count, getting) in counts.iter().zip(&mut getting) {
        assert!(count.poll(getting).is_pending());
    }
    let woken = || counts.iter().map(|count| count.wakes()).collect::<Vec<_>>();
    q.add_many(0..5);
    assert_eq!(woken(), [0, 0, 0, 1], "one, not five");
    assert!(counts[3].poll(&mut getting[3]).is_ready());
    assert_eq!(woken(), [0, 0, 1, 1], "it passes on");
    assert!(counts[2].poll(&mut getting[2]).is_ready());
    assert!(counts[1].poll(&mut getting[1]).is_ready());
    assert_eq!(woken(), [1, 1, 1, 1]);
    let Poll::Ready(found) = counts[0].poll(&mut getting[0]) else { panic!("a key is left") };
    assert_eq!(sound(found).expect("open").keys(), [4]);
}

pub fn b9_a_getter_of_many_that_leaves_passes_the_wake_up_on<A: Adapter>() {
    let q = Subject::<A>::new();
    let (stays, leaves) = (Count::new(), Count::new());
    let mut staying = q.getting();
    let mut leaving = q.queue.getting_many(8);
    assert!(stays.poll(&mut staying).is_pending());
    assert!(leaves.poll(&mut leaving).is_pending());
    q.add_many([1, 2]);
    assert_eq!((stays.wakes(), leaves.wakes()), (0, 1));
    drop(leaving);
    assert_eq!(stays.wakes(), 1);
}

pub fn b9_a_batch_goes_to_the_next_beside_one_that_does_not_come<A: Adapter>() {
    let q = Subject::<A>::new();
    let (idle, stuck) = (Count::new(), Count::new());
    let (mut getting, mut never) = (q.queue.getting_many(32), q.getting());
    assert!(idle.poll(&mut getting).is_pending());
    assert!(stuck.poll(&mut never).is_pending());
    q.add_many(0..32);
    assert_eq!((idle.wakes(), stuck.wakes()), (0, 1));
    q.clock.advance(ms(10));
    assert_eq!(idle.wakes(), 1);
    let Poll::Ready(found) = idle.poll(&mut getting) else { panic!("they are ready") };
    assert_eq!(sound(found).expect("open").keys().len(), 32);
}

/// A value whose merge panics after it has been taken over.
fn poisoned(item: u32) -> Value {
    let probe = Probe::new();
    probe.merge.panics();
    Value::probed(item, &probe)
}

pub fn b9_a_merge_that_panics_leaves_the_triggers_before_it_accepted_and_no_other<A: Adapter>() {
    let metrics = Metered::new();
    let q = Subject::<A>::with(Config { metrics: Some(Arc::clone(&metrics)), ..Config::default() });
    q.add_value(2, 1);
    let valued = |key: u64, when, item| (key.into(), when, Some(Value::of(item)));
    let batch = vec![
        valued(1, When::Now, 1),
        valued(4, after(5), 1),
        (2.into(), When::Now, Some(poisoned(2))),
        valued(3, When::Now, 1),
        valued(1, When::Now, 9),
    ];
    panics(|| q.trigger_many(batch));
    q.has(2, 0, 0, 1);
    assert_eq!(metrics.counts().1, 1, "the accepted one with a delay was told");
    assert_eq!(q.state(3), None);
    let values = q
        .take_many(9)
        .singles()
        .map(|item| (item.key().id, item.value().map(|value| value.items.clone()).unwrap_or_default()));
    assert_eq!(values.collect::<Vec<_>>(), [(2, vec![1, 2]), (1, vec![1])]);
}

pub fn b9_an_eq_that_panics_leaves_the_triggers_before_it_accepted_and_no_other<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(2);
    let probe = Probe::new();
    probe.eq.panics();
    let spare = Probe::new();
    spare.drop.panics();
    // the rest of the batch is dropped during unwinding: that must not abort
    let batch = vec![
        now(1),
        now(Key::probed(1, &spare)),
        now(Key::probed(2, &probe)),
        now(Key::probed(3, &spare)),
        now(Key::probed(4, &spare)),
    ];
    panics(|| q.trigger_many(batch));
    assert_eq!(spare.drop.runs(), 3);
    assert_eq!(q.work_off(), [2, 1]);
    q.has(0, 0, 0, 0);
}

pub fn b9_a_hash_that_panics_leaves_a_batch_untouched<A: Adapter>() {
    let q = Subject::<A>::new();
    let probe = Probe::new();
    probe.hash.panics();
    panics(|| q.trigger_many(vec![now(1), now(Key::probed(2, &probe))]));
    q.has(0, 0, 0, 0);
}

pub fn b9_a_limiter_of_ones_own_is_asked_once_for_each_in_order_and_without_the_lock<A: Adapter>() {
    let (q, limiter) = scripted::<A>(Config::default());
    let back = q.clone();
    limiter.on_when.set(move || {
        let _ = back.len();
        back.add(99);
    });
    q.trigger_many(vec![limited(2), now(1), limited(3), limited(2)]);
    limiter.on_when.clear();
    assert_eq!(limiter.take_whens(), 3);
    assert_eq!((q.num_requeues(2), q.num_requeues(3)), (2, 1));
    q.has(2, 0, 0, 2);
    limiter.take_asked();
    q.close();
    assert!(q.trigger_many(vec![limited(4), now(5), limited(6)]).iter().all(Result::is_err));
    assert_eq!(limiter.take_whens(), 0, "a refused trigger asks nobody");
    let answer = q.drain_wait_counts();
    assert_eq!(answer, 0, "refused before the drain began");
}

impl<A: Adapter> Subject<A> {
    /// Number that a drain that drops reports as refused; everything is worked off before.
    fn drain_wait_counts(&self) -> usize {
        self.work_off();
        self.drain_wait(Waiters::Drop).refused
    }
}

pub fn b9_a_limiter_that_panics_leaves_the_triggers_before_it_accepted_and_no_other<A: Adapter>() {
    let (q, limiter) = scripted::<A>(Config::default());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    limiter.on_when.set(move || assert!(count.fetch_add(1, Ordering::SeqCst) < 1, "{}", POISONED));
    panics(|| q.trigger_many(vec![now(1), limited(2), limited(3), now(4), limited(5)]));
    limiter.on_when.clear();
    assert_eq!(asked.load(Ordering::SeqCst), 2, "nobody is asked behind it");
    q.has(1, 0, 0, 1);
    assert_eq!(q.state(4), None);
    assert_eq!(q.work_off(), [1]);
    // Nobody must wait for the triggers that never came.
    q.clock.advance(ms(3));
    assert_eq!(q.work_off(), [2]);
    assert!(q.drain_wait(Waiters::Wait).complete);
}

pub fn b9_triggers_whose_limiter_is_asked_at_shut_down_are_dropped_and_counted<A: Adapter>() {
    let (q, limiter) = scripted::<A>(Config::default());
    let back = q.clone();
    let dropped = Arc::new(AtomicUsize::new(0));
    let tell = Arc::clone(&dropped);
    limiter.on_when.set(move || {
        tell.fetch_add(back.shut_down().dropped, Ordering::SeqCst);
    });
    let added = q.trigger_many(vec![limited(1), now(2), limited(3)]);
    limiter.on_when.clear();
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
    assert_eq!(added.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    q.is_over();
}

/// First in, first out; panics at the given pop.
struct Touchy {
    line: Vec<u64>,
    pops: Arc<AtomicUsize>,
}

impl OwnOrder for Touchy {
    fn push(&mut self, key: u64) {
        self.line.push(key);
    }
    fn touch(&mut self, _: u64) {}
    fn pop(&mut self) -> Option<u64> {
        assert!(self.pops.fetch_sub(1, Ordering::SeqCst) != 1, "{}", POISONED);
        (!self.line.is_empty()).then(|| self.line.remove(0))
    }
}

pub fn b9_an_order_that_panics_at_a_later_pop_hands_nothing_out_and_loses_no_key<A: Adapter>() {
    let pops = Arc::new(AtomicUsize::new(3));
    let order = Touchy { line: Vec::new(), pops: Arc::clone(&pops) };
    let q = Subject::<A>::with(Config { order: Line::Own(Box::new(order)), ..Config::default() });
    q.trigger_many((1..=4).map(|key| (key.into(), When::Now, Some(Value::of(7)))).collect());
    q.add_after(1, ms(50));
    panics(|| q.take_many(4).keys());
    q.has(4, 0, 0, 1);
    let items = q.take_many(9);
    let mut keys = items.keys();
    keys.sort_unstable();
    assert_eq!(keys, [1, 2, 3, 4]);
    assert!(items.singles().all(|item| item.value().is_some() && item.attempt() == 1));
    q.has(0, 0, 0, 1);
}

/// Answers each ticket twice, and forgets the last key.
#[derive(Default)]
struct Wrong(Vec<u64>);

impl OwnOrder for Wrong {
    fn push(&mut self, key: u64) {
        self.0.insert(0, key);
        self.0.insert(0, key);
    }
    fn touch(&mut self, _: u64) {}
    fn pop(&mut self) -> Option<u64> {
        self.0.pop().filter(|key| *key != 4)
    }
}

pub fn b9_a_wrong_order_changes_the_order_of_a_batch_and_nothing_else<A: Adapter>() {
    let q = Subject::<A>::with(Config { order: Line::Own(Box::<Wrong>::default()), ..Config::default() });
    q.add_many(1..=4);
    let items = q.take_many(3);
    assert_eq!(items.keys(), [1, 2, 3]);
    assert_eq!(drained(items.next_now(9)), [4]);
    q.add_many(1..=4);
    let mut keys = q.take_many(usize::MAX).keys();
    keys.sort_unstable();
    assert_eq!(keys, [1, 2, 3, 4], "once each");
}

trait NextNow<'q>: Many<'q> {
    fn next_now(self, most: usize) -> Self {
        sound(self.next(most)).expect("a key is left")
    }
}
impl<'q, M: Many<'q>> NextNow<'q> for M {}

fn drained<'q, M: Many<'q>>(items: M) -> Vec<u64> {
    let keys = items.keys();
    sound(items.done());
    keys
}

pub fn b9_users_code_that_panics_while_a_batch_is_dropped_ends_every_run<A: Adapter>() {
    // merge, in a hold of its own for what is left
    let q = Subject::<A>::with(Config { unfinished_retries: true, ..Config::default() });
    q.trigger_many((1..=4).map(|key| (key.into(), When::Now, Some(Value::of(1)))).collect());
    let items = q.take_many(4);
    q.trigger_many(vec![(2.into(), When::Now, Some(poisoned(2))), (3.into(), When::Now, Some(poisoned(2)))]);
    panics(|| drop(items));
    q.has(2, 0, 0, 4);
    assert_eq!(q.num_requeues(4), 1, "the rest retried");
    // a limiter of one's own
    let (q, limiter) = scripted::<A>(Config { unfinished_retries: true, ..Config::default() });
    q.add_many(1..=3);
    let items = q.take_many(3);
    limiter.on_when.panics();
    panics(|| drop(items));
    q.has(0, 0, 0, 0);
    // the clock
    let q = Subject::<A>::with(Config { metrics: Some(Metered::new()), ..Config::default() });
    q.add_many(1..=3);
    let items = q.take_many(3);
    q.clock.on_read().panics();
    panics(|| drop(items));
    q.clock.on_read().clear();
    q.has(0, 0, 0, 0);
    // drops of keys and values, several of them
    let q = Subject::<A>::new();
    let probe = Probe::new();
    let batch = (1..=3).map(|key| (Key::probed(key, &probe), When::Now, Some(Value::probed(1, &probe))));
    q.trigger_many(batch.collect());
    let items = q.take_many(3);
    probe.drop.panics();
    panics(|| drop(items));
    assert_eq!(probe.drop.runs(), 6);
    q.has(0, 0, 0, 0);
}

pub fn b9_a_panic_during_unwinding_is_caught_for_each_of_a_batch<A: Adapter>() {
    let q = Subject::<A>::new();
    let probe = Probe::new();
    let batch = (1..=4).map(|key| (Key::probed(key, &probe), When::Now, Some(Value::probed(1, &probe))));
    q.trigger_many(batch.collect());
    let items = q.take_many(4);
    // of these a key and a value are left to be dropped
    assert!((1..=3).all(|key| q.done(key)));
    // and this one's payload meets another, and merge panics
    q.trigger(4, When::Now, Some(poisoned(2))).expect("open");
    probe.drop.panics();
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _items = items;
        panic!("the handler's own panic");
    }));
    let panic = unwound.expect_err("it panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the handler's own panic"));
    assert_eq!(probe.drop.runs(), 6);
    probe.drop.clear();
    q.has(1, 0, 0, 0);
    assert_eq!(q.work_off(), [4]);
}

pub fn b9_a_batch_that_is_put_back_tells_the_metrics_of_no_end_and_no_add<A: Adapter>() {
    let metrics = Metered::new();
    let q = Subject::<A>::with(Config { metrics: Some(Arc::clone(&metrics)), ..Config::default() });
    q.add_many([1, 2]);
    q.clock.advance(ms(3));
    let items = q.take_many(2);
    let before = metrics.told();
    q.clock.advance(ms(4));
    unwind_through(items);
    assert_eq!(metrics.told(), before);
    let gauges = metrics.all_gauges().expect("the queue is there");
    assert_eq!((gauges.depth, gauges.held, gauges.unfinished_work), (2, 0, ms(0)));
    // the queue duration of the run that comes runs from the key's first trigger
    sound(q.take_many(2).done());
    let told = metrics.told();
    assert_eq!(
        (told.adds, told.waited, told.worked),
        (2, vec![ms(3), ms(3), ms(7), ms(7)], vec![ms(0), ms(0)])
    );
}

/// Takes a batch and drops it when it is dropped itself.
struct TakesAndDrops<'q, A: Adapter>(&'q Subject<A>);

impl<A: Adapter> Drop for TakesAndDrops<'_, A> {
    fn drop(&mut self) {
        drop(self.0.take_many(9));
    }
}

pub fn b9_a_batch_that_is_taken_and_dropped_while_another_panic_unwinds_is_done<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many([1, 2]);
    unwind_through(TakesAndDrops(&q));
    q.has(0, 0, 0, 0);
}

pub fn b9_keys_and_values_of_a_batch_are_dropped_without_the_lock<A: Adapter>() {
    let q = Subject::<A>::new();
    let probe = Probe::new();
    let back = q.clone();
    probe.drop.set(move || {
        let _ = back.len();
    });
    let key = |id| Key::probed(id, &probe);
    let value = || Some(Value::probed(1, &probe));
    // a redundant key, and what a done leaves
    q.trigger_many(vec![(key(1), When::Now, value()), (key(1), When::Now, None), (key(2), When::Now, None)]);
    assert_eq!(probe.drop.runs(), 1, "the second key");
    sound(q.take_many(2).done());
    assert_eq!(probe.drop.runs(), 4);
    // the drops of the next call
    q.trigger_many(vec![(key(1), When::Now, value()), (key(2), When::Now, value()), now(3)]);
    let items = q.take_many(2).next_now(2);
    assert_eq!(items.keys(), [3]);
    assert_eq!(probe.drop.runs(), 8);
    // refused ones
    q.close();
    drop(q.trigger_many(vec![(key(1), When::Now, value())]));
    assert_eq!(probe.drop.runs(), 10);
    probe.drop.clear();
}

pub fn b9_the_waker_that_a_batch_wakes_may_call_the_queue<A: Adapter>() {
    let q = Subject::<A>::new();
    let back = q.clone();
    let count = Count::then(move || {
        let _ = back.len();
    });
    let mut getting = q.queue.getting_many(4);
    assert!(count.poll(&mut getting).is_pending());
    q.add_many([1, 2]);
    assert_eq!(count.wakes(), 1);
    assert!(poll_once(&mut getting).is_ready());
}

pub fn b9_a_trigger_during_the_runs_of_a_batch_is_not_taken_for_redundant<A: Adapter>() {
    // an order of the user's own takes another way out of the line
    for own in [false, true] {
        let first_in_first_out = Touchy { line: Vec::new(), pops: Arc::new(AtomicUsize::new(usize::MAX)) };
        let order = if own { Line::Own(Box::new(first_in_first_out)) } else { Line::Fifo };
        let q = Subject::<A>::with(Config { order, ..Config::default() });
        // keys that are added three times are published to the adds without the lock
        for key in (0..100).cycle().take(300) {
            q.add(key);
        }
        let items = q.take_many(100);
        assert_eq!(items.keys().len(), 100);
        for key in 0..100 {
            assert_eq!(q.add(key), Accepted::Dirty, "{key} is held: nothing of it is in line");
        }
        sound(items.done());
        assert_eq!(q.take_many(200).keys(), (0..100).collect::<Vec<_>>());
    }
}

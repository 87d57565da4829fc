//! B7 and the opening rules: users' code.

use crate::adapter::{
    Adapter, Config, Exponential, Held, Limiter, Line, OwnOrder, Restored, Subject, When, ms, sound,
};
use crate::limits::Scripted;
use crate::probe::{Key, POISONED, Probe, Value};
use crate::suite::users::panics;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An order that ignores removals.
#[derive(Default)]
struct Deaf(Vec<u64>);

impl OwnOrder for Deaf {
    fn push(&mut self, key: u64) {
        self.0.push(key);
    }
    fn touch(&mut self, _: u64) {}
    fn pop(&mut self) -> Option<u64> {
        self.0.pop()
    }
}

pub fn b7_a_key_that_was_cancelled_is_not_handed_out_whatever_the_order_says<A: Adapter>() {
    let q = Subject::<A>::with(Config { order: Line::Own(Box::new(Deaf::default())), ..Config::default() });
    q.add_many(0..5);
    assert!(q.cancel(4).is_some() && q.cancel(2).is_some());
    assert_eq!(q.work_off(), [3, 1, 0]);
    assert_eq!(q.len(), 0);
}

pub fn b7_a_cancelled_key_and_its_value_are_dropped_without_the_lock<A: Adapter>() {
    let q = Subject::<A>::new();
    let probe = Probe::new();
    q.trigger(Key::probed(1, &probe), When::Now, Some(Value::of(1))).unwrap();
    let looked = Arc::new(AtomicBool::new(false));
    probe.drop.set({
        let (q, looked) = (q.clone(), Arc::clone(&looked));
        move || looked.store(q.is_empty(), Ordering::SeqCst)
    });
    let took = q.cancel(1);
    assert!(looked.load(Ordering::SeqCst), "the key's drop may call the queue");
    assert!(took.is_some_and(|took| took.value.is_some()));
}

pub fn b7_a_cancel_in_which_eq_or_hash_panics_changes_nothing<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    q.add_after(1, ms(5));
    for poison in [|probe: &Probe| probe.hash.panics(), |probe: &Probe| probe.eq.panics()] {
        let probe = Probe::new();
        let key = Key::probed(1, &probe);
        poison(&probe);
        panics(|| q.queue.cancel(&key, false));
        panics(|| q.queue.cancel(&key, true));
        q.has(1, 0, 0, 1);
    }
    q.clock.advance(ms(5));
    assert_eq!(q.work_off(), [1]);
    q.has(0, 0, 0, 0);
}

/// An order that panics at a removal.
#[derive(Default)]
pub(super) struct Clinging(Vec<u64>);

impl OwnOrder for Clinging {
    fn push(&mut self, key: u64) {
        self.0.push(key);
    }
    fn touch(&mut self, _: u64) {}
    fn pop(&mut self) -> Option<u64> {
        self.0.pop()
    }
    fn left(&mut self, _: u64) {
        panic!("{}", POISONED)
    }
}

pub fn b7_a_cancel_over_which_the_order_panics_changes_nothing<A: Adapter>() {
    let q =
        Subject::<A>::with(Config { order: Line::Own(Box::new(Clinging::default())), ..Config::default() });
    q.add_value(1, 1);
    q.add_after(1, ms(5));
    q.add(2);
    panics(|| q.cancel_and_forget(1));
    q.has(2, 0, 0, 1);
    assert_eq!(q.work_off(), [2, 1]);
    // one that only waits is no business of the order
    assert!(q.cancel(1).is_some());
    q.has(0, 0, 0, 0);
}

const FAILED: Restored = Restored { failures: 2, attempt: 3, due: None, priority: 0 };

pub fn b7_failures_are_not_restored_where_the_limiter_counts_them_itself<A: Adapter>() {
    let limiter = Limiter(Scripted::new(ms(1)));
    let q = Subject::<A>::with(Config { limiter: Some(limiter), ..Config::default() });
    let Err(back) = q.restore(1, FAILED, Some(Value::of(7))) else { panic!("it counts them itself") };
    assert_eq!((back.key.id, back.value.map(|value| value.items.clone())), (1, Some(vec![7])));
    q.has(0, 0, 0, 0);
    // the attempt is the queue's
    assert!(q.restore(1, Restored { failures: 0, ..FAILED }, None).is_ok());
    assert_eq!(q.take(1).attempt(), 3);
}

pub fn b7_restored_failures_expire_like_others<A: Adapter>() {
    let exponential = Exponential { base: ms(1), max: ms(1_000), expire_after: Some(ms(10)) };
    let q = Subject::<A>::with(Config { exponential: Some(exponential), ..Config::default() });
    let due = q.clock.at() + ms(5);
    q.restore(1, Restored { due: Some(due), ..FAILED }, None).unwrap();
    q.clock.advance(ms(14));
    assert_eq!(q.num_requeues(1), 2);
    q.clock.advance(ms(1));
    assert_eq!(q.num_requeues(1), 0, "ten milliseconds after it was due");
}

pub fn b7_a_restore_in_which_users_code_panics_restores_nothing<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    let probe = Probe::new();
    let key = Key::probed(1, &probe);
    probe.eq.panics();
    panics(|| q.restore(key, FAILED, None));
    let probe = Probe::new();
    let value = Value::probed(2, &probe);
    probe.merge.panics();
    panics(|| q.restore(1, FAILED, Some(value)));
    assert_eq!(q.num_requeues(1), 0);
    q.has(1, 0, 0, 0);
    let one = q.take(1);
    assert_eq!(one.attempt(), 1);
    sound(one.done());
    q.has(0, 0, 0, 0);
}

pub fn b7_keys_are_cloned_for_a_page_without_the_lock<A: Adapter>() {
    let q = Subject::<A>::new();
    let probe = Probe::new();
    q.trigger(Key::probed(1, &probe), When::Now, None).unwrap();
    let looked = Arc::new(AtomicBool::new(false));
    probe.clone.set({
        let (q, looked) = (q.clone(), Arc::clone(&looked));
        move || looked.store(q.len() == 1, Ordering::SeqCst)
    });
    assert_eq!(q.snapshot(10, None), [1]);
    assert!(looked.load(Ordering::SeqCst), "the key's clone may call the queue");
}

pub fn b7_a_key_whose_last_run_ends_while_it_is_cloned_is_dropped_with_the_page<A: Adapter>() {
    let q = Subject::<A>::new();
    let probe = Probe::new();
    q.trigger(Key::probed(1, &probe), When::Now, Some(Value::of(1))).unwrap();
    probe.clone.set({
        let q = q.clone();
        move || {
            q.cancel(1);
        }
    });
    assert_eq!(q.snapshot(10, None), [1]);
    probe.clone.clear();
    assert_eq!(probe.drop.runs(), 2, "the clone and the queue's own");
    assert_eq!(q.state(1), None);
    q.add(1);
    assert_eq!(q.work_off(), [1]);
}

pub fn b7_a_run_that_begins_and_ends_while_its_key_is_cloned_is_as_any_other<A: Adapter>() {
    let q = Subject::<A>::new();
    let probe = Probe::new();
    q.trigger(Key::probed(1, &probe), When::Now, None).unwrap();
    q.add(2);
    probe.clone.set({
        let q = q.clone();
        move || {
            let one = q.take(1);
            q.add(1);
            sound(one.done());
        }
    });
    assert_eq!(q.snapshot(10, None), [1, 2]);
    probe.clone.clear();
    assert_eq!(q.work_off(), [2, 1]);
    q.has(0, 0, 0, 0);
    assert_eq!(q.snapshot(10, None), [0_u64; 0]);
}

pub fn b7_a_clone_that_panics_leaves_the_queue_as_it_was<A: Adapter>() {
    let q = Subject::<A>::new();
    let probe = Probe::new();
    q.add(1);
    q.trigger(Key::probed(2, &probe), When::Now, None).unwrap();
    q.add(3);
    probe.clone.panics();
    panics(|| q.page(0, 10, None));
    probe.clone.clear();
    q.has(3, 0, 0, 0);
    assert_eq!(q.work_off(), [1, 2, 3]);
    assert_eq!(probe.drop.runs(), 1, "nothing keeps it");
    assert_eq!(q.snapshot(10, None), [0_u64; 0]);
}

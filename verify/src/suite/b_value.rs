//! B1, B7's `state`, and of B10 FIFO, LIFO and the user's own order.

use crate::adapter::{
    Accepted, Adapter, Config, Held, Line, OwnOrder, Policy, Seen, Subject, When, ms, sound,
};
use crate::probe::{Probe, Value};
use std::sync::Arc;

fn items<'q, H: Held<'q>>(item: &H) -> Option<Vec<u32>> {
    item.value().map(|value| value.items.clone())
}

/// The value of the next run of `key`.
fn taken<A: Adapter>(q: &Subject<A>, key: u64) -> Option<Vec<u32>> {
    items(&q.take(key))
}

fn after(delay: u64) -> When {
    When::After(ms(delay), Policy::Earliest)
}

pub fn b1_a_trigger_may_carry_a_value_and_get_hands_it_out<A: Adapter>() {
    let q = Subject::<A>::new();
    assert_eq!(q.add_value(1, 7), Accepted::Ready);
    let mut one = q.take(1);
    assert_eq!(items(&one), Some(vec![7]));
    assert_eq!(one.take_value().map(|value| value.items.clone()), Some(vec![7]));
    assert!(one.value().is_none(), "taken");
    assert!(one.take_value().is_none());
}

pub fn b1_every_accepted_trigger_merges_at_the_call_older_first<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    assert_eq!(q.add_value(1, 2), Accepted::Coalesced);
    q.trigger(1, after(10), Some(Value::of(3))).unwrap();
    q.trigger(1, When::RateLimited, Some(Value::of(4))).unwrap();
    assert_eq!(taken(&q, 1), Some(vec![1, 2, 3, 4]));
}

pub fn b1_a_value_merges_whichever_timer_wins<A: Adapter>() {
    for policy in [Policy::Earliest, Policy::Latest(ms(100)), Policy::Replace, Policy::Keep] {
        let q = Subject::<A>::new();
        for (delay, item) in [(10, 1), (20, 2), (5, 3), (10, 4)] {
            q.trigger(1, When::After(ms(delay), policy), Some(Value::of(item))).unwrap();
        }
        q.clock.advance(ms(100));
        assert_eq!(taken(&q, 1), Some(vec![1, 2, 3, 4]), "{policy:?}");
    }
}

pub fn b1_get_hands_key_and_value_out_together_and_leaves_an_empty_slot<A: Adapter>() {
    let q = Subject::<A>::new();
    q.trigger(1, after(10), Some(Value::of(1))).unwrap();
    q.add_value(1, 2);
    assert_eq!(taken(&q, 1), Some(vec![1, 2]), "one slot a key, whichever trigger made it ready");
    q.clock.advance(ms(10));
    assert_eq!(taken(&q, 1), None, "the timer's run comes with an empty slot");
}

pub fn b1_an_empty_slot_hands_out_none<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    assert_eq!(taken(&q, 1), None);
    q.add_value(1, 1);
    q.add(1);
    assert_eq!(taken(&q, 1), Some(vec![1]), "a trigger without a value leaves the slot");
    q.add(1);
    assert_eq!(taken(&q, 1), None);
}

pub fn b1_a_value_for_a_held_key_is_for_the_next_run<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    let one = q.take(1);
    q.add_value(1, 2);
    q.add_value(1, 3);
    assert_eq!(items(&one), Some(vec![1]));
    sound(one.done());
    assert_eq!(taken(&q, 1), Some(vec![2, 3]));
}

pub fn b1_a_retry_merges_the_old_value_in_front_of_what_came_meanwhile<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    let one = q.take(1);
    q.add_value(1, 2);
    assert!(sound(one.retry()).is_ok());
    q.add_value(1, 3);
    assert_eq!(taken(&q, 1), Some(vec![1, 2, 3]));
}

pub fn b1_a_retry_puts_the_value_back_for_its_own_run<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    assert!(sound(q.take(1).retry()).is_ok());
    q.clock.advance(ms(1));
    assert_eq!(taken(&q, 1), Some(vec![1]));
    q.add_value(2, 1);
    assert!(sound(q.take(2).retry_after(ms(0))).is_ok());
    assert_eq!(taken(&q, 2), Some(vec![1]));
}

pub fn b1_a_value_that_was_taken_out_is_not_put_back<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    let mut one = q.take(1);
    drop(one.take_value());
    assert!(sound(one.retry()).is_ok());
    q.clock.advance(ms(1));
    assert_eq!(taken(&q, 1), None);
}

pub fn b1_again_is_no_failure_and_puts_no_value_back<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    let one = q.take(1);
    q.add_value(1, 2);
    assert!(sound(one.again(ms(5))).is_ok());
    assert_eq!(taken(&q, 1), Some(vec![2]), "what came meanwhile, and only that");
}

pub fn b1_done_drops_the_value_of_its_run_and_keeps_the_next_ones<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    let one = q.take(1);
    q.add_value(1, 2);
    sound(one.done());
    assert_eq!(taken(&q, 1), Some(vec![2]));
}

pub fn b1_the_slot_dies_with_the_keys_last_reason_to_run<A: Adapter>() {
    let q = Subject::<A>::new();
    q.trigger(1, after(10), Some(Value::of(1))).unwrap();
    // Held, with a timer that the drain drops: no reason is left, although the
    // key is.
    q.add(2);
    let two = q.take(2);
    let probe = Probe::new();
    q.trigger(2, after(10), Some(Value::probed(2, &probe))).unwrap();
    q.shut_down();
    assert_eq!(probe.drop.runs(), 1, "the slot died with the timer");
    sound(two.done());
    q.is_over();
}

pub fn b1_a_value_that_came_with_an_absorbed_timer_is_handed_out_with_the_run<A: Adapter>() {
    let q = Subject::<A>::with(Config { absorbed: true, ..Config::default() });
    q.trigger(1, after(10), Some(Value::of(1))).unwrap();
    q.add(1);
    assert_eq!(taken(&q, 1), Some(vec![1]));
    q.clock.advance(ms(10));
    q.is_idle();
}

pub fn b1_a_slot_lives_as_long_as_a_timer_is_left<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.trigger(1, after(10), Some(Value::of(1))).unwrap();
    sound(one.done());
    q.clock.advance(ms(10));
    assert_eq!(taken(&q, 1), Some(vec![1]));
}

pub fn b1_a_slot_of_a_dirty_key_survives_the_drop_of_its_timer<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add(1);
    q.trigger(1, after(10), Some(Value::of(1))).unwrap();
    q.shut_down();
    sound(one.done());
    assert_eq!(taken(&q, 1), Some(vec![1]), "a reason to run was left");
}

pub fn b1_detach_hands_key_and_value_out<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    let (key, value) = sound(q.take(1).detach());
    assert_eq!(value.map(|value| value.items.clone()), Some(vec![1]));
    assert!(q.done(key.id));
    q.has(0, 0, 0, 0);
}

pub fn b7_state_tells_what_is_known_of_a_key<A: Adapter>() {
    let q = Subject::<A>::new();
    assert_eq!(q.state(1), None);
    q.add(1);
    assert_eq!(q.state(1), Some(Seen { ready: true, ..Seen::default() }));
    let one = q.take(1);
    assert_eq!(q.state(1), Some(Seen { held: true, ..Seen::default() }));
    q.add(1);
    assert_eq!(q.state(1), Some(Seen { held: true, dirty: true, ..Seen::default() }));
    drop(one);
    assert_eq!(q.state(1), Some(Seen { ready: true, ..Seen::default() }));
    q.work_off();
    assert_eq!(q.state(1), None);
}

pub fn b7_state_fires_what_is_due_before_it_looks<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    assert_eq!(q.state(1), Some(Seen { due: Some(q.clock.at() + ms(5)), ..Seen::default() }));
    q.clock.advance(ms(5));
    assert_eq!(q.state(1), Some(Seen { ready: true, ..Seen::default() }));
}

pub fn b10_fifo_is_the_default<A: Adapter>() {
    let q = Subject::<A>::with(Config { order: Line::Fifo, ..Config::default() });
    let default = Subject::<A>::new();
    for q in [&q, &default] {
        for key in [3, 1, 2] {
            q.add(key);
        }
        assert_eq!(q.work_off(), [3, 1, 2]);
    }
}

pub fn b10_lifo_hands_out_what_became_ready_last<A: Adapter>() {
    let q = Subject::<A>::with(Config { order: Line::Lifo, ..Config::default() });
    for key in [1, 2, 3] {
        q.add(key);
    }
    q.add(1);
    sound(q.take(3).done());
    q.add(4);
    q.add_after(5, ms(5));
    q.clock.advance(ms(5));
    assert_eq!(q.work_off(), [5, 4, 2, 1], "a ready key that is added again stays where it is");
}

pub fn b10_lifo_puts_a_dirty_key_on_top_at_done<A: Adapter>() {
    let q = Subject::<A>::with(Config { order: Line::Lifo, ..Config::default() });
    q.add(1);
    let one = q.take(1);
    q.add(1);
    q.add(2);
    sound(one.done());
    assert_eq!(q.work_off(), [1, 2]);
}

/// Smallest first; three touches make a key urgent. The reference model has the
/// same.
#[derive(Default, Debug)]
pub struct Smallest {
    /// Keys and how often they were touched.
    ready: Vec<(u64, u32)>,
}

impl OwnOrder for Smallest {
    fn push(&mut self, key: u64) {
        self.ready.push((key, 0));
    }
    fn touch(&mut self, key: u64) {
        for (ready, touches) in &mut self.ready {
            if *ready == key {
                *touches += 1;
            }
        }
    }
    fn pop(&mut self) -> Option<u64> {
        let rank = |(key, touches): &(u64, u32)| (*touches < 3, *key);
        let index = (0..self.ready.len()).min_by_key(|i| rank(&self.ready[*i]))?;
        Some(self.ready.remove(index).0)
    }
    fn left(&mut self, key: u64) {
        self.ready.retain(|(ready, _)| *ready != key);
    }
}

fn own<A: Adapter>() -> Subject<A> {
    Subject::with(Config { order: Line::Own(Box::new(Smallest::default())), ..Config::default() })
}

pub fn b10_an_order_of_ones_own_decides_what_comes_next<A: Adapter>() {
    let q = own::<A>();
    for key in [3, 1, 2] {
        q.add(key);
    }
    sound(q.take(1).done());
    q.add(0);
    assert_eq!(q.work_off(), [0, 2, 3]);
}

pub fn b10_an_order_of_ones_own_is_told_of_touches<A: Adapter>() {
    let q = own::<A>();
    for key in [1, 2, 3] {
        q.add(key);
    }
    for _ in 0..3 {
        q.add(3);
    }
    assert_eq!(q.work_off(), [3, 1, 2]);
}

pub fn b10_an_order_of_ones_own_hears_of_timers_and_dirty_keys<A: Adapter>() {
    let q = own::<A>();
    q.add(5);
    let five = q.take(5);
    q.add(5);
    q.add_after(2, ms(5));
    q.add(9);
    q.clock.advance(ms(5));
    sound(five.done());
    assert_eq!(q.work_off(), [2, 5, 9]);
}

/// An order that loses every second key and invents others: the queue must not believe it.
struct Liar(Vec<u64>, bool);

impl OwnOrder for Liar {
    fn push(&mut self, key: u64) {
        self.1 = !self.1;
        if self.1 {
            self.0.push(key);
            self.0.push(key);
        }
    }
    fn touch(&mut self, key: u64) {
        self.0.push(key);
    }
    fn pop(&mut self) -> Option<u64> {
        self.0.pop()
    }
}

pub fn b10_a_wrong_order_changes_the_order_and_nothing_else<A: Adapter>() {
    let q = Subject::<A>::with(Config {
        order: Line::Own(Box::new(Liar(Vec::new(), false))),
        ..Config::default()
    });
    for key in 0..20 {
        q.add(key);
        q.add(key);
    }
    q.has(20, 0, 0, 0);
    let mut runs = q.work_off();
    runs.sort_unstable();
    assert_eq!(runs, (0..20).collect::<Vec<_>>(), "each key once");
    q.has(0, 0, 0, 0);
    q.shut_down();
    q.is_over();
}

pub fn b1_values_are_dropped_once_each<A: Adapter>() {
    let q = Subject::<A>::new();
    let probes: Vec<Arc<Probe>> = (0..6).map(|_| Probe::new()).collect();
    for (item, probe) in (0..).zip(&probes) {
        let when = if item % 2 == 0 { When::Now } else { after(5) };
        q.trigger(u64::from(item / 3), when, Some(Value::probed(item, probe))).unwrap();
    }
    q.work_off();
    q.clock.advance(ms(5));
    q.work_off();
    for (index, probe) in probes.iter().enumerate() {
        assert_eq!(probe.drop.runs(), 1, "value {index}");
    }
}

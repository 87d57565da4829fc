//! Orders of the user's own that forget keys, repeat them or panic: whatever they answer, each
//! ready key is handed out, and to one holder. One key at a time, and in batches.

mod common;

use common::Calls;
use requeue_core::{Config, Core, Delay, Got, Order, ReadyOrder, RunRef, Ticket, Trigger};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Last in, first out, unless it is told to misbehave.
#[derive(Default)]
struct Stack {
    line: Vec<Ticket>,
    /// It keeps no key that is pushed.
    loses: bool,
    /// It never takes a key out.
    repeats: bool,
    /// Number of keys it still returns; at the next one it panics.
    patience: Option<usize>,
}

impl ReadyOrder<u32> for Stack {
    fn push(&mut self, _: &u32, ticket: Ticket) {
        if !self.loses {
            self.line.push(ticket);
        }
    }
    fn pop(&mut self) -> Option<Ticket> {
        if self.patience == Some(0) {
            self.patience = None;
            panic!("as told");
        }
        self.patience = self.patience.map(|left| left - 1);
        if self.repeats { self.line.last().copied() } else { self.line.pop() }
    }
}

fn queue(order: Stack, keys: u32) -> Core<u32> {
    let mut core = Core::new(Config { order: Order::Custom(Box::new(order)), ..Config::default() });
    for key in 0..keys {
        add(&mut core, key);
    }
    core
}

fn add(core: &mut Core<u32>, key: u32) {
    core.add(&mut Trigger::new(key, None), key, Delay::Now).expect("open");
}

fn batch(core: &mut Core<u32>, most: usize) -> Vec<RunRef<u32>> {
    let mut runs = Vec::new();
    let taken = core.get_up_to(most, |_, _| (), |item| runs.push(item.run));
    assert_eq!(taken, runs.len());
    runs
}

fn keys(runs: &[RunRef<u32>]) -> Vec<u32> {
    runs.iter().map(|run| *run.key()).collect()
}

fn finish(core: &mut Core<u32>, runs: Vec<RunRef<u32>>) {
    for run in runs {
        let _ = core.finished(run, true);
    }
}

/// Orders that misbehave in each way.
fn bad_orders() -> [Stack; 2] {
    [Stack { loses: true, ..Stack::default() }, Stack { repeats: true, ..Stack::default() }]
}

#[test]
fn a_held_key_is_not_handed_out_again_whatever_the_order_says() {
    for order in bad_orders() {
        let mut core = queue(order, 3);
        let mut runs = Vec::new();
        while let Got::Item(item) = core.get() {
            runs.push(item.run);
        }
        let mut got = keys(&runs);
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2]);
        finish(&mut core, runs);
        assert_eq!(core.stats().known, 0);
    }
}

#[test]
fn a_batch_of_an_order_that_loses_or_repeats_keys_has_each_key_once() {
    for order in bad_orders() {
        let mut core = queue(order, 5);
        let first = batch(&mut core, 3);
        assert_eq!((first.len(), core.len(), core.stats().held), (3, 2, 3));
        let rest = batch(&mut core, 3);
        let mut got = [keys(&first), keys(&rest)].concat();
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2, 3, 4]);
        finish(&mut core, first);
        finish(&mut core, rest);
        assert_eq!(core.stats().known, 0);
    }
}

#[test]
fn a_batch_has_as_many_keys_as_were_asked_for_in_the_order_of_the_users() {
    // more than an order may answer nonsense
    let mut core = queue(Stack::default(), 3_000);
    let runs = batch(&mut core, 2_000);
    assert!(keys(&runs).into_iter().eq((1_000..3_000).rev()));
    finish(&mut core, runs);
    let runs = batch(&mut core, 2_000);
    assert!(keys(&runs).into_iter().eq((0..1_000).rev()));
    assert!(batch(&mut core, 1).is_empty());
    finish(&mut core, runs);
}

#[test]
fn a_key_that_was_triggered_during_its_run_is_in_the_next_batch() {
    let mut core = queue(Stack::default(), 2);
    let runs = batch(&mut core, 2);
    add(&mut core, 0);
    finish(&mut core, runs);
    let runs = batch(&mut core, 2);
    assert_eq!(keys(&runs), [0]);
    finish(&mut core, runs);
    assert_eq!(core.stats().known, 0);
}

#[test]
fn an_order_that_panics_in_the_middle_of_a_batch_loses_no_key() {
    let mut core = queue(Stack { patience: Some(3), ..Stack::default() }, 5);
    let panicked = catch_unwind(AssertUnwindSafe(|| batch(&mut core, 5)));
    assert!(panicked.is_err());
    assert_eq!((core.len(), core.stats().held), (5, 0), "nothing was handed out");
    // the three that it had given go first, as it gave them
    let runs = batch(&mut core, 5);
    assert_eq!(keys(&runs), [4, 3, 2, 1, 0]);
    finish(&mut core, runs);
    assert_eq!(core.stats().known, 0);
}

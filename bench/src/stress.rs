//! Checks that make a queue's figures count: one holder per key, the last trigger seen by a later run, keys
//! in the order in which they came.
//!
//! requeue's own test (`verify/tests/stress`) does more; this is what every queue
//! that takes part can be asked.

use crate::crew::{Form, consume_in_threads, spawn};
use crate::keys::Random;
use crate::{Args, Fifo, Line, Usage};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

const PRODUCERS: usize = 3;
const CONSUMERS: usize = 3;
const ADDS: u64 = 20_000;

/// Checks `rounds` times; an operation is an add.
///
/// # Errors
///
/// If a parameter is wrong.
///
/// # Panics
///
/// If the queue breaks one of the three.
pub fn run<Q: Fifo<Key = u64>>(args: &mut Args) -> Result<Line, Usage> {
    let rounds = args.number("rounds", 10)?;
    let params = args.finish()?;
    let start = Instant::now();
    for round in 0..rounds as u64 {
        let form = Form::named(Form::WORDS[round as usize % 2]);
        check_runs::<Q>(round, form);
        check_order::<Q>(form);
    }
    let adds = rounds as u64 * 2 * PRODUCERS as u64 * ADDS;
    Ok(Line::new(Q::NAME, "stress", params, adds, start.elapsed()))
}

/// Values that producers write before they add, and that runs see.
struct Board {
    /// For each producer and key, the value written last.
    written: Vec<Vec<AtomicU64>>,
    /// Values of `written` that a run last saw. Only the key's holder writes them.
    seen: Vec<Vec<AtomicU64>>,
    held: Vec<AtomicBool>,
}

impl Board {
    fn new(keys: usize) -> Arc<Self> {
        let cells = || (0..PRODUCERS).map(|_| (0..keys).map(|_| AtomicU64::new(0)).collect()).collect();
        let held = (0..keys).map(|_| AtomicBool::new(false)).collect();
        Arc::new(Self { written: cells(), seen: cells(), held })
    }

    /// Looks plainly first: a read-modify-write would bring the barrier that the
    /// queue owes.
    fn run(&self, key: usize) {
        for (written, seen) in self.written.iter().zip(&self.seen) {
            seen[key].store(written[key].load(Relaxed), Relaxed);
        }
        assert!(!self.held[key].swap(true, Relaxed), "key {key} is held twice");
        if key % 3 == 0 {
            std::thread::yield_now();
        }
        self.held[key].store(false, Relaxed);
    }
}

/// Single flight, and no lost trigger.
fn check_runs<Q: Fifo<Key = u64>>(round: u64, form: Form) {
    let keys = 1 + round as usize % 12;
    let (q, board) = (Arc::new(Q::new()), Board::new(keys));
    let states = vec![Arc::clone(&board); CONSUMERS];
    let consumers =
        consume_in_threads(&q, form, states, |board: &mut Arc<Board>, key| board.run(*key as usize));
    let produce = |which: usize| {
        let (q, board) = (Arc::clone(&q), Arc::clone(&board));
        spawn(move || {
            let mut random = Random::new(round * PRODUCERS as u64 + which as u64);
            for value in 1..=ADDS {
                let key = random.below(keys as u64);
                board.written[which][key as usize].store(value, Relaxed);
                if random.below(2) == 0 {
                    q.add(key);
                } else {
                    q.add_ref(&key);
                }
                if random.below(8) == 0 {
                    (0..random.below(100)).for_each(|_| std::hint::spin_loop());
                }
            }
        })
    };
    let producers: Vec<_> = (0..PRODUCERS).map(produce).collect();
    producers.into_iter().for_each(|thread| thread.join().expect("it ends well"));
    q.shut_down(CONSUMERS);
    consumers.join();
    for (written, seen) in board.written.iter().zip(&board.seen) {
        for (key, (written, seen)) in written.iter().zip(seen).enumerate() {
            assert_eq!(seen.load(Relaxed), written.load(Relaxed), "key {key}: no run saw the last write");
        }
    }
}

/// First in, first out: each producer's keys come in its order, and all of them.
fn check_order<Q: Fifo<Key = u64>>(form: Form) {
    let q = Arc::new(Q::new());
    let consumer =
        consume_in_threads(&q, form, vec![Vec::new()], |order: &mut Vec<u64>, key| order.push(*key));
    let produce = |which| {
        let q = Arc::clone(&q);
        spawn(move || (which * ADDS..(which + 1) * ADDS).for_each(|key| q.add(key)))
    };
    let producers: Vec<_> = (0..PRODUCERS as u64).map(produce).collect();
    producers.into_iter().for_each(|thread| thread.join().expect("it ends well"));
    q.shut_down(1);
    let order = consumer.join().concat();
    assert_eq!(order.len() as u64, PRODUCERS as u64 * ADDS, "each key comes once");
    for which in 0..PRODUCERS as u64 {
        let own: Vec<_> = order.iter().filter(|key| **key / ADDS == which).collect();
        assert!(own.is_sorted(), "the keys of producer {which} come in its order");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::{Condvar, Mutex};
    use std::collections::VecDeque;

    const HANDS_OUT_TWICE: u8 = 0;
    const LOSES_TRIGGERS: u8 = 1;
    const TURNS_PAIRS_ROUND: u8 = 2;

    /// A queue that keeps none of the promises, or, of distinct keys, all but one.
    struct Broken<const FAULT: u8> {
        state: Mutex<(VecDeque<u64>, bool)>,
        ready: Condvar,
    }

    impl<const FAULT: u8> Fifo for Broken<FAULT> {
        const NAME: &'static str = "broken";
        type Key = u64;
        type Item<'q> = u64;

        fn new() -> Self {
            Self { state: Mutex::default(), ready: Condvar::new() }
        }
        fn add(&self, key: u64) {
            if FAULT != LOSES_TRIGGERS {
                self.state.lock().0.push_back(key);
                self.ready.notify_one();
            }
        }
        fn get(&self) -> Option<u64> {
            let mut state = self.state.lock();
            self.ready.wait_while(&mut state, |(line, shut)| {
                line.len() < 1 + usize::from(FAULT == TURNS_PAIRS_ROUND) && !*shut
            });
            if FAULT == TURNS_PAIRS_ROUND && state.0.len() > 1 {
                state.0.swap(0, 1);
            }
            state.0.pop_front()
        }
        fn key(item: &u64) -> &u64 {
            item
        }
        fn done(&self, _: u64) {}
        fn shut_down(&self, _: usize) {
            self.state.lock().1 = true;
            self.ready.notify_all();
        }
    }

    #[test]
    #[should_panic(expected = "it ends well")]
    fn a_key_that_two_hold_is_noticed() {
        check_runs::<Broken<HANDS_OUT_TWICE>>(0, Form::Plain);
    }

    #[test]
    #[should_panic(expected = "no run saw the last write")]
    fn a_lost_trigger_is_noticed() {
        check_runs::<Broken<LOSES_TRIGGERS>>(0, Form::Plain);
    }

    #[test]
    #[should_panic(expected = "come in its order")]
    fn keys_out_of_order_are_noticed() {
        check_order::<Broken<TURNS_PAIRS_ROUND>>(Form::Plain);
    }

    #[test]
    fn requeue_passes() {
        let mut args = Args::parse(["stress".to_string(), "rounds=4".to_string()]).expect("right");
        run::<requeue::WorkQueue<u64>>(&mut args).expect("right");
    }
}

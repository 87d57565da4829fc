//! The conformance suite: every promise of the contract as a function that
//! takes the queue under test as a parameter.
//!
//! A function is named after its rule and the sentence that it checks. Nothing here sleeps, retries or
//! depends on the machine's speed: time comes from a fake clock, wake-ups are counted, and tests that could
//! hang run under the watchdog.

#![allow(missing_docs, reason = "the tests' names are sentences")]

use crate::adapter::{Adapter, LeftOut, take_lacked};
use crate::watchdog;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub mod b_backoff;
pub mod b_backoff_rules;
pub mod b_batch;
pub mod b_batch_rules;
pub mod b_bound;
pub mod b_control;
pub mod b_control_rules;
pub mod b_debounce;
pub mod b_groups;
pub mod b_overdue;
pub mod b_pause;
pub mod b_pause_group;
pub mod b_priority;
pub mod b_rate;
pub mod b_rate_group;
pub mod b_value;
pub mod d_timers;
pub mod d_wait;
pub mod m_metrics;
pub mod m_parts;
pub mod q_close;
pub mod q_done;
pub mod q_drain;
pub mod q_get;
pub mod q_line;
pub mod q_shut;
pub mod q_unfinished;
pub mod q_unwind;
pub mod r_limit;
pub mod rules;
pub mod unlocked;
pub mod users;
pub mod w_attempts;
pub mod x_mistakes;

/// Makes a test of a function of the suite for a queue.
#[macro_export]
macro_rules! queue_test {
    ($adapter:ty, $file:ident, $name:ident) => {
        #[test]
        fn $name() {
            $crate::suite::run::<$adapter>(stringify!($name), $crate::suite::$file::$name::<$adapter>);
        }
    };
}

/// Runs a function of the suite, unless the queue leaves it out. One that calls what the queue lacks ends there.
///
/// # Panics
///
/// If the function panics otherwise.
pub fn run<A: Adapter>(name: &'static str, test: fn()) {
    if let Some(LeftOut { why, .. }) = A::leaves_out().iter().find(|left_out| left_out.tests.contains(&name))
    {
        eprintln!("LEFT OUT {name}: {why}");
        return;
    }
    watchdog::run(name, move || {
        let end = catch_unwind(AssertUnwindSafe(test));
        match (end, take_lacked()) {
            (Ok(()), None) => {}
            (Ok(()), Some(what)) => panic!("it passes although the queue under test has no {what}"),
            (Err(_), Some(what)) => {
                eprintln!("LEFT OUT {name}: it calls what this queue does not offer: {what}");
            }
            (Err(panic), None) => resume_unwind(panic),
        }
    });
}

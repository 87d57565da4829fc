//! The contract of the queue as tests.
//!
//! * [`mod@suite`]: one conformance suite, written once; every promise is a
//!   function that takes the queue under test as a parameter. The binaries in
//!   `tests/` run it for each front: blocking, and async on a bare `block_on`,
//!   tokio and smol.
//! * [`mod@workers`]: the same for workers, on threads, on executors, and in one future.
//! * [`model`]: the contract as a small reference model, run in lock-step with
//!   the real queue by random operation sequences, and itself put through the
//!   suite.
//!
//! A test's name begins with the number of the rule that it tests: see `README.md` of this crate.
#![cfg(not(any(requeue_loom, requeue_counted)))]

pub mod adapter;
pub mod cluster;
pub mod durable;
#[allow(clippy::needless_pass_by_value, reason = "each test owns the engine that was made for it")]
pub mod engines;
pub mod fronts;
pub mod limits;
pub mod lockstep;
pub mod model;
pub mod probe;
pub mod reference;
pub mod suite;
pub mod twins;
pub mod wake;
pub mod watchdog;
pub mod workers;

include!(concat!(env!("OUT_DIR"), "/suites.rs"));

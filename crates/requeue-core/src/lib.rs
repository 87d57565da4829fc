//! The state machine of the [`requeue`](https://docs.rs/requeue) work queue.
//!
//! A queue hands keys to workers: each key to one worker at a time, many triggers become one run, none is
//! lost. This crate is what the queue *knows* and *decides*. It has no lock, clock, waker or thread (it is
//! `no_std`), and time is an argument, so it can be replayed, compared with a model and fuzzed. Waiting,
//! waking and the public API are in `requeue`, which is what you want unless you build a queue of your own.
//!
//! ```
//! use requeue_core::{Config, Core, Delay, Got, How, Instant, Trigger};
//! use std::time::Duration;
//!
//! let mut core = Core::<&str>::new(Config::default());
//! let hash = 7; // of the key: 32 bits, from whoever calls
//! core.advance(Instant::ORIGIN);
//! for _ in 0..2 {
//!     core.add(&mut Trigger::new("a", None), hash, Delay::Now)?; // the second coalesces
//! }
//! let Got::Item(item) = core.get() else { panic!("a is ready") };
//! assert_eq!(*item.run.key(), "a");
//! assert!(matches!(core.get(), Got::Empty));
//! let _ = core.end(item.run, How::Again(Duration::from_secs(1)), None);
//! core.advance(Instant::from_nanos(1_000_000_000));
//! assert_eq!(core.len(), 1);
//! # Ok::<(), requeue_core::Refused>(())
//! ```
//!
//! The caller must: begin every lock hold of a look (a get, a count, a state, a shutdown) with
//! [`Core::advance`] and the time, and call it until it says that there is no more to do; begin every other
//! hold (an add, the end of a run) with [`Core::begin`]; call [`Core::conclude`] before unlocking; after
//! unlocking, drop what the calls and [`Core::take_trash`] returned; pass equal hashes for equal keys.

#![no_std]
#![deny(clippy::disallowed_types)]

extern crate alloc;

mod arena;
mod buckets;
mod bytes;
mod chain;
mod column;
mod count;
mod heap;
mod line;
mod machine;
mod map;
mod prefetch;
mod segment;
mod shrink;
mod slots;
mod table;
mod time;
mod timers;

pub use arena::KeyRef;
#[doc(hidden)]
pub use line::Groups;
pub use line::{Ahead, GroupGauges, GroupRules, MaxWait, Order, Rate, ReadyOrder, Ticket};
pub use machine::{
    Accepted, Added, Asking, Bound, Cancelled, Config, Core, Counts, Debounce, Delay, DrainBase, Drained,
    Ended, Gauges, Got, Handout, How, InBackoff, KeyState, Limit, Merge, NotHeld, Only, Paused, Policy,
    Refused, RefusedEnd, Restored, RetryDelay, RunEnd, RunRef, ShutDown, Stats, Trigger, UnfinishedKey,
    UnfinishedReason, WaitingKeys,
};
#[doc(hidden)]
pub use map::Map;
pub use time::Instant;

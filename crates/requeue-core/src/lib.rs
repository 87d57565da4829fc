//! The state machine of the [`requeue`](https://docs.rs/requeue) work queue: what a queue knows of its keys, and
//! what each call does to them. It has no lock, clock, waker or thread (it is `no_std`), and time is an argument, so
//! it can be replayed, compared with a model and fuzzed.
//!
//! It is internal to `requeue`, which is the queue to use: a crate of its own, because what it cannot name it cannot
//! use. Its interface has no examples, and changes with any release.
//!
//! The caller must: begin every lock hold of a look (a get, a count, a state, a shutdown) with
//! [`Core::advance`] and the time, and call it until it says that there is no more to do; begin any other hold (an
//! add, the end of a run) with [`Core::begin`], if the time was read for it; call [`Core::conclude`] before unlocking; after
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
pub use line::Groups;
pub use line::{Ahead, GroupGauges, GroupRules, MaxWait, Order, Rate, ReadyOrder, Ticket};
pub use machine::{
    Accepted, Added, Asking, Awaiter, Bound, Cancelled, Config, Core, Counts, Debounce, Delay, DrainBase,
    Drained, Ended, Got, Handout, How, InBackoff, KeyGauges, KeyState, Limit, Merge, NoRun, NotHeld, Only,
    Paused, Policy, Refused, RefusedEnd, Restored, RetryDelay, RunAnswer, RunEnd, RunRef, ShutDown, Stats,
    Trigger, TriggerOptions, UnfinishedKey, UnfinishedReason, WaitingKeys,
};
pub use map::Map;
pub use time::Instant;

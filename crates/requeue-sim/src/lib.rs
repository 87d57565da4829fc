//! A test kit for users of [`requeue`]'s work queues: random schedules in virtual time.
//!
//! A [`Sim`] runs the real [`WorkQueue`](requeue::WorkQueue) on a clock that stands still. A seed drives
//! producers, workers, failures and time, on one thread, a thousand hours in seconds. After every step your
//! own invariants are checked. A failing schedule is made smaller, and printed as a trace that can be
//! replayed: text, one step per line.
//!
//! You write how the queue is built, which callers there are and how often they call, what runs do, and what
//! must be true:
//!
//! ```
//! use requeue::{InBackoff, WorkQueue};
//! use requeue_sim::{End, Event, Plan, Sim, Trigger, explore};
//! use std::collections::HashMap;
//! use std::time::Duration;
//!
//! const SECOND: Duration = Duration::from_secs(1);
//!
//! /// How the queue is built, who calls it and how often, what runs do, and what must be true.
//! fn scenario(in_backoff: InBackoff) -> Sim<String> {
//!     let mut failed = HashMap::new();
//!     Sim::new(|clock| WorkQueue::builder().clock(clock).in_backoff(in_backoff).build().unwrap())
//!         .workers(2)
//!         .producer(Duration::ZERO..=SECOND, |rng| Trigger::now(format!("web-{}", rng.below(9))))
//!         .handler(|_, rng| match rng.one_in(5) {
//!             true => Plan::ending(End::RetryAfter(SECOND)).taking(SECOND / 50),
//!             false => Plan::done(),
//!         })
//!         .invariant("a key that failed rests for a second", move |world| {
//!             match world.event() {
//!                 Event::Ended { run, end: End::RetryAfter(_), .. } => {
//!                     failed.insert(run.key.clone(), world.now());
//!                 }
//!                 Event::Began(run) => {
//!                     let since = failed.remove(&run.key).map(|at| world.since(at));
//!                     if let Some(since) = since.filter(|since| *since < SECOND) {
//!                         return Err(format!("{} ran after {since:?}", run.key));
//!                     }
//!                 }
//!                 _ => (),
//!             }
//!             Ok(())
//!         })
//! }
//!
//! let failure = explore(0..1_000, || scenario(InBackoff::Run)).unwrap_err();
//! println!("{failure}");
//! explore(0..100, || scenario(InBackoff::Respect))?; // that is the remedy
//! # Ok::<(), requeue_sim::Failure>(())
//! ```
//!
//! It prints this. All but the comments is the trace: of the calls in the minute that failed, the two that
//! are needed.
//!
//! ```text
//! "a key that failed rests for a second" is broken at 12.721285807s: web-4 ran after 894.393221ms
//! found with seed 0; calls: 2, keys: 1; `Sim::replay` plays this again:
//! seed 0
//! 11.806892586s add "web-4"
//! # 11.806892586s worker 0 begins "web-4": attempt 1, waited 0s; takes 0.02s
//! # 11.826892586s worker 0 ends "web-4": retry after 1s
//! 12.721285807s add "web-4"
//! # 12.721285807s worker 0 begins "web-4": attempt 1, waited 0s; takes 0s
//! ```
//!
//! # What is played, and what is not
//!
//! Workers are tasks that wait in [`get`](requeue::WorkQueue::get), and end their runs as the handler's
//! [`Plan`] says. The seed chooses among all that can act at one instant. A worker is polled when its waker
//! was called, at that instant. So the simulation explores the order of calls and time, not races of threads
//! inside the queue, which `requeue`'s own models cover.
//!
//! Anything beyond a trigger, a run and its end is played only if you ask for it:
//!
//! | what | how |
//! |---|---|
//! | values, on a queue that is built with a merge | [`Trigger::value`], [`Restored::value`], [`Run::value`]; what they must be says [`Value`] |
//! | producers that wait for room, on a queue with a bound | [`Call::AddWhenRoom`], [`Event::Answered`] |
//! | several keys at once | [`Call::AddMany`], [`Sim::batches`] |
//! | done-and-next | [`End::Next`] |
//! | waits for a key that are cancelled | [`Call::CancelGet`] |
//! | more workers, fewer, or none | [`Call::Workers`] |
//! | pauses of the queue, a key, a group | [`Call::Pause`], [`Call::PauseKey`], [`Call::PauseGroup`] |
//! | the end | [`Call::Close`], [`Call::ShutDown`], [`Call::Drain`] and [`Event::Drained`] |
//!
//! Rates, groups, priorities and the like belong to the queue that you build. Not played are the library's
//! own [workers](requeue::WorkerBuilder), batches whose runs one call ends
//! ([`Items::done`](requeue::Items::done)), and gets with a deadline.
//!
//! These invariants are always checked, in addition to your own: a key is held by one worker at a time; an
//! accepted trigger has a run to come (unless the queue was shut down, or has a bound); a waiting worker is
//! woken when there is a key for it, a caller that waits for room when there is some, and a drain at its end;
//! time passes.
//!
//! A seed gives one run, on every machine: there are no floating-point numbers, threads or hash orders in it.
//! Your closures must keep to that too. A schedule of some hundred steps takes about a tenth of a
//! millisecond. The search for a small trace ends after five million steps, or ten times those of the
//! failure.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod call;
mod check;
mod engine;
mod gap;
mod plan;
mod rng;
mod sim;
mod sim_worker;
mod source;
mod text;
mod trace;
mod value;
mod world;

pub use call::{Call, Restored, Timer, Trigger, When};
pub use check::{Failure, ReplayError, Summary, check, explore};
pub use gap::Gap;
pub use plan::{End, Plan, Run};
pub use rng::Rng;
pub use sim::{Key, Sim};
pub use trace::TraceError;
pub use value::Value;
pub use world::{Event, KeyLog, World};

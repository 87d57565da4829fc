//! Models of waiting and waking: every interleaving of a few small programs,
//! explored by [loom](https://docs.rs/loom).
//!
//! ```text
//! RUSTFLAGS="--cfg requeue_loom" cargo test -p requeue-verify --profile loom --test loom
//! ```
//!
//! Each model starts two or three threads that really run against each other. A
//! wake-up that is lost leaves a thread asleep for ever; loom reports that as a
//! deadlock. So most models assert little beyond "everybody returns"; they are
//! built so that no later call, a `shut_down` say, can make up for a wake-up that
//! was lost before it.
//!
//! A model explores at most three preemptions an execution, because the known
//! faults of such code need one or two and the number of executions grows with
//! the bound's power; `LOOM_MAX_PREEMPTIONS` sets another bound. `LOOM.md` lists
//! which fault, put into the code by hand, is caught by which model.
#![cfg(requeue_loom)]

mod batches;
mod drains;
mod filter;
mod getters;
mod loans;
mod pauses;
mod rates;
mod rooms;
mod runs;
mod stuck;
mod support;
mod timers;
mod windows;
mod workers;

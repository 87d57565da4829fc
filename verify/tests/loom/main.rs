//! Models of waiting and waking: every interleaving of a few small programs,
//! explored by [loom](https://docs.rs/loom).
//!
//! ```text
//! RUSTFLAGS="--cfg requeue_loom" cargo test -p requeue-verify --profile loom --test loom
//! ```
//!
//! Each model starts two or three threads that run concurrently. A lost wake-up leaves a thread asleep for
//! ever, which loom reports as a deadlock. So most models assert little beyond "every thread returns"; they
//! are built so that no later call, such as a `shut_down`, can make up for an earlier lost wake-up.
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

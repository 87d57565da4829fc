//! The library where the suite cannot ask: how a queue is built, users' functions, readings of the clock, types.
#![cfg(not(any(requeue_loom, requeue_counted)))]

mod awaited;
mod backoff;
mod bound;
mod explain;
mod groups;
mod journal;
mod labels;
mod live;
mod machine;
mod other_wakers;
mod panics;
mod phase;
mod priorities;
mod rates;
mod types;

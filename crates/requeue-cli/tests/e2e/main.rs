//! The command from outside: the built binary, its input, its outputs, its signals.
//!
//! Nothing here sleeps to give something time. Programs that must be caught in the
//! middle of a run wait at a gate (a FIFO), and the test opens it; what must happen is
//! waited for, with a bound that only a hanging command reaches.
#![cfg(unix)]

mod beside;
mod bound;
mod closed;
mod completions;
mod ends;
mod engine;
mod engine_postgres;
mod first_signal;
mod group;
mod groups;
mod harness;
mod joblog;
mod keep_order;
mod keys;
mod left;
mod listen;
mod many;
mod on_server;
mod operators;
mod orphans;
mod outcomes;
mod output;
mod pacing;
mod payload;
mod people;
mod plan;
mod priority;
mod program;
mod prometheus;
mod reports;
mod schedules;
mod short;
mod state;
mod stopped;
mod terminal;
mod timers;
mod unread;
mod usage;
#[cfg(target_os = "linux")]
mod watch;
mod wrong;

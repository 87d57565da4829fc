//! Rule K16, the guarantees of sources of triggers, on the fake API server and paused time.

mod backlog;
mod lists;
mod related;
mod streams;
mod world;

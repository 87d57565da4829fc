//! What a source of triggers is worth: rule K16, on the fake API server and paused time.

mod backlog;
mod lists;
mod related;
mod streams;
mod world;

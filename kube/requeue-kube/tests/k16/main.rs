//! Rule K16, what a source of triggers is worth, on the fake API server and paused time.

mod backlog;
mod lists;
mod related;
mod streams;
mod world;

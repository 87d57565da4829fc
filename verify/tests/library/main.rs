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

use requeue::{ReadyOrder, Ticket};

/// An order of a user's own: last in, first out.
struct Stack(Vec<Ticket>);

impl ReadyOrder<u64> for Stack {
    fn push(&mut self, _: &u64, ticket: Ticket) {
        self.0.push(ticket);
    }
    fn pop(&mut self) -> Option<Ticket> {
        self.0.pop()
    }
}

//! The orders of the ready line, as users see them (rule B10).

use super::groups::Groups;
use super::overdue::MaxWait;
use alloc::boxed::Box;
use core::fmt;

/// Stands for a ready key in a custom order: [`ReadyOrder::push`] is given it, and [`ReadyOrder::pop`]
/// returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u32);

impl Ticket {
    /// The ticket of no key.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// A custom order of the ready keys, like client-go's `workqueue.Queue` interface.
///
/// Its methods run under the queue's lock: they must be short and must not call the queue. A wrong order
/// cannot break the queue. A ticket that is not ready, or that comes twice, is skipped. When
/// [`pop`](Self::pop) returns `None` although keys are ready, the queue hands out the key that was pushed
/// first.
pub trait ReadyOrder<K: ?Sized>: Send {
    /// `key` became ready.
    fn push(&mut self, key: &K, ticket: Ticket);
    /// `key`, which is ready, was added again. Does nothing by default.
    fn touch(&mut self, key: &K, ticket: Ticket) {
        let _ = (key, ticket);
    }
    /// Removes the key to be handed out next, and returns its ticket.
    fn pop(&mut self) -> Option<Ticket>;
    /// `key`, which was pushed, has left the line: it was cancelled or paused. Does nothing by default. If
    /// [`pop`](Self::pop) returns the ticket later, it is skipped, unless it now belongs to another key that
    /// has become ready since.
    fn leave(&mut self, key: &K, ticket: Ticket) {
        let _ = (key, ticket);
    }
}

/// The order in which ready keys are handed out.
#[non_exhaustive]
#[doc(alias("DefaultQueue"))]
pub enum Order<K> {
    /// First ready, first out.
    Fifo,
    /// Last ready, first out.
    Lifo,
    /// An order written by the user.
    Custom(Box<dyn ReadyOrder<K>>),
    /// Higher priorities first, and first ready, first out within each (rule B2).
    Priority {
        /// When a key is overdue, and how many hand-outs overdue keys get.
        max_wait: Option<MaxWait>,
    },
    /// Groups take turns (rule B3).
    Fair {
        /// Which group a key belongs to.
        groups: Groups<K>,
        /// Triggers may have priorities.
        priorities: bool,
        /// Priorities count within a group, and not before the turns of groups.
        within: bool,
        /// When a key is overdue, and how many hand-outs overdue keys get. It changes nothing without priorities.
        max_wait: Option<MaxWait>,
    },
}

impl<K> fmt::Debug for Order<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "Fifo",
            Self::Lifo => "Lifo",
            Self::Custom(_) => "Custom(..)",
            Self::Priority { .. } => "Priority",
            Self::Fair { .. } => "Fair",
        })
    }
}

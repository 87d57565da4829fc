//! The orders of the ready line, as users see them (rule B10).

use super::groups::Groups;
use super::overdue::MaxWait;
use alloc::boxed::Box;
use core::fmt;

/// Stands for a ready key in an order of one's own: what [`ReadyOrder::push`]
/// was given, and what [`ReadyOrder::pop`] gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u32);

impl Ticket {
    /// No key's.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// An order of the user's own, as client-go's `workqueue.Queue` interface.
///
/// It runs under the queue's lock: it must be short and must not call the
/// queue. The queue does not trust it: a ticket that is not ready, or comes
/// twice, is passed over, and keys whose tickets it lost are handed out once it
/// says that it has none. A wrong order can change the order, nothing else.
pub trait ReadyOrder<K: ?Sized>: Send {
    /// `key` became ready.
    fn push(&mut self, key: &K, ticket: Ticket);
    /// `key`, which is ready, was added again. By default nothing changes.
    fn touch(&mut self, key: &K, ticket: Ticket) {
        let _ = (key, ticket);
    }
    /// Which of the ready keys is handed out next.
    fn pop(&mut self) -> Option<Ticket>;
    /// `key`, which was pushed, is not to be handed out: it was cancelled. By default nothing
    /// changes; if its ticket is popped later it is passed over, or stands for another key that
    /// has come to be ready since.
    fn leave(&mut self, key: &K, ticket: Ticket) {
        let _ = (key, ticket);
    }
}

/// How the ready keys stand in line.
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

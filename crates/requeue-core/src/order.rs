//! The ready line and who decides its order (rule B10).

use crate::arena::Arena;
use crate::ring::Ring;
use alloc::boxed::Box;
use core::fmt;

/// Stands for a ready key in an order of one's own: what [`ReadyOrder::push`]
/// was given, and what [`ReadyOrder::pop`] gives back.
///
/// ```
/// use requeue_core::Ticket;
/// // Small, and ordered, so that it can stand in a heap or a tree beside a priority.
/// let mut ready = std::collections::BinaryHeap::<(u8, Ticket)>::new();
/// assert!(ready.pop().is_none());
/// ```
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
///
/// ```
/// use requeue_core::{ReadyOrder, Ticket};
///
/// /// Shortest name first.
/// #[derive(Default)]
/// struct Shortest(std::collections::BTreeSet<(usize, Ticket)>);
///
/// impl ReadyOrder<String> for Shortest {
///     fn push(&mut self, key: &String, ticket: Ticket) {
///         self.0.insert((key.len(), ticket));
///     }
///     fn pop(&mut self) -> Option<Ticket> {
///         self.0.pop_first().map(|(_, ticket)| ticket)
///     }
/// }
/// ```
pub trait ReadyOrder<K: ?Sized>: Send {
    /// `key` became ready.
    ///
    /// ```
    /// # use requeue_core::{ReadyOrder, Ticket};
    /// /// Last in, first out.
    /// struct Stack(Vec<Ticket>);
    ///
    /// impl ReadyOrder<u64> for Stack {
    ///     fn push(&mut self, _: &u64, ticket: Ticket) {
    ///         self.0.push(ticket);
    ///     }
    ///     fn pop(&mut self) -> Option<Ticket> {
    ///         self.0.pop()
    ///     }
    /// }
    /// ```
    fn push(&mut self, key: &K, ticket: Ticket);
    /// `key`, which is ready, was added again. By default nothing changes.
    ///
    /// ```
    /// # use requeue_core::{ReadyOrder, Ticket};
    /// /// Whatever was asked for most often goes first.
    /// #[derive(Default)]
    /// struct Wanted(std::collections::HashMap<Ticket, u32>);
    ///
    /// impl ReadyOrder<String> for Wanted {
    ///     fn push(&mut self, _: &String, ticket: Ticket) {
    ///         self.0.insert(ticket, 1);
    ///     }
    ///     fn touch(&mut self, _: &String, ticket: Ticket) {
    ///         *self.0.entry(ticket).or_default() += 1;
    ///     }
    ///     fn pop(&mut self) -> Option<Ticket> {
    ///         let (ticket, _) = self.0.iter().max_by_key(|(_, times)| **times)?;
    ///         let ticket = *ticket;
    ///         self.0.remove(&ticket);
    ///         Some(ticket)
    ///     }
    /// }
    /// ```
    fn touch(&mut self, key: &K, ticket: Ticket) {
        let _ = (key, ticket);
    }
    /// Which of the ready keys is handed out next.
    ///
    /// ```
    /// # use requeue_core::{ReadyOrder, Ticket};
    /// /// Last in, first out; `None` where it has none left.
    /// struct Stack(Vec<Ticket>);
    ///
    /// impl ReadyOrder<u64> for Stack {
    ///     fn push(&mut self, _: &u64, ticket: Ticket) {
    ///         self.0.push(ticket);
    ///     }
    ///     fn pop(&mut self) -> Option<Ticket> {
    ///         self.0.pop()
    ///     }
    /// }
    /// ```
    fn pop(&mut self) -> Option<Ticket>;
}

/// How the ready keys stand in line.
///
/// ```
/// use requeue_core::Order;
/// assert_eq!(format!("{:?}", Order::<String>::Lifo), "Lifo");
/// ```
#[non_exhaustive]
#[doc(alias("DefaultQueue"))]
pub enum Order<K> {
    /// First ready, first out.
    Fifo,
    /// Last ready, first out.
    Lifo,
    /// As somebody else decides.
    Own(Box<dyn ReadyOrder<K>>),
}

impl<K> fmt::Debug for Order<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "Fifo",
            Self::Lifo => "Lifo",
            Self::Own(_) => "Own(..)",
        })
    }
}

/// The line itself.
///
/// A user's order may panic, and time that passes or a run that ends must not
/// fail for it. So keys that become ready by those only wait in `ring`, and the
/// order hears of them at the next `add` or `get`: at calls whose callers can
/// be told.
pub(crate) struct Line<K> {
    /// The line, or what a user's order was not told yet.
    ring: Ring,
    kind: Kind<K>,
}

enum Kind<K> {
    Fifo,
    Lifo,
    Own(Box<dyn ReadyOrder<K>>),
}

impl<K> Line<K> {
    pub(crate) fn new(order: Order<K>) -> Self {
        let kind = match order {
            Order::Fifo => Kind::Fifo,
            Order::Lifo => Kind::Lifo,
            Order::Own(order) => Kind::Own(order),
        };
        Self { ring: Ring::default(), kind }
    }

    /// Lets a key in without calling users' code.
    #[inline(always)]
    pub(crate) fn enter(&mut self, slot: u32) {
        self.ring.push_back(slot);
    }

    /// Lets a key in that was announced.
    #[inline]
    pub(crate) fn enter_announced(&mut self, slot: u32) {
        if !self.is_own() {
            self.ring.push_back(slot);
        }
    }

    /// Tells a user's order of a key that is about to enter. If it panics the
    /// key must not enter.
    #[inline]
    pub(crate) fn announce(&mut self, arena: &Arena<K>, slot: u32) {
        if let Kind::Own(order) = &mut self.kind {
            tell(&mut **order, &mut self.ring, arena);
            order.push(arena.key(slot), Ticket(slot));
        }
    }

    #[inline]
    pub(crate) fn touch(&mut self, arena: &Arena<K>, slot: u32) {
        if let Kind::Own(order) = &mut self.kind {
            tell(&mut **order, &mut self.ring, arena);
            order.touch(arena.key(slot), Ticket(slot));
        }
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self, arena: &Arena<K>) -> Option<u32> {
        match &self.kind {
            Kind::Fifo => self.ring.pop_front(),
            Kind::Lifo | Kind::Own(_) => self.pop_other(arena),
        }
    }

    #[inline(never)]
    fn pop_other(&mut self, arena: &Arena<K>) -> Option<u32> {
        match &mut self.kind {
            Kind::Fifo => self.ring.pop_front(),
            Kind::Lifo => self.ring.pop_back(),
            Kind::Own(order) => {
                tell(&mut **order, &mut self.ring, arena);
                order.pop().map(|t| t.0)
            }
        }
    }

    /// The slot that will be handed out after so many others, if that is known.
    #[inline(always)]
    pub(crate) fn ahead(&self, places: usize) -> Option<u32> {
        if matches!(self.kind, Kind::Fifo) { self.ring.ahead(places) } else { None }
    }

    /// Whether the order is somebody else's and must not be believed.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.kind, Kind::Own(_))
    }
}

/// Lets a user's order hear the news. If it panics it has missed one key, which
/// is handed out when the order says that it has none.
fn tell<K>(order: &mut dyn ReadyOrder<K>, news: &mut Ring, arena: &Arena<K>) {
    while let Some(slot) = news.pop_front() {
        // an entry whose key has been handed out meanwhile is stale
        if arena.flags_if_occupied(slot).is_some() {
            order.push(arena.key(slot), Ticket(slot));
        }
    }
}

//! Callers waiting for room in a queue with a bound (rule B8).
//!
//! Each waiting caller has a number, and smaller numbers go first: a caller is let in if there is room for
//! more keys than there are callers before it. When a lock hold ends, as many callers are woken as there is
//! room for, and also those whose key has become known, because such a trigger needs no room. A woken caller
//! has nothing reserved: it tries again, and the trigger of a caller that does not wait may be quicker.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

/// Callback for a key that was dropped for room, with its value.
pub(crate) type OnDropped<K, V> = Box<dyn Fn(&K, Option<V>) + Send + Sync>;

/// Callers waiting for room, ordered by number.
#[derive(Debug, Default)]
pub(crate) struct Adders {
    next: u64,
    /// Hash of the caller's key, and its waker. `None`: woken, and not back yet.
    waiting: BTreeMap<u64, (u32, Option<Waker>)>,
    /// Index of `waiting` by key hash.
    by_hash: BTreeSet<(u32, u64)>,
}

impl Adders {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Number of waiting callers.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Number of callers before this one, which may not be waiting yet; counted up to `most`.
    pub(crate) fn ahead(&self, ticket: Option<u64>, most: usize) -> usize {
        match ticket {
            Some(ticket) => self.waiting.range(..ticket).take(most).count(),
            None => self.waiting.len(),
        }
    }

    /// Whether this caller waits with a waker that wakes the same task.
    pub(crate) fn is_current(&self, ticket: Option<u64>, waker: &Waker) -> bool {
        let has = ticket.and_then(|ticket| self.waiting.get(&ticket)?.1.as_ref());
        has.is_some_and(|has| has.will_wake(waker))
    }

    /// Starts waiting, or continues with a new waker. Returns the old waker.
    pub(crate) fn set(&mut self, ticket: &mut Option<u64>, hash: u32, waker: Waker) -> Option<Waker> {
        let ticket = *ticket.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        self.by_hash.insert((hash, ticket));
        self.waiting.insert(ticket, (hash, Some(waker)))?.1
    }

    /// Stops waiting. Returns the old waker.
    pub(crate) fn leave(&mut self, ticket: &mut Option<u64>) -> Option<Waker> {
        let ticket = ticket.take()?;
        let (hash, waker) = self.waiting.remove(&ticket)?;
        self.by_hash.remove(&(hash, ticket));
        waker
    }

    /// Takes the wakers of the first `room` callers.
    pub(crate) fn wake(&mut self, room: usize, into: &mut Vec<Waker>) {
        into.extend(self.waiting.values_mut().take(room).filter_map(|(_, waker)| waker.take()));
    }

    /// Takes the wakers of callers whose key may be known now, by hash: they need no room.
    pub(crate) fn wake_known(&mut self, hash: u32, into: &mut Vec<Waker>) {
        for (_, ticket) in self.by_hash.range((hash, 0)..=(hash, u64::MAX)) {
            into.extend(self.waiting.get_mut(ticket).and_then(|(_, waker)| waker.take()));
        }
    }
}

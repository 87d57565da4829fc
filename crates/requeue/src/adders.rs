//! Who waits for room in a queue with a bound (rule B8).
//!
//! Each caller that waits for room has a number, and smaller numbers go first: a caller is let in if
//! there is room for more keys than wait before it. As a lock hold ends, as many of the first ones
//! are woken as there is room for, and those whose key has become known: such a trigger needs no
//! room. A caller that is woken is given nothing: it tries again, and a trigger of somebody who does
//! not wait may have been quicker.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

/// What is done with a key that was dropped for room, and with its value.
pub(crate) type OnDropped<K, V> = Box<dyn Fn(&K, Option<V>) + Send + Sync>;

/// Those who wait for room, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Adders {
    next: u64,
    /// With the hashes of their keys. Without a waker: woken, and has not come yet.
    waiting: BTreeMap<u64, (u32, Option<Waker>)>,
    /// The same by the hashes of their keys.
    by_hash: BTreeSet<(u32, u64)>,
}

impl Adders {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// How many go before this one, who may not wait yet; counted up to `most`.
    pub(crate) fn ahead(&self, ticket: Option<u64>, most: usize) -> usize {
        match ticket {
            Some(ticket) => self.waiting.range(..ticket).take(most).count(),
            None => self.waiting.len(),
        }
    }

    /// Whether this one waits with a waker that wakes the same task.
    pub(crate) fn is_current(&self, ticket: Option<u64>, waker: &Waker) -> bool {
        let has = ticket.and_then(|ticket| self.waiting.get(&ticket)?.1.as_ref());
        has.is_some_and(|has| has.will_wake(waker))
    }

    /// Begins to wait, or goes on; returns the waker that it had.
    pub(crate) fn set(&mut self, ticket: &mut Option<u64>, hash: u32, waker: Waker) -> Option<Waker> {
        let ticket = *ticket.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        self.by_hash.insert((hash, ticket));
        self.waiting.insert(ticket, (hash, Some(waker)))?.1
    }

    /// Waits no longer; returns the waker that it had.
    pub(crate) fn leave(&mut self, ticket: &mut Option<u64>) -> Option<Waker> {
        let ticket = ticket.take()?;
        let (hash, waker) = self.waiting.remove(&ticket)?;
        self.by_hash.remove(&(hash, ticket));
        waker
    }

    /// Takes the wakers of the first of them, so many as there is room for.
    pub(crate) fn wake(&mut self, room: usize, into: &mut Vec<Waker>) {
        into.extend(self.waiting.values_mut().take(room).filter_map(|(_, waker)| waker.take()));
    }

    /// Takes the wakers of those whose keys may be known now, by their hash: these need no room.
    pub(crate) fn wake_known(&mut self, hash: u32, into: &mut Vec<Waker>) {
        for (_, ticket) in self.by_hash.range((hash, 0)..=(hash, u64::MAX)) {
            into.extend(self.waiting.get_mut(ticket).and_then(|(_, waker)| waker.take()));
        }
    }
}

//! What of the filter wants `unsafe`: the only file of this crate with any.
//!
//! **Keys that are integers.** Whether `K` is one is asked by `TypeId`, which
//! wants `'static`; keys need not be, so the bound is evaded, as the crates
//! `typeid` and `castaway` do. `TypeId` leaves lifetimes out of account, which is
//! why only types without any are looked for.
//!
//! **Keys that are read by their address**, without the lock, while others may
//! hand them out, end their runs and drop them. That is sound because:
//!
//! 1. An address enters a [`Place`] only as a [`Stays`], which is made here only,
//!    by [`publish`], of a key that the state machine then keeps in its place: it
//!    is neither moved nor dropped until [`Hazards::protects`] has said no for it
//!    once nothing else kept it. Under the mutex.
//! 2. A key that is handed out or leaves the line is withdrawn from every table in the
//!    same hold of the mutex, and a full barrier follows before the hold ends (the one
//!    function of the state machine that ends the time for which a key is pending calls
//!    `Filter::withdraw` for a published one). So when `protects` is asked, the key
//!    stands in no place, and a barrier has come after it was cleared.
//! 3. A reader loads the address, stores it into its hazard record, lets a full
//!    barrier follow and loads the address again. If that is still there, the
//!    store that cleared it comes later, so the reader's barrier comes before the
//!    one of (2) in the order of all such barriers, so `protects` sees the record
//!    (`filter/mod.rs` has the rule by its letter). If it sees the record empty
//!    again, or with another key's address, the reader has finished, and what it
//!    read it read before (the record is written with `Release` and looked at with
//!    `Acquire`).
//! 4. A record belongs to one thread, and holds one claim at a time.
//! 5. The reader uses the pointer of its second load, which comes from the key
//!    that is there then, should another key have taken the place of the one that
//!    the first load saw; loaded with `Acquire`, so that the key is seen as it was
//!    when it was published.
//! 6. Several threads read a key at once: `K: Sync`, which `Place` inherits from
//!    the `Arc<K>` that it pretends to have.
#![expect(unsafe_code, reason = "reads keys by their address, see above")]

use super::hazards::{Hazards, Record};
use super::table::Entry;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicPtr, AtomicU32};
use requeue_core::{Core, MayRead, Ticket};
use std::any::TypeId;
use std::marker::PhantomData;
use std::mem::transmute;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// The identity of a type, its lifetimes left out of account.
fn type_id<T: ?Sized>() -> TypeId {
    trait Identity {
        fn id(&self) -> TypeId
        where
            Self: 'static;
    }
    impl<T: ?Sized> Identity for PhantomData<T> {
        fn id(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<T>()
        }
    }
    let of: PhantomData<T> = PhantomData;
    let of: &dyn Identity = &of;
    // SAFETY: only the bound changes; the object is a `PhantomData`, which refers
    // to nothing that could have ended, and the reference is used in this line.
    unsafe { transmute::<&dyn Identity, &(dyn Identity + 'static)>(of) }.id()
}

macro_rules! integers {
    ($with:ident) => {
        $with!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize)
    };
}

/// Whether keys of this type are integers that fit a word.
#[inline]
pub(super) fn is_integer<K: ?Sized>() -> bool {
    macro_rules! any {
        ($($int:ty)*) => { $(type_id::<K>() == TypeId::of::<$int>())||* };
    }
    integers!(any)
}

/// The key as a word, if `K` is an integer and `key` is a `K`.
#[inline]
pub(super) fn word<K: ?Sized, Q: ?Sized>(key: &Q) -> Option<u64> {
    macro_rules! read {
        ($($int:ty)*) => { $(
            if type_id::<Q>() == TypeId::of::<$int>() {
                // SAFETY: `Q` is that integer: `TypeId`s differ between types that
                // differ in more than lifetimes, and an integer has none.
                return Some(unsafe { ptr::from_ref(key).cast::<$int>().read() } as u64);
            }
        )* };
    }
    if type_id::<K>() == type_id::<Q>() {
        integers!(read);
    }
    None
}

/// A key that stays in its place: what may be entered into a [`Place`] (1).
pub(super) struct Stays<K>(NonNull<K>);

impl<K> Clone for Stays<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Stays<K> {}

/// Has the state machine publish a key by its address; returns it with its hash.
pub(super) fn publish<K, V>(
    core: &mut Core<K, V>,
    ticket: Ticket,
    hazards: &Arc<Hazards>,
) -> Option<(Stays<K>, u32)> {
    let may_read = || -> MayRead<K> {
        let hazards = hazards.clone();
        Box::new(move |key| hazards.protects(ptr::from_ref(key).addr()))
    };
    let (key, hash) = core.publish(ticket, Some(may_read))?;
    Some((Stays(NonNull::from(key)), hash))
}

/// An entry that holds the address of a key.
pub(super) struct Place<K> {
    /// The key's hash: a hint that spares readers keys that are others. It may be
    /// another key's than `key`.
    tag: AtomicU32,
    /// Null while the place is free.
    key: AtomicPtr<K>,
    shares: PhantomData<Arc<K>>,
}

impl<K> Place<K> {
    /// Whether the entry holds a key that `is_it` recognises, after a barrier of
    /// the caller's.
    #[inline]
    pub(super) fn is_pending(&self, hash: u32, record: &Record, is_it: impl FnOnce(&K) -> bool) -> bool {
        let seen = self.key.load(Relaxed);
        if seen.is_null() || self.tag.load(Relaxed) != hash {
            return false;
        }
        let Some(claim) = record.claim(seen.addr()) else { return false };
        let key = self.key.load(Acquire);
        if key != seen {
            return false;
        }
        // SAFETY: (1), (2), (3) the key at this address is not dropped or moved
        // while `claim` exists, also if `is_it` panics; (5) this is its pointer;
        // (6) it may be shared with this thread.
        let answer = is_it(unsafe { &*key });
        drop(claim);
        answer
    }
}

impl<K> Default for Place<K> {
    fn default() -> Self {
        Self { tag: AtomicU32::new(0), key: AtomicPtr::new(ptr::null_mut()), shares: PhantomData }
    }
}

impl<K> Entry for Place<K> {
    type Mark = Stays<K>;
    /// The address.
    type Name = usize;

    fn name(mark: Stays<K>) -> usize {
        mark.0.addr().get()
    }
    fn is_free(&self) -> bool {
        self.key.load(Relaxed).is_null()
    }
    fn holds(&self, address: usize) -> bool {
        self.key.load(Relaxed).addr() == address
    }
    fn fill(&self, mark: Stays<K>, hash: u32, _: u64) {
        self.tag.store(hash, Relaxed);
        self.key.store(mark.0.as_ptr(), Release);
    }
    fn clear(&self) {
        self.key.store(ptr::null_mut(), Relaxed);
    }
}

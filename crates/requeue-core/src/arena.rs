//! The arena of keys: chunks of slots whose addresses never change, so that a guard can lend `&K` while the
//! state machine works under the lock.
//!
//! Most `unsafe` code is here; the rest is in `prefetch.rs` and `bytes.rs`. It is sound for these reasons:
//!
//! 1. A chunk is one heap allocation of [`CHUNK`] slots, reached through a raw
//!    pointer only, so moving the `Arena` moves no slot and asserts nothing
//!    about who else reads one.
//! 2. `word` and `hash` of a slot are `Cell`s that only the arena touches, and
//!    the arena is `!Sync`: it is used by one thread at a time (under the
//!    queue's lock). A [`KeyRef`] on another thread reads only `key`.
//! 3. `key` is initialised exactly while the slot's word has `OCCUPIED`. It is
//!    written once, by `fill`, before anyone can know the slot, and moved out
//!    once, by `remove`; between the two there are only shared references to it.
//! 4. `remove` refuses a slot that is lent (`LENT`; with `MORE`, `extra` counts what goes
//!    beyond the first loan, and ends the process before it would wrap), and a chunk is freed only when
//!    no slot of it is occupied. So a `KeyRef` always points at an initialised key.
//! 5. A `KeyRef` is made only by `lend` and `lend_in_place` and is neither `Copy` nor `Clone`; `give_back`
//!    consumes it. A forgotten one leaves its slot lent for ever, and `Drop` of the arena does not free the
//!    chunks of lent slots.
//! 6. A [`Vacant`] slot counts as used by its chunk, so the chunk stays until the slot is filled or given
//!    back. It is made by `next_slot` and `take_out`, belongs to that arena, and is neither `Copy` nor
//!    `Clone`.
//! 7. Shared references to a key may be used on two threads at once (a holder
//!    reads it while a lookup under the lock compares it), hence `K: Sync` for
//!    the `Send` of both types.

use crate::count::one_more;
use crate::prefetch::prefetch;
use crate::shrink;
use crate::slots::{Places, Slots};
use alloc::alloc::{alloc, dealloc, handle_alloc_error};
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

/// Slots per chunk.
pub(crate) const CHUNK: usize = 256;
const WORDS: usize = CHUNK / 64;

/// The slot holds a key.
const OCCUPIED: u32 = 1 << 31;
/// At least one `KeyRef` to the slot's key is out.
const LENT: u32 = 1 << 30;
/// More than one is out: `extra` says how many more. Only with `LENT`.
const MORE: u32 = 1 << 29;
/// The slot's place in the ready line: `IN_LINE`, and above it the last bits of its block's number. All zero
/// while the slot is in no line.
const PLACE: u32 = (MORE - 1) & !FLAGS;
const IN_LINE: u32 = FLAGS + 1;
const BLOCK_BIT: u32 = IN_LINE.trailing_zeros() + 1;
/// The bits of the word that belong to the state machine.
pub(crate) const FLAGS: u32 = (1 << 14) - 1;

/// The place of a slot in the block with this number.
#[inline]
fn place_bits(block: u32) -> u32 {
    IN_LINE | (block << BLOCK_BIT & PLACE)
}

struct Slot<K> {
    key: UnsafeCell<MaybeUninit<K>>,
    hash: Cell<u32>,
    /// `OCCUPIED`, `LENT`, `MORE`, the place and the state machine's flags.
    word: Cell<u32>,
}

struct Chunk<K> {
    /// `CHUNK` slots, owned by the arena; `None` while they are not needed.
    slots: Option<NonNull<Slot<K>>>,
    /// Number of occupied slots.
    used: u32,
}

/// A slot without a key, reserved for one caller.
pub(crate) struct Vacant<K> {
    no: u32,
    slot: NonNull<Slot<K>>,
}

impl<K> Vacant<K> {
    #[inline]
    pub(crate) fn no(&self) -> u32 {
        self.no
    }
}

/// A slot's number and the state machine's mark for a run, in one word: a loan carries both at no cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marked(u64);

impl Marked {
    #[inline]
    pub(crate) fn new(slot: u32, mark: i16) -> Self {
        Self(u64::from(slot) | u64::from(mark as u16) << 32)
    }

    /// Adds the number of the key's group, if it fits.
    #[inline]
    pub(crate) fn in_group(self, group: u32) -> Self {
        let group = if group < u32::from(u16::MAX) { u64::from(group) + 1 } else { 0 };
        Self(self.0 | group << 48)
    }

    /// Whether [`in_group`](Self::in_group) has added a number that fitted.
    #[inline]
    pub(crate) fn is_in_group(self) -> bool {
        self.0 >> 48 != 0
    }

    /// The number given to [`in_group`](Self::in_group), if it fitted.
    #[inline]
    pub(crate) fn group(self) -> Option<u32> {
        ((self.0 >> 48) as u32).checked_sub(1)
    }

    #[inline]
    pub(crate) fn slot(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(crate) fn mark(self) -> i16 {
        (self.0 >> 32) as i16
    }
}

impl From<u32> for Marked {
    /// Without a mark.
    #[inline]
    fn from(slot: u32) -> Self {
        Self(u64::from(slot))
    }
}

/// A loan of a key: the key stays in place as long as it exists.
///
/// It is made by handing a key out, and must be given back to that state machine. If it is dropped instead,
/// the key's memory is never freed.
#[must_use = "a loan that is not given back keeps its key for ever"]
pub struct KeyRef<K> {
    key: NonNull<K>,
    at: Marked,
}

// SAFETY: a `KeyRef` gives shared access to a `K` and nothing else (7).
unsafe impl<K: Sync> Send for KeyRef<K> {}
// SAFETY: as above.
unsafe impl<K: Sync> Sync for KeyRef<K> {}

impl<K> KeyRef<K> {
    /// The key.
    #[inline]
    #[must_use]
    pub fn get(&self) -> &K {
        // SAFETY: (4) the key is initialised and stays so while this loan
        // exists, and (3) nobody holds a mutable reference to it.
        unsafe { self.key.as_ref() }
    }

    /// The slot that the key lives in.
    pub(crate) fn slot(&self) -> u32 {
        self.at.slot()
    }

    /// The mark given to [`lend`](Arena::lend).
    pub(crate) fn mark(&self) -> i16 {
        self.at.mark()
    }

    /// The slot's number, with the mark and the group of the run.
    #[inline]
    pub(crate) fn at(&self) -> Marked {
        self.at
    }
}

impl<K> fmt::Debug for KeyRef<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRef").field("slot", &self.slot()).finish_non_exhaustive()
    }
}

/// Result of [`Arena::remove`].
pub(crate) struct Removed<K> {
    pub(crate) slot: u32,
    pub(crate) key: K,
    pub(crate) hash: u32,
    /// The chunk that was freed with its last slot.
    pub(crate) freed_chunk: Option<u32>,
}

#[repr(C)] // fields that every call uses come first, so that they share cache lines
pub(crate) struct Arena<K> {
    chunks: Vec<Chunk<K>>,
    len: usize,
    /// The slot freed last, if it was not reused, in case the next key comes at once. It counts as used until
    /// another replaces it.
    spare: Option<Vacant<K>>,
    /// Whether an empty chunk is kept: if it is small.
    keeps: bool,
    /// Loans beyond the first, by slot. They exist only after a run was ended under its guard.
    extra: BTreeMap<u32, u32>,
    /// One bit per slot of each chunk, set while the slot is free.
    free: Vec<[u64; WORDS]>,
    /// One bit per chunk, set while a slot of it may be free (also for chunks that do not exist, and some
    /// beyond the last).
    vacant: Vec<u64>,
    /// Index of the first word of `vacant` that may have a bit set.
    first_vacant: usize,
    /// Number of chunks without a key. One is kept if it is small, so that a queue whose size varies around a
    /// multiple of 256 does not allocate with every key.
    empty_chunks: u32,
}

// SAFETY: the arena owns its keys; sending it sends them (`Send`), while loans
// of them may be read on other threads (`Sync`), see (7).
unsafe impl<K: Send + Sync> Send for Arena<K> {}

impl<K> Arena<K> {
    const LAYOUT: Layout = match Layout::array::<Slot<K>>(CHUNK) {
        Ok(layout) => layout,
        Err(_) => panic!("a key type this large cannot be stored 256 at a time"),
    };

    /// An arena that keeps an empty chunk if the chunk and its side data take at most `keep` bytes.
    pub(crate) const fn new(keep: usize) -> Self {
        Self {
            keeps: Self::LAYOUT.size() <= keep,
            chunks: Vec::new(),
            free: Vec::new(),
            vacant: Vec::new(),
            first_vacant: 0,
            extra: BTreeMap::new(),
            len: 0,
            spare: None,
            empty_chunks: 0,
        }
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Upper bound of slot numbers: the number of slots there is room for.
    pub(crate) fn slots(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }

    #[inline]
    fn slot(&self, slot: u32) -> Option<&Slot<K>> {
        let slots = self.chunks.get(slot as usize / CHUNK)?.slots?;
        // SAFETY: (1) the chunk is an allocation of CHUNK slots whose cells were
        // initialised when it was made, and the offset lies within it. The
        // reference does not outlive the borrow of the arena, and freeing a
        // chunk needs the arena borrowed mutably.
        Some(unsafe { slots.add(slot as usize % CHUNK).as_ref() })
    }

    #[inline]
    fn occupied(&self, slot: u32) -> &Slot<K> {
        match self.slot(slot) {
            Some(s) if s.word.get() & OCCUPIED != 0 => s,
            _ => no_key(slot),
        }
    }

    /// A free slot, to be passed to [`fill`](Self::fill): the one freed last, or one of the lowest chunk that
    /// has any, so that the higher ones empty.
    #[inline(always)]
    pub(crate) fn next_slot(&mut self) -> Vacant<K> {
        match self.spare.take() {
            Some(spare) => spare,
            None => self.free_slot(),
        }
    }

    /// Stores a key in a slot of [`next_slot`](Self::next_slot), with its place in the ready line if it has
    /// one.
    #[inline(always)]
    #[expect(clippy::needless_pass_by_value, reason = "a slot that is filled is not vacant any more")]
    pub(crate) fn fill(&mut self, vacant: Vacant<K>, key: K, hash: u32, flags: u32, place: Option<u32>) {
        debug_assert!(self.slot(vacant.no).is_some_and(|slot| core::ptr::eq(slot, vacant.slot.as_ptr())));
        // SAFETY: (6) the slot's chunk is there, and no other thread reads it (2).
        let slot = unsafe { vacant.slot.as_ref() };
        debug_assert_eq!(slot.word.get(), 0, "a free slot has no flags");
        // SAFETY: (3) the slot is not occupied, so nobody has a reference to
        // `key`, and there is nothing initialised in it to drop.
        unsafe { (*slot.key.get()).write(key) };
        slot.hash.set(hash);
        slot.word.set(OCCUPIED | (flags & FLAGS) | place.map_or(0, place_bits));
        self.len += 1;
    }

    /// Stores a key that is in no line. Returns its slot.
    pub(crate) fn insert(&mut self, key: K, hash: u32, flags: u32) -> u32 {
        let vacant = self.next_slot();
        let slot = vacant.no();
        self.fill(vacant, key, hash, flags, None);
        slot
    }

    /// Takes a free slot from the lowest chunk that has one. Separate function: saves an add of a plain queue
    /// 3 instructions.
    #[inline(never)]
    fn free_slot(&mut self) -> Vacant<K> {
        let chunk_no = self.vacant_chunk();
        self.take_from(chunk_no)
    }

    /// Like [`next_slot`](Self::next_slot), but from this chunk, whose number may be any, so that the keys of
    /// one caller are adjacent. If it has none the caller continues in another chunk, a new one if at least
    /// half of all slots are taken.
    #[inline]
    pub(crate) fn next_slot_in(&mut self, chunk: &mut u32) -> Vacant<K> {
        let chunk_no = *chunk as usize;
        let has_room =
            self.chunks.get(chunk_no).is_some_and(|chunk| chunk.slots.is_some() && chunk.used < CHUNK as u32);
        let vacant = if has_room { self.take_from(chunk_no) } else { self.next_slot_elsewhere(chunk) };
        // for the next slot of this chunk, which is usually the one behind: other chunks may grow meanwhile
        prefetch(vacant.slot.as_ptr() as usize + 64);
        vacant
    }

    fn next_slot_elsewhere(&mut self, chunk: &mut u32) -> Vacant<K> {
        let half_full = self.len >= self.chunks.len() * (CHUNK / 2);
        let chunk_no = if half_full { self.new_chunk() } else { self.vacant_chunk() };
        *chunk = chunk_no as u32;
        self.take_from(chunk_no)
    }

    /// Takes a free slot of this chunk, which has one.
    #[inline(always)]
    fn take_from(&mut self, chunk_no: usize) -> Vacant<K> {
        let (chunk, free) = (&mut self.chunks[chunk_no], &mut self.free[chunk_no]);
        self.empty_chunks -= u32::from(chunk.used == 0);
        chunk.used += 1;
        let Some(word_no) = free.iter().position(|w| *w != 0) else { unreachable!("it is vacant") };
        let at = word_no * 64 + free[word_no].trailing_zeros() as usize;
        free[word_no] &= free[word_no] - 1;
        if chunk.used as usize == CHUNK {
            self.vacant[chunk_no / 64] &= !(1 << (chunk_no % 64));
        }
        let no = (chunk_no * CHUNK + at) as u32;
        match self.slot(no) {
            Some(slot) => Vacant { no, slot: NonNull::from(slot) },
            None => no_key(no),
        }
    }

    /// The lowest chunk with a free slot, made if there is none.
    #[inline]
    fn vacant_chunk(&mut self) -> usize {
        if let Some(word) = self.vacant.get(self.first_vacant).filter(|word| **word != 0) {
            let chunk_no = self.first_vacant * 64 + word.trailing_zeros() as usize;
            if self.chunks.get(chunk_no).is_some_and(|chunk| chunk.slots.is_some()) {
                return chunk_no;
            }
        }
        self.make_vacant_chunk()
    }

    #[cold]
    fn make_vacant_chunk(&mut self) -> usize {
        while self.vacant.get(self.first_vacant) == Some(&0) {
            self.first_vacant += 1;
        }
        let chunk_no = match self.vacant.get(self.first_vacant) {
            Some(word) => self.first_vacant * 64 + word.trailing_zeros() as usize,
            None => self.chunks.len(),
        };
        if chunk_no >= self.chunks.len() {
            return self.new_chunk();
        }
        if self.chunks[chunk_no].slots.is_none() {
            self.chunks[chunk_no].slots = Some(Self::new_slots());
            self.empty_chunks += 1;
        }
        chunk_no
    }

    fn new_chunk(&mut self) -> usize {
        let chunk_no = self.chunks.len();
        assert!(chunk_no < u32::MAX as usize / CHUNK, "a queue holds at most 2^32 keys");
        self.chunks.push(Chunk { slots: Some(Self::new_slots()), used: 0 });
        self.free.push([u64::MAX; WORDS]);
        self.empty_chunks += 1;
        if chunk_no / 64 == self.vacant.len() {
            self.vacant.push(0);
        }
        self.vacant[chunk_no / 64] |= 1 << (chunk_no % 64);
        self.first_vacant = self.first_vacant.min(chunk_no / 64);
        chunk_no
    }

    fn new_slots() -> NonNull<Slot<K>> {
        // SAFETY: a slot has two `u32`s, so the layout is not zero-sized.
        let Some(slots) = NonNull::new(unsafe { alloc(Self::LAYOUT) }.cast::<Slot<K>>()) else {
            handle_alloc_error(Self::LAYOUT);
        };
        for i in 0..CHUNK {
            // SAFETY: within the allocation just made; a slot without a key is
            // valid with its cells written and its key uninitialised.
            unsafe {
                slots.add(i).write(Slot {
                    key: UnsafeCell::new(MaybeUninit::uninit()),
                    hash: Cell::new(0),
                    word: Cell::new(0),
                });
            }
        }
        slots
    }

    #[inline]
    pub(crate) fn key(&self, slot: u32) -> &K {
        let s = self.occupied(slot);
        // SAFETY: (3) the slot is occupied.
        unsafe { (*s.key.get()).assume_init_ref() }
    }

    /// Whether the slot has this hash and a key that `is_it` accepts.
    #[inline]
    pub(crate) fn matches(&self, slot: u32, hash: u32, is_it: impl FnOnce(&K) -> bool) -> bool {
        let s = self.occupied(slot);
        // SAFETY: (3) the slot is occupied.
        s.hash.get() == hash && is_it(unsafe { (*s.key.get()).assume_init_ref() })
    }

    #[inline]
    pub(crate) fn flags(&self, slot: u32) -> u32 {
        self.occupied(slot).word.get() & FLAGS
    }

    /// The flags at any slot number; `None` if no key is there.
    pub(crate) fn flags_if_occupied(&self, slot: u32) -> Option<u32> {
        let word = self.slot(slot)?.word.get();
        (word & OCCUPIED != 0).then_some(word & FLAGS)
    }

    /// The hash at any slot number; `None` if no key is there.
    #[inline]
    pub(crate) fn hash_if_occupied(&self, slot: u32) -> Option<u32> {
        let slot = self.slot(slot)?;
        (slot.word.get() & OCCUPIED != 0).then(|| slot.hash.get())
    }

    #[inline]
    pub(crate) fn set_flags(&mut self, slot: u32, flags: u32) {
        let word = &self.occupied(slot).word;
        word.set((word.get() & !FLAGS) | (flags & FLAGS));
    }

    /// Lends a key that has left the line: its address stays until the loan is given back. `change` computes
    /// its new flags; returns the old ones. The loan keeps the mark.
    #[inline(always)]
    pub(crate) fn lend(&mut self, at: Marked, change: impl FnOnce(u32) -> u32) -> (KeyRef<K>, u32) {
        let slot = at.slot();
        let s = self.occupied(slot);
        let word = s.word.get();
        // SAFETY: (3) the slot is occupied.
        let key = NonNull::from(unsafe { (*s.key.get()).assume_init_ref() });
        s.word.set(word & !(FLAGS | PLACE) | LENT | (change(word & FLAGS) & FLAGS));
        if word & LENT != 0 {
            s.word.set(s.word.get() | MORE);
            let extra = self.extra.entry(slot).or_insert(0);
            *extra = one_more(*extra);
        }
        (KeyRef { key, at }, word & FLAGS)
    }

    /// Lends the key of an occupied slot, without changing its state.
    pub(crate) fn lend_in_place(&mut self, slot: u32) -> KeyRef<K> {
        let s = self.occupied(slot);
        let word = s.word.get();
        // SAFETY: (3) the slot is occupied.
        let key = NonNull::from(unsafe { (*s.key.get()).assume_init_ref() });
        s.word.set(word | LENT);
        if word & LENT != 0 {
            s.word.set(word | MORE);
            let extra = self.extra.entry(slot).or_insert(0);
            *extra = one_more(*extra);
        }
        KeyRef { key, at: slot.into() }
    }

    /// Whether the slots from this one to the end of its chunk hold no key.
    pub(crate) fn is_chunk_empty(&self, slot: u32) -> bool {
        self.chunks.get(slot as usize / CHUNK).is_none_or(|chunk| chunk.slots.is_none())
    }

    #[inline]
    pub(crate) fn is_lent(&self, slot: u32) -> bool {
        self.occupied(slot).word.get() & LENT != 0
    }

    /// The slot of a loan. A loan of another arena is refused: its key stays lent there.
    #[inline]
    fn lent(&self, loan: &KeyRef<K>) -> &Slot<K> {
        match self.slot(loan.slot()) {
            // (4) it is lent, so it has its key
            Some(s) if core::ptr::eq(s.key.get().cast::<K>(), loan.key.as_ptr()) => s,
            _ => not_ours(),
        }
    }

    /// Asserts that a loan belongs to this arena.
    pub(crate) fn check(&self, loan: &KeyRef<K>) {
        self.lent(loan);
    }

    /// Ends a loan. Returns the flags.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "a loan that is given back is gone")]
    pub(crate) fn give_back(&mut self, loan: KeyRef<K>) -> u32 {
        let s = self.lent(&loan);
        let word = s.word.get();
        if word & MORE == 0 {
            s.word.set(word & !LENT);
        } else if let Entry::Occupied(mut more) = self.extra.entry(loan.slot()) {
            *more.get_mut() -= 1;
            if *more.get() == 0 {
                more.remove();
                self.occupied(loan.slot()).word.set(word & !MORE);
            }
        }
        word & FLAGS
    }

    /// Ends a loan and removes the key at once, if the key's flags equal `flags` and there is no other loan;
    /// otherwise nothing changes. The owner of the loan is dropped in place, so that it need not be moved.
    #[inline(always)]
    pub(crate) fn give_back_and_remove<L>(
        &mut self,
        what_has_it: &mut Option<L>,
        loan: impl FnOnce(&L) -> &KeyRef<K>,
        flags: u32,
    ) -> Option<Removed<K>> {
        let loan = loan(what_has_it.as_ref()?);
        let slot = self.lent(loan);
        if slot.word.get() != OCCUPIED | LENT | flags {
            return None;
        }
        let vacant = Vacant { no: loan.slot(), slot: NonNull::from(slot) };
        *what_has_it = None;
        Some(self.take_out(vacant))
    }

    /// Removes the key; `None` while it is lent.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Removed<K>> {
        let s = self.occupied(slot);
        let (is_lent, vacant) = (s.word.get() & LENT != 0, Vacant { no: slot, slot: NonNull::from(s) });
        (!is_lent).then(|| self.take_out(vacant))
    }

    /// Moves the key out of an occupied slot without references, and makes the slot vacant.
    #[inline(always)]
    fn take_out(&mut self, vacant: Vacant<K>) -> Removed<K> {
        let slot = vacant.no;
        // SAFETY: (1) both callers have just found it.
        let s = unsafe { vacant.slot.as_ref() };
        s.word.set(0);
        let hash = s.hash.get();
        // SAFETY: (3) the slot was occupied until the line above, so the key is
        // initialised; (4) both callers have seen that no loan but one
        // that they consumed is out; its word no longer has `OCCUPIED`, so it is
        // never read again.
        let key = unsafe { (*s.key.get()).assume_init_read() };
        self.len -= 1;
        let freed_chunk = if !self.keeps {
            self.free_slot_of_chunk(slot)
        } else if let Some(older) = self.spare.replace(vacant) {
            self.free_slot_of_chunk(older.no)
        } else {
            None
        };
        Removed { slot, key, hash, freed_chunk }
    }

    /// Returns a slot to its chunk. Returns the chunk if that freed it.
    fn free_slot_of_chunk(&mut self, slot: u32) -> Option<u32> {
        let (chunk_no, at) = (slot as usize / CHUNK, slot as usize % CHUNK);
        self.free[chunk_no][at / 64] |= 1 << (at % 64);
        self.vacant[chunk_no / 64] |= 1 << (chunk_no % 64);
        self.first_vacant = self.first_vacant.min(chunk_no / 64);
        let chunk = &mut self.chunks[chunk_no];
        chunk.used -= 1;
        if chunk.used > 0 {
            return None;
        }
        if self.empty_chunks > 0 || !self.keeps {
            self.free_chunk(chunk_no);
            return Some(chunk_no as u32);
        }
        self.empty_chunks += 1;
        None
    }

    #[cold]
    fn free_chunk(&mut self, chunk_no: usize) {
        if let Some(slots) = self.chunks[chunk_no].slots.take() {
            // SAFETY: allocated by `new_slots` with this layout; it holds no
            // key, so (4) no loan points into it.
            unsafe { dealloc(slots.as_ptr().cast(), Self::LAYOUT) };
        }
        while self.chunks.last().is_some_and(|chunk| chunk.slots.is_none()) {
            self.chunks.pop();
        }
        let len = self.chunks.len();
        self.free.truncate(len);
        self.vacant.truncate(len.div_ceil(64));
        shrink::shrink(&mut self.chunks);
        shrink::shrink(&mut self.free);
        shrink::shrink(&mut self.vacant);
    }
}

/// Panics for a slot without a key. Separate function, so that the checks cost no code.
fn no_key(slot: u32) -> ! {
    panic!("slot {slot} holds no key")
}

fn not_ours() -> ! {
    panic!("a key was given back to a queue that did not lend it")
}

impl<K> Places for Arena<K> {
    const NUMBERS: usize = 1 << (PLACE.count_ones() - 1);

    fn place(&self, slot: u32) -> Option<usize> {
        let place = self.slot(slot)?.word.get() & PLACE;
        (place & IN_LINE != 0).then_some((place >> BLOCK_BIT) as usize)
    }

    #[inline]
    fn set_place(&mut self, slot: u32, block: u32) {
        let Some(s) = self.slot(slot) else { return };
        debug_assert!(s.word.get() & OCCUPIED != 0, "a slot in line has a key");
        s.word.set((s.word.get() & !PLACE) | place_bits(block));
    }

    fn clear_place(&mut self, slot: u32) {
        let word = &self.occupied(slot).word;
        word.set(word.get() & !PLACE);
    }
}

impl<K> Slots for Arena<K> {
    #[inline]
    fn hash(&self, slot: u32) -> u32 {
        self.occupied(slot).hash.get()
    }

    #[inline]
    fn prefetch(&self, slot: u32) {
        if let Some(slot) = self.slot(slot) {
            prefetch(core::ptr::from_ref(slot) as usize);
        }
    }
}

impl<K> Drop for Arena<K> {
    fn drop(&mut self) {
        for chunk_no in 0..self.chunks.len() {
            let Some(slots) = self.chunks[chunk_no].slots.take() else { continue };
            let mut lent = false;
            for i in 0..CHUNK {
                // SAFETY: (1) as in `slot`.
                let s = unsafe { slots.add(i).as_ref() };
                let word = s.word.replace(0);
                lent |= word & LENT != 0;
                if word & (OCCUPIED | LENT) == OCCUPIED {
                    // SAFETY: (3) initialised; not lent, and the word says
                    // nothing is there any more.
                    unsafe { (*s.key.get()).assume_init_drop() };
                }
            }
            if !lent {
                // SAFETY: allocated by `new_slots` with this layout, and no
                // loan points into it.
                unsafe { dealloc(slots.as_ptr().cast(), Self::LAYOUT) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use alloc::string::{String, ToString};
    use alloc::sync::Arc;

    #[test]
    fn keys_keep_their_address_while_others_come_and_go() {
        let mut a = Arena::new(usize::MAX);
        let first = a.insert("first".to_string(), 1, 0);
        let loan = a.lend(first.into(), |f| f).0;
        let at: *const String = loan.get();
        let more: Vec<u32> = (0..2000).map(|i| a.insert(i.to_string(), i, 0)).collect();
        assert_eq!(at, core::ptr::from_ref(loan.get()));
        for s in more {
            assert!(a.remove(s).is_some());
        }
        assert_eq!(loan.get(), "first");
        a.give_back(loan);
        assert_eq!(a.remove(first).map(|r| r.key).as_deref(), Some("first"));
        assert_eq!(a.len(), 0);
    }

    #[test]
    fn a_lent_key_is_not_removed_before_its_last_loan_comes_back() {
        let mut a = Arena::new(usize::MAX);
        let s = a.insert(Rc::new(()), 0, 0);
        let (one, two) = (a.lend(s.into(), |f| f).0, a.lend(s.into(), |f| f).0);
        assert!(a.remove(s).is_none());
        a.give_back(two);
        assert!(a.remove(s).is_none());
        assert!(a.is_lent(s));
        a.give_back(one);
        assert!(!a.is_lent(s));
        assert!(a.remove(s).is_some());
    }

    #[test]
    fn emptied_chunks_are_freed_but_for_two() {
        let mut a = Arena::new(usize::MAX);
        let chunks = if cfg!(miri) { 20 } else { 200 };
        let slots: Vec<u32> = (0..CHUNK as u32 * chunks).map(|i| a.insert(u64::from(i), i, 0)).collect();
        let mut freed = 0;
        for s in slots {
            freed += usize::from(a.remove(s).expect("not lent").freed_chunk.is_some());
        }
        // one that is empty is kept, and the one with the slot that was freed last
        assert_eq!(freed, chunks as usize - 2);
        assert!(a.chunks.iter().filter(|c| c.slots.is_some()).count() == 2);
        // and the arena is still usable
        let s = a.insert(7, 7, 0);
        assert_eq!((*a.key(s), a.hash(s)), (7, 7));
    }

    #[test]
    fn a_large_empty_chunk_is_not_kept() {
        let mut a = Arena::new(64 * 1024);
        let s = a.insert([0u8; 4096], 0, 0);
        assert_eq!(a.remove(s).expect("not lent").freed_chunk, Some(0));
        assert!(a.chunks.is_empty());
        let s = a.insert([1u8; 4096], 0, 0);
        assert_eq!(a.key(s)[0], 1);
    }

    #[test]
    fn slots_are_reused_lowest_chunk_first_but_for_the_last_one() {
        let mut a = Arena::new(usize::MAX);
        let slots: Vec<u32> = (0..1000u32).map(|i| a.insert(i, i, 0)).collect();
        a.remove(slots[700]).expect("not lent");
        a.remove(slots[3]).expect("not lent");
        a.remove(slots[900]).expect("not lent");
        assert_eq!(a.insert(1, 1, 0), slots[900]);
        assert_eq!(a.insert(1, 1, 0), slots[3]);
        assert_eq!(a.insert(1, 1, 0), slots[700]);
        assert_eq!(a.insert(1, 1, 0), 1000);
    }

    #[test]
    fn dropping_the_arena_drops_each_key_once_and_leaves_lent_ones() {
        let counted = Arc::new(());
        let mut a = Arena::new(usize::MAX);
        let slots: Vec<u32> = (0..600).map(|i| a.insert(counted.clone(), i, 0)).collect();
        a.remove(slots[5]).expect("not lent");
        let loan = a.lend(slots[9].into(), |f| f).0;
        drop(a);
        // the loan's key is alive and readable
        assert_eq!(Arc::strong_count(&counted), 2);
        assert!(Arc::ptr_eq(loan.get(), &counted));
        // give its memory back, so that leak checkers stay quiet about a leak on purpose
        // SAFETY: the arena is gone and left this key; the loan is the only reference.
        drop(unsafe { loan.key.as_ptr().read() });
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    fn zero_sized_keys_have_slots_too() {
        let mut a = Arena::new(usize::MAX);
        let s = a.insert((), 3, 0);
        let loan = a.lend(s.into(), |f| f).0;
        let () = *loan.get();
        a.give_back(loan);
        assert!(a.remove(s).is_some());
    }

    #[test]
    #[should_panic(expected = "did not lend it")]
    fn a_loan_of_another_arena_is_refused() {
        let (mut a, mut b) = (Arena::new(usize::MAX), Arena::new(usize::MAX));
        let s = a.insert(1u8, 0, 0);
        b.insert(1u8, 0, 0);
        b.give_back(a.lend(s.into(), |f| f).0);
    }
}

#[cfg(test)]
#[path = "tests/arena.rs"]
mod freed_chunks;

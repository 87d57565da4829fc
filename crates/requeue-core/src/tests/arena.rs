//! Freed chunks are used again; a slot without a key gives no answer.

use super::{Arena, CHUNK, WORDS};
use crate::slots::Places;
use alloc::string::String;
use alloc::vec::Vec;

/// Number of chunks: enough that their bits fill two words; under Miri, which is slow, one.
const CHUNKS: u32 = if cfg!(miri) { 8 } else { 70 };

fn full() -> Arena<u32> {
    let mut arena = Arena::new(usize::MAX);
    let slots: Vec<u32> = (0..CHUNKS * CHUNK as u32).map(|key| arena.insert(key, key, 0)).collect();
    assert!(slots.iter().copied().eq(0..CHUNKS * CHUNK as u32));
    arena
}

/// Removes all keys of a chunk; whether a chunk was freed by that.
fn empty_out(arena: &mut Arena<u32>, chunk: u32) -> bool {
    let slots = chunk * CHUNK as u32..(chunk + 1) * CHUNK as u32;
    slots.filter(|slot| arena.remove(*slot).expect("not lent").freed_chunk.is_some()).count() > 0
}

#[test]
fn chunks_that_were_freed_are_found_again_before_new_ones_are_made() {
    assert_eq!(WORDS * 64, CHUNK);
    let mut arena = full();
    let before = arena.slots();
    // the first that empties is kept, the last has the slot that was freed last
    let emptied = [1, CHUNKS - 5, CHUNKS - 6, CHUNKS - 2, 0];
    let freed: Vec<u32> = emptied.into_iter().filter(|chunk| empty_out(&mut arena, *chunk)).collect();
    assert!(freed.len() >= 3, "{freed:?}");
    let mut slots: Vec<u32> =
        (0..emptied.len() as u32 * CHUNK as u32).map(|key| arena.insert(key, key, 0)).collect();
    assert_eq!(arena.slots(), before, "no chunk was added while others were free");
    slots.sort_unstable();
    let mut chunks: Vec<u32> = slots.iter().map(|slot| slot / CHUNK as u32).collect();
    chunks.dedup();
    assert_eq!(chunks, [0, 1, CHUNKS - 6, CHUNKS - 5, CHUNKS - 2]);
    assert_eq!(arena.insert(0, 0, 0), before, "now it is full again");
}

#[test]
fn of_freed_chunks_the_lowest_is_used_first() {
    let mut arena = full();
    let (low, middle, high) = (1, CHUNKS - 4, CHUNKS - 2);
    for chunk in [high, low, middle] {
        empty_out(&mut arena, chunk);
    }
    // the slot that was freed last comes first
    assert_eq!(arena.insert(0, 0, 0), (middle + 1) * CHUNK as u32 - 1);
    for chunk in [low, middle, high] {
        let last = if chunk == middle { CHUNK - 1 } else { CHUNK };
        for at in 0..last as u32 {
            assert_eq!(arena.insert(0, 0, 0), chunk * CHUNK as u32 + at);
        }
    }
}

#[test]
fn an_arena_whose_highest_chunks_went_makes_them_anew() {
    let mut arena = full();
    let kept = CHUNKS / 2;
    for chunk in kept..CHUNKS {
        empty_out(&mut arena, chunk);
    }
    // until then the last one has the slot that was freed last
    assert_eq!(arena.remove(0).and_then(|removed| removed.freed_chunk), Some(CHUNKS - 1));
    assert_eq!(arena.slots(), (kept + 1) * CHUNK as u32, "one that is empty is kept");
    let slots: Vec<u32> = (0..=(CHUNKS - kept) * CHUNK as u32).map(|key| arena.insert(key, key, 0)).collect();
    assert_eq!((arena.len(), arena.slots()), (CHUNKS as usize * CHUNK, CHUNKS * CHUNK as u32));
    assert!(slots.iter().all(|slot| *slot < arena.slots()));
}

#[test]
fn a_key_that_is_lent_twice_is_not_removed_with_one_of_its_loans() {
    let mut arena = Arena::new(usize::MAX);
    let slot = arena.insert(7, 7, 0);
    let (one, two) = (arena.lend(slot.into(), |_| 5).0, arena.lend(slot.into(), |_| 5).0);
    let (mut one, mut two) = (Some(one), Some(two));
    assert!(arena.give_back_and_remove(&mut one, |one| one, 5).is_none(), "it is lent once more");
    arena.give_back(one.take().expect("nothing has changed"));
    assert!(arena.give_back_and_remove(&mut two, |two| two, 4).is_none(), "its flags are others");
    assert_eq!(arena.give_back_and_remove(&mut two, |two| two, 5).map(|removed| removed.key), Some(7));
    assert!(two.is_none() && arena.give_back_and_remove(&mut two, |two| two, 5).is_none());
    assert_eq!(arena.flags_if_occupied(slot), None);
    assert_eq!(arena.flags_if_occupied(u32::MAX), None);
}

#[test]
#[should_panic(expected = "slot 0 holds no key")]
fn a_slot_whose_key_was_removed_gives_none() {
    let mut arena = Arena::new(usize::MAX);
    let slot = arena.insert(7, 7, 0);
    arena.remove(slot).expect("not lent");
    arena.key(slot);
}

#[test]
fn a_key_that_is_lent_in_place_stays_where_it_stands_and_what_it_is() {
    let mut a = Arena::new(usize::MAX);
    let s = a.insert(String::from("key"), 7, 5);
    a.set_place(s, 3);
    let (one, two) = (a.lend_in_place(s), a.lend_in_place(s));
    assert_eq!((one.get().as_str(), two.get().as_str()), ("key", "key"));
    assert_eq!((a.flags(s), a.place(s)), (5, Some(3)));
    assert!(a.remove(s).is_none());
    // handed out meanwhile
    let run = a.lend(s.into(), |flags| flags).0;
    assert_eq!(a.place(s), None);
    a.give_back(one);
    a.give_back(run);
    assert!(a.is_lent(s) && a.remove(s).is_none());
    assert_eq!(two.get(), "key");
    a.give_back(two);
    assert_eq!(a.remove(s).map(|removed| removed.key).as_deref(), Some("key"));
}

/// Enters a key as one of this chunk's.
fn insert_in(arena: &mut Arena<u32>, chunk: &mut u32) -> u32 {
    let vacant = arena.next_slot_in(chunk);
    let slot = vacant.no();
    assert_eq!(slot / CHUNK as u32, *chunk);
    arena.fill(vacant, slot, slot, 0, None);
    slot
}

#[test]
fn keys_of_one_caller_stand_side_by_side() {
    let mut arena = full();
    let mut chunks = [u32::MAX, 3, u32::MAX];
    let mut slots = [const { Vec::new() }; 3];
    for _ in 0..CHUNK {
        for (chunk, slots) in chunks.iter_mut().zip(&mut slots) {
            slots.push(insert_in(&mut arena, chunk));
        }
    }
    for slots in &slots {
        assert!(slots.is_sorted() && slots[CHUNK - 1] - slots[0] == CHUNK as u32 - 1, "{slots:?}");
    }
    // a chunk that was freed is none that has room
    let [freed, ..] = chunks;
    for chunk in [0, freed] {
        empty_out(&mut arena, chunk);
    }
    assert_eq!(arena.remove(5 * CHUNK as u32).expect("not lent").freed_chunk, Some(freed));
    let other = insert_in(&mut arena, &mut chunks[0]);
    assert_eq!((*arena.key(other), chunks[0] == freed), (other, false));
}

#[test]
fn new_chunks_are_made_only_while_half_of_all_slots_are_taken() {
    let mut arena = full();
    // of each chunk every third slot stays
    for slot in (0..CHUNKS * CHUNK as u32).filter(|slot| slot % 3 != 0) {
        arena.remove(slot).expect("not lent");
    }
    let mut homes = [u32::MAX; if cfg!(miri) { 2 } else { 9 }];
    let mut added = 0;
    while arena.slots() == CHUNKS * CHUNK as u32 {
        for home in &mut homes {
            insert_in(&mut arena, home);
            added += 1;
        }
    }
    assert!(
        arena.len() >= arena.slots() as usize / 2 - homes.len() * CHUNK,
        "{} in {}",
        arena.len(),
        arena.slots()
    );
    assert!(added > CHUNKS as usize * CHUNK / 7, "those that were there were filled before: {added}");
    // and what is free in low chunks is found by those who have none: behind the one that was freed last
    for slot in [arena.insert(0, 0, 0), arena.insert(1, 1, 0)] {
        assert!(slot < CHUNKS * CHUNK as u32, "{slot}");
    }
}

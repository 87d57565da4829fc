use super::*;

/// Where slots stand, by places that can tell `N` block numbers from each other; and how
/// often that was written.
#[derive(Default)]
struct Few<const N: usize = 2> {
    places: Vec<Option<u32>>,
    writes: usize,
}

impl<const N: usize> Few<N> {
    fn at(&mut self, slot: u32) -> &mut Option<u32> {
        let len = self.places.len().max(slot as usize + 1);
        self.places.resize(len, None);
        &mut self.places[slot as usize]
    }
}

impl<const N: usize> Places for Few<N> {
    const NUMBERS: usize = N;
    fn place(&self, slot: u32) -> Option<usize> {
        self.places.get(slot as usize).copied().flatten().map(|place| place as usize)
    }
    fn set_place(&mut self, slot: u32, block: u32) {
        self.writes += 1;
        *self.at(slot) = Some(block % N as u32);
    }
    fn clear_place(&mut self, slot: u32) {
        *self.at(slot) = None;
    }
}

struct Random(u32);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as usize % n.max(1)
    }
}

impl<const BLOCK: usize> Ring<BLOCK> {
    /// The numbers of the blocks, from the first on.
    fn numbers(&self) -> Vec<u32> {
        let mut numbers = Vec::new();
        let mut number = if self.blocks.is_empty() { NONE } else { self.first };
        while number != NONE {
            numbers.push(number);
            number = self.block(number).expect("(1)").behind;
        }
        numbers
    }

    /// Asserts that [`around`](Ring::around) is right for each slot.
    fn check_around<P: Places>(&self, places: &P) {
        for most in [0, 1, usize::MAX - 1] {
            for (at, slot) in self.slots().into_iter().enumerate() {
                let (before, behind) = self.around(places, slot, most).expect("it stands here");
                assert!(before <= at && behind < self.len - at, "at least, and no more than there are");
                let exact = before + behind + 1 == self.len;
                assert!(exact || most < self.numbers().len(), "an end was within reach");
                assert!(!exact || before == at, "{before} before the slot at {at}");
            }
        }
    }

    fn slots(&self) -> Vec<u32> {
        let entries = |number: u32| &self.block(number).expect("(1)").entries[self.used(number)];
        self.numbers().into_iter().flat_map(entries).copied().filter(|slot| *slot != HOLE).collect()
    }

    /// Asserts what the head of `ring.rs` says.
    fn check<P: Places>(&self, places: &P) {
        let numbers = self.numbers();
        assert_eq!(self.slots().len(), self.len);
        let mut holes = 0;
        for (i, &number) in numbers.iter().enumerate() {
            let block = self.block(number).expect("(1)");
            let entries = &block.entries[self.used(number)];
            assert_eq!(block.holes, entries.iter().filter(|slot| **slot == HOLE).count(), "(2)");
            holes += block.holes;
            for slot in entries.iter().filter(|slot| **slot != HOLE) {
                let place = places.place(*slot).expect("(3)");
                assert!(place <= number as usize && (number as usize - place) % P::NUMBERS == 0, "(3)");
            }
            let before = i.checked_sub(1).map_or(NONE, |i| numbers[i]);
            assert_eq!(block.before, before, "(1)");
        }
        if let [_, middle @ .., _] = &*numbers {
            assert!(middle.iter().all(|number| self.slots_in(*number) > 0), "(4)");
            let sparse = |pair: &[u32]| self.slots_in(pair[0]) + self.slots_in(pair[1]) <= BLOCK;
            assert!(!middle.windows(2).any(sparse), "(4)");
        }
        assert!(holes <= self.len + 3 * BLOCK, "(4): {holes} holes, {} slots", self.len);
        if self.len == 0 {
            assert!(numbers.len() <= 2, "(5)");
        }
    }
}

#[test]
fn a_ring_agrees_with_a_list_over_block_edges_and_where_places_look_the_same() {
    for seed in 0..if cfg!(miri) { 1 } else { 20 } {
        let (mut ring, mut places, mut list) = (Ring::<4>::default(), <Few>::default(), Vec::new());
        let mut random = Random(seed);
        let mut free: Vec<u32> = (0..200).collect();
        let mut most_blocks = 0;
        for step in 0..if cfg!(miri) { 300 } else { 3_000 } {
            // long stretches of growing, then of shrinking; mostly by pops, or mostly by leaving
            let grows = (step / 250) % 2 == 0;
            let leaves = (step / 500) % 2 == 0;
            places.writes = 0;
            match random.below(8) {
                0..=2 if leaves || random.below(3) == 0 => {
                    // anywhere, or near the end, where the block is not full yet
                    let from = if random.below(2) == 0 { 0 } else { list.len().saturating_sub(6) };
                    let slot = list.get(from + random.below(list.len() - from)).copied().unwrap_or(7);
                    let stands = list.iter().position(|other| *other == slot);
                    assert_eq!(ring.leave(&mut places, slot), stands.is_some());
                    free.extend(stands.map(|at| list.remove(at)));
                }
                2 if !grows || leaves => {
                    let front = if list.is_empty() { None } else { Some(list.remove(0)) };
                    assert_eq!(ring.pop_front(), front);
                    free.extend(front.inspect(|slot| places.clear_place(*slot)));
                }
                3 if !grows || leaves => {
                    let back = list.pop();
                    assert_eq!(ring.pop_back(), back);
                    free.extend(back.inspect(|slot| places.clear_place(*slot)));
                }
                _ if grows && !free.is_empty() => {
                    let slot = free.swap_remove(random.below(free.len()));
                    ring.push_back(&mut places, slot);
                    list.push(slot);
                }
                _ => {}
            }
            ring.check(&places);
            if step % 64 == 0 {
                ring.check_around(&places);
            }
            assert!(places.writes <= 1 + 4 / 2, "at most half a block moves in a call");
            assert_eq!((ring.len(), ring.front()), (list.len(), list.first().copied()));
            assert_eq!(ring.slots(), list);
            let ahead: Vec<u32> = ring.ahead().iter().copied().filter(|slot| *slot != HOLE).collect();
            assert!(list.starts_with(&ahead));
            most_blocks = most_blocks.max(ring.numbers().len());
        }
        assert!(cfg!(miri) || most_blocks > 8, "places looked the same");
        for slot in list.into_iter().rev() {
            assert_eq!(ring.pop_back(), Some(slot));
        }
        assert_eq!((ring.pop_back(), ring.pop_front(), ring.front()), (None, None, None));
        ring.check(&places);
    }
}

#[test]
fn nobody_leaves_who_does_not_stand_in_line() {
    let (mut ring, mut places) = (Ring::<4>::default(), <Few>::default());
    assert!(!ring.leave(&mut places, 3));
    for slot in 0..10 {
        ring.push_back(&mut places, slot);
    }
    for slot in [10, 1 << 20, HOLE] {
        assert!(!ring.leave(&mut places, slot));
    }
    // one that was popped is still among the entries, where they are not used any more
    assert_eq!((ring.pop_front(), ring.pop_back()), (Some(0), Some(9)));
    assert!(!ring.leave(&mut places, 0) && !ring.leave(&mut places, 9));
    // one that stands in another line
    let mut other = Ring::<4>::default();
    other.push_back(&mut places, 20);
    assert!(!ring.leave(&mut places, 20) && other.leave(&mut places, 20));
    assert_eq!(ring.slots(), (1..9).collect::<Vec<_>>());
}

#[test]
fn an_emptied_line_keeps_a_block_and_a_spare() {
    let (mut ring, mut places) = (Ring::<512>::default(), Few::<1_000>::default());
    let n = if cfg!(miri) { 1_600 } else { 100_000 };
    for i in 0..n {
        ring.push_back(&mut places, i);
    }
    let out: Vec<u32> = core::iter::from_fn(|| ring.pop_front()).collect();
    assert!(out.iter().copied().eq(0..n));
    assert!(ring.numbers().len() == 1 && ring.spare.is_some());
    out.iter().for_each(|slot| places.clear_place(*slot));
    // the list of numbers becomes shorter where the line begins anew, with the end of that block
    for i in 0..512 {
        ring.push_back(&mut places, i);
        assert_eq!(ring.pop_front(), Some(i));
        places.clear_place(i);
    }
    assert!(ring.blocks.len() == 1 && ring.spare.is_some());
    assert!(ring.blocks.capacity() <= 64 && ring.vacant.capacity() <= 64);
}

#[test]
fn what_a_burst_allocated_goes_back_as_its_slots_leave() {
    let (mut ring, mut places) = (Ring::<512>::default(), Few::<1_000>::default());
    let n = if cfg!(miri) { 4_000 } else { 50_000 };
    for i in 0..n {
        ring.push_back(&mut places, i);
    }
    // all but every hundredth, in an order that spreads them
    places.writes = 0;
    for i in (0..n).map(|i| (i * 7_919) % n).filter(|i| i % 100 != 0) {
        assert!(ring.leave(&mut places, i));
    }
    assert!(places.writes <= n as usize, "each slot moves once at most, taken together");
    let blocks = ring.blocks.iter().flatten().count();
    assert!(blocks * 512 <= 2 * ring.len() + 4 * 512, "{blocks} blocks for {} slots", ring.len());
    assert!(ring.slots().into_iter().eq((0..n).filter(|i| i % 100 == 0)));
    for i in (0..n).filter(|i| i % 100 == 0) {
        assert!(ring.leave(&mut places, i));
    }
    ring.check(&places);
    assert!(ring.blocks.capacity() <= 64 && ring.vacant.capacity() <= 64);
}

#[test]
fn a_line_that_rolls_on_behind_one_that_stays_does_not_grow() {
    let (mut ring, mut places) = (Ring::<4>::default(), <Few>::default());
    ring.push_back(&mut places, 0);
    for i in 0..5_000 {
        // ten others are in line at any time, and none is popped
        ring.push_back(&mut places, 1 + i % 11);
        if i >= 10 {
            assert!(ring.leave(&mut places, 1 + (i - 10) % 11));
        }
        ring.check(&places);
        assert!(ring.blocks.len() <= 10 && ring.vacant.len() <= 10);
    }
    assert_eq!(ring.front(), Some(0));
}

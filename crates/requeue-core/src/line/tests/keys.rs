use super::*;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Places that can tell three block numbers from each other.
#[derive(Default)]
struct Few(Vec<Option<u32>>);

impl Places for Few {
    const NUMBERS: usize = 3;
    fn place(&self, slot: u32) -> Option<usize> {
        self.0.get(slot as usize).copied().flatten().map(|place| place as usize)
    }
    fn set_place(&mut self, slot: u32, block: u32) {
        let len = self.0.len().max(slot as usize + 1);
        self.0.resize(len, None);
        self.0[slot as usize] = Some(block % Self::NUMBERS as u32);
    }
    fn clear_place(&mut self, slot: u32) {
        self.0[slot as usize] = None;
    }
}

/// The keys of a list, and how many numbers of blocks it has.
fn walk(keys: &Keys, blocks: &Blocks) -> (Vec<u32>, usize) {
    let mut found = Vec::from(keys.ahead());
    let (mut number, mut before, mut count) = (keys.first, NONE, 0);
    while let Some(block) = blocks.each.get(number) {
        assert!(!block.used().is_empty() && (before == NONE || block.before == before));
        found.extend(block.used());
        (before, number, count) = (number, block.after, count + 1);
    }
    assert_eq!(keys.last, before);
    let back = part(&keys.back, 0, keys.waiting);
    found.extend(back);
    assert!(back.is_empty() || keys.next != NONE, "they have a place");
    assert_eq!(keys.is_empty(), found.is_empty(), "the first one stands in front");
    assert_eq!(keys.head(), found.first().copied().unwrap_or(NONE));
    (found, count + usize::from(keys.next != NONE))
}

#[test]
fn keys_come_in_their_order_and_leave_from_anywhere() {
    for seed in 0..if cfg!(miri) { 2 } else { 30 } {
        let mut random: u32 = 7 * seed + 1;
        let mut below = |n: usize| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) as usize % n.max(1)
        };
        let (mut blocks, mut places) = (Blocks::new(), Few::default());
        let (mut lists, mut models) = ([Keys::NONE; 3], [const { VecDeque::<u32>::new() }; 3]);
        let (mut free, mut grows): (Vec<u32>, _) = ((0..400).collect(), true);
        for _ in 0..if cfg!(miri) { 400 } else { 6_000 } {
            let node = below(3);
            let (list, model) = (&mut lists[node], &mut models[node]);
            match below(10) {
                0..6 if grows && !free.is_empty() => {
                    let slot = free.swap_remove(below(free.len()));
                    let place = list.push(&mut blocks, slot);
                    places.set_place(slot, place);
                    model.push_back(slot);
                }
                6..8 if !model.is_empty() => {
                    let slot = list.head();
                    list.pop(&mut blocks);
                    assert_eq!(model.pop_front(), Some(slot));
                    places.clear_place(slot);
                    assert!(!list.has_at_an_end(slot) && !blocks.has(&places, slot));
                    free.push(slot);
                }
                8..10 if !model.is_empty() => {
                    let slot = model.remove(below(model.len())).expect("it is there");
                    assert_ne!(list.has_at_an_end(slot), blocks.has(&places, slot), "it stands there once");
                    list.remove(&mut blocks, &mut places, slot);
                    assert_eq!(places.place(slot), None);
                    free.push(slot);
                }
                _ => grows = free.len() > 50 && (grows || free.len() > 390),
            }
            let (found, _) = walk(&lists[node], &blocks);
            assert_eq!(found, Vec::from(models[node].clone()), "seed {seed}");
            let counted = lists.iter().map(|list| walk(list, &blocks).1).sum::<usize>();
            assert_eq!(counted, blocks.len(), "no block is lost, seed {seed}");
        }
    }
}

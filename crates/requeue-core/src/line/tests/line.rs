use super::*;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

extern crate std;
use std::sync::Mutex;

/// A line and the keys in it, and a model of it: lists.
struct Rig {
    line: Line<u32>,
    arena: Arena<u32>,
    lifo: bool,
    ready: Vec<u32>,
    next: u32,
}

impl Rig {
    fn new(order: Order<u32>) -> Self {
        let lifo = matches!(order, Order::Lifo);
        let (line, arena) = (Line::new(order, None, false, false), Arena::new(0));
        Self { line, arena, lifo, ready: Vec::new(), next: 0 }
    }

    /// A new key becomes ready: as a timer does it, or as an add.
    fn enter(&mut self, announced: bool) -> u32 {
        let slot = self.arena.insert(self.next, 0, 0);
        self.next += 1;
        if announced {
            self.line.announce(&mut self.arena, slot);
            self.line.insert_announced(&mut self.arena, slot, Instant::ORIGIN);
        } else {
            self.line.enter(&mut self.arena, slot, Instant::ORIGIN);
        }
        self.ready.push(slot);
        slot
    }

    fn pop(&mut self) -> Option<u32> {
        let slot = self.line.pop(&mut self.arena, Instant::ORIGIN)?.slot();
        self.forget(slot);
        Some(slot)
    }

    fn leave(&mut self, slot: u32) -> bool {
        let left = self.line.leave(&mut self.arena, slot);
        if left {
            self.forget(slot);
        }
        left
    }

    /// The key's slot is another key's soon.
    fn forget(&mut self, slot: u32) {
        let before = self.ready.len();
        self.ready.retain(|other| *other != slot);
        assert_eq!(self.ready.len(), before - 1, "it stood in line once");
        self.arena.remove(slot).expect("nobody lends it");
    }

    /// The next slot.
    fn expected(&self) -> Option<u32> {
        if self.lifo { self.ready.last().copied() } else { self.ready.first().copied() }
    }

    fn any(&self, random: usize) -> Option<u32> {
        self.ready.get(random % self.ready.len().max(1)).copied()
    }
}

/// The smallest key first, and what it was told.
#[derive(Default)]
struct Smallest {
    keys: BTreeSet<(u32, Ticket)>,
}

impl ReadyOrder<u32> for Smallest {
    fn push(&mut self, key: &u32, ticket: Ticket) {
        self.keys.insert((*key, ticket));
    }
    fn pop(&mut self) -> Option<Ticket> {
        self.keys.pop_first().map(|(_, ticket)| ticket)
    }
}

fn random(seed: &mut u32) -> usize {
    *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*seed >> 8) as usize
}

#[test]
fn a_line_agrees_with_lists_whoever_enters_and_leaves() {
    for (order, exact) in
        [(Order::Fifo, true), (Order::Lifo, true), (Order::Custom(Box::<Smallest>::default()), false)]
    {
        let (mut q, mut seed, mut most) = (Rig::new(order), 3, 0);
        let steps = if cfg!(miri) { 2_000 } else { 16_000 };
        for step in 0..steps {
            let grows = (step / 4_000) % 2 == 0;
            let by = random(&mut seed);
            match random(&mut seed) % 10 {
                0..=4 if grows => {
                    q.enter(by % 2 == 0);
                }
                0..=1 => {
                    let expected = q.expected();
                    let popped = q.pop();
                    assert!(if exact { popped == expected } else { popped.is_some() == expected.is_some() });
                }
                2..=4 => {
                    let slot = q.any(by);
                    assert!(slot.is_none_or(|slot| q.leave(slot)));
                }
                5..=6 => assert!(!q.leave(1_000_000)),
                7 if by % 50 == 0 => {
                    q.line.choose(&mut q.arena, 5);
                    if !exact {
                        for _ in 0..q.ready.len().min(5) {
                            assert!(q.pop().is_some());
                        }
                    }
                }
                _ => {
                    q.enter(by % 2 == 0);
                }
            }
            most = most.max(q.line.servable());
            assert_eq!(q.line.servable(), q.ready.len());
            assert_eq!(q.line.oldest(), q.ready.first().copied().filter(|_| exact));
        }
        assert!(cfg!(miri) || most > 1_100, "the line went over block edges");
        while q.line.servable() > 0 {
            let expected = q.expected();
            let popped = q.pop();
            assert!(popped.is_some() && (!exact || popped == expected));
        }
        assert_eq!(q.pop(), None);
        assert_eq!(q.arena.len(), 0, "no key is lost");
    }
}

#[test]
fn a_slot_that_left_gives_its_next_key_no_better_place() {
    let mut q = Rig::new(Order::Fifo);
    let (first, second, third) = (q.enter(false), q.enter(false), q.enter(false));
    assert!(q.leave(first));
    assert_eq!(q.enter(false), first, "the new key has the old one's slot");
    // and once more, while it is in line
    assert!(q.leave(second));
    assert_eq!(q.enter(false), second);
    assert_eq!([q.pop(), q.pop(), q.pop(), q.pop()], [Some(third), Some(first), Some(second), None]);
}

#[test]
fn a_users_order_hears_of_a_key_that_leaves_if_it_was_told_of_it_and_again_of_one_that_comes_back() {
    /// Tickets that it was told, those that it will give, the last first, and those that left.
    #[derive(Default, Clone)]
    struct Heard(Arc<Mutex<[Vec<Ticket>; 3]>>);
    impl ReadyOrder<u32> for Heard {
        fn push(&mut self, _: &u32, ticket: Ticket) {
            self.0.lock().expect("no panic")[0].push(ticket);
        }
        fn pop(&mut self) -> Option<Ticket> {
            self.0.lock().expect("no panic")[1].pop()
        }
        fn leave(&mut self, _: &u32, ticket: Ticket) {
            self.0.lock().expect("no panic")[2].push(ticket);
        }
    }
    let heard = Heard::default();
    let mut q = Rig::new(Order::Custom(Box::new(heard.clone())));
    let (a, b) = (q.enter(true), q.enter(true));
    let c = q.enter(false);
    assert_eq!(heard.0.lock().expect("no panic")[0], [Ticket(a), Ticket(b)]);
    // one that it was told of, and one that it was not told of yet
    assert!(q.leave(a) && q.leave(c));
    assert_eq!(q.line.servable(), 1);
    assert_eq!(heard.0.lock().expect("no panic")[2], [Ticket(a)]);
    // its ticket for the one that left is nonsense, and what it lost comes all the same
    heard.0.lock().expect("no panic")[1] = [Ticket(c), Ticket(a)].into();
    assert_eq!((q.pop(), q.pop()), (Some(b), None));
    assert_eq!(
        heard.0.lock().expect("no panic")[0],
        [Ticket(a), Ticket(b)],
        "it never hears of one that left before it was told"
    );
    let again = q.enter(true);
    assert_eq!(heard.0.lock().expect("no panic")[0], [Ticket(a), Ticket(b), Ticket(again)]);
    heard.0.lock().expect("no panic")[1] = [Ticket(again), Ticket(again)].into();
    assert_eq!((q.pop(), q.pop()), (Some(again), None));
}

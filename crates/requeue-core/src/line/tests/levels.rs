use super::*;
use crate::line::MaxWait;
use crate::line::overdue::Overdue;
use crate::slots::Places;
use alloc::vec::Vec;

use core::time::Duration;

extern crate std;

/// A key as a plain list has it.
#[derive(Clone, Copy)]
struct Expected {
    slot: u32,
    level: i16,
    since: u64,
}

/// A line by priority, and a model of it: a list in the order of becoming ready.
struct Rig {
    levels: Box<Levels>,
    known: Known,
    arena: Arena<u32>,
    line: Vec<Expected>,
    max_wait: Option<u64>,
    /// Number of keys handed out by level before the next overdue one.
    before_overdue: u32,
    now: u64,
}

impl Rig {
    fn new(max_wait: Option<u64>) -> Self {
        let every_third = |after| MaxWait { after: Duration::from_nanos(after), every: 3 };
        let known = Known::new(true, max_wait.map(every_third).map(Overdue::from), false);
        Self {
            levels: Levels::new(),
            known,
            arena: Arena::new(0),
            line: Vec::new(),
            max_wait,
            before_overdue: 0,
            now: 0,
        }
    }

    fn enter(&mut self, level: i16) -> u32 {
        let slot = self.arena.insert(0, 0, 0);
        let since = Instant::from_nanos(self.now);
        let place = self.levels.enter(&mut self.known, &mut self.arena, slot, since, level);
        self.arena.set_place(slot, place);
        self.line.push(Expected { slot, level, since: self.now });
        slot
    }

    fn raise(&mut self, slot: u32, level: i16) {
        if level > self.known.pending(slot) {
            assert!(self.levels.raise(&mut self.known, &mut self.arena, slot, level));
        }
        for key in self.line.iter_mut().filter(|key| key.slot == slot) {
            key.level = key.level.max(level);
        }
    }

    fn leave(&mut self, slot: u32) -> bool {
        let left = self.levels.leave(&mut self.known, &mut self.arena, slot);
        if left {
            self.line.retain(|key| key.slot != slot);
            self.arena.remove(slot).expect("nobody lends it");
        }
        left
    }

    /// Asserts how many keys are before each.
    fn check_ahead(&self) {
        for (at, key) in self.line.iter().enumerate() {
            let older = self.line[..at].iter().filter(|other| other.level == key.level).count();
            let higher = self.line.iter().filter(|other| other.level > key.level).count();
            assert_eq!(
                self.levels.ahead_of(&self.known, &self.arena, key.slot),
                Some((older + higher, true))
            );
        }
    }

    /// The index of the next key in the list.
    fn next(&mut self) -> Option<usize> {
        let oldest = self.line.first()?;
        if self.before_overdue > 0 {
            self.before_overdue -= 1;
        } else if self.max_wait.is_some_and(|max| self.now - oldest.since >= max) {
            self.before_overdue = 2;
            return Some(0);
        }
        let highest = self.line.iter().map(|key| key.level).max()?;
        self.line.iter().position(|key| key.level == highest)
    }

    fn pop(&mut self) -> Option<(u32, i16)> {
        let expected = self.next().map(|at| self.line.remove(at));
        let started = self.levels.pop(&mut self.known, &mut self.arena, Instant::from_nanos(self.now));
        assert_eq!(started.map(Marked::slot), expected.map(|key| key.slot));
        let (slot, level) = (started?.slot(), expected?.level);
        assert_eq!((started?.mark(), self.known.levels(slot).map_or(0, |levels| levels.run)), (level, level));
        self.arena.clear_place(slot);
        self.arena.remove(slot).expect("nobody lends it");
        self.looks_right();
        Some((slot, level))
    }

    fn looks_right(&self) {
        assert_eq!(self.levels.len(), self.line.len());
        let oldest = self.line.first().filter(|_| self.max_wait.is_some());
        assert_eq!(self.known.oldest(), oldest.map(|key| key.slot));
    }
}

#[test]
fn higher_levels_go_first_and_each_in_the_order_of_becoming_ready() {
    let mut rig = Rig::new(None);
    let levels = [0, 5, i16::MIN, 5, i16::MAX, 0, -1, i16::MAX, 1];
    let slots = levels.map(|level| rig.enter(level));
    let order: Vec<_> = core::iter::from_fn(|| rig.pop()).collect();
    let expected = [4, 7, 1, 3, 8, 0, 5, 6, 2].map(|at: usize| (slots[at], levels[at]));
    assert_eq!(order, expected);
}

#[test]
fn a_raised_key_stands_in_its_new_level_where_its_age_puts_it() {
    let mut rig = Rig::new(None);
    let slots = [5, 0, 5, 0, 5].map(|level| rig.enter(level));
    rig.raise(slots[3], 5);
    rig.raise(slots[1], 5);
    rig.raise(slots[1], 3);
    let order: Vec<_> = core::iter::from_fn(|| rig.pop()).collect();
    assert_eq!(order, slots.map(|slot| (slot, 5)));
}

#[test]
fn one_of_every_three_hand_outs_goes_to_the_oldest_overdue_key() {
    let mut rig = Rig::new(Some(10));
    let old = [rig.enter(-5), rig.enter(-5)];
    rig.now = 9;
    let urgent = [(); 4].map(|()| rig.enter(7));
    assert_eq!(rig.pop(), Some((urgent[0], 7)));
    rig.now = 10;
    let order: Vec<_> = core::iter::from_fn(|| rig.pop()).map(|(slot, _)| slot).collect();
    assert_eq!(order, [old[0], urgent[1], urgent[2], old[1], urgent[3]]);
}

#[test]
fn a_queue_without_keys_uses_up_no_hand_out_of_those_by_level() {
    let mut rig = Rig::new(Some(10));
    let old = rig.enter(-5);
    rig.now = 10;
    assert_eq!(rig.pop(), Some((old, -5)));
    for _ in 0..5 {
        assert_eq!(rig.pop(), None);
    }
    let old = rig.enter(-5);
    rig.now = 20;
    let urgent = [(); 3].map(|()| rig.enter(7));
    let order: Vec<_> = core::iter::from_fn(|| rig.pop()).map(|(slot, _)| slot).collect();
    assert_eq!(order, [urgent[0], urgent[1], old, urgent[2]]);
}

#[test]
fn levels_that_nobody_stands_in_are_kept_up_to_a_number() {
    let mut rig = Rig::new(None);
    for _ in 0..2 {
        for level in i16::MIN..=i16::MAX {
            rig.enter(level);
        }
        assert_eq!(rig.levels.empty, 0);
        // the list has the highest last; its own search would take too long here
        while let Some(key) = rig.line.pop() {
            let slot = rig.levels.pop(&mut rig.known, &mut rig.arena, Instant::ORIGIN);
            assert_eq!(slot.map(Marked::slot), Some(key.slot));
            rig.arena.clear_place(key.slot);
            rig.arena.remove(key.slot).expect("nobody lends it");
        }
        rig.looks_right();
        let kept =
            (0..=u32::from(u16::MAX)).filter(|rank| matches!(rig.levels.levels.get(*rank), Some(Some(_))));
        assert_eq!((kept.count(), rig.levels.empty), (KEPT, KEPT));
    }
}

#[test]
fn any_sequence_of_calls_is_as_that_of_a_list() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 33) % below
    };
    for max_wait in [None, Some(0), Some(40), Some(u64::MAX)] {
        let mut rig = Rig::new(max_wait);
        for step in 0..60_000 {
            let level = |random: &mut dyn FnMut(u64) -> u64| {
                i16::try_from(random(7)).expect("small") * 5_000 - 15_000
            };
            // it grows to some hundreds, and shrinks again
            let growing = step / 2_000 % 2 == 0;
            match random(10) {
                0..=3 if growing => {
                    let level = level(&mut random);
                    rig.enter(level);
                }
                0..=1 => {
                    let level = level(&mut random);
                    rig.enter(level);
                }
                2..=5 => {
                    rig.pop();
                }
                6 => rig.now += random(4),
                7..=8 if !rig.line.is_empty() => {
                    let at = random(rig.line.len() as u64) as usize;
                    let (slot, level) = (rig.line[at].slot, level(&mut random));
                    rig.raise(slot, level);
                }
                _ if !rig.line.is_empty() => {
                    let at = random(rig.line.len() as u64) as usize;
                    let slot = rig.line[at].slot;
                    assert!(rig.leave(slot));
                    assert!(!rig.levels.leave(&mut rig.known, &mut rig.arena, slot), "it has left");
                }
                _ => {}
            }
            rig.looks_right();
            if step % 500 == 0 {
                rig.check_ahead();
            }
        }
        while rig.pop().is_some() {}
        assert_eq!(rig.levels.levels.from(0).next(), None);
    }
}

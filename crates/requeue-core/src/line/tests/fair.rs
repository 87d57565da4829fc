use super::super::MaxWait;
use super::super::groups::{GroupRules, Groups};
use super::*;
use alloc::vec;
use core::time::Duration;

extern crate std;

/// A group is `key / divisor`.
fn groups(divisor: u32, weights: &[u32], cap: usize) -> Groups<u32> {
    let weights = weights.to_vec();
    let weight = move |group: &u32| weights[*group as usize % weights.len()];
    let rules = GroupRules::new().weight(weight).cap_of(move |_| cap);
    Groups::by(move |key| key / divisor, rules, std::hash::RandomState::new())
}

/// Without priorities.
fn fair(groups: Groups<u32>) -> Placed {
    line_of(groups, Known::new(false, None, false), false)
}

fn line_of(groups: Groups<u32>, known: Known, within: bool) -> Placed {
    Placed { fair: Fair::new(groups.naming, &known, within), known, places: Few::default() }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(n)) as u32
    }
}

/// The places of a line's keys, which can tell three block numbers from each other.
#[derive(Default)]
struct Few(Vec<Option<u32>>);

impl Few {
    fn at(&mut self, slot: u32) -> &mut Option<u32> {
        let len = self.0.len().max(slot as usize + 1);
        self.0.resize(len, None);
        &mut self.0[slot as usize]
    }
}

impl Places for Few {
    const NUMBERS: usize = 3;
    fn place(&self, slot: u32) -> Option<usize> {
        self.0.get(slot as usize).copied().flatten().map(|place| place as usize)
    }
    fn set_place(&mut self, slot: u32, block: u32) {
        *self.at(slot) = Some(block % Self::NUMBERS as u32);
    }
    fn clear_place(&mut self, slot: u32) {
        *self.at(slot) = None;
    }
}

/// A line whose keys are their own slot numbers, with the places of these keys.
struct Placed {
    fair: Box<Fair<u32>>,
    known: Known,
    places: Few,
}

impl core::ops::Deref for Placed {
    type Target = Fair<u32>;
    fn deref(&self) -> &Fair<u32> {
        &self.fair
    }
}

impl core::ops::DerefMut for Placed {
    fn deref_mut(&mut self) -> &mut Fair<u32> {
        &mut self.fair
    }
}

impl Placed {
    /// Takes the next key, and clears its place, as the state machine does when it hands a key out.
    fn pop(&mut self) -> Option<u32> {
        let slot = self.fair.pop(&mut self.known, Instant::ORIGIN)?.slot();
        self.places.clear_place(slot);
        Some(slot)
    }

    fn leave(&mut self, key: u32) -> bool {
        self.fair.leave(&mut self.known, &mut self.places, key)
    }

    fn raise(&mut self, key: u32, level: i16) {
        if level > self.known.pending(key) {
            assert!(self.fair.raise(&mut self.known, &mut self.places, key, level));
        }
    }
}

fn enter(line: &mut Placed, key: u32, level: i16) {
    let group = line.name(&key);
    if let Some(place) = line.fair.insert_new(&mut line.known, key, group, Instant::ORIGIN, level) {
        line.places.set_place(key, place);
    }
}

fn end(fair: &mut Placed, key: u32) {
    fair.ended(key);
    let group = fair.take_group(key).expect("it was known");
    fair.forget(group);
}

fn is_empty(fair: &Placed) -> bool {
    (0..1_000).all(|at| fair.nodes.known_group(at).is_none_or(|group| group.known == 0))
        && fair.nodes.others() == 0
        && fair.blocks.len() == 0
        && fair.known.oldest().is_none()
        && fair.servable == 0
        && fair.ages.as_ref().is_none_or(|ages| ages.is_empty())
}

#[test]
fn b3_a_group_that_waits_is_passed_over_at_most_once_a_weight_by_each_other() {
    for seed in 0..if cfg!(miri) { 2 } else { 25 } {
        let mut random = Random(seed);
        let weights: Vec<u32> = (0..7).map(|_| 1 + random.below(5)).collect();
        let cap = [usize::MAX, 1, 3][random.below(3) as usize];
        let mut line = fair(groups(10, &weights, cap));
        // since when each group may be served, as how often each other was served meanwhile
        let mut passed = vec![None::<[u32; 7]>; 7];
        let (mut free, mut held): (Vec<u32>, Vec<u32>) = ((0..70).collect(), Vec::new());
        let mut ready = [0; 7];
        for _ in 0..if cfg!(miri) { 300 } else { 5_000 } {
            match random.below(8) {
                // bursts of one group, so that others come and go
                0..4 if !free.is_empty() => {
                    let at = random.below(free.len() as u32) as usize;
                    let key = free.swap_remove(at);
                    enter(&mut line, key, 0);
                    ready[key as usize / 10] += 1;
                }
                4..7 => {
                    let Some(next) = line.pop() else {
                        assert_eq!(line.servable(), 0);
                        continue;
                    };
                    let (key, group) = (next, next as usize / 10);
                    ready[group] -= 1;
                    held.push(key);
                    for (other, passed) in passed.iter_mut().enumerate().filter(|(other, _)| *other != group)
                    {
                        if let Some(passed) = passed {
                            passed[group] += 1;
                            assert!(
                                passed[group] <= weights[group],
                                "{group} passes over {other}, seed {seed}"
                            );
                        }
                    }
                    passed[group] = None;
                }
                _ if !held.is_empty() => {
                    let at = random.below(held.len() as u32) as usize;
                    let key = held.swap_remove(at);
                    end(&mut line, key);
                    free.push(key);
                }
                _ => {}
            }
            for (group, passed) in passed.iter_mut().enumerate() {
                let held = held.iter().filter(|key| **key as usize / 10 == group).count();
                assert!(held <= cap);
                let may_be_served = ready[group] > 0 && held < cap;
                *passed = may_be_served.then(|| passed.unwrap_or_default());
            }
            let servable =
                (0..7).filter(|group| passed[*group].is_some()).map(|group| ready[group]).sum::<usize>();
            assert_eq!(line.servable(), servable);
        }
        while let Some(next) = line.pop() {
            end(&mut line, next);
            while let Some(key) = held.pop() {
                end(&mut line, key);
            }
        }
        while let Some(key) = held.pop() {
            end(&mut line, key);
        }
        while let Some(next) = line.pop() {
            end(&mut line, next);
        }
        assert!(is_empty(&line), "seed {seed}");
    }
}

#[test]
fn b3_what_two_groups_get_by_weight_never_drifts_apart_by_more_than_two() {
    for seed in 0..if cfg!(miri) { 2 } else { 16 } {
        let mut random = Random(seed);
        let weights: Vec<u32> = (0..5).map(|_| 1 + random.below(9)).collect();
        let mut line = fair(groups(1_000, &weights, usize::MAX));
        let mut next_key = [0; 5];
        // the first three always have keys, the others come and go
        let mut add = |line: &mut Placed, group: u32| {
            let key = group * 1_000 + next_key[group as usize] % 1_000;
            next_key[group as usize] += 1;
            enter(line, key, 0);
        };
        for group in 0..3 {
            (0..3).for_each(|_| add(&mut line, group));
        }
        // the largest and the smallest difference so far of each two
        let (mut served, mut most, mut least) = ([0f64; 5], [[0f64; 3]; 3], [[0f64; 3]; 3]);
        for _ in 0..if cfg!(miri) { 200 } else { 3_000 } {
            if random.below(3) == 0 {
                add(&mut line, 3 + random.below(2));
            }
            let key = line.pop().expect("three always wait");
            end(&mut line, key);
            let group = key / 1_000;
            served[group as usize] += 1.0 / f64::from(weights[group as usize]);
            if group < 3 {
                add(&mut line, group);
            }
            for (one, other) in [(0, 1), (1, 2), (0, 2)] {
                let apart = served[one] - served[other];
                most[one][other] = apart.max(most[one][other]);
                least[one][other] = apart.min(least[one][other]);
                assert!(most[one][other] - least[one][other] <= 2.0, "since any moment, seed {seed}");
            }
        }
    }
}

#[test]
fn levels_of_groups_come_and_go_without_a_trace() {
    for seed in 0..if cfg!(miri) { 2 } else { 16 } {
        let mut random = Random(seed);
        let max_wait = (seed % 3 == 0).then(|| MaxWait::new(Duration::from_secs(seed % 2)).into());
        let known = Known::new(true, max_wait, seed % 3 == 1);
        let mut line =
            line_of(groups([100, 10, 3][seed as usize % 5 % 3], &[1, 2, 3], 2), known, seed % 4 == 1);
        let (mut free, mut ready, mut held): (Vec<u32>, Vec<u32>, Vec<u32>) =
            ((0..300).collect(), vec![], vec![]);
        for _ in 0..if cfg!(miri) { 300 } else { 4_000 } {
            let level = random.below(5) as i16;
            match random.below(10) {
                0..4 if !free.is_empty() => {
                    let key = free.swap_remove(random.below(free.len() as u32) as usize);
                    enter(&mut line, key, level);
                    ready.push(key);
                }
                4..6 => {
                    if let Some(next) = line.pop() {
                        ready.retain(|key| *key != next);
                        held.push(next);
                    }
                }
                6 if !ready.is_empty() => {
                    line.raise(ready[random.below(ready.len() as u32) as usize], level);
                }
                7 if !ready.is_empty() => {
                    let key = ready.swap_remove(random.below(ready.len() as u32) as usize);
                    assert!(line.leave(key) && !line.leave(key));
                    let group = line.take_group(key).expect("it was known");
                    line.forget(group);
                    free.push(key);
                }
                _ if !held.is_empty() => {
                    let key = held.swap_remove(random.below(held.len() as u32) as usize);
                    end(&mut line, key);
                    free.push(key);
                }
                _ => {}
            }
            if seed % 3 < 2 {
                let oldest = ready.iter().min_by_key(|key| line.known.entered(**key));
                assert_eq!(line.known.oldest(), oldest.copied(), "seed {seed}");
            }
        }
        while !ready.is_empty() || !held.is_empty() {
            held.drain(..).for_each(|key| end(&mut line, key));
            while let Some(next) = line.pop() {
                ready.retain(|key| *key != next);
                held.push(next);
            }
            assert!(
                ready.is_empty() || !held.is_empty(),
                "what is ready and open is handed out, seed {seed}"
            );
        }
        assert!(is_empty(&line), "seed {seed}");
    }
}

#[test]
fn a_group_function_that_panics_leaves_no_group() {
    let of = |key: &u32| {
        assert!(key % 10 > 0, "no group");
        *key
    };
    let mut line = fair(Groups::by(of, GroupRules::new(), std::hash::RandomState::new()));
    for key in [10, 20, 10] {
        let known = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| line.know(key, &key)));
        assert!(known.is_err() && line.take_group(key).is_none());
    }
    enter(&mut line, 11, 0);
    assert_eq!(line.pop(), Some(11));
    end(&mut line, 11);
    assert!(is_empty(&line));
}

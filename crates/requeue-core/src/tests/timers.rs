use super::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

const MS: u64 = 1_000_000;

/// A sorted map with the timers' behaviour, for comparison.
#[derive(Default)]
struct Model {
    by_due: BTreeMap<(u64, u32), u32>,
    of: BTreeMap<u32, (u64, u32)>,
    calls: u32,
}

impl Model {
    fn set(&mut self, slot: u32, due: u64) {
        self.remove(slot);
        self.calls += 1;
        self.by_due.insert((due, self.calls), slot);
        self.of.insert(slot, (due, self.calls));
    }
    fn remove(&mut self, slot: u32) -> bool {
        let had = self.of.remove(&slot);
        had.is_some_and(|key| self.by_due.remove(&key).is_some())
    }
    fn pop(&mut self, until: u64) -> Option<(u32, u64)> {
        let (&(due, call), &slot) = self.by_due.first_key_value()?;
        (due <= until).then(|| {
            self.by_due.remove(&(due, call));
            self.of.remove(&slot);
            (slot, due)
        })
    }
}

fn pop(timers: &mut Timers, until: u64) -> Option<(u32, u64)> {
    loop {
        match timers.next(Instant::from_nanos(until)) {
            Next::Due(slot, due) => {
                assert_eq!(timers.due(slot), Some(due));
                assert!(timers.remove(slot));
                return Some((slot, due.as_nanos()));
            }
            Next::Moved => {}
            Next::Nothing => return None,
        }
    }
}

/// Random operations: `delay` says how far away timers are set.
fn agrees(slots: u32, delay: impl Fn(u64) -> u64, step: u64) {
    let mut timers = Timers::new();
    let mut model = Model::default();
    let mut seed = 1u64;
    let mut now = 7 * MS;
    let rounds = if cfg!(miri) { 1_000 } else { 15_000 };
    for round in 0..rounds {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let slot = (seed >> 33) as u32 % slots;
        let random = seed >> 12;
        match (seed >> 59) % 16 {
            0..=8 => {
                let due = now.saturating_add(delay(random));
                timers.set(slot, Instant::from_nanos(due), Instant::from_nanos(now));
                model.set(slot, due);
            }
            9..=11 => assert_eq!(timers.remove(slot), model.remove(slot)),
            12 => {
                now += random % step;
                loop {
                    let popped = pop(&mut timers, now);
                    assert_eq!(popped, model.pop(now));
                    if popped.is_none() {
                        break;
                    }
                }
            }
            _ => assert_eq!(pop(&mut timers, now), model.pop(now)),
        }
        assert_eq!(timers.len(), model.of.len());
        let first = model.by_due.first_key_value().map(|((due, _), _)| Instant::from_nanos(*due));
        assert!(timers.soonest() <= first, "round {round}");
        assert_eq!(timers.soonest().is_none(), first.is_none());
        assert_eq!(timers.due(slot).map(Instant::as_nanos), model.of.get(&slot).map(|k| k.0));
    }
    while let Some(next) = model.pop(u64::MAX) {
        assert_eq!(pop(&mut timers, u64::MAX), Some(next));
    }
    assert_eq!((timers.len(), timers.soonest(), timers.last()), (0, None, None));
}

#[test]
fn agrees_with_a_sorted_map_where_a_few_timers_stand_in_one_heap() {
    agrees(300, |random| random % 50, 20);
}

#[test]
fn agrees_with_a_sorted_map_where_timers_are_spread_over_the_buckets() {
    agrees(3_000, |random| random % (4_000 * MS), 100 * MS);
}

#[test]
fn agrees_with_a_sorted_map_where_many_are_due_in_one_bucket() {
    agrees(5_000, |random| 2_000 * MS + random % 1_000, 100 * MS);
    agrees(5_000, |_| 3 * MS, MS / 4);
}

#[test]
fn agrees_with_a_sorted_map_where_timers_are_due_in_days_or_never() {
    let delays = [1, MS, 300 * MS, 5_000 * MS, 86_400_000 * MS, u64::MAX];
    agrees(3_000, move |random| delays[random as usize % 6].saturating_add(random % 777), 3_000 * MS);
    // the edge is left behind for hours
    agrees(3_000, |random| random % (9_000 * MS), 9_000_000 * MS);
}

#[test]
fn a_bucket_is_two_to_the_nineteenth_nanoseconds_wide() {
    assert_eq!([0, (1 << 19) - 1, 1 << 19, 5 << 19].map(bucket), [0, 0, 1, 5]);
}

#[test]
fn d5_the_order_of_equal_instants_survives_the_counter_wrapping() {
    for due in [9, 5_000 * MS] {
        let mut timers = Timers::new();
        timers.index.next_seq = u32::MAX - 600;
        for slot in 0..1_200 {
            timers.set(slot, Instant::from_nanos(due), Instant::ORIGIN);
        }
        for slot in 0..1_200 {
            assert_eq!(pop(&mut timers, due), Some((slot, due)));
        }
    }
}

/// Timers of which the first 512 are never due, so that the buckets are open.
fn with_open_buckets() -> Timers {
    let mut timers = Timers::new();
    for slot in 0..512 {
        timers.set(slot, Instant::NEVER, Instant::ORIGIN);
    }
    assert_eq!(timers.edge, NO_EDGE);
    set(&mut timers, 512, 4_000 * MS);
    assert_ne!(timers.edge, NO_EDGE);
    timers
}

fn set(timers: &mut Timers, slot: u32, due: u64) {
    timers.set(slot, Instant::from_nanos(due), Instant::ORIGIN);
}

#[test]
fn the_soonest_instant_is_exact_again_when_the_soonest_of_a_few_in_its_bucket_goes() {
    let soonest = |timers: &Timers| timers.soonest().map(Instant::as_nanos);
    let first = 2_000 * MS;
    for others in [1, 7, 8, 9, 30] {
        let mut timers = with_open_buckets();
        set(&mut timers, 600, 3_000 * MS);
        for slot in (0..=others).rev() {
            set(&mut timers, 1_000 + slot, first + u64::from(slot));
        }
        for slot in 0..=others {
            assert_eq!(soonest(&timers), Some(first + u64::from(slot)), "{slot} of {others}");
            assert!(timers.remove(1_000 + slot));
        }
        assert_eq!(soonest(&timers), Some(3_000 * MS));
    }
}

#[test]
fn timers_that_are_due_soon_stand_in_buckets_although_nothing_was_due_for_hours() {
    let mut timers = with_open_buckets();
    assert!(timers.remove(512));
    let hour = 3_600_000 * MS;
    for slot in 600..610 {
        timers.set(slot, Instant::from_nanos(hour + 1_000 * MS), Instant::from_nanos(hour));
    }
    assert_eq!((timers.buckets.len(), timers.far.len()), (10, 0));
    set(&mut timers, 610, hour + 6_000 * MS);
    assert_eq!((timers.buckets.len(), timers.far.len()), (10, 1));
}

#[test]
fn the_buckets_are_closed_when_half_as_many_timers_are_left_as_opened_them() {
    let mut timers = with_open_buckets();
    assert!(timers.remove(512));
    for slot in 0..255 {
        assert!(timers.remove(slot));
    }
    assert_ne!(timers.edge, NO_EDGE, "257 are left");
    assert!(timers.remove(255));
    assert_eq!(timers.edge, NO_EDGE, "256 are left");
}

#[test]
#[should_panic(expected = "a queue keeps at most 262144 timers")]
fn the_buckets_make_no_place_that_the_index_cannot_tell() {
    let mut timers = with_open_buckets();
    // one bucket has one timer, and another all the places that are left
    for slot in 0..=(1 << 18) - 8 {
        set(&mut timers, 1_000 + slot, 2_000 * MS);
    }
}

#[test]
fn nothing_moves_while_nothing_is_due() {
    let mut timers = with_open_buckets();
    let (edge, near) = (timers.edge, timers.near.len());
    assert_eq!(timers.next(Instant::from_nanos(4_000 * MS - 1)), Next::Nothing);
    assert_eq!((timers.edge, timers.near.len()), (edge, near));
    assert_eq!(pop(&mut timers, 4_000 * MS), Some((512, 4_000 * MS)));
}

#[test]
fn the_soonest_bucket_is_found_all_around() {
    let in_bucket = |n: u64| Instant::from_nanos(n << 19);
    for (from, next) in [(10, 8_197), (10, 8_201), (63, 8_192), (64, 8_255), (70, 8_200)] {
        let mut timers = Timers::new();
        for slot in 0..512 {
            timers.set(slot, Instant::NEVER, in_bucket(from));
        }
        timers.set(512, in_bucket(from), in_bucket(from));
        timers.set(513, in_bucket(next), in_bucket(from));
        assert_eq!((timers.buckets.len(), timers.soonest()), (2, Some(in_bucket(from))));
        assert!(timers.remove(512));
        assert_eq!(timers.soonest(), Some(in_bucket(next)));
        timers.set(514, in_bucket(from + 1), in_bucket(from));
        assert_eq!(timers.soonest(), Some(in_bucket(from + 1)));
    }
}

#[test]
fn q13_a_page_is_kept_beyond_those_that_are_used() {
    const MANY: u32 = 5_000;
    // each in a separate bucket, and so in a separate chunk, 128 of which make a page
    let mut timers = with_open_buckets();
    for slot in 0..MANY {
        set(&mut timers, 1_000 + slot, 10 * MS + (u64::from(slot) << 19));
    }
    for left in (1..=MANY as usize).rev() {
        let chunks = timers.buckets.len();
        assert_eq!(chunks, left + 1);
        assert!(timers.buckets.pages() <= chunks.div_ceil(128) + 1);
        assert!(timers.buckets.pages() * 128 >= chunks);
        assert!(timers.remove(1_000 + left as u32 - 1));
    }
    assert_eq!(timers.buckets.pages(), 2);
    // 1,024 places of a heap are a page, of which the first three are not used
    for slot in 0..MANY {
        set(&mut timers, 1_000 + slot, 100_000 * MS);
    }
    for left in (1..=MANY as usize).rev() {
        assert_eq!(timers.far.len(), left);
        assert!(timers.far.pages() <= (left + 3).div_ceil(1024) + 1);
        assert!(timers.remove(1_000 + left as u32 - 1));
    }
    assert_eq!(timers.far.pages(), 2);
}

#[test]
fn q13_memory_goes_back_as_timers_go_whichever_are_left() {
    let n: u32 = if cfg!(miri) { 5_000 } else { 100_000 };
    for delay in [3_000 * MS, 100_000 * MS] {
        let mut timers = Timers::new();
        let all = (0..n).map(|slot| (slot, u64::from(slot).wrapping_mul(0x9E37_79B9_7F4A_7C15) % delay));
        for (slot, due) in all {
            timers.set(slot, Instant::from_nanos(due), Instant::ORIGIN);
        }
        for slot in (0..n).filter(|slot| slot % 50 != 0) {
            assert!(timers.remove(slot));
        }
        let nodes = 1024 * (timers.near.pages() + timers.buckets.pages() + timers.far.pages());
        let kept = timers.len();
        // no chunk is more than its bucket's last, and that one's other lanes are empty
        assert!(nodes <= 8 * kept + 6 * 1024, "room for {nodes} timers, and {kept} are left");
        while let Some(slot) = timers.last() {
            assert!(timers.remove(slot));
        }
        assert_eq!(timers.edge, NO_EDGE, "the buckets are closed");
        assert!(timers.near.pages() + timers.buckets.pages() + timers.far.pages() <= 3);
    }
}

#[test]
fn no_step_moves_more_than_one_timer_however_many_are_due_at_once() {
    let n = if cfg!(miri) { 2_000 } else { 20_000 };
    let due = Instant::from_nanos(2_000 * MS);
    let mut timers = Timers::new();
    for slot in 0..n {
        timers.set(slot, due, Instant::ORIGIN);
    }
    let mut order = Vec::new();
    let mut steps = 0;
    while timers.len() > 0 {
        let near = timers.near.len();
        match timers.next(due) {
            Next::Due(slot, _) => {
                order.push(slot);
                timers.remove(slot);
            }
            Next::Moved => steps += 1,
            Next::Nothing => panic!("all are due"),
        }
        assert!(timers.near.len() <= near + 1);
    }
    assert!(order.iter().copied().eq(0..n));
    assert!(steps <= n + 2);
}

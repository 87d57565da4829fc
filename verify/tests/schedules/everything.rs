//! Schedules with the kit's further calls: values, batches, waits for room, paused groups, workers that come
//! and go, and all the ways to end.

use crate::{ms, play};
use requeue::limiter::Exponential;
use requeue::{Debounce, GroupRules, InBackoff, Instant, WaitingKeys, WorkQueue};
use requeue_sim::{Call, End, Event, Plan, Restored, Rng, Sim, Trigger, World};
use std::collections::BTreeMap;
use std::time::Duration;

const GROUPS: u64 = 3;
const CAP: usize = 2;
const KEYS: u64 = 9;
const BOUND: usize = 5;

fn trigger(rng: &mut Rng) -> Trigger<u64, String> {
    let key = rng.below(KEYS);
    let delay = rng.between(ms(0)..=ms(40));
    let trigger = match rng.below(9) {
        0 => Trigger::after(key, delay),
        1 => Trigger::at(key, Instant::ORIGIN + rng.between(ms(0)..=ms(300))),
        2 => Trigger::at(key, Instant::ORIGIN + rng.between(ms(0)..=ms(300))).replace(),
        3 => Trigger::after(key, delay).latest(ms(60)),
        4 => Trigger::rate_limited(key),
        5 => Trigger::now(key).debounce(Debounce::new(ms(5)).max(ms(20))),
        _ => Trigger::now(key),
    };
    let trigger = if rng.one_in(3) { trigger } else { trigger.value(rng.pick(&["a", "b", "c"]).to_string()) };
    let trigger = trigger.priority(rng.below(3) as i16 - 1);
    match rng.below(8) {
        0 => trigger.in_backoff(InBackoff::Respect),
        1 => trigger.in_backoff(InBackoff::Reset),
        _ => trigger,
    }
}

fn call(rng: &mut Rng) -> Call<u64, String> {
    let key = rng.below(KEYS);
    match rng.below(20) {
        0 => Call::Cancel(key),
        1 => Call::PauseGroup(key),
        2 | 3 => Call::ResumeGroup(key),
        4 => Call::PauseKey(key),
        5 | 6 => Call::ResumeKey(key),
        7 => Call::Workers(1 + rng.below(4) as usize),
        8 | 9 => Call::CancelGet(rng.below(4) as usize),
        10..=12 => Call::AddMany((0..rng.below(5)).map(|_| trigger(rng)).collect()),
        13 => Call::AddWhenRoom(trigger(rng), rng.between(ms(0)..=ms(30))),
        14 | 15 => Call::AddWhenRoom(trigger(rng), Duration::MAX),
        _ => trigger(rng).into(),
    }
}

/// The values that a key's next run gets, and its run that is on has.
#[derive(Default)]
struct Values {
    slots: BTreeMap<u64, String>,
    held: BTreeMap<u64, String>,
}

impl Values {
    /// The oldest first, each once, and what a failed run had before what came meanwhile.
    fn heard(&mut self, world: &World<u64, String>) -> Result<(), String> {
        match world.event() {
            Event::Called {
                call: Call::Add(trigger) | Call::AddWhenRoom(trigger, _),
                answer: Some(Ok(_)),
            }
            | Event::Answered { call: Call::AddWhenRoom(trigger, _), answer: Ok(_) } => {
                let value = trigger.value.as_deref().unwrap_or_default();
                self.slots.entry(trigger.key).or_default().push_str(value);
            }
            Event::Called { call: Call::Cancel(key), .. } => drop(self.slots.remove(key)),
            Event::Began(run) => {
                let value = self.slots.remove(&run.key).unwrap_or_default();
                let got = run.value.clone().unwrap_or_default();
                if got != value {
                    return Err(format!("{} has {got:?} and not {value:?}", run.key));
                }
                self.held.insert(run.key, value);
            }
            // also where the retry is refused: the run that comes all the same, or the list, has the value
            Event::Ended { run, end, .. } => {
                let had = self.held.remove(&run.key).unwrap_or_default();
                if matches!(end, End::Retry | End::RetryAfter(_)) {
                    self.slots.entry(run.key).or_default().insert_str(0, &had);
                }
            }
            _ => (),
        }
        Ok(())
    }
}

fn scenario(waiting: WaitingKeys, bounded: bool, batch: usize) -> Sim<u64, String> {
    let mut values = Values::default();
    let (mut began, mut over) = (false, false);
    Sim::new(move |clock| {
        let limiter = Exponential::new(ms(1), ms(30)).expect("the maximum is above the base");
        let rules = GroupRules::new().cap(CAP).rate(400.0, 3);
        let queue = WorkQueue::merging(|old: &mut String, new: String| old.push_str(&new));
        let queue = queue.clock(clock).limiter(limiter).priorities();
        let queue = queue.group_by_with(|key: &u64| key % GROUPS, rules);
        let queue = if bounded { queue.bound(BOUND) } else { queue };
        queue.build().expect("these go together")
    })
    .workers(3)
    .batches(batch)
    .lasting(ms(300))
    .settling(ms(900))
    .producer(ms(0)..=ms(8), call)
    .producer(ms(0)..=ms(16), call)
    // once: the second would be too late
    .producer(ms(250), move |_| Call::Drain(waiting, Duration::MAX))
    .handler(|run, rng| {
        let mut ends = vec![End::Done, End::Next];
        // in the end every run succeeds, so that all can come to its end
        if run.began.as_nanos() < 300_000_000 {
            ends.extend([End::Retry, End::RetryAfter(ms(3)), End::Again(ms(5)), End::GiveUp, End::Next]);
        }
        let plan = Plan::ending(*rng.pick(&ends)).taking(rng.between(ms(0)..=ms(12)));
        if rng.one_in(8) { plan.calling(ms(1), call(rng)) } else { plan }
    })
    .invariant("B1: the values of a run are those of its triggers, the older first", move |world| {
        // a key that a shutdown drops loses its value
        match world.event() {
            Event::Began(_) if waiting == WaitingKeys::Drop && world.queue().shutting_down() => Ok(()),
            _ => values.heard(world),
        }
    })
    .invariant("B3: no more keys of a group are held than its cap", |world| {
        let held = |group| world.running().filter(|run| run.key % GROUPS == group).count();
        match (0..GROUPS).find(|group| held(*group) > CAP) {
            Some(group) => Err(format!("of {group} {} are", held(group))),
            None => Ok(()),
        }
    })
    .invariant("B8: no more keys are ready, held or waiting than the bound", move |world| {
        let takes_room = |key: &u64| {
            let state = world.queue().state(key).unwrap_or_default();
            state.ready || state.held || state.waiting_until.is_some()
        };
        match (0..KEYS).filter(takes_room).count() {
            known if bounded && known > BOUND => Err(format!("{known} are")),
            _ => Ok(()),
        }
    })
    .invariant("Q11: a drain ends complete, and nothing runs or is taken after it", move |world| {
        let stats = world.queue().stats();
        let left = stats.ready + stats.held + stats.waiting;
        match world.event() {
            Event::Called { call: Call::Drain(..), .. } => began = true,
            Event::Drained(drained) => {
                over = true;
                // a drain that waits takes the holders' retries too
                let refuses = waiting != WaitingKeys::Wait;
                let unfinished = drained.unfinished as u64;
                // a key that is cancelled leaves the list, and the drain is not complete all the same
                let reasons = drained.dropped + drained.refused_retries;
                let accounts = unfinished <= reasons
                    && (drained.complete || reasons > 0)
                    && !(drained.complete && (unfinished > 0 || drained.dropped > 0));
                if !accounts || left > 0 || unfinished > 0 && !refuses {
                    return Err(format!("{drained:?}, {stats:?}"));
                }
                let mut list: Vec<u64> =
                    world.queue().take_unfinished().into_iter().map(|left| left.key).collect();
                list.sort_unstable();
                list.dedup();
                if list.len() as u64 != unfinished {
                    return Err(format!("{drained:?}, and the list has {list:?}"));
                }
            }
            Event::Began(run) if over => return Err(format!("{} ran", run.key)),
            Event::Called { answer: Some(Ok(_)), .. } | Event::Answered { answer: Ok(_), .. } if over => {
                return Err("a trigger was taken".into());
            }
            Event::Over if began && !over => return Err(format!("it never ends: {stats:?}")),
            Event::Over if world.queue().stats().adders > 0 => return Err("somebody waits for room".into()),
            _ => (),
        }
        Ok(())
    })
}

/// These calls, followed by any of the ways to end, one after another; at last a drain without a limit.
fn ends(retries: bool, bounded: bool, max_wait: bool) -> Sim<u64, String> {
    let (mut began, mut over) = (0, 0);
    let shut = |world: &World<u64, String>| world.queue().shutting_down();
    Sim::new(move |clock| {
        let limiter = Exponential::new(ms(1), ms(30)).expect("the maximum is above the base");
        let queue = WorkQueue::merging(|old: &mut String, new: String| old.push_str(&new));
        let queue = queue.clock(clock).limiter(limiter).priorities().retry_dropped(retries).rate(900.0, 4);
        let queue = queue.group_by_with(|key: &u64| key % GROUPS, GroupRules::new().cap(CAP));
        let queue = queue.priorities_within_groups();
        let queue = if bounded { queue.bound(BOUND).drop_oldest(|_, _| ()) } else { queue };
        let queue = if max_wait { queue.max_wait(ms(10)) } else { queue };
        queue.debounce(Debounce::new(ms(2)).max(ms(6)).leading()).build().expect("these go together")
    })
    .workers(2)
    .batches(2)
    .lasting(ms(300))
    .settling(ms(900))
    .producer(ms(0)..=ms(8), call)
    .producer(ms(0)..=ms(16), |rng| -> Call<u64, String> {
        let key = rng.below(KEYS);
        match rng.below(6) {
            0 => Call::Pause,
            1 => Call::Resume,
            2 => Call::LiftRate,
            3 => Call::Forget(key),
            _ => Restored::new(key).failures(1).attempt(2).due(rng.between(ms(0)..=ms(20))).into(),
        }
    })
    .producer(ms(60)..=ms(240), |rng| match rng.below(6) {
        0 => Call::Close,
        1 => Call::ShutDown,
        n => {
            let waiting =
                [WaitingKeys::Drop, WaitingKeys::RunNow, WaitingKeys::Wait, WaitingKeys::WaitForRetries];
            let timeout = if rng.one_in(3) { Duration::MAX } else { rng.between(ms(0)..=ms(40)) };
            Call::Drain(waiting[n as usize - 2], timeout)
        }
    })
    // once, and the last of them: the second would be too late
    .producer(ms(290), |_| Call::Drain(WaitingKeys::RunNow, Duration::MAX))
    .handler(|run, rng| {
        let mut ends = vec![End::Done, End::Next];
        if run.began.as_nanos() < 300_000_000 {
            ends.extend([End::Retry, End::RetryAfter(ms(3)), End::Again(ms(5)), End::Panic, End::Drop]);
        }
        Plan::ending(*rng.pick(&ends)).taking(rng.between(ms(0)..=ms(12)))
    })
    .invariant(
        "Q10, Q11: who waits for the end is told, and nothing is left or taken after it",
        move |world| {
            let stats = world.queue().stats();
            let left = stats.ready + stats.held + stats.waiting;
            match world.event() {
                Event::Called { call: Call::Drain(..), .. } => began += 1,
                Event::Drained(drained) => {
                    over += 1;
                    if drained.complete && left > 0 {
                        return Err(format!("{drained:?}, {stats:?}"));
                    }
                }
                Event::Called { answer: Some(Ok(_)), .. } | Event::Answered { answer: Ok(_), .. }
                    if shut(world) =>
                {
                    return Err("a trigger was taken".into());
                }
                Event::Over if left > 0 || world.queue().stats().adders > 0 || began != over => {
                    return Err(format!(
                        "{over} of {began} drains, {} adders, {stats:?}",
                        world.queue().stats().adders
                    ));
                }
                _ => (),
            }
            Ok(())
        },
    )
}

#[test]
fn q11_however_a_queue_ends_all_who_wait_are_told_over_random_schedules() {
    play("all ways to end", || ends(false, false, true));
    play("all ways to end, with a bound", || ends(true, true, false));
}

#[test]
fn x01_drains_leave_nothing_and_values_reach_their_runs_over_random_schedules() {
    play("values, groups, drains that wait", || scenario(WaitingKeys::Wait, false, 1));
    play("the same with a bound, drains that run all now", || scenario(WaitingKeys::RunNow, true, 1));
    play("the same in batches, drains that drop", || scenario(WaitingKeys::Drop, true, 3));
}

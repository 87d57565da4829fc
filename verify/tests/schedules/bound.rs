//! B8: a bound on how many keys the queue knows.

use crate::{ms, play};
use requeue::{Refused, WorkQueue};
use requeue_sim::{Call, End, Event, Plan, Sim, Trigger, World};

const BOUND: usize = 5;

/// The keys that the queue knows after an event.
fn known(world: &World<u64>) -> Vec<u64> {
    let is_known = |key: &u64| {
        let state = world.queue().state(key).unwrap_or_default();
        state.ready || state.held || state.waiting_until.is_some()
    };
    world.keys().map(|log| log.key).filter(is_known).collect()
}

fn scenario(drops: bool) -> Sim<u64> {
    // which keys were known before, and how many were ready: an add is no look, so that a key whose
    // timer has come due since is not ready for it
    let (mut before, mut ready) = (Vec::new(), 0);
    Sim::new(move |clock| {
        let queue = WorkQueue::builder().clock(clock).bound(BOUND);
        let queue = if drops { queue.drop_oldest(|_, _| ()) } else { queue };
        queue.build().expect("the bound is above zero")
    })
    .workers(2)
    .lasting(ms(400))
    .producer(ms(0)..=ms(6), |rng| -> Call<u64> {
        let key = rng.below(12);
        match rng.below(8) {
            0 => Call::Cancel(key),
            1 => Trigger::after(key, rng.between(ms(0)..=ms(20))).into(),
            2 => Trigger::rate_limited(key).into(),
            _ => Trigger::now(key).into(),
        }
    })
    .handler(|_, rng| {
        let ends = [End::Done, End::Done, End::Retry, End::Again(ms(3)), End::Panic];
        Plan::ending(*rng.pick(&ends)).taking(rng.between(ms(0)..=ms(15)))
    })
    .invariant("B8", move |world| {
        let (key, refused) = match world.event() {
            Event::Called { call: Call::Add(trigger), answer } => {
                (Some(trigger.key), *answer == Some(Err(Refused::Full)))
            }
            Event::Ended { run, taken: false, .. } => return Err(format!("{} needed room", run.key)),
            _ => (None, false),
        };
        let now = known(world);
        let room = world.queue().stats().room;
        if room.is_none_or(|room| now.len() + room != BOUND) {
            return Err(format!("{} keys are known, and there is room for {room:?}", now.len()));
        }
        if refused && key.is_some_and(|key| before.contains(&key)) {
            return Err("a trigger for a known key needed room".into());
        }
        if refused && now.len() < BOUND {
            return Err(format!("a key was refused although only {} are known", now.len()));
        }
        if refused && drops && ready > 0 {
            return Err("a key was refused although one could be dropped".into());
        }
        (before, ready) = (now, world.queue().stats().ready);
        Ok(())
    })
}

#[test]
fn b8_the_bound_is_exact_and_known_keys_need_no_room_over_random_schedules() {
    play("B8, refused", || scenario(false));
}

#[test]
fn b8_a_key_is_refused_only_where_none_can_be_dropped_over_random_schedules() {
    play("B8, oldest dropped", || scenario(true));
}

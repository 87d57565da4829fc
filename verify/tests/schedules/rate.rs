//! B6: the rate of hand-outs is limited.

use crate::{ms, play};
use requeue::{GroupRules, Instant, WorkQueue};
use requeue_sim::{Call, End, Event, Plan, Sim, Trigger};
use std::time::Duration;

/// Keys a second, and at once.
const RATE: u64 = 100;
const BURST: u64 = 5;

/// Three times as many triggers as may run, most of them duplicates: those cost nothing.
fn scenario() -> Sim<u64> {
    // what the bucket holds, in billionths of a token: exact, as a nanosecond brings RATE of them
    const TOKEN: u64 = 1_000_000_000;
    let (mut holds, mut at) = (BURST * TOKEN, Instant::ORIGIN);
    Sim::new(|clock| {
        WorkQueue::builder().clock(clock).rate(RATE as f64, BURST as u32).build().expect("keys may go")
    })
    .workers(3)
    .lasting(ms(400))
    .settling(Duration::from_secs(2))
    .producer(ms(0)..=ms(6), |rng| -> Call<u64> {
        let key = rng.below(8);
        match rng.below(10) {
            0 => Call::Cancel(key),
            1 => Trigger::after(key, rng.between(ms(0)..=ms(30))).into(),
            _ => Trigger::now(key).into(),
        }
    })
    .handler(|_, rng| {
        let ends = [End::Done, End::Done, End::Done, End::RetryAfter(ms(3)), End::Panic];
        Plan::ending(*rng.pick(&ends)).taking(rng.between(ms(0)..=ms(5)))
    })
    .invariant("B6: in any time t at most burst + rate * t keys", move |world| {
        if let Event::Began(_) = world.event() {
            let nanos = u64::try_from(world.since(at).as_nanos()).unwrap_or(u64::MAX);
            holds = holds.saturating_add(nanos.saturating_mul(RATE)).min(BURST * TOKEN);
            at = world.now();
            let missing = TOKEN.saturating_sub(holds);
            if missing > 0 {
                return Err(format!("a key goes {} ns before its token is there", missing / RATE));
            }
            holds -= TOKEN;
        }
        Ok(())
    })
    .invariant("all that was asked for runs in the end", |world| {
        let stats = world.queue().stats();
        match stats.ready + stats.held + stats.waiting {
            left if world.is_over() && left > 0 => Err(format!("{stats:?}")),
            _ => Ok(()),
        }
    })
}

/// Three groups of four keys, that go and come: a key is known for a moment only.
fn groups() -> Sim<u64> {
    const TOKEN: u64 = 1_000_000_000;
    let mut buckets = [(BURST * TOKEN, Instant::ORIGIN); 3];
    Sim::new(|clock| {
        let rules = GroupRules::new().rate(RATE as f64, BURST as u32);
        let builder = WorkQueue::builder().clock(clock).group_by_with(|key: &u64| key / 4, rules);
        builder.build().expect("keys may go")
    })
    .workers(3)
    .lasting(ms(400))
    .settling(Duration::from_secs(2))
    .producer(ms(0)..=ms(3), |rng| -> Call<u64> {
        let key = rng.below(12);
        match rng.below(10) {
            0..3 => Call::Cancel(key),
            3 => Trigger::after(key, rng.between(ms(0)..=ms(30))).into(),
            _ => Trigger::now(key).into(),
        }
    })
    .handler(|_, rng| {
        let ends = [End::Done, End::Done, End::Done, End::RetryAfter(ms(3)), End::Panic];
        Plan::ending(*rng.pick(&ends)).taking(rng.between(ms(0)..=ms(5)))
    })
    .invariant("B6: in any time t at most burst + rate * t keys of a group", move |world| {
        if let Event::Began(run) = world.event() {
            let (holds, at) = &mut buckets[(run.key / 4) as usize];
            let nanos = u64::try_from(world.since(*at).as_nanos()).unwrap_or(u64::MAX);
            *holds = holds.saturating_add(nanos.saturating_mul(RATE)).min(BURST * TOKEN);
            *at = world.now();
            let missing = TOKEN.saturating_sub(*holds);
            if missing > 0 {
                return Err(format!("a key goes {} ns before its token is there", missing / RATE));
            }
            *holds -= TOKEN;
        }
        Ok(())
    })
    .invariant("all that was asked for runs in the end", |world| {
        let stats = world.queue().stats();
        match stats.ready + stats.held + stats.waiting {
            left if world.is_over() && left > 0 => Err(format!("{stats:?}")),
            _ => Ok(()),
        }
    })
}

#[test]
fn b6_no_more_keys_of_a_group_are_handed_out_than_its_rate_allows_over_random_schedules() {
    play("B6 of groups", groups);
}

#[test]
fn b6_no_more_keys_are_handed_out_than_the_rate_allows_over_random_schedules() {
    play("B6", scenario);
}

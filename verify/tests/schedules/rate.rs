//! B6: the rate of hand-outs is limited.

use crate::{ms, play};
use requeue::{Builder, GroupRules, Instant, WorkQueue};
use requeue_sim::{Call, End, Event, Plan, Sim, Trigger, World};
use std::time::Duration;

/// Keys a second, and at once.
const RATE: u64 = 100;
const BURST: u64 = 5;

/// The exact contents of a bucket, in billionths of a token: a nanosecond brings `RATE` of them.
#[derive(Clone, Copy)]
struct Tokens {
    holds: u64,
    at: Instant,
}

impl Tokens {
    const ONE: u64 = 1_000_000_000;
    const FULL: Self = Self { holds: BURST * Self::ONE, at: Instant::ORIGIN };

    /// Takes one token; an error if it is not there yet.
    fn take(&mut self, world: &World<u64>) -> Result<(), String> {
        let nanos = u64::try_from(world.since(self.at).as_nanos()).unwrap_or(u64::MAX);
        self.holds = self.holds.saturating_add(nanos.saturating_mul(RATE)).min(Self::FULL.holds);
        self.at = world.now();
        let missing = Self::ONE.saturating_sub(self.holds);
        if missing > 0 {
            return Err(format!("a key goes {} ns before its token is there", missing / RATE));
        }
        self.holds -= Self::ONE;
        Ok(())
    }
}

/// A queue with three workers, with triggers of so many keys, one each `pause` at most. In ten calls there are so many
/// cancels and a delayed trigger.
fn scenario(
    build: impl Fn(Builder<u64>) -> Builder<u64> + 'static,
    keys: u64,
    pause: Duration,
    cancels: u64,
    bucket_of: impl Fn(u64) -> usize + 'static,
) -> Sim<u64> {
    let mut buckets = [Tokens::FULL; 3];
    Sim::new(move |clock| build(WorkQueue::builder().clock(clock)).build().expect("keys may go"))
        .workers(3)
        .lasting(ms(400))
        .settling(Duration::from_secs(2))
        .producer(ms(0)..=pause, move |rng| -> Call<u64> {
            let key = rng.below(keys);
            match rng.below(10) {
                call if call < cancels => Call::Cancel(key),
                call if call == cancels => Trigger::after(key, rng.between(ms(0)..=ms(30))).into(),
                _ => Trigger::now(key).into(),
            }
        })
        .handler(|_, rng| {
            let ends = [End::Done, End::Done, End::Done, End::RetryAfter(ms(3)), End::Panic];
            Plan::ending(*rng.pick(&ends)).taking(rng.between(ms(0)..=ms(5)))
        })
        .invariant("B6: in any time t at most burst + rate * t keys", move |world| match world.event() {
            Event::Began(run) => buckets[bucket_of(run.key)].take(world),
            _ => Ok(()),
        })
        .invariant("all that was asked for runs in the end", |world| {
            let stats = world.queue().stats();
            match stats.ready + stats.held + stats.waiting {
                left if world.is_over() && left > 0 => Err(format!("{stats:?}")),
                _ => Ok(()),
            }
        })
}

/// Three times as many triggers as may run, most of them duplicates: those cost nothing.
fn one_rate() -> Sim<u64> {
    scenario(|builder| builder.rate(RATE as f64, BURST as u32), 8, ms(6), 1, |_| 0)
}

/// Three groups of four keys, that go and come: a key is known for a moment only.
fn groups() -> Sim<u64> {
    let rules = || GroupRules::new().rate(RATE as f64, BURST as u32);
    let build = move |builder: Builder<u64>| builder.group_by_with(|key: &u64| key / 4, rules());
    scenario(build, 12, ms(3), 3, |key| (key / 4) as usize)
}

#[test]
fn b6_no_more_keys_of_a_group_are_handed_out_than_its_rate_allows_over_random_schedules() {
    play("B6 of groups", groups);
}

#[test]
fn b6_no_more_keys_are_handed_out_than_the_rate_allows_over_random_schedules() {
    play("B6", one_rate);
}

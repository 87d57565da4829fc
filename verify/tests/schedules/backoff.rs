//! B5: triggers in a back-off.

use crate::{ms, play};
use requeue::limiter::Exponential;
use requeue::{InBackoff, Instant, WorkQueue};
use requeue_sim::{Call, End, Event, Plan, Rng, Sim, Trigger};
use std::collections::HashMap;
use std::time::Duration;

fn queue(clock: requeue::FakeClock, in_backoff: InBackoff) -> WorkQueue<u64> {
    let limiter = Exponential::new(ms(5), Duration::from_secs(1_000)).expect("the maximum is above the base");
    WorkQueue::builder()
        .clock(clock)
        .limiter(limiter)
        .in_backoff(in_backoff)
        .build()
        .expect("nothing is wrong")
}

/// One key that fails whenever it runs, and writes its own object during the run and after it:
/// each write is an event. Other events come at random. (A timer that was set before the first
/// failure stays, so no trigger has a delay.)
fn echo() -> Sim<u64> {
    let (mut runs, mut due) = (0, None);
    Sim::new(|clock| queue(clock, InBackoff::Respect))
        .workers(2)
        .lasting(Duration::from_secs(12))
        .producer(ms(1)..=ms(300), |_| Trigger::now(1))
        .producer(ms(1)..=ms(20), |_| Trigger::now(1))
        .handler(|_, rng| {
            let takes = rng.between(ms(0)..=ms(4));
            let own = |rng: &mut Rng| rng.between(ms(0)..=takes);
            Plan::retry().taking(takes).calling(own(rng), Trigger::now(1)).calling(own(rng), Trigger::now(1))
        })
        .invariant("B5: a key that fails runs when it is due, whatever events come", move |world| {
            match world.event() {
                Event::Began(run) if run.number > 1 && due.is_some_and(|due| due != world.now()) => {
                    return Err(format!("run {} begins at another instant", run.number));
                }
                Event::Began(_) => runs += 1,
                Event::Ended { .. } => {
                    due = Some(world.now() + ms(5) * 2_u32.pow(runs - 1));
                    let failures = world.queue().num_requeues(&1);
                    if failures != runs {
                        return Err(format!("{failures} failures in {runs} runs"));
                    }
                }
                Event::Over if runs > 12 => return Err(format!("{runs} runs in 12 s")),
                _ => (),
            }
            Ok(())
        })
}

/// Earliest instant of a key's next run.
#[derive(Default)]
struct Rest {
    until: Option<Instant>,
    failures: u32,
    /// A reset came during its run.
    reset: bool,
}

/// Several keys, events that respect a back-off or reset it, runs that fail or not. A key that fails has no
/// run before its back-off is over, unless a reset asks for it, and only runs are failures. (Triggers with
/// `Run`, and timers that were set before the run, may be earlier.)
fn events() -> Sim<u64> {
    let mut keys: HashMap<u64, Rest> = HashMap::new();
    let event = |rng: &mut Rng| {
        let trigger = Trigger::now(rng.below(4));
        match rng.below(12) {
            0 => trigger.in_backoff(InBackoff::Reset),
            1..=5 => trigger.in_backoff(InBackoff::Respect),
            _ => trigger,
        }
    };
    Sim::new(|clock| queue(clock, InBackoff::Respect))
        .workers(4)
        .lasting(ms(800))
        .producer(ms(0)..=ms(20), event)
        .producer(ms(0)..=ms(60), event)
        .handler(|_, rng| {
            let end = if rng.one_in(3) { End::Done } else { End::Retry };
            Plan::ending(end).taking(rng.between(ms(0)..=ms(10)))
        })
        .invariant("B5: who fails rests, whatever events come", move |world| {
            let now = world.now();
            match world.event() {
                Event::Called { call: Call::Add(trigger), .. } => {
                    let rest = keys.entry(trigger.key).or_default();
                    if trigger.in_backoff == Some(InBackoff::Reset) {
                        match world.running().any(|run| run.key == trigger.key) {
                            true => rest.reset = true,
                            // one that does not wait out a failure keeps what is on record
                            false if rest.until.is_some() => *rest = Rest::default(),
                            false => (),
                        }
                    }
                }
                Event::Began(run) => {
                    let rest = keys.entry(run.key).or_default();
                    rest.reset = false;
                    if let Some(until) = rest.until.take().filter(|until| *until > now) {
                        return Err(format!("{} runs {:?} too early", run.key, until.saturating_since(now)));
                    }
                }
                Event::Ended { run, end, .. } => {
                    let rest = keys.entry(run.key).or_default();
                    if *end == End::Done || rest.reset {
                        *rest = Rest::default();
                    } else {
                        rest.until = Some(now + ms(5) * 2_u32.pow(rest.failures));
                        rest.failures += 1;
                    }
                    let failures = world.queue().num_requeues(&run.key);
                    if failures != rest.failures {
                        return Err(format!("{} has {failures} failures, not {}", run.key, rest.failures));
                    }
                }
                _ => (),
            }
            Ok(())
        })
}

#[test]
fn b5_a_key_that_fails_and_echoes_itself_runs_12_times_in_12_s_over_random_schedules() {
    play("B5, echoes", echo);
}

#[test]
fn b5_who_fails_rests_whatever_events_come_over_random_schedules() {
    play("B5, events", events);
}

//! B4: debounce with a maximum.

use crate::{ms, play};
use requeue::{Debounce, Instant, WorkQueue};
use requeue_sim::{Call, Event, Plan, Sim, Trigger, World};
use std::collections::BTreeMap;
use std::time::Duration;

const QUIET: Duration = Duration::from_millis(20);
const MAX: Duration = Duration::from_millis(60);

/// A key, by the letter of B4.
#[derive(Default)]
struct Known {
    /// The first and the latest trigger of its window.
    window: Option<(Instant, Instant)>,
    ready_since: Option<Instant>,
    held: bool,
    dirty: bool,
}

impl Known {
    /// Closes a window that has ended.
    fn settle(&mut self, now: Instant) {
        let Some((first, latest)) = self.window else { return };
        let end = (latest + QUIET).min(first + MAX);
        if end <= now {
            self.window = None;
            match self.held {
                true => self.dirty = true,
                false => self.ready_since = Some(end),
            }
        }
    }

    fn heard(&mut self, world: &World<u64>) -> Result<(), String> {
        let now = world.now();
        self.settle(now);
        match world.event() {
            // one that is ready or dirty is joined
            Event::Called { .. } if self.ready_since.is_some() || self.dirty => (),
            Event::Called { .. } => {
                let first = self.window.map_or(now, |(first, _)| first);
                self.window = Some((first, now));
            }
            Event::Began(_) => {
                // there is always a worker for it
                match self.ready_since.take() {
                    Some(since) if since == now => self.held = true,
                    Some(since) => return Err(format!("it is {:?} late", world.since(since))),
                    None => return Err("it runs before its window has ended".into()),
                }
            }
            Event::Ended { .. } => {
                self.held = false;
                self.ready_since = std::mem::take(&mut self.dirty).then_some(now);
            }
            _ => (),
        }
        Ok(())
    }
}

fn scenario() -> Sim<u64> {
    let mut keys: BTreeMap<u64, Known> = BTreeMap::new();
    let call = |rng: &mut requeue_sim::Rng| Trigger::now(rng.below(6));
    Sim::new(|clock| {
        let debounce = Debounce::new(QUIET).max(MAX);
        WorkQueue::builder()
            .clock(clock)
            .debounce(debounce)
            .build()
            .expect("the maximum is above the quiet time")
    })
    .workers(7)
    .lasting(ms(600))
    .settling(ms(200))
    .producer(ms(0)..=ms(10), call)
    .producer(ms(0)..=ms(10), call)
    // and one of triggers that hardly ever stop
    .producer(ms(1)..=ms(22), |_| Trigger::now(6))
    .handler(|_, rng| Plan::done().taking(rng.between(ms(0)..=ms(40))))
    .invariant(
        "B4: after so long without a trigger, at the latest so long after the first",
        move |world| {
            let key = match world.event() {
                Event::Called { call: Call::Add(trigger), .. } => trigger.key,
                Event::Began(run) | Event::Ended { run, .. } => run.key,
                Event::Over => {
                    keys.values_mut().for_each(|known| known.settle(world.now()));
                    let left = keys.iter().find(|(_, known)| known.ready_since.is_some() || known.dirty);
                    return left.map_or(Ok(()), |(key, _)| Err(format!("{key} does not run")));
                }
                _ => return Ok(()),
            };
            keys.entry(key).or_default().heard(world).map_err(|why| format!("{key}: {why}"))
        },
    )
}

#[test]
fn b4_a_key_runs_when_its_window_ends_and_at_no_other_time_over_random_schedules() {
    play("B4", scenario);
}

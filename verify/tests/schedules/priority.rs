//! B2: priorities, and the bound on ageing.

use crate::{ms, play};
use requeue::limiter::Exponential;
use requeue::{Instant, WorkQueue};
use requeue_sim::{Call, End, Event, Plan, Rng, Sim, Trigger, When, World};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is known of a key's priorities, by the letter of B2.
#[derive(Default)]
struct Known {
    ready: Option<Ready>,
    held: bool,
    /// Of the triggers that came while it was held.
    dirty: Option<i16>,
    /// When its timer is due, and what it raises to then.
    timer: Option<(Instant, i16)>,
}

#[derive(Clone, Copy)]
struct Ready {
    priority: i16,
    since: Instant,
    /// Its place by age: timers that are due at one instant share one.
    place: u64,
}

/// Who became ready last.
struct Last {
    place: u64,
    since: Instant,
}

impl Last {
    /// The next one: its age does not count from before that of the one before.
    fn next(&mut self, priority: i16, at: Instant) -> Ready {
        self.since = self.since.max(at);
        Ready { priority, since: self.since, place: self.place }
    }
}

impl Known {
    fn trigger(&mut self, priority: i16, at: Instant, last: &mut Last) {
        match (&mut self.ready, self.held) {
            (Some(ready), _) => ready.priority = ready.priority.max(priority),
            (None, true) => self.dirty = Some(self.dirty.map_or(priority, |other| other.max(priority))),
            (None, false) => self.ready = Some(last.next(priority, at)),
        }
    }

    /// A timer was set, or joined by a trigger; when it is due the queue says.
    fn set(&mut self, due: Option<Instant>, priority: i16) {
        self.timer = due.map(|due| (due, self.timer.map_or(priority, |(_, other)| other.max(priority))));
    }
}

struct Priorities {
    keys: BTreeMap<u64, Known>,
    last: Last,
    max_wait: Option<Duration>,
}

impl Priorities {
    fn heard(&mut self, world: &World<u64>) -> Result<(), String> {
        let now = world.now();
        let due = |key: u64| world.queue().state(&key).and_then(|state| state.waiting_until);
        self.last.place += 1;
        match world.event() {
            Event::Called { call: Call::Add(trigger), answer: Some(Ok(_)) } => match trigger.when {
                When::Now => {
                    let known = self.keys.entry(trigger.key).or_default();
                    known.trigger(trigger.priority, now, &mut self.last);
                }
                _ => {
                    // with a delay it takes a timer of its own key that is due as fired first
                    self.look(now, Some(trigger.key));
                    self.keys.entry(trigger.key).or_default().set(due(trigger.key), trigger.priority);
                }
            },
            Event::Called { call: Call::Cancel(key), .. } => {
                let held = self.keys.get(key).is_some_and(|known| known.held);
                self.keys.insert(*key, Known { held, ..Known::default() });
            }
            Event::Ended { run, end, .. } => {
                let delayed = matches!(end, End::Retry | End::RetryAfter(_) | End::Again(_));
                if delayed {
                    self.look(now, Some(run.key));
                }
                let known = self.keys.entry(run.key).or_default();
                known.held = false;
                if let Some(priority) = known.dirty.take() {
                    known.trigger(priority, now, &mut self.last);
                }
                if delayed {
                    known.set(due(run.key), run.priority);
                }
            }
            Event::Began(run) => {
                self.look(now, None);
                self.began(run.key, run.priority, now)?;
            }
            _ => (),
        }
        // what the simulation asks of the key after each event is a look
        self.look(now, None);
        Ok(())
    }

    /// Fires what is due, of one key or of all.
    fn look(&mut self, now: Instant, of: Option<u64>) {
        let is_due = |known: &Known| known.timer.map(|(due, _)| due).filter(|due| *due <= now);
        let mut due: Vec<(Instant, u64)> =
            self.keys.iter().filter_map(|(key, known)| Some((is_due(known)?, *key))).collect();
        due.retain(|(_, key)| of.is_none_or(|of| of == *key));
        due.sort_unstable();
        let mut before = None;
        for (at, key) in due {
            self.last.place += u64::from(before.replace(at) != Some(at));
            let Some(known) = self.keys.get_mut(&key) else { continue };
            let Some((_, priority)) = known.timer.take() else { continue };
            known.trigger(priority, at, &mut self.last);
        }
        self.last.place += 1;
    }

    fn began(&mut self, key: u64, priority: i16, now: Instant) -> Result<(), String> {
        let known = self.keys.get_mut(&key).ok_or("nobody asked for it")?;
        known.held = true;
        let this = known.ready.take().ok_or_else(|| format!("{key} was not ready"))?;
        if this.priority != priority {
            return Err(format!("{key} has {priority} and not {}", this.priority));
        }
        let waited = |ready: Ready| now.saturating_since(ready.since);
        let is_late = |ready: Ready| self.max_wait.is_some_and(|max| waited(ready) >= max);
        let others = || self.keys.iter().filter_map(|(key, known)| Some((key, known.ready?)));
        let some_late = is_late(this) || others().any(|(_, ready)| is_late(ready));
        let passed_over = others().find(|(_, other)| {
            let is_older = other.place < this.place;
            // the oldest of all if one is late, else the highest, and of those the oldest
            is_older && (some_late || other.priority == this.priority)
                || !some_late && other.priority > this.priority
        });
        match passed_over {
            Some((other, ready)) => Err(format!(
                "{key} ({priority}, ready for {:?}) goes before {other} ({}, ready for {:?})",
                waited(this),
                ready.priority,
                waited(ready)
            )),
            None => Ok(()),
        }
    }
}

/// Two workers with about as much as they can do, twelve keys, retries, timers,
/// cancelled keys and five levels.
fn scenario(max_wait: Option<Duration>) -> Sim<u64> {
    let last = Last { place: 0, since: Instant::ORIGIN };
    let mut model = Priorities { keys: BTreeMap::new(), last, max_wait };
    let make = move |rng: &mut Rng| -> Call<u64> {
        let (key, priority) = (rng.below(12), rng.below(5) as i16 - 2);
        let trigger = match rng.below(10) {
            0 => return Call::Cancel(key),
            1 | 2 => Trigger::after(key, rng.between(ms(0)..=ms(50)).max(ms(1))),
            _ => Trigger::now(key),
        };
        trigger.priority(priority).into()
    };
    Sim::new(|clock| {
        let limiter = Exponential::new(ms(1), ms(40)).expect("the maximum is above the base");
        let mut queue = WorkQueue::builder().clock(clock).priorities().limiter(limiter);
        if let Some(max_wait) = max_wait {
            queue = queue.max_wait(max_wait);
        }
        queue.build().expect("it may have priorities")
    })
    .workers(2)
    .lasting(ms(400))
    .producer(ms(0)..=ms(10), make)
    .producer(ms(0)..=ms(20), make)
    .handler(|_, rng| {
        let end = match rng.below(10) {
            0 => End::Retry,
            1 => End::RetryAfter(rng.between(ms(1)..=ms(20))),
            2 => End::Again(rng.between(ms(1)..=ms(20))),
            3 => End::Panic,
            _ => End::Done,
        };
        Plan::ending(end).taking(rng.between(ms(0)..=ms(16)))
    })
    .invariant("B2", move |world| model.heard(world))
}

#[test]
fn b2_the_highest_go_first_and_the_oldest_of_them_over_random_schedules() {
    play("B2, priorities", || scenario(None));
}

#[test]
fn b2_no_ready_key_is_passed_over_for_longer_than_max_wait_over_random_schedules() {
    play("B2, max_wait", || scenario(Some(ms(30))));
}

//! B2: priorities, and the bound on waiting.

use crate::{ms, play};
use requeue::limiter::Exponential;
use requeue::{Instant, Scope, WorkQueue};
use requeue_sim::{Call, End, Event, Plan, Rng, Sim, Trigger, When, World};
use std::collections::BTreeMap;
use std::time::Duration;

const WORKERS: usize = 2;

/// State of a key's priorities, by the letter of B2.
#[derive(Default)]
struct Known {
    ready: Option<Ready>,
    held: bool,
    /// The highest priority of triggers that came while it was held.
    dirty: Option<i16>,
    /// When its timer is due, and the priority it raises to then.
    timer: Option<(Instant, i16)>,
}

#[derive(Clone, Copy)]
struct Ready {
    priority: i16,
    /// Instant since when it is in line, by the clock that stands while the queue is paused.
    since: Instant,
    /// The last hand-out at which it may go, once it is overdue.
    until: Option<u64>,
    /// Its place by age: timers that are due at one instant share one.
    place: u64,
}

/// The key that became ready last.
struct Last {
    place: u64,
    since: Instant,
}

impl Last {
    /// The next one: its age does not count from before that of the one before.
    fn next(&mut self, priority: i16, at: Instant) -> Ready {
        self.since = self.since.max(at);
        Ready { priority, since: self.since, place: self.place, until: None }
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

    /// A timer was set, or joined by a trigger; the queue returned when it is due.
    fn set(&mut self, due: Option<Instant>, priority: i16) {
        self.timer = due.map(|due| (due, self.timer.map_or(priority, |(_, other)| other.max(priority))));
    }
}

struct Priorities {
    keys: BTreeMap<u64, Known>,
    last: Last,
    /// After how long a key is overdue, and of how many hand-outs one is for such keys.
    max_wait: Option<(Duration, u64)>,
    hand_outs: u64,
    /// The last hand-out that was chosen by age only.
    by_age: Option<u64>,
    /// Since when the queue is paused, and how long it was before.
    paused: Option<Instant>,
    stood: Duration,
}

impl Priorities {
    /// The time on the clock that stands while the queue is paused.
    fn age_clock(&self, at: Instant) -> Instant {
        let at = self.paused.map_or(at, |since| at.min(since));
        Instant::ORIGIN + at.saturating_since(Instant::ORIGIN + self.stood)
    }

    fn heard(&mut self, world: &World<u64>) -> Result<(), String> {
        let now = world.now();
        let due = |key: u64| world.queue().state(&key).and_then(|state| state.waiting_until);
        self.last.place += 1;
        // a worker that waits for a key while the queue is paused fires each timer when it is due
        let worked = world.running().count() + usize::from(matches!(world.event(), Event::Ended { .. }));
        if self.paused.is_some() && worked < WORKERS {
            self.look(now, None);
            self.last.place += 1;
        }
        if world.queue().paused(Scope::Queue) != self.paused.is_some() {
            // to pause is a look, and so is to resume
            self.look(now, None);
            match self.paused.take() {
                None => self.paused = Some(now),
                Some(since) => self.stood += now.saturating_since(since),
            }
        }
        let clock = self.age_clock(now);
        match world.event() {
            Event::Called { call: Call::Add(trigger), answer: Some(Ok(_)) } => match trigger.when {
                When::Now => {
                    let known = self.keys.entry(trigger.key).or_default();
                    known.trigger(trigger.priority, clock, &mut self.last);
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
                    known.trigger(priority, clock, &mut self.last);
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
        // the simulation's question about the key after each event is a look
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
            let at = self.age_clock(at);
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
        let others = || self.keys.iter().filter_map(|(key, known)| Some((*key, known.ready?)));
        let passed_over = |over: &dyn Fn(Ready) -> bool| match others().find(|(_, other)| over(*other)) {
            Some((other, ready)) => Err(format!(
                "hand-out {}: {key} ({priority}) goes before {other} ({})",
                self.hand_outs, ready.priority
            )),
            None => Ok(()),
        };
        let is_higher = |other: Ready| {
            other.priority > priority || other.priority == priority && other.place < this.place
        };
        let Err(by_priority) = passed_over(&is_higher) else { return self.in_time(now) };
        let Some((after, every)) = self.max_wait else { return Err(by_priority) };
        if self.age_clock(now).saturating_since(this.since) < after {
            return Err(format!("{by_priority}, and is not overdue"));
        }
        passed_over(&|other| other.place < this.place).map_err(|why| format!("{why}, which is older"))?;
        if self.by_age.is_some_and(|last| self.hand_outs - last < every) {
            return Err(format!("{by_priority}: more than one of every {every}"));
        }
        self.by_age = Some(self.hand_outs);
        self.in_time(now)
    }

    /// A key was handed out: "an overdue key with m older overdue ones is handed out within n * (m + 1) further
    /// hand-outs".
    fn in_time(&mut self, now: Instant) -> Result<(), String> {
        let Some((after, every)) = self.max_wait else { return Ok(()) };
        let clock = self.age_clock(now);
        let overdue: Vec<u64> = self
            .keys
            .values()
            .filter_map(|known| known.ready)
            .filter(|ready| clock.saturating_since(ready.since) >= after)
            .map(|ready| ready.place)
            .collect();
        self.hand_outs += 1;
        for (key, known) in &mut self.keys {
            let Some(ready) = known.ready.as_mut().filter(|ready| overdue.contains(&ready.place)) else {
                continue;
            };
            let older = overdue.iter().filter(|place| **place <= ready.place).count() as u64 - 1;
            let until = *ready.until.get_or_insert(self.hand_outs + every * (older + 1));
            if self.hand_outs >= until {
                return Err(format!("{key} had to be among the first {until} hand-outs"));
            }
        }
        Ok(())
    }
}

/// Two workers near their capacity, twelve keys, retries, timers, cancelled keys, five levels and pauses; and
/// a backlog that only grows.
fn scenario(max_wait: Option<(Duration, u64)>, backlog: bool) -> Sim<u64> {
    let last = Last { place: 0, since: Instant::ORIGIN };
    let (paused, stood) = (None, Duration::ZERO);
    let mut model =
        Priorities { keys: BTreeMap::new(), last, max_wait, hand_outs: 0, by_age: None, paused, stood };
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
        if let Some((after, every)) = max_wait {
            queue = queue.max_wait(after).overdue_every(every as u32);
        }
        queue.build().expect("it may have priorities")
    })
    .workers(WORKERS)
    .lasting(ms(400))
    .producer(ms(0)..=ms(10), make)
    .producer(ms(0)..=ms(20), make)
    .producer(ms(1)..=ms(60), |rng| if rng.below(2) == 0 { Call::Pause } else { Call::Resume })
    .producer(ms(1)..=ms(2), move |rng| {
        let key = if backlog { 100 + rng.below(60) } else { 0 };
        Trigger::now(key).priority(-5)
    })
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
    play("B2, priorities", || scenario(None, false));
}

#[test]
fn b2_one_of_every_n_hand_outs_goes_to_the_oldest_overdue_key_over_random_schedules() {
    for every in [2, 8] {
        play("B2, max_wait", || scenario(Some((ms(30), every)), false));
    }
}

#[test]
fn b2_a_backlog_older_than_max_wait_does_not_turn_the_order_round_over_random_schedules() {
    for every in [3, 8] {
        play("B2, max_wait, a backlog", || scenario(Some((ms(20), every)), true));
    }
}

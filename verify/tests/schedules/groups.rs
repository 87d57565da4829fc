//! B3: groups take turns, by weight, and have caps.

use crate::{ms, play};
use requeue::{GroupRules, WorkQueue};
use requeue_sim::{Call, End, Event, Plan, Rng, Sim, Trigger, World};

/// Group `g` has the keys from `100 * g` on.
const WEIGHTS: [u64; 4] = [1, 2, 3, 1];

fn group(key: u64) -> usize {
    (key / 100) as usize
}

/// The two bounds, and the cap.
#[derive(Default)]
struct Turns {
    cap: usize,
    held: [usize; 4],
    /// For each group, the number of hand-outs of each other group since it waits and may be served.
    served_while: [[u64; 4]; 4],
    /// For each pair that may be served: the difference of their shares by weight, in parts of the product of
    /// both weights, with its minimum and maximum.
    drift: [[Option<[i64; 3]>; 4]; 4],
}

impl Turns {
    fn heard(&mut self, world: &World<u64>) -> Result<(), String> {
        match world.event() {
            Event::Began(run) => self.began(group(run.key))?,
            Event::Ended { run, end, .. } if *end != End::Leak => self.held[group(run.key)] -= 1,
            _ => (),
        }
        let mut ready = [0; 4];
        world.ready().for_each(|(key, _)| ready[group(*key)] += 1);
        let may = |g: usize| ready[g] > 0 && self.held[g] < self.cap;
        for g in 0..4 {
            if !may(g) {
                self.served_while[g] = [0; 4];
            }
            for h in 0..4 {
                let drift = &mut self.drift[g][h];
                *drift = if may(g) && may(h) { drift.or(Some([0; 3])) } else { None };
            }
        }
        Ok(())
    }

    fn began(&mut self, served: usize) -> Result<(), String> {
        self.held[served] += 1;
        if self.held[served] > self.cap {
            return Err(format!("{} keys of group {served} are held", self.held[served]));
        }
        for (g, weight) in WEIGHTS.into_iter().enumerate() {
            if g == served {
                self.served_while[g] = [0; 4];
                continue;
            }
            // groups that may not be served are set back after each event
            self.served_while[g][served] += 1;
            if self.served_while[g][served] > WEIGHTS[served] && self.waits(g) {
                let times = self.served_while[g][served];
                return Err(format!("group {g} waits while group {served} is served {times} times"));
            }
            for (one, other, sign) in [(served, g, 1), (g, served, -1)] {
                let Some([now, least, most]) = &mut self.drift[one][other] else { continue };
                *now += sign * weight as i64;
                (*least, *most) = ((*least).min(*now), (*most).max(*now));
                if *most - *least > 2 * (weight * WEIGHTS[served]) as i64 {
                    return Err(format!("groups {g} and {served} drift apart by more than 2"));
                }
            }
        }
        Ok(())
    }

    /// Whether it could have been served before this event.
    fn waits(&self, g: usize) -> bool {
        self.drift[g][g].is_some()
    }
}

/// A simulation with groups. With priorities these count within groups, and keys are soon overdue.
fn scenario(cap: Option<usize>, priorities: bool) -> Sim<u64> {
    let mut turns = Turns { cap: cap.unwrap_or(usize::MAX), ..Turns::default() };
    let call = move |rng: &mut Rng| -> Call<u64> {
        let key = 100 * rng.below(4) + rng.below(6);
        let priority = if priorities { rng.below(4) as i16 } else { 0 };
        match rng.below(12) {
            0 => Call::Cancel(key),
            1 => Trigger::after(key, rng.between(ms(1)..=ms(20))).priority(priority).into(),
            _ => Trigger::now(key).priority(priority).into(),
        }
    };
    Sim::new(|clock| {
        let rules = GroupRules::new().weight(|group: &usize| WEIGHTS[*group] as u32);
        let rules = cap.into_iter().fold(rules, GroupRules::cap);
        let queue = WorkQueue::builder().clock(clock).group_by_with(|key| group(*key), rules);
        let queue = if priorities {
            queue.priorities().priorities_within_groups().max_wait(ms(5)).overdue_every(3)
        } else {
            queue
        };
        queue.build().expect("there is room")
    })
    .workers(3)
    .lasting(ms(400))
    .producer(ms(0)..=ms(5), call)
    .producer(ms(0)..=ms(5), call)
    // one that is noisy
    .producer(ms(0)..=ms(4), |rng| Trigger::now(100 * 3 + rng.below(60)))
    .handler(|_, rng| {
        let end = match rng.below(8) {
            0 => End::RetryAfter(rng.between(ms(0)..=ms(10))),
            1 => End::Panic,
            _ => End::Done,
        };
        Plan::ending(end).taking(rng.between(ms(0)..=ms(10)))
    })
    .invariant("B3", move |world| turns.heard(world))
}

#[test]
fn b3_no_group_waits_for_more_than_a_turn_of_each_other_over_random_schedules() {
    play("B3, weights", || scenario(None, false));
}

#[test]
fn b3_caps_hold_and_turns_beside_them_over_random_schedules() {
    play("B3, caps", || scenario(Some(2), false));
}

#[test]
fn b3_the_bounds_on_turns_hold_with_max_wait_over_random_schedules() {
    play("B3, max_wait", || scenario(None, true));
    play("B3, max_wait, caps", || scenario(Some(2), true));
}

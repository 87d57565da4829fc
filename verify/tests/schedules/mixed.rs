//! Everything at once: the invariants that the kit checks for every queue, and that all work is finished.

use crate::{ms, play};
use requeue::limiter::Exponential;
use requeue::{Debounce, InBackoff, Instant, WorkQueue};
use requeue_sim::{Call, End, Event, Plan, Restored, Rng, Sim, Trigger};

fn call(rng: &mut Rng) -> Call<u64> {
    let key = rng.below(6);
    let delay = rng.between(ms(0)..=ms(40));
    let trigger = match rng.below(19) {
        0 => return Call::Cancel(key),
        1 => return Call::Forget(key),
        2 => Trigger::rate_limited(key),
        3 => Trigger::after(key, delay),
        4 => Trigger::after(key, delay).latest(ms(60)),
        5 => Trigger::after(key, delay).replace(),
        6 => Trigger::after(key, delay).keep(),
        7 => return Call::Forget(key),
        8 => return Restored::new(key).failures(2).attempt(3).due(delay).priority(1).into(),
        9 => Trigger::now(key).debounce(Debounce::new(ms(5)).max(ms(20))),
        10 => Trigger::now(key).debounce(Debounce::new(ms(5)).max(ms(20)).leading()),
        11 => return Call::AddMany((0..rng.below(4)).map(|more| Trigger::now((key + more) % 6)).collect()),
        12 => return Call::CancelGet(rng.below(3) as usize),
        13 => Trigger::at(key, Instant::ORIGIN + rng.between(ms(0)..=ms(300))),
        _ => Trigger::now(key),
    };
    let trigger = trigger.priority(rng.below(3) as i16 - 1);
    match rng.below(6) {
        0 => trigger.in_backoff(InBackoff::Run),
        1 => trigger.in_backoff(InBackoff::Respect),
        2 => trigger.in_backoff(InBackoff::Reset),
        _ => trigger,
    }
    .into()
}

/// The queue, or a key, is paused or resumed.
fn pause(rng: &mut Rng) -> Call<u64> {
    let key = rng.below(6);
    match rng.below(5) {
        0 => Call::PauseKey(key),
        1 | 2 => Call::ResumeKey(key),
        3 => Call::Pause,
        _ => Call::Resume,
    }
}

fn scenario(absorbed: bool, retries: bool, max_wait: bool) -> Sim<u64> {
    Sim::new(|clock| {
        let limiter = Exponential::new(ms(1), ms(30)).expect("the maximum is above the base");
        let mut queue = WorkQueue::builder().clock(clock).limiter(limiter).priorities();
        queue = queue.timers_absorbed(absorbed).retry_dropped(retries);
        if max_wait {
            queue = queue.max_wait(ms(20));
        }
        queue.build().expect("these go together")
    })
    .workers(3)
    .lasting(ms(300))
    .settling(ms(600))
    .producer(ms(0)..=ms(8), call)
    .producer(ms(0)..=ms(16), call)
    .handler(|run, rng| {
        // in the end every run succeeds, so that all can come to its end
        let mut ends = vec![End::Done, End::Next];
        if run.began.as_nanos() < 400_000_000 {
            ends.extend([
                End::Retry,
                End::RetryAfter(ms(3)),
                End::Again(ms(5)),
                End::GiveUp,
                End::Panic,
                End::Drop,
            ]);
        }
        let plan = Plan::ending(*rng.pick(&ends)).taking(rng.between(ms(0)..=ms(12)));
        if rng.one_in(8) && ends.len() > 1 { plan.calling(ms(1), call(rng)) } else { plan }
    })
    .producer(ms(0)..=ms(40), pause)
    .invariant("what is paused does not run, and all that happens to it is kept", |world| {
        let state = |key: &u64| world.queue().state(key).unwrap_or_default();
        match world.event() {
            Event::Began(run) if state(&run.key).paused.is_some() => Err(format!("{} is paused", run.key)),
            _ => Ok(()),
        }
    })
    .invariant("each trigger that was taken is followed by a run, and nothing is left", |world| {
        if !world.is_over() {
            return Ok(());
        }
        let stats = world.queue().stats();
        let left = world
            .ready()
            .find(|(key, _)| world.queue().state(*key).is_some_and(|state| state.paused.is_none()));
        if let Some((key, _)) = left {
            return Err(format!("{key} is ready"));
        }
        if stats.held + stats.waiting > 0 {
            return Err(format!("{stats:?}"));
        }
        Ok(())
    })
}

#[test]
fn x20_whatever_is_asked_of_a_key_its_runs_come_over_random_schedules() {
    play("everything", || scenario(false, false, true));
    play("everything, timers absorbed", || scenario(true, true, false));
}

//! Plays one schedule.
//!
//! The next actor is chosen by a hash of the seed, the instant and the number of the choice at this instant;
//! a run's behaviour by a hash of the seed, the key and its start. So only the list of calls has to be kept,
//! and when the search for a smaller list removes some calls, the rest changes as little as possible.
//!
//! A worker is polled only after its waker was called: a missing wake-up is found before the time moves on.

use crate::rng::mix;
use crate::sim_worker::{Asleep, Found, Going, Look, SimWorker};
use crate::source::Source;
use crate::trace::{Quoted, Seconds, Trace, since_origin};
use crate::{Call, End, Event, Failure, Key, Rng, Run, Sim, Summary, Trigger, Value, World};
use requeue::{AddWhenRoom, Added, Clock, Drain, DrainOptions, FakeClock, Instant, Item, Refused, Scope};
use std::fmt::Write;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Poll;
use std::time::Duration;

/// Maximum number of steps at one instant; more means a loop in which no time passes.
const STEPS_AT_ONCE: u64 = 100_000;

/// Result of a schedule.
pub(crate) struct Played<K, V> {
    pub(crate) verdict: Result<Summary, Failure>,
    /// The calls that were made.
    pub(crate) calls: Vec<(Instant, Call<K, V>)>,
    pub(crate) steps: u64,
}

#[derive(Clone, Copy)]
enum Act {
    Call,
    Poll(usize),
    GoOn(usize),
    /// The waker of a caller that waits for room was called.
    Room(usize),
    /// The waker of a drain was called.
    Drain(usize),
}

/// A call that waits for room.
struct Adder<K: 'static, V: 'static> {
    asleep: Asleep,
    add: AddWhenRoom<'static, K, V>,
    trigger: Trigger<K, V>,
    timeout: Duration,
}

struct Engine<'a, K: Key, V: Value> {
    sim: Sim<K, V>,
    seed: u64,
    clock: FakeClock,
    world: World<K, V>,
    source: Source<'a, K, V>,
    seats: Vec<SimWorker<K, V>>,
    adders: Vec<Adder<K, V>>,
    drains: Vec<(Asleep, Drain<'static, K, V>)>,
    calls: Vec<(Instant, Call<K, V>)>,
    keep_calls: bool,
    steps: u64,
    /// The trace with comments so far, if it is wanted.
    told: Option<String>,
}

/// The reason of an early end: the broken invariant, and the violation.
type Broken = (String, String);

/// Plays a schedule.
pub(crate) fn play<K: Key, V: Value>(
    sim: Sim<K, V>,
    seed: u64,
    source: Source<'_, K, V>,
    keep_calls: bool,
) -> Played<K, V> {
    play_and(sim, seed, source, keep_calls, false).0
}

/// Plays a schedule, and returns all that happened as a trace with comments.
pub(crate) fn tell<K: Key, V: Value>(sim: Sim<K, V>, trace: &Trace<K, V>) -> String {
    play_and(sim, trace.seed, Source::calls(&trace.calls), false, true).1
}

fn play_and<K: Key, V: Value>(
    sim: Sim<K, V>,
    seed: u64,
    source: Source<'_, K, V>,
    keep_calls: bool,
    tell: bool,
) -> (Played<K, V>, String) {
    let clock = sim.clock.clone();
    let world = World::new(sim.queue.clone(), clock.now(), sim.workers);
    let seats = (0..sim.workers).map(|_| SimWorker::new()).collect();
    let told = tell.then(|| format!("seed {seed}\n"));
    let (adders, drains, calls, steps) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let mut engine =
        Engine { sim, seed, clock, world, source, seats, adders, drains, calls, keep_calls, steps, told };
    let broken = engine.play();
    let Engine { world, calls, steps, told, sim, .. } = engine;
    let end = Instant::ORIGIN + sim.lasting + sim.settling;
    let verdict = match broken {
        Ok(()) => Ok(Summary {
            schedules: 1,
            steps,
            calls: world.calls,
            runs: world.runs,
            simulated: end.saturating_since(Instant::ORIGIN),
        }),
        Err((invariant, why)) => {
            let mut trace = format!("seed {seed}\n");
            for (at, call) in &calls {
                let _ = writeln!(trace, "{} {call}", since_origin(*at));
            }
            let at = world.now.saturating_since(Instant::ORIGIN);
            Err(Failure { seed, invariant, why, at, calls: calls.len(), keys: world.keys().count(), trace })
        }
    };
    (Played { verdict, calls, steps }, told.unwrap_or_default())
}

impl<K: Key, V: Value> Engine<'_, K, V> {
    fn play(&mut self) -> Result<(), Broken> {
        let page = self.sim.queue.snapshot().next();
        if page.is_none_or(|page| page.at != self.clock.now()) {
            return Err((
                "the queue is built on the clock that the simulation gives".into(),
                "it reads another one: call `.clock(clock)` of its builder".into(),
            ));
        }
        let last = Instant::ORIGIN + self.sim.lasting;
        self.source.begin(self.seed, &self.sim.producers, last);
        let end = last + self.sim.settling;
        let mut acts = Vec::new();
        loop {
            let at_first = self.steps;
            for choice in 0.. {
                acts.clear();
                self.find_acts(&mut acts);
                if acts.is_empty() {
                    break;
                }
                let chosen = mix(&[self.seed, self.world.now.as_nanos(), choice]) % acts.len() as u64;
                self.act(acts[chosen as usize])?;
                if self.steps - at_first > STEPS_AT_ONCE {
                    let why = format!("{STEPS_AT_ONCE} steps were made at one instant, and more are due");
                    return Err(("time passes".into(), why));
                }
            }
            self.nobody_was_forgotten(self.steps > at_first)?;
            let going = self.seats.iter().filter_map(|seat| Some(seat.next()?.0));
            let soonest = going.chain(self.source.soonest()).chain(self.clock.next_alarm()).min();
            let Some(next) = soonest.filter(|next| *next <= end) else { break };
            self.come_to(next);
        }
        self.come_to(end);
        self.happened(Event::Over)
    }

    fn come_to(&mut self, at: Instant) {
        self.clock.set(at);
        self.world.now = at;
        self.source.come_to(at, &mut self.sim.producers);
    }

    fn find_acts(&self, acts: &mut Vec<Act>) {
        let now = self.world.now;
        if self.source.has_due(now) {
            acts.push(Act::Call);
        }
        for (place, seat) in self.seats.iter().enumerate() {
            match seat.next() {
                Some((next, _)) if next <= now => acts.push(Act::GoOn(place)),
                None if seat.is_idle() && seat.asleep.is_woken() => acts.push(Act::Poll(place)),
                _ => (),
            }
        }
        let woken = |asleep: &Asleep| asleep.is_woken();
        let adders = self.adders.iter().enumerate().filter(|(_, adder)| woken(&adder.asleep));
        acts.extend(adders.map(|(place, _)| Act::Room(place)));
        let drains = self.drains.iter().enumerate().filter(|(_, (asleep, _))| woken(asleep));
        acts.extend(drains.map(|(place, _)| Act::Drain(place)));
    }

    fn act(&mut self, act: Act) -> Result<(), Broken> {
        match act {
            Act::Call => match self.source.take() {
                Some(call) => {
                    if self.keep_calls {
                        self.calls.push((self.world.now, call.clone()));
                    }
                    self.call(call, None)
                }
                None => Ok(()),
            },
            Act::Poll(place) => self.poll(place).map(|_| ()),
            Act::GoOn(place) => self.go_on(place),
            Act::Room(place) => self.poll_adder(place).map(|_| ()),
            Act::Drain(place) => self.poll_drain(place).map(|_| ()),
        }
    }

    /// Makes a call: of a producer, or of a worker during its run.
    fn call(&mut self, call: Call<K, V>, worker: Option<usize>) -> Result<(), Broken> {
        self.world.calls += 1;
        if let Call::AddMany(triggers) = call {
            return self.add_many(triggers, worker);
        }
        let answer = self.ask(&call);
        self.note(&call, answer);
        self.tell_call(&call, worker, answer.into_iter());
        self.happened(Event::Called { call, answer })
    }

    /// Executes a call, and returns the queue's answer to a trigger.
    fn ask(&mut self, call: &Call<K, V>) -> Option<Result<Added, Refused>> {
        let queue = &self.sim.queue;
        match call {
            Call::Add(trigger) => {
                let added = queue.add_with(trigger.key.clone(), trigger.how());
                return Some(added.map_err(|refused| refused.reason));
            }
            Call::AddWhenRoom(trigger, timeout) => {
                let mut add = queue.add_when_room(trigger.key.clone(), trigger.how()).into_owned();
                if *timeout != Duration::MAX {
                    add = add.timeout(*timeout);
                }
                let asleep = Asleep::new();
                if let Poll::Ready(added) = asleep.poll(&mut add) {
                    return Some(added.map_err(|refused| refused.reason));
                }
                self.adders.push(Adder { asleep, add, trigger: trigger.clone(), timeout: *timeout });
            }
            // each of them gets a separate answer
            Call::AddMany(_) => (),
            Call::Restore(restored) => {
                let added = queue.restore(restored.at(self.world.now));
                return Some(added.map_err(|refused| refused.reason));
            }
            Call::Cancel(key) => drop(queue.cancel(key)),
            Call::Forget(key) => queue.forget(key),
            // refused once the queue ends
            Call::Pause => _ = queue.pause(Scope::Queue),
            Call::Resume => _ = queue.resume(Scope::Queue),
            Call::PauseKey(key) => _ = queue.pause(Scope::Key(key.clone())),
            Call::ResumeKey(key) => _ = queue.resume(Scope::Key(key)),
            Call::PauseGroup(key) => _ = queue.pause(Scope::GroupOf(key.clone())),
            Call::ResumeGroup(key) => _ = queue.resume(Scope::GroupOf(key)),
            Call::LiftRate => _ = queue.lift_rate(),
            Call::Close => queue.close(),
            Call::ShutDown => _ = queue.shut_down(),
            Call::Drain(waiting, timeout) => {
                let options = DrainOptions::default().waiting_keys(*waiting);
                let options = if *timeout == Duration::MAX { options } else { options.timeout(*timeout) };
                self.drains.push((Asleep::new(), queue.drain(options).into_owned()));
            }
            Call::Workers(number) => self.resize(*number),
            Call::CancelGet(worker) => {
                if let Some(seat) = self.seats.get_mut(*worker).filter(|seat| seat.look.is_some()) {
                    seat.look = None;
                    seat.asleep.wake();
                }
            }
        }
        None
    }

    fn add_many(&mut self, triggers: Vec<Trigger<K, V>>, worker: Option<usize>) -> Result<(), Broken> {
        let keys = triggers.iter().map(|trigger| (trigger.key.clone(), trigger.how()));
        let answers: Vec<_> = self.sim.queue.add_many_with(keys).iter().collect();
        let calls: Vec<_> = triggers.iter().cloned().map(Call::Add).collect();
        self.tell_call(&Call::AddMany(triggers), worker, answers.iter().copied());
        for (call, answer) in calls.iter().zip(&answers) {
            self.note(call, Some(*answer));
        }
        for (call, answer) in calls.into_iter().zip(answers) {
            self.happened(Event::Called { call, answer: Some(answer) })?;
        }
        Ok(())
    }

    /// Records a call in its key's log.
    fn note(&mut self, call: &Call<K, V>, answer: Option<Result<Added, Refused>>) {
        let Some(key) = call.key() else { return };
        let log = self.world.log(key);
        match call {
            Call::Cancel(_) => log.owed = false,
            _ if matches!(answer, Some(Ok(_))) => {
                log.triggers += 1;
                log.owed = true;
            }
            _ => (),
        }
    }

    fn tell_call(
        &mut self,
        call: &Call<K, V>,
        worker: Option<usize>,
        answers: impl Iterator<Item = Result<Added, Refused>>,
    ) {
        let at = since_origin(self.world.now);
        let Some(told) = &mut self.told else { return };
        let refused: Vec<_> = answers.filter_map(Result::err).collect();
        let _ = match (worker, &*refused) {
            (Some(worker), []) => writeln!(told, "# {at} worker {worker} calls: {call}"),
            (Some(worker), [e, ..]) => writeln!(told, "# {at} worker {worker} calls: {call}: refused, {e}"),
            (None, []) => writeln!(told, "{at} {call}"),
            (None, [e, ..]) => writeln!(told, "{at} {call}\n# {at} refused: {e}"),
        };
    }

    /// Sets the number of workers.
    fn resize(&mut self, number: usize) {
        while self.seats.len() < number {
            self.seats.push(SimWorker::new());
            self.world.running.push(Vec::new());
        }
        for (place, seat) in self.seats.iter_mut().enumerate() {
            let was_away = mem::replace(&mut seat.away, place >= number);
            if seat.away {
                seat.look = None;
            } else if was_away {
                seat.asleep.wake();
            }
        }
    }

    /// Polls a caller that waits for room. Returns true if it has an answer.
    fn poll_adder(&mut self, place: usize) -> Result<bool, Broken> {
        self.steps += 1;
        let adder = &mut self.adders[place];
        let Poll::Ready(answer) = adder.asleep.poll(&mut adder.add) else { return Ok(false) };
        let Adder { trigger, timeout, .. } = self.adders.remove(place);
        let answer = answer.map_err(|refused| refused.reason);
        let call = Call::AddWhenRoom(trigger, timeout);
        self.note(&call, Some(answer));
        if let (Some(told), Some(key)) = (&mut self.told, call.key()) {
            let (at, key) = (since_origin(self.world.now), Quoted(key));
            let _ = match &answer {
                Ok(_) => writeln!(told, "# {at} there is room for {key}"),
                Err(e) => writeln!(told, "# {at} {key}, which waited for room, is refused: {e}"),
            };
        }
        self.happened(Event::Answered { call, answer })?;
        Ok(true)
    }

    /// Polls a drain. Returns true if it is over.
    fn poll_drain(&mut self, place: usize) -> Result<bool, Broken> {
        self.steps += 1;
        let (asleep, drain) = &mut self.drains[place];
        let Poll::Ready(drained) = asleep.poll(drain) else { return Ok(false) };
        drop(self.drains.remove(place));
        if let Some(told) = &mut self.told {
            let over = if drained.complete { "complete" } else { "over, and not complete" };
            let _ = writeln!(told, "# {} the drain is {over}", since_origin(self.world.now));
        }
        self.happened(Event::Drained(drained))?;
        Ok(true)
    }

    /// Lets a worker look for a key. Returns true if it has found one.
    fn poll(&mut self, place: usize) -> Result<bool, Broken> {
        self.steps += 1;
        match self.seats[place].poll(&self.sim.queue, self.sim.batch) {
            Found::Nothing | Found::End => Ok(false),
            Found::One(item) => self.begin(place, item).map(|()| true),
            Found::Many(mut items) => {
                while let Some(item) = items.pop_front() {
                    self.begin(place, item)?;
                }
                Ok(true)
            }
        }
    }

    /// Begins the run of a key that a worker has got.
    fn begin(&mut self, place: usize, item: Item<'static, K, V>) -> Result<(), Broken> {
        let (now, key) = (self.world.now, item.key().clone());
        let log = self.world.log(&key);
        let waited = now.saturating_since(log.ready_since(now).unwrap_or(now));
        log.runs += 1;
        log.at_once = if log.began == Some(now) { log.at_once + 1 } else { 0 };
        log.longest_wait = log.longest_wait.max(waited);
        log.began = Some(now);
        log.owed = false;
        let (number, at_once, leaked) = (log.runs, log.at_once, log.leaked);
        let (attempt, priority, value) = (item.attempt(), item.priority(), item.value().cloned());
        let run = Run { key, value, number, attempt, priority, worker: place, began: now, waited };
        let mut rng = Rng::new(mix(&[self.seed, hash_of(&run.key.to_string()), now.as_nanos(), at_once]));
        let mut plan = (self.sim.handler)(&run, &mut rng);
        plan.calls.sort_by_key(|(after, _)| *after);
        if let Some(told) = &mut self.told {
            let (at, key) = (since_origin(now), Quoted(&run.key));
            let value = run.value.as_ref().map(|value| format!(" with {}", Quoted(&value.to_text())));
            let _ = writeln!(
                told,
                "# {at} worker {place} begins {key}{}: attempt {attempt}, waited {}; takes {}",
                value.unwrap_or_default(),
                Seconds(waited),
                Seconds(plan.takes)
            );
        }
        let other = self.world.running().find(|other| other.key == run.key).map(|other| other.worker);
        self.world.runs += 1;
        self.world.running[place].push(run.clone());
        self.seats[place].going.push(Going::new(item, plan, now));
        self.happened(Event::Began(run))?;
        let why = match other {
            Some(other) => format!("workers {other} and {place} have the same one"),
            None if leaked => format!("worker {place} has one whose guard was leaked"),
            None => return Ok(()),
        };
        Err(("a key is held by one worker at a time".into(), why))
    }

    /// Lets a run call the queue, or end.
    fn go_on(&mut self, place: usize) -> Result<(), Broken> {
        let seat = &mut self.seats[place];
        let Some((_, which)) = seat.next() else { return Ok(()) };
        if let Some(call) = seat.going[which].call() {
            return self.call(call, Some(place));
        }
        let Going { item, plan, .. } = seat.going.remove(which);
        let run = self.world.running[place].remove(which);
        // it looks for its next key by itself
        let is_last = seat.going.is_empty() && !seat.away;
        let mut next = None;
        let taken = if plan.end == End::Next && is_last {
            seat.look = Some(Look::One(item.next()));
            match seat.poll(&self.sim.queue, 1) {
                Found::One(item) => {
                    // it may be the same key, whose next run begins before the end is reported
                    self.world.log(item.key()).owed = false;
                    next = Some(item);
                }
                Found::Nothing | Found::End | Found::Many(_) => (),
            }
            true
        } else {
            seat.asleep.wake();
            end_run(item, plan.end)
        };
        let now = self.world.now;
        let log = self.world.log(&run.key);
        log.ended = Some(now);
        log.leaked = plan.end == End::Leak;
        log.failures +=
            u64::from(matches!(plan.end, End::Retry | End::RetryAfter(_) | End::GiveUp | End::Panic));
        if let Some(told) = &mut self.told {
            let at = since_origin(self.world.now);
            let refused = if taken { "" } else { ", refused" };
            let _ = writeln!(told, "# {at} worker {place} ends {}: {}{refused}", Quoted(&run.key), plan.end);
        }
        self.happened(Event::Ended { run, end: plan.end, taken })?;
        next.map_or(Ok(()), |item| self.begin(place, item))
    }

    /// Checks, before time moves on, that no one waits for something that is available. `looked`: a call has
    /// looked at this instant, and so fired what is due.
    fn nobody_was_forgotten(&mut self, looked: bool) -> Result<(), Broken> {
        let idle = self.seats.iter().position(SimWorker::is_idle);
        // a look, which fires timers: only if a worker would have looked at this instant
        if let Some(place) = idle.filter(|_| !self.sim.queue.is_empty()) {
            if self.poll(place)? {
                let key = self.world.running[place].first().map(|run| Quoted(&run.key).to_string());
                let why =
                    format!("worker {place} was not woken, and could have had {}", key.unwrap_or_default());
                return Err(("a worker that waits is woken".into(), why));
            }
        }
        let number = self.adders.len() as u64;
        // without a look, a key that a timer makes ready makes no room yet
        if number > 0 && looked {
            // one of them, as there may be very many: another one at another instant
            let place = (mix(&[self.seed, self.world.now.as_nanos()]) % number) as usize;
            let key = Quoted(&self.adders[place].trigger.key).to_string();
            if self.sim.queue.stats().room != Some(0) || self.poll_adder(place)? {
                let why = format!("the callers that wait for room were not woken, one of them with {key}");
                return Err(("a caller that waits for room is woken".into(), why));
            }
        }
        for place in 0..self.drains.len() {
            if self.poll_drain(place)? {
                return Err(("a drain that waits is woken".into(), "it was not woken at its end".into()));
            }
        }
        Ok(())
    }

    /// Records the queue's state of the key, and checks the invariants.
    fn happened(&mut self, event: Event<K, V>) -> Result<(), Broken> {
        self.steps += 1;
        let key = match &event {
            Event::Called { call, .. } | Event::Answered { call, .. } => call.key(),
            Event::Began(run) | Event::Ended { run, .. } => Some(&run.key),
            Event::Drained(_) | Event::Over => None,
        };
        if let Some(key) = key.cloned() {
            let state = self.world.look(&key);
            let pending = state.ready || state.dirty || state.waiting_until.is_some();
            // a shutdown drops timers, and a queue with a bound may drop its oldest key for another
            let keeps_all = !self.sim.queue.shutting_down() && self.sim.queue.stats().room.is_none();
            if self.world.log(&key).owed && !pending && keeps_all {
                let why = format!("{} was triggered, and has no further run", Quoted(&key));
                return Err(("no trigger is lost".into(), why));
            }
        }
        self.world.event = event;
        for invariant in &mut self.sim.invariants {
            if let Err(why) = (invariant.check)(&self.world) {
                return Err((invariant.name.clone(), why));
            }
        }
        Ok(())
    }
}

/// Ends a run. Returns false if the queue refused the end.
fn end_run<K: Key, V: Value>(item: Item<'static, K, V>, end: End) -> bool {
    match end {
        End::Done => item.succeed(),
        End::Next => drop(item.next()),
        End::Retry => return item.retry().is_ok(),
        End::RetryAfter(delay) => return item.retry_after(delay).is_ok(),
        End::Again(delay) => return item.again(delay).is_ok(),
        End::GiveUp => item.give_up("the plan gives it up"),
        End::Panic => {
            // without the hook: there is no reader for it
            let unwound = catch_unwind(AssertUnwindSafe(move || {
                let _item = item;
                resume_unwind(Box::new("a panic that is played"));
            }));
            drop(unwound);
        }
        End::Drop => drop(item),
        End::Leak => mem::forget(item),
    }
    true
}

/// FNV-1a: equal on every machine, as the random numbers that depend on it must be.
fn hash_of(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

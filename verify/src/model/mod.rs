//! The contract as a reference model: plain vectors and maps, slow and clear.
//!
//! It is one thread's view of a queue: every call is one step, and the answer
//! of each step follows from the contract's sentences, which the comments quote.
//! Nothing here is shared with the library, not even the limiter's arithmetic.

mod drain;

pub use drain::{Down, DrainId, Drained, Waiters};

use std::collections::BTreeMap;

/// Nanoseconds, on the model's clock and as delays; `u64::MAX` is never.
pub type Nanos = u64;

/// How the queue was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The order of the ready line.
    pub order: Order,
    /// `timers absorbed` (D6).
    pub absorbed: bool,
    /// A guard dropped without a word ends as `retry` does (Q12).
    pub unfinished_retries: bool,
    /// The exponential limiter's first delay.
    pub base: Nanos,
    /// The exponential limiter's longest delay.
    pub max: Nanos,
}

/// The order of the ready line (B10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    #[default]
    Fifo,
    /// Newest first.
    Lifo,
    /// A user's own order: the smallest key first, and a key that is touched
    /// three times goes before all others.
    Custom,
}

/// What a trigger with a delay does with a timer that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Keeps the earlier.
    Earliest,
    /// Keeps the later, at most this long after the timer was first set.
    Latest(Nanos),
    /// Takes the new one.
    Replace,
    /// Keeps what is there.
    Keep,
}

/// What became of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The key became ready.
    Ready,
    /// The held key became dirty.
    Dirty,
    /// A timer was set or moved.
    Waiting,
    /// Joined what was pending.
    Coalesced,
}

/// Why nothing is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// Not now.
    Empty,
    /// Not any more.
    ShutDown,
}

/// A trigger or retry that is refused changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// A run: what `get` hands out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Tells this run from another of the same key.
    pub id: u64,
    /// The key.
    pub key: u64,
    /// The merged value.
    pub value: Option<Vec<u32>>,
    /// The attempt.
    pub attempt: u32,
}

/// What is known of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// In the ready line.
    pub ready: bool,
    /// A worker has it.
    pub held: bool,
    /// Held, with one more run to come.
    pub dirty: bool,
    /// When its timer fires.
    pub due: Option<Nanos>,
}

/// How many keys are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ready.
    pub ready: usize,
    /// Held.
    pub held: usize,
    /// Held and dirty.
    pub dirty: usize,
    /// With a timer.
    pub waiting: usize,
}

/// What the metrics were told (M).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Keys that became ready or dirty.
    pub adds: u64,
    /// Accepted add_after and add_rate_limited, and holders' likes.
    pub retries: u64,
    /// Of each run, from its first trigger to its start.
    pub waited: Vec<Nanos>,
    /// Of each run, from its start to its end.
    pub worked: Vec<Nanos>,
    /// How each of these ended.
    pub ends: Vec<End>,
    /// Accepted triggers that changed nothing.
    pub coalesced: u64,
    /// Timers that fired. How late depends on who looked when, which the model does
    /// not know: "promotion may be lazy" (D4).
    pub fired: u64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Done, or dropped.
    Done,
    /// It comes again, and did not fail.
    Again,
    /// It failed and comes again.
    Retry,
    /// It failed and does not.
    GiveUp,
}

/// What the gauges show (M).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauges {
    /// How many keys are where.
    pub keys: Counts,
    /// How long the key that has been ready the longest has been so.
    pub oldest_ready: Nanos,
    /// How long all runs that go on have taken together.
    pub unfinished: Nanos,
    /// How long the longest of them has taken.
    pub longest: Nanos,
}

#[derive(Clone, Debug)]
struct Timer {
    due: Nanos,
    /// The place among equal due instants: the call that set this instant (D5).
    call: u64,
    /// The first `latest` since another call set the timer: from here its
    /// maximum counts.
    window: Option<Nanos>,
    /// Set by the outcome of a run, and no other run has started since: the run
    /// it brings is the next attempt, not a first one.
    by_outcome: bool,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    ready: bool,
    /// The run that holds the key.
    run: Option<u64>,
    dirty: bool,
    timer: Option<Timer>,
    /// The value slot (B1).
    slot: Option<Vec<u32>>,
    /// Runs in a row that failed before the next one.
    failed: u32,
    /// The first trigger of the next run.
    since: Nanos,
    /// When the key became ready.
    ready_since: Nanos,
    /// When the run that goes on started.
    started: Nanos,
}

/// Who may still make triggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// Outside triggers are refused, holders' are taken (Q14).
    Closed,
    ShutDown,
}

/// The model of a queue.
#[derive(Clone, Debug)]
pub struct Model {
    options: Options,
    now: Nanos,
    /// What the clock showed, which is later than `now` while what came before a
    /// drain's deadline is made up for.
    reading: Nanos,
    keys: BTreeMap<u64, Entry>,
    /// The ready keys in the order in which they became ready.
    line: Vec<u64>,
    /// Touches of ready keys, for the order of the user's own.
    touches: BTreeMap<u64, u32>,
    /// The limiter's records.
    failures: BTreeMap<u64, u32>,
    phase: Phase,
    /// A drain that waits for waiting keys is under way, until this deadline.
    drain_waits: Option<Nanos>,
    drains: drain::Drains,
    /// Triggers from outside that were refused.
    refused: usize,
    /// Retries of holders that were refused.
    refused_retries: usize,
    calls: u64,
    runs: u64,
    told: Told,
}

impl Model {
    /// An empty queue at instant 0.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            now: 0,
            reading: 0,
            keys: BTreeMap::new(),
            line: Vec::new(),
            touches: BTreeMap::new(),
            failures: BTreeMap::new(),
            phase: Phase::Open,
            drain_waits: None,
            drains: drain::Drains::default(),
            refused: 0,
            refused_retries: 0,
            calls: 0,
            runs: 0,
            told: Told::default(),
        }
    }

    /// A call begins that is no look, and `reading` is what the clock showed it, if it
    /// has read the clock. "They fire nothing."
    ///
    /// One that comes after the deadline of a drain that waits meets a queue that is
    /// shut down.
    pub fn hold(&mut self, reading: Option<Nanos>) {
        let Some(now) = reading.map(|now| self.now.max(now)) else { return };
        if self.drain_waits.is_some_and(|deadline| deadline <= now) {
            return self.look(now);
        }
        self.now = now;
        self.reading = now;
    }

    /// A look begins, and the clock shows `now`.
    ///
    /// "Before a look answers, the timers due by its reading fire, by due instant, then
    /// by call."
    ///
    /// However late somebody looks, a drain that waits shuts down at its deadline:
    /// what is due later does not run any more.
    pub fn look(&mut self, now: Nanos) {
        let now = self.now.max(now);
        self.reading = now;
        if let Some(deadline) = self.drain_waits.filter(|deadline| *deadline <= now) {
            self.pass_to(deadline.max(self.now));
        }
        self.pass_to(now);
    }

    fn pass_to(&mut self, now: Nanos) {
        self.now = now;
        while let Some((_, _, key)) = self.timers().into_iter().find(|(due, ..)| *due <= now) {
            self.fire(key);
        }
        self.drains_may_end();
    }

    /// All timers by due instant, then by call.
    fn timers(&self) -> Vec<(Nanos, u64, u64)> {
        let mut timers = Vec::new();
        for (key, entry) in &self.keys {
            if let Some(timer) = &entry.timer {
                timers.push((timer.due, timer.call, *key));
            }
        }
        timers.sort_unstable();
        timers
    }

    /// When the next timer fires.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        self.timers().first().map(|(due, ..)| *due)
    }

    /// "A call that reads the clock for a delay of its own and meets a timer of its own
    /// key that is due by that reading takes it as fired first."
    fn fire_if_due(&mut self, key: u64) {
        let timer = self.keys.get(&key).and_then(|entry| entry.timer.as_ref());
        if timer.is_some_and(|timer| timer.due <= self.now) {
            self.fire(key);
        }
    }

    fn fire(&mut self, key: u64) {
        let entry = self.keys.get_mut(&key).expect("a timer belongs to a key");
        let timer = entry.timer.take().expect("it was found by its timer");
        // "For a timer it begins at the due instant" (M), also where a drain
        // fires it early: then now.
        let since = timer.due.min(self.now);
        // one that a drain fires before its time is none
        self.told.fired += u64::from(timer.due <= self.reading);
        self.make_due(key, timer.by_outcome, since);
    }

    /// Makes a key ready, or dirty when it is held. "A trigger for an already
    /// ready key changes nothing"; nor does one for a dirty key.
    fn make_due(&mut self, key: u64, by_outcome: bool, since: Nanos) -> Added {
        // in the order of becoming ready, which is not that of due instants where nobody
        // looked in between
        let others = self.keys.values().filter(|e| e.ready).map(|e| e.ready_since).max().unwrap_or(0);
        let entry = self.keys.entry(key).or_default();
        if entry.run.is_some() {
            if entry.dirty {
                return Added::Coalesced;
            }
            entry.dirty = true;
            entry.since = since;
            self.told.adds += 1;
            // "They restart at 1 when a trigger other than the outcome's own, or
            // a timer set before the hand-out, makes a held key dirty".
            entry.failed = 0;
            return Added::Dirty;
        }
        if entry.ready {
            return Added::Coalesced;
        }
        if !by_outcome {
            // "or readies one that waits out a failure".
            entry.failed = 0;
        }
        entry.ready = true;
        entry.since = since;
        entry.ready_since = since.max(others);
        self.told.adds += 1;
        self.line.push(key);
        Added::Ready
    }

    /// `add`, with or without a value.
    ///
    /// # Errors
    ///
    /// Refused once the queue is closed.
    pub fn add(&mut self, key: u64, value: Option<u32>) -> Result<Added, Refused> {
        self.outside()?;
        let added = self.trigger_now(key);
        self.merge_newer(key, value);
        self.told.coalesced += u64::from(added == Added::Coalesced);
        Ok(added)
    }

    /// A trigger for now, which an order of the user's own hears as a touch
    /// where the key is ready. A timer that fires is no touch: "a timer that
    /// fires for a ready or dirty key changes nothing but priority" (D6).
    fn trigger_now(&mut self, key: u64) -> Added {
        if self.keys.get(&key).is_some_and(|entry| entry.ready) {
            *self.touches.entry(key).or_default() += 1;
        }
        self.make_due(key, false, self.now)
    }

    /// `add_after` with its policy.
    ///
    /// # Errors
    ///
    /// Refused once the queue is closed.
    pub fn add_after(
        &mut self,
        key: u64,
        delay: Nanos,
        policy: Policy,
        value: Option<u32>,
    ) -> Result<Added, Refused> {
        self.outside()?;
        self.told.retries += 1;
        if delay > 0 {
            self.fire_if_due(key);
        }
        // "A delay of zero is `add`, under every policy; a timer that is set
        // stays set" (D1).
        let added =
            if delay == 0 { self.trigger_now(key) } else { self.set_timer(key, delay, policy, false) };
        self.merge_newer(key, value);
        self.told.coalesced += u64::from(added == Added::Coalesced);
        Ok(added)
    }

    /// `add_rate_limited`: `add_after(k, limiter.when(&k, now))`. "Every accepted
    /// call asks the limiter once, duplicates too."
    ///
    /// # Errors
    ///
    /// Refused once the queue is closed; the limiter is not asked.
    pub fn add_rate_limited(&mut self, key: u64, value: Option<u32>) -> Result<Added, Refused> {
        self.outside()?;
        self.fire_if_due(key);
        let delay = self.when(key);
        self.add_after(key, delay, Policy::Earliest, value)
    }

    fn outside(&mut self) -> Result<(), Refused> {
        if self.phase == Phase::Open {
            return Ok(());
        }
        self.refused += 1;
        Err(Refused)
    }

    fn set_timer(&mut self, key: u64, delay: Nanos, policy: Policy, by_outcome: bool) -> Added {
        self.calls += 1;
        let (now, call) = (self.now, self.calls);
        let due = now.saturating_add(delay);
        let old = self.keys.get(&key).and_then(|entry| entry.timer.clone());
        let mut window = old.as_ref().and_then(|timer| timer.window);
        let chosen = match (policy, &old) {
            (Policy::Latest(max), _) => {
                let began = *window.get_or_insert(now);
                let latest = due.min(began.saturating_add(max));
                old.as_ref().map_or(latest, |timer| timer.due.max(latest))
            }
            (Policy::Keep, Some(timer)) => timer.due,
            (Policy::Earliest, Some(timer)) => timer.due.min(due),
            (Policy::Replace, _) | (_, None) => due,
        };
        // A maximum of zero is a delay of zero.
        if chosen <= now {
            return if by_outcome { self.make_due(key, true, now) } else { self.trigger_now(key) };
        }
        let entry = self.keys.entry(key).or_default();
        if let Some(old) = old.filter(|timer| timer.due == chosen) {
            // "A call that does not change the instant keeps the place" (D5).
            entry.timer = Some(Timer { window, ..old });
            return Added::Coalesced;
        }
        if !matches!(policy, Policy::Latest(_)) {
            window = None;
        }
        entry.timer = Some(Timer { due: chosen, call, window, by_outcome });
        Added::Waiting
    }

    /// "Every accepted trigger merges into it at the call, older first" (B1).
    fn merge_newer(&mut self, key: u64, value: Option<u32>) {
        if let Some(value) = value {
            self.keys.entry(key).or_default().slot.get_or_insert_with(Vec::new).push(value);
        }
    }

    fn when(&mut self, key: u64) -> Nanos {
        let failures = self.failures.entry(key).or_default();
        let mut delay = self.options.base;
        for _ in 0..(*failures).min(64) {
            delay = delay.saturating_mul(2);
        }
        *failures += 1;
        delay.min(self.options.max)
    }

    /// `forget`: "clears the limiter's record of the key and leaves a timer alone".
    pub fn forget(&mut self, key: u64) {
        self.failures.remove(&key);
    }

    /// `num_requeues`.
    #[must_use]
    pub fn num_requeues(&self, key: u64) -> u32 {
        self.failures.get(&key).copied().unwrap_or(0)
    }

    /// `try_get`.
    ///
    /// # Errors
    ///
    /// "Shut down only when the queue is shut down and no key is ready or dirty,
    /// nor waiting under a drain that waits" (Q7); empty otherwise.
    pub fn try_get(&mut self) -> Result<Run, Nothing> {
        let Some(key) = self.pop() else {
            return Err(if self.is_over() { Nothing::ShutDown } else { Nothing::Empty });
        };
        self.runs += 1;
        let entry = self.keys.get_mut(&key).expect("a ready key is known");
        entry.ready = false;
        entry.run = Some(self.runs);
        entry.started = self.now;
        self.told.waited.push(self.now - entry.since);
        let attempt = entry.failed + 1;
        entry.failed = 0;
        // "A run that starts absorbs the timers that were set before it started" (D6).
        if self.options.absorbed {
            entry.timer = None;
        }
        if let Some(timer) = &mut entry.timer {
            // From here it is "a timer set before the hand-out".
            timer.by_outcome = false;
        }
        Ok(Run { id: self.runs, key, value: entry.slot.take(), attempt })
    }

    /// "Get up to n under one lock" (B9): as many gets as there are keys, at most
    /// `most`. Asked for none it says the end, but nothing else.
    ///
    /// # Errors
    ///
    /// As [`try_get`](Self::try_get).
    pub fn get_many(&mut self, most: usize) -> Result<Vec<Run>, Nothing> {
        if most == 0 {
            return if self.is_over() { Err(Nothing::ShutDown) } else { Ok(Vec::new()) };
        }
        let first = self.try_get()?;
        let mut runs = vec![first];
        while runs.len() < most {
            let Ok(run) = self.try_get() else { break };
            runs.push(run);
        }
        Ok(runs)
    }

    /// Whether a getter is told "shut down".
    #[must_use]
    pub fn is_over(&self) -> bool {
        let left = self.counts();
        self.phase == Phase::ShutDown && left.ready == 0 && left.dirty == 0
    }

    fn pop(&mut self) -> Option<u64> {
        let index = match self.options.order {
            Order::Fifo => 0,
            Order::Lifo => self.line.len().checked_sub(1)?,
            Order::Custom => {
                let urgent = |key: &u64| self.touches.get(key).is_none_or(|touches| *touches < 3);
                (0..self.line.len()).min_by_key(|i| (urgent(&self.line[*i]), self.line[*i]))?
            }
        };
        if index >= self.line.len() {
            return None;
        }
        let key = self.line.remove(index);
        self.touches.remove(&key);
        Some(key)
    }

    /// Whether this run still holds its key: `done` by key ends runs too.
    #[must_use]
    pub fn holds(&self, run: &Run) -> bool {
        self.keys.get(&run.key).is_some_and(|entry| entry.run == Some(run.id))
    }

    /// Ends a run: "at `done` it goes to the back of the line" (Q4).
    pub fn end(&mut self, run: &Run) {
        self.end_as(run, End::Done);
    }

    fn end_as(&mut self, run: &Run, end: End) {
        if !self.holds(run) {
            return;
        }
        self.drains.run_ended();
        let entry = self.keys.get_mut(&run.key).expect("it holds the key");
        entry.run = None;
        self.told.worked.push(self.now - entry.started);
        self.told.ends.push(end);
        if entry.dirty {
            entry.dirty = false;
            entry.ready = true;
            entry.ready_since = self.now;
            self.line.push(run.key);
        }
        self.tidy(run.key);
        self.drains_may_end();
    }

    /// Forgets a key that nothing refers to. "The slot dies with the key's last
    /// reason to run" (B1).
    fn tidy(&mut self, key: u64) {
        let Some(entry) = self.keys.get_mut(&key) else { return };
        if !entry.ready && !entry.dirty && entry.timer.is_none() {
            entry.slot = None;
            if entry.run.is_none() {
                self.keys.remove(&key);
            }
        }
    }

    /// A run inside a batch, or inside its iterator, through which a panic unwinds: "put
    /// back (attempts and failures unchanged; to the back of the line, counted as neither
    /// done nor add), under every setting" (Q12).
    pub fn put_back(&mut self, run: &Run) {
        if !self.holds(run) {
            return;
        }
        // getters were told that all is over: nobody may be left to take it
        if self.is_over() {
            self.refused_retries += 1;
            return self.end(run);
        }
        let entry = self.keys.get_mut(&run.key).expect("it holds the key");
        entry.run = None;
        // a trigger that made it dirty restarted the attempts (W)
        if !std::mem::take(&mut entry.dirty) {
            entry.failed = run.attempt - 1;
        }
        // "in front of what came meanwhile" (B1)
        if let Some(mut old) = run.value.clone() {
            old.extend(entry.slot.take().unwrap_or_default());
            entry.slot = Some(old);
        }
        entry.ready = true;
        entry.ready_since = self.now;
        self.line.push(run.key);
    }

    /// `done` by key; whether the key was held.
    pub fn done(&mut self, key: u64) -> bool {
        let Some(id) = self.keys.get(&key).and_then(|entry| entry.run) else { return false };
        self.end(&Run { id, key, value: None, attempt: 0 });
        true
    }

    /// `succeed`: forget and done.
    pub fn succeed(&mut self, run: &Run) {
        self.forget(run.key);
        self.end(run);
    }

    /// `give_up`: "reported, forgotten" (W).
    pub fn give_up(&mut self, run: &Run) {
        self.forget(run.key);
        self.end_as(run, End::GiveUp);
    }

    /// `retry`, with the limiter's delay or one of its own: "with its own delay
    /// the limiter is still asked and its delay replaced" (W).
    ///
    /// # Errors
    ///
    /// Refused where holders' triggers are; the run goes on.
    pub fn retry(&mut self, run: &Run, own: Option<Nanos>) -> Result<Nanos, Refused> {
        self.holders(run)?;
        let asked = self.when(run.key);
        let delay = own.unwrap_or(asked);
        self.back(run, delay, true);
        Ok(delay)
    }

    /// `again`: "not a failure: forgets, then add_after" (W).
    ///
    /// # Errors
    ///
    /// Refused where holders' triggers are; the run goes on.
    pub fn again(&mut self, run: &Run, delay: Nanos) -> Result<(), Refused> {
        self.holders(run)?;
        self.forget(run.key);
        self.back(run, delay, false);
        Ok(())
    }

    fn back(&mut self, run: &Run, delay: Nanos, failed: bool) {
        self.told.retries += 1;
        self.fire_if_due(run.key);
        let entry = self.keys.get_mut(&run.key).expect("it holds the key");
        // "A retry merges the old value in front of what came meanwhile" (B1);
        // "payloads of failed runs go back" (W), others do not.
        if let Some(mut old) = run.value.clone().filter(|_| failed) {
            old.extend(entry.slot.take().unwrap_or_default());
            entry.slot = Some(old);
        }
        let restarted = entry.dirty;
        if delay == 0 {
            self.told.adds += u64::from(!restarted);
            entry.since = if restarted { entry.since } else { self.now };
            entry.dirty = true;
        } else {
            self.set_timer(run.key, delay, Policy::Earliest, true);
        }
        let entry = self.keys.get_mut(&run.key).expect("it holds the key");
        entry.failed = if failed && !restarted { run.attempt } else { 0 };
        self.end_as(run, if failed { End::Retry } else { End::Again });
    }

    fn holders(&mut self, run: &Run) -> Result<(), Refused> {
        // "A guard whose run was ended that way is inert" (Q12).
        if !self.holds(run) {
            return Err(Refused);
        }
        if self.phase == Phase::ShutDown {
            self.refused_retries += 1;
            return Err(Refused);
        }
        Ok(())
    }

    /// A guard that is dropped without a word.
    pub fn drop_guard(&mut self, run: &Run) {
        if self.holds(run) && self.options.unfinished_retries && self.retry(run, None).is_ok() {
            return;
        }
        self.end(run);
    }

    /// `len`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.line.len()
    }

    /// `is_empty`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// `stats`.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let count = |test: &dyn Fn(&Entry) -> bool| self.keys.values().filter(|entry| test(entry)).count();
        Counts {
            ready: count(&|entry| entry.ready),
            held: count(&|entry| entry.run.is_some()),
            dirty: count(&|entry| entry.dirty),
            waiting: count(&|entry| entry.timer.is_some()),
        }
    }

    /// What the metrics were told.
    #[must_use]
    pub fn told(&self) -> &Told {
        &self.told
    }

    /// The gauges.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let held = self.keys.values().filter(|entry| entry.run.is_some());
        let running: Vec<Nanos> = held.map(|entry| self.now - entry.started).collect();
        let ready = self.keys.values().filter(|entry| entry.ready);
        Gauges {
            keys: self.counts(),
            oldest_ready: ready.map(|entry| self.now - entry.ready_since).max().unwrap_or(0),
            unfinished: running.iter().sum(),
            longest: running.iter().max().copied().unwrap_or(0),
        }
    }

    /// `state`: `None` for a key that is neither ready, held nor waiting.
    #[must_use]
    pub fn state(&self, key: u64) -> Option<Seen> {
        let entry = self.keys.get(&key)?;
        Some(Seen {
            ready: entry.ready,
            held: entry.run.is_some(),
            dirty: entry.dirty,
            due: entry.timer.as_ref().map(|timer| timer.due),
        })
    }
}

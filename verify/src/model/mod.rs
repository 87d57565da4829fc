//! The contract as a reference model: plain vectors and maps, slow and clear.
//!
//! It is one thread's view of a queue: every call is one step, and the result of each step follows from the
//! contract's sentences, which the comments quote. Nothing here is shared with the library, not even the
//! limiter's arithmetic.

mod bound;
mod control;
mod drain;
mod fair;
mod overdue;
mod pause;
mod rate;
mod unfinished;
mod window;

pub use bound::Dropped;
pub use control::{Cancelled, Restored};
pub use drain::{Down, DrainId, Drained, Waiters};
pub use fair::{Fair, Grouping};
pub use overdue::MaxWait;
pub use rate::Rate;
pub use unfinished::Unfinished;
pub use window::Debounce;

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Nanoseconds, on the model's clock and as delays; `u64::MAX` is never.
pub type Nanos = u64;

/// The queue's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The order of the ready line.
    pub order: Order,
    /// Rate limit of hand-outs (B6).
    pub rate: Option<Rate>,
    /// `timers absorbed` (D6).
    pub absorbed: bool,
    /// A guard dropped without a word ends as `retry` does (Q12).
    pub unfinished_retries: bool,
    /// Default behaviour of a trigger in a back-off (B5).
    pub in_backoff: InBackoff,
    /// Default debounce of immediate triggers (B4).
    pub debounce: Option<Debounce>,
    /// Maximum number of known keys (B8).
    pub bound: Option<usize>,
    /// The key that has been ready longest makes room for another.
    pub drop_oldest: bool,
    /// The exponential limiter's first delay.
    pub base: Nanos,
    /// The exponential limiter's longest delay.
    pub max: Nanos,
    /// Its records expire so long after the end of the last delay that they gave.
    pub expire_after: Option<Nanos>,
}

/// The order of the ready line (B10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    #[default]
    Fifo,
    /// Newest first.
    Lifo,
    /// A user's own order: the smallest key first, and a key that is touched three times before all others.
    Custom,
    /// The highest priority first (B2).
    Priority {
        /// Age at which keys are overdue, and their share of the hand-outs.
        max_wait: Option<MaxWait>,
    },
    /// Groups take turns (B3).
    Fair(Fair),
}

/// Effect of a delayed trigger on a timer that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Keeps the earlier.
    Earliest,
    /// Keeps the later, at most this long after the timer was first set.
    Latest(Nanos),
    /// Takes the new one.
    Replace,
    /// Keeps the existing one.
    Keep,
}

/// Behaviour of a trigger for a key that waits out a failure, or whose run fails (B5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InBackoff {
    /// It runs now.
    #[default]
    Run,
    /// It joins the back-off's run.
    Respect,
    /// The back-off and its failures are forgotten, and it runs now.
    Reset,
}

/// The caller that sets a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setter {
    /// A trigger from outside.
    Trigger(InBackoff),
    /// A trigger from outside that asked the limiter.
    Limited(InBackoff),
    /// The outcome of a run that did not fail.
    Again,
    /// The outcome of a run that failed.
    Retry,
}

impl Setter {
    fn in_backoff(self) -> InBackoff {
        match self {
            Self::Trigger(in_backoff) | Self::Limited(in_backoff) => in_backoff,
            Self::Again | Self::Retry => InBackoff::Run,
        }
    }
}

/// Result of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The key became ready.
    Ready,
    /// The held key became dirty.
    Dirty,
    /// A timer was set or moved.
    Waiting,
    /// It joined what was pending.
    Coalesced,
}

/// Why nothing is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// No key now.
    Empty,
    /// No key any more.
    ShutDown,
}

/// A trigger or retry that is refused changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The queue takes no triggers any more, or the run has ended.
    Over,
    /// The queue has no priorities.
    NoPriorities,
    /// No room.
    Full,
}

/// A run, as handed out by `get`.
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
    /// The priority with which it was handed out.
    pub priority: i16,
}

/// State of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whether it is in the ready line.
    pub ready: bool,
    /// A worker has it.
    pub held: bool,
    /// Held, with one more run to come.
    pub dirty: bool,
    /// Instant when its timer fires.
    pub due: Option<Nanos>,
    /// Whether it was paused by itself.
    pub paused: bool,
    /// Whether one of its groups is paused, but not the key itself.
    pub group_paused: bool,
}

/// Number of keys in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ready.
    pub ready: usize,
    /// Held.
    pub held: usize,
    /// Held and dirty.
    pub dirty: usize,
    /// Keys with a timer.
    pub waiting: usize,
}

/// Totals reported to the metrics (M).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Keys that became ready or dirty.
    pub adds: u64,
    /// Accepted add_after and add_rate_limited, and holders' likes.
    pub retries: u64,
    /// For each run, the time from its first trigger to its start.
    pub waited: Vec<Nanos>,
    /// For each run, the time from its start to its end.
    pub worked: Vec<Nanos>,
    /// The end of each run.
    pub ends: Vec<End>,
    /// Accepted triggers that changed nothing.
    pub coalesced: u64,
    /// Number of timers that fired. Their lateness depends on who looked when, which the model does not know:
    /// "promotion may be lazy" (D4).
    pub fired: u64,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Done, or dropped.
    Done,
    /// It comes again without a failure.
    Again,
    /// It failed and comes again.
    Retry,
    /// It failed and gave up.
    GiveUp,
}

/// Values of the gauges (M).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauges {
    /// Number of keys in each state.
    pub keys: Counts,
    /// Age of the key that has been ready the longest.
    pub oldest_ready: Nanos,
    /// Total time of all current runs.
    pub unfinished: Nanos,
    /// Time of the longest current run.
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
    /// Set by the outcome of a run, with no other run started since: the next run is the next attempt, not a
    /// first one.
    by_outcome: bool,
    /// Set through the limiter, and no run has started since: the key waits out a
    /// failure (B5).
    back_off: bool,
    /// Set during the run that is on, by triggers that all respect a back-off.
    respects: bool,
    /// The highest priority of the triggers that asked for it (B2).
    priority: i16,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    ready: bool,
    /// The run that holds the key.
    run: Option<u64>,
    dirty: bool,
    /// Whether it is dirty, and all triggers that made it so respect a back-off.
    respects: bool,
    /// A trigger that resets came during the run that is on.
    reset: bool,
    timer: Option<Timer>,
    window: Option<window::Window>,
    /// The request of the run that is on, if that was refused.
    refused: Option<unfinished::Left>,
    /// The value slot (B1).
    slot: Option<Vec<u32>>,
    /// Runs in a row that failed before the next one.
    failed: u32,
    /// The first trigger of the next run.
    since: Nanos,
    /// Instant when the key became ready.
    ready_since: Nanos,
    /// Instant when the current run started.
    started: Nanos,
    /// The priority of the next run, while it is ready or dirty.
    priority: i16,
    /// Whether it was paused by itself.
    paused: bool,
    /// Instant when it entered the line, for the order.
    in_line_since: Nanos,
}

impl Entry {
    /// Whether it counts for the bound: a window that owes no run is no reason.
    fn counts(&self) -> bool {
        let owes = self.window.as_ref().is_some_and(|window| window.owes);
        self.ready || self.run.is_some() || self.timer.is_some() || owes
    }

    /// Instant when its timer fires, or its window ends.
    fn due(&self) -> Option<Nanos> {
        let timer = self.timer.as_ref().map(|timer| timer.due);
        let window = self.window.as_ref().map(|window| window.ends);
        timer.into_iter().chain(window).min()
    }
}

/// An event at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Timer,
    Window,
}

/// The phase of a shutdown, which decides which triggers are still admitted.
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
    /// The clock's reading. It is later than `now` while events before a drain's deadline are made up for.
    reading: Nanos,
    keys: BTreeMap<u64, Entry>,
    /// The ready keys that are not paused, in the order in which they became so.
    line: Vec<u64>,
    /// Which groups wait for their turn, and in which order.
    turns: fair::Turns,
    /// Credit of the queue's rate.
    credit: Option<rate::Credit>,
    /// Credits of the groups' rates, for groups of which a key was handed out.
    credits: BTreeMap<u64, rate::Credit>,
    /// Groups without a token: the instant of the next token, the order in which they ran out, and the group.
    dry: Vec<(Nanos, u64, u64)>,
    /// Groups have no rates any more.
    rates_are_lifted: bool,
    /// Times of pauses, and the hand-outs that overdue keys got.
    ages: overdue::Ages,
    /// The queue is paused.
    paused: bool,
    /// The keys that are paused, in the order of the calls.
    paused_keys: Vec<u64>,
    /// The groups that are paused, in the order of the calls.
    paused_groups: Vec<u64>,
    /// Touches of ready keys, for the order of the user's own.
    touches: BTreeMap<u64, u32>,
    /// The limiter's records: how many failures, and when the record expires.
    failures: BTreeMap<u64, (u32, Nanos)>,
    phase: Phase,
    /// A drain that waits for waiting keys is under way, until this deadline.
    drain_waits: Option<Nanos>,
    drains: drain::Drains,
    /// Whether that drain works failed keys off and drops other timers.
    only_retries: bool,
    /// The keys that are unfinished, once a drain has begun.
    list: Option<unfinished::List>,
    /// Triggers from outside that were refused.
    refused: usize,
    /// Retries of holders that were refused.
    refused_retries: usize,
    /// Callers that wait for room, in the order in which they began.
    adders: Vec<u64>,
    /// Number of waiting callers before the trigger that is made.
    behind: usize,
    /// Keys that made room.
    dropped: Vec<Dropped>,
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
            turns: fair::Turns::new(),
            credit: options.rate.map(rate::Credit::full),
            credits: BTreeMap::new(),
            dry: Vec::new(),
            rates_are_lifted: false,
            ages: overdue::Ages::default(),
            paused: false,
            paused_keys: Vec::new(),
            paused_groups: Vec::new(),
            touches: BTreeMap::new(),
            failures: BTreeMap::new(),
            phase: Phase::Open,
            drain_waits: None,
            drains: drain::Drains::default(),
            only_retries: false,
            list: None,
            refused: 0,
            refused_retries: 0,
            adders: Vec::new(),
            behind: 0,
            dropped: Vec::new(),
            calls: 0,
            runs: 0,
            told: Told::default(),
        }
    }

    /// Begins a call that is no look. `reading` is the clock's time, if the call has read the clock. "They
    /// fire nothing."
    ///
    /// A call after the deadline of a waiting drain meets a queue that is shut down.
    pub fn hold(&mut self, reading: Option<Nanos>) {
        let Some(now) = reading.map(|now| self.now.max(now)) else { return };
        self.refill(now);
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
    /// However late the look is, a waiting drain shuts down at its deadline: what is due later does not run
    /// any more.
    pub fn look(&mut self, now: Nanos) {
        let now = self.now.max(now);
        self.refill(now);
        self.reading = now;
        if let Some(deadline) = self.drain_waits.filter(|deadline| *deadline <= now) {
            self.pass_to(deadline.max(self.now));
        }
        self.pass_to(now);
    }

    fn pass_to(&mut self, now: Nanos) {
        self.now = now;
        while let Some((_, _, key, kind)) = self.timers().into_iter().find(|(due, ..)| *due <= now) {
            self.fire(key, kind);
        }
        self.drains_may_end();
    }

    /// All timers and ends of windows, by due instant, then by call.
    fn timers(&self) -> Vec<(Nanos, u64, u64, Kind)> {
        let mut timers = Vec::new();
        for (key, entry) in &self.keys {
            if let Some(timer) = &entry.timer {
                timers.push((timer.due, timer.call, *key, Kind::Timer));
            }
            if let Some(window) = &entry.window {
                timers.push((window.ends, window.call, *key, Kind::Window));
            }
        }
        timers.sort_unstable();
        timers
    }

    /// Instant of the next event that no call causes: the next timer fires, or the rate lets a key go.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        let timer = self.timers().first().map(|(due, ..)| *due);
        timer.into_iter().chain(self.next_token()).chain(self.next_group()).min()
    }

    /// "A call that reads the clock for a delay of its own and meets a timer of its own
    /// key that is due by that reading takes it as fired first."
    fn fire_if_due(&mut self, key: u64) {
        let due = |(due, _, other, _): &(Nanos, u64, u64, Kind)| *other == key && *due <= self.now;
        if let Some((.., kind)) = self.timers().into_iter().find(due) {
            self.fire(key, kind);
            self.fire_if_due(key);
        }
    }

    fn fire(&mut self, key: u64, kind: Kind) {
        if kind == Kind::Window {
            return self.end_window(key);
        }
        let entry = self.keys.get_mut(&key).expect("a timer belongs to a key");
        let timer = entry.timer.take().expect("it was found by its timer");
        // "For a timer it begins at the due instant" (M), also where a drain
        // fires it early: then now.
        let since = timer.due.min(self.now);
        // one that a drain fires before its time is none
        self.told.fired += u64::from(timer.due <= self.reading);
        self.make_due(key, timer.by_outcome, timer.respects, since, timer.priority);
    }

    /// Makes a key ready, or dirty when it is held. "A trigger for an already
    /// ready key changes nothing" but its priority, which it "raises, never lowers" (B2);
    /// nor does one for a dirty key.
    ///
    /// `respects`: it respects a back-off. "Of several the strongest wins" (B5).
    fn make_due(
        &mut self,
        key: u64,
        by_outcome: bool,
        respects: bool,
        since: Nanos,
        priority: i16,
    ) -> Accepted {
        let added = self.make_pending(key, by_outcome, respects, since, priority);
        self.sort_turns();
        added
    }

    fn make_pending(
        &mut self,
        key: u64,
        by_outcome: bool,
        respects: bool,
        since: Nanos,
        priority: i16,
    ) -> Accepted {
        // in the order of becoming ready, which is not that of due instants where nobody
        // looked in between
        let others = self.keys.values().filter(|e| e.ready).map(|e| e.ready_since).max().unwrap_or(0);
        let priority = self.cover(key, respects, priority);
        let entry = self.keys.entry(key).or_default();
        // "a dirty key takes the highest of the triggers during its run"
        let pending = entry.ready || entry.dirty;
        entry.priority = if pending { entry.priority.max(priority) } else { priority };
        if entry.run.is_some() {
            if entry.dirty {
                entry.respects &= respects;
                return Accepted::Coalesced;
            }
            entry.dirty = true;
            entry.respects = respects;
            entry.since = since;
            self.told.adds += 1;
            // "They restart at 1 when a trigger other than the outcome's own, or
            // a timer set before the hand-out, makes a held key dirty".
            entry.failed = 0;
            return Accepted::Dirty;
        }
        if entry.ready {
            return Accepted::Coalesced;
        }
        if !by_outcome {
            // "or readies one that waits out a failure".
            entry.failed = 0;
        }
        entry.ready = true;
        entry.since = since;
        entry.ready_since = since.max(others);
        self.told.adds += 1;
        self.stand(key, since);
        Accepted::Ready
    }

    /// `add`, with or without a value.
    ///
    /// # Errors
    ///
    /// Refused once the queue is closed.
    pub fn add(
        &mut self,
        key: u64,
        value: Option<u32>,
        in_backoff: Option<InBackoff>,
        priority: i16,
        debounce: Option<Debounce>,
    ) -> Result<Accepted, Refused> {
        let goes = self.outside(key, priority)?;
        let in_backoff = in_backoff.unwrap_or(self.options.in_backoff);
        let added = self.trigger_at_once(key, in_backoff, priority, debounce);
        self.merge_newer(key, value);
        self.told.coalesced += u64::from(added == Accepted::Coalesced);
        self.make_room(goes);
        Ok(added)
    }

    /// A trigger for now, which an order of the user's own hears as a touch
    /// where the key is ready. A timer that fires is no touch: "a timer that
    /// fires for a ready or dirty key changes nothing but priority" (D6).
    fn trigger_now(&mut self, key: u64, in_backoff: InBackoff, priority: i16) -> Accepted {
        if self.keys.get(&key).is_some_and(|entry| entry.ready && !entry.paused) {
            *self.touches.entry(key).or_default() += 1;
        }
        if in_backoff == InBackoff::Respect && self.waits_out_a_failure(key) {
            self.join_timer(key, priority);
            return Accepted::Coalesced;
        }
        if in_backoff == InBackoff::Reset {
            self.reset(key);
        }
        self.make_due(key, false, in_backoff == InBackoff::Respect, self.now, priority)
    }

    /// A trigger shares the key's timer, and raises it (B2).
    fn join_timer(&mut self, key: u64, priority: i16) {
        if let Some(timer) = self.keys.get_mut(&key).and_then(|entry| entry.timer.as_mut()) {
            timer.priority = timer.priority.max(priority);
        }
    }

    fn waits_out_a_failure(&self, key: u64) -> bool {
        self.keys.get(&key).is_some_and(|entry| {
            !entry.ready && entry.run.is_none() && entry.timer.as_ref().is_some_and(|timer| timer.back_off)
        })
    }

    fn is_due_or_held(&self, key: u64) -> bool {
        self.keys.get(&key).is_some_and(|e| e.ready || e.run.is_some() || e.due().is_some())
    }

    /// "The timer goes, the failures are forgotten", for a key that waits, is ready or is held.
    fn reset(&mut self, key: u64) {
        if !self.is_due_or_held(key) {
            return;
        }
        let Some(entry) = self.keys.get_mut(&key) else { return };
        self.failures.remove(&key);
        entry.timer.take_if(|timer| timer.back_off);
        entry.reset = entry.run.is_some();
        entry.failed = 0;
    }

    /// Before a run ends, which may have failed: decides about the triggers that came during it (B5). Returns
    /// whether its retry is a fresh start, and the priority of what joins the retry, whose own is `retry`.
    fn settle(&mut self, key: u64, failed: bool, retry: Option<i16>) -> (bool, Option<i16>) {
        let entry = self.keys.get_mut(&key).expect("it is held");
        let (reset, respects) = (std::mem::take(&mut entry.reset), std::mem::take(&mut entry.respects));
        if !failed {
            if let Some(timer) = &mut entry.timer {
                timer.respects = false;
            }
            if let Some(window) = &mut entry.window {
                window.respects = false;
            }
            return (false, None);
        }
        // "a delayed trigger joins too"
        let timer = entry.timer.take_if(|timer| timer.respects || reset && timer.back_off);
        let mut joins = timer.map(|timer| timer.priority);
        // and so does a window
        if let Some(window) = entry.window.take_if(|window| window.owes && (window.respects || reset)) {
            joins = joins.max(Some(window.priority));
            // a fresh start is a run of its own, and a timer that stays beside it another one
            if !reset {
                self.join_timer(key, window.priority);
            }
        }
        let entry = self.keys.get_mut(&key).expect("it is held");
        if reset {
            let priority = joins.max(retry).unwrap_or(i16::MIN);
            if entry.dirty {
                entry.priority = entry.priority.max(priority);
            } else {
                entry.dirty = true;
                entry.priority = priority;
                entry.since = self.now;
                self.told.adds += 1;
            }
        } else if respects {
            entry.dirty = false;
            let priority = entry.priority;
            joins = joins.max(Some(priority));
            self.join_timer(key, priority);
        }
        (reset, joins)
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
        in_backoff: Option<InBackoff>,
        priority: i16,
    ) -> Result<Accepted, Refused> {
        let goes = self.outside(key, priority)?;
        if delay > 0 {
            self.fire_if_due(key);
        }
        let setter = Setter::Trigger(in_backoff.unwrap_or(self.options.in_backoff));
        let added = self.delayed(key, delay, policy, value, setter, priority);
        self.make_room(goes);
        Ok(added)
    }

    fn delayed(
        &mut self,
        key: u64,
        delay: Nanos,
        policy: Policy,
        value: Option<u32>,
        setter: Setter,
        priority: i16,
    ) -> Accepted {
        self.told.retries += 1;
        // "A delay of zero is `add`, under every policy; a timer that is set
        // stays set" (D1).
        let added = if delay == 0 {
            match setter {
                Setter::Trigger(in_backoff) => self.trigger_at_once(key, in_backoff, priority, None),
                _ => self.trigger_now(key, setter.in_backoff(), priority),
            }
        } else {
            self.set_timer(key, delay, policy, setter, priority)
        };
        self.merge_newer(key, value);
        self.told.coalesced += u64::from(added == Accepted::Coalesced);
        added
    }

    /// `add_rate_limited`: `add_after(k, limiter.when(&k, now))`. "Every accepted
    /// call asks the limiter once, duplicates too."
    ///
    /// # Errors
    ///
    /// Refused once the queue is closed; the limiter is not asked.
    pub fn add_rate_limited(
        &mut self,
        key: u64,
        value: Option<u32>,
        in_backoff: Option<InBackoff>,
        priority: i16,
    ) -> Result<Accepted, Refused> {
        let goes = self.outside(key, priority)?;
        self.fire_if_due(key);
        // it is what makes a back-off, so the queue's own say is not about it
        let in_backoff = in_backoff.unwrap_or_default();
        if in_backoff == InBackoff::Reset && self.is_due_or_held(key) {
            self.failures.remove(&key);
        }
        let delay = self.when(key);
        let failures = self.failures.get(&key).copied();
        let setter = Setter::Limited(in_backoff);
        let added = self.delayed(key, delay, Policy::Earliest, value, setter, priority);
        self.failures.extend(failures.map(|failures| (key, failures)));
        self.make_room(goes);
        Ok(added)
    }

    /// The key to drop for this one, after the trigger was taken.
    fn outside(&mut self, key: u64, priority: i16) -> Result<Option<u64>, Refused> {
        // a queue without priorities takes none but 0, and counts only whom its end refuses
        if priority != 0 && !self.has_priorities() {
            return Err(Refused::NoPriorities);
        }
        if self.phase == Phase::Open {
            return self.look_for_room(key);
        }
        self.refused += 1;
        Err(Refused::Over)
    }

    fn set_timer(
        &mut self,
        key: u64,
        delay: Nanos,
        policy: Policy,
        setter: Setter,
        priority: i16,
    ) -> Accepted {
        self.calls += 1;
        let (now, call) = (self.now, self.calls);
        let due = now.saturating_add(delay);
        let in_backoff = setter.in_backoff();
        let limited = matches!(setter, Setter::Limited(_));
        let old = self.keys.get(&key).and_then(|entry| entry.timer.clone());
        let replaced = |timer: &&Timer| timer.back_off && in_backoff == InBackoff::Reset;
        let joined = old.as_ref().filter(|timer| !replaced(timer)).map(|timer| timer.priority);
        // a back-off's timer goes, and one that respects the back-off that begins joins it
        let old = old
            .filter(|timer| !(timer.back_off && in_backoff == InBackoff::Reset || timer.respects && limited));
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
            return match setter {
                Setter::Again | Setter::Retry => self.make_due(key, true, false, now, priority),
                Setter::Trigger(in_backoff) | Setter::Limited(in_backoff) => {
                    self.trigger_now(key, in_backoff, priority)
                }
            };
        }
        let was_back_off = old.as_ref().is_some_and(|timer| timer.back_off);
        if in_backoff == InBackoff::Respect && was_back_off {
            // "under respect a delayed trigger joins too"
            self.join_timer(key, priority);
            return Accepted::Coalesced;
        }
        if in_backoff == InBackoff::Reset {
            self.reset(key);
        }
        let back_off = was_back_off || limited || setter == Setter::Retry;
        // "raises, never lowers", whichever instant stays
        let priority = joined.map_or(priority, |joined: i16| joined.max(priority));
        let entry = self.keys.entry(key).or_default();
        let respects = entry.run.is_some()
            && setter == Setter::Trigger(InBackoff::Respect)
            && old.as_ref().is_none_or(|timer| timer.respects);
        if let Some(old) = old.filter(|timer| timer.due == chosen) {
            // "A call that does not change the instant keeps the place" (D5).
            entry.timer = Some(Timer { window, back_off, respects, priority, ..old });
            return Accepted::Coalesced;
        }
        if !matches!(policy, Policy::Latest(_)) {
            window = None;
        }
        let by_outcome = matches!(setter, Setter::Again | Setter::Retry);
        entry.timer = Some(Timer { due: chosen, call, window, by_outcome, back_off, respects, priority });
        Accepted::Waiting
    }

    /// "Every accepted trigger merges into it at the call, older first" (B1).
    fn merge_newer(&mut self, key: u64, value: Option<u32>) {
        if let Some(value) = value {
            self.keys.entry(key).or_default().slot.get_or_insert_with(Vec::new).push(value);
        }
    }

    fn when(&mut self, key: u64) -> Nanos {
        let failures = self.num_requeues(key);
        let mut delay = self.options.base;
        for _ in 0..failures.min(64) {
            delay = delay.saturating_mul(2);
        }
        let delay = delay.min(self.options.max);
        self.failures.insert(key, (failures + 1, self.expires(self.now.saturating_add(delay))));
        delay
    }

    /// "A record expires after a configurable time since the end of the last delay that it gave", which is then.
    fn expires(&self, then: Nanos) -> Nanos {
        self.options.expire_after.map_or(Nanos::MAX, |after| then.saturating_add(after))
    }

    /// `forget`: "clears the limiter's record of the key and leaves a timer alone".
    pub fn forget(&mut self, key: u64) {
        self.failures.remove(&key);
    }

    /// `num_requeues`.
    #[must_use]
    pub fn num_requeues(&self, key: u64) -> u32 {
        // "an expired one reads 0"
        self.failures
            .get(&key)
            .filter(|(_, expires)| *expires > self.now)
            .map_or(0, |(failures, _)| *failures)
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
            timer.back_off = false;
        }
        let run = Run { id: self.runs, key, value: entry.slot.take(), attempt, priority: entry.priority };
        self.sort_turns();
        Ok(run)
    }

    /// "Get up to n under one lock" (B9): as many gets as there are keys, at most `most`. With `most` 0 it
    /// only reports the end.
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

    /// Whether a getter gets "shut down".
    #[must_use]
    pub fn is_over(&self) -> bool {
        let left = self.counts();
        self.phase == Phase::ShutDown && left.ready == 0 && left.dirty == 0
    }

    fn pop(&mut self) -> Option<u64> {
        if self.paused || self.tokens() == 0 {
            return None;
        }
        let index = match self.options.order {
            Order::Fifo => 0,
            Order::Lifo => self.line.len().checked_sub(1)?,
            Order::Custom => {
                let urgent = |key: &u64| self.touches.get(key).is_none_or(|touches| *touches < 3);
                (0..self.line.len()).min_by_key(|i| (urgent(&self.line[*i]), self.line[*i]))?
            }
            // "Higher first, FIFO within"; a raised key "keeps its age", and so its place
            // among its equals. "Of every n hand-outs one goes to the oldest overdue key."
            Order::Priority { max_wait } => match self.overdue(max_wait, None, |_| true) {
                Some(at) => at,
                None => (0..self.line.len())
                    .min_by_key(|at| (Reverse(self.keys[&self.line[*at]].priority), *at))?,
            },
            Order::Fair(fair) => self.next_in_turn(&fair)?,
        };
        if index >= self.line.len() {
            return None;
        }
        let key = self.line.remove(index);
        self.charge();
        self.charge_group(key);
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
        if self.holds(run) {
            // a run that was put back through the limiter has failed
            let timer = self.keys.get(&run.key).and_then(|entry| entry.timer.as_ref());
            let failed = timer.is_some_and(|timer| timer.back_off);
            self.may_be_unfinished(run);
            self.settle(run.key, failed, None);
        }
        self.end_as(run, End::Done);
    }

    fn end_as(&mut self, run: &Run, end: End) {
        if !self.holds(run) {
            return;
        }
        self.drains.run_ended();
        let entry = self.keys.get_mut(&run.key).expect("it holds the key");
        entry.run = None;
        // a refusal that its end took back
        entry.refused = None;
        self.told.worked.push(self.now - entry.started);
        self.told.ends.push(end);
        if std::mem::take(&mut entry.dirty) {
            entry.ready = true;
            entry.ready_since = self.now;
            self.stand(run.key, self.now);
            let priority = self.cover(run.key, false, i16::MIN);
            let entry = self.keys.get_mut(&run.key).expect("it is ready");
            entry.priority = entry.priority.max(priority);
        }
        self.sort_turns();
        self.tidy(run.key);
        self.drains_may_end();
    }

    /// Forgets a key that nothing refers to. "The slot dies with the key's last
    /// reason to run" (B1).
    fn tidy(&mut self, key: u64) {
        // the list has its value
        if self.is_listed(key) {
            return;
        }
        let Some(entry) = self.keys.get_mut(&key) else { return };
        if !entry.ready && !entry.dirty && entry.timer.is_none() && entry.window.is_none() {
            entry.slot = None;
            if entry.run.is_none() && !entry.paused {
                self.keys.remove(&key);
            }
        }
    }

    /// A run inside a batch, or inside its iterator, through which a panic unwinds: "put
    /// back (attempts and failures unchanged; to the back of the line, counted as neither
    /// done nor add), under every setting" (Q12). Put back by its holder, the run counts as an attempt.
    pub fn put_back(&mut self, run: &Run, counted: bool) {
        if !self.holds(run) {
            return;
        }
        // "also while a drain goes on or the queue is shut down": getters that were told the end come again
        let entry = self.keys.get_mut(&run.key).expect("it holds the key");
        (entry.run, entry.refused) = (None, None);
        // a trigger that made it dirty restarted the attempts (W)
        if std::mem::take(&mut entry.dirty) {
            entry.priority = entry.priority.max(run.priority);
        } else {
            entry.failed = run.attempt - 1 + u32::from(counted);
            entry.priority = run.priority;
        }
        (entry.respects, entry.reset) = (false, false);
        if let Some(timer) = &mut entry.timer {
            timer.respects = false;
        }
        // "in front of what came meanwhile" (B1)
        if let Some(mut old) = run.value.clone() {
            old.extend(entry.slot.take().unwrap_or_default());
            entry.slot = Some(old);
        }
        entry.ready = true;
        entry.ready_since = self.now;
        self.stand(run.key, self.now);
        let priority = self.cover(run.key, false, i16::MIN);
        let entry = self.keys.get_mut(&run.key).expect("it is ready");
        entry.priority = entry.priority.max(priority);
        if let Some(window) = &mut entry.window {
            window.respects = false;
        }
        self.sort_turns();
    }

    /// `done` by key; whether the key was held.
    pub fn done(&mut self, key: u64) -> bool {
        let Some(id) = self.keys.get(&key).and_then(|entry| entry.run) else { return false };
        // the guard has the value
        self.end(&Run { id, key, value: None, attempt: 0, priority: 0 });
        true
    }

    /// `succeed`: forget and done.
    pub fn succeed(&mut self, run: &Run) {
        self.forget(run.key);
        self.end_well(run, End::Done);
    }

    /// `give_up`: "reported, forgotten" (W).
    pub fn give_up(&mut self, run: &Run) {
        self.forget(run.key);
        self.end_well(run, End::GiveUp);
    }

    fn end_well(&mut self, run: &Run, end: End) {
        if self.holds(run) {
            self.settle(run.key, false, None);
        }
        self.end_as(run, end);
    }

    /// `retry`, with the limiter's delay or an explicit one: "with its own delay the limiter is still asked
    /// and its delay replaced" (W).
    ///
    /// # Errors
    ///
    /// If holders' triggers are refused; the run goes on.
    pub fn retry(&mut self, run: &Run, own: Option<Nanos>) -> Result<Nanos, Refused> {
        self.holders(run, true, own)?;
        // "a fresh start: ready at once, no failure counted, the limiter not asked" (B5)
        let fresh = self.keys.get(&run.key).is_some_and(|entry| entry.reset);
        let delay = if fresh {
            self.failures.remove(&run.key);
            0
        } else {
            let asked = self.when(run.key);
            own.unwrap_or(asked)
        };
        self.back(run, delay, true);
        Ok(delay)
    }

    /// `again`: "not a failure: forgets, then add_after" (W).
    ///
    /// # Errors
    ///
    /// If holders' triggers are refused; the run goes on.
    pub fn again(&mut self, run: &Run, delay: Nanos) -> Result<(), Refused> {
        self.holders(run, false, Some(delay))?;
        self.forget(run.key);
        self.back(run, delay, false);
        Ok(())
    }

    fn back(&mut self, run: &Run, delay: Nanos, failed: bool) {
        self.told.retries += 1;
        self.fire_if_due(run.key);
        let (_, joins) = self.settle(run.key, failed, Some(run.priority));
        // "a retry keeps it" (B2), and what joins it raises it
        let priority = joins.map_or(run.priority, |joins| joins.max(run.priority));
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
            entry.priority = if restarted { entry.priority.max(priority) } else { priority };
            entry.dirty = true;
        } else {
            let setter = if failed { Setter::Retry } else { Setter::Again };
            self.set_timer(run.key, delay, Policy::Earliest, setter, priority);
        }
        let entry = self.keys.get_mut(&run.key).expect("it holds the key");
        entry.failed = if failed && !restarted { run.attempt } else { 0 };
        self.end_as(run, if failed { End::Retry } else { End::Again });
    }

    fn holders(&mut self, run: &Run, failed: bool, after: Option<Nanos>) -> Result<(), Refused> {
        // "A guard whose run was ended that way is inert" (Q12).
        if !self.holds(run) {
            return Err(Refused::Over);
        }
        let refused = match after {
            Some(after) if !failed => self.refuses_again(after),
            _ => self.phase == Phase::ShutDown,
        };
        if refused { Err(self.refuse(run, failed, after)) } else { Ok(()) }
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
        self.counts().ready
    }

    /// `is_empty`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `stats`.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let count = |test: &dyn Fn(&Entry) -> bool| self.keys.values().filter(|entry| test(entry)).count();
        Counts {
            ready: count(&|entry| entry.ready),
            held: count(&|entry| entry.run.is_some()),
            dirty: count(&|entry| entry.dirty),
            waiting: count(&|entry| entry.due().is_some()),
        }
    }

    /// The totals reported to the metrics.
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
        let known = entry.ready || entry.run.is_some() || entry.due().is_some() || entry.paused;
        known.then(|| Seen {
            ready: entry.ready,
            held: entry.run.is_some(),
            dirty: entry.dirty,
            due: entry.due(),
            paused: entry.paused,
            group_paused: self.is_in_paused_group(key),
        })
    }
}

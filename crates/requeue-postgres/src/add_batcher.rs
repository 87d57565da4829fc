//! Batches of adds: triggers that are recorded while one statement runs are written by the next.

use crate::link::{ANSWERS, Call, Failed, Link};
use crate::typed::Param;
use crate::wakeups::{WAKE, Wakeups};
use futures_util::future::{Either, poll_immediate, ready, select};
use requeue::Added;
use requeue_engine::EngineError;
use serde_json::value::RawValue;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio_postgres::types::Json;

/// Maximum number of triggers written at once, so that no caller waits for an endless statement.
const TRIGGERS_AT_ONCE: usize = 1000;

/// Maximum size in bytes of a key on a server, and of a group's name: PostgreSQL's indexes keep no longer
/// ones. A trigger with a longer one is refused, with an error that names it.
///
/// ```
/// assert_eq!(requeue_postgres::LONGEST_KEY, 2600);
/// ```
pub const LONGEST_KEY: usize = 2600;

/// Checks that the server's indexes can keep a key and the name of its group.
///
/// # Errors
///
/// The one that is too long, and the limit.
pub(crate) fn fits(key: &[u8], group: Option<&[u8]>) -> Result<(), EngineError> {
    let all = [("key", Some(key)), ("name of a group", group)];
    let long =
        all.into_iter().find_map(|(what, bytes)| Some((what, bytes.filter(|it| it.len() > LONGEST_KEY)?)));
    let Some((what, bytes)) = long else { return Ok(()) };
    let (begin, length) = (String::from_utf8_lossy(&bytes[..40]), bytes.len());
    let why = format!(
        "the {what} that begins with {begin:?} has {length} bytes; a server keeps {LONGEST_KEY} at most"
    );
    Err(EngineError::NotApplied(why.into()))
}

pub(crate) type OnWritten = Box<dyn FnOnce(Result<Added, Failed>) + Send>;

/// A trigger to be written.
pub(crate) struct TriggerRow {
    pub(crate) queue: i32,
    pub(crate) key: Box<[u8]>,
    pub(crate) delay: Option<Duration>,
    pub(crate) priority: i16,
    pub(crate) value: Option<Box<RawValue>>,
    pub(crate) every: Option<Duration>,
    /// The name of the key's group.
    pub(crate) group: Option<Vec<u8>>,
}

/// A statement that took this long waited for the disk.
const SLOW: Duration = Duration::from_micros(1500);
/// Maximum wait for callers that were answered to come again.
const LONGEST_WAIT: Duration = Duration::from_millis(5);
/// Time after which an unused connection is closed.
const IDLE: Duration = Duration::from_secs(10);

pub(crate) struct AddBatcher {
    wakeups: Arc<Wakeups>,
    noted: Mutex<VecDeque<(TriggerRow, OnWritten)>>,
    wake: Notify,
}

/// Maximum size of a statement's values, so that it is answered in time.
const LARGE: usize = 8 << 20;

/// Number of values of these sizes for one statement, in order: one, or more that are not too large together.
pub(crate) fn fitting(sizes: impl Iterator<Item = usize>) -> usize {
    let mut together = 0_usize;
    let is_room = |size: &usize| {
        let is_room = together < LARGE;
        together = together.saturating_add(*size);
        is_room
    };
    sizes.take_while(is_room).count()
}

/// Microseconds, at most 190,000 years: PostgreSQL's time ends in the year 294,276.
pub(crate) fn micros(duration: Duration) -> i64 {
    const LONGEST: i64 = 6_000_000_000_000_000_000;
    i64::try_from(duration.as_micros()).unwrap_or(LONGEST).min(LONGEST)
}

/// Converts a stored priority: those of other programs may exceed this library's range.
pub(crate) fn priority(stored: i32) -> i16 {
    let clamped = stored.clamp(i16::MIN.into(), i16::MAX.into());
    i16::try_from(clamped).unwrap_or_default()
}

impl AddBatcher {
    pub(crate) fn new(wakeups: Arc<Wakeups>) -> Self {
        Self { wakeups, noted: Mutex::default(), wake: Notify::new() }
    }

    pub(crate) fn note(&self, trigger: TriggerRow, told: OnWritten) {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).push_back((trigger, told));
        self.wake.notify_one();
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// The recorded triggers for the next statement; `None` if there are none.
    fn next(&self) -> Option<(Vec<TriggerRow>, Vec<OnWritten>)> {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let sizes = noted
            .iter()
            .take(TRIGGERS_AT_ONCE)
            .map(|(it, _)| it.value.as_ref().map_or(0, |value| value.get().len()));
        let most = fitting(sizes);
        (most > 0).then(|| noted.drain(..most).unzip())
    }

    fn are_noted(&self) -> usize {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Writes recorded triggers until the engine is closed. Triggers of all queues share statements.
    ///
    /// While triggers change nothing, a second statement is sent behind the first, so that the server does
    /// not wait for this process between two of them, and callers are answered while the next one runs:
    /// waking a thread takes as long as looking a key up. If triggers are written, the next statement waits
    /// for the answer and is larger for it: the server waits for the disk once for all of them. If that took
    /// long it also waits a moment for the callers that were answered and come again.
    pub(crate) async fn run(self: Arc<Self>, link: Link, closing: watch::Receiver<bool>) {
        let mut writer = Writer {
            batcher: self,
            link,
            changes: true,
            sent: VecDeque::new(),
            before: None,
            round: Round::default(),
        };
        while writer.step(&closing).await {}
    }
}

/// Writes the triggers of a batcher.
struct Writer {
    batcher: Arc<AddBatcher>,
    link: Link,
    /// Whether the statement that was answered last has changed something: then the next one probably does.
    changes: bool,
    /// Statements without an answer, in order.
    sent: VecDeque<Sent>,
    /// An answer to be passed on when the next statement was sent.
    before: Option<Written>,
    round: Round,
}

impl Writer {
    /// Whether a further statement may be sent now. A statement with values goes alone: if the server refuses
    /// one, it is split and sent again, and nothing may overtake it. So does one that writes.
    fn has_room(&self) -> bool {
        let alone = self.changes || self.sent.iter().any(|it| it.has_values);
        self.sent.is_empty() || self.sent.len() < 2 && !alone
    }

    /// Sends a statement or waits for an answer, or for triggers. Returns `false` when the engine is closed.
    async fn step(&mut self, closing: &watch::Receiver<bool>) -> bool {
        let batcher = self.batcher.clone();
        if let Some(until) = self.sent.is_empty().then(|| self.round.waits(batcher.are_noted())).flatten() {
            let noted = std::pin::pin!(batcher.wake.notified());
            drop(tokio::time::timeout_at(until.into(), noted).await);
            return true;
        }
        if let Some((triggers, told)) = self.has_room().then(|| batcher.next()).flatten() {
            let wakes = match (self.sent.is_empty() && batcher.wakeups.is_quiet(), self.changes) {
                (true, _) => Wakes::Within,
                (_, true) => Wakes::Behind,
                (_, false) => Wakes::Later,
            };
            let who = &batcher.wakeups.name;
            self.sent.push_back(Sent::new(&mut self.link, triggers, told, wakes, who).await);
        }
        let has_room = self.has_room();
        // the connections' tasks send: triggers, and the claims of woken exchanges
        tokio::task::yield_now().await;
        self.tell_before();
        let Some(first) = self.sent.front_mut() else {
            if *closing.borrow() {
                return false;
            }
            if tokio::time::timeout(IDLE, batcher.wake.notified()).await.is_err() {
                self.link.hang_up();
                batcher.wake.notified().await;
            }
            return true;
        };
        let written = if has_room {
            let noted = std::pin::pin!(batcher.wake.notified());
            match select(&mut first.answer, noted).await {
                Either::Left((written, _)) => written,
                Either::Right(_) => return true,
            }
        } else {
            (&mut first.answer).await
        };
        self.answered(written).await;
        true
    }

    fn tell_before(&mut self) {
        self.before.take().into_iter().for_each(Written::tell);
    }

    /// Handles the answer to the first statement: wakes other processes if the server has not, and passes the
    /// answer on, now or after the next statement was sent.
    async fn answered(&mut self, mut written: Written) {
        let Some(Sent { queues, wakes, at, .. }) = self.sent.pop_front() else { return };
        let wakeups = self.batcher.wakeups.clone();
        wakeups.note_add();
        let was_left = written.said.as_mut().is_ok_and(|changed| changed.remove(&NOT_WOKEN).is_some());
        let is_ok = written.said.is_ok();
        self.changes = written.said.as_ref().map_or(true, |changed| !changed.is_empty());
        if self.changes {
            queues.iter().for_each(|queue| wakeups.wake(*queue));
        }
        let mut owes_wake = is_ok && self.changes && (wakes == Wakes::Later || was_left);
        if written.is_at_fault() && written.triggers.len() > 1 {
            written.in_parts(&mut self.link).await;
            // only now are they in line
            queues.iter().for_each(|queue| wakeups.wake(*queue));
            owes_wake = true;
        } else {
            if self.changes && is_ok && self.sent.is_empty() {
                self.round.begins(at.elapsed(), written.told.len(), self.batcher.are_noted());
            }
            self.before = Some(written);
        }
        if owes_wake || self.round.goes_on() {
            self.tell_before();
        }
        if owes_wake {
            // if this fails, a sleeping process looks by itself a second later
            drop(self.link.query(WAKE, &[&queues, &wakeups.name]).await);
        }
    }
}

/// Decides whether the next statement waits a moment for the callers that were just answered.
///
/// Callers that add one key after another come again as soon as they are answered. If the next statement were
/// sent at once it would have only the first of them, and all others would wait for the disk twice: for that
/// statement, and for their own.
#[derive(Default)]
struct Round {
    /// Number of triggers at which the next statement is sent.
    enough: usize,
    until: Option<Instant>,
    /// Number of callers that were answered when the wait began, and may come again.
    told: usize,
    noted: usize,
    /// Number of waits in a row, up to 6, in which too few of them came.
    misses: u32,
    /// Number of next statements to send without a wait.
    skips: u32,
}

impl Round {
    /// Starts a round after a statement that took `took`, `told` answered callers, and `noted` others that
    /// have come meanwhile.
    fn begins(&mut self, took: Duration, told: usize, noted: usize) {
        if took < SLOW {
            return;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return;
        }
        (self.told, self.noted, self.enough) = (told, noted, (told + noted).min(TRIGGERS_AT_ONCE));
        self.until = Some(Instant::now() + (took / 4).min(LONGEST_WAIT));
    }

    fn goes_on(&self) -> bool {
        self.until.is_some()
    }

    /// Until when the next statement waits, with this number of recorded triggers.
    fn waits(&mut self, noted: usize) -> Option<Instant> {
        let until = self.until?;
        let has_all = noted >= self.enough;
        if !has_all && Instant::now() < until {
            return Some(until);
        }
        self.until = None;
        if has_all || noted.saturating_sub(self.noted) * 2 >= self.told {
            self.misses = 0;
        } else {
            self.misses = (self.misses + 1).min(6);
            self.skips = 1 << self.misses;
        }
        None
    }
}

/// A statement that was sent.
struct Sent {
    queues: Vec<i32>,
    at: Instant,
    answer: Pin<Box<dyn Future<Output = Written> + Send>>,
    /// The server may refuse its values.
    has_values: bool,
    wakes: Wakes,
}

/// Results of `requeue.adds` for a key: see schema/adds.sql.
mod what {
    pub(super) const READY: i16 = 1;
    pub(super) const DIRTY: i16 = 2;
    pub(super) const WAITING: i16 = 3;
}

/// How a statement's triggers wake others.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Wakes {
    /// With the triggers, in one transaction.
    Within,
    /// In a transaction of its own, sent behind them.
    Behind,
    /// In a transaction of its own, sent when the answer says that it is needed. Triggers that change nothing need none.
    Later,
}

impl Sent {
    /// Sends the triggers. `who` is the name of this process.
    async fn new(
        link: &mut Link,
        triggers: Vec<TriggerRow>,
        told: Vec<OnWritten>,
        wakes: Wakes,
        who: &str,
    ) -> Self {
        let has_values = triggers.iter().any(|it| it.value.is_some());
        let mut queues: Vec<i32> = triggers.iter().map(|it| it.queue).collect();
        queues.sort_unstable();
        queues.dedup();
        let (to_wake, who, at) = (queues.clone(), who.to_owned(), Instant::now());
        let calls = calls(link, wakes).await;
        let mut answer: Pin<Box<dyn Future<Output = Written> + Send>> = Box::pin(async move {
            let said = match calls {
                Ok((add, wake)) => {
                    write(&add, &triggers, wakes, &who, wake.map(|wake| (wake, to_wake))).await
                }
                Err(failed) => Err(failed),
            };
            Written { triggers, told, said }
        });
        // the first poll sends it
        if let Some(written) = poll_immediate(&mut answer).await {
            answer = Box::pin(ready(written));
        }
        Self { queues, at, answer, has_values, wakes }
    }
}

/// Prepares the statement that adds and, if others are woken behind it, the one that wakes.
async fn calls(link: &mut Link, wakes: Wakes) -> Result<(Call, Option<Call>), Failed> {
    Ok(match wakes {
        Wakes::Within => (link.call(ADD_AND_WAKE).await?, None),
        Wakes::Behind => (link.call(ADD).await?, Some(link.call(WAKE).await?)),
        Wakes::Later => (link.call(ADD).await?, None),
    })
}

/// Adds triggers. Those of a locked key are set aside: no caller waits for them.
const ADD: &str = "select q, k, what from requeue.adds($1, $2, $3, $4, $5, $6, $7, true)";
/// [`ADD`] and [`WAKE`] in one transaction. A row with queue 0 means that [`WAKE`] is still to be called.
const ADD_AND_WAKE: &str = "select q, k, what from requeue.adds_and_wakes($1, $2, $3, $4, $5, $6, $7, $8)";

/// The result for each changed key.
pub(crate) type Changed = HashMap<(i32, Vec<u8>), i16>;
/// The entry of [`Changed`] that means that no process was woken.
pub(crate) const NOT_WOKEN: (i32, Vec<u8>) = (0, Vec::new());

/// Adds triggers in one statement. No call wakes others behind it.
pub(crate) async fn add(
    link: &mut Link,
    triggers: &[TriggerRow],
    wakes: Wakes,
    who: &str,
) -> Result<Changed, Failed> {
    let (add, _) = calls(link, wakes).await?;
    write(&add, triggers, wakes, who, None).await
}

async fn write(
    add: &Call,
    triggers: &[TriggerRow],
    wakes: Wakes,
    who: &str,
    wake: Option<(Call, Vec<i32>)>,
) -> Result<Changed, Failed> {
    let queues: Vec<i32> = triggers.iter().map(|it| it.queue).collect();
    let keys: Vec<&[u8]> = triggers.iter().map(|it| &*it.key).collect();
    let delays: Vec<i64> = triggers.iter().map(|it| it.delay.map_or(0, micros)).collect();
    let ranks: Vec<i32> = triggers.iter().map(|it| -i32::from(it.priority)).collect();
    let has_values = triggers.iter().any(|it| it.value.is_some());
    let values: Option<Vec<_>> =
        has_values.then(|| triggers.iter().map(|it| it.value.as_ref().map(Json)).collect());
    let has_periods = triggers.iter().any(|it| it.every.is_some());
    let every: Option<Vec<_>> = has_periods.then(|| triggers.iter().map(|it| it.every.map(micros)).collect());
    let has_groups = triggers.iter().any(|it| it.group.is_some());
    let groups: Option<Vec<_>> = has_groups.then(|| triggers.iter().map(|it| it.group.as_deref()).collect());
    let params: [&dyn Param; 8] = [&queues, &keys, &delays, &ranks, &values, &every, &groups, &who];
    let rows = match wake {
        _ if wakes == Wakes::Within => add.query(&params, ANSWERS).await?,
        Some((wake, queues)) => add.query_before(&params[..7], &wake, &[&queues, &who]).await?,
        None => add.query(&params[..7], ANSWERS).await?,
    };
    Ok(rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect())
}

/// A statement's triggers, their callbacks, and the answer.
struct Written {
    triggers: Vec<TriggerRow>,
    told: Vec<OnWritten>,
    said: Result<Changed, Failed>,
}

impl Written {
    /// Whether a trigger may be the cause: the server can't keep it, or its queue is gone.
    fn is_at_fault(&self) -> bool {
        matches!(self.said, Err(Failed::Data(_) | Failed::Gone(_)))
    }

    /// Writes them again, half by half and in order, until the causes are isolated. The others are written
    /// without them.
    async fn in_parts(self, link: &mut Link) {
        let mut parts = Vec::from(self.halves());
        while let Some((triggers, told)) = parts.pop() {
            let written = Sent::new(link, triggers, told, Wakes::Later, "").await.answer.await;
            if written.is_at_fault() && written.triggers.len() > 1 {
                parts.extend(written.halves());
            } else {
                written.tell();
            }
        }
    }

    /// Splits the triggers, with their callbacks: the second half comes first.
    fn halves(mut self) -> [(Vec<TriggerRow>, Vec<OnWritten>); 2] {
        let half = self.triggers.len() / 2;
        let behind = (self.triggers.split_off(half), self.told.split_off(half));
        [behind, (self.triggers, self.told)]
    }

    /// Calls the callbacks in the order of the triggers: the first trigger of a key has changed it, if one
    /// has.
    fn tell(self) {
        let Self { triggers, told, said } = self;
        match said {
            Ok(mut changed) => {
                for (TriggerRow { queue, key, delay, .. }, told) in triggers.into_iter().zip(told) {
                    let is_now = delay.is_none_or(|delay| delay.is_zero());
                    let key = (queue, key.into_vec());
                    let added = match (changed.get(&key).copied(), is_now) {
                        (Some(what::READY), true) => Added::Ready,
                        (Some(what::DIRTY), true) => Added::Dirty,
                        (Some(what::WAITING), false) => Added::Waiting,
                        _ => Added::Coalesced,
                    };
                    if added != Added::Coalesced {
                        changed.remove(&key);
                    }
                    told(Ok(added));
                }
            }
            Err(failed) => {
                for told in told {
                    told(Err(failed.clone()));
                }
            }
        }
    }
}

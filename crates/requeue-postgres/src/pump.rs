//! The task that claims keys for a queue's workers and sends the ends of their runs, and the one that keeps its lease.
//!
//! ```text
//!   the queue in memory ──ends──► Pen ──ends, and how many keys are wanted──► requeue.next ──► the queue in memory
//! ```
//!
//! A call whose reply was lost leaves two questions: which ends were accepted, and which keys were handed out. Ends are sent
//! again, as they are accepted once. For the keys a new owner is made: the runs that this process knows go over to it, and
//! whatever else the old one has is put back (`requeue.settle`).

use crate::link::{Failed, Link};
use crate::pen::{Claimed, End, How, Pen};
use crate::schema::Serving;
use futures_util::future::select;
use requeue::engine::Key;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio_postgres::Row;
use tokio_postgres::types::Json;

/// A process that nobody wakes looks so often; that also is how late a timer may be whose process died.
const LOOKS: Duration = Duration::from_secs(1);
/// After a failed call it is tried again so much later.
const TRIES_AGAIN: Duration = Duration::from_millis(200);
/// At most so many ends are sent at once, and so many keys claimed.
const MOST: usize = 1000;
/// Where there were so many times in a row as many keys as were wanted, the process does not sleep, and need not be notified.
const BUSY: u32 = 8;
/// Who leaves has told the ends of runs whose keys somebody has locked so often, for some ten seconds. They are put back then, or
/// when the lease is over.
const PATIENCE: u32 = 45;
/// No owner.
const NOBODY: i64 = 0;

/// The queue in memory, for the pump. It must not keep the queue open.
pub(crate) trait Taps: Send + Sync {
    /// How many keys workers wait for, and how many more are to be there for them; `None` if the queue is closed.
    fn wanted(&self) -> Option<usize>;
    /// A key for it. What it can't take it gives back to the pen.
    fn give(&self, claimed: Claimed);
    /// Its runs are others' by now.
    fn lost(&self);
    /// It takes no triggers and hands out no keys any more.
    fn closes(&self);
}

/// An owner that a process is.
#[derive(Clone, Copy)]
struct Held {
    owner: i64,
    /// When the last beat was sent that was answered, or the call that made the process this owner: the lease counts from there.
    beat: Instant,
}

/// What a queue's tasks share.
pub(crate) struct Lease<K> {
    pub(crate) pen: Arc<Pen<K>>,
    pub(crate) length: Duration,
    pub(crate) who: String,
    /// Whether notifications come in.
    pub(crate) hears: bool,
    /// Whether the schema still serves this program.
    pub(crate) serving: Arc<Serving>,
    /// The owner that this process is, if it is one.
    held: Mutex<Option<Held>>,
    /// How often the lease was lost.
    pub(crate) losses: AtomicU64,
    /// The owner that was lost last, whose runs were told to end.
    lost: AtomicI64,
    /// Turns true when the pump has ended, and the lease is given up.
    over: watch::Sender<bool>,
}

impl<K> Lease<K> {
    pub(crate) fn new(
        pen: Arc<Pen<K>>,
        length: Duration,
        who: String,
        hears: bool,
        serving: Arc<Serving>,
    ) -> Self {
        Self {
            pen,
            length,
            who,
            hears,
            serving,
            held: Mutex::default(),
            losses: AtomicU64::new(0),
            lost: AtomicI64::new(NOBODY),
            over: watch::Sender::new(false),
        }
    }

    fn micros(&self) -> i64 {
        crate::desk::micros(self.length)
    }

    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Turns true when the pump has ended, and the lease is given up.
    pub(crate) fn left(&self) -> watch::Receiver<bool> {
        self.over.subscribe()
    }

    /// When the last beat was sent that was answered; `None` while the process is no owner.
    pub(crate) fn beat(&self) -> Option<Instant> {
        self.held().map(|held| held.beat)
    }
}

impl<K: Key> Lease<K> {
    /// The runs of this owner are others' by now, or soon. Several find that out.
    fn loses(&self, owner: i64, taps: &impl Taps) {
        if self.lost.swap(owner, Relaxed) != owner {
            self.losses.fetch_add(1, Relaxed);
        }
        self.pen.lose_all();
        taps.lost();
    }

    /// Whether the runs of this owner were told to end.
    fn has_lost(&self, owner: i64) -> bool {
        owner != NOBODY && self.lost.load(Relaxed) == owner
    }
}

/// Keeps the lease, and does what is to be done once a second by whoever works.
///
/// The lease counts from before the last beat that was answered was sent. When two thirds are over without a new one, the runs
/// are told to end before anybody else gets their keys.
pub(crate) async fn beats<K: Key, T: Taps>(
    lease: Arc<Lease<K>>,
    taps: Arc<T>,
    pulse: Arc<AsyncMutex<Link>>,
    closing: watch::Receiver<bool>,
) {
    let tick = (lease.length / 6).min(LOOKS);
    let mut over = lease.left();
    let (third, safe) = (lease.length / 3, lease.length / 3 * 2);
    let (mut acked, mut owner, mut failing) = (Instant::now(), NOBODY, false);
    // of dead rows in the server's tables: what the server said of it; nothing is said the first time
    let mut visits: Option<Vec<i64>> = None;
    // so many runs of dead processes are put back at once: fewer where their values are so large that there was not the time
    let mut put_back = MOST;
    loop {
        let left = safe.saturating_sub(acked.elapsed());
        let pause = if failing { tick / 4 } else { tick };
        let pause = if owner == NOBODY { pause } else { pause.min(left) };
        if tokio::time::timeout(pause, over.wait_for(|over| *over)).await.is_ok() {
            return;
        }
        let Some(held) = *lease.held() else {
            (owner, failing) = (NOBODY, false);
            continue;
        };
        if held.owner != owner {
            // it has joined since the last look, with a lease of its own
            (owner, acked, failing) = (held.owner, held.beat, false);
        }
        let sent = Instant::now();
        let left = safe.saturating_sub(sent.duration_since(acked));
        let mut is_gone = left.is_zero();
        if !is_gone && sent.duration_since(acked) + tick >= third {
            let (beat, length) = ("select requeue.beat($1, $2)", lease.micros());
            // the other queues of this handle extend their leases on this connection too: a beat has it for a tick at most
            let beat = match tokio::time::timeout(left, pulse.lock()).await {
                Ok(mut pulse) => {
                    let left = safe.saturating_sub(acked.elapsed());
                    pulse.query_for(beat, &[&owner, &length], left.min(tick)).await.ok()
                }
                Err(_) => None,
            };
            let beat = beat.map(|rows| rows.first().is_some_and(|row| row.get::<_, bool>(0)));
            failing = beat.is_none();
            match beat {
                Some(true) => {
                    acked = sent;
                    if let Some(held) = lease.held().as_mut().filter(|held| held.owner == owner) {
                        held.beat = sent;
                    }
                }
                Some(false) => is_gone = true,
                None => is_gone = acked.elapsed() >= safe,
            }
        }
        if is_gone {
            if lease.held().take_if(|held| held.owner == owner).is_some() {
                lease.loses(owner, &*taps);
                lease.pen.signal.notify_one();
            }
            (owner, failing) = (NOBODY, false);
        } else if !failing && !*closing.borrow() {
            // what fails here is done by somebody else, or a moment later; so much time that the next extension is not late
            let end = sent + lease.length / 6;
            let maintain = "select requeue.maintain($1, $2)";
            // a dead process may have had a hundred thousand keys; between two calls the other queues extend their leases
            let mut more = true;
            while more && Instant::now() < end {
                let Ok(mut pulse) = tokio::time::timeout_at(end.into(), pulse.lock()).await else { break };
                let most = i32::try_from(put_back).unwrap_or(i32::MAX);
                let done = pulse.query_for(maintain, &[&lease.pen.queue, &most], tick).await;
                put_back = if done.is_ok() { MOST.min(put_back * 2) } else { 1.max(put_back / 8) };
                more = done.is_ok_and(|rows| rows.first().is_some_and(|row| row.get::<_, i32>(0) >= most));
            }
            let pulse = tokio::time::timeout_at(end.into(), pulse.lock()).await;
            let left = end.saturating_duration_since(Instant::now());
            if let (Ok(mut pulse), false) = (pulse, left.is_zero()) {
                let renewed = pulse.query_for("select requeue.renew($1)", &[&visits], left).await;
                visits = renewed.ok().and_then(|rows| Some(rows.first()?.get(0)));
            }
        }
    }
}

/// Claims and ends, until the queue is closed and its last run has ended.
pub(crate) async fn pumps<K: Key, T: Taps>(
    lease: Arc<Lease<K>>,
    taps: Arc<T>,
    link: Link,
    closing: watch::Receiver<bool>,
) {
    let mut pump = Pump {
        lease,
        taps,
        link,
        owner: NOBODY,
        joined: Instant::now(),
        old: Vec::new(),
        asleep: false,
        full: 0,
        folds: false,
        most: MOST,
        is_sent: false,
        apart: 0,
        locked: 0,
        closing,
    };
    pump.works().await;
    pump.leaves().await;
    pump.lease.over.send_replace(true);
}

struct Pump<K, T> {
    lease: Arc<Lease<K>>,
    taps: Arc<T>,
    link: Link,
    owner: i64,
    /// When the call was sent that made it that.
    joined: Instant,
    /// Owners that this process was, and that may still have keys.
    old: Vec<i64>,
    /// The server knows that this process sleeps, and is to be notified.
    asleep: bool,
    /// So many times in a row there were as many keys as were wanted.
    full: u32,
    /// The next call is to fold triggers of users' transactions in.
    folds: bool,
    /// So many ends are sent at most, and so many keys claimed: one after a call that was not answered, perhaps because there was too much
    /// in it, and twice as many after each that was.
    most: usize,
    /// The last call had its ends sent, if it had any; else it has failed before.
    is_sent: bool,
    /// So many ends in front are sent one by one: the server could not store something of a call that had them all.
    apart: usize,
    /// So many times in a row keys of ends were locked.
    locked: u32,
    closing: watch::Receiver<bool>,
}

/// What a call of `requeue.next` has said.
#[derive(Default)]
struct Next {
    claimed: usize,
    /// The fences of the runs whose ends were accepted.
    accepted: HashSet<i64>,
    /// Those of the runs whose keys somebody had locked: their ends are to be sent again.
    locked: HashSet<i64>,
    /// Until the next timer, or the next token.
    due: Option<Duration>,
    /// There are triggers of users' transactions, which a call without ends folds in.
    folds: bool,
}

impl<K: Key, T: Taps> Pump<K, T> {
    async fn works(&mut self) {
        let signal = self.lease.pen.signal.clone();
        loop {
            if let Some(outdated) = self.lease.serving.refusal() {
                *self.lease.pen.trouble() = Some(outdated.to_string());
                return self.lets_go().await;
            }
            if self.lease.has_lost(self.owner) {
                // and what the last call has brought
                self.lease.loses(self.owner, &*self.taps);
                self.is_nobody();
            }
            for claimed in self.lease.pen.freed() {
                self.taps.give(claimed);
            }
            let wanted = self.taps.wanted();
            let closing = *self.closing.borrow();
            if (wanted.is_none() || closing) && self.lease.pen.is_idle() {
                return;
            }
            let wanted = if closing { 0 } else { wanted.unwrap_or(0).min(self.most) };
            // with ends the server folds nothing in
            let folds = self.folds && wanted > 0 && self.apart == 0;
            // nor does a claim that fails keep ends from the server
            let (most, wanted) = if self.apart > 0 { (1, 0) } else { (self.most, wanted) };
            let mut ends = self.lease.pen.ends(if folds { 0 } else { most });
            let sent = ends.len();
            if sent == 0 && self.apart > 0 {
                // the lease was lost, and they with it
                self.apart = 0;
                continue;
            }
            if sent == 0 && wanted == 0 {
                self.sleeps(&signal, LOOKS).await;
                if closing && self.lease.pen.has_sent() {
                    return;
                }
                continue;
            }
            match self.next(wanted, &ends).await {
                Ok(next) => {
                    *self.lease.pen.trouble() = None;
                    self.most = MOST.min(self.most * 2);
                    self.apart = self.apart.saturating_sub(sent);
                    let is_locked = |end: &End| next.locked.contains(&end.fence);
                    let (locked, ends): (Vec<End>, Vec<End>) = ends.into_iter().partition(is_locked);
                    if sent > 0 {
                        self.locked = if locked.is_empty() { 0 } else { self.locked + 1 };
                    }
                    self.lease.pen.later(locked);
                    self.lease.pen.arrived();
                    let is_refused = |end: &&End| {
                        !end.may_have_ended && !end.is_told_again && !next.accepted.contains(&end.fence)
                    };
                    let refused = ends.iter().filter(is_refused).count();
                    self.lease.pen.refused.fetch_add(refused as u64, Relaxed);
                    self.full = if next.claimed > 0 && next.claimed == wanted { self.full + 1 } else { 0 };
                    if self.full == BUSY {
                        self.is_awake().await;
                    } else if self.full == 0
                        && wanted > 0
                        && !self.is_asleep().await
                        && self.taps.wanted().is_some()
                    {
                        // it looks once more now that it would be notified
                        continue;
                    }
                    self.folds = next.folds;
                    // there may be ends that were left out, or triggers
                    let is_all = sent < most && !folds && !next.folds;
                    if next.claimed < wanted.max(1) && (is_all || self.locked > 0 && sent > 0) {
                        let locked =
                            (self.locked > 0).then(|| Duration::from_millis(1 << self.locked.min(8)));
                        let at_most = [next.due, locked].into_iter().flatten().fold(LOOKS, Duration::min);
                        self.sleeps(&signal, at_most).await;
                    }
                    if closing && self.locked >= PATIENCE {
                        return;
                    }
                }
                Err(failed) => {
                    match (&failed, &mut *ends) {
                        // without a claim, whose fault it may be
                        (Failed::Data(_), [end]) if wanted == 0 => self.can_be_stored(end).await,
                        (Failed::Data(_), _) => self.apart = sent,
                        (Failed::Maybe(_), ends) if self.is_sent => {
                            ends.iter_mut().for_each(|end| end.is_told_again = true);
                        }
                        _ => {}
                    }
                    // one that fails must not keep ends from the server
                    self.folds = false;
                    self.lease.pen.again(ends);
                    self.lease.pen.arrived();
                    *self.lease.pen.trouble() = failed.why();
                    match failed {
                        Failed::Not(_) | Failed::Data(_) => {}
                        Failed::Maybe(_) => {
                            self.most = 1;
                            self.is_unsure();
                        }
                        Failed::LeaseLost => {
                            self.lease.loses(self.owner, &*self.taps);
                            self.is_nobody();
                        }
                    }
                    tokio::time::sleep(TRIES_AGAIN).await;
                    if closing && !self.link.is_up() {
                        return;
                    }
                }
            }
        }
    }

    /// The schema does not serve this program any more: nothing is claimed, runs are told to end, and what they end with is not
    /// sent. Their keys go back when they have ended, or a third of the lease later: it is extended until then.
    async fn lets_go(&mut self) {
        self.lease.pen.lose_all();
        self.taps.lost();
        self.taps.closes();
        let until = Instant::now() + self.lease.length / 3;
        while !self.lease.pen.is_idle() && Instant::now() < until && !*self.closing.borrow() {
            tokio::time::sleep(TRIES_AGAIN).await;
        }
    }

    /// Sleeps until it is signalled, notified, or it is time.
    async fn sleeps(&mut self, signal: &tokio::sync::Notify, at_most: Duration) {
        let mut closing = self.closing.clone();
        let closes = async {
            if closing.wait_for(|closing| *closing).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        // already closing: what is left to do signals
        if *self.closing.borrow() {
            drop(tokio::time::timeout(at_most, signal.notified()).await);
            return;
        }
        let (signalled, closes) = (std::pin::pin!(signal.notified()), std::pin::pin!(closes));
        drop(tokio::time::timeout(at_most, select(signalled, closes)).await);
    }

    /// What the old owner had is to be settled.
    fn is_unsure(&mut self) {
        if self.owner != NOBODY {
            self.old.push(self.owner);
        }
        // the lease goes on to be extended, and to be watched: it is that of the runs until they are settled
        (self.owner, self.asleep) = (NOBODY, false);
    }

    /// What the owner had is not settled: its runs may go on until its lease is over.
    fn is_nobody(&mut self) {
        self.owner = NOBODY;
        self.asleep = false;
        self.old.clear();
        *self.lease.held() = None;
    }

    /// Becomes an owner, and settles what those had that it was before. These ends are on their way: their runs are still this
    /// process's.
    async fn joins(&mut self, ends: &[End]) -> Result<(), Failed> {
        if !self.link.is_up() {
            // this may be another server by now
            self.link.query("select requeue.epoch()", &[]).await?;
        }
        let is_new = self.owner != NOBODY && self.lease.held().is_none_or(|held| held.owner != self.owner);
        if is_new && self.joined.elapsed() >= self.lease.length / 3 {
            // what it is to go on with could not be settled yet, and nobody extends its lease meanwhile
            self.is_unsure();
        }
        if self.owner == NOBODY {
            let join = "select requeue.join_($1, $2, $3)";
            let sent = Instant::now();
            let rows = self
                .link
                .query(join, &[&self.lease.pen.queue, &self.lease.who, &self.lease.micros()])
                .await?;
            self.owner = rows.first().map_or(NOBODY, |row| row.get(0));
            self.joined = sent;
        }
        while let Some(old) = self.old.last().copied() {
            if self.old.iter().any(|old| self.lease.has_lost(*old)) {
                // its runs may be another's by now, which was to go on with them: its lease runs out as well
                self.old.clear();
                break;
            }
            let mut fences = self.lease.pen.fences();
            fences.extend(ends.iter().map(|end| end.fence));
            let kept = self.settles(old, Some(self.owner), fences).await?;
            self.old.pop();
            let is_short =
                self.old.is_empty() && self.lease.pen.going_on().iter().any(|it| !kept.contains(it));
            if is_short || self.lease.has_lost(old) {
                // Runs are others' by now. Or they were told to end while they went over to this owner, whose lease must run
                // out then as that of the old one would have.
                return Err(Failed::LeaseLost);
            }
        }
        let held = self.lease.held().map(|held| held.owner);
        if held != Some(self.owner) {
            *self.lease.held() = Some(Held { owner: self.owner, beat: self.joined });
        }
        Ok(())
    }

    /// What this old owner has goes over to the new one, if its fence is among these, and else back in line. Gives the fences of
    /// those that the new one has then.
    async fn settles(
        &mut self,
        old: i64,
        new: Option<i64>,
        fences: Vec<i64>,
    ) -> Result<HashSet<i64>, Failed> {
        let settle = "select requeue.settle($1, $2, $3, $4)";
        let rows = self.link.query(settle, &[&self.lease.pen.queue, &old, &new, &fences]).await?;
        Ok(rows.first().map_or_else(Vec::new, |row| row.get(0)).into_iter().collect())
    }

    async fn next(&mut self, wanted: usize, ends: &[End]) -> Result<Next, Failed> {
        self.is_sent = false;
        self.joins(ends).await?;
        self.is_sent = true;
        let clock = self.lease.pen.clock.get();
        let keys: Vec<&[u8]> = ends.iter().map(|end| &*end.key).collect();
        let fences: Vec<i64> = ends.iter().map(|end| end.fence).collect();
        let mut rows = Rows::default();
        for end in ends {
            rows.push(&end.how, |due| due.micros(clock));
        }
        let Rows { how, delays, failures, attempts, values, errors } = rows;
        let wanted = i32::try_from(wanted).unwrap_or(i32::MAX);
        let next = "select kind, k, f, att, fails, prio, val from requeue.next($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
        let (queue, owner) = (self.lease.pen.queue, self.owner);
        let answer = self
            .link
            .query(
                next,
                &[
                    &queue, &owner, &wanted, &keys, &fences, &how, &delays, &failures, &attempts, &values,
                    &errors,
                ],
            )
            .await?;
        let mut said = Next::default();
        for (nth, row) in answer.iter().enumerate() {
            // what merges values may take long, and the lease is extended by the same thread
            if nth % 64 == 63 {
                tokio::task::yield_now().await;
            }
            match row.get::<_, i32>(0) {
                0 => {
                    let fence: i64 = row.get(2);
                    let said = if fence < 0 { &mut said.locked } else { &mut said.accepted };
                    said.insert(fence.abs());
                }
                1 => {
                    said.claimed += 1;
                    self.taps.give(claimed(row));
                }
                2 => {
                    let due = Duration::from_micros(row.get::<_, i64>(2).unsigned_abs());
                    said.due = said.due.into_iter().chain([due]).min();
                }
                _ => said.folds = true,
            }
        }
        Ok(said)
    }

    /// Notes on the server that this process waits for a notification. True if it was noted before, or none would come in.
    async fn is_asleep(&mut self) -> bool {
        if !self.lease.hears || self.asleep || *self.closing.borrow() {
            return true;
        }
        self.asleep = self.link.query("select requeue.sleeps($1, true)", &[&self.owner]).await.is_ok();
        !self.asleep
    }

    async fn is_awake(&mut self) {
        if self.asleep {
            self.asleep = self.link.query("select requeue.sleeps($1, false)", &[&self.owner]).await.is_err();
        }
    }

    /// The server can't store this end. A value that a handler has put back: the key comes back with the values that the run had. Values of
    /// the run and newer ones that can't be joined: the newer ones wait. Letters of an error: it has others in their place.
    async fn can_be_stored(&mut self, end: &mut End) {
        match &mut end.how {
            How::Back { due, failures, attempt, value: Some(_) } => {
                let (due, failures, attempt) = (*due, *failures, *attempt);
                end.how = How::Failed { due, failures, attempt };
            }
            How::Failed { .. } | How::PutBack => {
                let (spill, key) = ("select requeue.spill($1, $2, $3)", &*end.key);
                // if this fails the end does too, and it is tried again
                drop(self.link.query(spill, &[&self.lease.pen.queue, &key, &end.fence]).await);
            }
            How::GaveUp(why) => *why = why.replace(|letter: char| !letter.is_ascii() || letter == '\0', "?"),
            _ => {}
        }
    }

    /// Gives up the lease. Runs that go on although nobody will send their ends are told to end, and their keys go to others when
    /// the lease is over.
    async fn leaves(&mut self) {
        if self.lease.pen.has_runs() {
            self.lease.pen.lose_all();
            self.taps.lost();
            return;
        }
        if self.owner != NOBODY {
            self.old.push(self.owner);
        }
        for old in std::mem::take(&mut self.old) {
            // if this fails the lease runs out
            drop(self.settles(old, None, Vec::new()).await);
        }
    }
}

fn claimed(row: &Row) -> Claimed {
    let count = |nth: usize| u32::try_from(row.get::<_, i32>(nth)).unwrap_or(0);
    let value: Option<Json<Box<RawValue>>> = row.get(6);
    Claimed {
        key: row.get(1),
        fence: row.get(2),
        attempt: count(3),
        failures: count(4),
        priority: crate::desk::priority(row.get(5)),
        value: value.map(|Json(value)| value),
    }
}

/// Ends as the server takes them.
#[derive(Default)]
struct Rows<'a> {
    how: Vec<i16>,
    delays: Vec<i64>,
    failures: Vec<i32>,
    attempts: Vec<i32>,
    values: Vec<Option<Json<&'a RawValue>>>,
    errors: Vec<Option<&'a str>>,
}

impl<'a> Rows<'a> {
    fn push(&mut self, how: &'a How, micros: impl Fn(crate::pen::Due) -> i64) {
        let count = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        let (how, delay, failures, attempt, value, error) = match how {
            How::Done => (0, 0, 0, 0, None, None),
            How::Back { due, failures, attempt, value } => {
                (1, micros(*due), count(*failures), count(*attempt), value.as_deref(), None)
            }
            How::GaveUp(why) => (2, 0, 0, 0, None, Some(&**why)),
            How::PutBack => (3, 0, 0, 0, None, None),
            How::Failed { due, failures, attempt } => {
                (4, micros(*due), count(*failures), count(*attempt), None, None)
            }
        };
        self.how.push(how);
        self.delays.push(delay);
        self.failures.push(failures);
        self.attempts.push(attempt);
        self.values.push(value.map(Json));
        self.errors.push(error);
    }
}

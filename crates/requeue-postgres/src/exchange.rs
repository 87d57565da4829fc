//! The exchange: the task that claims keys for a queue's workers and sends the ends of their runs. The
//! [heartbeat](crate::heartbeat) keeps its lease.
//!
//! ```text
//!   the queue in memory ──ends──► RunLedger ──ends, and how many keys are wanted──► requeue.next ──► the queue in memory
//! ```
//!
//! A lost reply leaves two questions: which ends were accepted, and which keys were handed out. Ends are sent
//! again, because they are accepted only once. For the keys a new owner is created: the runs that this
//! process knows move to it, and the old owner's other keys are put back (`requeue.settle`).

use crate::heartbeat::{Beats, Heartbeat, LOOKS};
use crate::lanes::{Lane, Lanes};
use crate::lease_clock::{Held, LeaseClock, Moment};
use crate::link::Failed;
use crate::post::{NOBODY, Post};
use crate::run_ledger::{Claimed, End, How, RunLedger};
use crate::schema::Serving;
use futures_util::future::select;
use requeue_engine::{Key, Schedule};
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_postgres::Row;
use tokio_postgres::types::Json;

/// Maximum sleep of an exchange that waits for keys and knows of no timer: the heartbeat looks meanwhile.
const LONGEST: Duration = Duration::from_secs(3600);
/// Delay before a failed call is tried again.
const TRIES_AGAIN: Duration = Duration::from_millis(200);
/// Maximum number of ends sent at once, and of keys claimed.
const MOST: usize = 1000;
/// When leaving: number of retries of ends whose rows are locked (about 10 s). After that they are put back,
/// at the latest when the lease is over.
const PATIENCE: u32 = 45;

/// The queue in memory, as the exchange sees it. It must not keep the queue open.
pub(crate) trait ExchangeTarget: Send + Sync {
    /// Number of keys that workers wait for, plus those to be prefetched; `None` if the queue is closed.
    fn wanted(&self) -> Option<usize>;
    /// Gives it a key. A key that it can't accept goes back to the ledger.
    fn give(&self, claimed: Claimed);
    /// Handles the loss of its runs to others.
    fn lost(&self);
    /// Stops triggers and hand-outs.
    fn closes(&self);
}

/// State shared by a queue's tasks.
pub(crate) struct Lease<K> {
    pub(crate) ledger: Arc<RunLedger<K>>,
    pub(crate) who: String,
    /// State shared with the heartbeat.
    pub(crate) post: Arc<Post>,
    /// Whether the schema still serves this program.
    pub(crate) serving: Arc<Serving>,
    /// Number of lost leases.
    pub(crate) losses: AtomicU64,
    /// The owner lost last, whose runs were told to end.
    lost: AtomicI64,
    /// Becomes true when the exchange has ended, and the lease is given up.
    over: watch::Sender<bool>,
}

impl<K> Lease<K> {
    pub(crate) fn new(ledger: Arc<RunLedger<K>>, who: String, serving: Arc<Serving>) -> Self {
        let post = Arc::new(Post::new(ledger.queue, ledger.signal.clone()));
        Self {
            ledger,
            who,
            post,
            serving,
            losses: AtomicU64::new(0),
            lost: AtomicI64::new(NOBODY),
            over: watch::Sender::new(false),
        }
    }

    fn micros(&self) -> i64 {
        crate::add_batcher::micros(self.clock().length)
    }

    pub(crate) fn clock(&self) -> &LeaseClock {
        &self.ledger.lease
    }

    /// Becomes true when the exchange has ended, and the lease is given up.
    pub(crate) fn left(&self) -> watch::Receiver<bool> {
        self.over.subscribe()
    }
}

impl<K: Key> Lease<K> {
    /// Handles the loss of this owner's runs, now or soon. May be called several times.
    fn loses(&self, owner: i64, target: &impl ExchangeTarget) {
        if self.lost.swap(owner, Relaxed) != owner {
            self.losses.fetch_add(1, Relaxed);
        }
        self.ledger.lose_all();
        target.lost();
    }

    /// Whether the runs of this owner were told to end.
    fn has_lost(&self, owner: i64) -> bool {
        owner != NOBODY && self.lost.load(Relaxed) == owner
    }
}

/// A queue that this process works on, for the heartbeat.
pub(crate) struct Beating<K, T> {
    pub(crate) lease: Arc<Lease<K>>,
    pub(crate) target: Arc<T>,
}

impl<K: Key, T: ExchangeTarget> Beats for Beating<K, T> {
    fn post(&self) -> &Post {
        &self.lease.post
    }

    fn clock(&self) -> &LeaseClock {
        self.lease.clock()
    }

    fn is_lost(&self, owner: i64) {
        let was = self.lease.clock().held().take_if(|held| held.owner == owner);
        if was.is_some() {
            self.lease.loses(owner, &*self.target);
            self.lease.post.signal.notify_one();
        }
    }
}

/// Claims keys and sends ends, until the queue is closed and its last run has ended.
pub(crate) async fn run_exchange<K: Key, T: ExchangeTarget>(
    lease: Arc<Lease<K>>,
    target: Arc<T>,
    lanes: Arc<Lanes>,
    heartbeat: Arc<Heartbeat>,
    closing: watch::Receiver<bool>,
) {
    let mut exchange = Exchange {
        lease,
        target,
        lanes,
        heartbeat,
        is_up: true,
        owner: NOBODY,
        joined: Moment::now(),
        old: Vec::new(),
        has_slept: false,
        dry: None,
        folds: false,
        most: MOST,
        is_sent: false,
        apart: 0,
        locked: 0,
        closing,
    };
    exchange.run().await;
    exchange.leaves().await;
    exchange.lease.post.over.store(true, Relaxed);
    exchange.lease.over.send_replace(true);
    exchange.heartbeat.wakes();
}

struct Exchange<K, T> {
    lease: Arc<Lease<K>>,
    target: Arc<T>,
    lanes: Arc<Lanes>,
    heartbeat: Arc<Heartbeat>,
    /// Whether the connection of the last call stands.
    is_up: bool,
    owner: i64,
    /// When the call was sent that made it the owner.
    joined: Moment,
    /// Earlier owners of this process that may still have keys.
    old: Vec<i64>,
    /// It has just waited for keys.
    has_slept: bool,
    /// When the last claim found fewer keys than wanted. Until then another one would find nothing, unless
    /// there is news.
    dry: Option<Instant>,
    /// The next call must fold in triggers of users' transactions.
    folds: bool,
    /// Maximum number of ends to send and keys to claim: one after an unanswered call, which may have been
    /// too large, and twice as many after each answered one.
    most: usize,
    /// The last call succeeded in sending its ends, if it had any.
    is_sent: bool,
    /// Number of ends to send one by one: the server could not store something of a call that had them all.
    apart: usize,
    /// Number of times in a row that keys of ends were locked.
    locked: u32,
    closing: watch::Receiver<bool>,
}

/// Answer of a call of `requeue.next`.
#[derive(Default)]
struct Next {
    claimed: usize,
    /// Fences of runs whose ends were accepted.
    accepted: HashSet<i64>,
    /// Fences of runs whose keys were locked: their ends must be sent again.
    locked: HashSet<i64>,
    /// Time until the next timer, or the next token.
    due: Option<Duration>,
    /// There are triggers of users' transactions, which a call without ends folds in.
    folds: bool,
}

impl<K: Key, T: ExchangeTarget> Exchange<K, T> {
    async fn run(&mut self) {
        let signal = self.lease.ledger.signal.clone();
        loop {
            if let Some(outdated) = self.lease.serving.refusal() {
                *self.lease.ledger.trouble() = Some(outdated.to_string());
                return self.lets_go().await;
            }
            if self.lease.has_lost(self.owner) {
                // and what the last call has brought
                self.lease.loses(self.owner, &*self.target);
                self.is_nobody();
                self.dry = None;
            }
            for claimed in self.lease.ledger.freed() {
                self.target.give(claimed);
            }
            let wanted = self.target.wanted();
            let closing = *self.closing.borrow();
            if (wanted.is_none() || closing) && self.lease.ledger.is_idle() {
                return;
            }
            let wanted = if closing { 0 } else { wanted.unwrap_or(0).min(self.most) };
            // with ends the server folds nothing in
            let folds = self.folds && wanted > 0 && self.apart == 0;
            // nor does a claim that fails keep ends from the server
            let (most, wanted) = if self.apart > 0 { (1, 0) } else { (self.most, wanted) };
            let mut ends = self.lease.ledger.ends(if folds { 0 } else { most });
            let sent = ends.len();
            if sent == 0 && self.apart > 0 {
                // the lease was lost, and they with it
                self.apart = 0;
                continue;
            }
            if sent == 0 && wanted == 0 {
                self.sleeps(&signal, LOOKS).await;
                if closing && self.lease.ledger.has_sent() {
                    return;
                }
                continue;
            }
            let has_news = wanted > 0 && self.lease.post.has_news();
            if let Some(until) = self.dry.filter(|until| sent == 0 && !has_news && Instant::now() < *until) {
                // a worker waits that has ended a run
                self.waits(&signal, until.saturating_duration_since(Instant::now())).await;
                continue;
            }
            match self.next(wanted, &ends).await {
                Ok(next) => {
                    *self.lease.ledger.trouble() = None;
                    self.most = MOST.min(self.most * 2);
                    self.apart = self.apart.saturating_sub(sent);
                    let is_locked = |end: &End| next.locked.contains(&end.fence);
                    let (locked, ends): (Vec<End>, Vec<End>) = ends.into_iter().partition(is_locked);
                    if sent > 0 {
                        self.locked = if locked.is_empty() { 0 } else { self.locked + 1 };
                    }
                    self.lease.ledger.later(locked);
                    self.lease.ledger.arrived();
                    let is_refused = |end: &&End| {
                        !end.may_have_ended && !end.is_told_again && !next.accepted.contains(&end.fence)
                    };
                    let refused = ends.iter().filter(is_refused).count();
                    self.lease.ledger.refused.fetch_add(refused as u64, Relaxed);
                    if std::mem::take(&mut self.has_slept) && next.claimed > 0 {
                        self.lease.post.is_needed();
                    }
                    self.folds = next.folds;
                    if wanted > 0 {
                        let is_dry = next.claimed < wanted && !next.folds;
                        self.dry = is_dry.then(|| Instant::now() + next.due.unwrap_or(LONGEST));
                    }
                    // there may be ends that were left out, or triggers
                    let is_all = sent < most && !folds && !next.folds;
                    if next.claimed < wanted.max(1) && (is_all || self.locked > 0 && sent > 0) {
                        let locked =
                            (self.locked > 0).then(|| Duration::from_millis(1 << self.locked.min(8)));
                        let at_most = [next.due, locked].into_iter().flatten().min();
                        self.waits(&signal, at_most.unwrap_or(LONGEST)).await;
                    }
                    if closing && self.locked >= PATIENCE {
                        return;
                    }
                }
                Err(failed) => {
                    self.dry = None;
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
                    self.lease.ledger.again(ends);
                    self.lease.ledger.arrived();
                    *self.lease.ledger.trouble() = failed.why();
                    match failed {
                        Failed::Not(_) | Failed::Data(_) | Failed::Gone(_) => {}
                        Failed::Maybe(_) => {
                            self.most = 1;
                            self.is_unsure();
                        }
                        Failed::LeaseLost => {
                            self.lease.loses(self.owner, &*self.target);
                            self.is_nobody();
                        }
                    }
                    tokio::time::sleep(TRIES_AGAIN).await;
                    if closing && !self.is_up {
                        return;
                    }
                }
            }
        }
    }

    /// Stops working because the schema no longer serves this program: nothing is claimed, runs are told to
    /// end, and their ends are not sent. Their keys go back when they have ended, or after a third of the
    /// lease, which is extended until then.
    async fn lets_go(&mut self) {
        self.lease.ledger.lose_all();
        self.target.lost();
        self.target.closes();
        let until = Instant::now() + self.lease.clock().length / 3;
        while !self.lease.ledger.is_idle() && Instant::now() < until && !*self.closing.borrow() {
            tokio::time::sleep(TRIES_AGAIN).await;
        }
    }

    /// Waits for keys, or the ends of runs. Meanwhile the heartbeat looks for keys.
    async fn waits(&mut self, signal: &tokio::sync::Notify, at_most: Duration) {
        let is_wanted = self.target.wanted().is_some_and(|wanted| wanted > 0) && !*self.closing.borrow();
        if is_wanted && self.owner != NOBODY && self.lease.post.sleeps(self.owner) {
            self.heartbeat.is_asked();
        }
        self.has_slept = true;
        // notes for the exchange signal it, too
        self.sleeps(signal, if is_wanted { at_most } else { at_most.min(LOOKS) }).await;
        self.lease.post.wakes();
    }

    /// Sleeps until it is signalled, notified, or the time is over.
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

    /// Marks the old owner's keys as to be settled.
    fn is_unsure(&mut self) {
        if self.owner != NOBODY {
            self.old.push(self.owner);
        }
        // the lease goes on to be extended, and to be watched: it is that of the runs until they are settled
        self.owner = NOBODY;
    }

    /// Gives up the owner without settling its keys: its runs may go on until its lease is over.
    fn is_nobody(&mut self) {
        self.owner = NOBODY;
        self.old.clear();
        *self.lease.clock().held() = None;
    }

    /// Becomes an owner, and settles the keys of its earlier owners. These ends are being sent: their runs
    /// still belong to this process.
    async fn joins(&mut self, link: &mut Lane<'_>, ends: &[End]) -> Result<(), Failed> {
        link.meets().await?;
        let is_new =
            self.owner != NOBODY && self.lease.clock().held().is_none_or(|held| held.owner != self.owner);
        if is_new && self.joined.elapsed() >= self.lease.clock().length / 3 {
            // its keys could not be settled yet, and its lease is not extended meanwhile
            self.is_unsure();
        }
        if self.owner == NOBODY {
            let join = "select requeue.join_($1, $2, $3)";
            let sent = Moment::now();
            let rows =
                link.query(join, &[&self.lease.ledger.queue, &self.lease.who, &self.lease.micros()]).await?;
            self.owner = rows.first().map_or(NOBODY, |row| row.get(0));
            self.joined = sent;
        }
        while let Some(old) = self.old.last().copied() {
            if self.old.iter().any(|old| self.lease.has_lost(*old)) {
                // its runs may be another's by now, which was to go on with them: its lease runs out as well
                self.old.clear();
                break;
            }
            let mut fences = self.lease.ledger.fences();
            fences.extend(ends.iter().map(|end| end.fence));
            let kept = self.settles(link, old, Some(self.owner), fences).await?;
            self.old.pop();
            let is_short =
                self.old.is_empty() && self.lease.ledger.going_on().iter().any(|it| !kept.contains(it));
            if is_short || self.lease.has_lost(old) {
                // Runs are others' by now. Or they were told to end while they went over to this owner, whose lease must run
                // out then as that of the old one would have.
                return Err(Failed::LeaseLost);
            }
        }
        let held = self.lease.clock().held().map(|held| held.owner);
        if held != Some(self.owner) {
            *self.lease.clock().held() = Some(Held { owner: self.owner, beat: self.joined });
            // it may have rested, and has a lease to extend
            self.heartbeat.wakes();
        }
        Ok(())
    }

    /// Moves this old owner's keys to the new one if their fences are listed, and back in line otherwise.
    /// Returns the fences that the new one then has.
    async fn settles(
        &self,
        link: &mut Lane<'_>,
        old: i64,
        new: Option<i64>,
        fences: Vec<i64>,
    ) -> Result<HashSet<i64>, Failed> {
        let settle = "select requeue.settle($1, $2, $3, $4)";
        let rows = link.query(settle, &[&self.lease.ledger.queue, &old, &new, &fences]).await?;
        Ok(rows.first().map_or_else(Vec::new, |row| row.get(0)).into_iter().collect())
    }

    async fn next(&mut self, wanted: usize, ends: &[End]) -> Result<Next, Failed> {
        let lanes = self.lanes.clone();
        let mut link = lanes.lock().await;
        let said = self.next_on(&mut link, wanted, ends).await;
        self.is_up = link.is_up();
        said
    }

    async fn next_on(&mut self, link: &mut Lane<'_>, wanted: usize, ends: &[End]) -> Result<Next, Failed> {
        self.is_sent = false;
        self.joins(link, ends).await?;
        self.is_sent = true;
        let clock = self.lease.ledger.clock.get();
        let keys: Vec<&[u8]> = ends.iter().map(|end| &*end.key).collect();
        let fences: Vec<i64> = ends.iter().map(|end| end.fence).collect();
        let mut rows = Rows::default();
        for end in ends {
            rows.push(&end.how, |due| due.micros(clock));
        }
        let Rows { how, delays, failures, attempts, values, errors } = rows;
        let wanted = i32::try_from(wanted).unwrap_or(i32::MAX);
        let next = "select kind, k, f, att, fails, prio, val from requeue.next($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
        let (queue, owner) = (self.lease.ledger.queue, self.owner);
        let answer = link
            .query(
                next,
                &[
                    &queue, &owner, &wanted, &keys, &fences, &how, &delays, &failures, &attempts, &values,
                    &errors,
                ],
            )
            .await?;
        self.tells_times(link, &answer).await;
        let mut said = Next::default();
        for (nth, row) in answer.iter().enumerate() {
            // a merge of values may take long, and the lease is extended by the same thread
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
                    self.target.give(claimed(row));
                }
                2 => {
                    let due = Duration::from_micros(row.get::<_, i64>(2).unsigned_abs());
                    said.due = said.due.into_iter().chain([due]).min();
                }
                3 => said.folds = true,
                _ => {}
            }
        }
        Ok(said)
    }

    /// Computes the next times of claimed keys that have schedules, and stores them. This comes before their runs, so that
    /// whatever ends a run finds the next time. If it fails, a key comes about a period after its run, once.
    async fn tells_times(&self, link: &mut Lane<'_>, answer: &[Row]) {
        let (mut keys, mut rules, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for row in answer.iter().filter(|row| row.get::<_, i32>(0) == 4) {
            let Json(rule): Json<String> = row.get(6);
            if let Some(time) = Schedule::stored(&rule).and_then(|it| crate::calendar::next(&it, row.get(2)))
            {
                keys.push(row.get::<_, &[u8]>(1));
                rules.push(rule);
                times.push(time);
            }
        }
        if !keys.is_empty() {
            let tell = "select requeue.come_again($1, $2, $3, $4)";
            drop(link.query(tell, &[&self.lease.ledger.queue, &keys, &rules, &times]).await);
        }
    }

    /// Changes an end that the server can't store. A value put back by a handler: the key comes back with the
    /// values that the run had. Values of the run and newer ones that can't be joined: the newer ones wait.
    /// Characters of an error: they are replaced.
    async fn can_be_stored(&mut self, end: &mut End) {
        match &mut end.how {
            How::Back { due, failures, attempt, value: Some(_) } => {
                let (due, failures, attempt) = (*due, *failures, *attempt);
                end.how = How::Failed { due, failures, attempt };
            }
            How::Failed { .. } | How::PutBack => {
                let (spill, key) = ("select requeue.spill($1, $2, $3)", &*end.key);
                // if this fails the end does too, and it is tried again
                drop(
                    self.lanes.lock().await.query(spill, &[&self.lease.ledger.queue, &key, &end.fence]).await,
                );
            }
            How::GaveUp(why) => *why = why.replace(|letter: char| !letter.is_ascii() || letter == '\0', "?"),
            _ => {}
        }
    }

    /// Gives up the lease. Runs whose ends would not be sent any more are told to end, and their keys go to
    /// others when the lease is over.
    async fn leaves(&mut self) {
        if self.lease.ledger.has_runs() {
            self.lease.ledger.lose_all();
            self.target.lost();
            return;
        }
        if self.owner != NOBODY {
            self.old.push(self.owner);
        }
        let lanes = self.lanes.clone();
        for old in std::mem::take(&mut self.old) {
            // if this fails the lease runs out
            drop(self.settles(&mut lanes.lock().await, old, None, Vec::new()).await);
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
        priority: crate::add_batcher::priority(row.get(5)),
        value: value.map(|Json(value)| value),
    }
}

/// Ends of runs as arguments of `requeue.next`: an array each.
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
    fn push(&mut self, how: &'a How, micros: impl Fn(crate::run_ledger::Due) -> i64) {
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

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

use crate::add_batcher::{micros, priority};
use crate::heartbeat::{Heartbeat, TICK};
use crate::lanes::{Lane, Lanes};
use crate::lease_clock::{Held, Moment};
use crate::link::Failed;
use crate::membership::Membership;
use crate::post::NOBODY;
use crate::run_ledger::{Claimed, Due, End, How};
use crate::typed::Param;
use futures_util::future::select;
use requeue_engine::{Key, Schedule};
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_postgres::Row;
use tokio_postgres::types::Json;

/// Maximum sleep of an exchange that waits for keys and knows of no timer: the heartbeat looks meanwhile.
const LONGEST: Duration = Duration::from_secs(3600);
/// Delay before a failed call is tried again.
const TRIES_AGAIN: Duration = Duration::from_millis(200);
/// Maximum number of ends sent at once, and of keys claimed.
const ENDS_AT_ONCE: usize = 1000;
/// When leaving: number of retries of ends whose rows are locked (about 10 s). After that they are put back,
/// at the latest when the lease is over.
const PATIENCE: u32 = 45;

/// Kinds of the rows of `requeue.next`: see its comment in schema/functions.sql.
mod kind {
    pub(super) const END: i32 = 0;
    pub(super) const CLAIMED: i32 = 1;
    pub(super) const DUE: i32 = 2;
    pub(super) const MUST_FOLD: i32 = 3;
    pub(super) const SCHEDULED: i32 = 4;
}

/// How runs end, for `requeue.next`: see finish() in schema/functions.sql.
mod how {
    pub(super) const DONE: i16 = 0;
    pub(super) const BACK: i16 = 1;
    pub(super) const GAVE_UP: i16 = 2;
    pub(super) const PUT_BACK: i16 = 3;
    pub(super) const FAILED: i16 = 4;
}

/// Claims keys and sends ends, until the queue is closed and its last run has ended.
pub(crate) async fn run_exchange<K: Key>(
    membership: Arc<Membership<K>>,
    lanes: Arc<Lanes>,
    heartbeat: Arc<Heartbeat>,
    closing: watch::Receiver<bool>,
) {
    let mut exchange = Exchange {
        membership,
        lanes,
        heartbeat,
        is_up: true,
        owner: NOBODY,
        joined: Moment::now(),
        old: Vec::new(),
        has_slept: false,
        dry: None,
        folds: false,
        most: ENDS_AT_ONCE,
        is_sent: false,
        apart: 0,
        locked: 0,
        closing,
    };
    exchange.run().await;
    exchange.leave().await;
    exchange.membership.end();
    exchange.heartbeat.wake();
}

struct Exchange<K> {
    membership: Arc<Membership<K>>,
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
    /// Set if the last claim found fewer keys than wanted: until then another one would find nothing, unless there
    /// is news.
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

/// A call of `requeue.next` to be made.
struct Call {
    /// Number of keys to claim.
    wanted: usize,
    ends: Vec<End>,
    /// Maximum number of ends of this call.
    most: usize,
    /// The call is to fold in triggers, and has no ends.
    folds: bool,
    /// The process is closing.
    closing: bool,
}

impl<K: Key> Exchange<K> {
    async fn run(&mut self) {
        loop {
            if let Some(outdated) = self.membership.serving.refusal() {
                *self.membership.ledger.trouble() = Some(outdated.to_string());
                return self.stop_serving().await;
            }
            if self.membership.was_told_to_end(self.owner) {
                // and what the last call has brought
                self.membership.lose_runs(self.owner);
                self.drop_owner();
                self.dry = None;
            }
            for claimed in self.membership.ledger.freed() {
                self.membership.target.give(claimed);
            }
            let Some(call) = self.prepare() else { return };
            let sent = call.ends.len();
            if sent == 0 && self.apart > 0 {
                // the lease was lost, and they with it
                self.apart = 0;
            } else if sent == 0 && call.wanted == 0 {
                self.sleep(TICK).await;
                if call.closing && self.membership.ledger.has_sent() {
                    return;
                }
            } else if let Some(left) = self.left_dry(&call) {
                // a worker waits that has ended a run
                self.wait_for_keys(left).await;
            } else {
                let goes_on = match self.next(call.wanted, &call.ends).await {
                    Ok(next) => self.succeeded(next, call).await,
                    Err(failed) => self.failed(&failed, call).await,
                };
                if !goes_on {
                    return;
                }
            }
        }
    }

    /// Takes the ends for the next call, and decides how many keys it claims. `None` if the queue is closed and
    /// nothing is left to be sent.
    fn prepare(&self) -> Option<Call> {
        let wanted = self.membership.target.wanted();
        let closing = *self.closing.borrow();
        if (wanted.is_none() || closing) && self.membership.ledger.is_idle() {
            return None;
        }
        let wanted = if closing { 0 } else { wanted.unwrap_or(0).min(self.most) };
        // with ends the server folds nothing in
        let folds = self.folds && wanted > 0 && self.apart == 0;
        // nor does a claim that fails keep ends from the server
        let (most, wanted) = if self.apart > 0 { (1, 0) } else { (self.most, wanted) };
        let ends = self.membership.ledger.ends(if folds { 0 } else { most });
        Some(Call { wanted, ends, most, folds, closing })
    }

    /// Time until a claim without ends could find a key, if the last one found too few and there is no news.
    fn left_dry(&self, call: &Call) -> Option<Duration> {
        let has_news = call.wanted > 0 && self.membership.post.has_news();
        let until = self.dry.filter(|_| call.ends.is_empty() && !has_news)?;
        let now = Instant::now();
        (now < until).then(|| until - now)
    }

    /// Records an answered call. Then waits, if there is nothing more to send or to claim. Returns `false` if the
    /// exchange is to end.
    async fn succeeded(&mut self, next: Next, call: Call) -> bool {
        let ledger = &self.membership.ledger;
        let sent = call.ends.len();
        *ledger.trouble() = None;
        self.most = ENDS_AT_ONCE.min(self.most * 2);
        self.apart = self.apart.saturating_sub(sent);
        let is_locked = |end: &End| next.locked.contains(&end.fence);
        let (locked, ends): (Vec<End>, Vec<End>) = call.ends.into_iter().partition(is_locked);
        if sent > 0 {
            self.locked = if locked.is_empty() { 0 } else { self.locked + 1 };
        }
        ledger.take_back_ends(locked, false);
        let is_refused =
            |end: &&End| !end.may_have_ended && !end.is_told_again && !next.accepted.contains(&end.fence);
        ledger.ends_refused.fetch_add(ends.iter().filter(is_refused).count() as u64, Relaxed);
        if std::mem::take(&mut self.has_slept) && next.claimed > 0 {
            self.membership.post.note_needed();
        }
        self.folds = next.folds;
        if call.wanted > 0 {
            // the last claim found too little: ask again when a timer is due, or on news
            let is_dry = next.claimed < call.wanted && !next.folds;
            self.dry = is_dry.then(|| Instant::now() + next.due.unwrap_or(LONGEST));
        }
        let line_is_empty = next.claimed < call.wanted.max(1);
        // there may be ends that were left out, or triggers
        let is_all = sent < call.most && !call.folds && !next.folds;
        if line_is_empty && (is_all || self.locked > 0 && sent > 0) {
            let locked = (self.locked > 0).then(|| Duration::from_millis(1 << self.locked.min(8)));
            let at_most = [next.due, locked].into_iter().flatten().min();
            self.wait_for_keys(at_most.unwrap_or(LONGEST)).await;
        }
        !(call.closing && self.locked >= PATIENCE)
    }

    /// Returns the ends of a failed call to the ledger, and waits a moment. Returns `false` if the exchange is to
    /// end.
    async fn failed(&mut self, failed: &Failed, mut call: Call) -> bool {
        self.dry = None;
        match (failed, &mut *call.ends) {
            // without a claim, whose fault it may be
            (Failed::Data(_), [end]) if call.wanted == 0 => self.make_storable(end).await,
            (Failed::Data(_), ends) => self.apart = ends.len(),
            (Failed::Maybe(_), ends) if self.is_sent => {
                ends.iter_mut().for_each(|end| end.is_told_again = true);
            }
            _ => {}
        }
        // one that fails must not keep ends from the server
        self.folds = false;
        self.membership.ledger.take_back_ends(call.ends, true);
        *self.membership.ledger.trouble() = failed.why();
        match failed {
            Failed::Not(_) | Failed::Data(_) | Failed::Gone(_) => {}
            Failed::Maybe(_) => {
                self.most = 1;
                self.doubt_owner();
            }
            Failed::LeaseLost => {
                self.membership.lose_runs(self.owner);
                self.drop_owner();
            }
        }
        tokio::time::sleep(TRIES_AGAIN).await;
        !call.closing || self.is_up
    }

    /// Stops working because the schema no longer serves this program: nothing is claimed, runs are told to
    /// end, and their ends are not sent. Their keys go back when they have ended, or after a third of the
    /// lease, which is extended until then.
    async fn stop_serving(&mut self) {
        self.membership.let_go_of_runs();
        self.membership.target.close();
        let until = Instant::now() + self.membership.lease().length / 3;
        while !self.membership.ledger.is_idle() && Instant::now() < until && !*self.closing.borrow() {
            tokio::time::sleep(TRIES_AGAIN).await;
        }
    }

    /// Waits for keys, or the ends of runs. Meanwhile the heartbeat looks for keys.
    async fn wait_for_keys(&mut self, at_most: Duration) {
        let is_wanted =
            self.membership.target.wanted().is_some_and(|wanted| wanted > 0) && !*self.closing.borrow();
        if is_wanted && self.owner != NOBODY && self.membership.post.fall_asleep(self.owner) {
            self.heartbeat.ask_soon();
        }
        self.has_slept = true;
        // notes for the exchange signal it, too
        self.sleep(if is_wanted { at_most } else { at_most.min(TICK) }).await;
        self.membership.post.wake_up();
    }

    /// Sleeps until it is signalled, notified, or the time is over.
    async fn sleep(&self, at_most: Duration) {
        let signal = &self.membership.ledger.signal;
        let mut closing = self.closing.clone();
        let closes = async {
            if closing.wait_for(|closing| *closing).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        // already closing: each thing left to do signals
        if *self.closing.borrow() {
            drop(tokio::time::timeout(at_most, signal.notified()).await);
            return;
        }
        let (signalled, closes) = (std::pin::pin!(signal.notified()), std::pin::pin!(closes));
        drop(tokio::time::timeout(at_most, select(signalled, closes)).await);
    }

    /// Marks the old owner's keys as to be settled.
    fn doubt_owner(&mut self) {
        if self.owner != NOBODY {
            self.old.push(self.owner);
        }
        // the lease goes on to be extended, and to be watched: it is that of the runs until they are settled
        self.owner = NOBODY;
    }

    /// Gives up the owner without settling its keys: its runs may go on until its lease is over.
    fn drop_owner(&mut self) {
        self.owner = NOBODY;
        self.old.clear();
        *self.membership.lease().held() = None;
    }

    /// Becomes an owner, and settles the keys of its earlier owners. These ends are being sent: their runs
    /// still belong to this process.
    async fn join(&mut self, link: &mut Lane<'_>, ends: &[End]) -> Result<(), Failed> {
        link.meets().await?;
        let is_new = self.owner != NOBODY
            && self.membership.lease().held().is_none_or(|held| held.owner != self.owner);
        if is_new && self.joined.elapsed() >= self.membership.lease().length / 3 {
            // its keys could not be settled yet, and its lease is not extended meanwhile
            self.doubt_owner();
        }
        if self.owner == NOBODY {
            let join = "select requeue.join_($1, $2, $3)";
            let sent = Moment::now();
            let Membership { ledger, who, .. } = &*self.membership;
            let rows = link.query(join, &[&ledger.queue, who, &micros(ledger.lease.length)]).await?;
            self.owner = rows.first().map_or(NOBODY, |row| row.get(0));
            self.joined = sent;
        }
        while let Some(old) = self.old.last().copied() {
            if self.old.iter().any(|old| self.membership.was_told_to_end(*old)) {
                // its runs may be another's by now, which was to go on with them: its lease runs out as well
                self.old.clear();
                break;
            }
            let mut fences = self.membership.ledger.fences();
            fences.extend(ends.iter().map(|end| end.fence));
            let kept = self.settle(link, old, Some(self.owner), fences).await?;
            self.old.pop();
            let is_short =
                self.old.is_empty() && self.membership.ledger.going_on().iter().any(|it| !kept.contains(it));
            if is_short || self.membership.was_told_to_end(old) {
                // Runs are others' by now. Or they were told to end while they went over to this owner, whose lease must run
                // out then as that of the old one would have.
                return Err(Failed::LeaseLost);
            }
        }
        let held = self.membership.lease().held().map(|held| held.owner);
        if held != Some(self.owner) {
            *self.membership.lease().held() = Some(Held { owner: self.owner, beat: self.joined });
            // it may have rested, and has a lease to extend
            self.heartbeat.wake();
        }
        Ok(())
    }

    /// Moves this old owner's keys to the new one if their fences are listed, and back in line otherwise.
    /// Returns the fences that the new one then has.
    async fn settle(
        &self,
        link: &mut Lane<'_>,
        old: i64,
        new: Option<i64>,
        fences: Vec<i64>,
    ) -> Result<HashSet<i64>, Failed> {
        let settle = "select requeue.settle($1, $2, $3, $4)";
        let rows = link.query(settle, &[&self.membership.ledger.queue, &old, &new, &fences]).await?;
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
        self.join(link, ends).await?;
        self.is_sent = true;
        let wanted = i32::try_from(wanted).unwrap_or(i32::MAX);
        let (ledger, owner) = (&self.membership.ledger, self.owner);
        let EndArgs { keys, fences, how, delays, failures, attempts, values, errors } =
            EndArgs::of(ends, |due| due.micros(ledger.front_clock.get()));
        let next = "select kind, k, f, att, fails, prio, val from requeue.next($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
        let queue = ledger.queue;
        let params: [&dyn Param; 11] =
            [&queue, &owner, &wanted, &keys, &fences, &how, &delays, &failures, &attempts, &values, &errors];
        let answer = link.query(next, &params).await?;
        self.store_next_times(link, &answer).await;
        let mut said = Next::default();
        for (nth, row) in answer.iter().enumerate() {
            // a merge of values may take long, and the lease is extended by the same thread
            if nth % 64 == 63 {
                tokio::task::yield_now().await;
            }
            match row.get::<_, i32>(0) {
                kind::END => {
                    let fence: i64 = row.get(2);
                    let said = if fence < 0 { &mut said.locked } else { &mut said.accepted };
                    said.insert(fence.abs());
                }
                kind::CLAIMED => {
                    said.claimed += 1;
                    self.membership.target.give(claimed(row));
                }
                kind::DUE => {
                    let due = Duration::from_micros(row.get::<_, i64>(2).unsigned_abs());
                    said.due = said.due.into_iter().chain([due]).min();
                }
                kind::MUST_FOLD => said.folds = true,
                _ => {}
            }
        }
        Ok(said)
    }

    /// Computes the next times of claimed keys that have schedules, and stores them. This comes before their runs, so that
    /// whatever ends a run finds the next time. If it fails, a key comes about a period after its run, once.
    async fn store_next_times(&self, link: &mut Lane<'_>, answer: &[Row]) {
        let (mut keys, mut rules, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for row in answer.iter().filter(|row| row.get::<_, i32>(0) == kind::SCHEDULED) {
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
            drop(link.query(tell, &[&self.membership.ledger.queue, &keys, &rules, &times]).await);
        }
    }

    /// Changes an end that the server can't store. A value put back by a handler: the key comes back with the
    /// values that the run had. Values of the run and newer ones that can't be joined: the newer ones wait.
    /// Characters of an error: they are replaced.
    async fn make_storable(&mut self, end: &mut End) {
        match &mut end.how {
            How::Back { due, failures, attempt, value: Some(_) } => {
                let (due, failures, attempt) = (*due, *failures, *attempt);
                end.how = How::Failed { due, failures, attempt };
            }
            How::Failed { .. } | How::PutBack => {
                let (spill, key) = ("select requeue.spill($1, $2, $3)", &*end.key);
                // if this fails the end does too, and it is tried again
                drop(
                    self.lanes
                        .lock()
                        .await
                        .query(spill, &[&self.membership.ledger.queue, &key, &end.fence])
                        .await,
                );
            }
            How::GaveUp(why) => *why = why.replace(|letter: char| !letter.is_ascii() || letter == '\0', "?"),
            _ => {}
        }
    }

    /// Gives up the lease. Runs whose ends would not be sent any more are told to end, and their keys go to
    /// others when the lease is over.
    async fn leave(&mut self) {
        if self.membership.ledger.has_runs() {
            self.membership.let_go_of_runs();
            return;
        }
        if self.owner != NOBODY {
            self.old.push(self.owner);
        }
        let lanes = self.lanes.clone();
        for old in std::mem::take(&mut self.old) {
            // if this fails the lease runs out
            drop(self.settle(&mut lanes.lock().await, old, None, Vec::new()).await);
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
        priority: priority(row.get(5)),
        value: value.map(|Json(value)| value),
    }
}

/// Ends of runs as arguments of `requeue.next`: an array each.
#[derive(Default)]
struct EndArgs<'a> {
    keys: Vec<&'a [u8]>,
    fences: Vec<i64>,
    how: Vec<i16>,
    delays: Vec<i64>,
    failures: Vec<i32>,
    attempts: Vec<i32>,
    values: Vec<Option<Json<&'a RawValue>>>,
    errors: Vec<Option<&'a str>>,
}

impl<'a> EndArgs<'a> {
    fn of(ends: &'a [End], micros: impl Fn(Due) -> i64) -> Self {
        let count = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
        let mut args = Self::default();
        for end in ends {
            let (how, delay, failures, attempt, value, error) = match &end.how {
                How::Done => (how::DONE, 0, 0, 0, None, None),
                How::Back { due, failures, attempt, value } => {
                    (how::BACK, micros(*due), count(*failures), count(*attempt), value.as_deref(), None)
                }
                How::GaveUp(why) => (how::GAVE_UP, 0, 0, 0, None, Some(&**why)),
                How::PutBack => (how::PUT_BACK, 0, 0, 0, None, None),
                How::Failed { due, failures, attempt } => {
                    (how::FAILED, micros(*due), count(*failures), count(*attempt), None, None)
                }
            };
            args.keys.push(&end.key);
            args.fences.push(end.fence);
            args.how.push(how);
            args.delays.push(delay);
            args.failures.push(failures);
            args.attempts.push(attempt);
            args.values.push(value.map(Json));
            args.errors.push(error);
        }
        args
    }
}

//! The heartbeat: one call of the process to the server per second, for all of its queues in one transaction.
//! It extends leases, looks for keys if workers wait, and takes its turn at the work that one process of all
//! does each second (`requeue.tick`).
//!
//! Only some of the sleeping processes listen for notifications, because every listening session pays for
//! each of them with a transaction. A process listens if no other one does for one of its queues, or if it
//! was needed beside those.

use crate::lanes::Lanes;
use crate::lease_clock::{LeaseClock, Moment};
use crate::link::{Failed, Link};
use crate::post::{NOBODY, Post};
use crate::schema::Serving;
use requeue_engine::EngineError;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex as AsyncMutex, Notify, watch};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

/// Interval of a process that is not woken; also the maximum lateness of a timer whose process died.
pub(crate) const TICK: Duration = Duration::from_secs(1);
/// Interval of a process that only adds, and so has no lease and waits for no key: it checks whether the schema still serves it.
const RARELY: Duration = Duration::from_secs(5);
/// Minimum interval before a requested look.
const SOON: Duration = Duration::from_millis(20);
/// Time without a key after which a listening process leaves that to others.
const TIRED: Duration = Duration::from_secs(10);
/// Maximum number of runs of dead processes put back by one call: an eighth of it after a call that took too long.
const PUT_BACK_AT_ONCE: usize = 1000;
/// A queue that this process works on.
pub(crate) trait Member: Send + Sync {
    fn post(&self) -> &Post;
    /// This process's lease.
    fn lease(&self) -> &LeaseClock;
    /// Whether the lease was given up.
    fn is_over(&self) -> bool;
    /// Records that the lease of this owner is lost, or will be soon.
    fn lose(&self, owner: i64);
}

/// Kinds of the rows of `requeue.tick`: see its comment in schema/tick.sql.
mod kind {
    pub(super) const EXTENDED: i32 = 0;
    pub(super) const LOST: i32 = 1;
    pub(super) const HAS_WORK: i32 = 2;
    pub(super) const LISTEN: i32 = 3;
    pub(super) const STOP_LISTENING: i32 = 4;
    pub(super) const MAINTAIN: i32 = 5;
    pub(super) const RENEW: i32 = 6;
    pub(super) const OLDEST_VERSION: i32 = 7;
}

pub(crate) struct Heartbeat {
    pub(crate) link: AsyncMutex<Link>,
    /// Whether notifications can come in.
    pub(crate) hears: bool,
    /// Whether it connects to a host of its own, `direct_host`.
    is_direct: bool,
    /// Whether connections of the link listen.
    listens: Arc<AtomicBool>,
    members: Mutex<Vec<Arc<dyn Member>>>,
    /// A change that it must look at.
    signal: Notify,
    /// An exchange has gone to sleep that nothing would notify.
    soon: AtomicBool,
    lanes: Arc<Lanes>,
    /// Whether the schema still serves this program. Checked while there are queues.
    pub(crate) serving: Arc<Serving>,
}

/// A row of a tick's answer, about a queue or an owner.
struct Said {
    kind: i32,
    n: i64,
}

impl Heartbeat {
    pub(crate) fn new(
        link: Link,
        listens: Arc<AtomicBool>,
        (hears, is_direct): (bool, bool),
        lanes: Arc<Lanes>,
    ) -> Self {
        Self {
            link: AsyncMutex::new(link),
            hears,
            is_direct,
            listens,
            members: Mutex::default(),
            signal: Notify::new(),
            soon: AtomicBool::new(false),
            lanes,
            serving: Arc::default(),
        }
    }

    fn members(&self) -> MutexGuard<'_, Vec<Arc<dyn Member>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a queue that is worked on, until it is left.
    pub(crate) fn add_member(&self, member: Arc<dyn Member>) {
        self.members().push(member);
        self.signal.notify_one();
    }

    /// Wakes it for a change: a queue is left, or the engine closes.
    pub(crate) fn wake(&self) {
        self.signal.notify_one();
    }

    /// Requests a look, because an exchange sleeps that nothing would notify.
    pub(crate) fn ask_soon(&self) {
        if self.hears && !self.soon.swap(true, Relaxed) {
            self.signal.notify_one();
        }
    }

    /// Beats until the engine closes and the last queue is left.
    pub(crate) async fn run(self: Arc<Self>, closing: watch::Receiver<bool>) {
        let mut at_once = PUT_BACK_AT_ONCE;
        let (mut last, mut failing) = (Instant::now(), false);
        loop {
            self.members().retain(|it| !it.is_over());
            let members = self.members().clone();
            if members.is_empty() {
                if *closing.borrow() {
                    return;
                }
                self.lanes.rest();
                // connections that were unused for long are closed meanwhile
                drop(tokio::time::timeout(TICK, self.signal.notified()).await);
                continue;
            }
            let shortest = members.iter().map(|it| it.lease().length).min().unwrap_or(TICK);
            let tick = (shortest / 6).min(TICK);
            let next = last + self.pause(&members, tick, failing);
            self.sleep_until(next, &members).await;
            for member in &members {
                let held = *member.lease().held();
                if let Some(held) = held.filter(|_| member.lease().is_over()) {
                    member.lose(held.owner);
                }
            }
            if Instant::now() < next {
                continue;
            }
            let sent = Instant::now();
            self.soon.store(false, Relaxed);
            self.lanes.rest();
            // a call that takes longer than a tick, on a busy machine, is not begun anew each time
            let said = self.tick(&members, tick, tick.max(shortest / 12)).await;
            // a second is from an answer to the next call
            last = Instant::now();
            failing = said.is_none();
            if let Some(said) = said.filter(|_| !*closing.borrow()) {
                // if this fails, another process does it, or this one later; limited in time, so that the
                // next extension is not late
                self.maintain(&said, &mut at_once, last + tick).await;
                self.renew(&said, sent + shortest / 6).await;
            }
        }
    }

    /// Time from the last tick to the next one.
    fn pause(&self, members: &[Arc<dyn Member>], tick: Duration, failing: bool) -> Duration {
        let only_adds = |it: &Arc<dyn Member>| it.lease().held().is_none() && !it.post().is_waiting();
        if failing {
            tick / 4
        } else if self.soon.load(Relaxed) {
            SOON.min(tick)
        } else if members.iter().all(only_adds) {
            RARELY
        } else {
            tick
        }
    }

    /// Sleeps until the next tick, until a lease is over, or until something changes.
    async fn sleep_until(&self, next: Instant, members: &[Arc<dyn Member>]) {
        let now = Instant::now();
        let ends = members.iter().filter_map(|it| Some(now + it.lease().left()?));
        let wakes = ends.fold(next, Instant::min);
        if now < wakes {
            drop(tokio::time::timeout_at(wakes.into(), self.signal.notified()).await);
        }
    }

    /// One call for all queues; `None` if it failed.
    async fn tick(
        &self,
        members: &[Arc<dyn Member>],
        tick: Duration,
        mut limit: Duration,
    ) -> Option<Vec<Said>> {
        let sent = Moment::now();
        let (mut owners, mut lengths) = (Vec::new(), Vec::new());
        let (mut queues, mut mine) = (Vec::new(), Vec::new());
        let (mut awake, mut tired) = (Vec::new(), Vec::new());
        for member in members {
            let post = member.post();
            let (lease, held) = (member.lease(), *member.lease().held());
            if let Some(held) = held.filter(|held| held.beat.elapsed() + tick >= lease.length / 3) {
                owners.push(held.owner);
                lengths.push(crate::add_batcher::micros(lease.length));
                limit = limit.min(lease.left().unwrap_or_default());
            }
            let (sleeper, listens) = (post.sleeper.load(Relaxed), post.listens.load(Relaxed));
            if sleeper != NOBODY {
                queues.push(post.queue);
                mine.push(sleeper);
                if sleeper == listens && post.needed().elapsed() >= TIRED {
                    tired.push(sleeper);
                }
            } else if listens != NOBODY && post.naps.load(Relaxed) == post.naps_seen.load(Relaxed) {
                // it has been busy all the while
                awake.push(listens);
            }
        }
        let is_asleep = !queues.is_empty();
        let listens = self.listens.load(Relaxed);
        let call = "select kind, n from requeue.tick($1, $2, $3, $4, $5, $6, $7, $8)";
        let rows = {
            let mut link = self.link.lock().await;
            let params = [
                &owners as &dyn crate::typed::Param,
                &lengths,
                &queues,
                &mine,
                &(self.hears && is_asleep),
                &listens,
                &awake,
                &tired,
            ];
            link.query_for(call, &params, limit).await
        };
        let rows = match rows {
            Ok(rows) => rows,
            Err(failed) => {
                if failed.is(&SqlState::UNDEFINED_FUNCTION) {
                    self.serving.ask(&mut *self.link.lock().await).await;
                }
                return None;
            }
        };
        let said: Vec<Said> = rows.iter().map(Said::read).collect();
        said.iter()
            .filter(|it| it.kind == kind::OLDEST_VERSION)
            .for_each(|it| self.serving.note_oldest(it.n));
        let is_refused = self.serving.refusal().is_some();
        for member in members {
            let post = member.post();
            if is_refused {
                post.signal.notify_one();
            }
            if awake.contains(&post.listens.load(Relaxed)) {
                post.listens.store(NOBODY, Relaxed);
            }
            let sleeper =
                queues.iter().position(|queue| *queue == post.queue).map_or(NOBODY, |nth| mine[nth]);
            said.iter().for_each(|said| said.tell(&**member, sleeper, listens, sent));
        }
        for member in &*self.members() {
            member.post().naps_seen.store(member.post().naps.load(Relaxed), Relaxed);
        }
        self.update_listening(said.iter().any(|it| it.kind == kind::LISTEN), members, tick).await;
        Some(said)
    }

    /// Starts listening if asked to, and stops if no queue of it is left.
    async fn update_listening(&self, is_asked: bool, members: &[Arc<dyn Member>], limit: Duration) {
        let listens = self.listens.load(Relaxed);
        if is_asked && !listens {
            // for connections that are made from here on, too
            self.listens.store(true, Relaxed);
            drop(self.link.lock().await.query_for("listen requeue", &[], limit).await);
            // the next tick tells the server
            self.ask_soon();
        } else if listens && !is_asked && members.iter().all(|it| it.post().listens.load(Relaxed) == NOBODY) {
            self.listens.store(false, Relaxed);
            drop(self.link.lock().await.query_for("unlisten requeue", &[], limit).await);
        }
    }

    /// Gives back the keys of dead processes, at most `at_once` in a call, until `end`: they may have had a
    /// hundred thousand keys.
    async fn maintain(&self, said: &[Said], at_once: &mut usize, end: Instant) {
        for said in said.iter().filter(|it| it.kind == kind::MAINTAIN) {
            let queue = i32::try_from(said.n).unwrap_or(0);
            let mut more = true;
            while more {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                let most = i32::try_from(*at_once).unwrap_or(i32::MAX);
                let maintain = "select requeue.maintain($1, $2)";
                let done = self.link.lock().await.query_for(maintain, &[&queue, &most], left).await;
                *at_once =
                    if done.is_ok() { PUT_BACK_AT_ONCE.min(*at_once * 2) } else { 1.max(*at_once / 8) };
                more = done.is_ok_and(|rows| rows.first().is_some_and(|row| row.get::<_, i32>(0) >= most));
            }
        }
    }

    /// Keeps the tables short while a snapshot is held, if the server has asked for it, until `end`.
    async fn renew(&self, said: &[Said], end: Instant) {
        let left = end.saturating_duration_since(Instant::now());
        if !left.is_zero() && said.iter().any(|it| it.kind == kind::RENEW) {
            let renew = "select requeue.renew_in_turn()";
            drop(self.link.lock().await.query_for(renew, &[], left).await);
        }
    }

    /// Connects before a queue is worked on: without this connection leases would be lost, one after another. Where
    /// notifications can't come in, it waits for a session of a pool, and is not made before it is needed.
    pub(crate) async fn connect(&self) -> Result<(), EngineError> {
        if !self.hears {
            return Ok(());
        }
        match self.link.lock().await.connect().await {
            Err(Failed::Not(why)) if self.is_direct => {
                let why = format!("direct_host, for notifications and leases: {why}");
                Err(EngineError::NotApplied(why.into()))
            }
            connected => Ok(connected?),
        }
    }
}

impl Said {
    fn read(row: &Row) -> Self {
        Self { kind: row.get(0), n: row.get(1) }
    }

    /// Tells a member of the row. It has told the server that it sleeps as the owner `sleeper`, and whether this
    /// process `listens`.
    fn tell(&self, member: &dyn Member, sleeper: i64, listens: bool, sent: Moment) {
        let post = member.post();
        let is_mine = self.n == i64::from(post.queue);
        match self.kind {
            kind::EXTENDED => member.lease().extended(self.n, sent),
            kind::LOST => member.lose(self.n),
            kind::HAS_WORK if is_mine => post.wake_to_look(),
            kind::LISTEN if is_mine && listens => {
                post.listens.store(sleeper, Relaxed);
                post.note_needed();
                // it looks once more now that it would be notified
                post.wake_to_look();
            }
            kind::STOP_LISTENING if is_mine => post.listens.store(NOBODY, Relaxed),
            _ => {}
        }
    }
}

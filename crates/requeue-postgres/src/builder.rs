//! [`QueueBuilder`]: how a process opens a queue to work on it.

use crate::add_batcher::micros;
use crate::exchange::run_exchange;
use crate::groups::{GroupOf, GroupRules, Rules};
use crate::hub::Hub;
use crate::link::Link;
use crate::membership::Membership;
use crate::queue::{Inner, MergeValues, PostgresStore, Queue, WeakFront};
use crate::run_ledger::{Backoff, RunLedger};
use crate::schema::known;
use crate::watch::{Watch, looks};
use requeue::limiter::Exponential;
use requeue::{Builder, Source, WorkQueue};
use requeue_engine::{DurableQueue, EngineError, Key, Op, ReadEngine, with_journal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Row;

type Customize<K, V> = Box<dyn FnOnce(Builder<K, V>) -> Builder<K, V> + Send>;

/// Opens a queue: [`Postgres::queue`](crate::Postgres::queue).
///
/// ```no_run
/// # use requeue_postgres::Postgres;
/// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
/// let q = pg.queue::<u64>("orders").prefetch(100).open().wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until open()"]
pub struct QueueBuilder<K: Key, V = ()> {
    hub: Arc<Hub>,
    name: String,
    merge: Arc<MergeValues<V>>,
    lease: Duration,
    prefetch: usize,
    base: Option<Duration>,
    max: Option<Duration>,
    /// `Some(None)`: remove the stored one.
    rate: Option<Option<(f64, u32)>>,
    group: Option<GroupOf<K>>,
    rules: Vec<Result<Rules, EngineError>>,
    customize: Vec<Customize<K, V>>,
}

impl<K: Key, V> fmt::Debug for QueueBuilder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueBuilder")
            .field("name", &self.name)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// Minimum lease: a process that is not scheduled for a moment would lose a shorter one.
const SHORTEST: Duration = Duration::from_millis(300);

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> QueueBuilder<K, V> {
    pub(crate) fn new(hub: Arc<Hub>, name: &str, merge: impl Fn(&mut V, V) + Send + Sync + 'static) -> Self {
        Self {
            hub,
            name: name.to_owned(),
            merge: Arc::new(merge),
            lease: Duration::from_secs(30),
            prefetch: 0,
            base: None,
            max: None,
            rate: None,
            group: None,
            rules: Vec::new(),
            customize: Vec::new(),
        }
    }

    /// Sets how long a process may be silent before its keys go to others: 30 s by default, at least 300 ms.
    /// The lease is extended three times in that time, whatever the handlers do. When two thirds of it are
    /// over without an answer of the server, the handlers are told to end.
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// # use std::time::Duration;
    /// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
    /// let q = pg.queue::<u64>("orders").lease(Duration::from_secs(10)).open().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how many keys are claimed beyond those for idle workers: 0 by default. For handlers that are
    /// quicker than a call of the server. No other process gets these keys, although they do not run yet.
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
    /// let q = pg.queue::<u64>("orders").prefetch(200).open().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefetch(mut self, keys: usize) -> Self {
        self.prefetch = keys;
        self
    }

    /// Sets the back-off of failing keys: `base`, doubled for each failure in a row, up to `max`. It is
    /// stored with the queue, for all processes that open it later. `None` leaves the stored value; a new
    /// queue has 1 s and 5 min.
    ///
    /// # Errors
    ///
    /// [`open`](Self::open) refuses a `base` above `max`, including stored values, and stores neither.
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// # use std::time::Duration;
    /// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
    /// let (base, max) = (Duration::from_secs(1), Duration::from_secs(3600));
    /// let q = pg.queue::<u64>("orders").backoff(base, max).open().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn backoff(mut self, base: impl Into<Option<Duration>>, max: impl Into<Option<Duration>>) -> Self {
        (self.base, self.max) = (base.into(), max.into());
        self
    }

    /// Limits the dispatch rate of all processes together: keys per second, with a burst of `burst`. It is
    /// stored with the queue, and applies at once in all processes, until
    /// [`no_dispatch_rate`](Self::no_dispatch_rate).
    ///
    /// # Errors
    ///
    /// [`open`](Self::open) refuses a rate below 10⁻⁶ or above 10⁶ keys per second, a burst of 0 or above
    /// 2³¹, and a burst of more keys than come in 10⁹ s.
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
    /// let q = pg.queue::<u64>("orders").dispatch_rate(50.0, 10).open().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dispatch_rate(mut self, per_second: f64, burst: u32) -> Self {
        self.rate = Some(Some((per_second, burst)));
        self
    }

    /// Removes the [rate](Self::dispatch_rate) stored with the queue, at once for all processes.
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
    /// let q = pg.queue::<u64>("orders").no_dispatch_rate().open().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn no_dispatch_rate(mut self) -> Self {
        self.rate = Some(None);
        self
    }

    /// Divides keys into groups that take turns: a tenant with a million ready keys does not keep the others
    /// waiting. `group` returns the group of a key. It corresponds to [`Builder::group_by`] in memory; on a
    /// server it holds for all processes together:
    ///
    /// * In its turn, a group with ready keys gets one key handed out, or as many as its weight says
    ///   ([`group_by_with`](Self::group_by_with)). Within a group, keys go in the order in which they became
    ///   ready.
    /// * **While a group waits and may be served, each other group gets at most as many keys handed out as its weight says.**
    /// * **Of two groups that always have ready keys, the numbers of keys handed out, each divided by the group's weight, never
    ///   differ by more than 2** since any moment.
    /// * The highest priority goes first, and groups take turns within each priority; the two bounds hold for groups at the
    ///   same priority.
    ///
    /// Unlike in memory, a new group does not go behind those that wait: its place follows from a hash of its
    /// name, so it may come before them, once. A key is not handed out while another transaction changes it
    /// (adds a value, raises a priority); if it was the group's only key, the group loses that turn.
    ///
    /// The group is stored with the key, as [bytes](Key::to_bytes), and stays as long as the key is known.
    /// Programs in other languages call `select requeue.add_tx('orders', 'order-4711', grp => 'tenant-7')`.
    /// Keys that are added without a group are a group of their own, without a cap. A queue without groups
    /// pays nothing for them; one with groups hands out keys to one process after another. A second call
    /// replaces the function: nested groups are not available on a server. Rules of both calls are stored.
    ///
    /// # Users' code
    ///
    /// `group` runs in the process that adds. If it panics, the panic reaches the caller, and the trigger is
    /// not accepted. A key must always have the same group, in all processes.
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
    /// let tenant = |key: &String| key.split('/').next().unwrap_or_default().to_owned();
    /// let q = pg.queue::<String>("orders").group_by(tenant).open().wait()?;
    /// q.add("tenant-7/order-4711".into()).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn group_by<G: Key>(mut self, group: impl Fn(&K) -> G + Send + Sync + 'static) -> Self {
        self.group = Some(Arc::new(move |key| group(key).to_bytes().into()));
        self
    }

    /// Like [`group_by`](Self::group_by), with weights, and with a cap on how many keys of a group may be
    /// held at the same time, in all processes together. They are stored with the queue, and apply at once in
    /// all processes. A group at its cap is passed over, even by processes that open the queue without these
    /// rules.
    ///
    /// # Errors
    ///
    /// With a [`cap`](GroupRules::cap) of 0, [`open`](Self::open) returns an error.
    ///
    /// ```no_run
    /// # use requeue_postgres::{GroupRules, Postgres};
    /// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
    /// let tenant = |key: &String| key.split('/').next().unwrap_or_default().to_owned();
    /// let rules = GroupRules::new().cap(4).weight(&"tenant-7".to_owned(), 3);
    /// let q = pg.queue::<String>("orders").group_by_with(tenant, rules).open().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn group_by_with<G: Key>(
        mut self,
        group: impl Fn(&K) -> G + Send + Sync + 'static,
        rules: GroupRules<G>,
    ) -> Self {
        self.rules.push(rules.stored());
        self.group_by(group)
    }

    /// Changes the builder of the queue in memory, in which claimed keys wait for a worker: metrics, another
    /// clock.
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
    /// let q = pg.queue::<u64>("orders").front(|front| front.name("orders here")).open().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn front(mut self, change: impl FnOnce(Builder<K, V>) -> Builder<K, V> + Send + 'static) -> Self {
        self.customize.push(Box::new(change));
        self
    }

    /// Opens the queue, which is created if needed. From then on keys are claimed as workers want them.
    ///
    /// # Errors
    ///
    /// If the schema is missing, or newer than this program; if the lease is too short, or the builder's
    /// settings exclude each other; if the server can't be asked.
    ///
    /// ```no_run
    /// # use requeue_postgres::Postgres;
    /// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
    /// let q = pg.queue::<u64>("orders").open().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(self) -> Op<Queue<K, V>> {
        let hub = self.hub.clone();
        hub.call(self.opens())
    }

    async fn opens(self) -> Result<Queue<K, V>, EngineError> {
        let Self { hub, name, merge, lease, prefetch, base, max, rate, group, rules, customize } = self;
        let refused = |why: String| EngineError::NotApplied(why.into());
        if lease < SHORTEST {
            return Err(refused(format!("a lease of {lease:?}: it is 300 ms at least")));
        }
        if let Some(Some((per_second, burst))) = rate {
            let can_be_kept = (1e-6..=1e6).contains(&per_second)
                && (1..=i32::MAX.unsigned_abs()).contains(&burst)
                && f64::from(burst) / per_second <= 1e9;
            if !can_be_kept {
                return Err(refused(format!(
                    "a rate of {per_second} keys a second and {burst} at once: it is from 0.000001 to 1000000 a second, at least 1 at \
                     once, and no more at once than come in 1000000000 s"
                )));
            }
        }
        let rules = rules.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut link = hub.lanes.lock().await;
        known(&mut link).await?;
        hub.heartbeat.connect().await?;
        let opened = link.query("select requeue.open($1)", &[&name]).await?;
        let number: i32 = opened.first().map_or(0, |row| row.get(0));
        let backoff = store_limits(&mut link, number, (base, max), rate).await?;
        for rules in rules {
            rules.store(&mut link, number).await?;
        }
        drop(link);
        let ledger = Arc::new(RunLedger::<K>::new(number, backoff, lease));
        let in_memory = merge.clone();
        let front = WorkQueue::merging(move |old: &mut V, new: V| in_memory(old, new));
        let limiter = Exponential::new(backoff.base, backoff.max).map_err(|e| refused(e.to_string()))?;
        let front = front.limiter(limiter).name(&name).retry_dropped(true);
        let front = customize.into_iter().fold(front, |front, change| change(front));
        let front =
            with_journal(front.priorities(), ledger.clone()).build().map_err(|e| refused(e.to_string()))?;
        drop(ledger.front_clock.set(Source::front(&front).clock()));
        let inner = Arc::new(Inner { front, ledger: ledger.clone(), merge, group, prefetch });
        let (who, serving) = (hub.wakeups.name.clone(), hub.heartbeat.serving.clone());
        let membership = Arc::new(Membership::new(ledger, Arc::new(WeakFront::of(&inner)), who, serving));
        let watch = Arc::new(Watch::new(membership.clone()));
        let figures: Arc<dyn ReadEngine> = watch.clone();
        let are_read = Source::front(&inner.front).attach_engine(&figures);
        hub.wakeups.add(number, membership.post.clone());
        let (lanes, heartbeat) = (hub.lanes.clone(), hub.heartbeat.clone());
        if are_read {
            hub.spawn(|closing| looks(Arc::downgrade(&watch), hub.lanes.clone(), closing));
        }
        heartbeat.add_member(membership.clone());
        let member = membership.clone();
        hub.spawn(|closing| run_exchange(member, lanes, heartbeat, closing));
        Ok(DurableQueue::new(PostgresStore { inner, name, membership, _figures: figures, hub }))
    }
}

/// Stores the given back-off and rate. Returns the back-off that the queue then has.
async fn store_limits(
    link: &mut Link,
    queue: i32,
    (base, max): (Option<Duration>, Option<Duration>),
    rate: Option<Option<(f64, u32)>>,
) -> Result<Backoff, EngineError> {
    let read = |row: &Row| {
        let time = |nth: usize| Duration::from_micros(row.get::<_, i64>(nth).unsigned_abs());
        Backoff { base: time(0), max: time(1) }
    };
    let set = "update requeue.queue set base_us = coalesce($2, base_us), max_us = coalesce($3, max_us),
               rate = case when $4 then $5 else rate end, burst = case when $4 then $6 else burst end
               where id = $1 and coalesce($2, base_us) <= coalesce($3, max_us) returning base_us, max_us";
    let get = "select base_us, max_us from requeue.queue where id = $1";
    if base.is_some() || max.is_some() || rate.is_some() {
        let (base, max) = (base.map(micros), max.map(micros));
        let (is_said, rate) = (rate.is_some(), rate.flatten());
        let (per_second, burst) = (rate.map(|it| it.0), rate.map(|it| f64::from(it.1)));
        let stored = link.query(set, &[&queue, &base, &max, &is_said, &per_second, &burst]).await?;
        if let Some(row) = stored.first() {
            return Ok(read(row));
        }
    }
    let stored = link.query(get, &[&queue]).await?;
    let stored =
        stored.first().map(read).ok_or_else(|| EngineError::NotApplied("the queue is gone".into()))?;
    let (base, max) = (base.unwrap_or(stored.base), max.unwrap_or(stored.max));
    if base > max {
        let why = format!(
            "back-off: the first delay ({base:?}) is longer than the longest delay ({max:?}). A value you did not give \
             is the one stored with the queue."
        );
        return Err(EngineError::NotApplied(why.into()));
    }
    Ok(stored)
}

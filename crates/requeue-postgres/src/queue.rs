//! [`Queue`]: a queue as used by a process that works on it.

use crate::add_batcher::{Trigger, fits, micros};
use crate::client::Client;
use crate::connect::Hub;
use crate::exchange::{Beating, ExchangeTarget, Lease, run_exchange};
use crate::groups::{GroupOf, GroupRules, Rules};
use crate::link::{Failed, Link};
use crate::post::Post;
use crate::run_ledger::{Backoff, Claimed, Gave, How, RunLedger};
use crate::schema::known;
use crate::typed::{Param, with_types};
use crate::watch::{Watch, looks};
use requeue::limiter::Exponential;
use requeue::{
    Add, Added, Builder, Drain, DrainOptions, Get, GetMany, Item, Items, Restore, ShutDown, Source,
    TryGetError, Unfinished, WorkQueue,
};
use requeue_engine::{
    AddFailed, Answer, AsyncQueue, EngineError, Key, Listed, LocalQueue, Op, ReadEngine, StoredTrigger,
    with_journal,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio_postgres::types::Json;
use tokio_postgres::{GenericClient, Row};

type Customize<K, V> = Box<dyn FnOnce(Builder<K, V>) -> Builder<K, V> + Send>;
type MergeValues<V> = dyn Fn(&mut V, V) + Send + Sync;

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
        let mut admin_conn = hub.admin_conn.lock().await;
        known(&mut admin_conn).await?;
        hub.heartbeat.connect().await?;
        let opened = admin_conn.query("select requeue.open($1)", &[&name]).await?;
        let number: i32 = opened.first().map_or(0, |row| row.get(0));
        let backoff = store_limits(&mut admin_conn, number, (base, max), rate).await?;
        for rules in rules {
            rules.store(&mut admin_conn, number).await?;
        }
        drop(admin_conn);
        let ledger = Arc::new(RunLedger::<K>::new(number, backoff, lease));
        let in_memory = merge.clone();
        let front = WorkQueue::merging(move |old: &mut V, new: V| in_memory(old, new));
        let limiter = Exponential::new(backoff.base, backoff.max).map_err(|e| refused(e.to_string()))?;
        let front = front.limiter(limiter).name(&name).unfinished(Unfinished::Retry);
        let front = customize.into_iter().fold(front, |front, change| change(front));
        let front =
            with_journal(front.priorities(), ledger.clone()).build().map_err(|e| refused(e.to_string()))?;
        drop(ledger.clock.set(Source::front(&front).clock()));
        let serving = hub.heartbeat.serving.clone();
        let lease = Arc::new(Lease::new(ledger.clone(), hub.sleepers.name.clone(), serving));
        let watch = Arc::new(Watch::new(lease.clone()));
        let figures: Arc<dyn ReadEngine> = watch.clone();
        let are_read = Source::front(&front).attach_engine(&figures);
        let inner = Arc::new(Inner { front, ledger: ledger.clone(), merge, group, prefetch });
        let target = WeakFront { inner: Arc::downgrade(&inner), front: Source::front(&inner.front), ledger };
        let target = Arc::new(target);
        hub.sleepers.add(number, lease.post.clone());
        let (lanes, heartbeat) = (hub.admin_conn.clone(), hub.heartbeat.clone());
        if are_read {
            hub.spawn(|closing| looks(Arc::downgrade(&watch), hub.admin_conn.clone(), closing));
        }
        let (left, post) = (lease.left(), lease.post.clone());
        heartbeat.joins(Arc::new(Beating { lease: lease.clone(), target: target.clone() }));
        hub.spawn(|closing| run_exchange(lease, target, lanes, heartbeat, closing));
        Ok(Queue { handle: Arc::new(Handle { inner, name, left, post, _figures: figures, hub }) })
    }
}

/// Stores the given back-off and rate. Returns the back-off that the queue then has.
async fn store_limits(
    admin_conn: &mut Link,
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
        let stored = admin_conn.query(set, &[&queue, &base, &max, &is_said, &per_second, &burst]).await?;
        if let Some(row) = stored.first() {
            return Ok(read(row));
        }
    }
    let stored = admin_conn.query(get, &[&queue]).await?;
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

/// The queue in memory, as the exchange sees it. Its upgraded reference contains no [`Handle`]: the engine's
/// thread never has the last one.
struct WeakFront<K: Key, V: 'static> {
    inner: Weak<Inner<K, V>>,
    front: LocalQueue<K, V>,
    ledger: Arc<RunLedger<K>>,
}

impl<K: Key, V: DeserializeOwned + Send + 'static> ExchangeTarget for WeakFront<K, V> {
    fn wanted(&self) -> Option<usize> {
        let inner = self.inner.upgrade()?;
        if inner.front.shutting_down() || inner.ledger.closed.load(Relaxed) {
            return None;
        }
        let in_line = inner.front.len();
        // what waits in memory is what is claimed beyond those who wait
        Some(self.front.wanted().saturating_add(inner.prefetch.saturating_sub(in_line)))
    }

    fn give(&self, claimed: Claimed) {
        let Some(inner) = self.inner.upgrade() else {
            // nobody works any more
            return self.ledger.ends_as(claimed, How::PutBack);
        };
        let ledger = &inner.ledger;
        let (key, value) = match inner.read(&claimed) {
            Ok(read) => read,
            Err(why) => return ledger.ends_as(claimed, How::GaveUp(why)),
        };
        let claimed = match ledger.give(&key, claimed) {
            Gave::Now(claimed) => claimed,
            Gave::Later => return,
            Gave::Closed(claimed) => return ledger.ends_as(claimed, How::PutBack),
        };
        let Claimed { attempt, failures, priority, .. } = claimed;
        let known = Restore::new(key.clone()).failures(failures).attempt(attempt).priority(priority);
        let known = value.into_iter().fold(known, Restore::value);
        let restored = catch_unwind(AssertUnwindSafe(|| inner.front.restore(known).is_ok()));
        if !restored.unwrap_or(false) {
            // it is shut down, or users' code panicked
            ledger.take_back(&key, How::PutBack);
        } else if ledger.came(&key) {
            inner.puts_back(&key);
        }
    }

    fn lost(&self) {
        // Before: a worker may take one of these meanwhile, and is told with the others.
        if let Some(inner) = self.inner.upgrade() {
            self.ledger.lost().iter().for_each(|key| inner.puts_back(key));
        }
        self.front.cancel_runs();
    }

    fn closes(&self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.ledger.close().iter().for_each(|key| inner.puts_back(key));
            inner.front.shut_down();
        }
    }
}

/// A queue of a server that this process works on.
///
/// A clone is another handle. When the last one is dropped no more keys are claimed, and those that no worker
/// has begun are put back; current runs can end as long as a [`Postgres`](crate::Postgres) or another queue
/// of it exists. Before a program ends it should call [`leave`](Self::leave), because a handle may be in an
/// unexpected place, such as a handler.
///
/// ```no_run
/// # use requeue_postgres::Postgres;
/// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
/// let q = pg.queue::<String>("orders").open().wait()?;
/// q.add("order-4711".into()).wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Queue<K: Key, V: 'static = ()> {
    handle: Arc<Handle<K, V>>,
}

/// State shared by the handles of a queue. Dropping the last one waits for the engine's thread, unless there
/// is another handle of the server: so that thread has none.
struct Handle<K: Key, V: 'static> {
    inner: Arc<Inner<K, V>>,
    name: String,
    /// Becomes true when the lease is given up.
    left: watch::Receiver<bool>,
    /// Where it is woken.
    post: Arc<Post>,
    /// The metrics' source, as long as the queue exists.
    _figures: Arc<dyn ReadEngine>,
    /// After the others: it waits for what they begin.
    hub: Arc<Hub>,
}

/// The queue in memory, which the engine's thread borrows to give it a key.
struct Inner<K: Key, V: 'static> {
    front: WorkQueue<K, V>,
    ledger: Arc<RunLedger<K>>,
    merge: Arc<MergeValues<V>>,
    group: Option<GroupOf<K>>,
    prefetch: usize,
}

impl<K: Key, V> Inner<K, V> {
    /// Puts back a key that no worker has begun.
    fn puts_back(&self, key: &K) {
        self.ledger.put_back(key, || {
            let cancelled = catch_unwind(AssertUnwindSafe(|| self.front.cancel(key)));
            cancelled.is_ok_and(|cancelled| cancelled.is_some_and(|it| it.ready))
        });
    }
}

impl<K: Key, V: DeserializeOwned> Inner<K, V> {
    /// Decodes the key, and merges its values. It runs in the task that claims for all queues, which a panic
    /// would end.
    fn read(&self, claimed: &Claimed) -> Result<(K, Option<V>), String> {
        let key = caught("what reads the key", || {
            K::from_bytes(claimed.key.clone())
                .map_err(|e| format!("no program of this type can read the key: {e}"))
        })?;
        let Some(values) = claimed.value.as_deref() else { return Ok((key, None)) };
        let values: Vec<V> = caught("what reads the value", || {
            serde_json::from_str(values.get())
                .map_err(|e| format!("no program of this type can read the value: {e}"))
        })?;
        let value = caught("the function that merges two values", || {
            Ok(values.into_iter().reduce(|mut older, newer| {
                (self.merge)(&mut older, newer);
                older
            }))
        })?;
        Ok((key, value))
    }
}

/// Runs user code. A panic becomes an error.
fn caught<T>(what: &str, runs: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(runs)).unwrap_or_else(|_| Err(format!("{what} panicked")))
}

impl<K: Key, V> Handle<K, V> {
    /// Stops claiming, and puts back keys that no worker has begun. When no run is left the lease is given
    /// up.
    fn leaves(&self) {
        let ledger = &self.inner.ledger;
        self.hub.sleepers.remove(ledger.queue, &self.post);
        for key in ledger.close() {
            self.inner.puts_back(&key);
        }
        ledger.signal.notify_one();
    }
}

impl<K: Key, V> Drop for Handle<K, V> {
    fn drop(&mut self) {
        self.leaves();
    }
}

impl<K: Key, V> Clone for Queue<K, V> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone() }
    }
}

impl<K: Key, V> fmt::Debug for Queue<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("name", &self.handle.name).finish_non_exhaustive()
    }
}

impl<K: Key, V: 'static> Source for Queue<K, V> {
    type Key = K;
    type Value = V;

    fn front(&self) -> LocalQueue<K, V> {
        Source::front(&self.handle.inner.front)
    }
}

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> Queue<K, V> {
    /// Asks for a run of the key. It is durable when this has succeeded. A trigger of a key that is already
    /// in line, or that runs again after its run, is only looked up.
    ///
    /// # Errors
    ///
    /// See [`EngineError`]; the key comes back. A key longer than [`LONGEST_KEY`](crate::LONGEST_KEY) is
    /// refused.
    ///
    /// # Cancel safety
    ///
    /// The call has begun when this returns; if it is dropped, it continues.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").open().wait()?;
    /// q.add(4711).wait()?; // or .await
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add(&self, key: K) -> Op<Added, AddFailed<K, V>> {
        self.add_with(key, Add::now())
    }

    /// Asks for a run of the key after a delay, by the server's clock. Of several such triggers the earliest
    /// counts.
    ///
    /// # Errors
    ///
    /// Like [`add`](Self::add).
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").open().wait()?;
    /// q.add_after(4711, std::time::Duration::from_secs(1800)).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_after(&self, key: K, delay: Duration) -> Op<Added, AddFailed<K, V>> {
        self.add_with(key, Add::after(delay))
    }

    /// Asks for a run of the key with the options of `how`: a value, a priority, a delay.
    ///
    /// # Errors
    ///
    /// Like [`add`](Self::add); and if `how` has an option that the server does not support: a debounce, a
    /// limiter's delay, timers other than the earliest.
    ///
    /// ```no_run
    /// # use requeue::Add;
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").open().wait()?;
    /// q.add_with(4711, Add::now().priority(7)).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_with(&self, key: K, how: Add<V>) -> Op<Added, AddFailed<K, V>> {
        self.ask(key, how, None)
    }

    /// Like [`add_with`](Self::add_with), for a key that comes again after each run, until it is
    /// [cancelled](Client::cancel). Runs missed without a process that works become one run.
    ///
    /// # Errors
    ///
    /// Like [`add_with`](Self::add_with).
    ///
    /// ```no_run
    /// # use requeue::Add;
    /// # use std::time::Duration;
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<String>("reports").open().wait()?;
    /// q.add_every("daily".into(), Duration::from_secs(86_400), Add::now()).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_every(&self, key: K, every: Duration, how: Add<V>) -> Op<Added, AddFailed<K, V>> {
        self.ask(key, how, Some(every))
    }

    fn ask(&self, key: K, how: Add<V>, every: Option<Duration>) -> Op<Added, AddFailed<K, V>> {
        let Handle { inner, hub, .. } = &*self.handle;
        let Inner { front, ledger, group, .. } = &**inner;
        let asked = StoredTrigger::of(&how);
        let value = how.into_value();
        if let Some(error) = self.outdated() {
            return Err(AddFailed { key, value, error }).into();
        }
        let asked = match asked {
            Ok(_) if front.shutting_down() => {
                return Err(AddFailed { key, value, error: EngineError::ShutDown }).into();
            }
            Ok(asked) => asked,
            Err(why) => {
                let error = EngineError::NotApplied(why.into());
                return Err(AddFailed { key, value, error }).into();
            }
        };
        let encoded = match value.as_ref().map(serde_json::value::to_raw_value).transpose() {
            Ok(encoded) => encoded,
            Err(e) => return Err(AddFailed { key, value, error: EngineError::Codec(e.into()) }).into(),
        };
        let group = group.as_ref().map(|group| group(&key));
        let bytes: Box<[u8]> = key.to_bytes().into();
        if let Err(error) = fits(&bytes, group.as_deref()) {
            return Err(AddFailed { key, value, error }).into();
        }
        let answer = Arc::new(Answer::default());
        let tells = answer.clone();
        let trigger = Trigger {
            queue: ledger.queue,
            key: bytes,
            delay: asked.delay,
            priority: asked.priority,
            value: encoded,
            every,
            group,
        };
        let told = move |added: Result<Added, Failed>| {
            tells.tell(added.map_err(|failed| AddFailed { key, value, error: failed.into() }));
        };
        hub.batcher.note(trigger, Box::new(told));
        Op::of(answer)
    }

    /// Adds a key in a user's transaction: the trigger exists if and when that commits. It locks nothing that
    /// another transaction waits for, even if both add the same keys.
    ///
    /// Programs in other languages call `select requeue.add_tx('orders', 'order-4711')`.
    ///
    /// If a process that works on the queue sleeps, the transaction notifies it. That has two consequences in
    /// PostgreSQL:
    ///
    /// * Transactions that notify commit one after another: one whose commit hangs holds the others up.
    /// * `prepare transaction` is refused after it. A program with two-phase commit (XA) adds in a transaction of its own.
    ///
    /// # Errors
    ///
    /// If the transaction has failed, `how` has an option that the server does not support, or the key is
    /// longer than [`LONGEST_KEY`](crate::LONGEST_KEY). In the last two cases nothing was sent, and the
    /// transaction may continue.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped, the trigger may be part of the transaction or not.
    ///
    /// ```no_run
    /// # use requeue::Add;
    /// # async fn place(q: &requeue_postgres::Queue<String>, db: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let tx = db.transaction().await?;
    /// tx.execute("insert into orders(id) values($1)", &[&4711_i64]).await?;
    /// q.add_in(&tx, "order-4711".into(), Add::now()).await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn add_in<C: GenericClient + Sync>(
        &self,
        tx: &C,
        key: K,
        how: Add<V>,
    ) -> Result<(), EngineError> {
        if let Some(outdated) = self.outdated() {
            return Err(outdated);
        }
        let asked = StoredTrigger::of(&how).map_err(|why| EngineError::NotApplied(why.into()))?;
        let value = how.into_value().map(|value| serde_json::value::to_raw_value(&value)).transpose();
        let value = value.map_err(|e| EngineError::Codec(e.into()))?;
        let (bytes, delay) = (key.to_bytes(), asked.delay.map_or(0, micros));
        let rank = -i32::from(asked.priority);
        let Inner { ledger, group, .. } = &*self.handle.inner;
        let group = group.as_ref().map(|group| group(&key));
        fits(&bytes, group.as_deref())?;
        let add =
            "select requeue.add_tx($1, array[$2::bytea], array[$3::bigint], array[$4::int], array[$5::jsonb],
            array[$6::bytea])";
        // in one message: a name would be the session's, which a pooler shares
        let bytes: &[u8] = &bytes;
        let value = value.as_ref().map(Json);
        let params = [&ledger.queue as &dyn Param, &bytes, &delay, &rank, &value, &group];
        let added = tx.query_typed(add, &with_types(&params)).await;
        added.map(drop).map_err(|e| Failed::of(&e).into())
    }

    /// The queue for operators: list, cancel, retry, pause, count.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").open().wait()?;
    /// q.client().pause().wait()?; // in every process
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn client(&self) -> Client {
        let Handle { inner, hub, name, .. } = &*self.handle;
        let client = Client::new(hub.clone(), name);
        match inner.group.clone() {
            Some(group) => client.grouped(move |key| Some(group(&K::from_bytes(key.to_vec()).ok()?))),
            None => client,
        }
    }

    /// State of the key.
    ///
    /// # Errors
    ///
    /// If the server can't be asked.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").open().wait()?;
    /// println!("{:?}", q.state(&4711).wait()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn state(&self, key: &K) -> Op<Option<Listed>> {
        self.client().state(key)
    }

    /// Cancels everything that asks for a run of the key; a current run goes on. False if there was nothing.
    ///
    /// # Errors
    ///
    /// If the server can't be asked.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").open().wait()?;
    /// q.cancel(&4711).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self, key: &K) -> Op<bool> {
        self.client().cancel(key)
    }

    /// Waits for the next key: [`WorkQueue::get`]. An item that is dropped without an outcome comes back as
    /// failed.
    ///
    /// ```no_run
    /// # async fn one(q: &requeue_postgres::Queue<u64>) {
    /// if let Some(item) = q.get().await {
    ///     item.succeed();
    /// }
    /// # }
    /// ```
    pub fn get(&self) -> Get<'_, K, V> {
        self.handle.inner.front.get()
    }

    /// Blocks until there is a key: [`WorkQueue::get_blocking`].
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").open().wait()?;
    /// while let Some(item) = q.get_blocking() {
    ///     item.succeed();
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "dropping the item puts its key back; `None` means that the queue is shut down and worked off"]
    pub fn get_blocking(&self) -> Option<Item<'_, K, V>> {
        self.handle.inner.front.get_blocking()
    }

    /// Waits for up to `most` keys: [`WorkQueue::get_many`].
    ///
    /// ```no_run
    /// # async fn some(q: &requeue_postgres::Queue<u64>) {
    /// let items = q.get_many(100).await;
    /// # drop(items);
    /// # }
    /// ```
    pub fn get_many(&self, most: usize) -> GetMany<'_, K, V> {
        self.handle.inner.front.get_many(most)
    }

    /// Takes a key that was already claimed, with [`prefetch`](QueueBuilder::prefetch):
    /// [`WorkQueue::try_get`].
    ///
    /// # Errors
    ///
    /// If none is in memory, or the queue is shut down.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").prefetch(10).open().wait()?;
    /// if let Ok(item) = q.try_get() {
    ///     item.succeed();
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_get(&self) -> Result<Item<'_, K, V>, TryGetError> {
        self.handle.inner.front.try_get()
    }

    /// Takes up to `most` keys that were already claimed: [`WorkQueue::try_get_many`].
    ///
    /// # Errors
    ///
    /// Like [`try_get`](Self::try_get).
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").prefetch(10).open().wait()?;
    /// let items = q.try_get_many(10)?;
    /// # drop(items);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_get_many(&self, most: usize) -> Result<Items<'_, K, V>, TryGetError> {
        self.handle.inner.front.try_get_many(most)
    }

    /// The queue in memory, in which claimed keys wait for a worker.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").open().wait()?;
    /// println!("{} keys are being run here", q.in_memory().stats().held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn in_memory(&self) -> &WorkQueue<K, V> {
        &self.handle.inner.front
    }

    /// Number of ends of runs that changed nothing since the queue was opened: the server refused them,
    /// because the lease was lost and others had the key by then, or they could not be sent before that. Such
    /// keys run again. An end that was sent twice, because the first call was not answered, does not count if
    /// the second is refused: the first may have been accepted.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").open().wait()?;
    /// assert_eq!(q.ends_refused(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn ends_refused(&self) -> u64 {
        self.handle.inner.ledger.refused.load(Relaxed)
    }

    /// The error of the last call that claims keys and sends ends of runs; `None` if it succeeded. It is
    /// retried continuously.
    ///
    /// It is also `None` after a lease was lost: a new one is taken. A value put back by a handler, or an
    /// error, that the server can't store is reported until the next call, in which the key comes back with
    /// the values that its run had. It does not cover the connection that extends the lease; the metrics
    /// `requeue_lease_*` do.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").open().wait()?;
    /// if let Some(why) = q.trouble() {
    ///     eprintln!("the queue stands still: {why}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.handle.inner.ledger.trouble().clone()
    }

    /// The reason why this process has stopped working on the queue: the schema was migrated to a version
    /// that needs newer programs. `None` while it works. It is checked every 5 seconds. From then on nothing
    /// is claimed, added or ended through this handle: the runs are told to end
    /// ([`Run::cancelled`](requeue::Run::cancelled)), their keys go back in line, and the workers end.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").open().wait()?;
    /// if let Some(why) = q.outdated() {
    ///     eprintln!("{why}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn outdated(&self) -> Option<EngineError> {
        self.handle.hub.heartbeat.serving.refusal()
    }

    /// Whether the server has the ends of all runs that have ended here. If the process exits before, a run
    /// without a recorded end runs again. Dropping the last handle of a server waits for that, at most 5
    /// seconds.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").open().wait()?;
    /// println!("{}", q.is_settled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.handle.inner.ledger.has_sent()
    }

    /// Ends this process's work on the queue, like dropping the last handle, even if other handles exist: it
    /// claims no more keys, accepts no triggers, and puts back keys that no worker has begun. It completes
    /// when the last run has ended, the server has its end, and the lease is given up; otherwise other
    /// processes would get a run's key only when the lease is over. Once the workers have ended it takes one
    /// call to the server.
    ///
    /// # Errors
    ///
    /// If the engine is closed meanwhile. An unresponsive server is retried continuously.
    ///
    /// # Cancel safety
    ///
    /// The call has begun when this returns; if it is dropped, it continues.
    ///
    /// ```no_run
    /// # use requeue::{Run, Worker};
    /// # use std::time::Duration;
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").open().wait()?;
    /// let worker = Worker::of(&q).start_threads(|run: Run<u64>| println!("{}", run.key()))?;
    /// worker.stop(Duration::from_secs(10)).wait();
    /// q.leave().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn leave(&self) -> Op<()> {
        let Handle { inner, left, hub, .. } = &*self.handle;
        self.handle.leaves();
        inner.front.shut_down();
        let mut left = left.clone();
        hub.call(async move {
            let has_left = left.wait_for(|left| *left).await;
            has_left.map(drop).map_err(|_| EngineError::Unknown("the engine was closed".into()))
        })
    }

    /// Stops claiming keys, and accepts no triggers through this process. Claimed keys are handed out, and
    /// keys on the server are left to others.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").open().wait()?;
    /// q.shut_down();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shut_down(&self) -> ShutDown {
        let report = self.handle.inner.front.shut_down();
        self.handle.inner.ledger.signal.notify_one();
        report
    }

    /// Like [`shut_down`](Self::shut_down), and waits for the end of this process's runs.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// # let q = pg.queue::<u64>("orders").open().wait()?;
    /// q.drain(requeue::DrainOptions::default()).wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self, options: impl Into<DrainOptions>) -> Drain<'_, K, V> {
        let drain = self.handle.inner.front.drain(options);
        self.handle.inner.ledger.signal.notify_one();
        drain
    }
}

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> AsyncQueue<K, V> for Queue<K, V> {
    fn add(&self, key: K) -> Op<Added, AddFailed<K, V>> {
        Self::add(self, key)
    }
    fn add_after(&self, key: K, delay: Duration) -> Op<Added, AddFailed<K, V>> {
        Self::add_after(self, key, delay)
    }
    fn add_with(&self, key: K, how: Add<V>) -> Op<Added, AddFailed<K, V>> {
        Self::add_with(self, key, how)
    }
}

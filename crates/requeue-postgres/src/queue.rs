//! [`PostgresStore`]: the part of a queue of a server that is not common to all engines.

use crate::add_batcher::{TriggerRow, fits, micros};
use crate::client::Client;
use crate::groups::GroupOf;
use crate::hub::Hub;
use crate::link::Failed;
use crate::membership::{ExchangeTarget, Membership};
use crate::run_ledger::{Claimed, Gave, How, RunLedger};
use crate::typed::{Param, with_types};
use requeue::{Add, Added, Source, UnfinishedKey, WorkQueue};
use requeue_engine::{
    Adding, Answer, DurableQueue, EngineError, Key, Listed, LocalQueue, Op, ReadEngine, Store, StoredTrigger,
    Trigger,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use tokio_postgres::GenericClient;
use tokio_postgres::types::Json;

/// A handle to a queue of a server that this process works on: a [`DurableQueue`], with the calls of [`PostgresStore`].
///
/// When the last handle is dropped no more keys are claimed, and those that no worker has begun are put back; current
/// runs can end as long as a [`Postgres`](crate::Postgres) or another queue of it exists. Before a program ends it
/// should call [`leave`](PostgresStore::leave), because a handle may be in an unexpected place, such as a handler.
///
/// [`try_get`](DurableQueue::try_get) takes a key that was already claimed, with
/// [`prefetch`](crate::QueueBuilder::prefetch). A key longer than [`LONGEST_KEY`](crate::LONGEST_KEY) is refused.
///
/// ```no_run
/// # use requeue_postgres::Postgres;
/// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
/// let q = pg.queue::<String>("orders").open().wait()?;
/// q.add("order-4711".into()).wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Queue<K, V = ()> = DurableQueue<PostgresStore<K, V>>;

/// A queue of a server, as its [handle](Queue) has it: the calls that other engines do not have.
///
/// ```no_run
/// # use requeue_postgres::{Postgres, Queue};
/// # let pg = Postgres::connect("host=db dbname=shop").wait()?;
/// let q: Queue<u64> = pg.queue("orders").open().wait()?;
/// println!("{:?}", q.state(&4711).wait()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PostgresStore<K: Key, V: 'static = ()> {
    pub(crate) inner: Arc<Inner<K, V>>,
    pub(crate) name: String,
    pub(crate) membership: Arc<Membership<K>>,
    /// The metrics' source, as long as the queue exists.
    pub(crate) _figures: Arc<dyn ReadEngine>,
    /// After the others: its drop waits for what they begin, unless there is another handle of the server. So the
    /// engine's thread has none.
    pub(crate) hub: Arc<Hub>,
}

impl<K: Key, V> PostgresStore<K, V> {
    /// Stops claiming, and puts back keys that no worker has begun. When no run is left the lease is given
    /// up.
    fn stop_claiming(&self) {
        let ledger = &self.inner.ledger;
        self.hub.wakeups.remove(ledger.queue, &self.membership.post);
        for key in ledger.close() {
            self.inner.put_back(&key);
        }
        ledger.signal.notify_one();
    }
}

impl<K: Key, V> Drop for PostgresStore<K, V> {
    fn drop(&mut self) {
        self.stop_claiming();
        self.inner.front.shut_down();
    }
}

impl<K: Key, V> fmt::Debug for PostgresStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> Store for PostgresStore<K, V> {
    type Key = K;
    type Value = V;
    type Cancelled = ();

    fn in_memory(&self) -> &WorkQueue<K, V> {
        &self.inner.front
    }

    fn add(self: &Arc<Self>, trigger: Trigger<K, V>) -> Adding<Self> {
        let Inner { ledger, group, .. } = &*self.inner;
        let value = match trigger.value.as_ref().map(serde_json::value::to_raw_value).transpose() {
            Ok(value) => value,
            Err(e) => return Err(trigger.failed(EngineError::Codec(e.into()))).into(),
        };
        let group = group.as_ref().map(|group| group(&trigger.key));
        let key: Box<[u8]> = trigger.key.to_bytes().into();
        if let Err(error) = fits(&key, group.as_deref()) {
            return Err(trigger.failed(error)).into();
        }
        let answer = Arc::new(Answer::default());
        let tells = answer.clone();
        let StoredTrigger { delay, priority, .. } = trigger.options;
        let row =
            TriggerRow { queue: ledger.queue, key, delay, priority, value, every: trigger.every, group };
        let told = move |added: Result<Added, Failed>| {
            tells.tell(added.map_err(|failed| trigger.failed(failed.into())));
        };
        self.hub.batcher.note(row, Box::new(told));
        Op::of(answer)
    }

    fn cancel(&self, key: &K) -> Op<Option<()>> {
        self.client().cancel(key).map(|was_there| was_there.then_some(()))
    }

    fn refusal(&self) -> Option<EngineError> {
        self.outdated()
    }

    fn on_shut_down(&self) {
        self.inner.ledger.signal.notify_one();
    }
}

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> PostgresStore<K, V> {
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
        let Inner { ledger, group, .. } = &*self.inner;
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
        let Self { inner, hub, name, .. } = self;
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
        self.inner.ledger.ends_refused.load(Relaxed)
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
        self.inner.ledger.trouble().clone()
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
        self.hub.heartbeat.serving.refusal()
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
        self.inner.ledger.has_sent()
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
        let Self { inner, membership, hub, .. } = self;
        self.stop_claiming();
        inner.front.shut_down();
        let mut left = membership.left();
        hub.call(async move {
            let has_left = left.wait_for(|left| *left).await;
            has_left.map(drop).map_err(|_| EngineError::Unknown("the engine was closed".into()))
        })
    }
}

pub(crate) type MergeValues<V> = dyn Fn(&mut V, V) + Send + Sync;

/// The queue in memory, which the engine's thread borrows to give it a key.
pub(crate) struct Inner<K: Key, V: 'static> {
    pub(crate) front: WorkQueue<K, V>,
    pub(crate) ledger: Arc<RunLedger<K>>,
    pub(crate) merge: Arc<MergeValues<V>>,
    pub(crate) group: Option<GroupOf<K>>,
    pub(crate) prefetch: usize,
}

impl<K: Key, V> Inner<K, V> {
    /// Puts back a key that no worker has begun.
    fn put_back(&self, key: &K) {
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

/// The queue in memory, as the exchange sees it. Its upgraded reference contains no [`PostgresStore`]: the engine's
/// thread never has the last one.
pub(crate) struct WeakFront<K: Key, V: 'static> {
    inner: Weak<Inner<K, V>>,
    front: LocalQueue<K, V>,
    ledger: Arc<RunLedger<K>>,
}

impl<K: Key, V> WeakFront<K, V> {
    pub(crate) fn of(inner: &Arc<Inner<K, V>>) -> Self {
        Self { inner: Arc::downgrade(inner), front: inner.front.front(), ledger: inner.ledger.clone() }
    }
}

impl<K: Key, V: DeserializeOwned + Send + 'static> ExchangeTarget for WeakFront<K, V> {
    fn wanted(&self) -> Option<usize> {
        let inner = self.inner.upgrade()?;
        if inner.front.shutting_down() || inner.ledger.closed.load(Relaxed) {
            return None;
        }
        let in_line = inner.front.len();
        // keys in line in memory are claimed beyond those for waiting workers
        Some(self.front.wanted().saturating_add(inner.prefetch.saturating_sub(in_line)))
    }

    fn give(&self, claimed: Claimed) {
        let Some(inner) = self.inner.upgrade() else {
            // no worker is left
            return self.ledger.end_claimed(claimed, How::PutBack);
        };
        let ledger = &inner.ledger;
        let (key, value) = match inner.read(&claimed) {
            Ok(read) => read,
            Err(why) => return ledger.end_claimed(claimed, How::GaveUp(why)),
        };
        let claimed = match ledger.give(&key, claimed) {
            Gave::Now(claimed) => claimed,
            Gave::Later => return,
            Gave::Closed(claimed) => return ledger.end_claimed(claimed, How::PutBack),
        };
        let Claimed { attempt, failures, priority, .. } = claimed;
        let mut known = UnfinishedKey::new(key.clone());
        (known.failures, known.attempt, known.priority, known.value) = (failures, attempt, priority, value);
        let restored = catch_unwind(AssertUnwindSafe(|| inner.front.restore(known).is_ok()));
        if !restored.unwrap_or(false) {
            // it is shut down, or users' code panicked
            ledger.take_back(&key, How::PutBack);
        } else if ledger.came(&key) {
            inner.put_back(&key);
        }
    }

    fn let_go_of_runs(&self) {
        // Before: a worker may take one of these meanwhile, and is told with the others.
        if let Some(inner) = self.inner.upgrade() {
            self.ledger.keys_without_lease().iter().for_each(|key| inner.put_back(key));
        }
        self.front.cancel_runs();
    }

    fn close(&self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.ledger.close().iter().for_each(|key| inner.put_back(key));
            inner.front.shut_down();
        }
    }
}

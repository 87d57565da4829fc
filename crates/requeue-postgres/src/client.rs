//! [`Client`]: a queue's operations for processes that do not work on it.

use crate::add_batcher::{NOT_WOKEN, TriggerRow, Wakes, add, fits, micros};
use crate::calendar::{self, Micros};
use crate::groups::GroupRules;
use crate::hub::Hub;
use crate::link::{ANSWERS, Failed, Link};
use crate::list::{PAGE, Reading, age};
use crate::processes::{Process, processes};
use crate::schema::known;
use crate::typed::Param;
use crate::wakeups::WAKE;
use requeue_engine::{EngineError, Key, Listed, Op, Schedule};
use serde_json::value::RawValue;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio_postgres::Row;

/// Maximum number of keys written by one statement.
const KEYS_AT_ONCE: usize = 1000;
/// Maximum number of keys that wake others in the transaction that adds them.
const WAKES_WITHIN: usize = 32;
/// Period of a schedule that has only one more time.
const LONG: Duration = Duration::from_secs(366 * 86_400);
/// Maximum of each count of [`Stats`], so that counting is quick in a queue of millions (about 25 ms). A
/// count of this value means this number or more.
///
/// ```
/// assert_eq!(requeue_postgres::MOST_COUNTED, 100_000);
/// ```
pub const MOST_COUNTED: u64 = 100_000;
/// [`MOST_COUNTED`] as a parameter.
const COUNTS_UP_TO: i32 = MOST_COUNTED as i32;

/// Access to a server's queue for a process that does not work on it: it adds, lists, cancels and counts.
///
/// Each call is a transaction of its own; processes may work on the queue meanwhile. A queue that does not
/// exist is an error, which names queues with similar names.
/// [`Postgres::make_queue`](crate::Postgres::make_queue) creates a queue, and so does the first process that
/// [opens](crate::QueueBuilder::open) it.
///
/// ```no_run
/// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
/// let orders = pg.client("orders");
/// orders.add_many(&["order-4711".to_owned()], None, 0).wait()?;
/// println!("{:?}", orders.list().wait()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Client {
    hub: Arc<Hub>,
    name: String,
    /// The function from a key's bytes to its group.
    group: Option<Arc<GroupOfBytes>>,
}

/// The name of the group of a key given as bytes; `None` if it has none.
type GroupOfBytes = dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync;

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("queue", &self.name).finish_non_exhaustive()
    }
}

/// Numbers of a queue's keys by state. Each count goes up to [`MOST_COUNTED`].
///
/// ```no_run
/// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
/// assert_eq!(pg.client("orders").stats().wait()?.ready, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// In line.
    pub ready: u64,
    /// With a worker.
    pub held: u64,
    /// Waiting for a timer, even if also in line or held.
    pub waiting: u64,
    /// Triggers of users' transactions that no process has read yet.
    pub inbox: u64,
    /// Given up.
    pub dead: u64,
    /// Time in line of the first key, or age of the first immediate trigger of a user's transaction.
    pub oldest_ready: Option<Duration>,
    /// Whether the queue is paused.
    pub paused: bool,
    /// Processes that have a lease on it: those that work on it.
    pub owners: u64,
    /// Processes whose lease has ended, and whose keys were not given back yet. A process that works on the
    /// queue does that within a second.
    pub expired_owners: u64,
    /// Remaining time of the lease that ends first.
    pub shortest_lease: Option<Duration>,
    /// Age of the database's oldest open snapshot: rows that died since then cannot be vacuumed. A role sees
    /// other roles' transactions only if it is a member of `pg_read_all_stats`.
    pub oldest_snapshot: Option<Duration>,
    /// Default cap of groups: how many keys of a group may be held at once. `None`: any number.
    pub group_cap: Option<usize>,
    /// Number of paused groups, which [`Client::groups`] lists.
    pub groups_paused: u64,
    /// Number of groups with a weight or a cap of their own.
    pub groups_with_rules: u64,
    /// Delay after a key's first failure, and the maximum delay:
    /// [`QueueBuilder::backoff`](crate::QueueBuilder::backoff).
    pub backoff: (Duration, Duration),
    /// Dispatch rate in keys per second, and burst, if there is a limit:
    /// [`QueueBuilder::dispatch_rate`](crate::QueueBuilder::dispatch_rate).
    pub dispatch_rate: Option<(f64, u32)>,
}

/// A group of a queue that is paused, or has rules of its own: [`Client::groups`].
///
/// ```no_run
/// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
/// let groups = pg.client("orders").groups().wait()?;
/// assert!(groups.iter().all(|group| group.paused || group.weight.is_some() || group.cap.is_some()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupState {
    /// Its name, as [bytes](Key::to_bytes).
    pub name: Vec<u8>,
    /// Whether it is paused.
    pub paused: bool,
    /// Number of its keys that are handed out per turn; `None`: one.
    pub weight: Option<u32>,
    /// Number of its keys that may be held at once, `usize::MAX` for any number; `None`: the default,
    /// [`Stats::group_cap`].
    pub cap: Option<usize>,
}

/// The keys of a queue, listed page by page: [`Client::pages`].
///
/// A page has up to 20,000 keys. Within a page those in line come first and in order; pages follow the order of
/// the keys. A key that is known all the time is listed once; concurrent changes of others may be listed or
/// not.
///
/// ```no_run
/// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
/// let first = pg.client("orders").pages().next_page().wait()?;
/// println!("{} keys or more", first.map_or(0, |keys| keys.len()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pages {
    client: Client,
    reading: Arc<Mutex<Reading>>,
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Pages {
    /// Returns the next page; `None` behind the last one.
    ///
    /// # Errors
    ///
    /// If the server can't be asked. The next call tries the same page again.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// let mut pages = pg.client("orders").pages();
    /// println!("{:?}", pages.next_page().wait()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_page(&mut self) -> Op<Option<Vec<Listed>>> {
        let reading = self.reading.clone();
        self.client.with(move |link, queue| {
            Box::pin(async move {
                let page = reading.lock().await.page(link, queue).await?;
                Ok(page.map(|keys| keys.into_iter().map(|(_, key)| key).collect()))
            })
        })
    }
}

/// A key as the server has it, and the name of its group.
type Encoded = (Vec<u8>, Option<Vec<u8>>);

type Doing<T> = Pin<Box<dyn Future<Output = Result<T, EngineError>> + Send>>;

fn count(row: &Row, nth: usize) -> u64 {
    row.get::<_, i64>(nth).unsigned_abs()
}

/// Converts the server's number, whose maximum means any number.
fn cap(most: i32) -> usize {
    usize::try_from(most).ok().filter(|_| most < i32::MAX).unwrap_or(usize::MAX)
}

impl Client {
    pub(crate) fn new(hub: Arc<Hub>, name: &str) -> Self {
        Self { hub, name: name.to_owned(), group: None }
    }

    pub(crate) fn grouped(self, group: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self { group: Some(Arc::new(group)), ..self }
    }

    /// Puts keys that this client adds into groups, which take turns: `group` returns the group of a key from
    /// the key's [bytes](Key::to_bytes). [`QueueBuilder::group_by`](crate::QueueBuilder::group_by) says what
    /// is promised. A key that the server knows keeps its group. A client from
    /// [`PostgresStore::client`](crate::PostgresStore::client) uses the groups of its queue.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// let orders = pg.client("orders").group_by(|_| "tenant-7".to_owned());
    /// orders.add_many(&[4711_u64, 4712], None, 0).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn group_by<G: Key>(self, group: impl Fn(&[u8]) -> G + Send + Sync + 'static) -> Self {
        self.grouped(move |key| Some(group(key).to_bytes().into()))
    }

    /// Makes a call with the connection and the number of the queue.
    fn with<T: Send + 'static>(
        &self,
        call: impl for<'a> FnOnce(
            &'a mut Link,
            i32,
        ) -> Pin<Box<dyn Future<Output = Result<T, EngineError>> + Send + 'a>>
        + Send
        + 'static,
    ) -> Op<T> {
        let (lanes, name) = (self.hub.lanes.clone(), self.name.clone());
        let doing: Doing<T> = Box::pin(async move {
            let mut link = lanes.lock().await;
            known(&mut link).await?;
            let found = link.query("select requeue.queue_id($1)", &[&name]).await?;
            let number = found.first().map_or(0, |row| row.get(0));
            call(&mut link, number).await
        });
        self.hub.call(doing)
    }

    /// Makes a call whose answer is one row, read by `read`.
    fn one<T: Send + 'static>(
        &self,
        what: &'static str,
        key: Option<Vec<u8>>,
        read: impl FnOnce(&Row) -> T + Send + 'static,
    ) -> Op<T> {
        self.with(move |link, queue| {
            Box::pin(async move {
                let with_key: [&dyn Param; 2] = [&queue, &key];
                let params = if key.is_some() { &with_key[..] } else { &with_key[..1] };
                let rows = link.query(what, params).await?;
                match rows.first() {
                    Some(row) => Ok(read(row)),
                    None => Err(EngineError::Unknown("the server gave no answer".into())),
                }
            })
        })
    }

    /// Asks for runs of keys, after a delay if there is one. They are durable when this has succeeded.
    ///
    /// # Errors
    ///
    /// See [`EngineError`]. Up to 1,000 keys are written all or none; of more, the first ones may be. If a
    /// key is longer than [`LONGEST_KEY`](crate::LONGEST_KEY) none is.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// pg.client("orders").add_many(&[4711_u64, 4712], None, 0).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_many<K: Key>(&self, keys: &[K], delay: Option<Duration>, priority: i16) -> Op<()> {
        self.adds(keys, None, delay, priority, None)
    }

    /// Like [`add_many`](Self::add_many), for keys that come again after each run, until they are cancelled.
    /// Times of [`add_scheduled`](Self::add_scheduled) do not depend on runs.
    ///
    /// # Errors
    ///
    /// Like [`add_many`](Self::add_many).
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// let daily = Duration::from_secs(86_400);
    /// pg.client("reports").add_every(&["sales".to_owned()], daily, None, 0).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_every<K: Key>(
        &self,
        keys: &[K],
        every: Duration,
        delay: Option<Duration>,
        priority: i16,
    ) -> Op<()> {
        self.adds(keys, None, delay, priority, Some(every))
    }

    /// Like [`add_many`](Self::add_many), with a JSON value for each key, in order.
    ///
    /// # Errors
    ///
    /// The errors of [`add_many`](Self::add_many); an invalid JSON value makes the whole call fail.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// pg.client("users").add_each(&["u7".to_owned()], &[r#"{"mail":true}"#.to_owned()], None, 0).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_each<K: Key>(
        &self,
        keys: &[K],
        values: &[String],
        delay: Option<Duration>,
        priority: i16,
    ) -> Op<()> {
        let parsed = values.iter().map(|value| RawValue::from_string(value.clone())).collect();
        match parsed {
            Ok(values) => self.adds(keys, Some(values), delay, priority, None),
            Err(e) => Err(EngineError::NotApplied(e.into())).into(),
        }
    }

    fn adds<K: Key>(
        &self,
        keys: &[K],
        values: Option<Vec<Box<RawValue>>>,
        delay: Option<Duration>,
        priority: i16,
        every: Option<Duration>,
    ) -> Op<()> {
        let keys = match self.encoded(keys) {
            Ok(keys) => keys,
            Err(refused) => return Err(refused).into(),
        };
        let wakeups = self.hub.wakeups.clone();
        self.with(move |link, queue| {
            Box::pin(async move {
                // a transaction that notifies holds others up that do: it must be short
                let is_lone = keys.len() <= WAKES_WITHIN && wakeups.is_quiet();
                let wakes = if is_lone { Wakes::Within } else { Wakes::Later };
                let mut owes_wake = wakes == Wakes::Later;
                let mut values = values.into_iter().flatten();
                let mut triggers = keys.into_iter().map(|(key, group)| {
                    let (key, value) = (key.into(), values.next());
                    TriggerRow { queue, key, delay, priority, value, every, group }
                });
                loop {
                    let some: Vec<TriggerRow> = triggers.by_ref().take(KEYS_AT_ONCE).collect();
                    if some.is_empty() {
                        break;
                    }
                    owes_wake |= add(link, &some, wakes, &wakeups.name).await?.contains_key(&NOT_WOKEN);
                }
                wakeups.note_add();
                wakeups.wake(queue);
                if owes_wake {
                    // the keys are stored even if this fails: a process that is not woken looks within a
                    // second
                    let _ = link.query(WAKE, &[&vec![queue], &wakeups.name]).await;
                }
                Ok(())
            })
        })
    }

    /// Encodes keys, and the names of their groups.
    fn encoded<K: Key>(&self, keys: &[K]) -> Result<Vec<Encoded>, EngineError> {
        let encode = |key: &K| {
            let key: Vec<u8> = key.to_bytes().into();
            let group = self.group.as_ref().and_then(|group| group(&key));
            fits(&key, group.as_deref()).map(|()| (key, group))
        };
        keys.iter().map(encode).collect()
    }

    /// Adds keys that come at the times of a schedule, however long their runs take, until they are cancelled. The clock
    /// is the server's; the process that runs a key computes its next time. Times missed while no process works on the queue, or
    /// during a run, become one run.
    ///
    /// A process of version 1 does not know schedules: a key that it runs comes again about a period later, and at its
    /// time again after a run by a newer process.
    ///
    /// # Errors
    ///
    /// The errors of [`add_many`](Self::add_many); also if the first of the times is too far away for a calendar.
    ///
    /// ```no_run
    /// # use requeue_postgres::Schedule;
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// let workdays: Schedule = "cron 0 18 * * 1-5 Europe/Berlin".parse()?;
    /// pg.client("reports").add_scheduled(&["sales".to_owned()], &workdays, 0).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_scheduled<K: Key>(&self, keys: &[K], schedule: &Schedule, priority: i16) -> Op<()> {
        let keys = match self.encoded(keys) {
            Ok(keys) => keys,
            Err(refused) => return Err(refused).into(),
        };
        let (schedule, rank) = (schedule.clone(), -i32::from(priority));
        let wakeups = self.hub.wakeups.clone();
        self.with(move |link, queue| {
            Box::pin(async move {
                let now = link
                    .query("select (extract(epoch from clock_timestamp()) * 1000000)::bigint", &[])
                    .await?;
                let now: Micros = now.first().map_or(0, |row| row.get(0));
                let Some(first) = calendar::next(&schedule, now) else {
                    return Err(EngineError::NotApplied(
                        format!("{schedule}: this time does not come").into(),
                    ));
                };
                let period = calendar::next(&schedule, first).map_or(micros(LONG), |second| second - first);
                let rule = schedule.to_string();
                for some in keys.chunks(KEYS_AT_ONCE) {
                    let (keys, groups): (Vec<_>, Vec<_>) = some.iter().cloned().unzip();
                    let add = "select requeue.add_scheduled($1, $2, $3, $4, $5, $6, $7)";
                    link.query(add, &[&queue, &keys, &first, &rank, &rule, &period, &groups]).await?;
                }
                wakeups.wake(queue);
                let _ = link.query(WAKE, &[&vec![queue], &wakeups.name]).await;
                Ok(())
            })
        })
    }

    /// Removes the timers of keys that are to run anyway: such a run also stands for the delayed runs of its
    /// key, even retries. For keys that were added just before.
    ///
    /// # Errors
    ///
    /// If the server can't be asked, or another transaction locks one of the keys for long.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// pg.client("orders").add_many(&[4711_u64], None, 0).wait()?;
    /// pg.client("orders").absorb(&[4711_u64]).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn absorb<K: Key>(&self, keys: &[K]) -> Op<()> {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.to_bytes().into()).collect();
        self.with(move |link, queue| {
            Box::pin(async move {
                for keys in keys.chunks(KEYS_AT_ONCE) {
                    link.query("select requeue.absorb($1, $2)", &[&queue, &keys]).await?;
                }
                Ok(())
            })
        })
    }

    /// The keys of the queue, those in line first and in order.
    ///
    /// They are read in pages of 20,000, by several statements, and all kept in memory; [`pages`](Self::pages)
    /// returns one page at a time. A key that is known all the time is listed once; concurrent changes of
    /// others may be listed or not.
    ///
    /// # Errors
    ///
    /// If the server can't be asked.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// for key in pg.client("orders").list().wait()? {
    ///     println!("{:?} {:?}", String::from_utf8_lossy(&key.key), key.status);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list(&self) -> Op<Vec<Listed>> {
        self.with(move |link, queue| Box::pin(Reading::default().all(link, queue)))
    }

    /// The keys of the queue in pages, for a queue of millions.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// let mut pages = pg.client("orders").pages();
    /// while let Some(keys) = pages.next_page().wait()? {
    ///     println!("{} more", keys.len());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn pages(&self) -> Pages {
        Pages { client: self.clone(), reading: Arc::default() }
    }

    /// Like [`pages`](Self::pages), of the keys that begin with `prefix`. No page behind them is read.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// let first = pg.client("orders").pages_with_prefix(b"eu/").next_page().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn pages_with_prefix(&self, prefix: &[u8]) -> Pages {
        Pages { client: self.clone(), reading: Arc::new(Mutex::new(Reading::with_prefix(prefix.to_vec()))) }
    }

    /// State of a key.
    ///
    /// # Errors
    ///
    /// If the server can't be asked.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// println!("{:?}", pg.client("orders").state(&4711_u64).wait()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn state(&self, key: &impl Key) -> Op<Option<Listed>> {
        let key: Vec<u8> = key.to_bytes().into();
        self.with(move |link, queue| {
            Box::pin(async move { Ok(Reading::of(key).all(link, queue).await?.pop()) })
        })
    }

    /// Cancels everything that asks for a run of the key; a current run goes on. False if there was nothing.
    ///
    /// # Errors
    ///
    /// If the server can't be asked.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// pg.client("orders").cancel(&4711_u64).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self, key: &impl Key) -> Op<bool> {
        self.one("select requeue.cancel($1, $2)", Some(key.to_bytes().into()), |row| row.get(0))
    }

    /// Cancels each of the keys, in one transaction. Returns the number of those that had something to cancel.
    ///
    /// The rows of the keys are locked until all are cancelled: pass thousands in several calls.
    ///
    /// # Errors
    ///
    /// If the server can't be asked. No key is cancelled then.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// pg.client("orders").cancel_many(&[4711_u64, 4712]).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_many(&self, keys: &[impl Key]) -> Op<u64> {
        let mut keys: Vec<Vec<u8>> = keys.iter().map(|key| key.to_bytes().into()).collect();
        // two callers lock their keys in one order
        keys.sort();
        let cancel = "select count(*) from unnest($2::bytea[]) key where requeue.cancel($1, key)";
        self.with(move |link, queue| {
            Box::pin(async move {
                let rows = link.query(cancel, &[&queue, &keys]).await?;
                Ok(rows.first().map_or(0, |row| count(row, 0)))
            })
        })
    }

    /// Runs a key now that waits, or whose last run gave up. False if it is unknown.
    ///
    /// # Errors
    ///
    /// If the server can't be asked.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// pg.client("orders").retry(&4711_u64).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry(&self, key: &impl Key) -> Op<bool> {
        let retry = "select r, requeue.wake($1) from requeue.retry($1, $2) r";
        self.one(retry, Some(key.to_bytes().into()), |row| row.get(0))
    }

    /// Hands out no key of the queue, in any process, until [`resume`](Self::resume).
    ///
    /// Keys that are already claimed are still run, including those that wait for a worker in memory
    /// ([`prefetch`](crate::QueueBuilder::prefetch)), and those of a claim that is under way when this is
    /// answered.
    ///
    /// # Errors
    ///
    /// If the server can't be asked.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// pg.client("orders").pause().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause(&self) -> Op<()> {
        self.one("update requeue.queue set paused = true where id = $1 returning id", None, |_| ())
    }

    /// Ends a pause.
    ///
    /// # Errors
    ///
    /// If the server can't be asked.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// pg.client("orders").resume().wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(&self) -> Op<()> {
        let resume = "update requeue.queue set paused = false where id = $1 returning requeue.wake(id)";
        self.one(resume, None, |_| ())
    }

    /// Hands out no key of a group, in any process; false if it was already paused. Keys that are already
    /// claimed are run. Other groups go on. A group without known keys can be paused too.
    ///
    /// # Errors
    ///
    /// If the server can't be asked.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// pg.client("orders").pause_group(&"tenant-7".to_owned()).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause_group(&self, group: &impl Key) -> Op<bool> {
        let pause = "select requeue.pause_group($1, $2, true)";
        self.one(pause, Some(group.to_bytes().into()), |row| row.get(0))
    }

    /// Ends a group's pause; false if it was not paused.
    ///
    /// # Errors
    ///
    /// If the server can't be asked.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// pg.client("orders").resume_group(&"tenant-7".to_owned()).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume_group(&self, group: &impl Key) -> Op<bool> {
        let resume = "select requeue.pause_group($1, $2, false)";
        self.one(resume, Some(group.to_bytes().into()), |row| row.get(0))
    }

    /// Stores rules of groups with the queue, like
    /// [`QueueBuilder::group_by_with`](crate::QueueBuilder::group_by_with). They apply at once, in all
    /// processes.
    ///
    /// # Errors
    ///
    /// For a [`cap`](GroupRules::cap) of 0, and if the server can't be asked.
    ///
    /// ```no_run
    /// # use requeue_postgres::GroupRules;
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// let rules = GroupRules::new().cap(4).weight(&"tenant-7".to_owned(), 2);
    /// pg.client("orders").set_group_rules(rules).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_group_rules<G: Key>(&self, rules: GroupRules<G>) -> Op<()> {
        match rules.stored() {
            Ok(rules) => {
                self.with(move |link, queue| Box::pin(async move { Ok(rules.store(link, queue).await?) }))
            }
            Err(refused) => Err(refused).into(),
        }
    }

    /// The groups that are paused or have rules of their own, by name. The others have the weight 1 and the
    /// cap [`Stats::group_cap`].
    ///
    /// # Errors
    ///
    /// If the server can't be asked.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// for group in pg.client("orders").groups().wait()? {
    ///     println!("{} {:?}", String::from_utf8_lossy(&group.name), group);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn groups(&self) -> Op<Vec<GroupState>> {
        self.with(move |link, queue| {
            Box::pin(async move {
                let groups = "select substr(grp, 5) as name, paused, weight, cap from requeue.groups where queue = $1 order by name";
                let rows = link.query(groups, &[&queue]).await?;
                let read = |row: &Row| GroupState {
                    name: row.get(0),
                    paused: row.get(1),
                    weight: row.get::<_, Option<i32>>(2).map(i32::unsigned_abs),
                    cap: row.get::<_, Option<i32>>(3).map(cap),
                };
                Ok(rows.iter().map(read).collect())
            })
        })
    }

    /// Removes the keys whose last run gave up. Returns their number. Many keys take several calls of the
    /// server.
    ///
    /// # Errors
    ///
    /// If the server can't be asked; some may be removed then.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// println!("{} are gone", pg.client("orders").purge().wait()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn purge(&self) -> Op<u64> {
        // skips rows that the end of a run is changing just now
        let purge = "with gone as (delete from requeue.dead where ctid = any(array(select ctid from requeue.dead where queue = $1
                     limit $2 for update skip locked)) returning 1) select count(*) from gone";
        self.with(move |link, queue| {
            Box::pin(async move {
                let mut all = 0;
                loop {
                    let rows = link.query(purge, &[&queue, &i64::from(PAGE)]).await?;
                    let gone = rows.first().map_or(0, |row| count(row, 0));
                    all += gone;
                    if gone < u64::from(PAGE.unsigned_abs()) {
                        return Ok(all);
                    }
                }
            })
        })
    }

    /// The processes that work on the queue, the oldest first.
    ///
    /// # Errors
    ///
    /// If the server can't be asked.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// for process in pg.client("orders").processes().wait()? {
    ///     println!("{:?} has {} keys", process.who, process.held);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn processes(&self) -> Op<Vec<Process>> {
        self.with(|link, queue| Box::pin(async move { Ok(processes(link, queue).await?) }))
    }

    /// Numbers of the queue's keys by state.
    ///
    /// # Errors
    ///
    /// If the server can't be asked.
    ///
    /// ```no_run
    /// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
    /// println!("{:?}", pg.client("orders").stats().wait()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> Op<Stats> {
        self.with(move |link, queue| {
            Box::pin(async move { Ok(counts(link, queue, COUNTS_UP_TO, ANSWERS).await?) })
        })
    }
}

/// Numbers of a queue's keys by state, each counted up to `most`; fails after `limit`.
pub(crate) async fn counts(link: &mut Link, queue: i32, most: i32, limit: Duration) -> Result<Stats, Failed> {
    let stats =
        "select ready, held, waiting, inbox, dead, oldest_us, s.paused, owners, expired, lease_us, snapshot_us,
                 group_cap, paused_groups, ruled_groups, u.base_us, u.max_us, u.rate, u.burst
         from requeue.stats($1, $2) s left join requeue.queue u on u.id = $1";
    let rows = link.query_for(stats, &[&queue, &most], limit).await?;
    let Some(row) = rows.first() else { return Ok(Stats::default()) };
    let time = |nth: usize| row.get::<_, Option<i64>>(nth).map(age);
    Ok(Stats {
        ready: count(row, 0),
        held: count(row, 1),
        waiting: count(row, 2),
        inbox: count(row, 3),
        dead: count(row, 4),
        oldest_ready: time(5),
        paused: row.get::<_, Option<bool>>(6).unwrap_or(false),
        owners: count(row, 7),
        expired_owners: count(row, 8),
        shortest_lease: time(9),
        oldest_snapshot: time(10),
        group_cap: row.get::<_, Option<i32>>(11).map(cap),
        groups_paused: count(row, 12),
        groups_with_rules: count(row, 13),
        backoff: (time(14).unwrap_or_default(), time(15).unwrap_or_default()),
        dispatch_rate: row
            .get::<_, Option<f64>>(16)
            .map(|rate| (rate, row.get::<_, Option<f64>>(17).unwrap_or(1.0) as u32)),
    })
}

//! [`Running`]: the handle of a controller.

use crate::controller::Controller;
use crate::error::{Error, StartError};
use crate::feed::{Feed, Trigger};
use crate::lease::{Elector, Fence};
use crate::lists::Lists;
use crate::metrics::ControllerMetrics;
use crate::run::{Results, Runs};
use crate::watch::{OnError, Start};
use crate::{Action, Cause, Causes, Config, ObjectKey, Reconcilable};
use futures::FutureExt;
use kube::runtime::reflector::{ObjectRef, Store};
use requeue::{KeyState, Page, Scope, WorkQueue, Worker};
use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::ops::RangeInclusive;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How a controller is told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopper {
    Graceful,
    /// A signal; a second one ends what still runs.
    Signal,
    /// A deadline: current runs have this time.
    Within(Duration),
}

/// How a controller ended: the fate of its runs, and of objects still to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Number of runs that ended by themselves since the controller began.
    pub done: u64,
    /// Number of runs dropped at the end because their time was over, or because the lease was lost
    /// meanwhile.
    pub cancelled: usize,
    /// Number of objects that still had to be reconciled: those that were ready, waited out a failure or a
    /// debounce, or whose run was dropped. The next start lists them. An object that only waited for its next
    /// look ([`requeue`](crate::Action::requeue), [`resync`](crate::Config::resync)) does not count.
    pub left: usize,
}

/// State of a controller, for a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Runs may begin: the watch of the objects has had its list, and those of related kinds have had theirs
    /// or did not get it in time ([`Config::list_timeout`]).
    pub synced: bool,
    /// The kinds without a list: not listed yet, nonexistent, or not permitted for this process. Their
    /// watches keep trying.
    pub unlisted: Vec<String>,
    /// This process leads, or the controller has no [`leader`](crate::Controller::leader). A standby is
    /// healthy.
    pub is_leader: bool,
    /// The controller has ended.
    pub ended: bool,
    /// The last error of a watch, with its kind, if it is less than a minute old. The watch begins again by
    /// itself.
    pub watch_error: Option<String>,
}

/// Reasons why no object is handed out; the queue is paused while any of them holds.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    by_lists: bool,
    by_user: bool,
    by_standby: bool,
}

/// The state that the handle and the controller's task share.
struct State {
    queue: WorkQueue<ObjectKey, Causes>,
    feed: Feed,
    worker: Worker,
    held: Mutex<Held>,
    lists: Arc<Lists>,
    watch_errors: Arc<WatchErrors>,
    stop: mpsc::Sender<Stopper>,
    /// All is to end at once.
    abort: watch::Sender<bool>,
    report: watch::Receiver<Option<Report>>,
    task: tokio::task::AbortHandle,
    metrics: Option<Arc<ControllerMetrics>>,
    /// A fence, not the elector: a handle that outlives its controller must hold no lease.
    fence: Option<Fence>,
}

/// How long [`Running::health`] reports an error of a watch.
const RECENT: Duration = Duration::from_secs(60);

/// The handle of a running controller, returned by [`Controller::start`]. Dropping it does not end the
/// controller. A clone is a handle to one controller.
///
/// ```no_run
/// # async fn doc(maps: requeue_kube::Running<k8s_openapi::api::core::v1::ConfigMap>) {
/// use kube::runtime::reflector::ObjectRef;
/// use std::time::Duration;
///
/// let map = ObjectRef::new("settings").within("shop");
/// // backing off: 3 failures, due in 18.2 ms; its last run failed: this map is poison
/// println!("{}", maps.explain(&map));
/// maps.reconcile_now(&map);
/// let health = maps.health();
/// let ready = health.synced && !health.ended; // for /readyz
/// println!("{:?}", maps.drain(Duration::from_secs(25)).await);
/// # }
/// ```
pub struct Running<K: Reconcilable> {
    state: Arc<State>,
    store: Store<K>,
}

impl<K: Reconcilable> Clone for Running<K> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), store: self.store.clone() }
    }
}

impl<K: Reconcilable> Debug for Running<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("queue", &self.state.queue).finish_non_exhaustive()
    }
}

impl State {
    fn has_ended(&self) -> bool {
        // The latter alone if its runtime was shut down.
        self.report.borrow().is_some() || self.task.is_finished()
    }

    fn hold(&self, change: impl FnOnce(&mut Held)) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut held);
        // Under the lock, so that two changes can't pass each other.
        if held.by_lists || held.by_user || held.by_standby {
            self.queue.pause(Scope::Queue);
        } else {
            self.queue.resume(Scope::Queue);
        }
    }
}

impl<K: Reconcilable> Running<K> {
    pub(crate) fn start<F, Fut, P, E, Ctx>(
        controller: Controller<K>,
        reconciler: F,
        error_policy: P,
        context: Arc<Ctx>,
        results: Option<Results<K, E>>,
    ) -> Result<Self, StartError>
    where
        F: Fn(Arc<K>, Arc<Ctx>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, E>> + Send + 'static,
        P: Fn(Arc<K>, &E, Arc<Ctx>) -> Action + Send + Sync + 'static,
        E: std::error::Error + Send + Sync + 'static,
        Ctx: Send + Sync + 'static,
    {
        let opened = controller.open().map_err(StartError)?;
        let (queue, feed, store) = (opened.queue, opened.feed, opened.store);
        let name: Arc<str> = opened.name.into();
        // Nothing runs before all watches have had their lists: a run that began earlier could read a related
        // object whose next change no watch tells of.
        queue.pause(Scope::Queue);
        let metrics = opened.metrics.map(Arc::new);
        let runs = Arc::new(Runs {
            reconciler,
            error_policy,
            context,
            store: store.clone(),
            dyntype: opened.dyntype,
            read: opened.read,
            feed: feed.clone(),
            config: opened.config.clone(),
            name: name.clone(),
            results: results.clone(),
            metrics: metrics.clone(),
            elector: opened.elector.clone(),
        });
        let worker = start_worker(&queue, &opened.config, runs).map_err(|e| StartError(e.to_string()))?;
        let (stop, stopped) = mpsc::channel(4);
        let (tell_report, report) = watch::channel(None);
        let (abort, aborted) = watch::channel(false);
        let watch_errors = Arc::new(WatchErrors::default());
        let runs_name = name.clone();
        let on_error = tell_watch_errors(name, watch_errors.clone(), results);
        let mut tasks = JoinSet::new();
        let lists = opened.lists;
        for source in opened.sources {
            let start = Start {
                feed: feed.clone(),
                lists: lists.clone(),
                on_error: on_error.clone(),
                backoff: opened.backoff.clone(),
            };
            let source = source(start);
            let (stop, name) = (stop.clone(), runs_name.clone());
            tasks.spawn(async move {
                // A stream of users' code may panic. A controller that is deaf to a part of what it is told of
                // must not go on as if it were well.
                if AssertUnwindSafe(source).catch_unwind().await.is_err() {
                    tracing::error!(
                        controller = &*name,
                        "a source of triggers panicked: the controller ends"
                    );
                    _ = stop.send(Stopper::Graceful).await;
                }
            });
        }
        for trigger in opened.stop {
            let stop = stop.clone();
            let name = runs_name.clone();
            tasks.spawn(async move {
                // One that panics, because the handler of a signal can't be set, say, would never end the controller.
                let how = AssertUnwindSafe(trigger).catch_unwind().await.unwrap_or_else(|_| {
                    tracing::error!(
                        controller = &*name,
                        "the hook for the end panicked: the controller ends"
                    );
                    Stopper::Graceful
                });
                _ = stop.send(how).await;
            });
        }
        let (begin, begun) = tokio::sync::oneshot::channel::<Arc<State>>();
        let (config, all) = (opened.config, store.clone());
        let elector = opened.elector;
        let fence = elector.as_ref().map(Elector::fence);
        let task = tokio::spawn(async move {
            let Ok(state) = begun.await else { return };
            let sweep =
                || all.state().iter().for_each(|object| state.feed.sweep(ObjectKey::from_obj(&**object)));
            let report = tokio::select! {
                report = supervise(&state, tasks, stopped, aborted, &config) => report,
                // It does not end.
                () = follow(&state, elector.as_ref(), sweep) => return,
            };
            tell_report.send_replace(Some(report));
        });
        let state = Arc::new(State {
            queue,
            feed,
            worker,
            held: Mutex::new(Held { by_lists: true, by_user: false, by_standby: fence.is_some() }),
            lists,
            watch_errors,
            stop,
            abort,
            report,
            task: task.abort_handle(),
            metrics,
            fence,
        });
        drop(begin.send(state.clone()));
        Ok(Self { state, store })
    }

    /// Explains in words why this object is not being reconciled, or since when it is; and the error of its
    /// last run, if that failed.
    #[must_use]
    pub fn explain(&self, object: &ObjectRef<K>) -> String {
        let key = ObjectKey::of(object);
        let mut text = self.state.queue.explain(&key).to_string();
        if let Some(failure) = self.state.feed.failures().of(&key) {
            text.push_str("; its last run failed: ");
            text.push_str(&failure);
        }
        text
    }

    /// The counts of the queue: how many objects are ready, waiting and held.
    #[must_use]
    pub fn stats(&self) -> requeue::Stats {
        self.state.queue.stats()
    }

    /// Triggers this object like a change of it. Returns `false`, and does nothing, if the watch does not
    /// have it or the controller has ended.
    pub fn reconcile_now(&self, object: &ObjectRef<K>) -> bool {
        let is_there = !self.state.has_ended() && self.store.get(object).is_some();
        if is_there {
            self.state.feed.trigger(Trigger::new(ObjectKey::of(object), Cause::Asked));
        }
        is_there
    }

    /// Stops further runs until [`resume`](Self::resume). Current runs continue, and triggers are kept.
    pub fn pause(&self) {
        self.state.hold(|held| held.by_user = true);
    }

    /// Ends a [`pause`](Self::pause).
    pub fn resume(&self) {
        self.state.hold(|held| held.by_user = false);
    }

    /// Sets how many objects are reconciled at once from now on; 0 is no bound.
    ///
    /// # Errors
    ///
    /// If the controller has ended.
    pub fn resize(&self, concurrency: u16) -> std::io::Result<()> {
        if self.state.has_ended() {
            return Err(std::io::Error::other("the controller has ended"));
        }
        self.state.worker.resize(workers(concurrency))?;
        if let Some(metrics) = &self.state.metrics {
            metrics.resized(concurrency);
        }
        Ok(())
    }

    /// Ends the controller: nothing new begins, and current runs have this time to end. If the controller is
    /// told to end more than once, by this, a signal or another trigger, the earliest deadline holds.
    ///
    /// A reconciler that waits for this waits for itself: its run is dropped when the time is over.
    pub async fn drain(&self, deadline: Duration) -> Report {
        // If the channel is full or closed, it is ending.
        _ = self.state.stop.send(Stopper::Within(deadline)).await;
        self.ended().await
    }

    /// Waits until the controller has ended.
    pub async fn ended(&self) -> Report {
        let mut report = self.state.report.clone();
        match report.wait_for(Option::is_some).await {
            Ok(report) => report.unwrap_or_default(),
            // It was aborted.
            Err(_) => Report::default(),
        }
    }

    /// Whether this process leads, by the clock. `true` if the controller has no
    /// [`leader`](crate::Controller::leader).
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.state.fence.as_ref().is_none_or(|fence| fence.check().is_ok())
    }

    /// State of the controller, for a probe.
    #[must_use]
    pub fn health(&self) -> Health {
        let state = &self.state;
        Health {
            synced: state.lists.have_begun(),
            unlisted: state.lists.unlisted(),
            is_leader: self.is_leader(),
            ended: state.has_ended(),
            watch_error: state.watch_errors.last(),
        }
    }

    /// Ends everything at once. The controller's task does it, so that the caller need not wait.
    pub(crate) fn abort(&self) {
        self.state.abort.send_replace(true);
    }
}

/// The number of workers: as many as there is work for if the user said 0.
fn workers(concurrency: u16) -> RangeInclusive<usize> {
    match usize::from(concurrency) {
        0 => 0..=1 << 20,
        n => n..=n,
    }
}

fn start_worker<K, F, Fut, P, Ctx, E>(
    queue: &WorkQueue<ObjectKey, Causes>,
    config: &Config,
    runs: Arc<Runs<K, F, P, Ctx, E>>,
) -> std::io::Result<Worker>
where
    K: Reconcilable,
    F: Fn(Arc<K>, Arc<Ctx>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send + 'static,
    P: Fn(Arc<K>, &E, Arc<Ctx>) -> Action + Send + Sync + 'static,
    E: std::error::Error + Send + Sync + 'static,
    Ctx: Send + Sync + 'static,
{
    let worker = Worker::of(queue).workers(workers(config.concurrency));
    let ended = runs.clone();
    let executor = tokio::runtime::Handle::current();
    worker.on_end(move |key, report| ended.ended(key, report)).start_on(executor, move |run| {
        let runs = runs.clone();
        async move { runs.run(run).await }
    })
}

/// The last error of each watch, by its kind.
#[derive(Default)]
struct WatchErrors(Mutex<HashMap<Arc<str>, Told>>);

struct Told {
    text: String,
    last: Instant,
    /// When the error was last logged.
    said: Instant,
}

impl WatchErrors {
    /// `true` if this error is to be reported: a watch that keeps failing in one way is reported once a
    /// minute.
    fn is_news(&self, kind: &Arc<str>, text: String) -> bool {
        let now = Instant::now();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get_mut(kind) {
            Some(told) if told.text == text && now - told.said < RECENT => {
                told.last = now;
                false
            }
            _ => {
                all.insert(kind.clone(), Told { text, last: now, said: now });
                true
            }
        }
    }

    fn last(&self) -> Option<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = all.iter().filter(|(_, told)| told.last.elapsed() < RECENT);
        recent.max_by_key(|(_, told)| told.last).map(|(kind, told)| format!("{kind}: {}", told.text))
    }
}

/// The handler of watch errors: each updates the health and, if it is news, is logged and becomes an item of
/// the stream.
fn tell_watch_errors<K, E>(
    name: Arc<str>,
    errors: Arc<WatchErrors>,
    results: Option<Results<K, E>>,
) -> OnError
where
    K: Reconcilable,
    E: Send + 'static,
    Results<K, E>: Send + Sync,
{
    Arc::new(move |kind, error| {
        if !errors.is_news(kind, error.to_string()) {
            return;
        }
        tracing::warn!(controller = &*name, "the watch of {kind} failed and begins again: {error}");
        if let Some(results) = &results {
            // If a thousand results wait, the message above must do.
            drop(results.try_send(Err(Error::QueueError(error))));
        }
    })
}

/// Starts the runs when the lists are complete, and ends the controller.
async fn supervise(
    state: &State,
    tasks: JoinSet<()>,
    mut stopped: mpsc::Receiver<Stopper>,
    mut aborted: watch::Receiver<bool>,
    config: &Config,
) -> Report {
    let mut how = tokio::select! {
        how = told(&mut stopped, &mut aborted) => how,
        () = state.lists.begin(config.list_timeout, state.queue.name()) => {
            state.hold(|held| held.by_lists = false);
            told(&mut stopped, &mut aborted).await
        }
    };
    let put_back = state.feed.put_backs();
    let dropped_before = put_back.dropped();
    let (mut deadline, mut by_signal) = (None, false);
    let ended = loop {
        let time = match how {
            Stopper::Within(time) => time,
            Stopper::Graceful | Stopper::Signal => config.grace,
        };
        by_signal |= how == Stopper::Signal;
        let now = Instant::now();
        // `None` is never, and so is a time that no clock can show.
        deadline = [deadline, now.checked_add(time)].into_iter().flatten().min();
        let left = deadline.map_or(Duration::MAX, |deadline| deadline - now);
        tokio::select! {
            ended = state.worker.stop(left) => break ended,
            sooner = told(&mut stopped, &mut aborted), if !left.is_zero() => how = sooner,
            () = crate::controller::signalled(), if by_signal && !left.is_zero() => {
                how = Stopper::Within(Duration::ZERO);
            }
        }
    };
    drop(tasks); // no watch goes on
    let left = left(&state.queue);
    state.queue.shut_down();
    let report = Report {
        done: ended.done.saturating_sub(put_back.all()),
        cancelled: ended.cancelled + put_back.dropped().saturating_sub(dropped_before),
        left,
    };
    tracing::info!(controller = state.queue.name(), "the controller has ended: {report:?}");
    report
}

/// Number of objects that still have to run. Objects that only wait for their next look do not count.
fn left(queue: &WorkQueue<ObjectKey, Causes>) -> usize {
    let is_left = |state: &KeyState| {
        state.ready || state.held || state.backing_off || state.window_until.is_some() || state.attempt > 1
    };
    let count = |page: Page<ObjectKey>| page.keys.iter().filter(|(_, state)| is_left(state)).count();
    queue.snapshot().map(count).sum()
}

/// Runs the controller while its process leads. After the first list all objects are in the queue; in a later
/// term of this process they are added again, because another process may have led meanwhile.
async fn follow(state: &State, elector: Option<&Elector>, sweep: impl Fn()) {
    let Some(elector) = elector else { return std::future::pending().await };
    let mut is_first = true;
    loop {
        let term = elector.leading().await;
        if !std::mem::take(&mut is_first) {
            sweep();
        }
        state.hold(|held| held.by_standby = false);
        term.lost().await;
        state.hold(|held| held.by_standby = true);
    }
}

/// Waits until the controller is told to end.
async fn told(stopped: &mut mpsc::Receiver<Stopper>, aborted: &mut watch::Receiver<bool>) -> Stopper {
    tokio::select! {
        // The other end of both lives as long as this.
        how = stopped.recv() => how.unwrap_or(Stopper::Within(Duration::ZERO)),
        _ = aborted.wait_for(|aborted| *aborted) => Stopper::Within(Duration::ZERO),
    }
}

//! The builder of a controller.

mod related;

use crate::echo::Echoes;
use crate::error::{Error, StartError};
use crate::feed::Feed;
use crate::lease::Elector;
use crate::lists::Lists;
use crate::metrics::ControllerMetrics;
use crate::patience::{SharedBackoff, patiently};
use crate::running::{Running, Stopper};
use crate::watch::{self, Start};
use crate::{Action, Causes, Config, Metrics, ObjectKey, Reconcilable};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use kube::api::Api;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher;
use requeue::limiter::{Bucket, Exponential, Jitter, MaxOf, RateLimiter};
use requeue::{Debounce, TokioClock, WorkQueue};
use std::borrow::Borrow;
use std::fmt;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hash, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use tokio::task::consume_budget;

/// A source of triggers, run as a task until the controller ends.
type Source = Box<dyn FnOnce(Start) -> BoxFuture<'static, ()> + Send>;

type Grouping =
    Box<dyn FnOnce(requeue::Builder<ObjectKey, Causes>) -> requeue::Builder<ObjectKey, Causes> + Send>;

/// A controller for the objects of one kind: watches them and related objects, and calls a reconciler for
/// each that needs a look.
///
/// The builder methods, their argument order and their behaviour are those of [`kube::runtime::Controller`]:
/// to switch from kube's, change the `use` lines. The [crate's page](crate) lists the differences.
///
/// ```no_run
/// use futures::StreamExt;
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use kube::runtime::watcher;
/// use kube::{Api, Client};
/// use requeue_kube::{Action, Controller};
/// use std::sync::Arc;
///
/// async fn reconcile(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
///     // make the world as `map` asks for
///     Ok(Action::await_change())
/// }
///
/// # async fn doc() -> Result<(), kube::Error> {
/// let client = Client::try_default().await?;
/// Controller::new(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
///     .owns(Api::<Secret>::all(client.clone()), watcher::Config::default())
///     .shutdown_on_signal()
///     .run(reconcile, |_, _, _| Action::backoff(), Arc::new(client))
///     .for_each(|result| async move {
///         if let Err(e) = result {
///             eprintln!("{e}");
///         }
///     })
///     .await;
/// # Ok(())
/// # }
/// ```
#[must_use = "a controller does nothing before `run` or `start`"]
pub struct Controller<K: Reconcilable> {
    store: Store<K>,
    dyntype: K::DynamicType,
    sources: Vec<Source>,
    stop: Vec<BoxFuture<'static, Stopper>>,
    config: Config,
    backoff: Option<SharedBackoff>,
    name: String,
    grouping: Option<Grouping>,
    limiter: Option<Box<dyn RateLimiter<ObjectKey>>>,
    read: Option<Read<K>>,
    metrics: Option<Metrics>,
    elector: Option<Elector>,
}

impl<K: Reconcilable> Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.name)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl<K: Reconcilable> Controller<K> {
    /// A controller for the objects of this kind that the API and the watch's configuration select.
    ///
    /// An object that leaves the selection (for example by losing a label) counts as deleted for the
    /// controller; its [`finalizer`](crate::finalizer()) stays. So with a finalizer, do not select by
    /// anything that users change, but check the object itself.
    pub fn new(api: Api<K>, wc: watcher::Config) -> Self
    where
        K::DynamicType: Default,
    {
        Self::new_with(api, wc, K::DynamicType::default())
    }

    /// Like [`new`](Self::new), for a kind that is known only at run time.
    pub fn new_with(api: Api<K>, wc: watcher::Config, dyntype: K::DynamicType) -> Self {
        let read = read_by(api.clone().into_client(), dyntype.clone());
        let events = move || watcher(api.clone(), wc.clone());
        let controller = Self::of_events(dyntype, move |start| patiently(events, start.backoff.clone()));
        Self { read: Some(read), ..controller }
    }

    /// A controller for the objects in this stream of watch events, which may be filtered, changed, or made
    /// by a program. Prefer it to [`for_stream`](Self::for_stream): the raw events, with the beginning and
    /// end of lists, show which objects went while a watch was down.
    pub fn for_events(events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static) -> Self
    where
        K::DynamicType: Default,
    {
        Self::for_events_with(events, K::DynamicType::default())
    }

    /// Like [`for_events`](Self::for_events), for a kind that is known only at run time.
    pub fn for_events_with(
        events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
        dyntype: K::DynamicType,
    ) -> Self {
        Self::of_events(dyntype, |_| in_turns(events))
    }

    fn of_events<S>(dyntype: K::DynamicType, events: impl FnOnce(&Start) -> S + Send + 'static) -> Self
    where
        S: Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    {
        let writer = Writer::new(dyntype.clone());
        let (store, of) = (writer.as_reader(), dyntype.clone());
        let objects: Source = Box::new(move |start| {
            let list = start.list_of_objects(&K::kind(&of));
            watch::objects(events(&start), writer, of, list, start).boxed()
        });
        Self::of_source(objects, store, dyntype)
    }

    /// A controller for the objects in this stream, whose store is kept elsewhere, like kube's `for_stream`.
    ///
    /// It promises less than [`for_events`](Self::for_events), because the stream shows neither deletions nor
    /// the end of a list. A deletion does not end a back-off: its next run finds that the object is gone, and
    /// does not begin. A run after a list that repeats a watch may see the object as the store had it before.
    ///
    /// ```no_run
    /// # use futures::StreamExt;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube::{Api, Client};
    /// # use kube::runtime::{WatchStreamExt, predicates, reflector, watcher};
    /// # use requeue_kube::Controller;
    /// # fn f(client: Client) {
    /// let (store, writer) = reflector::store::<ConfigMap>();
    /// let changed = reflector(writer, watcher(Api::all(client), watcher::Config::default()))
    ///     .default_backoff()
    ///     .applied_objects()
    ///     .predicate_filter(predicates::generation, Default::default());
    /// let controller = Controller::for_stream(changed, store);
    /// # let _ = controller;
    /// # }
    /// ```
    pub fn for_stream(
        trigger: impl Stream<Item = watcher::Result<K>> + Send + 'static,
        reader: Store<K>,
    ) -> Self
    where
        K::DynamicType: Default,
    {
        Self::for_stream_with(trigger, reader, K::DynamicType::default())
    }

    /// Like [`for_stream`](Self::for_stream), for a kind that is known only at run time.
    pub fn for_stream_with(
        trigger: impl Stream<Item = watcher::Result<K>> + Send + 'static,
        reader: Store<K>,
        dyntype: K::DynamicType,
    ) -> Self {
        Self::of_objects(in_turns(trigger), reader, dyntype)
    }

    /// A controller for the objects of a subscriber of kube's shared store (`reflector::store_shared`, in
    /// kube's feature `unstable-runtime`), like kube's `for_shared_stream`. Its promises are those of
    /// [`for_stream`](Self::for_stream). The program polls the stream of the store's writer.
    pub fn for_shared_stream(trigger: impl Stream<Item = Arc<K>> + Send + 'static, reader: Store<K>) -> Self
    where
        K::DynamicType: Default,
    {
        Self::for_shared_stream_with(trigger, reader, K::DynamicType::default())
    }

    /// Like [`for_shared_stream`](Self::for_shared_stream), for a kind that is known only at run time.
    pub fn for_shared_stream_with(
        trigger: impl Stream<Item = Arc<K>> + Send + 'static,
        reader: Store<K>,
        dyntype: K::DynamicType,
    ) -> Self {
        Self::of_objects(related::polled(trigger).map(Ok), reader, dyntype)
    }

    fn of_objects<O>(
        trigger: impl Stream<Item = watcher::Result<O>> + Send + 'static,
        reader: Store<K>,
        dyntype: K::DynamicType,
    ) -> Self
    where
        O: Borrow<K> + Send + 'static,
    {
        let (store, of) = (reader.clone(), dyntype.clone());
        let objects: Source = Box::new(move |start| {
            let list = start.list_of_objects(&K::kind(&of));
            watch::touched(trigger, store, of, list, start).boxed()
        });
        Self::of_source(objects, reader, dyntype)
    }

    fn of_source(objects: Source, store: Store<K>, dyntype: K::DynamicType) -> Self {
        let name = K::kind(&dyntype).to_lowercase();
        Self {
            store,
            dyntype,
            sources: vec![objects],
            stop: Vec::new(),
            config: Config::default(),
            backoff: None,
            name,
            grouping: None,
            limiter: None,
            read: None,
            metrics: None,
            elector: None,
        }
    }

    /// The settings: how many at once, back-off, time limit and the rest.
    pub fn with_config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// Sets how long a failed watch waits before it begins again, for all watches of the controller together.
    /// A success of any [resets](Backoff::reset) it. If the back-off has no answer, the controller's default
    /// applies.
    ///
    /// By default, a watch waits for 50 ms to 1 s while the API server can't be reached, 1 s to 2 s if there
    /// is no such kind or this process may not watch it, and client-go's 0.8 s to 30 s after other errors.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::runtime::watcher::DefaultBackoff;
    /// use requeue_kube::Controller;
    ///
    /// let controller = Controller::<ConfigMap>::for_events(futures::stream::pending());
    /// let controller = controller.trigger_backoff(DefaultBackoff::default()); // kube's
    /// ```
    pub fn trigger_backoff(self, backoff: impl Backoff + 'static) -> Self {
        Self { backoff: Some(Arc::new(Mutex::new(Box::new(backoff)))), ..self }
    }

    /// Sets the name in metrics and messages. By default the kind in lower case.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Counts what the controller and its queue do. Two controllers that share metrics need two
    /// [names](Self::name); otherwise [`start`](Self::start) returns an error.
    pub fn metrics(self, metrics: &Metrics) -> Self {
        Self { metrics: Some(metrics.clone()), ..self }
    }

    /// Runs objects only while this process leads. The watches run and the stores are filled all the same, so
    /// that a takeover needs no list. When the process leads again after another one did, all objects are
    /// looked at, behind those that change.
    ///
    /// When the lease is lost, no run begins. Current runs may continue until shortly before another process
    /// can lead, and are then dropped. That is no failure of the object: it waits until this process leads
    /// again, with its causes, its failures and its attempt. (A custom [`limiter`](Self::limiter) that counts
    /// failures itself is told to forget them.) A run whose write is refused because the lease is lost is
    /// treated alike, if the error that it returns [says so](crate::lease::NotLeader::is_in).
    ///
    /// See [`lease`](crate::lease) for an example, and for what this can promise and what it can't.
    pub fn leader(self, elector: &Elector) -> Self {
        Self { elector: Some(elector.clone()), ..self }
    }

    /// The objects as the watch has them. Filled while the controller runs.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Lets groups of objects take turns: while objects of one group wait, each other group gets at most one
    /// turn. So one tenant's ten thousand objects do not stop another's one.
    /// [`by_namespace`](crate::by_namespace) groups by namespace.
    ///
    /// If the function panics, `tracing` gets a message, and the object goes to the group of all such
    /// objects.
    pub fn group_by<G>(self, group: impl Fn(&ObjectKey) -> G + Send + 'static) -> Self
    where
        G: Hash + Eq + Send + Sync + 'static,
    {
        let group = move |key: &ObjectKey| {
            let group = catch_unwind(AssertUnwindSafe(|| group(key)));
            group.inspect_err(|_| tracing::error!("the group function panicked for {key}")).ok()
        };
        Self { grouping: Some(Box::new(|queue| queue.group_by(group))), ..self }
    }

    /// Sets a custom limiter, which replaces [`Config::backoff`], [`Config::jitter`] and
    /// [`Config::retry_rate`].
    pub fn limiter(self, limiter: impl RateLimiter<ObjectKey> + 'static) -> Self {
        Self { limiter: Some(Box::new(limiter)), ..self }
    }

    fn source(mut self, source: impl FnOnce(Start) -> BoxFuture<'static, ()> + Send + 'static) -> Self {
        self.sources.push(Box::new(source));
        self
    }

    /// Ends the controller when the future ends: nothing new begins, and current runs have the configured
    /// grace period.
    pub fn graceful_shutdown_on(mut self, trigger: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stop.push(trigger.map(|()| Stopper::Graceful).boxed());
        self
    }

    /// Like [`graceful_shutdown_on`](Self::graceful_shutdown_on), for Ctrl-C and SIGTERM. A second signal
    /// ends current runs at once.
    ///
    /// If a signal handler can't be installed, for example because the runtime has no IO, the controller ends
    /// when it begins.
    pub fn shutdown_on_signal(mut self) -> Self {
        self.stop.push(signalled().map(|()| Stopper::Signal).boxed());
        self
    }

    /// Runs the controller while the stream is polled, with one item per run. When the stream is dropped, the
    /// controller ends at once, and current runs are dropped.
    ///
    /// A run ends when its item is accepted. If the stream is not polled, up to a thousand results wait, and
    /// then the runs do, which does not count towards their time limit. Reports of panics and failed watches
    /// beyond that go only to `tracing`. [`start`](Self::start) needs no polling.
    pub fn run<F, Fut, E, Ctx>(
        self,
        reconciler: F,
        error_policy: impl Fn(Arc<K>, &E, Arc<Ctx>) -> Action + Send + Sync + 'static,
        context: Arc<Ctx>,
    ) -> impl Stream<Item = Result<(ObjectRef<K>, Action), Error<E>>>
    where
        F: Fn(Arc<K>, Arc<Ctx>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, E>> + Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
        Ctx: Send + Sync + 'static,
    {
        let (results, mut read) = mpsc::channel(1000);
        let whole = async move {
            let failed = results.clone();
            match Running::start(self, reconciler, error_policy, context, Some(results)) {
                Ok(running) => {
                    let _ends = Ends(running.clone());
                    drop(failed);
                    running.ended().await;
                }
                Err(e) => drop(failed.send(Err(e.into())).await),
            }
        };
        let read = futures::stream::poll_fn(move |cx| read.poll_recv(cx));
        futures::stream::select(read, futures::stream::once(whole).filter_map(|()| std::future::ready(None)))
    }

    /// Runs the controller in tasks of its own and returns its handle. Dropping the handle does not end the
    /// controller.
    ///
    /// To wait for the end, use [`shutdown_on_signal`](Self::shutdown_on_signal),
    /// [`graceful_shutdown_on`](Self::graceful_shutdown_on) or [`Running::drain`]:
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube::runtime::watcher;
    /// # use kube::{Api, Client};
    /// # use requeue_kube::{Action, Controller};
    /// # use std::sync::Arc;
    /// # async fn doc(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// // what every run gets, in an `Arc`
    /// struct Context {
    ///     client: Client,
    /// }
    ///
    /// async fn reconcile(map: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
    ///     Ok(Action::await_change())
    /// }
    ///
    /// let maps = Controller::new(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
    ///     .shutdown_on_signal()
    ///     .start(reconcile, |_, _, _| Action::backoff(), Arc::new(Context { client }))?;
    /// println!("{:?}", maps.ended().await); // Report { done, cancelled, left }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`StartError`] with the reason.
    pub fn start<F, Fut, E, Ctx>(
        self,
        reconciler: F,
        error_policy: impl Fn(Arc<K>, &E, Arc<Ctx>) -> Action + Send + Sync + 'static,
        context: Arc<Ctx>,
    ) -> Result<Running<K>, StartError>
    where
        F: Fn(Arc<K>, Arc<Ctx>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, E>> + Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
        Ctx: Send + Sync + 'static,
    {
        Running::start(self, reconciler, error_policy, context, None)
    }

    /// Builds the queue and the ways into it.
    pub(crate) fn open(self) -> Result<Opened<K>, String> {
        let config = self.config;
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|_| "no Tokio runtime here: start it, or poll its stream, inside of one")?;
        let clock = TokioClock::new(runtime).map_err(|e| e.to_string())?;
        let limiter = match self.limiter {
            Some(limiter) => limiter,
            None => default_limiter(&config).map_err(|e| e.to_string())?,
        };
        let mut queue =
            WorkQueue::<ObjectKey, Causes>::merging(|causes: &mut Causes, later| causes.join(later))
                .clock(clock.clone())
                .name(self.name.clone())
                .limiter(limiter)
                .priorities()
                .max_wait(config.max_wait)
                .overdue_every(config.overdue_every)
                // A run says anew when the next one is.
                .timers_absorbed(true);
        if let Some((quiet, at_most)) = config.debounce {
            queue = queue.debounce(Debounce::new(quiet).max(at_most));
        }
        if let Some(grouping) = self.grouping {
            queue = grouping(queue);
        }
        let mut metrics = None;
        if let Some(all) = &self.metrics {
            let sink = all.queue(&self.name).map_err(|e| e.to_string())?;
            queue = queue.label("controller", self.name.clone()).metrics(sink);
            metrics = Some(all.controller(&self.name, config.concurrency));
        }
        let lists = Lists::new(self.metrics.as_ref().map(|all| all.listings(&self.name)));
        let queue = queue.build().map_err(|e| e.to_string())?;
        let feed = Feed::new(queue.clone(), clock, Arc::new(Echoes::default()), &config);
        Ok(Opened {
            queue,
            feed,
            config,
            name: self.name,
            store: self.store,
            dyntype: self.dyntype,
            sources: self.sources,
            lists,
            backoff: self.backoff,
            stop: self.stop,
            read: self.read,
            metrics,
            elector: self.elector,
        })
    }
}

/// Makes a user's stream that is always ready yield to other tasks.
fn in_turns<T>(stream: impl Stream<Item = T>) -> impl Stream<Item = T> {
    stream.then(async |item| {
        consume_budget().await;
        item
    })
}

/// Ends the controller with the stream that runs it.
struct Ends<K: Reconcilable>(Running<K>);

impl<K: Reconcilable> Drop for Ends<K> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A controller whose queue is built.
pub(crate) struct Opened<K: Reconcilable> {
    pub(crate) queue: WorkQueue<ObjectKey, Causes>,
    pub(crate) feed: Feed,
    pub(crate) config: Config,
    pub(crate) name: String,
    pub(crate) store: Store<K>,
    pub(crate) dyntype: K::DynamicType,
    pub(crate) sources: Vec<Source>,
    pub(crate) lists: Arc<Lists>,
    pub(crate) backoff: Option<SharedBackoff>,
    pub(crate) stop: Vec<BoxFuture<'static, Stopper>>,
    pub(crate) read: Option<Read<K>>,
    pub(crate) metrics: Option<ControllerMetrics>,
    pub(crate) elector: Option<Elector>,
}

/// Reads an object from the API server. `None` if it is not there.
pub(crate) type Read<K> =
    Arc<dyn Fn(&ObjectKey) -> BoxFuture<'static, kube::Result<Option<K>>> + Send + Sync>;

fn read_by<K: Reconcilable>(client: kube::Client, dyntype: K::DynamicType) -> Read<K> {
    Arc::new(move |key| {
        // An `Api` of all namespaces reads no object of one.
        let path = K::url_path(&dyntype, key.namespace());
        let request = kube::core::Request::new(path).get(key.name(), &kube::api::GetParams::default());
        let client = client.clone();
        async move {
            let mut request = request.map_err(kube::Error::BuildRequest)?;
            request.extensions_mut().insert("get");
            match client.request(request).await {
                Ok(object) => Ok(Some(object)),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                Err(e) => Err(e),
            }
        }
        .boxed()
    })
}

fn default_limiter(
    config: &Config,
) -> Result<Box<dyn RateLimiter<ObjectKey>>, requeue::limiter::LimiterError> {
    let backoff = Exponential::new(config.backoff.0, config.backoff.1)?;
    let seed = RandomState::new().hash_one(0);
    let mut limiters: Vec<Box<dyn RateLimiter<ObjectKey>>> = Vec::new();
    if config.jitter == 0.0 {
        limiters.push(Box::new(backoff));
    } else {
        limiters.push(Box::new(Jitter::new(backoff, config.jitter, seed)?));
    }
    if let Some((rate, burst)) = config.retry_rate {
        limiters.push(Box::new(Bucket::new(rate, burst)?));
    }
    Ok(Box::new(MaxOf::new(limiters)?))
}

/// Ends with Ctrl-C or SIGTERM.
pub(crate) async fn signalled() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut term = signal(SignalKind::terminate()).expect("a handler for SIGTERM");
        tokio::select! {
            _ = tokio::signal::ctrl_c() => (),
            _ = term.recv() => (),
        }
    }
    #[cfg(not(unix))]
    drop(tokio::signal::ctrl_c().await);
}

//! An API server in memory, for tests of controllers. Enable the feature `fake` of this crate in
//! `[dev-dependencies]`.
//!
//! A [`Server`] is a tower service under a [`kube::Client`]: no cluster, no socket, and Tokio's paused time, so that
//! a test sees hours of back-off in milliseconds.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::Api;
//! use kube::runtime::watcher;
//! use requeue_kube::{Action, Controller, fake};
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicUsize, Ordering};
//! use std::time::Duration;
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
//! # runtime.block_on(async {
//! // a test: #[tokio::test(start_paused = true)]
//! let server = fake::Server::new().with::<ConfigMap>();
//! for name in ["a", "b"] {
//!     let map: ConfigMap = serde_json::from_value(serde_json::json!({
//!         "metadata": {"name": name, "namespace": "default"},
//!     }))?;
//!     server.apply(&map)?;
//! }
//! let maps = Api::<ConfigMap>::all(server.client());
//! let runs = Arc::new(AtomicUsize::new(0));
//! let reconcile = |_: Arc<ConfigMap>, runs: Arc<AtomicUsize>| async move {
//!     runs.fetch_add(1, Ordering::SeqCst);
//!     Ok::<_, kube::Error>(Action::await_change())
//! };
//! let controller = Controller::new(maps, watcher::Config::default());
//! let _running = controller.start(reconcile, |_, _, _| Action::backoff(), runs.clone())?;
//!
//! server.settled(Duration::from_secs(1)).await;
//! assert_eq!(runs.load(Ordering::SeqCst), 2);
//!
//! // All watches begin anew with a list. Nothing has changed, so nothing runs.
//! server.drop_watches_with_410();
//! server.settled(Duration::from_secs(5)).await;
//! assert_eq!(runs.load(Ordering::SeqCst), 2);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # What it does as an API server does
//!
//! It supports lists with pages, selectors and versions; watches with bookmarks and initial events; metadata
//! alone; get, create, replace, the four kinds of patches, delete, deletion of collections; finalizers;
//! conflicts; generations; the status subresource; dry runs; and errors with the codes and reasons of the
//! real one. The tests of this crate run one table of calls against this server and against a real one, so
//! that they can't drift apart.
//!
//! # What it does not
//!
//! * It checks no schema: no unknown field is dropped, no default is set, no spec is invalid.
//! * A server-side apply remembers what each manager applied, and removes what a manager no longer names.
//!   There are no `managedFields` and no conflicts between managers, and all lists except finalizers and
//!   owners are replaced.
//! * A strategic merge patch, which only Kubernetes' own kinds know, acts like a merge patch: lists are
//!   replaced.
//! * There is no discovery, access control, admission or namespace life cycle: every namespace exists.
//!   `status` is the only subresource.
//! * There are no grace periods: an object without a finalizer is gone at once. Owned objects stay until
//!   [`collect_orphans`](Server::collect_orphans).
//! * Field selectors support `metadata.name` and `metadata.namespace`.

mod answer;
mod kinds;
mod patch;
mod refusal;
mod select;
mod service;
mod state;
mod store;
mod watching;

use self::kinds::Kind;
use self::refusal::Refusal;
pub use self::service::Service;
use self::state::{End, Failing, Shared};
use self::store::{Key, Part};
use kube::Resource;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::ClusterResourceScope;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// An API server in memory; the [module's page](self) says what it does. A clone is the same server.
#[derive(Clone, Debug)]
pub struct Server {
    shared: Arc<Shared>,
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// A server without kinds.
    #[must_use]
    pub fn new() -> Self {
        Self { shared: Arc::new(Shared::new()) }
    }

    /// Adds a kind. A kind that is not one of Kubernetes' own is assumed to have a status subresource; with
    /// [`with_dyn`](Self::with_dyn) you can choose.
    #[must_use]
    pub fn with<K>(self) -> Self
    where
        K: Resource<DynamicType = ()> + 'static,
        K::Scope: 'static,
    {
        let namespaced = TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>();
        self.with_kind(Kind::new(&ApiResource::erase::<K>(&()), namespaced, None))
    }

    /// Adds a kind without a Rust type. `namespaced` says whether its objects are in namespaces, `has_status`
    /// whether its status is a subresource.
    #[must_use]
    pub fn with_dyn(self, resource: &ApiResource, namespaced: bool, has_status: bool) -> Self {
        self.with_kind(Kind::new(resource, namespaced, Some(has_status)))
    }

    fn with_kind(self, kind: Kind) -> Self {
        let mut state = self.shared.state();
        let kinds = &mut state.store.kinds;
        match kinds.iter_mut().find(|old| old.api_version == kind.api_version && old.plural == kind.plural) {
            Some(old) => *old = kind,
            None => kinds.push(kind),
        }
        drop(state);
        self
    }

    /// A client of this server. Its namespace is `default`. It returns each failure, while kube's own client
    /// by default ([`kube::Config::default_retry`]) retries a request that was answered 429, 503 or 504; for
    /// such a client use [`service`](Self::service).
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, like [`kube::Client::new`].
    #[must_use]
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// The server as a tower service, for a client with layers of its own, such as the retries of kube's own
    /// client.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube::api::{Api, ListParams};
    /// use kube::client::ClientBuilder;
    /// use kube::client::retry::RetryPolicy;
    /// use tower::retry::RetryLayer;
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    /// # runtime.block_on(async {
    /// let server = requeue_kube::fake::Server::new().with::<ConfigMap>();
    /// let retries = RetryLayer::new(RetryPolicy::server_retry());
    /// let client = ClientBuilder::new(server.service(), "default").with_layer(&retries).build();
    ///
    /// server.fail_next(3, 429);
    /// assert!(Api::<ConfigMap>::all(client).list(&ListParams::default()).await.is_ok());
    /// assert_eq!(server.requests::<ConfigMap>("list"), 4);
    /// # });
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn service(&self) -> Service {
        Service(self.shared.clone())
    }

    /// Writes an object like a user's `kubectl apply`: creates it, or changes what differs. Its status stays.
    /// Without a namespace it is in `default`.
    ///
    /// # Errors
    ///
    /// The server's answer: 404 for an unknown kind, 422 for an object that it refuses.
    pub fn apply<K>(&self, object: &K) -> kube::Result<K>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let mut body = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
        if let Some(meta) = body.get_mut("metadata").and_then(serde_json::Value::as_object_mut) {
            // An object that was read may be written again.
            meta.remove("resourceVersion");
        }
        let ObjectMeta { name, namespace, .. } = object.meta();
        let (name, namespace) = (name.clone().unwrap_or_default(), namespace.clone());
        let written = self.write(|state| {
            let key = key_of::<K>(&state.store.kinds, namespace.as_deref(), &name)?;
            if name.is_empty() {
                let namespace = state.store.kinds[key.0].namespaced.then_some(key.1.as_str());
                return state.store.create(key.0, namespace, body);
            }
            state.store.apply(&key, Part::Main, "the test", body)
        })?;
        from_value(&written.object)
    }

    /// Deletes an object as a user does. With finalizers it stays until they are gone.
    ///
    /// # Errors
    ///
    /// 404 if it does not exist.
    pub fn delete<K>(&self, namespace: &str, name: &str) -> kube::Result<()>
    where
        K: Resource<DynamicType = ()>,
    {
        self.write(|state| {
            let key = key_of::<K>(&state.store.kinds, Some(namespace), name)?;
            state.store.delete(&key, &serde_json::Value::Null).map(drop)
        })
    }

    /// An object in its current state. A kind without namespaces ignores the namespace.
    ///
    /// # Errors
    ///
    /// 404 if it does not exist; [`kube::Error::SerdeError`] if it is not of this type.
    pub fn get<K>(&self, namespace: &str, name: &str) -> kube::Result<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let state = self.shared.state();
        let object =
            key_of::<K>(&state.store.kinds, Some(namespace), name).and_then(|key| state.store.get(&key));
        drop(state);
        from_value(&*object.map_err(|refusal| error(&refusal))?)
    }

    /// All current objects of a kind, ordered by namespace and name. Objects that can't be read as this kind
    /// are left out; an unknown kind has none.
    #[must_use]
    pub fn all<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let state = self.shared.state();
        let Ok(kind) = place_of::<K>(&state.store.kinds) else { return Vec::new() };
        let objects = state.store.objects.iter().filter(|(key, _)| key.0 == kind);
        objects.filter_map(|(_, object)| K::deserialize(&**object).ok()).collect()
    }

    /// Deletes objects like Kubernetes' garbage collector: those all of whose owners are gone, and those that
    /// this leaves without owners. Returns their number.
    pub fn collect_orphans(&self) -> usize {
        let mut state = self.shared.state();
        let collected = state.store.collect_orphans();
        if collected > 0 {
            state.last_write = Instant::now();
        }
        drop(state);
        self.shared.ring();
        collected
    }

    /// Ends each open watch as if its connection broke. A watcher continues from where it was.
    pub fn drop_watches(&self) {
        self.end_watches(None, End::Broken);
    }

    /// Like [`drop_watches`](Self::drop_watches), for the watches of one kind.
    pub fn drop_watches_of<K: Resource<DynamicType = ()>>(&self) {
        self.end_watches_of::<K>(End::Broken);
    }

    /// Ends each open watch with the error 410, and forgets all changes: a watch of an older version gets 410
    /// too. A watcher begins anew with a list.
    pub fn drop_watches_with_410(&self) {
        self.end_watches(None, End::Gone);
    }

    /// Like [`drop_watches_with_410`](Self::drop_watches_with_410), for the watches of one kind.
    pub fn drop_watches_of_with_410<K: Resource<DynamicType = ()>>(&self) {
        self.end_watches_of::<K>(End::Gone);
    }

    fn end_watches_of<K: Resource<DynamicType = ()>>(&self, end: End) {
        let place = place_of::<K>(&self.shared.state().store.kinds);
        // A kind that the server does not know has no watch.
        if let Ok(kind) = place {
            self.end_watches(Some(kind), end);
        }
    }

    fn end_watches(&self, kind: Option<usize>, end: End) {
        let mut state = self.shared.state();
        if end == End::Gone {
            state.store.forget(kind);
        }
        for open in state.watches.values_mut().filter(|open| kind.is_none_or(|kind| kind == open.kind)) {
            open.end = Some(end);
        }
        drop(state);
        self.shared.ring();
    }

    /// Withholds all events from watches until [`resume_watch_events`](Self::resume_watch_events).
    pub fn pause_watch_events(&self) {
        self.shared.state().paused.insert(None);
    }

    /// Like [`pause_watch_events`](Self::pause_watch_events), for the watches of one kind.
    pub fn pause_watch_events_of<K: Resource<DynamicType = ()>>(&self) {
        let mut state = self.shared.state();
        if let Ok(kind) = place_of::<K>(&state.store.kinds) {
            state.paused.insert(Some(kind));
        }
    }

    /// Sends watches the events of the meantime, and all further ones. It reverts both ways to pause.
    pub fn resume_watch_events(&self) {
        self.shared.state().paused.clear();
        self.shared.ring();
    }

    /// Delays each request from now on.
    pub fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// Answers the next `requests` requests with this code, and does nothing else: 429 (with `Retry-After`),
    /// 500, 503 and so on.
    pub fn fail_next(&self, requests: usize, code: u16) {
        let failing = Failing { code, writes_only: false };
        self.shared.state().failing.extend(std::iter::repeat_n(failing, requests));
    }

    /// Like [`fail_next`](Self::fail_next), for the next requests that write: with 409, for example.
    pub fn fail_next_writes(&self, requests: usize, code: u16) {
        let failing = Failing { code, writes_only: true };
        self.shared.state().failing.extend(std::iter::repeat_n(failing, requests));
    }

    /// Answers each request for a kind with this code from now on, and does nothing else: 403 as if access
    /// was not granted, 404 as if there was no such kind. `None` reverts it. Open watches continue: see
    /// [`drop_watches_of`](Self::drop_watches_of).
    pub fn refuse<K: Resource<DynamicType = ()>>(&self, code: impl Into<Option<u16>>) {
        let mut state = self.shared.state();
        let Ok(kind) = place_of::<K>(&state.store.kinds) else { return };
        match code.into() {
            Some(code) => drop(state.refused.insert(kind, code)),
            None => drop(state.refused.remove(&kind)),
        }
    }

    /// Executes the next request that writes, but the client gets a connection error instead of the answer.
    pub fn lose_answer_of_next_write(&self) {
        self.shared.state().loses_answers += 1;
    }

    /// Number of requests with this verb for a kind: `get`, `list`, `watch`, `create`, `update`, `patch`,
    /// `delete` or `deletecollection`.
    #[must_use]
    pub fn requests<K: Resource<DynamicType = ()>>(&self, verb: &str) -> u64 {
        let state = self.shared.state();
        let Ok(kind) = place_of::<K>(&state.store.kinds) else { return 0 };
        let counts = state.requests.iter().filter(|((counted, of), _)| *of == kind && *counted == verb);
        counts.map(|(_, count)| count).sum()
    }

    /// Number of requests that write, whatever their result. Calls of the server's own methods are not
    /// requests.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.shared.state().writes
    }

    /// The resource version. It grows with each change of an object, and with nothing else.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.shared.state().store.version
    }

    /// Waits until nothing was written for this time, from the call on: no request that writes came or waited
    /// for its answer, and the test wrote nothing either.
    ///
    /// On paused time this is exact: Tokio moves the clock only when no task has anything to do, so all that
    /// is due within this time, and its consequences, have happened. Choose a time longer than the waits that
    /// you want to see through. While a controller writes more often than that, this does not return.
    pub async fn settled(&self, quiet: Duration) {
        let mut from = Instant::now();
        loop {
            tokio::time::sleep_until(from + quiet).await;
            let state = self.shared.state();
            if state.writing == 0 && state.last_write <= from {
                return;
            }
            from = if state.writing > 0 { Instant::now() } else { state.last_write };
        }
    }

    /// A write by the test.
    fn write<T>(&self, write: impl FnOnce(&mut state::State) -> Result<T, Refusal>) -> kube::Result<T> {
        let mut state = self.shared.state();
        let written = write(&mut state);
        state.last_write = Instant::now();
        drop(state);
        self.shared.ring();
        written.map_err(|refusal| error(&refusal))
    }
}

fn place_of<K: Resource<DynamicType = ()>>(kinds: &[Kind]) -> Result<usize, Refusal> {
    let (api_version, plural) = (K::api_version(&()), K::plural(&()));
    let place = kinds.iter().position(|kind| kind.api_version == api_version && kind.plural == plural);
    place.ok_or_else(|| Refusal::no_such_path(&K::url_path(&(), None)))
}

fn key_of<K: Resource<DynamicType = ()>>(
    kinds: &[Kind],
    namespace: Option<&str>,
    name: &str,
) -> Result<Key, Refusal> {
    let kind = place_of::<K>(kinds)?;
    let namespace = if kinds[kind].namespaced { namespace.unwrap_or("default") } else { "" };
    Ok((kind, namespace.to_owned(), name.to_owned()))
}

fn from_value<K: DeserializeOwned>(object: &serde_json::Value) -> kube::Result<K> {
    K::deserialize(object).map_err(kube::Error::SerdeError)
}

fn error(refusal: &Refusal) -> kube::Error {
    match serde_json::from_value::<kube::core::Status>(refusal.status()) {
        Ok(status) => kube::Error::Api(status.boxed()),
        Err(e) => kube::Error::SerdeError(e),
    }
}

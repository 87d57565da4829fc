//! A controller runtime for [kube] on [requeue]'s work queue.
//!
//! kube keeps its strengths: the client, the API, watches, stores. This crate replaces everything between a
//! watch event and the end of a reconciliation, behind the names of [`kube::runtime::Controller`]: to switch
//! from that one, change the `use` lines.
//!
//! ```no_run
//! use futures::StreamExt;
//! use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! use kube::runtime::watcher;
//! use kube::{Api, Client};
//! use requeue_kube::{Action, Config, Controller};
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! async fn reconcile(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
//!     // make the world as `map` asks for
//!     Ok(Action::requeue(Duration::from_secs(300)))
//! }
//!
//! # async fn main_() -> Result<(), kube::Error> {
//! let client = Client::try_default().await?;
//! Controller::new(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
//!     .owns(Api::<Secret>::all(client.clone()), watcher::Config::default())
//!     .with_config(Config::default().concurrency(16).time_limit(Duration::from_secs(30)))
//!     .shutdown_on_signal()
//!     .run(reconcile, |_, _, _| Action::backoff(), Arc::new(client))
//!     .for_each(|result| async move {
//!         if let Err(e) = result {
//!             eprintln!("{e}");
//!         }
//!     })
//!     .await;
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//!
//! | | |
//! |---|---|
//! | One run at a time | An object is never reconciled twice at once. An event during a run gives exactly one more run, which begins after it. |
//! | Order | First in, first out; so under load every object runs. What a list brings stands behind what changes, and what has waited for longer than [`Config::max_wait`] has one turn in eight ([`Config::overdue_every`]). |
//! | Back-off | Per object: 5 ms, doubled with each failure up to 1,000 s, plus or minus a tenth; forgotten with a success. [`Config::retry_rate`] bounds all retries together. |
//! | A change of what is asked for | ends the back-off: the object runs now, and its failures count anew. |
//! | A change of the status, or of an object that it [`owns`](Controller::owns) | does not end a back-off and is no failure; the retry sees it. So an object that fails and writes its status runs as often as its back-off says, and not by its own echo. To wait for a child is therefore no error: the run ends with [`Action::await_change`]. |
//! | A change of an object that the controller [`watches`](Controller::watches) | ends the back-off of whom it concerns: what failed for want of a Secret runs when the Secret appears. |
//! | A watch that breaks | begins anew with a list. Of that only what differs runs, and the owners of what went meanwhile. If something went that is watched, all objects run, behind those that change. |
//! | A related kind that can't be listed | stops nothing else: after [`Config::list_timeout`] runs begin without it, and [`Health::unlisted`] names it. When it is there, all objects run. |
//! | Groups | take turns, with [`Controller::group_by`]. |
//! | A panic, a run over its time limit | is a failure of that object and touches no other. |
//! | A deletion | takes timer and back-off away: no run comes later. |
//! | The echo of one's own write | is no reason to run, if the reconciler says what it wrote: [`Current::wrote`] of its own status, [`Current::saw`] of a child that it applied. [`finalizer()`] says it by itself. A change by somebody else is never taken for an echo. |
//! | A conflict (409) | is no failure: the reconciler is called again at once with the object as it is now, up to three times a run. |
//! | One of several processes | runs, with [`Controller::leader`]; [`lease`] says what that can promise. |
//! | Memory | is that of the objects ([`Config::managed_fields`]), and 0.3 kB for each child: its version and its owners. Of what is deleted nothing is kept. |
//! | The end | Nothing new begins; what runs has its grace; a [`Report`] says what became of it. |
//!
//! A run begins only after the list of the objects, and that of each related kind that can be listed.
//! In the repository `tests/peers/rules.tsv` names the tests of each promise, and `peers.tsv` maps the tests of
//! kube-runtime and controller-runtime to ours.
//!
//! # The client
//!
//! kube's client itself retries a request that the API server refuses for now (429, 503, 504), after its
//! `Retry-After`: a server that has just started says 5 s. Below a controller that only blocks a worker and
//! delays a watch, because the controller retries both with a back-off of its own. Switch it off, and a
//! change is seen some tenths of a second after the API server is back, not after four seconds:
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use kube::{Api, Client, runtime::watcher};
//! # use requeue_kube::Controller;
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = kube::Config::infer().await?;
//! config.default_retry = false;
//! let maps = Api::<ConfigMap>::all(Client::try_from(config)?);
//! let controller = Controller::new(maps, watcher::Config::default());
//! # let _ = controller;
//! # Ok(())
//! # }
//! ```
//!
//! # A handle
//!
//! [`Controller::start`] runs the controller in tasks of its own and returns a [`Running`], which needs no
//! polling: [`explain`](Running::explain) says in words why an object does not run,
//! [`reconcile_now`](Running::reconcile_now), [`pause`](Running::pause), [`resize`](Running::resize),
//! [`health`](Running::health), and [`drain`](Running::drain) with a report.
//!
//! # Tests
//!
//! With the feature `fake` of this crate, `fake::Server` is an API server in memory: a test of a controller
//! needs no cluster and no waiting. The module's page has an example; `examples/secret_hash.rs` is a complete
//! controller with a finalizer and two related kinds, and `tests/secret_hash.rs` is its test.
//!
//! ```toml
//! [dev-dependencies]
//! requeue-kube = { path = "CLONE/kube/requeue-kube", features = ["fake"] }
//! tokio = { version = "1", features = ["macros", "rt", "test-util"] }
//! ```
//!
//! # Kubernetes versions
//!
//! This crate's major version follows kube's; this one is for kube 5. The program chooses the version of
//! `k8s-openapi`'s types.
//!
//! # Coming from elsewhere
//!
//! [`from_kube_runtime`] and [`from_controller_runtime`].

mod action;
mod cause;
mod config;
mod controller;
mod current;
mod echo;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
mod feed;
pub mod finalizer;
mod key;
pub mod lease;
mod lists;
pub mod metrics;
mod object;
mod patience;
mod put_back;
mod random;
mod run;
mod running;
mod watch;

pub use self::action::Action;
pub use self::cause::{Cause, Causes};
pub use self::config::Config;
pub use self::controller::Controller;
pub use self::current::Current;
pub use self::error::{Error, StartError};
#[doc(inline)]
pub use self::finalizer::finalizer;
pub use self::key::ObjectKey;
pub use self::metrics::Metrics;
pub use self::object::Reconcilable;
pub use self::running::{Health, Report, Running};
pub use requeue;
/// The type of [`Config::on_change`], [`Config::on_status`], [`Config::on_owned`] and [`Config::on_watched`].
/// A controller needs only its name; the example below is for the queue.
///
/// ```
/// use requeue_kube::{Config, InBackoff};
///
/// // An object that fails runs at once when what it owns changes; its failures count on.
/// let config = Config::default().on_owned(InBackoff::Run);
/// ```
///
#[doc(inline)]
pub use requeue::InBackoff;
pub use requeue_prometheus::prometheus_client;

#[doc = include_str!("../docs/from_kube_runtime.md")]
pub mod from_kube_runtime {}

#[doc = include_str!("../docs/from_controller_runtime.md")]
pub mod from_controller_runtime {}

/// The namespace as a group, for [`Controller::group_by`]. Objects without one are another group.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// use requeue_kube::{Controller, by_namespace};
///
/// let controller = Controller::<ConfigMap>::for_events(futures::stream::pending()).group_by(by_namespace);
/// ```
#[must_use]
pub fn by_namespace(key: &ObjectKey) -> Option<String> {
    key.namespace().map(str::to_owned)
}

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}

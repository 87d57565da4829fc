//! Leader election among several processes by a [`Lease`], and fences for what only the leader may do.
//!
//! ```no_run
//! use kube::runtime::watcher;
//! use kube::{Api, Client};
//! use requeue_kube::lease::Elector;
//! use requeue_kube::{Action, Controller};
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use std::sync::Arc;
//! # async fn reconcile(map: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
//! #     Ok(Action::await_change())
//! # }
//! # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::try_default().await?;
//! let elector = Elector::builder(&client, "sites-leader").identity(std::env::var("POD_NAME")?).start()?;
//! let running = Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default())
//!     .leader(&elector)
//!     .shutdown_on_signal()
//!     .start(reconcile, |_, _, _| Action::backoff(), Arc::new(()))?;
//! running.ended().await;
//! elector.release().await;
//! # Ok(())
//! # }
//! ```
//!
//! # The election
//!
//! Candidates read the lease every [`retry_period`](ElectorBuilder::retry_period). A candidate takes it, by
//! an update with the resource version that it has read, if it has no holder or has not changed for the lease
//! duration (the candidate's or the lease's, whichever is longer) **by the candidate's own clock**. The time
//! in the lease is only for people, so clocks that differ do no harm. The holder renews it, and leads until
//! the renew deadline after the start of the last request that renewed it. Another candidate sees that
//! renewal no earlier than its request began, so the difference between renew deadline and lease duration
//! separates two leaders, if the clocks run equally fast: [`skew`](ElectorBuilder::skew) covers their
//! difference.
//!
//! A process that loses the lease does not end: it is a candidate again. A process that starts with the
//! identity in the lease waits like all others, because it can't know that its predecessor is gone.
//!
//! # What holds, and what does not
//!
//! * A [`Fence`] checks the clock at each call. A process that was stopped (SIGSTOP), or whose machine was
//!   suspended, sees that its time is over before it does anything else. For a suspended machine that needs a
//!   clock that continues meanwhile: Linux's `CLOCK_BOOTTIME`. Rust's `Instant` stands still then, and is all
//!   that other systems have.
//! * [`client_layer`] refuses requests that write. Time passes between its check and the arrival of the
//!   request at the API server: **a request in flight when a process is stopped can arrive later**.
//! * **The API server checks no token.** A write that arrives late is executed, even if another process leads
//!   meanwhile, unless it names an outdated resource version: a replacement (`Api::replace`) that keeps the
//!   version that was read. That is the server's only fence. A patch or an apply without a version passes.
//! * [`Fence::token`] grows with each term; systems outside of the cluster that compare it can refuse late writes.
//! * If the lease is edited or deleted by hand, two processes can lead at once for as long as the renew
//!   deadline.
//!
//! [`Lease`]: k8s_openapi::api::coordination::v1::Lease

mod clock;
mod election;
mod fence;
mod layer;
#[cfg(all(test, feature = "fake"))]
mod tests;

use self::election::{Candidate, Rules};
pub use self::fence::{Fence, NotLeader};
use self::fence::{Terms, Times};
pub use self::layer::{FenceWrites, FencedWrites, client_layer};
use crate::Metrics;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// An elector could not start: its settings contradict each other, or it was not started on a Tokio runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the elector can't start: {0}")]
pub struct ElectorError(String);

/// The settings of an [`Elector`]; made by [`Elector::builder`].
#[derive(Clone)]
#[must_use = "an elector does nothing before `start`"]
pub struct ElectorBuilder {
    client: Client,
    namespace: String,
    rules: Rules,
    metrics: Option<Metrics>,
}

impl fmt::Debug for ElectorBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElectorBuilder")
            .field("namespace", &self.namespace)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl ElectorBuilder {
    /// Sets the lease's namespace. By default the client's.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), ..self }
    }

    /// Sets the name of this candidate, which must be unique: that of its pod, for example. Required.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.rules.identity = identity.into();
        self
    }

    /// Sets the lease duration: a candidate takes the lease if it has not seen it change for this time. 15 s
    /// by default.
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.rules.lease_duration = duration;
        self
    }

    /// Sets the renew deadline: a leader that could not renew the lease for this time no longer leads. 10 s
    /// by default.
    pub fn renew_deadline(mut self, deadline: Duration) -> Self {
        self.rules.renew_deadline = deadline;
        self
    }

    /// Sets the interval at which the lease is read or renewed, less up to a fifth: 2 s by default.
    pub fn retry_period(mut self, period: Duration) -> Self {
        self.rules.retry_period = period;
        self
    }

    /// Sets by how much two clocks may differ at the end of a lease duration: 1 s by default. When the lease
    /// is lost, current runs are dropped this long before another process can lead.
    pub fn skew(mut self, skew: Duration) -> Self {
        self.rules.skew = skew;
        self
    }

    /// Reports whether this process leads as `leader_election_master_status`, with the name of the lease as
    /// its label `name`.
    pub fn metrics(self, metrics: &Metrics) -> Self {
        Self { metrics: Some(metrics.clone()), ..self }
    }

    /// Starts the election in a task of its own.
    ///
    /// # Errors
    ///
    /// [`ElectorError`] with the reason.
    pub fn start(self) -> Result<Elector, ElectorError> {
        let Self { client, namespace, rules, metrics } = self;
        rules.check().map_err(ElectorError)?;
        if namespace.is_empty() {
            return Err(ElectorError("the namespace is empty".into()));
        }
        let runtime = tokio::runtime::Handle::try_current().map_err(|e| ElectorError(e.to_string()))?;
        // Its task would end with a panic where the runtime has no timer.
        requeue::TokioClock::new(runtime.clone()).map_err(|e| ElectorError(e.to_string()))?;
        let times = Times {
            renew_deadline: rules.renew_deadline,
            over: rules.lease_duration.saturating_sub(rules.skew),
        };
        let gauge = metrics.map(|metrics| metrics.leads(&rules.name));
        let terms = Arc::new(Terms::new(times, gauge));
        let (give_up, given_up) = watch::channel(false);
        let (ended, end) = watch::channel(());
        let api: Api<Lease> = Api::namespaced(client, &namespace);
        let candidate = Candidate::new(api, rules, terms.clone());
        let task = runtime.spawn(async move {
            let _ended = ended; // gone when the task is
            candidate.stand(given_up).await;
        });
        Ok(Elector { handle: Arc::new(Handle { terms, give_up, end, task: task.abort_handle() }) })
    }
}

struct Handle {
    terms: Arc<Terms>,
    give_up: watch::Sender<bool>,
    end: watch::Receiver<()>,
    task: tokio::task::AbortHandle,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
        self.terms.lost();
    }
}

/// A candidate for a lease, and its handle; the [module's page](self) describes the election.
///
/// A clone is a handle to one candidate. When the last one is dropped, and no controller needs it, the
/// candidacy ends and the lease runs out; [`release`](Self::release) gives it to the others at once.
#[derive(Clone)]
pub struct Elector {
    handle: Arc<Handle>,
}

impl fmt::Debug for Elector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector").field("is_leader", &self.is_leader()).finish_non_exhaustive()
    }
}

impl Elector {
    /// The settings of a candidate for the lease of this name.
    ///
    /// ```
    /// # use requeue_kube::lease::Elector;
    /// # use std::time::Duration;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// # runtime.block_on(async {
    /// # let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
    /// # let client = kube::Client::try_from(config).unwrap();
    /// let wrong = Elector::builder(&client, "sites-leader")
    ///     .identity("pod-1")
    ///     .lease_duration(Duration::from_secs(8))
    ///     .start();
    /// assert_eq!(
    ///     wrong.unwrap_err().to_string(),
    ///     "the elector can't start: the lease duration (8s) is not longer than renew deadline (10s) and skew (1s)"
    /// );
    /// # });
    /// ```
    pub fn builder(client: &Client, name: impl Into<String>) -> ElectorBuilder {
        ElectorBuilder {
            client: client.clone(),
            namespace: client.default_namespace().to_owned(),
            rules: Rules::new(name.into()),
            metrics: None,
        }
    }

    /// Whether this process leads now, by the clock.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.fence().check().is_ok()
    }

    /// Waits until this process leads, and returns the fence of that term. After a [`release`](Self::release)
    /// it waits for ever.
    pub async fn leading(&self) -> Fence {
        let mut leads = self.handle.terms.leads();
        loop {
            if let Ok(fence) = self.fence().bound() {
                return fence;
            }
            // The sender lives as long as the handle does.
            if leads.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Reports each change: the token of the term while this process leads. Do not rely on it alone, because
    /// a task updates it: [`fence`](Self::fence) checks the clock.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Option<u32>> {
        self.handle.terms.leads()
    }

    /// A fence that holds in each term of this process.
    #[must_use]
    pub fn fence(&self) -> Fence {
        Fence::new(self.handle.terms.clone())
    }

    /// Ends the candidacy. If this process leads, it stops leading now, current runs of its controllers are
    /// dropped, and then the lease is given away, so that another candidate need not wait for its end.
    ///
    /// Call it last, when the controllers have ended.
    pub async fn release(&self) {
        self.handle.give_up.send_replace(true);
        let mut end = self.handle.end.clone();
        // The task drops the sender.
        while end.changed().await.is_ok() {}
    }
}

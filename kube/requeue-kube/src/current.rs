//! [`Current`]: what a reconciler may ask of its own run.

use crate::echo::{Echo, Echoes, Version, asks_for_more};
use crate::lease::Fence;
use crate::{Causes, ObjectKey};
use kube::Resource;
use kube::api::ObjectMeta;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

tokio::task_local! {
    static CURRENT: Current;
}

/// The current run of this task: why it runs, which attempt it is, and what it wrote.
///
/// ```no_run
/// use requeue_kube::{Action, Current};
/// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
/// # use kube::api::{Api, Patch, PatchParams};
/// # use std::sync::Arc;
/// # struct Ctx { maps: Api<ConfigMap> }
/// async fn reconcile(app: Arc<Deployment>, ctx: Arc<Ctx>) -> Result<Action, kube::Error> {
///     let map = serde_json::json!({
///         "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "seen"}, "data": {"app": "yes"},
///     });
///     let written = ctx.maps.patch("seen", &PatchParams::apply("example"), &Patch::Apply(map)).await?;
///     // the event of this write is no reason to run again
///     Current::saw_if_any(&written);
///     Ok(Action::await_change())
/// }
/// ```
#[derive(Clone)]
pub struct Current {
    key: ObjectKey,
    causes: Arc<Causes>,
    attempt: u32,
    echoes: Arc<Echoes>,
    fence: Option<Fence>,
    /// Metadata of the run's object, without managed fields, as the run last knew it.
    saw: Arc<Mutex<ObjectMeta>>,
}

impl Current {
    pub(crate) fn new(key: ObjectKey, causes: Causes, attempt: u32, echoes: Arc<Echoes>) -> Self {
        Self { key, causes: Arc::new(causes), attempt, echoes, fence: None, saw: Arc::default() }
    }

    /// Sets the term of the lease that the run belongs to.
    pub(crate) fn fenced(self, fence: Option<Fence>) -> Self {
        Self { fence, ..self }
    }

    fn seen(&self) -> MutexGuard<'_, ObjectMeta> {
        // It is whole between any two statements.
        self.saw.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the version of its object that the run goes by from now on.
    pub(crate) fn goes_by(&self, meta: &ObjectMeta) {
        *self.seen() = ObjectMeta { managed_fields: None, ..meta.clone() };
    }

    /// Whether this process has led without a break since the run began. Check it before an effect outside of
    /// the cluster. `None` if the controller has no [`leader`](crate::Controller::leader).
    #[must_use]
    pub fn fence(&self) -> Option<&Fence> {
        self.fence.as_ref()
    }

    /// Runs a future whose calls find this run.
    pub(crate) async fn scope<F: Future>(self, run: F) -> F::Output {
        CURRENT.scope(self, run).await
    }

    /// The current run of this task. `None` outside of a reconciler, and in tasks that it spawns.
    #[must_use]
    pub fn get() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// The object that runs.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The causes of the run.
    #[must_use]
    pub fn causes(&self) -> &Causes {
        &self.causes
    }

    /// 1 for a run that is not a retry, 2 for the retry after one failure, and so on.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Reports that this run wrote an object, itself or a related one, and that the API server returned this.
    /// If it is certain that the event of that write contains nothing new, the event does not run the object
    /// again:
    ///
    /// - The write, a create or an apply, has created a related object.
    /// - The write has changed the status of the run's own object, and nothing else differs from the version
    ///   that the run was given. (This assumes that the status belongs to this controller.)
    ///
    /// After any other write the object runs once more, unless the run calls [`saw`](Self::saw). The reason:
    /// the API server does not say whether a write changed anything. If it did not, the returned version is
    /// the newest one, which may be another writer's change whose event has not come yet. Such an event is
    /// never taken for an echo.
    ///
    /// For a related object this applies only to creates and applies. Any other write can't have created it:
    /// if it changes nothing of an object that another writer has just created, the event of that creation
    /// would be taken for its echo. An apply under another process's field manager has the same problem.
    ///
    /// A kind whose objects have no [`generation`](ObjectMeta::generation) does not show what differs beside
    /// the status: for it, the event of a write to the run's own object always runs it again.
    pub fn wrote<C: Resource>(&self, object: &C) {
        let meta = object.meta();
        let echo = {
            let seen = self.seen();
            if seen.uid != meta.uid {
                Echo::IfNew
            } else if asks_for_more(&seen, meta) {
                return;
            } else {
                Echo::Known
            }
        };
        self.comes_back(meta, echo);
    }

    /// Like [`wrote`](Self::wrote), but does nothing outside of a run: for functions that tests call too.
    pub fn wrote_if_any<C: Resource>(object: &C) {
        if let Some(current) = Self::get() {
            current.wrote(object);
        }
    }

    /// Reports that the run needs nothing more of this returned object, itself or a related one: its event
    /// does not run the object again, even if another client wrote this version. Call it if
    ///
    /// - the run looks at the returned object, and continues with it;
    /// - an apply covers all that the run is interested in: for example a related object that it never reads.
    ///   Whatever others changed before this version, another run would apply the same;
    /// - a write names the version on which it is based (a [`replace`](kube::Api::replace), or a patch with
    ///   `metadata.resourceVersion`), and the run has looked at that one: the returned object differs only by
    ///   the run's own change.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube::api::{Api, PostParams};
    /// # use requeue_kube::{Action, Current};
    /// # use std::sync::Arc;
    /// async fn reconcile(map: Arc<ConfigMap>, maps: Arc<Api<ConfigMap>>) -> Result<Action, kube::Error> {
    ///     let mut wanted = (*map).clone();
    ///     wanted.data.get_or_insert_default().insert("seen".to_owned(), "yes".to_owned());
    ///     if wanted != *map {
    ///         let name = map.metadata.name.as_deref().unwrap_or_default();
    ///         let written = maps.replace(name, &PostParams::default(), &wanted).await?;
    ///         Current::saw_if_any(&written);
    ///     }
    ///     Ok(Action::await_change())
    /// }
    /// ```
    pub fn saw<C: Resource>(&self, object: &C) {
        let meta = object.meta();
        if self.seen().uid == meta.uid {
            self.goes_by(meta);
        }
        self.comes_back(meta, Echo::Known);
    }

    /// Like [`saw`](Self::saw), but does nothing outside of a run.
    pub fn saw_if_any<C: Resource>(object: &C) {
        if let Some(current) = Self::get() {
            current.saw(object);
        }
    }

    fn comes_back(&self, meta: &ObjectMeta, echo: Echo) {
        if let Some(version) = Version::of(meta) {
            self.echoes.wrote(&self.key, version, echo);
        }
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, causes, attempt, .. } = self;
        f.debug_struct("Current").field("key", key).field("causes", causes).field("attempt", attempt).finish()
    }
}

//! [`finalizer`]: clean-up before an object is deleted.

use crate::{Action, Current};
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fmt::Debug;
use std::sync::Arc;

/// The task of a reconciler for an object with a finalizer.
#[derive(Clone, Debug)]
pub enum Event<K> {
    /// Bring the world to the state that the object asks for.
    Apply(Arc<K>),
    /// The object is being deleted: remove everything outside of Kubernetes, and everything without an owner.
    Cleanup(Arc<K>),
}

/// Error of [`finalizer`].
#[derive(Debug, thiserror::Error)]
pub enum Error<E: std::error::Error + 'static> {
    /// The reconciler failed at [`Event::Apply`].
    #[error("failed to apply the object: {0}")]
    ApplyFailed(#[source] E),
    /// The reconciler failed at [`Event::Cleanup`]. The finalizer stays.
    #[error("failed to clean up after the object: {0}")]
    CleanupFailed(#[source] E),
    /// The finalizer could not be added.
    #[error("failed to add the finalizer: {0}")]
    AddFinalizer(#[source] kube::Error),
    /// The finalizer could not be removed.
    #[error("failed to remove the finalizer: {0}")]
    RemoveFinalizer(#[source] kube::Error),
    /// The object has no name, so no API server has sent it.
    #[error("the object has no name")]
    UnnamedObject,
}

/// Reconciles an object so that its clean-up runs before it is deleted. Like kube's
/// [`finalizer`](kube::runtime::finalizer::finalizer()), with two differences.
///
/// A new object gets its finalizer, and is then applied *in the same run*, as the API server returned it;
/// kube waits for the event of the finalizer and runs a second time. If the finalizer is already gone when it
/// is to be removed (404, a changed list, or another object under its name), that is no error: another
/// process has done the work, or the next event brings the rest.
///
/// If an object that is being deleted has no such finalizer, the reconciler is not called. Every other object
/// gets the finalizer; a reconciler that is not for all objects must check that before it calls this. An
/// object that is no longer wanted keeps it, and is cleaned up in [`Event::Apply`].
///
/// # Errors
///
/// The reconciler's error, and the API server's; see [`Error`].
///
/// # Cancel safety
///
/// If it is dropped at any point, the object has its finalizer or not, and the next run continues from there.
/// The clean-up may run more than once, and must tolerate that.
///
/// ```no_run
/// use requeue_kube::Action;
/// use requeue_kube::finalizer::{self, Event, finalizer};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use kube::api::Api;
/// # use std::sync::Arc;
/// # async fn apply(map: &ConfigMap) -> Result<(), kube::Error> { Ok(()) }
/// # async fn cleanup(map: &ConfigMap) -> Result<(), kube::Error> { Ok(()) }
/// async fn reconcile(map: Arc<ConfigMap>, api: Arc<Api<ConfigMap>>) -> Result<Action, finalizer::Error<kube::Error>> {
///     finalizer(&api, "example.dev/cleanup", map, |event| async move {
///         match event {
///             Event::Apply(map) => apply(&map).await?,
///             Event::Cleanup(map) => cleanup(&map).await?,
///         }
///         Ok(Action::await_change())
///     })
///     .await
/// }
/// ```
pub async fn finalizer<K, E, Fut>(
    api: &Api<K>,
    name: &str,
    object: Arc<K>,
    reconcile: impl FnOnce(Event<K>) -> Fut,
) -> Result<Action, Error<E>>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
    E: std::error::Error + 'static,
    Fut: Future<Output = Result<Action, E>>,
{
    let place = object.finalizers().iter().position(|finalizer| finalizer == name);
    let is_deleted = object.meta().deletion_timestamp.is_some();
    match (place, is_deleted) {
        (None, true) => Ok(Action::await_change()),
        (Some(_), false) => reconcile(Event::Apply(object)).await.map_err(Error::ApplyFailed),
        (None, false) => {
            let object = add(api, name, &object).await?;
            reconcile(Event::Apply(Arc::new(object))).await.map_err(Error::ApplyFailed)
        }
        (Some(place), true) => {
            let answer = reconcile(Event::Cleanup(object.clone())).await.map_err(Error::CleanupFailed)?;
            remove(api, name, place, &object).await?;
            Ok(answer)
        }
    }
}

/// Sends a JSON Patch (RFC 6902), which the API server applies completely or not at all.
async fn patch<K, E>(
    api: &Api<K>,
    object: &K,
    operations: serde_json::Value,
    error: impl Fn(kube::Error) -> Error<E>,
) -> Result<K, Error<E>>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
    E: std::error::Error + 'static,
{
    let name = object.meta().name.as_deref().ok_or(Error::UnnamedObject)?;
    let operations = serde_json::from_value(operations).map_err(|e| error(kube::Error::SerdeError(e)))?;
    let written =
        api.patch(name, &PatchParams::default(), &Patch::Json::<()>(operations)).await.map_err(error)?;
    // Each patch tests what it replaces, so that it has made what it returned; and the run goes on with that.
    Current::saw_if_any(&written);
    Ok(written)
}

async fn add<K, E>(api: &Api<K>, name: &str, object: &K) -> Result<K, Error<E>>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
    E: std::error::Error + 'static,
{
    let there = object.finalizers();
    // The test makes the patch fail if somebody else has changed the list meanwhile.
    let operations = if there.is_empty() {
        json!([
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": [name]},
        ])
    } else {
        json!([
            {"op": "test", "path": "/metadata/finalizers", "value": there},
            {"op": "add", "path": "/metadata/finalizers/-", "value": name},
        ])
    };
    patch(api, object, operations, Error::AddFinalizer).await
}

async fn remove<K, E>(api: &Api<K>, name: &str, place: usize, object: &K) -> Result<(), Error<E>>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
    E: std::error::Error + 'static,
{
    let path = format!("/metadata/finalizers/{place}");
    // Another object that was made under this name meanwhile has not been cleaned up.
    let operations = json!([
        {"op": "test", "path": "/metadata/uid", "value": object.meta().uid},
        {"op": "test", "path": path, "value": name},
        {"op": "remove", "path": path},
    ]);
    match patch(api, object, operations, Error::RemoveFinalizer).await {
        Ok(_) => Ok(()),
        // The object is gone; or its list is another one, and the event of that change brings the rest.
        Err(Error::RemoveFinalizer(kube::Error::Api(status))) if [404, 422].contains(&status.code) => Ok(()),
        Err(e) => Err(e),
    }
}

//! [`Error`]: what went wrong in a controller.

use kube::core::DynamicObject;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use std::time::Duration;

/// Error of a controller: an item of the stream of [`Controller::run`](crate::Controller::run).
///
/// The first two variants have the names of [`kube::runtime::controller::Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error<ReconcilerErr: 'static, QueueErr: 'static = watcher::Error> {
    /// The reconciler returned an error.
    #[error("the reconciler of {1} failed: {0}")]
    ReconcilerFailed(#[source] ReconcilerErr, ObjectRef<DynamicObject>),
    /// A watch failed. It begins again by itself, with a back-off.
    #[error("a watch failed: {0}")]
    QueueError(#[source] QueueErr),
    /// The reconciler panicked. That is a failure of this object and affects no other.
    #[error("the reconciler of {1} panicked: {0}")]
    Panicked(String, ObjectRef<DynamicObject>),
    /// The run was dropped because its time limit was over.
    #[error("the run of {1} was over its time limit of {0:?}")]
    TimeLimit(Duration, ObjectRef<DynamicObject>),
    /// The controller could not start.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// A controller could not start: its settings contradict each other, its name is taken in its metrics, or it
/// was not started on a Tokio runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the controller can't start: {0}")]
pub struct StartError(pub(crate) String);

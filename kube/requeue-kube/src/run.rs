//! One run of an object: calls the reconciler, and turns its answer into the queue's outcome.

use crate::action::What;
use crate::controller::Read;
use crate::error::Error;
use crate::feed::{Feed, Trigger};
use crate::lease::{Elector, Fence, NotLeader};
use crate::metrics::{ControllerMetrics, Special};
use crate::put_back::PutBack;
use crate::{Action, Cause, Causes, Config, Current, ObjectKey, Reconcilable};
use kube::Resource;
use kube::core::Status;
use kube::runtime::reflector::{ObjectRef, Store};
use requeue::{Failure, Outcome, RunReport};
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

/// Channel for the results of runs, if they are read. A sender of Tokio's: one of `futures` takes one more
/// item for each of its clones, and so has no bound.
pub(crate) type Results<K, E> = mpsc::Sender<Result<(ObjectRef<K>, Action), Error<E>>>;

/// Result of a run: the outcome for the queue, and the report to the user, if there is one.
type Ended<E> = (Outcome, Option<Result<Action, Error<E>>>);

/// State shared by all runs of a controller.
pub(crate) struct Runs<K: Reconcilable, F, P, Ctx, E: 'static> {
    pub(crate) reconciler: F,
    pub(crate) error_policy: P,
    pub(crate) context: Arc<Ctx>,
    pub(crate) store: Store<K>,
    pub(crate) dyntype: K::DynamicType,
    pub(crate) read: Option<Read<K>>,
    pub(crate) feed: Feed,
    pub(crate) config: Config,
    pub(crate) name: Arc<str>,
    pub(crate) results: Option<Results<K, E>>,
    pub(crate) metrics: Option<Arc<ControllerMetrics>>,
    pub(crate) elector: Option<Elector>,
}

impl<K, F, Fut, P, Ctx, E> Runs<K, F, P, Ctx, E>
where
    K: Reconcilable,
    F: Fn(Arc<K>, Arc<Ctx>) -> Fut,
    Fut: Future<Output = Result<Action, E>>,
    P: Fn(Arc<K>, &E, Arc<Ctx>) -> Action,
    E: StdError + Send + Sync + 'static,
{
    pub(crate) async fn run(&self, mut run: requeue::Run<ObjectKey, Causes>) -> Outcome {
        let key = run.key().clone();
        let Some(object) = self.store.get(&key.to_ref(self.dyntype.clone())) else {
            return Outcome::Done; // it is gone
        };
        if is_of_another_key(&key, &*object) {
            // A reference to an object without a namespace may say one, and the store finds it all the same. It runs
            // by its own key, so that it does not run twice at once.
            for cause in causes(&mut run).iter() {
                self.feed.trigger(Trigger::new(ObjectKey::new(None, key.name()), cause.clone()));
            }
            return Outcome::Done;
        }
        let Ok(fence) = self.elector.as_ref().map(|elector| elector.fence().bound()).transpose() else {
            // The queue is about to be paused: its task has not seen yet what the clock says.
            let causes = run.take_value();
            return self.feed.put_back(&run, causes, Some(STANDBY));
        };
        let fenced = fence.as_ref().map(Fence::run_begins);
        let _active = self.metrics.as_ref().map(|metrics| metrics.run());
        let during = self.feed.run_begins(&key);
        let causes = causes(&mut run);
        let span = tracing::info_span!(
            "reconcile",
            controller = &*self.name,
            object = %key,
            causes = %causes,
            attempt = run.attempt(),
            outcome = tracing::field::Empty,
        );
        let current = Current::new(key.clone(), causes.clone(), run.attempt(), self.feed.echoes().clone())
            .fenced(fence.clone());
        let reconciled = self.reconcile(&current, object, fence.as_ref());
        let reconciled = current.clone().scope(reconciled).instrument(span.clone());
        let ended = tokio::select! {
            // Asked first, so that a process that was stopped does not go on where it was.
            biased;
            () = over(fence.as_ref()) => None,
            ended = self.within_limit(&key, reconciled) => ended,
        };
        let Some((outcome, result)) = ended else {
            span.record("outcome", "lost the lease");
            // Triggers that came meanwhile are for the next term too.
            drop(during);
            return self.feed.put_back(&run, Some(causes), None);
        };
        span.record("outcome", word(&outcome));
        // The reconciler has ended, in time. What is still to be waited for is that somebody reads what it said.
        drop(fenced);
        if let Some(result) = result {
            self.tell(result.map(|action| (self.named(&key), action))).await;
        }
        if self.store.get(&self.named(&key)).is_none() {
            // Its deletion has cleared what was known of it, and a timer would be for an object that is gone.
            return match outcome {
                Outcome::Retry(why) | Outcome::RetryAfter(_, why) => Outcome::GiveUp(why),
                Outcome::Again(_) => Outcome::Done,
                other => other,
            };
        }
        if matches!(outcome, Outcome::GiveUp(_)) {
            // Before `during` ends, which tells the queue what came meanwhile.
            self.feed.gives_up(&key);
        }
        outcome
    }

    /// Runs the reconciler, and drops it when its time is over. A run that returns too late is over its time
    /// too.
    async fn within_limit(
        &self,
        key: &ObjectKey,
        reconciled: impl Future<Output = Option<Ended<E>>>,
    ) -> Option<Ended<E>> {
        let Some(limit) = self.config.time_limit else { return reconciled.await };
        let begin = Instant::now();
        match timeout(limit, reconciled).await {
            Ok(None) => None,
            Ok(ended) if begin.elapsed() < limit => ended,
            _ => {
                let error = Error::TimeLimit(limit, self.named(key).erase());
                tracing::error!(controller = &*self.name, object = %key, "{error}");
                Some((Outcome::Retry(OverTimeLimit(limit).into()), Some(Err(error))))
            }
        }
    }

    /// Calls the reconciler until it does not end by a conflict. `None` if it could not write because this
    /// process no longer leads.
    async fn reconcile(
        &self,
        current: &Current,
        mut object: Arc<K>,
        fence: Option<&Fence>,
    ) -> Option<Ended<E>> {
        let key = current.key();
        let mut conflicts = 0;
        loop {
            current.goes_by(object.meta());
            match (self.reconciler)(object.clone(), self.context.clone()).await {
                Ok(action) => return Some((self.after_success(action), Some(Ok(action)))),
                Err(e) if conflicts < self.config.conflicts && is_conflict(&e) => {
                    conflicts += 1;
                    match self.read_again(key).await {
                        Some(newer) => object = newer,
                        None => return Some((Outcome::Done, None)), // it is gone
                    }
                }
                Err(e) if NotLeader::is_in(&e) && fence.is_some_and(|fence| fence.check().is_err()) => {
                    return None;
                }
                Err(e) => {
                    let action = (self.error_policy)(object, &e, self.context.clone());
                    let why = e.to_string();
                    let outcome = match action.0 {
                        What::Backoff => Outcome::Retry(why.into()),
                        What::Requeue(after) | What::RequeueWithFailures(after) => {
                            Outcome::RetryAfter(after, why.into())
                        }
                        What::AwaitChange | What::GiveUp => Outcome::GiveUp(why.into()),
                    };
                    return Some((outcome, Some(Err(Error::ReconcilerFailed(e, self.named(key).erase())))));
                }
            }
        }
    }

    /// Reads the object from the API server or, if that fails, from the watch's store.
    async fn read_again(&self, key: &ObjectKey) -> Option<Arc<K>> {
        let read = match &self.read {
            Some(read) => read(key).await.ok(),
            None => None,
        };
        match read {
            Some(object) => object.map(|mut object| {
                if !self.config.managed_fields {
                    object.meta_mut().managed_fields = None;
                }
                Arc::new(object)
            }),
            None => self.store.get(&key.to_ref(self.dyntype.clone())),
        }
    }

    fn after_success(&self, action: Action) -> Outcome {
        match (action.0, self.config.resync) {
            (What::Requeue(after), _) => Outcome::Again(after),
            (What::RequeueWithFailures(after), _) => Outcome::RetryAfter(after, AskedFor.into()),
            (What::Backoff, _) => Outcome::Retry(AskedFor.into()),
            (What::AwaitChange, Some(period)) => Outcome::Again(crate::random::between(0.9, 1.1, period)),
            (What::AwaitChange, None) | (What::GiveUp, _) => Outcome::Done,
        }
    }

    fn named(&self, key: &ObjectKey) -> ObjectRef<K> {
        key.to_ref(self.dyntype.clone())
    }

    async fn tell(&self, result: Result<(ObjectRef<K>, Action), Error<E>>) {
        if let Some(results) = &self.results {
            // It has no reader any more when the controller ends.
            drop(results.send(result).await);
        }
    }

    /// Handles the end of a run, however it ended.
    pub(crate) fn ended(&self, key: &ObjectKey, report: &RunReport<'_>) {
        let failure = report.failure;
        if matches!(failure, Some(Failure::Error(e)) if e.is::<PutBack>()) {
            return;
        }
        let object = self.store.get(&self.named(key));
        let led_to_another = object.as_ref().is_some_and(|it| is_of_another_key(key, &**it));
        if let Some(metrics) = self.metrics.as_ref().filter(|_| !led_to_another) {
            let is = match failure {
                Some(Failure::Error(e)) if e.is::<AskedFor>() => Special::AskedFor,
                Some(Failure::Error(e)) if e.is::<OverTimeLimit>() => Special::OverTimeLimit,
                _ => Special::No,
            };
            metrics.ended(report, is);
        }
        // Of an object that is gone nothing stays.
        self.feed.failures().set(key, failure.filter(|_| object.is_some()).map(ToString::to_string));
        let Some(Failure::Panic(message)) = failure else { return };
        let error = Error::Panicked(message.clone(), self.named(key).erase());
        tracing::error!(controller = &*self.name, object = %key, "{error}");
        if let Some(results) = &self.results {
            // If a thousand results wait, the message above must do.
            drop(results.try_send(Err(error)));
        }
    }
}

/// Whether this key with a namespace has found an object without one: its own key is another.
fn is_of_another_key<K: Resource>(key: &ObjectKey, object: &K) -> bool {
    key.namespace().is_some() && object.meta().namespace.is_none()
}

/// Delay before a key comes again that was handed out while this process does not lead.
const STANDBY: Duration = Duration::from_millis(100);

/// Waits until a run must end because another process may lead.
async fn over(fence: Option<&Fence>) {
    match fence {
        Some(fence) => fence.over().await,
        None => std::future::pending().await,
    }
}

fn causes(run: &mut requeue::Run<ObjectKey, Causes>) -> Causes {
    let triggers = run.take_value();
    let mut causes = match run.attempt() {
        attempt @ 2.. => Causes::of(Cause::Retry { failures: attempt - 1 }),
        _ if triggers.is_none() => Causes::of(Cause::Requeued),
        _ => Causes::default(),
    };
    triggers.into_iter().for_each(|triggers| causes.join(triggers));
    causes
}

/// Whether the API server refused a write because the object has changed.
///
/// It looks for the server's answer, not for kube's error around it: a transparent error's source is that of
/// the wrapped error, so the wrapped error itself is in no chain of sources.
fn is_conflict(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(status) = answer(error) {
            return status.code == 409 && status.reason != "AlreadyExists";
        }
        next = error.source();
    }
    false
}

fn answer<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e Status> {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) => Some(status),
        Some(_) => None,
        None => error.downcast_ref::<Box<Status>>().map(|status| &**status).or_else(|| error.downcast_ref()),
    }
}

/// The failure of a run that ended well and asked for a back-off.
#[derive(Debug, thiserror::Error)]
#[error("the reconciler asked for a back-off")]
struct AskedFor;

/// The failure of a run that was dropped because its time was over. The queue's worker has time limits too,
/// but would count the wait until the result is read.
#[derive(Debug, thiserror::Error)]
#[error("the reconciler took longer than {0:?}")]
struct OverTimeLimit(Duration);

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Again(_) => "again",
        Outcome::Retry(_) | Outcome::RetryAfter(..) => "retry",
        Outcome::GiveUp(_) => "gave up",
        _ => "other",
    }
}

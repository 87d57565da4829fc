//! [`RunExt`]: a handler's operations on its run in a transaction of its own.

use crate::link::Failed;
use crate::run_ledger::RunLedger;
use crate::typed::with_types;
use requeue::{IntoOutcome, Outcome, Run};
use requeue_engine::{EngineError, Key, engine_of};
use std::future::Future;
use tokio_postgres::GenericClient;

/// An outcome: the run has ended with its handler's transaction.
///
/// ```no_run
/// use requeue::{BoxError, Run};
/// use requeue_postgres::{Ended, RunExt};
///
/// async fn handler(run: Run<String>, db: &mut tokio_postgres::Client) -> Result<Ended, BoxError> {
///     let tx = db.transaction().await?;
///     tx.execute("update stock set n = n - 1 where id = $1", &[&run.key()]).await?;
///     let ended = run.succeed_in(&tx).await?;
///     tx.commit().await?;
///     Ok(ended)
/// }
/// ```
#[derive(Debug)]
#[must_use = "a handler returns it"]
pub struct Ended(());

impl IntoOutcome for Ended {
    fn into_outcome(self) -> Outcome {
        Outcome::Done
    }
}

/// Calls for runs of a queue on PostgreSQL, in a handler's own transaction, in the queue's database.
///
/// In a transaction at `repeatable read` or `serializable`, call [`guard`](Self::guard) first, before any
/// other statement. The engine copies the queue's tables from time to time while a snapshot is held. A
/// transaction whose snapshot is older than such a copy sees an empty table, so both calls return
/// [`EngineError::LeaseLost`] although the lease is kept. After a call of `guard` the table is not copied
/// until the run's transaction ends. (A copy may be under way when `guard` is called. With `lock table
/// requeue.item in access share mode` as the very first statement that can't happen either.)
///
/// ```no_run
/// use requeue::{BoxError, Run};
/// use requeue_postgres::{Ended, RunExt};
///
/// async fn handler(run: Run<String>, db: &mut tokio_postgres::Client) -> Result<Ended, BoxError> {
///     let tx = db.transaction().await?;
///     tx.execute("update stock set n = n - 1 where id = $1", &[&run.key()]).await?;
///     let ended = run.succeed_in(&tx).await?; // the writes of this transaction happen once
///     tx.commit().await?;
///     Ok(ended)
/// }
/// ```
pub trait RunExt {
    /// Locks the run until the transaction ends: its writes are then not a zombie's.
    ///
    /// # Errors
    ///
    /// [`EngineError::LeaseLost`] if others have the key; the transaction can't commit then. Also if the run
    /// does not belong to a queue on PostgreSQL.
    ///
    /// ```no_run
    /// # use requeue::{BoxError, Run};
    /// # use requeue_postgres::RunExt;
    /// # async fn handler(run: Run<String>, tx: tokio_postgres::Transaction<'_>) -> Result<(), BoxError> {
    /// run.guard(&tx).await?;
    /// # Ok(())
    /// # }
    /// ```
    fn guard<C: GenericClient + Sync>(&self, tx: &C) -> impl Future<Output = Result<(), EngineError>> + Send;

    /// Ends the run as succeeded, if and when the transaction commits. If it is rolled back the run has
    /// failed.
    ///
    /// If another process sleeps the transaction notifies it, so PostgreSQL refuses `prepare transaction`
    /// after this.
    ///
    /// # Errors
    ///
    /// Like [`guard`](Self::guard).
    ///
    /// ```no_run
    /// # use requeue::{BoxError, Run};
    /// # use requeue_postgres::{Ended, RunExt};
    /// # async fn handler(run: Run<String>, tx: tokio_postgres::Transaction<'_>) -> Result<Ended, BoxError> {
    /// let ended = run.succeed_in(&tx).await?;
    /// tx.commit().await?;
    /// # Ok(ended)
    /// # }
    /// ```
    fn succeed_in<C: GenericClient + Sync>(
        &self,
        tx: &C,
    ) -> impl Future<Output = Result<Ended, EngineError>> + Send;
}

/// The queue, the key's bytes and the fence.
fn place<K: Key, V>(run: &Run<K, V>) -> Result<(&RunLedger<K>, Vec<u8>, i64), EngineError> {
    let ledger = engine_of(run).and_then(|engine| engine.downcast_ref::<RunLedger<K>>());
    match ledger {
        Some(ledger) => {
            Ok((ledger, run.key().to_bytes().into(), i64::try_from(run.fence().0).unwrap_or(i64::MAX)))
        }
        None => Err(EngineError::NotApplied("the run is none of a queue on PostgreSQL".into())),
    }
}

async fn ask<C: GenericClient + Sync>(
    tx: &C,
    what: &str,
    queue: i32,
    key: &[u8],
    fence: i64,
) -> Result<(), EngineError> {
    // in one message: a name would be the session's, which a pooler shares
    match tx.query_typed(what, &with_types(&[&queue, &key, &fence])).await {
        Ok(_) => Ok(()),
        Err(e) => Err(Failed::of(&e).into()),
    }
}

impl<K: Key, V: Send + 'static> RunExt for Run<K, V> {
    fn guard<C: GenericClient + Sync>(&self, tx: &C) -> impl Future<Output = Result<(), EngineError>> + Send {
        let place = place(self).map(|(ledger, key, fence)| (ledger.queue, key, fence));
        async move {
            let (queue, key, fence) = place?;
            ask(tx, "select requeue.guard($1, $2, $3)", queue, &key, fence).await
        }
    }

    fn succeed_in<C: GenericClient + Sync>(
        &self,
        tx: &C,
    ) -> impl Future<Output = Result<Ended, EngineError>> + Send {
        let place = place(self).map(|(ledger, key, fence)| {
            ledger.ends_in_transaction(self.key(), fence);
            (ledger.queue, key, fence)
        });
        async move {
            let (queue, key, fence) = place?;
            ask(tx, "select requeue.succeed($1, $2, $3)", queue, &key, fence).await?;
            Ok(Ended(()))
        }
    }
}

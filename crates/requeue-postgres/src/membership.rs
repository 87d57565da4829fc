//! [`Membership`]: this process as one that works on a queue, for the [exchange](crate::exchange), the
//! [heartbeat](crate::heartbeat) and the metrics.

use crate::heartbeat::Member;
use crate::lease_clock::LeaseClock;
use crate::post::{NOBODY, Post};
use crate::run_ledger::{Claimed, RunLedger};
use crate::schema::Serving;
use requeue_engine::Key;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use tokio::sync::watch;

/// The queue in memory, as the exchange sees it. It must not keep the queue open.
pub(crate) trait ExchangeTarget: Send + Sync {
    /// Number of keys that workers wait for, plus those to be prefetched; `None` if the queue is closed.
    fn wanted(&self) -> Option<usize>;
    /// Gives it a key. A key that it can't accept goes back to the ledger.
    fn give(&self, claimed: Claimed);
    /// Tells its runs to end, and puts back keys that no worker has begun: others have them, or will soon.
    fn let_go_of_runs(&self);
    /// Stops triggers and hand-outs.
    fn close(&self);
}

/// State shared by a queue's tasks.
pub(crate) struct Membership<K> {
    pub(crate) ledger: Arc<RunLedger<K>>,
    pub(crate) target: Arc<dyn ExchangeTarget>,
    /// The process's name.
    pub(crate) who: String,
    /// State shared with the heartbeat.
    pub(crate) post: Arc<Post>,
    /// Whether the schema still serves this program.
    pub(crate) serving: Arc<Serving>,
    /// Number of lost leases.
    pub(crate) losses: AtomicU64,
    /// The owner whose lease was lost last: its runs were told to end.
    told_to_end: AtomicI64,
    /// Becomes true when the exchange has ended, and the lease is given up.
    over: watch::Sender<bool>,
}

impl<K> Membership<K> {
    pub(crate) fn new(
        ledger: Arc<RunLedger<K>>,
        target: Arc<dyn ExchangeTarget>,
        who: String,
        serving: Arc<Serving>,
    ) -> Self {
        let post = Arc::new(Post::new(ledger.queue, ledger.signal.clone()));
        let (losses, told_to_end) = (AtomicU64::new(0), AtomicI64::new(NOBODY));
        Self { ledger, target, who, post, serving, losses, told_to_end, over: watch::Sender::new(false) }
    }

    /// This process's lease.
    pub(crate) fn lease(&self) -> &LeaseClock {
        &self.ledger.lease
    }

    /// Becomes true when the exchange has ended, and the lease is given up.
    pub(crate) fn left(&self) -> watch::Receiver<bool> {
        self.over.subscribe()
    }

    /// Records that the exchange has ended, and the lease is given up.
    pub(crate) fn end(&self) {
        self.over.send_replace(true);
    }

    /// Whether the runs of this owner were told to end.
    pub(crate) fn was_told_to_end(&self, owner: i64) -> bool {
        owner != NOBODY && self.told_to_end.load(Relaxed) == owner
    }
}

impl<K: Key> Membership<K> {
    /// Tells the runs of this owner to end, because its lease is lost or will be soon. May be called several
    /// times.
    pub(crate) fn lose_runs(&self, owner: i64) {
        if self.told_to_end.swap(owner, Relaxed) != owner {
            self.losses.fetch_add(1, Relaxed);
        }
        self.let_go_of_runs();
    }

    /// Tells all runs to end, and sends no ends of theirs.
    pub(crate) fn let_go_of_runs(&self) {
        self.ledger.lose_all();
        self.target.let_go_of_runs();
    }
}

impl<K: Key> Member for Membership<K> {
    fn post(&self) -> &Post {
        &self.post
    }

    fn lease(&self) -> &LeaseClock {
        self.lease()
    }

    fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    fn lose(&self, owner: i64) {
        if self.lease().held().take_if(|held| held.owner == owner).is_some() {
            self.lose_runs(owner);
            self.post.signal.notify_one();
        }
    }
}

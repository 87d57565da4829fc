//! The metrics' view of the server, and of this process's lease.
//!
//! The server is asked every few seconds, on a connection for rare calls: reading the figures waits for
//! nothing, and delays no lease. Only if the queue has metrics.

use crate::client::{Stats, counts};
use crate::lanes::Lanes;
use crate::membership::Membership;
use requeue_engine::{EngineGauges, ReadEngine, StoreGauges};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Interval of looks at the server, and time limit of its answer.
const READS_EVERY: Duration = Duration::from_secs(5);
/// Maximum of counts: a look then takes a few milliseconds, and each process has its own.
const COUNTS_UP_TO: i32 = 10_000;
/// Age at which a look is no longer reported: the connection was in other use, or the server does not answer.
const OLD: Duration = Duration::from_secs(15);

pub(crate) struct Watch<K> {
    membership: Arc<Membership<K>>,
    /// Result and time of the last look; `None` if it failed.
    seen: Mutex<Option<(Instant, Stats)>>,
}

impl<K> Watch<K> {
    pub(crate) fn new(membership: Arc<Membership<K>>) -> Self {
        Self { membership, seen: Mutex::new(None) }
    }

    fn saw(&self, seen: Option<(Instant, Stats)>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }
}

impl<K: Send + Sync> ReadEngine for Watch<K> {
    fn engine(&self) -> EngineGauges {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut gauges = EngineGauges::default();
        gauges.store = seen.filter(|(at, _)| at.elapsed() < OLD).map(|(_, stats)| stats.into());
        gauges.up = gauges.store.is_some();
        let held = *self.membership.lease().held();
        gauges.lease.held = held.is_some();
        gauges.lease.length = self.membership.lease().length;
        gauges.lease.since_beat = held.map_or(Duration::ZERO, |held| held.beat.elapsed());
        gauges.leases_lost = self.membership.losses.load(Relaxed);
        gauges.ends_refused = self.membership.ledger.ends_refused.load(Relaxed);
        gauges
    }
}

impl From<Stats> for StoreGauges {
    fn from(stats: Stats) -> Self {
        let mut gauges = Self::default();
        gauges.ready = stats.ready;
        gauges.held = stats.held;
        gauges.waiting = stats.waiting;
        gauges.inbox = stats.inbox;
        gauges.dead = stats.dead;
        gauges.oldest_ready = stats.oldest_ready.unwrap_or_default();
        gauges.paused = stats.paused;
        gauges.owners = stats.owners;
        gauges.expired_owners = stats.expired_owners;
        gauges.shortest_lease = stats.shortest_lease;
        gauges.oldest_snapshot = stats.oldest_snapshot.unwrap_or_default();
        gauges
    }
}

/// Looks at the server as long as the queue exists: even after it was shut down, while its figures are read.
pub(crate) async fn looks<K>(watch: Weak<Watch<K>>, lanes: Arc<Lanes>, mut closing: watch::Receiver<bool>) {
    let looking = async {
        while let Some(watch) = watch.upgrade() {
            let seen =
                counts(&mut *lanes.lock().await, watch.membership.ledger.queue, COUNTS_UP_TO, READS_EVERY)
                    .await;
            watch.saw(seen.ok().map(|stats| (Instant::now(), stats)));
            drop(watch);
            tokio::time::sleep(READS_EVERY).await;
        }
    };
    let looking = std::pin::pin!(looking);
    let closes = std::pin::pin!(closing.wait_for(|closing| *closing));
    futures_util::future::select(looking, closes).await;
}

//! Gauges of an engine. Users find them in the crate `requeue-engine`.

use std::time::Duration;

/// State of an engine's store at its last look.
///
/// It describes the whole queue, not this process: each process that works on it reports the same.
///
/// ```
/// use requeue::engine::StoreGauges;
/// use std::time::Duration;
/// let mut gauges = StoreGauges::default(); // an engine fills it in
/// gauges.expired_owners = 1;
/// let is_reaped = |gauges: &StoreGauges| gauges.expired_owners == 0;
/// assert!(!is_reaped(&gauges) && gauges.oldest_ready == Duration::ZERO);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreGauges {
    /// Keys in line. An engine may stop counting at a limit, here and below: see its documentation.
    pub ready: u64,
    /// Keys with a worker, in any process.
    pub held: u64,
    /// Keys with a timer, even if they are also in line or held.
    pub waiting: u64,
    /// Triggers of users' transactions that no process has read yet.
    pub inbox: u64,
    /// Keys whose last run gave up.
    pub dead: u64,
    /// How long the first key in line has been there; 0 if there is none.
    pub oldest_ready: Duration,
    /// Whether the queue is paused: none of its keys is handed out.
    pub paused: bool,
    /// Processes that have a lease.
    pub owners: u64,
    /// Processes whose lease has ended, and whose keys have not been given back yet.
    pub expired_owners: u64,
    /// Remaining time of the lease that ends first; `None` if no process has one.
    pub shortest_lease: Option<Duration>,
    /// Age of the database's oldest open snapshot; 0 if there is none. Rows that died since then cannot be
    /// vacuumed.
    pub oldest_snapshot: Duration,
}

/// A process's lease on a queue.
///
/// ```
/// use requeue::engine::LeaseGauges;
/// let late = |lease: &LeaseGauges| lease.since_beat > lease.length / 2;
/// assert!(!late(&LeaseGauges::default()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseGauges {
    /// Whether the process has one. A process that has not asked for a key yet has none.
    pub held: bool,
    /// Length of a lease.
    pub length: Duration,
    /// Time since the last extension was sent that was answered; 0 without a lease.
    pub since_beat: Duration,
}

/// Gauges of an engine, in addition to those of its front.
///
/// ```
/// use requeue::engine::EngineGauges;
/// let mut gauges = EngineGauges::default(); // an engine fills it in
/// gauges.up = true;
/// assert!(gauges.store.is_none()); // it has not looked yet
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineGauges {
    /// Whether the store answered the last look.
    pub up: bool,
    /// State of the store at that look; `None` if the store is not up.
    pub store: Option<StoreGauges>,
    /// The lease of this process.
    pub lease: LeaseGauges,
    /// How often this process has lost its lease.
    pub leases_lost: u64,
    /// Ends of runs that changed nothing: the store refused them because another process had the key by then,
    /// or they could not be sent before the lease was lost.
    pub ends_refused: u64,
}

/// An engine whose gauges can be read: [`LocalQueue::attach_engine`](super::source::LocalQueue::attach_engine).
///
/// ```
/// # use requeue::engine::{EngineGauges, ReadEngine};
/// struct File;
/// impl ReadEngine for File {
///     fn engine(&self) -> EngineGauges {
///         let mut gauges = EngineGauges::default();
///         gauges.up = true;
///         gauges
///     }
/// }
/// assert!(File.engine().up);
/// ```
pub trait ReadEngine: Send + Sync {
    /// The engine's current figures. They are in memory: this does not wait for an unreachable store.
    ///
    /// ```
    /// # use requeue::engine::ReadEngine;
    /// fn is_away(engine: &dyn ReadEngine) -> bool {
    ///     !engine.engine().up
    /// }
    /// ```
    fn engine(&self) -> EngineGauges;
}

//! The settings of a controller.

use requeue::InBackoff;
use std::time::Duration;

/// How a controller works its queue off. [`Default`] is what most controllers need.
///
/// ```
/// use requeue_kube::Config;
/// use std::time::Duration;
///
/// let config = Config::default()
///     .concurrency(32)
///     .time_limit(Duration::from_secs(60))
///     .retry_rate(50.0, 200)
///     .resync(Duration::from_secs(3600));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Config {
    pub(crate) concurrency: u16,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) backoff: (Duration, Duration),
    pub(crate) jitter: f64,
    pub(crate) retry_rate: Option<(f64, u32)>,
    pub(crate) on_change: InBackoff,
    pub(crate) on_status: InBackoff,
    pub(crate) on_owned: InBackoff,
    pub(crate) on_watched: InBackoff,
    pub(crate) list_timeout: Duration,
    pub(crate) conflicts: u32,
    pub(crate) resync: Option<Duration>,
    pub(crate) max_wait: Duration,
    pub(crate) overdue_every: u32,
    pub(crate) debounce: Option<(Duration, Duration)>,
    pub(crate) grace: Duration,
    pub(crate) managed_fields: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            concurrency: 16,
            time_limit: None,
            backoff: (Duration::from_millis(5), Duration::from_secs(1000)),
            jitter: 0.1,
            retry_rate: None,
            on_change: InBackoff::Reset,
            on_status: InBackoff::Respect,
            on_owned: InBackoff::Respect,
            on_watched: InBackoff::Run,
            list_timeout: Duration::from_secs(30),
            conflicts: 3,
            resync: None,
            max_wait: Duration::from_secs(30),
            overdue_every: 8,
            debounce: None,
            grace: Duration::from_secs(30),
            managed_fields: true,
        }
    }
}

impl Config {
    /// Sets how many objects are reconciled at once: 16 by default. 0 is no bound, as in kube; then a list of
    /// 2,000 objects is 2,000 runs at once.
    pub fn concurrency(self, concurrency: u16) -> Self {
        Self { concurrency, ..self }
    }

    /// Sets the time limit of a run: a longer run is dropped at its next `await` and has failed. None by
    /// default; with a limit of 0 each run fails.
    pub fn time_limit(self, limit: Duration) -> Self {
        Self { time_limit: Some(limit), ..self }
    }

    /// Sets the delay after an object's first failure, and the maximum up to which it doubles with each
    /// further one. 5 ms and 1,000 s by default, as in client-go and controller-runtime.
    pub fn backoff(self, base: Duration, max: Duration) -> Self {
        Self { backoff: (base, max), ..self }
    }

    /// Sets the jitter: each delay varies by plus or minus this fraction, so that objects that failed
    /// together do not return together. 0.1 by default; 0 is none.
    pub fn jitter(self, fraction: f64) -> Self {
        Self { jitter: fraction, ..self }
    }

    /// Limits retries of all objects together, per second and at once. None by default: with client-go's rate
    /// of 10 per second, 2,000 objects that fail wait for 190 s.
    pub fn retry_rate(self, per_second: f64, burst: u32) -> Self {
        Self { retry_rate: Some((per_second, burst)), ..self }
    }

    /// Sets what a change of the desired state (generation, labels, annotations, finalizers, owners,
    /// deletion) does to an object in back-off. [`InBackoff::Reset`] by default: it runs now, and its
    /// failures are forgotten, because they were failures of the earlier state.
    pub fn on_change(self, then: InBackoff) -> Self {
        Self { on_change: then, ..self }
    }

    /// Sets what any other change, mostly of the status, does to an object in back-off.
    /// [`InBackoff::Respect`] by default: only the retry sees it. Otherwise an object that fails and writes
    /// its status would run at once, for ever, by its own echo.
    pub fn on_status(self, then: InBackoff) -> Self {
        Self { on_status: then, ..self }
    }

    /// Sets what an object that is [owned](crate::Controller::owns) does to its owner in back-off.
    /// [`InBackoff::Respect`] unless it is set: the reconciler makes what is owned, and one that makes a child and then
    /// fails would run at once, for ever, by the child.
    pub fn on_owned(self, then: InBackoff) -> Self {
        Self { on_owned: then, ..self }
    }

    /// Sets what an object that is [watched](crate::Controller::watches) does to an object in back-off.
    /// [`InBackoff::Run`] by default: the object runs now, because this may be what it lacked, and its
    /// failures stay.
    ///
    /// A reconciler that writes objects that it watches must say so ([`Current::saw`](crate::Current::saw)),
    /// or it fails and runs by its own echo.
    pub fn on_watched(self, then: InBackoff) -> Self {
        Self { on_watched: then, ..self }
    }

    /// Sets how long runs wait for the lists of related kinds (`owns`, `watches`) after the controller has
    /// the list of its own objects. 30 s by default.
    ///
    /// A kind that does not exist, or that this process may not list, therefore stops only objects that need
    /// it. [`Health::unlisted`](crate::Health::unlisted) and the metrics name it, and its watch keeps trying.
    /// When it has its list all objects run, behind those that change
    /// ([`Cause::Swept`](crate::Cause::Swept)). Without the list of its own objects a controller runs
    /// nothing, however long that takes.
    pub fn list_timeout(self, patience: Duration) -> Self {
        Self { list_timeout: patience, ..self }
    }

    /// Sets how often a run is repeated after a conflict (409): the reconciler is called again at once with
    /// the object's current version, before its error counts as a failure. 3 by default; 0 is never.
    ///
    /// The conflict is looked for in the error and its sources ([`source`](std::error::Error::source)); an
    /// error that hides its `kube::Error` is an ordinary failure.
    pub fn on_conflict(self, tries: u32) -> Self {
        Self { conflicts: tries, ..self }
    }

    /// Runs an object whose reconciler answered [`await_change`](crate::Action::await_change) again after
    /// this time, at low priority, plus or minus a tenth to spread the runs. None by default.
    pub fn resync(self, period: Duration) -> Self {
        Self { resync: Some(period), ..self }
    }

    /// Gives an object that has been ready for longer than this a share of the turns: one of eight runs
    /// ([`overdue_every`](Self::overdue_every)) goes to the object that has waited longest, and the others to the most urgent. So
    /// endless changes do not starve a list, and a long list delays no change. 30 s by default.
    ///
    /// Time in which nothing could run does not count: while the lists are awaited, while the controller is
    /// [paused](crate::Running::pause), and while it stands by for a [`leader`](crate::Controller::leader).
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait, ..self }
    }

    /// Sets the share of the objects that have waited for longer than [`max_wait`](Self::max_wait): of this number of runs one
    /// goes to the oldest of them. 8 by default.
    ///
    /// With less than 2 the controller does not [start](crate::Controller::start): all runs would go to a long list, and a
    /// change would wait behind it.
    pub fn overdue_every(self, runs: u32) -> Self {
        Self { overdue_every: runs, ..self }
    }

    /// Debounces triggers: an object runs when nothing has triggered it for `quiet`, and at the latest
    /// `at_most` after the first trigger. None by default.
    ///
    /// kube's `debounce` has no maximum: with it an object that changes often enough never runs.
    pub fn debounce(self, quiet: Duration, at_most: Duration) -> Self {
        Self { debounce: Some((quiet, at_most)), ..self }
    }

    /// Sets whether reconcilers see the `managedFields` of their objects, the API server's notes on who wrote
    /// what. `true` by default, as in kube.
    ///
    /// They are most of the memory of a small object: three entries of a few fields are 8 kB. An object
    /// without them can still be written, because the API server keeps its notes if a replacement has none.
    pub fn managed_fields(self, keep: bool) -> Self {
        Self { managed_fields: keep, ..self }
    }

    /// Sets the grace period: how long current runs may continue at the end before they are dropped. 30 s by
    /// default, like a pod's grace period in Kubernetes.
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }
}

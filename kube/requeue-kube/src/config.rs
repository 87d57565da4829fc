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
            debounce: None,
            grace: Duration::from_secs(30),
            managed_fields: true,
        }
    }
}

impl Config {
    /// So many objects are reconciled at once: 16 unless it is set. 0 is no bound, as in kube; then a list of
    /// 2,000 objects is 2,000 runs at once.
    pub fn concurrency(self, concurrency: u16) -> Self {
        Self { concurrency, ..self }
    }

    /// A run that takes longer is dropped at its next `await` and has failed. None unless it is set; with a limit of 0
    /// each run fails.
    pub fn time_limit(self, limit: Duration) -> Self {
        Self { time_limit: Some(limit), ..self }
    }

    /// The delay after an object's first failure, doubled by each further one up to a maximum. 5 ms and 1,000 s
    /// unless it is set, as in client-go and controller-runtime.
    pub fn backoff(self, base: Duration, max: Duration) -> Self {
        Self { backoff: (base, max), ..self }
    }

    /// Each delay is drawn from its value plus or minus this fraction of it, so that objects that failed
    /// together do not return together. 0.1 unless it is set; 0 is none.
    pub fn jitter(self, fraction: f64) -> Self {
        Self { jitter: fraction, ..self }
    }

    /// At most so many retries a second of all objects together, and so many at once. None unless it is set: a
    /// rate of 10 a second, client-go's, makes 2,000 objects that fail wait for 190 s.
    pub fn retry_rate(self, per_second: f64, burst: u32) -> Self {
        Self { retry_rate: Some((per_second, burst)), ..self }
    }

    /// What a change of what is asked for (generation, labels, annotations, finalizers, owners, deletion) does
    /// to an object in back-off. [`InBackoff::Reset`] unless it is set: it runs now, and its failures are
    /// forgotten, for they were failures of another object.
    pub fn on_change(self, then: InBackoff) -> Self {
        Self { on_change: then, ..self }
    }

    /// What a change of anything else, the status above all, does to an object in back-off.
    /// [`InBackoff::Respect`] unless it is set: nothing but that the retry sees it. Otherwise an object that
    /// fails and writes its status runs at once, for ever, by its own echo.
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
    /// [`InBackoff::Run`] unless it is set: the object runs now, for it may have failed for want of just this, and its
    /// failures count on.
    ///
    /// A reconciler that writes what it watches says so ([`Current::saw`](crate::Current::saw)), or else fails and runs
    /// by its own echo.
    pub fn on_watched(self, then: InBackoff) -> Self {
        Self { on_watched: then, ..self }
    }

    /// How long runs wait for the lists of related kinds (`owns`, `watches`) after the controller has that of its own
    /// objects. 30 s unless it is set.
    ///
    /// A kind that does not exist, or that this process may not list, so stops nothing but what needs it:
    /// [`Health::unlisted`](crate::Health::unlisted) and the metrics name it, and its watch goes on trying. When it has
    /// its list all objects run, behind those that change ([`Cause::Swept`](crate::Cause::Swept)). Without the list of
    /// its own objects a controller runs nothing, however long that takes.
    pub fn list_timeout(self, patience: Duration) -> Self {
        Self { list_timeout: patience, ..self }
    }

    /// A reconciler whose write the API server refused as a conflict (409) is called again at once with the
    /// object as it is there now, at most so many times a run, before its error is a failure. 3 unless it is
    /// set; 0 is never.
    ///
    /// The conflict is looked for in the error and its sources
    /// ([`source`](std::error::Error::source)); an error that hides its `kube::Error` is a failure as others.
    pub fn on_conflict(self, tries: u32) -> Self {
        Self { conflicts: tries, ..self }
    }

    /// An object whose reconciler answered [`await_change`](crate::Action::await_change) runs again after this
    /// time, at low priority, plus or minus a tenth, so that the runs of many objects spread. None unless it is
    /// set.
    pub fn resync(self, period: Duration) -> Self {
        Self { resync: Some(period), ..self }
    }

    /// An object that has been ready for longer than this has a share of the turns: of eight runs one is of the object
    /// that has waited longest, and the others go to the most urgent. So endless changes keep no list waiting for ever,
    /// and a long list delays no change. 30 s unless it is set.
    ///
    /// The time in which nothing could run does not count: while the lists are awaited, while the controller is
    /// [paused](crate::Running::pause), and while it stands by for a [`leader`](crate::Controller::leader).
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait, ..self }
    }

    /// An object that was triggered runs when nothing has triggered it for `quiet`, and `at_most` after the
    /// first trigger even if more come all the time. None unless it is set.
    ///
    /// kube's `debounce` has no maximum: an object that changes often enough never runs there.
    pub fn debounce(self, quiet: Duration, at_most: Duration) -> Self {
        Self { debounce: Some((quiet, at_most)), ..self }
    }

    /// Whether reconcilers see the `managedFields` of their objects, the API server's notes on who wrote what. `true`
    /// unless it is set, as in kube.
    ///
    /// They are most of the memory that a small object takes: three entries of a few fields are 8 kB. An object without
    /// them can be written as well, for the API server keeps its notes when a replacement has none.
    pub fn managed_fields(self, keep: bool) -> Self {
        Self { managed_fields: keep, ..self }
    }

    /// At the end the runs that go on have this time to end by themselves; then they are dropped. 30 s unless it
    /// is set, as is a pod's grace period in Kubernetes.
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }
}

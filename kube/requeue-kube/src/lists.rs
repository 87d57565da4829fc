//! The lists of watches: no run begins before they are complete, and a watch that cannot have its list holds
//! up only what needs it.

use crate::metrics::Listings;
use kube::runtime::watcher::{self, Error, Event};
use requeue_prometheus::prometheus_client::metrics::gauge::Gauge;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// Time in which a freshly started API server refuses requests: it does not know yet who may do what, and
/// which kinds there are. Such refusals say nothing about the kind.
pub(crate) const STARTING: Duration = Duration::from_secs(10);

/// Refusals this far apart are separate, and the kind existed between them: a watch that continues reports
/// nothing. It is longer than any back-off of kube's.
const APART: Duration = Duration::from_secs(40);

/// The lists of all watches of a controller.
pub(crate) struct Lists {
    state: Mutex<State>,
    changed: Notify,
    metrics: Option<Listings>,
}

#[derive(Default)]
struct State {
    watched: Vec<Watched>,
    /// Runs have begun. A missing list is no longer waited for.
    begun: bool,
}

struct Watched {
    kind: Arc<str>,
    /// The controller's own kind: without its list there is nothing to run.
    is_own: bool,
    listed: bool,
    gauge: Option<Gauge>,
}

impl Lists {
    pub(crate) fn new(metrics: Option<Listings>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: Notify::new(), metrics })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a watch, of the controller's own kind or of a related one.
    pub(crate) fn watch(self: &Arc<Self>, kind: Arc<str>, is_own: bool) -> List {
        let gauge = self.metrics.as_ref().map(|metrics| metrics.of(&kind));
        let mut state = self.state();
        state.watched.push(Watched { kind, is_own, listed: false, gauge });
        let nth = state.watched.len() - 1;
        state.say(nth, false);
        drop(state);
        List { lists: self.clone(), nth, refused: Refused::default() }
    }

    /// The kinds without a list.
    pub(crate) fn unlisted(&self) -> Vec<String> {
        let state = self.state();
        let mut kinds: Vec<_> =
            state.watched.iter().filter(|it| !it.listed).map(|it| it.kind.to_string()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    pub(crate) fn have_begun(&self) -> bool {
        self.state().begun
    }

    /// Waits until runs may begin: the objects are listed, and all other kinds are, or the wait has timed
    /// out.
    pub(crate) async fn begin(&self, patience: Duration, controller: &str) {
        self.wait_for(|it| !it.is_own || it.listed).await;
        _ = timeout(patience, self.wait_for(|it| it.listed)).await;
        self.state().begun = true;
        let missing = self.unlisted();
        if !missing.is_empty() {
            tracing::error!(controller, "runs begin without the lists of {}", missing.join(", "));
        }
    }

    async fn wait_for(&self, holds: impl Fn(&Watched) -> bool) {
        loop {
            let changed = self.changed.notified();
            if self.state().watched.iter().all(&holds) {
                return;
            }
            changed.await;
        }
    }
}

impl State {
    fn say(&mut self, nth: usize, listed: bool) {
        let it = &mut self.watched[nth];
        it.listed = listed;
        if let Some(gauge) = &it.gauge {
            gauge.set(listed.into());
        }
    }
}

/// The list of one watch.
pub(crate) struct List {
    lists: Arc<Lists>,
    nth: usize,
    refused: Refused,
}

impl List {
    /// Marks the list complete. Returns `true` if it was late: runs went on without it, and may have failed
    /// for that.
    pub(crate) fn is_complete(&self) -> bool {
        let mut state = self.lists.state();
        let missed = state.begun && !state.watched[self.nth].listed;
        state.say(self.nth, true);
        drop(state);
        self.lists.changed.notify_waiters();
        missed
    }

    /// Handles an event of the watch. A kind that is refused for long loses its list.
    pub(crate) fn hears<K>(&mut self, event: &watcher::Result<Event<K>>) {
        if self.refused.hears(event) {
            self.lists.state().say(self.nth, false);
        }
    }
}

/// Tracks how long a kind has been refused.
#[derive(Default)]
pub(crate) struct Refused {
    /// The first and the last refusal in a row.
    row: Option<(Instant, Instant)>,
}

impl Refused {
    /// Handles an event. Returns `true` if the kind is refused, and has been for longer than an API server
    /// takes to start.
    pub(crate) fn hears<K>(&mut self, event: &watcher::Result<Event<K>>) -> bool {
        match event {
            Err(e) if is_refusal(e) => {
                let now = Instant::now();
                let row = self.row.filter(|(_, last)| now - *last < APART);
                let first = row.map_or(now, |(first, _)| first);
                self.row = Some((first, now));
                now - first >= STARTING
            }
            // A watcher says that it begins before it has asked.
            Err(_) | Ok(Event::Init) => false,
            Ok(_) => {
                self.row = None;
                false
            }
        }
    }
}

/// Whether there is no such kind, or this process may not watch it.
pub(crate) fn is_refusal(error: &Error) -> bool {
    let code = match error {
        Error::WatchError(status) => status.code,
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status)) => status.code,
        _ => return false,
    };
    matches!(code, 401 | 403 | 404 | 405)
}

//! Echoes: events of a run's own writes.
//!
//! A reconciler that reports its writes ([`Current::wrote`](crate::Current::wrote)) is not run again by their
//! watch events. The event may come before the reconciler has the answer of its write, so triggers that come
//! during a run are kept until it ends. Echoes among them are then dropped, and the others go to the queue
//! while the key is still held there. An echo may also come after the run; its version is remembered until
//! then.
//!
//! The API server's answer does not say who made the returned version. A write that changes nothing returns
//! the newest version, and another writer may have just made it, so that its event has not come yet. That
//! event must run the object. So a version is an echo only if no other writer can have made it, or if that
//! makes no difference: [`Echo`].

use crate::ObjectKey;
use crate::feed::Trigger;
use kube::api::ObjectMeta;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A version of an object: its uid, which no other object ever has, and its resource version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Version {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
}

impl Version {
    /// `None` if the object has no uid or no resource version: no API server has sent it.
    pub(crate) fn of(meta: &ObjectMeta) -> Option<Self> {
        Some(Self { uid: meta.uid.clone()?, resource_version: meta.resource_version.clone()? })
    }
}

/// Whether the desired state differs between two versions of an object. A kind without generations (a
/// `ConfigMap`, for example) does not separate the desired state from the status, so each of its versions
/// counts.
pub(crate) fn asks_for_more(old: &ObjectMeta, new: &ObjectMeta) -> bool {
    new.generation.is_none()
        || old.generation != new.generation
        || old.uid != new.uid
        || old.deletion_timestamp != new.deletion_timestamp
        || old.labels != new.labels
        || old.annotations != new.annotations
        || old.finalizers != new.finalizers
        || old.owner_references != new.owner_references
}

/// Kind of event of a version that is an echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    /// Any: the run knows this version.
    Known,
    /// Only the one that reports the object as new: a version that a write found there would have had its
    /// event before.
    IfNew,
}

impl Echo {
    fn is(self, trigger: &Trigger) -> bool {
        self == Self::Known || trigger.is_new
    }
}

/// Maximum number of triggers kept per run; further ones go to the queue at once, and the key runs again.
const KEPT: usize = 64;
/// Time after which an echo no longer comes: the write changed nothing, or the object is not watched.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Echoes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Triggers that came during the run, by the running key.
    runs: HashMap<ObjectKey, Vec<Trigger>>,
    /// Echoes that have not come back, with the time until which each may come.
    awaited: HashMap<(ObjectKey, Version), (Echo, Instant)>,
    /// Size at which `awaited` is cleared of late entries.
    clear_at: usize,
}

impl Echoes {
    fn state(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a run of this key.
    pub(crate) fn begin(&self, key: &ObjectKey) {
        self.state().runs.insert(key.clone(), Vec::new());
    }

    /// Ends the run. Returns the triggers that came meanwhile and are no echoes.
    #[must_use]
    pub(crate) fn end(&self, key: &ObjectKey) -> Vec<Trigger> {
        self.state().runs.remove(key).unwrap_or_default()
    }

    /// Records that the run of this key wrote this version, or knows it.
    pub(crate) fn wrote(&self, key: &ObjectKey, version: Version, echo: Echo) {
        let mut state = self.state();
        if let Some(kept) = state.runs.get_mut(key) {
            let is_of_it = |trigger: &Trigger| trigger.version.as_ref() == Some(&version);
            if kept.iter().any(is_of_it) {
                kept.retain(|trigger| !(is_of_it(trigger) && echo.is(trigger)));
                return;
            }
        }
        let now = Instant::now();
        if state.awaited.len() >= state.clear_at {
            state.awaited.retain(|_, (_, late)| *late > now);
            state.clear_at = (2 * state.awaited.len()).max(1024);
        }
        // Two writes may return one version; what is known of it stays known.
        let late = now + PATIENCE;
        let awaited = state.awaited.entry((key.clone(), version)).or_insert((echo, late));
        *awaited = (if awaited.0 == Echo::Known { Echo::Known } else { echo }, late);
    }

    /// Passes a trigger on to the queue. `None` for an echo, and for a trigger during a run, which is kept.
    pub(crate) fn pass(&self, trigger: Trigger) -> Option<Trigger> {
        let mut state = self.state();
        if let Some(version) = &trigger.version
            && !state.awaited.is_empty()
            && let Some((echo, _)) = state.awaited.remove(&(trigger.key.clone(), version.clone()))
            && echo.is(&trigger)
        {
            return None;
        }
        match state.runs.get_mut(&trigger.key) {
            Some(kept) if kept.len() < KEPT => {
                kept.push(trigger);
                None
            }
            _ => Some(trigger),
        }
    }

    /// Forgets a deleted object, and the triggers kept for its run.
    pub(crate) fn gone(&self, key: &ObjectKey) {
        if let Some(kept) = self.state().runs.get_mut(key) {
            kept.clear();
        }
    }
}

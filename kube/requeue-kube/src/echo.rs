//! Which events are the echo of what a run wrote itself.
//!
//! A reconciler that says what it wrote ([`Current::wrote`](crate::Current::wrote)) is not run again by the watch
//! event of that write. The event may come before the reconciler has the answer of its write, so triggers that
//! come during a run are kept until it ends: those that turn out to be echoes are left out, the others go to the
//! queue while the key is still held there. An echo may come after the run as well; its version is remembered
//! until then.
//!
//! The API server's answer does not say who made the version that it returns. A write that changes nothing returns
//! the newest version there is, and somebody else may have made that one a moment ago, so that its event has not come
//! yet. That event must run the object. So a version is an echo only if nobody else can have made it, or if it makes no
//! difference who did: [`Echo`].

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

/// Whether what is asked for differs between two versions of an object. A kind without generations (a
/// `ConfigMap`, say) shows no difference between what is asked for and its status, so that each of its versions
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

/// Which event of a version is an echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    /// Any: the run knows what this version says.
    Known,
    /// That by which the object is new: a version that a write has found there would have had its event before.
    IfNew,
}

impl Echo {
    fn is(self, trigger: &Trigger) -> bool {
        self == Self::Known || trigger.is_new
    }
}

/// So many triggers of a run are kept; those beyond go to the queue at once, and then the key runs again.
const KEPT: usize = 64;
/// An echo that has not come after this time does not come: the write changed nothing, or nobody watches it.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Echoes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The triggers that came during the run, by the key that runs.
    runs: HashMap<ObjectKey, Vec<Trigger>>,
    /// What runs wrote and has not come back, with the time after which it does not come any more.
    awaited: HashMap<(ObjectKey, Version), (Echo, Instant)>,
    /// `awaited` is cleared of what is late when it has grown to this.
    clear_at: usize,
}

impl Echoes {
    fn state(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run of this key begins.
    pub(crate) fn begin(&self, key: &ObjectKey) {
        self.state().runs.insert(key.clone(), Vec::new());
    }

    /// The run has ended: what came meanwhile and is no echo.
    #[must_use]
    pub(crate) fn end(&self, key: &ObjectKey) -> Vec<Trigger> {
        self.state().runs.remove(key).unwrap_or_default()
    }

    /// The run of this key wrote this version, or knows what it says.
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

    /// What the queue is to hear of this trigger now: nothing of an echo, and nothing yet of what comes during
    /// a run.
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

    /// The object is gone, and with it what its run would be triggered by.
    pub(crate) fn gone(&self, key: &ObjectKey) {
        if let Some(kept) = self.state().runs.get_mut(key) {
            kept.clear();
        }
    }
}

//! Causes: why an object is reconciled.

use crate::ObjectKey;
use std::fmt;
use std::sync::Arc;

/// One reason why an object is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The first list of all objects had it, or the process has become the leader.
    Listed,
    /// The desired state has changed: generation, labels, annotations, finalizers, owners, or a deletion has
    /// begun.
    Changed,
    /// Nothing of that has changed, but the object has another version: mostly its status.
    StatusChanged,
    /// A related object was created, changed or deleted.
    Related {
        /// The kind of the related object.
        kind: Arc<str>,
        /// The related object.
        key: ObjectKey,
    },
    /// All objects are looked at, because a list of a related kind showed changes that no event had reported:
    /// some of its objects are gone, or the kind could not be listed before.
    Swept {
        /// The related kind.
        kind: Arc<str>,
    },
    /// The program requested it: `reconcile_on`, `reconcile_all_on` or `reconcile_now`.
    Asked,
    /// Its last run requested this one, by [`Action::requeue`](crate::Action::requeue) or the resync of the
    /// configuration.
    Requeued,
    /// Its last run failed.
    Retry {
        /// Number of failed runs in a row.
        failures: u32,
    },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed => f.write_str("listed"),
            Self::Changed => f.write_str("changed"),
            Self::StatusChanged => f.write_str("status changed"),
            Self::Related { kind, key } => write!(f, "{kind} {key}"),
            Self::Swept { kind } => write!(f, "list of {kind}"),
            Self::Asked => f.write_str("asked for"),
            Self::Requeued => f.write_str("requeued"),
            Self::Retry { failures } => write!(f, "retry after {failures} failures"),
        }
    }
}

/// The causes of one run, each once, in the order in which they came.
///
/// Triggers that come while an object waits become one run with the causes of all. The first eight related
/// objects are named and the rest is counted, so that a waiting object takes bounded memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    causes: Vec<Cause>,
    more_related: u64,
}

/// Maximum number of related objects that are named.
const NAMED: usize = 8;

impl Causes {
    pub(crate) fn of(cause: Cause) -> Self {
        Self { causes: vec![cause], more_related: 0 }
    }

    pub(crate) fn add(&mut self, cause: Cause) {
        if self.causes.contains(&cause) {
            return;
        }
        let is_related = |cause: &Cause| matches!(cause, Cause::Related { .. });
        if is_related(&cause) && self.causes.iter().filter(|cause| is_related(cause)).count() >= NAMED {
            self.more_related += 1;
        } else {
            self.causes.push(cause);
        }
    }

    pub(crate) fn join(&mut self, later: Self) {
        self.more_related += later.more_related;
        later.causes.into_iter().for_each(|cause| self.add(cause));
    }

    /// The named causes.
    pub fn iter(&self) -> impl Iterator<Item = &Cause> {
        self.causes.iter()
    }

    /// Whether this is one of the causes.
    #[must_use]
    pub fn contains(&self, cause: &Cause) -> bool {
        self.causes.contains(cause)
    }

    /// Number of related objects beyond those named.
    #[must_use]
    pub fn more_related(&self) -> u64 {
        self.more_related
    }
}

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, cause) in self.causes.iter().enumerate() {
            if nth > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{cause}")?;
        }
        if self.more_related > 0 {
            write!(f, " and {} more related", self.more_related)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn related(n: u32) -> Cause {
        Cause::Related { kind: "ConfigMap".into(), key: ObjectKey::new(Some("a"), &n.to_string()) }
    }

    #[test]
    fn each_cause_stands_once_in_the_order_in_which_it_came() {
        let mut causes = Causes::of(Cause::Changed);
        for cause in [Cause::Listed, Cause::Changed, related(1), related(1)] {
            causes.add(cause);
        }
        assert_eq!(causes.to_string(), "changed, listed, ConfigMap a/1");
    }

    #[test]
    fn a_thousand_related_objects_take_room_for_eight() {
        let mut causes = Causes::default();
        (0..1000).for_each(|n| causes.join(Causes::of(related(n))));
        assert_eq!((causes.iter().count(), causes.more_related()), (8, 992));
        causes.add(Cause::Changed);
        assert!(causes.contains(&Cause::Changed));
    }
}

//! The cause of a run.

use std::path::PathBuf;

use requeue_watch::Event;
use serde::{Deserialize, Serialize};

use super::payload::Payload;

/// The cause of a run, from the key's triggers since the last run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Option<Payload>", into = "Option<Payload>")]
pub(crate) struct Cause {
    /// Number of the latest trigger.
    pub(crate) number: u64,
    /// The last observation of a watcher.
    pub(crate) seen: Option<Seen>,
    /// The key was also read from the input, beside a watcher.
    pub(crate) typed: bool,
    /// The values for PROGRAM.
    pub(crate) payload: Option<Payload>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) event: Event,
    pub(crate) relative: PathBuf,
}

/// The part that `--state` stores: it watches nothing.
impl From<Cause> for Option<Payload> {
    fn from(cause: Cause) -> Self {
        cause.payload
    }
}

impl From<Option<Payload>> for Cause {
    fn from(payload: Option<Payload>) -> Self {
        Self { payload, ..Self::default() }
    }
}

impl Cause {
    /// Merges two causes of one run.
    pub(crate) fn merge(&mut self, other: Self) {
        let later = other.number > self.number;
        self.number = self.number.max(other.number);
        self.typed |= other.typed;
        Payload::join(&mut self.payload, other.payload);
        // That a file is there says less than that it was written.
        let says = |seen: &Option<Seen>| match seen {
            None => 0,
            Some(Seen { event: Event::Initial, .. }) => 1,
            Some(_) => 2,
        };
        let (ours, theirs) = (says(&self.seen), says(&other.seen));
        if theirs > ours || (theirs == ours && later) {
            self.seen = other.seen;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(event: Event) -> Option<Seen> {
        Some(Seen { event, relative: "a".into() })
    }

    #[test]
    fn the_latest_event_counts_but_being_there_never_hides_another() {
        let cause = |number, event| Cause { number, seen: seen(event), typed: false, payload: None };
        let none = Cause { number: 9, seen: None, typed: false, payload: None };
        for (mut a, b, event) in [
            (cause(1, Event::Write), cause(2, Event::Delete), Event::Delete),
            (cause(2, Event::Write), cause(1, Event::Delete), Event::Write),
            (cause(1, Event::Write), cause(2, Event::Initial), Event::Write),
            (cause(1, Event::Initial), cause(2, Event::Write), Event::Write),
            (cause(1, Event::Write), none, Event::Write),
        ] {
            let number = a.number.max(b.number);
            a.merge(b);
            assert_eq!(a, cause(number, event));
        }
    }
}

//! Letters of other processes, done by the queue that they are for.

use crate::inbox::InboxRow;
use crate::queue::Inner;
use crate::rows::{TriggerRow, Wall, micros, wall};
use crate::run_ledger::{Begun, Runs};
use crate::runner_conn::RunnerConn;
use crate::schedule::Rule;
use crate::schema::not_applied;
use crate::writer::{Intake, Obeyed, OnWritten};
use requeue::{Refused, Scope, Source};
use requeue_engine::{EngineError, Key, StoredTrigger, Trigger};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// Time in microseconds after which a run is shown to others.
const SHOWN_AFTER: Wall = 40_000;

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> Intake for Inner<K, V> {
    fn trigger(
        self: Arc<Self>,
        request: &InboxRow,
        ticket: u64,
    ) -> Result<(TriggerRow, OnWritten), EngineError> {
        let InboxRow { at, key, delay, priority, every, value, .. } = request;
        let known = K::from_bytes(key.clone()).map_err(EngineError::Codec)?;
        let priority = self.taken(*priority);
        match Source::front(&self.front).refuses(priority) {
            None => {}
            Some(Refused::ShutDown) => return Err(EngineError::ShutDown),
            Some(reason) => return Err(not_applied(reason.to_string())),
        }
        let value = self.taken_value(value.as_deref())?;
        let row = request.trigger(ticket, self.merge.as_ref());
        // it has waited in the file for a while
        let since = (self.ledger.clocks.wall)().saturating_sub(*at);
        let waited = Duration::from_micros(u64::try_from(since).unwrap_or(0));
        let delay = delay.map(|delay| delay.saturating_sub(waited)).filter(|left| !left.is_zero());
        let options = StoredTrigger { delay, priority, absorbs: request.absorbs() };
        let due = (*at).saturating_add(request.delay.map_or(0, micros));
        let rule = Rule::stored(request.rule.as_deref(), due);
        let trigger = Trigger { key: known, value, options, every: *every, teller: None };
        let told = move |written: Result<(), EngineError>| {
            if written.is_ok() {
                drop(self.apply(trigger, ticket, rule));
            }
        };
        Ok((row, Box::new(told)))
    }

    fn join(&self, first: &mut InboxRow, later: &InboxRow) -> bool {
        let value = match (&first.value, &later.value, &self.merge) {
            (Some(older), Some(newer), Some(merge)) => match merge(older, newer) {
                Ok(merged) => Some(merged),
                Err(_) => return false,
            },
            (older, newer, _) => newer.clone().or_else(|| older.clone()),
        };
        first.value = value;
        first.priority = first.priority.max(later.priority);
        first.every = later.every.or(first.every);
        if later.absorbs() {
            first.what.clone_from(&later.what);
        }
        true
    }

    fn is_shut_down(&self) -> bool {
        self.front.shutting_down()
    }

    fn show_runs(&self, conn: &RunnerConn) -> bool {
        let (queue, now) = (self.ledger.queue, wall());
        let database = conn.database();
        let mut runs = self.ledger.runs();
        let Runs { begun, over, .. } = &mut *runs;
        for key in over.drain(..) {
            database.hide_run(queue, &key.to_bytes());
        }
        let mut some_are_new = false;
        let mut room = true;
        for (key, Begun { at, is_shown, .. }) in begun.iter_mut().filter(|(_, begun)| !begun.is_shown) {
            if now.saturating_sub(*at) < SHOWN_AFTER {
                some_are_new = true;
            } else if room {
                *is_shown = database.show_run(queue, &key.to_bytes(), *at);
                room = *is_shown;
            }
        }
        some_are_new
    }

    fn lose(&self) {
        self.front.pause(Scope::Queue);
        Source::front(&self.front).cancel_runs();
    }

    fn obey(&self, request: &InboxRow) -> Obeyed {
        let key = || K::from_bytes(request.key.clone());
        match &*request.what {
            "cancel" => Obeyed::Answer(match key() {
                Ok(key) => {
                    let was_scheduled = self.ledger.unschedule(&key);
                    let cancelled = self.front.cancel(&key).is_some() || was_scheduled;
                    if cancelled { "cancelled" } else { "nothing" }.to_owned()
                }
                Err(e) => e.to_string(),
            }),
            "retry" => match key() {
                Ok(_) => Obeyed::Trigger("ready".to_owned()),
                Err(e) => Obeyed::Answer(e.to_string()),
            },
            "pause" => {
                self.front.pause(Scope::Queue);
                Obeyed::InFile
            }
            "resume" => {
                self.front.resume(Scope::Queue);
                Obeyed::InFile
            }
            _ => Obeyed::InFile,
        }
    }
}

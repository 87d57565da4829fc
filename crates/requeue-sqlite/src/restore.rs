//! A queue as the file has it, given to the queue in memory.

use crate::key;
use crate::queue::Inner;
use crate::rows::{Clocks as _, Stored, Wall, micros};
use crate::run_ledger::Ignored;
use crate::runner_conn::RunnerConn;
use crate::schedule::Rule;
use crate::schema::not_applied;
use requeue::{Add, Instant, Refused, Scope, Source, UnfinishedKey};
use requeue_engine::{EngineError, Key};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> Inner<K, V> {
    /// Restores the file's keys in the queue in memory. Keys that fail are recorded in `dead`, with the
    /// reason.
    pub(crate) fn restore(
        &self,
        conn: &mut RunnerConn,
        dead: &mut Vec<(Vec<u8>, String)>,
    ) -> Result<u64, EngineError> {
        let (number, clocks) = (self.ledger.queue, &self.ledger.clocks);
        let (now, wall_now) = (clocks.now(), clocks.wall());
        let last = conn.read(number, |stored| {
            let bytes = stored.key.clone();
            match self.restore_key(stored, now, wall_now) {
                Err(EngineError::Codec(why)) => dead.push((bytes, why.to_string())),
                restored => restored?,
            }
            Ok(())
        })?;
        for (key, every, rule) in conn.schedule(number)? {
            let Ok(key) = K::from_bytes(key) else { continue };
            let known = self.front.state(&key);
            let due = known.as_ref().and_then(|known| known.waiting_until);
            let due = due.map_or(wall_now, |due| wall_now.saturating_add(micros(clocks.until(due))));
            self.ledger.runs().set_every(&key, every, Rule::stored(rule.as_deref(), due));
            if known.is_none_or(|known| !known.ready && known.waiting_until.is_none()) {
                // its last run ended, and the process before the next was noted
                let next = self.ledger.runs().next(&key, wall_now, wall_now).filter(|_| rule.is_some());
                self.ledger.comes_again(&key, next);
            }
        }
        if conn.is_paused(number)? {
            self.front.pause(Scope::Queue);
        }
        Ok(last)
    }

    fn restore_key(&self, stored: Stored, now: Instant, wall_now: Wall) -> Result<(), EngineError> {
        let Stored { key, ready, due, delay, failures, attempt, priority, value } = stored;
        let key = K::from_bytes(key).map_err(EngineError::Codec)?;
        let (value, priority) = (self.taken_value(value.as_deref())?, self.taken(priority));
        let front = &self.front;
        let restored = |key, value, due| {
            let mut known = UnfinishedKey::new(key);
            (known.failures, known.attempt, known.priority) = (failures, attempt, priority);
            (known.value, known.due) = (value, due);
            known
        };
        // never longer than it was to wait in all, also if the clock was set back
        let left = due.map(|due| due.saturating_sub(wall_now).clamp(0, delay.unwrap_or(i64::MAX)));
        let due = left.map(|left| now + Duration::from_micros(left.unsigned_abs()));
        let refused = |e: requeue::AddError<K, V>| not_applied(e.reason.to_string());
        match (ready, due) {
            (true, None) | (false, Some(_)) => {
                front.restore(restored(key, value, due)).map_err(refused)?;
            }
            (true, Some(due)) => {
                front.restore(restored(key.clone(), value, None)).map_err(refused)?;
                front.add_with(key, Add::at(due).priority(priority)).map_err(refused)?;
            }
            // only failures are known of it
            (false, None) => {
                front.restore(restored(key.clone(), value, None)).map_err(refused)?;
                drop(front.cancel(&key));
            }
        }
        Ok(())
    }

    /// The value as this queue has it: none, if it has no values.
    pub(crate) fn taken_value(&self, value: Option<&[u8]>) -> Result<Option<V>, EngineError> {
        if value.is_some() && self.merge.is_none() {
            self.ledger.ignored.note(Ignored::VALUES);
            return Ok(None);
        }
        value.map(key::decode).transpose()
    }

    /// The priority for this queue: 0 if it has no priorities.
    pub(crate) fn taken(&self, priority: i16) -> i16 {
        if priority != 0 && Source::front(&self.front).refuses(priority) == Some(Refused::NoPriorities) {
            self.ledger.ignored.note(Ignored::PRIORITIES);
            return 0;
        }
        priority
    }
}

//! Where triggers are written: whatever is noted while one statement goes on is written by the next.

use crate::link::{Failed, Link};
use crate::sleepers::{Sleepers, WAKE};
use crate::typed::Param;
use futures_util::future::join;
use requeue::Added;
use serde_json::value::RawValue;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_postgres::types::Json;

/// At most so many triggers are written at once, so that nobody waits for an endless statement.
const MOST: usize = 1000;

pub(crate) type Told = Box<dyn FnOnce(Result<Added, Failed>) + Send>;

/// A trigger that is to be written.
pub(crate) struct Trigger {
    pub(crate) queue: i32,
    pub(crate) key: Box<[u8]>,
    pub(crate) delay: Option<Duration>,
    pub(crate) priority: i16,
    pub(crate) value: Option<Box<RawValue>>,
    pub(crate) every: Option<Duration>,
    /// The name of the key's group.
    pub(crate) group: Option<Vec<u8>>,
}

impl Trigger {
    /// Whether one statement can write both.
    fn goes_with(&self, other: &Self) -> bool {
        self.queue == other.queue
            && self.value.is_some() == other.value.is_some()
            && self.every == other.every
    }
}

pub(crate) struct Desk {
    sleepers: Arc<Sleepers>,
    noted: Mutex<VecDeque<(Trigger, Told)>>,
    wake: Notify,
}

/// Microseconds, 190,000 years at most: PostgreSQL's time ends in the year 294,276.
pub(crate) fn micros(duration: Duration) -> i64 {
    const LONGEST: i64 = 6_000_000_000_000_000_000;
    i64::try_from(duration.as_micros()).unwrap_or(LONGEST).min(LONGEST)
}

impl Desk {
    pub(crate) fn new(sleepers: Arc<Sleepers>) -> Self {
        Self { sleepers, noted: Mutex::default(), wake: Notify::new() }
    }

    pub(crate) fn note(&self, trigger: Trigger, told: Told) {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).push_back((trigger, told));
        self.wake.notify_one();
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// What one statement can write of what is noted.
    fn next(&self) -> (Vec<Trigger>, Vec<Told>) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let most = noted.front().map_or(0, |(first, _)| {
            noted.iter().take(MOST).take_while(|(trigger, _)| trigger.goes_with(first)).count()
        });
        noted.drain(..most).unzip()
    }

    /// Writes what is noted, until the engine is closed.
    ///
    /// Who waits for a statement is told while the next one is under way: to wake a thread takes as long as to look a key up.
    pub(crate) async fn works(self: Arc<Self>, mut link: Link, closing: watch::Receiver<bool>) {
        // whether the statement before has changed something: then this one probably does
        let mut changes = true;
        let mut before = Written::default();
        loop {
            let (triggers, told) = self.next();
            let Some(queue) = triggers.first().map(|it| it.queue) else {
                std::mem::take(&mut before).tell();
                if *closing.borrow() {
                    return;
                }
                self.wake.notified().await;
                continue;
            };
            let tells = async {
                // the connection's task sends
                tokio::task::yield_now().await;
                std::mem::take(&mut before).tell();
            };
            let wakes = changes.then_some(&*self.sleepers.name);
            let (said, ()) = join(write(&mut link, &triggers, wakes), tells).await;
            let expected = changes;
            changes = said.as_ref().map_or(true, |changed| !changed.is_empty());
            if changes {
                self.sleepers.wake(queue);
            }
            let mut is_owed = said.is_ok() && changes && !expected;
            if matches!(said, Err(Failed::Data(_))) && triggers.len() > 1 {
                // one of them is at fault, and the others are written without it
                for (trigger, told) in triggers.into_iter().zip(told) {
                    let said = write(&mut link, std::slice::from_ref(&trigger), None).await;
                    Written { triggers: vec![trigger], told: vec![told], said }.tell();
                }
                // only now are they in line
                self.sleepers.wake(queue);
                is_owed = true;
            } else {
                before = Written { triggers, told, said };
            }
            if is_owed {
                std::mem::take(&mut before).tell();
                // whoever sleeps looks by itself a second later if this fails
                drop(link.query(WAKE, &[&queue, &self.sleepers.name]).await);
            }
        }
    }
}

/// What has become of each key that was changed.
type Changed = HashMap<Vec<u8>, i16>;

/// Where `wakes` names this process the others' wake-up is on its way behind the triggers. It costs the server as much as
/// triggers that change nothing, and goes later, if it is needed, where those are expected.
async fn write(link: &mut Link, triggers: &[Trigger], wakes: Option<&str>) -> Result<Changed, Failed> {
    let Some(first) = triggers.first() else { return Ok(Changed::new()) };
    let keys: Vec<&[u8]> = triggers.iter().map(|it| &*it.key).collect();
    let delays: Vec<i64> = triggers.iter().map(|it| it.delay.map_or(0, micros)).collect();
    let ranks: Vec<i32> = triggers.iter().map(|it| -i32::from(it.priority)).collect();
    let values: Option<Vec<_>> =
        first.value.is_some().then(|| triggers.iter().map(|it| it.value.as_ref().map(Json)).collect());
    let every = first.every.map(micros);
    let has_groups = triggers.iter().any(|it| it.group.is_some());
    let groups: Option<Vec<_>> = has_groups.then(|| triggers.iter().map(|it| it.group.as_deref()).collect());
    let add = "select k, what from requeue.add($1, $2, $3, $4, $5, $6, $7)";
    let params: [&dyn Param; 7] = [&first.queue, &keys, &delays, &ranks, &values, &every, &groups];
    let rows = match wakes {
        Some(who) => link.query_with_another(add, &params, WAKE, &[&first.queue, &who]).await?,
        None => link.query(add, &params).await?,
    };
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// A statement's triggers, who waits for them, and what was said.
struct Written {
    triggers: Vec<Trigger>,
    told: Vec<Told>,
    said: Result<Changed, Failed>,
}

impl Default for Written {
    fn default() -> Self {
        Self { triggers: Vec::new(), told: Vec::new(), said: Ok(Changed::new()) }
    }
}

impl Written {
    /// Tells everybody, in the order in which they were noted: the first trigger of a key has changed it, if one has.
    fn tell(self) {
        let Self { triggers, told, said } = self;
        match said {
            Ok(mut changed) => {
                for (Trigger { key, delay, .. }, told) in triggers.iter().zip(told) {
                    let is_now = delay.is_none_or(|delay| delay.is_zero());
                    let added = match (changed.get(&**key).copied(), is_now) {
                        (Some(1), true) => Added::Ready,
                        (Some(2), true) => Added::Dirty,
                        (Some(3), false) => Added::Waiting,
                        _ => Added::Coalesced,
                    };
                    if added != Added::Coalesced {
                        changed.remove(&**key);
                    }
                    told(Ok(added));
                }
            }
            Err(failed) => {
                for told in told {
                    told(Err(match &failed {
                        Failed::Not(why) => Failed::Not(why.to_string().into()),
                        Failed::Data(why) => Failed::Data(why.to_string().into()),
                        Failed::Maybe(why) => Failed::Maybe(why.to_string().into()),
                        Failed::LeaseLost => Failed::LeaseLost,
                    }));
                }
            }
        }
    }
}

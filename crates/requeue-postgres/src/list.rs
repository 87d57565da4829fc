//! The keys of a queue, listed page by page.

use crate::add_batcher::priority;
use crate::link::Link;
use crate::processes::holder;
use requeue_engine::{EngineError, Listed, Status};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::Json;

/// Number of rows per call, so that no call takes long in a queue of millions.
pub(crate) const PAGE: i32 = 20_000;

pub(crate) fn age(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Sort key of listed keys: those in line first and in order.
pub(crate) type Place = (bool, i16, i32, i64, bool, Option<i64>);

/// Progress of a listing.
#[derive(Default)]
pub(crate) struct Reading {
    /// The only key to list, if it is one.
    key: Option<Vec<u8>>,
    /// Lists keys that begin with this.
    prefix: Vec<u8>,
    triggers: Option<Triggers>,
    after: Option<Vec<u8>>,
    is_over: bool,
}

impl Reading {
    /// Lists this key alone.
    pub(crate) fn of(key: Vec<u8>) -> Self {
        Self { key: Some(key), ..Self::default() }
    }

    /// Lists the keys that begin with `prefix`.
    pub(crate) fn with_prefix(prefix: Vec<u8>) -> Self {
        Self { prefix, ..Self::default() }
    }

    /// Reads all pages as one.
    pub(crate) async fn all(mut self, link: &mut Link, queue: i32) -> Result<Vec<Listed>, EngineError> {
        let mut all = Vec::new();
        while let Some(page) = self.page(link, queue).await? {
            all.extend(page);
        }
        sort(&mut all);
        Ok(all.into_iter().map(|(_, key)| key).collect())
    }

    /// Reads the next page. Unread triggers are read first: one that is read by a process meanwhile is found in
    /// both places, and not in neither.
    pub(crate) async fn page(
        &mut self,
        link: &mut Link,
        queue: i32,
    ) -> Result<Option<Vec<(Place, Listed)>>, EngineError> {
        if self.is_over {
            return Ok(None);
        }
        if self.triggers.is_none() {
            let mut triggers = Triggers::read(link, queue, self.key.as_ref()).await?;
            triggers.of_keys.iter_mut().for_each(|listed| {
                listed.take_if(|listed| !listed.key.starts_with(&self.prefix));
            });
            self.triggers = Some(triggers);
        }
        let page = "select key, state, dirty, due_us, every_us, failures, attempt, priority, value, age_us, error, place, host, pid, application,
                    rule from requeue.listed($1, $2, $3, $4)";
        let mut keys: Vec<(Place, Listed)> = Vec::new();
        // Pages begin behind a key, and the first of those with a prefix may be the prefix itself.
        if self.after.is_none() && !self.prefix.is_empty() {
            let of_prefix = link.query(page, &[&queue, &Some(&self.prefix), &self.after, &PAGE]).await?;
            keys.extend(of_prefix.iter().map(read));
            self.after = Some(self.prefix.clone());
        }
        let rows = link.query(page, &[&queue, &self.key, &self.after, &PAGE]).await?;
        keys.extend(rows.iter().map(read).take_while(|(_, listed)| listed.key.starts_with(&self.prefix)));
        let has_last = rows.last().is_none_or(|row| row.get::<_, &[u8]>(0).starts_with(&self.prefix));
        self.after = keys.last().map(|(_, listed)| listed.key.clone()).or(self.after.take());
        self.is_over = !has_last || rows.len() < PAGE as usize;
        sort(&mut keys);
        if let Some(triggers) = &mut self.triggers {
            keys.iter_mut().for_each(|(_, listed)| triggers.reach(listed));
            if self.is_over {
                let others = triggers.of_keys.iter_mut().filter_map(Option::take);
                keys.extend(
                    others.zip(0..).map(|(listed, nth)| ((true, i16::MAX, 0, nth, true, None), listed)),
                );
            }
        }
        Ok(Some(keys))
    }
}

fn sort(keys: &mut [(Place, Listed)]) {
    keys.sort_by(|(a, key), (b, other)| a.cmp(b).then_with(|| key.key.cmp(&other.key)));
}

fn value(row: &Row, nth: usize) -> Option<String> {
    row.get::<_, Option<Json<Box<RawValue>>>>(nth).map(|Json(value)| value.get().to_owned())
}

fn read(row: &Row) -> (Place, Listed) {
    let number = |nth: usize| u32::try_from(row.get::<_, i32>(nth)).unwrap_or(0);
    let (state, due): (i16, Option<i64>) = (row.get(1), row.get(3));
    let status = match (state, due) {
        (1, _) => Status::Ready,
        (2, _) => Status::Held,
        (3, _) => Status::Dead,
        (_, Some(_)) => Status::Waiting,
        (_, None) => Status::Idle,
    };
    let mut listed = Listed::new(row.get(0), status);
    listed.dirty = row.get(2);
    listed.due_in = due.map(age);
    listed.schedule = row.get(15);
    listed.every = row.get::<_, Option<i64>>(4).map(age).filter(|_| listed.schedule.is_none());
    listed.failures = number(5);
    listed.attempt = number(6);
    listed.priority = priority(row.get(7));
    listed.value = value(row, 8);
    listed.age = age(row.get(9));
    listed.error = row.get(10);
    listed.holder = holder(row.get(12), row.get(13), row.get(14));
    ((state != 1, state, -i32::from(listed.priority), row.get(11), due.is_none(), due), listed)
}

/// Unread triggers of users' transactions, one entry a key.
struct Triggers {
    of_keys: Vec<Option<Listed>>,
    /// Index of each key in `of_keys`.
    places: HashMap<Vec<u8>, usize>,
}

impl Triggers {
    async fn read(link: &mut Link, queue: i32, key: Option<&Vec<u8>>) -> Result<Self, EngineError> {
        let mut this = Self { of_keys: Vec::new(), places: HashMap::new() };
        let mut after = 0_i64;
        loop {
            let page =
                "select key, delay_us, priority, value, age_us, id from requeue.triggers($1, $2, $3, $4)";
            let rows = link.query(page, &[&queue, &key, &after, &PAGE]).await?;
            for row in &rows {
                let delay: i64 = row.get(1);
                let status = if delay > 0 { Status::Waiting } else { Status::Ready };
                let mut listed = Listed::new(row.get(0), status);
                listed.due_in = (delay > 0).then(|| age(delay));
                listed.priority = priority(row.get(2));
                listed.value = value(row, 3);
                listed.age = age(row.get(4));
                after = row.get(5);
                match this.places.get(&listed.key).and_then(|place| this.of_keys[*place].as_mut()) {
                    Some(before) => triggered(before, &listed),
                    None => {
                        this.places.insert(listed.key.clone(), this.of_keys.len());
                        this.of_keys.push(Some(listed));
                    }
                }
            }
            if rows.len() < PAGE as usize {
                return Ok(this);
            }
        }
    }

    /// Applies the triggers of a key to its state.
    fn reach(&mut self, listed: &mut Listed) {
        let trigger = self.places.get(&listed.key).and_then(|place| self.of_keys[*place].take());
        if let Some(trigger) = trigger {
            triggered(listed, &trigger);
        }
    }
}

/// Applies a trigger to the state of its key.
fn triggered(listed: &mut Listed, trigger: &Listed) {
    let is_now = trigger.status == Status::Ready;
    match listed.status {
        Status::Held if is_now => listed.dirty = true,
        Status::Waiting | Status::Idle | Status::Dead if is_now => listed.status = Status::Ready,
        Status::Idle | Status::Dead => listed.status = Status::Waiting,
        _ => {}
    }
    listed.due_in = [listed.due_in, trigger.due_in].into_iter().flatten().min();
    listed.priority = listed.priority.max(trigger.priority);
}

//! What is known of the keys of a queue, for who looks at the file: their rows, what the inbox asks for on top of that,
//! and which of them run.

use crate::letters::{Letter, unread};
use crate::lock::Running;
use crate::rows::{Wall, duration, micros};
use requeue::engine::{Listed, Status};
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

/// Keys are counted as far as this.
pub(crate) const MOST_COUNTED: u64 = 1_000_000;
/// Letters are looked at as far as this.
const MOST_LETTERS: usize = 100_000;
/// So many keys are read in one look.
pub(crate) const PAGE: usize = 1000;

/// The number of the queue of this name, if there is one.
pub(crate) fn number(connection: &Connection, version: u32, name: &str) -> rusqlite::Result<Option<i64>> {
    if version == 0 {
        return Ok(None);
    }
    connection.query_row("select id from queue where name = ?1", [name], |row| row.get(0)).optional()
}

/// What the inbox asks for that nobody has read yet, of keys and of the queue.
#[derive(Default)]
pub(crate) struct Pending {
    /// By key, what its triggers come to.
    adds: HashMap<Vec<u8>, Letter>,
    /// The queue is paused, or not any more.
    pub(crate) paused: Option<bool>,
    /// There is more than was read.
    pub(crate) is_cut: bool,
}

impl Pending {
    /// The inbox of a queue, or what it has of one key.
    pub(crate) fn read(
        connection: &Connection,
        version: u32,
        queue: i64,
        key: Option<&[u8]>,
    ) -> rusqlite::Result<Self> {
        let mut pending = Self::default();
        let letters = if version >= 3 {
            unread(connection, &[queue], &[], MOST_LETTERS)?
        } else {
            older(connection, version, queue)?
        };
        pending.is_cut = letters.len() >= MOST_LETTERS;
        for letter in letters {
            match &*letter.what {
                "pause" | "resume" => pending.paused = Some(letter.what == "pause"),
                "add" if key.is_none_or(|key| key == letter.key) => pending.add(letter),
                _ => {}
            }
        }
        Ok(pending)
    }

    fn add(&mut self, letter: Letter) {
        let Some(known) = self.adds.get_mut(&letter.key) else {
            self.adds.insert(letter.key.clone(), letter);
            return;
        };
        known.delay = match (due(known), due(&letter)) {
            (Some(one), Some(other)) => Some(duration(one.min(other).saturating_sub(known.at).max(0))),
            _ => None,
        };
        known.priority = known.priority.max(letter.priority);
        if letter.every.is_some() {
            (known.every, known.rule) = (letter.every, letter.rule);
        }
        known.value = letter.value.or(known.value.take());
    }

    /// The keys that stand in the inbox alone are the last in line.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&Vec<u8>, &Letter)> {
        self.adds.iter()
    }

    /// What is known of a key, with what is asked for.
    fn over(&self, key: &[u8], listed: Option<Listed>, now: Wall) -> Option<Listed> {
        let Some(letter) = self.adds.get(key) else { return listed };
        let due = due(letter).filter(|due| *due > now);
        let status = if due.is_some() { Status::Waiting } else { Status::Ready };
        let mut listed = listed.unwrap_or_else(|| {
            let mut listed = Listed::new(key.to_owned(), status);
            listed.age = since(letter.at, now);
            listed
        });
        if listed.status != Status::Ready {
            listed.status = status;
        }
        let left = due.map(|due| since(now, due));
        listed.due_in = listed.due_in.into_iter().chain(left).min();
        listed.error = None;
        listed.priority = listed.priority.max(letter.priority);
        if letter.every.is_some() {
            (listed.every, listed.schedule) = comes_again(letter.every, letter.rule.clone());
        }
        let value = letter.value.as_ref().map(|value| String::from_utf8_lossy(value).into_owned());
        listed.value = listed.value.or(value);
        Some(listed)
    }

    fn makes_ready(&self, key: &[u8], now: Wall) -> bool {
        self.adds.get(key).is_some_and(|letter| due(letter).is_none_or(|due| due <= now))
    }
}

/// When a letter's key is due. `None`: now.
fn due(letter: &Letter) -> Option<Wall> {
    letter.delay.map(|delay| letter.at.saturating_add(micros(delay)))
}

/// The inbox of a schema before 3.
fn older(connection: &Connection, version: u32, queue: i64) -> rusqlite::Result<Vec<Letter>> {
    let every = if version >= 2 { "every" } else { "null" };
    let letters = format!(
        "select what, at, key, delay, priority, {every} from inbox where answer is null and queue = ?1
         order by id limit {MOST_LETTERS}"
    );
    let mut letters = connection.prepare(&letters)?;
    let letters = letters.query_map([queue], |row| {
        let key: Option<Vec<u8>> = row.get(2)?;
        Ok(Letter {
            at: row.get(1)?,
            delay: row.get::<_, Option<i64>>(3)?.map(duration),
            priority: row.get(4)?,
            every: row.get::<_, Option<i64>>(5)?.map(duration),
            ..Letter::new(queue, &row.get::<_, String>(0)?, &key.unwrap_or_default())
        })
    })?;
    letters.collect()
}

pub(crate) fn since(at: Wall, now: Wall) -> Duration {
    Duration::from_micros(u64::try_from(now.saturating_sub(at)).unwrap_or(0))
}

/// The keys of a queue in the order in which they are listed: those in line by their places, those that wait by when they are due,
/// those that are dead. They stand one behind the other in one piece of memory.
#[derive(Default)]
pub(crate) struct Order {
    bytes: Vec<u8>,
    keys: Vec<(u8, i64, Range<usize>)>,
}

impl Order {
    pub(crate) fn read(
        connection: &Connection,
        queue: i64,
        pending: &Pending,
        now: Wall,
    ) -> rusqlite::Result<Self> {
        let mut order = Self::default();
        let keys = "select key, ord, ready, due, dead from item where queue = ?1";
        let mut keys = connection.prepare(keys)?;
        let mut rows = keys.query([queue])?;
        let mut alone: Vec<_> = pending.keys().collect();
        if !alone.is_empty() {
            let known = "select exists(select 1 from item where queue = ?1 and key = ?2)";
            let mut known = connection.prepare(known)?;
            let mut failed = None;
            alone.retain(|(key, _)| {
                let known = known.query_row(params![queue, key], |row| row.get::<_, bool>(0));
                !known.unwrap_or_else(|e| {
                    failed = Some(e);
                    true
                })
            });
            failed.map_or(Ok(()), Err)?;
        }
        while let Some(row) = rows.next()? {
            let (key, due) = (row.get_ref(0)?.as_bytes()?, row.get::<_, Option<i64>>(3)?);
            let (ready, dead): (bool, bool) = (row.get(2)?, row.get(4)?);
            let (rank, place) = match due {
                _ if ready => (0, row.get(1)?),
                _ if pending.makes_ready(key, now) => (1, 0),
                Some(due) if !dead => (2, due),
                _ => (if dead { 4 } else { 3 }, 0),
            };
            order.push(rank, place, key);
        }
        for (key, letter) in alone {
            let rank = if pending.makes_ready(key, now) { 1 } else { 2 };
            order.push(rank, due(letter).unwrap_or(letter.id), key);
        }
        let Self { bytes, keys } = &mut order;
        keys.sort_unstable_by(|(rank, place, key), (other_rank, other_place, other)| {
            let by_place = (rank, place).cmp(&(other_rank, other_place));
            by_place.then_with(|| bytes[key.clone()].cmp(&bytes[other.clone()]))
        });
        Ok(order)
    }

    fn push(&mut self, rank: u8, place: i64, key: &[u8]) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.keys.push((rank, place, begin..self.bytes.len()));
    }

    /// Its pages.
    pub(crate) fn pages(&self) -> impl Iterator<Item = Vec<&[u8]>> {
        self.keys.chunks(PAGE).map(|page| page.iter().map(|(_, _, key)| &self.bytes[key.clone()]).collect())
    }
}

/// What is known of a key.
pub(crate) fn state(
    connection: &Connection,
    version: u32,
    queue: i64,
    key: &[u8],
    pending: &Pending,
    running: &Running,
    now: Wall,
) -> rusqlite::Result<Option<Listed>> {
    let columns = "key, ready, due, failures, attempt, priority, value, first, dead, error";
    let rule =
        if version >= 3 { "(select text from rule where rule.id = every - (1 << 62))" } else { "null" };
    let row = if version >= 2 {
        format!(
            "select {columns}, every, {rule} from item left join schedule using (queue, key)
             where queue = ?1 and key = ?2"
        )
    } else {
        format!("select {columns}, null, null from item where queue = ?1 and key = ?2")
    };
    let mut row = connection.prepare_cached(&row)?;
    let listed = row.query_row(params![queue, key], |row| read(row, now)).optional()?;
    let Some(mut listed) = pending.over(key, listed, now) else { return Ok(None) };
    if let Some(held) = running.since(queue, key, now) {
        // a trigger that nobody has read is for the run after this
        listed.dirty = pending.makes_ready(key, now);
        listed.status = Status::Held;
        listed.age = held;
    }
    Ok(Some(listed))
}

fn read(row: &Row<'_>, now: Wall) -> rusqlite::Result<Listed> {
    let (ready, due, dead): (bool, Option<Wall>, bool) = (row.get(1)?, row.get(2)?, row.get(8)?);
    let status = match due {
        _ if dead => Status::Dead,
        _ if ready => Status::Ready,
        Some(due) if due <= now => Status::Ready,
        Some(_) => Status::Waiting,
        None => Status::Idle,
    };
    let value: Option<Vec<u8>> = row.get(6)?;
    let mut listed = Listed::new(row.get(0)?, status);
    listed.due_in = due.map(|due| since(now, due));
    listed.failures = row.get(3)?;
    listed.attempt = row.get(4)?;
    listed.priority = row.get(5)?;
    listed.value = value.map(|value| String::from_utf8_lossy(&value).into_owned());
    listed.age = since(row.get(7)?, now);
    listed.error = row.get(9)?;
    let every = row.get::<_, Option<i64>>(10)?.map(duration);
    (listed.every, listed.schedule) = comes_again(every, row.get(11)?);
    Ok(listed)
}

/// So long after each run, or at the times of a rule.
fn comes_again(every: Option<Duration>, rule: Option<String>) -> (Option<Duration>, Option<String>) {
    if rule.is_some() { (None, rule) } else { (every, None) }
}

/// How many keys do what.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) ready: u64,
    pub(crate) waiting: u64,
    pub(crate) dead: u64,
    pub(crate) oldest: Option<Wall>,
    /// There are more: it was not counted to the end.
    pub(crate) is_cut: bool,
}

impl Counts {
    pub(crate) fn read(
        connection: &Connection,
        queue: i64,
        pending: &Pending,
        now: Wall,
    ) -> rusqlite::Result<Self> {
        let counts = "select coalesce(sum(not dead and (ready or coalesce(due <= ?2, 0))), 0),
                             coalesce(sum(not dead and not ready and due > ?2), 0), coalesce(sum(dead), 0),
                             min(case when not dead and (ready or due <= ?2) then first end), count(*)
                      from (select ready, due, dead, first from item where queue = ?1 limit ?3)";
        let most = i64::try_from(MOST_COUNTED).unwrap_or(i64::MAX);
        let count = |row: &Row<'_>, nth| row.get(nth).map(i64::unsigned_abs);
        let mut counts = connection.query_row(counts, params![queue, now, most], |row| {
            Ok(Self {
                ready: count(row, 0)?,
                waiting: count(row, 1)?,
                dead: count(row, 2)?,
                oldest: row.get(3)?,
                is_cut: count(row, 4)? >= MOST_COUNTED || pending.is_cut,
            })
        })?;
        let known = "select ready or coalesce(due <= ?3, 0), due is not null, dead from item
                     where queue = ?1 and key = ?2";
        let mut known = connection.prepare(known)?;
        for (key, letter) in pending.keys() {
            let (ready, waiting, dead) = known
                .query_row(params![queue, key, now], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .optional()?
                .unwrap_or((false, false, false));
            if ready && !dead {
                continue;
            }
            counts.dead -= u64::from(dead);
            if pending.makes_ready(key, now) {
                counts.waiting -= u64::from(waiting && !dead);
                counts.ready += 1;
                counts.oldest = Some(counts.oldest.map_or(letter.at, |oldest| oldest.min(letter.at)));
            } else {
                counts.waiting += u64::from(!waiting || dead);
            }
        }
        Ok(counts)
    }
}

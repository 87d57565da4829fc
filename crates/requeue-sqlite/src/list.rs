//! The state of a queue's keys, for readers of the file: their rows, pending requests in the inbox, and
//! current runs.

use crate::inbox::{InboxRow, unread};
use crate::lock::Running;
use crate::rows::{Wall, duration, micros};
use requeue_engine::{Listed, Status};
use rusqlite::{Connection, OptionalExtension, Row, Statement, params};
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

/// Maximum number of keys counted.
pub(crate) const MOST_COUNTED: u64 = 1_000_000;
/// Maximum number of requests read.
const MOST_REQUESTS: usize = 100_000;
/// Number of keys read in the first look of a list.
pub(crate) const PAGE: usize = 1000;
/// Maximum number of keys read in one look.
const LARGEST_PAGE: usize = 32 * PAGE;
/// Maximum size of the values of a page that is larger than the first.
const MOST_BYTES: usize = 16 << 20;

/// The columns of a key's row that give its position.
struct Place<'a> {
    key: &'a [u8],
    ord: i64,
    ready: bool,
    due: Option<Wall>,
    first: Wall,
    dead: bool,
}

const PLACES: &str =
    "select queue, key, ord, ready, due, first, case when ready or due is not null then 0 else dead end
    from item where (queue, key) >= (?1, ?2) order by queue, key";

/// Reads the position of each key of a queue that begins with `prefix`, in the order of the file, until `each` returns
/// false. No other keys are read, and no values.
///
/// SQLite reads the whole value to reach a column behind it, such as `dead`, which is false for ready and
/// waiting keys. It does so even for a row that it only compares: so the end of the queue is found here.
fn places(
    connection: &Connection,
    queue: i64,
    prefix: &[u8],
    mut each: impl FnMut(Place<'_>) -> bool,
) -> rusqlite::Result<()> {
    let mut rows = connection.prepare(PLACES)?;
    let mut rows = rows.query(params![queue, prefix])?;
    while let Some(row) = rows.next()? {
        let place = Place {
            key: row.get_ref(1)?.as_bytes()?,
            ord: row.get(2)?,
            ready: row.get(3)?,
            due: row.get(4)?,
            first: row.get(5)?,
            dead: row.get(6)?,
        };
        if row.get::<_, i64>(0)? != queue || !place.key.starts_with(prefix) || !each(place) {
            break;
        }
    }
    Ok(())
}

/// The number of the queue with this name, if it exists.
pub(crate) fn number(connection: &Connection, version: u32, name: &str) -> rusqlite::Result<Option<i64>> {
    if version == 0 {
        return Ok(None);
    }
    connection.query_row("select id from queue where name = ?1", [name], |row| row.get(0)).optional()
}

/// Requests in the inbox that were not read yet, for keys and for the queue.
#[derive(Default)]
pub(crate) struct Pending {
    /// By key, its triggers combined.
    adds: HashMap<Vec<u8>, InboxRow>,
    /// The queue is paused, or resumed.
    pub(crate) paused: Option<bool>,
    /// There are more than were read.
    pub(crate) is_cut: bool,
}

impl Pending {
    /// Reads the inbox of a queue, or its requests for one key.
    pub(crate) fn read(
        connection: &Connection,
        version: u32,
        queue: i64,
        key: Option<&[u8]>,
    ) -> rusqlite::Result<Self> {
        let mut pending = Self::default();
        let requests = if version >= 3 {
            unread(connection, &[queue], &[], MOST_REQUESTS)?
        } else {
            older(connection, version, queue)?
        };
        pending.is_cut = requests.len() >= MOST_REQUESTS;
        for request in requests {
            match &*request.what {
                "pause" | "resume" => pending.paused = Some(request.what == "pause"),
                _ if request.is_add() && key.is_none_or(|key| key == request.key) => pending.add(request),
                _ => {}
            }
        }
        Ok(pending)
    }

    fn add(&mut self, request: InboxRow) {
        let Some(known) = self.adds.get_mut(&request.key) else {
            self.adds.insert(request.key.clone(), request);
            return;
        };
        known.delay = match (due(known), due(&request)) {
            (_, replaced) if known.every.is_some() && request.every.is_some() => {
                replaced.map(|due| duration(due.saturating_sub(known.at).max(0)))
            }
            (Some(one), Some(other)) => Some(duration(one.min(other).saturating_sub(known.at).max(0))),
            _ => None,
        };
        known.priority = known.priority.max(request.priority);
        if request.absorbs() {
            known.what.clone_from(&request.what);
        }
        if request.every.is_some() {
            (known.every, known.rule) = (request.every, request.rule);
        }
        known.value = request.value.or(known.value.take());
    }

    /// The keys that are only in the inbox: the last in line.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&Vec<u8>, &InboxRow)> {
        self.adds.iter()
    }

    /// The state of a key, with its pending requests applied.
    fn over(&self, key: &[u8], listed: Option<Listed>, now: Wall) -> Option<Listed> {
        let Some(request) = self.adds.get(key) else { return listed };
        let due = due(request).filter(|due| *due > now);
        let status = if due.is_some() { Status::Waiting } else { Status::Ready };
        let mut listed = listed.unwrap_or_else(|| {
            let mut listed = Listed::new(key.to_owned(), status);
            listed.age = since(request.at, now);
            listed
        });
        if listed.status != Status::Ready {
            listed.status = status;
        }
        let left = due.map(|due| since(now, due));
        let is_scheduled = listed.every.is_some() || listed.schedule.is_some();
        let replaces = request.every.is_some() && is_scheduled && listed.failures == 0;
        let known = listed.due_in.filter(|_| !request.absorbs() && !replaces);
        listed.due_in = known.into_iter().chain(left).min();
        listed.error = None;
        listed.priority = listed.priority.max(request.priority);
        if request.every.is_some() {
            (listed.every, listed.schedule) = comes_again(request.every, request.rule.clone());
        }
        let value = request.value.as_ref().map(|value| String::from_utf8_lossy(value).into_owned());
        listed.value = listed.value.or(value);
        Some(listed)
    }

    fn makes_ready(&self, key: &[u8], now: Wall) -> bool {
        self.adds.get(key).is_some_and(|request| due(request).is_none_or(|due| due <= now))
    }
}

/// When a request's key is due. `None`: now.
fn due(request: &InboxRow) -> Option<Wall> {
    request.delay.map(|delay| request.at.saturating_add(micros(delay)))
}

/// Reads the inbox of a schema before 3.
fn older(connection: &Connection, version: u32, queue: i64) -> rusqlite::Result<Vec<InboxRow>> {
    let every = if version >= 2 { "every" } else { "null" };
    let requests = format!(
        "select what, at, key, delay, priority, {every} from inbox where answer is null and queue = ?1
         order by id limit {MOST_REQUESTS}"
    );
    let mut requests = connection.prepare(&requests)?;
    let requests = requests.query_map([queue], |row| {
        let key: Option<Vec<u8>> = row.get(2)?;
        Ok(InboxRow {
            at: row.get(1)?,
            delay: row.get::<_, Option<i64>>(3)?.map(duration),
            priority: row.get(4)?,
            every: row.get::<_, Option<i64>>(5)?.map(duration),
            ..InboxRow::new(queue, &row.get::<_, String>(0)?, &key.unwrap_or_default())
        })
    })?;
    requests.collect()
}

pub(crate) fn since(at: Wall, now: Wall) -> Duration {
    Duration::from_micros(u64::try_from(now.saturating_sub(at)).unwrap_or(0))
}

/// A queue's keys, or those with a prefix, in list order: those in line by their places, waiting ones by when they are due, dead ones.
/// They are adjacent in one piece of memory.
#[derive(Default)]
pub(crate) struct Order {
    bytes: Vec<u8>,
    keys: Vec<(u8, i64, Range<usize>)>,
    /// The first of them that are in order already.
    sorted: usize,
}

impl Order {
    pub(crate) fn read(
        connection: &Connection,
        queue: i64,
        prefix: &[u8],
        pending: &Pending,
        now: Wall,
    ) -> rusqlite::Result<Self> {
        let mut order = Self::default();
        let mut alone: Vec<_> = pending.keys().filter(|(key, _)| key.starts_with(prefix)).collect();
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
        places(connection, queue, prefix, |Place { key, ord, ready, due, dead, .. }| {
            let (rank, place) = match due {
                _ if ready => (0, ord),
                _ if pending.makes_ready(key, now) => (1, 0),
                Some(due) => (2, due),
                None => (if dead { 4 } else { 3 }, 0),
            };
            order.push(rank, place, key);
            true
        })?;
        for (key, request) in alone {
            let rank = if pending.makes_ready(key, now) { 1 } else { 2 };
            order.push(rank, due(request).unwrap_or(request.id), key);
        }
        Ok(order)
    }

    fn push(&mut self, rank: u8, place: i64, key: &[u8]) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.keys.push((rank, place, begin..self.bytes.len()));
    }

    /// The keys from this place in the order on, this many at most. The first page is found without sorting the others.
    pub(crate) fn page(&mut self, begin: usize, most: usize) -> Vec<&[u8]> {
        let Self { bytes, keys, sorted } = self;
        let end = begin.saturating_add(most).min(keys.len());
        if end > *sorted {
            let by_place = |(rank, place, key): &(u8, i64, Range<usize>),
                            (other_rank, other_place, other): &_| {
                let by_place = (rank, place).cmp(&(other_rank, other_place));
                by_place.then_with(|| bytes[key.clone()].cmp(&bytes[Range::clone(other)]))
            };
            let rest = &mut keys[*sorted..];
            let first = if *sorted == 0 { end } else { rest.len() };
            if first < rest.len() {
                rest.select_nth_unstable_by(first, by_place);
            }
            rest[..first].sort_unstable_by(by_place);
            *sorted += first;
        }
        let page = self.keys.iter().skip(begin).take(most);
        page.map(|(_, _, key)| &self.bytes[key.clone()]).collect()
    }
}

/// Number of keys to read in the next look. It grows, because each look opens the file and reads nearly all
/// of its pages for keys that are anywhere in it.
pub(crate) struct Size {
    next: usize,
    most: usize,
}

impl Size {
    pub(crate) fn first() -> Self {
        Self { next: PAGE, most: LARGEST_PAGE }
    }

    pub(crate) fn next(&self) -> usize {
        self.next
    }

    pub(crate) fn grow(&mut self) {
        self.next = (2 * self.next).min(self.most);
    }

    /// Shrinks the page, because the values of this many keys take too much memory.
    fn shrink(&mut self) {
        self.most = (self.next / 2).max(PAGE);
        self.next = PAGE;
    }
}

/// The state of the keys of a page, in the order of `keys`, without deleted ones. `None` if their values are
/// too large for a page of this size.
pub(crate) fn page(
    connection: &Connection,
    version: u32,
    queue: i64,
    keys: &[&[u8]],
    seen: &Seen<'_>,
    size: &mut Size,
) -> rusqlite::Result<Option<Vec<Listed>>> {
    // in the order in which they stand in the file: each of its pages is read once
    let mut sorted: Vec<(usize, &[u8])> = keys.iter().copied().enumerate().collect();
    sorted.sort_unstable_by_key(|(_, key)| *key);
    let mut row = connection.prepare(&row_of(version))?;
    let mut listed: Vec<(usize, Listed)> = Vec::with_capacity(keys.len());
    let mut bytes = 0;
    for (place, key) in sorted {
        let Some(known) = seen.state(&mut row, queue, key)? else { continue };
        bytes += known.value.as_ref().map_or(0, String::len);
        if bytes > MOST_BYTES && keys.len() > PAGE {
            size.shrink();
            return Ok(None);
        }
        listed.push((place, known));
    }
    listed.sort_unstable_by_key(|(place, _)| *place);
    Ok(Some(listed.into_iter().map(|(_, listed)| listed).collect()))
}

/// The state of a key. `None` if it is gone.
pub(crate) fn state(
    connection: &Connection,
    version: u32,
    queue: i64,
    key: &[u8],
    seen: &Seen<'_>,
) -> rusqlite::Result<Option<Listed>> {
    seen.state(&mut connection.prepare(&row_of(version))?, queue, key)
}

/// The statement that reads a key's row.
fn row_of(version: u32) -> String {
    let columns = "key, ready, due, failures, attempt, priority, value, first, dead, error";
    let rule =
        if version >= 3 { "(select text from rule where rule.id = every - (1 << 62))" } else { "null" };
    if version >= 2 {
        format!(
            "select {columns}, every, {rule} from item left join schedule using (queue, key)
             where queue = ?1 and key = ?2"
        )
    } else {
        format!("select {columns}, null, null from item where queue = ?1 and key = ?2")
    }
}

/// State in addition to the keys' rows: the inbox, the current runs, and the time of the look.
pub(crate) struct Seen<'a> {
    pub(crate) pending: &'a Pending,
    pub(crate) running: &'a Running,
    pub(crate) now: Wall,
}

impl Seen<'_> {
    fn state(&self, row: &mut Statement<'_>, queue: i64, key: &[u8]) -> rusqlite::Result<Option<Listed>> {
        let Self { pending, running, now } = *self;
        let listed = row.query_row(params![queue, key], |row| read(row, now)).optional()?;
        let Some(mut listed) = pending.over(key, listed, now) else { return Ok(None) };
        if let Some(held) = running.since(queue, key, now) {
            // an unread trigger is for the run after this
            listed.dirty = pending.makes_ready(key, now);
            listed.status = Status::Held;
            listed.age = held;
        }
        Ok(Some(listed))
    }
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

/// The interval after each run, or the schedule, of a key that comes again.
fn comes_again(every: Option<Duration>, rule: Option<String>) -> (Option<Duration>, Option<String>) {
    if rule.is_some() { (None, rule) } else { (every, None) }
}

/// Numbers of keys by state.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) ready: u64,
    pub(crate) waiting: u64,
    pub(crate) dead: u64,
    pub(crate) oldest: Option<Wall>,
    /// There are more: counting stopped early.
    pub(crate) is_cut: bool,
}

impl Counts {
    pub(crate) fn read(
        connection: &Connection,
        queue: i64,
        pending: &Pending,
        now: Wall,
    ) -> rusqlite::Result<Self> {
        let mut counts = Self { is_cut: pending.is_cut, ..Self::default() };
        let mut counted = 0;
        places(connection, queue, b"", |Place { ready, due, first, dead, .. }| {
            if ready || due.is_some_and(|due| due <= now) {
                counts.ready += 1;
                counts.oldest = Some(counts.oldest.map_or(first, |oldest| oldest.min(first)));
            } else {
                counts.waiting += u64::from(due.is_some());
                counts.dead += u64::from(dead);
            }
            counted += 1;
            counts.is_cut |= counted >= MOST_COUNTED;
            counted < MOST_COUNTED
        })?;
        let known = "select ready or coalesce(due <= ?3, 0), due is not null, dead from item
                     where queue = ?1 and key = ?2";
        let mut known = connection.prepare(known)?;
        for (key, request) in pending.keys() {
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
                counts.oldest = Some(counts.oldest.map_or(request.at, |oldest| oldest.min(request.at)));
            } else {
                counts.waiting += u64::from(!waiting || dead);
            }
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::PLACES;
    use crate::client::Client;
    use rusqlite::{Connection, params};

    #[test]
    fn e33_keys_with_a_prefix_are_found_in_the_index_and_need_no_sorting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        Client::open(&path).unwrap().add("orders", &"k".to_owned(), None).unwrap();
        let connection = Connection::open(&path).unwrap();
        let mut plan = connection.prepare(&format!("explain query plan {PLACES}")).unwrap();
        let plan = plan.query_map(params![1, b"k"], |row| row.get::<_, String>(3)).unwrap();
        let plan: Vec<String> = plan.map(Result::unwrap).collect();
        assert_eq!(plan, ["SEARCH item USING PRIMARY KEY ((queue,key)>(?,?))"]);
    }
}

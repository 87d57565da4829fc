//! The oracle: the test's own record of its requests and runs. It is in the test's memory, which survives the
//! power cuts.

use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The numbers of a key's triggers.
pub(crate) type Numbers = BTreeSet<u64>;

/// An interval in microseconds since 1970 that contains an instant.
pub(crate) type Between = (i64, i64);

/// The role of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All threads trigger it at random, and its runs fail now and then.
    Hot,
    /// One thread triggers it, waits for the end of its run, and then knows that it does not run again.
    Once,
    /// Its first runs fail, three in a row.
    Fails,
    /// It waits for hours.
    Waits,
}

pub(crate) const HOT: u64 = 8;
pub(crate) const THREADS: u64 = 3;
const KEYS: u64 = HOT + 3 * THREADS;

/// A thread's own key of this kind.
pub(crate) fn own(kind: Kind, thread: u64) -> u64 {
    let nth = match kind {
        Kind::Hot => return thread % HOT,
        Kind::Once => 0,
        Kind::Fails => 1,
        Kind::Waits => 2,
    };
    HOT + nth * THREADS + thread
}

pub(crate) fn kind(key: u64) -> Kind {
    match key {
        ..HOT => Kind::Hot,
        _ => [Kind::Once, Kind::Fails, Kind::Waits][usize::try_from((key - HOT) / THREADS).unwrap()],
    }
}

pub(crate) fn wall() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_micros()).unwrap()
}

/// Record of a key.
#[derive(Default, Debug)]
pub(crate) struct Entry {
    /// The number of the last trigger that was accepted.
    pub(crate) acked: u64,
    /// The highest number seen by a successful run before the power cut.
    pub(crate) seen: u64,
    /// Accepted values that no successful run has had.
    pub(crate) values: Numbers,
    /// Values that successful runs had before the power cut.
    pub(crate) seen_values: Numbers,
    /// Values that were refused: nothing has changed.
    pub(crate) refused: Numbers,
    /// The values of all runs.
    pub(crate) had: Numbers,
    /// The number of the trigger whose run has ended, with the end on the disk.
    pub(crate) settled: u64,
    /// A trigger, and the minimum number of its failures in the file.
    pub(crate) failures: (u64, u32),
    /// A trigger, and the number of its failed runs.
    pub(crate) failed: (u64, u32),
    /// When the timer is due; and when it may be, after errors that leave open whether it was set.
    pub(crate) due: Option<Between>,
    pub(crate) may_be_due: Vec<Between>,
}

#[derive(Default)]
pub(crate) struct Ledger {
    numbers: [AtomicU64; KEYS as usize],
    entries: [Mutex<Entry>; KEYS as usize],
    wrong: Mutex<Vec<String>>,
}

/// A key's state in the file.
#[derive(Default, Debug)]
pub(crate) struct Row {
    /// Something asks for a run of it: its row, or a request.
    pub(crate) runs: bool,
    values: Numbers,
    due: Option<i64>,
    failures: u32,
    attempt: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn index(key: u64) -> usize {
    usize::try_from(key).unwrap()
}

impl Ledger {
    /// The number for a trigger that is about to be made.
    pub(crate) fn bump(&self, key: u64) -> u64 {
        self.numbers[index(key)].fetch_add(1, SeqCst) + 1
    }

    pub(crate) fn number(&self, key: u64) -> u64 {
        self.numbers[index(key)].load(SeqCst)
    }

    pub(crate) fn entry(&self, key: u64) -> MutexGuard<'_, Entry> {
        lock(&self.entries[index(key)])
    }

    pub(crate) fn is_wrong(&self, what: String) {
        lock(&self.wrong).push(what);
    }

    /// # Panics
    ///
    /// If anything is wrong.
    pub(crate) fn verdict(&self, when: &str) {
        for key in 0..KEYS {
            let mut entry = self.entry(key);
            let both: Vec<_> = entry.refused.intersection(&entry.had).copied().collect();
            if !both.is_empty() {
                self.is_wrong(format!("E18: key {key}: {both:?} were refused, and a run had them"));
            }
            let Entry { values, seen_values, .. } = &mut *entry;
            values.retain(|value| !seen_values.contains(value));
        }
        let wrong = lock(&self.wrong);
        assert!(wrong.is_empty(), "{when}: {wrong:#?}");
    }

    /// Records that a run has begun that saw this number.
    pub(crate) fn runs(&self, key: u64, number: u64, values: &Numbers) {
        let mut entry = self.entry(key);
        entry.had.extend(values);
        if entry.settled == number && self.number(key) == number {
            self.is_wrong(format!("E3: key {key}: {number} was ended on the disk, and runs again"));
        }
    }

    pub(crate) fn failed(&self, key: u64, number: u64) {
        let mut entry = self.entry(key);
        if entry.failed.0 != number {
            entry.failed = (number, 0);
        }
        entry.failed.1 += 1;
    }

    /// Records that a run succeeded that saw this number.
    pub(crate) fn ran(&self, key: u64, number: u64, values: &Numbers) {
        let mut entry = self.entry(key);
        entry.seen = entry.seen.max(number);
        entry.seen_values.extend(values);
    }

    /// The keys whose last accepted trigger, or a value, no run has seen.
    pub(crate) fn owed(&self) -> Vec<String> {
        let owes = |key: &u64| {
            let entry = self.entry(*key);
            let owes = entry.acked > entry.seen || !entry.values.is_subset(&entry.seen_values);
            (kind(*key) != Kind::Waits && owes).then(|| {
                let Entry { acked, seen, values, seen_values, .. } = &*entry;
                let values: Vec<_> = values.difference(seen_values).collect();
                format!(
                    "key {key}: {acked} was accepted, and runs saw {seen}; values that none had: {values:?}"
                )
            })
        };
        (0..KEYS).filter_map(|key| owes(&key)).collect()
    }

    /// Compares with the file when no process works on it, and all that was accepted is in it or has run.
    pub(crate) fn compare(&self, path: &Path) {
        let rows = rows(&Connection::open(path).unwrap());
        let none = Row::default();
        for key in 0..KEYS {
            let row = rows.get(&key).unwrap_or(&none);
            let entry = self.entry(key);
            let wrong = |what: &str| self.is_wrong(format!("{what}: key {key}: {row:?} {entry:?}"));
            if entry.acked > entry.seen && !row.runs {
                wrong("E1: an accepted trigger is lost");
            }
            let has = |value: &u64| entry.seen_values.contains(value) || row.values.contains(value);
            if !entry.values.iter().all(has) {
                wrong("E23: an accepted value is lost");
            }
            if row.values.iter().any(|value| entry.refused.contains(value)) {
                wrong("E18: a refused value is in the file");
            }
            let number = self.number(key);
            if entry.settled == number && number > 0 && row.runs {
                wrong("E3: it was ended on the disk, and is to run again");
            }
            let (of, at_least) = entry.failures;
            if of == number && at_least > 0 && entry.seen < number {
                let at_most = if entry.failed.0 == number { entry.failed.1 } else { 0 };
                if row.failures < at_least || row.failures > at_most || row.attempt != row.failures + 1 {
                    wrong("E9: the failures are other ones");
                }
            }
            if let Some(due) = entry.due {
                let is_due = |(from, to): (i64, i64)| row.due.is_some_and(|due| from <= due && due <= to);
                let sooner = entry.may_be_due.iter().any(|may_be| may_be.0 < due.1 && is_due(*may_be));
                if !is_due(due) && !sooner {
                    wrong("E9: the timer is due at another time");
                }
            }
        }
    }

    /// Records the result of setting a waiting key's timer.
    pub(crate) fn due(&self, key: u64, began: i64, delay: Duration, accepted: bool) {
        let delay = i64::try_from(delay.as_micros()).unwrap();
        let due = (began + delay, wall() + delay);
        let mut entry = self.entry(key);
        if !accepted {
            entry.may_be_due.push(due);
        } else if entry.due.is_none_or(|before| due.1 <= before.0) {
            entry.due = Some(due);
        } else if entry.due.is_some_and(|before| due.0 < before.1) {
            // they overlap: either may be the sooner one
            entry.due = entry.due.map(|before| (before.0.min(due.0), before.1.min(due.1)));
        }
    }
}

/// The keys in the file, which must be intact.
pub(crate) fn rows(file: &Connection) -> BTreeMap<u64, Row> {
    let whole: String = file.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok", "the file is broken");
    let tables: i64 = file.query_row("select count(*) from sqlite_schema", [], |row| row.get(0)).unwrap();
    let mut rows = BTreeMap::<u64, Row>::new();
    if tables == 0 {
        return rows;
    }
    let begun = file.unchecked_transaction().unwrap();
    let number = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().parse::<u64>().unwrap();
    let items =
        "select key, ready or due is not null, due, failures, attempt, value from item where not dead";
    let mut items = begun.prepare(items).unwrap();
    let mut found = items.query([]).unwrap();
    while let Some(row) = found.next().unwrap() {
        let value: Option<Vec<u8>> = row.get(5).unwrap();
        let item = Row {
            runs: row.get(1).unwrap(),
            due: row.get(2).unwrap(),
            failures: row.get(3).unwrap(),
            attempt: row.get(4).unwrap(),
            values: value.map(|value| serde_json::from_slice(&value).unwrap()).unwrap_or_default(),
        };
        rows.insert(number(row.get(0).unwrap()), item);
    }
    let mut letters = begun.prepare("select key from inbox where what = 'add' and answer is null").unwrap();
    let mut found = letters.query([]).unwrap();
    while let Some(row) = found.next().unwrap() {
        rows.entry(number(row.get(0).unwrap())).or_default().runs = true;
    }
    rows
}

//! The load while the power is cut: workers whose runs fail now and then, threads that trigger, and another
//! process.

use crate::common::{LONG, once_free};
use crate::disk::{Disk, Seeded};
use crate::ledger::{HOT, Kind, Ledger, Numbers, THREADS, kind, own, wall};
use requeue::limiter::Exponential;
use requeue::{Add, Outcome, Run, Worker};
use requeue_engine::EngineError;
use requeue_sqlite::{Client, Queue, Sqlite};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

pub(crate) type Q = Queue<u64, Numbers>;

pub(crate) fn open(path: &Path) -> Result<Q, EngineError> {
    let backoff = || Exponential::new(MS, 20 * MS).unwrap();
    let merge = |old: &mut Numbers, new: Numbers| old.extend(new);
    once_free(|| Sqlite::open(path)?.queue_with("power", merge).limiter(backoff()).open())
}

/// One process, from its beginning to a power cut.
pub(crate) struct World {
    disk: Arc<Disk>,
    ledger: Arc<Ledger>,
    q: Q,
    worker: Worker,
    stops: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// State of a thread that triggers.
struct Thread {
    number: u64,
    path: PathBuf,
    q: Q,
    disk: Arc<Disk>,
    ledger: Arc<Ledger>,
    stops: Arc<AtomicBool>,
    seeded: Seeded,
}

impl World {
    /// Starts workers and, if `triggers`, threads that trigger more and more.
    pub(crate) fn start(
        path: &Path,
        disk: &Arc<Disk>,
        ledger: &Arc<Ledger>,
        seeded: &mut Seeded,
        triggers: bool,
    ) -> Result<Self, EngineError> {
        let q = open(path)?;
        let worker = work(&q, disk, ledger, seeded.next());
        let stops = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for number in 0..if triggers { THREADS } else { 0 } {
            let thread = Thread {
                number,
                path: path.to_owned(),
                q: q.clone(),
                disk: disk.clone(),
                ledger: ledger.clone(),
                stops: stops.clone(),
                seeded: Seeded(seeded.next()),
            };
            threads.push(std::thread::spawn(move || thread.lives()));
        }
        Ok(Self { disk: disk.clone(), ledger: ledger.clone(), q, worker, stops, threads })
    }

    /// Stops the triggers.
    fn calm(&mut self) {
        self.stops.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().expect("a thread that triggers panicked");
        }
    }

    /// Waits until all that was accepted has run, by the same handle, with no more faults.
    pub(crate) fn rest(&mut self) {
        self.calm();
        self.disk.mend();
        // A writer that had written when another's sync failed may hear of that once more.
        self.ledger.bump(0);
        drop(self.q.add_after(0, MS).wait());
        let began = Instant::now();
        for key in 0..HOT {
            // written, as it has a delay; and the ends that could not be written are with it
            let number = self.ledger.bump(key);
            self.q.add_after(key, MS).wait().expect("the disk is well again");
            self.ledger.entry(key).acked = number;
        }
        while !self.ledger.owed().is_empty() && !self.disk.is_cut() {
            assert!(began.elapsed() < LONG, "it does not come to rest: {:#?}", self.ledger.owed());
            std::thread::sleep(MS);
        }
    }

    /// Ends the process after a power cut: it runs nothing any more. It may try for a while to write its last
    /// ends to its open file, which is no longer valid.
    pub(crate) fn end(mut self) -> JoinHandle<()> {
        self.calm();
        assert!(self.worker.stop(LONG).wait().complete);
        std::thread::spawn(move || drop(self))
    }
}

/// Starts workers whose handlers fail in each fourth run of a hot key.
fn work(q: &Q, disk: &Arc<Disk>, ledger: &Arc<Ledger>, seed: u64) -> Worker {
    let (disk, ledger, runs) = (disk.clone(), ledger.clone(), AtomicU64::new(seed));
    let worker = Worker::of(q).workers(3).start_threads(move |run: Run<u64, Numbers>| {
        let key = *run.key();
        let number = ledger.number(key);
        let values = run.value().cloned().unwrap_or_default();
        ledger.runs(key, number, &values);
        let mut seeded = Seeded(runs.fetch_add(0x9e37_79b9, SeqCst));
        match seeded.below(8) {
            0 => std::thread::sleep(Duration::from_micros(seeded.below(2000))),
            1 => std::thread::yield_now(),
            _ => {}
        }
        let fails = match kind(key) {
            Kind::Hot => seeded.below(4) == 0,
            Kind::Fails => run.attempt() < 4,
            Kind::Once | Kind::Waits => false,
        };
        if fails {
            ledger.failed(key, number);
            return Outcome::Retry("this one fails".into());
        }
        // a run that is well after the power cut does nothing for what comes after it
        disk.unless_cut(|| ledger.ran(key, number, &values));
        match seeded.below(12) {
            0 if kind(key) == Kind::Hot => Outcome::Again(MS),
            1 if kind(key) == Kind::Hot => Outcome::GiveUp("that was all".into()),
            _ => Outcome::Done,
        }
    });
    worker.unwrap()
}

impl Thread {
    fn ends(&self) -> bool {
        self.stops.load(SeqCst) || self.disk.is_cut()
    }

    fn lives(mut self) {
        while !self.ends() {
            match self.seeded.below(40) {
                0..4 => self.once(),
                4..7 => self.fails(),
                7 => self.waits(),
                8 => self.others_ask(),
                9 => self.checkpoint(),
                _ => {
                    let key = self.seeded.below(HOT);
                    self.trigger(key);
                }
            }
        }
    }

    /// Makes a random trigger. True if it was accepted.
    fn trigger(&mut self, key: u64) -> bool {
        let number = self.ledger.bump(key);
        let value = Numbers::from([number]);
        let (how, has_value): (Add<Numbers>, _) = match self.seeded.below(8) {
            0 => (Add::after(Duration::from_micros(self.seeded.below(4000))), false),
            1 => (Add::after(Duration::from_micros(self.seeded.below(4000))).value(value), true),
            2 | 3 => (Add::now().value(value), true),
            _ => (Add::now(), false),
        };
        let added = self.q.add_with(key, how).wait();
        let mut entry = self.ledger.entry(key);
        match added {
            Ok(_) => {
                entry.acked = entry.acked.max(number);
                if has_value {
                    entry.values.insert(number);
                }
                true
            }
            Err(failed) => {
                if has_value && matches!(failed.error, EngineError::NotApplied(_)) {
                    entry.refused.insert(number);
                }
                false
            }
        }
    }

    /// Writes something, and with it all earlier ends. True if it succeeded.
    fn write(&mut self) -> bool {
        let key = self.seeded.below(HOT);
        let number = self.ledger.bump(key);
        let written = self.q.add_after(key, MS).wait().is_ok();
        if written {
            let mut entry = self.ledger.entry(key);
            entry.acked = entry.acked.max(number);
        }
        written
    }

    fn add(&self, key: u64) -> Option<u64> {
        let number = self.ledger.bump(key);
        self.q.add(key).wait().ok()?;
        self.ledger.entry(key).acked = number;
        Some(number)
    }

    fn once(&mut self) {
        let key = own(Kind::Once, self.number);
        let Some(number) = self.add(key) else { return };
        while self.q.in_memory().state(&key).is_some_and(|state| state.ready || state.held) {
            if self.ends() {
                return;
            }
            std::thread::yield_now();
        }
        // where the power was cut meanwhile the write says so
        if self.write() {
            self.ledger.entry(key).settled = number;
        }
    }

    fn fails(&mut self) {
        let key = own(Kind::Fails, self.number);
        let idle = self.q.in_memory().state(&key).is_none();
        let number = if idle { self.add(key) } else { Some(self.ledger.number(key)) };
        let Some(number) = number else { return };
        std::thread::sleep(Duration::from_micros(self.seeded.below(1500)));
        let Some(state) = self.q.in_memory().state(&key) else { return };
        if !state.held && self.ledger.entry(key).acked == number && self.write() {
            self.ledger.entry(key).failures = (number, state.failures);
        }
    }

    fn waits(&mut self) {
        let key = own(Kind::Waits, self.number);
        let delay = Duration::from_secs(36_000 + self.seeded.below(36_000));
        self.ledger.bump(key);
        let began = wall();
        match self.q.add_after(key, delay).wait() {
            Ok(_) => self.ledger.due(key, began, delay, true),
            Err(failed) if matches!(failed.error, EngineError::Unknown(_)) => {
                self.ledger.due(key, began, delay, false);
            }
            Err(_) => {}
        }
    }

    /// Acts as another process.
    fn others_ask(&mut self) {
        let Ok(client) = Client::open(&self.path) else { return };
        for _ in 0..=self.seeded.below(3) {
            let key = self.seeded.below(HOT);
            let number = self.ledger.bump(key);
            let delay = (self.seeded.below(2) == 0).then_some(MS);
            if client.add("power", &key, delay).is_ok() {
                let mut entry = self.ledger.entry(key);
                entry.acked = entry.acked.max(number);
            }
        }
    }

    /// Copies the log into the file, which the engine does after 16 MB.
    fn checkpoint(&mut self) {
        let how = self.seeded.one_of(&["passive", "full", "restart", "truncate"]);
        if let Ok(other) = Connection::open(&self.path) {
            // its success does not matter
            drop(other.query_row(&format!("pragma wal_checkpoint({how})"), [], |_| Ok(())));
        }
    }
}

//! The rules of engines that concern files alone, by their numbers. The others are in
//! `verify/src/engines`, for any engine.

mod common;

use self::common::{LONG, once_free};
use requeue::{Add, Added, Fence, NoRun, Outcome, Run, RunEnd, Worker};
use requeue_engine::{AddFailed, EngineError};
use requeue_sqlite::{Queue, Sqlite};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn file(&self) -> PathBuf {
        self.0.path().join("q.db")
    }
    fn open(&self) -> Queue<String> {
        open(&self.file())
    }
}

fn open(path: &Path) -> Queue<String> {
    once_free(|| Sqlite::open(path)?.queue("orders").open()).unwrap()
}

/// Observations of a run.
#[derive(Debug, PartialEq, Eq)]
struct Saw {
    key: String,
    attempt: u32,
    fence: Fence,
}

/// Runs the ready keys, with this outcome, until none is left.
fn work(q: &Queue<String>, outcome: fn() -> Outcome) -> Vec<Saw> {
    let (tell, told) = mpsc::channel();
    let worker = Worker::of(q)
        .workers(1)
        .start_threads(move |run: Run<String>| {
            let saw = Saw { key: run.key().clone(), attempt: run.attempt(), fence: run.fence() };
            tell.send(saw).unwrap();
            outcome()
        })
        .unwrap();
    until(|| {
        let stats = q.in_memory().stats();
        stats.ready + stats.held + stats.waiting == 0
    });
    assert!(worker.stop(LONG).wait().complete);
    told.try_iter().collect()
}

fn until(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "it does not come");
        std::thread::sleep(SECOND / 500);
    }
}

fn keys(saw: &[Saw]) -> Vec<&str> {
    saw.iter().map(|saw| &*saw.key).collect()
}

#[test]
fn e6_a_trigger_that_changes_nothing_writes_nothing() {
    let dir = Dir::new();
    let file = Sqlite::open(dir.file()).unwrap();
    let q = file.queue::<String>("orders").open().unwrap();
    q.add("a".into()).wait().unwrap();
    let commits = file.commits();
    for _ in 0..100 {
        assert_eq!(q.add("a".into()).wait().unwrap(), Added::Coalesced);
    }
    assert_eq!(file.commits(), commits);
}

#[test]
fn b12_a_run_that_is_awaited_is_one_for_all_callers_and_only_the_first_trigger_is_written() {
    let dir = Dir::new();
    let file = Sqlite::open(dir.file()).unwrap();
    let q = file.queue::<String>("orders").open().unwrap();
    let first = q.await_run("a".into(), Add::now()).wait().unwrap();
    let commits = file.commits();
    let others: Vec<_> =
        (0..100).map(|_| q.await_run("a".into(), Add::now()).wait().unwrap()).chain([first]).collect();
    assert_eq!(file.commits(), commits);
    assert_eq!(work(&q, || Outcome::GiveUp("no such order".into())).len(), 1);
    assert!(others.into_iter().all(|run| run.wait() == Ok(RunEnd::GiveUp)));
    let left = q.await_run("b".into(), Add::now()).wait().unwrap();
    drop(q);
    assert_eq!(left.wait(), Err(NoRun::Dropped), "the next process runs it");
    assert_eq!(keys(&work(&dir.open(), || Outcome::Done)), ["b"]);
}

static WALL: AtomicI64 = AtomicI64::new(1_000_000_000_000_000);

fn wall() -> i64 {
    WALL.load(SeqCst)
}

#[test]
fn e8_a_key_waits_for_what_was_left_and_never_for_more_than_its_delay() {
    let dir = Dir::new();
    let now = || requeue::Clock::now(&requeue::SystemClock);
    // the queue, and the instant before it was opened
    let open = || {
        let file = once_free(|| Sqlite::open(dir.file())).unwrap();
        (now(), once_free(|| file.queue::<String>("orders").wall(wall).open()).unwrap())
    };
    let hour = 3600 * SECOND;
    // so many seconds since it was opened: that took a while, during which the clock on the wall stood still
    let waits = |(before, q): &(requeue::Instant, Queue<String>), seconds: u32| {
        let until = q.in_memory().state("a").unwrap().waiting_until.unwrap();
        let (least, most) = (*before + (seconds - 1) * SECOND, now() + seconds * SECOND);
        assert!(least <= until && until <= most, "{until:?} is not {seconds} s after {before:?}");
    };
    let (_, q) = open();
    q.add_after("a".into(), hour).wait().unwrap();
    drop(q);
    WALL.fetch_add(1_800_000_000, SeqCst);
    let q = open();
    waits(&q, 1800);
    drop(q);
    // The clock on the wall goes back by a day.
    WALL.fetch_sub(86_400_000_000, SeqCst);
    let q = open();
    waits(&q, 3600);
    drop(q);
    WALL.fetch_add(2 * 86_400_000_000, SeqCst);
    assert_eq!(keys(&work(&open().1, || Outcome::Done)), ["a"]);
}

#[test]
fn e18_a_trigger_that_is_refused_gives_key_and_value_back() {
    let dir = Dir::new();
    let file = Sqlite::open(dir.file()).unwrap();
    let q = file.queue_with::<String, u32>("sums", |old, new| *old += new).open().unwrap();
    let AddFailed { key, value, error } =
        q.add_with("a".into(), Add::now().value(7).priority(3)).wait().unwrap_err();
    assert_eq!((&*key, value), ("a", Some(7)));
    assert!(matches!(error, EngineError::NotApplied(_)), "{error}");
    let failed = q.add_with("a".into(), Add::after(SECOND).keep()).wait().unwrap_err();
    assert!(failed.to_string().contains("earliest"), "{failed}");
    let panics = file.queue_with::<String, u32>("panics", |_, _| panic!("merge")).open().unwrap();
    panics.add_with("a".into(), Add::now().value(1)).wait().unwrap();
    let failed = panics.add_with("a".into(), Add::now().value(2)).wait().unwrap_err();
    assert!(matches!(failed.error, EngineError::Codec(_)) && failed.value == Some(2), "{failed}");
    q.add("b".into()).wait().unwrap();
}

#[test]
fn e27_a_full_disk_refuses_and_the_same_handle_goes_on_when_there_is_room() {
    let dir = Dir::new();
    let file = Sqlite::open(dir.file()).unwrap();
    let q = file.queue::<String>("orders").open().unwrap();
    let pages = file.limit_pages(30);
    let long = "x".repeat(900);
    let mut accepted = 0;
    let failed = loop {
        match q.add(format!("{accepted}-{long}")).wait() {
            Ok(_) => accepted += 1,
            Err(failed) => break failed,
        }
    };
    assert!(matches!(failed.error, EngineError::NotApplied(_)), "{failed}");
    assert!(failed.key.starts_with(&format!("{accepted}-")));
    assert_eq!(q.in_memory().len(), accepted);
    file.limit_pages(pages);
    for n in 0..10 {
        q.add(format!("after-{n}")).wait().unwrap();
    }
    drop((q, file));
    assert_eq!(dir.open().in_memory().len(), accepted + 10);
}

#[test]
fn e28_a_file_that_is_newer_or_not_ours_or_no_database_is_refused_and_stays_as_it_is() {
    let dir = Dir::new();
    drop(dir.open());
    set_version(&dir.file(), 99);
    let error = Sqlite::open(dir.file()).unwrap_err();
    assert!(matches!(error, EngineError::Version { found: 99, known: 3 }), "{error}");

    let other = dir.0.path().join("other.db");
    rusqlite(&other).execute_batch("create table t(x)").unwrap();
    let error = Sqlite::open(&other).unwrap_err().to_string();
    assert!(error.contains("another program"), "{error}");

    let text = dir.0.path().join("text");
    std::fs::write(&text, "no database, but a text that is longer than a header of one: ".repeat(9)).unwrap();
    let error = Sqlite::open(&text).unwrap_err().to_string();
    assert!(error.contains("no SQLite database"), "{error}");
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("no database"));
    for file in [&other, &text] {
        let mut beside = file.clone().into_os_string();
        beside.push("-wal");
        assert!(!Path::new(&beside).exists(), "{}", file.display());
    }

    let error = Sqlite::open(dir.0.path().join("no/such/dir.db")).unwrap_err().to_string();
    assert!(error.contains("dir.db"), "{error}");
}

#[test]
fn e28_a_file_of_version_1_goes_on() {
    let dir = Dir::new();
    rusqlite(&dir.file()).execute_batch(include_str!("versions/1.sql")).unwrap();
    let q = dir.open();
    until(|| q.in_memory().len() == 4);
    assert_eq!(q.in_memory().num_requeues("failed"), 3);
    q.add_every("again".into(), 3600 * SECOND, Add::after(60 * SECOND)).wait().unwrap();
    assert!(q.cancel(&"again".into()).wait().unwrap().is_some());
    let saw = work(&q, || Outcome::Done);
    assert_eq!(keys(&saw), ["overdue", "failed", "ready", "letter"]);
    assert!(saw.iter().all(|saw| saw.fence > Fence(8 << 40)), "{saw:?}");
    assert_eq!(saw[1].attempt, 4);
    drop(q);
    let version: u32 =
        rusqlite(&dir.file()).pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 3);
}

fn due(q: &Queue<String>, key: &str) -> bool {
    q.in_memory().state(key).is_some_and(|known| known.waiting_until.is_some())
}

/// Runs the key once, with this outcome, and waits until its next run is recorded.
fn once(q: &Queue<String>, outcome: fn() -> Outcome) {
    let worker = Worker::of(q).workers(1).max_attempts(1).start_threads(move |_| outcome()).unwrap();
    until(|| due(q, "report"));
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn e8_a_key_comes_again_after_each_run_over_restarts_until_it_is_cancelled() {
    let dir = Dir::new();
    let hour = 3600 * SECOND;
    let q = dir.open();
    q.add_every("report".into(), hour, Add::now()).wait().unwrap();
    assert_eq!(q.in_memory().len(), 1);
    once(&q, || Outcome::Done);
    drop(q);
    // it waits as it did before; and one that was missed is one run
    let q = dir.open();
    assert!(due(&q, "report") && q.in_memory().is_empty());
    drop(q);
    let overdue = "update item set due = 1, ready = 0";
    assert_eq!(rusqlite(&dir.file()).execute(overdue, []).unwrap(), 1);
    let q = dir.open();
    until(|| q.in_memory().len() == 1);
    // also one that gives up comes again
    once(&q, || Outcome::GiveUp("no paper".into()));
    assert!(q.cancel(&"report".into()).wait().unwrap().is_some());
    assert!(q.cancel(&"report".into()).wait().unwrap().is_none());
    drop(q);
    assert!(dir.open().in_memory().state("report").is_none());
    let left: u32 =
        rusqlite(&dir.file()).query_row("select count(*) from schedule", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn e8_a_key_that_is_cancelled_as_it_runs_does_not_come_again() {
    let dir = Dir::new();
    let q = dir.open();
    q.add_every("report".into(), Duration::ZERO, Add::now()).wait().unwrap();
    let (begun, begins) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let ends = std::sync::Mutex::new(ends);
    let worker = Worker::of(&q)
        .workers(1)
        .start_threads(move |_| {
            begun.send(()).unwrap();
            ends.lock().unwrap().recv().unwrap();
        })
        .unwrap();
    for _ in 0..3 {
        begins.recv().unwrap();
        end.send(()).unwrap();
    }
    begins.recv().unwrap();
    q.cancel(&"report".into()).wait().unwrap();
    end.send(()).unwrap();
    until(|| q.in_memory().state("report").is_none());
    assert!(worker.stop(LONG).wait().complete);
    drop((worker, q));
    assert!(dir.open().in_memory().state("report").is_none());
}

#[test]
fn e8_a_key_whose_next_run_was_not_noted_as_the_process_died_comes_when_the_file_is_opened() {
    let dir = Dir::new();
    let q = dir.open();
    q.add_every("report".into(), 3600 * SECOND, Add::now()).wait().unwrap();
    drop(q);
    rusqlite(&dir.file()).execute("delete from item", []).unwrap();
    let q = dir.open();
    until(|| q.in_memory().len() == 1);
    once(&q, || Outcome::Done);
}

fn rusqlite(path: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).unwrap()
}

fn set_version(path: &Path, version: u32) {
    rusqlite(path).pragma_update(None, "user_version", version).unwrap();
}

#[test]
fn e30_one_process_works_on_a_queue_and_a_second_is_told_which() {
    let dir = Dir::new();
    let q = dir.open();
    let error = Sqlite::open(dir.file()).unwrap().queue::<String>("orders").open().unwrap_err().to_string();
    assert!(error.contains(&format!("process {} works on it", std::process::id())), "{error}");
    drop(q);
    drop(dir.open());
}

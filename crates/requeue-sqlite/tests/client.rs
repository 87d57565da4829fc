//! Access to a file by other processes, with and without a process that works on it.

mod common;

use self::common::{LONG, once_free};
use requeue::{Added, Outcome, Run, Worker};
use requeue_sqlite::{Client, Listed, Queue, Sqlite, Status};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

struct World {
    dir: tempfile::TempDir,
    client: Client,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let client = Client::open(dir.path().join("q.db")).unwrap();
        Self { dir, client }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("q.db")
    }

    fn open(&self) -> Queue<String> {
        once_free(|| Sqlite::open(self.file())?.queue("orders").open()).unwrap()
    }

    fn add(&self, key: &str, delay: Option<Duration>) {
        self.client.add("orders", &key.to_owned(), delay).unwrap();
    }

    fn list(&self) -> Vec<(String, Status)> {
        let named = |it: Listed| (String::from_utf8(it.key).unwrap(), it.status);
        self.client.list("orders").unwrap().into_iter().map(named).collect()
    }
}

fn key(name: &str) -> String {
    name.to_owned()
}

/// Starts a worker that reports its runs.
fn work(q: &Queue<String>, outcome: fn(&str) -> Outcome) -> (Worker, Receiver<String>) {
    let (tell, told) = mpsc::channel();
    let worker = Worker::of(q).workers(1).start_threads(move |run: Run<String>| {
        tell.send(run.key().clone()).unwrap();
        outcome(run.key())
    });
    (worker.unwrap(), told)
}

fn until(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "it does not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn e30_what_others_add_is_run_whether_somebody_works_or_not_yet() {
    let world = World::new();
    world.add("before", None);
    assert_eq!(world.list(), [(key("before"), Status::Ready)]);
    let q = world.open();
    let (_worker, ran) = work(&q, |_| Outcome::Done);
    assert_eq!(ran.recv().unwrap(), "before");
    for n in 0..50 {
        world.add(&format!("beside-{n}"), None);
    }
    for n in 0..50 {
        assert_eq!(ran.recv().unwrap(), format!("beside-{n}"));
    }
    until(|| world.list().is_empty());
}

#[test]
fn e30_a_delay_counts_from_the_call_of_the_process_that_added() {
    let world = World::new();
    world.add("a", Some(HOUR));
    let q = world.open();
    let state = || q.in_memory().state("a").and_then(|state| state.waiting_until);
    until(|| state().is_some());
    let left = state().unwrap().saturating_since(requeue::Clock::now(&requeue::SystemClock));
    assert!(left <= HOUR && left > HOUR - Duration::from_secs(60), "{left:?}");
    let listed = world.client.state("orders", &key("a")).unwrap().unwrap();
    assert!(listed.status == Status::Waiting && listed.due_in <= Some(HOUR), "{listed:?}");
}

#[test]
fn e29_keys_are_cancelled_and_made_ready_with_nobody_at_work_and_beside_somebody() {
    for with_runner in [false, true] {
        let world = World::new();
        for name in ["a", "b", "c"] {
            world.add(name, Some(HOUR));
        }
        let q = with_runner.then(|| world.open());
        let (client, no) = (&world.client, key("unknown"));
        assert!(client.cancel("orders", &key("a")).unwrap() && !client.cancel("orders", &key("a")).unwrap());
        assert!(client.retry("orders", &key("b")).unwrap() && !client.retry("orders", &no).unwrap());
        until(|| world.list() == [(key("b"), Status::Ready), (key("c"), Status::Waiting)]);
        if let Some(q) = &q {
            // it is in the file a moment before it is in memory
            until(|| q.in_memory().len() == 1);
            assert_eq!(q.in_memory().state("a"), None);
            assert!(q.in_memory().state("b").unwrap().waiting_until.is_none());
        }
        let stats = client.stats("orders").unwrap();
        assert_eq!((stats.ready, stats.waiting, stats.dead), (1, 1, 0));
        assert_eq!(stats.runner, q.is_some().then(std::process::id));
        drop(q);
        let q = world.open();
        assert_eq!((q.in_memory().len(), q.in_memory().state("a")), (1, None));
    }
}

#[test]
fn e29_keys_with_a_prefix_are_listed_also_while_they_are_only_in_the_inbox() {
    let world = World::new();
    let listed = |prefix: &[u8]| {
        let mut keys = Vec::new();
        let each = |key: Listed| {
            keys.push(String::from_utf8(key.key).unwrap());
            true
        };
        world.client.list_prefix("orders", prefix, each).unwrap();
        keys
    };
    for name in ["b", "a/2", "a", "a/1", "a0"] {
        world.add(name, None);
    }
    world.client.add("others", &key("a/9"), None).unwrap();
    assert_eq!(listed(b"a/"), ["a/2", "a/1"], "in the order of the line");
    assert_eq!(listed(b""), ["b", "a/2", "a", "a/1", "a0"]);
    assert_eq!(listed(b"a/\xff"), [""; 0]);
    let q = world.open();
    q.shut_down();
    // keys added to it now are not read
    for name in ["b/3", "a/3"] {
        world.add(name, None);
    }
    assert_eq!(listed(b"a/"), ["a/2", "a/1", "a/3"]);
}

#[test]
fn e29_a_key_that_is_cancelled_as_it_runs_goes_on_and_does_not_come_again() {
    let world = World::new();
    let q = world.open();
    q.add(key("a")).wait().unwrap();
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
    begins.recv().unwrap();
    assert_eq!(q.add(key("a")).wait().unwrap(), Added::Dirty);
    assert!(world.client.cancel("orders", &key("a")).unwrap());
    // it runs, so that it is in the file
    until(|| world.list() == [(key("a"), Status::Held)]);
    end.send(()).unwrap();
    until(|| world.list().is_empty());
    drop(worker);
    assert!(begins.try_recv().is_err());
}

#[test]
fn e29_what_gave_up_is_listed_with_its_error_until_it_is_retried_triggered_or_purged() {
    let world = World::new();
    let q = world.open();
    let (worker, ran) = work(&q, |_| Outcome::GiveUp("no such order".into()));
    for name in ["a", "b", "c"] {
        q.add(key(name)).wait().unwrap();
    }
    let dead = |names: &[&str]| names.iter().map(|name| (key(name), Status::Dead)).collect::<Vec<_>>();
    until(|| world.list() == dead(&["a", "b", "c"]));
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    let error = world.client.state("orders", &key("a")).unwrap().unwrap().error;
    assert_eq!(error.as_deref(), Some("no such order"));
    worker.stop(HOUR).wait();
    drop((worker, q));
    // It does not run by itself when the file is opened.
    let q = world.open();
    assert_eq!(q.in_memory().len(), 0);
    assert!(world.client.retry("orders", &key("a")).unwrap());
    q.add(key("b")).wait().unwrap();
    let (_worker, ran) = work(&q, |_| Outcome::Done);
    assert_eq!(ran.iter().take(2).collect::<Vec<_>>(), ["a", "b"]);
    until(|| world.list() == dead(&["c"]));
    assert_eq!((world.client.purge("orders").unwrap(), world.client.purge("orders").unwrap()), (1, 0));
    assert!(world.list().is_empty());
}

#[test]
fn e24_a_paused_queue_hands_out_nothing_also_after_a_restart() {
    let world = World::new();
    world.client.pause("orders").unwrap();
    let q = world.open();
    q.add(key("a")).wait().unwrap();
    let (worker, ran) = work(&q, |_| Outcome::Done);
    assert!(ran.recv_timeout(Duration::from_millis(50)).is_err());
    assert!(world.client.stats("orders").unwrap().paused);
    world.client.resume("orders").unwrap();
    assert_eq!(ran.recv().unwrap(), "a");
    world.client.pause("orders").unwrap();
    worker.stop(HOUR).wait();
    drop((worker, q));
    world.add("b", None);
    let q = world.open();
    let (_worker, ran) = work(&q, |_| Outcome::Done);
    assert!(ran.recv_timeout(Duration::from_millis(50)).is_err());
}

#[test]
fn a_key_that_is_none_of_the_queues_type_harms_nobody() {
    let world = World::new();
    let file = Sqlite::open(world.file()).unwrap();
    let q = file.queue::<u64>("numbers").open().unwrap();
    world.client.add("numbers", &key("no number"), None).unwrap();
    world.client.add("numbers", &7_u64, None).unwrap();
    until(|| q.in_memory().len() == 1);
    assert!(world.client.cancel("numbers", &7_u64).unwrap());
}

#[test]
fn many_processes_add_at_once() {
    let world = World::new();
    let q = world.open();
    let (_worker, ran) = work(&q, |_| Outcome::Done);
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let path = world.file();
            threads.spawn(move || {
                let client = Client::open(path).unwrap();
                for n in 0..50 {
                    client.add("orders", &format!("{thread}-{n}"), None).unwrap();
                }
            });
        }
        for n in 0..50 {
            q.add(format!("own-{n}")).wait().unwrap();
        }
    });
    let mut all: Vec<_> = ran.iter().take(250).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 250);
}

/// The committer and stopped workers release a queue a little after its last handle is dropped, or seems to
/// be.
#[test]
fn a_queue_that_another_thread_is_about_to_let_go_of_opens() {
    let world = World::new();
    let file = Sqlite::open(world.file()).unwrap();
    let open = || file.queue::<String>("orders").open();
    let mut q = open().unwrap();
    for _ in 0..100 {
        let (about, begins) = mpsc::channel();
        let goes = std::thread::spawn(move || {
            about.send(()).unwrap();
            drop(q);
        });
        begins.recv().unwrap();
        let begun = Instant::now();
        let opened = open();
        // it waits for a second; a thread may stand still for longer
        assert!(opened.is_ok() || begun.elapsed() >= Duration::from_secs(1), "{opened:?}");
        goes.join().unwrap();
        q = opened.or_else(|_| once_free(open)).unwrap();
    }
    let why = open().unwrap_err().to_string();
    assert!(why.contains("\"orders\" is open in this process"), "{why}");
}

#[test]
fn e30_who_looks_at_a_file_is_in_nobodys_way_who_opens_it() {
    let world = World::new();
    let (path, over) = (world.file(), AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let looks = Client::open(&path).unwrap();
            while !over.load(SeqCst) {
                looks.stats("orders").unwrap();
            }
        });
        let opened: Vec<_> = (0..30).map(|_| Sqlite::open(&path).map(drop)).collect();
        over.store(true, SeqCst);
        opened.into_iter().for_each(|opened| opened.unwrap());
    });
}

#[test]
fn e1_what_others_add_while_the_queue_shuts_down_runs_when_the_file_is_opened_again() {
    let world = World::new();
    let file = Sqlite::open(world.file()).unwrap();
    let q: Queue<String> = file.queue("orders").open().unwrap();
    q.in_memory().shut_down();
    world.add("late", None);
    // an answer to a later letter tells that the earlier one was looked at
    assert!(!world.client.cancel("orders", &key("other")).unwrap());
    drop((q, file));
    let (_worker, ran) = work(&world.open(), |_| Outcome::Done);
    assert_eq!(ran.recv().unwrap(), "late");
}

#[test]
fn e29_a_thousand_triggers_for_a_queue_that_is_shut_down_do_not_stop_those_for_another() {
    let world = World::new();
    let file = Sqlite::open(world.file()).unwrap();
    let shut: Queue<String> = file.queue("shut").open().unwrap();
    let orders: Queue<String> = file.queue("orders").open().unwrap();
    shut.in_memory().shut_down();
    let keys: Vec<String> = (0..2500).map(|n| format!("late-{n}")).collect();
    world.client.add_many("shut", &keys, None, 0).unwrap();
    let (worker, ran) = work(&orders, |_| Outcome::Done);
    for n in 0..10 {
        world.add(&format!("order-{n}"), None);
        assert_eq!(ran.recv_timeout(LONG).unwrap(), format!("order-{n}"));
    }
    drop((worker, shut, orders, file));
    let again: Queue<String> = once_free(|| Sqlite::open(world.file())?.queue("shut").open()).unwrap();
    assert_eq!(again.in_memory().len(), keys.len());
}

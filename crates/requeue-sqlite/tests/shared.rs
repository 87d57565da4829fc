//! How processes share a file: the process that works on a queue, the fate of other processes' requests, and
//! reads that write nothing.

mod common;

use self::common::{LONG, once_free};
use requeue::{Add, Outcome, Run, Worker};
use requeue_engine::EngineError;
use requeue_sqlite::{AddOptions, Client, Queue, Sqlite, Status};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

struct World(tempfile::TempDir);

impl World {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("q.db")
    }

    fn client(&self) -> Client {
        Client::open(self.file()).unwrap()
    }

    fn sqlite(&self) -> Sqlite {
        Sqlite::open(self.file()).unwrap()
    }

    fn open(&self) -> Queue<String> {
        once_free(|| self.sqlite().queue("orders").open()).unwrap()
    }

    fn by_hand(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.file()).unwrap()
    }

    /// All files in the folder, with their times and contents.
    fn files(&self) -> BTreeMap<PathBuf, (std::time::SystemTime, Vec<u8>)> {
        let read = |entry: std::io::Result<std::fs::DirEntry>| {
            let path = entry.unwrap().path();
            let changed = path.metadata().unwrap().modified().unwrap();
            let bytes = std::fs::read(&path).unwrap();
            (path, (changed, bytes))
        };
        self.0.path().read_dir().unwrap().map(read).collect()
    }
}

fn until(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "it does not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts a worker that reports each key and waits for permission to continue.
fn work(q: &Queue<String>) -> (Worker, Receiver<String>, Sender<()>) {
    let ((tell, told), (go, goes)) = (mpsc::channel(), mpsc::channel());
    let goes = Arc::new(Mutex::new(goes));
    let worker = Worker::of(q).workers(1).start_threads(move |run: Run<String>| {
        tell.send(run.key().clone()).unwrap();
        let _ = goes.lock().unwrap().recv(); // or the test is over
        Outcome::Done
    });
    (worker.unwrap(), told, go)
}

/// An unread request, as a process leaves it whose runner has died.
fn letter(world: &World, what: &str, key: &str, delay: Option<i64>, priority: i16, value: Option<&str>) {
    let letter = "insert into inbox(queue, what, at, key, delay, priority, value)
                  values((select id from queue where name = 'orders'), ?1, 1, ?2, ?3, ?4, ?5)";
    let value = value.map(str::as_bytes);
    let done =
        world.by_hand().execute(letter, rusqlite::params![what, key.as_bytes(), delay, priority, value]);
    assert_eq!(done.unwrap(), 1);
}

#[test]
fn e31_a_priority_that_a_queue_does_not_have_is_run_without_and_told_of() {
    let world = World::new();
    let client = world.client();
    client.add_many("orders", &["before".to_owned()], None, 7).unwrap();
    let q = world.open();
    assert_eq!((q.in_memory().len(), q.ignores()), (1, Some("priorities")));
    drop(q);
    world.by_hand().execute("delete from item", []).unwrap();
    let q = world.open();
    assert_eq!(q.ignores(), None);
    client.add_many("orders", &["beside".to_owned()], None, 7).unwrap();
    until(|| q.in_memory().len() == 1);
    assert_eq!(q.ignores(), Some("priorities"));
    assert_eq!(
        client.list("orders").unwrap()[0].priority,
        7,
        "the file keeps it, for one that has priorities"
    );
}

#[test]
fn e31_values_of_others_merge_and_where_a_queue_has_none_keys_run_without() {
    let world = World::new();
    let mut client = world.client();
    let values = |key: &str, value: &str, client: &mut Client| {
        let values = &[value.to_owned()];
        client
            .add_with("orders", &[key.to_owned()], &AddOptions { values, ..AddOptions::default() })
            .unwrap();
    };
    values("k", "[1]", &mut client);
    values("k", "[2]", &mut client);
    assert_eq!((client.stats("orders").unwrap().ready, client.list("orders").unwrap().len()), (1, 1));
    let file = world.sqlite();
    let open =
        || once_free(|| file.queue_with("orders", |old: &mut Vec<u32>, new| old.extend(new)).open()).unwrap();
    let q: Queue<String, Vec<u32>> = open();
    values("k", "[3]", &mut client);
    values("bad", "{}", &mut client);
    until(|| client.state("orders", &"bad".to_owned()).unwrap().is_some_and(|it| it.status == Status::Dead));
    until(|| {
        q.in_memory().state("k").is_some()
            && client.list("orders").unwrap()[0].value.as_deref() == Some("[1,2,3]")
    });
    let item = q.try_get().unwrap();
    assert_eq!(item.value(), Some(&vec![1, 2, 3]));
    item.succeed();
    q.written().wait().unwrap();
    drop((q, file));
    values("k", "[4]", &mut client);
    let q = world.open();
    assert_eq!((q.in_memory().len(), q.ignores()), (1, Some("values")));
}

#[test]
fn e31_what_can_not_be_run_is_dead_with_its_reason_and_keeps_nobody_from_starting() {
    let world = World::new();
    let client = world.client();
    client.add("orders", &"no number".to_owned(), None).unwrap();
    client.add("orders", &7_u64, None).unwrap();
    let q: Queue<u64> = world.sqlite().queue("orders").open().unwrap();
    assert_eq!(q.in_memory().len(), 1);
    client.add("orders", &"none either".to_owned(), None).unwrap();
    let dead = |key: &str| {
        let known = client.state("orders", &key.to_owned()).unwrap();
        known.is_some_and(|it| {
            it.status == Status::Dead && it.error.is_some_and(|why| why.contains("invalid digit"))
        })
    };
    until(|| dead("no number") && dead("none either"));
    assert_eq!(client.stats("orders").unwrap().dead, 2);
}

#[test]
fn e32_who_finds_another_epoch_than_its_own_stops_and_says_so() {
    let world = World::new();
    let file = world.sqlite();
    let q: Queue<String> = file.queue("orders").open().unwrap();
    let (_worker, told, _go) = work(&q);
    q.add("held".into()).wait().unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), "held");
    assert_eq!(file.lost(), None);
    world.by_hand().execute("update runner set epoch = epoch + 1", []).unwrap();
    let refused = q.add("more".into()).wait().unwrap_err().error;
    assert!(
        matches!(&refused, EngineError::NotApplied(why) if why.to_string().contains("another process works")),
        "{refused}"
    );
    until(|| file.lost().is_some());
    assert!(q.try_get().is_err() && q.in_memory().paused(requeue::Scope::Queue), "it hands nothing out");
    assert!(q.written().wait().is_err());
}

#[test]
fn e32_a_file_that_is_removed_replaced_or_renamed_or_whose_log_is_stops_who_works_on_it() {
    for what in ["removed", "replaced", "renamed", "log", "shared memory"] {
        let world = World::new();
        let file = world.sqlite();
        let q: Queue<String> = file.queue("orders").open().unwrap();
        q.add("there".into()).wait().unwrap();
        let path = world.file();
        match what {
            "removed" => std::fs::remove_file(&path).unwrap(),
            "renamed" => std::fs::rename(&path, world.0.path().join("other.db")).unwrap(),
            "replaced" => {
                std::fs::copy(&path, world.0.path().join("copy.db")).unwrap();
                std::fs::rename(world.0.path().join("copy.db"), &path).unwrap();
            }
            "log" => std::fs::remove_file(world.0.path().join("q.db-wal")).unwrap(),
            _ => {
                std::fs::remove_file(world.0.path().join("q.db-shm")).unwrap();
                world.client().add("orders", &"accepted".to_owned(), None).unwrap();
            }
        }
        // also where nothing is written
        until(|| file.lost().is_some());
        let lost = file.lost().unwrap();
        assert!(lost.contains("removed or replaced"), "{what}: {lost}");
        assert!(q.add("more".into()).wait().is_err(), "{what}");
        assert!(q.try_get().is_err(), "{what}");
        drop((q, file));
        if what == "shared memory" {
            let listed = world.client().list("orders").unwrap();
            let keys: Vec<_> = listed.iter().map(|it| std::str::from_utf8(&it.key).unwrap()).collect();
            assert_eq!(keys, ["there", "accepted"]);
        }
    }
}

#[test]
fn e32_what_was_removed_or_renamed_without_its_log_is_not_made_anew_over_it() {
    for is_renamed in [false, true] {
        let world = World::new();
        world.client().add("orders", &"accepted".to_owned(), None).unwrap();
        let (path, log) = (world.file(), world.0.path().join("q.db-wal"));
        let elsewhere = world.0.path().join("other.db");
        match is_renamed {
            true => std::fs::rename(&path, &elsewhere).unwrap(),
            false => std::fs::remove_file(&path).unwrap(),
        }
        for refused in [Client::open(&path).map(drop), Sqlite::open(&path).map(drop)] {
            let why = refused.unwrap_err().to_string();
            let says = "it is not there, but its log ";
            assert!(why.contains(says) && why.contains("q.db-wal is: ") && !why.contains('\n'), "{why}");
        }
        assert!(log.metadata().unwrap().len() > 0 && !path.exists());
        // as the words say
        if is_renamed {
            std::fs::rename(&log, world.0.path().join("other.db-wal")).unwrap();
            let client = Client::open(&elsewhere).unwrap();
            assert_eq!(client.list("orders").unwrap()[0].key, b"accepted");
        } else {
            std::fs::remove_file(&log).unwrap();
        }
        assert!(world.client().queues().unwrap().is_empty());
    }
}

#[test]
fn e32_a_log_that_was_truncated_is_told_of_in_words() {
    let world = World::new();
    let file = world.sqlite();
    let q: Queue<String> = file.queue("orders").open().unwrap();
    q.add("there".into()).wait().unwrap();
    std::fs::File::create(world.0.path().join("q.db-wal")).unwrap(); // which truncates it
    let looked = Client::open(world.file()).and_then(|client| client.list("orders").map(drop));
    let added = q.add("more".into()).wait().map(drop).map_err(|e| e.error);
    for refused in [looked, added] {
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("its log, ") && why.contains("truncated") && !why.contains('\n'), "{why}");
    }
    // it can't be known whether the second is the first who writes to it
    until(|| q.add("another".into()).wait().is_err() && file.lost().is_some());
}

#[test]
fn e29_a_key_that_is_retried_keeps_its_value_and_its_priority() {
    for with_runner in [false, true] {
        let world = World::new();
        let (client, key) = (world.client(), "k".to_owned());
        let open = || {
            let file = world.sqlite();
            let merge = |old: &mut Vec<u32>, new| old.extend(new);
            once_free(|| file.queue_with("orders", merge).front(requeue::Builder::priorities).open()).unwrap()
        };
        let q: Queue<String, Vec<u32>> = open();
        q.add_with(key.clone(), Add::after(HOUR).value(vec![7]).priority(5)).wait().unwrap();
        let q = if with_runner {
            Some(q)
        } else {
            drop(q);
            None
        };
        assert!(client.retry("orders", &key).unwrap());
        let q = q.unwrap_or_else(open);
        until(|| q.in_memory().len() == 1);
        let item = q.try_get().unwrap();
        assert_eq!((item.value(), item.priority()), (Some(&vec![7]), 5), "{with_runner}");
        assert!(q.in_memory().state(&key).unwrap().waiting_until.is_none(), "{with_runner}");
    }
}

#[test]
fn d6_an_add_that_absorbs_stands_for_the_delayed_runs_that_its_key_has() {
    for with_runner in [false, true] {
        let world = World::new();
        let (client, key) = (world.client(), "k".to_owned());
        let q = with_runner.then(|| world.open());
        let waits = || client.state("orders", &key).unwrap().and_then(|known| known.due_in).is_some();
        client.add("orders", &key, Some(HOUR)).unwrap();
        client.add("orders", &key, None).unwrap();
        until(waits); // the delayed run comes too
        let absorb = AddOptions { absorb: true, ..AddOptions::default() };
        client.add_with("orders", std::slice::from_ref(&key), &absorb).unwrap();
        until(|| !waits());
        let q = q.unwrap_or_else(|| world.open());
        until(|| {
            q.in_memory().len() == 1
                && q.in_memory().state(&key).is_some_and(|known| known.waiting_until.is_none())
        });
        // of a key that runs it is the run after this one
        let item = q.try_get().unwrap();
        client.add("orders", &key, Some(HOUR)).unwrap();
        client.add_with("orders", std::slice::from_ref(&key), &absorb).unwrap();
        until(|| q.in_memory().state(&key).is_some_and(|known| known.dirty && known.waiting_until.is_none()));
        item.succeed();
        q.try_get().unwrap().succeed();
        q.written().wait().unwrap();
        assert!(client.list("orders").unwrap().is_empty(), "{with_runner}");
    }
}

#[test]
fn e33_looks_write_nothing_and_make_nothing_whatever_stands_beside_the_file() {
    let world = World::new();
    let look = |when: &str| {
        let before = world.files();
        let client = world.client();
        assert_eq!(client.stats("orders").unwrap().ready, 2, "{when}");
        assert_eq!(client.list("orders").unwrap().len(), 3, "{when}");
        assert!(client.state("orders", &"a".to_owned()).unwrap().is_some(), "{when}");
        assert_eq!(client.queues().unwrap(), ["orders"], "{when}");
        assert_eq!(client.check().unwrap(), [""; 0], "{when}");
        drop(client);
        assert!(before == world.files(), "{when}");
    };
    let client = world.client();
    client.add("orders", &"a".to_owned(), None).unwrap();
    client.add("orders", &"b".to_owned(), None).unwrap();
    client.add("orders", &"later".to_owned(), Some(HOUR)).unwrap();
    drop(client);
    look("with a log and an index of it");
    std::fs::remove_file(world.0.path().join("q.db-shm")).unwrap();
    look("with a log alone");
    drop(world.open());
    assert_eq!(world.files().len(), 1);
    look("without a log");
    // as a process leaves it that is about to write, or was killed then
    std::fs::write(world.0.path().join("q.db-wal"), []).unwrap();
    look("with a log that nothing was written to");
}

#[test]
fn e32_the_drop_of_the_last_handle_has_closed_the_file() {
    let world = World::new();
    for n in 0..50 {
        let q = world.open();
        q.add("a".to_owned()).wait().unwrap();
        drop(q);
        // SQLite removes its log and its shared memory as it closes a file that no other process has open
        assert_eq!(world.files().len(), 1, "{n}");
    }
}

#[test]
fn e33_looks_leave_an_empty_file_empty_and_the_first_add_makes_it_a_queue() {
    let world = World::new();
    std::fs::write(world.0.path().join("q.db"), []).unwrap();
    let (client, before) = (world.client(), world.files());
    assert_eq!(client.stats("orders").unwrap().ready, 0);
    assert!(client.list("orders").unwrap().is_empty() && client.queues().unwrap().is_empty());
    assert!(client.check().unwrap().is_empty() && before == world.files());
    client.add("orders", &"a".to_owned(), None).unwrap();
    assert_eq!(client.list("orders").unwrap().len(), 1);
}

#[test]
fn what_is_no_regular_file_is_said_so() {
    let world = World::new();
    let refused = |path: &Path| {
        let refused = [Client::open(path).unwrap_err(), Sqlite::open(path).unwrap_err()];
        assert!(refused.iter().all(|e| e.to_string().contains("not a regular file")), "{refused:?}");
    };
    refused(world.0.path());
    refused(Path::new("/dev/null"));
}

#[test]
fn e33_a_path_may_begin_with_two_slashes() {
    let dir = tempfile::tempdir().unwrap();
    // as "$DIR/q.db" does where DIR is the root
    let path = format!("/{}", dir.path().join("q.db").display());
    assert!(path.starts_with("//"));
    let client = Client::open(&path).unwrap();
    client.add("orders", &"k".to_owned(), None).unwrap();
    assert_eq!(client.stats("orders").unwrap().ready, 1);
    drop(client);
    let q = Sqlite::open(&path).unwrap().queue::<String>("orders").open().unwrap();
    assert_eq!(q.in_memory().len(), 1);
}

#[test]
fn e33_what_nobody_has_read_yet_is_shown_as_if_it_was() {
    let world = World::new();
    let client = world.client();
    client.add("orders", &"waits".to_owned(), Some(HOUR)).unwrap();
    client.add("orders", &"ready".to_owned(), None).unwrap();
    letter(&world, "add", "waits", None, 3, None);
    letter(&world, "add", "ready", None, 0, None);
    letter(&world, "add", "new", None, 0, None);
    letter(&world, "add", "new", None, 2, Some("[1]"));
    letter(&world, "add", "later", Some(i64::MAX / 2), 0, None);
    letter(&world, "pause", "", None, 0, None);
    let stats = client.stats("orders").unwrap();
    assert_eq!((stats.ready, stats.waiting, stats.dead, stats.paused), (3, 1, 0, true));
    let listed = client.list("orders").unwrap();
    let listed: Vec<_> =
        listed.iter().map(|it| (std::str::from_utf8(&it.key).unwrap(), it.status, it.priority)).collect();
    let (ready, waiting) = (Status::Ready, Status::Waiting);
    assert_eq!(listed, [("ready", ready, 0), ("waits", ready, 3), ("new", ready, 2), ("later", waiting, 0)]);
    let inbox: u32 = world.by_hand().query_row("select count(*) from inbox", [], |row| row.get(0)).unwrap();
    assert_eq!(inbox, 6, "nobody has read them");
    assert_eq!(world.open().in_memory().len(), 3);
}

#[test]
fn e33_a_file_of_an_older_schema_is_looked_at_as_it_is() {
    let world = World::new();
    world.by_hand().execute_batch(include_str!("versions/1.sql")).unwrap();
    let client = world.client();
    let names = client.queues().unwrap();
    let all: usize = names.iter().map(|name| client.list(name).unwrap().len()).sum();
    assert_eq!(all, 4, "{names:?}");
    let version = |world: &World| -> u32 {
        world.by_hand().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    };
    assert_eq!(version(&world), 1);
    client.add(&names[0], &"more".to_owned(), None).unwrap();
    assert_eq!(version(&world), 3);
}

#[test]
fn e35_what_was_added_before_a_run_begins_is_no_second_run() {
    let world = World::new();
    let file = world.sqlite();
    let q: Queue<String> = file.queue("orders").open().unwrap();
    let (_worker, told, go) = work(&q);
    let other: Queue<String> = file.queue("other").open().unwrap();
    let by_hand = world.by_hand();
    let add = "insert into inbox(queue, what, at, key) values((select id from queue where name = 'orders'), 'add', 1, ?1)";
    for round in 0.. {
        let key = format!("k{round}");
        by_hand.execute(add, [key.as_bytes()]).unwrap();
        by_hand.execute_batch("begin immediate").unwrap();
        let unread: u32 = by_hand.query_row("select count(*) from inbox", [], |row| row.get(0)).unwrap();
        if unread == 0 {
            // it was looked for just now
            by_hand.execute_batch("rollback").unwrap();
            assert_eq!(told.recv_timeout(LONG).unwrap(), key);
            go.send(()).unwrap();
            continue;
        }
        // This wants to write, and what it has read by now is the first letter alone. It has a while for that; whether it
        // needs longer changes nothing of what has to come.
        std::thread::scope(|threads| {
            let writes = threads.spawn(|| other.add_after("any".into(), HOUR).wait());
            std::thread::sleep(Duration::from_millis(200));
            by_hand.execute(add, [key.as_bytes()]).unwrap();
            by_hand.execute_batch("commit").unwrap();
            writes.join().unwrap().unwrap();
        });
        assert_eq!(told.recv_timeout(LONG).unwrap(), key);
        go.send(()).unwrap();
        until(|| q.in_memory().state(&key).is_none());
        break;
    }
    q.add("last".into()).wait().unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), "last", "and not the key again");
    go.send(()).unwrap();
}

/// The folder in which the child works.
const DIR: &str = "REQUEUE_SHARED_DIR";

#[test]
#[ignore = "it is the child of the test below"]
fn works_on_b() {
    let dir = PathBuf::from(std::env::var_os(DIR).expect("the parent says where"));
    let q: Queue<String> = Sqlite::open(dir.join("q.db")).unwrap().queue("b").open().unwrap();
    println!("opened");
    for n in 0..20 {
        q.add(format!("b{n}")).wait().unwrap();
    }
    until(|| q.in_memory().len() == 40);
    println!("all of them");
    // until the parent lets go
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

#[test]
fn e39_processes_work_on_queues_of_one_file_side_by_side() {
    let world = World::new();
    let file = world.sqlite();
    let a: Queue<String> = file.queue("a").open().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "works_on_b", "--nocapture"])
        .env(DIR, world.0.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut says = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(says.any(|line| line.ends_with("opened")), "it was refused");
    let refused = file.queue::<String>("b").open().unwrap_err().to_string();
    assert!(refused.contains(&format!("queue \"b\": process {} works on it", child.id())), "{refused}");
    let client = world.client();
    for n in 0..20 {
        a.add(format!("a{n}")).wait().unwrap();
        client.add("a", &format!("a{}", n + 20), None).unwrap();
        client.add("b", &format!("b{}", n + 20), None).unwrap();
    }
    until(|| a.in_memory().len() == 40);
    assert!(says.any(|line| line == "all of them"));
    assert_eq!(client.stats("b").unwrap().runner, Some(child.id()));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(file.lost(), None);
    assert_eq!(once_free(|| file.queue::<String>("b").open()).unwrap().in_memory().len(), 40);
}

#[test]
fn e39_a_key_that_runs_is_shown_as_held_with_how_long_it_has_been() {
    let world = World::new();
    let client = world.client();
    let q = world.open();
    let (_worker, told, go) = work(&q);
    q.add("runs".into()).wait().unwrap();
    q.add("waits for it".into()).wait().unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), "runs");
    let held = || client.state("orders", &"runs".to_owned()).unwrap().filter(|it| it.status == Status::Held);
    until(|| held().is_some_and(|it| it.age >= Duration::from_secs(1)));
    let stats = client.stats("orders").unwrap();
    assert_eq!((stats.held, stats.ready), (1, 1));
    let listed: Vec<_> = client.list("orders").unwrap().into_iter().map(|it| it.status).collect();
    assert_eq!(listed, [Status::Held, Status::Ready]);
    go.send(()).unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), "waits for it");
    until(|| client.state("orders", &"runs".to_owned()).unwrap().is_none());
    go.send(()).unwrap();
    until(|| client.stats("orders").unwrap().held == 0);
}

#[test]
fn e34_threads_that_add_take_turns_with_the_runner() {
    let world = World::new();
    let q = world.open();
    let path: &Path = &world.file();
    std::thread::scope(|threads| {
        for thread in 0..8 {
            threads.spawn(move || {
                for n in 0..20 {
                    Client::open(path).unwrap().add("orders", &format!("{thread}-{n}"), None).unwrap();
                }
            });
        }
        for n in 0..50 {
            q.add(format!("own-{n}")).wait().unwrap();
        }
    });
    until(|| q.in_memory().len() == 8 * 20 + 50);
}

#[cfg(target_os = "linux")]
#[test]
fn e33_a_look_waits_while_another_process_makes_the_index_of_the_log() {
    use std::os::unix::fs::FileExt as _;
    let world = World::new();
    world.client().add("orders", &"a".to_owned(), None).unwrap();
    let shared = world.0.path().join("q.db-shm");
    let shared = std::fs::File::options().read(true).write(true).open(shared).unwrap();
    // as a process that has just opened the file to write: SQLite's lock of that is byte 128
    let lock = nix::libc::flock { l_type: 0, l_whence: 0, l_start: 128, l_len: 1, l_pid: 0 };
    nix::fcntl::fcntl(&shared, nix::fcntl::FcntlArg::F_OFD_SETLK(&lock)).unwrap();
    let mut index = [0; 96];
    shared.read_exact_at(&mut index, 0).unwrap();
    assert!(index.iter().any(|byte| *byte != 0), "it has an index");
    let (done, all) = (AtomicBool::new(false), 500);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Relaxed) {
                for index in [&[0; 96], &index] {
                    shared.write_all_at(index, 0).unwrap();
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        });
        let looked: Vec<_> = (0..all).map(|_| world.client().stats("orders").map(|it| it.ready)).collect();
        done.store(true, Relaxed);
        let refused: Vec<_> = looked.iter().filter(|it| !matches!(it, Ok(1))).collect();
        assert!(refused.is_empty(), "{} of {all}: {:?}", refused.len(), refused.first());
    });
}

#[cfg(target_os = "linux")]
#[test]
fn e34_an_add_reads_a_log_that_nobody_has_open_once() {
    let world = World::new();
    drop(world.open()); // the file itself says whose it is
    let keys: Vec<_> = (0..2000).map(|n| format!("{n}{}", "x".repeat(4000))).collect();
    world.client().add_many("orders", &keys, None, 0).unwrap();
    let log = world.0.path().join("q.db-wal").metadata().unwrap().len();
    assert!(log > 4_000_000, "{log} bytes");
    let read = || {
        let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse::<u64>().ok()).unwrap()
    };
    let before = read();
    world.client().add("orders", &"a".to_owned(), None).unwrap();
    let read = read() - before;
    assert!(read < log + log / 2, "{read} bytes of a log of {log}");
}

//! Promises to operators of a queue on a server: messages are true, and nothing happens silently.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::engine_postgres::Database;
use crate::harness::{Job, dir, read, start, until};

/// The file of a server's socket.
const SOCKET: &str = ".s.PGSQL.5432";

/// A way to a server that can be cut.
struct Way {
    open: Arc<Mutex<Option<Vec<UnixStream>>>>,
}

impl Way {
    /// From this folder to that one.
    fn new(from: &std::path::Path, to: &std::path::Path) -> Self {
        let (listener, to) = (UnixListener::bind(from.join(SOCKET)).unwrap(), to.join(SOCKET));
        let open = Arc::new(Mutex::new(Some(Vec::new())));
        let ways = Arc::clone(&open);
        std::thread::spawn(move || {
            for theirs in listener.incoming() {
                let (theirs, ours) = (theirs.unwrap(), UnixStream::connect(&to).unwrap());
                let mut ways = ways.lock().unwrap();
                // a connection after the cut ends at once
                let Some(ways) = &mut *ways else { continue };
                ways.extend([theirs.try_clone().unwrap(), ours.try_clone().unwrap()]);
                for (mut from, mut to) in
                    [(theirs.try_clone().unwrap(), ours.try_clone().unwrap()), (ours, theirs)]
                {
                    std::thread::spawn(move || {
                        let mut chunk = [0; 4096];
                        while let Ok(read @ 1..) = from.read(&mut chunk) {
                            if to.write_all(&chunk[..read]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { open }
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().take().into_iter().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_program_that_ignores_term_is_gone_before_another_process_has_its_key() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    let dir = dir();
    let way = Way::new(dir.path(), db.folder());
    let engine = db.0.replace(&db.host(), &dir.path().to_str().unwrap().replace('/', "%2F"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.args(["work", "-j1", "--lease", "6s", "--grace", "1h", "--", "sh", "-c"]);
    command.arg("trap '' TERM; echo $$ >$D/pid; echo begun; while [ -d $D ]; do sleep 0.05; done");
    let cut_off = start({
        command.env("REQUEUE_ENGINE", &engine).env("D", dir.path());
        command
    });
    db.well(&["add", "k"]);
    until("its run", || cut_off.out_seen(b"begun"));
    way.cut();
    let pid = dir.path().join("pid");
    let beside = format!("kill -0 $(cat {}) && echo beside || echo alone", pid.display());
    let other = db.work(&["-j1"], &beside);
    until("the other's run", || other.out_seen(b"\n"));
    assert!(other.out_seen(b"alone"), "program {} was there still", read(&pid));
    cut_off.said("k: its lease is lost: another process may run it");
    // ends that wait for the server are not waited for here
    cut_off.signal(Signal::KILL);
    other.signal(Signal::TERM);
    assert_eq!(other.done().status, 0);
}

#[test]
fn any_value_is_told_to_the_program_and_no_key_dies_of_it() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    db.sql(
        "select requeue.make_queue('default');
         select requeue.add_tx('default', 'deep', value => (repeat('[', 3000) || repeat(']', 3000))::jsonb);
         select requeue.add_tx('default', 'large', value => '1e400')",
    );
    let job = db.work(&["-j1"], "echo $1 ${#REQUEUE_PAYLOAD}");
    until("both runs", || job.out_seen(b"deep 6000") && job.out_seen(b"large 401"));
    job.signal(Signal::TERM);
    let done = job.done();
    assert_eq!((done.status, &*db.well(&["ls"])), (0, ""), "{}", done.err);
}

#[test]
fn lines_are_added_as_they_come_and_a_failure_says_how_far_that_came() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.args(["add", "--json"]).env("REQUEUE_ENGINE", &db.0);
    let mut job = start(command);
    job.send(b"first\n");
    until("the first line", || db.sql("select count(*) from requeue.item") == "1");
    // with an empty line, which is no key
    let lines: Vec<String> = (0..1499).map(|n| format!("key-{n}\n")).collect();
    job.send(format!("\n{}", lines.concat()).as_bytes());
    until("all lines", || db.sql("select count(*) from requeue.item") == "1500");
    db.sql("alter schema requeue rename to gone");
    job.send(b"more\n");
    let done = job.done();
    assert_eq!(
        (done.status, done.text()),
        (1, "{\"added\":1500,\"refused\":0,\"in_doubt\":null,\"not_added_from\":1502}\n"),
        "{}",
        done.err
    );
    let said = "; 1500 keys were added; nothing from line 1502 on was added\n";
    assert!(done.err.starts_with("requeue: ") && done.err.ends_with(said), "{}", done.err);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    assert_eq!(db.sql("select count(*) from gone.item"), "1500");
}

#[test]
fn where_the_schema_is_a_newer_one_it_is_sure_that_nothing_was_added() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    db.sql("update requeue.meta set version = 1000");
    let (status, out, err) = db.requeue(&["add", "--json", "k"], b"");
    let added = "{\"added\":0,\"refused\":0,\"in_doubt\":null,\"not_added_from\":1}\n";
    assert_eq!((status, &*out), (1, added), "{err}");
    assert!(err.ends_with("; 0 keys were added; nothing from key 1 on was added\n"), "{err}");
    assert!(!err.contains("nothing has changed"), "the rest says it: {err}");
}

#[test]
fn counts_that_stop_are_told_as_at_least() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    db.well(&["add", "--after", "1h", "late"]);
    db.sql(
        "insert into requeue.inbox(queue, key, delay_us, rank) select 1, int4send(n), 0, 0 from generate_series(1, 100001) n",
    );
    let stats = db.well(&["stats"]);
    assert!(stats.starts_with("ready    100000+\nheld     0\nwaiting  1\n"), "{stats}");
    let stats: serde_json::Value = serde_json::from_str(&db.well(&["stats", "--json"])).unwrap();
    assert_eq!((&stats["ready"], &stats["at_least"]), (&100_000.into(), &serde_json::json!(["ready"])));
    let top = db.well(&["top", "--times", "1"]);
    assert!(top.lines().nth(1).unwrap().trim_start().starts_with("100000+ "), "{top}");
    let top: serde_json::Value = serde_json::from_str(&db.well(&["top", "--times", "1", "--json"])).unwrap();
    assert_eq!(top["at_least"], serde_json::json!(["ready"]));
    // all others are exact
    db.sql("delete from requeue.inbox where key <> int4send(1)");
    assert!(db.well(&["stats"]).starts_with("ready    1\n"));
    let stats: serde_json::Value = serde_json::from_str(&db.well(&["stats", "--json"])).unwrap();
    assert_eq!(stats["at_least"], serde_json::json!([]));
}

#[test]
fn whoever_looks_makes_no_queue_and_is_told_that_there_is_none() {
    let Some(db) = Database::new() else { return };
    // without a prefix that says nothing of a look
    for args in [&["ls"][..], &["ls", "--queues"], &["stats"], &["state", "k"], &["top", "--times", "1"]] {
        let (status, out, err) = db.requeue(args, b"");
        assert_eq!((status, &*out), (1, ""), "{args:?}");
        assert!(
            err.starts_with("requeue: the schema `requeue` is not there: ")
                && err.contains("`requeue migrate`"),
            "{args:?}: {err}"
        );
    }
    db.well(&["migrate"]);
    assert_eq!(db.well(&["ls", "--queues"]), "");
    let none = "there is no queue 'typo'; there is none at all\n";
    for args in [&["ls"][..], &["ls", "--dead"], &["ls", "--groups"], &["stats"], &["state", "k"]] {
        let said = db.requeue(&[args, &["--queue", "typo"]].concat(), b"");
        assert_eq!(said, (1, String::new(), format!("requeue: {none}")), "{args:?}");
    }
    let group = ["pause", "--group", "g"];
    for args in [&["cancel", "k"][..], &["retry", "k"], &["purge"], &["pause"], &["resume"], &group] {
        let said = db.requeue(&[args, &["--queue", "typo"]].concat(), b"");
        assert_eq!(said, (1, String::new(), format!("requeue: nothing has changed: {none}")), "{args:?}");
    }
    assert_eq!(db.well(&["ls", "--queues"]), "", "none was made");
}

#[test]
fn a_cap_of_groups_is_told_and_taken_back() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    db.well(&["add", "--group-by", "/", "--after", "1h", "a/1"]);
    let cap = || -> serde_json::Value {
        let stats: serde_json::Value = serde_json::from_str(&db.well(&["stats", "--json"])).unwrap();
        stats["groups"]["cap"].clone()
    };
    for (said, is) in [("2", 2.into()), ("none", serde_json::Value::Null)] {
        let job = db.work(&["-j1", "--group-by", "/", "--group-cap", said], "true");
        until("the cap", || cap() == is);
        // by then it has taken the signals over
        until("it waits for keys", || db.sql("select count(*) from requeue.owner where idle") == "1");
        job.signal(Signal::TERM);
        let done = job.done();
        assert_eq!(done.status, 0, "{}", done.err);
    }
    assert!(!db.well(&["stats"]).contains("cap "));
}

#[test]
fn the_name_of_the_engine_is_not_in_the_environment_of_a_program() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    db.well(&["add", "k"]);
    let job = db.work(&["-j1"], "echo engine [${REQUEUE_ENGINE-}] key $REQUEUE_KEY");
    until("its run", || job.out_seen(b"key k"));
    job.signal(Signal::TERM);
    assert_eq!(job.done().text(), "engine [] key k\n");
}

#[test]
fn a_server_that_goes_away_is_told_by_top_in_its_form() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    db.well(&["add", "k"]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.args(["top", "--json", "--every", "10ms"]).env("REQUEUE_ENGINE", &db.0);
    let job = start(command);
    until("a look", || job.out_seen(b"\"queue\":\"default\""));
    db.sql("alter schema requeue rename to gone");
    until("what is wrong", || job.out_seen(b"{\"error\":\"the schema `requeue` is not there"));
    job.signal(Signal::KILL);
    for line in job.done().text().lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
}

/// A process whose program has begun to run a key, and goes on until [`Running::ends`].
struct Running {
    job: Job,
    go: PathBuf,
    _dir: TempDir,
}

impl Running {
    fn of(db: &Database, options: &[&str], key: &str) -> Self {
        db.well(&["migrate"]);
        let dir = dir();
        let go = dir.path().join("go");
        let job =
            db.work(options, &format!("echo begun $1; until [ -e {} ]; do sleep 0.02; done", go.display()));
        db.well(&["add", key]);
        until("its run", || job.out_seen(format!("begun {key}").as_bytes()));
        Self { job, go, _dir: dir }
    }

    fn ends(&self) {
        std::fs::write(&self.go, "").unwrap();
    }
}

/// Makes the process lose its lease, as if it had been away and another had run its key.
fn loses_its_lease(db: &Database, away: &Running) {
    away.job.signal(Signal::STOP);
    db.sql("update requeue.owner set lease_until = '-infinity'");
    let other = db.work(&["-j1"], "echo $1 attempt $REQUEUE_ATTEMPT");
    until("the other's run", || other.out_seen(b"k attempt 2"));
    until("its end", || db.sql("select count(*) from requeue.item") == "0");
    other.signal(Signal::TERM);
    assert_eq!(other.done().status, 0);
    away.ends();
    away.job.signal(Signal::CONT);
}

/// The message for an end that the server refused.
const REFUSED: &str =
    "requeue: 1 run ended after its lease was lost: the server has refused its end, and its key runs again\n";

#[test]
fn an_end_that_the_server_refuses_is_told_once() {
    let Some(db) = Database::new() else { return };
    let running = Running::of(&db, &["-j1", "--lease", "1h"], "k");
    loses_its_lease(&db, &running);
    running.job.said(REFUSED);
    running.job.signal(Signal::TERM);
    let done = running.job.done();
    assert_eq!((done.status, done.err.matches(REFUSED).count()), (0, 1), "{}", done.err);
}

#[test]
fn an_end_that_the_server_refuses_after_the_first_signal_is_no_success() {
    let Some(db) = Database::new() else { return };
    let running = Running::of(&db, &["-j1", "--lease", "1h"], "k");
    running.job.signal(Signal::TERM);
    running
        .job
        .said("SIGTERM: the running programs may end, and nothing more is claimed; once more to stop them\n");
    loses_its_lease(&db, &running);
    let done = running.job.done();
    assert_eq!((done.status, done.err.matches(REFUSED).count()), (1, 1), "{}", done.err);
}

#[test]
fn whoever_works_on_a_paused_queue_is_told_so() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    db.well(&["add", "--queue", "orders", "--make", "k"]);
    db.well(&["pause", "--queue", "orders"]);
    let job = db.work(&["--queue", "orders"], "echo ran $1");
    job.said("requeue: queue orders is paused: see requeue resume\n");
    db.well(&["resume", "--queue", "orders"]);
    until("its run", || job.out_seen(b"ran k"));
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 0);
}

#[test]
fn of_a_key_that_runs_it_is_told_what_cancel_and_retry_have_done() {
    let Some(db) = Database::new() else { return };
    let running = Running::of(&db, &["-j1"], "a key");
    let is_dirty = || -> serde_json::Value {
        let state: serde_json::Value = serde_json::from_str(&db.well(&["state", "a key", "--json"])).unwrap();
        assert_eq!(state["status"], "held");
        state["dirty"].clone()
    };
    let nothing = "nothing to cancel: 'a key' is running, and no further run is asked for\n";
    assert_eq!(db.requeue(&["cancel", "a key"], b""), (1, nothing.into(), String::new()));
    assert_eq!(db.requeue(&["cancel", "a key", "--json"], b""), (1, "null\n".into(), String::new()));
    let listed = |behind: &str| {
        let list = db.well(&["ls"]);
        assert!(list.starts_with("held    'a key'  for ") && list.ends_with(behind), "{list}");
    };
    listed(" (requeue)\n");
    assert_eq!(is_dirty(), false);
    assert_eq!(db.well(&["retry", "a key"]), "held, and once more after that\n");
    listed("  once more\n");
    assert_eq!(is_dirty(), true);
    assert_eq!(db.well(&["retry", "a key", "--json"]), "\"held, and once more after that\"\n");
    assert_eq!(db.well(&["cancel", "a key"]), "cancelled\n");
    assert_eq!(is_dirty(), false);
    running.ends();
    until("its end", || db.well(&["ls"]).is_empty());
    running.job.signal(Signal::TERM);
    assert_eq!(running.job.done().status, 0);
}

#[test]
fn a_role_that_may_not_make_the_schema_is_told_what_it_needs() {
    let Some(db) = Database::new() else { return };
    let name = db.0.rsplit('/').next().unwrap();
    let role = format!("worker_{name}");
    db.sql(&format!("create role {role} login; revoke create on database {name} from public"));
    let engine = db.0.replace("//postgres@", &format!("//{role}@"));
    let migrate = ["migrate", "--engine", &*engine];
    let (status, _, err) = db.requeue(&migrate, b"");
    let needed = format!(
        "; it needs `grant create on database {name} to {role}`, or an administrator runs `create schema requeue authorization {role}`\n"
    );
    assert!(status == 1 && err.contains("(42501)") && err.ends_with(&needed), "{err}");
    // of another role's schema
    db.sql("create schema requeue");
    let (status, _, err) = db.requeue(&migrate, b"");
    let needed = format!("; an administrator runs `alter schema requeue owner to {role}`\n");
    assert!(status == 1 && err.ends_with(&needed), "{err}");
    db.sql(&format!("alter schema requeue owner to {role}"));
    assert_eq!(db.requeue(&migrate, b""), (0, String::new(), String::new()));
    assert_eq!(db.requeue(&["add", "k", "--engine", &engine], b"").0, 0);
    assert_eq!(db.well(&["ls"]), "ready   k\n");
}

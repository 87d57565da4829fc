//! The commands for a durable queue on a PostgreSQL server.

#[allow(missing_docs, dead_code, unreachable_pub)]
#[path = "../../../../verify/src/cluster.rs"]
mod cluster;

use self::cluster::Cluster;
use crate::harness::{Job, dir, fetch, read, start, until};
use rustix::process::Signal;
use std::process::{Command, Stdio};

use std::io::Write as _;

/// How a command ended: its status, and what it said on standard output and standard error.
type Ended = (i32, String, String);

/// A database, as `--engine` names it.
pub(crate) struct Database(pub(crate) String);

impl Database {
    pub(crate) fn new() -> Option<Self> {
        let cluster = Cluster::shared()?;
        let name = cluster.database().rsplit('=').next().unwrap().to_owned();
        let host = cluster.folder().to_str().unwrap().replace('/', "%2F");
        Some(Self(format!("postgres://postgres@{host}/{name}")))
    }

    pub(crate) fn requeue(&self, args: &[&str], input: &[u8]) -> Ended {
        let mut child = Command::new(env!("CARGO_BIN_EXE_requeue"))
            .args(args)
            .env("REQUEUE_ENGINE", &self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdin.take().unwrap().write_all(input));
        let ended = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (ended.status.code().unwrap(), text(ended.stdout), text(ended.stderr))
    }

    /// Begins to work, with a script for each key.
    pub(crate) fn work(&self, args: &[&str], script: &str) -> Job {
        let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
        command.arg("work").args(args).args(["--", "sh", "-c", script, "sh"]).env("REQUEUE_ENGINE", &self.0);
        start(command)
    }

    /// Output of psql for this statement.
    pub(crate) fn sql(&self, sql: &str) -> String {
        let name = self.0.rsplit('/').next().unwrap();
        Cluster::shared().unwrap().sql(name, sql)
    }

    /// Where the server's socket is.
    pub(crate) fn folder(&self) -> &'static std::path::Path {
        Cluster::shared().unwrap().folder()
    }

    /// The folder of the server's socket, in the form of the engine's name.
    pub(crate) fn host(&self) -> String {
        self.folder().to_str().unwrap().replace('/', "%2F")
    }

    pub(crate) fn well(&self, args: &[&str]) -> String {
        let (status, out, err) = self.requeue(args, b"");
        assert_eq!((status, &*err), (0, ""), "{args:?}");
        out
    }
}

#[test]
fn a_queue_on_a_server_is_fed_listed_and_operated() {
    let Some(db) = Database::new() else { return };
    let (status, out, err) = db.requeue(&["add", "a"], b"");
    assert_eq!((status, &*out), (1, ""));
    assert!(err.contains("requeue migrate"), "{err}");
    db.well(&["migrate"]);
    db.well(&["migrate"]);
    db.well(&["add", "b", "a", "b"]);
    db.well(&["add", "--after", "1h", "--priority", "7", "late"]);
    assert_eq!(db.requeue(&["add"], b"odd\x07\n\xff\n").0, 0);
    let listed = db.well(&["ls"]);
    let keys: Vec<_> = listed.lines().map(|line| line.split("  due").next().unwrap()).collect();
    assert_eq!(keys[..2], ["ready   b", "ready   a"]);
    assert_eq!(keys[2..4], ["ready   $'odd\\007'", "ready   $'\\377'"]);
    assert!(listed.ends_with("  priority 7\n"), "{listed}");
    let state = db.well(&["state", "late", "--json"]);
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    let due = state["due_in_seconds"].as_f64().unwrap();
    assert!((3500.0..=3600.0).contains(&due), "{due}");
    assert_eq!(db.well(&["retry", "late"]), "ready\n");
    assert_eq!(db.well(&["cancel", "a"]), "cancelled\n");
    assert_eq!(db.requeue(&["cancel", "a"], b""), (1, "unknown\n".into(), String::new()));
    db.well(&["pause"]);
    let stats = db.well(&["stats"]);
    assert!(stats.starts_with("ready    4\nheld     0\nwaiting  0\ndead     0\n"), "{stats}");
    assert!(stats.contains("paused   yes\nowners   0\n"), "{stats}");
    db.well(&["resume"]);
    let stats: serde_json::Value = serde_json::from_str(&db.well(&["stats", "--json"])).unwrap();
    assert_eq!((&stats["paused"], &stats["owners"], &stats["held"]), (&false.into(), &0.into(), &0.into()));
    db.well(&["add", "--make", "--queue", "reports", "--every", "1d", "--after", "1h", "sales"]);
    assert!(db.well(&["ls", "--queue", "reports"]).contains("every 1d"));
    assert_eq!(db.well(&["ls", "--queues"]), "default\nreports\n");
    // a program of version 1 made such a name
    db.sql(
        "insert into requeue.queue(name) values (E'odd\\x1b[2J'); insert into requeue.floor values (3, 0, 0)",
    );
    db.well(&["add", "--queue", "odd\x1b[2J", "k"]);
    assert_eq!(db.well(&["ls", "--queues"]), "default\n$'odd\\033[2J'\nreports\n");
    assert!(db.well(&["ls", "--queues", "--json"]).contains("\"odd\\u001b[2J\""));
    db.sql("delete from requeue.item where queue = 3; delete from requeue.queue where id = 3");
    db.well(&["pause", "--queue", "reports"]);
    let top = db.well(&["top", "--times", "2", "--every", "10ms"]);
    let looks: Vec<Vec<&str>> = top
        .lines()
        .filter(|line| !line.starts_with("oldest snapshot"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(looks.len(), 6, "{top}");
    for look in looks.chunks(3) {
        assert_eq!(look[0].last(), Some(&"QUEUE"), "{top}");
        assert_eq!((look[1][0], look[1][6], look[1][7]), ("4", "nobody", "default"), "{top}");
        assert_eq!((look[2][3], look[2][6], look[2][7]), ("1", "paused", "reports"), "{top}");
    }
    let top = db.well(&["top", "--times", "1", "--json"]);
    let first: serde_json::Value = serde_json::from_str(top.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["queue"], &first["ready"], &first["owners"]),
        (&"default".into(), &4.into(), &0.into())
    );
    assert_eq!(db.well(&["purge"]), "0\n");
    let (status, _, err) = db.requeue(&["check"], b"");
    assert_eq!(status, 2, "{err}");
}

#[test]
fn a_key_that_is_too_long_is_named_and_the_others_are_added() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    let (fits, long) = ("f".repeat(2600), "l".repeat(2601));
    let input = format!("first\n{long}\n{fits}\nlast\n");
    let (status, out, err) = db.requeue(&["add", "--json"], input.as_bytes());
    assert_eq!((status, &*out), (1, "{\"added\":3,\"refused\":1}\n"), "{err}");
    assert!(
        err.starts_with("requeue: lllll") && err.contains("has 2601 bytes") && err.contains("2600 at most"),
        "{err}"
    );
    assert_eq!(err.lines().count(), 1, "{err}");
    let listed = db.well(&["ls"]);
    assert_eq!(
        listed.lines().collect::<Vec<_>>(),
        ["ready   first", &format!("ready   {fits}"), "ready   last"]
    );
    // as arguments; of one that is refused nothing is read from standard input
    let (status, _, err) = db.requeue(&["add", &long], b"other\n");
    assert!(status == 1 && err.contains("has 2601 bytes"), "{err}");
    assert_eq!(db.requeue(&["add", &long, "another"], b"").0, 1);
    let listed = db.well(&["ls"]);
    assert!(listed.ends_with("ready   last\nready   another\n"), "{listed}");
}

#[test]
fn groups_that_are_paused_or_have_rules_are_listed_and_counted() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    db.well(&["add", "--group-by", "/", "a/1"]);
    assert_eq!(db.well(&["ls", "--groups"]), "");
    assert!(!db.well(&["stats"]).contains("groups"));
    db.well(&["pause", "--group", "b"]);
    db.well(&["pause", "--group", "a"]);
    db.sql(
        "select requeue.group_rules(1, 4, array['a', 'wide', convert_from('\\x1b', 'UTF8')]::bytea[], array[3, null, 2],
         array[10, 2147483647, null])",
    );
    let listed = db.well(&["ls", "--groups"]);
    let expected =
        ["served  $'\\033'  weight 2", "paused  a  weight 3  cap 10", "paused  b", "served  wide  cap none"];
    assert_eq!(listed.lines().collect::<Vec<_>>(), expected);
    let listed = db.well(&["ls", "--groups", "--json"]);
    let json: Vec<serde_json::Value> =
        listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(json[1], serde_json::json!({"group": "a", "paused": true, "weight": 3, "cap": 10}));
    assert_eq!(json[3], serde_json::json!({"group": "wide", "paused": false, "weight": null, "cap": "none"}));
    let stats = db.well(&["stats"]);
    assert!(stats.contains("\ngroups   2 paused, 3 with rules of their own, others cap 4\n"), "{stats}");
    let stats: serde_json::Value = serde_json::from_str(&db.well(&["stats", "--json"])).unwrap();
    assert_eq!(stats["groups"], serde_json::json!({"paused": 2, "with_rules": 3, "cap": 4}));
    // a group that was only paused has nothing to tell then
    db.well(&["resume", "--group", "b"]);
    assert!(!db.well(&["ls", "--groups"]).contains("  b"));
    let dir = dir();
    let file = format!("sqlite:{}/q.db", dir.path().display());
    assert_eq!(db.requeue(&["add", "--engine", &file, "k"], b"").0, 0);
    let (status, _, err) = db.requeue(&["ls", "--groups", "--engine", &file], b"");
    assert!(status == 2 && err.contains("a file keeps no groups"), "{err}");
}

#[test]
fn a_server_that_is_not_there_is_told_without_a_password() {
    let engine = "postgres://worker:secret@127.0.0.1:1/shop";
    let ended =
        Command::new(env!("CARGO_BIN_EXE_requeue")).args(["ls", "--engine", engine]).output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{err}");
    assert!(err.starts_with("requeue: 127.0.0.1:1: Connection refused"), "{err}");
    assert!(!err.contains("secret"), "{err}");
    for engine in ["postgres:shop:secret", "postgres://a:secret@b:x/c"] {
        let ended =
            Command::new(env!("CARGO_BIN_EXE_requeue")).args(["ls", "--engine", engine]).output().unwrap();
        let err = String::from_utf8(ended.stderr).unwrap();
        assert!(!err.contains("secret"), "{err}");
        assert_eq!(ended.status.code(), Some(2), "{err}");
    }
}

#[test]
fn keys_of_a_server_are_worked_off_by_several_processes_until_a_signal() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    let script = r#"echo "$1 attempt $REQUEUE_ATTEMPT fence $REQUEUE_FENCE value [$REQUEUE_PAYLOAD]""#;
    let jobs = [(); 2].map(|()| db.work(&["-j4"], script));
    let keys: Vec<String> = (0..100).map(|n| format!("key-{n}")).collect();
    db.requeue(&["add"], keys.join("\n").as_bytes());
    db.sql(r#"select requeue.add_tx('default', 'valued', value => '{"count": 7}')"#);
    until("all keys", || {
        db.sql("select (select count(*) from requeue.item) + (select count(*) from requeue.inbox)") == "0"
    });
    let done = jobs.map(|job| {
        job.signal(Signal::TERM);
        job.done()
    });
    let mut ran: Vec<String> = Vec::new();
    let mut fences: Vec<u64> = Vec::new();
    for done in &done {
        assert_eq!(done.status, 0, "{}", done.err);
        for line in done.text().lines() {
            let words: Vec<_> = line.split(' ').collect();
            ran.push(words[0].to_owned());
            fences.push(words[4].parse().unwrap());
            let value = if words[0] == "valued" { r#"value [{"count":7}]"# } else { "value []" };
            assert!(line.contains(" attempt 1 ") && line.ends_with(value), "{line}");
        }
    }
    ran.sort();
    let mut expected = keys;
    expected.push("valued".into());
    expected.sort();
    assert_eq!(ran, expected);
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), 101);
    assert_eq!(db.sql("select w from requeue.owner w"), "", "they have left {} {}", done[0].err, done[1].err);
}

#[test]
fn groups_of_a_server_take_turns_and_are_capped_and_paused() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    db.well(&["add", "--group-by", "/", "a/1", "a/2", "a/3", "b/1", "c/1"]);
    db.well(&["pause", "--group", "b"]);
    let folder = dir();
    let held = folder.path().to_str().unwrap().to_owned();
    // a key is a file for as long as it is held
    let script =
        format!("f={held}/$(echo $1 | tr / -); touch $f; ls {held}; while [ -e $f ]; do sleep 0.01; done");
    let args = ["--group-by", "/", "--group-cap", "1", "-j4", "--tag"];
    let job = db.work(&args, &script);
    let held = |name: &str| folder.path().join(name).exists();
    until("one key of each group that is not paused", || held("a-1") && held("c-1"));
    until("the claim of no more", || db.sql("select count(*) from requeue.owner where idle") == "1");
    assert_eq!(db.sql("select count(*) from requeue.item where state = 1"), "3");
    std::fs::remove_file(folder.path().join("a-1")).unwrap();
    until("the next of its group", || held("a-2"));
    assert!(!held("b-1") && !held("a-3"));
    db.well(&["resume", "--group", "b"]);
    until("the group that was paused", || held("b-1"));
    for key in ["a-2", "a-3", "b-1", "c-1"] {
        until(key, || std::fs::remove_file(folder.path().join(key)).is_ok());
    }
    until("the end of the last run", || db.sql("select count(*) from requeue.item") == "0");
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 0);
    // options that a file, or a server, does not keep are refused
    let (status, _, err) = db.requeue(&["work", "--group-by", "/", "--group-rate", "1", "--", "true"], b"");
    assert!(status == 2 && err.contains("--group-rate"), "{err}");
    let (status, _, err) = db.requeue(&["work", "--jitter", "0.5", "--", "true"], b"");
    assert!(status == 2 && err.contains("--jitter has no meaning") && err.contains("--base-delay"), "{err}");
    let file = format!("sqlite:{}/q.db", folder.path().display());
    for args in [&["add", "--group-by", "/", "a"][..], &["pause", "--group", "a"]] {
        let (status, _, err) = db.requeue(&[args, &["--engine", &file]].concat(), b"");
        assert!(status == 2 && err.contains("a file keeps no groups"), "{err}");
    }
}

#[test]
fn a_program_whose_lease_is_lost_is_ended_and_its_key_goes_to_another() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    let slow = db.work(&["-j1", "--lease", "20s"], "echo begun; exec sleep 1000");
    db.well(&["add", "k"]);
    until("its run", || slow.out_seen(b"begun"));
    // as a machine that was asleep for longer than its lease
    slow.signal(Signal::STOP);
    db.sql("update requeue.owner set lease_until = '-infinity'");
    let other = db.work(&["-j1"], "echo $1 attempt $REQUEUE_ATTEMPT");
    until("the other's run", || other.out_seen(b"k attempt 2"));
    until("its end", || db.sql("select count(*) from requeue.item") == "0");
    slow.signal(Signal::CONT);
    slow.said("k: its lease is lost: another process may run it");
    for job in [slow, other] {
        job.signal(Signal::TERM);
        let done = job.done();
        assert_eq!(done.status, 0, "{}", done.err);
    }
    assert_eq!(db.sql("select count(*) from requeue.item"), "0", "its end changed nothing");
}

#[test]
fn what_fails_comes_back_as_the_queue_says_and_gives_up_at_last() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    let job = db.work(&["--base-delay", "10ms", "--max-delay", "40ms", "--max-attempts", "3"], "exit 3");
    db.well(&["add", "k"]);
    job.said("k: exit status 3 (attempt 3 of 3), gave up");
    until("the end", || db.well(&["ls", "--dead"]).starts_with("dead    k"));
    assert_eq!(db.sql("select base_us, max_us from requeue.queue"), "10000|40000");
    job.signal(Signal::INT);
    let done = job.done();
    assert_eq!((done.status, done.text()), (1, ""), "{}", done.err);
    let summary = done.err.lines().find(|line| line.contains(" runs, ")).unwrap();
    // added keys, and those left on the server, are not this process's to tell
    assert!(summary.starts_with("requeue: 3 runs, 2 retries, 1 gave up, "), "{summary}");
    assert_eq!(summary.matches(", ").count(), 3, "{summary}");
}

#[test]
fn back_off_and_rate_are_kept_by_the_server_told_and_taken_back() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    db.well(&["add", "--after", "1h", "k"]);
    let told = || {
        let stats = db.well(&["stats"]);
        let (_, limits) = stats.split_once("back-off ").expect("a server has one");
        limits.to_owned()
    };
    assert_eq!(told(), "1s to 5m\n");
    let worked = |options: &[&str]| {
        let job = db.work(options, "true");
        until("it has begun", || db.well(&["stats"]).contains("owners   1"));
        job.signal(Signal::TERM);
        assert_eq!(job.done().status, 0);
    };
    // an option that is not given keeps its stored value
    worked(&["--max-delay", "1m", "--rate", "90/m"]);
    assert_eq!(told(), "1s to 1m\nrate     1.5/s\n");
    worked(&["--base-delay", "2s"]);
    assert_eq!(told(), "2s to 1m\nrate     1.5/s\n");
    let stats: serde_json::Value = serde_json::from_str(&db.well(&["stats", "--json"])).unwrap();
    let limits = ["base_delay_seconds", "max_delay_seconds", "rate"].map(|it| stats[it].as_f64().unwrap());
    assert_eq!(limits, [2.0, 60.0, 1.5]);
    let (status, _, err) = db.requeue(&["work", "--max-delay", "1s", "--", "true"], b"");
    assert!(
        status == 1 && err.contains("the first delay (2s) is longer than the longest delay (1s)"),
        "{err}"
    );
    worked(&["--rate", "none"]);
    assert_eq!(told(), "2s to 1m\n");
}

#[test]
fn a_session_that_is_ended_while_work_goes_on_is_made_again() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    let job = db.work(&["-j1"], "echo ran $1");
    db.well(&["add", "a"]);
    until("its run", || job.out_seen(b"ran a"));
    db.sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'requeue' and datname = current_database()");
    db.well(&["add", "b"]);
    until("its run", || job.out_seen(b"ran b"));
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 0);
}

#[test]
fn a_process_that_works_exports_what_the_server_knows_of_its_queue() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    db.well(&["add", "--make", "--queue", "orders", "--after", "1h", "late", "later"]);
    let dir = dir();
    let file = dir.path().join("metrics");
    let args = ["--queue", "orders", "-j1", "--lease", "1h", "--listen", "0", "--metrics-to"];
    let job = db.work(&[&args[..], &[file.to_str().unwrap()]].concat(), "echo ran $1");
    let address = job.address();
    db.well(&["add", "--queue", "orders", "now"]);
    until("its run", || job.out_seen(b"ran now"));
    let shows = |text: &str, metric: &str| -> Option<f64> {
        let series = format!("{metric}{{name=\"orders\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&series)).map(|value| value.parse().unwrap())
    };
    until("a look after that", || {
        let (status, _, text) = fetch(&address, "/metrics");
        assert_eq!(status, 200);
        assert_eq!(shows(&text, "requeue_lease_seconds"), Some(3600.0));
        let [up, waiting, ready, owners] = ["up", "waiting_keys", "ready_keys", "owners"]
            .map(|it| shows(&text, &format!("requeue_engine_{it}")));
        [up, waiting, ready, owners] == [Some(1.0), Some(2.0), Some(0.0), Some(1.0)]
            && shows(&text, "requeue_lease_held") == Some(1.0)
            && shows(&text, "workqueue_work_duration_seconds_count") == Some(1.0)
    });
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 0);
    let text = read(&file);
    assert_eq!(shows(&text, "workqueue_work_duration_seconds_count"), Some(1.0), "{text}");
    assert_eq!(shows(&text, "requeue_ends_refused_total"), Some(0.0), "{text}");
    assert_eq!(shows(&text, "requeue_engine_waiting_keys"), Some(2.0), "{text}");
}

#[test]
fn e43_a_worker_that_is_too_old_for_the_schema_says_so_and_ends() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    let job = db.work(&["-j1"], "echo ran $1; exec sleep 1000");
    db.well(&["add", "k", "next"]);
    until("its run", || job.out_seen(b"ran k"));
    // as a migration to a version that no longer serves programs of this one
    db.sql("update requeue.meta set version = 1000");
    let done = job.done();
    assert_eq!(done.status, 1, "{}", done.err);
    assert_eq!(done.err.matches("version 1000").count(), 1, "{}", done.err);
    assert!(done.err.contains("newer release"), "{}", done.err);
    assert_eq!(db.sql("select count(*) from requeue.item where state = 1"), "2", "{}", done.err);
    assert_eq!(db.sql("select count(*) from requeue.owner"), "0", "{}", done.err);
    let (status, _, err) = db.requeue(&["add", "more"], b"");
    assert!(status == 1 && err.contains("version 1000") && err.contains("newer release"), "{err}");
}

#[test]
fn e44_a_misspelt_queue_is_told_with_the_name_that_is_most_like_it() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    db.well(&["add", "--make", "--queue", "orders", "k"]);
    let (status, _, err) = db.requeue(&["add", "--queue", "ordres", "k"], b"");
    let told = "requeue: there is no queue 'ordres'; the most similar names are 'orders'";
    assert_eq!(
        (status, &*err),
        (
            1,
            &*format!("{told}; --make makes a new one; 0 keys were added; nothing from key 1 on was added\n")
        )
    );
    for command in
        [&["ls"][..], &["stats"], &["state", "k"], &["cancel", "k"], &["retry", "k"], &["pause"], &["purge"]]
    {
        let (status, _, err) = db.requeue(&[command, &["--queue", "ordres"]].concat(), b"");
        assert!(status == 1 && err.trim_end().ends_with(&told[9..]), "{command:?}: {err}");
    }
    let (status, _, err) = db.requeue(&["work", "--queue", "two\nlines", "--", "true"], b"");
    assert!(status == 1 && err.contains("no control characters") && err.lines().count() == 1, "{err}");
    assert_eq!(db.well(&["ls", "--queues"]), "orders\n");
    // the one that is meant where none is named is made
    db.well(&["add", "k"]);
    assert_eq!(db.well(&["ls", "--queues"]), "default\norders\n");
}

#[test]
fn e44_who_has_a_key_and_for_how_long_is_told() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    let job = db.work(&["-j1"], "echo ran $1; exec sleep 1000");
    db.well(&["add", "k"]);
    until("its run", || job.out_seen(b"ran k"));
    let machine = read("/proc/sys/kernel/hostname").trim().to_owned();
    let pid = db.sql("select pid from requeue.processes");
    let who = format!("{machine} process {pid} (requeue)");
    for command in [&["ls"][..], &["state", "k"]] {
        let told = db.well(command);
        assert!(told.starts_with("held    k  for ") && told.ends_with(&format!(" by {who}\n")), "{told}");
    }
    let told: serde_json::Value = serde_json::from_str(&db.well(&["state", "k", "--json"])).unwrap();
    assert_eq!(
        told["holder"],
        serde_json::json!({"host": machine, "pid": pid.parse::<u32>().unwrap(), "application": "requeue"})
    );
    let stats = db.well(&["stats"]);
    assert!(
        stats.contains("owners   1\nowner    ") && stats.contains(&who) && stats.contains(": 1 held, for "),
        "{stats}"
    );
    let stats: serde_json::Value = serde_json::from_str(&db.well(&["stats", "--json"])).unwrap();
    assert_eq!(
        (&stats["processes"][0]["host"], &stats["processes"][0]["held"]),
        (&machine.clone().into(), &1.into())
    );
    let top = db.well(&["top", "--times", "1"]);
    let look: Vec<_> = top.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((look[1], look[6], look[7]), ("1", &*format!("{machine}:{pid}"), "default"), "{top}");
    assert!(look[2].ends_with('s'), "{top}");
    job.signal(Signal::TERM);
    job.said("SIGTERM: the running programs may end, and nothing more is claimed; once more to stop them");
    job.signal(Signal::TERM);
    job.done();
}

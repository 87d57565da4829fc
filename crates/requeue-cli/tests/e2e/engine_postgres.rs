//! The commands for a durable queue on a PostgreSQL server.

#[allow(missing_docs, dead_code, unreachable_pub)]
#[path = "../../../../verify/src/cluster.rs"]
mod cluster;

use self::cluster::Cluster;
use std::process::{Command, Stdio};

use std::io::Write as _;

/// How a command ended: its status, and what it said on standard output and standard error.
type Ended = (i32, String, String);

/// A database, as `--engine` names it.
struct Database(String);

impl Database {
    fn new() -> Option<Self> {
        let cluster = Cluster::shared()?;
        let name = cluster.database().rsplit('=').next().unwrap().to_owned();
        let host = cluster.folder().to_str().unwrap().replace('/', "%2F");
        Some(Self(format!("postgres://postgres@{host}/{name}")))
    }

    fn requeue(&self, args: &[&str], input: &[u8]) -> Ended {
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

    fn well(&self, args: &[&str]) -> String {
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
    db.well(&["add", "--queue", "reports", "--every", "1d", "--after", "1h", "sales"]);
    assert!(db.well(&["ls", "--queue", "reports"]).contains("every 1d"));
    assert_eq!(db.well(&["ls", "--queues"]), "default\nreports\n");
    assert_eq!(db.well(&["purge"]), "0\n");
    let (status, _, err) = db.requeue(&["check"], b"");
    assert_eq!(status, 2, "{err}");
}

#[test]
fn a_server_that_is_not_there_is_told_without_a_password() {
    let engine = "postgres://worker:secret@127.0.0.1:1/shop";
    let ended =
        Command::new(env!("CARGO_BIN_EXE_requeue")).args(["ls", "--engine", engine]).output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(
        (ended.status.code(), err.contains("refused"), err.contains("secret")),
        (Some(1), true, false),
        "{err}"
    );
    for engine in ["postgres:shop:secret", "postgres://a:secret@b:x/c"] {
        let ended =
            Command::new(env!("CARGO_BIN_EXE_requeue")).args(["ls", "--engine", engine]).output().unwrap();
        let err = String::from_utf8(ended.stderr).unwrap();
        assert!(!ended.status.success() && !err.contains("secret"), "{err}");
    }
}

//! The commands for a durable queue, each as a process of its own.

use std::path::Path;
use std::process::{Command, Stdio};

use std::io::Write as _;

/// How a command ended: its status, and what it said on standard output and standard error.
type Ended = (i32, String, String);

fn requeue(dir: &Path, args: &[&str], input: &[u8]) -> Ended {
    let mut child = Command::new(env!("CARGO_BIN_EXE_requeue"))
        .args(args)
        .env("REQUEUE_ENGINE", format!("sqlite:{}", dir.join("q.db").display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // a command that reads no input may end before it is written
    drop(child.stdin.take().unwrap().write_all(input));
    let ended = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (ended.status.code().unwrap(), text(ended.stdout), text(ended.stderr))
}

fn well(dir: &Path, args: &[&str]) -> String {
    let (status, out, err) = requeue(dir, args, b"");
    assert_eq!((status, &*err), (0, ""), "{args:?}");
    out
}

#[test]
fn what_is_added_is_listed_by_the_next_process_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    well(dir, &["add", "b", "a", "b"]);
    well(dir, &["add", "--after", "30m", "late"]);
    assert_eq!(requeue(dir, &["add"], b"c\n\nodd\x07\nlast").0, 0);
    assert_eq!(
        requeue(dir, &["add", "-0", "--json"], b"two\nlines\0"),
        (0, "{\"added\":1,\"refused\":0}\n".into(), String::new())
    );
    let listed = well(dir, &["ls"]);
    let keys: Vec<_> = listed.lines().map(|line| line.split("  due").next().unwrap()).collect();
    let ready = ["b", "a", "c", "$'odd\\007'", "last", "$'two\\nlines'"].map(|key| format!("ready   {key}"));
    assert_eq!(keys[..6], ready);
    assert_eq!(keys[6..], ["waiting late"]);
    let json = well(dir, &["ls", "--json"]);
    let keys: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(keys[5]["key"], "two\nlines");
    let due = keys[6]["due_in_seconds"].as_f64().unwrap();
    assert!((1700.0..=1800.0).contains(&due), "{due}");
    assert_eq!(well(dir, &["ls", "--queues"]), "default\n");
}

#[test]
fn an_empty_key_is_refused_and_an_empty_line_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (status, out, err) = requeue(dir, &["add", "a", "", "b"], b"");
    assert!((status, &*out) == (2, "") && err.contains("'[KEY]...': a key has at least one byte"), "{err}");
    assert!(!dir.join("q.db").exists());
    assert_eq!(requeue(dir, &["add", "-0"], b"\0a\0\0").0, 0);
    assert_eq!(well(dir, &["ls"]), "ready   a\n");
}

#[test]
fn a_key_that_was_due_is_ready_and_due_at_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    well(dir, &["add", "--after", "1ns", "k"]);
    assert_eq!(well(dir, &["ls"]), "ready   k\n");
}

#[test]
fn a_file_is_named_also_where_there_is_no_working_directory() {
    let dir = tempfile::tempdir().unwrap();
    let mut gone = Command::new("sh");
    gone.args(["-c", "cd \"$0\" && rmdir \"$0\" && exec \"$1\" add --engine sqlite:q.db k"]);
    gone.arg(dir.path().join("gone")).arg(env!("CARGO_BIN_EXE_requeue"));
    std::fs::create_dir(dir.path().join("gone")).unwrap();
    let refused = gone.output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.starts_with("requeue: q.db: "), "{said}");
}

#[test]
fn the_name_of_a_file_may_be_any_bytes() {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let dir = tempfile::tempdir().unwrap();
    let engine = [b"sqlite:", dir.path().as_os_str().as_bytes(), b"/q\xff.db"].concat();
    let engine = std::ffi::OsString::from_vec(engine);
    let requeue = || Command::new(env!("CARGO_BIN_EXE_requeue"));
    let added = requeue().args(["add", "--engine"]).arg(&engine).arg("k").output().unwrap();
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
    let listed = requeue().arg("ls").env("REQUEUE_ENGINE", &engine).output().unwrap();
    assert_eq!(listed.stdout, b"ready   k\n");
    let mut work = requeue();
    work.args(["work", "--engine"]).arg(&engine).args(["--group-by", ":", "--max-wait", "1s", "true"]);
    let refused = work.output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.status.code() == Some(2) && said.contains("--max-wait has no meaning with --group-by"),
        "{said}"
    );
}

#[test]
fn bytes_in_keys_survive() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(requeue(dir.path(), &["add"], b"a\xff\xfeb\n").0, 0);
    assert_eq!(well(dir.path(), &["ls"]), "ready   $'a\\377\\376b'\n");
    let json: serde_json::Value = serde_json::from_str(&well(dir.path(), &["ls", "--json"])).unwrap();
    assert_eq!(json["key_hex"], "61fffe62");
}

#[test]
fn a_key_is_told_of_cancelled_and_made_ready_and_one_that_is_unknown_gives_status_1() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    well(dir, &["add", "--after", "1h", "a", "b"]);
    assert!(well(dir, &["state", "a"]).starts_with("waiting a  due in "));
    assert_eq!(well(dir, &["cancel", "a"]), "cancelled\n");
    assert_eq!(well(dir, &["retry", "b", "--json"]), "\"ready\"\n");
    assert_eq!(well(dir, &["ls"]), "ready   b\n");
    for command in ["state", "cancel", "retry"] {
        assert_eq!(requeue(dir, &[command, "a"], b""), (1, "unknown\n".into(), String::new()), "{command}");
        assert_eq!(requeue(dir, &[command, "a", "--json"], b"").1, "null\n");
    }
}

#[test]
fn a_key_comes_at_a_time_of_day_and_again_until_it_is_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    well(dir, &["add", "--at", "2999-12-31T12:00:00Z", "--every", "90m", "a"]);
    well(dir, &["add", "--at", "00:00", "b"]);
    let json = well(dir, &["ls", "--json"]);
    let keys: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let due = |key: &serde_json::Value| key["due_in_seconds"].as_f64().unwrap();
    assert_eq!((&keys[0]["key"], &keys[0]["every_seconds"]), (&"b".into(), &serde_json::Value::Null));
    let schedule = "at 2999-12-31T12:00:00+00:00[UTC] every 5400s";
    assert_eq!((&keys[1]["key"], &keys[1]["schedule"]), (&"a".into(), &schedule.into()));
    // a day may have 25 hours
    assert!((0.0..=90_000.0).contains(&due(&keys[0])) && due(&keys[1]) > 9e8, "{json}");
    assert!(well(dir, &["state", "a"]).ends_with(&format!("  {schedule}\n")));
    assert_eq!(well(dir, &["cancel", "a"]), "cancelled\n");
    let (status, _, err) = requeue(dir, &["add", "--at", "2001-01-01T00:00:00Z", "c"], b"");
    assert!(status == 2 && err.contains("has passed"), "{err}");
    assert_eq!(requeue(dir, &["add", "--at", "12:00", "--after", "1h", "c"], b"").0, 2);
}

#[test]
fn a_file_that_is_damaged_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let keys: String = (0..2000).map(|n| format!("a key of some length {n}\n")).collect();
    assert_eq!(requeue(dir.path(), &["add"], keys.as_bytes()).0, 0);
    // a command that works on a queue leaves the file without a log
    let file = dir.path().join("q.db").display().to_string();
    assert_eq!(requeue(dir.path(), &["run", "--state", &file, "--queue", "other", "true"], b"").0, 0);
    assert_eq!(well(dir.path(), &["check"]), "ok\n");
    assert_eq!(well(dir.path(), &["check", "--json"]), "{\"faults\":[]}\n");
    let file = dir.path().join("q.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(24).rposition(|bytes| bytes.starts_with(b"a key of some length 1")).unwrap();
    bytes.copy_within(0..100, at - 50);
    std::fs::write(&file, bytes).unwrap();
    let (status, out, err) = requeue(dir.path(), &["check"], b"");
    assert!(status == 1 && !(out + &err).is_empty());
}

#[test]
fn queues_are_counted_paused_and_purged_by_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    well(dir, &["add", "--queue", "x", "a"]);
    well(dir, &["pause", "--queue", "x"]);
    let stats = |queue: &str| -> serde_json::Value {
        serde_json::from_str(&well(dir, &["stats", "--json", "--queue", queue])).unwrap()
    };
    assert_eq!((&stats("x")["ready"], &stats("x")["paused"]), (&1.into(), &true.into()));
    assert_eq!(stats("x")["at_least"], serde_json::json!([]), "a file counts to the end");
    let none = "requeue: there is no queue y; the first `requeue add --queue y` makes it\n";
    for args in [&["stats"][..], &["ls"], &["state", "k"]] {
        let said = requeue(dir, &[args, &["--queue", "y"]].concat(), b"");
        assert_eq!(said, (1, String::new(), none.to_owned()), "{args:?}");
    }
    for args in ["pause", "resume", "purge"] {
        let (status, out, err) = requeue(dir, &[args, "--queue", "y"], b"");
        assert_eq!((status, &*out), (1, ""), "{args}");
        assert!(err.contains("nothing has changed: there is no queue y; "), "{args}: {err}");
    }
    assert_eq!(well(dir, &["ls", "--queues"]), "x\n");
    well(dir, &["resume", "--queue", "x"]);
    assert!(well(dir, &["stats", "--queue", "x"]).contains("paused   no\nrunner   none\n"));
    let top = well(dir, &["top", "--times", "1"]);
    assert!(top.lines().skip(1).all(|line| line.contains("  nobody  ")), "{top}");
    assert_eq!(top.lines().skip(1).count(), well(dir, &["ls", "--queues"]).lines().count(), "{top}");
    assert_eq!(well(dir, &["purge", "--queue", "x"]), "0\n");
}

#[test]
fn what_is_wrong_is_named_and_nothing_is_made_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let said = |args: &[&str]| {
        let (status, out, err) = requeue(dir, args, b"");
        assert_eq!(out, "");
        (status, err)
    };
    let (status, err) = said(&["add", "--engine", "pg:x", "a"]);
    assert!(status == 2 && err.contains("write sqlite:FILE"), "{err}");
    std::fs::write(dir.join("text"), "no database, but longer than the header of one: ".repeat(9)).unwrap();
    let text = format!("sqlite:{}", dir.join("text").display());
    let (status, err) = said(&["ls", "--engine", &text]);
    assert!(status == 1 && err.contains("no SQLite database"), "{err}");
    let none = format!("sqlite:{}", dir.join("no/dir/q.db").display());
    let (status, err) = said(&["add", "--engine", &none, "a"]);
    assert!(status == 1 && err.contains("no/dir/q.db"), "{err}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    let ended = command.arg("stats").env_remove("REQUEUE_ENGINE").output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(2) && err.contains("REQUEUE_ENGINE"), "{err}");
    let looks = [&["ls"][..], &["state", "a"], &["stats"], &["check"]];
    let changes = [&["cancel", "a"][..], &["retry", "a"], &["purge"], &["pause"], &["resume"]];
    for args in looks.into_iter().chain(changes) {
        let (status, err) = said(args);
        assert!(status == 1 && err.contains("q.db: there is no such file"), "{args:?}: {err}");
    }
    for (args, why) in
        [(["add", "--every", "0s", "a"], "longer than nothing"), (["add", "--after", "-3s", "a"], "'-3s'")]
    {
        let (status, err) = said(&args);
        assert!(status == 2 && err.contains(why), "{args:?}: {err}");
    }
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 1, "nothing was made");
}

#[test]
fn a_full_device_and_a_closed_pipe_are_told_by_the_status() {
    let dir = tempfile::tempdir().unwrap();
    well(dir.path(), &["add", "a"]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    let engine = format!("sqlite:{}", dir.path().join("q.db").display());
    let ended = command.args(["ls", "--engine", &engine]).stdout(full).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let err = String::from_utf8(ended.stderr).unwrap();
    assert!(err.starts_with("requeue: standard output: No space left"), "{err}");
}

#[test]
fn a_file_is_worked_off_until_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    well(dir.path(), &["add", "a", "b"]);
    let engine = format!("sqlite:{}", dir.path().join("q.db").display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.args([
        "work",
        "--engine",
        &engine,
        "-j1",
        "--",
        "sh",
        "-c",
        "echo $1 fence $REQUEUE_FENCE",
        "sh",
    ]);
    let job = crate::harness::start(command);
    crate::harness::until("both runs", || job.out_seen(b"b fence"));
    well(dir.path(), &["add", "c"]);
    crate::harness::until("its run", || job.out_seen(b"c fence"));
    job.signal(rustix::process::Signal::TERM);
    let done = job.done();
    assert_eq!((done.status, done.text().lines().count()), (0, 3), "{}", done.err);
}

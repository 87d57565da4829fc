//! Commands for a queue on a server: what they do with it as with a file, and what they do not.

use rustix::process::Signal;

use crate::engine_postgres::Database;
use crate::harness::{alive, dir, read, until};

#[test]
fn e38_on_a_server_programs_end_when_their_command_is_killed_too() {
    let Some(db) = Database::new() else { return };
    let dir = dir();
    let program = dir.path().join("program");
    db.well(&["migrate"]);
    db.well(&["add", "a"]);
    let job = db.work(&[], &format!("echo $$ >{}; exec sleep 1000", program.display()));
    until("the program", || read(&program).ends_with('\n'));
    assert!(alive(&read(&program)));
    job.signal(Signal::KILL);
    job.done();
    until("its end", || !alive(&read(&program)));
}

#[test]
fn on_a_server_many_keys_are_cancelled_and_keys_have_values() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    let keys: String = (0..300).map(|n| format!("a-{n}\n")).collect();
    assert_eq!(db.requeue(&["add"], keys.as_bytes()).0, 0);
    db.well(&["add", "--value", "{\"n\": 1}", "k"]);
    assert_eq!(db.requeue(&["add", "--values"], b"k\t2\nl\t[3]\n").0, 0);
    let (status, _, err) = db.requeue(&["cancel", "--prefix", "a-"], b"");
    assert!(status == 1 && err.contains("300 keys would be cancelled"), "{err}");
    assert_eq!(db.well(&["cancel", "--prefix", "a-", "--expect", "300"]), "300\n");
    assert_eq!(db.well(&["ls"]), "ready   k\nready   l\n");
    let dir = dir();
    let ran = dir.path().join("ran");
    let script = format!("printf '%s: %s;' $REQUEUE_KEY \"$REQUEUE_PAYLOAD\" >>{}", ran.display());
    let job = db.work(&["-j1"], &script);
    until("the runs", || read(&ran).matches(';').count() == 2);
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 0);
    assert_eq!(read(&ran), "k: {\"n\":1}\n2;l: [3];");
}

#[test]
fn d6_on_a_server_a_key_that_is_added_now_keeps_its_delayed_run() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    db.well(&["add", "--after", "1h", "k"]);
    db.well(&["add", "k"]);
    let dir = dir();
    let ran = dir.path().join("ran");
    let job = db.work(&[], &format!("echo ran >>{}", ran.display()));
    until("a run", || read(&ran) == "ran\n");
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 0);
    assert!(db.well(&["ls"]).starts_with("waiting k  due in "), "{}", db.well(&["ls"]));
    db.well(&["add", "--absorb", "k"]);
    assert_eq!(db.well(&["ls"]), "ready   k\n");
    let (status, _, err) = db.requeue(&["work", "--absorb", "true"], b"");
    assert!(status == 2 && err.contains("--absorb has no meaning for a server"), "{err}");
}

#[test]
fn e37_a_server_refuses_a_cron_expression() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    let (status, _, err) = db.requeue(&["add", "--cron", "0 18 * * *", "k"], b"");
    assert_eq!((status, err.lines().count()), (2, 1), "{err}");
    assert!(err.contains("a server keeps no times of the calendar"), "{err}");
    assert_eq!(db.requeue(&["ls"], b"").0, 1, "no queue was made");
}

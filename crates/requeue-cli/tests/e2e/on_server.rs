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
    // more than a page, behind a key that is the prefix
    let keys: String = (0..20_010).map(|n| format!("a-{n}\n")).collect();
    assert_eq!(db.requeue(&["add"], keys.as_bytes()).0, 0);
    db.well(&["add", "a-"]);
    db.well(&["add", "--value", "{\"n\": 1}", "k"]);
    assert_eq!(db.requeue(&["add", "--values"], b"k\t2\nl\t[3]\n").0, 0);
    let (status, _, err) = db.requeue(&["cancel", "--prefix", "a-"], b"");
    assert!(status == 1 && err.contains("20011 keys would be cancelled"), "{err}");
    assert_eq!(db.well(&["cancel", "--prefix", "a-", "--expect", "20011"]), "20011\n");
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
fn e29_on_a_server_it_is_said_how_many_keys_were_cancelled_where_one_could_not_be() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    db.well(&["add", "a", "b", "c"]);
    db.sql(
        "create function kept() returns trigger language plpgsql as $$ begin raise exception 'it stays'; end $$;
         create trigger kept before update or delete on requeue.item for each row when (old.key = 'b') execute function kept()",
    );
    let (status, out, err) = db.requeue(&["cancel", "--all", "--yes"], b"");
    assert_eq!((status, &*out), (1, ""), "{err}");
    assert!(
        err.starts_with("requeue: 2 of 3 keys were cancelled, then: ") && err.contains("it stays"),
        "{err}"
    );
    assert_eq!(db.well(&["ls"]), "ready   b\n");
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
fn e37_on_a_server_a_key_comes_by_a_cron_expression_and_at_its_time_of_day() {
    let Some(db) = Database::new() else { return };
    let dir = dir();
    let ran = dir.path().join("ran");
    db.well(&["migrate"]);
    db.well(&["add", "--cron", "0 0 29 2 * Europe/Berlin", "k"]);
    db.well(&["add", "--at", "2099-12-24T18:00:00Z", "--every", "1d", "l"]);
    let due = || db.sql("select key_bytes, date_trunc('hour', due_at) from requeue.keys order by 1");
    let first = due();
    let listed = db.well(&["ls"]);
    assert!(listed.contains("  cron 0 0 29 2 * Europe/Berlin\n"), "{listed}");
    assert!(listed.contains("  at 2099-12-24T18:00:00+00:00[UTC] every 86400s\n"), "{listed}");
    let listed = db.well(&["state", "--json", "l"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((listed["every_seconds"].is_null(), listed["schedule"].is_string()), (true, true), "{listed}");
    let job = db.work(&[], &format!("echo ran >>{}", ran.display()));
    for key in ["k", "l"] {
        db.well(&["retry", key]);
    }
    until("the runs", || read(&ran) == "ran\nran\n");
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 0);
    assert_eq!(due(), first, "as before the runs that were asked for by hand");
    assert_eq!(db.well(&["cancel", "--all", "--yes"]), "2\n");
    assert_eq!(db.sql("select count(*) from requeue.schedule"), "0");
}

#[test]
fn e29_a_list_of_a_server_is_told_of_in_pages() {
    let Some(db) = Database::new() else { return };
    db.well(&["migrate"]);
    db.sql(
        "select requeue.open('default');
         select count(*) from requeue.add(1, array(select ('k' || n)::bytea from generate_series(1, 45000) n), array_fill(0::bigint, array[45000]),
           array_fill(0, array[45000]));
         select requeue.add_tx('default', 'k7', priority => 3), requeue.add_tx('default', 'new'), requeue.add_tx('default', 'new')",
    );
    // the second page is never asked for by who reads the first line
    db.sql(
        "create sequence page;
         alter function requeue.listed(int, bytea, bytea, int) rename to lists;
         create function requeue.listed(q int, k_ bytea, after bytea, most int) returns table(key bytea, state smallint, dirty boolean,
             due_us bigint, every_us bigint, failures int, attempt int, priority int, value jsonb, age_us bigint, error text, place bigint,
             host text, pid int, application text, rule text) language plpgsql as $$
         begin
           if nextval('page') > 1 and q = 1 and exists(select 1 from requeue.queue where name = 'first') then
             raise 'a second page';
           end if;
           return query select * from requeue.lists(q, k_, after, most);
         end $$",
    );
    let mut listed: Vec<String> = db.well(&["ls"]).lines().map(str::to_owned).collect();
    assert_eq!((db.sql("select last_value from page"), listed.len()), ("3".to_owned(), 45_001));
    assert_eq!(listed.last().map(String::as_str), Some("ready   new"));
    assert!(listed.contains(&"ready   k7  priority 3".to_owned()));
    listed.sort();
    listed.dedup();
    assert_eq!(listed.len(), 45_001, "each once");
    db.sql("select requeue.make_queue('first'), setval('page', 1, false)");
    let head = "\"$REQUEUE\" ls 2>&1 | head -n 1";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", head]).env("REQUEUE", env!("CARGO_BIN_EXE_requeue")).env("REQUEUE_ENGINE", &db.0);
    assert_eq!(String::from_utf8_lossy(&shell.output().unwrap().stdout), "ready   k1\n");
    db.sql("select setval('page', 1, false)");
    let (status, out, err) = db.requeue(&["ls"], b"");
    assert_eq!((status, out.lines().count()), (1, 20_000), "what was read before a failure is told: {err}");
}

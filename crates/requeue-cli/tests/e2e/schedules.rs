//! Keys that come at times of day, and by cron expressions.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::{Done, dir, read, run, start, until};

fn requeue(dir: &Path, zone: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.args(args).env("REQUEUE_ENGINE", format!("sqlite:{}", dir.join("q.db").display()));
    command.env("D", dir).env("TZ", zone);
    command
}

fn well(dir: &Path, args: &[&str]) -> Done {
    let done = run(requeue(dir, "Europe/Berlin", args), b"");
    assert_eq!(done.status, 0, "{args:?}: {done:?}");
    done
}

/// The line of `ls --json` of the only key.
fn listed(dir: &Path) -> serde_json::Value {
    serde_json::from_str(well(dir, &["ls", "--json"]).text()).unwrap()
}

/// The seconds until the key is due; `None` while it is ready or runs.
fn due_in(dir: &Path) -> Option<f64> {
    listed(dir)["due_in_seconds"].as_f64()
}

/// The seconds since 1970 between which the key is due, and its line of `ls --json`.
fn due(dir: &Path) -> ((f64, f64), serde_json::Value) {
    let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let before = now();
    let key = listed(dir);
    let after = now();
    let due = key["due_in_seconds"].as_f64().unwrap_or_else(|| panic!("{key}"));
    ((before + due, after + due), key)
}

/// Whether both are the same time: another one would be a day away, or an hour where a clock was read wrongly.
fn is_alike(first: (f64, f64), again: (f64, f64)) -> bool {
    first.0 <= again.1 + 600.0 && again.0 <= first.1 + 600.0
}

/// Works in this zone until the key has run once.
fn works(dir: &Path, zone: &str) {
    let job = start(requeue(dir, zone, &["work", "sh", "-c", "echo ran >>$D/ran"]));
    until("a run", || read(dir.join("ran")) == "ran\n");
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 0);
    std::fs::remove_file(dir.join("ran")).unwrap();
}

#[test]
fn e37_a_key_comes_at_its_time_of_day_also_after_a_run_that_was_asked_for_at_another() {
    let dir = dir();
    let dir = dir.path();
    // three hours from now, as clocks there show it
    let mut date = Command::new("date");
    let at = run(
        {
            date.args(["-d", "3 hours", "+%H:%M"]).env("TZ", "Europe/Berlin");
            date
        },
        b"",
    );
    well(dir, &["add", "--at", at.text().trim(), "--every", "1d", "k"]);
    let (first, key) = due(dir);
    let schedule = key["schedule"].as_str().unwrap();
    assert!(schedule.starts_with("at ") && schedule.ends_with("[Europe/Berlin] every 86400s"), "{key}");
    assert_eq!(key["every_seconds"], serde_json::Value::Null);
    for add in [&["retry", "k"][..], &["add", "k"]] {
        well(dir, add);
        works(dir, "America/New_York");
        let (again, key) = due(dir);
        assert!(is_alike(first, again), "{first:?} and {again:?}: {key}");
    }
    assert_eq!(well(dir, &["cancel", "k"]).text(), "cancelled\n");
    assert_eq!(well(dir, &["ls"]).text(), "");
}

#[test]
fn e37_a_key_comes_by_a_cron_expression_until_it_is_cancelled() {
    let dir = dir();
    let dir = dir.path();
    well(dir, &["add", "--cron", "30 2 1 1 *", "k"]);
    let listed = well(dir, &["ls"]);
    assert!(listed.text().starts_with("waiting k  due in "), "{listed:?}");
    assert!(listed.text().ends_with("  cron 30 2 1 1 * Europe/Berlin\n"), "{listed:?}");
    let (first, _) = due(dir);
    well(dir, &["retry", "k"]);
    works(dir, "America/New_York");
    let (again, key) = due(dir);
    assert!(is_alike(first, again), "{first:?} and {again:?}: {key}");
    well(dir, &["cancel", "k"]);
    assert_eq!(well(dir, &["ls"]).text(), "");
}

#[test]
fn e37_while_somebody_works_a_key_gets_its_times_and_other_ones_in_their_place() {
    let dir = dir();
    let dir = dir.path();
    well(dir, &["add", "other"]);
    let job = start(requeue(dir, "UTC", &["work", "sh", "-c", "echo $REQUEUE_KEY >>$D/ran"]));
    until("a run", || read(dir.join("ran")) == "other\n");
    well(dir, &["add", "--cron", "0 0 1 1 * UTC", "k"]);
    until("its first time", || well(dir, &["ls"]).text().contains("cron 0 0 1 1 * UTC"));
    well(dir, &["add", "--every", "1h", "k"]);
    until("its run", || read(dir.join("ran")) == "other\nk\n");
    until("the next", || well(dir, &["ls"]).text().ends_with("  every 1h\n"));
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 0);
}

/// Prints a time as clocks in Berlin show it.
fn berlin(time: &str, format: &str) -> String {
    let mut date = Command::new("date");
    date.args(["-d", time, format]).env("TZ", "Europe/Berlin");
    run(date, b"").text().trim().to_owned()
}

#[test]
fn e37_a_schedule_replaces_the_one_before_and_its_time() {
    for is_worked_on in [false, true] {
        let dir = dir();
        let dir = dir.path();
        let job = is_worked_on.then(|| {
            let text = "echo $REQUEUE_KEY >>$D/ran; case $REQUEUE_KEY in fails) exit 1;; esac";
            let job = start(requeue(
                dir,
                "Europe/Berlin",
                &["work", "--base-delay", "1h", "--max-delay", "1h", "sh", "-c", text],
            ));
            well(dir, &["add", "other"]);
            until("a run", || read(dir.join("ran")) == "other\n");
            job
        });
        let later = berlin("2 days", "+%Y-%m-%dT%H:%M");
        let still_later = berlin("4 days", "+%M %H %d %m *");
        let latest = berlin("6 days", "+%Y-%m-%dT%H:%M");
        let hours = 3600.0;
        for (add, due_in_hours) in [
            (&["--after", "1h", "--every", "30h"][..], 1.0),
            (&["--at", &later, "--every", "1d"], 48.0),
            (&["--cron", &still_later], 96.0),
            (&["--at", &latest, "--every", "1d"], 144.0),
            (&["--after", "1h", "--every", "1h"], 1.0),
            (&["--cron", &still_later], 96.0),
        ] {
            well(dir, &[&["add", "k"], add].concat());
            // clocks may be changed on one of the days
            until("its time", || due_in(dir).is_some_and(|left| (left / hours - due_in_hours).abs() < 1.2));
        }
        let Some(job) = job else {
            well(dir, &["add", "--every", "30h", "k"]);
            assert!(
                well(dir, &["ls"]).text().starts_with("ready   k  every 1d6h"),
                "now, and at no other time"
            );
            continue;
        };
        well(dir, &["add", "--every", "30h", "k"]);
        until("its run, which is now", || read(dir.join("ran")) == "other\nk\n");
        until("the next", || due_in(dir).is_some_and(|left| left < 30.0 * hours));
        // a retry is no time of a schedule
        well(dir, &["cancel", "k"]);
        well(dir, &["add", "--every", "1d", "fails"]);
        job.said("again in 1h");
        well(dir, &["add", "--at", &later, "--every", "1d", "fails"]);
        let is_listed = |text| well(dir, &["ls"]).text().contains(text);
        until("its schedule", || is_listed(" every 86400s"));
        assert!(due_in(dir).unwrap() <= 1.3 * hours);
        job.signal(Signal::TERM);
        assert_eq!(job.done().status, 0);
    }
}

#[test]
fn e37_what_is_no_cron_expression_is_told_in_one_line() {
    let dir = dir();
    let dir = dir.path();
    for (expression, why) in [
        ("0 25 * * *", "such as '0 18 * * 1-5'"),
        ("0 18 * *", "it has 4 fields"),
        ("0 18 * * * Mars/Olympus", "there is no time zone Mars/Olympus"),
        ("0 0 30 2 *", "does not come within four years"),
    ] {
        let done = run(requeue(dir, "UTC", &["add", "--cron", expression, "k"]), b"");
        let line = done.err.lines().next().unwrap_or_default();
        assert!(done.status == 2 && line.contains(expression) && line.contains(why), "{done:?}");
    }
    let done = run(requeue(dir, "UTC", &["add", "--cron", "0 18 * * *", "--every", "1d", "k"]), b"");
    assert_eq!(done.status, 2, "{done:?}");
    assert!(!dir.join("q.db").exists());
}

#[test]
fn e37_a_time_zone_that_cannot_be_kept_or_does_not_exist_is_refused() {
    let dir = dir();
    let dir = dir.path();
    let daily = &["add", "--at", "18:00", "--every", "1d", "k"][..];
    let cron = &["add", "--cron", "0 18 * * *", "k"][..];
    for (zone, args, why) in [
        ("CET-1CEST,M3.5.0,M10.5.0/3", daily, "has no name that could be kept"),
        ("CET-1CEST,M3.5.0,M10.5.0/3", cron, "has no name that could be kept"),
        ("Mars/Olympus", daily, "TZ is Mars/Olympus, and there is no such time zone"),
        ("Mars/Olympus", cron, "TZ is Mars/Olympus, and there is no such time zone"),
    ] {
        let done = run(requeue(dir, zone, args), b"");
        assert!(done.status == 2 && done.err.contains(why), "{zone} {args:?}: {done:?}");
    }
    assert!(!dir.join("q.db").exists());
    // once, the rule is as good as a name
    let once = run(requeue(dir, "CET-1CEST,M3.5.0,M10.5.0/3", &["add", "--at", "18:00", "k"]), b"");
    assert_eq!(once.status, 0, "{once:?}");
    let fixed = run(requeue(dir, "UTC", &["add", "--at", "18:00", "--every", "1d", "l"]), b"");
    assert_eq!(fixed.status, 0, "{fixed:?}");
}

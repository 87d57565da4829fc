use super::turn::PASSES;
use super::*;
use std::sync::mpsc;
use std::time::Instant;

const LONG: Duration = Duration::from_secs(300);

fn file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("q.db");
    std::fs::write(&path, "").unwrap();
    (dir, path)
}

/// A descriptor like another process's: locks of one description do not see each other.
fn other(path: &Path) -> Bytes {
    Bytes::open(path, false).unwrap().0
}

fn until(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "it does not come");
        std::thread::yield_now();
    }
}

#[test]
fn one_in_all_works_on_a_queue_whatever_the_name_of_the_file() {
    let (dir, path) = file();
    let link = dir.path().join("l.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let (ours, by_link) = (Database::open(&path, false).unwrap(), Database::open(&link, false).unwrap());
    assert!(ours.work_on(1).unwrap() && ours.work_on(2).unwrap());
    assert!(!by_link.work_on(1).unwrap() && by_link.is_worked_on(1).unwrap());
    let other = other(&link);
    assert!(!other.lock(QUEUES + 1).unwrap() && other.lock(QUEUES + 3).unwrap());
    assert!(ours.is_worked_on(3).unwrap() && !ours.work_on(3).unwrap());
    ours.leave(1);
    assert!(other.lock(QUEUES + 1).unwrap());
    drop((ours, by_link));
    assert!(other.lock(QUEUES + 2).unwrap(), "the last one has closed it");
}

#[test]
fn e32_a_second_name_of_an_open_file_is_refused() {
    let (dir, path) = file();
    let hard = dir.path().join("h.db");
    std::fs::hard_link(&path, &hard).unwrap();
    let ours = Database::open(&path, false).unwrap();
    ours.enter(&path).unwrap();
    ours.enter(&path).unwrap();
    assert!(ours.enter(&hard).is_err());
    let other = other(&path);
    drop(ours);
    assert!(other.share(name_of(&hard).unwrap()).unwrap());
    let ours = Database::open(&path, false).unwrap();
    let why = ours.enter(&path).unwrap_err().to_string();
    assert!(why.contains("by another name"), "{why}");
    other.unlock(NAMES..QUEUES).unwrap();
    ours.enter(&path).unwrap();
}

#[test]
fn e34_who_waits_has_the_turn_when_it_is_free_and_not_for_ever() {
    let (_dir, path) = file();
    let (ours, other) = (Database::open(&path, false).unwrap(), other(&path));
    assert!(other.lock(TURN).unwrap());
    let why = ours.turn(Writes::Others, Duration::from_millis(1)).map(drop).unwrap_err();
    assert_eq!(why.kind(), io::ErrorKind::TimedOut);
    assert!(other.locked(LINE..RUNS).unwrap().is_none(), "it has left the line");
    let (tell, told) = mpsc::channel();
    let waits = ours.clone();
    let waiting = std::thread::spawn(move || tell.send(waits.turn(Writes::Others, LONG).map(drop)).unwrap());
    until(|| other.locked(LINE..RUNS).unwrap().is_some());
    assert!(told.try_recv().is_err());
    other.unlock(TURN..TURN + 1).unwrap();
    told.recv_timeout(LONG).unwrap().unwrap();
    waiting.join().unwrap();
    drop(ours.turn(Writes::Runner, LONG).unwrap());
    assert!(other.lock(TURN).unwrap() && other.locked(LINE..RUNS).unwrap().is_none());
}

#[test]
fn e34_nobody_stands_before_the_first_in_line_whoever_stands_behind() {
    let (_dir, path) = file();
    let (first, second) = (other(&path), other(&path));
    assert!(first.lock(LINE).unwrap() && second.lock(LINE + 1).unwrap());
    assert_eq!(first.locked(LINE..LINE).unwrap(), None);
    assert_eq!(second.locked(LINE..LINE + 1).unwrap(), Some(LINE..LINE + 1));
}

#[test]
fn e34_nobody_has_the_turn_before_those_who_stood_in_line_first() {
    let (_dir, path) = file();
    let ours = Database::open(&path, false).unwrap();
    // two that came first, as other processes: the second of them is behind a place that somebody has left
    let (first, second) = (other(&path), other(&path));
    assert!(first.lock(LINE + 3).unwrap() && second.lock(LINE + 7).unwrap());
    let begun = Instant::now();
    let (tell, told) = mpsc::channel();
    let waits = ours.clone();
    let waiting = std::thread::spawn(move || tell.send(waits.turn(Writes::Others, LONG).unwrap()).unwrap());
    until(|| first.locked(LINE + 8..RUNS).unwrap() == Some(LINE + 8..LINE + 9));
    first.unlock(LINE + 3..LINE + 4).unwrap();
    // the turn is free, and it is the second's, unless it leaves it for long
    let turn = told.recv_timeout(Duration::from_millis(100));
    assert!(turn.is_err() || begun.elapsed() >= PASSES);
    // a killed process has left
    drop(second);
    let turn = turn.unwrap_or_else(|_| told.recv_timeout(LONG).unwrap());
    waiting.join().unwrap();
    assert!(first.locked(LINE..RUNS).unwrap().is_none(), "who has the turn stands in line no longer");
    assert!(first.locked(TURN..TURN + 1).unwrap().is_some());
    drop(turn);
}

#[test]
fn e34_who_stands_first_and_does_not_take_the_turn_is_passed() {
    let (_dir, path) = file();
    let ours = Database::open(&path, false).unwrap();
    // a runner and an adder that are stopped
    let (runner, adder) = (other(&path), other(&path));
    assert!(runner.share(LINE).unwrap() && adder.lock(LINE + 5).unwrap());
    for _ in 0..2 {
        let begun = Instant::now();
        drop(ours.turn(Writes::Others, Duration::from_secs(30)).unwrap());
        assert!(begun.elapsed() >= 2 * PASSES, "each of them is waited for");
        drop(ours.turn(Writes::Runner, Duration::from_secs(30)).unwrap());
    }
    assert!(adder.locked(LINE..RUNS).unwrap() == Some(LINE..LINE + 1), "only the runner's is left");
    drop(runner);
    assert!(adder.locked(LINE..RUNS).unwrap().is_none());
    // they have the turn when they go on
    assert!(adder.lock(TURN).unwrap());
}

#[test]
fn a_runner_comes_before_the_adders_that_wait() {
    let (_dir, path) = file();
    let (ours, other) = (Database::open(&path, false).unwrap(), other(&path));
    assert!(other.lock(TURN).unwrap());
    let runs = ours.clone();
    let running = std::thread::spawn(move || runs.turn(Writes::Runner, LONG).map(drop));
    until(|| other.locked(LINE..LINE + 1).unwrap().is_some());
    other.unlock(TURN..TURN + 1).unwrap();
    running.join().unwrap().unwrap();
    assert!(other.locked(LINE..RUNS).unwrap().is_none() && other.lock(TURN).unwrap());
    // and an adder, in front of all others, lets one go first that waits by the time the turn is free
    let (tell, told) = mpsc::channel();
    let adds = ours.clone();
    let adding = std::thread::spawn(move || tell.send(adds.turn(Writes::Others, LONG).map(drop)).unwrap());
    until(|| other.locked(LINE + 1..LINE + 2).unwrap().is_some());
    let runner = self::other(&path);
    assert!(runner.share(LINE).unwrap());
    let begun = Instant::now();
    other.unlock(TURN..TURN + 1).unwrap();
    let early = told.recv_timeout(Duration::from_millis(100));
    assert!(early.is_err() || begun.elapsed() >= PASSES);
    drop(runner);
    early.unwrap_or_else(|_| told.recv_timeout(LONG).unwrap()).unwrap();
    adding.join().unwrap();
}

#[test]
fn time_in_which_a_process_was_stopped_is_not_waited() {
    let mut patience = turn::Patience::new(Duration::from_secs(30));
    for _ in 0..30 {
        patience.spend(Duration::from_secs(3600)).unwrap();
    }
    assert_eq!(patience.spend(Duration::from_millis(1)).unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[test]
fn what_runs_is_seen_by_others_with_its_age_until_it_is_over() {
    let (_dir, path) = file();
    let (ours, other) = (Database::open(&path, false).unwrap(), other(&path));
    let (begun, now) = (1_700_000_000_000_000, 1_700_000_000_000_000 + 3_700_000_000);
    assert!(ours.show_run(1, b"a", begun) && ours.show_run(1, b"b", begun) && ours.show_run(2, b"a", begun));
    ours.hide_run(1, b"b");
    let seen = Running(
        [run_of(1, b"a"), run_of(1, b"b"), run_of(2, b"a")]
            .into_iter()
            .filter_map(|start| other.locked(start..start + 1).unwrap())
            .map(|range| (range.start, range.end - range.start))
            .collect(),
    );
    for running in [&seen, &ours.runs().unwrap()] {
        assert_eq!(running.since(1, b"a", now), Some(Duration::from_secs(3700)));
        assert_eq!(running.since(1, b"b", now), None);
        assert_eq!((running.count(1), running.count(2), running.count(3)), (1, 1, 0));
    }
    drop(ours);
    assert!(other.locked(RUNS..i64::MAX).unwrap().is_none());
}

#[test]
fn where_bytes_have_no_locks_files_beside_have_them() {
    let (_dir, path) = file();
    let (one, two) =
        (beside::Bytes::open(&path, false).unwrap().0, beside::Bytes::open(&path, false).unwrap().0);
    assert!(one.lock(TURN).unwrap() && !two.lock(TURN).unwrap());
    assert!(two.locked(TURN..TURN + 1).unwrap().is_some() && one.locked(TURN..TURN + 1).unwrap().is_none());
    one.unlock(TURN..TURN + 1).unwrap();
    assert!(two.lock(TURN).unwrap() && !one.lock(TURN).unwrap());
    assert!(one.share(NAMES).unwrap() && !one.lock_range(RUNS..RUNS + 9).unwrap());
    assert!(!beside::is_locked(&std::fs::File::open(&path).unwrap()));
    drop(one.into_fd().unwrap());
}

use super::*;
use std::sync::mpsc;

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
fn who_waits_has_the_turn_when_it_is_free_and_not_for_ever() {
    let (_dir, path) = file();
    let (ours, other) = (Database::open(&path, false).unwrap(), other(&path));
    assert!(other.lock(TURN).unwrap());
    let why = ours.turn(Writes::Others, Duration::from_millis(1)).map(drop).unwrap_err();
    assert_eq!(why.kind(), io::ErrorKind::TimedOut);
    // the one that still waits in its place has the gate until it has had its turn
    let (tell, told) = mpsc::channel();
    let waits = ours.clone();
    let waiting = std::thread::spawn(move || tell.send(waits.turn(Writes::Others, LONG).map(drop)).unwrap());
    assert!(told.try_recv().is_err());
    other.unlock(TURN..TURN + 1).unwrap();
    told.recv_timeout(LONG).unwrap().unwrap();
    waiting.join().unwrap();
    drop(ours.turn(Writes::Runner, LONG).unwrap());
    assert!(other.lock(GATE).unwrap() && other.lock(TURN).unwrap());
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
    two.wait(TURN).unwrap();
    assert!(!one.lock(TURN).unwrap());
    assert!(one.share(NAMES).unwrap() && !one.lock_range(RUNS..RUNS + 9).unwrap());
    assert!(!beside::is_locked(&std::fs::File::open(&path).unwrap()));
    drop(one.into_fd().unwrap());
}

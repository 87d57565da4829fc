//! A shutdown in the middle of a run keeps in the file what was accepted (E1).

mod common;

use self::common::once_free;
use requeue::{Add, DrainOptions, KeyState, WaitingKeys};
use requeue_sqlite::{Queue, Sqlite};
use std::path::{Path, PathBuf};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

type Sums = Queue<String, u64>;

fn file(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("q.db")
}

fn open(path: &Path) -> Sums {
    let sum = |old: &mut u64, new| *old += new;
    once_free(|| Sqlite::open(path)?.queue_with("orders", sum).open()).unwrap()
}

/// The state of "a" in a queue that is opened anew.
fn reopened(path: &Path) -> (Sums, Option<KeyState>) {
    let q = open(path);
    let state = q.in_memory().state("a");
    (q, state)
}

fn waits_for_its_hour(state: Option<KeyState>) -> bool {
    state.is_some_and(|state| !state.ready && state.waiting_until.is_some())
}

/// Sets a timer during a run, ends the queue, and then the run.
fn set_during_a_run(shut_down: fn(&Sums)) {
    let dir = tempfile::tempdir().unwrap();
    let q = open(&file(&dir));
    q.add("a".into()).wait().unwrap();
    let run = q.try_get().unwrap();
    q.add_with("a".into(), Add::after(HOUR).value(7)).wait().unwrap();
    shut_down(&q);
    run.succeed();
    drop(q);
    let (q, state) = reopened(&file(&dir));
    assert!(waits_for_its_hour(state), "{state:?}");
    // its value is there too
    q.add("a".into()).wait().unwrap();
    assert_eq!(q.try_get().unwrap().value(), Some(&7));
}

#[test]
fn e1_a_timer_set_during_a_run_outlives_a_shutdown() {
    set_during_a_run(|q| _ = q.shut_down());
}

#[test]
fn e1_a_timer_set_during_a_run_outlives_a_drain_with_a_deadline() {
    set_during_a_run(|q| {
        let now = DrainOptions::default().timeout(Duration::ZERO);
        assert!(!q.drain(now).wait().complete);
    });
    set_during_a_run(|q| {
        let now = DrainOptions::default().waiting_keys(WaitingKeys::Drop).timeout(Duration::ZERO);
        assert!(!q.drain(now).wait().complete);
    });
    set_during_a_run(|q| {
        let now = DrainOptions::default().waiting_keys(WaitingKeys::Wait).timeout(Duration::ZERO);
        assert!(!q.drain(now).wait().complete);
    });
}

#[test]
fn e1_a_timer_set_during_a_run_outlives_a_drain_and_then_a_shutdown() {
    set_during_a_run(|q| {
        let now = DrainOptions::default().timeout(Duration::ZERO);
        assert!(!q.drain(now).wait().complete);
        q.shut_down();
    });
    set_during_a_run(|q| {
        q.shut_down();
        let now = DrainOptions::default().timeout(Duration::ZERO);
        assert!(!q.drain(now).wait().complete);
    });
}

#[test]
fn e1_a_timer_beside_a_key_in_line_outlives_a_shutdown_and_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let q = open(&file(&dir));
    q.add("a".into()).wait().unwrap();
    q.add_after("a".into(), HOUR).wait().unwrap();
    q.shut_down();
    q.try_get().unwrap().succeed();
    drop(q);
    let (_q, state) = reopened(&file(&dir));
    assert!(waits_for_its_hour(state), "{state:?}");
}

#[test]
fn e1_a_timer_that_fired_before_the_run_does_not_come_again_after_a_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let q = open(&file(&dir));
    q.add_after("a".into(), Duration::from_millis(1)).wait().unwrap();
    let run = q.get_blocking().unwrap();
    q.shut_down();
    run.succeed();
    drop(q);
    let (_q, state) = reopened(&file(&dir));
    assert_eq!(state, None);
}

#[test]
fn e1_what_triggered_a_run_during_a_run_outlives_a_shutdown_with_its_value_and_its_timer() {
    let dir = tempfile::tempdir().unwrap();
    let q = open(&file(&dir));
    q.add("a".into()).wait().unwrap();
    let run = q.try_get().unwrap();
    q.add_with("a".into(), Add::now().value(7)).wait().unwrap();
    q.add_after("a".into(), HOUR).wait().unwrap();
    q.shut_down();
    run.succeed();
    drop(q); // nobody has taken the run that is still owed
    let (q, state) = reopened(&file(&dir));
    assert!(state.is_some_and(|state| state.ready && state.waiting_until.is_some()));
    assert_eq!(q.try_get().unwrap().value(), Some(&7));
}

#[test]
fn e1_failures_and_values_outlive_a_retry_that_a_shutdown_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let q = open(&file(&dir));
    q.add_with("a".into(), Add::now().value(7)).wait().unwrap();
    for _ in 0..2 {
        assert!(q.get_blocking().unwrap().retry().is_ok());
    }
    let run = q.get_blocking().unwrap();
    q.add_with("a".into(), Add::now().value(100)).wait().unwrap();
    q.shut_down();
    drop(run); // put back, which is refused
    // the run that the trigger asked for gets what the failed one had, and its end says so
    let (again, memory) = (q.try_get().unwrap(), q.in_memory().num_requeues("a"));
    assert_eq!((again.value(), memory), (Some(&107), 2));
    drop(again);
    drop(q);
    let (q, state) = reopened(&file(&dir));
    assert!(state.is_some_and(|state| state.ready && state.failures == 2));
    assert_eq!(q.try_get().unwrap().value(), Some(&107));
}

#[test]
fn e1_a_back_off_outlives_a_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let q = open(&file(&dir));
    q.add("a".into()).wait().unwrap();
    let run = q.try_get().unwrap();
    assert!(run.retry_after(HOUR).is_ok());
    q.shut_down();
    drop(q);
    let (_q, state) = reopened(&file(&dir));
    assert!(state.is_some_and(|state| state.failures == 1 && state.waiting_until.is_some() && !state.ready));
}

#[test]
fn e1_a_debounced_key_outlives_a_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let debounced = |path: &Path| -> Queue<String> {
        once_free(|| {
            let debounce = requeue::Debounce::new(HOUR);
            Sqlite::open(path)?.queue("orders").front(move |front| front.debounce(debounce)).open()
        })
        .unwrap()
    };
    let q = debounced(&file(&dir));
    q.add("a".into()).wait().unwrap();
    q.shut_down();
    drop(q);
    let q = debounced(&file(&dir));
    assert!(q.in_memory().state("a").is_some_and(|state| state.ready));
}

//! The progress of a queue's shutdown, as shown by `phase`.

use requeue::{DrainOptions, FakeClock, Phase, WaitingKeys, WorkQueue, limiter};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

fn queue() -> (WorkQueue<u64>, FakeClock) {
    let clock = FakeClock::new();
    let limiter = limiter::Exponential::new(SEC, SEC).unwrap();
    (WorkQueue::builder().clock(clock.clone()).limiter(limiter).build().unwrap(), clock)
}

fn waits() -> DrainOptions {
    DrainOptions::default().waiting_keys(WaitingKeys::Wait)
}

#[test]
fn q14_the_phase_tells_whether_retries_are_taken_and_whether_all_is_over() {
    let (q, _clock) = queue();
    q.add_many([1, 2, 3]).all().unwrap();
    let [one, two, three] = [(); 3].map(|()| q.try_get().unwrap());
    assert_eq!(q.phase(), Phase::Open);
    q.close();
    assert_eq!(q.phase(), Phase::Closed);
    assert!(q.add(4).is_err() && one.retry().is_ok(), "closed: only holders may");
    q.shut_down();
    assert_eq!(q.phase(), Phase::ShutDown);
    assert!(two.retry().is_err(), "shut down: nobody may");
    assert_eq!(q.phase(), Phase::ShutDown, "a run goes on");
    three.done();
    assert_eq!(q.phase(), Phase::Over);
}

#[test]
fn q14_the_phase_only_moves_forward() {
    let (q, clock) = queue();
    q.add(1).unwrap();
    let item = q.try_get().unwrap();
    let calls: [(&str, &dyn Fn()); 5] = [
        ("close", &|| q.close()),
        ("a drain that waits", &|| drop(q.drain(waits()))),
        ("a drain", &|| drop(q.drain(DrainOptions::default()))),
        ("shut_down", &|| {
            q.shut_down();
        }),
        ("time", &|| clock.advance(SEC)),
    ];
    let mut seen = q.phase();
    for first in &calls {
        for second in &calls {
            for (name, call) in [first, second] {
                call();
                assert!(q.phase() >= seen, "{name} went back from {seen:?} to {:?}", q.phase());
                seen = q.phase();
            }
        }
    }
    assert_eq!(seen, Phase::ShutDown);
    item.done();
    for (name, call) in calls {
        call();
        assert_eq!(q.phase(), Phase::Over, "after {name}");
    }
}

#[test]
fn q14_a_drain_that_waits_closes_and_shuts_down_when_all_is_worked_off() {
    let (q, clock) = queue();
    q.add_after(1, SEC).unwrap();
    let drain = q.drain(waits());
    assert_eq!(q.phase(), Phase::Closed);
    clock.advance(SEC);
    assert_eq!(q.phase(), Phase::Closed, "its key is ready");
    q.try_get().unwrap().done();
    assert_eq!(q.phase(), Phase::Over);
    assert!(drain.wait().complete);
}

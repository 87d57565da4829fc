//! B5 and the filter, which lets redundant adds of integers take no lock: the back-off option of an add must
//! not be lost in it.

use requeue::limiter::Exponential;
use requeue::{Add, FakeClock, InBackoff, Item, WorkQueue};
use std::hash::Hash;
use std::time::Duration;

const ALL: [InBackoff; 3] = [InBackoff::Run, InBackoff::Respect, InBackoff::Reset];

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn queue<K: Hash + Eq + Clone + Send + Sync + 'static>(in_backoff: InBackoff) -> (WorkQueue<K>, FakeClock) {
    let clock = FakeClock::new();
    let limiter = Exponential::new(ms(4), ms(64)).unwrap();
    let builder = WorkQueue::builder().clock(clock.clone()).limiter(limiter).in_backoff(in_backoff);
    (builder.build().unwrap(), clock)
}

/// A key that is no integer to the filter: its adds take the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Slow(u64);

#[test]
fn b5_an_add_that_runs_is_heard_although_respectful_ones_were_redundant() {
    let (q, _clock) = queue::<u64>(InBackoff::Respect);
    q.add(1).unwrap();
    let item = q.try_get().unwrap();
    for _ in 0..10 {
        q.add(1).unwrap();
    }
    q.add_with(1, Add::now().in_backoff(InBackoff::Run)).unwrap();
    for _ in 0..10 {
        q.add(1).unwrap();
    }
    item.retry().unwrap();
    assert_eq!((q.len(), q.stats().waiting), (1, 1));
}

#[test]
fn b5_adds_for_a_key_whose_dirt_has_joined_a_back_off_are_heard() {
    let (q, clock) = queue::<u64>(InBackoff::Respect);
    q.add(1).unwrap();
    let item = q.try_get().unwrap();
    for _ in 0..10 {
        q.add(1).unwrap();
    }
    item.retry().unwrap();
    assert_eq!((q.len(), q.stats().waiting), (0, 1));
    q.add(1).unwrap();
    assert_eq!((q.len(), q.stats().waiting), (0, 1));
    clock.advance(ms(4));
    let item = q.try_get().unwrap();
    // dirty again, and this time the run ends well
    q.add(1).unwrap();
    item.succeed();
    assert_eq!(q.len(), 1);
}

#[test]
fn b5_every_add_of_a_queue_that_resets_is_heard() {
    let (q, _clock) = queue::<u64>(InBackoff::Reset);
    for _ in 0..10 {
        q.add(1).unwrap();
        q.add(1).unwrap();
        q.add_rate_limited(1).unwrap();
        assert_eq!((q.num_requeues(&1), q.stats().waiting), (1, 1));
    }
    q.add(1).unwrap();
    assert_eq!((q.num_requeues(&1), q.stats().waiting, q.len()), (0, 0, 1));
}

#[test]
fn b5_a_reset_is_heard_although_the_key_was_published() {
    let (q, _clock) = queue::<u64>(InBackoff::Run);
    for _ in 0..10 {
        q.add(1).unwrap();
    }
    q.add_rate_limited(1).unwrap();
    q.add_with(1, Add::now().in_backoff(InBackoff::Reset)).unwrap();
    assert_eq!((q.num_requeues(&1), q.stats().waiting, q.len()), (0, 0, 1));
    for _ in 0..10 {
        q.add(1).unwrap();
    }
    let item = q.try_get().unwrap();
    q.add_with(1, Add::now().in_backoff(InBackoff::Reset)).unwrap();
    for _ in 0..10 {
        q.add(1).unwrap();
    }
    assert_eq!(item.retry().unwrap(), Duration::ZERO);
}

/// State of a queue after a random sequence of calls.
fn history<K>(in_backoff: InBackoff, seed: u64, key: impl Fn(u64) -> K) -> Vec<String>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    let (q, clock) = queue::<K>(in_backoff);
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut held: Vec<Item<'_, K>> = Vec::new();
    let mut history = Vec::new();
    for _ in 0..400 {
        let k = key(draw(2));
        let said = ALL[draw(3) as usize];
        let answer = match draw(12) {
            0..=3 => format!("{:?}", q.add(k).ok()),
            4 => format!("{:?}", q.add_with(k, Add::now().in_backoff(said)).ok()),
            5 => format!("{:?}", q.add_with(k, Add::after(ms(draw(9))).in_backoff(said)).ok()),
            6 => format!("{:?}", q.add_rate_limited(k).ok()),
            7 | 8 => {
                held.extend(q.try_get().ok());
                format!("{}", held.len())
            }
            9 if !held.is_empty() => format!("{:?}", held.swap_remove(0).retry().ok()),
            10 if !held.is_empty() => {
                held.swap_remove(0).done();
                String::new()
            }
            _ => {
                clock.advance(ms(draw(6)));
                String::new()
            }
        };
        let failures = [0, 1].map(|n| q.num_requeues(&key(n)));
        history.push(format!("{answer} {:?} {failures:?}", q.stats()));
    }
    history
}

#[test]
fn b5_integers_and_other_keys_have_the_same_history() {
    for in_backoff in ALL {
        for seed in 0..300 {
            let fast = history(in_backoff, seed, |n| n);
            let slow = history(in_backoff, seed, Slow);
            assert_eq!(fast, slow, "{in_backoff:?}, seed {seed}");
        }
    }
}

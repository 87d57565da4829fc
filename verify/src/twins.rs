//! Two queues that must behave alike, step by step.

use requeue::WorkQueue;
use std::fmt::Debug;

/// Makes random calls on both queues, with keys below `keys`: adds, as `add` makes them with a random level,
/// gets, cancels, and ends of runs. The second queue may know other keys, none of which is ready.
///
/// # Panics
///
/// If they differ, or if no more than `least` keys are in line at the end: then the calls show little.
pub fn do_the_same<A: PartialEq + Debug>(
    both: [&WorkQueue<u64>; 2],
    seed: u64,
    steps: u32,
    keys: u64,
    least: usize,
    add: impl Fn(&WorkQueue<u64>, u64, i16) -> A,
) {
    let get = |q: &WorkQueue<u64>| q.try_get().ok().map(|item| (*item.key(), item.priority()));
    let (mut held, mut random) = (Vec::new(), seed);
    for step in 0..steps {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (key, choice) = ((random >> 33) % keys, random >> 60);
        match choice {
            0..9 => {
                let [one, other] = both.map(|q| add(q, key, (random >> 40) as i16));
                assert_eq!(one, other, "step {step}: {key} is added");
            }
            9..12 => {
                let [one, other] = both.map(|q| q.try_get().ok());
                let told =
                    [&one, &other].map(|item| item.as_ref().map(|item| (*item.key(), item.priority())));
                assert_eq!(told[0], told[1], "step {step}: who goes next");
                held.extend(one.zip(other));
            }
            12 => {
                let [one, other] = both.map(|q| q.cancel(&key));
                assert_eq!(one, other, "step {step}: {key} is cancelled");
            }
            _ if !held.is_empty() => drop(held.swap_remove(key as usize % held.len())),
            _ => {}
        }
    }
    drop(held);
    assert!(both[0].len() > least, "there were keys to choose from");
    let [one, other] = both.map(|q| std::iter::from_fn(|| get(q)).collect::<Vec<_>>());
    assert_eq!(one, other);
}

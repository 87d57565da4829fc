//! Rules of groups.

use super::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

pub fn b3_while_a_group_waits_each_other_has_a_turn_of_its_weight<E: Grouped>(engine: E) {
    let queue = engine.open_with_groups(9, ("b", 3));
    E::pause(&queue, true);
    let weights = [("a", 1), ("b", 3), ("c", 1)];
    for (group, weight) in weights {
        for n in 0..weight * 20 {
            queue.add(format!("{group}/{n}")).wait().expect("open");
        }
    }
    let work = Work::on(&queue, |_| Outcome::Done);
    E::pause(&queue, false);
    let order: Vec<String> = work.keys(100).iter().map(|key| group(key)).collect();
    assert_eq!(work.stop(), []);
    for (waits, _) in weights {
        for (other, weight) in weights.into_iter().filter(|(other, _)| *other != waits) {
            let mut since = 0;
            // to its last key it always waits
            let last = order.iter().rposition(|group| group == waits).expect("it ran");
            for group in &order[..last] {
                since = if group == waits { 0 } else { since + i32::from(group == other) };
                assert!(since <= weight, "{other} got {since} keys while {waits} waited");
            }
        }
    }
}

pub fn b3_no_more_keys_of_a_group_are_held_than_its_cap<E: Grouped>(engine: E) {
    let queue = engine.open_with_groups(2, ("b", 1));
    let (held, most, both) = (AtomicUsize::new(0), AtomicUsize::new(0), Barrier::new(2));
    let all = Arc::new((held, most, both));
    let (tell, ran) = mpsc::channel();
    let worker = Worker::of(&queue).workers(4).start_threads({
        let all = all.clone();
        move |_: Run<String, Vec<u32>>| {
            let (held, most, both) = &*all;
            most.fetch_max(held.fetch_add(1, SeqCst) + 1, SeqCst);
            // two at a time, for as long as it takes
            both.wait();
            std::thread::yield_now();
            both.wait();
            held.fetch_sub(1, SeqCst);
            tell.send(()).expect("the test goes on");
        }
    });
    for n in 0..40 {
        queue.add(format!("a/{n}")).wait().expect("open");
    }
    for _ in 0..40 {
        ran.recv_timeout(LONG).expect("two runs at once");
    }
    assert_eq!(all.1.load(SeqCst), 2);
    assert!(worker.expect("threads").stop(LONG).wait().complete);
}

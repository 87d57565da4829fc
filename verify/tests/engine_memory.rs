//! The rules of engines that concern one process, on the queue in memory.

use requeue::WorkQueue;
use requeue::limiter::Exponential;
use requeue_verify::engines::{Engine, State};
use std::time::Duration;

#[derive(Default)]
struct Memory;

impl Engine for Memory {
    type Queue = WorkQueue<String, Vec<u32>>;

    fn open(&self) -> Self::Queue {
        let backoff =
            Exponential::new(Duration::from_millis(5), Duration::from_secs(1000)).expect("in order");
        let queue = WorkQueue::merging(|old: &mut Vec<u32>, new| old.extend(new));
        queue.priorities().limiter(backoff).build().expect("a queue")
    }
    fn state(queue: &Self::Queue, key: &str) -> Option<State> {
        queue.state(key).map(|known| State::of(queue, &known))
    }
    fn cancel(queue: &Self::Queue, key: &str) -> bool {
        queue.cancel(key).is_some()
    }
    fn pause(queue: &Self::Queue, paused: bool) {
        _ = if paused { queue.pause() } else { queue.resume() };
    }
    fn shut_down(queue: &Self::Queue) {
        queue.shut_down();
    }
}

requeue_verify::engine_rules!(Memory, in_process);

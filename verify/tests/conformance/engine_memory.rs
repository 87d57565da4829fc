//! The rules of engines that concern one process, on the queue in memory.

use requeue::limiter::Exponential;
use requeue::{Builder, GroupRules, Scope, WorkQueue};
use requeue_engine::DurableQueue;
use requeue_verify::engines::{Engine, Grouped, State, group};
use std::time::Duration;

struct Memory;

fn builder() -> Builder<String, Vec<u32>> {
    let backoff = Exponential::new(Duration::from_millis(5), Duration::from_secs(1000)).expect("in order");
    WorkQueue::merging(|old: &mut Vec<u32>, new| old.extend(new)).priorities().limiter(backoff)
}

impl Engine for Memory {
    type Store = WorkQueue<String, Vec<u32>>;

    fn start() -> Option<Self> {
        Some(Self)
    }
    fn open(&self) -> DurableQueue<Self::Store> {
        DurableQueue::new(builder().build().expect("a queue"))
    }
    fn state(queue: &DurableQueue<Self::Store>, key: &str) -> Option<State> {
        queue.state(key).map(|known| State::of(queue, &known))
    }
    fn pause(queue: &DurableQueue<Self::Store>, paused: bool) {
        _ = if paused { queue.pause(Scope::Queue) } else { queue.resume(Scope::Queue) };
    }
}

impl Grouped for Memory {
    fn open_with_groups(&self, cap: usize, weight: (&'static str, u32)) -> DurableQueue<Self::Store> {
        let rules = GroupRules::new().cap(cap).weight(move |it| if it == weight.0 { weight.1 } else { 1 });
        let queue = builder().group_by_with(|key: &String| group(key), rules).build();
        DurableQueue::new(queue.expect("a queue"))
    }
}

requeue_verify::engines!(Memory, in_process grouped);

//! A queue as usually written for tasks: the port's state behind a lock, and Tokio's `Notify` to wait.

use super::client_go::State;
use requeue_bench::queues::{AsyncFifo, Fifo};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The queue.
#[derive(Debug)]
pub struct Tasks {
    state: Mutex<State<u64>>,
    ready: Notify,
}

impl Tasks {
    fn state(&self) -> MutexGuard<'_, State<u64>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fifo for Tasks {
    const NAME: &'static str = "notify";
    type Key = u64;
    type Item<'q> = u64;

    fn new() -> Self {
        Self { state: Mutex::new(State::new()), ready: Notify::new() }
    }
    fn add(&self, key: u64) {
        let pushed = self.state().add(key);
        if pushed {
            self.ready.notify_one();
        }
    }
    fn get(&self) -> Option<u64> {
        futures::executor::block_on(self.get_async())
    }
    fn key(item: &u64) -> &u64 {
        item
    }
    fn done(&self, key: u64) {
        let pushed = self.state().done(&key);
        if pushed {
            self.ready.notify_one();
        }
    }
    fn shut_down(&self, _: usize) {
        self.state().shutting_down = true;
        self.ready.notify_waiters();
    }
}

impl AsyncFifo for Tasks {
    async fn get_async(&self) -> Option<u64> {
        loop {
            // before the look, so that a shutdown in between is not missed
            let woken = self.ready.notified();
            {
                let mut state = self.state();
                if let Some(key) = state.get() {
                    return Some(key);
                }
                if state.shutting_down {
                    return None;
                }
            }
            woken.await;
        }
    }
}

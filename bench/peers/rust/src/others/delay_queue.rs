//! tokio-util's `DelayQueue` and a map from keys to its handles, as its
//! documentation's cache has them: a key that is set again moves its timer.
//!
//! Both are behind one lock, since adds come from other threads; setting a sooner timer wakes the polling
//! consumer. One consumer polls, because a `DelayQueue` wakes only the last one that did; others would only
//! wait for the lock.

use super::context::enter;
use requeue_bench::queues::{AsyncFifo, Delaying, Fifo};
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue;

#[derive(Debug)]
struct State {
    queue: DelayQueue<u64>,
    handles: HashMap<u64, (delay_queue::Key, Instant)>,
    closed: bool,
    polls: Option<Waker>,
}

/// The queue.
#[derive(Debug)]
pub struct Delayed {
    state: Mutex<State>,
    only: OneConsumer,
}

impl Delayed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fifo for Delayed {
    const NAME: &'static str = "tokio-delayqueue";
    type Key = u64;
    type Item<'q> = u64;

    fn new() -> Self {
        enter();
        let state = State { queue: DelayQueue::new(), handles: HashMap::new(), closed: false, polls: None };
        Self { state: Mutex::new(state), only: OneConsumer::default() }
    }
    fn add(&self, key: u64) {
        self.add_after(key, Duration::ZERO);
    }
    fn get(&self) -> Option<u64> {
        enter();
        if !self.only.is_this_thread() {
            self.only.wait_for_the_end();
            return None;
        }
        futures::executor::block_on(poll_fn(|cx| {
            let mut state = self.state();
            match state.queue.poll_expired(cx) {
                Poll::Ready(Some(expired)) => {
                    let key = expired.into_inner();
                    state.handles.remove(&key);
                    Poll::Ready(Some(key))
                }
                _ if state.closed => Poll::Ready(None),
                // an empty queue says so at once, and wakes when it is no longer
                _ => {
                    if !state.polls.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                        state.polls = Some(cx.waker().clone());
                    }
                    Poll::Pending
                }
            }
        }))
    }
    fn key(item: &u64) -> &u64 {
        item
    }
    fn done(&self, _: u64) {}
    fn shut_down(&self, _: usize) {
        let polls = {
            let mut state = self.state();
            state.closed = true;
            state.polls.take()
        };
        if let Some(waker) = polls {
            waker.wake();
        }
        self.only.end();
    }
}

/// Only so that it can have delays: it blocks the thread, and no workload with
/// tasks is run with it.
impl AsyncFifo for Delayed {
    async fn get_async(&self) -> Option<u64> {
        self.get()
    }
}

impl Delaying for Delayed {
    fn add_after(&self, key: u64, delay: Duration) {
        enter();
        let at = Instant::now() + delay;
        let mut state = self.state();
        let State { queue, handles, .. } = &mut *state;
        match handles.get_mut(&key) {
            None => {
                handles.insert(key, (queue.insert_at(key, at), at));
            }
            Some((handle, before)) if at < *before => {
                queue.reset_at(handle, at);
                *before = at;
            }
            Some(_) => {}
        }
    }
}

/// The first thread that asks for keys gets all of them; others wait for the end.
#[derive(Debug, Default)]
pub struct OneConsumer {
    first: std::sync::OnceLock<usize>,
    ended: Mutex<bool>,
    end: Condvar,
}

impl OneConsumer {
    /// Whether somebody has asked.
    pub fn is_there(&self) -> bool {
        self.first.get().is_some()
    }

    /// Whether this thread is the one.
    #[inline]
    pub fn is_this_thread(&self) -> bool {
        thread_local!(static HERE: u8 = const { 0 });
        // the variable's address is the thread's name
        let me = HERE.with(|here| std::ptr::from_ref(here).addr());
        *self.first.get_or_init(|| me) == me
    }

    /// Waits until the other consumers have ended.
    pub fn wait_for_the_end(&self) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.end.wait_while(ended, |ended| !*ended));
    }

    /// Lets the others go.
    pub fn end(&self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.end.notify_all();
    }
}

//! Waiting actors, each polled only after its waker was called.

use crate::{Call, Plan};
use requeue::{Get, GetMany, Instant, Item, WorkQueue};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

/// A waker that records that it was called.
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// Whether an actor is to be polled, and the waker that says so.
pub(crate) struct Asleep {
    flag: Arc<WakeFlag>,
    waker: Waker,
}

impl Asleep {
    /// To be polled.
    pub(crate) fn new() -> Self {
        let flag = Arc::new(WakeFlag(AtomicBool::new(true)));
        Self { waker: flag.clone().into(), flag }
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.flag.0.load(Relaxed)
    }

    pub(crate) fn wake(&self) {
        self.flag.0.store(true, Relaxed);
    }

    pub(crate) fn poll<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        self.flag.0.store(false, Relaxed);
        Pin::new(future).poll(&mut Context::from_waker(&self.waker))
    }
}

/// A worker's wait.
pub(crate) enum Look<K: 'static, V: 'static> {
    One(Get<'static, K, V>),
    Many(GetMany<'static, K, V>),
}

/// Result of a worker's look.
pub(crate) enum Found<K: 'static, V: 'static> {
    Nothing,
    /// The queue has ended.
    End,
    One(Item<'static, K, V>),
    Many(requeue::Items<'static, K, V>),
}

/// A worker.
pub(crate) struct SimWorker<K: 'static, V: 'static> {
    pub(crate) asleep: Asleep,
    pub(crate) look: Option<Look<K, V>>,
    /// Its runs, in the order in which they began.
    pub(crate) going: Vec<Going<K, V>>,
    /// It has seen the queue's end.
    pub(crate) left: bool,
    /// It is surplus.
    pub(crate) away: bool,
}

impl<K: Send + Sync + 'static, V: Send + 'static> SimWorker<K, V> {
    pub(crate) fn new() -> Self {
        Self { asleep: Asleep::new(), look: None, going: Vec::new(), left: false, away: false }
    }

    /// Whether it only waits for keys.
    pub(crate) fn is_idle(&self) -> bool {
        self.going.is_empty() && !self.left && !self.away
    }

    /// Looks for a key, or for up to `most`.
    pub(crate) fn poll<S>(&mut self, queue: &WorkQueue<K, V, S>, most: usize) -> Found<K, V> {
        let look = self.look.get_or_insert_with(|| match most {
            0 | 1 => Look::One(queue.get().into_owned()),
            _ => Look::Many(queue.get_many(most).into_owned()),
        });
        let found = match look {
            Look::One(get) => self.asleep.poll(get).map(|item| item.map_or(Found::End, Found::One)),
            Look::Many(get) => self.asleep.poll(get).map(|items| items.map_or(Found::End, Found::Many)),
        };
        match found {
            Poll::Pending => Found::Nothing,
            Poll::Ready(found) => {
                self.look = None;
                self.left = matches!(found, Found::End);
                found
            }
        }
    }

    /// The run that acts next, and when.
    pub(crate) fn next(&self) -> Option<(Instant, usize)> {
        let each = self.going.iter().enumerate().map(|(which, going)| (going.next(), which));
        each.min()
    }
}

/// A current run.
pub(crate) struct Going<K: 'static, V: 'static> {
    pub(crate) item: Item<'static, K, V>,
    pub(crate) plan: Plan<K, V>,
    pub(crate) began: Instant,
    /// Number of the plan's calls already made.
    called: usize,
}

impl<K: Clone, V: Clone> Going<K, V> {
    /// Its next call, if one is left.
    pub(crate) fn call(&mut self) -> Option<Call<K, V>> {
        let (_, call) = self.plan.calls.get(self.called)?;
        self.called += 1;
        Some(call.clone())
    }
}

impl<K, V> Going<K, V> {
    pub(crate) fn new(item: Item<'static, K, V>, plan: Plan<K, V>, began: Instant) -> Self {
        Self { item, plan, began, called: 0 }
    }

    /// When it acts next.
    fn next(&self) -> Instant {
        let end = self.began + self.plan.takes;
        self.plan.calls.get(self.called).map_or(end, |(after, _)| (self.began + *after).min(end))
    }
}

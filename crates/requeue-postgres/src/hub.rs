//! [`Hub`]: what all handles of a server share in this process.

use crate::add_batcher::AddBatcher;
use crate::heartbeat::Heartbeat;
use crate::lanes::Lanes;
use crate::link::{ConnectFn, Hosts, Link, Statements};
use crate::wakeups::Wakeups;
use requeue_engine::{Answer, EngineError, Op};
use std::future::Future;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

/// State shared by the queues of a server.
pub(crate) struct Hub {
    pub(crate) hosts: Hosts,
    pub(crate) connect_fn: ConnectFn,
    pub(crate) statements: Statements,
    pub(crate) runtime: Handle,
    pub(crate) thread: Option<JoinHandle<()>>,
    /// Becomes true when the last handle is dropped.
    pub(crate) closing: watch::Sender<bool>,
    /// Held by each task that is waited for when the last handle is dropped.
    pub(crate) alive: mpsc::Sender<()>,
    /// Writes triggers.
    pub(crate) batcher: Arc<AddBatcher>,
    /// Connections for claims and rare calls.
    pub(crate) lanes: Arc<Lanes>,
    /// The connection for leases and periodic work, which also receives notifications.
    pub(crate) heartbeat: Arc<Heartbeat>,
    pub(crate) wakeups: Arc<Wakeups>,
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        self.batcher.wake();
        self.heartbeat.wake();
        let thread = self.thread.take().filter(|it| it.thread().id() != std::thread::current().id());
        if let Some(thread) = thread {
            // the last one that is waited for: what it waits for is then gone too
            let (alive, _) = mpsc::channel(1);
            self.alive = alive;
            drop(thread.join());
        }
    }
}

/// Sets an answer, even if it is dropped before.
struct Tells<T>(Option<Arc<Answer<T, EngineError>>>);

impl<T> Drop for Tells<T> {
    fn drop(&mut self) {
        if let Some(answer) = self.0.take() {
            answer.tell(Err(EngineError::Unknown("the engine was closed".into())));
        }
    }
}

/// Runs a call as a task of this runtime.
pub(crate) fn call<T: Send + 'static>(
    runtime: &Handle,
    future: impl Future<Output = Result<T, EngineError>> + Send + 'static,
) -> Op<T> {
    let answer = Arc::new(Answer::default());
    let mut tells = Tells(Some(answer.clone()));
    runtime.spawn(async move {
        let ended = future.await;
        if let Some(answer) = tells.0.take() {
            answer.tell(ended);
        }
    });
    Op::of(answer)
}

impl Hub {
    pub(crate) fn call<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Op<T> {
        call(&self.runtime, future)
    }

    /// Spawns a task that is waited for when the last handle is dropped. It ends soon after the watch becomes
    /// true.
    pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        task: impl FnOnce(watch::Receiver<bool>) -> F,
    ) {
        let alive = self.alive.clone();
        let task = task(self.closing.subscribe());
        self.runtime.spawn(async move {
            task.await;
            drop(alive);
        });
    }

    /// A further connection.
    pub(crate) fn link(&self) -> Link {
        Link::new(self.hosts.clone(), self.connect_fn.clone(), None, self.statements)
    }
}

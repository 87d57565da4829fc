//! Wakers that report to a test that they were called.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Wake, Waker};

/// The channel on which the wakers of one test report.
pub(crate) struct Rings {
    bell: Sender<&'static str>,
    heard: Receiver<&'static str>,
}

impl Rings {
    pub(crate) fn new() -> Self {
        let (bell, heard) = channel();
        Self { bell, heard }
    }

    /// A waker that reports under `name` each time it is woken.
    pub(crate) fn waker(&self, name: &'static str) -> Waker {
        let bell = self.bell.clone();
        calls(move || bell.send(name).expect("the test still listens"))
    }

    /// Blocks until a waker reports.
    pub(crate) fn next(&self) -> &'static str {
        self.heard.recv().expect("a bell is alive: ours")
    }

    /// Names of the wakers that have reported since the last look, in order.
    pub(crate) fn so_far(&self) -> Vec<&'static str> {
        self.heard.try_iter().collect()
    }
}

struct Calls<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// A waker that runs `f`.
pub(crate) fn calls(f: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Calls(f)))
}

/// A waker that panics, past the panic hook so that it prints nothing.
pub(crate) fn panics() -> Waker {
    calls(|| std::panic::resume_unwind(Box::new("a waker that panics")))
}

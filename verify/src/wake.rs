//! Wakers that count, a `block_on` without a runtime, and polling by hand.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// A waker that counts how often it was woken, and can do something when it is.
pub struct Count {
    woken: AtomicUsize,
    then: Option<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Count").field("woken", &self.wakes()).finish_non_exhaustive()
    }
}

impl Count {
    /// A counter at 0.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self { woken: AtomicUsize::new(0), then: None })
    }

    /// A counter that also calls `then` at each wake-up.
    pub fn then(then: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { woken: AtomicUsize::new(0), then: Some(Box::new(then)) })
    }

    /// Number of wake-ups.
    #[must_use]
    pub fn wakes(&self) -> usize {
        self.woken.load(Ordering::SeqCst)
    }

    /// Polls `future` once with this waker.
    pub fn poll<F: Future + Unpin>(self: &Arc<Self>, future: &mut F) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(self));
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        if let Some(then) = &self.then {
            then();
        }
    }
}

/// Polls `future` once with a waker that does nothing.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Count::new().poll(future)
}

/// Runs `future` to its end on this thread: no runtime, no timers, nothing but
/// a waker.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Signal(Mutex<bool>, Condvar);
    impl Wake for Signal {
        fn wake(self: Arc<Self>) {
            *self.0.lock().expect("nobody panics with the flag") = true;
            self.1.notify_one();
        }
    }
    let signal = Arc::new(Signal(Mutex::new(false), Condvar::new()));
    let waker = Waker::from(Arc::clone(&signal));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        let mut woken = signal.0.lock().expect("nobody panics with the flag");
        while !*woken {
            woken = signal.1.wait(woken).expect("nobody panics with the flag");
        }
        *woken = false;
    }
}

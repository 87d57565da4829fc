//! `--rate`: how many runs may start.
//!
//! A key that was handed out stands here until there is a token for its run. The run has
//! not begun yet, so it is also for the triggers that come meanwhile: they are taken here
//! and do not come to the queue, which would give them a run, and a token, of their own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use requeue::limiter::{LimiterError, TokenBucket};
use requeue::{Clock as _, Metrics as _, SystemClock};
use requeue_prometheus::QueueSink;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::control::{Control, Level};
use crate::intake::Cause;
use crate::tally::Key;

#[derive(Debug)]
pub(crate) struct Gate {
    tokens: TokenBucket,
    /// The keys that stand here, with what came for them meanwhile.
    keys: Mutex<HashMap<Key, Cause>>,
    /// What hears of triggers that never come to the queue, under `--listen`.
    sink: Option<Arc<QueueSink>>,
}

impl Gate {
    /// So many runs a second, the first at once.
    ///
    /// # Errors
    ///
    /// What the library refuses of the rate.
    pub(crate) fn new(rate: f64, sink: Option<Arc<QueueSink>>) -> Result<Self, LimiterError> {
        Ok(Self { tokens: TokenBucket::new(rate, 1)?, keys: Mutex::default(), sink })
    }

    /// Takes a trigger for a key that stands here: the run to come is for this trigger
    /// too. False if the key does not stand here.
    pub(crate) fn takes(&self, key: &[u8], cause: impl FnOnce() -> Cause) -> bool {
        let mut keys = self.keys();
        let Some(so_far) = keys.get_mut(key) else { return false };
        so_far.merge(cause());
        drop(keys);
        if let Some(sink) = &self.sink {
            sink.coalesced(1);
        }
        true
    }

    /// Waits until the run of this key may begin, and gives what has come for it
    /// meanwhile. `None`: no further run begins.
    pub(crate) fn pass(&self, key: &[u8], control: &Control) -> Option<Cause> {
        self.keys().insert(key.to_vec(), Cause::default());
        let at = self.tokens.reserve(1, SystemClock.now()).ready_at();
        loop {
            let left = at.saturating_since(SystemClock.now());
            if left.is_zero() || control.reached(Level::LastRuns) {
                break;
            }
            wait(left, control);
        }
        let cause = self.keys().remove(key);
        cause.filter(|_| !control.reached(Level::LastRuns))
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<Key, Cause>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Until `time` is over, or no further run is to begin.
fn wait(time: Duration, control: &Control) {
    let mut fds = [PollFd::from_borrowed_fd(control.runs_end.fd(), PollFlags::IN)];
    let time = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
    // Whoever is woken too early looks at the clock again.
    let _ = poll(&mut fds, Some(&time));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> (Gate, Control) {
        (Gate::new(1e-6, None).unwrap(), Control::new(|| {}).unwrap())
    }

    #[test]
    fn the_first_run_begins_at_once_and_the_end_lets_nobody_through() {
        let (gate, control) = gate();
        assert_eq!(gate.pass(b"a", &control), Some(Cause::default()));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| gate.pass(b"b", &control));
            control.raise(Level::LastRuns);
            assert_eq!(second.join().unwrap(), None);
        });
        assert!(!gate.takes(b"b", Cause::default));
    }

    #[test]
    fn only_a_key_that_stands_at_the_gate_takes_triggers_there() {
        let (gate, _) = gate();
        assert!(!gate.takes(b"a", || unreachable!("nobody asks why")));
        gate.keys().insert(b"a".to_vec(), Cause::default());
        assert!(gate.takes(b"a", Cause::default));
        assert!(!gate.takes(b"b", Cause::default));
    }
}

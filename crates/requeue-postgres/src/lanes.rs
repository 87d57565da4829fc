//! A pool of connections for claims and rare calls of all queues: one, and a few more while several calls are
//! under way.
//!
//! A call has its connection to itself, so that a long call blocks no other. Connections that are unused for
//! a while are closed: a process that only waits has one connection, the heartbeat's.

use crate::link::Link;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum number of connections.
const CONNECTIONS: usize = 4;
/// Time after which an unused connection is closed.
const IDLE: Duration = Duration::from_secs(10);

pub(crate) struct Lanes {
    /// Free connections, the one used last at the end.
    free: Mutex<Vec<(Link, Instant)>>,
    seats: Semaphore,
    make: Box<dyn Fn() -> Link + Send + Sync>,
}

/// A connection in exclusive use.
pub(crate) struct Lane<'a> {
    lanes: &'a Lanes,
    link: Link,
    /// Returned after the link.
    _seat: Option<SemaphorePermit<'a>>,
}

impl Lanes {
    pub(crate) fn new(make: impl Fn() -> Link + Send + Sync + 'static) -> Self {
        Self { free: Mutex::default(), seats: Semaphore::new(CONNECTIONS), make: Box::new(make) }
    }

    fn free(&self) -> MutexGuard<'_, Vec<(Link, Instant)>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a connection, in the order of the callers.
    pub(crate) async fn lock(&self) -> Lane<'_> {
        let seat = self.seats.acquire().await.ok();
        let free = {
            let mut free = self.free();
            // an open connection first: if the server accepts no more of them, one that could not be made
            // must not be used instead
            let last = free.iter().rposition(|(link, _)| link.is_up()).or(free.len().checked_sub(1));
            last.map(|nth| free.remove(nth))
        };
        let link = free.map_or_else(|| (self.make)(), |(link, _)| link);
        Lane { lanes: self, link, _seat: seat }
    }

    /// Closes connections that were unused for a while.
    pub(crate) fn rest(&self) {
        let idle: Vec<_> = {
            let mut free = self.free();
            let used = free.iter().position(|(_, used)| used.elapsed() < IDLE).unwrap_or(free.len());
            free.drain(..used).collect()
        };
        drop(idle);
    }
}

impl Deref for Lane<'_> {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}

impl DerefMut for Lane<'_> {
    fn deref_mut(&mut self) -> &mut Link {
        &mut self.link
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        // one that has no connection takes its place here
        let link = std::mem::replace(&mut self.link, (self.lanes.make)());
        self.lanes.free().push((link, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::tests::{block_on, link, silent_server};

    #[test]
    fn e42_a_connection_that_stands_is_used_before_one_that_can_not_be_made() {
        let (port, _comes, lets_in) = silent_server();
        lets_in.send(()).expect("it waits");
        // no server listens on that port
        let lanes = Lanes::new(|| link(1));
        block_on(async {
            lanes.lock().await.link = {
                let mut stands = link(port);
                stands.connect().await.expect("it is let in");
                stands
            };
            let (first, mut second) = (lanes.lock().await, lanes.lock().await);
            assert!(first.is_up());
            second.connect().await.expect_err("nobody is there");
            drop(first);
            drop(second);
            for _ in 0..3 {
                assert!(lanes.lock().await.is_up());
            }
        });
    }
}

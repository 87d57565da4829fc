//! How long a watch that failed waits before it begins again.

use futures::{Stream, StreamExt, stream};
use kube::runtime::watcher::{self, DefaultBackoff, Error};
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The first wait for an API server that cannot be reached, doubled each time.
const UNREACHABLE_FIRST: Duration = Duration::from_millis(50);
/// The longest wait for an API server that cannot be reached. A refused connection costs it nothing, and the sooner
/// a watch is back the sooner changes are seen; kube and client-go wait for up to 30 s.
const UNREACHABLE_MOST: Duration = Duration::from_secs(1);
/// An API server that has just started refuses for some seconds: it does not know yet who may do what, and which
/// kinds there are. So long its refusals are as if it could not be reached.
const STARTING: Duration = Duration::from_secs(10);
/// So seldom may a watch that the API server calls too old (410) begin again without a wait.
const GONE_ONCE_IN: Duration = Duration::from_secs(10);

/// The events of a watch, with a wait after each error: short if the API server can't be reached, none if the watch
/// is too old, and otherwise client-go's back-off, from 0.8 s to 30 s.
pub(crate) fn patiently<T: Send + 'static>(
    events: impl Stream<Item = watcher::Result<T>> + Send + 'static,
) -> impl Stream<Item = watcher::Result<T>> + Send + 'static {
    let events: Pin<Box<dyn Stream<Item = watcher::Result<T>> + Send>> = events.boxed();
    stream::unfold((events, Patience::default()), |(mut events, mut patience)| async move {
        if let Some(wait) = patience.wait.take() {
            sleep(wait).await;
        }
        let event = events.next().await?;
        match &event {
            Ok(_) => patience.succeeded(),
            Err(e) => patience.failed(e),
        }
        Some((event, (events, patience)))
    })
}

#[derive(Default)]
struct Patience {
    /// What is to be waited before the stream is asked again.
    wait: Option<Duration>,
    /// The failures since the API server was first out of reach, and when it was last.
    unreachable: u32,
    last_unreachable: Option<Instant>,
    refused: DefaultBackoff,
    gone: Option<Instant>,
}

impl Patience {
    fn succeeded(&mut self) {
        // client-go's back-off forgets by itself, after two minutes.
        self.unreachable = 0;
    }

    fn failed(&mut self, error: &Error) {
        let now = Instant::now();
        self.wait = if is_gone(error) && self.gone.is_none_or(|gone| now - gone >= GONE_ONCE_IN) {
            self.gone = Some(now);
            None
        } else if is_unreachable(error) || self.last_unreachable.is_some_and(|last| now - last < STARTING) {
            if is_unreachable(error) {
                self.last_unreachable = Some(now);
            }
            let wait = UNREACHABLE_FIRST.saturating_mul(2_u32.saturating_pow(self.unreachable));
            self.unreachable += 1;
            // Many controllers lose one API server at one instant.
            Some(crate::random::between(0.5, 1.0, wait.min(UNREACHABLE_MOST)))
        } else {
            self.refused.next()
        };
    }
}

fn is_gone(error: &Error) -> bool {
    match error {
        Error::WatchError(status) => status.code == 410,
        Error::InitialListFailed(e) | Error::WatchStartFailed(e) | Error::WatchFailed(e) => {
            matches!(e, kube::Error::Api(status) if status.code == 410)
        }
        Error::NoResourceVersion => false,
    }
}

/// There was no answer, or it broke off.
fn is_unreachable(error: &Error) -> bool {
    match error {
        Error::InitialListFailed(e) | Error::WatchStartFailed(e) | Error::WatchFailed(e) => {
            matches!(e, kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_))
        }
        Error::WatchError(_) | Error::NoResourceVersion => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn status(code: u16) -> Error {
        Error::WatchError(Box::new(Status { code, ..Status::default() }))
    }

    fn unreachable() -> Error {
        Error::WatchStartFailed(kube::Error::Service("connection refused".into()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_too_old_begins_again_at_once_but_not_in_a_circle() {
        let events = stream::iter((0..3).map(|_| Err::<(), _>(status(410))));
        let mut events = Box::pin(patiently(events));
        let begin = Instant::now();
        events.next().await;
        events.next().await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
        events.next().await;
        assert!(begin.elapsed() >= Duration::from_millis(800), "{:?}", begin.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_cannot_be_reached_is_tried_each_second_and_more_often_at_first() {
        let events = stream::iter((0..1000).map(|_| Err::<(), _>(unreachable())));
        let mut events = Box::pin(patiently(events));
        let begin = Instant::now();
        let mut tries = 0;
        while begin.elapsed() < Duration::from_secs(60) {
            events.next().await;
            tries += 1;
        }
        assert!((60..130).contains(&tries), "{tries}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_refuses_is_left_in_peace_for_longer_and_longer() {
        let events = stream::iter((0..1000).map(|_| Err::<(), _>(status(500))));
        let mut events = Box::pin(patiently(events));
        let begin = Instant::now();
        let mut tries = 0;
        while begin.elapsed() < Duration::from_secs(60) {
            events.next().await;
            tries += 1;
        }
        assert!(tries < 10, "{tries}");
    }
}

//! The wait of a failed watch before it begins again.

use crate::lists::{Refused, STARTING, is_refusal};
use futures::{Stream, StreamExt, stream};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, DefaultBackoff, Error, Event};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The first wait for an API server that cannot be reached, doubled each time.
const UNREACHABLE_FIRST: Duration = Duration::from_millis(50);
/// The maximum wait for an API server that cannot be reached. A refused connection costs it nothing, and
/// changes are seen sooner if the watch is back sooner; kube and client-go wait for up to 30 s.
const UNREACHABLE_MOST: Duration = Duration::from_secs(1);
/// The wait for a kind that does not exist, or that this process may not watch. Objects may wait for its
/// installation, and a request every two seconds is cheap.
const REFUSED: Duration = Duration::from_secs(2);
/// Minimum interval between restarts without a wait of a watch that the API server calls too old (410).
const GONE_ONCE_IN: Duration = Duration::from_secs(10);

/// A user's back-off, for all watches of a controller.
pub(crate) type SharedBackoff = Arc<Mutex<Box<dyn Backoff>>>;

/// The events of a watch, with a wait after each error: that of the user's back-off; otherwise a short one if
/// the API server can't be reached or does not know the kind, none if the watch is too old, and client-go's
/// back-off, from 0.8 s to 30 s, after other errors.
///
/// A watch that is refused for long begins anew, with a list: a watch that continued would not show that its
/// kind is back.
pub(crate) fn patiently<K, S>(
    watch: impl Fn() -> S + Send + 'static,
    backoff: Option<SharedBackoff>,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static
where
    K: Send + 'static,
    S: Stream<Item = watcher::Result<Event<K>>> + Send + 'static,
{
    let events = Box::pin(watch());
    let patience = Patience { of_user: backoff, ..Patience::default() };
    stream::unfold((watch, events, patience), |(watch, mut events, mut patience)| async move {
        if let Some(wait) = patience.wait.take() {
            sleep(wait).await;
        }
        let event = events.next().await?;
        if patience.refusal.hears(&event) {
            events.set(watch());
        }
        match &event {
            // A watcher says that it begins before it has asked.
            Ok(Event::Init) => {}
            Ok(_) => patience.succeeded(),
            Err(e) => patience.failed(e),
        }
        Some((event, (watch, events, patience)))
    })
}

#[derive(Default)]
struct Patience {
    /// Wait before the stream is polled again.
    wait: Option<Duration>,
    of_user: Option<SharedBackoff>,
    /// Number of failures since the API server was first unreachable, and when it last was.
    unreachable: u32,
    last_unreachable: Option<Instant>,
    refusal: Refused,
    other: DefaultBackoff,
    gone: Option<Instant>,
}

impl Patience {
    fn succeeded(&mut self) {
        // client-go's back-off forgets by itself, after two minutes.
        self.unreachable = 0;
        if let Some(backoff) = &self.of_user {
            backoff.lock().unwrap_or_else(PoisonError::into_inner).reset();
        }
    }

    fn failed(&mut self, error: &Error) {
        let of_user = self.of_user.as_ref();
        let of_user = of_user.and_then(|it| it.lock().unwrap_or_else(PoisonError::into_inner).next());
        self.wait = of_user.or_else(|| self.of_error(error));
    }

    fn of_error(&mut self, error: &Error) -> Option<Duration> {
        let now = Instant::now();
        if is_gone(error) && self.gone.is_none_or(|gone| now - gone >= GONE_ONCE_IN) {
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
        } else if is_refusal(error) {
            Some(crate::random::between(0.5, 1.0, REFUSED))
        } else {
            self.other.next()
        }
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

/// Whether there was no answer, or it broke off.
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
        Error::InitialListFailed(kube::Error::Service("connection refused".into()))
    }

    /// A watch whose lists all fail with this error.
    fn failing(error: fn() -> Error) -> impl Stream<Item = watcher::Result<Event<()>>> {
        stream::iter((0..2000).map(move |n| if n % 2 == 0 { Ok(Event::Init) } else { Err(error()) }))
    }

    /// Number of requests of a watch in a minute.
    async fn tries(error: fn() -> Error, backoff: Option<SharedBackoff>) -> usize {
        let mut events = Box::pin(patiently(move || failing(error), backoff));
        let (begin, mut tries) = (Instant::now(), 0);
        while begin.elapsed() < Duration::from_secs(60) {
            tries += usize::from(events.next().await.unwrap().is_err());
        }
        tries
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_too_old_begins_again_at_once_but_not_in_a_circle() {
        let events = || stream::iter((0..3).map(|_| Err::<Event<()>, _>(status(410))));
        let mut events = Box::pin(patiently(events, None));
        let begin = Instant::now();
        events.next().await;
        events.next().await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
        events.next().await;
        assert!(begin.elapsed() >= Duration::from_millis(800), "{:?}", begin.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_cannot_be_reached_is_tried_each_second_and_more_often_at_first() {
        let tries = tries(unreachable, None).await;
        assert!((60..130).contains(&tries), "{tries}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_refuses_is_left_in_peace_for_longer_and_longer() {
        let tries = tries(|| status(500), None).await;
        assert!(tries < 10, "{tries}");
    }

    #[tokio::test(start_paused = true)]
    async fn k16_a_kind_that_is_refused_is_asked_for_each_two_seconds_and_no_more_often() {
        for error in [|| status(403), || status(404)] {
            let tries = tries(error, None).await;
            assert!((30..=60).contains(&tries), "{tries}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn k16_the_back_off_of_a_user_is_for_each_error() {
        struct Tens;
        impl Iterator for Tens {
            type Item = Duration;
            fn next(&mut self) -> Option<Duration> {
                Some(Duration::from_secs(10))
            }
        }
        impl Backoff for Tens {
            fn reset(&mut self) {}
        }
        for error in [unreachable, || status(404), || status(410), || status(500)] {
            let backoff: SharedBackoff = Arc::new(Mutex::new(Box::new(Tens)));
            assert_eq!(tries(error, Some(backoff)).await, 6);
        }
    }
}

//! Workers without an executor: all of them inside one future.
//!
//! Each worker has a waker of its own, which notes its place and wakes whoever polls the
//! whole; a poll then polls those that were noted, and no others.

use super::Worker;
use super::crew::Crew;
use super::hiring::{Hire, Hiring};
use super::outcome::{Failure, IntoOutcome};
use super::roster::{Ends, Roster};
use super::run::Run;
use super::seat::Seat;
use super::size::CrewSize;
use super::stop::StopReport;
use crate::panics::{quietly, wake_each};
use crate::sync::{Mutex, atomic};
use atomic::Ordering::{AcqRel, Acquire, Release};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Workers inside one future, which whoever polls it drives: made by
/// [`WorkerBuilder::run`](crate::WorkerBuilder::run).
///
/// It runs as many handlers beside each other as there are workers, all on the thread
/// that polls it, and polls only those that were woken. It ends, with a report, when it
/// was stopped or the queue is shut down and worked off; [`worker`](Self::worker) gives
/// the handle that stops and resizes it. With no workers it waits to be resized or stopped.
/// Its report has no part in a drain: what that dropped and refused is told where it was
/// asked for.
///
/// # Cancel safety
///
/// Dropping it cancels the handlers that run: their runs have failed, and their keys and
/// values go back to the queue.
///
/// ```
/// use requeue::{Run, WorkQueue, Worker};
/// use std::rc::Rc;
/// use std::time::Duration;
///
/// let q = WorkQueue::<String>::new();
/// let seen = Rc::new(std::cell::Cell::new(0)); // a handler need not be Send
/// let count = seen.clone();
/// let workers = Worker::of(&q).workers(4).run(move |run: Run<String>| {
///     let count = count.clone();
///     async move {
///         println!("look at {}", run.key());
///         count.set(count.get() + 1);
///     }
/// })?;
/// q.add_ref("a")?;
/// q.shut_down();
/// let report = smol::block_on(workers);
/// assert_eq!((report.done, seen.get()), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the workers do nothing unless this is polled"]
pub struct WorkerFuture<K: 'static, V: 'static, F, Fut> {
    crew: Crew<K, V>,
    handler: F,
    /// By place.
    seats: Vec<Option<Seated<K, V, Fut>>>,
    bells: Arc<Bells>,
    hiring: Arc<Hiring>,
}

struct Seated<K: 'static, V: 'static, Fut> {
    seat: Seat<K, V, Fut>,
    bell: Arc<Bell>,
    /// The bell, as a waker and as the roster has it.
    waker: Waker,
    ends: Arc<dyn Ends>,
}

/// What wakes the future, and why.
struct Bells {
    roster: Arc<Roster>,
    state: Mutex<Rung>,
    /// It is being polled.
    polled: atomic::AtomicBool,
}

#[derive(Default)]
struct Rung {
    /// Places whose workers were woken.
    woken: Vec<usize>,
    /// Places that want a worker.
    hired: Vec<usize>,
    /// The future was dropped: nobody can be hired.
    dropped: bool,
    /// Of whoever polls the future; taken by the first who rings after a poll.
    outer: Option<Waker>,
}

impl Bells {
    fn ring(&self, why: impl FnOnce(&mut Rung)) {
        let mut rung = self.state.lock();
        why(&mut rung);
        let outer = rung.outer.take();
        drop(rung);
        wake_each(outer);
    }
}

impl Hire for Bells {
    fn hire(self: Arc<Self>, place: usize, _: Arc<Hiring>) -> io::Result<bool> {
        let mut hired = false;
        self.ring(|rung| {
            hired = !rung.dropped;
            rung.hired.extend(hired.then_some(place));
        });
        if !hired {
            self.roster.leave(place);
        }
        Ok(hired)
    }
    fn ended(&self) {
        self.ring(|_| ());
    }
}

/// The waker of one worker.
struct Bell {
    place: usize,
    /// Its place is noted already.
    rung: atomic::AtomicBool,
    bells: Arc<Bells>,
}

impl Bell {
    fn ring(&self) {
        if !self.rung.swap(true, AcqRel) {
            self.bells.ring(|rung| rung.woken.push(self.place));
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// The future is woken and drops the handler in its next poll: a handler that is not `Send` must be
/// dropped on the thread that polls it.
impl Ends for Bell {
    fn end(&self) {
        self.ring();
    }
    fn ends_soon(&self) -> bool {
        // one that is being polled may be stuck in any of its handlers
        !self.bells.polled.load(Acquire)
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static, F, Fut> WorkerFuture<K, V, F, Fut> {
    pub(super) fn new(
        crew: Crew<K, V>,
        workers: CrewSize,
        hiring: Arc<Hiring>,
        handler: F,
    ) -> io::Result<Self> {
        let bells = Arc::new(Bells {
            roster: crew.roster.clone(),
            state: Mutex::new(Rung::default()),
            polled: atomic::AtomicBool::new(false),
        });
        hiring.open(bells.clone());
        // no worker is started here yet, so the only error is a number of workers that is too large
        crew.roster.resize(workers, &hiring)?;
        Ok(Self { crew, handler, seats: Vec::new(), bells, hiring })
    }

    /// The handle of these workers, which may go anywhere: it resizes and stops them.
    ///
    /// ```
    /// use requeue::{Run, WorkQueue, Worker};
    /// use std::time::Duration;
    /// let q = WorkQueue::<String>::new();
    /// let workers = Worker::of(&q).run(|run: Run<String>| async move { drop(run) })?;
    /// let handle = workers.worker();
    /// std::thread::spawn(move || {
    ///     handle.resize(2).expect("no thread is needed");
    ///     handle.stop(Duration::from_secs(10)).wait()
    /// });
    /// assert!(smol::block_on(workers).complete);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "this gives the handle and changes nothing"]
    pub fn worker(&self) -> Worker {
        Worker::new(self.roster().clone(), self.hiring.clone())
    }

    fn roster(&self) -> &Arc<Roster> {
        &self.crew.roster
    }

    fn seat(&mut self, place: usize) {
        let bell = Arc::new(Bell { place, rung: atomic::AtomicBool::new(true), bells: self.bells.clone() });
        let (waker, ends) = (Waker::from(bell.clone()), bell.clone());
        if self.seats.len() <= place {
            self.seats.resize_with(place + 1, || None);
        }
        self.seats[place] = Some(Seated { seat: Seat::new(place), bell, waker, ends });
    }

    fn report(&self) -> StopReport {
        let queue = &self.roster().queue;
        self.roster().report(queue.report(None, queue.clock().now()))
    }
}

impl<K, V, F, Fut> Future for WorkerFuture<K, V, F, Fut>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    F: Fn(Run<K, V>) -> Fut,
    Fut: Future<Output: IntoOutcome>,
{
    type Output = StopReport;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<StopReport> {
        let this = &mut *self;
        let waker = cx.waker().clone();
        let mut rung = this.bells.state.lock();
        let old = rung.outer.replace(waker);
        let mut woken = std::mem::take(&mut rung.woken);
        let hired = std::mem::take(&mut rung.hired);
        drop(rung);
        quietly(|| drop(old));
        for &place in &hired {
            this.seat(place);
        }
        woken.extend(hired);
        this.bells.polled.store(true, Release);
        for place in woken {
            // a place that was left may still be woken
            let Some(Some(Seated { seat, bell, waker, ends })) = this.seats.get_mut(place) else { continue };
            bell.rung.store(false, Release);
            let cx = &mut Context::from_waker(waker);
            if seat.poll(&this.crew, &this.handler, ends, cx).is_ready() {
                this.seats[place] = None;
            }
        }
        this.bells.polled.store(false, Release);
        if this.roster().has_ended() { Poll::Ready(this.report()) } else { Poll::Pending }
    }
}

impl<K, V, F, Fut> Unpin for WorkerFuture<K, V, F, Fut> {}

impl<K, V, F, Fut> Drop for WorkerFuture<K, V, F, Fut> {
    fn drop(&mut self) {
        let mut rung = self.bells.state.lock();
        rung.dropped = true;
        let hired = std::mem::take(&mut rung.hired);
        let outer = rung.outer.take();
        drop(rung);
        quietly(|| drop(outer));
        let roster = &self.crew.roster;
        roster.abandon();
        hired.into_iter().for_each(|place| roster.leave(place));
        for (place, seated) in self.seats.iter_mut().enumerate() {
            let Some(Seated { mut seat, .. }) = seated.take() else { continue };
            seat.abandon(&self.crew, Failure::Cancelled);
            quietly(|| drop(seat));
            roster.leave(place);
        }
    }
}

debug!([K, V, F, Fut] WorkerFuture<K, V, F, Fut>, |future| {
    workers: future.crew.roster.workers(),
    ..
});

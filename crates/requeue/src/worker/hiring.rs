//! How workers are brought in: as many as are wanted at once, and one at a time where their
//! number follows the work.
//!
//! A crew on demand (`workers(0..=256)`) that is *short*, because every worker has a key and one
//! more may come, keeps a **lookout** on the queue: an entry among those who wait, which takes no
//! key. When it is woken a worker is brought in, who looks for a key as any other. Until that one
//! has a key it can serve what comes, so the crew is not short, and nobody else is brought in:
//! that is why a thousand keys at once do not start a thousand threads at once. A worker that
//! rests makes the crew not short either, and the lookout goes. Whether the lookout is as it is to
//! be is compared at each change of the roster ([`State::is_lookout_stale`]), in the hold of its lock
//! that changes it.
//!
//! [`State::is_lookout_stale`]: super::roster::State::is_lookout_stale

use super::roster::{Roster, Source};
use crate::Instant;
use crate::clock::{Alarm, Clock, SystemClock};
use crate::hold::Seen;
use crate::panics::quietly;
use crate::sync::Mutex;
use crate::wait::WaiterId;
use std::io;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

/// How long nobody is brought in, by the system's clock, after the system had no thread for one.
const AFTER_SHORTAGE: Duration = Duration::from_millis(100);

/// Brings in workers: on threads, on an executor, or in a future.
pub(super) trait Hire: Send + Sync {
    /// Brings one in at this place; false if it was turned away, in which case it has
    /// left its place again, as after an error. As long as it has not left, it keeps `hiring`:
    /// the last to leave brings the next one in.
    fn hire(self: Arc<Self>, place: usize, hiring: Arc<Hiring>) -> io::Result<bool>;
    /// The worker has ended: nobody is left, and nobody will come.
    fn ended(&self) {}
}

/// How more workers are brought in. A worker's handle has it, those who work have it, and so has
/// the lookout while there is one. The roster does not keep it alive, for it holds the handler,
/// which is to go with the last worker; it is emptied when that one has left and none will come.
pub(super) struct Hiring {
    pub(super) roster: Arc<Roster>,
    staff: Mutex<Option<Arc<dyn Hire>>>,
    lookout: Mutex<Lookout>,
}

/// Whoever finds that it must be started or ended takes the lookout's place and updates it. Others
/// that come meanwhile only set `again`, and the first one then looks once more: so the last update
/// is by the latest state of the roster, and a wake-up within that call causes no recursion.
#[derive(Default)]
struct Lookout {
    /// A caller updates it.
    updating: bool,
    again: bool,
    /// Among those who wait; `None` while it is updated.
    place: Option<WaiterId>,
    /// Set where the system had no thread.
    retry: Option<Alarm>,
}

impl Hiring {
    pub(super) fn new(queue: Arc<dyn Source>, idle_timeout: Duration) -> Arc<Self> {
        Arc::new_cyclic(|hiring: &Weak<Self>| Self {
            roster: Arc::new(Roster::new(queue, hiring.clone(), idle_timeout)),
            staff: Mutex::new(None),
            lookout: Mutex::new(Lookout::default()),
        })
    }

    pub(super) fn open(&self, staff: Arc<dyn Hire>) {
        *self.staff.lock() = Some(staff);
    }

    pub(super) fn close(&self) {
        let staff = self.staff.lock().take();
        if let Some(staff) = staff {
            staff.ended();
        }
    }

    pub(super) fn staff(&self) -> Option<Arc<dyn Hire>> {
        self.staff.lock().clone()
    }

    /// Starts the lookout or ends it, as the roster wants, and brings one worker in if keys wait and the crew is
    /// short. Not under any lock.
    pub(super) fn update_lookout(self: &Arc<Self>) {
        let mut lookout = self.lookout.lock();
        lookout.again = lookout.updating;
        if std::mem::replace(&mut lookout.updating, true) {
            return;
        }
        let (mut place, mut retry) = (lookout.place.take(), lookout.retry.take());
        drop(lookout);
        loop {
            // users' code may panic: a clock, an executor that is given a task
            quietly(|| self.look_out(&mut place, &mut retry));
            let mut lookout = self.lookout.lock();
            if !std::mem::take(&mut lookout.again) {
                (lookout.updating, lookout.place, lookout.retry) = (false, place, retry);
                return;
            }
        }
    }

    fn look_out(self: &Arc<Self>, place: &mut Option<WaiterId>, retry: &mut Option<Alarm>) {
        let queue = &self.roster.queue;
        if !self.roster.begins_lookout() {
            return queue.end_lookout(place);
        }
        match queue.clone().keep_lookout(place, self.clone().into()) {
            Seen::Nothing => {}
            Seen::Keys => *retry = self.bring_one_in(),
            Seen::Over => self.roster.abandon(),
        }
    }

    /// Brings one worker in. If the system has no thread for it, that is the crew's shortage and
    /// no failure of the key, which stays where it is in line: the alarm is for another attempt.
    fn bring_one_in(self: &Arc<Self>) -> Option<Alarm> {
        let (staff, place) = (self.staff()?, self.roster.vacancy_on_demand()?);
        match quietly(|| staff.hire(place, self.clone())) {
            // a task that was turned away has said so itself
            Some(Ok(_)) | None => None,
            Some(Err(_)) => {
                self.roster.has_no_thread(true);
                let at = SystemClock.now() + AFTER_SHORTAGE;
                Some(SystemClock.wake_at(at, &Waker::from(Arc::new(Retry { hiring: self.clone(), at }))))
            }
        }
    }
}

/// The lookout is woken: a key may be ready, or the queue is over.
impl Wake for Hiring {
    fn wake(self: Arc<Self>) {
        self.roster.lookout_is_woken();
        self.update_lookout();
    }
}

/// Wakes the crew for another attempt to start a thread.
struct Retry {
    hiring: Arc<Hiring>,
    at: Instant,
}

impl Wake for Retry {
    fn wake(self: Arc<Self>) {
        self.hiring.roster.has_no_thread(false);
        // a clock that has no thread either wakes at once, from within `update_lookout`, and another attempt
        // now would be one of very many: the next who changes anything in the crew makes it
        if SystemClock.now() >= self.at {
            self.hiring.update_lookout();
        }
    }
}

#[cfg(all(test, not(requeue_loom)))]
#[path = "tests/hiring.rs"]
mod tests;

//! Workers in tasks of an executor.
//!
//! A run can be ended from outside, at the deadline of a stop, and then its handler is
//! dropped at once, whether or not the executor comes round to poll the task: so
//! between two polls the seat lies in a slot that the task shares with whoever stops it,
//! and during a poll it is with the task.

use super::crew::Crew;
use super::hiring::{Hire, Hiring};
use super::outcome::{Failure, IntoOutcome};
use super::roster::Ends;
use super::run::Run;
use super::seat::Seat;
use super::spawn::Spawn;
use crate::panics::{quietly, wake_each};
use crate::sync::{Mutex, MutexGuard, atomic};
use atomic::Ordering::AcqRel;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The tasks of one worker.
pub(super) struct Tasks<K: 'static, V: 'static, F> {
    crew: Crew<K, V>,
    spawn: Box<dyn Spawn>,
    handler: F,
}

impl<K, V, F> Tasks<K, V, F> {
    pub(super) fn new(crew: Crew<K, V>, spawn: impl Spawn, handler: F) -> Self {
        Self { crew, spawn: Box::new(spawn), handler }
    }
}

/// What a task shares with whoever ends its run.
struct Slot<K: 'static, V: 'static, F, Fut> {
    staff: Arc<Tasks<K, V, F>>,
    place: usize,
    state: Mutex<Inside<K, V, Fut>>,
    /// [`POLLED`], [`SPAWNED`], [`REFUSED`].
    fate: atomic::AtomicU8,
}

struct Inside<K: 'static, V: 'static, Fut> {
    /// `None` while it is polled, or its run is being ended.
    seat: Option<Seat<K, V, Fut>>,
    /// The task's, as it was polled last.
    waker: Option<Waker>,
    /// The task was dropped: who has the seat leaves its place.
    dropped: bool,
}

/// It has been polled.
const POLLED: u8 = 1;
/// The call that spawned it has returned.
const SPAWNED: u8 = 2;
/// It was dropped: where that came before both, the executor did not take it.
const REFUSED: u8 = 4;

/// One worker, as the executor has it.
struct Task<K: 'static, V: 'static, F, Fut> {
    slot: Arc<Slot<K, V, F, Fut>>,
    /// The slot again, as the roster has it.
    ends: Arc<dyn Ends>,
    /// Starts another task if the executor drops this one.
    hire: Arc<dyn Hire>,
    hiring: Arc<Hiring>,
    left: bool,
}

impl<K, V, F, Fut> Hire for Tasks<K, V, F>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    F: Fn(Run<K, V>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    fn hire(self: Arc<Self>, place: usize, hiring: Arc<Hiring>) -> io::Result<bool> {
        let inside = Inside { seat: Some(Seat::new(place)), waker: None, dropped: false };
        let slot = Arc::new(Slot {
            staff: self.clone(),
            place,
            state: Mutex::new(inside),
            fate: atomic::AtomicU8::new(0),
        });
        let task = Task { slot: slot.clone(), ends: slot.clone(), hire: self.clone(), hiring, left: false };
        self.spawn.spawn(Box::pin(task));
        Ok(slot.fate.fetch_or(SPAWNED, AcqRel) & REFUSED == 0)
    }
}

/// Wakes the task, without the lock.
fn wake<K, V, Fut>(inside: MutexGuard<'_, Inside<K, V, Fut>>) {
    let waker = inside.waker.clone();
    drop(inside);
    wake_each(waker);
}

impl<K, V, F, Fut> Ends for Slot<K, V, F, Fut>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    F: Fn(Run<K, V>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    fn end(&self) {
        let mut inside = self.state.lock();
        let Some(mut seat) = inside.seat.take() else {
            // it is being polled: another poll looks whether it was told to end
            return wake(inside);
        };
        drop(inside);
        seat.abandon(&self.staff.crew, Failure::Cancelled);
        let mut inside = self.state.lock();
        if inside.dropped {
            drop(inside);
            drop(seat);
            return self.staff.crew.roster.leave(self.place);
        }
        inside.seat = Some(seat);
        wake(inside);
    }

    fn ends_soon(&self) -> bool {
        false
    }
}

impl<K, V, F, Fut> Future for Task<K, V, F, Fut>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    F: Fn(Run<K, V>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { slot, ends, left, .. } = &mut *self;
        if *left {
            return Poll::Ready(());
        }
        slot.fate.fetch_or(POLLED, AcqRel);
        let waker = cx.waker().clone();
        let mut inside = slot.state.lock();
        let old = inside.waker.replace(waker);
        let seat = inside.seat.take();
        drop(inside);
        quietly(|| drop(old));
        // whoever is ending its run wakes the task when that is done
        let Some(mut seat) = seat else { return Poll::Pending };
        let polled = seat.poll(&slot.staff.crew, &slot.staff.handler, ends, cx);
        if polled.is_ready() {
            *left = true;
        } else {
            slot.state.lock().seat = Some(seat);
        }
        polled
    }
}

impl<K, V, F, Fut> Drop for Task<K, V, F, Fut> {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let Slot { staff, place, state, fate } = &*self.slot;
        let mut inside = state.lock();
        inside.dropped = true;
        let (seat, waker) = (inside.seat.take(), inside.waker.take());
        drop(inside);
        quietly(|| drop(waker));
        // otherwise whoever is ending its run gives up its place
        let Some(mut seat) = seat else { return };
        seat.abandon(&staff.crew, Failure::Cancelled);
        quietly(|| drop(seat));
        // one atomic step, so that either `hire` sees that the task was refused, or this sees that
        // the task was hired
        let taken = fate.fetch_or(REFUSED, AcqRel) & (POLLED | SPAWNED) == POLLED | SPAWNED;
        if !taken {
            staff.crew.roster.turned_away(*place);
        } else if staff.crew.roster.is_replaced(*place) {
            // one that is turned away leaves the place by itself
            quietly(|| {
                let _ = self.hire.clone().hire(*place, self.hiring.clone());
            });
        }
    }
}

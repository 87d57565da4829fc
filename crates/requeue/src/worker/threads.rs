//! Workers on threads: take a key, call the handler, end the run.

use super::crew::{AFTER_PANIC, Crew, End};
use super::hiring::{Hire, Hiring};
use super::limit::Limits;
use super::outcome::IntoOutcome;
use super::roster::Roster;
use super::run::{Cell, Run, Told};
use crate::blocking::ThisThread;
use crate::item::Item;
use crate::panics::quietly;
use crate::wait::Step;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The threads of one worker.
pub(super) struct Threads<K: 'static, V: 'static, F> {
    crew: Crew<K, V>,
    limits: Option<Arc<Limits<K, V>>>,
    handler: F,
}

impl<K, V, F, O> Threads<K, V, F>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    F: Fn(Run<K, V>) -> O + Send + Sync + 'static,
    O: IntoOutcome,
{
    pub(super) fn new(crew: Crew<K, V>, handler: F) -> Self {
        crew.roster.has_threads();
        let limit = crew.rules.time_limit;
        let limits = limit.map(|limit| Arc::new(Limits::new(limit, crew.queue.clock.clone(), &crew.rules)));
        Self { crew, limits, handler }
    }

    fn roster(&self) -> &Roster {
        &self.crew.roster
    }

    fn thread_name(&self) -> String {
        match self.crew.queue.name.as_str() {
            "" => "requeue-worker".to_string(),
            // a NUL in a thread's name would be refused
            name => format!("requeue-{}", name.replace('\0', "?")),
        }
    }

    /// The loop of one thread.
    fn work(&self, place: usize) {
        loop {
            // users' code that panics, as a key is taken (a clock, an order) or as a
            // run ends (merge, a limiter), must not end the thread
            match quietly(|| self.take(place)) {
                Some(Some(item)) => {
                    quietly(|| self.run(place, item));
                    self.roster().run_ended(place);
                }
                Some(None) => break,
                None => {
                    self.roster().looked(place);
                    std::thread::sleep(AFTER_PANIC);
                }
            }
        }
        self.has_left();
    }

    /// A thread has left, or was not started: the last one ends the watching of time limits.
    fn has_left(&self) {
        if let (Some(limits), 0) = (&self.limits, self.roster().workers()) {
            limits.end();
        }
    }

    /// Waits for a key; `None` if the thread has left.
    fn take(&self, place: usize) -> Option<Item<'static, K, V>> {
        let (mut get, mut idle) = (self.crew.get(), None);
        let thread = ThisThread::default();
        let waker = || thread.waker();
        loop {
            match self.crew.take(place, &mut idle, waker, || get.step(waker)) {
                Step::Ready(item) => return item,
                Step::Sleep(until) => thread.sleep(until, &*self.crew.queue.clock),
            }
        }
    }

    /// One run: the handler, and what its outcome asks for.
    fn run(&self, place: usize, item: Item<'static, K, V>) {
        let told = Arc::new(Told::of(&item));
        self.roster().run_begins(place, &told, None);
        let began = self.crew.begins();
        let cell = Arc::new(Cell::new(item, place, told.clone(), began));
        if let (Some(limits), Some(began)) = (&self.limits, began) {
            limits.watch(began, &cell);
        }
        let run = Run::new(cell.clone());
        let returned = catch_unwind(AssertUnwindSafe(|| (self.handler)(run).into_outcome()));
        let reported = told.return_now();
        let is_over = |limits: &Limits<K, V>| {
            reported
                || began.is_some_and(|began| self.crew.now().is_some_and(|now| limits.is_over(began, now)))
        };
        let late = self.limits.as_ref().filter(|limits| is_over(limits)).map(|limits| limits.failure());
        self.crew.finish(cell, End::of(returned), late.as_ref(), reported);
    }
}

impl<K, V, F, O> Hire for Threads<K, V, F>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    F: Fn(Run<K, V>) -> O + Send + Sync + 'static,
    O: IntoOutcome,
{
    fn hire(self: Arc<Self>, place: usize, hiring: Arc<Hiring>) -> io::Result<bool> {
        let thread = std::thread::Builder::new().name(self.thread_name());
        let this = self.clone();
        let work = move || {
            this.work(place);
            drop(hiring);
        };
        match thread.spawn(work) {
            Ok(_) => Ok(true),
            Err(error) => {
                self.roster().leave(place);
                self.has_left();
                Err(error)
            }
        }
    }
}

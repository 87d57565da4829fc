//! The number of concurrent programs, if the system has room for fewer than `-j`.
//!
//! A shortage of descriptors, processes or memory says nothing about the key: it waits with its worker until
//! a program has ended, and is then started. To avoid repeated shortages, fewer programs run from then on;
//! after each second without a shortage one more is tried.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::system::control::{Control, Level};

/// Time without a shortage before one more program is tried.
const RECOVERY: Duration = Duration::from_secs(1);

/// Wait for other processes, if none of our programs runs and could make slots.
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum wait for other processes, if none of our programs runs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum wait for our own descriptors, which only left-behind processes may still hold.
const PATIENCE_WITH_US: Duration = Duration::from_secs(5);

/// Interval at which a waiting worker checks for the end.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct ProcessSlots {
    state: Mutex<State>,
    /// Notified when a program has ended.
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    /// Maximum number of programs, after a shortage.
    most: Option<usize>,
    /// The last shortage, or the last time that one more was allowed.
    since: Option<Instant>,
    /// Since when nothing could be started although nothing runs.
    stuck: Option<Instant>,
    said: bool,
}

/// The place of a running program.
#[must_use]
#[derive(Debug)]
pub(crate) struct Place<'a>(&'a ProcessSlots);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.freed.notify_one();
    }
}

impl ProcessSlots {
    /// Starts a program, as soon as there is room for it. `None`: no further run begins. `say` gets a message
    /// on the first shortage.
    ///
    /// # Errors
    ///
    /// Errors of `start` that are not a shortage, and a shortage that lasts although none of our programs
    /// runs.
    pub(crate) fn start<T>(
        &self,
        control: &Control,
        say: impl Fn(&str),
        mut start: impl FnMut() -> io::Result<T>,
    ) -> io::Result<Option<(Place<'_>, T)>> {
        loop {
            let Some(place) = self.enter(control) else { return Ok(None) };
            match start() {
                Ok(started) => {
                    self.state().stuck = None;
                    return Ok(Some((place, started)));
                }
                Err(e) if !is_shortage(&e) => return Err(e),
                Err(e) => {
                    let message = self.is_short(e)?;
                    drop(place);
                    if let Some(message) = message {
                        say(&message);
                    }
                }
            }
        }
    }

    /// Waits for a place.
    fn enter(&self, control: &Control) -> Option<Place<'_>> {
        let mut state = self.state();
        loop {
            if control.reached(Level::LastRuns) {
                return None;
            }
            let waited = state.since.map(|since| since.elapsed());
            match state.most {
                Some(most) if state.running >= most.max(1) => {
                    if waited.is_none_or(|waited| waited >= RECOVERY) {
                        state.most = Some(most + 1);
                        state.since = Some(Instant::now());
                        continue;
                    }
                }
                // None of our programs can make room: others may.
                Some(_) if state.stuck.is_some() && waited.is_some_and(|waited| waited < PAUSE) => {}
                _ => {
                    state.running += 1;
                    return Some(Place(self));
                }
            }
            let waiting = self.freed.wait_timeout(state, LOOK);
            state = waiting.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Records that a program with a place could not start. Returns the message, once.
    fn is_short(&self, e: io::Error) -> io::Result<Option<String>> {
        let now = Instant::now();
        let mut state = self.state();
        let others = state.running - 1;
        state.since = Some(now);
        // Some are left for whatever else we do.
        state.most = Some((others - others / 8).max(1));
        if others == 0 {
            let stuck = *state.stuck.get_or_insert(now);
            let ours = e.raw_os_error() == Some(Errno::MFILE.raw_os_error());
            if now - stuck >= if ours { PATIENCE_WITH_US } else { PATIENCE } {
                return Err(e);
            }
        }
        let first = !std::mem::replace(&mut state.said, true);
        Ok(first.then(|| format!("{e}: fewer programs than asked for run at once")))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the system, or our limits, lacked resources for one more program.
pub(crate) fn is_shortage(e: &io::Error) -> bool {
    let errno = e.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    fn short() -> io::Error {
        Errno::MFILE.into()
    }

    fn control() -> Control {
        Control::new(|_| {}).unwrap()
    }

    fn place<'a>(slots: &'a ProcessSlots, control: &Control) -> Place<'a> {
        slots.start(control, |_| panic!("a shortage"), || Ok(())).unwrap().unwrap().0
    }

    #[test]
    fn one_who_finds_no_room_starts_when_another_has_ended_and_it_is_said_once() {
        let (slots, control, said) = (ProcessSlots::default(), control(), RefCell::new(Vec::new()));
        let first = RefCell::new(Some(place(&slots, &control)));
        for _ in 0..2 {
            let tries = Cell::new(0);
            let start = || {
                tries.set(tries.get() + 1);
                // As if another thread had made room meanwhile.
                let made_room = first.take().is_some();
                if made_room { Err(short()) } else { Ok(()) }
            };
            let say = |text: &str| said.borrow_mut().push(text.to_owned());
            let (again, ()) = slots.start(&control, say, start).unwrap().unwrap();
            assert_eq!(tries.get(), 2);
            *first.borrow_mut() = Some(again);
        }
        assert_eq!(said.borrow().len(), 1, "{said:?}");
        assert!(said.borrow()[0].ends_with("fewer programs than asked for run at once"), "{said:?}");
    }

    #[test]
    fn what_is_no_shortage_is_an_error_and_takes_no_place() {
        let (slots, control) = (ProcessSlots::default(), control());
        let start = || Err::<(), _>(Errno::NOENT.into());
        let e = slots.start(&control, |_| (), start).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::NotFound);
        assert_eq!(slots.state().running, 0);
    }

    #[test]
    fn a_shortage_that_lasts_although_nothing_of_ours_runs_is_an_error() {
        let (slots, control) = (ProcessSlots::default(), control());
        slots.state().stuck = Instant::now().checked_sub(PATIENCE_WITH_US);
        let e = slots.start(&control, |_| (), || Err::<(), _>(short())).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
        assert_eq!(slots.state().running, 0);
    }

    #[test]
    fn what_a_fork_or_a_pipe_is_refused_for_want_of_is_a_shortage() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM] {
            assert!(is_shortage(&errno.into()), "{errno}");
        }
        assert!(!is_shortage(&Errno::ACCESS.into()));
    }

    #[test]
    fn one_who_waits_for_room_does_not_wait_beyond_the_end() {
        let (slots, control) = (ProcessSlots::default(), control());
        let start = || {
            control.raise(Level::LastRuns);
            Err::<(), _>(short())
        };
        assert!(slots.start(&control, |_| (), start).unwrap().is_none());
    }
}

//! The turn to write, and the line of those who wait for it.
//!
//! An adder takes the place behind all others in line, and waits until it is first and the turn is free. It
//! leaves the line with the turn. A runner stands at the head of the line, before all adders; one that comes
//! again lets an adder go first.
//!
//! The line is for fairness alone: only the turn excludes. So a process that is first and leaves the turn
//! untaken, for example because it is stopped, is passed after [`PASSES`], and has the turn later, when it
//! takes it.
//!
//! Waiting is looking, more often the nearer the turn is. The kernel has a line of its own (`F_OFD_SETLKW`), but without an
//! end, so that a second thread must wait there; two threads were woken for each turn, and newcomers passed those who
//! had been woken.

#[cfg(not(any(target_os = "linux", target_os = "android")))]
use super::beside::HAVE_RANGES;
#[cfg(any(target_os = "linux", target_os = "android"))]
use super::bytes::HAVE_RANGES;
use super::{Database, LINE, RUNS, TURN};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long a runner that comes again lets a waiting adder go first.
const YIELDS: Duration = Duration::from_millis(20);
/// Rest between two looks at the turn, for the first in line: at first, and where somebody has the turn for long.
const RESTS: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(2));
/// Rest of the others in line, for each place before theirs; and at most.
const RESTS_IN_LINE: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(10));
/// How long the first in line may leave the turn untaken before it is passed.
pub(super) const PASSES: Duration = Duration::from_millis(200);
/// Longest time that one rest counts for, of the time to wait. A process that was stopped, or whose machine was, has had no
/// chance meanwhile.
const COUNTS: Duration = Duration::from_secs(1);

/// A kind of process that wants to write.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Writes {
    Runner,
    Others,
}

/// The threads of this process that want to write: one of them at a time waits for the turn, or has it.
#[derive(Default)]
pub(super) struct Inside {
    line: Mutex<VecDeque<u64>>,
    moved: Condvar,
    entered: AtomicU64,
}

impl Inside {
    /// Waits to be the first in line. False if that takes too long.
    fn enter(&self, ends: Instant) -> bool {
        let me = self.entered.fetch_add(1, Relaxed);
        let mut line = self.line.lock();
        line.push_back(me);
        while line.front() != Some(&me) {
            if self.moved.wait_until(&mut line, ends).timed_out() && line.front() != Some(&me) {
                line.retain(|it| *it != me);
                return false;
            }
        }
        true
    }

    fn leave(&self) {
        self.line.lock().pop_front();
        self.moved.notify_all();
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "others have written to it all the time")
}

/// The time that is left to wait.
pub(super) struct Patience {
    left: Duration,
    looked: Instant,
}

impl Patience {
    pub(super) fn new(left: Duration) -> Self {
        Self { left, looked: Instant::now() }
    }

    fn rest(&mut self, time: Duration) -> io::Result<()> {
        std::thread::sleep(time);
        let now = Instant::now();
        let passed = now - self.looked;
        self.looked = now;
        self.spend(passed)
    }

    pub(super) fn spend(&mut self, passed: Duration) -> io::Result<()> {
        self.left = self.left.checked_sub(passed.min(COUNTS)).ok_or_else(late)?;
        Ok(())
    }
}

impl Database {
    /// Waits for the turn to write. Runners take it before others.
    ///
    /// # Errors
    ///
    /// `TimedOut` if others had it all the time.
    pub(crate) fn turn(&self, of: Writes, at_most: Duration) -> io::Result<Turn> {
        let begun = Instant::now();
        if !self.shared().inside.enter(begun + at_most) {
            return Err(late());
        }
        let mut turn = Turn { database: self.clone(), has: None };
        match of {
            Writes::Runner => {
                self.let_one_pass();
                // others at the head of the line are runners too
                self.shared().bytes.share(LINE)?;
                turn.has = Some(LINE);
            }
            Writes::Others => turn.stand_in_line()?,
        }
        turn.take(Patience::new(at_most.saturating_sub(begun.elapsed())))?;
        Ok(turn)
    }

    /// Lets the first in line go first, once: a runner that comes again at once would take the turn before an adder sees
    /// that it is free.
    fn let_one_pass(&self) {
        let begun = Instant::now();
        let is_locked = |range| matches!(self.shared().bytes.locked(range), Ok(Some(_)));
        while is_locked(LINE + 1..RUNS) && !is_locked(TURN..TURN + 1) && begun.elapsed() < YIELDS {
            std::thread::sleep(RESTS.0);
        }
    }

    /// The first of these places that another process has. The kernel names any of them.
    fn first_of(&self, places: Range<i64>) -> io::Result<Option<i64>> {
        let (mut first, mut end) = (None, places.end);
        while let Some(found) = self.shared().bytes.locked(places.start..end)? {
            first = Some(found.start);
            end = found.start;
        }
        Ok(first)
    }
}

/// The turn to write, until it is dropped.
pub(crate) struct Turn {
    database: Database,
    /// The place in line and then, instead, the turn.
    has: Option<i64>,
}

impl Turn {
    /// Takes the place behind all others in line.
    fn stand_in_line(&mut self) -> io::Result<()> {
        if !HAVE_RANGES {
            return Ok(());
        }
        let bytes = &self.database.shared().bytes;
        let mut place = LINE + 1;
        loop {
            while let Some(other) = bytes.locked(place..RUNS)? {
                place = other.end;
            }
            if bytes.lock(place)? {
                self.has = Some(place);
                return Ok(());
            }
        }
    }

    /// Waits until this process is first in line, and takes the turn.
    fn take(&mut self, mut patience: Patience) -> io::Result<()> {
        let (database, place) = (self.database.clone(), self.has.unwrap_or(LINE));
        let bytes = &database.shared().bytes;
        // places before this one are passed
        let mut begin = LINE;
        let (mut first_seen, mut untaken) = (None, Duration::ZERO);
        let mut waits_since = Instant::now();
        loop {
            let Some(first) = database.first_of(begin..place)? else {
                if bytes.lock(TURN)? {
                    break;
                }
                patience.rest((waits_since.elapsed() / 8).clamp(RESTS.0, RESTS.1))?;
                continue;
            };
            if first_seen != Some(first) {
                (first_seen, untaken) = (Some(first), Duration::ZERO);
            }
            let before = u32::try_from(place - first).unwrap_or(u32::MAX);
            let rest = RESTS_IN_LINE.0.saturating_mul(before).min(RESTS_IN_LINE.1);
            if bytes.locked(TURN..TURN + 1)?.is_none() {
                untaken += rest;
                if untaken >= PASSES {
                    begin = first + 1;
                    continue;
                }
            }
            patience.rest(rest)?;
            waits_since = Instant::now();
        }
        if let Some(place) = self.has.replace(TURN) {
            bytes.unlock(place..place + 1)?;
        }
        Ok(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(byte) = self.has {
            // the end of this process does it as well
            drop(self.database.shared().bytes.unlock(byte..byte + 1));
        }
        self.database.shared().inside.leave();
    }
}

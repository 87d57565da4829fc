//! [`Explanation`]: the state of one key, in words.

use requeue_core::{InBackoff, Instant, KeyState, Paused};
use std::fmt;
use std::time::Duration;

/// The reason why a key is running or not: returned by [`WorkQueue::explain`]. Its text is for people, its
/// fields are for programs.
///
/// ```
/// use requeue::{FakeClock, WorkQueue};
/// use std::time::Duration;
///
/// let clock = FakeClock::new();
/// let q = WorkQueue::builder().clock(clock.clone()).build()?;
/// assert_eq!(q.explain("a").to_string(), "unknown: it has no pending work");
/// q.add("a")?;
/// assert_eq!(q.explain("a").to_string(), "ready, next in line");
/// let item = q.try_get()?;
/// q.add("a")?;
/// assert_eq!(q.explain("a").to_string(), "held; dirty");
/// item.done();
/// q.try_get()?.retry_after(Duration::from_millis(4_200)).expect("open");
/// assert_eq!(q.explain("a").to_string(), "backing off: 1 failure, due in 4.2 s");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`WorkQueue::explain`]: crate::WorkQueue::explain
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// State of the key; `None` if the queue does not know it.
    pub state: Option<KeyState>,
    /// Instant of the answer, on the queue's clock.
    pub at: Instant,
    /// Time until the key's timer is due, if it has one.
    pub due_in: Option<Duration>,
    /// How long a worker has had the key, if one has it and the queue keeps timestamps (a queue with metrics
    /// does).
    pub held_for: Option<Duration>,
    /// Number of the worker that has the key, if one of a [`Worker`](crate::Worker) has it: see
    /// [`Run::worker`](crate::Run::worker).
    pub worker: Option<usize>,
    /// Number of keys before it; `None` if it is not in line, if groups take turns, or if the order is a
    /// custom one.
    ///
    /// Keys that enter the line before it later are not counted, nor are those that go out of turn because they
    /// are overdue.
    pub ahead: Option<usize>,
    /// Whether `ahead` is exact, and not a lower bound. It always is within some 60,000 keys of either end of
    /// the line. With priorities: within 16,000 keys of an end of its level, with fewer than 256 raised keys in
    /// its level, and fewer than 256 levels in use above it. Farther in, the keys are not counted under the
    /// lock.
    pub ahead_is_exact: bool,
    /// Instant of the next token, if keys wait for the queue's rate.
    pub next_token: Option<Instant>,
    /// Number of triggers waiting for room on a queue with a bound. None of them is accepted yet, and one of
    /// this key may be among them.
    pub waiting_for_room: usize,
    /// Whether the queue is shutting down and refuses triggers.
    pub shutting_down: bool,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            None => {
                f.write_str("unknown: it has no pending work")?;
                match self.waiting_for_room {
                    0 => {}
                    1 => f.write_str("; a trigger waits for room, and is not accepted yet")?,
                    n => write!(f, "; {n} triggers wait for room, and are not accepted yet")?,
                }
            }
            Some(state) => self.describe(&state, f)?,
        }
        if self.shutting_down {
            f.write_str("; the queue takes no more triggers")?;
        }
        Ok(())
    }
}

impl Explanation {
    fn describe(&self, state: &KeyState, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // the key does not wait for the end of a window after which no run comes
        let due = state.waiting_until.filter(|due| state.quiet_until != Some(*due));
        let waits = !state.ready && !state.held && due.is_some();
        f.write_str(match waits {
            _ if state.held => "held",
            _ if state.ready => "ready",
            true if state.backing_off => "backing off",
            true => "waiting",
            false => "idle",
        })?;
        if let Some(worker) = self.worker {
            write!(f, " by worker {worker}")?;
        }
        if let Some(time) = self.held_for {
            write!(f, " for {}", Spoken(time))?;
        }
        if state.priority != 0 {
            write!(f, " with priority {}", state.priority)?;
        }
        match self.ahead.map(|keys| (keys, self.ahead_is_exact)) {
            None => {}
            Some((0, true)) => f.write_str(", next in line")?,
            Some((1, true)) => f.write_str(", behind 1 key")?,
            Some((keys, true)) => write!(f, ", behind {keys} keys")?,
            Some((keys, false)) => write!(f, ", behind {keys} keys or more")?,
        }
        // the runs of this row that failed, where a limiter of the user's own counts
        let failures = state.failures.max(state.attempt.saturating_sub(1));
        match failures {
            0 => {}
            1 => f.write_str(": 1 failure")?,
            n => write!(f, ": {n} failures")?,
        }
        if state.dirty {
            f.write_str("; dirty")?;
        }
        match state.if_it_fails {
            InBackoff::Respect => f.write_str(", and backs off if its run fails")?,
            InBackoff::Reset => f.write_str(", and starts afresh if its run fails")?,
            _ => {}
        }
        if let Some(due) = due {
            f.write_str(match (waits, failures) {
                (true, 0) => ": due ",
                (true, _) => ", due ",
                (false, _) => "; due again ",
            })?;
            if due.is_never() {
                f.write_str("never")?;
            } else {
                write!(f, "in {}", Spoken(due.saturating_since(self.at)))?;
            }
        }
        if let Some(end) = state.window_until {
            let end = Spoken(end.saturating_since(self.at));
            if state.window_until == due {
                f.write_str(", when its debounce window ends")?;
            } else {
                write!(f, "; its debounce window ends in {end}")?;
            }
        }
        if let Some(end) = state.quiet_until {
            let end = Spoken(end.saturating_since(self.at));
            write!(f, "; a trigger would wait for its debounce window, which ends in {end}")?;
        }
        if state.ready && state.group_is_full {
            f.write_str("; its group has as many keys held as it may")?;
        }
        if let (true, Some(at)) = (state.ready && state.paused.is_none(), state.group_token) {
            let left = Spoken(at.saturating_since(self.at));
            write!(f, "; the rate of its group admits a key in {left}")?;
        }
        match state.paused {
            None => {}
            Some(Paused::Queue) => f.write_str("; the queue is paused")?,
            Some(Paused::Group) => f.write_str("; its group is paused")?,
            Some(_) => f.write_str("; paused")?,
        }
        if let (true, Some(at)) = (state.ready && state.paused.is_none(), self.next_token) {
            write!(f, "; the rate admits a key in {}", Spoken(at.saturating_since(self.at)))?;
        }
        Ok(())
    }
}

/// A duration in everyday form: at most three digits below a minute, two units above.
struct Spoken(Duration);

impl fmt::Display for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"), (u64::MAX, "")];
        let (secs, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        match secs {
            0 if nanos < 1_000 => return write!(f, "{nanos} ns"),
            0 if nanos < 1_000_000 => return write!(f, "{} us", nanos / 1_000),
            0 => return write!(f, "{} ms", nanos / 1_000_000),
            1..60 if nanos >= 100_000_000 => return write!(f, "{secs}.{} s", nanos / 100_000_000),
            _ => {}
        }
        let largest = UNITS.iter().position(|(unit, _)| secs >= *unit).unwrap_or_default();
        let [(unit, name), (next, next_name)] = [UNITS[largest], UNITS[largest + 1]];
        write!(f, "{} {name}", secs / unit)?;
        match secs % unit / next {
            0 => Ok(()),
            count => write!(f, " {count} {next_name}"),
        }
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::{Duration, Spoken};

    #[test]
    fn durations_are_said_as_people_say_them() {
        for (nanos, words) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1 us"),
            (999_999, "999 us"),
            (1_000_000, "1 ms"),
            (850_900_000, "850 ms"),
            (1_000_000_000, "1 s"),
            (4_299_000_000, "4.2 s"),
            (12_050_000_000, "12 s"),
            (59_999_999_999, "59.9 s"),
            (60_500_000_000, "1 min"),
            (725_000_000_000, "12 min 5 s"),
            (3_600_000_000_000, "1 h"),
            (3_605_000_000_000, "1 h"),
            (7_500_000_000_000, "2 h 5 min"),
            (266_400_000_000_000, "3 d 2 h"),
        ] {
            assert_eq!(Spoken(Duration::from_nanos(nanos)).to_string(), words);
        }
        assert_eq!(Spoken(Duration::MAX).to_string(), "213503982334601 d 7 h");
    }
}

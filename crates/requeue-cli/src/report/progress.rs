//! The progress line: shown only if standard error is a terminal, and only while no other program has the
//! terminal.
//!
//! A background job draws no line, because the terminal then belongs to the shell and its user's typing.
//! While keys are typed none is drawn either: it would be drawn over them.
//!
//! indicatif was considered. It ignores who is in the foreground, writes past the lock that keeps lines of
//! different keys apart, and blocks if a terminal is halted; only its estimate of the rate would remain,
//! which [`Pace`] does in twenty lines.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::output::console::Console;
use crate::report::run_stats::RunStats;
use crate::text::duration;

const TICK: Duration = Duration::from_millis(200);

/// The rate is that of the last five seconds ...
const RECENT: Duration = Duration::from_secs(5);

/// ... or that of the last ten runs, if fewer end in that time.
const FEW: u64 = 10;

/// The queue's own counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InQueue {
    pub(crate) ready: usize,
    pub(crate) waiting: usize,
    /// Handed out, and not back yet.
    pub(crate) held: usize,
}

/// The source of the keys.
#[derive(Debug)]
pub(crate) struct Keys {
    /// From a terminal.
    pub(crate) typed: bool,
    /// From a server: its ready and waiting keys are not known here.
    pub(crate) on_server: bool,
    /// No more of them come: all remaining ones are in the queue.
    pub(crate) ended: AtomicBool,
}

/// Draws until `end` is closed, then removes the line.
pub(crate) fn draw(
    console: &Console,
    run_stats: &RunStats,
    keys: &Keys,
    queue: impl Fn() -> InQueue,
    end: &Receiver<()>,
) {
    let mut pace = Pace::since(Instant::now());
    loop {
        let runs = run_stats.runs.load(Ordering::Relaxed) - run_stats.running.load(Ordering::Relaxed) as u64;
        let rate = pace.rate(Instant::now(), runs);
        let ended = keys.ended.load(Ordering::Relaxed);
        let line = (ended || !keys.typed).then(|| line(run_stats, queue(), rate, ended, keys.on_server));
        console.progress(line.as_deref().map(clipped));
        match end.recv_timeout(TICK) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => break,
        }
    }
    console.progress(None);
}

fn line(run_stats: &RunStats, queue: InQueue, rate: f64, ended: bool, on_server: bool) -> String {
    let in_queue =
        if on_server { String::new() } else { format!("{} ready, {} waiting, ", queue.ready, queue.waiting) };
    let mut line = format!(
        "{} done, {} running, {in_queue}{} failed, {rate:.1}/s",
        run_stats.well.load(Ordering::Relaxed),
        run_stats.running.load(Ordering::Relaxed),
        run_stats.gave_up_count(),
    );
    // Those that wait have a time of their own.
    let in_line = queue.ready + queue.held;
    if let Some(eta) = eta(in_line, rate).filter(|_| ended && in_line > 0) {
        line.push_str(&format!(", eta {}", duration::show(eta)));
    }
    line
}

/// Time for this number of runs at this rate, in whole seconds. `None` while no run ends.
fn eta(runs: usize, rate: f64) -> Option<Duration> {
    Duration::try_from_secs_f64((runs as f64 / rate).ceil()).ok()
}

/// The rate of ending runs.
#[derive(Debug)]
struct Pace {
    /// Instants at which the number of ended runs changed, in order. The rate counts from the first.
    past: VecDeque<(Instant, u64)>,
}

impl Pace {
    /// Counts runs that end from now on: the first ones may end before the first call.
    fn since(start: Instant) -> Self {
        Self { past: VecDeque::from([(start, 0)]) }
    }

    /// Runs per second, with this number of ended runs at `now`.
    fn rate(&mut self, now: Instant, runs: u64) -> f64 {
        if self.past.back().is_none_or(|(_, before)| *before != runs) {
            self.past.push_back((now, runs));
        }
        while let Some((at, before)) = self.past.get(1) {
            if now.duration_since(*at) < RECENT || runs.saturating_sub(*before) < FEW {
                break;
            }
            self.past.pop_front();
        }
        match self.past.front() {
            Some((then, before)) if now > *then => {
                runs.saturating_sub(*before) as f64 / (now - *then).as_secs_f64()
            }
            _ => 0.0,
        }
    }
}

/// Cuts a line to the terminal's width: a wrapped line could not be cleared. The text is ASCII.
fn clipped(line: &str) -> &str {
    let width = rustix::termios::tcgetwinsize(rustix::stdio::stderr())
        .map(|size| usize::from(size.ws_col))
        .ok()
        .filter(|width| *width > 0)
        .unwrap_or(80);
    &line[..line.len().min(width - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates shown when these numbers of runs have ended at these seconds.
    fn rates(seen: &[(u64, u64)]) -> Vec<f64> {
        let t = Instant::now();
        let mut pace = Pace::since(t);
        seen.iter().map(|(second, runs)| pace.rate(t + Duration::from_secs(*second), *runs)).collect()
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        assert_eq!(rates(&[(0, 0)]), [0.0]);
        assert_eq!(rates(&[(0, 0), (2, 5)]), [0.0, 2.5]);
        assert_eq!(rates(&[(1, 1), (2, 1)]), [1.0, 0.5], "one that had ended before the first look");
        // A thousand in the first second, then ten a second.
        let mut seen = vec![(0, 0)];
        seen.extend((1..20).map(|second| (second, 990 + 10 * second)));
        assert_eq!(rates(&seen).pop(), Some(10.0));
    }

    #[test]
    fn the_rate_of_few_runs_is_that_of_the_last_ten() {
        // One a minute.
        let mut seen: Vec<_> = (0..60).map(|minute| (60 * minute, minute)).collect();
        assert!((rates(&seen).pop().unwrap() - 1.0 / 60.0).abs() < 1e-9);
        // None any more: the rate sinks.
        seen.push((60 * 60 + 60 * 9, 59));
        assert!((rates(&seen).pop().unwrap() - 10.0 / (20.0 * 60.0)).abs() < 1e-9);
    }

    #[test]
    fn the_line_names_what_it_counts() {
        let queue = InQueue { ready: 3, waiting: 4, held: 1 };
        let line = |queue, rate, ended| line(&RunStats::default(), queue, rate, ended, false);
        let open = line(queue, 1.25, false);
        assert_eq!(open, "0 done, 0 running, 3 ready, 4 waiting, 0 failed, 1.2/s");
        let ended = line(queue, 0.1, true);
        assert_eq!(ended, "0 done, 0 running, 3 ready, 4 waiting, 0 failed, 0.1/s, eta 40s");
        let only_waiting = InQueue { waiting: 4, ..InQueue::default() };
        assert!(!line(only_waiting, 0.1, true).contains("eta"));
        assert!(!line(queue, 0.0, true).contains("eta"));
    }

    #[test]
    fn of_a_server_the_line_does_not_tell_what_only_this_process_has() {
        let queue = InQueue { ready: 3, waiting: 4, held: 1 };
        let line = |ended| line(&RunStats::default(), queue, 0.1, ended, true);
        assert_eq!(line(false), "0 done, 0 running, 0 failed, 0.1/s");
        assert_eq!(line(true), "0 done, 0 running, 0 failed, 0.1/s, eta 40s");
    }

    #[test]
    fn an_eta_is_whole_seconds() {
        assert_eq!(eta(1, 10.0), Some(Duration::from_secs(1)));
        assert_eq!(eta(0, 10.0), Some(Duration::ZERO));
        assert_eq!(eta(0, 0.0), None);
        assert_eq!(eta(usize::MAX, 1e-300), None);
    }
}

//! The line that people watch: only where standard error is a terminal.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::output::Console;
use crate::tally::Tally;

const TICK: Duration = Duration::from_millis(200);

/// The rate is that of the last so many ticks: five seconds.
const TICKS: usize = 25;

/// What the queue says about itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InQueue {
    pub(crate) ready: usize,
    pub(crate) waiting: usize,
}

/// Draws until `end` is closed, then takes the line away.
pub(crate) fn draw(console: &Console, tally: &Tally, queue: impl Fn() -> InQueue, end: &Receiver<()>) {
    let mut past: VecDeque<(Instant, u64)> = VecDeque::new();
    loop {
        let runs = tally.runs.load(Ordering::Relaxed) - tally.running.load(Ordering::Relaxed) as u64;
        let now = Instant::now();
        past.push_back((now, runs));
        if past.len() > TICKS {
            past.pop_front();
        }
        let line = line(tally, queue(), rate(&past));
        console.progress(Some(clipped(&line)));
        match end.recv_timeout(TICK) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => break,
        }
    }
    console.progress(None);
}

fn line(tally: &Tally, queue: InQueue, rate: f64) -> String {
    format!(
        "{} done, {} running, {} ready, {} waiting, {} failed, {rate:.1}/s",
        tally.well.load(Ordering::Relaxed),
        tally.running.load(Ordering::Relaxed),
        queue.ready,
        queue.waiting,
        tally.gave_up_count(),
    )
}

/// Ended runs a second.
fn rate(past: &VecDeque<(Instant, u64)>) -> f64 {
    match (past.front(), past.back()) {
        (Some((then, before)), Some((now, after))) if now > then => {
            after.saturating_sub(*before) as f64 / (*now - *then).as_secs_f64()
        }
        _ => 0.0,
    }
}

/// A line that wraps could not be cleared. The text is ASCII.
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

    #[test]
    fn the_rate_is_that_of_the_time_looked_at() {
        let t = Instant::now();
        let past = VecDeque::from([(t, 10), (t + Duration::from_secs(2), 15)]);
        assert_eq!(rate(&past), 2.5);
        assert_eq!(rate(&VecDeque::from([(t, 10)])), 0.0);
    }

    #[test]
    fn the_line_names_what_it_counts() {
        let line = line(&Tally::default(), InQueue { ready: 3, waiting: 4 }, 1.25);
        assert_eq!(line, "0 done, 0 running, 3 ready, 4 waiting, 0 failed, 1.2/s");
    }
}

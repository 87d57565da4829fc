//! [`Picture`]: the contents of a picture before it is drawn, reduced to the available room.

use std::time::Duration;

use super::calls::Call;
use super::scale::Scale;
use crate::config::Calls;
use crate::limiter::Limiter;
use crate::text::duration;

/// Number of calls above which calls share a column of the picture.
const COLUMNS: u64 = 1_000;

/// Number of calls up to which each has a stroke of its own.
const SINGLE: u64 = 100;

/// Adjacent calls.
#[derive(Clone, Copy, Debug)]
struct Column {
    lowest: Duration,
    highest: Duration,
}

/// A summary of the calls.
#[derive(Debug)]
pub(super) struct Sketch {
    title: String,
    rhythm: Calls,
    /// A column whose calls are all delayed for ever is empty.
    columns: Vec<Option<Column>>,
    /// Calls that are not delayed.
    at_once: u64,
    /// Calls that are delayed for ever.
    never: u64,
    longest: Duration,
    last_due: Duration,
}

impl Sketch {
    pub(super) fn new(limiter: &Limiter, rhythm: Calls) -> Self {
        Self {
            title: limiter.to_string(),
            rhythm,
            columns: vec![None; rhythm.calls.min(COLUMNS) as usize],
            at_once: 0,
            never: 0,
            longest: Duration::ZERO,
            last_due: Duration::ZERO,
        }
    }

    pub(super) fn take(&mut self, call: &Call) {
        self.last_due = self.last_due.max(call.due.unwrap_or_default());
        self.never += u64::from(call.due.is_none());
        let Some(delay) = call.delay else { return };
        self.at_once += u64::from(delay.is_zero());
        self.longest = self.longest.max(delay);
        let at = u128::from(call.number - 1) * self.columns.len() as u128 / u128::from(self.rhythm.calls);
        if let Some(column) = self.columns.get_mut(at as usize) {
            let known = column.unwrap_or(Column { lowest: delay, highest: delay });
            *column = Some(Column { lowest: known.lowest.min(delay), highest: known.highest.max(delay) });
        }
    }

    pub(super) fn picture(&self) -> Picture {
        let both = self.columns.iter().flatten().flat_map(|column| [column.lowest, column.highest]);
        let scale = Scale::of(&both.collect::<Vec<_>>());
        let count = self.columns.len() as f64;
        let place = |(i, column): (usize, &Option<Column>)| {
            let column = (*column)?;
            Some(Place {
                // The call in the middle of the column.
                call: 1.0 + (i as f64 + 0.5) * self.rhythm.calls as f64 / count - 0.5,
                low: scale.position(column.lowest),
                high: scale.position(column.highest),
            })
        };
        Picture {
            title: self.title.clone(),
            sentence: self.sentence(),
            calls: self.rhythm.calls,
            single: self.rhythm.calls <= SINGLE,
            places: self.columns.iter().enumerate().map(place).collect(),
            scale,
        }
    }

    /// The numbers as a sentence.
    fn sentence(&self) -> String {
        let Calls { calls, every, keys } = self.rhythm;
        let many = |n: u64, word: &str| if n == 1 { format!("1 {word}") } else { format!("{n} {word}s") };
        let mut out = many(calls, "call");
        if keys > 1 {
            out.push_str(&format!(" for {}", many(keys, "key")));
        }
        if every.is_zero() {
            out.push_str(if calls == 1 { ": " } else { " at once: " });
        } else {
            out.push_str(&format!(", one every {}: ", duration::exact(every)));
        }
        out.push_str(&format!("{} not delayed", self.at_once));
        if !self.longest.is_zero() {
            out.push_str(&format!(", the longest delay {}", duration::exact(self.longest)));
        }
        out.push_str(&format!(", the last due at {}", duration::exact(self.last_due)));
        if self.never > 0 {
            out.push_str(&format!(", {} never due", self.never));
        }
        out
    }
}

/// A picture to be drawn.
#[derive(Debug)]
pub(super) struct Picture {
    /// The limiter.
    pub(super) title: String,
    /// Number of calls, and their results.
    pub(super) sentence: String,
    /// Number of calls on the horizontal axis.
    pub(super) calls: u64,
    /// Whether each call has a stroke of its own.
    pub(super) single: bool,
    /// From left to right; `None`: delayed for ever.
    pub(super) places: Vec<Option<Place>>,
    pub(super) scale: Scale,
}

/// A place on the horizontal axis, with the heights (from 0 to 1) to be joined there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) call: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

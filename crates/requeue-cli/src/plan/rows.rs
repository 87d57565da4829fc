//! Each call as a line of a table or of JSON.

use std::io::{self, Write};
use std::time::Duration;

use super::calls::Call;
use crate::config::Calls;
use crate::text::duration;
use crate::text::json::Object;

/// Wide enough for a jittered minute to the nanosecond.
const WIDTH: usize = 13;

/// The form of the lines. Nothing is kept, so any number of calls can be shown.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rows {
    Json,
    Table {
        /// The widths of the columns of numbers; columns that would be constant are left out.
        call: usize,
        key: Option<usize>,
        at: bool,
    },
}

impl Rows {
    pub(super) fn json() -> Self {
        Self::Json
    }

    pub(super) fn table(rhythm: Calls) -> Self {
        let digits = |n: u64| n.to_string().len();
        Self::Table {
            call: digits(rhythm.calls).max("call".len()),
            key: (rhythm.keys > 1).then(|| digits(rhythm.keys).max("key".len())),
            at: !rhythm.every.is_zero(),
        }
    }

    pub(super) fn head(self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Json => Ok(()),
            Self::Table { .. } => self.cells(out, "call", "key", "at", "delay", "due"),
        }
    }

    pub(super) fn row(self, out: &mut impl Write, call: &Call) -> io::Result<()> {
        let Call { number, key, at, delay, due } = *call;
        match self {
            Self::Json => {
                let object = Object::new().with("call", number).with("key", key).with("at_s", at);
                writeln!(out, "{}", object.with("delay_s", delay).with("due_s", due))
            }
            Self::Table { .. } => {
                let time = |t: Option<Duration>| t.map_or_else(|| "never".to_owned(), duration::exact);
                self.cells(
                    out,
                    &number.to_string(),
                    &key.to_string(),
                    &time(Some(at)),
                    &time(delay),
                    &time(due),
                )
            }
        }
    }

    fn cells(
        self,
        out: &mut impl Write,
        call: &str,
        key: &str,
        at: &str,
        delay: &str,
        due: &str,
    ) -> io::Result<()> {
        let Self::Table { call: call_width, key: key_width, at: with_at } = self else { return Ok(()) };
        write!(out, "{call:>call_width$}")?;
        if let Some(key_width) = key_width {
            write!(out, "  {key:>key_width$}")?;
        }
        if with_at {
            write!(out, "  {at:>WIDTH$}")?;
        }
        writeln!(out, "  {delay:>WIDTH$}  {due:>WIDTH$}")
    }
}

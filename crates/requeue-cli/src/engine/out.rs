//! The output of a command, and the reason why it ends.

use std::fmt::Display;
use std::io::{self, Write};

use requeue_engine::EngineError;

use crate::text::json;

/// The reason why a command ends, with its status.
pub(super) enum Ended {
    /// Its output is not read any more.
    Closed,
    With(u8, String),
    /// The engine failed.
    Engine(EngineError),
}

impl From<(u8, String)> for Ended {
    fn from((status, why): (u8, String)) -> Self {
        Self::With(status, why)
    }
}

impl From<EngineError> for Ended {
    fn from(e: EngineError) -> Self {
        Self::Engine(e)
    }
}

/// A failed write of the command's output.
impl From<io::Error> for Ended {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::With(1, format!("standard output: {e}")),
        }
    }
}

/// Standard output.
pub(super) struct Out<'a> {
    pub(super) to: &'a mut dyn Write,
    /// Print JSON.
    pub(super) json: bool,
}

impl Out<'_> {
    /// Prints a line in one of two forms.
    pub(super) fn line(&mut self, json: impl Display, text: impl Display) -> io::Result<()> {
        if self.json { writeln!(self.to, "{json}") } else { writeln!(self.to, "{text}") }
    }

    /// Reports success, and the new state.
    pub(super) fn done(&mut self, how: &str) -> Result<u8, Ended> {
        self.line(json::text(how), how)?;
        Ok(0)
    }

    /// Reports an unknown key. The status is 1, as for a search without a result.
    pub(super) fn unknown(&mut self) -> Result<u8, Ended> {
        self.line("null", "unknown")?;
        Ok(1)
    }
}

//! `--group`: a run's output comes out in one piece, at its end.
//!
//! Until then it is kept: in memory if it is short, otherwise in a temporary file. Later output of processes
//! that the program left behind is passed on line by line, as without `--group`.

use std::io::{self, BufReader, Read as _, Seek as _, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::SpooledTempFile;

use crate::output::console::{Console, Meanwhile, Stream};

/// Maximum size of each output kept in memory.
pub(crate) const IN_MEMORY: usize = 256 * 1024;

/// The output of one run.
#[derive(Debug)]
pub(crate) struct Group {
    kept: Mutex<Option<Kept>>,
    /// The option that requires it.
    option: &'static str,
}

/// The output kept so far; empty once it was released.
#[derive(Debug)]
pub(crate) struct Kept {
    out: Spool,
    err: Spool,
}

impl Kept {
    /// Both outputs, in the order in which they are passed on.
    pub(crate) fn into_outputs(self) -> [(Stream, Spool); 2] {
        [(Stream::Out, self.out), (Stream::Err, self.err)]
    }
}

/// The lines kept of one output.
#[derive(Debug)]
pub(crate) struct Spool {
    file: SpooledTempFile,
    length: u64,
}

impl Spool {
    fn new() -> Self {
        Self { file: SpooledTempFile::new(IN_MEMORY), length: 0 }
    }

    fn keep(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.write_all(lines)?;
        self.length += lines.len() as u64;
        Ok(())
    }

    /// Length of the kept output, without an incomplete part.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn read(&mut self) -> io::Result<impl io::Read> {
        self.file.rewind()?;
        Ok((&mut self.file).take(self.length))
    }

    pub(crate) fn pour(mut self, stream: Stream, console: &Console, meanwhile: &mut dyn Meanwhile) {
        if self.length == 0 {
            return;
        }
        match self.read() {
            Ok(read) => console.pour(stream, &mut BufReader::new(read), meanwhile),
            Err(_) => meanwhile.loses(stream),
        }
    }
}

impl Group {
    pub(crate) fn new(option: &'static str) -> Self {
        let kept = Mutex::new(Some(Kept { out: Spool::new(), err: Spool::new() }));
        Self { kept, option }
    }

    /// Keeps whole lines. If there is no room for them (a full disk) the run's output is no longer kept:
    /// nothing is lost, but it comes in several pieces.
    pub(crate) fn take(
        &self,
        stream: Stream,
        lines: &[u8],
        console: &Console,
        meanwhile: &mut dyn Meanwhile,
    ) {
        let mut kept = self.kept();
        let taken = kept.as_mut().map(|kept| {
            let spool = match stream {
                Stream::Out => &mut kept.out,
                Stream::Err => &mut kept.err,
            };
            spool.keep(lines)
        });
        if let Some(Ok(())) = taken {
            return;
        }
        let_go(kept, console, meanwhile);
        if let Some(Err(e)) = taken {
            let line = format!("requeue: {}: {e}: the output of this run is not in one piece", self.option);
            console.line_while(&line, meanwhile);
        }
        console.write(stream, lines, meanwhile);
    }

    /// Ends the run: the kept output goes out, and later output goes through.
    pub(crate) fn end(&self, console: &Console, meanwhile: &mut dyn Meanwhile) {
        let_go(self.kept(), console, meanwhile);
    }

    /// Takes the kept output at the end of the run; later output goes through.
    pub(crate) fn take_kept(&self) -> Option<Kept> {
        self.kept().take()
    }

    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn let_go(mut kept: MutexGuard<'_, Option<Kept>>, console: &Console, meanwhile: &mut dyn Meanwhile) {
    let Some(Kept { out, err }) = kept.take() else { return };
    let lengths = [(Stream::Out, out.length), (Stream::Err, err.length)];
    let written = console.in_turn(meanwhile, |meanwhile| {
        out.pour(Stream::Out, console, meanwhile);
        err.pour(Stream::Err, console, meanwhile);
    });
    for (stream, _) in lengths.into_iter().filter(|(_, length)| !written && *length > 0) {
        meanwhile.loses(stream);
    }
}

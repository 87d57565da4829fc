//! What the children write, passed on line by line.
//!
//! Every child has pipes of its own; whole lines go out under one lock, so lines of
//! different keys stand side by side and never in each other. What a child leaves
//! without a newline at its end gets one, or the next key's line would continue it.
//!
//! A line longer than [`LONGEST_LINE`] is cut into lines of that length. Holding it
//! back would take memory without bound; letting it through in pieces would either
//! mix it with others' lines or make every other key wait for its end.
//!
//! Whoever reads our output slowly slows the programs down, as with any pipe. A worker
//! that waits for the reader, or for another worker that does, goes on looking after its
//! child ([`Meanwhile`]): time limits hold, and signals reach it.

use std::io::{self, BufRead};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use memchr::{memchr_iter, memrchr};
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::control::{Control, Level};
use crate::group::Group;

/// The longest line that is kept whole.
pub(crate) const LONGEST_LINE: usize = 1 << 20;

/// A pipe that polls as writable takes this much (`PIPE_BUF`) without blocking.
const PORTION: usize = 4096;

/// How long a reader who takes nothing is waited for while the programs are stopped.
const PATIENCE: Duration = Duration::from_secs(2);

const CLEAR_LINE: &[u8] = b"\r\x1b[K";

/// What somebody who writes must not put off while the reader keeps him waiting.
pub(crate) trait Meanwhile {
    /// When to look at it at the latest.
    fn until(&self) -> Option<Instant>;
    /// Looks. Called at that time, and once when the programs are stopped.
    fn look(&mut self);
}

/// Nothing.
impl Meanwhile for () {
    fn until(&self) -> Option<Instant> {
        None
    }
    fn look(&mut self) {}
}

/// Which of our two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Standard output and standard error.
///
/// Each has a lock of its own, so that a reader of the one who does not read does not
/// silence the other. Where both are the terminal, whoever writes to the first holds
/// the second too, or the progress line would come between.
#[derive(Debug)]
pub(crate) struct Console {
    out: Mutex<Sink>,
    /// Locked after `out` where both are.
    err: Mutex<Sink>,
    /// A reader has gone away.
    closed: AtomicBool,
    /// Why standard output could not be written, but for that.
    failure: Mutex<Option<io::Error>>,
    control: Arc<Control>,
    /// There is one where both outputs are one file.
    turn: Option<Mutex<()>>,
}

#[derive(Debug)]
struct Sink {
    fd: BorrowedFd<'static>,
    terminal: bool,
    open: bool,
    /// The progress line stands there, so that other text must clear it first.
    progress_shown: bool,
}

impl Sink {
    fn new(fd: BorrowedFd<'static>) -> Mutex<Self> {
        let terminal = rustix::termios::isatty(fd);
        Mutex::new(Self { fd, terminal, open: true, progress_shown: false })
    }

    /// Writes everything; false if it was given up in the middle. That happens only
    /// at the end: once the programs are being stopped a reader who takes nothing for
    /// [`PATIENCE`] is not waited for, and once they are killed nobody is.
    fn write(&self, mut bytes: &[u8], control: &Control, meanwhile: &mut dyn Meanwhile) -> io::Result<bool> {
        // Until then, once the programs are being stopped.
        let mut last_words: Option<Instant> = None;
        while !bytes.is_empty() {
            let end = if last_words.is_some() { &control.children_die } else { &control.children_stop };
            let mut fds = [
                PollFd::from_borrowed_fd(self.fd, PollFlags::OUT),
                PollFd::from_borrowed_fd(end.fd(), PollFlags::IN),
            ];
            let until = [last_words, meanwhile.until()].into_iter().flatten().min();
            let told = match poll(&mut fds, until.map(from_now).as_ref()) {
                Err(Errno::INTR) => continue,
                other => other? > 0,
            };
            if fds[0].revents().is_empty() {
                let over = last_words.is_some_and(|until| told || Instant::now() >= until);
                meanwhile.look();
                if over {
                    return Ok(false);
                }
                if told {
                    last_words = Instant::now().checked_add(PATIENCE);
                }
                continue;
            }
            match rustix::io::write(self.fd, &bytes[..bytes.len().min(PORTION)]) {
                Ok(n) => {
                    bytes = &bytes[n..];
                    last_words = last_words.and_then(|_| Instant::now().checked_add(PATIENCE));
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(true)
    }

    /// Writes all that `source` has, as [`write`](Self::write) does.
    fn pour(
        &self,
        source: &mut dyn BufRead,
        control: &Control,
        meanwhile: &mut dyn Meanwhile,
    ) -> io::Result<bool> {
        loop {
            let some = source.fill_buf()?;
            let length = some.len();
            if length == 0 || !self.write(some, control, meanwhile)? {
                return Ok(length == 0);
            }
            source.consume(length);
        }
    }

    fn clear_progress(&mut self, control: &Control) -> io::Result<bool> {
        // In the background the line is not cleared: the cursor stands in the shell's
        // prompt by now.
        if std::mem::take(&mut self.progress_shown) && self.in_foreground() {
            return self.write(CLEAR_LINE, control, &mut ());
        }
        Ok(true)
    }

    /// Whether the terminal is ours to draw on. On one that is not the controlling
    /// terminal there is nobody to share it with.
    fn in_foreground(&self) -> bool {
        rustix::termios::tcgetpgrp(self.fd).map_or(true, |group| group == rustix::process::getpgrp())
    }
}

impl Console {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self {
            out: Sink::new(rustix::stdio::stdout()),
            err: Sink::new(rustix::stdio::stderr()),
            closed: AtomicBool::new(false),
            failure: Mutex::new(None),
            control,
            turn: one_file().then(Mutex::default),
        }
    }

    /// Writes whole lines.
    pub(crate) fn write(&self, stream: Stream, lines: &[u8], meanwhile: &mut dyn Meanwhile) {
        self.pour(stream, &mut &*lines, meanwhile);
    }

    /// Writes whole lines, all that `source` has, with nothing between them.
    pub(crate) fn pour(&self, stream: Stream, source: &mut dyn BufRead, meanwhile: &mut dyn Meanwhile) {
        let control = &*self.control;
        // One that was given up in the middle of a line is closed: the next line must
        // not go on from there.
        let result = match stream {
            Stream::Out => {
                let mut out = lock(&self.out, meanwhile);
                if !out.open {
                    return;
                }
                let mut beside = out.terminal.then(|| lock(&self.err, meanwhile));
                let cleared = beside.as_mut().map_or(Ok(true), |err| err.clear_progress(control));
                let result = cleared.and_then(|_| out.pour(source, control, meanwhile));
                out.open = matches!(result, Ok(true));
                result
            }
            Stream::Err => {
                let mut err = lock(&self.err, meanwhile);
                if !err.open {
                    return;
                }
                let result = err.clear_progress(control).and_then(|_| err.pour(source, control, meanwhile));
                err.open = matches!(result, Ok(true));
                result
            }
        };
        match result {
            Ok(_) => {}
            // Nobody reads any more: what goes on running runs for nobody.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                self.closed.store(true, Ordering::SeqCst);
                self.control.raise(Level::Stop);
            }
            Err(e) if stream == Stream::Out => {
                self.failure.lock().get_or_insert(e);
                self.control.raise(Level::Stop);
            }
            // A full disk under standard error only silences messages.
            Err(_) => {}
        }
    }

    /// One line of ours on standard error. None once a reader has gone away: that is
    /// an end which nobody wants to be told of.
    pub(crate) fn line(&self, text: &str) {
        if self.closed() {
            return;
        }
        let mut line = Vec::with_capacity(text.len() + 1);
        line.extend_from_slice(text.as_bytes());
        line.push(b'\n');
        self.write(Stream::Err, &line, &mut ());
    }

    /// Shows `text` as the progress line, or takes the line away. In the background
    /// there is none.
    pub(crate) fn progress(&self, text: Option<&str>) {
        let mut err = self.err.lock();
        if !err.open {
            return;
        }
        // A terminal that has gone away is noticed by the next line.
        let _ = match text.filter(|_| err.in_foreground()) {
            None => err.clear_progress(&self.control),
            Some(text) => {
                err.progress_shown = true;
                err.write(&[CLEAR_LINE, text.as_bytes()].concat(), &self.control, &mut ())
            }
        };
    }

    /// Held by whoever writes a run's output in one piece. There is a lock only where both
    /// outputs are one file, because only there the pieces of two runs could mix.
    pub(crate) fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.turn.as_ref().map(Mutex::lock)
    }

    /// A reader of our output has gone away.
    pub(crate) fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Why standard output could not be written.
    pub(crate) fn take_failure(&self) -> Option<io::Error> {
        self.failure.lock().take()
    }
}

/// Whether standard output and standard error are one file or one terminal.
fn one_file() -> bool {
    let file = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).ok();
    file(rustix::stdio::stdout()).is_some_and(|out| Some(out) == file(rustix::stdio::stderr()))
}

/// Whoever has it may be waiting for a reader.
fn lock<'m, T>(mutex: &'m Mutex<T>, meanwhile: &mut dyn Meanwhile) -> MutexGuard<'m, T> {
    while let Some(until) = meanwhile.until() {
        if let Some(guard) = mutex.try_lock_until(until) {
            return guard;
        }
        meanwhile.look();
    }
    mutex.lock()
}

fn from_now(at: Instant) -> Timespec {
    let time = at.saturating_duration_since(Instant::now());
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}

/// One output of one child on its way to one of ours.
#[derive(Debug)]
pub(crate) struct Relay {
    stream: Stream,
    /// Stands in front of every line.
    tag: Option<Arc<[u8]>>,
    /// The beginning of a line whose end is not yet there.
    rest: Vec<u8>,
    /// Keeps the lines until the end of the run.
    group: Option<Arc<Group>>,
}

impl Relay {
    pub(crate) fn new(stream: Stream, tag: Option<Arc<[u8]>>, group: Option<Arc<Group>>) -> Self {
        Self { stream, tag, rest: Vec::new(), group }
    }

    /// Passes on the lines that end in `chunk`.
    pub(crate) fn feed(&mut self, chunk: &[u8], console: &Console, meanwhile: &mut dyn Meanwhile) {
        let mut chunk = chunk;
        if let Some(end) = memrchr(b'\n', chunk) {
            let (lines, tail) = chunk.split_at(end + 1);
            if self.rest.is_empty() {
                self.send(lines, console, meanwhile);
            } else {
                let mut whole = std::mem::take(&mut self.rest);
                whole.extend_from_slice(lines);
                self.send(&whole, console, meanwhile);
                whole.clear();
                self.rest = whole;
            }
            chunk = tail;
        }
        self.rest.extend_from_slice(chunk);
        while self.rest.len() > LONGEST_LINE {
            let tail = self.rest.split_off(LONGEST_LINE);
            self.end_line(console, meanwhile);
            self.rest = tail;
        }
    }

    /// The child writes no more: an unfinished line becomes a line.
    pub(crate) fn finish(&mut self, console: &Console, meanwhile: &mut dyn Meanwhile) {
        if !self.rest.is_empty() {
            self.end_line(console, meanwhile);
        }
    }

    fn end_line(&mut self, console: &Console, meanwhile: &mut dyn Meanwhile) {
        let mut line = std::mem::take(&mut self.rest);
        line.push(b'\n');
        self.send(&line, console, meanwhile);
    }

    fn send(&self, lines: &[u8], console: &Console, meanwhile: &mut dyn Meanwhile) {
        let with_tag = self.tag.as_ref().map(|tag| tagged(tag, lines));
        let lines = with_tag.as_deref().unwrap_or(lines);
        match &self.group {
            None => console.write(self.stream, lines, meanwhile),
            Some(group) => group.take(self.stream, lines, console, meanwhile),
        }
    }
}

/// `lines`, each with the tag and a tab in front.
fn tagged(tag: &[u8], lines: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(lines.len() + 2 * tag.len());
    let mut from = 0;
    for end in memchr_iter(b'\n', lines) {
        out.extend_from_slice(tag);
        out.push(b'\t');
        out.extend_from_slice(&lines[from..=end]);
        from = end + 1;
    }
    out
}

/// A key as a tag: its bytes as they are, but a newline (which keys can hold when NUL
/// separates them) would end the line.
pub(crate) fn tag(key: &[u8]) -> Arc<[u8]> {
    if memchr::memchr(b'\n', key).is_none() {
        return key.into();
    }
    let parts: Vec<&[u8]> = key.split(|b| *b == b'\n').collect();
    parts.join(&b"\\n"[..]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_gets_the_tag() {
        assert_eq!(tagged(b"k", b"a\n\nb\n"), b"k\ta\nk\t\nk\tb\n");
    }

    #[test]
    fn a_tag_is_one_line() {
        assert_eq!(&*tag(b"a\nb\xff"), b"a\\nb\xff");
    }
}

//! The children's output, passed on line by line.
//!
//! Every child has pipes of its own; whole lines are written under one lock, so lines of different keys never
//! mix. Output that does not end with a newline gets one, or the next key's line would continue it.
//!
//! A slow reader of our output slows the programs down, as with any pipe. A worker that waits for the reader,
//! or for another worker that does, still looks after its child ([`Meanwhile`]): time limits hold, and
//! signals reach it. Once its run has been ended, it no longer waits for a reader that takes nothing: the
//! rest of that run's output is lost, with a message, and the worker continues.

use std::io::{self, BufRead};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::system::control::{Control, Level};
use crate::text::show::quoted;

/// A size that a writable pipe takes without blocking (`PIPE_BUF`).
const PORTION: usize = 4096;

/// How long to wait for a blocked reader while the programs are being stopped, and after a run was ended.
const PATIENCE: Duration = Duration::from_secs(2);

const CLEAR_LINE: &[u8] = b"\r\x1b[K";

/// The duties of a writer while the reader blocks it.
pub(crate) trait Meanwhile {
    /// The latest time of the next look.
    fn until(&self) -> Option<Instant>;
    /// Looks after the duties. Called at that time, and once when the programs are stopped.
    fn look(&mut self);
    /// Whether a reader that has taken nothing for [`PATIENCE`] is no longer waited for. If this can become
    /// true, looks must be frequent enough.
    fn hurries(&self) -> bool {
        false
    }
    /// Records that output to this stream is lost.
    fn loses(&mut self, _: Stream) {}
    /// Whether output was lost: then all later output is lost too, so that there is no hole in it.
    fn has_lost(&self, _: Stream) -> bool {
        false
    }
}

/// No duties.
impl Meanwhile for () {
    fn until(&self) -> Option<Instant> {
        None
    }
    fn look(&mut self) {}
}

/// No duties, for a message about a run that was ended: it waits for a reader no longer than that run's
/// output does.
pub(crate) struct InHurry;

impl Meanwhile for InHurry {
    fn until(&self) -> Option<Instant> {
        Some(Instant::now() + PATIENCE / 8)
    }
    fn look(&mut self) {}
    fn hurries(&self) -> bool {
        true
    }
}

/// The duties while a message of ours is written. Its loss is no loss of the program's own output.
struct Aside<'a>(&'a mut dyn Meanwhile);

impl Meanwhile for Aside<'_> {
    fn until(&self) -> Option<Instant> {
        self.0.until()
    }
    fn look(&mut self) {
        self.0.look();
    }
    fn hurries(&self) -> bool {
        self.0.hurries()
    }
}

/// One of our two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Standard output and standard error.
///
/// Each has a lock of its own, so that a blocked reader of one does not silence the other. If both are the
/// terminal, a writer to the first holds the second too, or the progress line would come between.
#[derive(Debug)]
pub(crate) struct Console {
    out: Mutex<Sink>,
    /// Locked after `out` if both are.
    err: Mutex<Sink>,
    /// Whether each is a terminal.
    on_terminal: [bool; 2],
    /// Outside the locks, for those who wait for one.
    stalls: [Arc<Stall>; 2],
    /// A reader has closed its end.
    closed: AtomicBool,
    /// The error of standard output, except for a closed reader.
    failure: Mutex<Option<io::Error>>,
    control: Arc<Control>,
    /// Present if both outputs are one file.
    turn: Option<Mutex<()>>,
}

/// Since when a reader has taken nothing although there is something for it.
#[derive(Debug, Default)]
struct Stall(Mutex<Option<Instant>>);

impl Stall {
    fn begins(&self) {
        self.0.lock().get_or_insert_with(Instant::now);
    }

    fn ends(&self) {
        *self.0.lock() = None;
    }

    fn lasts(&self) -> bool {
        self.0.lock().is_some_and(|since| since.elapsed() >= PATIENCE)
    }
}

/// The fate of written data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    /// It is lost.
    Shut,
    /// It is lost, without consequences.
    Mute,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrote {
    All,
    /// This writer stopped waiting for the reader. Others may continue.
    Part,
    /// The command stopped waiting.
    Last,
}

#[derive(Debug)]
struct Sink {
    fd: BorrowedFd<'static>,
    terminal: bool,
    way: Way,
    stall: Arc<Stall>,
    /// A write was given up in the middle of a line.
    mid_line: bool,
    /// The progress line is shown, so other text must clear it first.
    progress_shown: bool,
}

impl Sink {
    fn new(fd: BorrowedFd<'static>, stall: &Arc<Stall>) -> Mutex<Self> {
        let terminal = rustix::termios::isatty(fd);
        let (way, stall) = (Way::Open, Arc::clone(stall));
        Mutex::new(Self { fd, terminal, way, stall, mid_line: false, progress_shown: false })
    }

    /// Writes everything, unless it gives up: while the programs are being stopped a reader that takes
    /// nothing for [`PATIENCE`] is not waited for, after they were killed none is, and the writer may be in a
    /// hurry.
    fn write(
        &mut self,
        mut bytes: &[u8],
        control: &Control,
        meanwhile: &mut dyn Meanwhile,
    ) -> io::Result<Wrote> {
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
                self.stall.begins();
                meanwhile.look();
                if over {
                    return Ok(Wrote::Last);
                }
                if meanwhile.hurries() && self.stall.lasts() {
                    return Ok(Wrote::Part);
                }
                if told {
                    last_words = Instant::now().checked_add(PATIENCE);
                }
                continue;
            }
            match rustix::io::write(self.fd, &bytes[..bytes.len().min(PORTION)]) {
                Ok(n) => {
                    self.stall.ends();
                    self.mid_line = bytes[..n].last() != Some(&b'\n');
                    bytes = &bytes[n..];
                    last_words = last_words.and_then(|_| Instant::now().checked_add(PATIENCE));
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(Wrote::All)
    }

    /// Writes all that `source` has, like [`write`](Self::write), from the beginning of a line on.
    fn pour(
        &mut self,
        source: &mut dyn BufRead,
        control: &Control,
        meanwhile: &mut dyn Meanwhile,
    ) -> io::Result<Wrote> {
        let mut wrote = match self.mid_line {
            true => self.write(b"\n", control, meanwhile)?,
            false => Wrote::All,
        };
        while wrote == Wrote::All {
            let some = source.fill_buf()?;
            let length = some.len();
            if length == 0 {
                break;
            }
            wrote = self.write(some, control, meanwhile)?;
            source.consume(length);
        }
        Ok(wrote)
    }

    /// Draws text that is not a line, and that the next line replaces.
    fn draw(&mut self, bytes: &[u8], control: &Control) -> io::Result<Wrote> {
        let wrote = self.write(bytes, control, &mut ());
        self.mid_line = false;
        wrote
    }

    fn clear_progress(&mut self, control: &Control) -> io::Result<Wrote> {
        // In the background the line is not cleared: the cursor stands in the shell's
        // prompt by now.
        if std::mem::take(&mut self.progress_shown) && self.in_foreground() {
            return self.draw(CLEAR_LINE, control);
        }
        Ok(Wrote::All)
    }

    /// Whether we may draw on the terminal. One that is not the controlling terminal is not shared.
    fn in_foreground(&self) -> bool {
        crate::system::process_group::is_in_foreground(self.fd)
    }
}

impl Console {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        let stalls: [Arc<Stall>; 2] = Default::default();
        Self {
            out: Sink::new(rustix::stdio::stdout(), &stalls[0]),
            err: Sink::new(rustix::stdio::stderr(), &stalls[1]),
            on_terminal: [rustix::stdio::stdout(), rustix::stdio::stderr()].map(rustix::termios::isatty),
            stalls,
            closed: AtomicBool::new(false),
            failure: Mutex::new(None),
            control,
            turn: one_file().then(Mutex::default),
        }
    }

    /// The tags of a key's lines on the two outputs.
    pub(crate) fn tags(&self, key: &[u8]) -> [Arc<[u8]>; 2] {
        self.on_terminal.map(|on_terminal| tag(key, on_terminal))
    }

    /// Writes whole lines.
    pub(crate) fn write(&self, stream: Stream, lines: &[u8], meanwhile: &mut dyn Meanwhile) {
        self.pour(stream, &mut &*lines, meanwhile);
    }

    /// Writes whole lines, all that `source` has, with nothing between them.
    pub(crate) fn pour(&self, stream: Stream, source: &mut dyn BufRead, meanwhile: &mut dyn Meanwhile) {
        if !meanwhile.has_lost(stream) && !self.passes(stream, source, meanwhile) {
            meanwhile.loses(stream);
        }
    }

    /// Returns false if some of it is lost, with consequences.
    fn passes(&self, stream: Stream, source: &mut dyn BufRead, meanwhile: &mut dyn Meanwhile) -> bool {
        let control = &*self.control;
        let Some(mut sink) = self.lock(self.sink(stream), meanwhile) else { return false };
        if sink.way != Way::Open {
            return sink.way == Way::Mute;
        }
        let cleared = match stream {
            Stream::Err => sink.clear_progress(control).map(|_| None),
            Stream::Out if sink.terminal => {
                let Some(mut beside) = self.lock(&self.err, meanwhile) else { return false };
                beside.clear_progress(control).map(|_| Some(beside))
            }
            Stream::Out => Ok(None),
        };
        let result = cleared.and_then(|_beside| sink.pour(source, control, meanwhile));
        match result {
            Ok(wrote) => {
                if wrote == Wrote::Last {
                    sink.way = Way::Shut;
                }
                wrote == Wrote::All
            }
            // A full disk under standard error only silences messages.
            Err(e) if stream == Stream::Err && e.kind() != io::ErrorKind::BrokenPipe => {
                sink.way = Way::Mute;
                true
            }
            // The output of further runs would not be read.
            Err(e) => {
                sink.way = Way::Shut;
                drop(sink);
                match e.kind() {
                    io::ErrorKind::BrokenPipe => self.closed.store(true, Ordering::SeqCst),
                    _ => _ = self.failure.lock().get_or_insert(e),
                }
                self.control.raise(Level::Stop);
                false
            }
        }
    }

    fn sink(&self, stream: Stream) -> &Mutex<Sink> {
        match stream {
            Stream::Out => &self.out,
            Stream::Err => &self.err,
        }
    }

    /// Takes a lock whose holder may be waiting for a reader. `None`: `meanwhile` was in a hurry.
    fn lock<'m, T>(&self, mutex: &'m Mutex<T>, meanwhile: &mut dyn Meanwhile) -> Option<MutexGuard<'m, T>> {
        while let Some(until) = meanwhile.until() {
            let guard = mutex.try_lock_until(until);
            if guard.is_some() {
                return guard;
            }
            meanwhile.look();
            if meanwhile.hurries() && self.stalls.iter().any(|stall| stall.lasts()) {
                return None;
            }
        }
        Some(mutex.lock())
    }

    /// Writes a line of ours on standard error. Does nothing once a reader has closed its end: then the
    /// command ends silently.
    pub(crate) fn line(&self, text: &str) {
        self.line_while(text, &mut ());
    }

    /// Like [`line`](Self::line), for a caller with duties.
    pub(crate) fn line_while(&self, text: &str, meanwhile: &mut dyn Meanwhile) {
        if self.closed() {
            return;
        }
        let mut line = Vec::with_capacity(text.len() + 1);
        line.extend_from_slice(text.as_bytes());
        line.push(b'\n');
        self.write(Stream::Err, &line, &mut Aside(meanwhile));
    }

    /// Shows `text` as the progress line, or removes the line. In the background there is none.
    pub(crate) fn progress(&self, text: Option<&str>) {
        let mut err = self.err.lock();
        if err.way != Way::Open {
            return;
        }
        // A terminal that has gone away is noticed by the next line.
        let _ = match text.filter(|_| err.in_foreground()) {
            None => err.clear_progress(&self.control),
            Some(text) => {
                err.progress_shown = true;
                err.draw(&[CLEAR_LINE, text.as_bytes()].concat(), &self.control)
            }
        };
    }

    /// Lets `write` write a run's output in one piece; false if it was in too much of a hurry. There is a
    /// lock only if both outputs are one file, because only then the pieces of two runs could mix.
    pub(crate) fn in_turn(
        &self,
        meanwhile: &mut dyn Meanwhile,
        write: impl FnOnce(&mut dyn Meanwhile),
    ) -> bool {
        let turn = self.turn.as_ref().map(|turn| self.lock(turn, meanwhile));
        let has_come = !matches!(turn, Some(None));
        if has_come {
            write(meanwhile);
        }
        has_come
    }

    /// Whether a reader of our output has closed its end.
    pub(crate) fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// The error of standard output.
    pub(crate) fn take_failure(&self) -> Option<io::Error> {
        self.failure.lock().take()
    }
}

/// Whether standard output and standard error are one file or one terminal.
fn one_file() -> bool {
    let file = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).ok();
    file(rustix::stdio::stdout()).is_some_and(|out| Some(out) == file(rustix::stdio::stderr()))
}

fn from_now(at: Instant) -> Timespec {
    let time = at.saturating_duration_since(Instant::now());
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}

/// A key as a tag: its bytes unchanged, except for a newline (in keys separated by NUL), which would end the
/// line. On a terminal it is escaped as in messages, because its bytes could move the cursor.
fn tag(key: &[u8], on_terminal: bool) -> Arc<[u8]> {
    let is_harmless = |text: &str| !text.chars().any(char::is_control);
    if on_terminal && !std::str::from_utf8(key).is_ok_and(is_harmless) {
        return quoted(key).into_bytes().into();
    }
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
    fn a_tag_is_one_line() {
        assert_eq!(&*tag(b"a\nb\xff", false), b"a\\nb\xff");
        assert_eq!(&*tag(b"a\x1b[2Jb", false), b"a\x1b[2Jb", "who reads a file gets the key");
        assert_eq!(&*tag(b"a\x1b[2Jb", true), b"$'a\\033[2Jb'");
        assert_eq!(&*tag(b"a\x9b2J", true), b"$'a\\2332J'", "an 8-bit control byte");
        assert_eq!(&*tag("ä b".as_bytes(), true), "ä b".as_bytes());
    }
}

//! Keys from standard input.
//!
//! Reading never waits for the program. A key that is already in the queue is recognised in the reader's own
//! buffer and costs no memory, so a flood of equal lines is read as fast as it comes and gives one more run.

use std::os::fd::{AsFd, BorrowedFd};

use memchr::{memchr, memchr_iter};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FileType;
use rustix::io::{Errno, read};

use crate::input::unpassable::Unpassable;

/// A key in the queue.
pub(crate) type Key = Vec<u8>;

/// Maximum length of a key if no file of keys is written. No system passes a longer one to a program, so it
/// would give up anyway, and input without a separator cannot use up the memory.
pub(crate) const LONGEST: usize = 1 << 20;

const CHUNK: usize = 64 * 1024;

/// A piece of the input, between two separators.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// A key.
    Key(&'a [u8]),
    /// The previous key again, read in the same call: a run that begins for the one has begun after both were
    /// read.
    Repeated,
    /// A key above the maximum length.
    TooLong {
        /// Its beginning.
        start: &'a [u8],
        /// Its length.
        bytes: u64,
    },
    /// A line without a key, and the reason.
    NoKey(&'a [u8], Unpassable),
    /// The end of the data of one read.
    Pause,
}

/// Cuts a stream of bytes into keys.
#[derive(Debug)]
pub(crate) struct Splitter {
    separator: u8,
    /// Maximum length of a key.
    longest: usize,
    /// Whether a repeated key is passed as [`Repeated`](Piece::Repeated).
    folds: bool,
    /// The beginning of a key that continues in the next chunk.
    rest: Vec<u8>,
    /// Number of bytes of an over-long key that are no longer in `rest`.
    dropped: u64,
}

impl Splitter {
    pub(crate) fn new(separator: u8, longest: usize, folds: bool) -> Self {
        Self { separator, longest, folds, rest: Vec::new(), dropped: 0 }
    }

    /// Passes the keys that end in this chunk to `each`, until that returns false. Returns false if it did.
    pub(crate) fn feed(&mut self, chunk: &[u8], each: &mut impl FnMut(Piece<'_>) -> bool) -> bool {
        let mut begin = 0;
        if !self.rest.is_empty() {
            let Some(end) = memchr(self.separator, chunk) else {
                self.keep(chunk);
                return true;
            };
            self.keep(&chunk[..end]);
            begin = end + 1;
            if !self.finish(each) {
                return false;
            }
        }
        let tail = &chunk[begin..];
        let mut begin = 0;
        let mut previous: &[u8] = &[];
        for end in memchr_iter(self.separator, tail) {
            let key = &tail[begin..end];
            begin = end + 1;
            if key.is_empty() {
                continue;
            }
            let piece = if self.folds && key == previous { Piece::Repeated } else { Piece::Key(key) };
            previous = key;
            if !each(piece) {
                return false;
            }
        }
        self.keep(&tail[begin..]);
        true
    }

    /// Handles the end of a key, or of the input: a last line without a separator counts too.
    pub(crate) fn finish(&mut self, each: &mut impl FnMut(Piece<'_>) -> bool) -> bool {
        let go_on = match self.dropped {
            0 if self.rest.is_empty() => true,
            0 => each(Piece::Key(&self.rest)),
            dropped => each(Piece::TooLong { start: &self.rest, bytes: self.rest.len() as u64 + dropped }),
        };
        self.rest.clear();
        // A single long key must not hold memory to the end.
        self.rest.shrink_to(LONGEST);
        self.dropped = 0;
        go_on
    }

    fn keep(&mut self, part: &[u8]) {
        let room = self.longest - self.rest.len();
        let (kept, dropped) = part.split_at(part.len().min(room));
        self.rest.extend_from_slice(kept);
        self.dropped += dropped.len() as u64;
    }
}

/// How reading ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Everything was read.
    Input,
    /// `stop` came, or `each` returned false, before the input had ended.
    Stopped,
}

/// Reads keys until the input ends, `stop` is hung up, or `each` returns false. Keys longer than `longest`
/// bytes become [`Piece::TooLong`]; with `folds` repeated ones become [`Piece::Repeated`]. With `to_the_last`
/// every key that had arrived before `stop` is passed too; without it, unread input stays where it is.
///
/// # Errors
///
/// If the input could not be read; earlier keys were passed.
pub(crate) fn read_keys(
    input: BorrowedFd<'_>,
    stop: BorrowedFd<'_>,
    separator: u8,
    (longest, folds): (usize, bool),
    to_the_last: bool,
    each: &mut impl FnMut(Piece<'_>) -> bool,
) -> std::io::Result<End> {
    let mut splitter = Splitter::new(separator, longest, folds);
    let mut chunk = vec![0; CHUNK];
    loop {
        let mut fds =
            [PollFd::from_borrowed_fd(stop, PollFlags::IN), PollFd::from_borrowed_fd(input, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        if !fds[0].revents().is_empty() {
            let most = match to_the_last {
                // To its end: the system would count what is left of it in an `int`.
                true if is_regular(input) => u64::MAX,
                true => has_come(input),
                false => 0,
            };
            return Ok(read_rest(input, most, &mut splitter, &mut chunk, each));
        }
        match read(input, &mut chunk[..]) {
            Ok(0) => {
                splitter.finish(each);
                return Ok(End::Input);
            }
            Ok(n) => {
                if !splitter.feed(&chunk[..n], each) || !each(Piece::Pause) {
                    return Ok(End::Stopped);
                }
            }
            // Somebody else may have made the pipe non-blocking, or have read it.
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(e) => {
                splitter.finish(each);
                return Err(e.into());
            }
        }
    }
}

/// Number of bytes that can be read without waiting.
fn has_come(input: BorrowedFd<'_>) -> u64 {
    rustix::io::ioctl_fionread(input).unwrap_or(0)
}

fn is_regular(input: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(input).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

/// Reads at least `most` more bytes if they are available, and finds out whether the input ends after them.
/// If not, the following bytes stay where they are, and an incomplete key is dropped.
fn read_rest(
    input: BorrowedFd<'_>,
    most: u64,
    splitter: &mut Splitter,
    chunk: &mut [u8],
    each: &mut impl FnMut(Piece<'_>) -> bool,
) -> End {
    let now = rustix::event::Timespec::default();
    let mut taken = 0;
    loop {
        let mut fds = [PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN)];
        let enough = taken >= most && has_come(input) > 0;
        if enough || !matches!(poll(&mut fds, Some(&now)), Ok(1)) {
            return End::Stopped;
        }
        // An end of input looks the same as more of it until one reads.
        match read(input, &mut *chunk) {
            Ok(0) => {
                splitter.finish(each);
                return End::Input;
            }
            Ok(n) if splitter.feed(&chunk[..n], each) => taken += n as u64,
            _ => return End::Stopped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(separator: u8, chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let mut splitter = Splitter::new(separator, LONGEST, true);
        let mut each = |piece: Piece<'_>| {
            match piece {
                Piece::Key(key) => keys.push(key.to_vec()),
                Piece::Repeated => keys.push(keys[keys.len() - 1].clone()),
                Piece::TooLong { bytes, .. } => keys.push(format!("too long: {bytes}").into()),
                Piece::NoKey(..) | Piece::Pause => unreachable!("a line is cut by whoever reads it"),
            }
            true
        };
        for chunk in chunks {
            assert!(splitter.feed(chunk, &mut each));
        }
        assert!(splitter.finish(&mut each));
        keys
    }

    #[test]
    fn lines_are_keys_and_empty_lines_are_not() {
        assert_eq!(split(b'\n', &[b"a\n\nb b\n\n\nc\xff\x00\n"]), [&b"a"[..], b"b b", b"c\xff\x00"]);
    }

    #[test]
    fn a_last_line_without_newline_counts() {
        assert_eq!(split(b'\n', &[b"a\nb"]), [b"a", b"b"]);
        assert_eq!(split(b'\n', &[b"a\n"]), [b"a"]);
        assert!(split(b'\n', &[b""]).is_empty());
        assert!(split(b'\n', &[b"\n\n"]).is_empty());
    }

    #[test]
    fn keys_do_not_depend_on_where_the_chunks_are_cut() {
        let whole: &[u8] = b"one\ntwo\n\nthree\n";
        for a in 0..whole.len() {
            for b in a..whole.len() {
                let chunks = [&whole[..a], &whole[a..b], &whole[b..]];
                assert_eq!(split(b'\n', &chunks), [&b"one"[..], b"two", b"three"], "{a} {b}");
            }
        }
    }

    #[test]
    fn nul_separates_and_newline_is_then_an_ordinary_byte() {
        assert_eq!(split(0, &[b"a\nb\0c\0\0d"]), [&b"a\nb"[..], b"c", b"d"]);
    }

    #[test]
    fn a_key_without_end_is_counted_and_not_kept() {
        let mebibyte = vec![b'x'; LONGEST];
        assert_eq!(split(b'\n', &[&mebibyte, b"\nb"]), [&mebibyte[..], b"b"]);
        assert_eq!(
            split(b'\n', &[&mebibyte, &mebibyte, b"y\nb"]),
            [format!("too long: {}", 2 * LONGEST + 1).into_bytes(), b"b".to_vec()]
        );
        let mut splitter = Splitter::new(b'\n', LONGEST, true);
        for _ in 0..10 {
            splitter.feed(&mebibyte, &mut |_| true);
        }
        assert!(splitter.rest.capacity() <= 2 * LONGEST);
    }

    #[test]
    fn a_repeated_key_is_told_only_within_what_was_read_in_one_go() {
        let mut seen = Vec::new();
        let mut splitter = Splitter::new(b'\n', LONGEST, true);
        let mut each = |piece: Piece<'_>| {
            seen.push(piece == Piece::Repeated);
            true
        };
        splitter.feed(b"a\na\n\na\nb\na\n", &mut each);
        splitter.feed(b"a\na", &mut each);
        splitter.feed(b"\na\n", &mut each);
        assert_eq!(seen, [false, true, true, false, false, false, false, false]);
    }

    /// The pieces of `input` after the end was requested.
    fn after_the_stop(input: BorrowedFd<'_>, to_the_last: bool) -> (Vec<Vec<u8>>, End) {
        let (stop, sender) = crate::system::pipe::pipe().unwrap();
        drop(sender);
        let mut keys = Vec::new();
        let mut each = |piece: Piece<'_>| {
            if let Piece::Key(key) = piece {
                keys.push(key.to_vec());
            }
            true
        };
        let end = read_keys(input, stop.as_fd(), b'\n', (LONGEST, true), to_the_last, &mut each).unwrap();
        (keys, end)
    }

    #[test]
    fn what_had_come_before_the_end_was_asked_for_is_told_by_name() {
        let (input, sender) = crate::system::pipe::pipe().unwrap();
        rustix::io::write(&sender, b"a\nb\nhalf a ke").unwrap();
        let (keys, end) = after_the_stop(input.as_fd(), true);
        assert_eq!((keys, end), (vec![b"a".to_vec(), b"b".to_vec()], End::Stopped));
        // Nothing more has come, but more may.
        assert_eq!(after_the_stop(input.as_fd(), true), (vec![], End::Stopped));
        rustix::io::write(&sender, b"c\nd").unwrap();
        // Left where it is, for the next reader.
        assert_eq!(after_the_stop(input.as_fd(), false), (vec![], End::Stopped));
        drop(sender);
        // At the end of the input what has no separator is a key.
        assert_eq!(after_the_stop(input.as_fd(), true), (vec![b"c".to_vec(), b"d".to_vec()], End::Input));
        assert_eq!(after_the_stop(input.as_fd(), false), (vec![], End::Input));
    }

    #[test]
    fn a_file_is_told_to_its_end() {
        let mut file = tempfile::tempfile().unwrap();
        let text: String = (0..50_000).map(|i| format!("key {i}\n")).collect();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        assert_eq!(after_the_stop(file.as_fd(), false), (vec![], End::Stopped));
        let (keys, end) = after_the_stop(file.as_fd(), true);
        assert_eq!((keys.len(), end), (50_000, End::Input));
        assert_eq!(after_the_stop(file.as_fd(), false), (vec![], End::Input));
    }

    #[test]
    fn saying_no_ends_the_reading() {
        let mut splitter = Splitter::new(b'\n', LONGEST, true);
        let mut seen = 0;
        let mut each = |_: Piece<'_>| {
            seen += 1;
            seen < 2
        };
        assert!(!splitter.feed(b"a\nb\nc\n", &mut each));
        assert_eq!(seen, 2);
    }
}

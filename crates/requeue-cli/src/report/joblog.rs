//! `--joblog`: a line for each run, and `--resume`, which reads them again.
//!
//! The lines are tab-separated values, in a file that anything can read: a key is escaped so that it has no
//! tab, no newline and no byte that is not text. Each line is appended in one write as its run ends, so that
//! the runs of a killed command are in the file; a run whose line is missing is repeated. A torn line (a full
//! disk, a crash) is not a row: the writer begins a new line after it, and the reader skips it.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::input::keys::Key;
use crate::input::keys::Piece;
use crate::report::outcome::Ended;

const HEAD: &str = "key\tattempt\tstart\tseconds\tstatus\tsignal\n";

/// Exit status of `timeout` of the coreutils.
const TIMED_OUT: i32 = 124;
/// A shell's status for a program that could not be executed.
const NOT_STARTED: i32 = 126;
/// A shell's status for an unknown process.
const UNKNOWN: i32 = 127;
const SIGTERM: i32 = 15;
const SIGPIPE: i32 = 13;

/// A run that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) attempt: u32,
    pub(crate) start: SystemTime,
    pub(crate) took: Duration,
    /// `None` if the program could not be started.
    pub(crate) ended: Option<Ended>,
}

impl Row<'_> {
    fn line(&self) -> String {
        let start = self.start.duration_since(UNIX_EPOCH).unwrap_or_default();
        // As a shell says it, so that 0 means well and nothing else does.
        let (status, signal) = match self.ended {
            None => (NOT_STARTED, 0),
            Some(Ended::Exit(code)) => (code, 0),
            Some(Ended::Signal(n) | Ended::WantedTerminal(n)) => (128 + n, n),
            Some(Ended::Unknown) => (UNKNOWN, 0),
            Some(Ended::TimedOut) => (TIMED_OUT, SIGTERM),
            Some(Ended::Stopped | Ended::LeaseLost) => (128 + SIGTERM, SIGTERM),
            // As a program ends when its output is no longer read.
            Some(Ended::Unheard) => (128 + SIGPIPE, SIGPIPE),
        };
        let mut line = escaped(self.key);
        // A String takes everything.
        let _ = writeln!(
            line,
            "\t{}\t{}.{:06}\t{}.{:06}\t{status}\t{signal}",
            self.attempt,
            start.as_secs(),
            start.subsec_micros(),
            self.took.as_secs(),
            self.took.subsec_micros(),
        );
        line
    }
}

/// The file to which rows are appended.
#[derive(Debug)]
pub(crate) struct Joblog(Mutex<Log>);

#[derive(Debug)]
struct Log {
    file: File,
    /// The last line may be incomplete.
    torn: bool,
    /// Number of rows that could not be written, and the first error.
    lost: u64,
    why: Option<io::Error>,
}

impl Joblog {
    /// Opens the file, which is continued if it exists.
    ///
    /// # Errors
    ///
    /// If it cannot be written, or is not a job log.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let regular = match std::fs::metadata(path) {
            Ok(data) => data.is_file(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => true,
            Err(e) => return Err(e),
        };
        let mut file = OpenOptions::new().append(true).read(regular).create(true).open(path)?;
        let (mut head, mut torn) = (HEAD, false);
        if regular {
            let begins = beginning(&file)?;
            // An earlier run may have been killed in its first line.
            head = HEAD.strip_prefix(&*begins).ok_or_else(no_joblog)?;
            if file.seek(SeekFrom::End(0))? > 0 && head.is_empty() {
                let mut last = [0];
                file.seek(SeekFrom::End(-1))?;
                file.read_exact(&mut last)?;
                torn = last != [b'\n'];
            }
        }
        file.write_all(head.as_bytes())?;
        Ok(Self(Mutex::new(Log { file, torn, lost: 0, why: None })))
    }

    /// Appends a row. Returns the first error, to be reported at once; [`finish`](Self::finish) reports all
    /// of them.
    pub(crate) fn record(&self, row: &Row<'_>) -> Option<io::Error> {
        let mut line = row.line();
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if log.torn {
            line.insert(0, '\n');
        }
        match log.file.write_all(line.as_bytes()) {
            Ok(()) => {
                log.torn = false;
                None
            }
            Err(e) => {
                log.torn = true;
                log.lost += 1;
                let first = log.why.is_none().then(|| io::Error::new(e.kind(), e.to_string()));
                log.why.get_or_insert(e);
                first
            }
        }
    }

    /// Waits until all rows are on the disk.
    ///
    /// # Errors
    ///
    /// If some are not.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match log.why.take() {
            None => match log.file.sync_all() {
                // A pipe or a device has nothing to bring to a disk.
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
                result => result,
            },
            Some(e) => {
                let runs = if log.lost == 1 { "1 run is" } else { &format!("{} runs are", log.lost) };
                Err(io::Error::new(e.kind(), format!("{e}; {runs} not in it")))
            }
        }
    }
}

fn no_joblog() -> io::Error {
    let head = HEAD.trim_end().replace('\t', ", ");
    let why = format!("it is no joblog, and stays as it is: the columns of its first line must be {head}");
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The first bytes of the file, as many as the header has.
fn beginning(file: &File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(HEAD.len() as u64).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| no_joblog())
}

/// The keys whose latest run succeeded, and which need no run any more.
#[derive(Debug, Default)]
pub(crate) struct Resume {
    well: HashSet<Key>,
    /// Number of lines that are not rows.
    pub(crate) unreadable: u64,
    /// The previous key was skipped.
    last: bool,
}

impl Resume {
    /// Reads the file; a missing one has no rows.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is not a job log.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        match std::fs::metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) => return Err(e),
            Ok(data) if data.is_file() => {}
            Ok(_) => {
                let why = "it is no regular file, so that --resume cannot read it again";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        }
        let file = File::open(path)?;
        if !HEAD.starts_with(&beginning(&file)?) {
            return Err(no_joblog());
        }
        let mut past = Self::default();
        let (mut file, mut line) = (BufReader::new(file), Vec::new());
        // `beginning` has read no further than the first line.
        while file.read_until(b'\n', &mut line)? > 0 {
            past.take(line.strip_suffix(b"\n").unwrap_or(&line));
            line.clear();
        }
        Ok(past)
    }

    fn take(&mut self, line: &[u8]) {
        match row(line) {
            Some((key, true)) => {
                self.well.insert(key);
            }
            Some((key, false)) => {
                self.well.remove(&key);
            }
            // Files that were put together have several heads.
            None if line.is_empty() || HEAD.as_bytes().strip_suffix(b"\n") == Some(line) => {}
            None => self.unreadable += 1,
        }
    }

    /// Whether this key is skipped. Must be called for every piece.
    pub(crate) fn skips(&mut self, piece: &Piece<'_>) -> bool {
        self.last = match piece {
            Piece::Pause => return false,
            Piece::Key(key) => !self.well.is_empty() && self.well.contains(*key),
            Piece::Repeated => self.last,
            Piece::TooLong { .. } | Piece::NoKey(..) => false,
        };
        self.last
    }
}

/// Parses a row: its key, and whether its run succeeded. `None` if the line is not a row.
fn row(line: &[u8]) -> Option<(Key, bool)> {
    let line = std::str::from_utf8(line).ok()?;
    let fields: Vec<&str> = line.split('\t').collect();
    let [key, attempt, start, seconds, status, signal] = fields[..] else { return None };
    attempt.parse::<u32>().ok()?;
    start.parse::<f64>().ok()?;
    seconds.parse::<f64>().ok()?;
    let (status, signal): (i32, i32) = (status.parse().ok()?, signal.parse().ok()?);
    Some((unescaped(key)?, status == 0 && signal == 0))
}

/// Escapes bytes as one line of text without tabs: anything but printable UTF-8, and the backslash, becomes
/// `\t`, `\n`, `\r`, `\\` or `\xHH`.
fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str(r"\\"),
                '\t' => out.push_str(r"\t"),
                '\n' => out.push_str(r"\n"),
                '\r' => out.push_str(r"\r"),
                c if c.is_control() => hex(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => out.push(c),
            }
        }
        hex(&mut out, chunk.invalid());
    }
    out
}

fn hex(out: &mut String, bytes: &[u8]) {
    for b in bytes {
        let _ = write!(out, "\\x{b:02x}");
    }
}

/// The inverse of [`escaped`]; `None` if the text is not its output.
fn unescaped(text: &str) -> Option<Key> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c.is_control() {
            return None;
        }
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let (byte, length) = match rest.as_bytes().first()? {
            b'\\' => (b'\\', 1),
            b't' => (b'\t', 1),
            b'n' => (b'\n', 1),
            b'r' => (b'\r', 1),
            b'x' => {
                let digits = rest.get(1..3).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
                (u8::from_str_radix(digits, 16).ok()?, 3)
            }
            _ => return None,
        };
        out.push(byte);
        rest = &rest[length..];
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(key: &[u8], ended: Ended) -> Row<'_> {
        let start = UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        Row { key, attempt: 2, start, took: Duration::from_micros(1_500_000), ended: Some(ended) }
    }

    fn skipped(path: &Path, keys: &[&[u8]]) -> Vec<bool> {
        let mut resume = Resume::read(path).unwrap();
        keys.iter().map(|key| resume.skips(&Piece::Key(key))).collect()
    }

    #[test]
    fn a_row_says_how_its_run_ended() {
        for (ended, end) in [
            (Ended::Exit(0), "0\t0"),
            (Ended::Exit(3), "3\t0"),
            (Ended::Signal(9), "137\t9"),
            (Ended::TimedOut, "124\t15"),
            (Ended::Stopped, "143\t15"),
        ] {
            assert_eq!(ran(b"a b", ended).line(), format!("a b\t2\t1700000000.250000\t1.500000\t{end}\n"));
        }
        assert!(Row { ended: None, ..ran(b"a", Ended::Exit(0)) }.line().ends_with("\t126\t0\n"));
    }

    #[test]
    fn any_bytes_are_a_field_that_is_read_back() {
        let every: Vec<u8> = (0..=255).collect();
        for key in
            [&every[..], b"a\tb\nc\\n", b"\\x41", "k\u{e4}se \u{85}".as_bytes(), b"\xc3", b"#", b"\"q\""]
        {
            let field = escaped(key);
            assert!(!field.chars().any(char::is_control), "{field:?}");
            assert_eq!(unescaped(&field).as_deref(), Some(key), "{field:?}");
        }
        assert_eq!(escaped(b"a\tb\nc\\\xff\x1b"), r"a\tb\nc\\\xff\x1b");
    }

    #[test]
    fn what_is_no_row_is_told_from_rows() {
        for line in [
            "a\t1\t1.5\t0.1\t0",
            "a\t1\t1.5\t0.1\t0\t",
            "a\t1\t1.5\t0.1\t0\t0\t0",
            "a\tx\t1.5\t0.1\t0\t0",
            "a\\\t1\t1.5\t0.1\t0\t0",
            "a\\q\t1\t1.5\t0.1\t0\t0",
            "a\\x4\t1\t1.5\t0.1\t0\t0",
            "a\\x\u{e4}\t1\t1.5\t0.1\t0\t0",
            "\0\0a\t1\t1.5\t0.1\t0\t0",
        ] {
            assert_eq!(row(line.as_bytes()), None, "{line:?}");
        }
        assert_eq!(row(b"\xff\t1\t1.5\t0.1\t0\t0"), None);
        assert_eq!(row(b"\\xff\t1\t1.5\t0.1\t0\t0"), Some((b"\xff".to_vec(), true)));
    }

    #[test]
    fn the_latest_run_of_a_key_decides() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert_eq!(skipped(&path, &[b"a"]), [false], "no file, no rows");
        let log = Joblog::open(&path).unwrap();
        for (key, ended) in [
            (&b"a"[..], Ended::Exit(1)),
            (b"b", Ended::Exit(0)),
            (b"a", Ended::Exit(0)),
            (b"c\n\xff", Ended::Exit(0)),
            (b"b", Ended::Signal(9)),
        ] {
            assert!(log.record(&ran(key, ended)).is_none());
        }
        log.finish().unwrap();
        assert_eq!(skipped(&path, &[b"a", b"b", b"c\n\xff", b"d"]), [true, false, true, false]);
        // It is continued, under its one head.
        Joblog::open(&path).unwrap().record(&ran(b"b", Ended::Exit(0)));
        assert_eq!(skipped(&path, &[b"a", b"b"]), [true, true]);
        assert_eq!(std::fs::read_to_string(&path).unwrap().matches("attempt").count(), 1);
    }

    #[test]
    fn a_key_that_is_passed_over_is_passed_over_as_often_as_it_comes() {
        let mut resume = Resume { well: HashSet::from([b"a".to_vec()]), ..Resume::default() };
        let pieces = [Piece::Key(b"a"), Piece::Repeated, Piece::Key(b"b"), Piece::Repeated, Piece::Key(b"a")];
        assert_eq!(pieces.map(|piece| resume.skips(&piece)), [true, true, false, false, true]);
    }

    #[test]
    fn a_torn_line_costs_its_own_run_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = Joblog::open(&path).unwrap();
        log.record(&ran(b"first", Ended::Exit(0)));
        log.record(&ran(b"torn", Ended::Exit(0)));
        log.finish().unwrap();
        let whole = std::fs::read(&path).unwrap();
        let second = whole.len() - ran(b"torn", Ended::Exit(0)).line().len();
        for cut in second..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let log = Joblog::open(&path).unwrap();
            log.record(&ran(b"later", Ended::Exit(0)));
            log.finish().unwrap();
            // Only the newline is missing of the last: it is a row.
            let expected = [true, cut + 1 == whole.len(), true];
            assert_eq!(skipped(&path, &[b"first", b"torn", b"later"]), expected, "{cut}");
        }
    }

    #[test]
    fn a_head_that_was_torn_is_completed() {
        let dir = tempfile::tempdir().unwrap();
        for cut in 0..HEAD.len() {
            let path = dir.path().join("log");
            std::fs::write(&path, &HEAD[..cut]).unwrap();
            assert_eq!(skipped(&path, &[b"a"]), [false], "{cut}");
            Joblog::open(&path).unwrap().record(&ran(b"a", Ended::Exit(0)));
            assert_eq!(skipped(&path, &[b"a"]), [true], "{cut}");
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn another_file_is_refused_and_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        for text in [&b"some\nkeys\n"[..], b"\xff\xfe\n", b"key\tattempts\n"] {
            std::fs::write(&path, text).unwrap();
            assert!(Joblog::open(&path).unwrap_err().to_string().contains("no joblog"));
            assert!(Resume::read(&path).unwrap_err().to_string().contains("no joblog"));
            assert_eq!(std::fs::read(&path).unwrap(), text);
        }
        assert!(Joblog::open(dir.path()).is_err());
        assert!(Resume::read(dir.path()).is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn rows_that_cannot_be_written_are_told_once_and_counted() {
        let file = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let log = Joblog(Mutex::new(Log { file, torn: false, lost: 0, why: None }));
        let first = log.record(&ran(b"a", Ended::Exit(0))).unwrap();
        assert!(first.to_string().contains("No space left"));
        assert!(log.record(&ran(b"b", Ended::Exit(0))).is_none());
        assert!(log.finish().unwrap_err().to_string().ends_with("; 2 runs are not in it"));
    }
}

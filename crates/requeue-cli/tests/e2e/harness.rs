//! Starting the command, catching it at a point, and seeing how it ended.

use std::fs::File;
use std::io::{Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Only a command that hangs is waited for so long, however slow the machine is.
const PATIENCE: Duration = Duration::from_secs(300);

/// `requeue run` with these arguments.
pub(crate) fn requeue(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.arg("run").args(args);
    command
}

/// `requeue run ARGS sh -c SCRIPT`, with `$D` as a directory; the key is `$REQUEUE_KEY`.
pub(crate) fn script(args: &[&str], dir: &Path, script: &str) -> Command {
    let mut command = requeue(args);
    command.args(["sh", "-c", script]).env("D", dir);
    command
}

/// How the command ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// The exit status, as a shell would say it.
    pub(crate) status: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Done {
    /// Standard output as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    /// Standard output as sorted lines.
    pub(crate) fn lines(&self) -> Vec<&str> {
        let mut lines: Vec<_> = self.text().lines().collect();
        lines.sort_unstable();
        lines
    }

    /// A number of the JSON summary, which must be the last line.
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.summary()[name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", self.err))
    }

    /// The JSON summary.
    pub(crate) fn summary(&self) -> serde_json::Value {
        let line = self.err.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {}", self.err))
    }
}

/// A command that runs.
pub(crate) struct Job {
    child: Child,
    stdin: Option<ChildStdin>,
    out: Reader,
    err: Reader,
}

struct Reader {
    seen: Arc<Mutex<Vec<u8>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn new(pipe: Option<impl Read + Send + 'static>) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&seen);
        let thread = pipe.map(|mut pipe| {
            std::thread::spawn(move || {
                let mut chunk = [0; 4096];
                while let Ok(n @ 1..) = pipe.read(&mut chunk) {
                    theirs.lock().unwrap().extend_from_slice(&chunk[..n]);
                }
            })
        });
        Self { seen, thread }
    }

    fn end(&mut self) -> Vec<u8> {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

/// Starts the command with pipes. What is set on `command` already stays: pass a
/// command with its standard output elsewhere through [`start_as_is`].
pub(crate) fn start(mut command: Command) -> Job {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    start_as_is(command)
}

/// Starts a command whose input and outputs are set.
pub(crate) fn start_as_set(mut command: Command) -> Job {
    let mut child = command.spawn().unwrap();
    Job { stdin: None, out: Reader::new(child.stdout.take()), err: Reader::new(child.stderr.take()), child }
}

/// Whether this process, and so each that it starts, ignores a signal: under nohup the command leaves
/// HUP alone.
pub(crate) fn ignores(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    let mask = mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    mask & (1 << (signal.as_raw() - 1)) != 0
}

/// Starts the command with a pipe as its input.
pub(crate) fn start_as_is(mut command: Command) -> Job {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    Job {
        stdin: child.stdin.take(),
        out: Reader::new(child.stdout.take()),
        err: Reader::new(child.stderr.take()),
        child,
    }
}

impl Job {
    pub(crate) fn send(&mut self, input: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(input).unwrap();
    }

    /// Sends these keys, and waits until the command has put them in its queue.
    ///
    /// The reader takes the next portion only after the previous one, so an empty line (no key) that was read
    /// shows that the keys before it were.
    pub(crate) fn put(&mut self, input: &[u8]) {
        for portion in [input, b"\n"] {
            self.send(portion);
            until("reading", || rustix::io::ioctl_fionread(self.stdin.as_ref().unwrap()).unwrap() == 0);
        }
    }

    pub(crate) fn close(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until standard error has this text.
    pub(crate) fn said(&self, text: &str) {
        self.said_times(text, 1);
    }

    /// Waits until standard error has this text so many times.
    pub(crate) fn said_times(&self, text: &str, times: usize) {
        until(text, || {
            let seen = self.err.seen.lock().unwrap();
            String::from_utf8_lossy(&seen).matches(text).count() >= times
        });
    }

    /// Where it serves its metrics, which it says where the port was left to it.
    pub(crate) fn address(&self) -> String {
        let before = "listening on http://";
        self.said(before);
        until("the end of the line", || {
            let seen = self.err.seen.lock().unwrap();
            String::from_utf8_lossy(&seen).split_once(before).is_some_and(|(_, rest)| rest.contains('\n'))
        });
        let seen = String::from_utf8_lossy(&self.err.seen.lock().unwrap()).into_owned();
        let (_, rest) = seen.split_once(before).unwrap();
        rest.lines().next().unwrap().to_owned()
    }

    /// Whether standard error has this by now.
    pub(crate) fn err_seen(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.err.seen.lock().unwrap()).contains(text)
    }

    /// Whether standard output has this by now.
    pub(crate) fn out_seen(&self, text: &[u8]) -> bool {
        let seen = self.out.seen.lock().unwrap();
        seen.windows(text.len()).any(|w| w == text)
    }

    /// Waits until it has ended; its input may still be open.
    pub(crate) fn done(mut self) -> Done {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > end {
                let _ = self.child.kill();
                let err = self.err.end();
                panic!("the command hangs; it said: {}", String::from_utf8_lossy(&err));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        self.stdin = None;
        Done {
            status: status.code().unwrap_or_else(|| 1000 + status.signal().unwrap()),
            out: self.out.end(),
            err: String::from_utf8(self.err.end()).unwrap(),
        }
    }
}

/// Runs the command on this input.
pub(crate) fn run(command: Command, input: &[u8]) -> Done {
    let mut job = start(command);
    let input = input.to_vec();
    // From a thread: a command that writes before it reads must not block us both.
    let mut stdin = job.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        // A command that does not read to the end is no failure of the test.
        let _ = stdin.write_all(&input);
    });
    let done = job.done();
    feeder.join().unwrap();
    done
}

/// Waits for something that must come.
pub(crate) fn until(what: &str, mut come: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !come() {
        assert!(Instant::now() < end, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Asks a server for a page: its status, its headers and its body.
pub(crate) fn fetch(address: &str, path: &str) -> (u16, String, String) {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    (status, head.to_owned(), body.to_owned())
}

/// A pipe that no other test's command inherits.
pub(crate) fn pipe() -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
}

/// Where programs wait, once each: `cat $D/NAME` blocks until the test lets it go.
pub(crate) struct Gate(PathBuf);

/// A program that waits at the gate, until this is dropped.
#[must_use]
pub(crate) struct Waiting {
    _writer: File,
}

impl Gate {
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        let path = dir.join(name);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, 0o600.into(), 0).unwrap();
        Self(path)
    }

    /// Waits until a program waits at the gate.
    pub(crate) fn reached(&self) -> Waiting {
        use rustix::fs::{Mode, OFlags, open};
        let mut writer = None;
        let end = Instant::now() + PATIENCE;
        while writer.is_none() {
            assert!(Instant::now() < end, "nobody came to {}", self.0.display());
            // Without a reader this fails, so it tells when there is one.
            writer = open(&self.0, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).ok();
        }
        Waiting { _writer: writer.unwrap().into() }
    }
}

/// Whether this process runs. One that is only not yet reaped does not.
pub(crate) fn alive(pid: &str) -> bool {
    match std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())) {
        Ok(stat) => !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'),
        Err(_) => false,
    }
}

/// Makes a file that can be executed, if the system knows how.
///
/// Another process writes it: what a test writes itself is open for a moment in each program that another test starts just
/// then, and a file that somebody has open for writing is not executed ("text file busy").
pub(crate) fn executable(path: &Path, content: &[u8]) {
    let mut cat = Command::new("sh");
    cat.args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"]).arg(path);
    let mut cat = cat.stdin(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(content).unwrap();
    assert!(cat.wait().unwrap().success());
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

pub(crate) fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

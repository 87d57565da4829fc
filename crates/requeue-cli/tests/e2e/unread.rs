//! Standard output without a reader.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;

use crate::harness::{Job, alive, dir, pipe, read, script, start_as_is, until};

/// A pipe that has no room.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = pipe();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while rustix::io::write(&writer, &[b'.'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer)
}

/// `requeue run ARGS sh -c SCRIPT` that writes to `out`.
fn start(args: &[&str], dir: &Path, text: &str, out: OwnedFd) -> Job {
    let mut command = script(args, dir, text);
    command.stdout(out).stderr(Stdio::piped());
    start_as_is(command)
}

/// The columns attempt, status and signal of the joblog, sorted by keys.
fn rows(joblog: &Path) -> Vec<String> {
    let text = read(joblog);
    let columns = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        [columns[0], columns[1], columns[4], columns[5]].join(" ")
    };
    let mut rows: Vec<String> = text.lines().skip(1).map(columns).collect();
    rows.sort();
    rows
}

#[test]
fn runs_that_time_out_end_and_are_told_of_and_the_next_begin_although_nobody_reads() {
    for group in [&[][..], &["--group"]] {
        let dir = dir();
        let joblog = dir.path().join("joblog");
        let (_reader, writer) = full_pipe();
        let limits = ["--timeout", "500ms", "--grace", "10ms", "--max-attempts", "1", "--summary", "json"];
        let args = [&["-j2", "--joblog", joblog.to_str().unwrap()], &limits[..], group].concat();
        let text = "echo out; : > $D/$0; trap '' TERM; while :; do sleep 1; done";
        let mut job = start(&args, dir.path(), text, writer);
        job.send(b"a\nb\nc\nd\n");
        job.close();
        let done = job.done();
        assert_eq!((done.status, done.number("gave_up"), done.number("runs")), (1, 4, 4), "{}", done.err);
        for key in ["a", "b", "c", "d"] {
            // On a busy machine its time may be over before it has written anything.
            let wrote = dir.path().join(key).exists();
            let lost = format!("requeue: {key}: the rest of its output could not be passed on\n");
            assert!(!wrote || done.err.contains(&lost), "{}", done.err);
            let timed_out = format!("requeue: {key}: timed out after 500ms (attempt 1 of 1), gave up\n");
            assert!(done.err.contains(&timed_out), "{}", done.err);
        }
        assert_eq!(rows(&joblog), ["a 1 124 15", "b 1 124 15", "c 1 124 15", "d 1 124 15"]);
    }
}

#[test]
fn what_follows_output_that_was_given_up_in_the_middle_of_a_line_is_a_line() {
    let dir = dir();
    let (reader, writer) = full_pipe();
    rustix::io::read(&reader, &mut [0; 8192]).unwrap();
    // A program that is too slow to write within the time is tried again.
    let text = "[ $0 = a ] || exec echo $0
        [ ! -e $D/wrote ] || exit 0
        printf '%020000d\\n' 0; echo more; : > $D/wrote; exec sleep 1000";
    let args = ["-j1", "--timeout", "2s", "--max-attempts", "20", "--base-delay", "1ms"];
    let mut job = start(&args, dir.path(), text, writer);
    job.send(b"a\n");
    job.said("a: the rest of its output could not be passed on");
    let reads = std::thread::spawn(move || {
        let mut all = Vec::new();
        std::io::Read::read_to_end(&mut std::fs::File::from(reader), &mut all).unwrap();
        String::from_utf8(all).unwrap()
    });
    job.send(b"b\n");
    job.close();
    let done = job.done();
    assert_eq!(done.status, 0, "{}", done.err);
    let all = reads.join().unwrap();
    let (cut, rest) = all.split_once('\n').unwrap();
    let zeros = cut.trim_start_matches('.').len();
    assert!((1..20_000).contains(&zeros), "{zeros}");
    assert_eq!(rest, "b\n");
}

/// Checks the keys of programs that have ended well, but whose output was not read when the command is ended
/// in this way.
fn ends_unheard(more: &[&str], end: impl FnOnce(&mut Job), status: i32) {
    let dir = dir();
    let (joblog, left) = (dir.path().join("joblog"), dir.path().join("left"));
    let (_reader, writer) = full_pipe();
    let files = ["--joblog", joblog.to_str().unwrap(), "--left-to", left.to_str().unwrap()];
    let args = [&["-j3"], &files[..], more].concat();
    let mut job = start(&args, dir.path(), "echo $$ > $D/$0; [ $0 = silent ] || echo out", writer);
    job.send(b"a\nb\nsilent\n");
    for key in ["a", "b"] {
        let pid = dir.path().join(key);
        until("the begin of the program", || read(&pid).ends_with('\n'));
        until("the end of the program", || !alive(&read(&pid)));
    }
    until("the end of the silent run", || read(&joblog).contains("silent"));
    end(&mut job);
    let done = job.done();
    assert_eq!(done.status, status, "{}", done.err);
    for key in ["a", "b"] {
        let said = format!("requeue: {key}: its output could not be passed on (attempt 1 of 5), left");
        assert!(done.err.contains(&said), "{}", done.err);
    }
    let mut keys: Vec<_> = read(&left).lines().map(str::to_owned).collect();
    keys.sort();
    assert_eq!(keys, ["a", "b"]);
    assert_eq!(rows(&joblog), ["a 1 141 13", "b 1 141 13", "silent 1 0 0"]);
}

#[test]
fn a_key_whose_output_was_not_passed_on_before_quit_is_left() {
    for group in [&[][..], &["--group"]] {
        ends_unheard(group, |job| job.signal(Signal::QUIT), 131);
    }
}

#[test]
fn a_key_whose_output_was_not_passed_on_before_a_second_interrupt_is_left() {
    let end = |job: &mut Job| {
        job.signal(Signal::INT);
        job.said("working off");
        job.signal(Signal::INT);
    };
    for group in [&[][..], &["--group"]] {
        ends_unheard(group, end, 130);
    }
}

#[test]
fn a_key_whose_output_was_not_passed_on_before_the_drain_timeout_is_left() {
    for group in [&[][..], &["--group"]] {
        ends_unheard(&[&["--drain-timeout", "1ms"], group].concat(), Job::close, 1);
    }
}

/// Not even where the reader has gone away or the disk is full.
#[test]
fn a_key_whose_output_cannot_be_written_is_left() {
    let (gone, closed) = pipe();
    drop(gone);
    let full: OwnedFd = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into();
    for (out, status) in [(closed, 141), (full, 1)] {
        let dir = dir();
        let (joblog, left) = (dir.path().join("joblog"), dir.path().join("left"));
        // In one piece, or the program may be stopped for it before it has ended.
        let args = ["--group", "--joblog", joblog.to_str().unwrap(), "--left-to", left.to_str().unwrap()];
        let mut job = start(&args, dir.path(), "echo out", out);
        job.send(b"a\n");
        let done = job.done();
        assert_eq!(done.status, status, "{}", done.err);
        assert_eq!((read(&left), rows(&joblog)), ("a\n".to_owned(), vec!["a 1 141 13".to_owned()]));
    }
}

/// Starts `requeue run` with standard error that is not read.
fn start_unheard(args: &[&str], dir: &Path, text: &str, err: OwnedFd) -> Job {
    let mut command = script(args, dir, text);
    command.stdout(Stdio::null()).stderr(err);
    start_as_is(command)
}

/// The program's process, which has written its number into this file.
fn begun(dir: &Path) -> String {
    let pid = dir.join("pid");
    until("the begin of the program", || read(&pid).ends_with('\n'));
    read(&pid).trim().to_owned()
}

#[test]
fn the_drain_timeout_stops_what_runs_although_nobody_reads_the_messages() {
    let dir = dir();
    let (_reader, writer) = full_pipe();
    let text = "echo $$ > $D/pid; exec sleep 1000";
    let mut job = start_unheard(&["--drain-timeout", "1s"], dir.path(), text, writer);
    job.send(b"a\n");
    let pid = begun(dir.path());
    job.close();
    assert_eq!(job.done().status, 1);
    until("the program's death", || !alive(&pid));
}

#[test]
fn a_stopped_program_ends_when_its_time_is_over_although_nobody_reads_the_messages() {
    let dir = dir();
    let (reader, writer) = full_pipe();
    // A program that is too slow to begin within the time is tried again.
    let args = ["--timeout", "2s", "--max-attempts", "20", "--base-delay", "1ms"];
    let text = "[ ! -s $D/pid ] || exit 0; echo $$ > $D/pid; kill -STOP $$";
    let mut job = start_unheard(&args, dir.path(), text, writer);
    job.send(b"a\n");
    let pid = begun(dir.path());
    until("the end of the program", || !alive(&pid));
    drop(reader);
    job.close();
    job.done();
}

#[test]
fn a_stopped_program_ends_with_the_first_signal_although_nobody_reads_the_messages() {
    let dir = dir();
    let (reader, writer) = full_pipe();
    let full = rustix::io::ioctl_fionread(&reader).unwrap();
    let mut job = start_unheard(&["--log", "json"], dir.path(), "echo $$ > $D/pid; kill -STOP $$", writer);
    // There is room for the begin of the message, which has the whole key in it.
    rustix::io::read(&reader, &mut [0; 4096]).unwrap();
    job.send(&[&[b'k'; 20_000][..], b"\n"].concat());
    let pid = begun(dir.path());
    until("the begin of the message", || rustix::io::ioctl_fionread(&reader).unwrap() == full);
    job.signal(Signal::INT);
    until("the end of the program", || !alive(&pid));
    drop(reader);
    job.done();
}

#[test]
fn runs_that_time_out_are_booked_and_the_next_begin_although_nobody_reads_the_messages() {
    let dir = dir();
    let joblog = dir.path().join("joblog");
    let (reader, writer) = full_pipe();
    let args = ["-j1", "--timeout", "500ms", "--max-attempts", "1", "--joblog", joblog.to_str().unwrap()];
    let mut job = start_unheard(&args, dir.path(), "echo lost >&2; exec sleep 1000", writer);
    job.send(b"a\nb\n");
    until("both rows", || read(&joblog).lines().count() == 3);
    assert_eq!(rows(&joblog), ["a 1 124 15", "b 1 124 15"]);
    drop(reader);
    job.close();
    job.done();
}

//! The programs' output.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::harness::{Gate, alive, dir, pipe, read, requeue, run, script, start, start_as_is, until};

#[test]
fn lines_of_different_keys_never_mix() {
    // Each line comes in three writes, on both outputs, from eight at a time.
    let text = "i=0; while [ $i -lt 60 ]; do
        printf '%s' $REQUEUE_KEY; printf '%s' -$REQUEUE_KEY; printf -- '-%s\\n' $i
        printf '%s' $REQUEUE_KEY >&2; printf -- '-%s\\n' $i >&2
        i=$((i+1)); done";
    let input: String = (0..24).map(|k| format!("key{k}\n")).collect();
    let done = run(script(&["-j8", "-q"], std::path::Path::new("."), text), input.as_bytes());
    assert_eq!(done.status, 0);
    let mut next: HashMap<String, u32> = HashMap::new();
    for line in done.text().lines() {
        let parts: Vec<_> = line.split('-').collect();
        assert!(parts.len() == 3 && parts[0] == parts[1], "{line}");
        let i = next.entry(parts[0].to_owned()).or_default();
        assert_eq!(parts[2], i.to_string(), "{line}");
        *i += 1;
    }
    assert!(next.len() == 24 && next.values().all(|n| *n == 60));
    let mut count = 0;
    for line in done.err.lines() {
        let (key, i) = line.split_once('-').unwrap();
        assert!(next.contains_key(key) && i.parse::<u32>().is_ok(), "{line}");
        count += 1;
    }
    assert_eq!(count, 24 * 60);
}

#[test]
fn a_last_line_without_newline_is_a_line() {
    let done = run(requeue(&["-j1", "printf", "%s"]), b"a\nb\nc\n");
    assert_eq!(done.text(), "a\nb\nc\n");
}

#[test]
fn lines_come_out_while_the_program_still_runs() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut command = script(&[], dir.path(), "echo now; cat $D/gate");
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"a\n").unwrap();
    let waiting = gate.reached();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "now\n");
    drop(waiting);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_tag_stands_in_front_of_every_line_of_both_outputs() {
    let done = run(requeue(&["--tag", "-q", "sh", "-c", "echo 1; echo; printf 2; echo e >&2"]), b"k 1\n");
    assert_eq!(done.text(), "k 1\t1\nk 1\t\nk 1\t2\n");
    assert_eq!(done.err, "k 1\te\n");
}

#[test]
fn output_is_passed_on_byte_by_byte_as_it_is() {
    let done = run(requeue(&["-q", "printf", r"a\0\377\r\n\n{}"]), b"k\n");
    assert_eq!(done.out, b"a\0\xff\r\n\nk\n");
    let done = run(requeue(&["-q", "head", "-c", "3000000", "/dev/zero", "--"]), b"/dev/null\n");
    // /dev/null follows as a second file: head names both.
    assert!(done.out.len() > 3_000_000);
}

#[test]
fn a_line_without_end_is_cut_and_takes_no_memory() {
    let mib = 1 << 20;
    let dir = dir();
    let mut job =
        start(script(&["-q"], dir.path(), "head -c 100000000 /dev/zero; echo $PPID > $D/pid; cat $D/gate"));
    let gate = Gate::new(dir.path(), "gate");
    job.send(b"k\n");
    job.close();
    let waiting = gate.reached();
    let status = read(format!("/proc/{}/status", job.pid()));
    let peak = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
    let peak: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(peak < 40_000, "{peak} kB");
    drop(waiting);
    let done = job.done();
    let lines: Vec<_> = done.out.split(|b| *b == b'\n').collect();
    assert!(lines[..95].iter().all(|l| l.len() == mib));
    let zeros = done.out.iter().filter(|b| **b == 0).count();
    assert_eq!(zeros, 100_000_000);
}

#[test]
fn a_closed_output_ends_quietly_with_141_and_stops_the_programs() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut command = script(
        &["-j2"],
        dir.path(),
        "case $REQUEUE_KEY in
           sleeper) echo $$ > $D/pid; cat $D/gate; sleep 1000;;
           *) while echo line; do :; done;;
         esac",
    );
    command.stderr(Stdio::piped());
    // Reads one line and goes away, as `head -1` does.
    let (reader, writer) = pipe();
    command.stdout(writer);
    let head = std::thread::spawn(move || {
        let mut line = String::new();
        BufReader::new(std::fs::File::from(reader)).read_line(&mut line).unwrap();
        line
    });
    let mut job = start_as_is(command);
    job.send(b"sleeper\n");
    drop(gate.reached());
    job.send(b"talker\n");
    // The input stays open: its end is not waited for.
    let done = job.done();
    assert_eq!((done.status, done.err.as_str()), (141, ""));
    assert_eq!(head.join().unwrap(), "line\n");
    let pid = read(dir.path().join("pid"));
    until("the sleeper's death", || !alive(&pid));
}

#[test]
fn a_full_disk_under_standard_output_is_said() {
    let mut command = requeue(&["-j1", "echo"]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    command.stdout(full).stderr(Stdio::piped());
    let mut job = start_as_is(command);
    job.send(b"a\n");
    let done = job.done();
    assert_eq!(done.status, 1);
    assert!(done.err.contains("standard output: No space left on device"), "{}", done.err);
    assert!(!done.err.contains("panic"), "{}", done.err);
}

#[test]
fn a_full_disk_under_standard_error_hinders_no_run() {
    let dir = dir();
    let mut command = script(&["--base-delay", "1ms"], dir.path(), "echo x >&2; [ $REQUEUE_ATTEMPT = 2 ]");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    command.stdout(Stdio::piped()).stderr(full);
    let mut job = start_as_is(command);
    job.send(b"a\n");
    job.close();
    assert_eq!(job.done().status, 0);
}

#[test]
fn a_reader_that_does_not_read_does_not_keep_the_command_alive() {
    let dir = dir();
    let (reader, writer) = pipe();
    let mut command = script(&[], dir.path(), "echo $$ > $D/pid; while :; do echo line; done");
    command.stdout(writer.try_clone().unwrap()).stderr(Stdio::piped());
    let mut job = start_as_is(command);
    job.send(b"a\n");
    // When its pipe is full the program waits in write, and so does the command.
    until("a full pipe", || {
        let mut fds = [PollFd::new(&writer, PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 0
    });
    job.signal(rustix::process::Signal::INT);
    job.said("once more");
    job.signal(rustix::process::Signal::INT);
    let done = job.done();
    assert_eq!(done.status, 130, "{}", done.err);
    let pid = read(dir.path().join("pid"));
    until("the program's death", || !alive(&pid));
    drop(reader);
}

#[test]
fn a_time_out_holds_while_standard_output_is_not_read() {
    let dir = dir();
    let (reader, writer) = pipe();
    // One waits for the reader, the other for the one who does.
    let args = ["-j2", "--timeout", "1s", "--grace", "10ms", "--max-attempts", "1"];
    let mut command = script(&args, dir.path(), "echo $$ > $D/$0; trap '' TERM; while :; do echo line; done");
    command.stdout(writer).stderr(Stdio::piped());
    let mut job = start_as_is(command);
    job.send(b"a\nb\n");
    job.close();
    for key in ["a", "b"] {
        // On a busy machine its time may be over before it has written anything.
        let ended = format!("{key}: timed out");
        let begun = || read(dir.path().join(key)).ends_with('\n');
        until("the begin of the program", || begun() || job.err_seen(&ended));
        let pid = read(dir.path().join(key));
        until("the end of the program", || !alive(&pid));
    }
    let reads =
        std::thread::spawn(move || std::io::copy(&mut std::fs::File::from(reader), &mut std::io::sink()));
    let done = job.done();
    assert_eq!(done.status, 1, "{}", done.err);
    for key in ["a", "b"] {
        assert!(done.err.contains(&format!("gave up: {key}: timed out after 1s")), "{}", done.err);
    }
    reads.join().unwrap().unwrap();
}

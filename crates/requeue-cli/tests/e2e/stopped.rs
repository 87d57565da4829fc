//! Programs that somebody stopped.

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Job, alive, dir, ignores, read, run, script, start, until};

/// Starts a program that stops itself by this signal, and waits for the message about it.
fn stopped(args: &[&str], signal: &str, dir: &std::path::Path) -> (Job, String) {
    let text = "echo $$ > $D/pid; kill -$S $$; echo went on";
    let mut command = script(args, dir, text);
    command.env("S", signal);
    let mut job = start(command);
    job.send(b"a\n");
    job.said(&format!(
        "requeue: a: the program was stopped by SIG{signal}; let it go on with kill -CONT -- -"
    ));
    (job, read(dir.join("pid")).trim().to_owned())
}

#[test]
fn a_program_that_was_stopped_is_told_of_once_and_goes_on_when_it_is_continued() {
    for signal in ["STOP", "TSTP"] {
        let dir = dir();
        let (mut job, pid) = stopped(&[], signal, dir.path());
        kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::CONT).unwrap();
        job.close();
        let done = job.done();
        assert_eq!((done.status, done.text()), (0, "went on\n"), "{}", done.err);
        assert_eq!(done.err.matches("was stopped by").count(), 1, "{}", done.err);
        assert!(done.err.contains(&format!("kill -CONT -- -{pid}, or use --timeout\n")), "{}", done.err);
    }
}

#[test]
fn a_stopped_program_ends_when_its_time_is_over() {
    let dir = dir();
    // A program that is too slow to begin within the time is tried again.
    let text = "[ ! -s $D/pid ] || exit 0; echo $$ > $D/pid; kill -STOP $$";
    let args = ["--timeout", "2s", "--max-attempts", "20", "--base-delay", "1ms"];
    let done = run(script(&args, dir.path(), text), b"a\n");
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.err.contains("a: timed out after 2s (attempt 1 of 20)"), "{}", done.err);
    let pid = read(dir.path().join("pid"));
    until("the program's death", || !alive(&pid));
}

#[test]
fn no_stopped_program_outlives_a_command_that_is_told_to_end() {
    let hup = (!ignores(Signal::HUP)).then_some((Signal::HUP, 129));
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)].into_iter().chain(hup) {
        let dir = dir();
        let (job, pid) = stopped(&[], "STOP", dir.path());
        job.signal(signal);
        let done = job.done();
        assert_eq!(done.status, status, "{}", done.err);
        assert!(done.err.contains("a: stopped, left"), "{}", done.err);
        until("the program's death", || !alive(&pid));
    }
}

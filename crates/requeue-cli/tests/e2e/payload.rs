//! Values behind the keys: `--merge`.

use std::path::Path;

use rustix::process::Signal;

use crate::harness::{Gate, dir, read, requeue, run, script, start};

const TELLS: &str = "case $REQUEUE_KEY in gate) cat $D/gate;; esac
    printf '%s=[%s]\\n' $REQUEUE_KEY \"${REQUEUE_PAYLOAD-unset}\" >> $D/ran";

/// The payloads of lines that come while the only worker is busy.
fn told(merge: &str, lines: &[u8]) -> String {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut command = script(&["--merge", merge, "-j1"], dir.path(), TELLS);
    // the variable of our own environment is not the key's payload
    command.env("REQUEUE_PAYLOAD", "inherited");
    let mut job = start(command);
    job.put(b"gate\n");
    let waiting = gate.reached();
    job.put(lines);
    drop(waiting);
    job.close();
    let done = job.done();
    assert_eq!(done.status, 0, "{}", done.err);
    read(dir.path().join("ran"))
}

#[test]
fn the_values_of_one_run_are_merged_as_the_option_says() {
    let lines = b"a\tone\nb\na\ttwo words\na\ttwo words\nc\t\na\n";
    assert_eq!(told("last", lines), "gate=[unset]\na=[two words]\nb=[unset]\nc=[]\n");
    assert_eq!(told("concat", lines), "gate=[unset]\na=[one\ntwo words\ntwo words]\nb=[unset]\nc=[]\n");
    assert_eq!(told("count", lines), "gate=[1]\na=[4]\nb=[1]\nc=[1]\n");
}

#[test]
fn without_the_option_the_value_is_part_of_the_key() {
    let done = run(requeue(&["-j1", "sh", "-c", "echo \"$1=${REQUEUE_PAYLOAD-unset}\"", "sh"]), b"a\tb\n");
    assert_eq!((done.status, done.text()), (0, "a\tb=unset\n"));
}

#[test]
fn a_run_that_comes_later_has_the_value_of_the_one_before_and_then_what_came_meanwhile() {
    let retry = &["--base-delay", "0s", "--jitter", "0"][..];
    for (status, args) in [
        (1, retry),
        (1, &["--rate", "1000", "--base-delay", "0s", "--jitter", "0"]),
        (75, &["--again-after", "0s"]),
        (75, &["--again-after", "0s", "--limiter", "fast-slow:fast=1s,slow=1m,after=3"]),
    ] {
        let dir = dir();
        let gate = Gate::new(dir.path(), "gate");
        let text = format!(
            "mkdir $D/begun 2>/dev/null && {{ cat $D/gate; exit {status}; }}
            printf '%s\\n' \"$REQUEUE_PAYLOAD\" >> $D/ran"
        );
        let args = [&["--merge", "concat", "-j1"], args].concat();
        let mut job = start(script(&args, dir.path(), &text));
        job.put(b"a\tone\n");
        let waiting = gate.reached();
        job.put(b"a\ttwo\na\tthree\n");
        job.close();
        drop(waiting);
        assert_eq!(job.done().status, 0);
        assert_eq!(read(dir.path().join("ran")), "one\ntwo\nthree\n", "{args:?}");
    }
}

#[test]
fn an_end_with_75_leaves_the_values_to_the_run_that_comes_after_the_delay() {
    for state in [false, true] {
        let dir = dir();
        let file = path(dir.path(), "q.db");
        let keeps = if state { &["--state", &file][..] } else { &[] };
        let args = [&["--merge", "concat", "-j1", "--again-after", "1ms"], keeps].concat();
        let text = "printf '%s\\n' \"$REQUEUE_PAYLOAD\" >> $D/ran; [ $(wc -l < $D/ran) = 3 ] || exit 75";
        let done = run(script(&args, dir.path(), text), b"a\tone\n");
        assert_eq!((done.status, read(dir.path().join("ran"))), (0, "one\n".repeat(3)), "{}", done.err);
    }
}

#[test]
fn values_that_an_end_with_75_has_left_are_in_the_file_of_what_was_left() {
    let dir = dir();
    let left = path(dir.path(), "left");
    let options = ["--merge", "concat", "-j1", "--again-after", "1h", "--left-to", &left];
    let mut job = start(script(&options, dir.path(), "exit 75"));
    job.send(b"a\tone\n");
    job.said("a: not yet, again in 1h");
    job.signal(Signal::INT);
    assert_eq!((job.done().status, read(&left)), (130, "a\tone\n".into()));
}

#[test]
fn a_run_has_the_values_since_the_last_one_began() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let text = "printf '%s\\n' \"$REQUEUE_PAYLOAD\" >> $D/ran; [ $REQUEUE_PAYLOAD != one ] || cat $D/gate";
    let mut job = start(script(&["--merge", "concat", "-j1"], dir.path(), text));
    job.put(b"a\tone\n");
    let waiting = gate.reached();
    job.put(b"a\ttwo\n");
    job.close();
    drop(waiting);
    assert_eq!(job.done().status, 0);
    assert_eq!(read(dir.path().join("ran")), "one\ntwo\n");
}

#[test]
fn values_wait_for_quiet_with_their_key_and_run_at_the_end() {
    let dir = dir();
    let args = ["--merge", "concat", "--debounce", "1h", "--debounce-max", "1h", "-j1"];
    let text = "printf '%s\\n' \"$REQUEUE_PAYLOAD\" >> $D/ran";
    let mut job = start(script(&args, dir.path(), text));
    job.put(b"a\tone\na\ttwo\n");
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 143, "the input had not ended");
    assert_eq!(read(dir.path().join("ran")), "one\ntwo\n");
}

#[test]
fn a_value_that_no_program_can_get_makes_its_key_give_up() {
    let long = "v".repeat(200_000);
    let input = format!("long\t{long}\nnul\ta\0b\nwell\tv\n\tno key\n");
    let args = ["--merge", "last", "-j1", "--summary", "json", "echo"];
    let done = run(requeue(&args), input.as_bytes());
    assert_eq!((done.status, done.text()), (1, "well\n"), "{}", done.err);
    for why in [
        "long: the values are longer than the system can pass to a program in one variable; gave up",
        "nul: the value holds a NUL, which no variable can; gave up",
        "with --merge a line is the key, a tab, and a value: before the tab there is no key; gave up",
    ] {
        assert!(done.err.contains(why), "{}", done.err);
    }
    assert_eq!((done.number("keys"), done.number("runs"), done.number("gave_up")), (4, 1, 3));
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().unwrap().to_owned()
}

#[test]
fn the_file_of_those_that_gave_up_has_their_priorities_and_values() {
    for (merge, lines) in [
        ("last", "7\ta\ttwo\n-3\tb\n"),
        ("concat", "7\ta\tone\n7\ta\ttwo\n-3\tb\n"),
        ("count", "7\ta\n7\ta\n-3\tb\n"),
    ] {
        let dir = dir();
        let gate = Gate::new(dir.path(), "gate");
        let failed = path(dir.path(), "failed");
        let text = "case $REQUEUE_KEY in gate) cat $D/gate;; *) exit 1;; esac";
        let args = ["--merge", merge, "--priority", "-j1", "--max-attempts", "1", "--failed-to", &failed];
        let mut job = start(script(&args, dir.path(), text));
        job.put(b"9\tgate\n");
        let waiting = gate.reached();
        job.put(b"-3\ta\tone\n7\ta\ttwo\n-3\tb\nno number\n");
        job.close();
        drop(waiting);
        assert_eq!(job.done().status, 1);
        // the line that was none stands as it was
        assert_eq!(read(&failed), format!("no number\n{lines}"), "{merge}");
    }
}

#[test]
fn the_file_of_those_that_were_left_has_their_priorities_and_values() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let left = path(dir.path(), "left");
    let text = "case $REQUEUE_KEY in
        fails) exit 1;;
        held) cat $D/gate; exec sleep 1000;;
        esac";
    let options = ["--merge", "concat", "--priority", "-j1", "--left-to", &left];
    // a trigger for a key in back-off waits with it
    let waits = ["--base-delay", "1h", "--max-delay", "1h", "--in-backoff", "respect"];
    let mut job = start(script(&[&options[..], &waits].concat(), dir.path(), text));
    job.send(b"4\tfails\tone\n");
    job.said("again in 1h");
    job.send(b"1\tfails\ttwo\n0\theld\tv\n");
    drop(gate.reached());
    job.put(b"2\tready\tfirst\n3\tready\tsecond\n0\theld\tmore\n");
    job.signal(Signal::INT);
    job.said("working off");
    job.signal(Signal::INT);
    assert_eq!(job.done().status, 130);
    let lines =
        "4\tfails\tone\n4\tfails\ttwo\n0\theld\tv\n0\theld\tmore\n3\tready\tfirst\n3\tready\tsecond\n";
    assert_eq!(read(&left), lines);
}

#[test]
fn a_value_whose_retry_is_refused_goes_to_the_run_that_the_key_still_has() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let left = path(dir.path(), "left");
    let text = "printf '%s;' $REQUEUE_PAYLOAD >> $D/ran; [ \"$REQUEUE_PAYLOAD\" != one ] || { cat $D/gate; exit 1; }";
    let mut job = start(script(&["--merge", "concat", "-j1", "--left-to", &left], dir.path(), text));
    job.put(b"a\tone\n");
    let waiting = gate.reached();
    job.put(b"a\ttwo\n");
    job.signal(Signal::INT);
    job.said("working off");
    drop(waiting);
    assert_eq!(job.done().status, 130);
    assert_eq!((read(dir.path().join("ran")), read(&left)), ("one;one;two;".into(), String::new()));
}

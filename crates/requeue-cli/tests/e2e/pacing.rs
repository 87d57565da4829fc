//! How often runs start, and when they are retried.

use rustix::process::Signal;

use crate::harness::{dir, read, requeue, run, script, start};

/// A second run starts when this test is long forgotten.
const HARDLY_EVER: &str = "0.000001";

#[test]
fn a_rate_holds_for_the_starts_of_all_runs_and_a_duplicate_costs_nothing() {
    let mut job =
        start(requeue(&["-j4", "--rate", HARDLY_EVER, "--log", "json", "--summary", "json", "echo"]));
    job.send(b"first\n");
    job.said("\"event\":\"done\"");
    for _ in 0..10 {
        job.put(b"second\n");
    }
    job.put(b"third\n");
    job.signal(Signal::INT);
    job.said("working off");
    job.signal(Signal::INT);
    let done = job.done();
    assert_eq!(done.text(), "first\n", "{}", done.err);
    assert_eq!((done.number("runs"), done.number("left"), done.number("keys")), (1, 2, 3));
    assert_eq!((done.number("triggers"), done.number("coalesced")), (12, 9));
}

#[test]
fn a_rate_counts_retries_too() {
    let dir = dir();
    let args = ["--rate", HARDLY_EVER, "--base-delay", "0s", "--summary", "json", "--drain-timeout", "100ms"];
    let mut job = start(script(&args, dir.path(), "echo $REQUEUE_ATTEMPT; exit 1"));
    job.send(b"a\n");
    // the time for the rest counts from the end of the input
    job.said("a: exit status 1");
    job.close();
    let done = job.done();
    assert_eq!((done.status, done.text()), (1, "1\n"), "{}", done.err);
    assert_eq!((done.number("runs"), done.number("retries"), done.number("left")), (1, 1, 1));
}

#[test]
fn runs_start_at_the_rate() {
    let input: String = (0..21).map(|i| format!("{i}\n")).collect();
    let done = run(requeue(&["-j8", "--rate", "100", "--summary", "json", "true"]), input.as_bytes());
    assert_eq!((done.status, done.number("runs")), (0, 21), "{}", done.err);
    // Twenty tokens of 10 ms after the first: it may take longer, and never less.
    assert!(done.summary()["wall_seconds"].as_f64().unwrap() >= 0.2, "{}", done.err);
}

#[test]
fn a_rate_may_be_that_of_a_minute_and_the_end_does_not_wait_for_it() {
    let mut job = start(requeue(&["-j4", "--rate", "1/m", "--log", "json", "--summary", "json", "echo"]));
    job.send(b"first\nsecond\nthird\n");
    job.said("\"event\":\"done\"");
    job.signal(Signal::INT);
    job.said("working off");
    job.signal(Signal::INT);
    let done = job.done();
    assert_eq!((done.text(), done.number("left")), ("first\n", 2), "{}", done.err);
    assert!(done.summary()["wall_seconds"].as_f64().unwrap() < 50.0, "{}", done.err);
}

#[test]
fn a_limiter_says_when_a_key_is_retried() {
    let dir = dir();
    let args = ["-j1", "--max-attempts", "0", "--limiter", "fast-slow:fast=1ms,slow=2h,after=2"];
    let mut job = start(script(&args, dir.path(), "echo $REQUEUE_FAILURES; exit 1"));
    job.send(b"a\n");
    job.said("again in 2h");
    job.signal(Signal::INT);
    let done = job.done();
    assert_eq!(done.text(), "0\n1\n2\n", "{}", done.err);
    assert_eq!(done.err.matches("again in 1ms").count(), 2, "{}", done.err);
}

#[test]
fn a_trigger_for_a_key_that_waits_for_a_retry_does_what_in_backoff_says() {
    let dir = dir();
    for (said, runs) in [
        (&[][..], "a 1 0\na 1 1\nb 1 0\n"),
        (&["--in-backoff", "run"], "a 1 0\na 1 1\nb 1 0\n"),
        (&["--in-backoff", "respect"], "a 1 0\nb 1 0\n"),
        (&["--in-backoff", "reset"], "a 1 0\na 1 0\nb 1 0\n"),
    ] {
        let args = [&["-j1", "--base-delay", "1h", "--max-delay", "1h", "--jitter", "0"], said].concat();
        let program = "echo $REQUEUE_KEY $REQUEUE_ATTEMPT $REQUEUE_FAILURES; [ $REQUEUE_KEY = b ]";
        let mut job = start(script(&args, dir.path(), program));
        job.send(b"a\n");
        job.said("again in 1h");
        job.send(b"a\nb\n");
        crate::harness::until("the run of b", || job.out_seen(b"b 1 0\n"));
        job.signal(Signal::INT);
        let done = job.done();
        assert_eq!(done.text(), runs, "{said:?}: {}", done.err);
    }
}

#[test]
fn failures_are_counted_whatever_the_limiter_counts() {
    let dir = dir();
    let args = [
        "-j1",
        "--max-attempts",
        "4",
        "--limiter",
        "max-of(bucket(rate=1000,burst=5),window:period=1s,quota=9)",
    ];
    let done = run(script(&args, dir.path(), "echo $REQUEUE_FAILURES >> $D/failures; exit 1"), b"a\n");
    assert_eq!(done.status, 1, "{}", done.err);
    assert_eq!(read(dir.path().join("failures")), "0\n1\n2\n3\n");
}

#[test]
fn a_limiter_that_is_none_is_refused_with_what_would_be_right() {
    for (text, says) in [
        ("exponentail", "there is no limiter \"exponentail\"; there are bucket,"),
        ("fast-slow", "fast-slow needs --fast"),
        ("jitter", "jitter needs"),
        ("exponential:base=2s,max=1s", "it must be at least as long"),
        ("bucket:rate=0", "more than 0 calls"),
        ("bucket:rate=1e-300,burst=1", "in digits"),
    ] {
        let done = run(requeue(&["--limiter", text, "echo"]), b"a\n");
        assert_eq!((done.status, done.text()), (2, ""), "{text}: {}", done.err);
        assert!(done.err.contains(says), "{text}: {}", done.err);
    }
}

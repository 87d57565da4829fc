//! `--listen`: what is served, to whom, and who cannot stop it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use rustix::process::Signal;

use crate::harness::{Gate, dir, fetch, requeue, run, script, start, until};

/// The value of a series of the one queue.
fn sample(address: &str, metric: &str) -> f64 {
    let (status, _, body) = fetch(address, "/metrics");
    assert_eq!(status, 200, "{body}");
    let series = match metric.split_once('{') {
        None => format!("{metric}{{name=\"run\"}} "),
        Some((metric, labels)) => format!("{metric}{{name=\"run\",{labels} "),
    };
    let line = body.lines().find_map(|line| line.strip_prefix(&series[..]));
    line.unwrap_or_else(|| panic!("no {series}in {body}")).parse().unwrap()
}

#[test]
fn metrics_equal_the_run_and_its_summary() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let args = ["--listen", "0", "-j1", "--max-attempts", "2", "--base-delay", "1ms", "--summary", "json"];
    let text = "case $REQUEUE_KEY in gate) cat $D/gate;; bad) exit 1;; *) exit 0;; esac";
    let mut job = start(script(&args, dir.path(), text));
    let address = job.address();
    job.put(b"gate\n");
    let waiting = gate.reached();
    job.put(b"a\na\nb\nbad\na\n");
    let now = |metric: &str| sample(&address, metric);
    assert_eq!(now("workqueue_depth"), 3.0);
    assert_eq!((now("requeue_held_keys"), now("requeue_waiting_keys")), (1.0, 0.0));
    assert_eq!((now("requeue_workers"), now("requeue_busy_workers")), (1.0, 1.0));
    assert!(now("workqueue_longest_running_processor_seconds") > 0.0);
    assert!(now("requeue_oldest_ready_seconds") > 0.0);
    drop(waiting);
    until("the last end", || now("requeue_runs_total{outcome=\"give_up\"}") == 1.0);
    until("a worker at rest", || now("requeue_busy_workers") == 0.0);
    assert_eq!((now("workqueue_depth"), now("requeue_held_keys")), (0.0, 0.0));
    let seen = ["adds_total", "queue_duration_seconds_count", "work_duration_seconds_count", "retries_total"]
        .map(|metric| now(&format!("workqueue_{metric}")) as u64);
    let coalesced = now("requeue_coalesced_triggers_total") as u64;
    let done = now("requeue_runs_total{outcome=\"done\"}") as u64;
    job.close();
    let ended = job.done();
    assert_eq!(ended.status, 1);
    let [triggers, runs, retries, gave_up] =
        ["triggers", "runs", "retries", "gave_up"].map(|name| ended.number(name));
    assert_eq!(seen, [triggers - coalesced + retries, runs, runs, retries]);
    assert_eq!((coalesced, runs, gave_up), (ended.number("coalesced"), 5, 1));
    assert_eq!(done, runs - retries - gave_up);
}

#[test]
fn health_is_ok_until_the_end_and_says_when_it_begins() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = start(script(&["--listen", ":0", "-j1"], dir.path(), "cat $D/gate"));
    let address = job.address();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    job.put(b"a\n");
    let waiting = gate.reached();
    let (status, head, body) = fetch(&address, "/healthz");
    assert_eq!((status, body.as_str()), (200, "ok\n"));
    assert!(head.contains("Content-Type: text/plain"), "{head}");
    job.close();
    until("the end", || fetch(&address, "/healthz").2 == "draining\n");
    assert_eq!(fetch(&address, "/healthz").0, 200, "it works off what is left");
    assert_eq!(sample(&address, "requeue_held_keys"), 1.0);
    drop(waiting);
    assert_eq!(job.done().status, 0);
}

#[test]
fn other_pages_are_not_there() {
    let mut job = start(requeue(&["--listen", "0", "true"]));
    let address = job.address();
    assert!(
        fetch(&address, "/metrics").1.contains("Content-Type: application/openmetrics-text; version=1.0.0")
    );
    for path in ["/", "/metrics/", "/health", "/../metrics"] {
        let (status, _, body) = fetch(&address, path);
        assert_eq!((status, body.as_str()), (404, "there are /metrics and /healthz\n"), "{path}");
    }
    assert_eq!(fetch(&address, "/metrics?name=run").0, 200);
    job.close();
    assert_eq!(job.done().status, 0);
}

#[test]
fn a_port_in_use_is_one_error_and_nothing_runs() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let done = run(requeue(&["--listen", &address, "echo"]), b"a\n");
    let expected =
        format!("requeue: --listen {address} is in use: give another port, or 0 for one that is free\n");
    assert_eq!((done.status, done.text(), done.err.as_str()), (2, "", expected.as_str()));
}

#[test]
fn an_address_of_another_machine_is_an_error() {
    // one of those that are for documentation only
    let done = run(requeue(&["--listen", "192.0.2.1:9090", "echo"]), b"a\n");
    assert_eq!((done.status, done.text()), (2, ""));
    assert!(done.err.starts_with("requeue: --listen 192.0.2.1:9090: "), "{}", done.err);
    assert_eq!(done.err.lines().count(), 1);
}

#[test]
fn a_bad_address_says_what_would_be_right() {
    for bad in ["nowhere", "127.0.0.1", "1.2.3.4:99999", "-1"] {
        let done = run(requeue(&["--listen", bad, "echo"]), b"");
        assert_eq!((done.status, done.text()), (2, ""), "{bad}");
        assert!(done.err.contains("--listen") && done.err.contains("such as 9090"), "{}", done.err);
    }
}

#[test]
fn slow_clients_and_many_of_them_hold_nobody_up() {
    let mut job = start(requeue(&["--listen", "0", "-j1", "true"]));
    let address = job.address();
    // more clients than are served at a time: some send half a request, and some none
    let mut slow = Vec::new();
    for n in 0..150 {
        let mut stream = TcpStream::connect(&address).unwrap();
        if n % 2 == 0 {
            // one that was ousted meanwhile may already be closed
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX-Slow: ");
        }
        slow.push(stream);
    }
    assert_eq!(fetch(&address, "/healthz").2, "ok\n");
    job.put(b"a\nb\n");
    until("both runs", || sample(&address, "workqueue_work_duration_seconds_count") == 2.0);
    // a request that never ends is told so
    let mut endless = TcpStream::connect(&address).unwrap();
    let _ = endless.write_all(&[b"GET / HTTP/1.1\r\nX: ", &[b'x'; 16 * 1024][..]].concat());
    let mut answer = String::new();
    endless.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    job.close();
    assert_eq!(job.done().status, 0, "and the end waits for none of them");
    drop(slow);
}

#[test]
fn a_second_signal_ends_it_with_clients_connected() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = start(script(&["--listen", "0", "-j1"], dir.path(), "exec cat $D/gate"));
    let address = job.address();
    let client = TcpStream::connect(&address).unwrap();
    job.put(b"a\n");
    let waiting = gate.reached();
    job.signal(Signal::TERM);
    job.said("once more to stop");
    job.signal(Signal::TERM);
    assert_eq!(job.done().status, 143);
    drop((client, waiting));
}

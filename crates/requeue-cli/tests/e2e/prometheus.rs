//! A real Prometheus scrapes a real run. Where there is none (Debian's package
//! `prometheus`) this says so and shows nothing; CI installs it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::harness::{Gate, dir, read, script, start, until};

/// A Prometheus of our own, until this is dropped.
struct Prometheus {
    child: Child,
    address: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// Starts it on a port that the system chose; `None` where it is not installed.
    fn start(dir: &Path, target: &str) -> Option<Self> {
        let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/alert-rules.yml");
        let config = format!(
            "global: {{ scrape_interval: 500ms, evaluation_interval: 500ms }}\n\
             rule_files: [{rules:?}]\n\
             scrape_configs: [{{ job_name: requeue, static_configs: [{{ targets: [{target:?}] }}] }}]\n"
        );
        let file = dir.join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let log = dir.join("prometheus.log");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn();
        let child = match child {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
            other => other.unwrap(),
        };
        let mut prometheus = Self { child, address: String::new() };
        // `msg="Listening on" address=127.0.0.1:NNNNN`
        let address = || {
            let log = read(&log);
            let line = log.lines().find(|line| line.contains("Listening on"))?;
            let (_, rest) = line.split_once("address=")?;
            Some(rest.split_whitespace().next()?.trim_matches('"').to_owned())
        };
        until("Prometheus to listen", || address().is_some());
        prometheus.address = address().unwrap();
        Some(prometheus)
    }

    /// The result of a query to its HTTP API, if that is one number.
    fn query(&self, query: &str) -> Option<f64> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // 1.0, so that the answer comes in one piece
        write!(stream, "GET /api/v1/query?query={escaped} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        // while it starts it answers that it is not ready, in words
        let json: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        let result = json["data"]["result"].as_array()?;
        assert!(result.len() <= 1, "{query}: {body}");
        result.first()?["value"][1].as_str()?.parse().ok()
    }

    /// Waits for the result of a query: after a late scrape there is none until the next one.
    fn tells(&self, query: &str) -> f64 {
        let mut value = None;
        until(query, || {
            value = self.query(query);
            value.is_some()
        });
        value.unwrap()
    }

    fn shows(&self, query: &str, value: f64) {
        until(&format!("{query} to be {value}"), || self.query(query) == Some(value));
    }
}

fn wall() -> f64 {
    UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
}

/// The bounds of the bucket that counts this duration.
fn bucket(seconds: f64) -> (f64, f64) {
    let mut bounds = (0.0, 1e-8);
    while seconds > bounds.1 {
        bounds = (bounds.1, bounds.1 * 10.0);
    }
    bounds
}

#[test]
fn a_real_prometheus_sees_what_the_run_says_and_what_was_measured() {
    const KEYS: usize = 200;
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let text = "date +%s.%N >> $D/starts; case $REQUEUE_KEY in gate) cat $D/gate;; esac";
    let mut job =
        start(script(&["--listen", "0", "-j1", "--log", "text", "--summary", "json"], dir.path(), text));
    let target = job.address();
    let Some(prometheus) = Prometheus::start(dir.path(), &target) else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: there is no `prometheus` here, so nothing was scraped (Debian has it as a package)"
        );
        job.close();
        assert_eq!(job.done().status, 0);
        return;
    };
    // before anything happens, so that it sees the rise from 0
    prometheus.shows("up{job='requeue'}", 1.0);
    prometheus.shows("workqueue_queue_duration_seconds_count", 0.0);

    job.put(b"gate\n");
    let waiting = gate.reached();
    let mut keys = String::new();
    for key in 1..KEYS {
        keys += &format!("{key}\n");
    }
    let (before, held) = (wall(), Instant::now());
    job.put(keys.as_bytes());
    let after = wall();
    prometheus.shows("workqueue_depth", KEYS as f64 - 1.0);
    prometheus.shows("requeue_busy_workers / requeue_workers", 1.0);
    // a duration to be measured, in the middle of a bucket
    until("the keys to have waited", || held.elapsed() > Duration::from_millis(1500));
    drop(waiting);
    prometheus.shows("workqueue_work_duration_seconds_count", KEYS as f64);
    prometheus.shows("workqueue_depth", 0.0);
    prometheus.shows("requeue_held_keys", 0.0);
    // since it began, however long that took
    let quantile =
        prometheus.tells("histogram_quantile(0.99, rate(workqueue_queue_duration_seconds_bucket[1h]))");
    let count = |query: &str| prometheus.tells(query) as u64;
    let adds = count("workqueue_adds_total");
    let waited = count("workqueue_queue_duration_seconds_count");
    let worked = count("workqueue_work_duration_seconds_count");
    let done = count("requeue_runs_total{outcome='done'}");

    job.close();
    let ended = job.done();
    assert_eq!(ended.status, 0, "{}", ended.err);
    let runs = ended.number("runs");
    assert_eq!((runs, ended.number("left")), (KEYS as u64, 0));
    assert_eq!((adds, waited, worked, done), (runs, runs, runs, runs));

    // with one worker a run begins between the one before and its program's first word
    let starts = read(dir.path().join("starts"));
    let starts: Vec<f64> = starts.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(starts.len(), KEYS);
    let p99 = |mut waited: Vec<f64>| {
        waited.sort_unstable_by(f64::total_cmp);
        waited[KEYS * 99 / 100 - 2]
    };
    let least = p99(starts.windows(2).map(|pair| pair[0] - after).collect());
    let most = p99(starts.windows(2).map(|pair| pair[1] - before).collect());
    assert!(
        bucket(least).0 < quantile && quantile <= bucket(most).1,
        "the 99th percentile is {quantile} s, and was measured as {least} to {most} s"
    );
}

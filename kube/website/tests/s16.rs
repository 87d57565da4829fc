//! Scenario 16: runs the queries of kubebuilder's Grafana dashboard (its plugin `grafana/v1-alpha`,
//! `controller-runtime-metrics.json`) over two scrapes of a run: each gives a series, and the counts are
//! those of the run.
//!
//! promtool evaluates the queries. Without it, only the presence of their series is checked.

mod support;

use std::fmt::Write as _;
use std::process::Command;
use support::{SECOND, World};

/// The selector of the panels, with `$job` and `$namespace` replaced as for a scrape of the operator.
const WHERE: &str = r#"{job="website", namespace="website-system"}"#;

struct Query {
    metric: &'static str,
    /// The query, with `WHERE` for the selector.
    query: &'static str,
}

const fn query(metric: &'static str, query: &'static str) -> Query {
    Query { metric, query }
}

const QUERIES: [Query; 14] = [
    query("controller_runtime_active_workers", "controller_runtime_active_workersWHERE"),
    query(
        "controller_runtime_reconcile_total",
        "sum(rate(controller_runtime_reconcile_totalWHERE[5m])) by (instance, pod)",
    ),
    query(
        "controller_runtime_reconcile_errors_total",
        "sum(rate(controller_runtime_reconcile_errors_totalWHERE[5m])) by (instance, pod)",
    ),
    query("workqueue_depth", "workqueue_depthWHERE"),
    query("workqueue_adds_total", "sum(rate(workqueue_adds_totalWHERE[5m])) by (instance, name)"),
    query("workqueue_retries_total", "sum(rate(workqueue_retries_totalWHERE[5m])) by (instance, name)"),
    query("workqueue_unfinished_work_seconds", "rate(workqueue_unfinished_work_secondsWHERE[5m])"),
    query(
        "workqueue_queue_duration_seconds_bucket",
        "histogram_quantile(0.50, sum(rate(workqueue_queue_duration_seconds_bucketWHERE[5m])) by (instance, name, le))",
    ),
    query(
        "workqueue_queue_duration_seconds_bucket",
        "histogram_quantile(0.90, sum(rate(workqueue_queue_duration_seconds_bucketWHERE[5m])) by (instance, name, le))",
    ),
    query(
        "workqueue_queue_duration_seconds_bucket",
        "histogram_quantile(0.99, sum(rate(workqueue_queue_duration_seconds_bucketWHERE[5m])) by (instance, name, le))",
    ),
    query(
        "workqueue_work_duration_seconds_bucket",
        "histogram_quantile(0.50, sum(rate(workqueue_work_duration_seconds_bucketWHERE[5m])) by (instance, name, le))",
    ),
    query(
        "workqueue_work_duration_seconds_bucket",
        "histogram_quantile(0.90, sum(rate(workqueue_work_duration_seconds_bucketWHERE[5m])) by (instance, name, le))",
    ),
    query(
        "workqueue_work_duration_seconds_bucket",
        "histogram_quantile(0.99, sum(rate(workqueue_work_duration_seconds_bucketWHERE[5m])) by (instance, name, le))",
    ),
    // Of the dashboard's variables.
    query("controller_runtime_reconcile_total", "controller_runtime_reconcile_totalWHERE"),
];

/// The samples of a scrape: series and value.
fn samples(scrape: &str) -> Vec<(String, f64)> {
    let lines = scrape.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.filter_map(|line| line.rsplit_once(' '));
    samples.map(|(series, value)| (series.to_owned(), value.parse().unwrap())).collect()
}

/// The sum of all series of a metric whose labels contain this text.
fn sum(scrape: &[(String, f64)], metric: &str, labels: &str) -> f64 {
    let of = |series: &str| series.split('{').next() == Some(metric) && series.contains(labels);
    scrape.iter().filter(|(series, _)| of(series)).map(|(_, value)| value).sum()
}

#[tokio::test(start_paused = true)]
async fn s16_kubebuilders_dashboard_shows_the_run() {
    let world = World::start().await;
    let first = samples(&world.get("/metrics").await.1);
    // 100 sites that are fine, 10 that fail until the end.
    for n in 0..100 {
        world.apply(&format!("site{n}"), "one");
    }
    for n in 0..10 {
        world.apply(&format!("poison{n}"), "one");
    }
    tokio::time::sleep(60 * SECOND).await;
    world.sites.pause();
    let second = samples(&world.get("/metrics").await.1);

    // The recorder is the log of the requests: each run of a poison site tries its page once and fails, and each
    // site that is fine had one run, which applied its page.
    let asked = world.asked.lock().unwrap().clone();
    let pages = |name: &str| {
        let of = format!("/configmaps/{name}");
        asked.iter().filter(|it| it.method == "PATCH" && it.path.contains(&of)).count() as f64
    };
    let (fine, failed) = (pages("site"), pages("poison"));
    assert_eq!(fine, 100.0);
    assert!(failed > 100.0);
    let total = |labels: &str| sum(&second, "controller_runtime_reconcile_total", labels);
    assert_eq!(total("result=\"success\""), fine);
    assert_eq!(total("result=\"error\""), failed);
    assert_eq!(sum(&second, "controller_runtime_reconcile_errors_total", ""), failed);
    assert_eq!(sum(&second, "workqueue_retries_total", ""), failed);
    assert_eq!(sum(&second, "workqueue_work_duration_seconds_count", ""), fine + failed);
    assert_eq!(sum(&second, "workqueue_queue_duration_seconds_count", ""), fine + failed);
    assert_eq!(sum(&second, "workqueue_depth", ""), 0.0);
    assert_eq!(sum(&second, "controller_runtime_active_workers", ""), 0.0);
    // An unanswered request is counted under `<error>`.
    let refused = sum(&second, "rest_client_requests_total", "code=\"<error>\"");
    assert_eq!(refused, failed);

    for Query { metric, .. } in QUERIES {
        for scrape in [&first, &second] {
            assert!(scrape.iter().any(|(series, _)| series.split('{').next() == Some(metric)), "no {metric}");
        }
    }
    if Command::new("promtool").arg("--version").output().is_err() {
        eprintln!("skipped: promtool is not here to evaluate the queries");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("dashboard.yaml"), promtool(&first, &second, fine + failed)).unwrap();
    let output = Command::new("promtool")
        .args(["test", "rules", "dashboard.yaml"])
        .current_dir(&dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// A test of promtool: the two scrapes are a minute apart, and each query gives numbers.
fn promtool(first: &[(String, f64)], second: &[(String, f64)], runs: f64) -> String {
    let mut text = "evaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n".to_owned();
    for (series, value) in second {
        // The labels that a scrape adds.
        let scraped = r#"job="website",namespace="website-system",pod="p",instance="i""#;
        let Some(labelled) = series.strip_suffix('}') else { continue };
        let before =
            first.iter().find(|(it, _)| it == series).map_or("_".to_owned(), |(_, value)| value.to_string());
        _ = writeln!(text, "      - {{ series: '{labelled},{scraped}}}', values: '{before} {value}' }}");
    }
    text.push_str("    promql_expr_test:\n");
    let mut expect = |query: &str, value: f64| {
        let query = query.replace("WHERE", WHERE);
        _ = writeln!(text, "      - expr: '{query}'\n        eval_time: 1m");
        _ = writeln!(text, "        exp_samples: [{{ value: {value} }}]");
    };
    for Query { metric, query } in QUERIES {
        // Of a sum by instance there is one series. NaN, which a quantile of nothing is, is not above 0.
        let of = |it: &&(String, f64)| it.0.split('{').next() == Some(metric);
        let series = if query.contains('(') { 1 } else { second.iter().filter(of).count() };
        expect(&format!("count({query} >= 0)"), series as f64);
    }
    // The first scrape has zeros, so that nothing is extrapolated.
    expect("sum(increase(controller_runtime_reconcile_totalWHERE[1m1s]))", runs);
    text
}

//! Checks the exported text and the alert rules with Prometheus' own tool. If it is not installed (Debian's
//! package `prometheus`) the test says so and checks nothing; CI installs it.

use std::io::Write as _;
use std::process::{Command, Stdio};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib");

/// Runs promtool on an input. Returns its exit status and output; `None` if it is not installed.
fn promtool(args: &[&str], input: &str) -> Option<(Option<i32>, String)> {
    let mut command = Command::new("promtool");
    command.args(args).current_dir(FOLDER);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match child {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            // past the capture of tests that pass
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: there is no `promtool` here, so nothing was checked (Debian has it in `prometheus`)"
            );
            return None;
        }
        other => other.expect("promtool starts"),
    };
    let mut stdin = child.stdin.take().expect("a pipe");
    // one that does not read its input is no failure
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("promtool ends");
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.code(), String::from_utf8_lossy(&said).into_owned()))
}

fn is_content_with(args: &[&str], input: &str) {
    if let Some((status, said)) = promtool(args, input) {
        assert_eq!(status, Some(0), "promtool {args:?}: {said}");
    }
}

#[test]
fn promtool_checks_the_metrics() {
    // it reads the older text format only, in which a counter's description has the
    // suffix of its samples
    let mut text = String::new();
    for line in include_str!("export.txt").lines() {
        let counters = [
            "workqueue_adds",
            "workqueue_retries",
            "requeue_coalesced_triggers",
            "requeue_dropped_keys",
            "requeue_runs",
            "requeue_leases_lost",
            "requeue_ends_refused",
        ];
        let counter =
            counters.into_iter().find(|name| line.starts_with('#') && line.split(' ').nth(2) == Some(name));
        match counter {
            Some(name) => text += &line.replacen(name, &format!("{name}_total"), 1),
            None => text += line,
        }
        text.push('\n');
    }
    is_content_with(&["check", "metrics"], &text);
}

#[test]
fn promtool_checks_the_alert_rules() {
    is_content_with(&["check", "rules", "alert-rules.yml"], "");
}

#[test]
fn alerts_fire_when_they_should_and_not_before() {
    is_content_with(&["test", "rules", "alert-rules.test.yml"], "");
}

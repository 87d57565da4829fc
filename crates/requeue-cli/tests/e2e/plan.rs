//! `requeue plan`: the check values of the contract in every form, and outputs that fail.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Done, dir, run};

fn plan(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.arg("plan").args(args);
    command
}

fn shown(args: &[&str]) -> Done {
    let done = run(plan(args), b"");
    assert_eq!((done.status, done.err.as_str()), (0, ""), "{args:?}");
    done
}

/// The column `delay` of the table.
fn delays(args: &[&str]) -> Vec<String> {
    let done = shown(args);
    let mut lines = done.text().lines();
    let column = lines.next().unwrap().split_whitespace().position(|name| name == "delay").unwrap();
    lines.map(|line| line.split_whitespace().nth(column).unwrap().to_owned()).collect()
}

#[test]
fn r_bucket_the_first_hundred_at_once_then_every_100_ms_the_last_at_90_s() {
    let args = ["bucket", "--rate", "10", "--burst", "100", "-n", "1000"];
    let delays = delays(&args);
    assert_eq!(delays.len(), 1000);
    assert!(delays[..100].iter().all(|delay| delay == "0s"));
    assert_eq!(delays[100..104], ["100ms", "200ms", "300ms", "400ms"]);
    assert_eq!(delays[999], "90s");
    let done = shown(&[&args[..], &["--json"]].concat());
    for (i, line) in (1..).zip(done.text().lines()) {
        let call: serde_json::Value = serde_json::from_str(line).unwrap();
        let expected = f64::from(std::cmp::max(i, 100) - 100) / 10.0;
        assert_eq!(call["call"], i);
        assert_eq!(call["delay_s"].as_f64(), Some(expected), "call {i}");
        assert_eq!(call["due_s"].as_f64(), Some(expected), "call {i}");
    }
    assert_eq!(done.text().lines().count(), 1000);
}

#[test]
fn r_exponential_doubles_up_to_the_longest() {
    let first = delays(&["exponential", "--base", "1ms"]);
    assert_eq!(first, ["1ms", "2ms", "4ms", "8ms", "16ms", "32ms", "64ms", "128ms", "256ms", "512ms"]);
    let capped = delays(&["exponential", "--base", "1ms", "--max", "1s", "-n", "1000"]);
    assert_eq!((capped[9].as_str(), capped[10].as_str(), capped[999].as_str()), ("512ms", "1s", "1s"));
    assert_eq!(delays(&["exponential", "--base", "0s", "-n", "3"]), ["0s", "0s", "0s"]);
}

#[test]
fn r_fast_slow_and_window() {
    let fast_slow = delays(&["fast-slow", "--fast", "5ms", "--slow", "10s", "--after", "3", "-n", "5"]);
    assert_eq!(fast_slow, ["5ms", "5ms", "5ms", "10s", "10s"]);
    let window = delays(&["window", "--period", "1s", "--quota", "4"]);
    assert_eq!(window, ["0s", "0s", "0s", "0s", "1s", "1s", "1s", "1s", "2s", "2s"]);
}

#[test]
fn r_the_longest_of_several_a_maximum_and_jitter() {
    let longest = delays(&["max-of", "exponential:base=1s,max=100s", "window:period=3s,quota=1", "-n", "5"]);
    assert_eq!(longest, ["1s", "3s", "6s", "9s", "16s"]);
    let cut = delays(&["max-wait", "--max", "2s", "bucket:rate=1,burst=1", "-n", "5"]);
    assert_eq!(cut, ["0s", "1s", "2s", "2s", "2s"]);
    let texts = [
        "jitter:fraction=0.5,exponential:base=1s,max=5m",
        "jitter(exponential(base=1s,max=5m),fraction=0.5)",
    ];
    let [one, same] = texts.map(|text| shown(&[text, "-n", "20"]).out);
    assert_eq!(one, same);
    let other =
        shown(&["jitter", "--fraction", "0.5", "--seed", "1", "exponential:base=1s,max=5m", "-n", "20"]);
    assert_ne!(one, other.out);
    let done = shown(&["jitter", "--fraction", "0.5", "exponential:base=1s,max=5m", "-n", "20", "--json"]);
    for (i, line) in (0..).zip(done.text().lines()) {
        let call: serde_json::Value = serde_json::from_str(line).unwrap();
        let (delay, plain) = (call["delay_s"].as_f64().unwrap(), 2f64.powi(i).min(300.0));
        assert!(plain <= delay && delay <= (plain * 1.5).min(300.0), "{delay} for {plain}");
    }
    let default = delays(&["default", "-n", "3"]);
    assert_eq!(default, ["5ms", "10ms", "20ms"]);
    assert_eq!(delays(&["default-per-item", "-n", "3"]), ["1ms", "2ms", "4ms"]);
}

#[test]
fn keys_take_turns_and_calls_may_be_apart() {
    let done = shown(&["exponential", "--base", "1s", "--keys", "2", "--every", "250ms", "-n", "4"]);
    let rows: Vec<Vec<&str>> = done.text().lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["call", "key", "at", "delay", "due"]);
    assert_eq!(rows[1], ["1", "1", "0s", "1s", "1s"]);
    assert_eq!(rows[2], ["2", "2", "250ms", "1s", "1.25s"]);
    assert_eq!(rows[3], ["3", "1", "500ms", "2s", "2.5s"]);
    assert_eq!(rows[4], ["4", "2", "750ms", "2s", "2.75s"]);
    let apart = delays(&["per-key-bucket", "--rate", "1", "--burst", "1", "--keys", "2", "-n", "4"]);
    assert_eq!(apart, ["0s", "0s", "1s", "1s"]);
}

#[test]
fn what_never_comes_is_never_and_the_longest_times_do_not_overflow() {
    let longest = "213503982334601d";
    let rows = shown(&["exponential", "--base", longest, "--max", longest, "-n", "1"]);
    assert!(rows.text().trim_end().ends_with("18446744073709526400s          never"), "{}", rows.text());
    assert_eq!(
        delays(&["bucket", "--rate", "0.000000000000000001", "--burst", "1", "-n", "2"]),
        ["0s", "never"]
    );
    assert_eq!(delays(&["bucket", "--rate", "inf", "--burst", "1", "-n", "2"]), ["0s", "0s"]);
    assert_eq!(delays(&["window", "--period", "0s", "--quota", "1", "-n", "2"]), ["0s", "0s"]);
    assert_eq!(delays(&["window", "--period", longest, "--quota", "1", "-n", "2"]), ["0s", "never"]);
    let json = shown(&["window", "--period", longest, "--quota", "1", "-n", "2", "--json"]);
    assert!(json.text().ends_with("\"delay_s\":null,\"due_s\":null}\n"), "{}", json.text());
    assert_eq!(delays(&["exponential", "--every", longest, "-n", "1"]), ["5ms"]);
}

#[test]
fn every_picture_can_be_drawn() {
    let dir = dir();
    let svg = dir.path().join("p.svg");
    let longest = "213503982334601d";
    let limiters: [&[&str]; 9] = [
        &["bucket", "--rate", "inf"],
        &["bucket", "--rate", "0.000000000000000001", "--burst", "1"],
        &["exponential", "--base", "0s", "--max", "0s"],
        &["exponential", "--base", longest, "--max", longest],
        &["exponential", "--base", "1ns", "--max", longest],
        &["fast-slow", "--fast", "1ns", "--slow", longest, "--after", "1"],
        &["window", "--period", longest, "--quota", "1"],
        &["window", "--period", "1ns", "--quota", "1"],
        &["jitter", "--fraction", "9999999999", "default"],
    ];
    for limiter in limiters {
        for n in ["1", "2", "101", "5000"] {
            let args = [limiter, &["-n", n, "--plot", "--svg", svg.to_str().unwrap()]].concat();
            let done = shown(&args);
            // The rows of dots; the numbers below them take what they take.
            let rows = done.text().lines().filter(|line| line.starts_with(|c| c > '\u{2800}'));
            assert!(rows.clone().count() > 4, "{args:?}: {}", done.text());
            assert!(rows.clone().all(|row| row.chars().count() <= 80), "{args:?}: {}", done.text());
            let text = std::fs::read_to_string(&svg).unwrap();
            assert!(text.starts_with("<svg") && text.ends_with("</svg>\n"), "{args:?}: {text}");
            assert!(!text.contains("NaN") && !text.contains("inf\""), "{args:?}: {text}");
        }
    }
}

/// Where the marks of single calls stand in an SVG: 0 at the bottom, 1 at the top.
fn heights(svg: &str) -> Vec<f64> {
    let attribute = |line: &str, name: &str| -> f64 {
        let rest = line.split_once(&format!(" {name}=\"")).unwrap().1;
        rest.split_once('"').unwrap().0.parse().unwrap()
    };
    let lines: Vec<f64> =
        svg.lines().filter(|l| l.starts_with("<line")).map(|l| attribute(l, "y1")).collect();
    let (top, bottom) = lines.iter().fold((f64::MAX, 0f64), |(low, high), y| (low.min(*y), high.max(*y)));
    let circles = svg.lines().filter(|l| l.starts_with("<circle"));
    circles.map(|l| (bottom - attribute(l, "cy")) / (bottom - top)).collect()
}

#[test]
fn r_the_svg_shows_the_check_values() {
    let dir = dir();
    let file = dir.path().join("p.svg");
    let file = file.to_str().unwrap();
    shown(&["window", "--period", "1s", "--quota", "4", "--svg", file]);
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains("\n2s\n") && text.contains("\ndelay\n") && text.contains("\ncall\n"), "{text}");
    let seconds: Vec<f64> =
        heights(&text).iter().map(|height| (height * 2.0 * 100.0).round() / 100.0).collect();
    assert_eq!(seconds, [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0]);
    shown(&["exponential", "--base", "1ms", "--svg", file]);
    let text = std::fs::read_to_string(file).unwrap();
    // From 1ms to 1s: three powers of ten.
    for (i, height) in (0..).zip(heights(&text)) {
        let ms = 10f64.powf(height * 3.0);
        let expected = f64::from(1 << i);
        assert!((ms / expected - 1.0).abs() < 0.02, "call {i}: {ms}");
    }
    assert_eq!(heights(&text).len(), 10);
}

/// Compares with a file of `tests/golden`, or writes it where `REQUEUE_BLESS` is set.
fn golden(name: &str, found: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("REQUEUE_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read(&path).unwrap_or_default();
    assert!(
        expected == found,
        "{name} would now be\n{}\nIf that is meant: REQUEUE_BLESS=1 cargo test -p requeue-cli -- generated golden",
        String::from_utf8_lossy(found)
    );
}

#[test]
fn golden_files_have_each_form_of_each_check_value() {
    let dir = dir();
    let svg = dir.path().join("p.svg");
    let limiters: [(&str, &[&str]); 5] = [
        ("bucket", &["bucket", "--rate", "10", "--burst", "100", "-n", "1000"]),
        ("exponential", &["exponential", "--base", "1ms", "--max", "1s", "-n", "12"]),
        ("fast-slow", &["fast-slow", "--fast", "5ms", "--slow", "10s", "--after", "3", "-n", "5"]),
        ("window", &["window", "--period", "1s", "--quota", "4"]),
        ("longest", &["max-of", "exponential:base=1s,max=1m", "bucket:rate=0.2,burst=3", "--every", "1s"]),
    ];
    for (name, args) in limiters {
        // Of the bucket's thousand the table is looked at above.
        if name != "bucket" {
            golden(&format!("plan/{name}.table"), &shown(args).out);
            golden(&format!("plan/{name}.json"), &shown(&[args, &["--json"]].concat()).out);
        }
        let both = [args, &["--plot", "--svg", svg.to_str().unwrap()]].concat();
        golden(&format!("plan/{name}.plot"), &shown(&both).out);
        golden(&format!("plan/{name}.svg"), &std::fs::read(&svg).unwrap());
    }
}

#[test]
fn svg_replaces_a_file_and_leaves_the_old_one_where_it_fails() {
    let dir = dir();
    let file = dir.path().join("p.svg");
    std::fs::write(&file, "old").unwrap();
    let name = file.to_str().unwrap();
    let done = run(plan(&["default", "--svg", name, "--max", "1s"]), b"");
    assert_eq!((done.status, std::fs::read(&file).unwrap()), (2, b"old".to_vec()));
    assert_eq!(shown(&["default", "--svg", name]).text(), "");
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("<svg"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    // A table or JSON beside it, where it is asked for.
    assert_eq!(shown(&["default", "--svg", name, "--json"]).text().lines().count(), 10);
    let done = shown(&["default", "--svg", "/dev/stdout"]);
    assert!(done.text().starts_with("<svg"), "{}", done.text());
}

#[test]
fn a_full_disk_is_said() {
    for form in [&[][..], &["--json"], &["--plot"]] {
        let mut command = plan(&["bucket"]);
        command.args(form).stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        let output = command.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{form:?}");
        assert_eq!(err, "requeue: standard output: No space left on device (os error 28)\n", "{form:?}");
    }
    let done = run(plan(&["bucket", "--svg", "/dev/full"]), b"");
    assert_eq!(done.status, 1);
    assert_eq!(done.err, "requeue: --svg /dev/full: No space left on device (os error 28)\n");
}

#[test]
fn a_file_that_cannot_be_is_said_before_anything_is_done() {
    let dir = dir();
    let here = dir.path().to_str().unwrap();
    let done = run(plan(&["bucket", "--svg", here, "--json"]), b"");
    assert_eq!((done.status, done.text()), (2, ""));
    assert_eq!(done.err, format!("requeue: --svg {here}: is a directory\n"));
    let nowhere = format!("{here}/no/such.svg");
    let done = run(plan(&["bucket", "--svg", &nowhere]), b"");
    assert_eq!(done.status, 2);
    assert_eq!(
        done.err,
        format!(
            "requeue: --svg {nowhere}: the directory {here}/no: No such file or directory (os error 2)\n"
        )
    );
}

#[test]
fn any_number_of_calls_is_shown_one_by_one_and_ends_when_nobody_reads() {
    for form in [&[][..], &["--json"]] {
        let mut command = plan(&["bucket", "-n", "1000000000"]);
        let mut child = command.args(form).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(!first.is_empty());
        assert_eq!(child.wait().unwrap().code(), Some(141));
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!(err, "");
    }
}

#[test]
fn the_readme_shows_what_is_shown() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let (_, after) = readme.split_once("\n$ requeue plan ").unwrap();
    let (block, _) = after.split_once("```").unwrap();
    let (line, expected) = block.split_once('\n').unwrap();
    assert_eq!(shown(&line.split(' ').collect::<Vec<_>>()).text(), expected);
}

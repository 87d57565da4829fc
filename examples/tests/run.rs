//! Every example is run, and must end well. What it claims it asserts itself.

use std::process::Command;

fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().expect("cargo has built it");
    let stdout = String::from_utf8(out.stdout).expect("the examples print text");
    assert!(
        out.status.success(),
        "{program}: {}\n{stdout}\n{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    stdout
}

#[test]
fn quickstart_works_off_its_keys() {
    assert!(run(env!("CARGO_BIN_EXE_quickstart"), &[]).contains("db is fine"));
}

#[test]
fn order_timeouts_closes_what_is_not_paid() {
    assert!(run(env!("CARGO_BIN_EXE_order_timeouts"), &[]).contains("1000000 orders"));
}

#[test]
fn burst_prints_five_at_once_and_then_one_a_second() {
    let printed = run(env!("CARGO_BIN_EXE_burst"), &["--fast"]);
    let seconds: Vec<&str> = printed
        .lines()
        .filter(|line| line.contains("task"))
        .map(|line| line.split('.').next().unwrap_or("").trim())
        .collect();
    let expected: Vec<String> = (0..20i32).map(|i| (i - 4).max(0).to_string()).collect();
    assert_eq!(seconds, expected, "{printed}");
}

#[test]
fn write_limit_merges_what_the_store_cannot_take() {
    assert!(run(env!("CARGO_BIN_EXE_write_limit"), &[]).contains("20000 readings became"));
}

//! Counts instructions, and compares them with a baseline: see `README.md`.

pub mod count;

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Number of operations in each benchmark.
pub const OPERATIONS: usize = 10_000;

/// Percentage by which a path may exceed its baseline.
pub const SLACK: f64 = 5.0;

/// Instructions of an operation, by benchmark.
pub type Figures = BTreeMap<String, f64>;

/// Figures by compiler.
pub type Baseline = BTreeMap<String, Figures>;

/// Result of a comparison.
#[derive(Debug)]
pub struct Verdict {
    /// The table, and remarks below it.
    pub report: String,
    /// Something is dearer than it may be, or was not measured.
    pub red: bool,
}

/// Reads what the programs print: a name and its number of instructions in each line, with a tab between.
///
/// # Errors
///
/// A sentence about what is not as expected.
pub fn figures(results: &str) -> Result<Figures, String> {
    let mut figures = Figures::new();
    for line in results.lines() {
        let (name, count) = line.split_once('\t').ok_or_else(|| format!("no name and count: {line}"))?;
        let count: u64 = count.parse().map_err(|e| format!("{name}: {e}"))?;
        let each = count as f64 / OPERATIONS as f64;
        if figures.insert(name.to_owned(), (each * 10.0).round() / 10.0).is_some() {
            return Err(format!("{name} was measured twice"));
        }
    }
    if figures.is_empty() {
        return Err("nothing was measured".to_owned());
    }
    Ok(figures)
}

/// Reads the baseline.
///
/// # Errors
///
/// A sentence about what is not as expected.
pub fn read(baseline: &str) -> Result<Baseline, String> {
    let value: Value = serde_json::from_str(baseline).map_err(|e| format!("the baseline: {e}"))?;
    let table = |value: &Value| value.as_object().cloned().ok_or("the baseline is not a table of tables");
    let mut read = Baseline::new();
    for (compiler, figures) in table(&value)? {
        let mut of = Figures::new();
        for (name, figure) in table(&figures)? {
            let figure = figure.as_f64().ok_or_else(|| format!("the baseline of {name} is no number"))?;
            of.insert(name, figure);
        }
        read.insert(compiler, of);
    }
    Ok(read)
}

/// The baseline as it is committed.
pub fn write(baseline: &Baseline) -> String {
    let figures = |of: &Figures| of.iter().map(|(name, &n)| (name.clone(), n.into())).collect::<Map<_, _>>();
    let all: Map<_, _> = baseline.iter().map(|(c, of)| (c.clone(), figures(of).into())).collect();
    format!("{:#}\n", Value::Object(all))
}

/// Compares what was measured with this compiler's entry. Where there is none,
/// nothing is red: another compiler's code is other code.
pub fn compare(compiler: &str, measured: &Figures, baseline: &Baseline) -> Verdict {
    let Some(of) = baseline.get(compiler) else { return unknown(compiler, measured, baseline) };
    let mut report = String::new();
    let mut notes = String::new();
    let mut red = false;
    for (name, &now) in measured {
        let Some(&was) = of.get(name) else {
            line(&mut report, name, None, now);
            notes += &format!("NOTICE: {name} has no baseline yet. Bless it.\n");
            continue;
        };
        line(&mut report, name, Some(was), now);
        let percent = percent(was, now);
        if percent > SLACK {
            red = true;
            notes +=
                &format!("FAILED: {name} takes {now} instructions, {percent:+.1} %: more than {SLACK} %\n");
        } else if percent < -SLACK {
            notes += &format!("NOTICE: {name} takes {now} instructions, {percent:+.1} %. Bless it.\n");
        }
    }
    for name in of.keys().filter(|&name| !measured.contains_key(name)) {
        red = true;
        notes += &format!("FAILED: {name} was not measured. If it is gone on purpose, bless what is left.\n");
    }
    if red {
        notes += "If this is meant, `bench/guard/run --bless`, and say why in the commit.\n";
    }
    Verdict { report: format!("instructions an operation, {compiler}\n{report}{notes}"), red }
}

fn unknown(compiler: &str, measured: &Figures, baseline: &Baseline) -> Verdict {
    let mut report = format!("instructions an operation, {compiler}\n");
    let latest = baseline.iter().next_back();
    for (name, &now) in measured {
        line(&mut report, name, latest.and_then(|(_, of)| of.get(name)).copied(), now);
    }
    if let Some((other, _)) = latest {
        report += &format!("The baseline beside them is that of {other}, for orientation.\n");
    }
    report += &format!("NOTICE: no baseline for {compiler}: NOTHING WAS COMPARED.\n");
    report +=
        "To have this compiler guarded, `bench/guard/run --bless` on a commit that is known to be good.\n";
    Verdict { report, red: false }
}

fn percent(was: f64, now: f64) -> f64 {
    (now - was) / was * 100.0
}

fn line(report: &mut String, name: &str, was: Option<f64>, now: f64) {
    let _ = match was {
        Some(was) => writeln!(report, "{name:<32} {was:>9.1} -> {now:>9.1} {:>+8.1} %", percent(was, now)),
        None => writeln!(report, "{name:<32} {:>9} -> {now:>9.1}", "-"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPILER: &str = "1.95.0 x86_64-unknown-linux-gnu";

    fn of(figures: &[(&str, f64)]) -> Figures {
        figures.iter().map(|&(name, figure)| (name.to_owned(), figure)).collect()
    }

    fn against(was: &[(&str, f64)], now: &[(&str, f64)]) -> Verdict {
        compare(COMPILER, &of(now), &Baseline::from([(COMPILER.to_owned(), of(was))]))
    }

    #[test]
    fn the_same_figures_are_green_and_silent() {
        let verdict = against(&[("add", 100.0)], &[("add", 100.0)]);
        assert!(!verdict.red);
        assert!(!verdict.report.contains("NOTICE") && !verdict.report.contains("FAILED"));
    }

    #[test]
    fn five_percent_more_is_green_and_a_little_more_is_red() {
        assert!(!against(&[("add", 100.0)], &[("add", 105.0)]).red);
        let verdict = against(&[("add", 100.0), ("get", 50.0)], &[("add", 105.1), ("get", 50.0)]);
        assert!(verdict.red);
        assert!(
            verdict.report.contains("FAILED: add takes 105.1 instructions, +5.1 %"),
            "{}",
            verdict.report
        );
        assert!(!verdict.report.contains("FAILED: get"));
    }

    #[test]
    fn what_one_path_wins_does_not_pay_for_another() {
        assert!(against(&[("add", 100.0), ("get", 100.0)], &[("add", 110.0), ("get", 10.0)]).red);
    }

    #[test]
    fn much_less_is_green_with_a_notice_to_bless_it() {
        let verdict = against(&[("add", 100.0)], &[("add", 94.0)]);
        assert!(!verdict.red);
        assert!(verdict.report.contains("NOTICE: add takes 94 instructions, -6.0 %. Bless it."));
        assert!(!against(&[("add", 100.0)], &[("add", 95.5)]).report.contains("NOTICE"));
    }

    #[test]
    fn a_benchmark_that_is_new_is_a_notice_and_one_that_is_gone_is_red() {
        let verdict = against(&[("add", 1.0)], &[("add", 1.0), ("get", 1.0)]);
        assert!(!verdict.red && verdict.report.contains("NOTICE: get has no baseline yet"));
        let verdict = against(&[("add", 1.0), ("get", 1.0)], &[("add", 1.0)]);
        assert!(verdict.red && verdict.report.contains("FAILED: get was not measured"));
    }

    #[test]
    fn a_compiler_without_an_entry_is_green_and_says_so() {
        let baseline = Baseline::from([(COMPILER.to_owned(), of(&[("add", 1.0)]))]);
        let verdict = compare("1.96.0 x86_64-unknown-linux-gnu", &of(&[("add", 9.0)]), &baseline);
        assert!(!verdict.red);
        assert!(
            verdict.report.contains("no baseline for 1.96.0 x86_64-unknown-linux-gnu: NOTHING WAS COMPARED")
        );
        let verdict = compare(COMPILER, &of(&[("add", 9.0)]), &Baseline::new());
        assert!(!verdict.red && verdict.report.contains("NOTHING WAS COMPARED"));
    }

    #[test]
    fn what_was_written_is_read_again() {
        let baseline = Baseline::from([(COMPILER.to_owned(), of(&[("add", 100.5), ("get", 7.0)]))]);
        assert_eq!(read(&write(&baseline)), Ok(baseline));
        assert_eq!(read("{}"), Ok(Baseline::new()));
    }

    #[test]
    fn a_baseline_that_makes_no_sense_is_refused() {
        for nonsense in ["", "[]", "{\"a\": 1}", "{\"a\": {\"b\": \"c\"}}"] {
            assert!(read(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn results_are_read() {
        let results = "cycle fresh\t1234567\nredundant\t1234567\n";
        assert_eq!(figures(results), Ok(of(&[("cycle fresh", 123.5), ("redundant", 123.5)])));
    }

    #[test]
    fn results_without_instructions_are_no_figures() {
        for nonsense in ["", "{}", "cycle\t", "cycle\tmany", "cycle\t1\ncycle\t2"] {
            assert!(figures(nonsense).is_err(), "{nonsense}");
        }
    }
}

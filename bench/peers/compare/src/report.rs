//! The results as Markdown.

use crate::judge::{Verdict, judge, times};
use crate::machine::Machine;
use crate::plan::{Cell, Kind, Pick, Plan, Row, Section};
use crate::samples::Samples;
use std::fmt::Write;

/// A number as people read it: three digits or more unless it is whole, thousands
/// apart.
pub(crate) fn number(x: f64) -> String {
    let decimals = match x.abs() {
        a if a >= 99.95 || a.fract() == 0.0 => 0,
        a if a >= 9.995 => 1,
        _ => 2,
    };
    let plain = format!("{x:.decimals$}");
    let (whole, fraction) = plain.split_once('.').map_or((plain.as_str(), None), |(w, f)| (w, Some(f)));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let fraction = fraction.map(|f| format!(".{f}")).unwrap_or_default();
    format!("{sign}{grouped}{fraction}")
}

/// The whole page.
pub(crate) fn page(plan: &Plan, samples: &Samples, machine: &Machine) -> String {
    let mut page = String::from("# Results\n\n");
    let kind = if machine.quick {
        "**A quick run**: fewer rows, fewer keys and fewer rounds than what the targets are meant for.\n\n"
    } else {
        ""
    };
    let _ = write!(
        page,
        "{kind}Written by `bench/peers/run`; [README.md](README.md) says what the workloads are. Medians of {} \
         alternating rounds, smallest and largest in brackets; **bold**: how many times as good as client-go in the \
         same run (for a token bucket, as x/time/rate).\n\n",
        machine.rounds
    );
    page.push_str(&about(machine));
    page.push_str(&summary(plan, samples));
    page.push_str("![client-go's time divided by requeue's](results.svg)\n\n");
    for section in &plan.sections {
        page.push_str(&table(section, samples));
        page.push_str(&targets(section, samples));
    }
    page.push_str(&failures(plan, samples));
    format!("{}\n", page.trim_end())
}

/// The tables alone, for a terminal.
pub(crate) fn tables(plan: &Plan, samples: &Samples) -> String {
    plan.sections.iter().map(|section| table(section, samples)).collect()
}

fn about(machine: &Machine) -> String {
    let mut about = String::from("| | |\n|---|---|\n");
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(about, "| {name} | {value} |");
    };
    row("processor", &format!("{}, {} cores", machine.processor, machine.cores));
    row("kernel", &machine.kernel);
    row("requeue", &format!("commit {}", machine.commit));
    row("compiler", &machine.rustc);
    if !machine.versions.is_empty() {
        row("peers", &machine.versions.join("; "));
    }
    row("when", &format!("{}, load average before: {}", machine.date, machine.load));
    about.push('\n');
    about
}

fn summary(plan: &Plan, samples: &Samples) -> String {
    let (mut met, mut missed, mut unknown) = (0, Vec::new(), 0);
    for section in &plan.sections {
        for row in &section.rows {
            for target in &row.targets {
                let judged = judge(target, row, &section.show[0], samples);
                match judged.verdict {
                    Verdict::Met => met += 1,
                    Verdict::Unknown => unknown += 1,
                    Verdict::Missed => missed.push(format!(
                        "- {}, {}: {}; reached {}{}",
                        section.id,
                        row.name,
                        judged.wanted,
                        judged.reached.map(number).unwrap_or_default(),
                        judged.unit
                    )),
                }
            }
        }
    }
    let mut summary = format!("**Targets: {met} met, {} missed, {unknown} not measured.**\n\n", missed.len());
    if !missed.is_empty() {
        let _ = write!(summary, "Missed:\n\n{}\n\n", missed.join("\n"));
    }
    summary
}

/// The columns of a section: what its rows have, where anything was measured.
fn columns(section: &Section, samples: &Samples) -> Vec<(Kind, String)> {
    let mut columns: Vec<(Kind, String)> = Vec::new();
    for kind in [Kind::Ours, Kind::Peer, Kind::Beside] {
        for cell in section.rows.iter().flat_map(|row| &row.cells) {
            let column = (kind, cell.name.clone());
            let measured = section.show.iter().any(|field| samples.stat(cell, field).is_some());
            if cell.kind == kind && measured && !columns.contains(&column) {
                columns.push(column);
            }
        }
    }
    columns
}

fn table(section: &Section, samples: &Samples) -> String {
    let columns = columns(section, samples);
    if columns.is_empty() {
        return String::new();
    }
    let mut text = format!("## {}\n\n", section.title);
    if !section.say.is_empty() {
        let _ = write!(text, "{}\n\n", section.say.trim());
    }
    let _ = write!(text, "{}:\n\n|", capital(&section.unit));
    let only_one = columns.iter().filter(|(kind, _)| *kind == Kind::Ours).count() == 1;
    for (kind, name) in &columns {
        let name = if *kind == Kind::Ours && name != "requeue" && !only_one {
            format!("requeue, {name}")
        } else if *kind == Kind::Ours {
            "requeue".to_string()
        } else {
            name.clone()
        };
        let _ = write!(text, " | {name}");
    }
    let _ = writeln!(text, " |\n|---|{}", "---|".repeat(columns.len()));
    for row in &section.rows {
        let _ = write!(text, "| {}", row.name);
        for (kind, name) in &columns {
            let cell = row.cells.iter().find(|cell| cell.kind == *kind && cell.name == *name);
            let shown = cell.and_then(|cell| shown(cell, row, section, samples));
            let _ = write!(text, " | {}", shown.unwrap_or_else(|| "–".to_string()));
        }
        text.push_str(" |\n");
    }
    text.push('\n');
    text
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// A measurement's place in the table: its medians; of a single field the spread
/// too; and for ours how it compares.
fn shown(cell: &Cell, row: &Row, section: &Section, samples: &Samples) -> Option<String> {
    let stats: Vec<_> = section.show.iter().map(|field| samples.stat(cell, field)).collect();
    stats.iter().flatten().next()?;
    let mut text = match &stats[..] {
        [Some(only)] if picks_least(row) => format!("{} (median {})", number(only.min), number(only.median)),
        [Some(only)] if only.min < only.max => {
            format!("{} ({}–{})", number(only.median), number(only.min), number(only.max))
        }
        several => {
            let medians = several.iter().map(|s| s.map_or("–".to_string(), |s| number(s.median)));
            medians.collect::<Vec<_>>().join(" / ")
        }
    };
    if let Some(times) = beside_go(cell, row, section, samples) {
        let _ = write!(text, " **{}x**", number(times));
    }
    Some(text)
}

/// How many times as good as Go's is a way of ours: as client-go in the same
/// configuration where that is measured.
fn beside_go(cell: &Cell, row: &Row, section: &Section, samples: &Samples) -> Option<f64> {
    let same = format!("client-go, {}", cell.name);
    let names = [same.as_str(), "client-go", "x-time-rate"];
    let peer =
        names.iter().find_map(|name| row.cells.iter().find(|c| c.kind == Kind::Peer && c.name == *name));
    let field = &section.show[0];
    let picked = |cell: &Cell| {
        let stat = samples.stat(cell, field)?;
        Some(if picks_least(row) { stat.min } else { stat.median })
    };
    let ours = picked(cell).filter(|ours| cell.kind == Kind::Ours && *ours > 0.0)?;
    Some(times(ours, picked(peer?)?, field))
}

fn picks_least(row: &Row) -> bool {
    row.targets.iter().any(|target| target.pick == Pick::Min)
}

fn targets(section: &Section, samples: &Samples) -> String {
    if columns(section, samples).is_empty() {
        return String::new();
    }
    let mut text = String::new();
    for row in &section.rows {
        for target in &row.targets {
            let judged = judge(target, row, &section.show[0], samples);
            let mark = match judged.verdict {
                Verdict::Met => "✓",
                Verdict::Missed => "✗",
                Verdict::Unknown => "?",
            };
            let reached = judged.reached.map_or("not measured".to_string(), |r| number(r) + judged.unit);
            let _ = writeln!(text, "| {} | {} | {reached} | {mark} |", row.name, judged.wanted);
        }
    }
    if text.is_empty() { text } else { format!("| | target | reached | |\n|---|---|---|---|\n{text}\n") }
}

/// What programs refused or failed, the refusals of one program together.
fn failures(plan: &Plan, samples: &Samples) -> String {
    let cells = plan.sections.iter().flat_map(|s| &s.rows).flat_map(|row| &row.cells);
    let mut seen: Vec<String> = cells
        .filter_map(|cell| {
            let why = samples.failed.get(&format!("{} {}", cell.implementation, cell.args))?;
            Some(format!("- {} {}: {why}", cell.implementation, cell.args))
        })
        .collect();
    seen.sort();
    seen.dedup();
    if seen.is_empty() { String::new() } else { format!("## Not measured\n\n{}\n", seen.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_have_three_digits_and_thousands_apart() {
        let pairs = [
            (0.0, "0"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (99.99, "100"),
            (26.0, "26"),
            (123.4, "123"),
            (1234.5, "1,234"),
            (1_234_567.0, "1,234,567"),
            (-1234.0, "-1,234"),
        ];
        for (x, text) in pairs {
            assert_eq!(number(x), text);
        }
    }

    #[test]
    fn a_table_has_what_was_measured_and_says_what_was_reached() {
        let plan = Plan::load(false, &["w3".to_string()]).unwrap();
        let mut samples = Samples::default();
        let cells = &plan.sections[0].rows[0].cells;
        for (cell, rounds) in cells.iter().zip([[4.0, 5.0, 9.0], [20.0, 20.0, 20.0]]) {
            for ns in rounds {
                samples.add(&cell.implementation, &cell.args, &json!({ "ns_per_op": ns }));
            }
        }
        let page = page(&plan, &samples, &Machine::default());
        assert!(page.contains("\n| | requeue | client-go |\n"), "{page}");
        assert!(page.contains("| u64, 1 thread | 5 (4–9) **4x** | 20 |"), "{page}");
        assert!(page.contains("| u64, 1 thread | requeue: 4x client-go | 4x | ✓ |"), "{page}");
        assert!(page.contains("| u64, 2 threads | – | – |"), "{page}");
        assert!(page.contains("1 met, 0 missed, 5 not measured"), "{page}");
    }
}

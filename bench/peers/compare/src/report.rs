//! The results as Markdown.

use crate::judge::{Verdict, judge, times};
use crate::machine::Machine;
use crate::plan::{Cell, Kind, Plan, Row, Section};
use crate::samples::Samples;
use crate::summary::{self, figure, picks_least};
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

/// The whole page: the summary for everybody first, our own targets last.
pub(crate) fn page(plan: &Plan, samples: &Samples, machine: &Machine) -> String {
    let mut page = String::from("# Results\n\n");
    page.push_str(&head(plan, samples, machine));
    page.push_str(
        "\nWritten by `bench/peers/run`; [README.md](README.md) says what the workloads are.\n\n\
         ![client-go's figure divided by requeue's](results.svg)\n\n",
    );
    page.push_str(&about(machine));
    page.push_str(
        "In the tables that follow the smallest and the largest of the rounds stand in brackets; **bold**: how many \
         times as good as client-go in the same run (for a token bucket, as x/time/rate).\n\n",
    );
    for section in &plan.sections {
        page.push_str(&table(section, samples));
    }
    page.push_str(&targets(plan, samples));
    page.push_str(&failures(plan, samples));
    format!("{}\n", page.trim_end())
}

/// The summary, and the conditions to be quoted with its figures.
pub(crate) fn head(plan: &Plan, samples: &Samples, machine: &Machine) -> String {
    let kind =
        if machine.quick { "**A quick run: fewer rows, keys and rounds than a whole one.**\n" } else { "" };
    let go = machine.versions.iter().find(|version| version.starts_with("go")).map(|version| {
        let version = version.split(' ').next().unwrap_or_default();
        format!(", {version}")
    });
    format!(
        "{}\n{kind}`client-go` is Kubernetes' own work queue in Go. The plain mutex is what one writes in Rust in an \
         afternoon: one lock,\none hash table, a slab; it is measured in threads. Of requeue's threads and tasks the \
         better counts. Medians of {}\nalternating rounds; {}, {} cores; commit {}; {}{}.\n",
        summary::table(&summary::lines(plan, samples)),
        machine.rounds,
        machine.processor,
        machine.cores,
        machine.commit,
        machine.rustc,
        go.unwrap_or_default(),
    )
}

/// The tables only, for a terminal.
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
    if is_beaten(cell, row, &section.show[0], samples) {
        text.push_str(" (no floor: something here takes less)");
    }
    Some(text)
}

/// How many times as good as Go's one of ours is: compared with client-go in the same configuration if that
/// is measured.
fn beside_go(cell: &Cell, row: &Row, section: &Section, samples: &Samples) -> Option<f64> {
    let same = format!("client-go, {}", cell.name);
    let names = [same.as_str(), "client-go", "x-time-rate"];
    let peer =
        names.iter().find_map(|name| row.cells.iter().find(|c| c.kind == Kind::Peer && c.name == *name));
    let field = &section.show[0];
    let picked = |cell: &Cell| figure(cell, row, field, samples);
    let ours = picked(cell).filter(|ours| cell.kind == Kind::Ours && *ours > 0.0)?;
    Some(times(ours, picked(peer?)?, field))
}

/// Whether something in the row takes less than this, which is called a floor. What has
/// less to do is not meant: channels know no keys, controller-runtime's adds go into a
/// buffer.
fn is_beaten(floor: &Cell, row: &Row, field: &str, samples: &Samples) -> bool {
    const LESS_TO_DO: [&str; 5] = ["crossbeam", "async-channel", "flume", "kanal", "controller-runtime"];
    let Some(least) = figure(floor, row, field, samples).filter(|_| floor.name == "floor") else {
        return false;
    };
    let others = row.cells.iter().filter(|cell| !LESS_TO_DO.contains(&cell.implementation.as_str()));
    others.filter_map(|cell| figure(cell, row, field, samples)).any(|other| other < least)
}

/// Our own targets: how many are met, and which are not.
fn targets(plan: &Plan, samples: &Samples) -> String {
    let (mut met, mut missed, mut unknown, mut text) = (0, 0, 0, String::new());
    for section in &plan.sections {
        for row in &section.rows {
            for target in &row.targets {
                let judged = judge(target, row, &section.show[0], samples);
                let (count, mark) = match judged.verdict {
                    Verdict::Met => (&mut met, ""),
                    Verdict::Missed => (&mut missed, "✗"),
                    Verdict::Unknown => (&mut unknown, "?"),
                };
                *count += 1;
                if judged.verdict == Verdict::Met {
                    continue;
                }
                let reached = judged.reached.map_or("not measured".to_string(), |r| number(r) + judged.unit);
                let _ = writeln!(
                    text,
                    "| {} | {} | {} | {reached} | {mark} |",
                    section.id, row.name, judged.wanted
                );
            }
        }
    }
    format!(
        "## Our own targets\n\n{met} met, {missed} missed, {unknown} not measured. What stands in the way of the missed \
         ones is told in\n[EXPERIMENTS.md](../docs/EXPERIMENTS.md#targets-that-are-missed-and-what-stands-in-the-way).\n\n\
         | | | target | reached | |\n|---|---|---|---|---|\n{text}\n"
    )
}

/// Refusals and failures of the programs, with the refusals of one program combined.
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
    use crate::plan::Extent;
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
        let plan = Plan::load(Extent::default(), &["w3".to_string()]).unwrap();
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
        assert!(!page.contains("| w3 | u64, 1 thread |"), "what is met is counted: {page}");
        assert!(page.contains("| w3 | u64, 2 threads |"), "{page}");
        assert!(page.contains("| u64, 2 threads | – | – |"), "{page}");
        assert!(page.contains("1 met, 0 missed, 5 not measured"), "{page}");
    }

    #[test]
    fn a_floor_that_something_beats_says_so() {
        let plan = Plan::load(Extent::default(), &["w3".to_string()]).unwrap();
        let told = |floor: f64| {
            let mut samples = Samples::default();
            for (name, ns) in [("requeue", 10.0), ("floor", floor)] {
                let cell = plan.sections[0].rows[0].cells.iter().find(|cell| cell.name == name).unwrap();
                samples.add(&cell.implementation, &cell.args, &json!({ "ns_per_op": ns }));
            }
            table(&plan.sections[0], &samples).contains("no floor")
        };
        assert!(told(11.0) && !told(9.0));
    }

    #[test]
    fn the_page_begins_with_the_summary_and_ends_with_the_targets() {
        let plan = Plan::load(Extent::default(), &["w3".to_string()]).unwrap();
        let mut samples = Samples::default();
        for cell in &plan.sections[0].rows[1].cells {
            samples.add(&cell.implementation, &cell.args, &json!({ "ns_per_op": 5.0 }));
        }
        let machine = Machine { commit: "0a1b2c".to_string(), ..Machine::default() };
        let page = page(&plan, &samples, &machine);
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
        assert!(at("| less is better") < at("commit 0a1b2c") && at("commit 0a1b2c") < at("## W3"), "{page}");
        assert!(at("## W3") < at("## Our own targets"), "{page}");
        assert!(page.trim_end().ends_with('|'), "{page}");
    }
}

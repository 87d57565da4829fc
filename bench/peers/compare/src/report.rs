//! The results: a page for readers, all figures and all targets as CSV, and tables for a terminal.

use crate::judge::{Judged, Verdict, judge, times};
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

/// The page for readers: the summary, the machine, how many targets are met, and where all figures stand.
pub(crate) fn page(plan: &Plan, samples: &Samples, machine: &Machine) -> String {
    let (met, missed, unknown) = count(&judged(plan, samples));
    let page = format!(
        "# Results\n\n{}\n![client-go's figure divided by requeue's](results.svg)\n\n\
         [results.csv](results.csv) has every figure with the smallest and the largest of the rounds, and how many times as \
         good as\nclient-go (for a token bucket, as x/time/rate) it is in the same run. [targets.csv](targets.csv) has our own \
         targets: {met} met,\n{missed} missed, {unknown} not measured; \
         [EXPERIMENTS.md](../docs/EXPERIMENTS.md#targets-that-are-missed-and-what-stands-in-the-way) says what stands in the \
         way.\nWritten by `bench/peers/run`; [README.md](README.md#workloads) says what the workloads are.\n\n{}{}",
        head(plan, samples, machine),
        about(machine),
        failures(plan, samples)
    );
    format!("{}\n", page.trim_end())
}

/// A line of CSV (RFC 4180).
fn line(fields: &[&str]) -> String {
    let quoted = |field: &&str| {
        let plain = !field.contains([',', '"', '\n']);
        if plain { (*field).to_string() } else { format!("\"{}\"", field.replace('"', "\"\"")) }
    };
    format!("{}\n", fields.iter().map(quoted).collect::<Vec<_>>().join(","))
}

/// A number of a table: four digits that count.
fn plain(x: f64) -> String {
    let decimals = (3 - x.abs().max(1e-9).log10().floor() as i32).clamp(0, 4) as usize;
    let text = format!("{x:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// All figures as CSV, a line for each field of each measurement.
pub(crate) fn figures(plan: &Plan, samples: &Samples) -> String {
    let mut text =
        line(&["workload", "row", "program", "field", "median", "least", "most", "times client-go"]);
    for section in &plan.sections {
        for (row, cell) in section.rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell))) {
            let ours = cell.kind == Kind::Ours && cell.name != "requeue";
            let program = if ours { format!("requeue, {}", cell.name) } else { cell.name.clone() };
            for (i, field) in section.show.iter().enumerate() {
                let Some(stat) = samples.stat(cell, field) else { continue };
                let times = beside_go(cell, row, section, samples).filter(|_| i == 0).map(plain);
                let [median, least, most] = [stat.median, stat.min, stat.max].map(plain);
                let times = times.unwrap_or_default();
                text += &line(&[&section.id, &row.name, &program, field, &median, &least, &most, &times]);
            }
        }
    }
    text
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

/// The rest of the run's conditions.
fn about(machine: &Machine) -> String {
    let mut about = String::from("| | |\n|---|---|\n");
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(about, "| {name} | {value} |");
    };
    row("kernel", &machine.kernel);
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

/// The factor by which one of ours is better than Go's: compared with client-go in the same configuration, if
/// that is measured.
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

/// Each target with its section and row, and what was reached.
fn judged<'a>(plan: &'a Plan, samples: &Samples) -> Vec<(&'a Section, &'a Row, Judged)> {
    let rows = plan.sections.iter().flat_map(|section| section.rows.iter().map(move |row| (section, row)));
    rows.flat_map(|(section, row)| row.targets.iter().map(move |target| (section, row, target)))
        .map(|(section, row, target)| (section, row, judge(target, row, &section.show[0], samples)))
        .collect()
}

/// Numbers of targets that are met, missed, and not measured.
fn count(judged: &[(&Section, &Row, Judged)]) -> (usize, usize, usize) {
    let count = |verdict| judged.iter().filter(|(.., it)| it.verdict == verdict).count();
    (count(Verdict::Met), count(Verdict::Missed), count(Verdict::Unknown))
}

/// Our own targets as CSV.
pub(crate) fn targets(plan: &Plan, samples: &Samples) -> String {
    let mut text = line(&["workload", "row", "target", "reached", "verdict"]);
    for (section, row, judged) in judged(plan, samples) {
        let reached = judged.reached.map_or(String::new(), |reached| plain(reached) + judged.unit);
        let verdict = match judged.verdict {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::Unknown => "not measured",
        };
        text += &line(&[&section.id, &row.name, &judged.wanted, &reached, verdict]);
    }
    text
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
    fn figures_and_targets_are_what_was_measured_and_reached() {
        let plan = Plan::load(Extent::default(), &["redundant".to_string()]).unwrap();
        let mut samples = Samples::default();
        let cells = &plan.sections[0].rows[0].cells;
        for (cell, rounds) in cells.iter().zip([[4.0, 5.0, 9.0], [20.0, 20.0, 20.0]]) {
            for ns in rounds {
                samples.add(&cell.implementation, &cell.args, &json!({ "ns_per_op": ns }));
            }
        }
        let table = table(&plan.sections[0], &samples);
        assert!(table.contains("\n| | requeue | client-go |\n"), "{table}");
        assert!(table.contains("| u64, 1 thread | 5 (4–9) **4x** | 20 |"), "{table}");
        assert!(table.contains("| u64, 2 threads | – | – |"), "{table}");
        let figures = figures(&plan, &samples);
        let (head, rows) = figures.split_once('\n').unwrap();
        assert_eq!(head.split(',').count(), 8);
        let expected = "redundant,\"u64, 1 thread\",requeue,ns_per_op,5,4,9,4\n\
                        redundant,\"u64, 1 thread\",client-go,ns_per_op,20,20,20,\n";
        assert_eq!(rows, expected);
        let targets = targets(&plan, &samples);
        assert!(
            targets.contains("redundant,\"u64, 1 thread\",requeue: 2.4x client-go,4x,met\n"),
            "{targets}"
        );
        assert!(
            targets.contains("redundant,\"u64, 2 threads\",requeue: 5.5x client-go,,not measured\n"),
            "{targets}"
        );
        let page = page(&plan, &samples, &Machine::default());
        assert!(page.contains("1 met,\n0 missed, 5 not measured"), "{page}");
    }

    #[test]
    fn fields_of_csv_are_quoted_where_they_must_be() {
        assert_eq!(line(&["a", "b, c", "say \"d\""]), "a,\"b, c\",\"say \"\"d\"\"\"\n");
        let shown = [0.0, 0.31234, 5.0, 43.256, 1_234.5, 99_049_472.0].map(plain);
        assert_eq!(shown, ["0", "0.3123", "5", "43.26", "1234", "99049472"]);
    }

    #[test]
    fn a_floor_that_something_beats_says_so() {
        let plan = Plan::load(Extent::default(), &["redundant".to_string()]).unwrap();
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
    fn the_page_begins_with_the_summary_and_says_what_was_measured() {
        let plan = Plan::load(Extent::default(), &["redundant".to_string()]).unwrap();
        let mut samples = Samples::default();
        for cell in &plan.sections[0].rows[1].cells {
            samples.add(&cell.implementation, &cell.args, &json!({ "ns_per_op": 5.0 }));
        }
        let machine = Machine { commit: "0a1b2c".to_string(), ..Machine::default() };
        let page = page(&plan, &samples, &machine);
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
        assert!(
            at("| less is better") < at("commit 0a1b2c") && at("commit 0a1b2c") < at("results.csv"),
            "{page}"
        );
        assert!(at("results.csv") < at("| kernel |"), "{page}");
    }
}

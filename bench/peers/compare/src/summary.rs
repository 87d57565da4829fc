//! The one table that a stranger reads: each headline's workload in words, client-go,
//! the plain mutex, requeue, and how many times as good that is as client-go.

use crate::judge::times;
use crate::plan::{Cell, Kind, Pick, Plan, Row};
use crate::report::number;
use crate::samples::Samples;
use std::fmt::Write;

/// A row of the summary.
#[derive(Debug, PartialEq)]
pub(crate) struct Line {
    /// The workload, and in what its figures are.
    pub(crate) what: String,
    pub(crate) go: Option<f64>,
    pub(crate) plain: Option<f64>,
    pub(crate) ours: f64,
    /// The factor by which it is better than client-go.
    pub(crate) times: Option<f64>,
}

/// All rows in which requeue was measured.
pub(crate) fn lines(plan: &Plan, samples: &Samples) -> Vec<Line> {
    let mut lines = Vec::new();
    for section in &plan.sections {
        for row in &section.rows {
            let Some(headline) = &row.headline else { continue };
            let field = headline.field.as_ref().unwrap_or(&section.show[0]);
            let figure = |cell: &Cell| figure(cell, row, field, samples);
            let peer = |name: &str| row.cells.iter().find(|c| c.kind == Kind::Peer && c.name == name);
            let ours = row.cells.iter().filter(|c| c.kind == Kind::Ours && headline.of.contains(&c.name));
            // the lowest value is the best
            let Some(ours) = ours.filter_map(figure).reduce(f64::min) else { continue };
            let go = peer("client-go").and_then(figure);
            lines.push(Line {
                what: format!("{}, {}", headline.name, headline.unit),
                go,
                plain: peer("plain mutex").and_then(figure),
                ours,
                times: go.map(|go| times(ours, go, field)),
            });
        }
    }
    lines
}

/// A measurement's median, or the least of its rounds where that counts.
pub(crate) fn figure(cell: &Cell, row: &Row, field: &str, samples: &Samples) -> Option<f64> {
    let stat = samples.stat(cell, field)?;
    Some(if picks_least(row) { stat.min } else { stat.median })
}

pub(crate) fn picks_least(row: &Row) -> bool {
    row.targets.iter().any(|target| target.pick == Pick::Min)
}

/// The table, with columns aligned for a terminal.
pub(crate) fn table(lines: &[Line]) -> String {
    let cell = |x: Option<f64>| x.map_or("–".to_string(), number);
    let mut rows = vec![
        ["less is better", "client-go", "plain mutex", "requeue", "client-go : requeue"].map(String::from),
    ];
    rows.extend(lines.iter().map(|line| {
        let times = line.times.map_or("–".to_string(), |times| format!("{times:.1}x"));
        [line.what.clone(), cell(line.go), cell(line.plain), cell(Some(line.ours)), times]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for (i, [what, figures @ ..]) in rows.iter().enumerate() {
        let _ = write!(text, "| {what:<width$} |", width = widths[0]);
        for (figure, width) in figures.iter().zip(&widths[1..]) {
            let _ = write!(text, " {figure:>width$} |");
        }
        text.push('\n');
        if i == 0 {
            let _ = write!(text, "|:{}-|", "-".repeat(widths[0]));
            widths[1..].iter().for_each(|width| _ = write!(text, "-{}:|", "-".repeat(*width)));
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Extent;
    use serde_json::json;

    fn samples(plan: &Plan, row: usize, of: &[(&str, &str, f64)]) -> Samples {
        let mut samples = Samples::default();
        for (name, field, value) in of {
            let cell = plan.sections[0].rows[row].cells.iter().find(|cell| cell.name == *name).unwrap();
            samples.add(&cell.implementation, &cell.args, &json!({ *field: value }));
        }
        samples
    }

    #[test]
    fn the_best_way_of_a_headline_stands_beside_client_go_and_the_plain_mutex() {
        let plan = Plan::load(Extent::default(), &["contended".to_string()]).unwrap();
        let ns = |name, value| (name, "ns_per_op", value);
        let of = [ns("threads", 50.0), ns("tasks", 25.0), ns("client-go", 100.0), ns("plain mutex", 2000.0)];
        let lines = lines(&plan, &samples(&plan, 0, &of));
        let line = Line {
            what: "One producer, one consumer, ns a key".to_string(),
            go: Some(100.0),
            plain: Some(2000.0),
            ours: 25.0,
            times: Some(4.0),
        };
        assert_eq!(lines, [line]);
        assert_eq!(
            table(&lines),
            "\
| less is better                       | client-go | plain mutex | requeue | client-go : requeue |
|:-------------------------------------|----------:|------------:|--------:|--------------------:|
| One producer, one consumer, ns a key |       100 |       2,000 |      25 |                4.0x |
"
        );
    }

    #[test]
    fn a_peer_that_was_not_measured_is_left_open() {
        let plan = Plan::load(Extent::default(), &["contended".to_string()]).unwrap();
        let lines = lines(&plan, &samples(&plan, 0, &[("tasks", "ns_per_op", 25.0)]));
        assert_eq!((lines[0].go, lines[0].times), (None, None));
        assert!(table(&lines).contains(" – |"));
    }

    #[test]
    fn the_worst_stop_is_the_least_of_the_rounds() {
        let plan = Plan::load(Extent::default(), &["stops".to_string()]).unwrap();
        let of = [90.0, 70.0, 80.0].map(|us| ("requeue", "max_us", us));
        assert_eq!(lines(&plan, &samples(&plan, 0, &of))[0].ours, 70.0);
    }
}

//! Whether a target is met.

use crate::plan::{Cell, Pick, Row, Target};
use crate::samples::Samples;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Met,
    Missed,
    /// Something that it looks at was not measured.
    Unknown,
}

/// A target and the measured result.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) wanted: String,
    pub(crate) reached: Option<f64>,
    /// `x`, or nothing.
    pub(crate) unit: &'static str,
    pub(crate) verdict: Verdict,
}

/// Whether more of a field is better.
pub(crate) fn more_is_better(field: &str) -> bool {
    field == "handed_per_s"
}

fn value(samples: &Samples, cell: &Cell, field: &str, pick: Pick) -> Option<f64> {
    let stat = samples.stat(cell, field)?;
    Some(match pick {
        Pick::Median => stat.median,
        Pick::Min => stat.min,
    })
}

/// The factor by which `ours` is better than `peer`.
pub(crate) fn times(ours: f64, peer: f64, field: &str) -> f64 {
    if more_is_better(field) { ours / peer } else { peer / ours }
}

/// Looks whether the row's target is met; `first` is the field that it means
/// unless it names one.
pub(crate) fn judge(target: &Target, row: &Row, first: &str, samples: &Samples) -> Judged {
    let field = target.field.as_deref().unwrap_or(first);
    let cell = |name: &String| row.cells.iter().find(|cell| cell.name == *name);
    let read = |name: &String| value(samples, cell(name)?, field, target.pick);
    let beside = target.vs.as_ref().and_then(read);

    // the value that is compared with the bound, and whether it is to be at least that
    let measure = |ours: f64| match (target.times, target.within, target.over) {
        (Some(_), ..) => Some(times(ours, beside?, field)),
        (_, Some(_), _) => Some(ours / beside?),
        (.., Some(_)) => Some(ours - beside?),
        _ => Some(ours),
    };
    let at_least = target.times.is_some();
    let better = |a: f64, b: f64| if at_least { a.max(b) } else { a.min(b) };
    let worse = |a: f64, b: f64| if at_least { a.min(b) } else { a.max(b) };
    let reached = if target.each.is_empty() {
        target.of.iter().filter_map(read).filter_map(measure).reduce(better)
    } else {
        let all: Option<Vec<f64>> = target.each.iter().map(|name| measure(read(name)?)).collect();
        all.and_then(|all| all.into_iter().reduce(worse))
    };
    let bound = target.times.or(target.within).or(target.over).or(target.at_most).unwrap_or_default();
    let verdict = match reached {
        None => Verdict::Unknown,
        Some(reached) if (if at_least { reached >= bound } else { reached <= bound }) => Verdict::Met,
        Some(_) => Verdict::Missed,
    };
    let unit = if target.times.or(target.within).is_some() { "x" } else { "" };
    Judged { wanted: wanted(target, field, first), reached, unit, verdict }
}

fn wanted(target: &Target, field: &str, first: &str) -> String {
    let who = match (&target.of[..], &target.each[..]) {
        ([one], _) => one.clone(),
        (several, []) => format!("the better of {}", several.join(" and ")),
        (_, each) => format!("each of {}", each.join(" and ")),
    };
    let what = if field == first { String::new() } else { format!(", {field}") };
    let vs = target.vs.as_deref().unwrap_or_default();
    let bound = match target {
        Target { times: Some(1.0), .. } => format!("no worse than {vs}"),
        Target { times: Some(x), .. } => format!("{x}x {vs}"),
        Target { within: Some(1.0), .. } => format!("no more than {vs}"),
        Target { within: Some(x), .. } => format!("at most {x} times {vs}"),
        Target { over: Some(x), .. } => format!("at most {x} more than {vs}"),
        Target { at_most, pick, .. } => {
            let least = if *pick == Pick::Min { ", the smallest of the rounds" } else { "" };
            format!("at most {}{least}", at_most.unwrap_or_default())
        }
    };
    format!("{who}{what}: {bound}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Extent, Plan};
    use serde_json::json;

    /// A row of the file, and samples in which `ns` holds for its cells by name.
    fn judged(target: &Target, values: &[(&str, &str, f64)]) -> Judged {
        let plan = Plan::load(Extent::default(), &["contended".to_string()]).unwrap();
        let row = &plan.sections[0].rows[0];
        let mut samples = Samples::default();
        for (name, field, value) in values {
            let cell = row.cells.iter().find(|cell| cell.name == *name).unwrap();
            samples.add(&cell.implementation, &cell.args, &json!({ *field: value }));
        }
        judge(target, row, "ns_per_op", &samples)
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn vs(name: &str) -> Option<String> {
        Some(name.to_string())
    }

    const NS: [(&str, &str, f64); 3] =
        [("threads", "ns_per_op", 50.0), ("tasks", "ns_per_op", 25.0), ("client-go", "ns_per_op", 100.0)];

    #[test]
    fn the_best_of_several_ways_counts() {
        let target = |x| Target {
            of: names(&["threads", "tasks"]),
            vs: vs("client-go"),
            times: Some(x),
            ..Target::default()
        };
        let met = judged(&target(4.0), &NS);
        assert_eq!((met.reached, met.verdict), (Some(4.0), Verdict::Met));
        assert_eq!(judged(&target(4.1), &NS).verdict, Verdict::Missed);
        assert_eq!(met.wanted, "the better of threads and tasks: 4x client-go");
        // one of them is enough
        assert_eq!(judged(&target(2.0), &[NS[0], NS[2]]).verdict, Verdict::Met);
        assert_eq!(judged(&target(2.0), &NS[..2]).verdict, Verdict::Unknown);
    }

    #[test]
    fn each_way_must_be_there_and_reach_it() {
        let target = |x| Target {
            each: names(&["threads", "tasks"]),
            vs: vs("client-go"),
            times: Some(x),
            ..Target::default()
        };
        assert_eq!(judged(&target(2.0), &NS).reached, Some(2.0));
        assert_eq!(judged(&target(2.1), &NS).verdict, Verdict::Missed);
        assert_eq!(judged(&target(1.0), &NS[1..]).verdict, Verdict::Unknown);
    }

    #[test]
    fn more_keys_a_second_are_better() {
        let target = Target {
            of: names(&["threads"]),
            vs: vs("client-go"),
            times: Some(1.0),
            field: Some("handed_per_s".to_string()),
            ..Target::default()
        };
        let fewer = [("threads", "handed_per_s", 90.0), ("client-go", "handed_per_s", 100.0)];
        let judged = judged(&target, &fewer);
        assert_eq!((judged.reached, judged.verdict), (Some(0.9), Verdict::Missed));
        assert_eq!(judged.wanted, "threads, handed_per_s: no worse than client-go");
    }

    #[test]
    fn floors_differences_and_bounds() {
        let of = |name: &str| Target { of: names(&[name]), ..Target::default() };
        let within = Target { vs: vs("tasks"), within: Some(1.9), ..of("threads") };
        let within = judged(&within, &NS);
        assert_eq!((within.reached, within.verdict), (Some(2.0), Verdict::Missed));
        let over = Target { vs: vs("tasks"), over: Some(30.0), ..of("threads") };
        let over = judged(&over, &NS);
        assert_eq!((over.reached, over.verdict), (Some(25.0), Verdict::Met));
        let bound = Target { at_most: Some(50.0), ..of("threads") };
        assert_eq!(judged(&bound, &NS).verdict, Verdict::Met);
    }

    #[test]
    fn the_smallest_of_the_rounds_can_count() {
        let rounds = [60.0, 40.0, 90.0].map(|us| ("threads", "max_us", us));
        let target = |pick| Target {
            of: names(&["threads"]),
            at_most: Some(50.0),
            pick,
            field: Some("max_us".to_string()),
            ..Target::default()
        };
        assert_eq!(judged(&target(Pick::Median), &rounds).verdict, Verdict::Missed);
        assert_eq!(judged(&target(Pick::Min), &rounds).verdict, Verdict::Met);
    }
}

//! The plan: measurements and targets, from `targets.toml`.

use serde::Deserialize;

/// The file's text.
const FILE: &str = include_str!("../targets.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// The implementations that a quick run measures.
    quick_peers: Vec<String>,
    #[serde(rename = "w")]
    pub(crate) sections: Vec<Section>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Section {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) unit: String,
    #[serde(default)]
    pub(crate) say: String,
    ours: Vec<Way>,
    peers: Vec<Way>,
    #[serde(default = "ns_per_op")]
    pub(crate) show: Vec<String>,
    #[serde(rename = "row")]
    pub(crate) rows: Vec<Row>,
}

fn ns_per_op() -> Vec<String> {
    vec!["ns_per_op".to_string()]
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) name: String,
    args: String,
    n: Option<u64>,
    quick: Option<u64>,
    ours: Option<Vec<Way>>,
    peers: Option<Vec<Way>>,
    #[serde(default)]
    beside: Vec<Way>,
    pub(crate) headline: Option<Headline>,
    #[serde(default, rename = "target")]
    pub(crate) targets: Vec<Target>,
    /// The measurements, from [`Plan::expand`].
    #[serde(skip)]
    pub(crate) cells: Vec<Cell>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Way {
    name: String,
    #[serde(rename = "impl")]
    implementation: Option<String>,
    args: Option<String>,
    run: Option<String>,
    /// Measured only where all peers are asked for.
    #[serde(default)]
    more: bool,
}

/// The extent of the measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    /// Fewer rows with fewer keys, and only `quick_peers`.
    pub(crate) quick: bool,
    /// Every peer there is.
    pub(crate) all_peers: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Headline {
    pub(crate) name: String,
    pub(crate) of: Vec<String>,
    /// The first of the section's `show` unless it is named.
    pub(crate) field: Option<String>,
    pub(crate) unit: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Target {
    #[serde(default)]
    pub(crate) of: Vec<String>,
    #[serde(default)]
    pub(crate) each: Vec<String>,
    pub(crate) vs: Option<String>,
    pub(crate) times: Option<f64>,
    pub(crate) within: Option<f64>,
    pub(crate) over: Option<f64>,
    pub(crate) at_most: Option<f64>,
    #[serde(default)]
    pub(crate) pick: Pick,
    pub(crate) field: Option<String>,
}

/// Selects the rounds of a measurement that count.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pick {
    #[default]
    Median,
    Min,
}

/// One measurement of a row: a program and what it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Its name in the row.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) implementation: String,
    /// The workload with all its parameters.
    pub(crate) args: String,
    pub(crate) more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    Peer,
    Beside,
}

impl Plan {
    /// Reads the file, for that much; `only` names sections, all if it is empty.
    pub(crate) fn load(extent: Extent, only: &[String]) -> Result<Self, String> {
        Self::parse(FILE, extent, only)
    }

    fn parse(text: &str, extent: Extent, only: &[String]) -> Result<Self, String> {
        let mut plan: Self = toml::from_str(text).map_err(|e| format!("targets.toml: {e}"))?;
        for section in &mut plan.sections {
            for row in &mut section.rows {
                row.cells = expand(row, &section.ours, &section.peers, extent.quick);
                check(row).map_err(|e| format!("targets.toml: {}, {}: {e}", section.id, row.name))?;
                let quick = |cell: &Cell| !extent.quick || plan.quick_peers.contains(&cell.implementation);
                row.cells.retain(|cell| extent.all_peers || (!cell.more && quick(cell)));
            }
        }
        for name in only {
            if !plan.sections.iter().any(|s| belongs(&s.id, name)) {
                let known: Vec<_> = plan.sections.iter().map(|s| s.id.as_str()).collect();
                return Err(format!("there is no {name:?}; there are: {}", known.join(", ")));
            }
        }
        plan.sections.retain(|s| only.is_empty() || only.iter().any(|name| belongs(&s.id, name)));
        for section in &mut plan.sections {
            section.rows.retain(|row| !extent.quick || row.quick.is_some());
        }
        Ok(plan)
    }
}

/// Whether a section is meant: `timers` means `timers-served` too.
fn belongs(id: &str, name: &str) -> bool {
    id.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn expand(row: &Row, ours: &[Way], peers: &[Way], quick: bool) -> Vec<Cell> {
    let n = row.n.map(|n| if quick { row.quick.unwrap_or(n) } else { n });
    let cell = |way: &Way, kind, implementation: &str| {
        let run = way.run.as_ref().unwrap_or(&row.args).clone();
        let parts = [Some(run), way.args.clone(), n.map(|n| format!("n={n}"))];
        Cell {
            name: way.name.clone(),
            kind,
            implementation: way.implementation.as_deref().unwrap_or(implementation).to_string(),
            args: parts.into_iter().flatten().collect::<Vec<_>>().join(" "),
            more: way.more,
        }
    };
    let ours = row.ours.as_deref().unwrap_or(ours).iter().map(|way| cell(way, Kind::Ours, "requeue"));
    let peers = row.peers.as_deref().unwrap_or(peers).iter().map(|way| cell(way, Kind::Peer, &way.name));
    let beside = row.beside.iter().map(|way| cell(way, Kind::Beside, &way.name));
    ours.chain(peers).chain(beside).collect()
}

fn check(row: &Row) -> Result<(), String> {
    let known = |name: &String| row.cells.iter().any(|cell| cell.name == *name);
    let names: Vec<_> = row.cells.iter().map(|cell| &cell.name).collect();
    for name in &names {
        if names.iter().filter(|other| other == &name).count() > 1 {
            return Err(format!("two are called {name:?}"));
        }
    }
    let wanted = row.headline.iter().flat_map(|h| &h.of);
    for name in wanted.chain(row.targets.iter().flat_map(|t| t.of.iter().chain(&t.each).chain(&t.vs))) {
        if !known(name) {
            return Err(format!("nothing is called {name:?}"));
        }
    }
    for t in &row.targets {
        if t.of.is_empty() == t.each.is_empty() {
            return Err("a target is `of` the best or of `each`".to_string());
        }
        let beside = [t.times, t.within, t.over].iter().flatten().count();
        if (beside, t.at_most.is_some(), t.vs.is_some()) != (1, false, true)
            && (beside, t.at_most.is_some(), t.vs.is_some()) != (0, true, false)
        {
            return Err("a target is one of: times, within or over with `vs`; at_most without".to_string());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn only(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_file_is_sound_in_both_lengths() {
        let whole = Plan::load(WHOLE, &[]).unwrap();
        let quick = Plan::load(QUICK, &[]).unwrap();
        let rows = |plan: &Plan| plan.sections.iter().map(|s| s.rows.len()).sum::<usize>();
        assert!(rows(&quick) < rows(&whole));
        assert!(whole.sections.iter().all(|s| s.rows.iter().all(|r| !r.cells.is_empty())));
        assert!(quick.sections.iter().all(|s| !s.rows.is_empty()), "each section has a quick row");
    }

    #[test]
    fn a_name_means_its_parts_too() {
        assert!(belongs("timers", "timers") && belongs("timers-served", "timers"));
        assert!(!belongs("timers", "time") && !belongs("timers", "timers-served"));
        let plan = Plan::load(WHOLE, &only(&["cycle", "stops"])).unwrap();
        assert_eq!(plan.sections.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["cycle", "stops"]);
        assert!(Plan::load(WHOLE, &only(&["cycles"])).unwrap_err().contains("cycles"));
    }

    #[test]
    fn peers_are_measured_as_far_as_they_are_asked_for() {
        let peers = |quick, all_peers| {
            let plan = Plan::load(Extent { quick, all_peers }, &[]).unwrap();
            let cells = plan.sections.into_iter().flat_map(|s| s.rows).flat_map(|row| row.cells);
            cells.map(|cell| cell.implementation).collect::<HashSet<_>>()
        };
        let (quick, whole, all) = (peers(true, false), peers(false, false), peers(false, true));
        assert_eq!(
            quick,
            ["requeue", "client-go", "x-time-rate", "plain", "park", "notify"].map(String::from).into()
        );
        assert!(quick.is_subset(&whole) && whole.contains("kube") && !whole.contains("mutex"));
        assert!(whole.is_subset(&all) && all.contains("mutex"));
        assert!(peers(true, true).contains("kube"));
    }

    #[test]
    fn targets_and_headlines_have_their_peers_in_the_shortest_run() {
        for section in Plan::load(QUICK, &[]).unwrap().sections {
            for row in section.rows {
                let named = |name: &String| row.cells.iter().any(|cell| cell.name == *name);
                assert!(row.targets.iter().flat_map(|t| &t.vs).all(named), "{}: {}", section.id, row.name);
            }
        }
    }

    const QUICK: Extent = Extent { quick: true, all_peers: false };
    const WHOLE: Extent = Extent { quick: false, all_peers: false };

    const SMALL: &str = r#"
        quick_peers = ["requeue", "p"]
        [[w]]
        id = "cycle"
        title = "t"
        unit = "ns"
        ours = [{ name = "a" }, { name = "b", args = "form=next" }]
        peers = [{ name = "p" }]
        [[w.row]]
        name = "r"
        args = "cycle key=u64"
        n = 100
        quick = 10
        beside = [{ name = "floor", impl = "requeue", run = "cyclefloor" }]
        target = [TARGET]
    "#;

    #[test]
    fn cells_have_all_arguments() {
        let text = SMALL.replace("TARGET", "");
        let plan = Plan::parse(&text, QUICK, &[]).unwrap();
        let lines: Vec<_> = plan.sections[0].rows[0]
            .cells
            .iter()
            .map(|c| format!("{} {}", c.implementation, c.args))
            .collect();
        let expected = [
            "requeue cycle key=u64 n=10",
            "requeue cycle key=u64 form=next n=10",
            "p cycle key=u64 n=10",
            "requeue cyclefloor n=10",
        ];
        assert_eq!(lines, expected);
        let whole = Plan::parse(&text, WHOLE, &[]).unwrap();
        assert!(whole.sections[0].rows[0].cells[0].args.ends_with("n=100"));
    }

    #[test]
    fn a_target_that_means_nothing_is_refused() {
        let refused = |target: &str| Plan::parse(&SMALL.replace("TARGET", target), WHOLE, &[]).unwrap_err();
        assert!(refused(r#"{ of = ["c"], at_most = 1.0 }"#).contains("nothing is called \"c\""));
        assert!(refused(r#"{ at_most = 1.0 }"#).contains("`of` the best or of `each`"));
        assert!(refused(r#"{ of = ["a"], times = 1.0 }"#).contains("with `vs`"));
        assert!(refused(r#"{ of = ["a"], vs = "p", at_most = 1.0 }"#).contains("with `vs`"));
        assert!(refused(r#"{ of = ["a"], vs = "p", times = 1.0, within = 1.0 }"#).contains("one of"));
    }
}

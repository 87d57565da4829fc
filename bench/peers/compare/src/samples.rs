//! The samples measured.

use crate::plan::Cell;
use serde_json::Value;
use std::collections::HashMap;

/// All rounds of all measurements.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    fields: HashMap<String, Vec<HashMap<String, f64>>>,
    /// Measurements that a program refused or failed.
    pub(crate) failed: HashMap<String, String>,
}

/// A field over all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stat {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Samples {
    fn key(implementation: &str, args: &str) -> String {
        format!("{implementation} {args}")
    }

    /// Takes in one line of a program's output.
    pub(crate) fn add(&mut self, implementation: &str, args: &str, line: &Value) {
        let numbers = line.as_object().into_iter().flatten();
        let numbers = numbers.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect();
        self.fields.entry(Self::key(implementation, args)).or_default().push(numbers);
    }

    pub(crate) fn fail(&mut self, implementation: &str, args: &str, why: &str) {
        self.failed.insert(Self::key(implementation, args), why.to_string());
    }

    pub(crate) fn stat(&self, cell: &Cell, field: &str) -> Option<Stat> {
        let rounds = self.fields.get(&Self::key(&cell.implementation, &cell.args))?;
        Stat::of(rounds.iter().filter_map(|fields| fields.get(field).copied()).collect())
    }
}

impl Stat {
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Kind;
    use serde_json::json;

    #[test]
    fn a_median_is_the_middle_or_between_the_two_middles() {
        assert_eq!(Stat::of(vec![]), None);
        assert_eq!(Stat::of(vec![5.0]), Some(Stat { median: 5.0, min: 5.0, max: 5.0 }));
        assert_eq!(Stat::of(vec![9.0, 1.0, 2.0]), Some(Stat { median: 2.0, min: 1.0, max: 9.0 }));
        assert_eq!(Stat::of(vec![4.0, 1.0, 2.0, 9.0]).unwrap().median, 3.0);
    }

    #[test]
    fn rounds_of_one_measurement_come_together() {
        let mut samples = Samples::default();
        for ns in [3.0, 1.0, 2.0] {
            samples.add("requeue", "cycle n=1", &json!({"impl": "requeue", "ns_per_op": ns, "ops": 7}));
        }
        samples.add("requeue", "cycle n=2", &json!({"ns_per_op": 50}));
        let cell = |args: &str| Cell {
            name: "x".to_string(),
            kind: Kind::Ours,
            implementation: "requeue".to_string(),
            args: args.to_string(),
            more: false,
        };
        assert_eq!(samples.stat(&cell("cycle n=1"), "ns_per_op").unwrap().median, 2.0);
        assert_eq!(samples.stat(&cell("cycle n=1"), "ops").unwrap().median, 7.0);
        assert_eq!(samples.stat(&cell("cycle n=1"), "impl"), None);
        assert_eq!(samples.stat(&cell("cycle n=3"), "ns_per_op"), None);
    }
}

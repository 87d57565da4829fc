//! [`Line`]: the output of a measurement.

use crate::measure::{Percentiles, Spent};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// One measurement: one line of JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The implementation measured.
    #[serde(rename = "impl")]
    pub implementation: &'static str,
    /// `cycle` and so on.
    pub workload: String,
    /// `name=value` pairs, in the order of the workload's table.
    pub params: String,
    /// Number of operations in the mean `ns_per_op`.
    pub ops: u64,
    /// Wall time of all of them.
    pub seconds: f64,
    /// Nanoseconds per operation; the workload defines the operation.
    pub ns_per_op: f64,
    /// Growth of the process's resident memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes_delta: Option<i64>,
    /// Median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// The worst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_us: Option<f64>,
    /// Processor time of the whole process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// Keys handed out a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handed_per_s: Option<f64>,
    /// Memory a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_key: Option<f64>,
    /// Figures of only some workloads or implementations.
    #[serde(flatten)]
    pub extra: BTreeMap<&'static str, f64>,
}

impl Line {
    /// `ops` operations that took `wall` in all.
    #[must_use]
    pub fn new(
        implementation: &'static str,
        workload: &str,
        params: String,
        ops: u64,
        wall: Duration,
    ) -> Self {
        Self {
            implementation,
            workload: workload.to_string(),
            params,
            ops,
            seconds: wall.as_secs_f64(),
            ns_per_op: wall.as_secs_f64() * 1e9 / ops as f64,
            rss_bytes_delta: None,
            p50_us: None,
            p99_us: None,
            max_us: None,
            cpu_seconds: None,
            handed_per_s: None,
            bytes_per_key: None,
            extra: BTreeMap::new(),
        }
    }

    /// Adds times including processor time, which is more reliable than wall time on a busy machine.
    #[must_use]
    pub fn spent(
        implementation: &'static str,
        workload: &str,
        params: String,
        ops: u64,
        spent: Spent,
    ) -> Self {
        let mut line = Self::new(implementation, workload, params, ops, spent.wall);
        let cpu = spent.cpu.as_secs_f64();
        line.cpu_seconds = Some(cpu);
        line.extra.insert("cpu_ns_per_op", cpu * 1e9 / ops as f64);
        line
    }

    /// Adds median, 99th percentile and maximum.
    #[must_use]
    pub fn percentiles(mut self, of: &Percentiles) -> Self {
        self.p50_us = Some(of.us(0.5));
        self.p99_us = Some(of.us(0.99));
        self.max_us = Some(of.us(1.0));
        self
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_string(self).map_err(|_| fmt::Error)?;
        f.write_str(&json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_shared_names_and_no_empty_fields() {
        let mut line = Line::new("requeue", "cycle", "key=u64".to_string(), 4, Duration::from_nanos(100));
        line.extra.insert("after_bytes_per_key", 1.5);
        let json = concat!(
            r#"{"impl":"requeue","workload":"cycle","params":"key=u64","ops":4,"#,
            r#""seconds":1e-7,"ns_per_op":25.0,"after_bytes_per_key":1.5}"#
        );
        assert_eq!(line.to_string(), json);
    }
}

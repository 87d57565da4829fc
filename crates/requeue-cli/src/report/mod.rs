//! Counts, messages and files about runs.

pub(crate) mod files;
pub(crate) mod joblog;
pub(crate) mod key_file;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod outcome;
pub(crate) mod progress;
pub(crate) mod run_stats;
pub(crate) mod summary;

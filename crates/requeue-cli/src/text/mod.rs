//! Durations, times, keys and JSON as text.

pub(crate) mod at;
pub(crate) mod duration;
pub(crate) mod json;
pub(crate) mod show;

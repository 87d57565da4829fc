//! How a worker deals with failures, and its hooks.

use super::outcome::{Failure, RunReport};
use crate::panics::quietly;
use std::sync::Arc;
use std::time::Duration;

pub(super) type Hook<K> = Arc<dyn Fn(&K, &Failure) + Send + Sync>;
pub(super) type EndHook<K> = Box<dyn Fn(&K, &RunReport<'_>) + Send + Sync>;

/// How a worker deals with failures, and the hooks that are told.
pub(super) struct Rules<K> {
    pub(super) time_limit: Option<Duration>,
    /// 0: no maximum.
    pub(super) max_attempts: u32,
    pub(super) on_failure: Option<Hook<K>>,
    pub(super) on_give_up: Option<Hook<K>>,
    pub(super) on_end: Option<EndHook<K>>,
}

/// Calls a hook; its panic ends nothing.
pub(super) fn report<K>(hook: Option<&Hook<K>>, key: &K, failure: &Failure) {
    if let Some(hook) = hook {
        quietly(|| hook(key, failure));
    }
}

//! How a worker deals with failures, and its hooks.

use super::outcome::RunReport;
use super::run::Run;
use crate::failure::Failure;
use crate::panics::quietly;
use std::sync::Arc;
use std::time::Duration;

pub(super) type Hook<K> = Arc<dyn Fn(&K, &Failure) + Send + Sync>;
pub(super) type StartHook<K, V> = Box<dyn Fn(&Run<K, V>) + Send + Sync>;
pub(super) type EndHook<K> = Box<dyn Fn(&K, &RunReport<'_>) + Send + Sync>;

/// How a worker deals with failures, and its hooks. Hooks of one kind are called in the order in which they were given.
pub(super) struct Rules<K: 'static, V: 'static> {
    pub(super) time_limit: Option<Duration>,
    /// 0: no maximum.
    pub(super) max_attempts: u32,
    pub(super) on_start: Vec<StartHook<K, V>>,
    pub(super) on_failure: Vec<Hook<K>>,
    pub(super) on_give_up: Vec<Hook<K>>,
    pub(super) on_end: Vec<EndHook<K>>,
}

impl<K, V> Default for Rules<K, V> {
    fn default() -> Self {
        Self {
            time_limit: None,
            max_attempts: 0,
            on_start: Vec::new(),
            on_failure: Vec::new(),
            on_give_up: Vec::new(),
            on_end: Vec::new(),
        }
    }
}

/// Calls each hook. A panic in one ends nothing else.
pub(super) fn report<K>(hooks: &[Hook<K>], key: &K, failure: &Failure) {
    for hook in hooks {
        quietly(|| hook(key, failure));
    }
}

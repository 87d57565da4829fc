//! `requeue run` and `requeue work`: from the queue to the end of a run.

pub(crate) mod child;
pub(crate) mod command;
pub(crate) mod dry_run;
pub(crate) mod feed;
pub(crate) mod intake;
pub(crate) mod judge;
pub(crate) mod listen;
pub(crate) mod process_slots;
pub(crate) mod queue;
pub(crate) mod reaper;
pub(crate) mod signals;
pub(crate) mod state;
pub(crate) mod template;
pub(crate) mod watched;
pub(crate) mod worker;

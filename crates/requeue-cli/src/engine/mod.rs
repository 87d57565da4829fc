//! The commands for a durable queue: `add`, `ls`, `state`, `cancel`, `retry`, `pause`, `resume`, `purge`, `stats`,
//! `top`, `migrate`, `check`.

mod add;
mod cancel;
pub(crate) mod commands;
mod out;
mod show;
pub(crate) mod store;
mod top;

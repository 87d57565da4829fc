//! The programs' output on its way to ours.

pub(crate) mod console;
pub(crate) mod group;
pub(crate) mod order;
pub(crate) mod orphan_output;
pub(crate) mod relay;

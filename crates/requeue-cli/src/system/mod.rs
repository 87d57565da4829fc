//! The operating system's side: limits, processes, files, and the stages of the end.

pub(crate) mod control;
pub(crate) mod exit;
pub(crate) mod limits;
pub(crate) mod lookup;
pub(crate) mod pipe;
pub(crate) mod process_group;
#[allow(unsafe_code)]
pub(crate) mod stdio_check;
pub(crate) mod whole_file;

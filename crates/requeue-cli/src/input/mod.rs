//! Where keys come from: lines of standard input, and watched files.

pub(crate) mod cause;
pub(crate) mod distinct;
pub(crate) mod keys;
pub(crate) mod line;
pub(crate) mod loops;
pub(crate) mod payload;
pub(crate) mod unpassable;
pub(crate) mod watch;

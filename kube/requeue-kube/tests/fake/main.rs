//! The scenarios of the design that need no real API server, on paused time, and the fake server's own switches.

mod cluster;
mod leader;
mod scenarios;
mod switches;
mod website;

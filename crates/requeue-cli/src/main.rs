//! The command `requeue`.
fn main() {}

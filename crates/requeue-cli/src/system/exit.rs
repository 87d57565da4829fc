//! Exit statuses, and the message of a command that ends before it began.

/// Exit status for a wrong command line.
pub(crate) const USAGE: u8 = 2;

/// Exit status as if ended by `SIGPIPE`, as for most programs whose reader is gone.
pub(crate) const CLOSED: u8 = 128 + 13;

/// Reports why there will be no run at all.
pub(crate) fn refuse(status: u8, why: &str) -> u8 {
    let line = format!("requeue: {why}\n");
    // If the message is not read, the status still tells.
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
    status
}

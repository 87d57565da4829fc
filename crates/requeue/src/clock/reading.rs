//! The system's monotonic clock, read as one number.
//!
//! A queue with metrics reads the clock in each call, one with near timers in each get. [`std::time::Instant`]
//! keeps seconds and nanoseconds apart, which makes each difference costly. One number is cheaper: a cycle of
//! add, get and done beside a timer (one reading) costs 639 instructions instead of 721, and a cycle with
//! metrics (three readings) 1,142 instead of 1,388 (callgrind, rustc 1.95, glibc 2.36).
//!
//! The `unsafe` here is a call of the C library that writes into a local variable.

use std::sync::OnceLock;
use std::time::{Duration, Instant as StdInstant};

/// Nanoseconds since an origin that is fixed for the process, saturating.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "calls the C library, see above")]
#[inline]
pub(super) fn nanos() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is that of a `timespec` that lives until the call is over. The call
    // fails for clocks that the system does not have, and Linux has had this one since 2.6.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // neither is negative: this clock counts from the system's start
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn nanos() -> u64 {
    since(meeting().0, StdInstant::now())
}

/// Reads both clocks at one instant: `Instant` is read between two readings of the number, and the closest of
/// several attempts is kept. The error is at most half a reading, and reading one clock after the other keeps
/// their order.
#[cfg(target_os = "linux")]
fn bring_together() -> (StdInstant, u64) {
    let attempt = || {
        let (before, at, after) = (nanos(), StdInstant::now(), nanos());
        (after - before, (at, before + (after - before) / 2))
    };
    let mut best = attempt();
    for _ in 0..32 {
        let next = attempt();
        if next.0 < best.0 {
            best = next;
        }
    }
    best.1
}

#[cfg(not(target_os = "linux"))]
fn bring_together() -> (StdInstant, u64) {
    (StdInstant::now(), 0)
}

/// A pair of readings taken at one instant, once per process.
fn meeting() -> (StdInstant, u64) {
    static MEETING: OnceLock<(StdInstant, u64)> = OnceLock::new();
    *MEETING.get_or_init(bring_together)
}

/// Nanoseconds as 64 bits; `Duration::as_nanos` would compute 128.
fn since(earlier: StdInstant, later: StdInstant) -> u64 {
    let since = later.saturating_duration_since(earlier);
    since.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(since.subsec_nanos()))
}

/// Converts an instant to the number of [`nanos`]; 0 if it lies before the origin.
pub(super) fn from_std(at: StdInstant) -> u64 {
    let (met, nanos) = meeting();
    if at >= met { nanos.saturating_add(since(met, at)) } else { nanos.saturating_sub(since(at, met)) }
}

/// Converts a number of [`nanos`] to an instant; `None` if the platform cannot express it.
pub(super) fn to_std(at: u64) -> Option<StdInstant> {
    let (met, nanos) = meeting();
    if at >= nanos {
        met.checked_add(Duration::from_nanos(at - nanos))
    } else {
        met.checked_sub(Duration::from_nanos(nanos - at))
    }
}

//! Standard descriptors that were closed when the command was started (`>&-`).
//!
//! `main` is too late for the check: before it Rust's runtime opens `/dev/null` in place of each closed one,
//! so that no other file gets its number. A `/dev/null` that the user chose looks alike. So [`LOOK`] is among
//! the functions that the system calls before the runtime begins.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, fcntl_getfd};
use rustix::stdio::{stdin, stdout};

static INPUT: AtomicBool = AtomicBool::new(false);
static OUTPUT: AtomicBool = AtomicBool::new(false);

/// Invariant: this section holds addresses of functions only, of the type that the C runtime
/// calls (it may pass arguments, which a C function may leave unread). That is why it is
/// unsafe to place something there.
#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static LOOK: extern "C" fn() = look;

/// Runs before the runtime: it allocates nothing, cannot panic and uses nothing of the
/// standard library but these two atomics. It asks the system for two descriptors' flags.
extern "C" fn look() {
    INPUT.store(fcntl_getfd(stdin()) == Err(Errno::BADF), Ordering::Relaxed);
    OUTPUT.store(fcntl_getfd(stdout()) == Err(Errno::BADF), Ordering::Relaxed);
}

/// # Errors
///
/// Checks that standard input was open. The error is the message.
pub(crate) fn has_input() -> Result<(), &'static str> {
    let why = "standard input is closed; open it, or read from /dev/null";
    if INPUT.load(Ordering::Relaxed) { Err(why) } else { Ok(()) }
}

/// # Errors
///
/// Checks that standard output was open. The error is the message.
pub(crate) fn has_output() -> Result<(), &'static str> {
    let why = "standard output is closed; open it, or send it to /dev/null";
    if OUTPUT.load(Ordering::Relaxed) { Err(why) } else { Ok(()) }
}

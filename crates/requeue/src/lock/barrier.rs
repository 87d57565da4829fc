//! An asymmetric barrier: one side costs nothing, the other a system call.
//!
//! On Linux the heavy side is `membarrier` (since 4.14; `MEMBARRIER_CMD_PRIVATE_EXPEDITED`): when it returns,
//! each thread of this process has passed a full barrier, between two of its instructions, since the call
//! began. It takes 0.2 us if no other thread runs, and some microseconds if some do. On other systems, if the
//! system refuses it, under Miri and under loom, both sides are full barriers.

use crate::sync::atomic;

#[cfg(all(target_os = "linux", not(miri), not(requeue_loom)))]
pub(super) use self::system::{can_be_heavy, heavy, light};

#[cfg(all(target_os = "linux", not(miri), not(requeue_loom)))]
mod system {
    use super::atomic::Ordering::SeqCst;
    use super::atomic::{compiler_fence, fence};
    use std::sync::OnceLock;

    /// A command of `linux/membarrier.h`; libc has no names for them on Linux.
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    /// Calls `membarrier`; false if the system refuses the command.
    #[expect(unsafe_code, reason = "a system call that libc has no function for")]
    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the call takes two numbers, reads and writes no memory, and orders what threads do.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0) == 0 }
    }

    /// Whether [`heavy`] can be relied on: the system has it, and this process is registered for it.
    pub(in crate::lock) fn can_be_heavy() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED))
    }

    #[inline]
    pub(in crate::lock) fn light() {
        compiler_fence(SeqCst);
    }

    /// Executes the heavy side, or a full barrier if the other side `fences` too. Returns false if the system
    /// has refused it.
    pub(in crate::lock) fn heavy(fences: bool) -> bool {
        if fences {
            fence(SeqCst);
            return true;
        }
        membarrier(PRIVATE_EXPEDITED)
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(requeue_loom))))]
pub(super) use self::symmetric::{can_be_heavy, heavy, light};

#[cfg(not(all(target_os = "linux", not(miri), not(requeue_loom))))]
mod symmetric {
    use super::atomic::Ordering::SeqCst;
    use super::atomic::fence;
    use crate::sync::leaves_out;

    pub(in crate::lock) fn can_be_heavy() -> bool {
        true
    }

    #[inline]
    pub(in crate::lock) fn light() {
        if !leaves_out("light_barrier") {
            fence(SeqCst);
        }
    }

    pub(in crate::lock) fn heavy(_: bool) -> bool {
        if !leaves_out("heavy_barrier") {
            fence(SeqCst);
        }
        true
    }
}

//! The full barriers of the two sides, and their cost.
//!
//! On any processor, `fence(SeqCst)` is a full barrier. On x86 it compiles to `mfence`, which waits for more
//! than the stores to drain and takes several times as long as a `lock`ed instruction. By the architecture
//! (Intel's manual, volume 3, 9.2.5; AMD's, volume 2, 7.4.2) a `lock`ed instruction lets no load or store
//! pass it either. So on x86 a read-modify-write of a word that only this thread touches replaces the fence.
//! The language promises less for it than for a fence: the compiler keeps earlier accesses before it
//! (release) and later ones after it (acquire), and the processor does the rest. crossbeam-epoch does this
//! too.
//!
//! On other processors, and under loom and Miri, which know only the language's rules, the fence itself is
//! used.
//!
//! Parts that the proof needs can be [left out](crate::sync::leaves_out), to see the models and the long
//! stress test fail.

use crate::sync::atomic::{self, Ordering::SeqCst};
use crate::sync::leaves_out;

/// Between an adder's first look at an entry and its decisive one.
#[inline]
pub(super) fn adder_barrier() {
    if !leaves_out("adder_barrier") {
        full_barrier();
    }
}

/// A barrier between the clearing of an entry and the handler.
#[inline]
pub(super) fn getter_barrier() {
    if !leaves_out("getter_barrier") {
        full_barrier();
    }
}

#[inline]
pub(super) fn full_barrier() {
    #[cfg(all(any(target_arch = "x86", target_arch = "x86_64"), not(miri), not(requeue_loom)))]
    {
        thread_local! {
            static OWN: atomic::AtomicUsize = const { atomic::AtomicUsize::new(0) };
        }
        // swapped, because an operation that changes nothing (`fetch_or(0)`) would
        // be compiled to the fence
        OWN.with(|own| own.swap(1, SeqCst));
        atomic::compiler_fence(SeqCst);
    }
    #[cfg(not(all(any(target_arch = "x86", target_arch = "x86_64"), not(miri), not(requeue_loom))))]
    atomic::fence(SeqCst);
}

//! Prefetch: a hint to the processor that memory will be needed soon.
//!
//! A queue of a million keys does not fit into a cache, and each key's line in the hash table and its slot
//! are far from the last one's. But the next keys are known: they are in the ready line. Prefetching them a
//! few keys ahead lets the processor fetch while it works.
//!
//! The `unsafe` in here is sound for any address: a prefetch reads nothing visible to the program, and one of
//! unmapped memory does nothing.

/// Prefetches the cache line at an address, which may be any.
#[inline]
pub(crate) fn prefetch(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE, which has the instruction, is part of x86_64; it neither
    // faults nor changes anything that can be seen (Intel's Software Developer's
    // Manual, volume 2, PREFETCHh).
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::without_provenance(address));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

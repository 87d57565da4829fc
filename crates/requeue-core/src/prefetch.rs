//! A hint to the processor that a piece of memory will be wanted soon.
//!
//! A queue of a million keys does not fit into a cache, and each key's line in
//! the hash table and its slot are far from the last one's. Which ones come next
//! is known, though: they stand in the ready line. Asking for them a few keys
//! ahead lets the processor fetch while it works.
//!
//! The `unsafe` in here is sound whatever the address: a prefetch reads nothing
//! that a program could see, and one of memory that is not there does nothing.

/// Asks for the cache line at an address, which may be any.
#[inline(always)]
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

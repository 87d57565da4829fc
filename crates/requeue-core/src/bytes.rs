//! Comparison of sixteen bytes with one, and clearing one of sixteen: in one register, if the processor has
//! one that large.

/// One bit per byte that equals `byte`; the first byte has the lowest bit.
#[inline]
pub(crate) fn equal(bytes: &[u8; 16], byte: u8) -> u32 {
    let [low, high] = halves(bytes);
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    // SAFETY: SSE2, which has these instructions, is there, and they work on
    // values alone.
    unsafe {
        use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi32};
        let bytes = _mm_set_epi64x(high as i64, low as i64);
        // one that is repeated four times takes an instruction less than one alone
        let byte = _mm_set1_epi32(i32::from_ne_bytes([byte; 4]));
        _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, byte)) as u32
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    equal_anywhere(low, high, byte)
}

/// Clears the byte at `at`, which is below 16. On x86_64 one store writes all sixteen. The next comparison
/// loads all sixteen; after a store of one byte it would wait until that store has reached the cache, which
/// took 7 of the 57 ns of `Item::next` (docs/EXPERIMENTS.md, "Words that are written in parts").
#[inline]
pub(crate) fn without(bytes: [u8; 16], at: usize) -> [u8; 16] {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    // SAFETY: SSE2 is there, the instruction works on values alone, and a register and an array of its size
    // consist of the same bits.
    unsafe {
        use core::arch::x86_64::{__m128i, _mm_andnot_si128};
        use core::mem::transmute;
        let (bytes, at) = (transmute::<[u8; 16], __m128i>(bytes), transmute::<[u8; 16], __m128i>(ONE[at]));
        transmute::<__m128i, [u8; 16]>(_mm_andnot_si128(at, bytes))
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    {
        let mut bytes = bytes;
        bytes[at] = 0;
        bytes
    }
}

/// Entry `at` has all bits of byte `at` set, and no others.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
static ONE: [[u8; 16]; 16] = {
    let mut one = [[0; 16]; 16];
    let mut at = 0;
    while at < 16 {
        one[at][at] = 0xff;
        at += 1;
    }
    one
};

#[inline]
fn halves(bytes: &[u8; 16]) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
    [u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p])]
}

/// The portable version of [`equal`].
#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "sse2"))))]
fn equal_anywhere(low: u64, high: u64, byte: u8) -> u32 {
    eight(low, byte) | eight(high, byte) << 8
}

#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "sse2"))))]
fn eight(bytes: u64, byte: u8) -> u32 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = LOW << 7;
    let differ = bytes ^ (LOW * u64::from(byte));
    // the highest bit of each byte that differs; no byte's sum carries into the next one
    let differs = (((differ & !HIGH) + !HIGH) | differ) & HIGH;
    // gathers the highest bits, whose places are 7, 15, ... 63, in the topmost byte:
    // each factor moves one of them, and no two meet
    ((((differs ^ HIGH) >> 7).wrapping_mul(0x0102_0408_1020_4080)) >> 56) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_is_cleared_and_no_other() {
        let bytes = core::array::from_fn(|at| 0x80 | at as u8);
        for at in 0..16 {
            let mut wanted: [u8; 16] = bytes;
            wanted[at] = 0;
            assert_eq!(without(bytes, at), wanted);
        }
    }

    #[test]
    fn both_ways_find_the_bytes_that_are_equal() {
        let mut rounds = 0;
        let mut seed = 1u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // few different values, so that many are equal, and neighbours that differ in one bit
            (seed >> 11) & 0x8383_8383_8383_8383
        };
        while rounds < 2_000 {
            let (low, high) = (next(), next());
            for byte in [0, 1, 2, 3, 0x80, 0x81, 0x82, 0x83, 0xff] {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&low.to_le_bytes());
                bytes[8..].copy_from_slice(&high.to_le_bytes());
                let wanted = bytes.iter().enumerate().map(|(i, b)| u32::from(*b == byte) << i).sum();
                assert_eq!(equal(&bytes, byte), wanted);
                assert_eq!(equal_anywhere(low, high, byte), wanted);
            }
            rounds += 1;
        }
    }
}

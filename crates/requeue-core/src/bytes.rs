//! Which of sixteen bytes are equal to one: a single comparison, where the processor has
//! one for that.

/// A bit for each of the bytes that is `byte`, the first one's lowest.
#[inline(always)]
pub(crate) fn equal(bytes: &[u8; 16], byte: u8) -> u32 {
    let [low, high] = halves(bytes);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2, which has these instructions, is part of x86_64, and they work on
    // values alone.
    unsafe {
        use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
        let bytes = _mm_set_epi64x(high as i64, low as i64);
        _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8))) as u32
    }
    #[cfg(not(target_arch = "x86_64"))]
    equal_anywhere(low, high, byte)
}

#[inline(always)]
fn halves(bytes: &[u8; 16]) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
    [u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p])]
}

/// The same in ordinary instructions.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn equal_anywhere(low: u64, high: u64, byte: u8) -> u32 {
    eight(low, byte) | eight(high, byte) << 8
}

#[cfg(any(test, not(target_arch = "x86_64")))]
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
    fn both_ways_find_the_bytes_that_are_equal() {
        let mut rounds = 0;
        let mut seed = 1u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // few values, so that many are equal, and neighbours that differ in one bit
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

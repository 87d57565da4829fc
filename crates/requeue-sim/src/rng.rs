//! Random-looking numbers that are equal on every machine.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A generator of random-looking numbers: a seed gives the same ones on every machine and in every version of
/// this crate that writes the same [`trace`](crate::Failure::trace) format.
///
/// It is SplitMix64 (Steele, Lea and Flood 2014), which is good enough for schedules, and not cryptographic.
///
/// ```
/// use requeue_sim::Rng;
/// let (mut a, mut b) = (Rng::new(7), Rng::new(7));
/// assert_eq!(a.next_u64(), b.next_u64());
/// assert!(a.below(10) < 10);
/// ```
#[derive(Clone, Debug)]
pub struct Rng(u64);

/// 2^64 divided by the golden ratio, and odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Maps a number to another, so that close ones become distant ones.
pub(crate) fn scramble(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Mixes several numbers into one; each of them matters, and their order.
pub(crate) fn mix(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, n| scramble(sum.wrapping_add(STEP) ^ scramble(*n)))
}

impl Rng {
    /// A generator with this seed.
    ///
    /// ```
    /// use requeue_sim::Rng;
    /// assert_ne!(Rng::new(1).next_u64(), Rng::new(2).next_u64());
    /// ```
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, of all `u64`s.
    ///
    /// ```
    /// let mut rng = requeue_sim::Rng::new(0);
    /// assert_ne!(rng.next_u64(), rng.next_u64());
    /// ```
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        scramble(self.0)
    }

    /// A number below `n`; 0 if `n` is 0.
    ///
    /// ```
    /// let mut rng = requeue_sim::Rng::new(0);
    /// assert!((0..100).all(|_| rng.below(3) < 3));
    /// assert_eq!((rng.below(1), rng.below(0)), (0, 0));
    /// ```
    pub fn below(&mut self, n: u64) -> u64 {
        // the upper half of the product; how much too often some come is below n / 2^64
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// True once in `n` times on average; always if `n` is 0 or 1.
    ///
    /// ```
    /// let mut rng = requeue_sim::Rng::new(0);
    /// let heads = (0..1000).filter(|_| rng.one_in(2)).count();
    /// assert!((400..600).contains(&heads));
    /// assert!(rng.one_in(1));
    /// ```
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A duration of a range, both ends included, to the nanosecond. If the end is before the start, the
    /// start.
    ///
    /// ```
    /// use std::time::Duration;
    /// let range = Duration::from_millis(5)..=Duration::from_millis(9);
    /// let mut rng = requeue_sim::Rng::new(0);
    /// assert!((0..100).all(|_| range.contains(&rng.between(range.clone()))));
    /// ```
    #[allow(clippy::needless_pass_by_value)] // a range is written where it is used
    pub fn between(&mut self, range: RangeInclusive<Duration>) -> Duration {
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let (from, to) = (nanos(*range.start()), nanos(*range.end()));
        let wide = to.saturating_sub(from).saturating_add(1);
        Duration::from_nanos(from.saturating_add(self.below(wide)))
    }

    /// One of several.
    ///
    /// # Panics
    ///
    /// If there is none.
    ///
    /// ```
    /// let mut rng = requeue_sim::Rng::new(0);
    /// assert!(["a", "b"].contains(rng.pick(&["a", "b"])));
    /// ```
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        assert!(!of.is_empty(), "there is nothing to pick from");
        &of[self.below(of.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_are_the_published_ones() {
        let mut rng = Rng::new(1_234_567);
        let numbers = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn a_range_is_drawn_from_one_end_to_the_other() {
        let (mut rng, nanos) = (Rng::new(1), Duration::from_nanos);
        let drawn: std::collections::BTreeSet<_> =
            (0..100).map(|_| rng.between(nanos(3)..=nanos(6))).collect();
        assert_eq!(drawn, [3, 4, 5, 6].map(nanos).into());
        assert_eq!(rng.between(nanos(6)..=nanos(3)), nanos(6));
        assert!(rng.between(Duration::ZERO..=Duration::MAX) > nanos(1));
    }

    #[test]
    fn each_number_and_their_order_count() {
        assert_ne!(mix(&[1, 2]), mix(&[2, 1]));
        assert_ne!(mix(&[1]), mix(&[1, 0]));
        assert_ne!(mix(&[0]), mix(&[0, 0]));
    }
}

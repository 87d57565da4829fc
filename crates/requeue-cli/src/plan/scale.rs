//! Positions of delays in a picture, and the marks of its axes.

use std::time::Duration;

use crate::text::duration;

/// Maximum number of marks above the lowest.
const INTERVALS: u32 = 4;

/// Number of nanoseconds (115 days) from which marks are written as 1e7s.
const SHORT: u128 = 10u128.pow(16);

/// The height of a delay in a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    /// From zero, a mark every `step` nanoseconds.
    Linear { step: u128, intervals: u32 },
    /// A mark every `decades` powers of ten, the lowest at 10^`low` nanoseconds; below that one for zero, if
    /// there are delays of zero.
    Log { low: u32, decades: u32, intervals: u32, zero: bool },
}

impl Scale {
    /// A scale for these delays: powers of ten if many of them would otherwise be at the bottom, such as
    /// delays that double.
    pub(super) fn of(delays: &[Duration]) -> Self {
        let highest = delays.iter().max().map_or(0, Duration::as_nanos);
        let positive = || delays.iter().map(Duration::as_nanos).filter(|nanos| *nanos > 0);
        let low_ones = positive().filter(|nanos| *nanos < highest / 20).count();
        if low_ones == 0 || low_ones * 4 < positive().count() {
            return Self::linear(highest);
        }
        let (low, high) = (positive().min().unwrap_or(1).ilog10(), (highest - 1).ilog10() + 1);
        let zero = delays.iter().any(Duration::is_zero);
        let decades = (high - low).div_ceil(INTERVALS - u32::from(zero));
        let intervals = (high - low).div_ceil(decades) + u32::from(zero);
        Self::Log { low, decades, intervals, zero }
    }

    fn linear(highest: u128) -> Self {
        // Where nothing is delayed the axis is marked all the same.
        let highest = highest.max(4_000_000);
        let mut power: u128 = 1;
        loop {
            for tenths in [10, 20, 25, 50] {
                let step = power * tenths / 10;
                let intervals = highest.div_ceil(step);
                if intervals <= u128::from(INTERVALS) {
                    return Self::Linear { step, intervals: intervals as u32 };
                }
            }
            power *= 10;
        }
    }

    /// The intervals between marks.
    pub(super) fn intervals(self) -> u32 {
        match self {
            Self::Linear { intervals, .. } | Self::Log { intervals, .. } => intervals,
        }
    }

    /// The position of a delay: 0 at the bottom, 1 at the top.
    pub(super) fn position(self, delay: Duration) -> f64 {
        let nanos = delay.as_nanos() as f64;
        match self {
            Self::Linear { step, intervals } => nanos / (step as f64 * f64::from(intervals)),
            Self::Log { .. } if delay.is_zero() => 0.0,
            Self::Log { low, decades, intervals, zero } => {
                let above = (nanos.log10() - f64::from(low)) / f64::from(decades);
                (above + f64::from(u8::from(zero))) / f64::from(intervals)
            }
        }
    }

    /// The `i`th mark from the bottom, from 0 to [`intervals`](Self::intervals).
    pub(super) fn mark(self, i: u32) -> String {
        match self {
            Self::Linear { step, .. } => {
                let nanos = step * u128::from(i);
                match u64::try_from(nanos) {
                    Ok(nanos) if u128::from(nanos) < SHORT => duration::exact(Duration::from_nanos(nanos)),
                    _ => format!("{:e}s", nanos as f64 / 1e9),
                }
            }
            Self::Log { zero: true, .. } if i == 0 => "0s".to_owned(),
            Self::Log { low, decades, zero, .. } => power_of_ten(low + decades * (i - u32::from(zero))),
        }
    }
}

/// 10^`exponent` nanoseconds.
fn power_of_ten(exponent: u32) -> String {
    let (unit, zeros) = match exponent {
        0..3 => ("ns", exponent),
        3..6 => ("us", exponent - 3),
        6..9 => ("ms", exponent - 6),
        9..16 => ("s", exponent - 9),
        _ => return format!("1e{}s", exponent - 9),
    };
    format!("1{}{unit}", "0".repeat(zeros as usize))
}

/// Calls to be marked: the first, and round numbers up to the last.
pub(super) fn marked_calls(calls: u64) -> Vec<u64> {
    let steps = (0..).flat_map(|power| [1, 2, 5].map(|m: u64| m * 10u64.pow(power)));
    let step = steps.into_iter().find(|step| calls / step <= 12).unwrap_or(calls);
    let mut marks: Vec<u64> = (1..=calls / step).map(|i| i * step).collect();
    if step > 1 {
        marks.insert(0, 1);
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ms: &[u64]) -> Scale {
        Scale::of(&ms.iter().map(|ms| Duration::from_millis(*ms)).collect::<Vec<_>>())
    }

    fn marks(scale: Scale) -> Vec<String> {
        (0..=scale.intervals()).map(|i| scale.mark(i)).collect()
    }

    #[test]
    fn a_ramp_is_linear_and_marked_in_round_steps() {
        let ramp: Vec<u64> = (0..=900).map(|i| i * 100).collect();
        let scale = of(&ramp);
        assert_eq!(marks(scale), ["0s", "25s", "50s", "75s", "100s"]);
        assert_eq!(scale.position(Duration::from_secs(90)), 0.9);
    }

    #[test]
    fn delays_that_double_are_marked_by_powers_of_ten() {
        let doubling: Vec<u64> = (0..20).map(|i| 5 << i).collect();
        let scale = of(&doubling);
        assert_eq!(marks(scale), ["1ms", "100ms", "10s", "1000s", "100000s"]);
        let position = scale.position(Duration::from_secs(10));
        assert!((position - 0.5).abs() < 1e-9, "{position}");
        let with_zero = of(&[0, 1, 2, 4, 1000]);
        assert_eq!(marks(with_zero), ["0s", "1ms", "10ms", "100ms", "1s"]);
        assert_eq!(with_zero.position(Duration::ZERO), 0.0);
    }

    #[test]
    fn every_delay_is_within_the_picture() {
        for highest in [0, 1, 999, 1_000_000, u128::from(u64::MAX), Duration::MAX.as_nanos()] {
            for lowest in [0, 1, highest / 1000, highest] {
                let nanos = |n: u128| Duration::new((n / 1_000_000_000) as u64, (n % 1_000_000_000) as u32);
                let delays = [nanos(lowest), nanos(highest)];
                let scale = Scale::of(&delays);
                for delay in delays {
                    let position = scale.position(delay);
                    assert!((0.0..=1.0 + 1e-9).contains(&position), "{delay:?} {scale:?} {position}");
                }
                assert!((1..=INTERVALS).contains(&scale.intervals()), "{scale:?}");
                assert_eq!(marks(scale).len() as u32, scale.intervals() + 1);
            }
        }
    }

    #[test]
    fn calls_are_marked_at_round_numbers() {
        assert_eq!(marked_calls(1), [1]);
        assert_eq!(marked_calls(10), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(marked_calls(60), [1, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60]);
        assert_eq!(marked_calls(1000), [1, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]);
        assert_eq!(marked_calls(1_000_000_000).len(), 11);
    }
}

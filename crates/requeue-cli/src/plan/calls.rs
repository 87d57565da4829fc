//! The answers of a limiter, call by call, on a clock that we move.

use std::time::Duration;

use requeue::{Clock as _, FakeClock, Instant};

use crate::config::Calls;
use crate::limiter::Built;

/// A call, and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// From 1.
    pub(super) number: u64,
    /// From 1.
    pub(super) key: u64,
    /// From the first call on.
    pub(super) at: Duration,
    /// `None`: for ever.
    pub(super) delay: Option<Duration>,
    /// When the key becomes ready; `None`: never.
    pub(super) due: Option<Duration>,
}

/// Asks the limiter, call after call.
pub(super) struct Answers {
    limiter: Built,
    clock: FakeClock,
    rhythm: Calls,
    asked: u64,
    /// The key of the call, as the limiter knows it.
    name: Vec<u8>,
}

impl Answers {
    pub(super) fn new(limiter: Built, rhythm: Calls) -> Self {
        Self { limiter, clock: FakeClock::new(), rhythm, asked: 0, name: Vec::new() }
    }
}

impl Iterator for Answers {
    type Item = Call;

    fn next(&mut self) -> Option<Call> {
        if self.asked == self.rhythm.calls {
            return None;
        }
        if self.asked > 0 {
            self.clock.advance(self.rhythm.every);
        }
        let key = self.asked % self.rhythm.keys + 1;
        self.asked += 1;
        let now = self.clock.now();
        self.name.clear();
        self.name.extend_from_slice(&key.to_ne_bytes());
        let delay = self.limiter.when(&self.name, now);
        // As a queue reckons: what is due when the clock has ended is never due.
        let due = now + delay;
        Some(Call {
            number: self.asked,
            key,
            at: now.saturating_since(Instant::ORIGIN),
            delay: (delay != Duration::MAX).then_some(delay),
            due: (!due.is_never()).then(|| due.saturating_since(Instant::ORIGIN)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::Limiter;

    fn delays(text: &str, calls: u64) -> Vec<Option<Duration>> {
        let rhythm = Calls { calls, every: Duration::ZERO, keys: 1 };
        Answers::new(Limiter::read(text).unwrap().build().unwrap(), rhythm).map(|call| call.delay).collect()
    }

    fn in_ms(ms: &[u64]) -> Vec<Option<Duration>> {
        ms.iter().map(|ms| Some(Duration::from_millis(*ms))).collect()
    }

    #[test]
    fn r_the_check_values_of_the_contract() {
        let bucket = delays("bucket:rate=10,burst=100", 1000);
        for (i, delay) in (1..).zip(&bucket) {
            let expected: u64 = if i <= 100 { 0 } else { (i - 100) * 100 };
            assert_eq!(*delay, Some(Duration::from_millis(expected)), "call {i}");
        }
        assert_eq!(bucket[999], Some(Duration::from_secs(90)));
        let exponential = delays("exponential:base=1ms,max=1s", 1000);
        assert_eq!(exponential[..11], in_ms(&[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]));
        assert_eq!(exponential[999], Some(Duration::from_secs(1)));
        assert_eq!(delays("fast-slow:fast=5ms,slow=10s,after=3", 5), in_ms(&[5, 5, 5, 10_000, 10_000]));
        let window = delays("window:period=1s,quota=4", 10);
        assert_eq!(window, in_ms(&[0, 0, 0, 0, 1000, 1000, 1000, 1000, 2000, 2000]));
    }

    #[test]
    fn keys_take_turns_and_calls_come_in_time() {
        let limiter = Limiter::read("exponential:base=1ms").unwrap().build().unwrap();
        let rhythm = Calls { calls: 5, every: Duration::from_secs(2), keys: 2 };
        let seen: Vec<_> = Answers::new(limiter, rhythm)
            .map(|c| {
                (c.number, c.key, c.at.as_secs(), c.delay.unwrap().as_millis(), c.due.unwrap().as_millis())
            })
            .collect();
        assert_eq!(
            seen,
            [(1, 1, 0, 1, 1), (2, 2, 2, 1, 2001), (3, 1, 4, 2, 4002), (4, 2, 6, 2, 6002), (5, 1, 8, 4, 8004)]
        );
        assert_eq!(rhythm.end(), Some(Duration::from_secs(8)));
    }

    #[test]
    fn what_never_comes_is_said() {
        // A token in more time than the clock has.
        let calls: Vec<_> = delays("bucket:rate=0.0000000000001,burst=1", 2);
        assert_eq!(calls, [Some(Duration::ZERO), None]);
        let rhythm = Calls { calls: 2, every: Duration::MAX, keys: 1 };
        assert_eq!(rhythm.end(), None);
        assert!(Calls { calls: 1, ..rhythm }.end().is_some());
    }
}

//! Dispatch rate (B6).

use super::{Model, Nanos};

/// A dispatch rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Number of keys per period.
    pub keys: u32,
    /// The period, in nanoseconds.
    pub nanos: u32,
    /// Maximum number of keys at once.
    pub burst: u32,
}

/// Credit of a rate: a key costs `nanos`, and `keys` come in a nanosecond.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    rate: Rate,
    at: Nanos,
    credit: u128,
}

impl Credit {
    pub(super) fn full(rate: Rate) -> Self {
        Self { rate, at: 0, credit: u128::from(rate.burst) * u128::from(rate.nanos) }
    }

    fn by(&self, now: Nanos) -> u128 {
        let Rate { keys, nanos, burst } = self.rate;
        let more = u128::from(now - self.at) * u128::from(keys);
        (self.credit + more).min(u128::from(burst) * u128::from(nanos))
    }
}

impl Credit {
    fn tokens(&self, now: Nanos) -> u128 {
        self.by(now) / u128::from(self.rate.nanos)
    }

    fn charge(&mut self, now: Nanos) {
        self.credit = self.by(now) - u128::from(self.rate.nanos);
        self.at = now;
    }

    /// Instant of the next token, if there is none.
    fn next(&self, now: Nanos) -> Nanos {
        let missing = u128::from(self.rate.nanos).saturating_sub(self.by(now));
        let wait = u64::try_from(missing.div_ceil(u128::from(self.rate.keys))).unwrap_or(u64::MAX);
        now.saturating_add(wait)
    }
}

impl Model {
    /// A key is handed out: that is charged to its group, and one that has no token left waits for
    /// the next. What a group has is never forgotten.
    pub(super) fn charge_group(&mut self, key: u64) {
        let Some(fair) = self.fair().filter(|_| !self.rates_are_lifted) else { return };
        let Some(rate) = fair.groups.rate else { return };
        let (group, now) = (fair.groups.group(key), self.now);
        let credit = self.credits.entry(group).or_insert_with(|| Credit::full(rate));
        credit.charge(now);
        if credit.tokens(now) == 0 {
            let next = credit.next(now);
            self.calls += 1;
            self.dry.push((next, self.calls, group));
        }
    }

    /// Time has passed: groups come back that have a token again, each behind those that wait.
    pub(super) fn refill(&mut self, now: Nanos) {
        self.dry.sort_unstable();
        while self.dry.first().is_some_and(|(next, ..)| *next <= now) {
            self.dry.remove(0);
            self.sort_turns();
        }
    }

    /// Instant when the next group has a token again.
    pub(super) fn next_group(&self) -> Option<Nanos> {
        self.dry.iter().map(|(next, ..)| *next).min()
    }

    /// Number of keys that the rate lets go now.
    pub(super) fn tokens(&self) -> usize {
        self.credit.map_or(usize::MAX, |credit| {
            usize::try_from(credit.by(self.now) / u128::from(credit.rate.nanos)).unwrap_or(usize::MAX)
        })
    }

    /// "Charged when handed out."
    pub(super) fn charge(&mut self) {
        if let Some(credit) = &mut self.credit {
            credit.credit = credit.by(self.now) - u128::from(credit.rate.nanos);
            credit.at = self.now;
        }
    }

    /// `lift_rate`: whether there was one.
    pub fn lift_rate(&mut self) -> bool {
        let rated = self.fair().is_some_and(|fair| fair.is_rated());
        let of_groups = rated && !std::mem::replace(&mut self.rates_are_lifted, true);
        if of_groups {
            self.refill(Nanos::MAX);
        }
        self.credit.take().is_some() || of_groups
    }

    /// Instant when the next key may go, if only the rate holds it back.
    #[must_use]
    pub fn next_token(&self) -> Option<Nanos> {
        let credit = self.credit?;
        if self.paused || self.open() == 0 || self.tokens() > 0 {
            return None;
        }
        let missing = u128::from(credit.rate.nanos) - credit.by(self.now);
        let wait = u64::try_from(missing.div_ceil(u128::from(credit.rate.keys))).ok()?;
        self.now.checked_add(wait)
    }
}

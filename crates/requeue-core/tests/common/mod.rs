//! The calls of the state machine as the queue makes them: the fast one first, and the full one where that leaves it.

#![allow(dead_code)] // not every test needs each of them

use requeue_core::{Accepted, Core, Delay, Ended, How, Limit, Refused, RunRef, Trigger, TriggerOptions};

pub(crate) trait Calls<K, V> {
    /// A trigger with this delay.
    fn add(&mut self, trigger: &mut Trigger<K, V>, hash: u32, delay: Delay) -> Result<Accepted, Refused>;

    /// A trigger with this delay, which this limiter may decide.
    fn add_limited(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        delay: Delay,
        limit: Limit<'_>,
    ) -> Result<Accepted, Refused>;

    /// The end of a run, done or succeeded.
    fn finished(&mut self, run: RunRef<K>, succeeded: bool) -> Ended<K, V>;
}

impl<K: Eq, V> Calls<K, V> for Core<K, V> {
    fn add(&mut self, trigger: &mut Trigger<K, V>, hash: u32, delay: Delay) -> Result<Accepted, Refused> {
        self.add_limited(trigger, hash, delay, Limit::NONE)
    }

    fn add_limited(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        delay: Delay,
        limit: Limit<'_>,
    ) -> Result<Accepted, Refused> {
        self.trigger(trigger, hash, &TriggerOptions::after(delay), &limit)
    }

    fn finished(&mut self, run: RunRef<K>, succeeded: bool) -> Ended<K, V> {
        let mut run = Some(run);
        if let Some((key, worked)) = self.try_fast_end(&mut run) {
            return Ended { key: Some(key), worked, ..Ended::default() };
        }
        let how = if succeeded { How::Succeed } else { How::Done };
        match self.end(run.expect("it was left"), how, None) {
            Ok(ended) => ended,
            Err((_, refused)) => panic!("refused: {:?}", refused.reason),
        }
    }
}

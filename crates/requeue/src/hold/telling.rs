//! Calls from the queue to others: the metrics, the engine's journal, the hooks of workers, and the workers that have its keys.

use super::{Holders, OnGiveUp, Shared};
use crate::cancel_run::CancelRun;
use crate::journal::{Fence, Journal, Known};
use crate::metrics::Metrics;
use crate::panics::quietly;
use requeue_core::{Core, Counts, Ended, KeyRef, RunEnd, RunRef};
use std::borrow::Borrow;
use std::sync::{Arc, Weak};
use std::time::Duration;

impl<K, V> Shared<K, V> {
    pub(crate) fn tell_journal(&self, tell: impl FnOnce(&dyn Journal<K, V>)) {
        if let Some(journal) = &self.journal {
            quietly(|| tell(&**journal));
        }
    }

    /// Tells the journal the state of a key from now on: nothing if the key is gone, otherwise that of its
    /// slot.
    pub(crate) fn tell_known(
        &self,
        core: &Core<K, V>,
        gone: Option<&K>,
        slot: impl FnOnce(&Core<K, V>) -> Option<u32>,
    ) {
        self.tell_journal(|journal| match gone {
            Some(key) => journal.changed(key, None),
            None => {
                if let Some((key, state, value)) = slot(core).map(|slot| core.known_of(slot)) {
                    journal.changed(key, state.and_then(|state| Known::of(&state, value)));
                }
            }
        });
    }

    /// Tells the journal of a run's end, and takes the key back if the journal's store hands keys out.
    #[inline]
    pub(crate) fn tell_end(
        &self,
        core: &mut Core<K, V>,
        ended: &mut Ended<K, V>,
        slot: impl FnOnce(&Core<K, V>) -> Option<u32>,
    ) {
        if self.journal.is_some() {
            self.tell_end_in_full(core, ended, slot);
        }
    }

    fn tell_end_in_full(
        &self,
        core: &mut Core<K, V>,
        ended: &mut Ended<K, V>,
        slot: impl FnOnce(&Core<K, V>) -> Option<u32>,
    ) {
        let slot = if ended.key.is_none() { slot(core) } else { None };
        self.tell_known(core, ended.key.as_ref(), |_| slot);
        if let (true, Some(slot)) = (self.takes_back, slot) {
            let (cancelled, key) = core.withdraw_ended(slot, |key, hash| self.filter.withdraw(key, hash));
            ended.key = key;
            if let Some(value) = cancelled.and_then(|cancelled| cancelled.value) {
                ended.value = Some(value);
            }
        }
    }

    /// Whether the run of a key that was handed out may begin.
    #[cold]
    pub(super) fn may_begin(&self, key: &K) -> bool {
        let may_begin = self.journal.as_ref().and_then(|journal| quietly(|| journal.may_begin(key)));
        // if the engine panics, its answer is unknown: the run begins, and the store judges its end
        may_begin.unwrap_or(true)
    }

    /// The fence of a run that goes on.
    pub(crate) fn fence(&self, run: &RunRef<K>) -> Fence {
        match &self.journal {
            // an engine that panics here has told no number
            Some(journal) => quietly(|| journal.fence(run.key())).unwrap_or(Fence(0)),
            None => Fence(self.first_fence.saturating_add(run.number())),
        }
    }

    /// All sets of workers that may have keys.
    pub(super) fn holders(&self) -> Vec<Arc<dyn Holders>> {
        self.holders.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Tells the runs of all workers to end.
    pub(crate) fn cancel_runs(&self) {
        self.holders().iter().for_each(|workers| workers.cancel_runs());
    }

    /// Tells the run of this key to end. False if no worker has it.
    pub(crate) fn cancel_run<Q>(&self, key: &Q, hash: u32, how: CancelRun) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let mut in_hold = |tell: &mut dyn FnMut(u32)| {
            self.lock().with(|hold| hold.core.held_slot(key, hash).into_iter().for_each(tell));
        };
        self.holders().iter().any(|workers| workers.cancel_run(&mut in_hold, how))
    }

    /// Calls `on_dropped` for keys that were dropped for room, and gives the keys back.
    pub(super) fn tell_of_dropped(&self, dropped: Vec<(KeyRef<K>, Option<V>)>) {
        let keys = dropped.len() as u64;
        self.tell_metrics(|m| m.dropped(keys));
        let mut loans = Vec::with_capacity(dropped.len());
        for (loan, value) in dropped {
            // the adder is not responsible for a panic of this
            quietly(|| match &self.on_dropped {
                Some(on_dropped) => on_dropped(loan.get(), value),
                None => drop(value),
            });
            loans.push(loan);
        }
        let mut hold = self.lock();
        loans.into_iter().for_each(|loan| hold.core.take_back(loan));
        hold.unlock();
    }

    #[inline]
    pub(super) fn tell_counts(&self, counts: Counts) {
        if counts.adds > 0 {
            self.tell_metrics(|m| m.added(counts.adds));
        }
        if counts.coalesced > 0 {
            self.tell_metrics(|m| m.coalesced(counts.coalesced));
        }
    }

    /// Tells the metrics of timers that fired.
    pub(super) fn tell_late(&self, late: &[Duration]) {
        for late in late {
            self.tell_metrics(|m| m.timer_fired(*late));
        }
    }

    /// Tells the metrics of a key that was handed out.
    #[inline]
    pub(crate) fn tell_waited(&self, waited: Option<Duration>) {
        if let Some(waited) = waited {
            self.tell_metrics(|m| m.handed_out(waited));
        }
    }

    /// Tells the metrics of a run that ended.
    #[inline]
    pub(crate) fn tell_worked(&self, worked: Option<Duration>, end: RunEnd) {
        if let Some(took) = worked {
            self.tell_metrics(|m| m.run_ended(took, end));
        }
    }

    /// Registers workers that may have keys from now on.
    pub(crate) fn register_holders<W: Holders + 'static>(&self, workers: &Arc<W>) {
        let workers: Weak<W> = Arc::downgrade(workers);
        let mut holders = self.holders.lock();
        holders.retain(|others| others.strong_count() > 0);
        holders.push(workers);
    }

    /// Registers a callback for keys that are given up by hand, or that a drain leaves unfinished.
    pub(crate) fn hook_give_up(&self, hook: Weak<OnGiveUp<K>>) {
        let mut hooks = self.give_up_hooks.lock();
        hooks.retain(|other| other.strong_count() > 0);
        hooks.push(hook);
    }

    pub(crate) fn give_up_hooks(&self) -> Vec<Arc<OnGiveUp<K>>> {
        self.give_up_hooks.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// The number of the worker that has the key of this slot, if one reports it.
    pub(crate) fn who_has(&self, slot: u32) -> Option<usize> {
        let mut who = Vec::new();
        self.holders().iter().for_each(|workers| workers.who_has(slot, &mut who));
        // if several workers claim the key, all but one have a run that has ended: the answer is `None`
        who.pop().filter(|_| who.is_empty())
    }

    /// Calls the metrics sink. A sink that panics loses a number, not a key.
    pub(crate) fn tell_metrics(&self, what: impl FnOnce(&dyn Metrics)) {
        if let Some(metrics) = &self.metrics {
            tell(&**metrics, what);
        }
    }
}

/// Separate function, so that queues without metrics do not carry it.
#[inline(never)]
fn tell(metrics: &dyn Metrics, what: impl FnOnce(&dyn Metrics)) {
    quietly(|| what(metrics));
}

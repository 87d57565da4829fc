//! Callers that await the run of a trigger (rule B12).

use super::answers::{NoRun, RunEnd};
use super::awaiters::{Awaited, Awaiter, RunAnswer};
use super::flags::{DIRTY, READY};
use super::pending_work;
use super::state::Core;
use crate::line::Ticket;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl<K, V> Core<K, V> {
    /// Registers a caller that awaits the run which a trigger has asked for. The trigger was accepted in this lock hold,
    /// with this ticket.
    pub fn await_run(&mut self, ticket: Ticket, awaiter: Box<dyn Awaiter>) {
        // a shutdown dropped the trigger while its limiter was asked
        let Some(flags) = self.arena.flags_if_occupied(ticket.0) else {
            return self.answer(awaiter, Err(NoRun::Dropped));
        };
        let slot = ticket.0;
        let due = if flags & (READY | DIRTY) == 0 { self.timers.due(slot) } else { Some(Instant::ORIGIN) };
        let Some(due) = due else { return self.answer(awaiter, Err(NoRun::Dropped)) };
        self.note(slot);
        let next = &mut self.awaited.entry(slot).or_default().next;
        if next.len() == next.capacity() {
            // callers that went away would fill the memory of a key that does not run
            next.retain(|(_, awaiter)| awaiter.is_awaited());
        }
        next.push((due, awaiter));
    }

    /// Takes the answers for callers that awaited runs, to be delivered outside the lock.
    #[inline]
    pub fn take_answers(&mut self) -> Vec<RunAnswer> {
        self.pending_work &= !pending_work::ANSWERS;
        core::mem::take(&mut self.answers)
    }

    fn answer(&mut self, awaiter: Box<dyn Awaiter>, how: Result<RunEnd, NoRun>) {
        self.answers.push((awaiter, how));
        self.pending_work |= pending_work::ANSWERS;
    }

    /// Begins a run of the key. It answers those whose trigger is due, or all of them if no timer brings a later run.
    #[inline]
    pub(super) fn awaited_run_begins(&mut self, slot: u32) {
        if !self.awaited.is_empty() {
            let (now, last) = (self.now, self.timers.due(slot).is_none());
            let Some(Awaited { running, next }) = self.awaited.get_mut(&slot) else { return };
            for (due, awaiter) in core::mem::take(next) {
                if last || due <= now { running.push(awaiter) } else { next.push((due, awaiter)) }
            }
        }
    }

    /// Moves the callers that await the key's current run to its next one: the key is put back.
    #[inline]
    pub(super) fn awaited_run_is_put_back(&mut self, slot: u32) {
        if let Some(Awaited { running, next }) = self.awaited.get_mut(&slot) {
            next.extend(running.drain(..).map(|awaiter| (Instant::ORIGIN, awaiter)));
        }
    }

    /// Answers the callers that await the key's current run, which has ended.
    #[inline]
    pub(super) fn awaited_run_ended(&mut self, slot: u32, how: RunEnd) {
        if !self.awaited.is_empty() {
            self.answer_those(slot, Ok(how), |awaited| awaited.running.drain(..).collect());
        }
    }

    /// Answers the callers that await the key's next run: none is to come.
    #[inline]
    pub(super) fn awaited_run_is_gone(&mut self, slot: u32, why: NoRun) {
        if !self.awaited.is_empty() {
            let next = |awaited: &mut Awaited| awaited.next.drain(..).map(|(_, awaiter)| awaiter).collect();
            self.answer_those(slot, Err(why), next);
        }
    }

    fn answer_those(
        &mut self,
        slot: u32,
        how: Result<RunEnd, NoRun>,
        those: impl FnOnce(&mut Awaited) -> Vec<Box<dyn Awaiter>>,
    ) {
        let Some(awaited) = self.awaited.get_mut(&slot) else { return };
        let those = those(awaited);
        if awaited.running.is_empty() && awaited.next.is_empty() {
            self.awaited.remove(&slot);
        }
        those.into_iter().for_each(|awaiter| self.answer(awaiter, how));
    }
}

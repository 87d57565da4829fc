//! What each of the `-j` threads does: take a key, run PROGRAM for it, say how it ended.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use requeue::Item;
use requeue_prometheus::QueueSink;

use crate::args::Run;
use crate::child::Keeper;
use crate::control::Level;
use crate::intake::{Cause, Intake};
use crate::listen::Hands;
use crate::log::{Log, Subject};
use crate::loops::Loops;
use crate::outcome::{Failure, StartError, Verdict, judge, judge_start};
use crate::output;
use crate::queue::Queue;
use crate::tally::{GaveUp, Key, Tally};
use crate::template::Template;

const SCRATCH: usize = 64 * 1024;

/// What the threads share.
#[derive(Debug)]
pub(crate) struct Shop {
    pub(crate) args: Run,
    pub(crate) template: Template,
    pub(crate) keeper: Keeper,
    pub(crate) tally: Tally,
    pub(crate) log: Arc<Log>,
    pub(crate) hands: Arc<Hands>,
    /// What hears of triggers that never come to the queue, under `--listen`.
    pub(crate) sink: Option<Arc<QueueSink>>,
    pub(crate) intake: Arc<Intake>,
    /// Only where keys are files that are watched.
    pub(crate) loops: Option<Loops>,
    /// PROGRAM cannot be started at all: exit status and reason.
    pub(crate) unusable: Mutex<Option<(u8, io::Error)>>,
}

/// A worker that is gone would be waited for in vain: a fault of ours ends the command,
/// not in silence, and not never.
struct LeaveOnPanic<'a>(&'a Shop);

impl Drop for LeaveOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.keeper.control.raise(Level::Stop);
        }
    }
}

impl Shop {
    /// Works until the queue says that it is shut down.
    pub(crate) fn work(&self, queue: &Queue) {
        let _leave = LeaveOnPanic(self);
        let _here = self.hands.worker();
        let mut scratch = vec![0; SCRATCH];
        while let Some(item) = queue.get_blocking() {
            let _busy = self.hands.busy();
            self.intake.begins(item.key(), item.value());
            if self.keeper.control.reached(Level::LastRuns) {
                self.tally.discard(item.key());
                item.give_up();
            } else {
                self.serve(queue, item, &mut scratch);
            }
        }
    }

    fn serve(&self, queue: &Queue, item: Item<'_, Key, Cause>, scratch: &mut [u8]) {
        let began = Instant::now();
        let attempt = item.attempt();
        match self.attempt(queue, &item, scratch) {
            Ok(verdict) => self.settle(item, attempt, verdict, began),
            Err((status, e)) => {
                self.tally.owe(item.key());
                item.give_up();
                self.program_is_unusable(status, e);
            }
        }
    }

    /// Runs PROGRAM for this key. An error means that it cannot be run for any.
    fn attempt(
        &self,
        queue: &Queue,
        item: &Item<'_, Key, Cause>,
        scratch: &mut [u8],
    ) -> Result<Verdict, (u8, io::Error)> {
        let (key, attempt) = (item.key(), item.attempt());
        let arguments = match self.template.arguments(key) {
            Ok(arguments) => arguments,
            Err(why) => return Ok(Verdict::GiveUp(Failure::Unpassable(why))),
        };
        let mut command = Command::new(&self.template.file);
        command
            .arg0(&self.template.name)
            .args(arguments)
            .env("REQUEUE_KEY", OsStr::from_bytes(key))
            .env("REQUEUE_ATTEMPT", attempt.to_string())
            .env("REQUEUE_FAILURES", queue.num_requeues(key).to_string());
        match item.value().and_then(|cause| cause.seen.as_ref()) {
            Some(seen) => command.env("REQUEUE_EVENT", seen.event.name()).env("REQUEUE_REL", &seen.relative),
            // Not those of a command that runs us.
            None => command.env_remove("REQUEUE_EVENT").env_remove("REQUEUE_REL"),
        };
        let tag = self.args.tag.then(|| output::tag(key));
        self.tally.begins(key);
        if let Some(loops) = &self.loops {
            loops.begins(key, SystemTime::now());
        }
        let ended = self.keeper.run(command, tag, scratch);
        if let Some(loops) = &self.loops {
            loops.ends(key, SystemTime::now());
        }
        self.tally.ended();
        match ended {
            Ok(ended) => Ok(judge(ended, attempt, &self.args)),
            Err(e) => {
                self.tally.not_begun();
                match judge_start(e, self.keeper.ever_started(), attempt, &self.args) {
                    StartError::Key(verdict) => Ok(verdict),
                    StartError::Program(status, e) => Err((status, e)),
                }
            }
        }
    }

    fn settle(&self, item: Item<'_, Key, Cause>, attempt: u32, verdict: Verdict, began: Instant) {
        // The queue keeps the key behind the item; the messages below come after its end.
        let key = item.key().clone();
        let subject = Subject { key: &key, attempt };
        match verdict {
            Verdict::Done => {
                self.tally.done(&key);
                self.log.done(subject, began.elapsed());
                item.succeed();
            }
            Verdict::Again(delay) => {
                self.tally.owe(&key);
                self.log.again(subject, delay);
                // Refused means that we are about to leave: the key stays owed.
                let _ = item.again(delay);
            }
            Verdict::Retry(why) => {
                self.tally.owe(&key);
                match item.retry() {
                    Ok(delay) => {
                        Tally::add(&self.tally.retries);
                        self.log.retry(subject, &why, delay);
                    }
                    Err(_) => self.log.left(subject, Some(&why)),
                }
            }
            Verdict::GiveUp(why) => {
                self.log.gave_up(subject, &why);
                self.tally.give_up(GaveUp { key, why, attempts: attempt, cut: false });
                if self.args.fail_fast {
                    self.keeper.control.raise(Level::LastRuns);
                }
                item.give_up();
            }
            Verdict::Left => {
                self.tally.owe(&key);
                self.log.left(subject, None);
                item.give_up();
            }
        }
    }

    fn program_is_unusable(&self, status: u8, e: io::Error) {
        let mut unusable = self.unusable.lock().unwrap_or_else(PoisonError::into_inner);
        unusable.get_or_insert((status, e));
        drop(unusable);
        self.keeper.control.raise(Level::Stop);
    }
}

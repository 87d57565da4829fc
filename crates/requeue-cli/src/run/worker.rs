//! The work on one key: runs PROGRAM, and reports how it ended. The loop around it is the library's
//! [`Worker`].

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use requeue::{Fate, Outcome, RunReport, Worker};
use requeue_prometheus::QueueSink;
use requeue_watch::Event;

use crate::config::Run;
use crate::config::engine::ENGINE;
use crate::input::cause::{Cause, Seen};
use crate::input::keys::Key;
use crate::input::line::{Beside, Format};
use crate::input::loops::{self, Loops};
use crate::report::files::{self, Files};
use crate::report::joblog::Row;
use crate::report::log::{Log, Subject};
use crate::report::outcome::Failure;
use crate::report::run_stats::{GaveUp, RunStats};
use crate::run::child::Supervisor;
use crate::run::intake::{Begin, Intake};
use crate::run::judge::{StartError, Verdict, judge, judge_start};
use crate::run::queue::Queue;
use crate::run::state::State;
use crate::run::template::Template;
use crate::system::control::Level;

const SCRATCH: usize = 64 * 1024;

/// A key that was handed out.
type Job = requeue::Run<Key, Cause>;

/// State shared by the workers.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: Run,
    pub(crate) queue: Queue,
    /// The file or the server of the queue, if it is durable.
    pub(crate) state: Option<Arc<State>>,
    pub(crate) template: Template,
    /// The format of input lines.
    pub(crate) format: Format,
    pub(crate) supervisor: Supervisor,
    pub(crate) run_stats: RunStats,
    pub(crate) log: Arc<Log>,
    /// The metrics' sink for triggers that never enter the queue, with `--listen` or `--metrics-to`.
    pub(crate) sink: Option<Arc<QueueSink>>,
    pub(crate) intake: Arc<Intake>,
    pub(crate) files: Files,
    /// Only if keys are watched files.
    pub(crate) loops: Option<Loops>,
    /// PROGRAM cannot be started at all: exit status and reason.
    pub(crate) unusable: Mutex<Option<(u8, io::Error)>>,
    /// A fault of ours ended a run.
    pub(crate) faulty: AtomicBool,
}

/// Ends the command after a fault of ours, with a message. The level rises before the library puts the key
/// back, so that the key is left and not run for ever.
struct LeaveOnPanic<'a>(&'a App);

impl Drop for LeaveOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.faulty.store(true, Ordering::Relaxed);
            self.0.supervisor.control.raise(Level::Stop);
        }
    }
}

/// Starts the workers. They end when the queue is shut down and worked off.
///
/// # Errors
///
/// If the system has no thread for even one.
pub(crate) fn start(app: &Arc<App>, workers: usize) -> io::Result<Worker> {
    let (works, hears) = (Arc::clone(app), Arc::clone(app));
    let worker = Worker::of(&app.queue)
        .workers(1)
        .on_end(move |key, run| hears.ended(key, run))
        .start_threads(move |job| works.work(&job))?;
    // Fewer hands do the same work; none would do none.
    let _ = worker.resize(workers);
    Ok(worker)
}

/// One run of the program, and its input.
#[derive(Debug)]
struct Try {
    attempt: u32,
    failures: u32,
    seen: Option<Seen>,
}

impl Try {
    fn of<'a>(&self, key: &'a [u8]) -> Subject<'a> {
        Subject { key, attempt: self.attempt }
    }

    /// Changes it to a run for the deletion of its file.
    fn is_for_the_deletion(&mut self) {
        self.attempt = self.attempt.saturating_add(1);
        self.failures = self.failures.saturating_add(1);
        if let Some(seen) = &mut self.seen {
            seen.event = Event::Delete;
        }
    }
}

impl App {
    fn work(&self, job: &Job) -> Outcome {
        let _leave = LeaveOnPanic(self);
        let Some(cause) = self.let_in(job) else {
            self.let_go(job);
            return self.left();
        };
        let failures = self.queue.num_requeues(job.key());
        let seen = match self.intake.sees(&self.run_stats, job.key(), &cause, failures) {
            Begin::Run(seen) => seen,
            Begin::Nothing => {
                self.run_stats.forget(job.key());
                if let Some(order) = &self.supervisor.order {
                    order.forgets(job.key(), &self.supervisor.console);
                }
                return Outcome::Done;
            }
        };
        if self.is_put_off(job.key(), &cause, job.priority()) {
            return Outcome::Done;
        }
        if let Some(order) = &self.supervisor.order {
            order.begins(job.key());
        }
        let mut turn = Try { attempt: job.attempt(), failures, seen };
        loop {
            let began = Instant::now();
            let verdict = match self.attempt(job, &turn) {
                Ok(verdict) => verdict,
                Err((status, e)) => {
                    self.let_go(job);
                    self.program_is_unusable(status, e);
                    return self.left();
                }
            };
            let verdict = match (&self.intake.watched, &turn.seen) {
                (Some(watched), Some(seen)) => watched.ended(job.key(), verdict, seen.event, turn.failures),
                _ => verdict,
            };
            match verdict {
                // Not by way of the queue, which after a signal takes nothing back.
                Verdict::AtOnce(why) if self.let_in(job).is_some() => {
                    RunStats::add(&self.run_stats.retries);
                    self.log.retry(turn.of(job.key()), &why, Duration::ZERO);
                    turn.is_for_the_deletion();
                }
                verdict => return self.settle(job, turn.of(job.key()), verdict, began),
            }
        }
    }

    /// The cause of the run. `None`: no further run begins.
    fn let_in(&self, job: &Job) -> Option<Cause> {
        // In a file no worker takes a key from the last runs on, and one that has just been taken belongs to them.
        let end = if self.is_in_file() { Level::Stop } else { Level::LastRuns };
        if self.supervisor.control.reached(end) {
            return None;
        }
        Some(job.value().cloned().unwrap_or_default())
    }

    fn is_in_file(&self) -> bool {
        self.state.is_some() && !self.config.is_on_server()
    }

    /// Whether the key must wait until it is known what writes its file.
    fn is_put_off(&self, key: &[u8], cause: &Cause, priority: i16) -> bool {
        let Some(loops) = &self.loops else { return false };
        match loops.begins(key, SystemTime::now()) {
            loops::Turn::PutOff(delay) => return self.intake.put_off(key, cause, delay, priority),
            loops::Turn::Say(text) => self.log.note(&text),
            loops::Turn::Run => {}
        }
        false
    }

    /// Records that the key must run once more, with its values: a queue that refuses that keeps them all the same, for
    /// a run that is to come.
    fn owe(&self, job: &Job) {
        self.run_stats.owe(job.key(), beside(job));
    }

    /// Records that the key must run, but that the queue drops it with its parts.
    fn let_go(&self, job: &Job) {
        self.run_stats.let_go(job.key(), beside(job));
    }

    /// The outcome for a key that is left undone. In memory it is given up. A file keeps the key as it was before its run,
    /// because the retry comes after the shutdown and is refused.
    fn left(&self) -> Outcome {
        if self.state.is_none() {
            return Outcome::GiveUp("left".into());
        }
        self.supervisor.control.settle();
        if self.is_in_file() {
            self.queue.shut_down();
        }
        Outcome::Retry("left".into())
    }

    /// Runs PROGRAM for this key. An error means that it cannot be run for any key.
    fn attempt(&self, job: &Job, turn: &Try) -> Result<Verdict, (u8, io::Error)> {
        let (key, attempt) = (job.key(), turn.attempt);
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
            .env("REQUEUE_FAILURES", turn.failures.to_string())
            .env("REQUEUE_FENCE", job.fence().to_string());
        if self.config.works() {
            // there may be a password in it
            command.env_remove(ENGINE);
        }
        match &turn.seen {
            Some(seen) => command.env("REQUEUE_EVENT", seen.event.name()).env("REQUEUE_REL", &seen.relative),
            // Not those of a command that runs us.
            None => command.env_remove("REQUEUE_EVENT").env_remove("REQUEUE_REL"),
        };
        match job.value().and_then(|cause| cause.payload.as_ref()) {
            Some(payload) => match self.template.payload(&payload.text()) {
                Ok(text) => command.env("REQUEUE_PAYLOAD", text),
                Err(why) => return Ok(Verdict::GiveUp(Failure::Unpassable(why))),
            },
            None => command.env_remove("REQUEUE_PAYLOAD"),
        };
        let tags = self.config.tag.then(|| self.supervisor.console.tags(key));
        self.run_stats.begins(key);
        let (start, began) = (SystemTime::now(), Instant::now());
        let finish =
            self.supervisor.run(command, turn.of(key), tags, &|| job.cancelled(), &mut vec![0; SCRATCH]);
        if !matches!(finish, Ok(None)) {
            let finish = finish.as_ref().ok().copied().flatten();
            let took = finish.map_or_else(|| began.elapsed(), |finish| finish.at - began);
            self.book(&Row { key, attempt, start, took, ended: finish.map(|finish| finish.ended) });
            // After its row, which must not wait for a reader of the messages.
            if finish.is_some_and(|finish| finish.output_lost) {
                self.log.output_lost(turn.of(key));
            }
        }
        if let Some(loops) = &self.loops {
            loops.ends(key, SystemTime::now());
        }
        self.run_stats.ended();
        match finish {
            Ok(Some(finish)) => Ok(judge(finish.ended, attempt, &self.config.ends)),
            Ok(None) => {
                self.run_stats.not_begun();
                Ok(Verdict::NotBegun)
            }
            Err(e) => {
                self.run_stats.not_begun();
                match judge_start(e, self.supervisor.ever_started(), attempt, &self.config.ends) {
                    StartError::Key(verdict) => Ok(verdict),
                    StartError::Program(status, e) => Err((status, e)),
                }
            }
        }
    }

    /// Writes the run into the joblog. The queue is told of the run's end later, so the rows of a key are in
    /// the order of its runs.
    fn book(&self, row: &Row<'_>) {
        if let Some(e) = self.files.joblog.as_ref().and_then(|joblog| joblog.record(row)) {
            let path = self.config.files.joblog.as_deref().unwrap_or("".as_ref());
            self.log.note(&format!("{}; the runs go on", files::about("--joblog", path, &e)));
        }
    }

    /// Records the key's result in our own counts, before the queue is told, which may hand the key out again
    /// at once.
    fn settle(&self, job: &Job, subject: Subject<'_>, verdict: Verdict, began: Instant) -> Outcome {
        let Subject { key, attempt } = subject;
        // A run that fails keeps its place for its retry. What is left at the end is passed on then.
        let is_over =
            matches!(verdict, Verdict::Done | Verdict::Again(_) | Verdict::GiveUp(_) | Verdict::Gone(_));
        if let Some(order) = self.supervisor.order.as_ref().filter(|_| is_over) {
            order.ends(key, &self.supervisor.console);
        }
        match verdict {
            Verdict::Done => {
                self.run_stats.done(key);
                self.log.done(subject, began.elapsed());
                Outcome::Done
            }
            Verdict::Again(delay) => {
                self.owe(job);
                self.log.again(subject, delay);
                // Refused means that we are about to leave: the key stays owed.
                Outcome::Postpone(delay)
            }
            Verdict::Retry(why) => {
                self.owe(job);
                Outcome::Retry(why.into())
            }
            Verdict::GiveUp(why) => {
                self.log.gave_up(subject, &why);
                let attempts = match why {
                    // No program can be started with it.
                    Failure::Unpassable(_) => attempt.saturating_sub(1),
                    _ => attempt,
                };
                let beside = Some(beside(job));
                let outcome = Outcome::GiveUp(why.clone().into());
                self.run_stats.give_up(GaveUp { key: key.to_vec(), beside, why, attempts });
                if self.config.fail_fast {
                    self.supervisor.control.raise(Level::LastRuns);
                }
                outcome
            }
            Verdict::AtOnce(why) => {
                self.let_go(job);
                self.log.left(subject, Some(&why));
                self.left()
            }
            Verdict::Gone(why) => {
                self.run_stats.done(key);
                self.log.gone(subject, &why);
                Outcome::Done
            }
            Verdict::NotBegun => {
                self.let_go(job);
                self.left()
            }
            Verdict::Left(why) => {
                self.let_go(job);
                self.log.left(subject, why.as_ref());
                self.left()
            }
        }
    }

    /// Handles the result of a retry, which is known only after the queue was asked.
    fn ended(&self, key: &Key, run: &RunReport<'_>) {
        if let Some(state) = &self.state {
            state.tell_trouble(&self.log);
            state.ends_if_cut_off(&self.supervisor.control);
        }
        let subject = Subject { key, attempt: run.attempt };
        let error = match run.failure {
            Some(requeue::Failure::Error(error)) => error,
            // A panic, see [`LeaveOnPanic`].
            Some(_) => return self.run_stats.owe(key, Beside::default()),
            None => return,
        };
        let Some(why) = error.downcast_ref::<Failure>() else { return };
        match run.fate {
            Fate::Retry(delay) => {
                RunStats::add(&self.run_stats.retries);
                self.log.retry(subject, why, delay);
            }
            Fate::Refused => self.log.left(subject, Some(why)),
            _ => {}
        }
    }

    fn program_is_unusable(&self, status: u8, e: io::Error) {
        let mut unusable = self.unusable.lock().unwrap_or_else(PoisonError::into_inner);
        unusable.get_or_insert((status, e));
        drop(unusable);
        self.supervisor.control.raise(Level::Stop);
    }
}

/// The parts of the triggers other than the key.
fn beside(job: &Job) -> Beside {
    Beside { priority: job.priority(), payload: job.value().and_then(|cause| cause.payload.clone()) }
}

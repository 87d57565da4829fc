//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum, ValueHint};
use requeue::Debounce;

pub(crate) mod engine;
#[cfg(test)]
mod generated;
mod help;
pub(crate) mod plan;
mod values;
mod work;

use self::help::{ABOUT, FIRST, MORE, WORK, WORKING};
use self::plan::{LimiterText, Plan};
pub(crate) use self::values::Rate;
use self::values::{
    Quiet, at_least_one, attempts, bound, exit_status, fraction, group_cap, rate, rate_or_none, starts,
    workers,
};
pub(crate) use self::work::Work;
use self::work::for_work;
use crate::group_by::{self, GroupBy};
use crate::input::keys;
use crate::input::payload::Merge;
use crate::limiter::Limiter;
use crate::report::listen;
use crate::system::whole_file;
use crate::text::duration;

/// A keyed work queue for the shell.
#[derive(Debug, Parser)]
#[command(
    name = "requeue",
    version,
    about = "Run a program once per key, with retries; see what a rate limiter does; feed and look into a durable queue",
    long_about = None,
    arg_required_else_help = true,
    after_help = FIRST,
    override_usage = "requeue run [OPTIONS] [--] PROGRAM [ARG]...\n       requeue plan LIMITER [PARAMETERS] [OPTIONS]\n       \
                      requeue work|add|ls|state|cancel|retry|pause|resume|purge|stats|top|migrate|check [OPTIONS]..."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    // The variant, for a comment of the documentation would otherwise take its place.
    #[command(
        about = "Run PROGRAM once per key, never twice at a time for one key",
        long_about = ABOUT,
        after_help = MORE,
        override_usage = "requeue run [OPTIONS] [--] PROGRAM [ARG]..."
    )]
    Run(Box<Run>),

    #[command(
        about = "Show what a limiter does, before it is put in production",
        long_about = plan::ABOUT,
        after_help = plan::more(),
        arg_required_else_help = true,
        override_usage = "requeue plan LIMITER [PARAMETERS] [WITHIN]... [OPTIONS]"
    )]
    Plan(Box<Plan>),

    #[command(
        about = "Run PROGRAM for the keys of a durable queue, beside other processes",
        long_about = WORK,
        after_help = WORKING,
        override_usage = "requeue work [OPTIONS] [--] PROGRAM [ARG]...",
        mut_args(for_work)
    )]
    Work(Box<Work>),

    #[command(flatten)]
    Engine(engine::Command),
}

/// Default lease.
const LEASE: Duration = Duration::from_secs(30);

/// The place of a durable queue.
#[derive(Clone, Debug)]
pub(crate) enum Engine {
    File(PathBuf),
    /// The connection string. It may contain a password.
    Server(String),
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("debounced").args(["watch", "debounce"]).multiple(true))]
pub(crate) struct Run {
    /// Keys end with a NUL, not with a newline, also in the files of --failed-to and --left-to
    #[arg(short = '0', long)]
    pub(crate) null: bool,

    /// Each line of the input starts with a priority, a number from -32768 to 32767, and a tab; higher
    /// priorities run first. A key that comes again with a higher priority is raised. Watched files have 0
    #[arg(long)]
    pub(crate) priority: bool,

    /// With --priority, after D in line, run a key before others (oldest first), in one of every 8 runs
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse, help_heading = "Running")]
    pub(crate) max_wait: Option<Duration>,

    /// With --max-wait, one of every N runs instead of every 8; 2 at least
    #[arg(long, value_name = "N", allow_hyphen_values = true, requires = "max_wait", value_parser = clap::value_parser!(u32).range(2..), help_heading = "Running")]
    pub(crate) overdue_every: Option<u32>,

    /// Let a run also stand for the delayed runs (retries too) that its key had before it began. Without this
    /// each runs when it is due
    #[arg(long, help_heading = "Running")]
    pub(crate) absorb: bool,

    /// Divide keys into groups that take turns. The group of a key is the text before the first SEP (or the
    /// whole key, without one). With /REGEX/ it is the match, or its first group in parentheses; keys that do
    /// not match form one group
    #[arg(long, value_name = "SEP|/REGEX/", allow_hyphen_values = true, value_parser = group_by::parse, help_heading = "Running")]
    pub(crate) group_by: Option<GroupBy>,

    /// With --group-by, run at most N programs of each group at a time
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = group_cap, requires = "group_by", help_heading = "Running")]
    pub(crate) group_cap: Option<NonZeroUsize>,

    /// With --group-by, start at most R runs of each group per second, or per minute or hour with R/m and
    /// R/h, retries included. Other groups go ahead of one that waits for this
    #[arg(long, value_name = "R", allow_hyphen_values = true, value_parser = starts, requires = "group_by", help_heading = "Running")]
    pub(crate) group_rate: Option<f64>,

    /// Read lines of a key, a tab and a value, and pass the values of a run's triggers in REQUEUE_PAYLOAD:
    /// last (the last one), concat (all, one per line), count (the number of triggers, with or without
    /// values). A retry also gets the values of the failed run
    #[arg(long, value_name = "HOW", hide_possible_values = true)]
    pub(crate) merge: Option<Merge>,

    /// Prefix each line of output with the key and a tab
    #[arg(long)]
    pub(crate) tag: bool,

    /// Print a run's output when it ends, in one piece
    #[arg(long)]
    pub(crate) group: bool,

    /// Print the output of each run in one piece, in the order in which keys were read. Output after a key
    /// that waits for a retry is kept until that key is done or gives up. A key that comes again after its
    /// run began goes to the end
    #[arg(short = 'k', long)]
    pub(crate) keep_order: bool,

    /// Print the commands, once for each key, and run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Watch PATH: first all files at and below it are keys, then each file that is written, created, moved
    /// or deleted; can be given several times
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, help_heading = "Watching")]
    pub(crate) watch: Vec<PathBuf>,

    /// With --watch, read keys from standard input too
    #[arg(long, help_heading = "Watching")]
    pub(crate) stdin: bool,

    /// Make directories keys too
    #[arg(long, help_heading = "Watching")]
    pub(crate) dirs: bool,

    /// Use only files that match GLOB (syntax of .gitignore) as keys; can be given several times
    #[arg(long, value_name = "GLOB", help_heading = "Watching")]
    pub(crate) glob: Vec<String>,

    /// Skip files and directories that match GLOB; can be given several times
    #[arg(long, value_name = "GLOB", help_heading = "Watching")]
    pub(crate) ignore: Vec<String>,

    /// Ignore .gitignore files: the files that they hide, and .git, become keys too
    #[arg(long, help_heading = "Watching")]
    pub(crate) no_gitignore: bool,

    /// Run a key on these events, separated by commas: initial (it exists at the start), write (it is created
    /// or changed), delete
    #[arg(
        long,
        value_name = "EVENT",
        value_delimiter = ',',
        default_value = "initial,write,delete",
        help_heading = "Watching"
    )]
    pub(crate) on: Vec<On>,

    /// Run only for changes, not for files that exist at the start; same as --on write,delete
    #[arg(long, conflicts_with = "on", help_heading = "Watching")]
    pub(crate) no_initial: bool,

    /// Treat all changes as one key: run PROGRAM once per batch of changes, without a path argument. The key
    /// is the first PATH
    #[arg(long, help_heading = "Watching")]
    pub(crate) one: bool,

    /// Look at everything again and run every key again, every D
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::positive, help_heading = "Watching")]
    pub(crate) resync: Option<Duration>,

    /// Run a key when no trigger has come for it for QUIET, at the latest MAX after the first [default: 0s;
    /// with --watch 50ms]
    #[arg(
        long,
        value_name = "QUIET[:MAX]",
        allow_hyphen_values = true,
        value_parser = Quiet::parse,
        default_value = "0s",
        default_value_if("watch", ArgPredicate::IsPresent, "50ms"),
        hide_default_value = true,
        help_heading = "Watching"
    )]
    pub(crate) debounce: Quiet,

    /// With a --debounce without MAX, run a key at the latest D after its first trigger [default: 1s]
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse, requires = "debounced", help_heading = "Watching")]
    pub(crate) debounce_max: Option<Duration>,

    /// Keep at most N keys that wait, are retried or run; read more input when some are done
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = bound, help_heading = "Running")]
    pub(crate) bound: Option<NonZeroUsize>,

    /// Keep the queue in FILE, which is created if needed: accepted keys, with their failures, delays,
    /// priorities and values, continue after any end, even kill -9
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Keeping")]
    pub(crate) state: Option<PathBuf>,

    /// With --state, the name of the queue in FILE [default: default]
    #[arg(long, value_name = "NAME", help_heading = "Keeping")]
    queue: Option<String>,

    /// With --state, continue after the end of the input until a signal: keys come from `requeue add`
    #[arg(long, requires = "state", help_heading = "Keeping")]
    pub(crate) stay: bool,

    /// The engine of `requeue work`.
    #[arg(skip)]
    engine: Option<Engine>,

    /// All keys come from the engine.
    #[arg(skip)]
    pub(crate) works: bool,

    /// How long the process may be silent before others get its keys.
    #[arg(skip)]
    pub(crate) lease: Option<Duration>,

    /// Run at most N programs at a time [default: number of cores]
    #[arg(short = 'j', long, value_name = "N", allow_hyphen_values = true, value_parser = workers, help_heading = "Running")]
    pub(crate) workers: Option<NonZeroUsize>,

    /// Start at most R runs per second, or per minute or hour with R/m and R/h, retries included. A key that
    /// comes again while it waits costs nothing
    #[arg(long, value_name = "R", allow_hyphen_values = true, value_parser = rate_or_none, help_heading = "Running")]
    pub(crate) rate: Option<Rate>,

    /// Fail a run that takes longer than D: TERM, then KILL, to its process group
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::positive, help_heading = "Running")]
    pub(crate) timeout: Option<Duration>,

    /// Time between TERM and KILL
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse, default_value = "5s", help_heading = "Running")]
    pub(crate) grace: Duration,

    /// Delay before the first retry; it doubles with every failure in a row [default: 1s]
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse, help_heading = "Retrying")]
    pub(crate) base_delay: Option<Duration>,

    /// Maximum delay before a retry [default: 5m]
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse, help_heading = "Retrying")]
    pub(crate) max_delay: Option<Duration>,

    /// Lengthen each delay at random, by up to this fraction [default: 0.2]
    #[arg(long, value_name = "F", allow_hyphen_values = true, value_parser = fraction, help_heading = "Retrying")]
    pub(crate) jitter: Option<f64>,

    /// Retry by this limiter, instead of --base-delay, --max-delay, --jitter, --retry-rate and --retry-burst.
    /// LIMITER is a text as for `requeue plan`, such as fast-slow:fast=1s,slow=1m,after=3
    #[arg(
        long,
        value_name = "TEXT",
        value_parser = LimiterText(Limiter::read),
        hide_possible_values = true,
        conflicts_with_all = ["base_delay", "max_delay", "jitter", "retry_rate", "retry_burst"],
        help_heading = "Retrying"
    )]
    pub(crate) limiter: Option<Limiter>,

    /// Limit retries of all keys together to R per second (off by default)
    #[arg(long, value_name = "R", allow_hyphen_values = true, value_parser = rate, help_heading = "Retrying")]
    pub(crate) retry_rate: Option<f64>,

    /// With --retry-rate, allow up to N retries at once [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true, requires = "retry_rate", value_parser = at_least_one, help_heading = "Retrying")]
    pub(crate) retry_burst: Option<u32>,

    /// Give a key up at its N-th failed attempt; 0: never [default: 5; with --watch 0, with --one 1]
    #[arg(
        long,
        value_name = "N",
        allow_hyphen_values = true,
        default_value = "5",
        default_value_ifs([("one", ArgPredicate::Equals("true".into()), "1"), ("watch", ArgPredicate::IsPresent, "0")]),
        hide_default_value = true,
        value_parser = attempts,
        help_heading = "Retrying"
    )]
    pub(crate) max_attempts: u32,

    /// Set how a trigger acts on a key that waits for a retry, or whose current run fails: run (run it now),
    /// respect (wait for the retry), reset (run it now, and forget its failures)
    #[arg(
        long,
        value_name = "WHAT",
        hide_possible_values = true,
        default_value = "run",
        help_heading = "Retrying"
    )]
    pub(crate) in_backoff: InBackoff,

    /// Take exit status 75 as "run again after D", not as a failure
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse, help_heading = "Retrying")]
    pub(crate) again_after: Option<Duration>,

    /// Do not retry a run with this exit status; can be given several times
    #[arg(long, value_name = "CODE", allow_hyphen_values = true, value_parser = exit_status, help_heading = "Retrying")]
    pub(crate) fatal_code: Vec<u8>,

    /// After the end of the input, or the first signal, continue for at most D; then stop the programs and
    /// leave
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse, help_heading = "Ending")]
    pub(crate) drain_timeout: Option<Duration>,

    /// When a key gives up, start no further run: current runs end, other keys are left
    #[arg(long, help_heading = "Ending")]
    pub(crate) fail_fast: bool,

    /// At the end, write the keys that gave up to FILE (usable as input)
    #[arg(long, value_name = "FILE", help_heading = "Reporting")]
    pub(crate) failed_to: Option<PathBuf>,

    /// At the end, write unfinished keys (ready, waiting for a retry, or stopped) to FILE (usable as input)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Reporting")]
    pub(crate) left_to: Option<PathBuf>,

    /// Append a line for each run to FILE: key, attempt, start, seconds, status and signal, separated by tabs
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Reporting")]
    pub(crate) joblog: Option<PathBuf>,

    /// Skip the keys whose last run in the file of --joblog succeeded (needs --joblog)
    #[arg(long, requires = "joblog", conflicts_with = "watch", help_heading = "Reporting")]
    pub(crate) resume: bool,

    /// Serve /metrics (for Prometheus) and /healthz over HTTP: on a PORT of this machine, or an ADDRESS:PORT
    #[arg(long, value_name = "ADDR", allow_hyphen_values = true, value_parser = listen::address, help_heading = "Reporting")]
    pub(crate) listen: Option<SocketAddr>,

    /// At the end, write the metrics of --listen to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Reporting")]
    pub(crate) metrics_to: Option<PathBuf>,

    /// Format of reports of failed runs on standard error [default: text]
    #[arg(long, value_name = "FORM", help_heading = "Reporting")]
    pub(crate) log: Option<Form>,

    /// Format of the summary on standard error at the end [default: text]
    #[arg(long, value_name = "FORM", help_heading = "Reporting")]
    pub(crate) summary: Option<Form>,

    /// Print no log, summary or progress line, unless --log or --summary asks for it
    #[arg(short, long, help_heading = "Reporting")]
    pub(crate) quiet: bool,

    /// The program and its arguments
    // Trailing, but without hyphen values: an unknown option before PROGRAM is an error,
    // and everything behind PROGRAM is taken as it is.
    #[arg(value_name = "PROGRAM [ARG]", required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) program: Vec<OsString>,
}

/// Events for which a key of `--watch` is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum On {
    Initial,
    Write,
    Delete,
}

/// Effect of a trigger on a key that waits for a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum InBackoff {
    Run,
    Respect,
    Reset,
}

impl From<InBackoff> for requeue::InBackoff {
    fn from(said: InBackoff) -> Self {
        match said {
            InBackoff::Run => Self::Run,
            InBackoff::Respect => Self::Respect,
            InBackoff::Reset => Self::Reset,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    Text,
    Json,
    Off,
}

impl Run {
    /// Delay after a key's first failure.
    pub(crate) fn base_delay(&self) -> Duration {
        self.base_delay.unwrap_or(Duration::from_secs(1))
    }

    /// The fraction by which a delay is lengthened at most.
    pub(crate) fn jitter(&self) -> f64 {
        self.jitter.unwrap_or(0.2)
    }

    /// The maximum delay before a retry.
    pub(crate) fn max_delay(&self) -> Duration {
        self.max_delay.unwrap_or(Duration::from_secs(300))
    }

    /// How long this process may be silent before others get its keys, if they can.
    pub(crate) fn lease(&self) -> Option<Duration> {
        self.is_on_server().then(|| self.lease.unwrap_or(LEASE))
    }

    /// Whether the queue is on a server, where other processes work on it too.
    pub(crate) fn is_on_server(&self) -> bool {
        matches!(self.engine, Some(Engine::Server(_)))
    }

    /// The place of the queue, if it is not only in memory.
    pub(crate) fn engine(&self) -> Option<Engine> {
        self.engine.clone().or_else(|| self.state.clone().map(Engine::File))
    }

    /// Whether keys have priorities. Others may add keys with priorities to a file; where groups take turns these are none
    /// of ours to choose.
    pub(crate) fn has_priorities(&self) -> bool {
        self.priority || (self.engine().is_some() && self.group_by.is_none())
    }

    /// The quiet time of a debounce, and its maximum.
    pub(crate) fn quiet_time(&self) -> (Duration, Duration) {
        let max = self.debounce.max.or(self.debounce_max);
        (self.debounce.quiet, max.unwrap_or(Duration::from_secs(1)))
    }

    /// The debounce, if there is one.
    pub(crate) fn debounced(&self) -> Option<Debounce> {
        let (quiet, max) = self.quiet_time();
        (!quiet.is_zero()).then(|| Debounce::new(quiet).max(max))
    }

    /// Checks that the parser of single options cannot do.
    ///
    /// # Errors
    ///
    /// Options that exclude each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some((option, why)) = self.not_with_state() {
            return Err(format!("{option} and --state do not go together: {why}"));
        }
        if self.queue.is_some() && self.engine().is_none() {
            return Err("--queue needs --state FILE".to_owned());
        }
        if self.max_wait.is_some() && !self.has_priorities() {
            let needs = if self.works { "has no meaning with --group-by" } else { "needs --priority" };
            return Err(format!(
                "--max-wait {needs}: where keys have no priorities the oldest one runs first anyway"
            ));
        }
        if let Some(option) = self.needs_watch() {
            return Err(format!("{option} needs --watch PATH"));
        }
        // a server knows what is not given
        let given = self.base_delay.is_some() && self.max_delay.is_some();
        let is_stored = self.is_on_server();
        if self.base_delay() > self.max_delay() && (given || !is_stored) {
            let (base, max) = (duration::show(self.base_delay()), duration::show(self.max_delay()));
            return Err(match (self.base_delay, self.max_delay) {
                (None, _) => format!(
                    "--max-delay ({max}) is shorter than --base-delay, which is {base} where it is not given: give both"
                ),
                (Some(_), None) => format!(
                    "--base-delay ({base}) is longer than --max-delay, which is {max} where it is not given: give both"
                ),
                (Some(_), Some(_)) => format!("--base-delay ({base}) is longer than --max-delay ({max})"),
            });
        }
        if let (Quiet { max: Some(_), .. }, Some(_)) = (self.debounce, self.debounce_max) {
            return Err("--debounce QUIET:MAX and --debounce-max say the same: leave one out".to_owned());
        }
        let (quiet, max) = self.quiet_time();
        if quiet > max {
            let (quiet, max) = (duration::show(quiet), duration::show(max));
            return Err(match (self.debounce.max, self.debounce_max) {
                (Some(_), _) => format!(
                    "--debounce {quiet}:{max} waits for longer than its maximum: QUIET:MAX has the shorter time first"
                ),
                (None, Some(_)) => format!(
                    "--debounce ({quiet}) is longer than --debounce-max ({max}): give a longer --debounce-max, or a shorter --debounce"
                ),
                (None, None) => format!(
                    "--debounce {quiet} is longer than {max}, which is the most unless you say another: --debounce {quiet}:MAX"
                ),
            });
        }
        if self.again_after.is_some() && self.fatal_code.contains(&AGAIN) {
            return Err(format!(
                "--fatal-code {AGAIN} contradicts --again-after, which gives that exit status another meaning"
            ));
        }
        if let Some((a, b)) = self.same_file() {
            return Err(format!("{a} and {b} name the same file: give each a file of its own"));
        }
        if let Some(path) =
            self.metrics_to.as_deref().filter(|path| self.reads_input() && whole_file::is_input(path))
        {
            return Err(format!(
                "--metrics-to {} would take the place of the input: name another file",
                path.display()
            ));
        }
        Ok(())
    }

    /// Two options that write to one file.
    fn same_file(&self) -> Option<(&'static str, &'static str)> {
        let files = [
            (self.failed_to.as_deref(), "--failed-to"),
            (self.left_to.as_deref(), "--left-to"),
            (self.joblog.as_deref(), "--joblog"),
            (self.metrics_to.as_deref(), "--metrics-to"),
            (self.state.as_deref(), "--state"),
        ];
        let given: Vec<_> = files.iter().filter_map(|(path, option)| Some(((*path)?, *option))).collect();
        let pairs = given.iter().enumerate().flat_map(|(i, a)| given[i + 1..].iter().map(move |b| (a, b)));
        let mut same = pairs.filter(|((a, _), (b, _))| whole_file::same(a, b));
        same.next().map(|((_, a), (_, b))| (*a, *b))
    }

    /// An option that needs `--watch`, if that is missing.
    fn needs_watch(&self) -> Option<&'static str> {
        let given = [
            (self.stdin, "--stdin"),
            (self.dirs, "--dirs"),
            (!self.glob.is_empty(), "--glob"),
            (!self.ignore.is_empty(), "--ignore"),
            (self.no_gitignore, "--no-gitignore"),
            (self.on != [On::Initial, On::Write, On::Delete], "--on"),
            (self.no_initial, "--no-initial"),
            (self.one, "--one"),
            (self.resync.is_some(), "--resync"),
        ];
        given.into_iter().find(|(given, _)| *given && self.watch.is_empty()).map(|(_, option)| option)
    }

    /// An option that excludes `--state`, and the reason.
    fn not_with_state(&self) -> Option<(&'static str, &'static str)> {
        let given = [
            (!self.watch.is_empty(), "--watch", "what is there is found anew at each start"),
            (self.dry_run, "--dry-run", "it runs nothing, and keeps nothing"),
            (self.bound.is_some(), "--bound", "the file keeps whatever it has accepted"),
            (self.debounced().is_some(), "--debounce", "the file keeps no times of quiet"),
            (
                self.in_backoff != InBackoff::Run,
                "--in-backoff",
                "a trigger that the file has makes its key run as soon as it can",
            ),
            (
                self.left_to.is_some(),
                "--left-to",
                "what is left stays in the file of --state, and runs from there",
            ),
        ];
        let contradiction = given.into_iter().find(|(given, ..)| *given && self.state.is_some());
        contradiction.map(|(_, option, why)| (option, why))
    }

    /// The name of the queue in the file of `--state`.
    pub(crate) fn queue_name(&self) -> &str {
        self.queue.as_deref().unwrap_or(engine::DEFAULT)
    }

    /// The name of the queue in the metrics: its own, or that of its file without the extension.
    pub(crate) fn metrics_name(&self) -> String {
        match (&self.queue, self.engine()) {
            (Some(name), _) => name.clone(),
            (None, Some(Engine::File(path))) => {
                path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
            }
            (None, Some(Engine::Server(_))) => engine::DEFAULT.to_owned(),
            // which one it is, is said by the address that is scraped
            (None, None) => "run".to_owned(),
        }
    }

    /// Whether it runs until a signal: the rest is then left for the next process.
    pub(crate) fn is_service(&self) -> bool {
        self.works || self.stay
    }

    /// Whether keys are read from standard input.
    pub(crate) fn reads_input(&self) -> bool {
        !self.works && (self.stdin || self.watch.is_empty())
    }

    /// Maximum length of a key that is kept whole. If a file may have to contain it, any length that fits
    /// into memory.
    pub(crate) fn longest_key(&self) -> usize {
        if self.failed_to.is_some() || self.left_to.is_some() { usize::MAX } else { keys::LONGEST }
    }

    /// Whether a key of `--watch` is run for this event.
    pub(crate) fn runs_on(&self, event: On) -> bool {
        self.on.contains(&event) && !(self.no_initial && event == On::Initial)
    }

    /// The key of all changes, with --one.
    pub(crate) fn one_key(&self) -> Option<&[u8]> {
        self.watch.first().filter(|_| self.one).map(|path| path.as_os_str().as_encoded_bytes())
    }

    pub(crate) fn log_form(&self) -> Form {
        self.form(self.log)
    }

    pub(crate) fn summary_form(&self) -> Form {
        self.form(self.summary)
    }

    fn form(&self, chosen: Option<Form>) -> Form {
        chosen.unwrap_or(if self.quiet { Form::Off } else { Form::Text })
    }

    pub(crate) fn separator(&self) -> u8 {
        if self.null { 0 } else { b'\n' }
    }
}

/// Reports an error of the subcommand as the parser does, and exits with status 2.
pub(crate) fn usage_error(subcommand: &str, why: &str) -> ! {
    use clap::CommandFactory as _;
    let mut cli = Cli::command();
    cli.build();
    let command = cli.find_subcommand_mut(subcommand).cloned();
    command.unwrap_or(cli).error(clap::error::ErrorKind::ArgumentConflict, why).exit()
}

/// `EX_TEMPFAIL` of sysexits.h.
pub(crate) const AGAIN: u8 = 75;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, CommandFactory as _};

    fn parse(args: &[&str]) -> Result<Run, clap::Error> {
        let words = ["requeue", "run"].into_iter().chain(args.iter().copied());
        Cli::try_parse_from(words).map(|cli| match cli.command {
            Command::Run(run) => *run,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_of_work_says_what_a_server_refuses_and_names_no_option_that_it_hides() {
        let mut cli = Cli::command();
        cli.build();
        let work = cli.find_subcommand_mut("work").unwrap();
        let help = |arg: &Arg| arg.get_help().map(ToString::to_string).unwrap_or_default();
        let named: Vec<_> = work.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg))).collect();
        for refused in [
            "jitter",
            "limiter",
            "retry-rate",
            "retry-burst",
            "group-rate",
            "max-wait",
            "overdue-every",
            "absorb",
        ] {
            let (_, arg) = named.iter().find(|(long, _)| *long == refused).unwrap();
            assert!(help(arg).contains("(not on a server"), "--{refused}: {}", help(arg));
        }
        let hidden: Vec<_> =
            named.iter().filter(|(_, arg)| arg.is_hide_set()).map(|(long, _)| *long).collect();
        assert!(hidden.contains(&"watch") && hidden.contains(&"one"), "{hidden:?}");
        for (long, arg) in named.iter().filter(|(_, arg)| !arg.is_hide_set()) {
            let help = help(arg);
            let words = help.split(|c: char| c != '-' && !c.is_ascii_alphanumeric());
            let mut options = words.filter_map(|word| word.strip_prefix("--"));
            assert_eq!(options.find(|option| hidden.contains(option)), None, "--{long}: {help}");
        }
    }

    #[test]
    fn what_follows_the_program_belongs_to_it() {
        for (args, program) in [
            (&["-j", "2", "true"][..], &["true"][..]),
            (&["true", "-j", "2"], &["true", "-j", "2"]),
            (&["-j2", "--", "true", "--", "-x"], &["true", "--", "-x"]),
            (&["make", "--", "-j4"], &["make", "--", "-j4"]),
            (&["sh", "-c", "exit 3", "--help"], &["sh", "-c", "exit 3", "--help"]),
            (&["--", "--odd", "--tag"], &["--odd", "--tag"]),
            (&["echo", "{}", "--", "--tag"], &["echo", "{}", "--", "--tag"]),
            (&["p", "-0"], &["p", "-0"]),
        ] {
            let run = parse(args).unwrap();
            assert_eq!(run.program, program, "{args:?}");
            assert!(!run.tag && !run.null, "{args:?}");
        }
    }

    #[test]
    fn a_rate_is_a_number_of_starts_in_a_second_a_minute_or_an_hour() {
        for (text, rate) in [("10", 10.0), ("0.5", 0.5), ("10/s", 10.0), ("90/m", 1.5), ("1800/h", 0.5)] {
            assert_eq!(parse(&["--rate", text, "true"]).unwrap().rate, Some(Rate::Most(rate)), "{text}");
        }
        for text in [
            "0", "0/m", "-1", "1/d", "/m", "1/", "1/ m", "1/s/s", "inf", "nan", "1e3", "1000001", "0.001/h",
            "s",
        ] {
            let refused = parse(&["--rate", text, "true"]).unwrap_err().to_string();
            assert!(refused.contains("give starts a second, such as 10 or 0.5"), "{text}: {refused}");
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_documentation() {
        let run = parse(&["true"]).unwrap();
        assert_eq!(run.base_delay(), Duration::from_secs(1));
        assert_eq!(run.max_delay(), Duration::from_secs(300));
        assert_eq!(run.jitter(), 0.2);
        assert_eq!(run.max_attempts, 5);
        assert_eq!((run.retry_rate, run.retry_burst), (None, None));
        assert_eq!((run.timeout, run.drain_timeout, run.again_after), (None, None, None));
        assert_eq!((run.log_form(), run.summary_form()), (Form::Text, Form::Text));
        assert_eq!(run.separator(), b'\n');
    }

    #[test]
    fn watching_has_defaults_of_its_own() {
        let run = parse(&["true"]).unwrap();
        assert_eq!(run.quiet_time(), (Duration::ZERO, Duration::from_secs(1)));
        let run = parse(&["--watch", "a", "--watch", "b", "true"]).unwrap();
        assert_eq!(run.watch, ["a", "b"].map(PathBuf::from));
        assert_eq!((run.max_attempts, run.quiet_time().0), (0, Duration::from_millis(50)));
        let run = parse(&["--watch", "a", "--max-attempts", "3", "--debounce", "1s", "true"]).unwrap();
        assert_eq!((run.max_attempts, run.quiet_time().0), (3, Duration::from_secs(1)));
        let run = parse(&["--watch", "a", "--one", "make"]).unwrap();
        assert_eq!((run.max_attempts, run.quiet_time().0), (1, Duration::from_millis(50)));
    }

    #[test]
    fn events_are_chosen_by_name() {
        let all = [On::Initial, On::Write, On::Delete];
        for (args, chosen) in [
            (&["true"][..], [true, true, true]),
            (&["--no-initial", "true"], [false, true, true]),
            (&["--on", "delete,write", "true"], [false, true, true]),
            (&["--on", "initial", "--on", "delete", "true"], [true, false, true]),
        ] {
            let run = parse(&[&["--watch", "a"], args].concat()).unwrap();
            assert_eq!(all.map(|event| run.runs_on(event)), chosen, "{args:?}");
        }
        assert!(parse(&["--watch", "a", "--on", "read", "true"]).is_err());
        assert!(parse(&["--watch", "a", "--on", "initial", "--no-initial", "true"]).is_err());
    }

    #[test]
    fn quiet_leaves_what_is_asked_for() {
        let run = parse(&["-q", "--summary", "json", "true"]).unwrap();
        assert_eq!((run.log_form(), run.summary_form()), (Form::Off, Form::Json));
    }

    #[test]
    fn contradictions_are_refused() {
        let run = parse(&["--base-delay", "10m", "true"]).unwrap();
        assert!(run.check().unwrap_err().contains("--max-delay, which is 5m where it is not given"));
        let run = parse(&["--again-after", "1s", "--fatal-code", "75", "true"]).unwrap();
        assert!(run.check().is_err());
        let run = parse(&["--fatal-code", "75", "--fatal-code", "3", "true"]).unwrap();
        assert!(run.check().is_ok());
        assert_eq!(run.fatal_code, [75, 3]);
    }
}

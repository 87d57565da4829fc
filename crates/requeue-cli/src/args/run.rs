//! The options of `requeue run`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{ArgGroup, Args, ValueHint};
use requeue::InBackoff;

use super::plan::LimiterText;
use super::values::{
    self, at_least_one, attempts, bound, exit_status, fraction, group_cap, one_of, rate, rate_or_none,
    starts, workers,
};
use crate::config::engine::DEFAULT;
use crate::config::group_by::{self, GroupBy};
use crate::config::{
    self, AGAIN, Durable, Ends, Engine, Files, Form, Groups, Lines, Merge, On, Output, Rate, Retry, Watch,
};
use crate::input::keys;
use crate::limiter::Limiter;
use crate::system::whole_file;
use crate::text::duration;

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("debounced").args(["watch", "debounce"]).multiple(true))]
pub(super) struct RunArgs {
    /// Keys end with a NUL, not with a newline, also in the files of --failed-to and --left-to
    #[arg(short = '0', long)]
    pub(super) null: bool,

    /// Each line of the input starts with a priority, a number from -32768 to 32767, and a tab; higher
    /// priorities run first. A key that comes again with a higher priority is raised. Watched files have 0
    #[arg(long)]
    pub(super) priority: bool,

    /// With --priority, after D in line, run a key before others (oldest first), in one of every 8 runs
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse, help_heading = "Running")]
    pub(super) max_wait: Option<Duration>,

    /// With --max-wait, one of every N runs instead of every 8; 2 at least
    #[arg(long, value_name = "N", allow_hyphen_values = true, requires = "max_wait", value_parser = clap::value_parser!(u32).range(2..), help_heading = "Running")]
    pub(super) overdue_every: Option<u32>,

    /// Let a run replace the delayed runs (retries too) that its key had when it began. Without this each of them
    /// runs when it is due
    #[arg(long, help_heading = "Running")]
    pub(super) absorb: bool,

    /// Divide keys into groups that take turns. The group of a key is the text before the first SEP (or the
    /// whole key, without one). With /REGEX/ it is the match, or its first group in parentheses; keys that do
    /// not match form one group
    #[arg(long, value_name = "SEP|/REGEX/", allow_hyphen_values = true, value_parser = group_by::parse, help_heading = "Running")]
    pub(super) group_by: Option<GroupBy>,

    /// With --group-by, run at most N programs of each group at a time
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = group_cap, requires = "group_by", help_heading = "Running")]
    pub(super) group_cap: Option<NonZeroUsize>,

    /// With --group-by, start at most R runs of each group per second, or per minute or hour with R/m and
    /// R/h, retries included. While a group waits for this, others run
    #[arg(long, value_name = "R", allow_hyphen_values = true, value_parser = starts, requires = "group_by", help_heading = "Running")]
    pub(super) group_rate: Option<f64>,

    /// Read lines of a key, a tab and a value, and pass the values of a run's triggers in REQUEUE_PAYLOAD:
    /// last (the last one), concat (all, one per line), count (the number of triggers, with or without
    /// values). A run that comes after a failed one, or one that ended with 75 (--again-after), also gets its values
    #[arg(long, value_parser = one_of(&values::MERGES), value_name = "HOW", hide_possible_values = true)]
    pub(super) merge: Option<Merge>,

    /// Prefix each line of output with the key and a tab
    #[arg(long)]
    pub(super) tag: bool,

    /// Print a run's output when it ends, in one piece
    #[arg(long)]
    pub(super) group: bool,

    /// Print the output of each run in one piece, in the order in which keys were read. Output after a key
    /// that waits for a retry is kept until that key is done or gives up. A key that comes again after its
    /// run began goes to the end
    #[arg(short = 'k', long)]
    pub(super) keep_order: bool,

    /// Print the commands, once for each key, and run nothing
    #[arg(long)]
    pub(super) dry_run: bool,

    /// Watch PATH: first all files at and below it are keys, then each file that is written, created, moved
    /// or deleted; can be given several times
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, help_heading = "Watching")]
    pub(super) watch: Vec<PathBuf>,

    /// With --watch, read keys from standard input too
    #[arg(long, help_heading = "Watching")]
    pub(super) stdin: bool,

    /// Make directories keys too
    #[arg(long, help_heading = "Watching")]
    pub(super) dirs: bool,

    /// Use only files that match GLOB (syntax of .gitignore) as keys; can be given several times
    #[arg(long, value_name = "GLOB", help_heading = "Watching")]
    pub(super) glob: Vec<String>,

    /// Skip files and directories that match GLOB; can be given several times
    #[arg(long, value_name = "GLOB", help_heading = "Watching")]
    pub(super) ignore: Vec<String>,

    /// Ignore .gitignore files: the files that they hide, and .git, become keys too
    #[arg(long, help_heading = "Watching")]
    pub(super) no_gitignore: bool,

    /// Run a key on these events, separated by commas: initial (it exists at the start), write (it is created
    /// or changed), delete
    #[arg(
        long,
        value_parser = one_of(&values::EVENTS), value_name = "EVENT",
        value_delimiter = ',',
        default_value = "initial,write,delete",
        help_heading = "Watching"
    )]
    pub(super) on: Vec<On>,

    /// Run only for changes, not for files that exist at the start; same as --on write,delete
    #[arg(long, conflicts_with = "on", help_heading = "Watching")]
    pub(super) no_initial: bool,

    /// Treat all changes as one key: run PROGRAM once per batch of changes, without a path argument. The key
    /// is the first PATH
    #[arg(long, help_heading = "Watching")]
    pub(super) one: bool,

    /// Look at everything again and run every key again, every D
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::positive, help_heading = "Watching")]
    pub(super) resync: Option<Duration>,

    /// Run a key when no trigger has come for it for QUIET, at the latest MAX after the first [default: 0s;
    /// with --watch 50ms]
    #[arg(
        long,
        value_name = "QUIET[:MAX]",
        allow_hyphen_values = true,
        value_parser = values::quiet,
        default_value = "0s",
        default_value_if("watch", ArgPredicate::IsPresent, "50ms"),
        hide_default_value = true,
        help_heading = "Watching"
    )]
    pub(super) debounce: (Duration, Option<Duration>),

    /// With a --debounce without MAX, run a key at the latest D after its first trigger [default: 1s]
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse, requires = "debounced", help_heading = "Watching")]
    pub(super) debounce_max: Option<Duration>,

    /// Keep at most N keys that wait, are retried or run; read more input when some are done
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = bound, help_heading = "Running")]
    pub(super) bound: Option<NonZeroUsize>,

    /// Keep the queue in FILE, which is created if needed: accepted keys, with their failures, delays,
    /// priorities and values, continue after any end, even kill -9
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Keeping")]
    pub(super) state: Option<PathBuf>,

    /// With --state, the name of the queue in FILE [default: default]
    #[arg(long, value_name = "NAME", help_heading = "Keeping")]
    pub(super) queue: Option<String>,

    /// With --state, continue after the end of the input until a signal: keys come from `requeue add`
    #[arg(long, requires = "state", help_heading = "Keeping")]
    pub(super) stay: bool,

    /// Run at most N programs at a time [default: number of cores]
    #[arg(short = 'j', long, value_name = "N", allow_hyphen_values = true, value_parser = workers, help_heading = "Running")]
    pub(super) workers: Option<NonZeroUsize>,

    /// Start at most R runs per second, or per minute or hour with R/m and R/h, retries included. A key that
    /// comes again while it waits costs nothing
    #[arg(long, value_name = "R", allow_hyphen_values = true, value_parser = rate_or_none, help_heading = "Running")]
    pub(super) rate: Option<Rate>,

    /// Fail a run that takes longer than D: TERM, then KILL, to its process group
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::positive, help_heading = "Running")]
    pub(super) timeout: Option<Duration>,

    /// Time between TERM and KILL
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse, default_value = "5s", help_heading = "Running")]
    pub(super) grace: Duration,

    /// Delay before the first retry; it doubles with every failure in a row [default: 1s]
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse, help_heading = "Retrying")]
    pub(super) base_delay: Option<Duration>,

    /// Maximum delay before a retry [default: 5m]
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse, help_heading = "Retrying")]
    pub(super) max_delay: Option<Duration>,

    /// Lengthen each delay at random, by up to this fraction [default: 0.2]
    #[arg(long, value_name = "F", allow_hyphen_values = true, value_parser = fraction, help_heading = "Retrying")]
    pub(super) jitter: Option<f64>,

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
    pub(super) limiter: Option<Limiter>,

    /// Limit retries of all keys together to R per second (off by default)
    #[arg(long, value_name = "R", allow_hyphen_values = true, value_parser = rate, help_heading = "Retrying")]
    pub(super) retry_rate: Option<f64>,

    /// With --retry-rate, allow up to N retries at once [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true, requires = "retry_rate", value_parser = at_least_one, help_heading = "Retrying")]
    pub(super) retry_burst: Option<u32>,

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
    pub(super) max_attempts: u32,

    /// Set how a trigger acts on a key that waits for a retry, or whose current run fails: run (run it now),
    /// respect (wait for the retry), reset (run it now, and forget its failures)
    #[arg(
        long,
        value_parser = one_of(&values::IN_BACKOFF), value_name = "WHAT",
        hide_possible_values = true,
        default_value = "run",
        help_heading = "Retrying"
    )]
    pub(super) in_backoff: InBackoff,

    /// Take exit status 75 as "run again after D, with the same values", not as a failure
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse, help_heading = "Retrying")]
    pub(super) again_after: Option<Duration>,

    /// Do not retry a run with this exit status; can be given several times
    #[arg(long, value_name = "CODE", allow_hyphen_values = true, value_parser = exit_status, help_heading = "Retrying")]
    pub(super) fatal_code: Vec<u8>,

    /// After the end of the input, or the first signal, continue for at most D; then stop the programs and
    /// leave
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::parse, help_heading = "Ending")]
    pub(super) drain_timeout: Option<Duration>,

    /// When a key gives up, start no further run: current runs end, other keys are left
    #[arg(long, help_heading = "Ending")]
    pub(super) fail_fast: bool,

    /// At the end, write the keys that gave up to FILE (usable as input)
    #[arg(long, value_name = "FILE", help_heading = "Reporting")]
    pub(super) failed_to: Option<PathBuf>,

    /// At the end, write unfinished keys (ready, waiting for a retry, or stopped) to FILE (usable as input)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Reporting")]
    pub(super) left_to: Option<PathBuf>,

    /// Append a line for each run to FILE: key, attempt, start, seconds, status and signal, separated by tabs
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Reporting")]
    pub(super) joblog: Option<PathBuf>,

    /// Skip the keys whose last run in the file of --joblog succeeded (needs --joblog)
    #[arg(long, requires = "joblog", conflicts_with = "watch", help_heading = "Reporting")]
    pub(super) resume: bool,

    /// Serve /metrics (for Prometheus) and /healthz over HTTP: on a PORT of this machine, or an ADDRESS:PORT
    #[arg(long, value_name = "ADDR", allow_hyphen_values = true, value_parser = values::address, help_heading = "Reporting")]
    pub(super) listen: Option<SocketAddr>,

    /// At the end, write the metrics of --listen to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Reporting")]
    pub(super) metrics_to: Option<PathBuf>,

    /// Format of reports of failed runs on standard error [default: text]
    #[arg(long, value_parser = one_of(&values::FORMS), value_name = "FORM", help_heading = "Reporting")]
    pub(super) log: Option<Form>,

    /// Format of the summary on standard error at the end [default: text]
    #[arg(long, value_parser = one_of(&values::FORMS), value_name = "FORM", help_heading = "Reporting")]
    pub(super) summary: Option<Form>,

    /// Print no log, summary or progress line, unless --log or --summary asks for it
    #[arg(short, long, help_heading = "Reporting")]
    pub(super) quiet: bool,

    /// The program and its arguments
    // Trailing, but without hyphen values: an unknown option before PROGRAM is an error,
    // and everything behind PROGRAM is taken as it is.
    #[arg(value_name = "PROGRAM [ARG]", required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub(super) program: Vec<OsString>,
}

/// Shows two delays, as text for a message.
fn shown(a: Duration, b: Duration) -> (String, String) {
    (duration::show(a), duration::show(b))
}

impl RunArgs {
    /// The configuration of `requeue run`.
    ///
    /// # Errors
    ///
    /// Options that exclude each other.
    pub(super) fn into_run(self) -> Result<config::Run, String> {
        if let Some((option, why)) = self.not_with_state() {
            return Err(format!("{option} and --state do not go together: {why}"));
        }
        if self.queue.is_some() && self.state.is_none() {
            return Err("--queue needs --state FILE".to_owned());
        }
        let queue = self.queue_name();
        let durable =
            |path| Durable { engine: Engine::File(path), queue, works: false, stays: self.stay, lease: None };
        let durable = self.state.clone().map(durable);
        self.into_config(durable)
    }

    /// The name of the durable queue.
    pub(super) fn queue_name(&self) -> String {
        self.queue.clone().unwrap_or_else(|| DEFAULT.to_owned())
    }

    /// The configuration of a run on this queue.
    ///
    /// # Errors
    ///
    /// Options that exclude each other.
    pub(super) fn into_config(self, durable: Option<Durable>) -> Result<config::Run, String> {
        let works = durable.as_ref().is_some_and(|durable| durable.works);
        let is_on_server = matches!(durable, Some(Durable { engine: Engine::Server(_), .. }));
        // Others may add keys with priorities to a file; groups that take turns have no priorities.
        let priorities = self.priority || (durable.is_some() && self.group_by.is_none());
        if self.max_wait.is_some() && !priorities {
            let needs = if works { "has no meaning with --group-by" } else { "needs --priority" };
            return Err(format!(
                "--max-wait {needs}: where keys have no priorities the oldest one runs first anyway"
            ));
        }
        if let Some(option) = self.needs_watch() {
            return Err(format!("{option} needs --watch PATH"));
        }
        let retry = Retry {
            limiter: self.limiter.clone(),
            base_delay: self.base_delay,
            max_delay: self.max_delay,
            jitter: self.jitter.unwrap_or(0.2),
            rate: self.retry_rate.map(|rate| (rate, self.retry_burst.unwrap_or(1))),
        };
        check_delays(&retry, is_on_server)?;
        let debounce = self.debounced()?;
        if self.again_after.is_some() && self.fatal_code.contains(&AGAIN) {
            return Err(format!(
                "--fatal-code {AGAIN} contradicts --again-after, which gives that exit status another meaning"
            ));
        }
        if let Some((a, b)) = self.same_file() {
            return Err(format!("{a} and {b} name the same file: give each a file of its own"));
        }
        let are_read = !works && (self.stdin || self.watch.is_empty());
        if let Some(path) = self.metrics_to.as_deref().filter(|path| are_read && whole_file::is_input(path)) {
            return Err(format!(
                "--metrics-to {} would take the place of the input: name another file",
                path.display()
            ));
        }
        let keeps_any_length = self.failed_to.is_some() || self.left_to.is_some();
        let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let (cap, rate) = (self.group_cap, self.group_rate);
        Ok(config::Run {
            metrics_name: self.metrics_name(durable.as_ref()),
            log: self.form(self.log),
            summary: self.form(self.summary),
            progress: !self.quiet,
            program: self.program,
            workers: self.workers.unwrap_or_else(cores).get(),
            dry_run: self.dry_run,
            lines: Lines {
                are_read,
                separator: if self.null { 0 } else { b'\n' },
                priorities: self.priority,
                merge: self.merge,
                longest: if keeps_any_length { usize::MAX } else { keys::LONGEST },
            },
            watch: (!self.watch.is_empty()).then_some(Watch {
                paths: self.watch,
                dirs: self.dirs,
                globs: self.glob,
                ignored: self.ignore,
                gitignore: !self.no_gitignore,
                resync: self.resync,
                on: self.on.into_iter().filter(|on| !self.no_initial || *on != On::Initial).collect(),
                one: self.one,
            }),
            queue: config::Queue {
                priorities,
                max_wait: self.max_wait,
                overdue_every: self.overdue_every,
                absorb: self.absorb,
                groups: self.group_by.map(|by| Groups { by, cap, rate }),
                rate: self.rate,
                bound: self.bound,
                debounce,
                in_backoff: self.in_backoff,
                retry,
            },
            durable,
            ends: Ends {
                max_attempts: self.max_attempts,
                timeout: self.timeout,
                again_after: self.again_after,
                fatal_codes: self.fatal_code,
            },
            grace: self.grace,
            fail_fast: self.fail_fast,
            drain_timeout: self.drain_timeout,
            output: match (self.keep_order, self.group) {
                (true, _) => Output::InOrder,
                (false, true) => Output::Grouped,
                (false, false) => Output::Lines,
            },
            tag: self.tag,
            files: Files {
                failed_to: self.failed_to,
                left_to: self.left_to,
                joblog: self.joblog,
                resume: self.resume,
                metrics_to: self.metrics_to,
            },
            listen: self.listen,
        })
    }

    /// The quiet time of a debounce and its maximum, if there is one.
    fn debounced(&self) -> Result<Option<(Duration, Duration)>, String> {
        let (quiet, own_max) = self.debounce;
        if own_max.is_some() && self.debounce_max.is_some() {
            return Err("--debounce QUIET:MAX and --debounce-max say the same: leave one out".to_owned());
        }
        let max = own_max.or(self.debounce_max).unwrap_or(Duration::from_secs(1));
        if quiet <= max {
            return Ok((!quiet.is_zero()).then_some((quiet, max)));
        }
        let (quiet, max) = shown(quiet, max);
        Err(match (own_max, self.debounce_max) {
            (Some(_), _) => format!(
                "--debounce {quiet}:{max} waits for longer than its maximum: QUIET:MAX has the shorter time first"
            ),
            (None, Some(_)) => format!(
                "--debounce ({quiet}) is longer than --debounce-max ({max}): give a longer --debounce-max, or a shorter --debounce"
            ),
            (None, None) => format!(
                "--debounce {quiet} is longer than its maximum, {max} by default: give --debounce {quiet}:MAX"
            ),
        })
    }

    /// The name of the queue in the metrics: its own, or that of its file without the extension.
    fn metrics_name(&self, durable: Option<&Durable>) -> String {
        match (&self.queue, durable.map(|durable| &durable.engine)) {
            (Some(name), _) => name.clone(),
            (None, Some(Engine::File(path))) => {
                path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
            }
            (None, Some(Engine::Server(_))) => DEFAULT.to_owned(),
            // which one it is, is said by the address that is scraped
            (None, None) => "run".to_owned(),
        }
    }

    fn form(&self, chosen: Option<Form>) -> Form {
        chosen.unwrap_or(if self.quiet { Form::Off } else { Form::Text })
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
            (!self.debounce.0.is_zero(), "--debounce", "the file keeps no times of quiet"),
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
}

/// Checks that the first delay is not longer than the longest. A server knows a delay that is not given.
fn check_delays(retry: &Retry, is_on_server: bool) -> Result<(), String> {
    let (base, max) = retry.delays();
    let (base_given, max_given) = (retry.base_delay.is_some(), retry.max_delay.is_some());
    if base <= max || (is_on_server && !(base_given && max_given)) {
        return Ok(());
    }
    let (base, max) = shown(base, max);
    Err(if !base_given {
        format!(
            "--max-delay ({max}) is shorter than --base-delay, which is {base} where it is not given: give both"
        )
    } else if !max_given {
        format!(
            "--base-delay ({base}) is longer than --max-delay, which is {max} where it is not given: give both"
        )
    } else {
        format!("--base-delay ({base}) is longer than --max-delay ({max})")
    })
}

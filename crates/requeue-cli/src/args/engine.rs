//! The options of the commands for a durable queue.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand};
use jiff::Zoned;
use requeue_sqlite::Schedule;

use crate::config::Engine;
use crate::config::engine::{self, Act, DEFAULT, ENGINE, Keys, List, When};
use crate::config::group_by::{self, GroupBy};
use crate::text::{at, duration, json};

/// The subcommands for a durable queue.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    #[command(
        about = "Add keys to a durable queue",
        long_about = "Add keys to a durable queue. The status is 0 only when they are on the disk. A key that is too long for a \
                      server, of more than 2600 bytes, is named, and the others are added; the status is 1 then.\n\n\
                      Lines of standard input are added as they come: in transactions of up to 1000, and whenever no further line \
                      is there yet. If that fails, the message says how many keys were added, which lines may have been added, and \
                      from which line on none was; with --json in \"added\", \"in_doubt\" (the first and the last) and \"not_added_from\". A signal \
                      ends the command at once, without a message: the keys added by then are in the queue, and the up to 1000 \
                      lines behind them are there all or none. Adding a key twice does no harm.",
        after_help = ENGINES
    )]
    Add(Box<Add>),

    #[command(about = "List the keys of a durable queue, in the order of its line", after_help = ENGINES)]
    Ls(Ls),

    #[command(
        about = "Show the state of a key of a durable queue",
        long_about = "Show the state of a key of a durable queue. The status is 1 if the key is not known.",
        after_help = ENGINES
    )]
    State(OneKey),

    #[command(
        about = "Cancel the runs that keys wait for; a current run goes on",
        long_about = "Cancel the runs that a key waits for; a current run goes on. The status is 1 if there was nothing to cancel.\n\n\
                      With --prefix or --all this is done for many keys: those that are ready, wait for a time or a retry, come again by \
                      themselves, or run and are to run once more. They are counted first. On a terminal you are asked before they are \
                      cancelled; elsewhere nothing is cancelled without --yes or --expect N, and the status is 1. `requeue purge` removes \
                      keys that gave up.",
        after_help = ENGINES
    )]
    Cancel(Cancel),

    #[command(
        about = "Run a key now that waits or gave up",
        long_about = "Run a key now that waits or gave up. The status is 1 if the key is not known.",
        after_help = ENGINES
    )]
    Retry(OneKey),

    #[command(
        about = "Pause a durable queue: none of its keys runs until it is resumed",
        long_about = "Pause a durable queue: none of its keys runs until it is resumed. On a server, keys that a process has claimed \
                      before still run. The status is 1 if there is no such queue.",
        after_help = ENGINES
    )]
    Pause(Paused),

    #[command(
        about = "End a pause",
        long_about = "End a pause. The status is 1 if there is no such queue.",
        after_help = ENGINES
    )]
    Resume(Paused),

    #[command(about = "Remove the keys of a durable queue that gave up, and print their number", after_help = ENGINES)]
    Purge(Queue),

    #[command(
        about = "Count the keys of a durable queue",
        long_about = "Count the keys of a durable queue. A server counts to 100000, a file to 1000000: `100000+` is that many or more, and \
                      with --json the member \"at_least\" lists the counts that stopped there.\n\n\
                      On a server, groups are counted that are paused or have rules of their own; `requeue ls --groups` names them. A key that a \
                      transaction has added counts as ready, once for each time, until a process that works has taken it in. The cap is that of \
                      groups that have none of their own. The back-off and the rate are those that the server keeps for all processes.\n\n\
                      The status is 1 if there is no such queue.",
        after_help = ENGINES
    )]
    Stats(Queue),

    #[command(
        about = "Show the durable queues of an engine, refreshed until an interrupt",
        long_about = "Show the durable queues of an engine: a line each, on a terminal always in the same place. \
                      It ends with an interrupt (ctrl-C), or after --times. A server counts to 100000, as for `requeue stats`. \
                      A server that does not answer at the start ends it with status 1; if it goes away later the line says why, \
                      with --json in \"error\".",
        after_help = ENGINES
    )]
    Top(Top),

    #[command(
        about = "Make the schema on a PostgreSQL server, or bring it to this version",
        long_about = "Make the schema `requeue` on a PostgreSQL server, or bring it to this version. Called again it does \
                      nothing more. The role must be allowed to create a schema in the database, or an administrator has made \
                      an empty one for it: create schema requeue authorization ROLE. (A file's schema is made when it is opened.)",
        after_help = ENGINES
    )]
    Migrate(Queue),

    #[command(
        about = "Check the file of a durable queue",
        long_about = "Check the whole file of a durable queue. The status is 1 if it has a fault; each fault is a line.",
        after_help = ENGINES
    )]
    Check(Queue),
}

const ENGINES: &str = include_str!("help/engines.txt").trim_ascii_end();

/// The engine with this name, or of the environment.
///
/// # Errors
///
/// The problem with the name, without a possible password.
pub(super) fn named(engine: Option<&OsStr>) -> Result<Engine, String> {
    let engine = engine.map(OsStr::to_owned).or_else(|| std::env::var_os(ENGINE));
    let none = || format!("no engine: say --engine sqlite:FILE or postgres://…, or set {ENGINE}");
    let engine = engine.ok_or_else(none)?;
    if let Some(path) = engine.as_bytes().strip_prefix(b"sqlite:").filter(|path| !path.is_empty()) {
        // In other programs that is a path from the working directory; here it would be one from the root.
        if path.starts_with(b"//") && !path.starts_with(b"///") {
            let form = "write sqlite:FILE, such as sqlite:queue.db or sqlite:/var/lib/queue.db";
            return Err(format!("--engine sqlite://…: {form}"));
        }
        return Ok(Engine::File(OsStr::from_bytes(path).into()));
    }
    let engine = engine.to_string_lossy().into_owned();
    match engine.split_once(':') {
        Some(("postgres" | "postgresql", server)) if server.starts_with("//") => Ok(Engine::Server(engine)),
        Some(("postgres" | "postgresql", _)) => {
            Err("--engine postgres: write postgres://USER@HOST/DATABASE".to_owned())
        }
        // of the rest any part may be a password
        _ => {
            let is_word = |scheme: &&str| scheme.bytes().all(|it| it.is_ascii_alphanumeric());
            let scheme = engine.split_once("://").map(|(scheme, _)| scheme).filter(is_word);
            let told = scheme.map_or(String::new(), |scheme| format!(" {scheme}://…"));
            Err(format!("--engine{told}: write sqlite:FILE or postgres://USER@HOST/DATABASE"))
        }
    }
}

/// The place of the queues, and the output format.
#[derive(Args, Debug)]
pub(super) struct Place {
    /// Place of the queue: `sqlite:FILE`, or `postgres://USER:PASSWORD@HOST/DATABASE`. The default is
    /// $REQUEUE_ENGINE, which `ps` does not show: better for a password. Special characters are
    /// percent-encoded
    #[arg(long, value_name = "ENGINE")]
    engine: Option<OsString>,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// The queue, and the output format.
#[derive(Args, Debug)]
pub(super) struct Queue {
    #[command(flatten)]
    place: Place,

    /// Name of the queue
    #[arg(long, value_name = "NAME", default_value = DEFAULT)]
    queue: String,
}

/// `requeue add`
#[derive(Args, Debug)]
pub(super) struct Add {
    #[command(flatten)]
    queue: Queue,

    /// Run after this delay
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::parse)]
    after: Option<Duration>,

    /// The run stands for the delayed runs that the keys have by now, retries too: their timers go. Without this each comes when it is due
    #[arg(long, conflicts_with_all = ["after", "at", "every", "cron"])]
    absorb: bool,

    /// Run at this time: 18:00 or 18:00:00 (the next one, local time), 2031-12-24T18:00 (local time),
    /// 2031-12-24T18:00:00Z (RFC 3339), or 2031-12-24T18:00[Europe/Berlin]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = at::parse, conflicts_with = "after")]
    at: Option<Zoned>,

    /// Run again every DURATION, until the key is cancelled, also after restarts. With --at: at
    /// that time and every DURATION from then on, however long runs take; whole days are calendar days, so
    /// that 18:00 stays 18:00 when clocks change. Without --at: DURATION after the end of
    /// each run, the first one now or --after. Runs missed while nothing worked on the queue, or during a
    /// run, become one run
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration::positive)]
    every: Option<Duration>,

    /// Run at the times of this cron expression (minute, hour, day of the month, month, day of the
    /// week, and optionally a time zone), such as '0 18 * * 1-5', until the key is cancelled. A time that is
    /// skipped when clocks change comes later by the change, and one that occurs twice comes once; if minute
    /// or hour begin with * it comes whenever clocks show it
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true, value_parser = cron, conflicts_with_all = ["after", "at", "every"])]
    cron: Option<Schedule>,

    /// Priority of the run, in a queue that has priorities; higher ones run first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i16,

    /// Pass this JSON value to the runs of the keys; values of a key before its run are all passed to it
    #[arg(long, value_name = "JSON", allow_hyphen_values = true, value_parser = json::read, conflicts_with_all = ["every", "cron", "values"])]
    value: Option<String>,

    /// Read lines of a key, a tab and a JSON value from standard input. An invalid line is reported, and the
    /// others are added
    #[arg(long, conflicts_with_all = ["every", "cron", "keys"])]
    values: bool,

    /// On a server, divide keys into groups that take turns. The group of a key is the text before the first
    /// SEP (or the whole key, without one). With /REGEX/ it is the match, or its first group in parentheses;
    /// keys that do not match form one group
    #[arg(long, value_name = "SEP|/REGEX/", allow_hyphen_values = true, value_parser = group_by::parse)]
    group_by: Option<GroupBy>,

    /// On a server, create the queue if needed. Without this, a name that no process has worked on is an
    /// error; the queue `default` is always created
    #[arg(long)]
    make: bool,

    /// Keys on standard input end with a NUL instead of a newline
    #[arg(short = '0', long)]
    null: bool,

    /// The keys, none of them empty; without any, the lines of standard input, but for empty ones
    #[arg(value_name = "KEY", value_parser = not_empty("a key has at least one byte"))]
    keys: Vec<OsString>,
}

/// Reads any text but an empty one, about which `why` tells.
fn not_empty(why: &'static str) -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(move |text| if text.is_empty() { Err(why) } else { Ok(text) })
}

fn cron(text: &str) -> Result<Schedule, String> {
    format!("cron {text}").parse().map_err(|why: String| {
        // the parser of the command line has named it
        why.split_once(": ").map_or_else(|| why.clone(), |(_, why)| why.to_owned())
    })
}

/// `requeue pause`, `requeue resume`
#[derive(Args, Debug)]
pub(super) struct Paused {
    #[command(flatten)]
    queue: Queue,

    /// On a server, only the keys of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<OsString>,
}

/// A command for one key.
#[derive(Args, Debug)]
pub(super) struct OneKey {
    #[command(flatten)]
    queue: Queue,

    /// The key
    #[arg(value_name = "KEY")]
    key: OsString,
}

/// `requeue cancel`
#[derive(Args, Debug)]
pub(super) struct Cancel {
    #[command(flatten)]
    queue: Queue,

    /// The key
    #[arg(value_name = "KEY", required_unless_present_any = ["prefix", "all"], conflicts_with_all = ["prefix", "all"])]
    key: Option<OsString>,

    /// All keys that begin with PREFIX
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true, conflicts_with = "all", value_parser = not_empty("for all keys say --all"))]
    prefix: Option<OsString>,

    /// All keys of the queue
    #[arg(long)]
    all: bool,

    /// With --prefix or --all, do not ask
    #[arg(long, short = 'y', conflicts_with = "key")]
    yes: bool,

    /// With --prefix or --all, cancel the keys if there are exactly N
    #[arg(long, value_name = "N", conflicts_with_all = ["yes", "key"])]
    expect: Option<u64>,
}

/// `requeue ls`
#[derive(Args, Debug)]
pub(super) struct Ls {
    #[command(flatten)]
    queue: Queue,

    /// List only keys whose last run gave up
    #[arg(long)]
    dead: bool,

    /// List only running keys
    #[arg(long, conflicts_with = "dead")]
    running: bool,

    /// List the names of the queues
    #[arg(long, conflicts_with_all = ["dead", "running"])]
    queues: bool,

    /// On a server, list the groups that are paused or have a weight or a cap of their own
    #[arg(long, conflicts_with_all = ["dead", "queues", "running"])]
    groups: bool,
}

/// `requeue top`
#[derive(Args, Debug)]
pub(super) struct Top {
    #[command(flatten)]
    place: Place,

    /// Interval between two looks
    #[arg(long, value_name = "DURATION", default_value = "1s", allow_hyphen_values = true, value_parser = duration::positive)]
    every: Duration,

    /// End after this number of looks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    times: Option<u64>,
}

impl Place {
    fn command(self, queue: String, act: Act) -> engine::Command {
        engine::Command { engine: named(self.engine.as_deref()), queue, json: self.json, act }
    }
}

impl Queue {
    fn command(self, act: Act) -> engine::Command {
        self.place.command(self.queue, act)
    }
}

impl Command {
    /// The command's configuration.
    ///
    /// # Errors
    ///
    /// Times that are too far away for a calendar.
    pub(super) fn into_config(self) -> Result<engine::Command, String> {
        let group = |group: Option<OsString>| group.map(OsString::into_vec);
        Ok(match self {
            Self::Add(args) => return args.into_config(),
            Self::Ls(Ls { queue, dead, running, queues, groups }) => {
                let lists = [
                    (dead, List::Dead),
                    (running, List::Running),
                    (queues, List::Queues),
                    (groups, List::Groups),
                ];
                let list = lists.into_iter().find(|(given, _)| *given).map_or(List::Keys, |(_, list)| list);
                queue.command(Act::List(list))
            }
            Self::State(OneKey { queue, key }) => queue.command(Act::State(key.into_vec())),
            Self::Retry(OneKey { queue, key }) => queue.command(Act::Retry(key.into_vec())),
            Self::Cancel(Cancel { queue, key, prefix, yes, expect, .. }) => {
                queue.command(Act::Cancel(match key {
                    Some(key) => engine::Cancel::One(key.into_vec()),
                    None => {
                        engine::Cancel::Many { prefix: prefix.unwrap_or_default().into_vec(), yes, expect }
                    }
                }))
            }
            Self::Pause(args) => args.queue.command(Act::Pause(group(args.group))),
            Self::Resume(args) => args.queue.command(Act::Resume(group(args.group))),
            Self::Purge(queue) => queue.command(Act::Purge),
            Self::Stats(queue) => queue.command(Act::Stats),
            Self::Top(Top { place, every, times }) => {
                place.command(DEFAULT.to_owned(), Act::Top { every, times })
            }
            Self::Migrate(queue) => queue.command(Act::Migrate),
            Self::Check(queue) => queue.command(Act::Check),
        })
    }
}

impl Add {
    fn into_config(self) -> Result<engine::Command, String> {
        let schedule = match (self.cron, &self.at, self.every) {
            (Some(cron), ..) => Some(cron),
            (None, Some(at), Some(every)) => {
                Some(format!("at {} every {}s", at::first(at)?, every.as_secs_f64()).parse()?)
            }
            _ => None,
        };
        let separator = if self.null { b'\0' } else { b'\n' };
        let keys = match self.keys {
            keys if keys.is_empty() => Keys::Read { separator, values: self.values },
            keys => Keys::Given(keys.into_iter().map(OsString::into_vec).collect()),
        };
        Ok(self.queue.command(Act::Add(Box::new(engine::Add {
            keys,
            when: When { after: self.after, at: self.at, every: self.every, schedule },
            absorb: self.absorb,
            priority: self.priority,
            value: self.value,
            group_by: self.group_by,
            make: self.make,
        }))))
    }
}

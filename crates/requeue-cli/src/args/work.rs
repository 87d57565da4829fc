//! `requeue work`: those options of `requeue run` that apply, and its own.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Arg, Args};

use requeue::InBackoff;

use super::engine;
use super::run::RunArgs;
use crate::config::{self, Durable, Engine};
use crate::text::duration;

/// Default lease.
const LEASE: Duration = Duration::from_secs(30);

/// `requeue work`: `requeue run` for keys from an engine.
#[derive(Args, Debug)]
pub(super) struct Work {
    /// Place of the queue: `sqlite:FILE`, or `postgres://USER:PASSWORD@HOST/DATABASE`. The default is
    /// $REQUEUE_ENGINE, which `ps` does not show: better for a password. Special characters are
    /// percent-encoded
    #[arg(long, value_name = "ENGINE", help_heading = "Keeping")]
    engine: Option<OsString>,

    /// On a server, how long this process may be silent before others get its keys [default: 30s]
    #[arg(long, value_name = "D", allow_hyphen_values = true, value_parser = duration::positive, help_heading = "Keeping")]
    lease: Option<Duration>,

    #[command(flatten)]
    run: RunArgs,
}

/// Changes the help of an option for `work`; an option that does not apply is hidden, see [`Work::into_run`].
pub(super) fn for_work(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "queue" => arg.help("The name of the queue [default: default]"),
        "group_by" => arg.help(
            "In a file, keys belong to groups, and groups take turns: the group of a key is what stands before the first SEP (the \
             whole key, where there is none). In slashes it is what REGEX matches, or its first group in parentheses; keys that \
             it does not match are one group. On a server this option is needed only because --group-cap requires it; it \
             does not change any key's group, which `requeue add --group-by` gave it",
        ),
        "group_cap" => arg.help(
            "With --group-by, run at most N programs of each group at a time; on a server, in all processes together and from \
             then on. `none` takes back a cap that a server has",
        ),
        "rate" => arg.help(
            "At most R runs start in a second, or in a minute or an hour with R/m and R/h, retries too; a key that comes again \
             while it waits costs nothing. On a server in all processes together and from then on; `none` takes back a rate that \
             a server has",
        ),
        "null" => arg.help("Keys end with a NUL, not with a newline, in the file of --failed-to"),
        "max_wait" => arg.help(
            "One of every 8 runs is of the key that has been ready longest, once that is D; not with --group-by, as of each \
             group the oldest key runs first anyway (not on a server)",
        ),
        "overdue_every" => {
            arg.help("With --max-wait, one of every N runs instead of every 8; 2 at least (not on a server)")
        }
        "absorb" => arg.help(
            "A run stands for the delayed runs that its key had before it began, retries too: their timers go. Without this \
             each comes when it is due (not on a server)",
        ),
        "group_rate" => arg.help(
            "With --group-by, at most R runs of each group start in a second, or in a minute or an hour with R/m and R/h, retries \
             too; runs of the others go before those that wait for this (not on a server)",
        ),
        "base_delay" => arg.help(
            "Delay before the first retry; it doubles with every failure in a row [default: 1s; on a server what its queue has, \
             1s at first]",
        ),
        "max_delay" => arg.help(
            "The longest delay before a retry [default: 5m; on a server what its queue has, 5m at first]",
        ),
        "jitter" => arg.help(
            "Lengthen each delay by a random part of it, up to this fraction (not on a server) [default: 0.2]",
        ),
        "limiter" => arg.help(
            "Retry as this limiter says, instead of --base-delay, --max-delay, --jitter, --retry-rate and --retry-burst; a text as \
             `requeue plan` takes it, such as fast-slow:fast=1s,slow=1m,after=3 (not on a server)",
        ),
        "retry_rate" => arg.help("At most R retries a second over all keys (not on a server; off by default)"),
        "retry_burst" => {
            arg.help("Up to N retries at once under --retry-rate (not on a server) [default: 1]")
        }
        "max_attempts" => arg.help("A key gives up at its N-th failed attempt; 0: never [default: 5]"),
        "drain_timeout" => {
            arg.help("After the first signal, go on for D at most: then stop the programs and leave")
        }
        "state" | "stay" | "priority" | "merge" | "watch" | "stdin" | "dirs" | "glob" | "ignore"
        | "no_gitignore" | "on" | "no_initial" | "one" | "resync" | "dry_run" | "resume" | "left_to"
        | "bound" | "keep_order" | "debounce" | "debounce_max" | "in_backoff" => arg.hide(true),
        _ => arg,
    }
}

impl Work {
    /// Converts to the options of a run.
    ///
    /// # Errors
    ///
    /// Options that do not apply, and a missing or invalid engine.
    pub(super) fn into_run(self) -> Result<config::Run, String> {
        let Self { engine, lease, run } = self;
        let engine = engine::named(engine.as_deref())?;
        let input = "keys come from the engine";
        let given = [
            (run.state.is_some(), "--state", "say --engine sqlite:FILE"),
            (run.priority, "--priority", "keys have the priorities that `requeue add` gave them"),
            (run.merge.is_some(), "--merge", "the values are those of the engine"),
            (!run.watch.is_empty(), "--watch", input),
            (run.keep_order, "--keep-order", "keys come in the order of the queue"),
            (run.dry_run, "--dry-run", "see `requeue ls`"),
            (run.resume, "--resume", "the engine knows what has ended"),
            (run.left_to.is_some(), "--left-to", "what is left stays in the queue"),
            (run.bound.is_some(), "--bound", "the engine keeps whatever it has accepted"),
            (!run.debounce.0.is_zero(), "--debounce", "engines keep no times of quiet"),
            (
                run.in_backoff != InBackoff::Run,
                "--in-backoff",
                "a trigger makes its key run as soon as it can",
            ),
        ];
        let stored = "the back-off is the queue's, for all processes: say --base-delay and --max-delay";
        let on_server = [
            (run.limiter.is_some(), "--limiter", stored),
            (run.retry_rate.is_some(), "--retry-rate", stored),
            (run.jitter.is_some(), "--jitter", stored),
            (run.group_rate.is_some(), "--group-rate", "it has a cap and weights for groups, and no rate"),
            (run.absorb, "--absorb", "it keeps each timer until it is due"),
            (run.max_wait.is_some(), "--max-wait", "it does not raise keys by their age"),
        ];
        let is_server = matches!(engine, Engine::Server(_));
        if let Some((_, option, why)) = given.into_iter().find(|(given, ..)| *given) {
            return Err(format!("{option} has no meaning for work: {why}"));
        }
        if let Some((_, option, why)) = on_server.into_iter().find(|(given, ..)| *given && is_server) {
            return Err(format!("{option} has no meaning for a server: {why}"));
        }
        if lease.is_some() && !is_server {
            return Err(
                "--lease has no meaning for a file: one process works on each of its queues".to_owned()
            );
        }
        let lease = is_server.then(|| lease.unwrap_or(LEASE));
        let queue = run.queue_name();
        run.into_config(Some(Durable { engine, queue, works: true, stays: true, lease }))
    }
}

//! The command `requeue`: a controller for the shell.
//!
//! `args/` has every option with its help. A key of `requeue run` goes from `keys.rs` and `line.rs` (input) or
//! `watch.rs` and `watched.rs` (files) by `intake.rs` into the queue, and from there to `worker.rs`, the handler of the
//! library's `Worker`, which runs the program (`child.rs`) and passes its output on (`output.rs`, `group.rs`). Around it:
//! `process_slots.rs` and `limits.rs` run fewer programs where the system has no room, `reaper.rs` ends programs when the command
//! is killed, `loops.rs` notices programs that write their own key, `joblog.rs`, `key_file.rs` and `files.rs` write files,
//! each complete or not at all (`whole_file.rs`). `engine/` has durable queues, `plan/` `requeue plan`; a test in
//! `generated.rs` keeps man pages and completions what the options give.

#![deny(unsafe_code)]

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

mod args;
mod child;
mod control;
mod dry_run;
mod duration;
mod engine;
mod files;
#[cfg(test)]
mod generated;
mod group;
mod group_by;
mod http;
mod intake;
mod joblog;
mod key_file;
mod keys;
mod limits;
mod line;
mod listen;
mod log;
mod lookup;
mod loops;
mod order;
mod orphan_output;
mod outcome;
mod output;
mod payload;
mod plan;
mod process_group;
mod process_slots;
mod progress;
mod queue;
mod reaper;
mod run;
mod run_stats;
mod show;
mod signals;
mod state;
#[allow(unsafe_code)]
mod stdio_check;
mod summary;
mod template;
mod watch;
mod watched;
mod whole_file;
mod worker;

fn main() -> ExitCode {
    if let Some(status) = reaper::reap() {
        return ExitCode::from(status);
    }
    if let Err(e) = signals::keep_going_without_room() {
        return ExitCode::from(run::refuse(1, &e.to_string()));
    }
    ExitCode::from(match args::Cli::try_parse().map(|cli| cli.command) {
        Ok(args::Command::Run(args)) => match args.check() {
            Ok(()) => run::run(*args),
            Err(why) => args::usage_error("run", &why),
        },
        Ok(args::Command::Work(args)) => match args.into_run() {
            Ok(args) => run::run(args),
            Err(why) => args::usage_error("work", &why),
        },
        Ok(args::Command::Plan(args)) => plan::run(&args),
        Ok(args::Command::Engine(command)) => engine::run(command),
        Err(wrong) if wrong.use_stderr() => wrong.exit(),
        Err(asked_for) => show(&asked_for),
    })
}

/// Prints the help or the version. Returns the exit status.
fn show(text: &clap::Error) -> u8 {
    if let Err(why) = stdio_check::has_output() {
        return run::refuse(run::USAGE, why);
    }
    match text.print().and_then(|()| io::stdout().flush()) {
        Ok(()) => 0,
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => run::CLOSED,
        Err(e) => run::refuse(1, &format!("standard output: {e}")),
    }
}

//! The command `requeue`: a controller for the shell.

use std::process::ExitCode;

use clap::Parser as _;

mod args;
mod child;
mod control;
mod dry_run;
mod duration;
mod failed_to;
mod keys;
mod limits;
mod linger;
mod log;
mod lookup;
mod outcome;
mod output;
mod progress;
mod queue;
mod run;
mod show;
mod signals;
mod summary;
mod tally;
mod template;
mod worker;

fn main() -> ExitCode {
    let args::Command::Run(run) = args::Cli::parse().command;
    if let Err(why) = run.check() {
        args::usage_error(&why);
    }
    ExitCode::from(run::run(*run))
}

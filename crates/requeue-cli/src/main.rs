//! The command `requeue`: a controller for the shell.

use std::process::ExitCode;

use clap::Parser as _;

mod args;
mod child;
mod control;
mod dry_run;
mod duration;
mod files;
mod gate;
#[cfg(test)]
mod generated;
mod group;
mod http;
mod intake;
mod joblog;
mod key_file;
mod keys;
mod limits;
mod linger;
mod listen;
mod log;
mod lookup;
mod loops;
mod outcome;
mod output;
mod plan;
mod progress;
mod queue;
mod room;
mod run;
mod show;
mod signals;
mod summary;
mod tally;
mod template;
mod watch;
mod watched;
mod whole_file;
mod worker;

fn main() -> ExitCode {
    ExitCode::from(match args::Cli::parse().command {
        args::Command::Run(args) => match args.check() {
            Ok(()) => run::run(*args),
            Err(why) => args::usage_error("run", &why),
        },
        args::Command::Plan(args) => plan::run(&args),
    })
}

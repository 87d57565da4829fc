//! The command line: every option with its help, and the configuration that it gives.

mod engine;
mod plan;
mod run;
#[cfg(test)]
mod tests;
mod values;
mod work;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};

use self::plan::PlanArgs;
use self::run::RunArgs;
use self::work::{Work, for_work};
use crate::config;

// The ends of the help, and what is long at its beginning.
const ENDS: &str = include_str!("help/requeue.txt").trim_ascii_end();
const RUN: &str = include_str!("help/run_about.txt").trim_ascii_end();
const RUN_ENDS: &str = include_str!("help/run.txt").trim_ascii_end();
const WORK: &str = include_str!("help/work_about.txt").trim_ascii_end();
const WORK_ENDS: &str = include_str!("help/work.txt").trim_ascii_end();

/// Reads the command line.
///
/// # Errors
///
/// The problem with it, or the text that was asked for.
pub(crate) fn read() -> Result<config::Command, clap::Error> {
    Ok(match Cli::try_parse()?.command {
        Command::Run(args) => {
            args.into_run().map(Box::new).map(config::Command::Run).map_err(|why| wrong("run", &why))?
        }
        Command::Work(args) => {
            args.into_run().map(Box::new).map(config::Command::Run).map_err(|why| wrong("work", &why))?
        }
        Command::Plan(args) => {
            config::Command::Plan(Box::new(args.into_config().map_err(|why| wrong("plan", &why))?))
        }
        Command::Engine(args) => {
            config::Command::Engine(args.into_config().map_err(|why| wrong("add", &why))?)
        }
    })
}

/// A problem with several options of a subcommand, as the parser tells it.
fn wrong(subcommand: &str, why: &str) -> clap::Error {
    let mut cli = Cli::command();
    cli.build();
    let command = cli.find_subcommand_mut(subcommand).cloned();
    command.unwrap_or(cli).error(ErrorKind::ArgumentConflict, why)
}

/// A keyed work queue for the shell.
#[derive(Debug, Parser)]
#[command(
    name = "requeue",
    version,
    about = "Run a program once per key, with retries; see what a rate limiter does; feed and look into a durable queue",
    long_about = None,
    arg_required_else_help = true,
    after_help = ENDS,
    override_usage = "requeue run [OPTIONS] [--] PROGRAM [ARG]...\n       requeue plan LIMITER [PARAMETERS] [OPTIONS]\n       \
                      requeue work|add|ls|state|cancel|retry|pause|resume|purge|stats|top|migrate|check [OPTIONS]..."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    // The variant, for a comment of the documentation would otherwise take its place.
    #[command(
        about = "Run PROGRAM once per key, never twice at a time for one key",
        long_about = RUN,
        after_help = RUN_ENDS,
        override_usage = "requeue run [OPTIONS] [--] PROGRAM [ARG]..."
    )]
    Run(Box<RunArgs>),

    #[command(
        about = "Show what a limiter does, before it is put in production",
        long_about = plan::ABOUT,
        after_help = plan::more(),
        arg_required_else_help = true,
        override_usage = "requeue plan LIMITER [PARAMETERS] [WITHIN]... [OPTIONS]"
    )]
    Plan(Box<PlanArgs>),

    #[command(
        about = "Run PROGRAM for the keys of a durable queue, beside other processes",
        long_about = WORK,
        after_help = WORK_ENDS,
        override_usage = "requeue work [OPTIONS] [--] PROGRAM [ARG]...",
        mut_args(for_work)
    )]
    Work(Box<Work>),

    #[command(flatten)]
    Engine(engine::Command),
}

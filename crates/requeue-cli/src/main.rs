//! The command `requeue`: a controller for the shell.
//!
//! `args/` has every option with its help, and makes `config/` of them: plain data that all else reads. A key of
//! `requeue run` goes from `input/keys.rs` and `input/line.rs` (lines) or `input/watch.rs` (files) by `run/feed.rs` and
//! `run/intake.rs` into the queue, and from there to `run/worker.rs`, the handler of the library's `Worker`, which runs
//! the program (`run/child.rs`) and passes its output on (`output/`). `run/command.rs` connects the parts. Around it:
//! `run/process_slots.rs` and `system/limits.rs` run fewer programs where the system has no room, `run/reaper.rs` ends
//! programs when the command is killed, `input/loops.rs` notices programs that write their own key, `report/` counts,
//! tells and writes files, all but the job log complete or not at all (`system/whole_file.rs`). `http/` serves pages,
//! `engine/` has the commands for durable queues, `plan/` `requeue plan`; a test in `args/tests.rs` keeps man pages and
//! completions what the options give.

#![deny(unsafe_code)]

use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::config::Command;
use crate::run::{command, reaper, signals};
use crate::system::{exit, stdio_check};

mod args;
mod config;
mod engine;
mod http;
mod input;
mod limiter;
mod output;
mod plan;
mod report;
mod run;
mod system;
mod text;

fn main() -> ExitCode {
    if let Some(status) = reaper::reap() {
        return ExitCode::from(status);
    }
    if let Err(e) = signals::keep_going_without_room() {
        return ExitCode::from(exit::refuse(1, &e.to_string()));
    }
    ExitCode::from(match args::read() {
        Ok(Command::Run(config)) => command::run(*config),
        Ok(Command::Plan(config)) => plan::command::run(&config),
        Ok(Command::Engine(command)) => engine::commands::run(command),
        Err(wrong) if wrong.use_stderr() => wrong.exit(),
        Err(asked_for) => show(&asked_for),
    })
}

/// Prints the help or the version. Returns the exit status.
fn show(text: &clap::Error) -> u8 {
    if let Err(why) = stdio_check::has_output() {
        return exit::refuse(exit::USAGE, why);
    }
    match text.print().and_then(|()| io::stdout().flush()) {
        Ok(()) => 0,
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => exit::CLOSED,
        Err(e) => exit::refuse(1, &format!("standard output: {e}")),
    }
}

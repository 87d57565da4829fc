//! The command line of `requeue plan`.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueHint};

use crate::config::{self, Calls};
use crate::limiter::spec::Spec;
use crate::limiter::{self, KINDS, Kind, Limiter, PARAMETERS, Parameter, Value};
use crate::text::duration;

pub(super) const ABOUT: &str = include_str!("help/plan_about.txt").trim_ascii_end();

/// The end of the help.
pub(super) fn more() -> String {
    let mut out = "Limiters:\n".to_owned();
    for kind in &KINDS {
        out.push_str(&format!("  {}\n      {}\n", kind.usage(), kind.help));
    }
    out.push('\n');
    out.push_str(MORE);
    out
}

const MORE: &str = include_str!("help/plan.txt").trim_ascii_end();

/// Maximum number of calls, and of keys: records of more would fill the memory.
const MOST_CALLS: u64 = 1_000_000_000;
const MOST_KEYS: u64 = 1_000_000;

#[derive(Args, Debug)]
pub(super) struct PlanArgs {
    /// The limiter: one of those below
    #[arg(value_name = "LIMITER", value_parser = LimiterText(limiter::named), required = true, hide_possible_values = true)]
    limiter: Spec,

    /// The limiters within max-of, max-wait or jitter
    #[arg(value_name = "WITHIN", value_parser = LimiterText(Limiter::read), hide_possible_values = true)]
    within: Vec<Limiter>,

    #[command(flatten)]
    parameters: Parameters,

    /// Ask the limiter N times
    #[arg(short = 'n', long, value_name = "N", allow_hyphen_values = true, default_value = "10", value_parser = calls, help_heading = "Calls")]
    calls: u64,

    /// Call every D; 0s: all at once
    #[arg(long, value_name = "D", allow_hyphen_values = true, default_value = "0s", value_parser = duration::parse, help_heading = "Calls")]
    every: Duration,

    /// Let N keys take turns
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value = "1", value_parser = keys, help_heading = "Calls")]
    keys: u64,

    /// Draw the delays in the terminal, instead of the table
    #[arg(long, help_heading = "Output")]
    plot: bool,

    /// Draw the delays into FILE, instead of the table
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    svg: Option<PathBuf>,

    /// Print a line of JSON for each call, instead of the table
    #[arg(long, conflicts_with = "plot", help_heading = "Output")]
    json: bool,
}

impl PlanArgs {
    /// Converts the options into the configuration of `requeue plan`.
    ///
    /// # Errors
    ///
    /// If options exclude each other, if one is missing, or if the last call would come after the clock's
    /// end.
    pub(super) fn into_config(self) -> Result<config::Plan, String> {
        let limiter = Limiter::new(&self.limiter, &self.parameters.0, self.within)?;
        let calls = Calls { calls: self.calls, every: self.every, keys: self.keys };
        if calls.end().is_none() {
            return Err(format!(
                "the last of {} calls, one every {}, would come when the clock has ended, after 584 years: \
                 ask for fewer calls, or for less time between them",
                self.calls,
                duration::exact(self.every)
            ));
        }
        Ok(config::Plan { limiter, calls, plot: self.plot, svg: self.svg, json: self.json })
    }
}

/// The parameters given as options.
#[derive(Clone, Debug)]
struct Parameters(Vec<(&'static Parameter, Value)>);

impl Args for Parameters {
    fn augment_args(command: Command) -> Command {
        PARAMETERS.iter().fold(command, |command, parameter| {
            command.arg(
                Arg::new(parameter.name)
                    .long(parameter.name)
                    .value_name(parameter.value_name)
                    .help(parameter.help)
                    .help_heading("Parameters of limiters")
                    .allow_hyphen_values(true)
                    .value_parser(parameter.read),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Parameters {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |p: &'static Parameter| Some((p, *matches.get_one::<Value>(p.name)?));
        Ok(Self(PARAMETERS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Reads texts of limiters, and completes their names.
#[derive(Clone, Copy)]
pub(super) struct LimiterText<T>(pub(super) fn(&str) -> Result<T, String>);

impl<T: Clone + Send + Sync + 'static> TypedValueParser for LimiterText<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        self.0.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let value = |kind: &Kind| PossibleValue::new(kind.name).help(kind.help);
        Some(Box::new(KINDS.iter().map(value)))
    }
}

fn calls(text: &str) -> Result<u64, String> {
    up_to(text, MOST_CALLS)
}

fn keys(text: &str) -> Result<u64, String> {
    up_to(text, MOST_KEYS)
}

fn up_to(text: &str, most: u64) -> Result<u64, String> {
    let number = text.parse().ok().filter(|n| (1..=most).contains(n));
    number.ok_or_else(|| format!("give a whole number from 1 to {most}"))
}

//! Tests of the command line.
//!
//! The completions and the man pages are generated from its definitions, and checked in, so that a package only needs
//! to copy them; a test fails if they are outdated.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, Command, CommandFactory as _, Parser as _};
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use super::Cli;
use super::run::RunArgs;
use crate::config::{Form, On, Rate, Run};

/// Environment variable: write the files instead of comparing them.
const BLESS: &str = "REQUEUE_BLESS";

const HOW: &str = "REQUEUE_BLESS=1 cargo test -p requeue-cli -- generated golden";

fn files() -> Vec<(PathBuf, Vec<u8>)> {
    let shells = [("requeue.bash", Shell::Bash), ("_requeue", Shell::Zsh), ("requeue.fish", Shell::Fish)];
    let completions = shells.map(|(name, shell)| {
        let mut out = Vec::new();
        generate(shell, &mut Cli::command(), "requeue", &mut out);
        if shell == Shell::Fish {
            out.extend_from_slice(fish_arguments().as_bytes());
        }
        (Path::new("completions").join(name), out)
    });
    // `help` has no page of its own.
    let mut whole = Cli::command().disable_help_subcommand(true);
    whole.build();
    let pages: Vec<(PathBuf, Vec<u8>)> = std::iter::once(&whole)
        .chain(whole.get_subcommands())
        .map(|command| {
            (Path::new("man").join(Man::new(command.clone()).get_filename()), page(command, &whole))
        })
        .collect();
    completions.into_iter().chain(pages).collect()
}

/// Completions of positional arguments, which the generator for fish leaves out.
fn fish_arguments() -> String {
    let mut out = String::new();
    for command in Cli::command().get_subcommands() {
        // The arguments of a subcommand can be the same, so the first one's are enough.
        let first = command.get_positionals().next().and_then(|arg| arg.get_value_parser().possible_values());
        for value in first.into_iter().flatten() {
            let (name, help) =
                (value.get_name(), value.get_help().map(ToString::to_string).unwrap_or_default());
            let help = help.replace('\\', r"\\").replace('\'', r"\'");
            let subcommand = command.get_name();
            out.push_str(&format!(
                "complete -c requeue -n \"__fish_requeue_using_subcommand {subcommand}\" -f -a \"{name}\" -d '{help}'\n"
            ));
        }
    }
    out
}

/// A man page: the generator's, with the end of the help as sections, whose lines stay unchanged, and with
/// references to the other pages.
fn page(command: &Command, whole: &Command) -> Vec<u8> {
    let version = whole.get_version().unwrap_or_default();
    let own = command.get_display_name().unwrap_or_else(|| command.get_name());
    let man = Man::new(command.clone());
    // The generator leaves the empty date out, and what follows would stand in its place.
    let mut out = format!(".TH {} 1 \"\" \"requeue {version}\" \"\"\n", own.to_uppercase()).into_bytes();
    man.render_name_section(&mut out).unwrap();
    man.render_synopsis_section(&mut out).unwrap();
    man.render_description_section(&mut out).unwrap();
    man.render_options_section(&mut out).unwrap();
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out).unwrap();
    }
    let more = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut roff = clap_mangen::roff::Roff::new();
    let mut open = false;
    let is_heading = |line: &&str| line.ends_with(':') && !line.starts_with(' ');
    // it would otherwise be a part of the last option's paragraph
    if more.lines().next().is_some_and(|first| !is_heading(&first)) {
        roff.control("SH", ["NOTES"]);
    }
    for line in more.lines() {
        if let Some(heading) = line.strip_suffix(':').filter(|_| is_heading(&line)) {
            if std::mem::replace(&mut open, true) {
                roff.control("fi", []);
            }
            roff.control("SH", [heading.to_uppercase().as_str()]);
            roff.control("nf", []);
        } else if !line.is_empty() {
            roff.text([clap_mangen::roff::roman(line.strip_prefix("  ").unwrap_or(line))]);
        } else {
            roff.control("sp", []);
        }
    }
    if open {
        roff.control("fi", []);
    }
    let others = std::iter::once(whole).chain(whole.get_subcommands());
    let others = others.map(|c| c.get_display_name().unwrap_or_else(|| c.get_name()));
    let others: Vec<String> = others.filter(|name| *name != own).map(|name| format!("{name}(1)")).collect();
    roff.control("SH", ["SEE ALSO"]);
    roff.text([clap_mangen::roff::roman(others.join(", "))]);
    roff.to_writer(&mut out).unwrap();
    // Blank lines at the end of a section are the section's own business.
    let text = String::from_utf8(out).unwrap().replace(".sp\n.fi\n", ".fi\n");
    // Between a help and its possible values the generator breaks the line thrice.
    text.replace("\n.br\n\n.br\n", "\n.sp\n").into_bytes()
}

#[test]
fn generated_completions_and_man_pages_are_those_of_the_definitions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bless = std::env::var_os(BLESS).is_some();
    for (name, expected) in files() {
        let path = root.join(&name);
        if bless {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &expected).unwrap();
        }
        let found = std::fs::read(&path).unwrap_or_default();
        assert!(
            found == expected,
            "{} is not what the options give; write it anew with\n  {HOW}",
            name.display()
        );
    }
}

fn parse(args: &[&str]) -> Result<RunArgs, clap::Error> {
    let words = ["requeue", "run"].into_iter().chain(args.iter().copied());
    Cli::try_parse_from(words).map(|cli| match cli.command {
        super::Command::Run(run) => *run,
        other => panic!("{other:?}"),
    })
}

fn config(args: &[&str]) -> Run {
    parse(args).unwrap().into_run().unwrap()
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
    let hidden: Vec<_> = named.iter().filter(|(_, arg)| arg.is_hide_set()).map(|(long, _)| *long).collect();
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
    for text in
        ["0", "0/m", "-1", "1/d", "/m", "1/", "1/ m", "1/s/s", "inf", "nan", "1e3", "1000001", "0.001/h", "s"]
    {
        let refused = parse(&["--rate", text, "true"]).unwrap_err().to_string();
        assert!(refused.contains("give starts a second, such as 10 or 0.5"), "{text}: {refused}");
    }
}

#[test]
fn the_defaults_are_those_of_the_documentation() {
    let run = config(&["true"]);
    let retry = run.queue.retry;
    assert_eq!(retry.delays(), (Duration::from_secs(1), Duration::from_secs(300)));
    assert_eq!(retry.jitter, 0.2);
    assert_eq!(run.ends.max_attempts, 5);
    assert_eq!(retry.rate, None);
    assert_eq!((run.ends.timeout, run.drain_timeout, run.ends.again_after), (None, None, None));
    assert_eq!((run.log, run.summary), (Form::Text, Form::Text));
    assert_eq!(run.lines.separator, b'\n');
}

#[test]
fn watching_has_defaults_of_its_own() {
    assert_eq!(config(&["true"]).queue.debounce, None);
    let run = config(&["--watch", "a", "--watch", "b", "true"]);
    assert_eq!(run.watch.unwrap().paths, ["a", "b"].map(PathBuf::from));
    assert_eq!((run.ends.max_attempts, run.queue.debounce.unwrap().0), (0, Duration::from_millis(50)));
    let run = config(&["--watch", "a", "--max-attempts", "3", "--debounce", "1s", "true"]);
    assert_eq!((run.ends.max_attempts, run.queue.debounce.unwrap().0), (3, Duration::from_secs(1)));
    let run = config(&["--watch", "a", "--one", "make"]);
    assert_eq!((run.ends.max_attempts, run.queue.debounce.unwrap().0), (1, Duration::from_millis(50)));
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
        let watch = config(&[&["--watch", "a"], args].concat()).watch.unwrap();
        assert_eq!(all.map(|event| watch.runs_on(event)), chosen, "{args:?}");
    }
    assert!(parse(&["--watch", "a", "--on", "read", "true"]).is_err());
    assert!(parse(&["--watch", "a", "--on", "initial", "--no-initial", "true"]).is_err());
}

#[test]
fn quiet_leaves_what_is_asked_for() {
    let run = config(&["-q", "--summary", "json", "true"]);
    assert_eq!((run.log, run.summary), (Form::Off, Form::Json));
}

#[test]
fn contradictions_are_refused() {
    let run = parse(&["--base-delay", "10m", "true"]).unwrap();
    assert!(run.into_run().unwrap_err().contains("--max-delay, which is 5m where it is not given"));
    let run = parse(&["--again-after", "1s", "--fatal-code", "75", "true"]).unwrap();
    assert!(run.into_run().is_err());
    let run = parse(&["--fatal-code", "75", "--fatal-code", "3", "true"]).unwrap();
    assert_eq!(run.into_run().unwrap().ends.fatal_codes, [75, 3]);
}

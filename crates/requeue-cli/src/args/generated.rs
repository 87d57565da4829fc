//! Generates the completions and the man pages from the definitions of the command line. They are checked in,
//! so that a package only needs to copy them; a test fails if they are outdated.

use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use crate::args::Cli;

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
fn completions_and_man_pages_are_those_of_the_definitions() {
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

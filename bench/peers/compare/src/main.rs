//! Runs requeue and its peers in turns under the workloads of `targets.toml`, and writes the results: see
//! `bench/README.md`.

mod chart;
mod judge;
mod machine;
mod plan;
mod report;
mod run;
mod samples;
mod summary;

use machine::Machine;
use plan::{Extent, Plan};
use run::Programs;
use samples::Samples;
use serde_json::{Value, json};
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
requeue-compare [--ours PROGRAM] [--rust PROGRAM] [--go PROGRAM] [OPTIONS]

  --ours, --rust, --go PROGRAM  who measures requeue, the peers in Rust, those in Go
  --quick         smaller and fewer rows, and few peers
  --all-peers     every peer there is
  --rounds N      how often everything is measured (3, quick: 2)
  --only A,B      these sections alone; timers means timers-set, timers-served and timers-sooner
  --jsonl FILE    where the lines go that the programs print (target/bench.jsonl)
  --from FILE     measures nothing, reads such lines
  --out DIRECTORY where RESULTS.md, results.svg, results.csv and targets.csv go (bench)
  --print         prints all tables and writes no results
";

#[derive(Debug)]
struct Options {
    programs: Programs,
    extent: Extent,
    rounds: Option<usize>,
    only: Vec<String>,
    jsonl: Option<PathBuf>,
    from: Option<PathBuf>,
    out: Option<PathBuf>,
    print: bool,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match options(args).map_err(Into::into).and_then(|options| compare(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("requeue-compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(args: Vec<String>) -> Result<Options, String> {
    let mut options = Options {
        programs: Programs::default(),
        extent: Extent::default(),
        rounds: None,
        only: Vec::new(),
        jsonl: None,
        from: None,
        out: None,
        print: false,
    };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "--ours" => options.programs.ours = Some(value()?.into()),
            "--rust" => options.programs.rust = Some(value()?.into()),
            "--go" => options.programs.go = Some(value()?.into()),
            "--quick" => options.extent.quick = true,
            "--all-peers" => options.extent.all_peers = true,
            "--print" => options.print = true,
            "--rounds" => {
                let rounds = value()?.parse().ok().filter(|n| *n > 0);
                options.rounds = Some(rounds.ok_or("--rounds wants a number of at least 1")?);
            }
            "--only" => options.only = value()?.split(',').map(str::to_lowercase).collect(),
            "--jsonl" => options.jsonl = Some(value()?.into()),
            "--from" => options.from = Some(value()?.into()),
            "--out" => options.out = Some(value()?.into()),
            _ => return Err(format!("{arg} is unknown\n\n{HELP}")),
        }
    }
    Ok(options)
}

fn compare(options: &Options) -> Result<(), Box<dyn Error>> {
    let root = machine::checkout();
    let file = match &options.from {
        Some(file) => file.clone(),
        None => measure(options, &root)?,
    };
    let (machine, samples) = read(&file)?;
    let extent = Extent { quick: machine.quick, all_peers: machine.all_peers };
    let plan = Plan::load(extent, &options.only)?;
    if options.print {
        print!("{}", report::tables(&plan, &samples));
        return Ok(());
    }
    let out = options.out.clone().unwrap_or_else(|| root.join("bench"));
    std::fs::create_dir_all(&out)?;
    std::fs::write(out.join("RESULTS.md"), report::page(&plan, &samples, &machine))?;
    std::fs::write(out.join("results.csv"), report::figures(&plan, &samples))?;
    std::fs::write(out.join("targets.csv"), report::targets(&plan, &samples))?;
    let quick = if machine.quick { ", a quick run" } else { "" };
    let below = format!("{}, {} cores; commit {}{quick}", machine.processor, machine.cores, machine.commit);
    chart::draw(&summary::lines(&plan, &samples), &below, &out.join("results.svg"))?;
    println!("{}", report::head(&plan, &samples, &machine));
    eprintln!("{}, the figures and the targets beside it are written", out.join("RESULTS.md").display());
    Ok(())
}

/// Measures everything, and returns the file of all lines.
fn measure(options: &Options, root: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let plan = Plan::load(options.extent, &options.only)?;
    let rounds = options.rounds.unwrap_or(if options.extent.quick { 2 } else { 3 });
    if options.programs.ours.is_none() {
        return Err("--ours is missing: what is to be compared?".into());
    }
    let machine = Machine::look(root, &options.programs, options.extent, rounds);
    let path = options.jsonl.clone().unwrap_or_else(|| root.join("target/bench.jsonl"));
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let mut file = File::create(&path)?;
    writeln!(file, "{}", json!({ "machine": machine }))?;
    run::run(&plan, &options.programs, rounds, &mut file)?;
    Ok(path)
}

/// Reads what [`measure`] has written.
fn read(path: &Path) -> Result<(Machine, Samples), Box<dyn Error>> {
    let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let (mut machine, mut samples) = (None, Samples::default());
    for line in BufReader::new(file).lines() {
        let line: Value = serde_json::from_str(&line?)?;
        if let Some(found) = line.get("machine") {
            machine = Some(serde_json::from_value(found.clone())?);
            continue;
        }
        let text =
            |name: &str| line[name].as_str().ok_or(format!("{}: a line without {name}", path.display()));
        let (implementation, args) = (text("impl")?, text("args")?);
        match line.get("failed").and_then(Value::as_str) {
            Some(why) => samples.fail(implementation, args, why),
            None => samples.add(implementation, args, &line["line"]),
        }
    }
    let machine = machine.ok_or(format!("{}: the machine's line is missing", path.display()))?;
    Ok((machine, samples))
}

//! Mutation testing with one build: every mutant that `cargo mutants` lists is written into a copy
//! of the sources behind a number, which the program reads from its environment. `--help` says how
//! it is used, `verify/MUTANTS.md` what came of it.

mod compile;
mod list;
mod run;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use compile::Tree;
use list::Mutant;
use run::{Ending, Program};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const HELP: &str = "\
usage: verify/mutants.sh [--package core|requeue] [--file TEXT] [--stages N] [--jobs N] [--explained] [--fresh] [--report]

Runs the tests once for each mutant of a package's code and prints which mutants no test noticed.

  --package NAME  core (default): crates/requeue-core; requeue: wait.rs, waiting.rs, worker/ and limiter/
  --file TEXT     only mutants of files whose path contains TEXT
  --name TEXT     only mutants whose name contains TEXT
  --stages N      only the first N programs of tests in the package's table (main.rs)
  --jobs N        so many at a time (default 1)
  --explained     also those that are explained: is it still true that no test notices them?
  --fresh         forgets what earlier runs found; without it caught mutants are not run again,
                  and missed ones only if anything changed
  --report        runs nothing: prints what earlier runs found

Results are kept in target/mutants/NAME/results.json; an interrupted run goes on from there.
Mutants that are explained in verify/mutants/NAME.txt are counted apart. Ends with 1 if a mutant
was missed that is not explained, or if a name there is no mutant's any more.
";

/// A package to mutate, and the tests that must notice.
pub struct Package {
    short: &'static str,
    name: &'static str,
    /// Files, as `cargo mutants -f` takes them; none for all.
    files: &'static [&'static str],
    /// The function that tells whether a mutant is chosen, as the package's code calls it.
    chosen: &'static str,
    tests: &'static [Tests],
}

/// One program of tests.
#[derive(Debug, Clone, Copy)]
pub struct Tests {
    package: &'static str,
    /// A file in `tests`, or `lib` for the tests in the code.
    target: &'static str,
    arguments: &'static [&'static str],
}

impl Tests {
    fn directory(&self) -> &'static str {
        match self.package {
            "requeue-core" => "crates/requeue-core",
            "requeue" => "crates/requeue",
            _ => "verify",
        }
    }
}

const fn tests(package: &'static str, target: &'static str) -> Tests {
    Tests { package, target, arguments: &[] }
}

const fn verify(target: &'static str, arguments: &'static [&'static str]) -> Tests {
    Tests { package: "requeue-verify", target, arguments }
}

const fn core_tests(target: &'static str, arguments: &'static [&'static str]) -> Tests {
    Tests { package: "requeue-core", target, arguments }
}

const CORE: Package = Package {
    short: "core",
    name: "requeue-core",
    files: &[],
    chosen: "crate::chosen_mutant",
    tests: &[
        core_tests("ends", &[]),
        core_tests("own_orders", &[]),
        core_tests("phases", &[]),
        core_tests("published", &[]),
        core_tests("leave", &[]),
        core_tests("times", &[]),
        core_tests("loans", &[]),
        // in parts, so that the fast ones of a file come first
        core_tests("machine", &["--skip", "q13_"]),
        core_tests("lib", &["arena::"]),
        core_tests("lib", &["timers::", "--skip", "q13_"]),
        core_tests("lib", &["table::tests::grows"]),
        core_tests(
            "lib",
            &["--skip", "arena::", "--skip", "timers::", "--skip", "table::", "--skip", "count::"],
        ),
        core_tests("lib", &["table::", "count::", "q13_", "--skip", "table::tests::grows"]),
        core_tests("machine", &["q13_"]),
        core_tests("memory", &[]),
        Tests { package: "requeue", target: "lib", arguments: &["filter::"] },
        verify("library", &["machine::"]),
        verify("model", &[]),
        verify("conformance", &["blocking::"]),
        verify("memory", &[]),
    ],
};

const REQUEUE: Package = Package {
    short: "requeue",
    name: "requeue",
    files: &["**/requeue/src/wait.rs", "**/waiting.rs", "**/worker/*.rs", "**/limiter/*.rs"],
    chosen: "requeue_core::chosen_mutant",
    tests: &[
        tests("requeue", "lib"),
        tests("requeue", "face"),
        verify("workers", &["alone::", "reports::"]),
        verify("library", &["phase::"]),
        verify("stuck", &[]),
        verify("conformance", &["blocking::", "bare_async::"]),
        verify("workers", &["blocking::", "future::", "threads::", "tasks::"]),
        verify("library", &["other_wakers::", "panics::"]),
        verify("model", &[]),
    ],
};

struct Options {
    package: Package,
    file: String,
    name: String,
    stages: usize,
    jobs: usize,
    explained: bool,
    fresh: bool,
    report: bool,
}

fn options() -> Result<Option<Options>> {
    let mut options = Options {
        package: CORE,
        file: String::new(),
        name: String::new(),
        stages: usize::MAX,
        jobs: 1,
        explained: false,
        fresh: false,
        report: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--package" => {
                options.package = match value()?.as_str() {
                    "core" => CORE,
                    "requeue" => REQUEUE,
                    other => return Err(format!("--package is core or requeue, not {other}").into()),
                }
            }
            "--file" => options.file = value()?,
            "--name" => options.name = value()?,
            "--stages" => options.stages = value()?.parse()?,
            "--jobs" => options.jobs = value()?.parse()?,
            "--explained" => options.explained = true,
            "--fresh" => options.fresh = true,
            "--report" => options.report = true,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("there is no option {other}\n{HELP}").into()),
        }
    }
    Ok(Some(options))
}

/// Results of earlier runs, in `results.json`.
#[derive(Default)]
struct Found {
    /// Of the sources that can be mutated: what is known of numbers holds for them only.
    code: u64,
    /// Of all files and the number of stages: a mutant that was missed is run again when any of them has changed.
    all: u64,
    /// Mutants that do not compile behind a number.
    dropped: BTreeSet<usize>,
    /// Whether those compile where they are the only change.
    viable: BTreeMap<usize, bool>,
    /// By name: `caught`, `timeout` or `missed`, by which tests, and of which files.
    results: BTreeMap<String, (String, String, u64)>,
}

impl Found {
    fn read(path: &Path) -> Self {
        let Some(value) = fs::read(path).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok())
        else {
            return Self::default();
        };
        let object = |key: &str| value[key].as_object().cloned().unwrap_or_default().into_iter();
        let text = |value: &Value, index: usize| value[index].as_str().unwrap_or_default().to_string();
        Self {
            code: value["code"].as_u64().unwrap_or(0),
            all: value["all"].as_u64().unwrap_or(0),
            dropped: object("dropped").filter_map(|(id, _)| id.parse().ok()).collect(),
            viable: object("dropped")
                .filter_map(|(id, viable)| Some((id.parse().ok()?, viable.as_bool()?)))
                .collect(),
            results: object("results")
                .map(|(name, result)| {
                    (name, (text(&result, 0), text(&result, 1), result[2].as_u64().unwrap_or(0)))
                })
                .collect(),
        }
    }

    fn write(&self, path: &Path) -> Result<()> {
        let dropped: BTreeMap<String, Option<bool>> =
            self.dropped.iter().map(|id| (id.to_string(), self.viable.get(id).copied())).collect();
        let value =
            json!({ "code": self.code, "all": self.all, "dropped": dropped, "results": self.results });
        compile::put(path, serde_json::to_string_pretty(&value)?.as_bytes())
    }
}

/// Reasons by the names of mutants, from a file: a reason at the beginning of a line, and indented
/// below it the names of the mutants that it explains. Lines that begin with `#` say nothing.
fn explained(package: &Package, root: &Path) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(root.join(format!("verify/mutants/{}.txt", package.short)))?;
    let mut reason = String::new();
    let mut explained = BTreeMap::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if line.starts_with(' ') {
            explained.insert(line.trim().to_string(), reason.clone());
        } else {
            reason = line.trim().to_string();
        }
    }
    Ok(explained)
}

fn main() -> ExitCode {
    let outcome = options().and_then(|options| match options {
        Some(options) => all(&options),
        None => {
            print!("{HELP}");
            Ok(true)
        }
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::from(2)
        }
    }
}

/// Tells whether every mutant was caught or is explained.
fn all(options: &Options) -> Result<bool> {
    let package = &options.package;
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let directory = repository.join("target/mutants").join(package.short);
    let kept = directory.join("results.json");
    let mut found = if options.fresh { Found::default() } else { Found::read(&kept) };

    // cargo mutants reads the copy that is left unchanged
    let plain = Tree::new(&directory, "alone");
    let files = compile::files(&repository)?;
    plain.copy(&repository, &files)?;
    let (mut code, mut everything) = (DefaultHasher::new(), DefaultHasher::new());
    for file in &files {
        let content = fs::read(plain.sources.join(file))?;
        (file, &content).hash(&mut everything);
        if file.starts_with(&format!("crates/{}/src/", package.name)) {
            (file, &content).hash(&mut code);
        }
    }
    let mutants = list::list(&plain.sources, package.name, package.files)?;
    if found.code != code.finish() {
        found.dropped.clear();
        found.viable.clear();
    }
    options.stages.min(package.tests.len()).hash(&mut everything);
    (found.code, found.all) = (code.finish(), everything.finish());
    if !options.report {
        try_all(options, &files, &directory, &mutants, &mut found, &kept)?;
    }
    let explained = explained(package, &plain.sources)?;
    Ok(report(options, &mutants, &found, &explained))
}

fn try_all(
    options: &Options,
    files: &BTreeSet<String>,
    directory: &Path,
    mutants: &[Mutant],
    found: &mut Found,
    kept: &Path,
) -> Result<()> {
    let package = &options.package;
    let together = Tree::new(directory, "together");
    let plain = Tree::new(directory, "alone");
    together.copy(&plain.sources, files)?;
    compile::write_all(&together, &plain, package, mutants, &mut found.dropped, &mut found.viable)?;
    found.write(kept)?;

    let tests = &package.tests[..options.stages.min(package.tests.len())];
    let all = found.all;
    let explained = explained(package, &plain.sources)?;
    let open = |found: &Found, mutant: &Mutant| {
        mutant.file.contains(&options.file)
            && mutant.name.contains(&options.name)
            && (options.explained || !explained.contains_key(&mutant.name))
            && match found.results.get(&mutant.name) {
                Some((how, _, of)) => how == "missed" && *of != all,
                None => true,
            }
    };
    let (dropped, numbered): (Vec<&Mutant>, Vec<&Mutant>) =
        mutants.iter().partition(|mutant| found.dropped.contains(&mutant.id));
    let mut todo: Vec<&Mutant> = numbered.into_iter().filter(|mutant| open(found, mutant)).collect();
    // those that were missed before, then the others so that what an interrupted run has found
    // is a sample
    todo.sort_by_cached_key(|mutant| {
        let mut hasher = DefaultHasher::new();
        mutant.name.hash(&mut hasher);
        (!found.results.contains_key(&mutant.name), hasher.finish())
    });
    if !todo.is_empty() {
        let mut programs = run::build(&together, tests)?;
        run::measure(&mut programs)?;
        eprintln!("{} mutants", todo.len());
        let next = AtomicUsize::new(0);
        // how many mutants of a file each program caught
        let mut telling: BTreeMap<&str, BTreeMap<String, u32>> = BTreeMap::new();
        for mutant in mutants {
            if let Some((_, by, _)) = found.results.get(&mutant.name) {
                *telling.entry(&mutant.file).or_default().entry(by.clone()).or_default() += 1;
            }
        }
        let telling = Mutex::new(telling);
        let shared = Mutex::new(&mut *found);
        let failed = std::thread::scope(|scope| {
            let work = || -> Result<()> {
                while let Some(mutant) = todo.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let file = mutant.file.as_str();
                    let caught = telling.lock().expect("no panic").get(file).cloned().unwrap_or_default();
                    let result = try_one(&programs, mutant.id, &caught)?;
                    if result.0 != "missed" {
                        let mut telling = telling.lock().expect("no panic");
                        *telling.entry(file).or_default().entry(result.1.clone()).or_default() += 1;
                    }
                    let mut found = shared.lock().expect("no panic");
                    found.note(mutant, result);
                    found.write(kept)?;
                }
                Ok(())
            };
            let threads: Vec<_> = (0..options.jobs.max(1)).map(|_| scope.spawn(work)).collect();
            threads.into_iter().filter_map(|thread| thread.join().expect("no panic").err()).next()
        });
        if let Some(error) = failed {
            return Err(error);
        }
    }

    for mutant in dropped {
        if !mutant.file.contains(&options.file) || !mutant.name.contains(&options.name) {
            continue;
        }
        let unchanged = compile::write_one(&plain, mutant)?;
        let viable = match found.viable.get(&mutant.id) {
            Some(&viable) => viable,
            None => compile::check(&plain, package)?.status.success(),
        };
        found.viable.insert(mutant.id, viable);
        if viable && open(found, mutant) {
            // one program after the other: most mutants do not live to see the second
            let mut result = ("missed", String::new());
            for tests in tests.chunks(1) {
                if result.0 == "missed" {
                    result = try_one(&run::build(&plain, tests)?, 0, &BTreeMap::new())?;
                }
            }
            found.note(mutant, result);
        }
        found.write(kept)?;
        compile::put(&plain.sources.join(&mutant.file), unchanged.as_bytes())?;
    }
    Ok(())
}

impl Found {
    fn note(&mut self, mutant: &Mutant, (how, by): (&str, String)) {
        if how == "missed" {
            eprintln!("missed {} (line {})", mutant.name, mutant.line);
        }
        self.results.insert(mutant.name.clone(), (how.to_string(), by, self.all));
    }
}

/// Runs the tests until one fails: first those that cost least for what they caught in this file.
fn try_one(
    programs: &[Program],
    id: usize,
    caught: &BTreeMap<String, u32>,
) -> Result<(&'static str, String)> {
    let mut programs: Vec<&Program> = programs.iter().collect();
    programs.sort_by_key(|program| program.took / (1 + caught.get(&program.name).copied().unwrap_or(0)));
    for program in programs {
        match program.run(id)? {
            Ending::Passed => {}
            Ending::Failed => return Ok(("caught", program.name.clone())),
            Ending::TookTooLong => return Ok(("timeout", program.name.clone())),
        }
    }
    Ok(("missed", String::new()))
}

fn report(
    options: &Options,
    mutants: &[Mutant],
    found: &Found,
    explained: &BTreeMap<String, String>,
) -> bool {
    let mut rows: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
    let mut missed = Vec::new();
    let mut not_run = 0;
    for mutant in mutants.iter().filter(|mutant| mutant.file.contains(&options.file)) {
        if found.viable.get(&mutant.id) == Some(&false) {
            continue;
        }
        let column = match found.results.get(&mutant.name).map(|(how, ..)| how.as_str()) {
            Some("caught") => 1,
            Some("timeout") => 2,
            _ if explained.contains_key(&mutant.name) => 3,
            Some(_) => {
                missed.push(mutant);
                4
            }
            None => {
                not_run += 1;
                continue;
            }
        };
        let row = rows.entry(&mutant.file).or_default();
        row[0] += 1;
        row[column] += 1;
    }
    let mut total = [0; 5];
    println!("| file | viable | caught | timeout | explained | missed |\n|---|---|---|---|---|---|");
    for (file, row) in &rows {
        println!("| `{file}` | {} | {} | {} | {} | {} |", row[0], row[1], row[2], row[3], row[4]);
        total.iter_mut().zip(row).for_each(|(total, number)| *total += number);
    }
    let [viable, caught, timeout, reasons, left] = total;
    println!("| all | {viable} | {caught} | {timeout} | {reasons} | {left} |");
    if viable > 0 {
        println!("\n{:.1} % of viable mutants caught", 100.0 * (caught + timeout) as f64 / viable as f64);
    }
    if not_run > 0 {
        println!("{not_run} mutants were not run");
    }
    for mutant in &missed {
        println!("missed {} ({}:{})", mutant.name, mutant.file, mutant.line);
    }
    let names: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.name.as_str()).collect();
    let gone: Vec<&String> = explained.keys().filter(|name| !names.contains(name.as_str())).collect();
    for name in &gone {
        println!("explained, but there is no such mutant: {name}");
    }
    for name in explained.keys() {
        if found.results.get(name).is_some_and(|(how, ..)| how != "missed") {
            println!("explained, but a test notices it: {name}");
        }
    }
    missed.is_empty() && gone.is_empty()
}

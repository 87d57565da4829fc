//! Tests that are built once and run once for each mutant.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::compile::{CHOOSES, Tree};
use crate::{Result, Tests};

/// More than any test needs; a mutant that takes memory for ever ends here, in KiB.
const MEMORY: u64 = 6 << 20;

/// A program of tests.
#[derive(Debug, Clone)]
pub struct Program {
    pub name: String,
    executable: PathBuf,
    directory: PathBuf,
    tests: Tests,
    /// How long the unchanged code took.
    pub took: Duration,
    /// How long a mutant may take; a generous multiple of that.
    limit: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Passed,
    Failed,
    TookTooLong,
}

/// Builds programs of tests.
pub fn build(tree: &Tree, tests: &[Tests]) -> Result<Vec<Program>> {
    let mut targets = BTreeSet::new();
    for tests in tests {
        targets.insert(vec!["-p", tests.package]);
        targets.insert(match tests.target {
            "lib" => vec!["--lib"],
            target => vec!["--test", target],
        });
    }
    let mut arguments = vec!["test", "--no-run", "--all-features"];
    arguments.extend(targets.iter().flatten());
    let output = tree.cargo(&arguments)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the tests do not compile: {said}").into());
    }
    let text = String::from_utf8(output.stdout)?;
    let built: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut programs = Vec::new();
    for &tests in tests {
        let ours = built.iter().find(|message| {
            let target = &message["target"];
            let kind = if tests.target == "lib" { "lib" } else { "test" };
            let manifest = message["manifest_path"].as_str().unwrap_or_default();
            message["executable"].is_string()
                && target["kind"][0] == kind
                && (kind == "lib" || target["name"] == tests.target)
                && manifest.ends_with(&format!("{}/Cargo.toml", tests.directory()))
        });
        let ours =
            ours.ok_or_else(|| format!("cargo built no test {} of {}", tests.target, tests.package))?;
        programs.push(Program {
            name: [&[tests.package, tests.target], tests.arguments].concat().join(" "),
            executable: ours["executable"].as_str().unwrap_or_default().into(),
            directory: tree.sources.join(tests.directory()),
            tests,
            took: Duration::from_secs(60),
            limit: Duration::from_secs(60),
        });
    }
    Ok(programs)
}

/// Runs each test on the code as it is: it must pass, and its time becomes its limit.
pub fn measure(programs: &mut [Program]) -> Result<()> {
    for program in programs {
        let begin = Instant::now();
        match program.run(0)? {
            Ending::Passed => {}
            ending => return Err(format!("{} on the unchanged code: {ending:?}", program.name).into()),
        }
        program.took = begin.elapsed();
        program.limit = program.took * 4 + Duration::from_secs(5);
        eprintln!("{}: {:.1} s", program.name, program.took.as_secs_f64());
    }
    Ok(())
}

impl Program {
    pub fn run(&self, mutant: usize) -> Result<Ending> {
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -v {MEMORY}; exec \"$@\""), "sh"])
            .arg(&self.executable)
            .args(self.tests.arguments)
            .current_dir(&self.directory)
            .env(CHOOSES, mutant.to_string())
            .env("PROPTEST_CASES", "64")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let end = Instant::now() + self.limit;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(if status.success() { Ending::Passed } else { Ending::Failed });
            }
            if Instant::now() >= end {
                // the whole group: a test may have started programs
                let group = format!("-{}", child.id());
                Command::new("kill").args(["-9", "--", &group]).status()?;
                child.wait()?;
                return Ok(Ending::TookTooLong);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

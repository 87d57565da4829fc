//! Runs the measurements, each in its own process, the programs in turns.

use crate::plan::{Cell, Plan};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A measurement that takes longer is ended.
const LIMIT: Duration = Duration::from_secs(300);
/// Exit status of a program that does not support the request.
const CANNOT: i32 = 3;

/// The programs there are.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    pub(crate) ours: Option<PathBuf>,
    pub(crate) rust: Option<PathBuf>,
    pub(crate) go: Option<PathBuf>,
}

impl Programs {
    fn of(&self, implementation: &str) -> Option<&PathBuf> {
        match implementation {
            "requeue" => self.ours.as_ref(),
            "client-go" | "controller-runtime" | "x-time-rate" => self.go.as_ref(),
            _ => self.rust.as_ref(),
        }
    }
}

/// Runs all that there is a program for, and writes a line a measurement to `file`.
pub(crate) fn run(plan: &Plan, programs: &Programs, rounds: usize, file: &mut File) -> io::Result<()> {
    let order = order(plan, rounds, |implementation| programs.of(implementation).is_some());
    let (start, all) = (Instant::now(), order.len());
    let mut useless = HashSet::new();
    for (done, (round, cell)) in order.into_iter().enumerate() {
        let id = (cell.implementation.as_str(), cell.args.as_str());
        if useless.contains(&id) {
            continue;
        }
        let Some(program) = programs.of(&cell.implementation) else { continue };
        eprint!("[{}/{all}, {} s] {} {}: ", done + 1, start.elapsed().as_secs(), id.0, id.1);
        let mut command = Command::new(program);
        command.args(cell.args.split(' ')).arg(format!("impl={}", cell.implementation));
        let mut record = json!({ "round": round, "impl": id.0, "args": id.1 });
        match measure(command) {
            Ok(line) => {
                eprintln!(
                    "{}",
                    line["ns_per_op"].as_f64().map_or("?".to_string(), |ns| format!("{ns:.1} ns"))
                );
                record["line"] = line;
            }
            Err(why) => {
                eprintln!("{why}");
                record["failed"] = why.into();
                useless.insert(id);
            }
        }
        writeln!(file, "{record}")?;
        file.flush()?;
    }
    Ok(())
}

/// The measurements of all rounds: in each round row after row, and in each row the programs in turns,
/// another one first in each round. A cell in two rows is measured once a round.
fn order(plan: &Plan, rounds: usize, there: impl Fn(&str) -> bool) -> Vec<(usize, &Cell)> {
    let mut order = Vec::new();
    for round in 0..rounds {
        let mut seen = HashSet::new();
        for row in plan.sections.iter().flat_map(|section| &section.rows) {
            let mut cells: Vec<_> = row
                .cells
                .iter()
                .filter(|cell| there(&cell.implementation))
                .filter(|cell| seen.insert((&cell.implementation, &cell.args)))
                .collect();
            let first = round % cells.len().max(1);
            cells.rotate_left(first);
            order.extend(cells.into_iter().map(|cell| (round, cell)));
        }
    }
    order
}

fn measure(mut command: Command) -> Result<Value, String> {
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|e| format!("{}: {e}", command.get_program().to_string_lossy()))?;
    let status = wait(&mut child).map_err(|e| e.to_string())?;
    // both are short: they wait in the pipe
    let out = read_all(child.stdout.take());
    let err = read_all(child.stderr.take());
    let said = |line: &&str| line.starts_with("panic: ") || line.starts_with("fatal error: ");
    let last = err.lines().find(said).or(err.trim().lines().last()).unwrap_or_default();
    let last = last.strip_prefix("cannot be measured: ").unwrap_or(last).to_string();
    match status {
        None => Err(format!("took longer than {} s", LIMIT.as_secs())),
        Some(status) if status.success() => {
            let line = out.lines().last().unwrap_or_default();
            serde_json::from_str(line).map_err(|e| format!("not a line of JSON ({e}): {line}"))
        }
        Some(status) if status.code() == Some(CANNOT) => Err(last),
        Some(status) => Err(format!("{status}: {last}")),
    }
}

fn read_all(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // a part that cannot be read is missed below
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for the child's end, `None` if it had to be killed.
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let until = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        // seldom, so as not to disturb what is measured
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Extent;

    #[test]
    fn programs_take_turns_and_another_one_begins_each_round() {
        let plan = Plan::load(Extent { quick: true, all_peers: false }, &["wakeups".to_string()]).unwrap();
        let order = order(&plan, 2, |implementation| implementation != "client-go");
        let who: Vec<_> = order.iter().map(|(round, cell)| format!("{round} {}", cell.name)).collect();
        assert_eq!(
            who,
            [
                "0 threads",
                "0 tasks",
                "0 plain mutex",
                "0 park",
                "0 notify",
                "1 tasks",
                "1 plain mutex",
                "1 park",
                "1 notify",
                "1 threads"
            ]
        );
    }

    #[test]
    fn what_stands_in_two_rows_is_measured_once_a_round() {
        let plan = Plan::load(Extent { quick: false, all_peers: true }, &[]).unwrap();
        let mut seen = HashSet::new();
        for (round, cell) in order(&plan, 2, |_| true) {
            assert!(seen.insert((round, &cell.implementation, &cell.args)), "{cell:?}");
        }
    }

    #[test]
    fn a_program_that_cannot_says_why() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            measure(command)
        };
        assert_eq!(shell("echo '{\"ns_per_op\": 5}'").unwrap()["ns_per_op"], 5);
        assert_eq!(shell("echo never >&2; exit 3").unwrap_err(), "never");
        assert!(shell("echo oh >&2; exit 2").unwrap_err().ends_with("oh"));
        assert!(shell("echo nothing").unwrap_err().contains("not a line of JSON"));
    }
}

//! Counts the instructions of functions with callgrind.
//!
//! The program starts itself under valgrind, once for each row. That process calls [`requeue_guard_counted`], and callgrind counts only what
//! runs inside it.

use std::env;
use std::hint::black_box;
use std::process::{Command, ExitCode};

/// A function to be counted.
#[derive(Debug)]
pub struct Row {
    name: &'static str,
    run: fn(),
}

impl Row {
    /// A row of this name, in which `run` calls [`counted`].
    pub const fn new(name: &'static str, run: fn()) -> Self {
        Self { name, run }
    }
}

/// A [`Row`]: `row!("name", setup(), function)` counts `function(setup())`, without `setup()` and without the drop of the result.
#[macro_export]
macro_rules! row {
    ($name:literal, $setup:expr, $function:expr) => {
        $crate::count::Row::new($name, || $crate::count::counted($setup, $function))
    };
}

/// Calls a function whose instructions are counted, and drops its result uncounted.
pub fn counted<T, R>(input: T, function: fn(T) -> R) {
    drop(black_box(requeue_guard_counted(black_box(input), function)));
}

/// The function that callgrind is told to count, by its name.
#[inline(never)]
fn requeue_guard_counted<T, R>(input: T, function: fn(T) -> R) -> R {
    function(input)
}

/// The `main` of a program of rows: prints the name of each row and its number of instructions, with a tab between.
pub fn main(rows: &[Row]) -> ExitCode {
    let args: Vec<String> = env::args().collect();
    if let [_, flag, name] = &args[..] {
        if flag == "--row" {
            match rows.iter().find(|row| row.name == name) {
                Some(row) => (row.run)(),
                None => return failed(&format!("there is no row {name}")),
            }
            return ExitCode::SUCCESS;
        }
    }
    // cargo bench passes --bench
    for row in rows {
        match instructions(row.name) {
            Ok(instructions) => println!("{}\t{instructions}", row.name),
            Err(what) => return failed(&format!("{}: {what}", row.name)),
        }
    }
    ExitCode::SUCCESS
}

fn failed(what: &str) -> ExitCode {
    eprintln!("guard: {what}");
    ExitCode::from(2)
}

/// Number of instructions of a row, which runs in a process of its own.
fn instructions(name: &str) -> Result<u64, String> {
    let program = env::current_exe().map_err(|e| format!("the path of this program: {e}"))?;
    let said = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--toggle-collect=*requeue_guard_counted*",
            "--callgrind-out-file=/dev/null",
        ])
        .arg(program)
        .args(["--row", name])
        .env_clear() // what the environment holds would move the stack
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .output()
        .map_err(|e| format!("valgrind: {e}"))?;
    let text = String::from_utf8_lossy(&said.stderr);
    if !said.status.success() {
        return Err(format!("{}: {text}", said.status));
    }
    collected(&text).ok_or_else(|| format!("callgrind counted nothing: {text}"))
}

/// Reads the line `==1234== Collected : 5678` of callgrind. Nothing collected means that the function was not found.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.split_once("Collected : "))?;
    line.1.split_whitespace().next()?.parse().ok().filter(|&collected| collected > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrind_is_read() {
        let said =
            "==7== Events    : Ir\n==7== Collected : 1234567\n==7== \n==7== I   refs:      1,234,567\n";
        assert_eq!(collected(said), Some(1_234_567));
        assert_eq!(collected("==7== Collected : 0\n"), None);
        assert_eq!(collected("==7== Events    : Ir\n"), None);
    }
}

//! The mutants: what `cargo mutants --list --json` names.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::Result;

/// A change of the code that some test should notice.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The number that the program reads from its environment; it begins with 1, and changes with the code.
    pub id: usize,
    /// Without a line number, so that it stays when other code is changed:
    /// `machine/run.rs: replace | with ^ in Core<K, V>::hand_out #2`.
    pub name: String,
    /// The file, from the root of the repository.
    pub file: String,
    pub line: usize,
    pub genre: String,
    /// The bytes of the file that are replaced.
    pub from: usize,
    pub to: usize,
    pub replacement: String,
}

/// Lists the mutants of `package` in the copy of the sources at `root`, or of those files of it
/// that the patterns name.
pub fn list(root: &Path, package: &str, patterns: &[&str]) -> Result<Vec<Mutant>> {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--list", "--json", "-p", package]).current_dir(root);
    for pattern in patterns {
        command.args(["-f", pattern]);
    }
    let output = command.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo mutants (cargo install cargo-mutants) failed: {said}").into());
    }
    let listed: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    let mut texts = HashMap::new();
    let mut seen = HashMap::new();
    let mut mutants = Vec::new();
    for (index, value) in listed.iter().enumerate() {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_string();
        let file = text("file");
        if !texts.contains_key(&file) {
            texts.insert(file.clone(), fs::read_to_string(root.join(&file))?);
        }
        let place = |end: &str| {
            let number = |key: &str| value["span"][end][key].as_u64().unwrap_or(1) as usize;
            (number("line"), number("column"))
        };
        // the name is `file:line:column: what is changed`
        let named = text("name");
        let change = named.splitn(4, ':').nth(3).unwrap_or_default().trim().to_string();
        let short = file.split_once("/src/").map_or(file.as_str(), |(_, short)| short);
        let mut name = format!("{short}: {change}");
        let times = seen.entry(name.clone()).or_insert(0);
        *times += 1;
        if *times > 1 {
            name = format!("{name} #{times}");
        }
        mutants.push(Mutant {
            id: index + 1,
            name,
            line: place("start").0,
            genre: text("genre"),
            from: offset(&texts[&file], place("start")),
            to: offset(&texts[&file], place("end")),
            replacement: text("replacement"),
            file,
        });
    }
    Ok(mutants)
}

/// The byte at a line and a column, both counted from 1, the column in characters.
pub fn offset(text: &str, (line, column): (usize, usize)) -> usize {
    let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let rest = &text[start..];
    start + rest.char_indices().nth(column - 1).map_or(rest.len(), |(at, _)| at)
}

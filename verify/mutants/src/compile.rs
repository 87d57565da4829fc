//! One build with every mutant that compiles.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::list::Mutant;
use crate::write::write;
use crate::{Package, Result};

/// The variable with the number of the mutant that a test shall meet; without it there is none.
pub const CHOOSES: &str = "REQUEUE_MUTANT";

/// Code added to the copy of requeue-core: whether mutant `n` is chosen.
const CHOSEN: &str = r#"
extern crate std;
#[doc(hidden)]
#[allow(missing_docs)]
#[inline]
pub fn chosen_mutant(n: u32) -> bool {
    use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static CHOSEN: AtomicU32 = AtomicU32::new(u32::MAX);
    let mut chosen = CHOSEN.load(Relaxed);
    if chosen == u32::MAX {
        chosen = std::env::var("REQUEUE_MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
        CHOSEN.store(chosen, Relaxed);
    }
    chosen == n
}
"#;

/// A copy of the repository, and where it is built.
pub struct Tree {
    pub sources: PathBuf,
    target: PathBuf,
}

impl Tree {
    pub fn new(directory: &Path, name: &str) -> Self {
        Self { sources: directory.join(name), target: directory.join(format!("{name}-target")) }
    }

    /// Makes the copy hold these files as they are at `from`, and no others, without touching
    /// those that have not changed.
    pub fn copy(&self, from: &Path, files: &BTreeSet<String>) -> Result<()> {
        for file in files {
            put(&self.sources.join(file), &fs::read(from.join(file))?)?;
        }
        for old in walk(&self.sources)? {
            if !files.contains(old.strip_prefix(&self.sources)?.to_string_lossy().as_ref()) {
                fs::remove_file(old)?;
            }
        }
        Ok(())
    }

    pub fn cargo(&self, arguments: &[&str]) -> Result<Output> {
        let output = Command::new("cargo")
            .args(arguments)
            .arg("--message-format=json")
            .current_dir(&self.sources)
            .env("CARGO_TARGET_DIR", &self.target)
            // mutants leave variables unread and code unreached
            .env("RUSTFLAGS", "--cap-lints=warn -Awarnings")
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .output()?;
        Ok(output)
    }
}

/// The files that git knows at a place, and those that nobody has committed yet.
pub fn files(repository: &Path) -> Result<BTreeSet<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(repository)
        .output()?;
    let listed = String::from_utf8(listed.stdout)?;
    Ok(listed.lines().filter(|file| repository.join(file).is_file()).map(String::from).collect())
}

/// Writes a file unless that is what it says already: cargo builds anew what is younger.
pub fn put(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, content)?;
    Ok(())
}

fn walk(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files.extend(walk(&entry.path())?);
        } else {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// Errors of types and names, which the mutant has wherever it stands. Others may come from
/// its number, which cannot be asked for in a constant, say.
const WRONG: [&str; 8] = ["E0277", "E0282", "E0283", "E0308", "E0369", "E0433", "E0599", "E0600"];

/// Writes all mutants of the `plain` copy but `dropped` into the other one, and drops those at which the compiler finds an
/// error until it finds none. What was dropped may still compile where it is the only change,
/// unless `viable` says now that it does not.
pub fn write_all(
    tree: &Tree,
    plain: &Tree,
    package: &Package,
    mutants: &[Mutant],
    dropped: &mut BTreeSet<usize>,
    viable: &mut BTreeMap<usize, bool>,
) -> Result<()> {
    let mut by_file: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        by_file.entry(&mutant.file).or_default().push(mutant);
    }
    for round in 1.. {
        let mut pieces: BTreeMap<String, Vec<(Range<usize>, usize)>> = BTreeMap::new();
        let mut core_lib = fs::read_to_string(plain.sources.join("crates/requeue-core/src/lib.rs"))?;
        for (&file, mutants) in &by_file {
            let text = fs::read_to_string(plain.sources.join(file))?;
            let kept: Vec<&Mutant> =
                mutants.iter().copied().filter(|mutant| !dropped.contains(&mutant.id)).collect();
            let written = write(&text, &kept, package.chosen)?;
            dropped.extend(written.alone);
            if file == "crates/requeue-core/src/lib.rs" {
                core_lib.clone_from(&written.text);
            }
            put(&tree.sources.join(file), written.text.as_bytes())?;
            pieces.insert(file.to_string(), written.pieces);
        }
        core_lib.push_str(CHOSEN);
        put(&tree.sources.join("crates/requeue-core/src/lib.rs"), core_lib.as_bytes())?;

        let output = check(tree, package)?;
        if output.status.success() {
            return Ok(());
        }
        let mut found = BTreeSet::new();
        let mut strange = Vec::new();
        for message in errors(&output) {
            match blame(&message, &pieces) {
                Some(ids) => {
                    if message["code"]["code"].as_str().is_some_and(|code| WRONG.contains(&code)) {
                        viable.extend(ids.iter().map(|id| (*id, false)));
                    }
                    found.extend(ids);
                }
                None => strange.push(message["rendered"].as_str().unwrap_or_default().to_string()),
            }
        }
        eprintln!("round {round}: {} mutants do not compile beside the others", found.len());
        if found.is_empty() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("the copy does not compile:\n{}\n{said}", strange.join("\n")).into());
        }
        dropped.extend(found);
    }
    Ok(())
}

/// Compiles the package and its tests, without making programs.
pub fn check(tree: &Tree, package: &Package) -> Result<Output> {
    tree.cargo(&["check", "--all-features", "--lib", "--tests", "-p", package.name])
}

/// The compiler's errors in what cargo printed.
fn errors(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages
        .filter(|message| message["reason"] == "compiler-message" && message["message"]["level"] == "error")
        .map(|message| message["message"].clone())
        .collect()
}

/// The mutants in whose pieces the error is: at its primary place, else at any of its places.
fn blame(error: &Value, pieces: &BTreeMap<String, Vec<(Range<usize>, usize)>>) -> Option<BTreeSet<usize>> {
    let spans = error["spans"].as_array()?;
    for primary in [true, false] {
        let mut ids = BTreeSet::new();
        for span in spans.iter().filter(|span| span["is_primary"] == primary) {
            let (Some(file), Some(from)) = (span["file_name"].as_str(), span["byte_start"].as_u64()) else {
                continue;
            };
            let at = from as usize;
            let hit = pieces.get(file).into_iter().flatten().filter(|(piece, _)| piece.contains(&at));
            ids.extend(hit.map(|(_, id)| *id));
        }
        if !ids.is_empty() {
            return Some(ids);
        }
    }
    // the error is in the code between mutants, and has its cause in one before it
    let span = spans.iter().find(|span| span["is_primary"] == true)?;
    let (file, at) = (span["file_name"].as_str()?, span["byte_start"].as_u64()? as usize);
    let before = pieces.get(file)?.iter().filter(|(piece, _)| piece.end <= at);
    before.max_by_key(|(piece, _)| piece.end).map(|(_, id)| BTreeSet::from([*id]))
}

/// Makes `mutant` the only change of the copy, and returns how the file was.
pub fn write_one(tree: &Tree, mutant: &Mutant) -> Result<String> {
    let file = tree.sources.join(&mutant.file);
    let text = fs::read_to_string(&file)?;
    let changed = format!("{}{}{}", &text[..mutant.from], mutant.replacement, &text[mutant.to..]);
    put(&file, changed.as_bytes())?;
    Ok(text)
}

//! Every public item of the libraries has an example. The doctests run them; this only
//! looks that they are there.
//!
//! It reads the source as text. That is enough, because a lint (`unreachable_pub`) ensures that `pub` items
//! can be reached from outside.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Words that begin the definition of an item, after `pub`.
const KINDS: [&str; 9] =
    ["fn ", "const fn ", "async fn ", "struct ", "enum ", "trait ", "type ", "const ", "static "];

/// The stub for other systems than Linux is only an error, and its example would not run where we test.
const ELSEWHERE: &str = "#[cfg(not(any(target_os = \"linux\"";

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// The name of the item that this line begins, if it is public.
fn public(line: &str, in_trait: bool) -> Option<&str> {
    let item = match line.trim_start().strip_prefix("pub ") {
        Some(item) => item,
        None if in_trait => line.strip_prefix("    ").filter(|item| item.starts_with("fn "))?,
        None => return None,
    };
    let name = KINDS.iter().find_map(|kind| item.strip_prefix(kind))?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// Counts the public items of a file, and names those without an example.
fn look(text: &str) -> (usize, Vec<String>) {
    let (mut found, mut without) = (0, Vec::new());
    let (mut example, mut fenced, mut hidden, mut test) = (false, false, false, false);
    // Both end at the next line that is a closing brace.
    let (mut in_trait, mut sealed) = (false, false);
    // An attribute goes on in the next line.
    let mut attribute = false;
    for line in text.lines() {
        let trimmed = line.trim_start();
        if attribute {
            attribute = !trimmed.ends_with(']');
        } else if line == "#[cfg(test)]" {
            // Tests stand at the end of a file, or in one of their own.
            (hidden, test) = (true, true);
        } else if test && (line.starts_with("mod ") && line.ends_with('{')) {
            break;
        } else if let Some(doc) = trimmed.strip_prefix("///") {
            if let Some(word) = doc.trim_start().strip_prefix("```") {
                // a block that is marked as text, or to be ignored, does not run
                example |= !fenced && word.is_empty();
                fenced = !fenced;
            }
        } else if trimmed.starts_with("#[") || trimmed.starts_with("// ") {
            // A comment may stand between documentation and item.
            attribute = trimmed.starts_with("#[") && !trimmed.ends_with(']');
            hidden |= trimmed == "#[doc(hidden)]" || trimmed.starts_with(ELSEWHERE);
        } else {
            if let Some(name) = public(line, in_trait) {
                if !hidden && !sealed {
                    found += 1;
                    if !example {
                        without.push(name.to_owned());
                    }
                }
            }
            in_trait = line.starts_with("pub trait ") || in_trait && line != "}";
            let opens = line.ends_with("mod sealed {") || hidden && line.starts_with("impl");
            sealed = opens || sealed && line != "}";
            if !trimmed.is_empty() {
                (example, hidden, test) = (false, false, false);
            }
        }
    }
    (found, without)
}

/// Libraries whose examples are compiled but not run.
const NEED_A_SERVER: [&str; 1] = ["requeue-postgres"];

/// Looks through a library as [`look`] does.
fn look_through(library: &Path) -> (usize, Vec<String>) {
    let mut files = Vec::new();
    sources(&library.join("src"), &mut files);
    let (mut all, mut missing) = (0, Vec::new());
    let needs_a_server = NEED_A_SERVER.iter().any(|it| library.ends_with(it));
    for file in files {
        let name = file.strip_prefix(library.parent().unwrap()).unwrap().to_str().unwrap();
        if name.ends_with("tests.rs") || name.contains("/tests/") {
            continue;
        }
        let mut text = fs::read_to_string(&file).unwrap();
        if needs_a_server {
            text = text.replace("```no_run", "```");
        }
        let (found, without) = look(&text);
        all += found;
        missing.extend(without.into_iter().map(|item| format!("{name}: {item}")));
    }
    (all, missing)
}

#[test]
fn every_public_item_has_an_example() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates");
    let (mut found, mut missing) = (BTreeMap::new(), Vec::new());
    for entry in fs::read_dir(crates).unwrap() {
        let library = entry.unwrap().path();
        // a crate without one is a program only, and nobody can use what is in it; the state machine is internal
        if library.join("src/lib.rs").exists() && !library.ends_with("requeue-core") {
            let (items, without) = look_through(&library);
            found.insert(library.file_name().unwrap().to_str().unwrap().to_owned(), items);
            missing.extend(without);
        }
    }
    // so that this fails too where it looks in the wrong place
    assert!(found.values().all(|items| *items > 0), "libraries without an item: {found:?}");
    assert!(found["requeue"] > 200, "few items were found: {found:?}");
    assert!(missing.is_empty(), "without an example:\n{}", missing.join("\n"));
}

#[test]
fn what_has_no_example_is_found() {
    let text = "\
/// One.
///
/// ```
/// ```
pub struct One;

/// Two.
#[derive(Debug)]
pub struct Two;

impl Two {
    /// No example.
    pub const fn three() {}
    pub(crate) fn not_public() {}
}

/// ```
/// ```
pub trait Four {
    /// None.
    fn five(&self);
    #[doc(hidden)]
    fn hidden(&self);
}

/// ```text
/// a drawing
/// ```
pub enum Six {}

/// ```ignore
/// six()
/// ```
pub const SEVEN: Six;

#[cfg(not(any(target_os = \"linux\", target_os = \"android\")))]
impl Watcher {
    pub fn new() {}
    pub fn run(self) {}
}

impl Watcher {
    pub fn eight() {}
}

pub(crate) mod sealed {
    pub struct Token;
}

#[cfg(test)]
mod tests {
    pub fn nine() {}
}
";
    let without = ["Two", "three", "five", "Six", "SEVEN", "eight"].map(str::to_owned);
    assert_eq!(look(text), (8, without.to_vec()));
}

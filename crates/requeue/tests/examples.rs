//! Every public item has an example. The doctests run them; this only looks that they
//! are there.
//!
//! It reads the source as text. That is enough, because a lint (`unreachable_pub`) sees
//! to it that what is `pub` can be reached from outside.

use std::fs;
use std::path::{Path, PathBuf};

/// What begins the definition of an item, behind `pub`.
const KINDS: [&str; 9] =
    ["fn ", "const fn ", "async fn ", "struct ", "enum ", "trait ", "type ", "const ", "static "];

/// Items that have none yet, by file and name.
const WITHOUT: [(&str, &str); 2] = [("worker/outcome.rs", "BoxError"), ("worker/outcome.rs", "into_outcome")];

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
    let (mut example, mut hidden) = (false, false);
    // What ends at the next line that is a closing brace.
    let (mut in_trait, mut sealed) = (false, false);
    for line in text.lines() {
        let trimmed = line.trim_start();
        if line == "#[cfg(test)]" {
            // Tests stand at the end of a file, or in one of their own.
            hidden = true;
        } else if hidden && (line.starts_with("mod ") && line.ends_with('{')) {
            break;
        } else if trimmed.starts_with("///") {
            example |= trimmed == "/// ```";
        } else if trimmed.starts_with("#[") || trimmed.starts_with("// ") {
            // A comment may stand between documentation and item.
            hidden |= trimmed == "#[doc(hidden)]";
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
            sealed = line.ends_with("mod sealed {") || sealed && line != "}";
            // Continued lines of an attribute are neither of these.
            if !trimmed.is_empty() {
                (example, hidden) = (false, false);
            }
        }
    }
    (found, without)
}

#[test]
fn every_public_item_has_an_example() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&folder, &mut files);
    let (mut all, mut missing) = (0, Vec::new());
    for file in files {
        let name = file.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned();
        if name.ends_with("tests.rs") || name.contains("tests/") {
            continue;
        }
        let (found, without) = look(&fs::read_to_string(&file).unwrap());
        all += found;
        let new = without.into_iter().filter(|item| !WITHOUT.contains(&(name.as_str(), item.as_str())));
        missing.extend(new.map(|item| format!("{name}: {item}")));
    }
    assert!(all > 100, "only {all} items were found");
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

pub(crate) mod sealed {
    pub struct Token;
}

#[cfg(test)]
mod tests {
    pub fn six() {}
}
";
    assert_eq!(look(text), (5, vec!["Two".to_owned(), "three".to_owned(), "five".to_owned()]));
}

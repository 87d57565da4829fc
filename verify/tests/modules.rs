//! The modules of the libraries import downwards only: none imports itself by way of others.
//!
//! What stands below a module of the crate root counts as that module. A name that the crate
//! root gives away stands for the module that it comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Imports of each module.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("the sources are there") {
        let path = entry.expect("they can be listed").path();
        if path.is_dir() {
            // tests may look anywhere
            if path.file_name().is_none_or(|name| name != "tests") {
                sources(&path, into);
            }
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs") {
            into.push(path);
        }
    }
}

/// The code of a file, without comments and without the tests at its end.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("a source can be read");
    let text = text.split("mod tests {").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The names that stand where `text` begins: one, or several in braces, each up to its `::`.
fn names(text: &str) -> Vec<String> {
    let Some(inner) = text.strip_prefix('{') else {
        return vec![text.chars().take_while(|&c| is_name(c)).collect()];
    };
    let (mut depth, mut names) = (1, vec![String::new()]);
    let mut done = false;
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => {
                names.push(String::new());
                done = false;
            }
            c if depth == 1 && !done && is_name(c) => names.last_mut().expect("one").push(c),
            ':' => done = true,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// Names that the crate root gives away, and the modules that they come from.
fn given_away(root: &str) -> BTreeMap<String, String> {
    let mut from = BTreeMap::new();
    for part in root.split("pub use ").skip(1) {
        let Some((module, what)) = part.split_once("::") else { continue };
        for name in names(what) {
            from.insert(name, module.to_owned());
        }
    }
    from
}

fn imports(src: &Path) -> Imports {
    let mut files = Vec::new();
    sources(src, &mut files);
    let given_away = given_away(&code(&src.join("lib.rs")));
    let mut imports = Imports::new();
    for file in files {
        let path = file.strip_prefix(src).expect("it was found there");
        let first = path.iter().next().expect("a name").to_string_lossy();
        let module = first.trim_end_matches(".rs").to_owned();
        if module == "lib" {
            continue;
        }
        let below = imports.entry(module.clone()).or_default();
        for part in code(&file).split("crate::").skip(1) {
            for name in names(part) {
                let from = given_away.get(&name).cloned().unwrap_or(name);
                if from != module {
                    below.insert(from);
                }
            }
        }
    }
    imports
}

/// A way from `at` back to the first of `way`.
fn circle(imports: &Imports, at: &str, way: &mut Vec<String>, seen: &mut BTreeSet<String>) -> bool {
    way.push(at.to_owned());
    for next in imports.get(at).into_iter().flatten() {
        if *next == way[0] {
            return true;
        }
        if seen.insert(next.clone()) && circle(imports, next, way, seen) {
            return true;
        }
    }
    way.pop();
    false
}

#[test]
fn no_module_imports_itself_by_way_of_others() {
    for name in ["requeue", "requeue-core"] {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates").join(name).join("src");
        let imports = imports(&src);
        assert!(imports.len() > 8, "{name}: the modules were not found: {imports:?}");
        for module in imports.keys() {
            let mut way = Vec::new();
            let found = circle(&imports, module, &mut way, &mut BTreeSet::new());
            assert!(!found, "{name}: {} imports itself", way.join(" -> "));
        }
    }
}

#[test]
fn a_circle_is_seen() {
    let of = |module: &str, below: &str| (module.to_owned(), BTreeSet::from([below.to_owned()]));
    let imports = Imports::from([of("a", "b"), of("b", "c"), of("c", "b")]);
    let is_in = |module| circle(&imports, module, &mut Vec::new(), &mut BTreeSet::new());
    assert_eq!([is_in("a"), is_in("b"), is_in("c")], [false, true, true]);
    assert_eq!(names("{a, b::{c, d}, e::f};"), ["a", "b", "e"]);
}

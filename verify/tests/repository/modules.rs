//! Modules import downwards only. In the libraries no module of the crate root imports itself by way of others; a file
//! below it counts as that module. An item is imported from the module that defines it, and not from the root, which stands
//! above all. In every crate and at every depth the largest circle of files is bounded.

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

/// The names at the beginning of `text`: one, or several in braces, each up to its `::`.
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
                if let Some(from) = given_away.get(&name) {
                    panic!(
                        "{}: `crate::{name}` goes by way of the root: import it from `{from}`",
                        path.display()
                    );
                }
                if name != module {
                    below.insert(name);
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

/// Crates with circles of files, and the size of the largest one. The numbers only fall: lower them with the circle.
const LARGEST_CIRCLES: [(&str, usize); 7] = [
    ("bench/src", 3),
    ("crates/requeue/src", 5),
    ("crates/requeue-core/src", 3),
    ("crates/requeue-sim/src", 3),
    ("crates/requeue-sqlite/src", 4),
    ("crates/requeue-watch/src", 2),
    ("kube/requeue-kube/src", 3),
];

/// The files of a crate by their module paths, with the files that each imports. A parent and its child count.
fn files(src: &Path) -> Imports {
    let mut paths = Vec::new();
    sources(src, &mut paths);
    let module = |file: &PathBuf| {
        let path = file.strip_prefix(src).expect("it was found there").with_extension("");
        let parts = path.iter().map(|part| part.to_string_lossy());
        parts.filter(|part| !["lib", "main", "mod"].contains(&&**part)).collect::<Vec<_>>().join("::")
    };
    let texts: BTreeMap<String, String> = paths.iter().map(|file| (module(file), code(file))).collect();
    let mut imports = Imports::new();
    for (name, text) in texts.iter().filter(|(name, _)| !name.is_empty()) {
        let mut found = Vec::new();
        for word in ["crate::", "self::", "super::"] {
            for (at, _) in text.match_indices(word) {
                // `super::super::` is found at its first word
                if text[..at].ends_with("::") || text[..at].ends_with(is_name) {
                    continue;
                }
                let mut base: Vec<&str> =
                    if word == "crate::" { Vec::new() } else { name.split("::").collect() };
                let mut rest = &text[at..];
                while let Some(above) = rest.strip_prefix("super::") {
                    base.pop();
                    rest = above;
                }
                let rest = rest.trim_start_matches("crate::").trim_start_matches("self::");
                let base = base.iter().map(|part| format!("{part}::")).collect::<String>();
                found.extend(paths_of(rest).into_iter().map(|path| format!("{base}{path}")));
            }
        }
        let longest = |path: &String| {
            let parts: Vec<&str> = path.split("::").collect();
            (1..=parts.len()).rev().map(|n| parts[..n].join("::")).find(|it| texts.contains_key(it))
        };
        let below = found.iter().filter_map(longest).filter(|it| it != name && !it.is_empty());
        imports.insert(name.clone(), below.collect());
    }
    imports
}

/// The paths at the beginning of `text`, with braces resolved.
fn paths_of(text: &str) -> Vec<String> {
    let end = text.find(|c: char| !is_name(c) && c != ':').unwrap_or(text.len());
    let (head, rest) = text.split_at(end);
    let Some(inner) = rest.strip_prefix('{').filter(|_| head.is_empty() || head.ends_with("::")) else {
        return vec![head.trim_end_matches(':').to_owned()];
    };
    let (mut depth, mut parts, mut start) = (1, Vec::new(), 0);
    for (at, c) in inner.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 || (depth == 1 && c == ',') {
            parts.push(inner[start..at].trim());
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    parts.into_iter().flat_map(paths_of).map(|path| format!("{head}{path}")).collect()
}

/// The files that a file reaches by its imports.
fn reached<'a>(imports: &'a Imports, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(at) = next.pop() {
        let below = imports.get(at).into_iter().flatten().map(String::as_str);
        next.extend(below.filter(|it| seen.insert(*it)));
    }
    seen
}

/// The largest set of files each of which reaches all others.
fn largest_circle(imports: &Imports) -> Vec<&str> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|it| (it.as_str(), reached(imports, it))).collect();
    let circle = |of: &str| -> Vec<&str> {
        let all = reached[of].iter().copied();
        all.filter(|it| reached.get(it).is_some_and(|back| back.contains(of))).collect()
    };
    reached.keys().map(|it| circle(it)).max_by_key(Vec::len).unwrap_or_default()
}

#[test]
fn no_circle_of_files_is_larger_than_it_was() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut crates, mut larger) = (0, Vec::new());
    for folder in ["crates", "kube", "verify", "bench", "examples"].map(|it| root.join(it)) {
        let below = fs::read_dir(&folder).expect("a folder of the repository");
        let below = below.map(|entry| entry.expect("it can be listed").path());
        for src in below.chain([folder]).map(|it| it.join("src")).filter(|it| it.is_dir()) {
            let name = src.strip_prefix(&root).expect("it is below").to_string_lossy().into_owned();
            let imports = files(&src);
            let circle = largest_circle(&imports);
            let most = LARGEST_CIRCLES.iter().find(|(it, _)| *it == name).map_or(0, |(_, most)| *most);
            if circle.len() > most {
                larger.push(format!(
                    "{name}: {} files import each other, not {most}: {circle:?}",
                    circle.len()
                ));
            }
            crates += 1;
        }
    }
    assert!(larger.is_empty(), "{}", larger.join("\n"));
    assert!(crates > 12, "only {crates} crates were found");
}

#[test]
fn a_circle_of_files_is_seen() {
    let of =
        |file: &str, below: &[&str]| (file.to_owned(), below.iter().map(|it| (*it).to_owned()).collect());
    let imports =
        Imports::from([of("a", &["b"]), of("b", &["c"]), of("c", &["d"]), of("d", &["b"]), of("e", &["a"])]);
    assert_eq!(largest_circle(&imports), ["b", "c", "d"]);
    assert_eq!(paths_of("{a, b::{c, d}, e::f};"), ["a", "b::c", "b::d", "e::f"]);
    assert_eq!(paths_of("a::b::C(1)"), ["a::b::C"]);
}

//! Keeps the table in `README.md` true: each test that it names exists, each
//! test exists in it, each rule in scope has a row, and each function of the
//! suite is run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(here().join(folder)).expect("a folder of this crate");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    files.sort();
    files
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).expect("a file of this crate")
}

/// What stands between `before` and the next `after` in each line that begins
/// with `before`.
fn names(text: &str, before: &str, after: &str) -> Vec<String> {
    let named = text.lines().filter_map(|line| line.trim_start().strip_prefix(before)?.split_once(after));
    named.map(|(name, _)| name.to_owned()).collect()
}

/// The functions of the suite.
fn suite() -> BTreeSet<String> {
    sources("src/suite").iter().flat_map(|file| names(&read(file), "pub fn ", "<A: Adapter>()")).collect()
}

/// The functions of the suite of workers.
fn workers() -> BTreeSet<String> {
    sources("src/workers").iter().flat_map(|file| names(&read(file), "pub fn ", "<F: Front>()")).collect()
}

/// All tests, wherever they are.
fn tests() -> BTreeSet<String> {
    [suite(), workers(), others()].into_iter().flatten().collect()
}

/// The tests that stand in `tests/` as they are.
fn others() -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for file in [sources("tests"), sources("tests/loom"), sources("tests/schedules")].concat() {
        // these are about the repository, not about the queue
        if ["promises.rs", "examples.rs", "packages.rs", "public_api.rs", "modules.rs"]
            .iter()
            .any(|own| file.ends_with(own))
        {
            continue;
        }
        let text = read(&file);
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            if line == "#[test]" {
                let name = lines.next().unwrap_or_default();
                tests.extend(names(name, "fn ", "("));
            }
        }
    }
    tests
}

/// The rows of the table: rule, promise, tests.
fn table() -> Vec<(String, String, Vec<String>)> {
    let readme = read(&here().join("README.md"));
    let (_, table) = readme.split_once("## Promise by promise").expect("the table's heading");
    let rows = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| rule |"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [rule, promise, tests] = cells[..] else { panic!("three cells: {row}") };
        let tests = tests.split_whitespace().map(|name| name.trim_matches('`').to_owned()).collect();
        (rule.to_owned(), promise.to_owned(), tests)
    })
    .collect()
}

#[test]
fn every_test_that_the_table_names_exists() {
    let known = tests();
    assert!(known.len() > 300, "only {} tests were found: is this looking in the right place?", known.len());
    for (rule, promise, tests) in table() {
        assert!(!tests.is_empty(), "{rule}: no test shows that \"{promise}\"");
        for test in tests {
            assert!(known.contains(&test), "{rule}: there is no test `{test}`");
        }
    }
}

#[test]
fn every_test_shows_a_promise_of_the_table() {
    let named: BTreeSet<String> = table().into_iter().flat_map(|(_, _, tests)| tests).collect();
    for test in tests() {
        assert!(named.contains(&test), "`{test}` stands in no row of the table");
    }
}

#[test]
fn every_rule_in_scope_has_a_row() {
    let rules: BTreeSet<String> = table().into_iter().map(|(rule, ..)| rule).collect();
    let mut scope: Vec<String> = vec!["rules".into(), "R".into(), "W".into(), "M".into()];
    scope.extend((1..=14).map(|n| format!("Q{n}")));
    scope.extend((1..=10).map(|n| format!("D{n}")));
    scope.extend([1, 2, 4, 7, 8, 9, 10].map(|n| format!("B{n}")));
    scope.extend((1..=30).map(|n| format!("X{n}")));
    for rule in scope {
        assert!(rules.contains(&rule), "no row for rule {rule}");
    }
}

#[test]
fn what_a_durable_queue_leaves_out_is_in_the_suite_and_stands_there_once() {
    use requeue_verify::adapter::Adapter;
    let (suite, mut left_out) = (suite(), BTreeSet::new());
    for row in requeue_verify::durable::DurableThreads::leaves_out() {
        for test in row.tests {
            assert!(suite.contains(*test), "`{test}` is no function of the suite");
            assert!(left_out.insert(test), "`{test}` is left out twice");
        }
    }
    // every other one is run by `conformance!`, which has all of them: see below
    for file in ["tests/durable_threads.rs", "tests/durable_tasks.rs"] {
        assert!(read(&here().join(file)).contains("requeue_verify::conformance!("), "{file}");
    }
}

#[test]
fn every_function_of_the_suites_is_run() {
    for (folder, tests, all) in [
        ("src/suite", suite(), "macro_rules! conformance"),
        ("src/workers", workers(), "macro_rules! worker_conformance"),
    ] {
        let catalogue = read(&here().join(folder).join("catalogue.rs"));
        let run: BTreeSet<String> = names(&catalogue, "", ",").into_iter().collect();
        assert!(tests.len() > 40, "only {} tests were found in {folder}", tests.len());
        for test in tests {
            assert!(run.contains(&test), "`{test}` is missing from {folder}/catalogue.rs");
        }
        let all = catalogue.split_once(all).expect("the macro for all files").1;
        for file in sources(folder) {
            let name = file.file_stem().and_then(|name| name.to_str()).expect("a name");
            if name != "mod" && name != "catalogue" {
                assert!(
                    all.contains(&format!("$crate::{name}!")),
                    "`{name}` is run by no macro for all files"
                );
            }
        }
    }
}

/// All Rust files under a folder of the repository, by their paths from its root.
fn rust_files(folder: &str) -> Vec<String> {
    let root = here().join("..");
    let (mut folders, mut files) = (vec![root.join(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let path = path.strip_prefix(&root).expect("below the root");
                files.push(path.to_str().expect("a name in UTF-8").to_owned());
            }
        }
    }
    files.sort();
    files
}

fn repository(path: &str) -> String {
    read(&here().join("..").join(path))
}

/// Whether there is an `unsafe` block, function, trait, implementation or attribute.
fn is_unsafe(source: &str) -> bool {
    let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    let said = ["unsafe {", "unsafe impl ", "unsafe fn ", "unsafe trait ", "unsafe extern ", "unsafe("];
    code.into_iter().any(|line| said.iter().any(|said| line.contains(said)))
}

#[test]
fn security_md_names_every_file_with_unsafe_code_and_no_other() {
    let crates = fs::read_dir(here().join("../crates")).expect("the crates");
    let crates = crates.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
    let sources = crates.flat_map(|name| rust_files(&format!("crates/{name}/src")));
    let found: BTreeSet<String> = sources.filter(|path| is_unsafe(&repository(path))).collect();
    let said = repository("SECURITY.md");
    let named: BTreeSet<String> =
        said.split('`').filter(|word| word.ends_with(".rs")).map(str::to_owned).collect();
    assert_eq!(named, found);
}

#[test]
fn requeue_depends_on_exactly_its_core() {
    let manifest = repository("Cargo.toml");
    let version = names(&manifest, "version = \"", "\"").remove(0);
    let core = manifest.lines().find(|line| line.starts_with("requeue-core = ")).expect("the dependency");
    assert!(core.contains(&format!("version = \"={version}\"")), "{core}");
}

/// What only `requeue` may call is its own business, and may change with any version.
#[test]
fn what_only_requeue_may_call_is_hidden_from_the_documentation_of_its_core() {
    let sources: String = rust_files("crates/requeue-core/src").iter().map(|path| repository(path)).collect();
    let declared = ["pub fn publish(", "pub fn get_and(", "pub ticket: Ticket,"];
    for what in declared {
        let (before, _) = sources.split_once(what).unwrap_or_else(|| panic!("there is no `{what}`"));
        let attributes = before.lines().rev().skip(1).take_while(|line| line.trim().starts_with("#["));
        let hidden = attributes.into_iter().any(|line| line.trim() == "#[doc(hidden)]");
        assert!(hidden || before.trim_end().ends_with("#[doc(hidden)]"), "`{what}` is documented");
    }
}

//! Every rule of the contract and of the engines has a test that carries its number, and every test of
//! this crate carries a rule. The table of both is written to `target/promises.md`.

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

/// The text between `before` and the next `after` in each line that begins with `before`.
fn names(text: &str, before: &str, after: &str) -> Vec<String> {
    let named = text.lines().filter_map(|line| line.trim_start().strip_prefix(before)?.split_once(after));
    named.map(|(name, _)| name.to_owned()).collect()
}

/// The functions of the suite.
fn suite() -> BTreeSet<String> {
    sources("src/suite").iter().flat_map(|file| names(&read(file), "pub fn ", "<A: Adapter>()")).collect()
}

/// First words of tests that show no single rule, with what they show instead.
const NO_SINGLE_RULE: [(&str, &str); 3] = [
    ("model", "the queue answers as the reference model does, call by call"),
    ("stress", "several rules at once, with threads and tasks at random moments"),
    ("costs", "what each call costs in locks, probes, readings of the clock and allocations"),
];

/// First words of tests for the part of the contract before its numbered rules.
const WORDS: [(&str, &str); 3] = [
    ("rules", "one clock reading a call; a refused trigger changes nothing"),
    ("users", "users' code that panics, or that calls the queue under its lock"),
    ("unlocked", "users' code that runs without the lock"),
];

/// Rules that no test carries in its name, with what shows them.
const SHOWN_OTHERWISE: [(&str, &str); 0] = [];

/// The functions of the suites and the tests, with their files: those of this crate and of every library.
fn tests() -> Vec<(String, String)> {
    let mut tests = Vec::new();
    for file in ["verify/src", "verify/tests", "crates"].into_iter().flat_map(rust_files) {
        let text = repository(&file);
        let suite = ["<A: Adapter>()", "<F: Front>()", "<E: Engine>(", "<E: Grouped>("];
        tests.extend(
            suite.iter().flat_map(|end| names(&text, "pub fn ", end)).map(|name| (name, file.clone())),
        );
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
            let declared = line.trim_start_matches("async ").strip_prefix("fn ");
            if let Some((name, _)) = declared.and_then(|rest| rest.split_once('(')) {
                // `$name` stands in a macro, which the suites' functions go through
                if std::mem::take(&mut is_test) && !name.starts_with('$') {
                    tests.push((name.to_owned(), file.clone()));
                }
            }
        }
    }
    assert!(tests.len() > 1000, "only {} tests were found: is this looking in the right place?", tests.len());
    tests
}

/// A rule: its number, or the letter of its section, and its name.
struct Rule {
    number: String,
    name: String,
    /// Whether it makes promises itself, and is no heading above numbered rules.
    promises: bool,
}

/// The rules of both documents, in their order.
fn rules() -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for document in ["docs/CONTRACT.md", "docs/ENGINES.md"] {
        let mut section = String::new();
        for line in repository(document).lines() {
            let (number, name) = if let Some(heading) = line.strip_prefix("## ") {
                let Some((letter, name)) = heading.split_once(". ").filter(|(letter, _)| letter.len() == 1)
                else {
                    section.clear();
                    continue;
                };
                section = letter.to_owned();
                (section.clone(), name)
            } else if let Some(row) = line.strip_prefix("| ") {
                let cell = row.split(" | ").next().unwrap_or_default();
                let (number, name) = cell.split_once(' ').unwrap_or((cell, ""));
                (number.to_owned(), name)
            } else if let Some((number, name)) = line.split_once(". ").filter(|_| section == "X") {
                (format!("X{number}"), name)
            } else {
                continue;
            };
            let digits = number.strip_prefix(|letter: char| letter.is_ascii_uppercase());
            if !digits.is_some_and(|digits| digits.is_empty() || digits.parse::<u8>().is_ok()) {
                continue;
            }
            if let Some(section) =
                rules.iter_mut().find(|rule| number.len() > 1 && rule.number == number[..1])
            {
                section.promises = false;
            }
            match rules.iter_mut().find(|rule| rule.number == number) {
                Some(rule) if name.is_empty() || rule.name.contains(name) => {}
                Some(rule) => rule.name = format!("{}, {name}", rule.name),
                None => rules.push(Rule { number, name: name.to_owned(), promises: true }),
            }
        }
    }
    assert!(rules.len() > 110, "only {} rules were found", rules.len());
    rules
}

/// The rules that a test's name carries: `loom_d2_d3_…` has D2 and D3, `w_…` the section W.
fn carried(test: &str) -> Vec<String> {
    let mut rest = test.strip_prefix("loom_").or(test.strip_prefix("stress_")).unwrap_or(test);
    let mut carried = Vec::new();
    while let Some((word, behind)) = rest.trim_start_matches("and_").split_once('_') {
        let (letter, number) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        let letter = letter.to_ascii_uppercase();
        match number.parse::<u8>() {
            Ok(number) => carried.push(format!("{letter}{number}")),
            // as a word, "a" begins a sentence
            Err(_) if number.is_empty() && letter != "A" && carried.is_empty() => return vec![letter],
            Err(_) => break,
        }
        rest = behind;
    }
    carried
}

fn first_word(test: &str) -> &str {
    test.strip_prefix("loom_").unwrap_or(test).split('_').next().unwrap_or_default()
}

#[test]
fn the_rules_that_a_name_carries_are_read() {
    assert_eq!(carried("q4_a_dirty_key_goes_to_the_back"), ["Q4"]);
    assert_eq!(carried("loom_d2_d3_one_timer"), ["D2", "D3"]);
    assert_eq!(carried("e14_and_e16_whoever_works"), ["E14", "E16"]);
    assert_eq!(carried("x07_duplicates"), ["X7"]);
    assert_eq!(carried("w_a_worker"), ["W"]);
    assert!(carried("a_key_comes").is_empty() && carried("users_code").is_empty());
}

#[test]
fn every_rule_has_a_test_that_carries_its_number() {
    let carried: BTreeSet<String> = tests().iter().flat_map(|(test, _)| carried(test)).collect();
    for rule in rules().iter().filter(|rule| rule.promises) {
        let otherwise = SHOWN_OTHERWISE.iter().any(|(number, _)| *number == rule.number);
        assert!(
            carried.contains(&rule.number) != otherwise,
            "{} {}: name a test `{}_…`, or list in SHOWN_OTHERWISE what shows the rule",
            rule.number,
            rule.name,
            rule.number.to_lowercase()
        );
    }
}

#[test]
fn every_test_of_the_queue_carries_a_rule_that_there_is() {
    let rules = rules();
    let without = [&NO_SINGLE_RULE[..], &WORDS[..]].concat();
    for (test, file) in tests() {
        let mut carried = carried(&test);
        // other letters are other things: `p50`, or a rule of requeue-kube
        carried.retain(|number| rules.iter().any(|rule| number.starts_with(&rule.number[..1])));
        for number in &carried {
            let there_is = rules.iter().any(|rule| rule.number == *number);
            assert!(there_is, "{file}: `{test}`: there is no rule {number}");
        }
        let of_the_queue = file.starts_with("verify/")
            && !file.starts_with("verify/tests/repository/")
            && !file.ends_with("watchdog.rs");
        assert!(
            !of_the_queue
                || !carried.is_empty()
                || without.iter().any(|(word, _)| *word == first_word(&test)),
            "{file}: `{test}` carries no rule: see CONTRIBUTING.md, \"How a rule gets its test\""
        );
    }
}

#[test]
fn the_table_of_rules_and_tests_is_written() {
    use std::fmt::Write as _;
    let tests = tests();
    let mut table =
        "# Rules and their tests\n\nWritten by `verify/tests/repository/promises.rs`.\n".to_owned();
    let mut section = |title: &str, shows: &dyn Fn(&str) -> bool| {
        writeln!(table, "\n## {title}\n").expect("a string");
        for (test, file) in tests.iter().filter(|(test, _)| shows(test)) {
            writeln!(table, "- `{test}` ({file})").expect("a string");
        }
    };
    for (word, what) in WORDS.iter().chain(&NO_SINGLE_RULE) {
        section(&format!("{word}: {what}"), &|test| first_word(test) == *word);
    }
    for Rule { number, name, .. } in rules() {
        section(&format!("{number} {name}"), &|test| carried(test).contains(&number));
    }
    // target/tmp is this binary's own; beside it nothing else writes this name
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target").join("promises.md");
    fs::write(&target, &table).expect("a file in the target directory");
    assert!(table.contains("- `q4_") && table.contains("- `loom_q11_") && table.contains("- `e33_"));
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

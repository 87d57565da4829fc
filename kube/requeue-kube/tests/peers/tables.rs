//! Keeps `docs/rules.md` and `docs/peers.md` true: each test that they name exists, and each peer's test, each rule and
//! each scenario of a rule has its place there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn doc(name: &str) -> String {
    fs::read_to_string(here().join("docs").join(name)).unwrap()
}

/// The functions of all tests of this crate, wherever they are.
fn tests() -> BTreeSet<String> {
    let (mut folders, mut tests) = (vec![here().join("tests"), here().join("src")], BTreeSet::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                tests.extend(tests_of(&fs::read_to_string(path).unwrap()));
            }
        }
    }
    tests
}

fn tests_of(text: &str) -> BTreeSet<String> {
    let (mut tests, mut is_test) = (BTreeSet::new(), false);
    for line in text.lines().map(str::trim) {
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let name =
            line.trim_start_matches("async ").strip_prefix("fn ").and_then(|rest| rest.split_once('('));
        if let Some((name, _)) = name
            && std::mem::take(&mut is_test)
        {
            tests.insert(name.to_owned());
        }
    }
    tests
}

/// The names with an underscore between backticks in the last cell of each row: names of tests.
fn named(text: &str) -> BTreeSet<String> {
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit_once('|')).map(|(_, cell)| cell);
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    words.filter(|word| word.contains('_') && !word.contains("::")).map(str::to_owned).collect()
}

#[test]
fn each_test_that_the_pages_name_exists() {
    let tests = tests();
    assert!(tests.len() > 100, "{}", tests.len());
    for page in ["rules.md", "peers.md"] {
        let named = named(&doc(page));
        let unknown: Vec<_> = named.difference(&tests).collect();
        assert!(named.len() > 30 && unknown.is_empty(), "{page} names what is no test: {unknown:?}");
    }
}

#[test]
fn each_test_of_a_peer_is_on_the_page_of_peers() {
    let named = named(&doc("peers.md"));
    let peers = |name: &String| name.starts_with("kube_runtime_") || name.starts_with("controller_runtime_");
    let missing: Vec<_> = tests().into_iter().filter(peers).filter(|name| !named.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn each_rule_has_a_row_and_each_test_of_a_rule_is_in_it() {
    let page = doc("rules.md");
    let tests = tests();
    for n in 1..=16 {
        let row = page.lines().find(|line| line.starts_with(&format!("| K{n} ")));
        let row = row.unwrap_or_else(|| panic!("K{n} has no row"));
        let named = named(row);
        assert!(!named.is_empty(), "K{n} has no test");
        let of_it = |name: &&String| name.starts_with(&format!("k{n}_"));
        let missing: Vec<_> = tests.iter().filter(of_it).filter(|name| !named.contains(*name)).collect();
        assert!(missing.is_empty(), "K{n} has more tests: {missing:?}");
    }
}

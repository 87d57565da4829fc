//! Keeps `rules.tsv` and `peers.tsv` true: each test that they name exists, and each test of a peer and of a rule has its
//! place there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The rows of a table, without its head.
fn rows(name: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(here().join("tests/peers").join(name)).unwrap();
    let rows: Vec<Vec<String>> =
        text.lines().skip(1).map(|line| line.split('\t').map(str::to_owned).collect()).collect();
    assert!(rows.iter().all(|row| row.len() == 4), "{name}: four columns");
    rows
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

/// The tests that a column names.
fn named(rows: &[Vec<String>], column: usize) -> BTreeSet<String> {
    rows.iter().flat_map(|row| row[column].split_whitespace()).map(str::to_owned).collect()
}

#[test]
fn each_test_that_the_tables_name_exists() {
    let tests = tests();
    assert!(tests.len() > 100, "{}", tests.len());
    for (table, column) in [("rules.tsv", 3), ("peers.tsv", 2)] {
        let named = named(&rows(table), column);
        let unknown: Vec<_> = named.difference(&tests).collect();
        assert!(named.len() > 30 && unknown.is_empty(), "{table} names what is no test: {unknown:?}");
    }
}

#[test]
fn each_test_of_a_peer_is_in_the_table_of_peers() {
    let named = named(&rows("peers.tsv"), 2);
    let peers = |name: &String| name.starts_with("kube_runtime_") || name.starts_with("controller_runtime_");
    let missing: Vec<_> = tests().into_iter().filter(peers).filter(|name| !named.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn each_rule_has_a_row_and_each_test_of_a_rule_is_in_it() {
    let (rows, tests) = (rows("rules.tsv"), tests());
    for n in 1..=16 {
        let row: Vec<_> = rows.iter().filter(|row| row[0] == format!("K{n}")).cloned().collect();
        assert_eq!(row.len(), 1, "K{n} has no row");
        let named = named(&row, 3);
        assert!(!named.is_empty(), "K{n} has no test");
        let of_it = |name: &&String| name.starts_with(&format!("k{n}_"));
        let missing: Vec<_> = tests.iter().filter(of_it).filter(|name| !named.contains(*name)).collect();
        assert!(missing.is_empty(), "K{n} has more tests: {missing:?}");
    }
}

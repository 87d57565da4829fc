//! Files that a crate on crates.io must have in addition to its sources.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The folders of the crates that are published: all in `crates`.
fn published() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("crates")).expect("the folder of the crates");
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    folders.sort();
    assert!(!folders.is_empty());
    folders
}

#[test]
fn every_published_crate_has_both_licences() {
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let text = read(&root().join(licence));
        for folder in published() {
            let copy = folder.join(licence);
            assert!(read(&copy) == text, "{} differs from the licence of the repository", copy.display());
        }
    }
}

#[test]
fn every_published_crate_has_a_readme_and_says_what_it_is() {
    for folder in published() {
        let manifest = read(&folder.join("Cargo.toml"));
        let of_the_repository = manifest.contains("\nreadme = \"../../README.md\"\n");
        assert!(
            of_the_repository || folder.join("README.md").is_file(),
            "{} has no README.md",
            folder.display()
        );
        for field in [
            "description = ",
            "license.workspace = true",
            "repository.workspace = true",
            "rust-version.workspace = true",
        ] {
            assert!(manifest.contains(field), "{}: Cargo.toml has no {field}", folder.display());
        }
    }
}

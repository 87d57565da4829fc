//! The repository's documents: their maximum sizes, that their links lead to something, and that README's
//! commands and figures are those that are run and measured.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All Markdown files, by their paths from the root. Of a file with several names each name but the links counts.
fn documents() -> Vec<String> {
    let (mut folders, mut files) = (vec![PathBuf::new()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder of the repository") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("a name in UTF-8");
            let kind = entry.file_type().expect("a kind");
            let path = folder.join(&name);
            if kind.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if kind.is_file() && name.ends_with(".md") {
                files.push(path.to_str().expect("a name in UTF-8").to_owned());
            }
        }
    }
    files.sort();
    files
}

/// The text without fenced code, and the fenced code.
fn parts(text: &str) -> (String, String) {
    let (mut prose, mut code, mut fenced) = (String::new(), String::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let part = if fenced { &mut code } else { &mut prose };
        part.push_str(line);
        part.push('\n');
    }
    (prose, code)
}

/// The link targets: the text in the parentheses behind `](`.
fn links(prose: &str) -> Vec<String> {
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// A heading's anchor, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.map(|it| if it == ' ' { '-' } else { it }).collect()
}

fn anchors(path: &str) -> BTreeSet<String> {
    parts(&read(path)).0.lines().filter(|line| line.starts_with('#')).map(anchor).collect()
}

#[test]
fn documents_are_no_longer_than_they_may_be() {
    let limits = [
        ("README.md", 8_500),
        ("ARCHITECTURE.md", 15_000),
        ("CHANGELOG.md", 3_500),
        ("CONTRIBUTING.md", 5_800),
        ("bench/README.md", 9_000),
        ("bench/RESULTS.md", 4_500),
        ("docs/DECISIONS.md", 10_600),
        ("docs/ENGINES.md", 15_500),
        ("docs/EXPERIMENTS.md", 9_200),
        ("verify/README.md", 5_300),
    ];
    let size = |path: &String| (read(path).len(), path.clone());
    let mut sizes: Vec<(usize, String)> = documents().iter().map(size).collect();
    for (path, limit) in limits {
        let (size, _) =
            sizes.iter().find(|(_, it)| it == path).unwrap_or_else(|| panic!("there is no {path}"));
        assert!(*size <= limit, "{path} has {size} bytes, and may have {limit}: replace, do not append");
    }
    let total: usize = sizes.iter().map(|(size, _)| size).sum();
    sizes.sort();
    let largest: Vec<_> = sizes.iter().rev().take(8).collect();
    assert!(
        total <= 220_500,
        "all Markdown has {total} bytes, and may have 220,500; the largest: {largest:?}"
    );
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut wrong = Vec::new();
    for path in documents() {
        let folder = Path::new(&path).parent().expect("a folder").to_owned();
        for link in links(&parts(&read(&path)).0) {
            // links of rustdoc name items
            let item = link.contains("::")
                || link.starts_with("crate")
                || !link.starts_with('#') && !link.contains(['/', '.']);
            if link.contains("://") || item {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { folder.join(file).display().to_string() };
            let there = root().join(&target).exists();
            let headed = heading.is_empty()
                || (target.ends_with(".md") && there && anchors(&target).contains(heading));
            if !there || !headed {
                wrong.push(format!("{path}: {link}"));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

#[test]
fn what_documents_tell_to_run_is_there() {
    // a program of the repository, at the beginning of a command
    let folders = ["verify/", "bench/", "docs/", "kube/", ".ci/"];
    let mut wrong = Vec::new();
    for path in documents() {
        let (prose, code) = parts(&read(&path));
        let spans = prose.split('`').skip(1).step_by(2);
        let lines = code.lines().map(|line| line.trim_start_matches("$ "));
        for command in spans.chain(lines) {
            let program = command.split_whitespace().next().unwrap_or_default();
            let named = folders.iter().any(|folder| program.starts_with(folder));
            let pattern = program.contains(['*', '…', '{', '<', ':']) || program.ends_with(['/', ',']);
            if named
                && !pattern
                && ![root(), root().join(Path::new(&path).parent().expect("a folder"))]
                    .iter()
                    .any(|folder| folder.join(program).exists())
            {
                wrong.push(format!("{path}: {program}"));
            }
        }
    }
    assert!(wrong.is_empty(), "named, and not there:\n{}", wrong.join("\n"));
}

/// The lines of README's first block of shell: what sets everything up on a fresh machine.
fn commands() -> Vec<String> {
    let readme = read("README.md");
    let (_, rest) = readme.split_once("\n```sh\n").expect("a block of shell");
    let (block, _) = rest.split_once("```").expect("its end");
    block.lines().map(str::to_owned).collect()
}

/// The first of them is tried by `tests/e2e` of the command.
#[test]
fn readmes_two_commands_are_what_is_run() {
    let commands = commands();
    assert_eq!(commands.len(), 2, "{commands:?}");
    let install = "cargo install --locked --path crates/requeue-cli && git ls-files | requeue run ";
    assert!(commands[0].starts_with(install), "{}", commands[0]);
    let ci = read(".ci/run");
    assert!(ci.lines().any(|line| line == commands[1]), "`{}` is no line of .ci/run", commands[1]);
}

#[test]
fn readmes_picture_is_on_its_first_screen_and_is_drawn_by_a_script_of_the_repository() {
    let readme = read("README.md");
    let first: String = readme.lines().take(12).collect();
    let pictures: Vec<String> = links(&first).into_iter().filter(|link| link.ends_with(".svg")).collect();
    let [picture] = &pictures[..] else { panic!("one picture in the first twelve lines: {pictures:?}") };
    assert!(read(picture).contains("prefers-color-scheme"), "{picture} is for light pages only");
    let script = Path::new(picture).with_file_name("run").display().to_string();
    assert!(read(&script).contains(picture.as_str()), "{script} does not write {picture}");
    assert!(readme.contains(&format!("({script})")), "README.md does not say what draws {picture}");
}

#[test]
fn the_figures_of_readme_are_those_of_the_last_run() {
    let (readme, results) = (read("README.md"), read("bench/RESULTS.md"));
    let rows: Vec<&str> = readme.lines().filter(|line| line.ends_with("x |")).collect();
    assert!(rows.len() >= 6, "{rows:?}");
    for row in rows {
        assert!(results.lines().any(|line| line == row), "bench/RESULTS.md has another row than:\n{row}");
    }
    let (_, machine) = readme.split_once("commit ").expect("the commit that was measured");
    let commit: String = machine.chars().take_while(char::is_ascii_hexdigit).collect();
    assert!(commit.len() >= 7 && results.contains(&format!("commit {commit}")), "{commit} was not measured");
}

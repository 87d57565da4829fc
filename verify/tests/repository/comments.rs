//! Doc comments begin with what the item is or does. Those that begin with one of [`REFUSED`] make the reader guess.

use std::fs;
use std::path::{Path, PathBuf};

/// First words of doc comments that are refused.
const REFUSED: [&str; 8] = ["The same", "So many", "Whoever", "Those who", "Who", "What", "As", "Apart"];

/// A doc comment: where it is, its lines, and the line of its item.
struct Comment {
    place: String,
    lines: Vec<String>,
    item: String,
}

fn sources(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name != "target" && !name.starts_with('.') {
                sources(&path, into);
            }
        } else if path.extension().is_some_and(|it| it == "rs") {
            into.push(path);
        }
    }
}

fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text =
        line.strip_prefix("///").filter(|it| !it.starts_with('/')).or_else(|| line.strip_prefix("//!"))?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

fn comments_of(place: &str, text: &str) -> Vec<Comment> {
    let (mut comments, mut lines): (Vec<Comment>, Vec<String>) = (Vec::new(), Vec::new());
    for (number, line) in text.lines().chain([""]).enumerate() {
        if let Some(text) = doc(line) {
            lines.push(text.to_owned());
        } else if !lines.is_empty() {
            let place = format!("{place}:{}", number + 1 - lines.len());
            comments.push(Comment { place, lines: std::mem::take(&mut lines), item: line.trim().to_owned() });
        }
    }
    comments
}

/// The doc comments of all crates.
fn comments() -> Vec<Comment> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in ["crates", "kube", "verify", "bench", "examples"] {
        sources(&root.join(folder), &mut files);
    }
    files.sort();
    let comments: Vec<Comment> = files
        .iter()
        .flat_map(|file| {
            let place = file.strip_prefix(&root).expect("it is below").to_string_lossy().into_owned();
            comments_of(&place, &fs::read_to_string(file).expect("a source"))
        })
        .collect();
    assert!(comments.len() > 5_000, "only {} doc comments were found", comments.len());
    comments
}

fn is_refused(comment: &Comment) -> bool {
    let begins = |words: &&str| {
        let rest = comment.lines[0].strip_prefix(words);
        rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    REFUSED.iter().any(begins)
}

#[test]
fn doc_comments_begin_with_what_the_item_is_or_does() {
    let refused: Vec<String> = comments().into_iter().filter(is_refused).map(|it| it.place).collect();
    assert!(
        refused.is_empty(),
        "begin with what the item is or does, not with {REFUSED:?}:\n{}",
        refused.join("\n")
    );
}

#[test]
fn a_refused_beginning_is_seen() {
    let text = "/// What it is.\nfn a() {}\n\n/// Whether.\n/// What\nfn b() {}\n    //! As said.\n//// What";
    let comments = comments_of("f", text);
    let places: Vec<&str> = comments.iter().filter(|it| is_refused(it)).map(|it| it.place.as_str()).collect();
    assert_eq!((comments.len(), places), (3, vec!["f:1", "f:7"]));
}

/// Prints fifty random doc comments, to be read aloud: none should need a second reading.
#[test]
#[ignore = "for a reader: cargo test -p requeue-verify --test repository -- --ignored --nocapture"]
fn fifty_random_doc_comments() {
    let mut comments = comments();
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as u64;
    let mut random = now | 1;
    for _ in 0..50 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let Comment { place, lines, item } = comments.swap_remove((random >> 33) as usize % comments.len());
        println!("{place}\n    {}\n  | {item}\n", lines.join("\n    "));
    }
}

//! Doc comments begin with what the item is or does. Those that begin with one of [`REFUSED`] make the reader guess,
//! and so do the words of [`UNUSUAL`] in any comment.

use std::fs;
use std::path::{Path, PathBuf};

/// First words of doc comments that are refused.
const REFUSED: [&str; 9] =
    ["The same", "So many", "Whoever", "Those who", "Who", "What", "As", "Apart", "How many"];

/// Words that are refused in all comments, each with the usual ones. A word that ends in a letter is refused as a whole
/// word.
const UNUSUAL: [(&str, &str); 16] = [
    ("at the most", "at most"),
    ("whoever", "the caller, the thread, the process"),
    ("Users' code:", "Calls user code"),
    ("Users' code;", "Calls user code"),
    ("Users' code.", "Calls user code"),
    ("Not under the lock", "Must not be called under the lock"),
    ("Not under any lock", "Must not be called under a lock"),
    ("Not under the queue's lock", "Must not be called under the queue's lock"),
    ("stand in line", "are in line"),
    ("stands in line", "is in line"),
    ("stood in line", "was in line"),
    ("goes next", "is next"),
    (", which is there", "must exist"),
    (", which are there", "must exist"),
    ("number may be anything", "any number is allowed"),
    ("has its place still", "the caller must clear its place"),
];

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

/// The text of a line's comment, of any kind. Empty if the line has none.
fn comment(line: &str) -> &str {
    let text = line.split_once("//").map_or("", |(_, text)| text);
    text.trim_start_matches(['/', '!']).trim()
}

/// The comments with unusual words, or that begin with "what", which a reader must complete: the place of each, and the
/// usual words. This file, which names them, is left out.
fn unusual(place: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut before = "";
    for (number, line) in text.lines().enumerate().filter(|_| place != "verify/tests/repository/comments.rs")
    {
        let here = comment(line);
        // a sentence may go on in the next line
        let joined = format!("{before} {here}");
        let has = |words: &str| {
            let ends =
                |rest: &str| !words.ends_with(char::is_alphabetic) || !rest.starts_with(char::is_alphabetic);
            let at = |text: &str| text.match_indices(words).any(|(at, _)| ends(&text[at + words.len()..]));
            at(&joined) && !at(before)
        };
        let begins = before.is_empty() && line.trim_start().starts_with("// ");
        if begins && ["what ", "What ", "Who ", "who "].iter().any(|words| here.starts_with(words)) {
            found.push(format!("{place}:{}: name the thing first", number + 1));
        }
        let usual = UNUSUAL.iter().filter(|(words, _)| has(words) || has(&capital(words)));
        found.extend(usual.map(|(words, usual)| format!("{place}:{}: {words}: say {usual}", number + 1)));
        before = here;
    }
    found
}

fn capital(words: &str) -> String {
    let (first, rest) = words.split_at(1);
    first.to_uppercase() + rest
}

/// All sources: where each is, and its text.
fn texts() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in ["crates", "kube", "verify", "bench", "examples"] {
        sources(&root.join(folder), &mut files);
    }
    files.sort();
    let place = |file: &Path| file.strip_prefix(&root).expect("it is below").to_string_lossy().into_owned();
    files.iter().map(|file| (place(file), fs::read_to_string(file).expect("a source"))).collect()
}

/// The doc comments of all crates.
fn comments() -> Vec<Comment> {
    let comments: Vec<Comment> = texts().iter().flat_map(|(place, text)| comments_of(place, text)).collect();
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
fn comments_use_the_usual_words() {
    let found: Vec<String> = texts().iter().flat_map(|(place, text)| unusual(place, text)).collect();
    assert!(found.is_empty(), "use the usual words:\n{}", found.join("\n"));
}

#[test]
fn unusual_words_are_seen() {
    let seen = |text: &str| unusual("f", text).len();
    for (words, _) in UNUSUAL {
        assert_eq!(seen(&format!("/// It {words} end.\nfn a() {{}}")), 1, "{words}");
    }
    let text = "let a = 1; // Whoever comes\n\n    // what is left\n// what follows\n/// Five at the\n/// most.\n// somewhat";
    let places: Vec<String> = unusual("f", text).iter().map(|it| it[..3].to_owned()).collect();
    assert_eq!(places, ["f:1", "f:3", "f:6"]);
    assert_eq!(seen("/// At the mostly dry end, who knows what.\nlet whoever = 1;\n// Whatever."), 0);
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

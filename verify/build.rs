//! Lists the functions of the suites, so that each queue, worker or engine under test gets a `#[test]` of each:
//! a function is registered where it is written.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// A suite: its folder, which is its macro's name too; what stands between the name and the body of a function
/// that is a test; and the macro that makes a test of one.
const SUITES: [(&str, &[&str], &str); 3] = [
    ("suite", &["<A: Adapter>() {"], "queue_test"),
    ("workers", &["<F: Front>() {"], "worker_test"),
    ("engines", &["<E: Engine>(engine: E) {", "<E: Grouped>(engine: E) {"], "engine_test"),
];

fn main() {
    let mut macros = String::new();
    for (suite, generics, test) in SUITES {
        let folder = Path::new("src").join(suite);
        println!("cargo::rerun-if-changed={}", folder.display());
        let (mut all, mut each) = (String::new(), String::new());
        for file in files(&folder) {
            let module = file.file_stem().and_then(|name| name.to_str()).expect("a name in UTF-8");
            let text = fs::read_to_string(&file).expect("a file of this crate");
            let mut tests = String::new();
            for function in text.lines().filter_map(|line| line.strip_prefix("pub fn ")) {
                let name = generics.iter().find_map(|generics| function.strip_suffix(generics));
                // modules above may have functions of other kinds
                let Some(name) = name else {
                    assert_eq!(module, "mod", "not the form of a test of this suite: {function}");
                    continue;
                };
                write!(tests, "$crate::{test}!($subject, {module}, {name});").expect("a string");
            }
            if !tests.is_empty() {
                write!(all, "$crate::{suite}!($subject, {module});").expect("a string");
                write!(each, "($subject:ty, {module}) => {{ {tests} }};").expect("a string");
            }
        }
        write!(
            macros,
            "/// Makes a test of each function of `{suite}`, or of each of these files.\n\
             #[macro_export] macro_rules! {suite} {{ ($subject:ty) => {{ {all} }}; {each}\
             ($subject:ty, $($file:ident)+) => {{ $($crate::{suite}!($subject, $file);)+ }}; }}\n"
        )
        .expect("a string");
    }
    let out = env::var_os("OUT_DIR").expect("cargo runs this");
    fs::write(PathBuf::from(out).join("suites.rs"), macros).expect("a file in the target directory");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of this crate");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

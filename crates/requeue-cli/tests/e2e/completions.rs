//! The completions that are checked in, in a real bash.

use std::path::Path;
use std::process::Command;

/// The completions of bash for the last word of this line.
fn offered(words: &[&str]) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("completions/requeue.bash");
    // As bash does it when Tab is pressed. The builtin that only works then is shadowed.
    let code = r#"
        compopt() { :; }
        source "$0" || exit 1
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        _requeue requeue "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" || exit 1
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let output = Command::new("bash").args(["--norc", "-c", code]).arg(script).args(words).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && err.is_empty(), "{words:?}: {err}");
    let mut offered: Vec<String> =
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    offered.sort();
    offered.dedup();
    offered
}

#[test]
fn bash_offers_subcommands_options_values_and_limiters() {
    let everything = offered(&["requeue", ""]);
    for word in ["run", "plan", "help", "--version"] {
        assert!(everything.iter().any(|offer| offer == word), "{word}: {everything:?}");
    }
    assert_eq!(offered(&["requeue", "pl"]), ["plan"]);
    assert_eq!(offered(&["requeue", "run", "--fa"]), ["--fail-fast", "--failed-to", "--fatal-code"]);
    assert_eq!(offered(&["requeue", "run", "--log", ""]), ["json", "off", "text"]);
    assert_eq!(offered(&["requeue", "plan", "de"]), ["default", "default-per-item"]);
    assert_eq!(offered(&["requeue", "plan", "max-of", "b"]), ["bucket"]);
    assert_eq!(offered(&["requeue", "plan", "bucket", "--bu"]), ["--burst"]);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.to");
    assert_eq!(offered(&["requeue", "plan", "bucket", "--svg", file]), [format!("{file}ml")]);
}

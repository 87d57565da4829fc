//! The machine and versions that a figure must be quoted with.

use crate::plan::Extent;
use crate::run::Programs;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Machine, compilers, commit and versions.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// The compiler and commit of requeue, as its program reports them.
    pub(crate) rustc: String,
    pub(crate) commit: String,
    /// The versions that the Go program and the peers in Rust report.
    pub(crate) versions: Vec<String>,
    pub(crate) date: String,
    /// The machine's load average before the first measurement.
    pub(crate) load: String,
    pub(crate) quick: bool,
    pub(crate) all_peers: bool,
    pub(crate) rounds: usize,
}

/// The crates in the peers' lock file whose versions matter.
const PEERS: [&str; 8] = [
    "async-channel",
    "crossbeam-channel",
    "flume",
    "kanal",
    "kube-runtime",
    "parking_lot",
    "tokio",
    "tokio-util",
];

impl Machine {
    pub(crate) fn look(root: &Path, programs: &Programs, extent: Extent, rounds: usize) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let processor = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let mut versions = Vec::new();
        if let Some(go) = &programs.go {
            versions.extend(said(Command::new(go).arg("version")).lines().map(str::to_string));
        }
        if programs.rust.is_some() {
            let lock = std::fs::read_to_string(root.join("bench/peers/Cargo.lock")).unwrap_or_default();
            versions.extend(locked(&lock));
        }
        let built = programs.ours.as_ref().map(|ours| said(Command::new(ours).arg("version")));
        let (commit, rustc) = parts(built.as_deref().unwrap_or_default());
        Self {
            processor: processor.map_or("unknown", |(_, name)| name).to_string(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            rustc,
            commit,
            versions,
            date: said(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"])),
            load: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_string(),
            quick: extent.quick,
            all_peers: extent.all_peers,
            rounds,
        }
    }
}

/// Output of a command; empty if it cannot be run.
fn said(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_string()
}

/// The checkout that is worked in, whichever one this program was built from; that
/// one where there is none.
pub(crate) fn checkout() -> PathBuf {
    match said(Command::new("git").args(["rev-parse", "--show-toplevel"])) {
        root if !root.is_empty() && Path::new(&root).join("bench/peers").is_dir() => root.into(),
        _ => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.."),
    }
}

/// The commit and the compiler in the output of `requeue-bench version`.
fn parts(built: &str) -> (String, String) {
    let (commit, rustc) = built.split_once("; ").unwrap_or((built, "unknown"));
    let commit = if commit.is_empty() { "unknown" } else { commit };
    (commit.to_string(), rustc.to_string())
}

/// The versions of the peers in a lock file.
fn locked(lock: &str) -> Vec<String> {
    let lines: Vec<_> = lock.lines().collect();
    let version = |pair: &[&str]| {
        let name = pair[0].strip_prefix("name = \"")?.strip_suffix('"')?;
        let version = pair[1].strip_prefix("version = \"")?.strip_suffix('"')?;
        PEERS.contains(&name).then(|| format!("{name} {version}"))
    };
    lines.windows(2).filter_map(version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_says_what_it_was_built_from() {
        let pair = |commit: &str, rustc: &str| (commit.to_string(), rustc.to_string());
        assert_eq!(
            parts("0a1b2c, changed since; rustc 1.95.0 (x)"),
            pair("0a1b2c, changed since", "rustc 1.95.0 (x)")
        );
        assert_eq!(parts(""), pair("unknown", "unknown"));
    }

    #[test]
    fn versions_are_read_from_a_lock_file() {
        let lock = "[[package]]\nname = \"flume\"\nversion = \"0.11.1\"\n\n[[package]]\nname = \"libc\"\nversion = \"1\"\n";
        assert_eq!(locked(lock), ["flume 0.11.1"]);
    }
}

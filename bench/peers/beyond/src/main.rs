//! Plays the same scenarios with requeue, kube-runtime and, where Go is there, client-go and
//! controller-runtime's priority queue, all in virtual time; writes a table and pictures.
//!
//! ```text
//! requeue-beyond OUT-DIRECTORY [GO-TEST-PROGRAM]
//! ```

mod chart;
mod kube;
mod ours;
mod page;
mod script;

use script::{Ran, Script};
use std::error::Error;
use std::path::Path;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let out = args.next().ok_or("usage: requeue-beyond OUT-DIRECTORY [GO-TEST-PROGRAM]")?;
    let (out, scripts) = (Path::new(&out), script::all());
    let mut ran = Vec::new();
    match args.next() {
        Some(go) => ran.extend(play_go(Path::new(&go), &scripts)?),
        None => eprintln!("without Go there are no figures of client-go and controller-runtime"),
    }
    for script in &scripts {
        ran.push(paused(async { Ok(kube::play(script).await) })?);
        for (with, name) in choices(script) {
            ran.push(paused(ours::play(script, with, name))?);
        }
    }
    std::fs::create_dir_all(out)?;
    page::write(out, &scripts, &ran)
}

/// The builds of requeue for a scenario; several if they are the question.
fn choices(script: &Script) -> Vec<(ours::With, &'static str)> {
    use ours::With;
    match script.name {
        "tenants" => vec![(With::Nothing, "requeue, as in Go"), (With::Groups, "requeue, group_by")],
        "urgent" => vec![(With::Priorities, "requeue, priorities")],
        "echo" => vec![(With::Nothing, "requeue, as in Go"), (With::Respect, "requeue, InBackoff::Respect")],
        name if name.starts_with("debounce") => vec![(With::Debounce, "requeue, latest(max)")],
        _ => vec![(With::Nothing, "requeue")],
    }
}

/// Runs it on a runtime of one thread, whose time advances when nothing else can run.
fn paused(play: impl Future<Output = Result<Ran, Box<dyn Error>>>) -> Result<Ran, Box<dyn Error>> {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(play)
}

fn play_go(program: &Path, scripts: &[Script]) -> Result<Vec<Ran>, Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("requeue-beyond-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (given, ran) = (folder.join("scripts.json"), folder.join("ran.json"));
    std::fs::write(&given, serde_json::to_vec(scripts)?)?;
    let mut go = Command::new(program);
    go.args(["-test.run", "^TestBeyond$", "-test.timeout", "20m"]);
    let status = go.env("BEYOND_SCRIPTS", &given).env("BEYOND_RAN", &ran).status()?;
    let ran = std::fs::read(&ran);
    std::fs::remove_dir_all(&folder)?;
    if !status.success() {
        return Err(format!("the program in Go ended with {status}").into());
    }
    Ok(serde_json::from_slice(&ran?)?)
}

//! `requeue-guard RESULTS BASELINE [--bless]`: compares what the harness printed
//! with the baseline, or makes it the baseline of this compiler.

use std::process::{Command, ExitCode};
use std::{env, fs};

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("guard: {what}");
            ExitCode::from(2)
        }
    }
}

/// Whether all is well.
fn run() -> Result<bool, String> {
    let args: Vec<String> = env::args().skip(1).collect();
    let (results, path, bless) = match &args[..] {
        [results, path] => (results, path, false),
        [results, path, flag] if flag == "--bless" => (results, path, true),
        _ => return Err("usage: requeue-guard RESULTS BASELINE [--bless]".to_owned()),
    };
    let open = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
    let measured = requeue_guard::figures(&open(results)?)?;
    let mut baseline = requeue_guard::read(&open(path)?)?;
    let compiler = compiler()?;
    let verdict = requeue_guard::compare(&compiler, &measured, &baseline);
    print!("{}", verdict.report);
    if bless {
        baseline.insert(compiler.clone(), measured);
        fs::write(path, requeue_guard::write(&baseline)).map_err(|e| format!("{path}: {e}"))?;
        println!("Blessed: these are the baseline of {compiler} now.");
    }
    Ok(bless || !verdict.red)
}

/// The compiler that cargo uses here, as `1.95.0 x86_64-unknown-linux-gnu`.
fn compiler() -> Result<String, String> {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let said = Command::new(&rustc).arg("-vV").output().map_err(|e| format!("{rustc}: {e}"))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let field = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    match (field("release:"), field("host:")) {
        (Some(release), Some(host)) => Ok(format!("{release} {host}")),
        _ => Err(format!("{rustc} -vV does not say what it is")),
    }
}

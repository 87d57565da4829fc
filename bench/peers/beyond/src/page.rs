//! The results: the figures as CSV, and the pictures.

use crate::chart::{bars, strips};
use crate::script::{Ran, Script, counts, percentile, waits};
use std::error::Error;
use std::fmt::Write;
use std::path::Path;

struct Found<'a> {
    scripts: &'a [Script],
    ran: &'a [Ran],
}

impl<'a> Found<'a> {
    fn script(&self, name: &str) -> Result<&'a Script, String> {
        self.scripts.iter().find(|script| script.name == name).ok_or(format!("there is no scenario {name}"))
    }

    /// The runs of a queue, in the order in which they were played.
    fn of(&self, name: &str) -> impl Iterator<Item = &'a Ran> {
        self.ran.iter().filter(move |ran| ran.script == name)
    }
}

/// Milliseconds as a reader wants them.
fn time(ms: f64) -> String {
    if ms >= 1_000.0 { format!("{:.1} s", ms / 1e3) } else { format!("{ms:.0} ms") }
}

/// A line of the figures.
fn line(text: &mut String, scenario: &str, queue: &str, figure: &str, value: &str) {
    let _ = writeln!(text, "{scenario},\"{queue}\",{figure},\"{value}\"");
}

/// Writes `results.csv` and the pictures.
pub(crate) fn write(out: &Path, scripts: &[Script], ran: &[Ran]) -> Result<(), Box<dyn Error>> {
    let found = Found { scripts, ran };
    let mut text = String::from("scenario,queue,figure,value\n");
    let said = std::env::var("BEYOND_BUILT").unwrap_or_else(|_| "commit and versions unknown".into());
    line(&mut text, "all", "all", "built", &said);
    overload(&found, out, &mut text)?;
    urgent(&found, out, &mut text)?;
    tenants(&found, out, &mut text)?;
    echo(&found, out, &mut text)?;
    debounce(&found, out, &mut text)?;
    Ok(std::fs::write(out.join("results.csv"), text)?)
}

fn overload(found: &Found<'_>, out: &Path, text: &mut String) -> Result<(), Box<dyn Error>> {
    for (name, load) in [("overload-2x", "2x"), ("overload-4x", "4x")] {
        let script = found.script(name)?;
        let mut rows = Vec::new();
        for ran in found.of(name) {
            let (counts, waits) = (counts(script, ran), waits(script, ran, 0..script.keys));
            let never = counts.iter().filter(|count| **count == 0).count();
            let (least, most) = (counts.iter().min().unwrap_or(&0), counts.iter().max().unwrap_or(&0));
            let longest = time(waits.last().copied().unwrap_or(0.0));
            line(text, name, &ran.queue, "keys of 200 that never ran", &never.to_string());
            line(text, name, &ran.queue, "runs of a key", &format!("{least} to {most}"));
            line(text, name, &ran.queue, "longest wait", &longest);
            rows.push((ran.queue.as_str(), never as f64, format!("{never} of 200; longest wait {longest}")));
        }
        let title = format!("Keys that never run at {load} overload");
        bars(&out.join(format!("{name}.svg")), &title, "200 keys, one worker, a minute", &rows, None)?;
    }
    Ok(())
}

fn urgent(found: &Found<'_>, out: &Path, text: &mut String) -> Result<(), Box<dyn Error>> {
    let script = found.script("urgent")?;
    let mut rows = Vec::new();
    for ran in found.of("urgent") {
        let waits = waits(script, ran, script.keys - 1..script.keys);
        let wait = waits.last().copied().unwrap_or(f64::NAN);
        line(text, "urgent", &ran.queue, "the urgent key waits", &time(wait));
        rows.push((ran.queue.as_str(), wait, time(wait)));
    }
    let below = "100,000 keys are ready, 2 ms a run; the urgent one comes after 10 s. By powers of ten";
    bars(&out.join("urgent.svg"), "How long one urgent key waits", below, &rows, Some(0.5))?;
    Ok(())
}

fn tenants(found: &Found<'_>, out: &Path, text: &mut String) -> Result<(), Box<dyn Error>> {
    let script = found.script("tenants")?;
    let mut rows = Vec::new();
    for ran in found.of("tenants") {
        let waits = waits(script, ran, script.tenants[0]..script.keys);
        let (p50, p99, most) = (percentile(&waits, 0.5), percentile(&waits, 0.99), percentile(&waits, 1.0));
        for (figure, wait) in [("p50", p50), ("p99", p99), ("longest", most)] {
            line(text, "tenants", &ran.queue, &format!("the others wait {figure}"), &time(wait));
        }
        rows.push((ran.queue.as_str(), p99, time(p99)));
    }
    let below = "two tenants with 10 triggers a second each beside one with 1,000; 200 runs a second. By powers of ten";
    bars(&out.join("tenants.svg"), "How long the quiet tenants wait, p99", below, &rows, Some(1.0))?;
    Ok(())
}

fn echo(found: &Found<'_>, out: &Path, text: &mut String) -> Result<(), Box<dyn Error>> {
    let mut rows = Vec::new();
    for ran in found.of("echo") {
        line(text, "echo", &ran.queue, "runs in 12 s", &ran.runs.len().to_string());
        rows.push((ran.queue.as_str(), ran.runs.iter().map(|(_, at)| at / 1e3).collect()));
    }
    let below = "back-off from 5 ms, doubled by each failure: 12 runs are due in 12 s. Its own events come after 250 ms";
    strips(
        &out.join("echo.svg"),
        "A key whose runs fail, and which writes its own object",
        below,
        12,
        &rows,
    )?;
    Ok(())
}

fn debounce(found: &Found<'_>, out: &Path, text: &mut String) -> Result<(), Box<dyn Error>> {
    for (burst, endless) in found.of("debounce-burst").zip(found.of("debounce-endless")) {
        let first = burst.runs.first().map_or("never".into(), |(_, at)| time(*at));
        line(text, "debounce-burst", &burst.queue, "runs of a burst of 3 s", &burst.runs.len().to_string());
        line(text, "debounce-burst", &burst.queue, "the first of them at", &first);
        line(text, "debounce-endless", &endless.queue, "runs in 60 s", &endless.runs.len().to_string());
    }
    for (name, seconds, title) in [
        ("debounce-burst", 6, "Debounce: triggers for 3 s, one each 100 ms"),
        ("debounce-endless", 60, "Debounce: triggers without end, one each 100 ms"),
    ] {
        let rows: Vec<_> = found
            .of(name)
            .map(|ran| (ran.queue.as_str(), ran.runs.iter().map(|(_, at)| at / 1e3).collect()))
            .collect();
        let below = "to run after a second without a trigger, at the latest after five (kube has no maximum; Go: AddAfter)";
        strips(&out.join(format!("{name}.svg")), title, below, seconds, &rows)?;
    }
    Ok(())
}

//! The summary: what was done, and the keys with problems.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::config::Form;
use crate::report::log::reason;
use crate::report::outcome::Failure;
use crate::report::run_stats::{GaveUp, RunStats};
use crate::text::json::Object;
use crate::text::{duration, show};

/// Maximum number of keys that the text lists.
const NAMED: usize = 10;

#[derive(Debug)]
pub(crate) struct Summary<'a> {
    pub(crate) run_stats: &'a RunStats,
    /// All keys came from an engine: this process does not know what was added there, and how often.
    pub(crate) works: bool,
    /// The engine is a server: remaining keys are for other processes.
    pub(crate) on_server: bool,
    pub(crate) gave_up: &'a [GaveUp],
    /// Number of further keys that gave up, which are not kept.
    pub(crate) beyond: usize,
    /// The file of `--failed-to` could not be written.
    pub(crate) failed_to_lacks: bool,
    pub(crate) left: usize,
    pub(crate) unread: bool,
    pub(crate) took: Duration,
    pub(crate) status: u8,
}

impl Summary<'_> {
    /// The lines of the summary, with their newlines; empty if there is none.
    pub(crate) fn render(&self, form: Form) -> String {
        match form {
            Form::Text => self.text(),
            Form::Json => self.json(),
            Form::Off => String::new(),
        }
    }

    /// Number of keys that gave up.
    fn all(&self) -> usize {
        self.gave_up.len() + self.beyond
    }

    fn text(&self) -> String {
        let t = self.run_stats;
        let (keys, triggers) = (counted(&t.keys, "key", "keys"), counted(&t.triggers, "trigger", "triggers"));
        let coalesced = format!("{} coalesced", read(&t.coalesced));
        let left = format!("{} left", self.left);
        let parts = [
            (!self.works, keys),
            (!self.works, triggers),
            (true, counted(&t.runs, "run", "runs")),
            (!self.works, coalesced),
            (true, counted(&t.retries, "retry", "retries")),
            (true, format!("{} gave up", self.all())),
            (!self.on_server, left),
            (true, duration::show(self.took)),
        ];
        let parts: Vec<_> =
            parts.into_iter().filter_map(|(is_known, part)| is_known.then_some(part)).collect();
        let mut out = format!("requeue: {}\n", parts.join(", "));
        if read(&t.skipped) > 0 {
            let skipped = counted(&t.skipped, "trigger was", "triggers were");
            let _ = writeln!(out, "requeue: {skipped} skipped: the joblog has their keys as ended well");
        }
        if self.unread && !self.works {
            out.push_str("requeue: the input was not read to its end\n");
        }
        for g in self.gave_up.iter().take(NAMED) {
            let _ = write!(out, "requeue: gave up: {}: {}", show::key(&g.key), g.why);
            let _ = match (&g.why, g.attempts) {
                (Failure::Unpassable(_), _) => writeln!(out),
                (_, 1) => writeln!(out, " (1 attempt)"),
                (_, n) => writeln!(out, " ({n} attempts)"),
            };
        }
        if let Some(more @ 1..) = self.all().checked_sub(NAMED) {
            let all = if self.failed_to_lacks { "" } else { " (--failed-to FILE has all of them)" };
            let _ = writeln!(out, "requeue: and {more} more gave up{all}");
        }
        out
    }

    fn json(&self) -> String {
        let t = self.run_stats;
        let gave_up =
            |g: &GaveUp| reason(Object::new().with_bytes("key", &g.key).with("attempts", g.attempts), &g.why);
        let object = Object::new()
            .with("keys", read(&t.keys))
            .with("triggers", read(&t.triggers))
            .with("runs", read(&t.runs))
            .with("coalesced", read(&t.coalesced))
            .with("skipped", read(&t.skipped))
            .with("retries", read(&t.retries))
            .with("gave_up", self.all())
            .with("left", self.left)
            .with("unread", self.unread)
            .with("wall_seconds", self.took)
            .with("exit_status", self.status)
            .with("gave_up_keys", self.gave_up.iter().map(gave_up).collect::<Vec<_>>());
        format!("{object}\n")
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn counted(counter: &AtomicU64, one: &str, many: &str) -> String {
    match read(counter) {
        1 => format!("1 {one}"),
        n => format!("{n} {many}"),
    }
}

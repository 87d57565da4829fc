//! Keys, groups and counts of a durable queue, as text and as JSON.

use std::io::{self, Write};

use requeue_engine::{Holder, Listed, Status};
use requeue_postgres::{GroupState, Process};

use super::store::{Groups, Limits, Stats, Who};
use crate::text::duration;
use crate::text::json::{Object, Raw};
use crate::text::show::quoted;

/// Adds the counts of a queue to its JSON object.
pub(super) fn counts(queue: Object, stats: &Stats) -> Object {
    let queue = queue
        .with("ready", stats.ready)
        .with("held", stats.held)
        .with("waiting", stats.waiting)
        .with("dead", stats.dead)
        .with("at_least", stats.at_least.clone())
        .with("oldest_ready_seconds", stats.oldest_ready)
        .with("paused", stats.paused);
    let mut queue = match stats.who {
        Who::Runner(pid) => queue.with("runner", pid).with("longest_held_seconds", stats.longest_held),
        Who::Owners(owners, snapshot) => {
            let process = |process: &Process| {
                let object = who(process.who.as_ref()).with("held", process.held);
                object.with("longest_held_seconds", process.longest_held)
            };
            let processes: Vec<_> = stats.processes.iter().map(process).collect();
            queue
                .with("owners", owners)
                .with("processes", processes)
                .with("oldest_snapshot_seconds", snapshot)
        }
    };
    if let Some(Groups { paused, with_rules, cap }) = &stats.groups {
        let groups = Object::new().with("paused", *paused).with("with_rules", *with_rules);
        queue = queue.with("groups", groups.with("cap", cap.filter(is_cap)));
    }
    if let Some(Limits { base_delay, max_delay, rate }) = &stats.limits {
        queue = queue.with("base_delay_seconds", *base_delay).with("max_delay_seconds", *max_delay);
        queue = queue.with("rate", *rate);
    }
    queue
}

/// A rate as people give it to `--rate`, rounded.
fn starts(rate: f64) -> String {
    let in_seconds = [(1.0, "s"), (60.0, "m"), (3_600.0, "h")];
    let (seconds, unit) =
        in_seconds.into_iter().find(|(seconds, _)| rate * seconds >= 1.0).unwrap_or((3_600.0, "h"));
    format!("{}/{unit}", (rate * seconds * 1_000.0).round() / 1_000.0)
}

/// Whether it is a cap: a server's maximum number means any number.
fn is_cap(cap: &usize) -> bool {
    *cap != usize::MAX
}

/// A process as a JSON object.
fn who(holder: Option<&Holder>) -> Object {
    let object = Object::new().with("host", holder.map(|it| &*it.host)).with("pid", holder.map(|it| it.pid));
    object.with("application", holder.map(|it| &*it.application))
}

/// A process in words.
fn by(Holder { host, pid, application, .. }: &Holder) -> String {
    format!("{} process {pid} ({})", quoted(host.as_bytes()), quoted(application.as_bytes()))
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Ready => "ready",
        Status::Waiting => "waiting",
        Status::Dead => "dead",
        Status::Held => "held",
        _ => "idle",
    }
}

pub(super) fn tell(out: &mut dyn Write, key: &Listed, as_json: bool) -> io::Result<()> {
    let Listed { dirty, due_in, failures, priority, age, error, every, schedule, holder, .. } = key;
    let status = word(key.status);
    if as_json {
        let object = Object::new().with_bytes("key", &key.key).with("status", status).with("dirty", *dirty);
        let object = object.with("due_in_seconds", *due_in).with("failures", *failures);
        let object = object.with("attempt", key.attempt).with("priority", *priority);
        let object = object.with("value", key.value.as_deref().map(Raw)).with("age_seconds", *age);
        let object = object.with("error", error.as_deref()).with("every_seconds", *every);
        let object = object.with("schedule", schedule.as_deref());
        return writeln!(out, "{}", object.with("holder", holder.as_ref().map(|it| who(Some(it)))));
    }
    write!(out, "{status:7} {}", quoted(&key.key))?;
    if let Some(holder) = holder {
        write!(out, "  for {} by {}", duration::show(*age), by(holder))?;
    }
    if *dirty {
        write!(out, "  once more")?;
    }
    if let Some(due) = due_in.filter(|due| !due.is_zero()) {
        write!(out, "  due in {}", duration::show(due))?;
    }
    if let Some(every) = every {
        write!(out, "  every {}", duration::show(*every))?;
    }
    if let Some(schedule) = schedule {
        write!(out, "  {schedule}")?;
    }
    if *failures > 0 {
        write!(out, "  {failures} failed")?;
    }
    if *priority != 0 {
        write!(out, "  priority {priority}")?;
    }
    if let Some(error) = error {
        // one line a key, whatever the error said
        write!(out, "  {}", quoted(error.as_bytes()))?;
    }
    writeln!(out)
}

pub(super) fn tell_group(out: &mut dyn Write, group: &GroupState, as_json: bool) -> io::Result<()> {
    let GroupState { name, paused, weight, cap, .. } = group;
    // its own one, that there is none although others have one, or nothing
    let has_none = *cap == Some(usize::MAX);
    if as_json {
        let object = Object::new().with_bytes("group", name).with("paused", *paused).with("weight", *weight);
        let object = if has_none { object.with("cap", "none") } else { object.with("cap", *cap) };
        return writeln!(out, "{object}");
    }
    write!(out, "{:7} {}", if *paused { "paused" } else { "served" }, quoted(name))?;
    if let Some(weight) = weight {
        write!(out, "  weight {weight}")?;
    }
    match cap {
        Some(_) if has_none => write!(out, "  cap none")?,
        Some(cap) => write!(out, "  cap {cap}")?,
        None => {}
    }
    writeln!(out)
}

/// The counts of a queue, for people.
pub(super) fn tell_counts(out: &mut dyn Write, stats: Stats) -> io::Result<()> {
    writeln!(out, "ready    {}", stats.ready())?;
    writeln!(out, "held     {}", stats.held())?;
    writeln!(out, "waiting  {}", stats.waiting())?;
    writeln!(out, "dead     {}", stats.dead())?;
    let Stats { oldest_ready, paused, who, processes, groups, limits, .. } = stats;
    if let Some(age) = oldest_ready {
        writeln!(out, "oldest   {}", duration::show(age))?;
    }
    writeln!(out, "paused   {}", if paused { "yes" } else { "no" })?;
    match who {
        Who::Runner(pid) => {
            writeln!(out, "runner   {}", pid.map_or("none".to_owned(), |pid| format!("process {pid}")))?;
        }
        Who::Owners(owners, snapshot) => {
            writeln!(out, "owners   {owners}")?;
            for Process { who, held, longest_held, .. } in &processes {
                let who = who.as_ref().map_or("a process of version 1".to_owned(), by);
                let longest =
                    longest_held.map_or(String::new(), |it| format!(", for {} at most", duration::show(it)));
                writeln!(out, "owner    {who}: {held} held{longest}")?;
            }
            if let Some(age) = snapshot {
                writeln!(out, "snapshot {}", duration::show(age))?;
            }
        }
    }
    if let Some(Groups { paused, with_rules, cap }) = groups {
        let cap = cap.filter(is_cap);
        if paused > 0 || with_rules > 0 || cap.is_some() {
            let cap = cap.map_or("no cap".to_owned(), |cap| format!("cap {cap}"));
            writeln!(out, "groups   {paused} paused, {with_rules} with rules of their own, others {cap}")?;
        }
    }
    if let Some(Limits { base_delay, max_delay, rate }) = limits {
        let (base, max) = (duration::show(base_delay), duration::show(max_delay));
        writeln!(out, "back-off {base} to {max}")?;
        if let Some(rate) = rate {
            writeln!(out, "rate     {}", starts(rate))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_rate_is_told_by_the_second_the_minute_or_the_hour() {
        for (rate, told) in
            [(50.0, "50/s"), (1.5, "1.5/s"), (0.5, "30/m"), (20.0 / 3_600.0, "20/h"), (1e-6, "0.004/h")]
        {
            assert_eq!(super::starts(rate), told);
        }
    }
}

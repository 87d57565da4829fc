//! Keys, groups and counts of a durable queue, as text and as JSON.

use std::io::{self, Write};
use std::time::Duration;

use requeue_engine::{Holder, Listed, Status};
use requeue_postgres::{GroupState, Process};

use super::store::{Groups, Limits, Stats, Who};
use crate::text::show::quoted;
use crate::text::{duration, json};

/// The members of a JSON object.
pub(super) fn counts(stats: &Stats) -> String {
    let Stats {
        ready,
        held,
        waiting,
        dead,
        at_least,
        oldest_ready,
        longest_held,
        paused,
        who,
        processes,
        groups,
        limits,
    } = stats;
    let at_least: Vec<_> = at_least.iter().map(|name| json::string(name)).collect();
    let seconds = |age: &Option<Duration>| age.map_or("null".to_owned(), |age| age.as_secs_f64().to_string());
    let member = |process: &Process| {
        let (who, held, longest) =
            (self::who(process.who.as_ref()), process.held, seconds(&process.longest_held));
        format!("{{{who},\"held\":{held},\"longest_held_seconds\":{longest}}}")
    };
    let who = match who {
        Who::Runner(pid) => format!(
            "\"runner\":{},\"longest_held_seconds\":{}",
            pid.map_or("null".to_owned(), |pid| pid.to_string()),
            seconds(longest_held)
        ),
        Who::Owners(owners, snapshot) => {
            let processes: Vec<_> = processes.iter().map(member).collect();
            let processes = processes.join(",");
            format!(
                "\"owners\":{owners},\"processes\":[{processes}],\"oldest_snapshot_seconds\":{}",
                seconds(snapshot)
            )
        }
    };
    let groups = groups.as_ref().map_or(String::new(), |Groups { paused, with_rules, cap }| {
        let cap = cap.filter(is_cap).map_or("null".to_owned(), |cap| cap.to_string());
        format!(",\"groups\":{{\"paused\":{paused},\"with_rules\":{with_rules},\"cap\":{cap}}}")
    });
    let limits = limits.as_ref().map_or(String::new(), |Limits { base_delay, max_delay, rate }| {
        let (base, max) = (base_delay.as_secs_f64(), max_delay.as_secs_f64());
        let rate = rate.map_or("null".to_owned(), |rate| rate.to_string());
        format!(",\"base_delay_seconds\":{base},\"max_delay_seconds\":{max},\"rate\":{rate}")
    });
    format!(
        "\"ready\":{ready},\"held\":{held},\"waiting\":{waiting},\"dead\":{dead},\"at_least\":[{}],\"oldest_ready_seconds\":{},\"paused\":{paused},{who}{groups}{limits}",
        at_least.join(","),
        seconds(oldest_ready)
    )
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

/// A process as members of a JSON object.
fn who(holder: Option<&Holder>) -> String {
    let text = |text: Option<&str>| text.map_or("null".to_owned(), json::string);
    let (host, application) = (holder.map(|it| &*it.host), holder.map(|it| &*it.application));
    let pid = holder.map_or("null".to_owned(), |it| it.pid.to_string());
    format!("\"host\":{},\"pid\":{pid},\"application\":{}", text(host), text(application))
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
    let Listed {
        status,
        dirty,
        due_in,
        failures,
        attempt,
        priority,
        value,
        age,
        error,
        every,
        schedule,
        holder,
        ..
    } = key;
    let status = word(*status);
    if as_json {
        let due = due_in.map_or("null".to_owned(), |due| due.as_secs_f64().to_string());
        let value = value.as_deref().unwrap_or("null");
        let error = error.as_deref().map_or("null".to_owned(), json::string);
        let every = every.map_or("null".to_owned(), |every| every.as_secs_f64().to_string());
        let holder = holder.as_ref().map_or("null".to_owned(), |it| format!("{{{}}}", who(Some(it))));
        let schedule = schedule.as_deref().map_or("null".to_owned(), json::string);
        return writeln!(
            out,
            "{{{},\"status\":\"{status}\",\"dirty\":{dirty},\"due_in_seconds\":{due},\"failures\":{failures},\"attempt\":{attempt},\
             \"priority\":{priority},\"value\":{value},\"age_seconds\":{},\"error\":{error},\"every_seconds\":{every},\"schedule\":{schedule},\"holder\":{holder}}}",
            json::key(&key.key),
            age.as_secs_f64(),
        );
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
    let cap = cap.map(|cap| if cap == usize::MAX { "none".to_owned() } else { cap.to_string() });
    if as_json {
        let weight = weight.map_or("null".to_owned(), |weight| weight.to_string());
        let cap = cap.map_or("null".to_owned(), |cap| if cap == "none" { json::string(&cap) } else { cap });
        let name = json::named("group", name);
        return writeln!(out, "{{{name},\"paused\":{paused},\"weight\":{weight},\"cap\":{cap}}}");
    }
    write!(out, "{:7} {}", if *paused { "paused" } else { "served" }, quoted(name))?;
    if let Some(weight) = weight {
        write!(out, "  weight {weight}")?;
    }
    if let Some(cap) = cap {
        write!(out, "  cap {cap}")?;
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

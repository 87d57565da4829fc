//! Each command but `cancel` and `top`, and the form of their output.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use requeue_engine::{EngineError, Holder, Listed, Status};
use requeue_postgres::{GroupState, Process};

use super::add::{Adding, Broken};
use super::store::{Groups, Limits, Stats, Store, Who};
use super::{cancel, top};
use crate::args::engine::{Add, Command, DEFAULT, Ls, Makes, OneKey, Paused, Place, Queue};
use crate::system::exit::{CLOSED, USAGE, refuse};
use crate::text::duration;
use crate::text::show::{json, json_bytes, json_key, quoted};

/// The reason why a command ends, with its status.
pub(super) enum Ended {
    /// Its output is not read any more.
    Closed,
    With(u8, String),
    /// The engine failed.
    Engine(EngineError),
}

/// The error of a read-only call, without the statement whether anything has changed.
pub(crate) fn plain(e: &EngineError) -> String {
    match e {
        EngineError::NotApplied(why) | EngineError::Unknown(why) => why.to_string(),
        e => e.to_string(),
    }
}

impl From<(u8, String)> for Ended {
    fn from((status, why): (u8, String)) -> Self {
        Self::With(status, why)
    }
}

impl From<EngineError> for Ended {
    fn from(e: EngineError) -> Self {
        Self::Engine(e)
    }
}

/// A failed write of the command's output.
impl From<io::Error> for Ended {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::With(1, format!("standard output: {e}")),
        }
    }
}

/// Opens the engine, and runs `call` with the queue's name. Returns the exit status.
pub(super) fn with(
    queue: &Queue,
    makes: Makes,
    call: impl FnOnce(&mut Store, &str, &mut dyn Write) -> Result<u8, Ended>,
) -> u8 {
    with_engine(&queue.place, makes, |client, out| call(client, &queue.queue, out))
}

/// Opens the engine, and runs `call`. Returns the exit status.
pub(super) fn with_engine(
    place: &Place,
    makes: Makes,
    call: impl FnOnce(&mut Store, &mut dyn Write) -> Result<u8, Ended>,
) -> u8 {
    if let Err(why) = crate::system::stdio_check::has_output() {
        return refuse(USAGE, why);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let done = place.open(makes).map_err(Ended::from).and_then(|mut client| {
        let status = call(&mut client, &mut out)?;
        out.flush()?;
        Ok(status)
    });
    match done {
        Ok(status) => status,
        Err(Ended::Closed) => CLOSED,
        Err(Ended::With(status, why)) => refuse(status, &why),
        Err(Ended::Engine(e)) if makes == Makes::Nothing => refuse(1, &plain(&e)),
        Err(Ended::Engine(e)) => refuse(1, &e.to_string()),
    }
}

/// Runs a subcommand. Returns the exit status.
pub(crate) fn run(command: Command) -> u8 {
    match command {
        Command::Add(args) => add(&args),
        Command::Ls(args) => ls(&args),
        Command::State(args) => state(args),
        Command::Cancel(args) => cancel::cancel(args),
        Command::Retry(args) => retry(args),
        Command::Pause(args) => pauses(args, true),
        Command::Resume(args) => pauses(args, false),
        Command::Purge(queue) => purge(&queue),
        Command::Stats(queue) => stats(&queue),
        Command::Top(args) => top::top(&args),
        Command::Migrate(queue) => migrate(&queue),
        Command::Check(queue) => check(&queue),
    }
}

fn add(args: &Add) -> u8 {
    if args.keys.is_empty() {
        if let Err(why) = crate::system::stdio_check::has_input() {
            return refuse(USAGE, why);
        }
    }
    let as_json = args.queue.place.json;
    with(&args.queue, Makes::File, |client, name, out| {
        if args.group_by.is_some() && !client.keeps_groups() {
            return Err(no_groups("--group-by"));
        }
        let schedule = args.schedule().map_err(|why| Ended::With(USAGE, why))?;
        let opened = if args.make || name == DEFAULT { client.make(name) } else { client.takes_keys(name) };
        let mut adding = Adding::new(client, name, args, schedule);
        let taken = match opened {
            Err(e) => Err(adding.failed(&e)),
            Ok(()) if args.keys.is_empty() => adding.read(if args.null { b'\0' } else { b'\n' }),
            Ok(()) => args.keys.iter().try_for_each(|key| adding.take(key.as_bytes().to_vec())),
        };
        let done = taken.and_then(|()| adding.write());
        let (added, refused) = (adding.added, adding.refused);
        if as_json {
            write!(out, "{{\"added\":{added},\"refused\":{refused}")?;
            if let Err(Broken { in_doubt, not_added_from, .. }) = &done {
                let in_doubt =
                    in_doubt.map_or("null".to_owned(), |(first, last)| format!("[{first},{last}]"));
                write!(out, ",\"in_doubt\":{in_doubt},\"not_added_from\":{not_added_from}")?;
            }
            writeln!(out, "}}")?;
        }
        done.map_err(|broken| Ended::With(1, broken.to_string()))?;
        Ok(u8::from(refused > 0))
    })
}

fn ls(args: &Ls) -> u8 {
    with(&args.queue, Makes::Nothing, |client, name, out| {
        if args.queues {
            for name in client.queues()? {
                if args.queue.place.json {
                    writeln!(out, "{{\"queue\":{}}}", json(&name))?;
                } else {
                    writeln!(out, "{}", quoted(name.as_bytes()))?;
                }
            }
            return Ok(0);
        }
        if args.groups {
            for group in client.groups(name)?.ok_or_else(|| no_groups("--groups"))? {
                tell_group(out, &group, args.queue.place.json)?;
            }
            return Ok(0);
        }
        client.list(name, |key| {
            let is_dead = key.status == Status::Dead || key.error.is_some();
            if (!args.dead || is_dead) && (!args.running || key.status == Status::Held) {
                tell(out, &key, args.queue.place.json)?;
            }
            Ok(())
        })??;
        Ok(0)
    })
}

fn state(args: OneKey) -> u8 {
    let OneKey { queue, key } = args;
    with(&queue, Makes::Nothing, |client, name, out| match client.state(name, &key.into_vec())? {
        Some(known) => {
            tell(out, &known, queue.place.json)?;
            Ok(0)
        }
        None => unknown(out, queue.place.json),
    })
}

/// Reports an unknown key. The status is 1, as for a search without a result.
pub(super) fn unknown(out: &mut dyn Write, as_json: bool) -> Result<u8, Ended> {
    if as_json {
        writeln!(out, "null")?;
    } else {
        writeln!(out, "unknown")?;
    }
    Ok(1)
}

fn retry(args: OneKey) -> u8 {
    let OneKey { queue, key } = args;
    with(&queue, Makes::Changes, |client, name, out| {
        let key = key.into_vec();
        if !client.retry(name, &key)? {
            return unknown(out, queue.place.json);
        }
        // it was retried, whatever is known of it now
        let known = client.state(name, &key).ok().flatten();
        let runs = known.is_some_and(|known| known.status == Status::Held && known.dirty);
        done(out, if runs { "held, and once more after that" } else { "ready" }, queue.place.json)
    })
}

/// Reports success, and the new state.
pub(super) fn done(out: &mut dyn Write, how: &str, as_json: bool) -> Result<u8, Ended> {
    if as_json {
        writeln!(out, "{}", json(how))?;
    } else {
        writeln!(out, "{how}")?;
    }
    Ok(0)
}

fn no_groups(option: &str) -> Ended {
    let why =
        format!("{option}: a file keeps no groups: say --group-by to the `requeue work` that works on it");
    Ended::With(USAGE, why)
}

fn pauses(args: Paused, pause: bool) -> u8 {
    let Paused { queue, group } = args;
    with(&queue, Makes::Changes, |client, name, _| {
        if group.is_some() && !client.keeps_groups() {
            return Err(no_groups("--group"));
        }
        Ok(client.pause(name, group.map(OsString::into_vec), pause).map(|()| 0)?)
    })
}

fn purge(queue: &Queue) -> u8 {
    with(queue, Makes::Changes, |client, name, out| {
        let purged = client.purge(name)?;
        if queue.place.json {
            writeln!(out, "{{\"purged\":{purged}}}")?;
        } else {
            writeln!(out, "{purged}")?;
        }
        Ok(0)
    })
}

/// The members of a JSON object.
pub(super) fn counts(stats: &Stats) -> String {
    let Stats { ready, held, waiting, dead, at_least, oldest_ready, paused, who, processes, groups, limits } =
        stats;
    let at_least: Vec<_> = at_least.iter().map(|name| json(name)).collect();
    let seconds = |age: &Option<Duration>| age.map_or("null".to_owned(), |age| age.as_secs_f64().to_string());
    let member = |process: &Process| {
        let (who, held, longest) =
            (self::who(process.who.as_ref()), process.held, seconds(&process.longest_held));
        format!("{{{who},\"held\":{held},\"longest_held_seconds\":{longest}}}")
    };
    let who = match who {
        Who::Runner(pid) => format!("\"runner\":{}", pid.map_or("null".to_owned(), |pid| pid.to_string())),
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

fn stats(queue: &Queue) -> u8 {
    with(queue, Makes::Nothing, |client, name, out| {
        let stats = client.stats(name)?;
        if queue.place.json {
            writeln!(out, "{{{}}}", counts(&stats))?;
            return Ok(0);
        }
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
                    let longest = longest_held
                        .map_or(String::new(), |it| format!(", for {} at most", duration::show(it)));
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
                writeln!(
                    out,
                    "groups   {paused} paused, {with_rules} with rules of their own, others {cap}"
                )?;
            }
        }
        if let Some(Limits { base_delay, max_delay, rate }) = limits {
            let (base, max) = (duration::show(base_delay), duration::show(max_delay));
            writeln!(out, "back-off {base} to {max}")?;
            if let Some(rate) = rate {
                writeln!(out, "rate     {}", starts(rate))?;
            }
        }
        Ok(0)
    })
}

fn migrate(queue: &Queue) -> u8 {
    with(queue, Makes::File, |client, _, _| Ok(client.migrate().map(|()| 0)?))
}

fn check(queue: &Queue) -> u8 {
    with(queue, Makes::Nothing, |client, _, out| {
        let Some(faults) = client.check()? else {
            let why = "--engine postgres: there is no file to check; PostgreSQL has pg_amcheck";
            return Err(Ended::With(USAGE, why.to_owned()));
        };
        if queue.place.json {
            let faults: Vec<_> = faults.iter().map(|fault| json(fault)).collect();
            writeln!(out, "{{\"faults\":[{}]}}", faults.join(","))?;
        } else if faults.is_empty() {
            writeln!(out, "ok")?;
        } else {
            for fault in &faults {
                writeln!(out, "{}", quoted(fault.as_bytes()))?;
            }
        }
        Ok(u8::from(!faults.is_empty()))
    })
}

/// A process as members of a JSON object.
fn who(holder: Option<&Holder>) -> String {
    let text = |text: Option<&str>| text.map_or("null".to_owned(), json);
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

fn tell(out: &mut dyn Write, key: &Listed, as_json: bool) -> io::Result<()> {
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
        let error = error.as_deref().map_or("null".to_owned(), json);
        let every = every.map_or("null".to_owned(), |every| every.as_secs_f64().to_string());
        let holder = holder.as_ref().map_or("null".to_owned(), |it| format!("{{{}}}", who(Some(it))));
        let schedule = schedule.as_deref().map_or("null".to_owned(), json);
        return writeln!(
            out,
            "{{{},\"status\":\"{status}\",\"dirty\":{dirty},\"due_in_seconds\":{due},\"failures\":{failures},\"attempt\":{attempt},\
             \"priority\":{priority},\"value\":{value},\"age_seconds\":{},\"error\":{error},\"every_seconds\":{every},\"schedule\":{schedule},\"holder\":{holder}}}",
            json_key(&key.key),
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
    if let Some(due) = due_in {
        write!(out, "  due in {}", duration::show(*due))?;
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

fn tell_group(out: &mut dyn Write, group: &GroupState, as_json: bool) -> io::Result<()> {
    let GroupState { name, paused, weight, cap, .. } = group;
    // its own one, that there is none although others have one, or nothing
    let cap = cap.map(|cap| if cap == usize::MAX { "none".to_owned() } else { cap.to_string() });
    if as_json {
        let weight = weight.map_or("null".to_owned(), |weight| weight.to_string());
        let cap = cap.map_or("null".to_owned(), |cap| if cap == "none" { json(&cap) } else { cap });
        let name = json_bytes("group", name);
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

//! Runs the commands for a durable queue.

use std::io::{self, BufWriter, Write as _};

use requeue_engine::Status;

use super::add::{Adding, Broken};
use super::out::{Ended, Out};
use super::show::{counts, tell, tell_counts, tell_group};
use super::store::{Makes, Store, plain};
use super::{cancel, top};
use crate::config::engine::{Act, Add, Command, DEFAULT, Keys, List};
use crate::system::exit::{CLOSED, USAGE, refuse};
use crate::system::stdio_check;
use crate::text::json::Object;
use crate::text::show::quoted;

/// Runs a command. Returns the exit status.
pub(crate) fn run(command: Command) -> u8 {
    let Command { engine, queue, json, act } = command;
    let reads = matches!(&act, Act::Add(add) if matches!(add.keys, Keys::Read { .. }));
    let input = if reads { stdio_check::has_input() } else { Ok(()) };
    if let Err(why) = input.and_then(|()| stdio_check::has_output()) {
        return refuse(USAGE, why);
    }
    let makes = match act {
        Act::Add(_) | Act::Migrate => Makes::File,
        Act::Cancel(_) | Act::Retry(_) | Act::Pause(_) | Act::Resume(_) | Act::Purge => Makes::Changes,
        Act::List(_) | Act::State(_) | Act::Stats | Act::Top { .. } | Act::Check => Makes::Nothing,
    };
    let mut to = BufWriter::new(io::stdout().lock());
    let opened = engine.map_err(|why| (USAGE, why)).and_then(|engine| Store::open(engine, makes));
    let done = opened.map_err(Ended::from).and_then(|mut client| {
        let status = call(&mut client, &queue, act, &mut Out { to: &mut to, json })?;
        to.flush()?;
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

fn call(client: &mut Store, queue: &str, act: Act, out: &mut Out<'_>) -> Result<u8, Ended> {
    match act {
        Act::Add(how) => add(client, queue, &how, out),
        Act::List(list) => ls(client, queue, list, out),
        Act::State(key) => match client.state(queue, &key)? {
            Some(known) => {
                tell(out.to, &known, out.json)?;
                Ok(0)
            }
            None => out.unknown(),
        },
        Act::Cancel(which) => cancel::cancel(client, queue, which, out),
        Act::Retry(key) => retry(client, queue, &key, out),
        Act::Pause(group) => pause(client, queue, group, true),
        Act::Resume(group) => pause(client, queue, group, false),
        Act::Purge => {
            let purged = client.purge(queue)?;
            out.line(Object::new().with("purged", purged), purged)?;
            Ok(0)
        }
        Act::Stats => {
            let stats = client.stats(queue)?;
            if out.json {
                writeln!(out.to, "{}", counts(Object::new(), &stats))?;
            } else {
                tell_counts(out.to, stats)?;
            }
            Ok(0)
        }
        Act::Top { every, times } => top::top(client, every, times, out),
        Act::Migrate => Ok(client.migrate().map(|()| 0)?),
        Act::Check => check(client, out),
    }
}

fn add(client: &mut Store, queue: &str, how: &Add, out: &mut Out<'_>) -> Result<u8, Ended> {
    if how.group_by.is_some() && !client.keeps_groups() {
        return Err(no_groups("--group-by"));
    }
    let opened = if how.make || queue == DEFAULT { client.make(queue) } else { client.takes_keys(queue) };
    let mut adding = Adding::new(client, queue, how);
    let taken = match (opened, &how.keys) {
        (Err(e), _) => Err(adding.failed(&e)),
        (Ok(()), Keys::Read { separator, .. }) => adding.read(*separator),
        (Ok(()), Keys::Given(keys)) => keys.iter().try_for_each(|key| adding.take(key.clone())),
    };
    let done = taken.and_then(|()| adding.write());
    let (added, refused) = (adding.added, adding.refused);
    if out.json {
        let mut object = Object::new().with("added", added).with("refused", refused);
        if let Err(Broken { in_doubt, not_added_from, .. }) = &done {
            object = object.with("in_doubt", in_doubt.map(|(first, last)| vec![first, last]));
            object = object.with("not_added_from", *not_added_from);
        }
        writeln!(out.to, "{object}")?;
    }
    done.map_err(|broken| Ended::With(1, broken.to_string()))?;
    Ok(u8::from(refused > 0))
}

fn ls(client: &mut Store, queue: &str, list: List, out: &mut Out<'_>) -> Result<u8, Ended> {
    match list {
        List::Queues => {
            for name in client.queues()? {
                out.line(Object::new().with("queue", &*name), quoted(name.as_bytes()))?;
            }
        }
        List::Groups => {
            for group in client.groups(queue)?.ok_or_else(|| no_groups("--groups"))? {
                tell_group(out.to, &group, out.json)?;
            }
        }
        List::Keys | List::Dead | List::Running => client.list(queue, &[], |key| {
            let is_listed = match list {
                List::Dead => key.status == Status::Dead || key.error.is_some(),
                List::Running => key.status == Status::Held,
                _ => true,
            };
            if is_listed { tell(out.to, &key, out.json) } else { Ok(()) }
        })??,
    }
    Ok(0)
}

fn retry(client: &mut Store, queue: &str, key: &Vec<u8>, out: &mut Out<'_>) -> Result<u8, Ended> {
    if !client.retry(queue, key)? {
        return out.unknown();
    }
    // it was retried, whatever is known of it now
    let known = client.state(queue, key).ok().flatten();
    let runs = known.is_some_and(|known| known.status == Status::Held && known.dirty);
    out.done(if runs { "held, and once more after that" } else { "ready" })
}

fn no_groups(option: &str) -> Ended {
    let why =
        format!("{option}: a file keeps no groups: say --group-by to the `requeue work` that works on it");
    Ended::With(USAGE, why)
}

fn pause(client: &mut Store, queue: &str, group: Option<Vec<u8>>, pause: bool) -> Result<u8, Ended> {
    if group.is_some() && !client.keeps_groups() {
        return Err(no_groups("--group"));
    }
    Ok(client.pause(queue, group, pause).map(|()| 0)?)
}

fn check(client: &mut Store, out: &mut Out<'_>) -> Result<u8, Ended> {
    let Some(faults) = client.check()? else {
        let why = "--engine postgres: there is no file to check; PostgreSQL has pg_amcheck";
        return Err(Ended::With(USAGE, why.to_owned()));
    };
    if out.json {
        writeln!(out.to, "{}", Object::new().with("faults", faults.clone()))?;
    } else if faults.is_empty() {
        writeln!(out.to, "ok")?;
    } else {
        for fault in &faults {
            writeln!(out.to, "{}", quoted(fault.as_bytes()))?;
        }
    }
    Ok(u8::from(!faults.is_empty()))
}

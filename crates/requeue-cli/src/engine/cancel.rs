//! `requeue cancel`: one key, or many that are counted first.

use std::io::{self, BufRead as _, IsTerminal as _, Write};
use std::os::unix::ffi::OsStringExt as _;

use requeue_engine::{Listed, Status};

use super::commands::{Ended, done, plain, unknown, with};
use crate::args::engine::{Cancel, Makes, Queue};
use crate::text::show::quoted;

pub(super) fn cancel(args: Cancel) -> u8 {
    let Cancel { queue, key, prefix, yes, expect, .. } = args;
    match key {
        Some(key) => one(&queue, &key.into_vec()),
        None => many(&queue, &prefix.unwrap_or_default().into_vec(), yes, expect),
    }
}

fn one(queue: &Queue, key: &Vec<u8>) -> u8 {
    with(queue, Makes::Changes, |client, name, out| {
        if client.cancel(name, key)? {
            return done(out, "cancelled", queue.place.json);
        }
        let is_held = client.state(name, key)?.is_some_and(|known| known.status == Status::Held);
        if is_held && !queue.place.json {
            let key = quoted(key);
            writeln!(out, "nothing to cancel: {key} is running, and no further run is asked for")?;
            return Ok(1);
        }
        unknown(out, queue.place.json)
    })
}

/// Whether a key has something to cancel.
fn asks_for_a_run(key: &Listed) -> bool {
    match key.status {
        Status::Ready | Status::Waiting => true,
        Status::Held => key.dirty || key.due_in.is_some() || key.every.is_some() || key.schedule.is_some(),
        _ => key.every.is_some() || key.schedule.is_some(),
    }
}

fn many(queue: &Queue, prefix: &[u8], yes: bool, expect: Option<u64>) -> u8 {
    with(queue, Makes::Changes, |client, name, out| {
        let mut keys = Vec::new();
        client.list(name, |key| {
            if key.key.starts_with(prefix) && asks_for_a_run(&key) {
                keys.push(key.key);
            }
            Ok(())
        })??;
        let found = keys.len() as u64;
        let counted = if found == 1 { "1 key".to_owned() } else { format!("{found} keys") };
        let agreed = match expect {
            Some(expected) => found == expected,
            None => yes || found == 0 || asks(name, &counted)?,
        };
        if !agreed {
            let why = match expect {
                Some(expected) => format!("there are {counted}, and not {expected}"),
                None => format!("{counted} would be cancelled: say --yes, or --expect {found}"),
            };
            return Err(Ended::With(1, format!("{why}; nothing was cancelled")));
        }
        let (cancelled, failed) = client.cancel_many(name, &keys);
        if let Some(e) = failed {
            let why = plain(&e);
            return Err(Ended::With(1, format!("{cancelled} of {counted} were cancelled, then: {why}")));
        }
        if queue.place.json {
            writeln!(out, "{{\"cancelled\":{cancelled}}}")?;
        } else {
            writeln!(out, "{cancelled}")?;
        }
        Ok(u8::from(found == 0))
    })
}

/// Asks on a terminal; without one the answer is no.
fn asks(queue: &str, counted: &str) -> Result<bool, Ended> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(false);
    }
    let mut err = io::stderr();
    write!(err, "cancel {counted} of queue {}? [y/N] ", quoted(queue.as_bytes()))?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

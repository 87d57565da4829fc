//! `requeue cancel`: one key, or many that are counted first.

use std::io::{self, BufRead as _, IsTerminal as _, Write};

use requeue_engine::{Listed, Status};

use super::out::{Ended, Out};
use super::store::{Store, plain};
use crate::config::engine::Cancel;
use crate::text::json::Object;
use crate::text::show::quoted;

pub(super) fn cancel(client: &mut Store, queue: &str, which: Cancel, out: &mut Out<'_>) -> Result<u8, Ended> {
    match which {
        Cancel::One(key) => one(client, queue, &key, out),
        Cancel::Many { prefix, yes, expect } => many(client, queue, &prefix, (yes, expect), out),
    }
}

fn one(client: &mut Store, queue: &str, key: &Vec<u8>, out: &mut Out<'_>) -> Result<u8, Ended> {
    if client.cancel(queue, key)? {
        return out.done("cancelled");
    }
    let is_held = client.state(queue, key)?.is_some_and(|known| known.status == Status::Held);
    if is_held && !out.json {
        let key = quoted(key);
        writeln!(out.to, "nothing to cancel: {key} is running, and no further run is asked for")?;
        return Ok(1);
    }
    out.unknown()
}

/// Whether a key has something to cancel.
fn asks_for_a_run(key: &Listed) -> bool {
    match key.status {
        Status::Ready | Status::Waiting => true,
        Status::Held => key.dirty || key.due_in.is_some() || key.every.is_some() || key.schedule.is_some(),
        _ => key.every.is_some() || key.schedule.is_some(),
    }
}

fn many(
    client: &mut Store,
    queue: &str,
    prefix: &[u8],
    (yes, expect): (bool, Option<u64>),
    out: &mut Out<'_>,
) -> Result<u8, Ended> {
    let mut keys = Vec::new();
    client.list(queue, prefix, |key| {
        if asks_for_a_run(&key) {
            keys.push(key.key);
        }
        Ok(())
    })??;
    let found = keys.len() as u64;
    let counted = if found == 1 { "1 key".to_owned() } else { format!("{found} keys") };
    let agreed = match expect {
        Some(expected) => found == expected,
        None => yes || found == 0 || asks(queue, &counted)?,
    };
    if !agreed {
        let why = match expect {
            Some(expected) => format!("there are {counted}, and not {expected}"),
            None => format!("{counted} would be cancelled: say --yes, or --expect {found}"),
        };
        return Err(Ended::With(1, format!("{why}; nothing was cancelled")));
    }
    let (cancelled, failed) = client.cancel_many(queue, &keys);
    if let Some(e) = failed {
        let why = plain(&e);
        return Err(Ended::With(1, format!("{cancelled} of {counted} were cancelled, then: {why}")));
    }
    out.line(Object::new().with("cancelled", cancelled), cancelled)?;
    Ok(u8::from(found == 0))
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

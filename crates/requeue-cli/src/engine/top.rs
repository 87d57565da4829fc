//! `requeue top`: one line per queue of an engine, repeatedly.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use requeue_engine::EngineError;

use super::out::{Ended, Out};
use super::show::counts;
use super::store::{Stats, Store, Who, plain};
use crate::text::duration;
use crate::text::json::Object;
use crate::text::show::quoted;

/// Age from which a snapshot keeps vacuum from its work.
const LONG: Duration = Duration::from_secs(10);
/// Moves the cursor to the upper left corner.
const HOME: &str = "\x1b[H";
/// Clears the rest of the line, and of the screen.
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";

pub(super) fn top(
    client: &mut Store,
    every: Duration,
    times: Option<u64>,
    out: &mut Out<'_>,
) -> Result<u8, Ended> {
    let screen = io::stdout().is_terminal() && !out.json;
    let mut looks = 0;
    loop {
        let look = match if out.json { objects(client) } else { table(client) } {
            // a server that is there at first may be away for a while
            Err(e) if looks > 0 && out.json => format!("{}\n", Object::new().with("error", plain(&e))),
            Err(e) if looks > 0 => format!("{}\n", plain(&e)),
            look => look?,
        };
        show(out.to, &look, screen)?;
        looks += 1;
        if times.is_some_and(|times| looks >= times) {
            return Ok(0);
        }
        std::thread::sleep(every);
    }
}

/// Prints a look. On a terminal it replaces the last one without flicker.
fn show(out: &mut dyn Write, look: &str, screen: bool) -> Result<(), Ended> {
    if screen {
        let lines = look.replace('\n', &format!("{REST_OF_LINE}\n"));
        write!(out, "{HOME}{lines}{REST_OF_SCREEN}")?;
    } else {
        write!(out, "{look}")?;
    }
    Ok(out.flush()?)
}

fn objects(client: &mut Store) -> Result<String, EngineError> {
    let mut all = String::new();
    for name in client.queues()? {
        let _ = writeln!(all, "{}", counts(Object::new().with("queue", &*name), &client.counts(&name)?));
    }
    Ok(all)
}

/// The table of queues. Names are last, because their length is unknown.
fn table(client: &mut Store) -> Result<String, EngineError> {
    let mut all = format!(
        "{:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {:20} QUEUE\n",
        "READY", "HELD", "FOR", "WAITING", "DEAD", "OLDEST", "WORKED BY"
    );
    let mut snapshot = None;
    for name in client.queues()? {
        let stats = client.counts(&name)?;
        let (ready, waiting, dead) = (stats.ready(), stats.waiting(), stats.dead());
        let held = stats.held();
        let Stats { oldest_ready, longest_held, paused, who, processes, .. } = stats;
        let [oldest, longest] =
            [oldest_ready, longest_held].map(|age| age.map_or("-".to_owned(), duration::show));
        if let Who::Owners(_, age) = who {
            snapshot = age.filter(|age| *age >= LONG);
        }
        let who = match who {
            _ if paused => "paused".to_owned(),
            Who::Runner(Some(pid)) => format!("process {pid}"),
            Who::Runner(None) | Who::Owners(0, _) => "nobody".to_owned(),
            Who::Owners(1, _) => match processes.first().and_then(|it| it.who.as_ref()) {
                Some(who) => quoted(format!("{}:{}", who.host, who.pid).as_bytes()),
                None => "1 process".to_owned(),
            },
            Who::Owners(owners, _) => format!("{owners} processes"),
        };
        let name = quoted(name.as_bytes());
        let _ = writeln!(
            all,
            "{ready:>9} {held:>9} {longest:>9} {waiting:>9} {dead:>9} {oldest:>9}  {who:20} {name}"
        );
    }
    if let Some(age) = snapshot {
        let _ = writeln!(all, "oldest snapshot on the server: {}", duration::show(age));
    }
    Ok(all)
}

//! `--dry-run`: prints the commands in a form that a shell would run.

use std::io::{self, BufWriter, Write as _};

use requeue_watch::{Report, Watcher};

use crate::config::{On, Run};
use crate::input::distinct::Distinct;
use crate::input::keys::{self, End, Piece};
use crate::input::line::Format;
use crate::input::unpassable::Unpassable;
use crate::input::watch::key as watch_key;
use crate::report::files;
use crate::report::joblog::Resume;
use crate::run::template::Template;
use crate::system::control::Control;
use crate::system::exit::refuse;
use crate::text::show;

/// Prints one command line for each key, in the order of their first occurrence. The exit status is that of a
/// run in which the program always succeeds.
pub(crate) fn print(template: &Template, config: &Run, resume: Resume, watcher: Option<Watcher>) -> u8 {
    match write(template, config, resume, watcher) {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => crate::system::exit::CLOSED,
        Err(e) => refuse(1, &e.to_string()),
    }
}

fn write(
    template: &Template,
    config: &Run,
    mut resume: Resume,
    watcher: Option<Watcher>,
) -> io::Result<bool> {
    // Nothing needs to be worked off: a signal may end this as it ends any program.
    let never = Control::new(|_| {})?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut distinct = Distinct::default();
    let format = Format::new(&config.lines);
    let mut all_well = true;
    let mut result = Ok(());
    let mut each = |piece: Piece<'_>| {
        let (_, piece) = format.read(piece);
        if resume.skips(&piece) {
            return true;
        }
        let (key, line) = match piece {
            Piece::Key(key) if distinct.is_new(key) => (key, template.command_line(key)),
            Piece::Key(_) | Piece::Repeated | Piece::Pause => return true,
            Piece::TooLong { start, .. } => (start, Err(Unpassable::TooLong)),
            Piece::NoKey(line, why) => (line, Err(why)),
        };
        result = match line {
            Ok(line) => writeln!(out, "{line}"),
            Err(why) => {
                all_well = false;
                refuse(1, &format!("{}: {why}; would give up", show::key(key)));
                Ok(())
            }
        };
        result.is_ok()
    };
    if let (Some(watcher), Some(watch)) = (watcher, &config.watch) {
        let own = files::own(&config.files);
        // Only files that exist now: later changes are not waited for.
        let found = watcher.run(never.reading_ends.fd(), |report| match report {
            Report::Change(_) if !watch.runs_on(On::Initial) => true,
            Report::Change(change) if own.has(&change.path) => true,
            Report::Change(change) => each(Piece::Key(watch.one_key().unwrap_or_else(|| watch_key(&change)))),
            Report::Ready { .. } => false,
            _ => true,
        });
        found.map_err(io::Error::other)?;
    }
    let read = match config.lines.are_read {
        true => keys::read_keys(
            rustix::stdio::stdin(),
            never.reading_ends.fd(),
            config.lines.separator,
            (keys::LONGEST, format.folds()),
            false,
            &mut each,
        )
        .map_err(|e| io::Error::new(e.kind(), format!("standard input: {e}"))),
        false => Ok(End::Input),
    };
    result.and_then(|()| out.flush()).map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => e,
        _ => io::Error::other(format!("standard output: {e}")),
    })?;
    read?;
    Ok(all_well)
}

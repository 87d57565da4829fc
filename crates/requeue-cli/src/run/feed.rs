//! The way of keys into the queue: from lines, and from watched files.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use requeue::Metrics as _;
use requeue_watch::{Event, ROOT_INTERVAL, Report, Watcher};

use super::worker::App;
use crate::input::cause::Seen;
use crate::input::keys::{self, End, Key, Piece};
use crate::input::unpassable::Unpassable;
use crate::input::watch;
use crate::report::files;
use crate::report::joblog::Resume;
use crate::report::log::Subject;
use crate::report::outcome::Failure;
use crate::report::run_stats::{GaveUp, RunStats};
use crate::system::control::Level;
use crate::system::limits;
use crate::system::whole_file::Own;
use crate::text::duration;

/// Feeds the queue until the end of the input or of the reading.
pub(super) fn read(app: &App, mut resume: Resume) -> (End, Option<io::Error>) {
    let (run_stats, control) = (&app.run_stats, &app.supervisor.control);
    let format = &app.format;
    let mut lost = 0;
    let mut each = |piece: Piece<'_>| {
        let (beside, piece) = format.read(piece);
        match piece {
            piece if resume.skips(&piece) => RunStats::add(&run_stats.skipped),
            Piece::Key(key) => {
                // The queue takes no more keys: this one is left, and told by name.
                if !app.intake.add(run_stats, key, None, beside.clone()) {
                    app.intake.came_too_late(run_stats, key, beside);
                }
            }
            Piece::Repeated => {
                app.intake.repeat(run_stats);
                if let Some(sink) = &app.sink {
                    sink.coalesced(1);
                }
            }
            Piece::TooLong { start, bytes } => give_up_too_long(app, start, bytes),
            Piece::NoKey(line, why) => give_up_unread(app, line.to_vec(), why),
            Piece::Pause => lost += app.intake.settle(run_stats, control, &app.log),
        }
        lost == 0
    };
    let (stop, to_the_last) = (control.reading_ends.fd(), app.config.files.left_to.is_some());
    let stdin = rustix::stdio::stdin();
    let (separator, longest) = (app.config.lines.separator, (app.config.lines.longest, format.folds()));
    let read = keys::read_keys(stdin.as_fd(), stop, separator, longest, to_the_last, &mut each);
    lost += app.intake.settle(run_stats, control, &app.log);
    if let (Some(state), 1..) = (&app.state, lost) {
        app.log.note(&state.lost(lost));
    }
    match read {
        Ok(_) if lost > 0 => (End::Stopped, None),
        Ok(end) => (end, None),
        Err(e) => (End::Input, Some(io::Error::new(e.kind(), format!("standard input: {e}")))),
    }
}

/// Gives up a key that is too long to be kept, and that no file needs.
fn give_up_too_long(app: &App, start: &[u8], bytes: u64) {
    let key = format!("{}… ({bytes} bytes)", String::from_utf8_lossy(&start[..64])).into_bytes();
    give_up_unread(app, key, Unpassable::TooLong);
}

/// Gives up a line that never enters the queue.
fn give_up_unread(app: &App, key: Key, why: Unpassable) {
    let run_stats = &app.run_stats;
    RunStats::add(&run_stats.triggers);
    RunStats::add(&run_stats.keys);
    let why = Failure::Unpassable(why);
    app.log.gave_up(Subject { key: &key, attempt: 1 }, &why);
    run_stats.give_up(GaveUp { key, beside: None, why, attempts: 0 });
    if app.config.fail_fast {
        app.supervisor.control.raise(Level::LastRuns);
    }
}

/// Feeds the queue from the watcher, and with `--stdin` from standard input too, until the end is requested.
pub(super) fn watch(
    app: &App,
    watcher: Watcher,
    read: impl FnOnce() -> (End, Option<io::Error>) + Send,
) -> (End, Option<io::Error>) {
    let control = &app.supervisor.control;
    std::thread::scope(|scope| {
        let reader = app.config.lines.are_read.then(|| std::thread::Builder::new().spawn_scoped(scope, read));
        let reader = match reader.transpose() {
            Ok(reader) => reader,
            Err(e) => {
                control.raise(Level::Stop);
                return (End::Stopped, Some(limits::no_thread(&e)));
            }
        };
        let own = files::own(&app.config.files);
        let mut started = false;
        let watched = watcher.run(control.reading_ends.fd(), |report| take(app, report, &own, &mut started));
        if watched.is_err() {
            // It would be news no more; and what is known is worked off.
            control.raise(Level::WorkOff);
        }
        let (end, error) = match reader.map(std::thread::ScopedJoinHandle::join) {
            None => (End::Input, None),
            Some(Ok(read)) => read,
            Some(Err(_)) => (End::Stopped, Some(io::Error::other("the reader failed"))),
        };
        (end, watched.err().map(io::Error::other).or(error))
    })
}

/// Handles a report. False once the queue is shut down. `started`: all files that were there have been
/// reported; `own` are the files that we write ourselves.
fn take(app: &App, report: Report, own: &Own, started: &mut bool) -> bool {
    *started |= matches!(report, Report::Ready { .. });
    let message = match report {
        // Each run that is booked would bring about the next.
        Report::Change(change) if own.has(&change.path) => return true,
        Report::Change(change) => {
            let key = watch::key(&change);
            if let (Some(loops), Event::Write) = (&app.loops, change.event) {
                let at = change.changed.or_else(|| changed(&change.path)).unwrap_or_else(SystemTime::now);
                loops.changed(app.intake.key(key), at);
            }
            if app
                .intake
                .watched
                .as_ref()
                .is_some_and(|watched| !watched.runs_on(key, change.event, *started))
            {
                return true;
            }
            let seen = Seen { event: change.event, relative: change.relative.clone() };
            return app.intake.add(&app.run_stats, key, Some(seen), app.format.unread());
        }
        Report::Ready { files, dirs } => format!(
            "watching {files} {} in {dirs} {}",
            if files == 1 { "file" } else { "files" },
            if dirs == 1 { "directory" } else { "directories" },
        ),
        Report::Overflow => "more changed at once than the kernel keeps (fs.inotify.max_queued_events): \
             looking at everything again"
            .to_owned(),
        Report::Unreadable { path, error } => {
            format!("{}: cannot be read: {error}; what changes in it is not seen", watch::shown(&path))
        }
        Report::RootGone { path } => {
            format!("{} is gone; looking for it every {}", watch::shown(&path), duration::show(ROOT_INTERVAL))
        }
        Report::RootBack { path } => format!("{} is back, and watched again", watch::shown(&path)),
        _ => return true,
    };
    app.log.note(&message);
    true
}

/// When the file was last changed, by the file system's clock.
fn changed(path: &Path) -> Option<SystemTime> {
    use std::os::unix::fs::MetadataExt as _;
    let data = path.symlink_metadata().ok()?;
    let since = Duration::new(u64::try_from(data.ctime()).ok()?, u32::try_from(data.ctime_nsec()).ok()?);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

//! `--watch`: files as keys.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use requeue_watch::{Change, Event, Options, ROOT_INTERVAL, Report, WatchError, Watcher};

use crate::args::Run;
use crate::input::keys::End;
use crate::report::files;
use crate::run::intake::Seen;
use crate::run::worker::App;
use crate::system::control::Level;
use crate::system::limits;
use crate::system::whole_file::Own;
use crate::text::duration;
use crate::text::show;

/// A watcher for the options; `None` if they name no path.
///
/// # Errors
///
/// If a path does not exist, a glob is invalid, or the system cannot watch.
pub(crate) fn watcher(args: &Run) -> Result<Option<Watcher>, WatchError> {
    if args.watch.is_empty() {
        return Ok(None);
    }
    let mut options = Options::new().dirs(args.dirs).gitignore(!args.no_gitignore);
    for glob in &args.glob {
        options = options.glob(glob);
    }
    for glob in &args.ignore {
        options = options.ignore(glob);
    }
    if let Some(every) = args.resync {
        options = options.resync(every);
    }
    Watcher::new(&options, &args.watch).map(Some)
}

/// The error message.
pub(crate) fn complaint(e: &WatchError) -> String {
    match e {
        WatchError::Root { path, error } => format!("{}: cannot be watched: {error}", shown(path)),
        other => other.to_string(),
    }
}

fn shown(path: &Path) -> String {
    show::key(path.as_os_str().as_bytes())
}

/// The exit status of a command that cannot begin to watch: 2 if the command line is the cause.
pub(crate) fn refusal(e: &WatchError) -> u8 {
    match e {
        WatchError::Root { .. } | WatchError::Glob { .. } => 2,
        _ => 1,
    }
}

/// The file as a key.
pub(crate) fn key(change: &Change) -> &[u8] {
    change.path.as_os_str().as_bytes()
}

/// Feeds the queue from the watcher, and with `--stdin` from standard input too, until the end is requested.
pub(crate) fn feed(
    app: &App,
    watcher: Watcher,
    read: impl FnOnce() -> (End, Option<io::Error>) + Send,
) -> (End, Option<io::Error>) {
    let control = &app.supervisor.control;
    std::thread::scope(|scope| {
        let reader = app.args.stdin.then(|| std::thread::Builder::new().spawn_scoped(scope, read));
        let reader = match reader.transpose() {
            Ok(reader) => reader,
            Err(e) => {
                control.raise(Level::Stop);
                return (End::Stopped, Some(limits::no_thread(&e)));
            }
        };
        let own = files::own(&app.args);
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
            let key = key(&change);
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
            format!("{}: cannot be read: {error}; what changes in it is not seen", shown(&path))
        }
        Report::RootGone { path } => {
            format!("{} is gone; looking for it every {}", shown(&path), duration::show(ROOT_INTERVAL))
        }
        Report::RootBack { path } => format!("{} is back, and watched again", shown(&path)),
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

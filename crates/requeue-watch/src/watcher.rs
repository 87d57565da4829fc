//! The watcher's loop: waits for events, has the tree look, and reports.

use std::os::fd::AsFd;
use std::path::PathBuf;

use crate::options::Options;
use crate::report::{Report, WatchError};

#[cfg(any(target_os = "linux", target_os = "android"))]
pub use self::linux::Watcher;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::io;
    use std::os::fd::BorrowedFd;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;

    use super::*;
    use crate::inotify::Inotify;
    use crate::report::{Event, ROOT_INTERVAL};
    use crate::rules::Rules;
    use crate::tree::Tree;

    /// Reports which files below the roots changed, from [`run`](Self::run) on.
    ///
    /// ```
    /// use requeue_watch::{Options, Report, Watcher};
    /// # let dir = tempfile::tempdir()?;
    /// # std::fs::write(dir.path().join("a"), "")?;
    /// let (stop, _open) = std::os::unix::net::UnixStream::pair()?;
    /// let mut found = 0;
    /// Watcher::new(&Options::new(), [dir.path()])?.run(stop, |report| match report {
    ///     Report::Change(_) => { found += 1; true }
    ///     _ => false, // ready: enough
    /// })?;
    /// assert_eq!(found, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[derive(Debug)]
    pub struct Watcher {
        tree: Tree,
        disk: Inotify,
        resync: Option<Duration>,
    }

    impl Watcher {
        /// A watcher of these files and directories. Before [`run`](Self::run) it only checks that the roots
        /// exist.
        ///
        /// ```
        /// use requeue_watch::{Options, Watcher};
        /// let why = Watcher::new(&Options::new(), ["no/such/path"]).unwrap_err();
        /// assert!(why.to_string().starts_with("\"no/such/path\": cannot be watched: "));
        /// ```
        ///
        /// # Errors
        ///
        /// If a root does not exist or cannot be reached, a glob is invalid, or the system has no inotify
        /// instance left.
        pub fn new<P: Into<PathBuf>>(
            options: &Options,
            roots: impl IntoIterator<Item = P>,
        ) -> Result<Self, WatchError> {
            let rules = Rules::new(&options.globs, &options.ignores, options.gitignore)?;
            let what = "inotify (the limits are fs.inotify.max_user_instances and that on open files)";
            let mut disk = Inotify::new().map_err(|error| WatchError::System { what, error })?;
            let mut tree =
                Tree::new(rules, options.dirs, roots.into_iter().map(Into::into).collect(), Instant::now());
            tree.begin(&mut disk).map_err(|(path, error)| WatchError::Root { path, error })?;
            Ok(Self { tree, disk, resync: options.resync })
        }

        /// Watches until `stop` is readable or hung up, or `each` returns false. First it reports everything
        /// that is there, then that it is ready, then changes.
        ///
        /// `each` is called on this thread, and while it works events wait in the kernel: it should pass the
        /// key on and return.
        ///
        /// ```
        /// # use requeue_watch::{Options, Report, Watcher};
        /// # let dir = tempfile::tempdir()?;
        /// let (stop, hang_up) = std::os::unix::net::UnixStream::pair()?;
        /// let watcher = Watcher::new(&Options::new(), [dir.path()])?;
        /// let watching = std::thread::spawn(move || {
        ///     watcher.run(stop, |report| {
        ///         if let Report::Change(change) = report {
        ///             println!("{}: {}", change.event.name(), change.path.display());
        ///         }
        ///         true
        ///     })
        /// });
        /// drop(hang_up);
        /// watching.join().expect("it does not panic")?;
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        ///
        /// # Errors
        ///
        /// If no watch is left for a directory (see [`WatchError::Limit`]), or the system fails otherwise.
        /// All reports until then were true.
        pub fn run(
            mut self,
            stop: impl AsFd,
            mut each: impl FnMut(Report) -> bool,
        ) -> Result<(), WatchError> {
            let mut ready = false;
            let mut roots_due = Instant::now() + ROOT_INTERVAL;
            let mut resync_due = self.resync.and_then(|every| Instant::now().checked_add(every));
            loop {
                for report in self.tree.take_reports() {
                    if !each(report) {
                        return Ok(());
                    }
                }
                if !ready && !self.tree.is_busy() {
                    ready = true;
                    let (files, dirs) = self.tree.counts();
                    if !each(Report::Ready { files, dirs }) {
                        return Ok(());
                    }
                }
                self.tree.time(Instant::now());
                let due = resync_due.map_or(roots_due, |resync| resync.min(roots_due));
                let wait = match self.tree.is_busy() {
                    true => Duration::ZERO,
                    false => due.saturating_duration_since(Instant::now()),
                };
                match self.wait(stop.as_fd(), wait)? {
                    Woken::Stop => return Ok(()),
                    Woken::Events => {
                        let events = self.disk.events().map_err(system("events"))?;
                        for event in events {
                            self.tree.happened(&mut self.disk, event);
                        }
                    }
                    Woken::Time => {}
                }
                let now = Instant::now();
                if now >= roots_due {
                    self.tree.look_at_roots(&mut self.disk);
                    roots_due = now + ROOT_INTERVAL;
                }
                if resync_due.is_some_and(|due| now >= due) {
                    self.tree.tell_all(Event::Initial);
                    resync_due = self.resync.and_then(|every| now.checked_add(every));
                }
                self.tree.step(&mut self.disk).map_err(|(path, _)| self.exhausted(path))?;
            }
        }

        fn wait(&self, stop: BorrowedFd<'_>, at_most: Duration) -> Result<Woken, WatchError> {
            let mut fds = [
                PollFd::from_borrowed_fd(stop, PollFlags::IN),
                PollFd::from_borrowed_fd(self.disk.fd(), PollFlags::IN),
            ];
            let at_most = Timespec::try_from(at_most).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
            match poll(&mut fds, Some(&at_most)) {
                Err(Errno::INTR) => return Ok(Woken::Time),
                other => other.map_err(io::Error::from).map_err(system("poll"))?,
            };
            Ok(match fds.each_ref().map(|fd| !fd.revents().is_empty()) {
                [true, _] => Woken::Stop,
                [false, true] => Woken::Events,
                [false, false] => Woken::Time,
            })
        }

        /// Makes the error for a kernel without watches left, with the number needed.
        fn exhausted(&self, path: PathBuf) -> WatchError {
            let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches")
                .ok()
                .and_then(|text| text.trim().parse::<u64>().ok());
            let (_, ours) = self.tree.counts();
            let missing = self.tree.places().iter().map(|root| directories(root)).sum::<u64>();
            // Other processes of this user keep their watches: all of the limit but ours.
            let others = limit.unwrap_or(0).saturating_sub(ours as u64);
            let wanted = (others + missing).next_power_of_two();
            WatchError::Limit { path, limit, wanted }
        }
    }

    enum Woken {
        Stop,
        Events,
        Time,
    }

    fn system(what: &'static str) -> impl Fn(io::Error) -> WatchError {
        move |error| WatchError::System { what, error }
    }

    /// Number of directories in a tree, links not followed.
    fn directories(root: &Path) -> u64 {
        let mut count = 0;
        let mut todo = vec![root.to_owned()];
        while let Some(dir) = todo.pop() {
            count += 1;
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            let inner = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            todo.extend(inner.map(|entry| entry.path()));
        }
        count
    }
}

/// Reports which files below the roots changed. Not on this system: only Linux's inotify is supported so far.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[derive(Debug)]
pub struct Watcher(std::convert::Infallible);

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl Watcher {
    /// Returns the error that this system is not supported.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn new<P: Into<PathBuf>>(
        _options: &Options,
        _roots: impl IntoIterator<Item = P>,
    ) -> Result<Self, WatchError> {
        let error = std::io::Error::from(std::io::ErrorKind::Unsupported);
        Err(WatchError::System { what: "watching needs inotify, which Linux has", error })
    }

    /// Unreachable.
    ///
    /// # Errors
    ///
    /// None.
    pub fn run(self, _stop: impl AsFd, _each: impl FnMut(Report) -> bool) -> Result<(), WatchError> {
        match self.0 {}
    }
}

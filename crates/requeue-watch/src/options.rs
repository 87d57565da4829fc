//! [`Options`]: what is watched, and how.

use std::time::Duration;

/// Options of a watcher: what becomes a key, and when it is reported again.
///
/// ```
/// use requeue_watch::Options;
/// use std::time::Duration;
/// let options = Options::new().glob("*.rs").ignore("target").resync(Duration::from_secs(600));
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a watcher is made with them"]
pub struct Options {
    pub(crate) dirs: bool,
    pub(crate) gitignore: bool,
    pub(crate) globs: Vec<String>,
    pub(crate) ignores: Vec<String>,
    pub(crate) resync: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// All files, and no directories, except those that `.gitignore` files hide; no resync.
    ///
    /// ```
    /// let options = requeue_watch::Options::new();
    /// ```
    pub fn new() -> Self {
        Self { dirs: false, gitignore: true, globs: Vec::new(), ignores: Vec::new(), resync: None }
    }

    /// Sets whether directories are keys too, reported when they are created, moved or deleted.
    ///
    /// ```
    /// let options = requeue_watch::Options::new().dirs(true);
    /// ```
    pub fn dirs(self, dirs: bool) -> Self {
        Self { dirs, ..self }
    }

    /// Sets whether files that git ignores are left out: those hidden by `.gitignore` files, below the root
    /// or above it in its repository, or by the repository's `.git/info/exclude`. `.git` itself is left out
    /// too. Files named by git's own configuration (`core.excludesFile`) are not read. A change of
    /// `.git/info/exclude` takes effect when the directory is listed again, for example at a resync.
    ///
    /// ```
    /// let options = requeue_watch::Options::new().gitignore(false);
    /// ```
    pub fn gitignore(self, gitignore: bool) -> Self {
        Self { gitignore, ..self }
    }

    /// Restricts keys to those that match this glob, or another one. Globs are written as in a `.gitignore`:
    /// without a slash they match the name, with one the path below the root. In addition, `{a,b}` matches
    /// either.
    ///
    /// ```
    /// let options = requeue_watch::Options::new().glob("*.rs").glob("docs/**");
    /// ```
    pub fn glob(mut self, glob: impl Into<String>) -> Self {
        self.globs.push(glob.into());
        self
    }

    /// Leaves out what matches this glob. A directory is left out with all below it, and is not even watched.
    ///
    /// ```
    /// let options = requeue_watch::Options::new().ignore("*.tmp").ignore("/out");
    /// ```
    pub fn ignore(mut self, glob: impl Into<String>) -> Self {
        self.ignores.push(glob.into());
        self
    }

    /// Looks at everything and reports it again at this interval, as
    /// [`Event::Initial`](crate::Event::Initial).
    ///
    /// ```
    /// let options = requeue_watch::Options::new().resync(std::time::Duration::from_secs(3600));
    /// ```
    pub fn resync(self, every: Duration) -> Self {
        Self { resync: Some(every), ..self }
    }
}

//! What is watched, and how.

use std::time::Duration;

/// What becomes a key, and when it is told again.
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
    /// Files only, all of them, but for what `.gitignore` files hide; no resync.
    ///
    /// ```
    /// let options = requeue_watch::Options::new();
    /// ```
    pub fn new() -> Self {
        Self { dirs: false, gitignore: true, globs: Vec::new(), ignores: Vec::new(), resync: None }
    }

    /// Whether directories are keys too: told when they are made, moved or deleted.
    ///
    /// ```
    /// let options = requeue_watch::Options::new().dirs(true);
    /// ```
    pub fn dirs(self, dirs: bool) -> Self {
        Self { dirs, ..self }
    }

    /// Whether what git ignores is left out: what `.gitignore` files hide, those below the
    /// root and those above it in the same repository, and what that repository's
    /// `.git/info/exclude` hides. `.git` itself is left out with them. What git's own
    /// configuration names (`core.excludesFile`) is not read. A change of `.git/info/exclude`
    /// holds when the directory is listed again, at a resync for instance.
    ///
    /// ```
    /// let options = requeue_watch::Options::new().gitignore(false);
    /// ```
    pub fn gitignore(self, gitignore: bool) -> Self {
        Self { gitignore, ..self }
    }

    /// Only what matches this glob, or another one, is a key. Globs are written as in a
    /// `.gitignore`: without a slash they match the name, with one the path below the
    /// root. Beside that, `{a,b}` matches either.
    ///
    /// ```
    /// let options = requeue_watch::Options::new().glob("*.rs").glob("docs/**");
    /// ```
    pub fn glob(mut self, glob: impl Into<String>) -> Self {
        self.globs.push(glob.into());
        self
    }

    /// What matches this glob is left out; a directory with all below it, which is then
    /// not even watched.
    ///
    /// ```
    /// let options = requeue_watch::Options::new().ignore("*.tmp").ignore("/out");
    /// ```
    pub fn ignore(mut self, glob: impl Into<String>) -> Self {
        self.ignores.push(glob.into());
        self
    }

    /// Every so often everything is looked at and told again, as
    /// [`Event::Initial`](crate::Event::Initial).
    ///
    /// ```
    /// let options = requeue_watch::Options::new().resync(std::time::Duration::from_secs(3600));
    /// ```
    pub fn resync(self, every: Duration) -> Self {
        Self { resync: Some(every), ..self }
    }
}

//! The files written in addition to the outputs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::config::{self, Lines};
use crate::input::keys::Key;
use crate::input::line::{Beside, Format};
use crate::report::joblog::{Joblog, Resume};
use crate::report::key_file::KeyFile;
use crate::report::metrics::Exports;
use crate::report::run_stats::GaveUp;
use crate::system::whole_file::{Own, WholeFile};

#[derive(Debug)]
pub(crate) struct Files {
    failed_to: Mutex<Option<KeyFile>>,
    left_to: Mutex<Option<KeyFile>>,
    pub(crate) joblog: Option<Joblog>,
    metrics_to: Mutex<Option<WholeFile>>,
}

impl Files {
    /// Opens the files of the options, before the first key is run.
    ///
    /// # Errors
    ///
    /// The option whose file cannot be written, and the reason.
    pub(crate) fn open(files: &config::Files) -> Result<Self, String> {
        Ok(Self {
            failed_to: opened("--failed-to", files.failed_to.as_deref(), KeyFile::open)?.into(),
            left_to: opened("--left-to", files.left_to.as_deref(), KeyFile::open)?.into(),
            joblog: opened("--joblog", files.joblog.as_deref(), Joblog::open)?,
            metrics_to: opened("--metrics-to", files.metrics_to.as_deref(), WholeFile::open)?.into(),
        })
    }

    /// Writes the files of the end. Returns the options whose files failed, with the reasons.
    pub(crate) fn finish(
        &self,
        (files, lines): (&config::Files, &Lines),
        gave_up: &[GaveUp],
        left: &[(Key, Beside)],
        exports: Option<&Exports>,
    ) -> Vec<(&'static str, String)> {
        let failed = gave_up.iter().map(|gave_up| (&gave_up.key[..], gave_up.beside.as_ref()));
        let left = left.iter().map(|(key, beside)| (&key[..], Some(beside)));
        let results = [
            ("--failed-to", &files.failed_to, write(&self.failed_to, failed, lines)),
            ("--left-to", &files.left_to, write(&self.left_to, left, lines)),
            ("--joblog", &files.joblog, self.joblog.as_ref().map_or(Ok(()), Joblog::finish)),
            ("--metrics-to", &files.metrics_to, self.write_metrics(exports)),
        ];
        let message = |(option, path, result): (&'static str, &Option<PathBuf>, io::Result<()>)| {
            let path = path.as_deref().unwrap_or("".as_ref());
            result.err().map(|e| (option, about(option, path, &e)))
        };
        results.into_iter().filter_map(message).collect()
    }

    fn write_metrics(&self, exports: Option<&Exports>) -> io::Result<()> {
        let file = self.metrics_to.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(file), Some(exports)) = (file, exports) else { return Ok(()) };
        let text = exports.text().map_err(io::Error::other)?;
        file.write(|out| out.write_all(text.as_bytes()))
    }
}

/// The files of the options.
pub(crate) fn own(files: &config::Files) -> Own {
    Own::new(
        [&files.failed_to, &files.left_to, &files.joblog, &files.metrics_to]
            .into_iter()
            .filter_map(|path| path.as_deref()),
    )
}

/// Writes these keys, if an option asks for them. A second call does nothing.
fn write<'k>(
    file: &Mutex<Option<KeyFile>>,
    keys: impl Iterator<Item = (&'k [u8], Option<&'k Beside>)>,
    lines: &Lines,
) -> io::Result<()> {
    let file = file.lock().unwrap_or_else(PoisonError::into_inner).take();
    file.map_or(Ok(()), |file| file.write(keys, &Format::new(lines), lines.separator))
}

/// The keys that `--resume` skips; none without it.
///
/// # Errors
///
/// The reason why the file of `--joblog` cannot be read.
pub(crate) fn resume(files: &config::Files) -> Result<Resume, String> {
    let path = files.joblog.as_deref().filter(|_| files.resume);
    opened("--joblog", path, Resume::read).map(Option::unwrap_or_default)
}

fn opened<T>(
    option: &str,
    path: Option<&Path>,
    open: impl FnOnce(&Path) -> io::Result<T>,
) -> Result<Option<T>, String> {
    path.map(|path| open(path).map_err(|e| about(option, path, &e))).transpose()
}

/// The error message for an option's file.
pub(crate) fn about(option: &str, path: &Path, e: &io::Error) -> String {
    format!("{option} {}: {e}", path.display())
}

//! A file of keys that can be used as input: those that gave up, and unfinished ones.

use std::io;
use std::path::Path;

use crate::input::line::{Beside, Format};
use crate::system::whole_file::WholeFile;

/// The file, opened before the first key is run, to report an invalid name early.
#[derive(Debug)]
pub(crate) struct KeyFile(WholeFile);

impl KeyFile {
    /// # Errors
    ///
    /// If the file cannot be written.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        WholeFile::open(path).map(Self)
    }

    /// Writes the keys with their priorities and values, each line followed by the separator. A key with
    /// neither is a line as it was read.
    ///
    /// # Errors
    ///
    /// If they could not be written; an existing file of that name is unchanged.
    pub(crate) fn write<'a>(
        self,
        mut keys: impl Iterator<Item = (&'a [u8], Option<&'a Beside>)>,
        format: &Format,
        separator: u8,
    ) -> io::Result<()> {
        self.0.write(|out| {
            keys.try_for_each(|(key, beside)| match beside {
                Some(beside) => format.write(out, key, beside, separator),
                None => out.write_all(key).and_then(|()| out.write_all(&[separator])),
            })
        })
    }
}

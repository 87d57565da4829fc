//! A file of keys that is fit to be read again: those that gave up, and those that were
//! left.

use std::io;
use std::path::Path;

use crate::line::{Beside, Format};
use crate::whole_file::WholeFile;

/// The file, before the first key is run: what is wrong with the name is said then.
#[derive(Debug)]
pub(crate) struct KeyFile(WholeFile);

impl KeyFile {
    /// # Errors
    ///
    /// The file cannot be written.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        WholeFile::open(path).map(Self)
    }

    /// Writes the keys with what they had, each line with the separator behind it. What has
    /// nothing beside it is a line as it was read.
    ///
    /// # Errors
    ///
    /// They could not be written; a file of that name is as it was.
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

//! A file of keys that is fit to be read again: those that gave up, and those that were
//! left.

use std::io;
use std::path::Path;

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

    /// Writes the keys, each with the separator behind it.
    ///
    /// # Errors
    ///
    /// They could not be written; a file of that name is as it was.
    pub(crate) fn write<'a>(self, keys: impl Iterator<Item = &'a [u8]>, separator: u8) -> io::Result<()> {
        self.0.write(|out| {
            for key in keys {
                out.write_all(key)?;
                out.write_all(&[separator])?;
            }
            Ok(())
        })
    }
}

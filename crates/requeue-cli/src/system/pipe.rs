//! Pipes.

use std::io;
use std::os::fd::OwnedFd;

/// A pipe that no child inherits: the end to read, and the end to write.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

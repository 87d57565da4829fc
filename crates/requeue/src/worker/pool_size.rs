//! [`PoolSize`]: the number of workers.

use std::fmt;
use std::io;
use std::ops::{RangeFrom, RangeInclusive, RangeToInclusive};

/// Maximum number of workers. More are refused, because each task takes memory before it has a key.
pub(super) const MOST_WORKERS: usize = 1 << 20;

/// The number of workers, or the range in which their number follows the work. Cannot be
/// named outside: users write a number or a range.
///
/// ```
/// # use requeue::{WorkQueue, Worker};
/// # let q = WorkQueue::<u32>::new();
/// let worker = Worker::of(&q).workers(4).start_threads(|_| ())?;
/// worker.resize(0..=256)?;
/// worker.resize(..=256)?;
/// worker.resize(1..)?; // without an upper end: at most 2^20
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PoolSize {
    pub(super) least: usize,
    pub(super) most: usize,
}

/// Written as in code: `4`, or `0..=256`.
impl fmt::Debug for PoolSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, most } = self;
        if least == most { write!(f, "{most}") } else { write!(f, "{least}..={most}") }
    }
}

impl PoolSize {
    /// Refuses what cannot be.
    pub(super) fn check(self) -> io::Result<()> {
        let Self { least, most } = self;
        let why = if most.max(least) > MOST_WORKERS {
            format!(
                "{} workers are too many: give the number of keys that are to be worked on at once, \
                 at most {MOST_WORKERS}",
                most.max(least)
            )
        } else if least > most {
            format!("{least}..={most} is no number of workers: give the smaller number first")
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

impl From<usize> for PoolSize {
    fn from(workers: usize) -> Self {
        Self { least: workers, most: workers }
    }
}

impl From<RangeInclusive<usize>> for PoolSize {
    fn from(range: RangeInclusive<usize>) -> Self {
        let (least, most) = range.into_inner();
        Self { least, most }
    }
}

impl From<RangeToInclusive<usize>> for PoolSize {
    fn from(range: RangeToInclusive<usize>) -> Self {
        Self { least: 0, most: range.end }
    }
}

impl From<RangeFrom<usize>> for PoolSize {
    fn from(range: RangeFrom<usize>) -> Self {
        Self { least: range.start, most: MOST_WORKERS.max(range.start) }
    }
}

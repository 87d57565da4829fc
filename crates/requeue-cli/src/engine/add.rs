//! `requeue add`: writes keys to the queue.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use memchr::memchr_iter;
use requeue_engine::EngineError;
use requeue_sqlite::AddOptions;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::store::{Store, plain};
use crate::config::engine::{Add, Keys};
use crate::system::exit::refuse;
use crate::text::{at, json, show};

/// Maximum number of keys written in one transaction.
const AT_ONCE: usize = 1000;
const CHUNK: usize = 64 * 1024;

/// Keys that are written together, and the progress.
pub(super) struct Adding<'a> {
    client: &'a mut Store,
    queue: &'a str,
    how: &'a Add,
    /// The unit of the numbers.
    unit: &'static str,
    batch: Vec<Vec<u8>>,
    /// The values of the batch, if its keys have some.
    values: Vec<String>,
    /// Number of the first line in the batch.
    first: u64,
    /// Number of lines read.
    taken: u64,
    pub(super) added: u64,
    pub(super) refused: u64,
}

/// The reason why the remaining keys were not added, and their state.
pub(super) struct Broken {
    why: String,
    added: u64,
    unit: &'static str,
    /// Keys that may have been added: the first and the last.
    pub(super) in_doubt: Option<(u64, u64)>,
    /// The first key that was certainly not added, as were all later ones.
    pub(super) not_added_from: u64,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { why, added, unit, in_doubt, not_added_from } = self;
        let keys =
            if *added == 1 { "1 key was added".to_owned() } else { format!("{added} keys were added") };
        write!(f, "{why}; {keys}; ")?;
        match in_doubt {
            Some((first, last)) if first == last => write!(f, "{unit} {first} may have been added; ")?,
            Some((first, last)) => write!(f, "{unit}s {first} to {last} may have been added; ")?,
            None => {}
        }
        write!(f, "nothing from {unit} {not_added_from} on was added")
    }
}

impl<'a> Adding<'a> {
    pub(super) fn new(client: &'a mut Store, queue: &'a str, how: &'a Add) -> Self {
        let unit = if matches!(how.keys, Keys::Read { .. }) { "line" } else { "key" };
        Self {
            client,
            queue,
            how,
            unit,
            batch: Vec::new(),
            values: Vec::new(),
            first: 1,
            taken: 0,
            added: 0,
            refused: 0,
        }
    }

    /// Records a key, and writes if there are enough of them. A key that the engine does not store is
    /// reported, and the others are added.
    ///
    /// # Errors
    ///
    /// Like [`write`](Self::write).
    pub(super) fn take(&mut self, key: Vec<u8>) -> Result<(), Broken> {
        self.taken += 1;
        let (key, value) = match self.value(key) {
            Ok(read) => read,
            Err(why) => {
                refuse(1, &why);
                self.refused += 1;
                return Ok(());
            }
        };
        if let Some(longest) = self.client.longest_key().filter(|longest| key.len() > *longest) {
            let (name, length) = (show::key(&key), key.len());
            refuse(1, &format!("{name}: this key has {length} bytes, and a server keeps {longest} at most"));
            self.refused += 1;
            return Ok(());
        }
        if self.batch.is_empty() {
            self.first = self.taken;
        }
        self.batch.push(key);
        self.values.extend(value);
        if self.batch.len() >= AT_ONCE { self.write() } else { Ok(()) }
    }

    /// Splits a line into key and value.
    fn value(&self, mut line: Vec<u8>) -> Result<(Vec<u8>, Option<String>), String> {
        if !matches!(self.how.keys, Keys::Read { values: true, .. }) {
            return Ok((line, self.how.value.clone()));
        }
        let unit = format!("{} {}", self.unit, self.taken);
        let tab = memchr::memchr(b'\t', &line)
            .ok_or_else(|| format!("{unit}: there is no tab and no value behind the key"))?;
        if tab == 0 {
            return Err(format!("{unit}: there is no key before the tab"));
        }
        let text = line.split_off(tab + 1);
        line.pop();
        let text = String::from_utf8(text).map_err(|_| format!("{unit}: the value is no UTF-8"))?;
        Ok((line, Some(json::read(&text).map_err(|why| format!("{unit}: {why}"))?)))
    }

    /// Writes the recorded keys.
    ///
    /// # Errors
    ///
    /// If they were not written, or may not have been.
    pub(super) fn write(&mut self) -> Result<(), Broken> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let Add { when, priority, group_by, absorb, .. } = self.how;
        let delay = when.at.as_ref().map(at::delay).or(when.after);
        let (schedule, values) = (when.schedule.as_ref(), &*self.values);
        let how =
            AddOptions { delay, priority: *priority, every: when.every, schedule, values, absorb: *absorb };
        let written = self.client.add(self.queue, &self.batch, &how, group_by.as_ref());
        match written {
            Ok(()) => {
                self.added += self.batch.len() as u64;
                self.batch.clear();
                self.values.clear();
                Ok(())
            }
            Err(e) => Err(self.failed(&e)),
        }
    }

    /// The engine did not take the keys that are noted, or takes none at all.
    pub(super) fn failed(&self, e: &EngineError) -> Broken {
        // the others say that nothing has changed
        let is_unsure =
            matches!(e, EngineError::Unknown(_) | EngineError::Codec(_)) && !self.batch.is_empty();
        let in_doubt = is_unsure.then_some((self.first, self.taken));
        let not_added_from = in_doubt.map_or(self.first, |(_, last)| last + 1);
        self.broken(plain(e), in_doubt, not_added_from)
    }

    fn broken(&self, why: String, in_doubt: Option<(u64, u64)>, not_added_from: u64) -> Broken {
        Broken { why, added: self.added, unit: self.unit, in_doubt, not_added_from }
    }

    /// Adds the lines of standard input. All lines read are written before it waits for the next one: a line
    /// that comes from time to time is in the queue at once, and long input goes in large transactions.
    ///
    /// # Errors
    ///
    /// Like [`write`](Self::write), or if the input can't be read further.
    pub(super) fn read(&mut self, separator: u8) -> Result<(), Broken> {
        let stdin = rustix::stdio::stdin();
        let (mut chunk, mut rest) = (vec![0; CHUNK], Vec::new());
        loop {
            if !has_more(stdin) {
                self.write()?;
            }
            let read = match rustix::io::read(stdin, &mut chunk[..]) {
                Ok(0) => break,
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    wait(stdin);
                    continue;
                }
                Err(e) => {
                    self.write()?;
                    let why = format!("standard input: {}", io::Error::from(e));
                    return Err(self.broken(why, None, self.taken + 1));
                }
            };
            let mut begin = 0;
            for end in memchr_iter(separator, &chunk[..read]) {
                rest.extend_from_slice(&chunk[begin..end]);
                begin = end + 1;
                self.take_line(std::mem::take(&mut rest))?;
            }
            rest.extend_from_slice(&chunk[begin..read]);
        }
        if !rest.is_empty() {
            self.take_line(rest)?;
        }
        Ok(())
    }

    fn take_line(&mut self, line: Vec<u8>) -> Result<(), Broken> {
        if line.is_empty() {
            // no key, but it counts as a line
            self.taken += 1;
            return Ok(());
        }
        self.take(line)
    }
}

/// Whether a read would not block. True if the system can't tell.
fn has_more(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    !matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
}

/// Waits for input on a non-blocking descriptor.
fn wait(fd: BorrowedFd<'_>) {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    // the caller reads again, also after an interrupted poll
    let _ = poll(&mut fds, None);
}

#[cfg(test)]
mod tests {
    use super::Broken;

    #[test]
    fn lines_that_may_be_added_are_named() {
        let said = |added, in_doubt| {
            let why = "the server does not answer".to_owned();
            Broken { why, added, unit: "line", in_doubt, not_added_from: 1003 }.to_string()
        };
        assert_eq!(
            said(2, Some((3, 1002))),
            "the server does not answer; 2 keys were added; lines 3 to 1002 may have been added; nothing from line 1003 on was added"
        );
        assert_eq!(
            said(1, Some((1002, 1002))),
            "the server does not answer; 1 key was added; line 1002 may have been added; nothing from line 1003 on was added"
        );
    }
}

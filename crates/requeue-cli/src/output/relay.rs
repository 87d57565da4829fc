//! A program's output on its way to ours: whole lines, with a tag if asked for.
//!
//! A line longer than [`LONGEST_LINE`] is cut into lines of that length. Keeping it would take unbounded
//! memory; passing it on in pieces would mix it with others' lines, or make every other key wait for its end.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use memchr::{memchr_iter, memrchr};
use rustix::io::Errno;

use super::console::{Console, Meanwhile, Stream};
use super::group::Group;

/// Maximum length of a line that is not cut.
pub(crate) const LONGEST_LINE: usize = 1 << 20;

/// One of the child's outputs, until it is closed.
pub(crate) struct Output {
    pub(crate) fd: OwnedFd,
    pub(crate) relay: Relay,
}

impl Output {
    /// Reads once. `None` at the end.
    pub(crate) fn read(
        &mut self,
        scratch: &mut [u8],
        console: &Console,
        meanwhile: &mut dyn Meanwhile,
    ) -> Option<usize> {
        match rustix::io::read(&self.fd, &mut scratch[..]) {
            Ok(0) => None,
            Ok(n) => {
                self.relay.feed(&scratch[..n], console, meanwhile);
                Some(n)
            }
            Err(Errno::INTR | Errno::AGAIN) => Some(0),
            Err(_) => None,
        }
    }
}

/// One output of a child on its way to one of ours.
#[derive(Debug)]
pub(crate) struct Relay {
    stream: Stream,
    /// Prefix of every line.
    tag: Option<Arc<[u8]>>,
    /// The beginning of an incomplete line.
    rest: Vec<u8>,
    /// Keeps the lines until the end of the run.
    group: Option<Arc<Group>>,
}

impl Relay {
    pub(crate) fn new(stream: Stream, tag: Option<Arc<[u8]>>, group: Option<Arc<Group>>) -> Self {
        Self { stream, tag, rest: Vec::new(), group }
    }

    /// Passes on the lines that end in `chunk`.
    pub(crate) fn feed(&mut self, chunk: &[u8], console: &Console, meanwhile: &mut dyn Meanwhile) {
        let mut chunk = chunk;
        if let Some(end) = memrchr(b'\n', chunk) {
            let (lines, tail) = chunk.split_at(end + 1);
            if self.rest.is_empty() {
                self.send(lines, console, meanwhile);
            } else {
                let mut whole = std::mem::take(&mut self.rest);
                whole.extend_from_slice(lines);
                self.send(&whole, console, meanwhile);
                whole.clear();
                self.rest = whole;
            }
            chunk = tail;
        }
        self.rest.extend_from_slice(chunk);
        while self.rest.len() > LONGEST_LINE {
            let tail = self.rest.split_off(LONGEST_LINE);
            self.end_line(console, meanwhile);
            self.rest = tail;
        }
    }

    /// Ends the child's output: an unfinished line becomes a line.
    pub(crate) fn finish(&mut self, console: &Console, meanwhile: &mut dyn Meanwhile) {
        if !self.rest.is_empty() {
            self.end_line(console, meanwhile);
        }
    }

    fn end_line(&mut self, console: &Console, meanwhile: &mut dyn Meanwhile) {
        let mut line = std::mem::take(&mut self.rest);
        line.push(b'\n');
        self.send(&line, console, meanwhile);
    }

    fn send(&self, lines: &[u8], console: &Console, meanwhile: &mut dyn Meanwhile) {
        let with_tag = self.tag.as_ref().map(|tag| tagged(tag, lines));
        let lines = with_tag.as_deref().unwrap_or(lines);
        match &self.group {
            None => console.write(self.stream, lines, meanwhile),
            Some(group) => group.take(self.stream, lines, console, meanwhile),
        }
    }
}

/// `lines`, each prefixed by the tag and a tab.
fn tagged(tag: &[u8], lines: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(lines.len() + 2 * tag.len());
    let mut from = 0;
    for end in memchr_iter(b'\n', lines) {
        out.extend_from_slice(tag);
        out.push(b'\t');
        out.extend_from_slice(&lines[from..=end]);
        from = end + 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_gets_the_tag() {
        assert_eq!(tagged(b"k", b"a\n\nb\n"), b"k\ta\nk\t\nk\tb\n");
    }
}

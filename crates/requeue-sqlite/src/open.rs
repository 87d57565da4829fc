//! The file as this process has it open, and which of its queues are.

use crate::lock;
use crate::writer::Writer;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A file that is open, which all handles of it share.
pub(crate) struct OpenFile {
    pub(crate) path: PathBuf,
    pub(crate) writer: Arc<Writer>,
    pub(crate) open: OpenQueues,
}

/// The open queues of a file, by name.
#[derive(Default)]
pub(crate) struct OpenQueues {
    names: Mutex<Vec<String>>,
    /// Notified when one of them was closed.
    closed: Condvar,
}

impl OpenQueues {
    /// Records an open queue. If it is still open it waits a while: the committer and stopped workers may be
    /// about to release it. False if it stays open.
    pub(crate) fn insert(&self, name: &str) -> bool {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |names: &mut Vec<String>| names.iter().any(|open| open == name);
        let waited = self.closed.wait_timeout_while(names, lock::LETS_GO, is_open);
        let (mut names, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if !waited.timed_out() {
            names.push(name.to_owned());
        }
        !waited.timed_out()
    }

    fn remove(&self, name: &str) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).retain(|open| open != name);
        self.closed.notify_all();
    }
}

/// Marks the queue with this name as open while it exists.
pub(crate) struct IsOpen {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) name: String,
    /// The queue's number, once this process works on it.
    pub(crate) number: Option<i64>,
}

impl Drop for IsOpen {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.file.writer.leave(number);
        }
        self.file.open.remove(&self.name);
    }
}

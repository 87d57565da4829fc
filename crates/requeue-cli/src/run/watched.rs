//! Runs of `--watch` whose file is gone.
//!
//! Editors and `sed -i` create files that live for a moment. If a file is gone before the program could see
//! it, the program is told neither that it was written nor that it was deleted. And a missing file cannot
//! make its key fail for ever: a failed run is followed by one for the deletion, and then the key is done.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use requeue_watch::Event;

use crate::config::{On, Watch};
use crate::input::cause::Seen;
use crate::input::distinct::Distinct;
use crate::run::judge::Verdict;

#[derive(Debug)]
pub(crate) struct Watched {
    /// Files that were there at the start, or for which a run has begun since: a program may know them, and
    /// needs to be told of their deletion.
    known: Mutex<Distinct>,
    /// The events to run for.
    initial: bool,
    write: bool,
    delete: bool,
    /// All files are one key, which is none of them: each event is a reason to run it.
    one: bool,
}

impl Watched {
    pub(crate) fn new(watch: &Watch) -> Self {
        let [initial, write, delete] = [On::Initial, On::Write, On::Delete].map(|on| watch.runs_on(on));
        Self { known: Mutex::default(), initial, write, delete, one: watch.one }
    }

    /// Records that a program knows this file.
    pub(crate) fn know(&self, key: &[u8]) {
        self.known().is_new(key);
    }

    pub(crate) fn knows(&self, key: &[u8]) -> bool {
        self.known().contains(key)
    }

    /// Whether this event of a file is a reason to run its key. `started`: all files that were there at the
    /// start have been reported: from then on `initial` comes from a requested resync.
    pub(crate) fn runs_on(&self, key: &[u8], event: Event, started: bool) -> bool {
        match event {
            Event::Delete => self.delete && (self.one || self.knows(key)),
            Event::Initial => {
                self.know(key);
                self.initial || started
            }
            _ => {
                if !self.write {
                    self.know(key);
                }
                self.write
            }
        }
    }

    /// The observation for the program, for a key that is handed out after `seen`; `None` if there is nothing
    /// to run it for. `failures` are those in a row.
    pub(crate) fn begins(&self, key: &[u8], seen: &Seen, failures: u32) -> Option<Seen> {
        let gone = !self.one && is_gone(key);
        if gone && !(self.delete && self.knows(key)) {
            return None;
        }
        self.know(key);
        let event = if gone && failures > 0 { Event::Delete } else { seen.event };
        Some(Seen { event, ..seen.clone() })
    }

    /// The meaning of a failed run for its key if the file is gone. `told` is the event that its program got,
    /// after this number of failures in a row.
    pub(crate) fn ended(&self, key: &[u8], verdict: Verdict, told: Event, failures: u32) -> Verdict {
        match verdict {
            Verdict::Retry(why) | Verdict::GiveUp(why) if !self.one && is_gone(key) => {
                let last = !self.delete || (told == Event::Delete && failures > 0);
                if !last {
                    return Verdict::AtOnce(why);
                }
                // Its program has heard of the end: what a watcher says of it now is no news.
                self.known().remove(key);
                Verdict::Gone(why)
            }
            other => other,
        }
    }

    fn known(&self) -> MutexGuard<'_, Distinct> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the system says that there is no such file. If unknown, false.
fn is_gone(key: &[u8]) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    let path = Path::new(OsStr::from_bytes(key));
    path.symlink_metadata().is_err_and(|e| matches!(e.kind(), NotFound | NotADirectory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::outcome::Failure;

    /// A directory's watched files, with one key that exists and one that does not.
    fn setting(on: [bool; 3]) -> (Watched, tempfile::TempDir, Vec<u8>, Vec<u8>) {
        let [initial, write, delete] = on;
        let dir = tempfile::tempdir().unwrap();
        let key = |name| dir.path().join(name).into_os_string().into_encoded_bytes();
        std::fs::write(dir.path().join("there"), "").unwrap();
        let (there, gone) = (key("there"), key("gone"));
        (Watched { known: Mutex::default(), initial, write, delete, one: false }, dir, there, gone)
    }

    fn seen(event: Event) -> Seen {
        Seen { event, relative: "x".into() }
    }

    #[test]
    fn a_file_that_nobody_knows_is_not_told_of_when_it_is_gone() {
        let (files, _dir, there, gone) = setting([true; 3]);
        for key in [&there, &gone] {
            assert!(files.runs_on(key, Event::Write, true));
            assert!(!files.runs_on(key, Event::Delete, true), "no run has begun");
        }
        assert_eq!(files.begins(&gone, &seen(Event::Write), 0), None);
        assert!(!files.runs_on(&gone, Event::Delete, true), "nor has one now");
        assert_eq!(files.begins(&there, &seen(Event::Write), 0), Some(seen(Event::Write)));
        assert!(files.runs_on(&there, Event::Delete, true));
    }

    #[test]
    fn the_deletion_of_a_file_that_was_there_at_the_start_is_told() {
        for initial in [true, false] {
            let (files, _dir, _, gone) = setting([initial, true, true]);
            assert_eq!(files.runs_on(&gone, Event::Initial, false), initial);
            assert!(files.runs_on(&gone, Event::Initial, true), "a resync is asked for");
            assert!(files.runs_on(&gone, Event::Delete, true));
            assert_eq!(files.begins(&gone, &seen(Event::Delete), 0), Some(seen(Event::Delete)));
        }
    }

    #[test]
    fn only_the_events_that_are_chosen_are_run_for() {
        let (files, _dir, there, gone) = setting([false, true, false]);
        files.know(&gone);
        assert!(!files.runs_on(&gone, Event::Delete, true));
        assert_eq!(files.begins(&gone, &seen(Event::Write), 0), None, "that would tell of the deletion");
        assert_eq!(files.begins(&there, &seen(Event::Write), 0), Some(seen(Event::Write)));
        let (files, _dir, _, gone) = setting([false, false, true]);
        assert!(!files.runs_on(&gone, Event::Write, true));
        assert!(files.runs_on(&gone, Event::Delete, true), "its user knows the file without us");
    }

    #[test]
    fn a_run_that_fails_for_a_file_that_is_gone_is_run_once_more_for_the_deletion() {
        let (files, _dir, there, gone) = setting([true; 3]);
        files.know(&gone);
        let failed = |key, told, failures| files.ended(key, Verdict::Retry(Failure::Exit(1)), told, failures);
        assert!(matches!(failed(&there, Event::Write, 0), Verdict::Retry(_)));
        assert!(matches!(failed(&there, Event::Delete, 1), Verdict::Retry(_)), "it is back");
        assert!(matches!(failed(&gone, Event::Write, 7), Verdict::AtOnce(_)));
        assert_eq!(files.begins(&gone, &seen(Event::Write), 1), Some(seen(Event::Delete)));
        assert!(matches!(failed(&gone, Event::Delete, 1), Verdict::Gone(_)));
        assert!(!files.runs_on(&gone, Event::Delete, true), "it has been told");
        // A file whose first failure was of a deletion has another try as well.
        assert!(matches!(failed(&gone, Event::Delete, 0), Verdict::AtOnce(_)));
        let gave_up = files.ended(&gone, Verdict::GiveUp(Failure::Exit(1)), Event::Write, 4);
        assert!(matches!(gave_up, Verdict::AtOnce(_)));
        assert!(matches!(files.ended(&gone, Verdict::Done, Event::Write, 0), Verdict::Done));
    }
}

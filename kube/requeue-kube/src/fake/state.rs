//! State shared by a server and its requests.

use super::store::Store;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Maximum number of lists kept for requests of their next pages.
const PAGES: u64 = 256;

/// A list at the time when its first page was requested.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) version: u64,
    pub(super) items: Vec<Arc<Value>>,
}

/// How a watch is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Like a broken connection.
    Broken,
    /// With an error: its version is too old.
    Gone,
}

/// An open watch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) kind: usize,
    pub(super) end: Option<End>,
}

/// Requests that the server is to answer with an error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failing {
    pub(super) code: u16,
    pub(super) writes_only: bool,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) store: Store,
    pub(super) watches: BTreeMap<u64, Open>,
    pub(super) last_watch: u64,
    /// Kinds whose watches get no events; `None` for all.
    pub(super) paused: BTreeSet<Option<usize>>,
    pub(super) delay: Duration,
    pub(super) failing: VecDeque<Failing>,
    /// Kinds whose requests are answered with an error.
    pub(super) refused: HashMap<usize, u16>,
    pub(super) loses_answers: u32,
    pub(super) requests: HashMap<(&'static str, usize), u64>,
    pub(super) writes: u64,
    /// Writes that have come and have no answer yet.
    pub(super) writing: u64,
    pub(super) last_write: Instant,
    pages: BTreeMap<u64, Page>,
    last_page: u64,
}

impl State {
    fn new() -> Self {
        Self {
            store: Store::default(),
            watches: BTreeMap::new(),
            last_watch: 0,
            paused: BTreeSet::new(),
            delay: Duration::ZERO,
            failing: VecDeque::new(),
            refused: HashMap::new(),
            loses_answers: 0,
            requests: HashMap::new(),
            writes: 0,
            writing: 0,
            last_write: Instant::now(),
            pages: BTreeMap::new(),
            last_page: 0,
        }
    }

    pub(super) fn is_paused(&self, kind: usize) -> bool {
        self.paused.contains(&None) || self.paused.contains(&Some(kind))
    }

    /// The error for the next request, if a test asked for one.
    pub(super) fn fails(&mut self, kind: usize, is_write: bool) -> Option<u16> {
        if let Some(code) = self.refused.get(&kind) {
            return Some(*code);
        }
        let place = self.failing.iter().position(|failing| is_write || !failing.writes_only)?;
        self.failing.remove(place).map(|failing| failing.code)
    }

    pub(super) fn page(&self, number: u64) -> Option<Page> {
        self.pages.get(&number).cloned()
    }

    /// Keeps a list that has more entries than were requested.
    pub(super) fn keep(&mut self, page: Page, limit: Option<usize>) -> u64 {
        if limit.is_some_and(|limit| page.items.len() > limit) {
            self.last_page += 1;
            self.pages.insert(self.last_page, page);
            if let Some(old) = self.last_page.checked_sub(PAGES) {
                self.pages.remove(&old);
            }
        }
        self.last_page
    }
}

/// The state, and a signal for watches to look at it.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    bell: watch::Sender<()>,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State::new()), bell: watch::Sender::new(()) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bell(&self) -> watch::Receiver<()> {
        self.bell.subscribe()
    }

    pub(super) fn ring(&self) {
        self.bell.send_replace(());
    }
}

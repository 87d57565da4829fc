//! A watch: the lines of its answer.

use super::answer::{Request, partial};
use super::kinds::Target;
use super::refusal::Refusal;
use super::select::Select;
use super::state::{End, Open, Shared};
use super::store::Change;
use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Interval of bookmarks, for watches that asked for them.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

pub(super) struct Watching {
    shared: Arc<Shared>,
    bell: watch::Receiver<()>,
    id: u64,
    target: Target,
    select: Select,
    metadata_only: bool,
    bookmarks: bool,
    /// Changes up to this version have been told.
    position: u64,
    lines: VecDeque<Bytes>,
    ended: bool,
    deadline: Option<Instant>,
    next_bookmark: Instant,
}

impl Watching {
    /// Begins a watch.
    pub(super) fn begin(shared: &Arc<Shared>, target: Target, request: &Request) -> Result<Self, Refusal> {
        let number = |name: &str| {
            let value = request.parameter(name).map(str::parse::<u64>).transpose();
            // So a real server answers.
            value.map_err(|e| Refusal::new(500, "", format!("{name}: Invalid value: {e}")))
        };
        let (asked, timeout) = (number("resourceVersion")?, number("timeoutSeconds")?);
        let bookmarks = request.is_set("allowWatchBookmarks");
        let initial = request.parameter("sendInitialEvents");
        let matching = request.parameter("resourceVersionMatch");
        let invalid = |why: &str| Refusal::invalid_options("ListOptions", why);
        if initial.is_some() && matching != Some("NotOlderThan") {
            return Err(invalid(
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if initial.is_none() && matching.is_some() {
            return Err(invalid(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch",
            ));
        }
        let now = Instant::now();
        let mut watching = Self {
            bell: shared.bell(),
            shared: shared.clone(),
            id: 0,
            select: request.select()?,
            metadata_only: request.metadata_only(),
            bookmarks,
            position: 0,
            lines: VecDeque::new(),
            ended: false,
            deadline: timeout
                .filter(|seconds| *seconds > 0)
                .map(|seconds| now + Duration::from_secs(seconds)),
            next_bookmark: now + BOOKMARK_EVERY,
            target,
        };
        let mut state = shared.state();
        let version = state.store.version;
        let is_at_any = asked.unwrap_or_default() == 0;
        let forgotten = state.store.forgotten(watching.target.kind);
        match asked {
            _ if initial.map_or(is_at_any, |initial| initial == "true") => {
                let kind = watching.target.kind;
                let objects = state.store.objects.iter().filter(|(key, _)| key.0 == kind);
                let objects: Vec<_> = objects
                    .filter(|(key, object)| watching.means(&key.1, object))
                    .map(|(_, object)| object)
                    .collect();
                let lines: Vec<_> = objects.iter().map(|object| watching.line("ADDED", object)).collect();
                watching.lines.extend(lines);
                watching.position = version;
                if initial.is_some() && bookmarks {
                    let end = json!({"k8s.io/initial-events-end": "true"});
                    let kind = &state.store.kinds[kind];
                    let bookmark = watching.bookmark(&kind.api_version, &kind.kind, Some(end));
                    watching.lines.push_back(bookmark);
                }
            }
            Some(from) if from != 0 && from < forgotten => {
                let why = format!("too old resource version: {from} ({forgotten})");
                watching.lines.push_back(event("ERROR", &Refusal::expired(why).status()));
                watching.ended = true;
            }
            Some(from) if from != 0 => watching.position = from,
            _ => watching.position = version,
        }
        state.last_watch += 1;
        watching.id = state.last_watch;
        state.watches.insert(watching.id, Open { kind: watching.target.kind, end: None });
        drop(state);
        Ok(watching)
    }

    pub(super) fn into_lines(self) -> impl Stream<Item = Bytes> + Send {
        stream::unfold(self, |mut watching| async move { watching.next().await.map(|line| (line, watching)) })
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            if self.ended || self.look() {
                return None;
            }
            if !self.lines.is_empty() {
                continue;
            }
            let (deadline, next_bookmark) = (self.deadline, self.next_bookmark);
            tokio::select! {
                _ = self.bell.changed() => {}
                () = sleep_until(deadline.unwrap_or(next_bookmark)), if deadline.is_some() => return None,
                () = sleep_until(next_bookmark), if self.bookmarks => {
                    self.next_bookmark = next_bookmark + BOOKMARK_EVERY;
                    let shared = self.shared.clone();
                    let state = shared.state();
                    if !state.is_paused(self.target.kind) {
                        let kind = &state.store.kinds[self.target.kind];
                        let bookmark = self.bookmark(&kind.api_version, &kind.kind, None);
                        self.lines.push_back(bookmark);
                    }
                }
            }
        }
    }

    /// Takes over new changes. Returns whether the watch has ended.
    fn look(&mut self) -> bool {
        let shared = self.shared.clone();
        let state = shared.state();
        match state.watches.get(&self.id).and_then(|open| open.end) {
            Some(End::Broken) => return true,
            Some(End::Gone) => {
                let why = format!("too old resource version: {} ({})", self.position, state.store.version);
                self.lines.push_back(event("ERROR", &Refusal::expired(why).status()));
                self.ended = true;
                return false;
            }
            None => {}
        }
        if state.is_paused(self.target.kind) {
            return false;
        }
        let changes = &state.store.changes;
        let from = changes.partition_point(|change| change.version <= self.position);
        let lines: Vec<_> = changes.range(from..).filter_map(|change| self.tell(change)).collect();
        self.lines.extend(lines);
        // A watch may begin at a version that is yet to come.
        self.position = self.position.max(state.store.version);
        false
    }

    fn means(&self, namespace: &str, object: &Value) -> bool {
        self.target.namespace.as_ref().is_none_or(|wanted| wanted == namespace) && self.select.matches(object)
    }

    /// This watch's event for a change: an object that is no longer selected counts as deleted.
    fn tell(&self, change: &Change) -> Option<Bytes> {
        if change.key.0 != self.target.kind {
            return None;
        }
        let means = |object: &&Arc<Value>| self.means(&change.key.1, object);
        let (old, new) = (change.old.as_ref().filter(means), change.new.as_ref().filter(means));
        match (old, new) {
            (None, None) => None,
            (None, Some(new)) => Some(self.line("ADDED", new)),
            (Some(_), Some(new)) => Some(self.line("MODIFIED", new)),
            (Some(old), None) => {
                let mut last = change.last.as_deref().unwrap_or(old).clone();
                last["metadata"]["resourceVersion"] = json!(change.version.to_string());
                Some(self.line("DELETED", &last))
            }
        }
    }

    fn line(&self, what: &str, object: &Value) -> Bytes {
        if self.metadata_only { event(what, &partial(object)) } else { event(what, object) }
    }

    fn bookmark(&self, api_version: &str, kind: &str, annotations: Option<Value>) -> Bytes {
        let mut object = json!({
            "kind": kind,
            "apiVersion": api_version,
            "metadata": {"resourceVersion": self.position.to_string()},
        });
        if let Some(annotations) = annotations {
            object["metadata"]["annotations"] = annotations;
        }
        self.line("BOOKMARK", &object)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.shared.state().watches.remove(&self.id);
    }
}

fn event(what: &str, object: &Value) -> Bytes {
    let mut line = json!({"type": what, "object": object}).to_string();
    line.push('\n');
    line.into()
}

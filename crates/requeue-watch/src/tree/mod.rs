//! What is known, and what an event makes of it.
//!
//! An event is only a reason to look: it says where, and what stands there *now* is
//! asked of the disk. So it does not matter how old an event is, and the order of two
//! matters only in that the last one on a name comes last, which the kernel keeps. Four
//! rules make sure that nothing is missed:
//!
//! 1. **Watch, then list.** What comes into a directory after its watch is set makes an
//!    event; what came before stands in the list.
//! 2. **The watch is the identity.** The kernel gives the same number for the same
//!    directory. Where a path has another number than before, it is another directory,
//!    and all in it is told anew; where it has the same, the events tell all. But a directory
//!    that was moved here may have been here before, and away for a while in which its
//!    events were looked for in another one: it is told anew as well.
//! 3. **Whatever is not known is told anew.** An overflow, a root that comes back.
//! 4. **A deletion is told again when something came and went unseen.** Whoever is told
//!    of a deletion may find the file, because it is back; if it has gone again before it
//!    is looked for here, it was never known to be back, and only the memory of the first
//!    deletion tells that somebody may have seen it ([`Ghosts`]).
//!
//! Directories are listed one at a time ([`Tree::step`]), so that whoever drives this
//! can take the events that come meanwhile.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use self::ghosts::Ghosts;
use self::root::{Root, Shape};
use crate::disk::{Disk, Kind, Links, Watch, is_gone};
use crate::gitignore::{self, GIT, GITIGNORE, Gitignore};
use crate::report::{Change, Event, Report};
use crate::rules::{Rules, Verdict};

mod ghosts;
mod root;
mod scan;
#[cfg(test)]
mod tests;

/// What the kernel tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// Something about a name in a directory. `moved` says that something was moved to that name.
    Entry { watch: Watch, name: OsString, moved: bool },
    /// Something about a directory itself. `over` says that its watch is no more.
    Itself { watch: Watch, over: bool },
    /// Events were lost.
    Overflow,
}

/// Names a directory for as long as we run; none is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node(u64);

#[derive(Debug)]
struct Dir {
    root: usize,
    parent: Option<Node>,
    /// The name in its parent.
    name: OsString,
    /// None before the first scan, and where no watch could be had.
    watch: Option<Watch>,
    /// Keys, and files that were keys when they were last told of.
    files: HashSet<OsString>,
    dirs: HashMap<OsString, Node>,
    rules: Option<Gitignore>,
    /// It was told as a key, being a directory.
    key: bool,
}

/// How much of a directory is told when it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scan {
    /// Everything, if it is another directory than before; else it is not listed.
    IfOther,
    /// What is not known yet.
    News,
    /// Everything.
    All(Event),
}

#[derive(Debug)]
pub(crate) struct Tree {
    rules: Rules,
    /// Directories are keys too.
    dir_keys: bool,
    roots: Vec<Root>,
    dirs: HashMap<Node, Dir>,
    /// The directories with this watch: several if roots overlap.
    watched: HashMap<Watch, Vec<Node>>,
    todo: VecDeque<(Node, Scan)>,
    /// Directories of which it was said that they cannot be read. They are tried again.
    unreadable: HashSet<Node>,
    ghosts: Ghosts,
    next: u64,
    out: Vec<Report>,
}

impl Tree {
    pub(crate) fn new(rules: Rules, dir_keys: bool, roots: Vec<PathBuf>, now: Instant) -> Self {
        Self {
            rules,
            dir_keys,
            roots: roots.into_iter().map(Root::new).collect(),
            dirs: HashMap::new(),
            watched: HashMap::new(),
            todo: VecDeque::new(),
            unreadable: HashSet::new(),
            ghosts: Ghosts::new(now),
            next: 0,
            out: Vec::new(),
        }
    }

    /// It is that late by now. Never goes back.
    pub(crate) fn time(&mut self, now: Instant) {
        self.ghosts.time(now);
    }

    /// What is to be told since the last call.
    pub(crate) fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.out)
    }

    /// How many files and directories are known.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.dirs.values().map(|dir| dir.files.len()).sum(), self.watched.len())
    }

    /// Whether there are directories to be listed.
    pub(crate) fn is_busy(&self) -> bool {
        !self.todo.is_empty()
    }

    /// Lists one directory that waits for it.
    ///
    /// # Errors
    ///
    /// The kernel has no watch left.
    pub(crate) fn step(&mut self, disk: &mut impl Disk) -> Result<(), (PathBuf, io::Error)> {
        match self.todo.pop_front() {
            Some((node, scan)) => self.scan(disk, node, scan),
            None => Ok(()),
        }
    }

    /// Takes what the kernel tells.
    pub(crate) fn happened(&mut self, disk: &mut impl Disk, happened: Happened) {
        match happened {
            Happened::Entry { watch, name, moved } => {
                // Not known: a watch that was given up since.
                for node in self.watched.get(&watch).cloned().unwrap_or_default() {
                    self.entry(disk, node, &name, moved);
                }
            }
            Happened::Itself { watch, over } => {
                let nodes = if over {
                    self.watched.remove(&watch).unwrap_or_default()
                } else {
                    self.watched.get(&watch).cloned().unwrap_or_default()
                };
                for node in nodes {
                    if let Some(dir) = self.dirs.get_mut(&node) {
                        dir.watch = dir.watch.filter(|_| !over);
                        self.todo.push_back((node, Scan::IfOther));
                    }
                }
            }
            Happened::Overflow => {
                self.out.push(Report::Overflow);
                self.tell_all(Event::Write);
            }
        }
    }

    /// Everything is looked at and told again.
    pub(crate) fn tell_all(&mut self, event: Event) {
        let nodes: Vec<Node> = self.roots.iter().filter_map(|root| root.node).collect();
        self.todo.extend(nodes.into_iter().map(|node| (node, Scan::All(event))));
    }

    /// Something happened to a name in a directory: looks what stands there.
    fn entry(&mut self, disk: &mut impl Disk, node: Node, name: &OsStr, moved: bool) {
        let Some(dir) = self.dirs.get(&node) else { return };
        if !self.roots[dir.root].wants(name) {
            return;
        }
        let Ok(found) = disk.look(&self.place(node).join(name)) else {
            // Without permission, or of a length that the system refuses: the scan says so.
            self.todo.push_back((node, Scan::News));
            return;
        };
        if self.rules.gitignore && (name == GITIGNORE || name == GIT) {
            self.todo.push_back((node, Scan::News));
        }
        let kind = found.map(|found| found.kind);
        let verdict = kind.map_or(Verdict::Hidden, |kind| self.judge(node, name, kind));
        match kind.filter(|_| verdict != Verdict::Hidden) {
            Some(Kind::Dir) => {
                self.tell_ghosts(node, Some(name), kind);
                self.forget_file(node, name, Some(Event::Delete));
                let scan = if moved { Scan::All(Event::Write) } else { Scan::IfOther };
                self.enter(node, name, verdict, scan);
            }
            Some(Kind::File) => {
                self.tell_ghosts(node, Some(name), kind);
                self.forget_dir(disk, node, name, Some(Event::Delete));
                self.note_file(node, name);
                self.tell(node, Some(name), Event::Write, found.and_then(|found| found.changed));
            }
            Some(Kind::Other) | None => {
                // What is there, but hidden by now, was not deleted.
                let event = kind.is_none().then_some(Event::Delete);
                let known = dir.files.contains(name) || dir.dirs.contains_key(name);
                self.forget_file(node, name, event);
                self.forget_dir(disk, node, name, event);
                if !known {
                    self.tell_ghosts(node, Some(name), None);
                }
            }
        }
    }

    fn judge(&self, node: Node, name: &OsStr, kind: Kind) -> Verdict {
        let Some(dir) = self.dirs.get(&node) else { return Verdict::Hidden };
        let root = &self.roots[dir.root];
        if let Shape::File { .. } = root.shape {
            return if kind == Kind::File { Verdict::Key } else { Verdict::Hidden };
        }
        let relative = self.below(node).join(name);
        let verdict = self.rules.judge(&relative, kind);
        if verdict == Verdict::Hidden || !self.rules.gitignore {
            return verdict;
        }
        let mut at = Some(node);
        let inside = std::iter::from_fn(|| {
            let dir = self.dirs.get(&at?)?;
            at = dir.parent;
            Some(dir.rules.as_ref())
        });
        let all = inside.flatten().chain(&root.above);
        if gitignore::hidden(all, || root.real.join(&relative), kind) { Verdict::Hidden } else { verdict }
    }

    fn note_file(&mut self, node: Node, name: &OsStr) -> bool {
        self.dirs.get_mut(&node).is_some_and(|dir| dir.files.insert(name.to_owned()))
    }

    fn forget_file(&mut self, node: Node, name: &OsStr, event: Option<Event>) {
        let known = self.dirs.get_mut(&node).is_some_and(|dir| dir.files.remove(name));
        if let (true, Some(event)) = (known, event) {
            self.tell(node, Some(name), event, None);
        }
    }

    fn forget_dir(&mut self, disk: &mut impl Disk, node: Node, name: &OsStr, event: Option<Event>) {
        if let Some(child) = self.dirs.get(&node).and_then(|dir| dir.dirs.get(name)).copied() {
            self.forget(disk, child, event);
        }
    }

    /// A subdirectory is to be listed; a new one is entered. Told where directories are keys.
    fn enter(&mut self, node: Node, name: &OsStr, verdict: Verdict, scan: Scan) {
        let Some(parent) = self.dirs.get(&node) else { return };
        let key = self.dir_keys && verdict == Verdict::Key;
        if let Some(child) = parent.dirs.get(name).copied() {
            // Something happened to its name, or everything is told.
            let event = match scan {
                Scan::All(event) => Some(event),
                Scan::IfOther => Some(Event::Write),
                Scan::News => None,
            };
            if let Some(event) = event.filter(|_| key) {
                self.tell(child, None, event, None);
            }
            self.todo.push_back((child, scan));
            return;
        }
        let event = match scan {
            Scan::All(event) => event,
            Scan::IfOther | Scan::News => Event::Write,
        };
        let child = self.insert(parent.root, Some(node), name.to_owned(), key);
        if let Some(parent) = self.dirs.get_mut(&node) {
            parent.dirs.insert(name.to_owned(), child);
        }
        if key {
            self.tell(child, None, event, None);
        }
        self.todo.push_back((child, Scan::All(event)));
    }

    fn insert(&mut self, root: usize, parent: Option<Node>, name: OsString, key: bool) -> Node {
        let node = Node(self.next);
        self.next += 1;
        let dir = Dir {
            root,
            parent,
            name,
            watch: None,
            files: HashSet::new(),
            dirs: HashMap::new(),
            rules: None,
            key,
        };
        self.dirs.insert(node, dir);
        node
    }

    /// Forgets a directory and all below it; what were keys are told with `event`, the
    /// deepest first.
    fn forget(&mut self, disk: &mut impl Disk, top: Node, event: Option<Event>) {
        let mut order = vec![top];
        let mut at = 0;
        while let Some(dir) = order.get(at).and_then(|node| self.dirs.get(node)) {
            order.extend(dir.dirs.values());
            at += 1;
        }
        for node in order.into_iter().rev() {
            let files = self.dirs.get_mut(&node).map(|dir| std::mem::take(&mut dir.files));
            if event == Some(Event::Delete) && self.dirs.get(&node).is_some_and(|dir| dir.watch.is_none()) {
                // what came back with it is not listed yet
                self.tell_ghosts(node, None, None);
            }
            if let Some(event) = event {
                for name in files.unwrap_or_default() {
                    self.tell(node, Some(&name), event, None);
                }
                if self.dirs.get(&node).is_some_and(|dir| dir.key) {
                    self.tell(node, None, event, None);
                }
            }
            self.unwatch(disk, node);
            self.unreadable.remove(&node);
            if let Some(dir) = self.dirs.remove(&node) {
                match dir.parent.and_then(|parent| self.dirs.get_mut(&parent)) {
                    Some(parent) => drop(parent.dirs.remove(&dir.name)),
                    None => self.roots[dir.root].node = self.roots[dir.root].node.filter(|n| *n != node),
                }
            }
        }
    }

    fn unwatch(&mut self, disk: &mut impl Disk, node: Node) {
        let Some(watch) = self.dirs.get_mut(&node).and_then(|dir| dir.watch.take()) else { return };
        if let Some(nodes) = self.watched.get_mut(&watch) {
            nodes.retain(|n| *n != node);
            if nodes.is_empty() {
                self.watched.remove(&watch);
                disk.unwatch(watch);
            }
        }
    }

    /// The names from the root to this directory.
    fn below(&self, node: Node) -> PathBuf {
        let mut names = Vec::new();
        let mut at = self.dirs.get(&node);
        while let Some(dir) = at {
            let Some(parent) = dir.parent else { break };
            names.push(&dir.name);
            at = self.dirs.get(&parent);
        }
        names.into_iter().rev().collect()
    }

    /// Where the directory is, as the system is asked for it.
    fn place(&self, node: Node) -> PathBuf {
        let below = self.below(node);
        match self.dirs.get(&node).map(|dir| &self.roots[dir.root]) {
            // Joining nothing would append a slash.
            Some(root) if below.as_os_str().is_empty() => root.place().to_owned(),
            Some(root) => root.place().join(below),
            None => below,
        }
    }

    fn links(&self, node: Node) -> Links {
        match self.dirs.get(&node) {
            Some(Dir { parent: None, .. }) => Links::Follow,
            _ => Links::Refuse,
        }
    }

    fn tell(&mut self, node: Node, name: Option<&OsStr>, event: Event, changed: Option<SystemTime>) {
        let Some((path, relative)) = self.names(node, name) else { return };
        if event == Event::Delete {
            self.ghosts.insert(path.clone(), relative.clone());
        } else {
            self.ghosts.remove(&path);
        }
        let change = Change { changed, ..Change::new(path, relative, event) };
        self.out.push(Report::Change(change));
    }

    /// The path as it is told, and the one below the root.
    fn names(&self, node: Node, name: Option<&OsStr>) -> Option<(PathBuf, PathBuf)> {
        let root = &self.roots[self.dirs.get(&node)?.root];
        Some(match (&root.shape, name) {
            (Shape::File { name, .. }, _) => (root.typed.clone(), Path::new(name).to_owned()),
            (Shape::Dir, Some(name)) => {
                let relative = self.below(node).join(name);
                (root.typed.join(&relative), relative)
            }
            (Shape::Dir, None) => (self.place(node), self.below(node)),
        })
    }

    /// Something of this name, or in a directory of this name, came and may have gone. What stands there now is told
    /// otherwise.
    fn tell_ghosts(&mut self, node: Node, name: Option<&OsStr>, stands: Option<Kind>) {
        if self.ghosts.is_empty() {
            return;
        }
        let Some((top, _)) = self.names(node, name) else { return };
        for (path, relative) in self.ghosts.below(&top) {
            let stands = match stands {
                Some(Kind::File) => path == top,
                Some(Kind::Dir) => path != top,
                Some(Kind::Other) | None => false,
            };
            if !stands {
                self.ghosts.insert(path.clone(), relative.clone());
                self.out.push(Report::Change(Change::new(path, relative, Event::Delete)));
            }
        }
    }
}

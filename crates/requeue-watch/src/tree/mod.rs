//! The tree: what is known of the files, and how events change it.
//!
//! An event only says where to look: the tree then asks the disk for the *current* state there. So an old
//! event does no harm. Of several events on one name only the last must come last, and the kernel guarantees
//! that. Four rules make sure that nothing is missed:
//!
//! 1. **Watch, then list.** A file that comes into a directory after its watch is set makes an event; one
//!    that came before is in the list.
//! 2. **The watch is the identity.** The kernel gives a directory one number. If a path has a different
//!    number than before, it is another directory, and all in it is reported anew; if it has the same, the
//!    events report all changes. One exception is a directory that was moved to this path. It may have been
//!    here before and away meanwhile, and then its events were looked up in another directory. So it is
//!    reported anew too.
//! 3. **All that is uncertain is reported anew**, after an overflow or when a root comes back.
//! 4. **A deletion is reported again if the file came back and went unseen.** A program that is told of a
//!    deletion may find the file, because it is back. If the file is gone again before the tree looks, only
//!    the remembered deletion ([`Vanished`]) shows that the program may have seen it.
//!
//! Directories are listed one at a time ([`Tree::step`]), so that the caller can read events that come
//! meanwhile.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use self::root::{Root, Shape};
use self::vanished::Vanished;
use crate::disk::{Disk, Kind, Links, Watch, is_gone};
use crate::gitignore::{self, GIT, GITIGNORE, Gitignore};
use crate::report::{Change, Event, Report};
use crate::rules::{Rules, Verdict};

mod root;
mod scan;
#[cfg(test)]
mod tests;
mod vanished;

/// An event of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// An event on a name in a directory. `moved`: something was moved to that name.
    Entry { watch: Watch, name: OsString, moved: bool },
    /// An event on a directory itself. `over`: its watch has ended.
    Itself { watch: Watch, over: bool },
    /// Events were lost.
    Overflow,
}

/// Identifies a directory for the lifetime of the watcher; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node(u64);

#[derive(Debug)]
struct Dir {
    root: usize,
    parent: Option<Node>,
    /// Its name in the parent.
    name: OsString,
    /// `None` before the first scan, and if no watch could be set.
    watch: Option<Watch>,
    /// Names of keys, and of files that were keys when last reported.
    files: HashSet<OsString>,
    dirs: HashMap<OsString, Node>,
    rules: Option<Gitignore>,
    /// The directory itself was reported as a key.
    key: bool,
}

/// How much of a directory is reported when it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scan {
    /// Everything, if it is a different directory than before; otherwise it is not listed.
    IfOther,
    /// Only news.
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
    /// Directories that were reported as unreadable. They are tried again.
    unreadable: HashSet<Node>,
    vanished: Vanished,
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
            vanished: Vanished::new(now),
            next: 0,
            out: Vec::new(),
        }
    }

    /// Sets the current time. It never goes back.
    pub(crate) fn time(&mut self, now: Instant) {
        self.vanished.time(now);
    }

    /// Takes the reports since the last call.
    pub(crate) fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.out)
    }

    /// Numbers of known files and directories.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.dirs.values().map(|dir| dir.files.len()).sum(), self.watched.len())
    }

    /// Whether there are directories to list.
    pub(crate) fn is_busy(&self) -> bool {
        !self.todo.is_empty()
    }

    /// Lists one directory of those that wait for it.
    ///
    /// # Errors
    ///
    /// If the kernel has no watch left.
    pub(crate) fn step(&mut self, disk: &mut impl Disk) -> Result<(), (PathBuf, io::Error)> {
        match self.todo.pop_front() {
            Some((node, scan)) => self.scan(disk, node, scan),
            None => Ok(()),
        }
    }

    /// Handles an event of the kernel.
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

    /// Looks at everything and reports it again.
    pub(crate) fn tell_all(&mut self, event: Event) {
        let nodes: Vec<Node> = self.roots.iter().filter_map(|root| root.node).collect();
        self.todo.extend(nodes.into_iter().map(|node| (node, Scan::All(event))));
    }

    /// Handles an event on a name in a directory: looks what is there now.
    fn entry(&mut self, disk: &mut impl Disk, node: Node, name: &OsStr, moved: bool) {
        let Some(dir) = self.dirs.get(&node) else { return };
        if !self.roots[dir.root].wants(name) {
            return;
        }
        let Ok(found) = disk.look(&self.place(node).join(name)) else {
            // Without permission, or with a name too long for the system: the scan reports it.
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
                self.tell_vanished(node, Some(name), kind);
                self.forget_file(node, name, Some(Event::Delete));
                let scan = if moved { Scan::All(Event::Write) } else { Scan::IfOther };
                self.enter(node, name, verdict, scan);
            }
            Some(Kind::File) => {
                self.tell_vanished(node, Some(name), kind);
                self.forget_dir(disk, node, name, Some(Event::Delete));
                self.note_file(node, name);
                self.tell(node, Some(name), Event::Write, found.and_then(|found| found.changed));
            }
            Some(Kind::Other) | None => {
                // A file that exists, but is hidden by now, was not deleted.
                let event = kind.is_none().then_some(Event::Delete);
                let known = dir.files.contains(name) || dir.dirs.contains_key(name);
                self.forget_file(node, name, event);
                self.forget_dir(disk, node, name, event);
                if !known {
                    self.tell_vanished(node, Some(name), None);
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

    /// Schedules a subdirectory to be listed; enters a new one. Reports it if directories are keys.
    fn enter(&mut self, node: Node, name: &OsStr, verdict: Verdict, scan: Scan) {
        let Some(parent) = self.dirs.get(&node) else { return };
        let key = self.dir_keys && verdict == Verdict::Key;
        if let Some(child) = parent.dirs.get(name).copied() {
            // Its name changed, or everything is reported.
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

    /// Forgets a directory and all below it. Keys among them are reported with `event`, the deepest first.
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
                // the files that came back with it are not listed yet
                self.tell_vanished(node, None, None);
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

    /// The path of the directory for system calls.
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
            self.vanished.insert(path.clone(), relative.clone());
        } else {
            self.vanished.remove(&path);
        }
        let change = Change { changed, ..Change::new(path, relative, event) };
        self.out.push(Report::Change(change));
    }

    /// The path as it is reported, and the one below the root.
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

    /// Reports remembered deletions again, because something with this name, or in a directory of this name,
    /// came and may have gone. An entry that is there now is reported otherwise.
    fn tell_vanished(&mut self, node: Node, name: Option<&OsStr>, stands: Option<Kind>) {
        if self.vanished.is_empty() {
            return;
        }
        let Some((top, _)) = self.names(node, name) else { return };
        for (path, relative) in self.vanished.below(&top) {
            let stands = match stands {
                Some(Kind::File) => path == top,
                Some(Kind::Dir) => path != top,
                Some(Kind::Other) | None => false,
            };
            if !stands {
                self.vanished.insert(path.clone(), relative.clone());
                self.out.push(Report::Change(Change::new(path, relative, Event::Delete)));
            }
        }
    }
}

//! Listing a directory, and reporting what is new or gone in it.

use super::*;

impl Tree {
    /// Sets the watch, lists the directory, and reports what `scan` asks for.
    ///
    /// # Errors
    ///
    /// If the kernel has no watch left.
    pub(super) fn scan(
        &mut self,
        disk: &mut impl Disk,
        node: Node,
        scan: Scan,
    ) -> Result<(), (PathBuf, io::Error)> {
        if !self.dirs.contains_key(&node) {
            return Ok(());
        }
        let (place, links) = (self.place(node), self.links(node));
        let other = match disk.watch(&place, links) {
            Ok(watch) => self.bind(disk, node, watch),
            Err(e) if is_gone(&e) => {
                self.lost(disk, node);
                return Ok(());
            }
            Err(e) if is_exhausted(&e) => return Err((place, e)),
            Err(e) => {
                self.unwatch(disk, node);
                self.cannot_read(node, place, e);
                return Ok(());
            }
        };
        let scan = match scan {
            Scan::IfOther if !other => return Ok(()),
            Scan::IfOther | Scan::News if other => Scan::All(Event::Write),
            scan => scan,
        };
        match disk.list(&place, links) {
            Ok(list) => {
                self.unreadable.remove(&node);
                if scan == Scan::All(Event::Write) {
                    self.tell_vanished_in(node, &list);
                }
                self.compare(disk, node, scan, list);
            }
            Err(e) if is_gone(&e) => {
                // So that it counts as not listed.
                self.unwatch(disk, node);
                self.lost(disk, node);
            }
            Err(e) => {
                // So that the next look lists it, if it is readable then.
                self.unwatch(disk, node);
                self.cannot_read(node, place, e);
            }
        }
        Ok(())
    }

    /// Records the watch of a directory. Returns true if it is a different one than before.
    fn bind(&mut self, disk: &mut impl Disk, node: Node, watch: Watch) -> bool {
        if self.dirs.get(&node).is_some_and(|dir| dir.watch == Some(watch)) {
            return false;
        }
        self.unwatch(disk, node);
        if let Some(dir) = self.dirs.get_mut(&node) {
            dir.watch = Some(watch);
            self.watched.entry(watch).or_default().push(node);
        }
        true
    }

    fn lost(&mut self, disk: &mut impl Disk, node: Node) {
        let root = self.dirs.get(&node).filter(|dir| dir.parent.is_none()).map(|dir| dir.root);
        self.forget(disk, node, Some(Event::Delete));
        if let Some(root) = root {
            self.out.push(Report::RootGone { path: self.roots[root].typed.clone() });
        }
    }

    pub(super) fn cannot_read(&mut self, node: Node, path: PathBuf, error: io::Error) {
        if self.unreadable.insert(node) {
            self.out.push(Report::Unreadable { path, error });
        }
    }

    /// Reports remembered deletions again, because a different directory is here than before, and others may
    /// have been here in between: a file that was reported as deleted and is not in this one may have been in
    /// another.
    fn tell_vanished_in(&mut self, node: Node, list: &[(OsString, Kind)]) {
        if self.vanished.is_empty() {
            return;
        }
        let here = self.place(node);
        let below = self.vanished.below(&here);
        let names = below.iter().filter_map(|(gone, _)| gone.strip_prefix(&here).ok()?.iter().next());
        let names: HashSet<OsString> = names.map(OsStr::to_owned).collect();
        let kinds: HashMap<&OsStr, Kind> =
            list.iter().map(|(name, kind)| (name.as_os_str(), *kind)).collect();
        for name in names {
            self.tell_vanished(node, Some(&name), kinds.get(name.as_os_str()).copied());
        }
    }

    /// Compares a directory's list with the known state.
    fn compare(&mut self, disk: &mut impl Disk, node: Node, scan: Scan, list: Vec<(OsString, Kind)>) {
        if self.rules.gitignore {
            let rules = self.read_rules(disk, node, &list);
            if let Some(dir) = self.dirs.get_mut(&node) {
                dir.rules = rules;
            }
        }
        let Some(dir) = self.dirs.get(&node) else { return };
        let root = &self.roots[dir.root];
        // A known entry that is not in the list any more, or has another kind, is gone.
        let mut gone_files = dir.files.clone();
        let mut gone_dirs: HashMap<OsString, Node> = dir.dirs.clone();
        let mut hidden = HashSet::new();
        let mut found = Vec::with_capacity(list.len());
        for (name, kind) in list {
            if !root.wants(&name) {
                continue;
            }
            let verdict = self.judge(node, &name, kind);
            match kind {
                _ if verdict == Verdict::Hidden => drop(hidden.insert(name)),
                Kind::File => {
                    gone_files.remove(&name);
                    found.push((name, kind, verdict));
                }
                Kind::Dir => {
                    gone_dirs.remove(&name);
                    found.push((name, kind, verdict));
                }
                Kind::Other => {}
            }
        }
        let event = |name: &OsString| (!hidden.contains(name)).then_some(Event::Delete);
        for name in &gone_files {
            self.forget_file(node, name, event(name));
        }
        for (name, child) in &gone_dirs {
            self.forget(disk, *child, event(name));
        }
        for (name, kind, verdict) in found {
            if kind == Kind::Dir {
                self.enter(node, &name, verdict, scan);
                continue;
            }
            let new = self.note_file(node, &name);
            match scan {
                Scan::All(event) => self.tell(node, Some(&name), event, None),
                Scan::IfOther | Scan::News if new => self.tell(node, Some(&name), Event::Write, None),
                Scan::IfOther | Scan::News => {}
            }
        }
    }

    fn read_rules(&self, disk: &mut impl Disk, node: Node, list: &[(OsString, Kind)]) -> Option<Gitignore> {
        let has = |wanted: &str| list.iter().any(|(name, _)| name == wanted);
        if !has(GITIGNORE) && !has(GIT) {
            return None;
        }
        let root = &self.roots[self.dirs.get(&node)?.root];
        gitignore::of_dir(&self.place(node), &root.real.join(self.below(node)), has(GIT), disk)
    }
}

/// Whether the error says that the kernel has no watch left.
fn is_exhausted(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::StorageFull
}

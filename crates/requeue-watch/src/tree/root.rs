//! Roots: their targets, and the handling of one that goes away.

use super::*;
use crate::disk::Stamp;

/// The kind of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Dir,
    /// A file with this name. Its directory is watched, because a file that is replaced takes its own watch
    /// with it.
    File {
        name: OsString,
        dir: PathBuf,
        /// The path is a link. No event reports a change of its target, so the target is checked.
        linked: Option<Stamp>,
    },
}

#[derive(Debug)]
pub(super) struct Root {
    /// The path as given.
    pub(super) typed: PathBuf,
    pub(super) shape: Shape,
    /// `None` while it is gone.
    pub(super) node: Option<Node>,
    /// The path without links, against which `.gitignore` files are matched.
    pub(super) real: PathBuf,
    /// The rules of the directories above, the nearest first.
    pub(super) above: Vec<Gitignore>,
}

impl Root {
    pub(super) fn new(typed: PathBuf) -> Self {
        Self { typed, shape: Shape::Dir, node: None, real: PathBuf::new(), above: Vec::new() }
    }

    /// The directory that is watched.
    pub(super) fn place(&self) -> &Path {
        match &self.shape {
            Shape::Dir => &self.typed,
            Shape::File { dir, .. } => dir,
        }
    }

    /// Whether this name in the root's directory concerns it.
    pub(super) fn wants(&self, name: &OsStr) -> bool {
        match &self.shape {
            Shape::Dir => true,
            Shape::File { name: only, .. } => name == only,
        }
    }
}

impl Tree {
    /// Starts with all roots.
    ///
    /// # Errors
    ///
    /// If a root does not exist.
    pub(crate) fn begin(&mut self, disk: &mut impl Disk) -> Result<(), (PathBuf, io::Error)> {
        for root in 0..self.roots.len() {
            self.attach(disk, root, Event::Initial).map_err(|e| (self.roots[root].typed.clone(), e))?;
        }
        Ok(())
    }

    /// Resolves the root, and schedules it to be listed.
    fn attach(&mut self, disk: &mut impl Disk, index: usize, event: Event) -> io::Result<()> {
        let typed = self.roots[index].typed.clone();
        let found = disk
            .root(&typed)?
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no such file or directory"))?;
        let (shape, real) = match found.kind {
            Kind::Dir => (Shape::Dir, disk.real(&typed)?),
            Kind::File => {
                let name = typed.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
                let dir = match typed.parent() {
                    Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
                    _ => PathBuf::from("."),
                };
                let linked = found.linked.then_some(found.stamp);
                (Shape::File { name, dir: dir.clone(), linked }, disk.real(&dir)?)
            }
            Kind::Other => return Err(io::Error::other("it is neither a file nor a directory")),
        };
        let is_dir = shape == Shape::Dir;
        let above = if is_dir && self.rules.gitignore { gitignore::above(&real, disk) } else { Vec::new() };
        let key = is_dir && self.dir_keys;
        let node = self.insert(index, None, OsString::new(), key);
        let root = &mut self.roots[index];
        (root.shape, root.real, root.above, root.node) = (shape, real, above, Some(node));
        if key {
            self.tell(node, None, event, None);
        }
        self.todo.push_back((node, Scan::All(event)));
        Ok(())
    }

    /// The roots that are directories.
    pub(crate) fn places(&self) -> Vec<PathBuf> {
        let dirs = self.roots.iter().filter(|root| root.shape == Shape::Dir);
        dirs.map(|root| root.typed.clone()).collect()
    }

    /// Checks whether each root is where it was. One that was gone may be back, and an unreadable directory
    /// may be readable.
    pub(crate) fn look_at_roots(&mut self, disk: &mut impl Disk) {
        self.todo.extend(self.unreadable.iter().map(|node| (*node, Scan::IfOther)));
        for index in 0..self.roots.len() {
            let typed = self.roots[index].typed.clone();
            let found = match disk.root(&typed) {
                Ok(found) => found,
                Err(e) if is_gone(&e) => None,
                Err(e) => {
                    // Without permission to look it is not known to be gone.
                    if let Some(node) = self.roots[index].node {
                        self.cannot_look(node, typed, e);
                    }
                    continue;
                }
            };
            let Some(node) = self.roots[index].node else {
                if found.is_some() && self.attach(disk, index, Event::Write).is_ok() {
                    self.out.push(Report::RootBack { path: typed });
                }
                continue;
            };
            let reshaped = match (&self.roots[index].shape, found.map(|found| found.kind)) {
                (Shape::Dir, kind) => kind != Some(Kind::Dir),
                (Shape::File { .. }, kind) => kind == Some(Kind::Dir),
            };
            if reshaped {
                self.forget(disk, node, Some(Event::Delete));
                if found.is_none() || self.attach(disk, index, Event::Write).is_err() {
                    self.out.push(Report::RootGone { path: typed });
                }
                continue;
            }
            // Also sees a directory of the file's that is gone, or another.
            self.todo.push_back((node, Scan::IfOther));
            if let (Shape::File { name, linked: Some(stamp), .. }, Some(found)) =
                (&mut self.roots[index].shape, found)
            {
                if *stamp != found.stamp {
                    *stamp = found.stamp;
                    let name = name.clone();
                    self.tell(node, Some(&name), Event::Write, None);
                }
            }
        }
    }

    /// Handles a root whose target cannot be determined.
    fn cannot_look(&mut self, node: Node, typed: PathBuf, error: io::Error) {
        let dir = self.dirs.get(&node).map(|dir| &self.roots[dir.root].shape);
        if let Some(Shape::File { linked: Some(_), .. }) = dir {
            // The link's target cannot be read; its own directory may be fine.
            self.cannot_read(node, typed, error);
        }
        // Says so where it is the directory that cannot be read.
        self.todo.push_back((node, Scan::IfOther));
    }
}

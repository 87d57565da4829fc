//! The tree on a file system that changes at every step: anything may happen before each call on it.

use std::collections::BTreeMap;

use super::*;
use crate::disk::{Found, Foundation};
use fastrand::Rng;

#[derive(Clone, Debug)]
enum Inode {
    /// With the number of the write that last changed it.
    File(u64),
    Dir(BTreeMap<String, usize>),
}

/// A file system with the events of inotify.
struct Fake {
    inodes: Vec<Inode>,
    /// Inode of each watch; the watch's number is its index. `None`: ended.
    watches: Vec<Option<usize>>,
    events: VecDeque<Happened>,
    /// Maximum number of events kept.
    room: usize,
    overflows: usize,
    writes: u64,
    dice: Rng,
    /// Number of random changes that may still happen.
    unrest: usize,
    /// All paths that were ever files.
    ever: HashSet<PathBuf>,
    forbidden: HashSet<PathBuf>,
    texts: HashMap<PathBuf, Vec<u8>>,
    /// The earlier place of the directory `away`.
    back: (usize, &'static str),
}

const TOP: usize = 0;

impl Fake {
    fn new(seed: u64) -> Self {
        let mut fake = Self {
            inodes: vec![Inode::Dir(BTreeMap::new())],
            watches: Vec::new(),
            events: VecDeque::new(),
            room: usize::MAX,
            overflows: 0,
            writes: 0,
            dice: Rng::with_seed(seed),
            unrest: 0,
            ever: HashSet::new(),
            forbidden: HashSet::new(),
            texts: HashMap::new(),
            back: (TOP, "away"),
        };
        fake.mkdir(TOP, "r");
        fake
    }

    fn children(&self, dir: usize) -> &BTreeMap<String, usize> {
        match &self.inodes[dir] {
            Inode::Dir(children) => children,
            Inode::File(_) => panic!("not a directory"),
        }
    }

    fn children_mut(&mut self, dir: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.inodes[dir] {
            Inode::Dir(children) => children,
            Inode::File(_) => panic!("not a directory"),
        }
    }

    fn resolve(&self, path: &Path) -> Option<usize> {
        let mut at = TOP;
        for name in path.iter().filter(|name| *name != ".") {
            match &self.inodes[at] {
                Inode::Dir(children) => at = *children.get(name.to_str()?)?,
                Inode::File(_) => return None,
            }
        }
        Some(at)
    }

    fn send(&mut self, event: Happened) {
        if self.events.len() < self.room {
            self.events.push_back(event);
        } else if self.events.back() != Some(&Happened::Overflow) {
            self.overflows += 1;
            self.events.push_back(Happened::Overflow);
        }
    }

    fn watch_of(&self, inode: usize) -> Option<Watch> {
        self.watches.iter().position(|w| *w == Some(inode)).map(|at| Watch(at as i32))
    }

    fn entry(&mut self, dir: usize, name: &str, moved: bool) {
        if let Some(watch) = self.watch_of(dir) {
            self.send(Happened::Entry { watch, name: name.into(), moved });
        }
    }

    fn mkdir(&mut self, parent: usize, name: &str) {
        if !self.children(parent).contains_key(name) {
            self.inodes.push(Inode::Dir(BTreeMap::new()));
            let inode = self.inodes.len() - 1;
            self.children_mut(parent).insert(name.to_owned(), inode);
            self.entry(parent, name, false);
        }
    }

    fn write(&mut self, parent: usize, name: &str) {
        self.writes += 1;
        let version = self.writes;
        match self.children(parent).get(name).copied() {
            Some(inode) => match &mut self.inodes[inode] {
                Inode::File(old) => *old = version,
                Inode::Dir(_) => return,
            },
            None => {
                self.inodes.push(Inode::File(version));
                let inode = self.inodes.len() - 1;
                self.children_mut(parent).insert(name.to_owned(), inode);
                self.entry(parent, name, false);
            }
        }
        self.entry(parent, name, false);
    }

    fn remove(&mut self, parent: usize, name: &str) {
        let Some(inode) = self.children(parent).get(name).copied() else { return };
        if let Inode::Dir(children) = self.inodes[inode].clone() {
            for child in children.keys() {
                self.remove(inode, child);
            }
            if let Some(watch) = self.watch_of(inode) {
                self.send(Happened::Itself { watch, over: false });
                self.watches[watch.0 as usize] = None;
                self.send(Happened::Itself { watch, over: true });
            }
        }
        self.children_mut(parent).remove(name);
        self.entry(parent, name, false);
    }

    fn rename(&mut self, from: (usize, &str), to: (usize, &str)) {
        let Some(inode) = self.children(from.0).get(from.1).copied() else { return };
        let into_itself = self.all_dirs(inode).contains(&to.0);
        if into_itself || self.children(to.0).contains_key(to.1) {
            return;
        }
        self.children_mut(from.0).remove(from.1);
        self.children_mut(to.0).insert(to.1.to_owned(), inode);
        self.entry(from.0, from.1, false);
        self.entry(to.0, to.1, true);
        if let Some(watch) = self.watch_of(inode) {
            self.send(Happened::Itself { watch, over: false });
        }
    }

    /// This directory and all below it.
    fn all_dirs(&self, top: usize) -> Vec<usize> {
        let mut all = Vec::new();
        if let Inode::Dir(_) = self.inodes[top] {
            all.push(top);
        }
        let mut at = 0;
        while at < all.len() {
            let inner = self.children(all[at]).values().copied();
            let inner: Vec<_> = inner.filter(|i| matches!(self.inodes[*i], Inode::Dir(_))).collect();
            all.extend(inner);
            at += 1;
        }
        all
    }

    fn files(&self, top: &Path) -> BTreeMap<PathBuf, u64> {
        let mut files = BTreeMap::new();
        let mut todo: Vec<_> = self.resolve(top).map(|inode| (top.to_owned(), inode)).into_iter().collect();
        while let Some((path, inode)) = todo.pop() {
            match &self.inodes[inode] {
                Inode::File(version) => drop(files.insert(path, *version)),
                Inode::Dir(children) => todo.extend(children.iter().map(|(n, i)| (path.join(n), *i))),
            }
        }
        files
    }

    /// Makes one random change below the root.
    fn stir(&mut self) {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let dirs = self.all_dirs(TOP);
        let dir = dirs[self.dice.usize(..dirs.len())];
        let other = dirs[self.dice.usize(..dirs.len())];
        let (name, second) = (NAMES[self.dice.usize(..4)], NAMES[self.dice.usize(..4)]);
        match self.dice.usize(..23) {
            0..6 => self.write(dir, name),
            6..10 => self.mkdir(dir, name),
            10..12 => self.remove(dir, name),
            12..17 => self.rename((dir, name), (other, second)),
            // to where it was before, which may be where another one came meanwhile
            17..20 => {
                self.rename((dir, name), (TOP, "away"));
                self.back = (dir, name);
            }
            _ => self.rename((TOP, "away"), self.back),
        }
        self.ever.extend(self.files(Path::new("r")).into_keys());
    }

    /// Removes or replaces the root. Not while the tree is at work: no event reports a root, so one that
    /// comes and goes between two checks is not seen.
    fn move_the_root(&mut self) {
        const NAMES: [&str; 3] = ["a", "b", "z"];
        let name = NAMES[self.dice.usize(..3)];
        match self.dice.usize(..4) {
            0 => self.rename((TOP, "r"), (TOP, name)),
            1 | 2 => self.rename((TOP, name), (TOP, "r")),
            _ => self.mkdir(TOP, "r"),
        }
        self.ever.extend(self.files(Path::new("r")).into_keys());
    }

    fn perhaps_stir(&mut self) {
        while self.unrest > 0 && self.dice.usize(..3) == 0 {
            self.unrest -= 1;
            self.stir();
        }
    }

    fn kind(&self, inode: usize) -> Kind {
        match self.inodes[inode] {
            Inode::File(_) => Kind::File,
            Inode::Dir(_) => Kind::Dir,
        }
    }

    fn dir(&self, path: &Path) -> io::Result<usize> {
        let inode = self.resolve(path).ok_or(io::ErrorKind::NotFound)?;
        if self.forbidden.contains(path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        match self.kind(inode) {
            Kind::Dir => Ok(inode),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }
}

impl Disk for Fake {
    fn watch(&mut self, dir: &Path, _: Links) -> io::Result<Watch> {
        self.perhaps_stir();
        let inode = self.dir(dir)?;
        Ok(self.watch_of(inode).unwrap_or_else(|| {
            self.watches.push(Some(inode));
            Watch(self.watches.len() as i32 - 1)
        }))
    }

    fn unwatch(&mut self, watch: Watch) {
        self.perhaps_stir();
        if self.watches[watch.0 as usize].take().is_some() {
            self.send(Happened::Itself { watch, over: true });
        }
    }

    fn list(&mut self, dir: &Path, _: Links) -> io::Result<Vec<(OsString, Kind)>> {
        self.perhaps_stir();
        let inode = self.dir(dir)?;
        Ok(self.children(inode).iter().map(|(name, inode)| (name.into(), self.kind(*inode))).collect())
    }

    fn look(&mut self, path: &Path) -> io::Result<Option<Found>> {
        self.perhaps_stir();
        Ok(self.resolve(path).map(|inode| Found { kind: self.kind(inode), changed: None }))
    }

    fn root(&mut self, path: &Path) -> io::Result<Option<Foundation>> {
        self.perhaps_stir();
        if self.forbidden.contains(path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let stamp = (0, 0, 0, 0, 0);
        Ok(self.resolve(path).map(|inode| Foundation { kind: self.kind(inode), linked: false, stamp }))
    }

    fn real(&mut self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    fn read(&mut self, path: &Path) -> Option<Vec<u8>> {
        self.perhaps_stir();
        self.texts.get(path).cloned()
    }
}

fn tree(only: &[&str], dirs: bool, roots: &[&str]) -> Tree {
    let only: Vec<String> = only.iter().map(|g| (*g).to_owned()).collect();
    let rules = Rules::new(&only, &[], true).unwrap();
    Tree::new(rules, dirs, roots.iter().map(PathBuf::from).collect(), Instant::now())
}

/// A program that looks at each key when it is reported, and what it saw.
#[derive(Default)]
struct Program {
    seen: HashMap<PathBuf, Option<u64>>,
    told: Vec<(PathBuf, Event)>,
    other: Vec<String>,
}

impl Program {
    fn take(&mut self, tree: &mut Tree, disk: &Fake) {
        for report in tree.take_reports() {
            match report {
                Report::Change(change) => {
                    let version = disk.resolve(&change.path).and_then(|inode| match disk.inodes[inode] {
                        Inode::File(version) => Some(version),
                        Inode::Dir(_) => None,
                    });
                    self.seen.insert(change.path.clone(), version);
                    self.told.push((change.path, change.event));
                }
                other => self.other.push(format!("{other:?}")),
            }
        }
    }

    /// Runs until there is nothing left to do.
    fn settle(&mut self, tree: &mut Tree, disk: &mut Fake) {
        for round in 0.. {
            assert!(round < 100_000, "it does not come to rest");
            match disk.events.pop_front() {
                Some(event) if round % 3 < 2 => tree.happened(disk, event),
                Some(event) => {
                    disk.events.push_front(event);
                    tree.step(disk).unwrap();
                }
                None if tree.is_busy() => tree.step(disk).unwrap(),
                None => break,
            }
            self.take(tree, disk);
        }
    }

    fn events(&mut self) -> Vec<(String, Event)> {
        let mut told: Vec<_> =
            self.told.drain(..).map(|(path, event)| (path.display().to_string(), event)).collect();
        told.sort_by(|a, b| a.0.cmp(&b.0));
        told
    }
}

/// Runs one history. Returns what the program has not seen.
fn history(seed: u64, room: usize) -> (Fake, Vec<String>) {
    let mut disk = Fake::new(seed);
    disk.room = room;
    for _ in 0..20 {
        disk.stir();
    }
    let r = disk.resolve(Path::new("r"));
    if r.is_none() {
        disk.mkdir(TOP, "r");
    }
    let mut tree = tree(&[], false, &["r"]);
    tree.begin(&mut disk).unwrap();
    let mut program = Program::default();
    disk.unrest = 150;
    while disk.unrest > 0 {
        program.settle(&mut tree, &mut disk);
        disk.unrest = disk.unrest.saturating_sub(1);
        disk.stir();
        if disk.dice.usize(..4) == 0 {
            disk.move_the_root();
            tree.look_at_roots(&mut disk);
        }
    }
    // Twice: what is found to be back is listed, and then is found to be there.
    for _ in 0..2 {
        program.settle(&mut tree, &mut disk);
        tree.look_at_roots(&mut disk);
    }
    program.settle(&mut tree, &mut disk);
    let files = disk.files(Path::new("r"));
    let mut missed = Vec::new();
    for path in disk.ever.iter().chain(files.keys()) {
        let (is, seen) = (files.get(path).copied(), program.seen.get(path).copied());
        if is != seen.flatten() {
            missed.push(format!("seed {seed}, {}: is {is:?}, seen {seen:?}", path.display()));
        }
    }
    assert_eq!(tree.counts().0, files.len(), "seed {seed}");
    (disk, missed)
}

/// `REQUEUE_WATCH_SEEDS=600000` is the long form, some three minutes in a release build.
fn seeds() -> std::ops::RangeInclusive<u64> {
    1..=std::env::var("REQUEUE_WATCH_SEEDS").map_or(600, |n| n.parse().expect("a number"))
}

#[test]
fn in_any_history_the_last_state_of_every_file_is_seen() {
    for seed in seeds() {
        let (disk, missed) = history(seed, usize::MAX);
        assert!(missed.is_empty(), "{missed:#?}");
        assert_eq!(disk.overflows, 0);
    }
}

#[test]
fn in_a_history_with_overflows_nothing_is_lost() {
    let mut overflows = 0;
    for seed in seeds() {
        let (disk, missed) = history(seed, 4);
        assert!(missed.is_empty(), "{missed:#?}");
        overflows += disk.overflows;
    }
    assert!(overflows > 200, "{overflows}");
}

/// A tree with `r/x` and `r/d/y`, already reported.
fn two_files(only: &[&str], dirs: bool) -> (Tree, Fake, Program) {
    let (mut disk, mut tree) = (Fake::new(1), tree(only, dirs, &["r"]));
    let r = disk.resolve(Path::new("r")).unwrap();
    disk.write(r, "x");
    disk.mkdir(r, "d");
    let d = disk.resolve(Path::new("r/d")).unwrap();
    disk.write(d, "y");
    let mut program = Program::default();
    tree.begin(&mut disk).unwrap();
    program.settle(&mut tree, &mut disk);
    (tree, disk, program)
}

fn at(disk: &Fake, path: &str) -> usize {
    disk.resolve(Path::new(path)).unwrap()
}

fn pairs(list: &[(&str, Event)]) -> Vec<(String, Event)> {
    list.iter().map(|(path, event)| ((*path).to_owned(), *event)).collect()
}

#[test]
fn all_files_come_first_then_what_happens_to_them() {
    use Event::{Delete, Initial, Write};
    let (mut tree, mut disk, mut program) = two_files(&[], false);
    assert_eq!(program.events(), pairs(&[("r/d/y", Initial), ("r/x", Initial)]));
    let r = at(&disk, "r");
    disk.write(r, "x");
    program.settle(&mut tree, &mut disk);
    assert_eq!(program.events(), pairs(&[("r/x", Write)]));
    disk.rename((r, "d"), (r, "e"));
    program.settle(&mut tree, &mut disk);
    assert_eq!(program.events(), pairs(&[("r/d/y", Delete), ("r/e/y", Write)]));
    tree.tell_all(Initial);
    program.settle(&mut tree, &mut disk);
    assert_eq!(program.events(), pairs(&[("r/e/y", Initial), ("r/x", Initial)]));
}

#[test]
fn directories_are_keys_only_where_asked_for() {
    use Event::{Delete, Initial, Write};
    let (mut tree, mut disk, mut program) = two_files(&[], true);
    let first = [("r", Initial), ("r/d", Initial), ("r/d/y", Initial), ("r/x", Initial)];
    assert_eq!(program.events(), pairs(&first));
    let r = at(&disk, "r");
    disk.mkdir(r, "e");
    disk.remove(r, "d");
    program.settle(&mut tree, &mut disk);
    let told = program.events();
    assert!(told.contains(&("r/e".to_owned(), Write)), "{told:?}");
    assert!(told.contains(&("r/d".to_owned(), Delete)), "{told:?}");
    assert!(told.contains(&("r/d/y".to_owned(), Delete)), "{told:?}");
}

#[test]
fn a_directory_that_no_glob_names_is_entered_and_is_no_key() {
    let (_, _, mut program) = two_files(&["y"], true);
    assert_eq!(program.events(), pairs(&[("r", Event::Initial), ("r/d/y", Event::Initial)]));
}

#[test]
fn a_directory_that_cannot_be_read_is_said_once_and_tried_again() {
    let (mut tree, mut disk, mut program) = two_files(&[], false);
    program.events();
    let r = at(&disk, "r");
    disk.forbidden.insert("r/e".into());
    disk.mkdir(r, "e");
    let e = at(&disk, "r/e");
    disk.write(e, "z");
    for _ in 0..3 {
        program.settle(&mut tree, &mut disk);
        tree.look_at_roots(&mut disk);
    }
    assert_eq!(program.other.len(), 1, "{:?}", program.other);
    assert!(program.other[0].contains("r/e"), "{:?}", program.other);
    assert!(program.events().is_empty());
    disk.forbidden.clear();
    tree.look_at_roots(&mut disk);
    program.settle(&mut tree, &mut disk);
    assert_eq!(program.events(), pairs(&[("r/e/z", Event::Write)]));
}

#[test]
fn a_root_that_may_not_be_looked_at_is_not_taken_for_deleted() {
    let (mut tree, mut disk, mut program) = two_files(&[], true);
    program.events();
    disk.forbidden.insert("r".into());
    for _ in 0..3 {
        tree.look_at_roots(&mut disk);
        program.settle(&mut tree, &mut disk);
    }
    assert!(program.events().is_empty());
    assert_eq!(program.other.len(), 1, "{:?}", program.other);
    assert!(program.other[0].contains("Unreadable"), "{:?}", program.other);
    let r = at(&disk, "r");
    disk.remove(r, "x");
    disk.forbidden.clear();
    tree.look_at_roots(&mut disk);
    program.settle(&mut tree, &mut disk);
    let told = program.events();
    assert!(told.contains(&("r/x".to_owned(), Event::Delete)), "{told:?}");
    assert!(told.contains(&("r/d/y".to_owned(), Event::Write)), "{told:?}");
}

#[test]
fn a_gitignore_that_changes_hides_without_a_deletion_and_shows_as_new() {
    let (mut tree, mut disk, mut program) = two_files(&[], false);
    program.events();
    let r = at(&disk, "r");
    disk.texts.insert("r/.gitignore".into(), b"d\n".to_vec());
    disk.write(r, ".gitignore");
    program.settle(&mut tree, &mut disk);
    let told = program.events();
    assert!(told.iter().all(|(path, _)| path == "r/.gitignore"), "{told:?}");
    let d = at(&disk, "r/d");
    disk.write(d, "y");
    program.settle(&mut tree, &mut disk);
    assert!(program.events().is_empty(), "hidden");
    disk.texts.clear();
    disk.remove(r, ".gitignore");
    program.settle(&mut tree, &mut disk);
    assert!(program.events().contains(&("r/d/y".to_owned(), Event::Write)));
}

#[test]
fn a_root_that_goes_is_told_as_deleted_and_watched_again() {
    use Event::{Delete, Write};
    let (mut tree, mut disk, mut program) = two_files(&[], false);
    program.events();
    disk.rename((TOP, "r"), (TOP, "q"));
    program.settle(&mut tree, &mut disk);
    assert_eq!(program.events(), pairs(&[("r/d/y", Delete), ("r/x", Delete)]));
    assert!(program.other[0].starts_with("RootGone"), "{:?}", program.other);
    let q = at(&disk, "q");
    disk.write(q, "x");
    program.settle(&mut tree, &mut disk);
    assert!(program.events().is_empty(), "not under its old name");
    disk.mkdir(TOP, "r");
    let r = at(&disk, "r");
    disk.write(r, "new");
    tree.look_at_roots(&mut disk);
    program.settle(&mut tree, &mut disk);
    // The deletions again: the files may have been in yet another directory between.
    assert_eq!(program.events(), pairs(&[("r/d/y", Delete), ("r/new", Write), ("r/x", Delete)]));
    assert!(program.other[1].starts_with("RootBack"), "{:?}", program.other);
}

#[test]
fn a_root_that_is_a_file_is_that_file_alone_also_when_it_is_replaced() {
    use Event::{Delete, Initial, Write};
    let mut disk = Fake::new(1);
    let r = at(&disk, "r");
    for name in ["x", "y"] {
        disk.write(r, name);
    }
    let (mut tree, mut program) = (tree(&[], false, &["r/x"]), Program::default());
    tree.begin(&mut disk).unwrap();
    program.settle(&mut tree, &mut disk);
    assert_eq!(program.events(), pairs(&[("r/x", Initial)]));
    disk.remove(r, "x");
    disk.write(r, "y");
    program.settle(&mut tree, &mut disk);
    assert_eq!(program.events(), pairs(&[("r/x", Delete)]));
    disk.rename((r, "y"), (r, "x"));
    program.settle(&mut tree, &mut disk);
    assert_eq!(program.events(), pairs(&[("r/x", Write)]));
}

#[test]
fn overlapping_roots_each_tell_their_own_names() {
    let (mut disk, mut tree) = (Fake::new(1), tree(&[], false, &["r", "r/d"]));
    let r = at(&disk, "r");
    disk.mkdir(r, "d");
    let mut program = Program::default();
    tree.begin(&mut disk).unwrap();
    program.settle(&mut tree, &mut disk);
    let d = at(&disk, "r/d");
    disk.write(d, "y");
    program.settle(&mut tree, &mut disk);
    // Created and written, under each root; the paths are the same.
    assert_eq!(program.events().len(), 4);
    disk.rename((r, "d"), (TOP, "away"));
    program.settle(&mut tree, &mut disk);
    assert_eq!(program.events(), pairs(&[("r/d/y", Event::Delete), ("r/d/y", Event::Delete)]));
    assert!(disk.watches.iter().flatten().all(|inode| *inode == r), "none is left behind");
}

#[test]
fn a_deletion_is_told_again_when_the_file_was_back_just_for_the_look() {
    let (mut tree, mut disk, mut program) = two_files(&[], false);
    let r = at(&disk, "r");
    disk.remove(r, "x");
    let deleted = disk.events.pop_front().unwrap();
    tree.happened(&mut disk, deleted);
    disk.write(r, "x");
    program.take(&mut tree, &disk);
    let key = Path::new("r/x");
    assert!(program.seen[key].is_some(), "told of the deletion, it finds the file");
    disk.remove(r, "x");
    program.settle(&mut tree, &mut disk);
    assert_eq!(program.seen[key], None);
}

#[test]
fn a_watch_that_the_kernel_takes_away_is_set_again() {
    let (mut tree, mut disk, mut program) = two_files(&[], false);
    program.events();
    let d = at(&disk, "r/d");
    // As when a file system is unmounted: no event names the entry.
    let watch = disk.watch_of(d).unwrap();
    disk.watches[watch.0 as usize] = None;
    disk.send(Happened::Itself { watch, over: true });
    disk.write(d, "unseen");
    program.settle(&mut tree, &mut disk);
    assert_eq!(program.events(), pairs(&[("r/d/unseen", Event::Write), ("r/d/y", Event::Write)]));
    disk.write(d, "y");
    program.settle(&mut tree, &mut disk);
    assert_eq!(program.events(), pairs(&[("r/d/y", Event::Write)]));
}

/// The kernel reports a deletion in a directory that is elsewhere for a moment. Another directory with such a
/// file is there when it is looked up.
#[test]
fn a_directory_that_was_away_while_another_stood_there_is_told_anew() {
    let (mut tree, mut disk, mut program) = two_files(&[], false);
    let (r, d) = (at(&disk, "r"), at(&disk, "r/d"));
    disk.mkdir(r, "e");
    let e = at(&disk, "r/e");
    disk.write(e, "y");
    program.settle(&mut tree, &mut disk);
    disk.rename((r, "d"), (TOP, "away"));
    disk.rename((r, "e"), (r, "d"));
    disk.remove(d, "y");
    while let Some(event) = disk.events.pop_front() {
        tree.happened(&mut disk, event);
    }
    program.take(&mut tree, &disk);
    disk.rename((r, "d"), (r, "e"));
    disk.rename((TOP, "away"), (r, "d"));
    program.settle(&mut tree, &mut disk);
    assert_eq!(program.seen[Path::new("r/d/y")], None);
    assert_eq!(tree.counts().0, 2);
}

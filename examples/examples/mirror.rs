//! A controller: keeps a directory equal to another one, from file events. A burst of
//! changes of a file becomes one copy, what fails is tried again, what went is removed.
//!
//! Each run compares one path in the source and the target, and copies the difference, whatever the event
//! was. So an extra run does no harm, and after a crash it is enough to begin with all paths of both sides.
//! Files appear whole or not at all: they are copied to `.mirror`, and renamed. Links are left out.
//!
//! ```text
//! cargo run -p requeue-examples --example mirror -- SOURCE TARGET    # until it is killed
//! cargo run -p requeue-examples --example mirror                     # shows itself
//! ```

use requeue::limiter::Exponential;
use requeue::{Add, WorkQueue, Worker};
use requeue_watch::{Event, Options, Report, Watcher};
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Folder for copies in progress, in the target.
const STAGING: &str = ".mirror";
/// A path is looked at when nothing has happened to it for so long…
const QUIET: Duration = Duration::from_millis(20);
/// …or so long after the first event.
const AT_LATEST: Duration = Duration::from_millis(200);

type Paths = WorkQueue<PathBuf>;

/// Two directories, and the queue of the paths below them.
struct Mirror {
    source: PathBuf,
    target: PathBuf,
    queue: Paths,
    copies: AtomicU64,
    /// Names what is copied.
    staged: AtomicU64,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    File,
    Dir,
    /// A link, a pipe: in the source as good as nothing, in the target in the way.
    Other,
}

/// The kind of a file; links are not followed.
fn kind(path: &Path) -> io::Result<Option<Kind>> {
    match fs::symlink_metadata(path) {
        Ok(data) if data.is_dir() => Ok(Some(Kind::Dir)),
        Ok(data) if data.is_file() => Ok(Some(Kind::File)),
        Ok(_) => Ok(Some(Kind::Other)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e),
    }
}

impl Mirror {
    /// Makes one path of the target what it is in the source. An error means: again.
    fn reconcile(&self, path: &Path) -> io::Result<()> {
        if path == Path::new(".") || path.starts_with(STAGING) {
            return Ok(());
        }
        if !self.source.is_dir() {
            return Err(io::Error::other("the source is gone altogether: that is no reason to delete all"));
        }
        let (from, to) = (self.source.join(path), self.target.join(path));
        match (kind(&from)?, kind(&to)?) {
            (Some(Kind::File), Some(Kind::File)) if same(&from, &to)? => Ok(()),
            (Some(Kind::File), old) => {
                if old.is_some_and(|old| old != Kind::File) {
                    self.remove(path, &to)?;
                }
                self.copy(&from, &to)
            }
            (Some(Kind::Dir), Some(Kind::Dir)) => Ok(()),
            (Some(Kind::Dir), old) => {
                if old.is_some() {
                    self.remove(path, &to)?;
                }
                fs::create_dir(&to)
            }
            (None | Some(Kind::Other), Some(_)) => self.remove(path, &to),
            (None | Some(Kind::Other), None) => Ok(()),
        }
    }

    fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        // The directory is a path of its own, and perhaps its turn has not come.
        if to.parent().map(kind).transpose()?.flatten() != Some(Kind::Dir) {
            return Err(ErrorKind::NotADirectory.into());
        }
        let staged = self.target.join(STAGING).join(self.staged.fetch_add(1, Relaxed).to_string());
        fs::copy(from, &staged)?;
        fs::rename(&staged, to)?;
        self.copies.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Removes one path, never a whole tree: the entries of a directory have runs of their own.
    fn remove(&self, path: &Path, to: &Path) -> io::Result<()> {
        if kind(to)? != Some(Kind::Dir) {
            return fs::remove_file(to);
        }
        fs::remove_dir(to).inspect_err(|e| {
            if e.kind() == ErrorKind::DirectoryNotEmpty {
                for entry in fs::read_dir(to).into_iter().flatten().flatten() {
                    let _ = self.queue.add(path.join(entry.file_name()));
                }
            }
        })
    }
}

/// Whether two files hold the same.
fn same(a: &Path, b: &Path) -> io::Result<bool> {
    let (a, b) = (File::open(a)?, File::open(b)?);
    if a.metadata()?.len() != b.metadata()?.len() {
        return Ok(false);
    }
    let bytes = |file| BufReader::new(file).bytes().map(Result::ok);
    Ok(bytes(a).eq(bytes(b)))
}

/// Every path below `top`, the staging apart.
fn paths_below(top: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut paths, mut todo) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(top.join(&dir))? {
            let path = dir.join(entry?.file_name());
            if kind(&top.join(&path))? == Some(Kind::Dir) && path != Path::new(STAGING) {
                todo.push(path.clone());
            }
            paths.push(path);
        }
    }
    Ok(paths)
}

/// Keeps `target` equal to `source` until `stop` can be read or is hung up. Returns how
/// many files it copied.
pub(crate) fn mirror(source: &Path, target: &Path, stop: impl AsFd) -> Result<u64, Box<dyn Error>> {
    fs::create_dir_all(target)?;
    // Removes files that were being copied when we were killed.
    match fs::remove_dir_all(target.join(STAGING)) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e.into()),
        _ => fs::create_dir(target.join(STAGING))?,
    }
    let back_off = Exponential::new(Duration::from_millis(5), Duration::from_secs(1))?;
    let queue = Paths::builder().limiter(back_off).timers_absorbed(true).build()?;
    let shared = Arc::new(Mirror {
        source: source.to_owned(),
        target: target.to_owned(),
        queue: queue.clone(),
        copies: AtomicU64::new(0),
        staged: AtomicU64::new(0),
    });
    let options = Options::new().dirs(true).gitignore(false);
    let watcher = Watcher::new(&options, [source])?;
    let theirs = Arc::clone(&shared);
    let workers = Worker::of(&queue).workers(2).start_threads(move |run| Ok(theirs.reconcile(run.key())?))?;

    // Both ways: the watcher tells what is in the source, and this is what may have to go.
    for path in paths_below(target)? {
        queue.add(path)?;
    }
    watcher.run(stop, |report| {
        let Report::Change(change) = report else { return true };
        let when = match change.event {
            Event::Initial => Add::now(),
            _ => Add::after(QUIET).latest(AT_LATEST),
        };
        queue.add_with(change.relative, when).is_ok()
    })?;
    let report = workers.stop(Duration::from_secs(10)).wait();
    if !report.complete {
        return Err("a run did not end".into());
    }
    Ok(shared.copies.load(Relaxed))
}

/// The current differences between the two directories.
pub(crate) fn differences(source: &Path, target: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = paths_below(source)?;
    paths.extend(paths_below(target)?);
    paths.retain(|path| path != Path::new(STAGING));
    paths.sort();
    paths.dedup();
    let differs = |path: &PathBuf| {
        let (from, to) = (source.join(path), target.join(path));
        match (kind(&from), kind(&to)) {
            (Ok(Some(Kind::File)), Ok(Some(Kind::File))) => !same(&from, &to).unwrap_or(false),
            (Ok(from), Ok(to)) => from != to,
            _ => true,
        }
    };
    paths.retain(differs);
    Ok(paths)
}

/// Waits until nothing differs. After a minute, returns what still differs.
pub(crate) fn converge(source: &Path, target: &Path) -> Result<(), Box<dyn Error>> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match differences(source, target) {
            Ok(paths) if paths.is_empty() => return Ok(()),
            // Something went while it was looked at.
            Err(_) if Instant::now() < end => {}
            Ok(_) if Instant::now() < end => {}
            other => return Err(format!("no convergence: {other:?}").into()),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    if let [source, target] = &std::env::args_os().skip(1).collect::<Vec<_>>()[..] {
        let (stop, _never) = UnixStream::pair()?;
        mirror(source.as_ref(), target.as_ref(), stop)?;
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    fs::create_dir(&source)?;
    fs::write(source.join("old"), "from before")?;
    let writes = if std::env::var_os("REQUEUE_EXAMPLE_FAST").is_some() { 2_000 } else { 20_000 };

    let copies = std::thread::scope(|scope| -> Result<u64, Box<dyn Error>> {
        let (stop, hang_up) = UnixStream::pair()?;
        let mirroring = scope.spawn(|| mirror(&source, &target, stop).map_err(|e| e.to_string()));
        for n in 0..writes {
            fs::write(source.join("busy"), format!("version {n}"))?;
        }
        for n in 0..100 {
            let deep = source.join(format!("tree/{}/{}", n % 3, n % 7));
            fs::create_dir_all(&deep)?;
            fs::write(deep.join(n.to_string()), format!("file {n}"))?;
        }
        converge(&source, &target)?;
        println!("a file written {writes} times, and 100 others: the target is equal");

        fs::rename(source.join("tree"), source.join("moved"))?;
        fs::remove_file(source.join("old"))?;
        converge(&source, &target)?;
        assert!(!target.join("tree").exists() && !target.join("old").exists());
        println!("a tree moved, a file removed: the target is equal");
        drop(hang_up);
        Ok(mirroring.join().expect("it does not panic")?)
    })?;
    println!("that took {copies} copies");
    assert!(copies < writes / 2, "bursts become few copies: {copies}");

    // While nobody looks: a file becomes a directory, a directory a file.
    fs::remove_file(source.join("busy"))?;
    fs::create_dir(source.join("busy"))?;
    fs::write(source.join("busy/inner"), "new")?;
    fs::remove_dir_all(source.join("moved"))?;
    fs::write(source.join("moved"), "a file now")?;
    fs::write(target.join("stray"), "not ours")?;
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let (stop, hang_up) = UnixStream::pair()?;
        let mirroring = scope.spawn(|| mirror(&source, &target, stop).map_err(|e| e.to_string()));
        converge(&source, &target)?;
        drop(hang_up);
        mirroring.join().expect("it does not panic")?;
        Ok(())
    })?;
    println!("started again after changes that nobody saw: the target is equal");
    Ok(())
}

//! The power is cut at any call of the disk, and any call of the disk fails: nothing that was accepted is
//! lost.
//!
//! SQLite's files are on [disks](disk) of our own, in memory, through a [VFS](vfs) that is this process's
//! default. A power cut keeps of each file what was synced, and any part of the rest: sectors of 512 bytes,
//! pages, or whole writes, as a seed decides. A disk fails a call with FULL, BUSY or one of the kinds of
//! IOERR. After a failed sync it may have lost the pending writes, as Linux does.
//!
//! [The load](world): threads that trigger hot keys with values and timers, workers whose runs fail now and
//! then, come again and give up, another process that writes requests, checkpoints. The [oracle](ledger) is a
//! number of each key that is increased before each trigger, and the numbers that runs saw.
//!
//! - `REQUEUE_POWER_CUTS=1000000`: the number of power cuts (6 seconds of them without it); and each call
//!   fails, not some.
//! - `REQUEUE_POWER_FROM=7`: the first seed. `REQUEUE_POWER_SEED=7` plays one seed, 20 times: the seed
//!   decides the requests, when the power is cut and what is left then, but the system schedules the threads.
//!
//! To show that the test can fail, faults were put into the crate; each was found within the short form:
//! `synchronous=OFF`; a trigger is accepted before it is written; the queue in memory gets a trigger before
//! it is written; triggers that the end of a run did not include are not written again after it; ends whose
//! transaction failed are not kept; values of a key do not merge in the file; failures are not written; a
//! later timer replaces a sooner one; a commit that failed with IOERR is called not applied. It also found a
//! real fault: the result of a statement with `returning` counted as written before it was committed.

#[path = "../common/mod.rs"]
mod common;
mod disk;
mod faults;
mod ledger;
mod opening;
mod vfs;
mod world;

use disk::{Call, Disk, Fault, Seeded};
use ledger::Ledger;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use world::World;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|number| number.parse().expect("a number"))
}

/// A test disk, in a folder of the system that has only empty files, for locks and existence checks.
///
/// After each power cut the files are in another folder: so the process that was cut off, whose threads are
/// still there, finds nothing by its name, and its lock is in no one's way.
struct Mounted {
    root: tempfile::TempDir,
    boots: u32,
    disk: Arc<Disk>,
}

impl Mounted {
    fn new(seed: u64) -> Self {
        vfs::install();
        let root = tempfile::tempdir().unwrap();
        let mounted = Self { root, boots: 0, disk: Disk::new(seed) };
        mounted.mount();
        mounted
    }
    fn mount(&self) {
        std::fs::create_dir(self.dir()).unwrap();
        for name in ["q.db", "q.db-wal", "q.db-shm"] {
            std::fs::write(self.dir().join(name), "").unwrap();
        }
        self.disk.mount(self.dir());
    }
    fn dir(&self) -> PathBuf {
        self.root.path().join(self.boots.to_string())
    }
    fn file(&self) -> PathBuf {
        self.dir().join("q.db")
    }
    fn boot(&mut self) {
        Disk::unmount(&self.dir());
        self.boots += 1;
        self.disk.boot();
        self.mount();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        Disk::unmount(&self.dir());
    }
}

/// Prints how to replay it when the test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!("REQUEUE_POWER_SEED={seed} cargo test -p requeue-sqlite --test power -- --nocapture");
        }
    }
}

/// Plans some faults of random calls.
fn plant(disk: &Disk, seeded: &mut Seeded) {
    for _ in 0..=seeded.below(4) {
        let call =
            seeded.one_of(&[Call::Write, Call::Sync, Call::ShmLock, Call::Read, Call::Write, Call::Sync]);
        let call = if seeded.below(3) == 0 { seeded.one_of(&Call::ALL) } else { call };
        let (after, times) = (seeded.below(60), 1 + seeded.below(4));
        disk.plant(Fault { call, after, times, code: seeded.one_of(call.errors()) });
    }
}

/// Plays one file through some power cuts. Returns the number of failed calls.
fn play(seed: u64, cuts: u64) -> u64 {
    let _says = Seed(seed);
    let mut mounted = Mounted::new(seed);
    let disk = &mounted.disk.clone();
    let ledger = Arc::new(Ledger::default());
    let mut seeded = Seeded(seed);
    let (mut failed, mut gone) = (0, Vec::new());
    for cut in 0..cuts {
        let faults = seeded.below(3);
        let when = format!("seed {seed}, power cut {cut}, faults {faults}");
        let most = seeded.one_of(&[100, 400, 1500, 4000]);
        if faults < 2 {
            disk.cut_after(seeded.below(most));
        }
        if faults > 0 {
            plant(disk, &mut seeded);
        }
        let began = Instant::now();
        // it may not come so far
        if let Ok(mut world) = World::start(&mounted.file(), disk, &ledger, &mut seeded, true) {
            while !disk.is_cut() && began.elapsed() < Duration::from_millis(20) {
                std::thread::sleep(Duration::from_micros(200));
            }
            if faults == 2 {
                failed += disk.mend();
                world.rest();
            }
            disk.cut();
            gone.push(world.end());
        }
        disk.cut();
        failed += disk.mend();
        mounted.boot();
        check(&mounted.file(), &ledger, seeded.below(2) == 0);
        ledger.verdict(&when);
    }
    let mut world = World::start(&mounted.file(), disk, &ledger, &mut seeded, false).unwrap();
    world.rest();
    gone.push(world.end());
    gone.into_iter().for_each(|gone| gone.join().unwrap());
    ledger.verdict(&format!("seed {seed}, in the end"));
    failed
}

/// Compares the file with the record. At random the engine or another connection opens it first.
fn check(path: &Path, ledger: &Ledger, engine_first: bool) {
    let q = engine_first.then(|| world::open(path).expect("a file that was whole"));
    ledger.compare(path);
    drop(q);
}

#[test]
fn e1_e2_e3_e9_and_e27_hold_whenever_the_power_is_cut_and_whatever_fails() {
    if let Some(seed) = number("REQUEUE_POWER_SEED") {
        for _ in 0..20 {
            play(seed, 10);
        }
        return;
    }
    let (began, most) = (Instant::now(), number("REQUEUE_POWER_CUTS"));
    let (mut cuts, mut failed, mut seed) = (0, 0, number("REQUEUE_POWER_FROM").unwrap_or(0));
    while most.map_or(began.elapsed() < Duration::from_secs(6), |most| cuts < most) {
        failed += play(seed, 10);
        seed += 1;
        cuts += 10;
    }
    eprintln!("{cuts} power cuts, {failed} calls failed");
}

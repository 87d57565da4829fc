//! A guard lends its key without the lock, whatever happens to the key meanwhile.

use crate::support::{Hash, bounded};
use loom::cell::UnsafeCell;
use loom::thread;
use requeue::{FakeClock, WorkQueue};
use std::borrow::Borrow;
use std::hash::Hasher;
use std::sync::Arc;

/// A key whose memory loom watches: reading it is a shared access, dropping it
/// an exclusive one.
struct Watched {
    number: u32,
    memory: UnsafeCell<u32>,
}

// SAFETY: the cell is only read, until the key is dropped; loom checks that.
unsafe impl Sync for Watched {}

impl Watched {
    fn new(number: u32) -> Self {
        Self { number, memory: UnsafeCell::new(number) }
    }
    fn read(&self) -> u32 {
        // SAFETY: nobody writes while there is a shared reference.
        self.memory.with(|memory| unsafe { *memory })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: the thread that drops the key is alone with it.
        self.memory.with_mut(|memory| unsafe { *memory = u32::MAX });
    }
}

/// Lookups compare the key in the queue's memory through this.
impl Borrow<u32> for Watched {
    fn borrow(&self) -> &u32 {
        assert_eq!(self.read(), self.number, "the key is alive");
        &self.number
    }
}

impl PartialEq for Watched {
    fn eq(&self, other: &Self) -> bool {
        self.read() == other.read()
    }
}

impl Eq for Watched {}

impl std::hash::Hash for Watched {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

fn queue() -> Arc<WorkQueue<Watched, (), Hash>> {
    let builder = WorkQueue::builder().clock(FakeClock::new()).hasher(Hash::default());
    Arc::new(builder.build().expect("it has no metrics"))
}

/// One thread reads the key through its guard, one looks the key up, one ends
/// the run under the guard. The key is dropped once all of them have let go.
#[test]
fn loom_q12_a_guard_reads_its_key_while_others_look_it_up_and_end_its_run() {
    bounded(|| {
        let q = queue();
        q.add(Watched::new(1)).expect("open");
        let item = q.try_get().expect("ready").into_owned();
        let reads = thread::spawn(move || {
            assert_eq!(item.key().read(), 1);
            drop(item);
        });
        let ends = {
            let q = q.clone();
            // refused where the guard was dropped first
            thread::spawn(move || q.done(&1).is_ok())
        };
        let known = q.state(&1).is_some();
        reads.join().expect("no panic");
        ends.join().expect("no panic");
        assert!(q.state(&1).is_none(), "known before: {known}");
        assert_eq!(q.stats().known, 0);
    });
}

/// The key runs again, under a second guard, while the first one still reads it.
#[test]
fn loom_q12_an_inert_guard_and_the_next_one_share_the_key() {
    bounded(|| {
        let q = queue();
        q.add(Watched::new(1)).expect("open");
        let first = q.try_get().expect("ready").into_owned();
        let reads = thread::spawn(move || {
            assert_eq!(first.key().read(), 1);
            drop(first);
        });
        let adds = {
            let q = q.clone();
            thread::spawn(move || q.add(Watched::new(1)).is_ok())
        };
        let ended_here = q.done(&1).is_ok();
        assert!(adds.join().expect("no panic"));
        let second = q.get_blocking().expect("not shut down");
        assert_eq!(second.key().read(), 1);
        reads.join().expect("no panic");
        assert!(!second.is_inert(), "ended before: {ended_here}");
        drop(second);
        assert_eq!(q.stats().known, 0);
    });
}

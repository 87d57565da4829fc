//! Loans of keys across threads: for Miri, which sees a key read after it was
//! moved or freed, and two accesses to one that nothing orders.
//!
//! `cargo +nightly miri test -p requeue-core --test loans`; it also runs, and
//! shows less, without Miri.

mod common;

use common::Calls;
use requeue_core::{Config, Core, Delay, Got, How, RunRef, Trigger};
use std::sync::Mutex;
use std::thread;

const HASH: u32 = 7;

fn get(core: &mut Core<String>) -> RunRef<String> {
    match core.get() {
        Got::Item(handout) => handout.run,
        other => panic!("{other:?} instead of a key"),
    }
}

fn with_a_held_key() -> (Mutex<Core<String>>, RunRef<String>) {
    let mut core = Core::new(Config::default());
    let _ = core.add(&mut Trigger::new("key".to_string(), None), HASH, Delay::Now);
    let run = get(&mut core);
    (Mutex::new(core), run)
}

fn done(core: &Mutex<Core<String>>) -> bool {
    let ended = core.lock().expect("no panic").done("key", HASH);
    ended.is_ok()
}

fn known(core: &Mutex<Core<String>>) -> usize {
    core.lock().expect("no panic").stats().known
}

#[test]
fn q12_a_guard_reads_its_key_while_others_look_it_up_and_end_its_run() {
    for _ in 0..if cfg!(miri) { 4 } else { 200 } {
        let (core, run) = with_a_held_key();
        thread::scope(|s| {
            s.spawn(|| {
                assert_eq!(run.key(), "key");
                thread::yield_now();
                assert_eq!(run.key(), "key");
                let ended = core.lock().expect("no panic").end(run, How::Done, None);
                drop(ended);
            });
            s.spawn(|| {
                for _ in 0..3 {
                    let _ = core.lock().expect("no panic").state("key", HASH);
                }
            });
            s.spawn(|| done(&core));
        });
        assert_eq!(known(&core), 0);
    }
}

#[test]
fn q12_two_guards_of_one_key_read_it_while_its_chunk_fills_and_empties() {
    for _ in 0..if cfg!(miri) { 1 } else { 20 } {
        let (core, first) = with_a_held_key();
        assert!(done(&core), "from here on the first guard is inert");
        thread::scope(|s| {
            let core = &core;
            let reads = s.spawn(move || {
                for _ in 0..5 {
                    assert_eq!(first.key(), "key");
                    thread::yield_now();
                }
                let ended = core.lock().expect("no panic").give_back(first);
                drop(ended);
            });
            let mut locked = core.lock().expect("no panic");
            let _ = locked.add(&mut Trigger::new("key".to_string(), None), HASH, Delay::Now);
            let second = get(&mut locked);
            drop(locked);
            // others come and go around the key, beyond the end of its chunk
            for i in 0..260u32 {
                let _ =
                    core.lock().expect("no panic").add(&mut Trigger::new(i.to_string(), None), i, Delay::Now);
            }
            for _ in 0..260 {
                let mut locked = core.lock().expect("no panic");
                let run = get(&mut locked);
                let ended = locked.end(run, How::Done, None);
                drop(locked);
                drop(ended);
            }
            assert_eq!(second.key(), "key");
            reads.join().expect("no panic");
            let ended = core.lock().expect("no panic").end(second, How::Done, None);
            drop(ended);
        });
        assert_eq!(known(&core), 0);
    }
}

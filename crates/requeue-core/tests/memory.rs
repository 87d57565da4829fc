//! Q13: the memory of a burst of keys is freed, chunk by chunk, with all side data. A binary of its own,
//! because it counts the bytes that each thread allocates.

mod common;

use common::Calls;
use requeue_core::{Config, Core, Delay, Got, How, Instant, Limit, Order, Policy, RetryDelay, Trigger};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

struct Counting;

thread_local! {
    /// Bytes that this thread has allocated and not freed: a test runs on one thread.
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let _ = ALLOCATED.try_with(|allocated| allocated.set(allocated.get() + bytes));
}

// SAFETY: every call is passed on to the system's allocator as it is; the
// counter beside it touches no memory that is handed out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const KEYS: u32 = if cfg!(miri) { 2_000 } else { 20_000 };
/// Bytes that an empty queue may keep: less than a byte per key of any burst.
const KEPT: isize = 100 * 1024;

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: Limit<'static> = Limit { delay: &|_, _| SECOND, counts: true, expire_after: None };

fn at(n: u32) -> Instant {
    Instant::ORIGIN + SECOND * n
}

/// Spreads keys like a hasher.
fn hash(key: u32) -> u32 {
    key.wrapping_mul(0x9e37_79b9)
}

/// Runs bursts of keys, which `add` adds and `end` ends, and asserts that their bytes are freed each time,
/// and that there were any.
fn goes_back(
    config: Config<u32, u64>,
    add: impl Fn(&mut Core<u32, u64>, u32),
    end: impl Fn(u32) -> How<'static>,
) {
    let before = ALLOCATED.get();
    let mut core = Core::new(config);
    for burst in 1..=2 {
        for key in 0..KEYS {
            add(&mut core, key);
        }
        let most = ALLOCATED.get() - before;
        assert!(most >= 8 * KEYS as isize, "{most} bytes for {KEYS} keys");
        let mut now = burst * 100;
        loop {
            while core.advance(at(now)) {}
            match core.get() {
                Got::Item(item) => {
                    // a failed key is tried again once
                    let how = if item.attempt == 1 { end(*item.run.key()) } else { How::Succeed };
                    let _ = core.end(item.run, how, item.value).expect("open");
                }
                _ if core.next_wake().is_some() => now += 10,
                _ => break,
            }
        }
        assert_eq!(core.stats().known, 0);
        assert!(core.take_trash().is_empty());
        let left = ALLOCATED.get() - before;
        if !cfg!(miri) {
            assert!(left <= KEPT, "{left} of {most} bytes are left");
        }
    }
}

fn add_now(core: &mut Core<u32, u64>, key: u32) {
    core.add(&mut Trigger::new(key, None), hash(key), Delay::Now).expect("open");
}

#[test]
fn q13_memory_of_keys_goes_back() {
    for order in [Order::Fifo, Order::Lifo] {
        goes_back(Config { order, ..Config::default() }, add_now, |_| How::Done);
    }
}

#[test]
fn q13_memory_of_timestamps_goes_back() {
    goes_back(Config { timestamps: true, ..Config::default() }, add_now, |_| How::Done);
}

#[test]
fn q13_memory_of_payloads_goes_back() {
    let add = |core: &mut Core<u32, u64>, key: u32| {
        core.add(&mut Trigger::new(key, Some(u64::from(key))), hash(key), Delay::Now)
            .map(|_| ())
            .expect("open");
    };
    goes_back(Config::default(), add, |_| How::Done);
}

#[test]
fn q13_memory_of_timers_and_their_windows_goes_back() {
    for policy in [Policy::Earliest, Policy::Latest { max: SECOND * 60 }] {
        let add = |core: &mut Core<u32, u64>, key: u32| {
            let delay = Delay::After(Duration::from_millis(1 + u64::from(key)), policy);
            core.add(&mut Trigger::new(key, None), hash(key), delay).map(|_| ()).expect("open");
        };
        goes_back(Config::default(), add, |_| How::Done);
    }
}

#[test]
fn q13_memory_of_failures_goes_back_when_they_are_forgotten() {
    let retry = |key: u32| match key % 2 {
        0 => How::Retry(RetryDelay::Limited(LIMIT, None)),
        _ => How::Retry(RetryDelay::Limited(LIMIT, Some(Duration::ZERO))),
    };
    goes_back(Config::default(), add_now, retry);
}

#[test]
fn q13_memory_of_waiting_keys_goes_back_at_a_shutdown() {
    let before = ALLOCATED.get();
    let mut core = Core::<u32, u64>::new(Config::default());
    for key in 0..KEYS {
        let delay = Delay::After(SECOND, Policy::Earliest);
        core.add(&mut Trigger::new(key, Some(1)), hash(key), delay).map(|_| ()).expect("open");
    }
    core.shut_down();
    let mut dropped = 0;
    loop {
        let more = core.advance(Instant::ORIGIN);
        dropped += core.take_trash().iter().filter(|(key, value)| key.is_some() && value.is_some()).count();
        if !more {
            break;
        }
    }
    let left = ALLOCATED.get() - before;
    assert_eq!(dropped, KEYS as usize);
    if !cfg!(miri) {
        assert!(left <= KEPT, "{left} bytes are left");
    }
}

#[test]
fn a_queue_that_is_dropped_frees_everything_but_chunks_of_which_a_key_is_lent() {
    let before = ALLOCATED.get();
    let mut core = Core::<String, String>::new(Config::default());
    let mut runs = Vec::with_capacity(300);
    let for_runs = ALLOCATED.get() - before;
    for key in 0..300u32 {
        let mut trigger = Trigger::new(key.to_string(), Some(key.to_string()));
        core.add(&mut trigger, hash(key), Delay::Now).map(|_| ()).expect("open");
        let Got::Item(item) = core.get() else { panic!("it is ready") };
        let run = item.run;
        // one of each chunk stays lent
        if key == 7 || key == 299 {
            runs.push(run);
        } else if key % 16 == 0 {
            let _ = core.finished(run, true);
        } else {
            let _ = core.detach(run);
        }
    }
    let mut lent = runs.pop().expect("two were kept");
    let ended = core.finished(lent, true);
    assert_eq!(ended.key.as_deref(), Some("299"));
    drop(ended);
    drop(core);
    lent = runs.pop().expect("one is left");
    let left = ALLOCATED.get() - before - for_runs;
    let chunk = 256 * size_of::<String>() as isize;
    assert!((chunk..2 * chunk).contains(&left), "{left} bytes are left, a chunk has {chunk}");
    assert_eq!(lent.key(), "7");
}

#[test]
fn a_key_that_comes_to_an_empty_queue_and_goes_allocates_nothing() {
    let mut core = Core::<u32, u64>::new(Config::default());
    let mut come_and_go = |key: u32| {
        add_now(&mut core, key);
        let added = ALLOCATED.get();
        let Got::Item(item) = core.get() else { panic!("it is ready") };
        let handed_out = ALLOCATED.get();
        assert_eq!(core.finished(item.run, true).key, Some(key));
        [added, handed_out, ALLOCATED.get()]
    };
    // the first one makes room
    let [.., empty] = come_and_go(0);
    for key in 1..5 {
        assert_eq!(come_and_go(key), [empty; 3]);
    }
}

//! What the workloads cost at the very least, whoever does them: the parts that a
//! design with one lock, one hash table and one reading of the clock a call cannot
//! leave out, put together without anything else.

use crate::crew::on_threads;
use crate::keys::keys;
use crate::measure::{Percentiles, Spent, Stopwatch};
use crate::w4::delays_of;
use crate::{Args, Key, Line, Usage};
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hash::BuildHasher;
use std::hint::black_box;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::time::{Duration, Instant};

/// The name under which it is measured.
pub const NAME: &str = "requeue";

#[derive(Default)]
struct State {
    known: HashTable<(u64, usize)>,
    line: VecDeque<(u64, usize)>,
}

impl State {
    fn add(&mut self, entry: (u64, usize)) {
        self.known.insert_unique(entry.0, entry, |(hash, _)| *hash);
        self.line.push_back(entry);
    }

    fn done(&mut self, (hash, i): (u64, usize)) {
        if let Ok(entry) = self.known.find_entry(hash, |(_, j)| *j == i) {
            entry.remove();
        }
    }
}

/// `w1floor`: an operation is three pairs of lock and unlock, and in them an insert
/// and a push, a pop, and a remove. The key is hashed once, is neither stored nor
/// compared, and is dropped at the end.
///
/// # Errors
///
/// Where a parameter is wrong.
pub fn w1(args: &mut Args) -> Result<Line, Usage> {
    let key = args.choice("key", &["u64", "string"])?;
    let shape = args.choice("shape", &["cycle", "pending", "bulk"])?;
    let n = args.number("n", 1_000_000)?;
    let params = args.finish()?;
    let spent = match key {
        "u64" => cycles::<u64>(shape, n),
        _ => cycles::<String>(shape, n),
    };
    Ok(Line::spent(NAME, "w1floor", params, n as u64, spent))
}

fn cycles<K: Key>(shape: &str, n: usize) -> Spent {
    let (state, hasher) = (Mutex::new(State::default()), RandomState::default());
    if shape == "pending" {
        for (i, key) in keys::<K>(n, crate::w1::PENDING).into_iter().enumerate() {
            state.lock().add((hasher.hash_one(&key), n + i));
        }
    }
    let keys = keys::<K>(0, n);
    let take = || {
        let next = state.lock().line.pop_front();
        next.is_some_and(|entry| {
            state.lock().done(entry);
            true
        })
    };
    let watch = Stopwatch::start();
    for (i, key) in keys.into_iter().enumerate() {
        state.lock().add((hasher.hash_one(&key), i));
        if shape != "bulk" {
            take();
        }
    }
    while shape == "bulk" && take() {}
    watch.stop()
}

/// `w3floor`: an operation is the hash of a key, the look at its place in a table,
/// the full barrier that rule Q5 demands, and a second look.
///
/// # Errors
///
/// Where a parameter is wrong.
pub fn w3(args: &mut Args) -> Result<Line, Usage> {
    let key = args.choice("key", &["u64", "string"])?;
    let threads = args.number("threads", 1)?;
    let n = args.number("n", 10_000_000)?;
    let params = args.finish()?;
    let spent = match key {
        "u64" => looks::<u64>(threads, n),
        _ => looks::<String>(threads, n),
    };
    Ok(Line::spent(NAME, "w3floor", params, n as u64, spent))
}

fn looks<K: Key>(threads: usize, n: usize) -> Spent {
    const PLACES: usize = 1024;
    let hasher = RandomState::default();
    let keys = keys::<K>(0, 100);
    let places: Vec<AtomicU64> = (0..PLACES).map(|_| AtomicU64::new(1)).collect();
    on_threads(threads, n, |_, n| {
        for key in keys.iter().cycle().take(n) {
            let place = &places[hasher.hash_one(key) as usize % PLACES];
            let seen = place.load(Acquire);
            fence(SeqCst);
            black_box(place.load(Relaxed) == seen);
        }
    })
}

/// `timerfloor`: an operation is a reading of the clock, a pair of lock and unlock,
/// and in it an insert in a hash table and a push on a binary heap.
///
/// # Errors
///
/// Where a parameter is wrong.
pub fn timers(args: &mut Args) -> Result<Line, Usage> {
    let key = args.choice("key", &["u64", "string"])?;
    let n = args.number("n", 1_000_000)?;
    let params = args.finish()?;
    let spent = match key {
        "u64" => inserts::<u64>(n),
        _ => inserts::<String>(n),
    };
    Ok(Line::spent(NAME, "timerfloor", params, n as u64, spent))
}

fn inserts<K: Key>(n: usize) -> Spent {
    type Timers<K> = (HashTable<(u64, usize)>, Vec<K>, BinaryHeap<Reverse<(u64, usize)>>);
    let (hasher, delays) = (RandomState::default(), delays_of("uniform", n));
    let state: Mutex<Timers<K>> = Mutex::new((HashTable::new(), Vec::new(), BinaryHeap::new()));
    let keys = keys::<K>(0, n);
    let (watch, start) = (Stopwatch::start(), Instant::now());
    for (i, (key, delay)) in keys.into_iter().zip(delays).enumerate() {
        let entry = (hasher.hash_one(&key), i);
        let due = (start.elapsed() + delay).as_nanos() as u64;
        let mut state = state.lock();
        state.0.insert_unique(entry.0, entry, |(hash, _)| *hash);
        state.1.push(key);
        state.2.push(Reverse((due, i)));
    }
    let spent = watch.stop();
    drop(state);
    spent
}

/// `bucketfloor`: an operation is a reading of the clock and one atomic addition.
///
/// # Errors
///
/// Where a parameter is wrong.
pub fn bucket(args: &mut Args) -> Result<Line, Usage> {
    let threads = args.number("threads", 1)?;
    let n = args.number("n", 4_000_000)?;
    let params = args.finish()?;
    let zero = AtomicU64::new(0);
    let spent = on_threads(threads, n, |_, n| {
        for _ in 0..n {
            black_box((Instant::now(), zero.fetch_add(1, Relaxed)));
        }
    });
    Ok(Line::spent(NAME, "bucketfloor", params, n as u64, spent))
}

/// `w8floor`: [`w1`]'s cycle with as many readings of the clock as three calls or,
/// with `form=next`, two have, one addition to a counter and two to each of two
/// histograms, in the place that the time says.
///
/// # Errors
///
/// Where a parameter is wrong.
pub fn w8(args: &mut Args) -> Result<Line, Usage> {
    let key = args.choice("key", &["u64", "string"])?;
    let form = args.choice("form", &["plain", "next"])?;
    let n = args.number("n", 1_000_000)?;
    let params = args.finish()?;
    let spent = match key {
        "u64" => told_cycles::<u64>(form, n),
        _ => told_cycles::<String>(form, n),
    };
    Ok(Line::spent(NAME, "w8floor", params, n as u64, spent))
}

#[derive(Default)]
struct Histogram {
    buckets: [AtomicU64; 32],
    sum: AtomicU64,
}

impl Histogram {
    fn observe(&self, took: Duration) {
        let nanos = took.as_nanos() as u64;
        self.buckets[nanos.checked_ilog2().unwrap_or(0).min(31) as usize].fetch_add(1, Relaxed);
        self.sum.fetch_add(nanos, Relaxed);
    }
}

fn told_cycles<K: Key>(form: &str, n: usize) -> Spent {
    let (state, hasher) = (Mutex::new(State::default()), RandomState::default());
    let (adds, waited, worked) = (AtomicU64::new(0), Histogram::default(), Histogram::default());
    let keys = keys::<K>(0, n);
    let watch = Stopwatch::start();
    for (i, key) in keys.into_iter().enumerate() {
        let added = Instant::now();
        state.lock().add((hasher.hash_one(&key), i));
        adds.fetch_add(1, Relaxed);
        let got = Instant::now();
        let next = state.lock().line.pop_front();
        waited.observe(got - added);
        if let Some(entry) = next {
            let done = if form == "plain" { Instant::now() } else { got };
            state.lock().done(entry);
            worked.observe(done - got);
        }
    }
    watch.stop()
}

/// `soonerfloor`: a thread that sleeps for an hour is woken, and then sleeps for
/// 5 ms; the percentiles are of how late it wakes. `n`, how many keys wait beside it,
/// changes nothing.
///
/// # Errors
///
/// Where a parameter is wrong.
///
/// # Panics
///
/// Where the thread does not come.
pub fn sooner(args: &mut Args) -> Result<Line, Usage> {
    const DELAY: Duration = Duration::from_millis(5);
    const TIMES: usize = 200;
    args.number("n", 0)?;
    let params = args.finish()?;
    let due: Mutex<Option<Instant>> = Mutex::new(None);
    let (tell, told) = std::sync::mpsc::channel();
    let start = Instant::now();
    let late: Vec<u64> = std::thread::scope(|scope| {
        let due = &due;
        let sleeper = scope.spawn(move || {
            for _ in 0..TIMES {
                loop {
                    let sleep = match *due.lock() {
                        None => Duration::from_secs(3600),
                        Some(at) => at.saturating_duration_since(Instant::now()),
                    };
                    if sleep.is_zero() {
                        break;
                    }
                    std::thread::park_timeout(sleep);
                }
                let was = due.lock().take();
                let late = was.map_or(Duration::ZERO, |at| at.elapsed());
                tell.send(late.as_nanos() as u64).expect("somebody listens");
            }
        });
        let late = |_| {
            // so that it sleeps again
            std::thread::sleep(Duration::from_millis(2));
            *due.lock() = Some(Instant::now() + DELAY);
            sleeper.thread().unpark();
            told.recv_timeout(Duration::from_secs(60)).expect("the thread wakes")
        };
        (0..TIMES).map(late).collect()
    });
    let line = Line::new(NAME, "soonerfloor", params, TIMES as u64, start.elapsed());
    Ok(line.percentiles(&Percentiles::of(late)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(of: &str) -> Args {
        Args::parse(of.split(' ').map(str::to_string)).expect("they are right")
    }

    #[test]
    fn each_floor_does_as_many_operations_as_it_says() {
        for (run, of) in [
            (w1 as fn(&mut Args) -> _, "w1floor shape=pending n=50"),
            (w1, "w1floor key=string shape=bulk n=50"),
            (w3, "w3floor threads=2 n=50"),
            (timers, "timerfloor key=string n=50"),
            (bucket, "bucketfloor threads=3 n=50"),
            (w8, "w8floor form=next n=50"),
        ] {
            let line: Line = run(&mut args(of)).expect("they are right");
            assert_eq!((line.ops, line.workload.as_str()), (50, of.split(' ').next().expect("a name")));
        }
    }

    #[test]
    fn a_cycle_leaves_nothing_behind_but_what_was_pending() {
        let mut state = State::default();
        state.add((7, 0));
        state.add((7, 1));
        state.done((7, 0));
        assert_eq!(state.known.len(), 1);
    }
}

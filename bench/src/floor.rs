//! Lower bounds of the workloads' costs, and measurements for comparison.
//!
//! A *floor* leaves out all that some design could leave out. All memory is there before the time begins, the
//! hash is the fastest known, the table has one place per hash, keys are neither stored nor compared, and
//! three calls of a queue are done in one hold of the lock. Nothing that de-duplicates keys should be faster;
//! if something is, the report says so next to the figure. A *reference* is the cost of a simple design;
//! another design may take less.

use crate::crew::on_threads;
use crate::cycle::PENDING;
use crate::keys::keys;
use crate::measure::{Percentiles, Spent, Stopwatch};
use crate::timers::delays_of;
use crate::{Args, Key, Line, Usage};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

/// The name under which it is measured.
pub const NAME: &str = "requeue";

/// The places of a table, at least two per key, all of them in memory. A key that hashes to an occupied place
/// overwrites it.
fn places(keys: usize) -> Vec<u32> {
    vec![FREE; (2 * keys).next_power_of_two().max(1024)]
}

const FREE: u32 = u32::MAX;

/// The places of keys, and the ready line.
struct State {
    places: Vec<u32>,
    line: VecDeque<u32>,
}

impl State {
    /// Makes a state with room for this many keys.
    fn new(keys: usize) -> Mutex<Self> {
        let mut line = VecDeque::from(vec![0; keys]);
        line.clear();
        Mutex::new(Self { places: places(keys), line })
    }

    #[inline]
    fn add(&mut self, hash: u64, key: usize) {
        let at = hash as usize & (self.places.len() - 1);
        black_box(self.places[at]);
        self.places[at] = key as u32;
        self.line.push_back(at as u32);
    }

    /// Takes the first out of the line and out of the table; `false` if there is none.
    #[inline]
    fn take(&mut self) -> bool {
        let first = self.line.pop_front();
        first.is_some_and(|at| black_box(std::mem::replace(&mut self.places[at as usize], FREE)) != FREE)
    }
}

/// `cyclefloor`: an operation is a hash, one pair of lock and unlock, a look at the key's
/// place in a table, which is taken and given back, and a push and a pop in a line.
/// With `shape=bulk` all of that is one hold, as batches may be.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn cycle(args: &mut Args) -> Result<Line, Usage> {
    let key = args.choice("key", &["u64", "string"])?;
    let shape = args.choice("shape", &["cycle", "pending", "bulk"])?;
    let n = args.number("n", 1_000_000)?;
    let params = args.finish()?;
    let spent = match key {
        "u64" => cycles::<u64>(shape, n),
        _ => cycles::<String>(shape, n),
    };
    Ok(Line::spent(NAME, "cyclefloor", params, n as u64, spent))
}

fn cycles<K: Key>(shape: &str, n: usize) -> Spent {
    let room = match shape {
        "cycle" => 1,
        "pending" => PENDING + 1,
        _ => n,
    };
    let (state, hasher) = (State::new(room), RandomState::default());
    for (i, key) in keys::<K>(n, room - 1).into_iter().enumerate() {
        if shape == "pending" {
            state.lock().add(hasher.hash_one(&key), n + i);
        }
    }
    let keys = keys::<K>(0, n);
    let watch = Stopwatch::start();
    if shape == "bulk" {
        let mut state = state.lock();
        keys.into_iter().enumerate().for_each(|(i, key)| state.add(hasher.hash_one(&key), i));
        for _ in 0..n {
            state.take();
        }
        return watch.stop();
    }
    for (i, key) in keys.into_iter().enumerate() {
        let hash = hasher.hash_one(&key);
        let mut state = state.lock();
        state.add(hash, i);
        state.take();
    }
    watch.stop()
}

/// `redundantfloor`: an operation is the hash of a key, the look at its place in a table, the full barrier that rule
/// Q5 demands, and a second look. The barrier is a read-modify-write of the thread's own, which on x86 takes
/// a fraction of a fence's time; elsewhere it may be less than a barrier, so the floor is never too high.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn redundant(args: &mut Args) -> Result<Line, Usage> {
    let key = args.choice("key", &["u64", "string"])?;
    let threads = args.number("threads", 1)?;
    let n = args.number("n", 10_000_000)?;
    let params = args.finish()?;
    let spent = match key {
        "u64" => looks::<u64>(threads, n),
        _ => looks::<String>(threads, n),
    };
    Ok(Line::spent(NAME, "redundantfloor", params, n as u64, spent))
}

fn looks<K: Key>(threads: usize, n: usize) -> Spent {
    let hasher = RandomState::default();
    let keys = keys::<K>(0, 100);
    let places: Vec<AtomicU32> = places(keys.len()).into_iter().map(AtomicU32::new).collect();
    on_threads(threads, n, |_, n| {
        let own = AtomicU64::new(0);
        for key in keys.iter().cycle().take(n) {
            let place = &places[hasher.hash_one(key) as usize & (places.len() - 1)];
            let seen = place.load(Acquire);
            black_box(&own).swap(1, SeqCst);
            black_box(place.load(Relaxed) == seen);
        }
    })
}

/// `timerfloor`: an operation is a reading of the clock, a hash, a pair of lock and
/// unlock, and in it a look at the key's place in a table, which is taken, and a push
/// on the bucket of the half millisecond in which the timer is due.
///
/// # Errors
///
/// If a parameter is wrong.
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
    const WIDTH: u64 = 500_000;
    // more than three seconds: an insertion that takes longer comes round to the first
    const BUCKETS: usize = 8192;
    let (hasher, delays) = (RandomState::default(), delays_of("uniform", n));
    let mut buckets = vec![vec![(0, 0); n / 2000 + 16]; BUCKETS];
    buckets.iter_mut().for_each(Vec::clear);
    let state = Mutex::new((places(n), buckets));
    let keys = keys::<K>(0, n);
    let (watch, start) = (Stopwatch::start(), Instant::now());
    for (i, (key, delay)) in keys.iter().zip(delays).enumerate() {
        let hash = hasher.hash_one(key);
        let due = (start.elapsed() + delay).as_nanos() as u64;
        let mut state = state.lock();
        let place = hash as usize & (state.0.len() - 1);
        black_box(std::mem::replace(&mut state.0[place], i as u32));
        state.1[(due / WIDTH) as usize % BUCKETS].push((due as u32, i as u32));
    }
    watch.stop()
}

/// `bucketreference`: an operation is a reading of the clock and one atomic addition.
///
/// # Errors
///
/// If a parameter is wrong.
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
    Ok(Line::spent(NAME, "bucketreference", params, n as u64, spent))
}

/// `metricsreference`: [`cycle`]'s cycle with the clock readings of three calls or, with `form=next`, two, one
/// addition to a counter and two to each of two histograms, in the bucket of the time. A batch reads the
/// clock less often.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn metrics(args: &mut Args) -> Result<Line, Usage> {
    let key = args.choice("key", &["u64", "string"])?;
    let form = args.choice("form", &["plain", "next"])?;
    let n = args.number("n", 1_000_000)?;
    let params = args.finish()?;
    let spent = match key {
        "u64" => told_cycles::<u64>(form, n),
        _ => told_cycles::<String>(form, n),
    };
    Ok(Line::spent(NAME, "metricsreference", params, n as u64, spent))
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
    let (state, hasher) = (State::new(1), RandomState::default());
    let (adds, waited, worked) = (AtomicU64::new(0), Histogram::default(), Histogram::default());
    let keys = keys::<K>(0, n);
    let watch = Stopwatch::start();
    for (i, key) in keys.into_iter().enumerate() {
        let added = Instant::now();
        state.lock().add(hasher.hash_one(&key), i);
        adds.fetch_add(1, Relaxed);
        let got = Instant::now();
        waited.observe(got - added);
        let done = if form == "plain" { Instant::now() } else { got };
        state.lock().take();
        worked.observe(done - got);
    }
    watch.stop()
}

/// `soonerreference`: a thread that sleeps for an hour is woken, and then sleeps for 5 ms; the percentiles
/// are of its late wake-ups. `n`, the number of keys that wait meanwhile, changes nothing.
///
/// # Errors
///
/// If a parameter is wrong.
///
/// # Panics
///
/// If the thread does not wake.
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
    let line = Line::new(NAME, "soonerreference", params, TIMES as u64, start.elapsed());
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
            (cycle as fn(&mut Args) -> _, "cyclefloor shape=pending n=50"),
            (cycle, "cyclefloor key=string shape=bulk n=50"),
            (redundant, "redundantfloor threads=2 n=50"),
            (timers, "timerfloor key=string n=50"),
            (bucket, "bucketreference threads=3 n=50"),
            (metrics, "metricsreference form=next n=50"),
        ] {
            let line: Line = run(&mut args(of)).expect("they are right");
            assert_eq!((line.ops, line.workload.as_str()), (50, of.split(' ').next().expect("a name")));
        }
    }

    #[test]
    fn what_is_taken_is_forgotten() {
        let state = State::new(2);
        let mut state = state.lock();
        state.add(7, 0);
        state.add(8, 1);
        assert!(state.take());
        assert_eq!((state.places[7], state.places[8], state.line.len()), (FREE, 1, 1));
        assert!(state.take() && !state.take());
        assert!(state.places.iter().all(|place| *place == FREE));
    }
}

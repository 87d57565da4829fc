//! A million timers. What they cost to set and to serve, and how late they are.

use crate::crew::{Crew, Form, Tally};
use crate::keys::{Random, keys, unscramble};
use crate::measure::{Percentiles, Stopwatch, allocations, rss_bytes};
use crate::queues::{AsyncFifo, Delaying};
use crate::{Args, Key, Line, Usage};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const MONTH: u64 = 30 * 24 * 3600;
const SECOND: u64 = 1_000_000_000;
/// Number of consumers that wait for due keys.
pub(crate) const CONSUMERS: usize = 2;

/// Reads the parameters of `timers` and measures.
///
/// `part=insert`: an operation is an `add_after`, with no caller waiting. `part=run`: two consumers wait from
/// the start, `ns_per_op` is processor time per key from insert to done, and the percentiles are of the keys'
/// lateness.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run<Q: Delaying<Key = u64> + AsyncFifo>(args: &mut Args) -> Result<Line, Usage> {
    let n = args.number("n", 1_000_000)?;
    let delays = args.choice("delays", &["uniform", "equal90", "month"])?;
    let part = args.choice("part", &["insert", "run"])?;
    let mode = args.own_choice("mode", &Crew::MODES[..2])?;
    let params = args.finish()?;
    if part == "run" && delays == "month" {
        return Err(Usage::Wrong("timers: delays of a month are only inserted".to_string()));
    }
    let delays = delays_of(delays, n);
    Ok(match part {
        "insert" => insert::<Q>(params, &delays),
        _ => serve::<Q>(params, mode, &delays),
    })
}

pub(crate) fn delays_of(kind: &str, n: usize) -> Vec<Duration> {
    let mut random = Random::new(4);
    let delay = |_| {
        let uniform = SECOND + random.below(2 * SECOND);
        let nanos = match kind {
            "uniform" => uniform,
            "equal90" if random.below(10) > 0 => 2 * SECOND,
            "equal90" => uniform,
            _ => MONTH * SECOND + uniform,
        };
        Duration::from_nanos(nanos)
    };
    (0..n).map(delay).collect()
}

fn insert<Q: Delaying<Key = u64>>(params: String, delays: &[Duration]) -> Line {
    let n = delays.len();
    let keys = keys::<u64>(0, n);
    let q = Q::new();
    let (rss, allocated) = (rss_bytes(), allocations());
    let watch = Stopwatch::start();
    for (key, delay) in keys.into_iter().zip(delays) {
        q.add_after(key, *delay);
    }
    let spent = watch.stop();
    // the keys' own vector has gone
    let vector = (n * size_of::<u64>()) as i64;
    let bytes = allocated.bytes() + vector;
    let mut line = Line::spent(Q::NAME, "timers", params, n as u64, spent);
    line.bytes_per_key = Some((rss_bytes() - rss + vector) as f64 / n as f64);
    line.extra.insert("alloc_bytes_per_key", bytes as f64 / n as f64);
    line
}

/// Due instants of keys, by their numbers, in nanoseconds from the start.
struct Dues {
    start: Instant,
    at: Vec<AtomicU64>,
}

impl Dues {
    fn new(n: usize) -> Self {
        Self { start: Instant::now(), at: (0..n).map(|_| AtomicU64::new(0)).collect() }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Notes that the `i`th key is due in `delay`.
    fn set(&self, i: usize, delay: Duration) {
        self.at[i].store(self.now() + delay.as_nanos() as u64, Relaxed);
    }

    /// The key's lateness.
    fn late(&self, key: u64) -> u64 {
        self.now().saturating_sub(self.at[unscramble(key) as usize].load(Relaxed))
    }
}

/// A consumer's number, its results, and its progress.
struct Consumer {
    which: usize,
    late: Vec<u64>,
    dues: Arc<Dues>,
    tally: Arc<Tally>,
}

fn serve<Q: Delaying<Key = u64> + AsyncFifo>(params: String, mode: &str, delays: &[Duration]) -> Line {
    let n = delays.len();
    let keys = keys::<u64>(0, n);
    let crew = Crew::new(mode);
    let q = Arc::new(Q::new());
    let (dues, tally) = (Arc::new(Dues::new(n)), Tally::new(CONSUMERS));
    let consumers = (0..CONSUMERS).map(|which| Consumer {
        which,
        late: Vec::with_capacity(n),
        dues: Arc::clone(&dues),
        tally: Arc::clone(&tally),
    });
    let consumers = crew.consume(&q, Form::Plain, consumers.collect(), |me: &mut Consumer, key| {
        me.late.push(me.dues.late(*key));
        me.tally.count(me.which);
    });
    std::thread::sleep(Duration::from_millis(20));
    let watch = Stopwatch::start();
    for (i, (key, delay)) in keys.into_iter().zip(delays).enumerate() {
        dues.set(i, *delay);
        q.add_after(key, *delay);
    }
    let inserted = watch.stop().wall;
    // until all are due: a look every 0.1 ms meanwhile takes more processor time than the queue with few keys
    std::thread::sleep(delays.iter().copied().max().unwrap_or_default());
    tally.wait_for(n as u64);
    let spent = watch.stop();
    q.shut_down(CONSUMERS);
    let late = consumers.join().into_iter().flat_map(|consumer| consumer.late).collect();
    let mut line =
        Line::spent(Q::NAME, "timers", params, n as u64, spent).percentiles(&Percentiles::of(late));
    line.ns_per_op = spent.cpu.as_secs_f64() * 1e9 / n as f64;
    line.extra.insert("insert_seconds", inserted.as_secs_f64());
    line
}

/// Reads the parameters of `sooner` and measures: `n` keys wait for an hour and
/// two consumers for them; then sooner timers of 5 ms are set, one after another.
/// The percentiles are of how late those were handed out.
///
/// # Errors
///
/// If a parameter is wrong.
///
/// # Panics
///
/// If a key does not come.
pub fn sooner<Q: Delaying<Key = u64> + AsyncFifo>(args: &mut Args) -> Result<Line, Usage> {
    const SOONER: usize = 200;
    const DELAY: Duration = Duration::from_millis(5);
    let n = args.number("n", 1_000_000)?;
    let mode = args.own_choice("mode", &Crew::MODES[..2])?;
    let params = args.finish()?;
    let crew = Crew::new(mode);
    let q = Arc::new(Q::new());
    for key in keys::<u64>(0, n) {
        q.add_after(key, Duration::from_secs(3600));
    }
    let dues = Arc::new(Dues::new(n + SOONER));
    let (tell, told) = mpsc::channel();
    let states = (0..CONSUMERS).map(|_| (Arc::clone(&dues), tell.clone())).collect();
    let on_key = |(dues, tell): &mut (Arc<Dues>, mpsc::Sender<u64>), key: &u64| {
        let late = dues.late(*key);
        let _ = tell.send(late);
    };
    let consumers = crew.consume(&q, Form::Plain, states, on_key);
    let start = Instant::now();
    let late = |i| {
        // so that both wait again
        std::thread::sleep(Duration::from_millis(2));
        dues.set(i, DELAY);
        q.add_after(u64::nth(i as u64), DELAY);
        told.recv_timeout(Duration::from_secs(60)).expect("the key comes")
    };
    let late: Vec<u64> = (n..n + SOONER).map(late).collect();
    let line = Line::new(Q::NAME, "sooner", params, SOONER as u64, start.elapsed());
    q.shut_down(CONSUMERS);
    consumers.join();
    Ok(line.percentiles(&Percentiles::of(late)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_what_they_are_called() {
        let seconds = |kind| delays_of(kind, 1000).into_iter().map(|d| d.as_secs_f64()).collect::<Vec<_>>();
        assert!(seconds("uniform").iter().all(|s| (1.0..3.0).contains(s)));
        let equal = seconds("equal90").iter().filter(|s| **s == 2.0).count();
        assert!((850..950).contains(&equal), "{equal}");
        assert!(seconds("month").iter().all(|s| (2_592_000.0..2_592_004.0).contains(s)));
    }
}

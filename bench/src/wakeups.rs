//! How long from an add until the one consumer that waits has the key.

use crate::crew::{Crew, Form, consume_in_threads};
use crate::keys::unscramble;
use crate::measure::Percentiles;
use crate::queues::{AsyncFifo, Fifo};
use crate::{Args, Key, Line, Usage};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Time from one add to the next.
const PAUSE: Duration = Duration::from_micros(200);
const PRODUCERS: [&str; 3] = ["sleep", "spin", "task"];

/// Reads the parameters and measures. The producer is a thread that sleeps or spins between two adds; or,
/// with `producer=task`, a task on the consumer's runtime, which yields until it is time.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run<Q: AsyncFifo<Key = u64>>(args: &mut Args) -> Result<Line, Usage> {
    let producer = args.choice("producer", &PRODUCERS)?;
    // a task's consumer is one too
    let modes = if producer == "task" { ["tasks", "threads"] } else { ["threads", "tasks"] };
    let mode = args.choice("mode", &modes)?;
    if producer == "task" && mode == "threads" {
        return Err(Usage::Cannot("wakeups: producer=task is between tasks".to_string()));
    }
    let n = args.number("n", 5000)?;
    let params = args.finish()?;
    let (q, sent) = (Arc::new(Q::new()), Arc::new(Sent::new(n)));
    let crew = Crew::new(mode);
    let consumer = crew.consume(&q, Form::Plain, vec![Seen::of(&sent)], Seen::see);
    let start = Instant::now();
    if let (Some(runtime), "task") = (crew.runtime(), producer) {
        let (q, sent) = (Arc::clone(&q), Arc::clone(&sent));
        let task = runtime.spawn(async move {
            for i in 0..n {
                let until = Instant::now() + PAUSE;
                while Instant::now() < until {
                    tokio::task::yield_now().await;
                }
                sent.add(&*q, i);
            }
        });
        runtime.block_on(task).expect("it ends well");
    } else {
        produce(&*q, &sent, producer);
    }
    let wall = start.elapsed();
    q.shut_down(1);
    let late = consumer.join().into_iter().flat_map(|seen| seen.late).collect();
    Ok(Line::new(Q::NAME, "wakeups", params, n as u64, wall).percentiles(&Percentiles::of(late)))
}

/// Runs the workload on a queue that only threads can wait for.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run_threads<Q: Fifo<Key = u64>>(args: &mut Args) -> Result<Line, Usage> {
    let producer = args.choice("producer", &PRODUCERS[..2])?;
    args.choice("mode", &Crew::MODES[..1])?;
    let n = args.number("n", 5000)?;
    let params = args.finish()?;
    let (q, sent) = (Arc::new(Q::new()), Arc::new(Sent::new(n)));
    let consumer = consume_in_threads(&q, Form::Plain, vec![Seen::of(&sent)], Seen::see);
    let start = Instant::now();
    produce(&*q, &sent, producer);
    let wall = start.elapsed();
    q.shut_down(1);
    let late = consumer.join().into_iter().flat_map(|seen| seen.late).collect();
    Ok(Line::new(Q::NAME, "wakeups", params, n as u64, wall).percentiles(&Percentiles::of(late)))
}

fn produce<Q: Fifo<Key = u64>>(q: &Q, sent: &Sent, producer: &str) {
    for i in 0..sent.at.len() {
        if producer == "sleep" {
            std::thread::sleep(PAUSE);
        } else {
            let until = Instant::now() + PAUSE;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
        sent.add(q, i);
    }
}

/// Instants when the keys were added, in nanoseconds from the start.
struct Sent {
    start: Instant,
    at: Vec<AtomicU64>,
}

impl Sent {
    fn new(n: usize) -> Self {
        Self { start: Instant::now(), at: (0..n).map(|_| AtomicU64::new(0)).collect() }
    }

    fn add<Q: Fifo<Key = u64>>(&self, q: &Q, i: usize) {
        self.at[i].store(self.start.elapsed().as_nanos() as u64, Relaxed);
        q.add(u64::nth(i as u64));
    }
}

/// Observations of the consumer.
struct Seen {
    sent: Arc<Sent>,
    late: Vec<u64>,
}

impl Seen {
    fn of(sent: &Arc<Sent>) -> Self {
        Self { sent: Arc::clone(sent), late: Vec::with_capacity(sent.at.len()) }
    }

    fn see(&mut self, key: &u64) {
        let now = self.sent.start.elapsed().as_nanos() as u64;
        self.late.push(now - self.sent.at[unscramble(*key) as usize].load(Relaxed));
    }
}

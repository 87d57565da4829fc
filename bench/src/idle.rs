//! Ten thousand idle workers, then a million keys.

use crate::crew::{Crew, Form, Running, Tally, consume_in_threads};
use crate::keys::keys;
use crate::measure::{Stopwatch, rss_bytes};
use crate::queues::{AsyncFifo, Fifo};
use crate::{Args, Line, Usage};
use std::sync::Arc;
use std::time::Duration;

/// Reads the parameters and measures. One thread adds the keys; an operation is a
/// key, from the first add until all are done. `rss_bytes_delta` is what the
/// waiting workers take, before a key has come.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run<Q: AsyncFifo<Key = u64>>(args: &mut Args) -> Result<Line, Usage> {
    let asked = Asked::read(args, &Crew::MODES[..2])?;
    let crew = Crew::new(asked.mode);
    Ok(asked.measure(|q: &Arc<Q>, states| crew.consume(q, Form::Plain, states, count)))
}

/// Runs the workload on a queue that only threads can wait for.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run_threads<Q: Fifo<Key = u64>>(args: &mut Args) -> Result<Line, Usage> {
    let asked = Asked::read(args, &Crew::MODES[..1])?;
    Ok(asked.measure(|q: &Arc<Q>, states| consume_in_threads(q, Form::Plain, states, count)))
}

type Worker = (usize, Arc<Tally>);

fn count((which, tally): &mut Worker, _: &u64) {
    tally.count(*which);
}

struct Asked {
    waiters: usize,
    mode: &'static str,
    n: usize,
    params: String,
}

impl Asked {
    fn read(args: &mut Args, modes: &[&'static str]) -> Result<Self, Usage> {
        let waiters = args.number("waiters", 10_000)?;
        let mode = args.choice("mode", modes)?;
        let n = args.number("n", 1_000_000)?;
        Ok(Self { waiters, mode, n, params: args.finish()? })
    }

    fn measure<Q, C>(&self, consume: C) -> Line
    where
        Q: Fifo<Key = u64>,
        C: Fn(&Arc<Q>, Vec<Worker>) -> Running<Worker>,
    {
        let (q, keys, tally) = (Arc::new(Q::new()), keys::<u64>(0, self.n), Tally::new(self.waiters));
        let states = (0..self.waiters).map(|which| (which, Arc::clone(&tally))).collect();
        let rss = rss_bytes();
        let workers = consume(&q, states);
        // until all wait: as long as they still change the memory, and then some
        let mut waiting = rss_bytes();
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let now = rss_bytes();
            if now == std::mem::replace(&mut waiting, now) {
                break;
            }
        }
        let watch = Stopwatch::start();
        keys.into_iter().for_each(|key| q.add(key));
        tally.wait_for(self.n as u64);
        let spent = watch.stop();
        q.shut_down(self.waiters);
        workers.join();
        let mut line = Line::spent(Q::NAME, "idle", self.params.clone(), self.n as u64, spent);
        line.rss_bytes_delta = Some(waiting - rss);
        line
    }
}

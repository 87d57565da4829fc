//! P producers and C consumers, two million adds.

use crate::crew::{Crew, Form, Running, consume_in_threads, produce_in_threads, share};
use crate::keys::{Random, keys};
use crate::measure::Stopwatch;
use crate::queues::{AsyncFifo, Fifo};
use crate::{Args, Key, Line, Usage};
use std::sync::Arc;
use std::time::Duration;

/// Number of hot keys.
const HOT: usize = 10_000;

/// Reads the parameters and measures. An operation is a key from add to done
/// where keys are distinct, and a call where they are hot: an add, a get or a
/// done.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run<Q: AsyncFifo<Key = u64>>(args: &mut Args) -> Result<Line, Usage> {
    let asked = Asked::read(args, &Crew::MODES)?;
    let crew = Crew::new(asked.mode);
    let consume = |q: &Arc<Q>| crew.consume(q, asked.form, vec![0; asked.c], |n, _| *n += 1);
    Ok(match asked.keys {
        "distinct" => asked.measure(consume, |q, keys| crew.produce(q, keys), distinct(asked.n, asked.p)),
        _ => asked.measure(consume, |q, keys| crew.produce(q, keys), hot(asked.n, asked.p)),
    })
}

/// Runs the workload on a queue that only threads can wait for.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn run_threads<Q: Fifo<Key = u64>>(args: &mut Args) -> Result<Line, Usage> {
    let asked = Asked::read(args, &Crew::MODES[..1])?;
    let consume = |q: &Arc<Q>| consume_in_threads(q, asked.form, vec![0; asked.c], |n, _| *n += 1);
    Ok(match asked.keys {
        "distinct" => asked.measure(consume, produce_in_threads, distinct(asked.n, asked.p)),
        _ => asked.measure(consume, produce_in_threads, hot(asked.n, asked.p)),
    })
}

struct Asked {
    keys: &'static str,
    p: usize,
    c: usize,
    mode: &'static str,
    form: Form,
    n: usize,
    params: String,
}

impl Asked {
    fn read(args: &mut Args, modes: &[&'static str]) -> Result<Self, Usage> {
        let keys = args.choice("keys", &["distinct", "hot"])?;
        let p = args.number("p", 1)?;
        let c = args.number("c", 1)?;
        let mode = args.choice("mode", modes)?;
        let form = Form::named(args.own_choice("form", &Form::WORDS)?);
        let n = args.number("n", 2_000_000)?;
        Ok(Self { keys, p, c, mode, form, n, params: args.finish()? })
    }

    fn measure<Q: Fifo<Key = u64>, I>(
        &self,
        consume: impl Fn(&Arc<Q>) -> Running<u64>,
        produce: impl Fn(&Arc<Q>, Vec<I>) -> Running<()>,
        keys: Vec<I>,
    ) -> Line {
        let q = Arc::new(Q::new());
        let consumers = consume(&q);
        // the consumers wait before the first key comes
        std::thread::sleep(Duration::from_millis(20));
        let watch = Stopwatch::start();
        let producers = produce(&q, keys);
        producers.join();
        q.shut_down(self.c);
        let handed: u64 = consumers.join().into_iter().sum();
        let spent = watch.stop();
        let calls = match self.keys {
            "distinct" => self.n as u64,
            _ => self.n as u64 + 2 * handed,
        };
        let mut line = Line::spent(Q::NAME, "contended", self.params.clone(), calls, spent);
        line.handed_per_s = Some(handed as f64 / spent.wall.as_secs_f64());
        line.extra.insert("handed_out", handed as f64);
        line
    }
}

fn distinct(n: usize, producers: usize) -> Vec<impl Iterator<Item = u64> + Send + 'static> {
    let mut first = 0;
    let each = |which| {
        let mine = keys::<u64>(first, share(n, producers, which));
        first += mine.len();
        mine.into_iter()
    };
    (0..producers).map(each).collect()
}

fn hot(n: usize, producers: usize) -> Vec<impl Iterator<Item = u64> + Send + 'static> {
    let each = |which| {
        let keys: Vec<u64> = (0..HOT as u64).map(u64::nth).collect();
        let mut random = Random::new(which as u64);
        (0..share(n, producers, which)).map(move |_| keys[random.below(HOT as u64) as usize])
    };
    (0..producers).map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn producers_share_distinct_keys() {
        let all: Vec<u64> = distinct(10, 3).into_iter().flatten().collect();
        assert_eq!((all.len(), all.iter().collect::<HashSet<_>>().len()), (10, 10));
    }

    #[test]
    fn producers_share_the_hot_adds() {
        let all: Vec<u64> = hot(10_001, 2).into_iter().flatten().collect();
        assert_eq!(all.len(), 10_001);
        assert!(all.iter().collect::<HashSet<_>>().len() > 5000);
    }
}

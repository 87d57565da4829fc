//! Workers whose handler does nothing, beside the same loop written by hand.

use crate::crew::{Crew, Form};
use crate::keys::keys;
use crate::measure::{Spent, Stopwatch};
use crate::{Args, Line, Usage};
use requeue::{Run, WorkQueue, Worker};
use std::sync::Arc;
use std::time::Duration;

/// Reads the parameters and measures. An operation is a run.
///
/// # Errors
///
/// Where a parameter is wrong.
pub fn run(args: &mut Args) -> Result<Line, Usage> {
    let shape = args.choice("shape", &["ready", "producer"])?;
    let workers = args.number("workers", 1)?;
    let mode = args.choice("mode", &Crew::MODES[..2])?;
    let form = args.own_choice("form", &["worker", "plain", "next"])?;
    let n = args.number("n", 1_000_000)?;
    let params = args.finish()?;
    let crew = Crew::new(mode);
    let q = Arc::new(WorkQueue::<u64>::new());
    let spent = match form {
        "worker" => measure(&q, shape, n, || {
            let worker = started(&q, &crew, workers);
            move || worker.join()
        }),
        _ => measure(&q, shape, n, || {
            let running = crew.consume(&q, Form::named(form), vec![(); workers], |(), _| ());
            move || drop(running.join())
        }),
    };
    Ok(Line::spent(<WorkQueue<u64> as crate::Fifo>::NAME, "workers", params, n as u64, spent))
}

/// Workers in the threads or tasks of this crew.
fn started(q: &WorkQueue<u64>, crew: &Crew, workers: usize) -> Worker {
    let builder = Worker::of(q).workers(workers);
    let started = match crew.runtime() {
        None => builder.start_threads(|_| ()),
        Some(runtime) => {
            let handle = runtime.handle().clone();
            let executor = move |task| drop(handle.spawn(task));
            builder.start_on(executor, |run: Run<u64>| async move { drop(run) })
        }
    };
    started.expect("threads: see ulimit -u and the pids cgroup")
}

/// `ready`: the keys are in line when the workers start. `producer`: the workers wait, and one thread adds the keys.
fn measure<W: FnOnce()>(q: &WorkQueue<u64>, shape: &str, n: usize, start: impl FnOnce() -> W) -> Spent {
    let keys = keys::<u64>(0, n);
    let add = |keys: Vec<u64>| keys.into_iter().for_each(|key| drop(q.add(key)));
    if shape == "ready" {
        add(keys);
        q.shut_down();
        let watch = Stopwatch::start();
        start()();
        return watch.stop();
    }
    let wait = start();
    std::thread::sleep(Duration::from_millis(20));
    let watch = Stopwatch::start();
    add(keys);
    q.shut_down();
    wait();
    watch.stop()
}

//! A cache whose entries are loaded once, however many callers miss one at the same time: a caller adds the key and awaits
//! its run, and callers of one key share that run.
//!
//! ```text
//! cargo run -p requeue-examples --example single_flight
//! ```

use requeue::{Add, Outcome, RunEnd, WorkQueue, Worker};
use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

#[derive(Default)]
struct Cache {
    entries: Mutex<HashMap<String, Arc<str>>>,
    loads: AtomicUsize,
}

impl Cache {
    /// Loads an entry, unless a run before this one has. Stands for a slow server, which knows no user "nobody".
    fn load(&self, user: &str) -> Outcome {
        if self.get(user).is_some() {
            return Outcome::Done;
        }
        thread::sleep(Duration::from_millis(50));
        if user == "nobody" {
            return Outcome::GiveUp("no such user".into());
        }
        self.loads.fetch_add(1, Relaxed);
        self.entries.lock().unwrap().insert(user.to_owned(), format!("profile of {user}").into());
        Outcome::Done
    }

    fn get(&self, user: &str) -> Option<Arc<str>> {
        self.entries.lock().unwrap().get(user).cloned()
    }
}

/// The entry from the cache, or from a run of its key, which this caller shares with all who ask meanwhile.
fn profile(cache: &Cache, misses: &WorkQueue<String>, user: &str) -> Result<Arc<str>, Box<dyn Error>> {
    if let Some(entry) = cache.get(user) {
        return Ok(entry);
    }
    match misses.await_run(user.to_owned(), Add::now())?.wait()? {
        RunEnd::Done => cache.get(user).ok_or_else(|| "evicted meanwhile".into()),
        _ => Err(format!("{user} could not be loaded").into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let cache = Arc::new(Cache::default());
    let misses = WorkQueue::<String>::new();
    let loader = {
        let cache = cache.clone();
        Worker::of(&misses).workers(4).start_threads(move |run| cache.load(run.key()))?
    };

    let loaded = thread::scope(|s| {
        let callers: Vec<_> = (0..400)
            .map(|n| {
                let (cache, misses) = (&cache, &misses);
                s.spawn(move || profile(cache, misses, ["ada", "grace", "barbara", "nobody"][n % 4]).is_ok())
            })
            .collect();
        callers.into_iter().filter_map(|caller| caller.join().ok()).filter(|loaded| *loaded).count()
    });

    let loads = cache.loads.load(Relaxed);
    println!("400 callers, {loaded} with an entry, {loads} loads");
    assert_eq!((loaded, loads), (300, 3));
    assert!(loader.stop(Duration::from_secs(10)).wait().complete);
    Ok(())
}

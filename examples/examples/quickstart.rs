//! Four threads work off a handful of keys. Triggers of one key merge, no key is
//! ever held twice, and what fails comes back with back-off.
//!
//! ```text
//! cargo run -p requeue-examples --example quickstart
//! ```

use requeue::limiter::Exponential;
use requeue::{DrainOptions, WaitingKeys, WorkQueue};
use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// Stands for what a controller does: look at the thing that the key names and
/// bring it into the state that it should have. "db" is not there at the first two looks.
fn reconcile(key: &str, look: u32) -> Result<(), &'static str> {
    thread::sleep(Duration::from_millis(20));
    if key == "db" && look <= 2 { Err("not there yet") } else { Ok(()) }
}

fn main() -> Result<(), Box<dyn Error>> {
    let back_off = Exponential::new(Duration::from_millis(50), Duration::from_secs(1))?;
    let q = WorkQueue::<String>::builder().limiter(back_off).build()?;

    let running = Mutex::new(HashSet::new());
    let runs = Mutex::new(BTreeMap::<String, u32>::new());
    let start = Instant::now();

    let drained = thread::scope(|s| {
        for worker in 1..=4 {
            let (q, running, runs) = (&q, &running, &runs);
            s.spawn(move || {
                while let Some(item) = q.get_blocking() {
                    let key = item.key().clone();
                    assert!(running.lock().unwrap().insert(key.clone()), "{key} is held twice");
                    let look = *runs.lock().unwrap().entry(key.clone()).and_modify(|n| *n += 1).or_insert(1);
                    let result = reconcile(&key, look);
                    running.lock().unwrap().remove(&key);

                    let at = start.elapsed().as_millis();
                    match result {
                        Ok(()) => {
                            println!("{at:>4} ms  worker {worker}: {key} is fine");
                            item.succeed();
                        }
                        Err(e) => match item.retry() {
                            Ok(delay) => {
                                println!("{at:>4} ms  worker {worker}: {key}: {e}, again in {delay:?}");
                            }
                            Err(refused) => {
                                println!("{at:>4} ms  worker {worker}: {key} given up: {refused}");
                            }
                        },
                    }
                }
            });
        }

        // A thousand triggers of three keys: the workers look a few times at each,
        // and always once more after the last trigger.
        for i in 0..1_000 {
            q.add_ref(["web", "db", "cache"][i % 3])?;
        }
        // Refuses new triggers, lets the retries come, and returns when all is done.
        Ok::<_, requeue::Refused>(q.drain(DrainOptions::default().waiting_keys(WaitingKeys::Wait)).wait())
    })?;

    let runs = runs.into_inner()?;
    println!("1,000 triggers became {} runs: {runs:?}", runs.values().sum::<u32>());
    assert!(drained.complete && q.is_empty());
    assert_eq!(runs.keys().collect::<Vec<_>>(), ["cache", "db", "web"]);
    assert!(runs["db"] >= 3, "two failures and a success");
    assert!(runs.values().sum::<u32>() < 100, "the triggers merged");
    Ok(())
}

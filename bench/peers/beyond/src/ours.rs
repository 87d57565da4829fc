//! requeue, as its users use it: tasks on Tokio, in paused time.

use crate::script::{Ran, Script, ms};
use requeue::limiter::Exponential;
use requeue::{Add, InBackoff, TokioClock, WorkQueue};
use std::error::Error;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// Selects which features of part B are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum With {
    Nothing,
    Groups,
    Priorities,
    Respect,
    Debounce,
}

fn queue(script: &Script, with: With) -> Result<WorkQueue<usize>, Box<dyn Error>> {
    let limiter = Exponential::new(ms(5), Duration::from_secs(1_000))?;
    let builder = WorkQueue::builder().clock(TokioClock::new(tokio::runtime::Handle::current())?).limiter(limiter);
    let builder = match with {
        With::Nothing | With::Debounce => builder,
        With::Groups => {
            let tenants = script.tenants.clone();
            builder.group_by(move |key| tenants.partition_point(|first| first <= key))
        }
        With::Priorities => builder.priorities().max_wait(Duration::from_secs(60)),
        With::Respect => builder.in_backoff(InBackoff::Respect),
    };
    Ok(builder.build()?)
}

/// Plays the script; called in a runtime with paused time.
pub(crate) async fn play(script: &Script, with: With, name: &str) -> Result<Ran, Box<dyn Error>> {
    let (queue, start) = (queue(script, with)?, Instant::now());
    let end = start + ms(script.lasting);
    let mut runs = Vec::new();
    let produce = async {
        for &(at, key, priority) in &script.triggers {
            let at = start + ms(at);
            if at > Instant::now() {
                sleep_until(at).await;
            }
            let taken = match with {
                With::Priorities => queue.add_with(key, Add::now().priority(priority)),
                With::Debounce => queue.add_with(key, Add::after(ms(script.quiet)).latest(ms(script.max))),
                With::Nothing | With::Groups | With::Respect => queue.add(key),
            };
            taken.map_err(|refused| refused.reason)?;
        }
        sleep_until(end).await;
        Ok::<(), Box<dyn Error>>(())
    };
    let work = async {
        while let Some(item) = queue.get().await {
            let key = *item.key();
            runs.push((key, start.elapsed().as_secs_f64() * 1e3));
            sleep(ms(script.run)).await;
            if !script.fails {
                item.succeed();
                continue;
            }
            drop(item.retry());
            let (queue, echo) = (queue.clone(), ms(script.echo));
            tokio::spawn(async move {
                sleep(echo).await;
                drop(queue.add(key));
            });
        }
    };
    tokio::select! {
        // a key that is due at the end does not begin
        biased;
        produced = produce => produced?,
        () = work => (),
    }
    Ok(Ran { queue: name.into(), script: script.name.into(), runs })
}

//! Every accepted value is accounted for, once, whatever the queue was built with and however it ends (Q11, B1).

use crate::{Random, some_add, stress};
use requeue::limiter::{Exponential, RateLimiter};
use requeue::{
    Debounce, DrainOptions, GroupRules, InBackoff, Instant, Item, Items, Scope, WaitingKeys, WorkQueue,
};
use requeue_verify::lockstep::unwind_through;
use requeue_verify::wake::{block_on, poll_once};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

type Queue = WorkQueue<u64, Vec<u32>>;
type Run<'q> = Item<'q, u64, Vec<u32>>;

/// The fate of each value.
#[derive(Default)]
struct Accounts {
    accepted: Mutex<Vec<u32>>,
    ended: Mutex<Vec<(u32, &'static str)>>,
}

impl Accounts {
    fn end(&self, value: Option<&Vec<u32>>, how: &'static str) {
        let mut ended = self.ended.lock().unwrap();
        ended.extend(value.into_iter().flatten().map(|value| (*value, how)));
    }
}

/// A limiter of the user's own: it is asked without the lock, and takes some time.
struct Own(Exponential<u64>);

impl RateLimiter<u64> for Own {
    fn when(&self, key: &u64, now: Instant) -> Duration {
        thread::yield_now();
        self.0.when(key, now)
    }
    fn forget(&self, key: &u64) {
        self.0.forget(key);
    }
    fn num_requeues(&self, key: &u64) -> u32 {
        self.0.num_requeues(key)
    }
}

fn us(random: &mut Random, most: u64) -> Duration {
    Duration::from_micros(random.below(most))
}

/// A queue with some of what there is, in any combination.
fn queue(random: &mut Random, accounts: &Arc<Accounts>) -> (Queue, bool, bool) {
    let limiter = Exponential::new(Duration::from_micros(20), Duration::from_millis(2)).unwrap();
    let q = WorkQueue::merging(|older: &mut Vec<u32>, newer| older.extend(newer));
    let q = if random.below(3) == 0 { q.limiter(Own(limiter)) } else { q.limiter(limiter) };
    let retries = random.below(2) == 0;
    let mut q = q.retry_dropped(retries).timers_absorbed(random.below(2) == 0);
    let groups = 1 + random.below(3);
    let rules = GroupRules::new().weight(|group: &u64| *group as u32);
    let rules = match random.below(3) {
        0 => rules,
        1 => rules.cap(1),
        _ => rules.cap(2).rate(50_000.0, 3),
    };
    let kind = random.below(6);
    q = match kind {
        0 => q.priorities(),
        1 => q.priorities().max_wait(us(random, 500)).overdue_every(2),
        2 => q.group_by_with(move |key| key % groups, rules).priorities().max_wait(us(random, 500)),
        3 => q.group_by_with(move |key| key % groups, rules),
        _ => q,
    };
    q = match random.below(4) {
        0 => q.debounce(Debounce::new(us(random, 100)).max(us(random, 300))),
        1 => q.debounce(Debounce::new(us(random, 100)).leading()),
        _ => q,
    };
    q = match random.below(4) {
        0 => q.in_backoff(InBackoff::Respect),
        1 => q.in_backoff(InBackoff::Reset),
        _ => q,
    };
    if random.below(4) == 0 {
        q = q.rate(100_000.0, 10);
    }
    q = match random.below(4) {
        0 => q.bound(3 + random.below(5) as usize),
        1 => {
            let accounts = Arc::clone(accounts);
            let dropped =
                move |_: &u64, value: Option<Vec<u32>>| accounts.end(value.as_ref(), "dropped for room");
            q.bound(3 + random.below(5) as usize).drop_oldest(dropped)
        }
        _ => q,
    };
    (q.build().unwrap(), retries, kind < 3)
}

/// Ends a run in some way, of which some are refused.
fn end(item: Run<'_>, accounts: &Accounts, retries: bool, random: &mut Random) {
    let refused = match random.below(10) {
        0 | 1 => item.retry().err(),
        2 => item.retry_after(us(random, 300)).err(),
        3 => {
            // it does not fail, so its value is done with
            let value = item.value().cloned();
            let again = item.again(us(random, 100));
            accounts.end(value.as_ref(), "again");
            if let Err(refused) = again {
                return refused.item.succeed();
            }
            None
        }
        4 => {
            if !retries {
                accounts.end(item.value(), "dropped");
            }
            return drop(item);
        }
        5 => {
            accounts.end(item.value(), "given up");
            return item.give_up("hopeless");
        }
        _ => {
            accounts.end(item.value(), "succeeded");
            return item.succeed();
        }
    };
    let Some(requeue::RefusedItem { item, .. }) = refused else { return };
    match random.below(4) {
        0 => {
            accounts.end(item.value(), "succeeded after a refused retry");
            item.succeed();
        }
        1 => item.done(),
        2 => drop(item.next()),
        _ => drop(item),
    }
}

fn end_many(mut items: Items<'_, u64, Vec<u32>>, accounts: &Accounts, retries: bool, random: &mut Random) {
    while let Some(item) = items.pop_front() {
        match random.below(12) {
            0 => {
                drop(item.retry());
                return unwind_through(items);
            }
            _ => end(item, accounts, retries, random),
        }
    }
}

/// Takes keys in this way until the queue ends.
fn work(q: &Queue, way: u64, accounts: &Accounts, retries: bool, mut random: Random) {
    loop {
        random.dawdle();
        match way {
            0 => {
                let Some(items) = q.get_many(4).wait() else { return };
                end_many(items, accounts, retries, &mut random);
            }
            1 => {
                // some waits are dropped after a poll
                let mut get = Box::pin(q.get());
                if random.below(4) == 0 {
                    match poll_once(&mut get) {
                        std::task::Poll::Ready(Some(item)) => end(item, accounts, retries, &mut random),
                        std::task::Poll::Ready(None) => return,
                        std::task::Poll::Pending => {}
                    }
                    continue;
                }
                let Some(item) = block_on(get) else { return };
                end(item, accounts, retries, &mut random);
            }
            _ => {
                let Some(item) = q.get_blocking() else { return };
                end(item, accounts, retries, &mut random);
            }
        }
    }
}

fn some_drain(random: &mut Random) -> DrainOptions {
    let options = DrainOptions::default().waiting_keys(match random.below(6) {
        0 => WaitingKeys::Drop,
        1 => WaitingKeys::RunNow,
        2 => WaitingKeys::Wait,
        _ => WaitingKeys::WaitForRetries,
    });
    if random.below(4) == 0 { options } else { options.timeout(us(random, 4_000)) }
}

#[test]
fn stress_every_accepted_value_is_done_or_in_the_list_of_unfinished_keys() {
    stress("stress_every_accepted_value_is_done_or_in_the_list_of_unfinished_keys", 40, |mut random| {
        let accounts = Arc::new(Accounts::default());
        let (q, retries, priorities) = queue(&mut random, &accounts);
        let keys = 2 + random.below(8);
        let (next, over) = (AtomicU32::new(0), AtomicBool::new(false));
        let (complete, drains) = thread::scope(|s| {
            let (q, accounts, next, over) = (&q, &*accounts, &next, &over);
            let workers: Vec<_> = (0..3)
                .map(|way| {
                    let random = random.fork();
                    s.spawn(move || work(q, way, accounts, retries, random))
                })
                .collect();
            for _ in 0..2 {
                let mut random = random.fork();
                s.spawn(move || {
                    for _ in 0..20_000 {
                        let (key, id) = (random.below(keys), next.fetch_add(1, Relaxed));
                        let add = some_add(&mut random).value(vec![id]);
                        match q.add_with(key, if priorities { add } else { add.priority(0) }) {
                            Ok(_) => accounts.accepted.lock().unwrap().push(id),
                            Err(refused) if refused.reason == requeue::Refused::ShutDown => return,
                            Err(_) => thread::yield_now(),
                        }
                        if random.below(50) == 0 {
                            let cancelled = q.cancel(&key).and_then(|cancelled| cancelled.value);
                            accounts.end(cancelled.as_ref(), "cancelled");
                        }
                        random.dawdle();
                    }
                });
            }
            let mut meddler = random.fork();
            s.spawn(move || {
                while !over.load(Relaxed) {
                    let key = meddler.below(keys);
                    match meddler.below(6) {
                        0 => drop(q.pause(Scope::Queue)),
                        1 | 2 => drop(q.resume(Scope::Queue)),
                        3 => drop(q.pause(Scope::Key(key))),
                        4 => drop(q.resume(Scope::Key(&key))),
                        _ => drop(q.stats()),
                    }
                    meddler.dawdle();
                }
            });
            let (moment, mut random) = (1 + random.below(2_000) as u32, random.fork());
            while next.load(Relaxed) < moment {
                thread::yield_now();
            }
            let drains: Vec<_> = (0..1 + random.below(3))
                .map(|_| {
                    random.dawdle();
                    let (drain, leaves) = (q.drain(some_drain(&mut random)), random.below(4) == 0);
                    s.spawn(move || (!leaves).then(|| drain.wait()))
                })
                .collect();
            over.store(true, Relaxed);
            let last = random.below(3);
            if last == 0 {
                q.shut_down();
            }
            let answers: Vec<_> = drains.into_iter().filter_map(|drain| drain.join().unwrap()).collect();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            (answers.iter().any(|answer| answer.complete), answers)
        });
        let left = q.stats();
        assert_eq!((left.ready, left.held, left.waiting), (0, 0, 0), "{drains:?}");
        let list = q.take_unfinished();
        assert!(!complete || list.is_empty(), "complete, and unfinished: {list:?}");
        list.iter().for_each(|key| accounts.end(key.value.as_ref(), "unfinished"));
        let mut ends: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        for (value, how) in accounts.ended.lock().unwrap().iter() {
            ends.entry(*value).or_default().push(how);
        }
        for value in accounts.accepted.lock().unwrap().iter() {
            let ways = ends.remove(value).unwrap_or_default();
            assert_eq!(ways.len(), 1, "value {value} ended so often: {ways:?}; {drains:?}");
        }
        assert!(ends.is_empty(), "nobody had accepted {ends:?}");
    });
}

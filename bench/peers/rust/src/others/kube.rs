//! kube-runtime: its scheduler, which de-duplicates and delays, as a stream that is
//! polled; and its applier, which runs reconcilers over that, for the question
//! whether every key is run.

use super::context::enter;
use super::delay_queue::OneConsumer;
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_runtime::controller::{Action, applier};
use kube_runtime::reflector::{self, ObjectRef};
use kube_runtime::scheduler::{ScheduleRequest, Scheduler, scheduler};
use kube_runtime::watcher::Event;
use requeue_bench::keys::Random;
use requeue_bench::queues::{AsyncFifo, Delaying, Fifo};
use requeue_bench::{Args, Key, Line, Usage};
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

type Stream<K> = Pin<Box<Scheduler<K, UnboundedReceiver<ScheduleRequest<K>>>>>;

/// Number of delays after which the scheduler is polled while no consumer polls it.
const EVERY: usize = 256;

/// The scheduler, fed by a channel.
///
/// A key without a delay is asked for at an instant that has passed, which is the
/// best that the scheduler can do: "now" is rounded up to the next millisecond.
pub struct Scheduled<K> {
    requests: UnboundedSender<ScheduleRequest<K>>,
    stream: Mutex<Stream<K>>,
    past: Instant,
    delays: AtomicUsize,
    /// One task polls a scheduler.
    only: OneConsumer,
}

impl<K: Key> Scheduled<K> {
    fn stream(&self) -> MutexGuard<'_, Stream<K>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, message: K, run_at: Instant) {
        let _ = self.requests.unbounded_send(ScheduleRequest { message, run_at });
    }
}

impl<K: Key> Fifo for Scheduled<K> {
    const NAME: &'static str = "kube";
    type Key = K;
    type Item<'q> = K;

    fn new() -> Self {
        enter();
        let (requests, asked) = unbounded();
        Self {
            requests,
            past: Instant::now(),
            stream: Mutex::new(Box::pin(scheduler(asked))),
            delays: AtomicUsize::new(0),
            only: OneConsumer::default(),
        }
    }
    fn add(&self, key: K) {
        self.ask(key, self.past);
    }
    fn get(&self) -> Option<K> {
        enter();
        if !self.only.is_this_thread() {
            self.only.wait_for_the_end();
            return None;
        }
        // a ready key needs no wake-up
        let mut at_once = Context::from_waker(Waker::noop());
        if let Poll::Ready(key) = self.stream().poll_next_unpin(&mut at_once) {
            return key;
        }
        futures::executor::block_on(poll_fn(|cx| self.stream().poll_next_unpin(cx)))
    }
    fn key(item: &K) -> &K {
        item
    }
    fn done(&self, _: K) {}
    fn shut_down(&self, _: usize) {
        self.requests.close_channel();
        self.only.end();
    }
}

/// Only so that it can have delays: it blocks the thread, and no workload with
/// tasks is run with it.
impl<K: Key> AsyncFifo for Scheduled<K> {
    async fn get_async(&self) -> Option<K> {
        self.get()
    }
}

impl<K: Key> Delaying for Scheduled<K> {
    fn add_after(&self, key: K, delay: Duration) {
        enter();
        self.ask(key, Instant::now() + delay);
        // a request is only taken in by who polls: without a consumer that is us
        if self.delays.fetch_add(1, Relaxed) % EVERY == EVERY - 1 && !self.only.is_there() {
            let mut cx = Context::from_waker(Waker::noop());
            let mut stream = self.stream();
            let _ = stream.as_mut().hold().poll_next_unpin(&mut cx);
        }
    }
}

const KEYS: u64 = 200;
const RUN: Duration = Duration::from_millis(10);
const RUNS: u64 = 6000;

/// The applier with one run at a time, in Tokio's paused time: `load` triggers of
/// random keys come every 10 ms, which is how long a run takes.
///
/// # Errors
///
/// If a parameter is wrong.
pub fn fair(args: &mut Args) -> Result<Line, Usage> {
    let load = args.number("load", 2)?;
    let params = args.finish()?;
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime of one thread");
    let start = std::time::Instant::now();
    let runs = runtime.block_on(overload(load));
    let all: u64 = runs.values().sum();
    let mut line = Line::new("kube", "fair", params, all, start.elapsed());
    let never = runs.values().filter(|runs| **runs == 0).count();
    line.extra.insert("never_run", never as f64);
    line.extra.insert("min_runs", runs.values().min().copied().unwrap_or(0) as f64);
    line.extra.insert("max_runs", runs.values().max().copied().unwrap_or(0) as f64);
    Ok(line)
}

fn config_map(i: u64) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(String::nth(i).replace('/', "-"));
    object.metadata.namespace = Some("default".to_string());
    object
}

/// Runs a minute, and counts the runs of each key.
async fn overload(load: usize) -> HashMap<ObjectRef<ConfigMap>, u64> {
    let (store, mut writer) = reflector::store();
    let objects: Vec<ConfigMap> = (0..KEYS).map(config_map).collect();
    let names: Vec<ObjectRef<ConfigMap>> = objects.iter().map(ObjectRef::from_obj).collect();
    writer.apply_watcher_event(&Event::Init);
    for object in objects {
        writer.apply_watcher_event(&Event::InitApply(object));
    }
    writer.apply_watcher_event(&Event::InitDone);

    let runs: HashMap<_, u64> = names.iter().cloned().map(|name| (name, 0)).collect();
    let runs = Arc::new(Mutex::new(runs));
    let (triggers, queue) = unbounded::<Result<ObjectRef<ConfigMap>, Infallible>>();
    let ended = {
        let mut stream = std::pin::pin!(applied(store, queue, Arc::clone(&runs)));
        let trigger = async {
            let mut random = Random::new(1);
            for _ in 0..RUNS {
                for _ in 0..load {
                    let name = &names[random.below(KEYS) as usize];
                    let _ = triggers.unbounded_send(Ok(name.clone()));
                }
                tokio::time::sleep(RUN).await;
            }
        };
        let serve = async { while stream.next().await.is_some() {} };
        let (trigger, serve) = (std::pin::pin!(trigger), std::pin::pin!(serve));
        matches!(futures::future::select(trigger, serve).await, futures::future::Either::Left(_))
    };
    assert!(ended, "the applier ends before the triggers do");
    let runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
    runs.clone()
}

type Counts = Arc<Mutex<HashMap<ObjectRef<ConfigMap>, u64>>>;

fn applied(
    store: reflector::Store<ConfigMap>,
    queue: impl futures::Stream<Item = Result<ObjectRef<ConfigMap>, Infallible>>,
    runs: Counts,
) -> impl futures::Stream {
    let reconcile = move |object: Arc<ConfigMap>, _: Arc<()>| {
        let name = ObjectRef::from_obj(&*object);
        *runs.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
        let run: Pin<Box<dyn Future<Output = Result<Action, Infallible>>>> = Box::pin(async {
            tokio::time::sleep(RUN).await;
            Ok(Action::await_change())
        });
        run
    };
    let config = kube_runtime::Config::default().concurrency(1);
    applier(reconcile, |_, _: &Infallible, _| Action::await_change(), Arc::new(()), store, queue, config)
}

//! Programs as users would write them, against which the public face was
//! designed: how each reads is what the names and shapes were chosen for. Here
//! they run, and what they do is asserted. Not here because not built: the
//! tenth (a Prometheus registry) and
//! the eleventh (priorities and groups).

use requeue::{
    Alarm, Clock, DelayingQueue, DrainOptions, FakeClock, Instant, Outcome, Queue, RateLimiter,
    RateLimitingQueue, Run, SystemClock, WaitingKeys, WorkQueue, Worker, limiter::Bucket,
};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

type Res = Result<(), Box<dyn std::error::Error>>;

#[test]
fn p01_threads() -> Res {
    let seen = Mutex::new(Vec::new());
    let q = WorkQueue::new();
    let result: Res = std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                while let Some(item) = q.get_blocking() {
                    seen.lock().unwrap().push(*item.key());
                }
            });
        }
        for name in ["a", "b", "a"] {
            q.add(name)?;
        }
        q.drain(DrainOptions::default()).wait();
        Ok(())
    });
    result?;
    let mut seen = seen.into_inner()?;
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, ["a", "b"]);
    Ok(())
}

static RECONCILED: AtomicU32 = AtomicU32::new(0);
async fn reconcile(key: &str) -> Result<(), std::io::Error> {
    assert_eq!(key, "default/web");
    RECONCILED.fetch_add(1, Relaxed);
    Ok(())
}

/// Workers in a loop, and a dispatcher that moves the guard into a task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p02_tokio() -> Res {
    let q = WorkQueue::<String>::new();
    for _ in 0..8 {
        let q = q.clone();
        tokio::spawn(async move {
            while let Some(item) = q.get().await {
                reconcile(item.key()).await.ok();
            }
        });
    }
    let d = q.clone();
    tokio::spawn(async move {
        while let Some(item) = d.get().await {
            let item = item.into_owned();
            tokio::spawn(async move {
                reconcile(item.key()).await.ok();
                item.done();
            });
        }
    });
    q.add_ref("default/web")?;
    q.drain(DrainOptions::default()).await;
    assert_eq!(RECONCILED.load(Relaxed), 1);
    Ok(())
}

/// Only what is needed, in a signature.
#[test]
fn p03_layers() -> Res {
    fn feed(q: &dyn Queue<String>) {
        let _ = q.add("x".into());
    }
    fn feed_generic<Q: DelayingQueue<String> + ?Sized>(q: &Q) {
        let _ = q.add_after("x".into(), Duration::from_secs(1));
    }
    let q = WorkQueue::<String>::new();
    feed(&q);
    feed_generic(&q);
    let any: Arc<dyn RateLimitingQueue<String>> = Arc::new(q.clone());
    feed(&*any); // trait upcasting: Rust 1.86
    feed_generic(&*any);
    assert_eq!((any.len(), q.stats().waiting), (1, 1));
    Ok(())
}

/// Order time-outs, tested without sleeping.
#[test]
fn p04_order_timeouts() -> Res {
    let clock = FakeClock::new();
    let q = WorkQueue::builder().clock(clock.clone()).build()?;
    let half_hour = Duration::from_secs(30 * 60);
    q.add_after(4711u64, half_hour)?;
    clock.advance(half_hour - Duration::from_nanos(1));
    assert!(q.try_get().is_err(), "never early");
    let waiter = {
        let q = q.clone();
        std::thread::spawn(move || q.get_blocking().map(|i| *i.key()))
    };
    clock.wait_for_alarms(1);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(waiter.join().unwrap(), Some(4711));
    Ok(())
}

/// "good" is; the rest is not.
fn sync(key: &str) -> Result<(), std::io::Error> {
    if key == "good" { Ok(()) } else { Err(std::io::ErrorKind::NotFound.into()) }
}

/// Line by line from client-go's sample controller.
fn p05_port(q: &dyn RateLimitingQueue<String>) -> bool {
    let Some(item) = q.get().wait() else { return false }; // key, quit := queue.Get(); if quit { return false }
    let key = item.key(); // defer queue.Done(key): the guard does it
    match sync(key) {
        Ok(()) => q.forget(key), // queue.Forget(key)
        Err(e) if q.num_requeues(key) < 5 => {
            let _ = q.add_rate_limited(key.clone()); // queue.AddRateLimited(key)
            eprintln!("{key}: {e}, retrying");
        }
        Err(e) => {
            q.forget(key);
            eprintln!("{key}: dropped: {e}");
        }
    }
    true
}

#[test]
fn p05_port_tries_five_times_again_and_drops_the_key() -> Res {
    let clock = FakeClock::new();
    let q = WorkQueue::<String>::builder().clock(clock.clone()).build()?;
    q.add_ref("good")?;
    q.add_ref("bad")?;
    assert!(p05_port(&q) && q.state("good").is_none());
    for requeues in 1..=5 {
        assert!(p05_port(&q));
        assert_eq!((q.num_requeues("bad"), q.stats().waiting), (requeues, 1));
        clock.advance(Duration::from_secs(1));
    }
    assert!(p05_port(&q) && q.state("bad").is_none());
    q.shut_down();
    assert!(!p05_port(&q));
    Ok(())
}

/// The native version of `p05b`: one lock less, no clone, and the payload goes back to the caller.
fn p05b_native(q: &WorkQueue<String>) -> bool {
    let Some(item) = q.get_blocking() else { return false };
    match sync(item.key()) {
        Ok(()) => item.succeed(),
        Err(_) => {
            let _ = item.retry();
        }
    }
    true
}

#[test]
fn p05b_native_retries() -> Res {
    let q = WorkQueue::<String>::builder().clock(FakeClock::new()).build()?;
    q.add_ref("good")?;
    q.add_ref("bad")?;
    assert!(p05b_native(&q) && p05b_native(&q));
    assert!(q.state("good").is_none());
    assert_eq!((q.num_requeues("bad"), q.stats().waiting), (1, 1));
    q.shut_down();
    assert!(!p05b_native(&q));
    Ok(())
}

/// Payloads that merge.
#[test]
fn p06_payload() -> Res {
    use std::collections::BTreeSet;
    let q = WorkQueue::merging(|old: &mut BTreeSet<&str>, new| old.extend(new)).build()?;
    q.add_value("user:7", BTreeSet::from(["name"]))?;
    q.add_value("user:7", BTreeSet::from(["mail"]))?;
    q.add("user:7")?; // "look again", no value
    if let Some(mut item) = q.get_blocking() {
        let fields = item.take_value().unwrap_or_default();
        assert_eq!((*item.key(), fields), ("user:7", BTreeSet::from(["mail", "name"])));
    }
    assert!(q.is_empty(), "one run");
    Ok(())
}

/// A custom limiter, together with the default bucket.
#[test]
fn p07_limiter() -> Res {
    struct Fixed(Duration);
    impl<K: ?Sized> RateLimiter<K> for Fixed {
        fn when(&self, _: &K, _now: Instant) -> Duration {
            self.0
        }
        fn forget(&self, _: &K) {}
        fn num_requeues(&self, _: &K) -> u32 {
            0
        }
    }
    let clock = FakeClock::new();
    let q = WorkQueue::<String>::builder()
        .clock(clock.clone())
        .limiter((Fixed(Duration::from_secs(3)), Bucket::new(10.0, 100)?))
        .build()?;
    q.add_rate_limited("a".into())?;
    let due = clock.now() + Duration::from_secs(3);
    assert_eq!(q.state("a").and_then(|s| s.waiting_until), Some(due));
    Ok(())
}

/// A custom clock: a simulation that runs 600 times faster. (Sixty times in the design; a test need not wait
/// a second.)
#[test]
fn p08_clock() -> Res {
    struct Fast(SystemClock, Instant);
    impl Clock for Fast {
        fn now(&self) -> Instant {
            self.1.saturating_add(self.0.now().saturating_since(self.1) * 600)
        }
        fn wake_at(&self, at: Instant, w: &Waker) -> Alarm {
            self.0.wake_at(self.1.saturating_add(at.saturating_since(self.1) / 600), w)
        }
    }
    let real = SystemClock;
    let q = WorkQueue::<u32>::builder().clock(Fast(real, real.now())).build()?;
    let began = std::time::Instant::now();
    q.add_after(1, Duration::from_secs(60))?; // a tenth of a real second
    assert_eq!(q.get_blocking().map(|item| *item.key()), Some(1));
    assert!(began.elapsed() >= Duration::from_millis(100), "never early");
    assert!(began.elapsed() < Duration::from_secs(60), "nor at the real pace");
    Ok(())
}

/// The worker, async. (`resize` can fail if it has threads to start; in the design it could not.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p09_worker_on_tokio() -> Res {
    static LOOKED: AtomicU32 = AtomicU32::new(0);
    async fn look(key: &str) -> Result<(), std::io::Error> {
        assert_eq!(key, "default/db");
        LOOKED.fetch_add(1, Relaxed);
        Ok(())
    }
    let q = WorkQueue::<String>::new();
    let w = Worker::of(&q)
        .workers(16)
        .time_limit(Duration::from_secs(30))
        .max_attempts(10)
        .on_give_up(|key, why| eprintln!("{key}: {why}"))
        .start_on(tokio::runtime::Handle::current(), |run| async move {
            look(run.key()).await?;
            Ok(Outcome::Again(Duration::from_secs(300)))
        })?;
    w.resize(4)?;
    q.add_ref("default/db")?;
    while q.stats().waiting == 0 {
        tokio::task::yield_now().await;
    }
    let report = w.stop(Duration::from_secs(10)).await;
    assert!(report.complete && report.done == 1, "{report:?}");
    assert_eq!((LOOKED.load(Relaxed), q.stats().waiting), (1, 1));
    Ok(())
}

/// Any executor, even a bare `block_on`, and a handler that is not `Send`.
#[tokio::test(flavor = "current_thread")]
async fn p09_worker_without_an_executor() -> Res {
    let q = WorkQueue::<String>::new();
    let seen = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = seen.clone();
    let workers = Worker::of(&q).run(move |run: Run<String>| {
        let count = count.clone();
        async move { count.set(count.get() + run.key().len()) }
    })?;
    q.add_ref("good")?;
    q.shut_down();
    assert_eq!((workers.await.done, seen.get()), (1, 4));
    Ok(())
}

/// The worker, blocking. (`start_threads` can fail where the system has no thread
/// to give, so it returns a `Result`; in the design it did not.)
#[test]
fn p09_worker_on_threads() -> Res {
    let given_up = Arc::new(Mutex::new(Vec::new()));
    let clock = FakeClock::new();
    let q = WorkQueue::<String>::builder().clock(clock.clone()).build()?;
    let reports = given_up.clone();
    let t = Worker::of(&q)
        .workers(4)
        .time_limit(Duration::from_secs(30))
        .max_attempts(10)
        .on_give_up(move |key, why| reports.lock().unwrap().push(format!("{key}: {why}")))
        .start_threads(|run| {
            if run.attempt() > 3 || run.cancelled() {
                return Outcome::GiveUp("too old".into());
            }
            match sync(run.key()) {
                Ok(()) => Outcome::Done,
                Err(e) => Outcome::Retry(e.into()),
            }
        })?;
    q.add_ref("good")?;
    q.add_ref("bad")?;
    // the handler fails at the first three attempts; each retry waits on the clock
    while given_up.lock().unwrap().is_empty() {
        if q.stats().waiting > 0 {
            clock.advance(Duration::from_secs(1));
        }
        std::thread::yield_now();
    }
    let report = t.drain(Duration::from_secs(10)).wait();
    assert!(report.complete, "{report:?}");
    assert_eq!(report.refused, 0);
    assert_eq!(*given_up.lock().unwrap(), ["bad: too old"]);
    assert_eq!(q.stats().known, 0);
    Ok(())
}

/// Handlers may return less than an outcome.
#[test]
fn p09b_worker_stops_and_leaves_the_queue_open() -> Res {
    let q = WorkQueue::<String>::new();
    let t = Worker::of(&q).workers(2).start_threads(|run: Run<String>| Ok(sync(run.key())?))?;
    let report = t.stop(Duration::from_secs(10)).wait();
    assert!(report.complete && !q.shutting_down());
    q.add_ref("good")?;
    assert_eq!(q.len(), 1, "nobody takes it any more");
    Ok(())
}

/// Shutdown with a deadline and a report.
fn p12_shutdown(q: &WorkQueue<u64>) -> Option<String> {
    let r = q
        .drain(DrainOptions::default().waiting_keys(WaitingKeys::RunNow).timeout(Duration::from_secs(20)))
        .wait();
    (!r.complete).then(|| format!("left: {} ready, {} held, {} waiting", r.ready, r.held, r.waiting))
}

#[test]
fn p12_shutdown_reports_what_is_left_at_the_deadline() -> Res {
    let clock = FakeClock::new();
    let q = WorkQueue::builder().clock(clock.clone()).build()?;
    q.add(1)?;
    q.add(2)?;
    q.add_after(3, Duration::from_secs(3600))?;
    let held = q.try_get()?;
    std::thread::scope(|s| {
        let report = s.spawn(|| p12_shutdown(&q));
        clock.wait_for_alarms(1);
        clock.advance(Duration::from_secs(20));
        let report = report.join().unwrap();
        assert_eq!(report.as_deref(), Some("left: 2 ready, 1 held, 0 waiting"), "3 is ready: it runs now");
    });
    held.done();
    assert!(q.get_blocking().is_some() && q.get_blocking().is_some() && q.get_blocking().is_none());
    assert_eq!(p12_shutdown(&q), None, "all is worked off");
    Ok(())
}

// Send and Sync, in types and behind pointers. More in requeue's `tests/auto_traits.rs`.
const fn send<T: Send>() {}
const fn sync_<T: Sync>() {}
const _: () = {
    send::<WorkQueue<String, Vec<u8>>>();
    sync_::<WorkQueue<String, std::cell::Cell<u8>>>(); // V need not be Sync
    send::<requeue::Item<'static, String, std::cell::Cell<u8>>>();
    send::<requeue::Get<'static, String>>();
    send::<&dyn RateLimitingQueue<String>>();
};

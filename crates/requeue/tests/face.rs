//! The public API as users write it: arguments, handles, owned forms.

use requeue::limiter::{Exponential, TokenBucket, default_per_item};
use requeue::{
    Add, BoxError, Clock, DrainOptions, Failure, FakeClock, GetError, Instant, Outcome, Phase, RateLimiter,
    Refused, Run, SystemClock, WaitingKeys, WorkQueue, Worker,
};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, SystemTime};

const SEC: Duration = Duration::from_secs(1);

/// A waker that counts how often it was woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn fake<K: std::hash::Hash + Eq + 'static>() -> (WorkQueue<K>, FakeClock) {
    let clock = FakeClock::new();
    let q = WorkQueue::builder().clock(clock.clone()).limiter(Own).build().unwrap();
    (q, clock)
}

/// A user's limiter: one second for each key, without counts.
struct Own;

impl<K: ?Sized> RateLimiter<K> for Own {
    fn when(&self, _: &K, _: Instant) -> Duration {
        SEC
    }
    fn forget(&self, _: &K) {}
    fn num_requeues(&self, _: &K) -> u32 {
        0
    }
}

async fn parse(text: &str) -> Result<u64, std::num::ParseIntError> {
    text.parse()
}

/// Handlers that do not name their error type.
#[test]
fn a_question_mark_in_a_handler_needs_no_annotation() {
    let q = WorkQueue::<String>::builder().limiter(default_per_item()).build().unwrap();
    q.add_many(["1", "x"].map(String::from)).all().unwrap();
    let worker = Worker::of(&q).max_attempts(2).start_threads(|run| {
        run.key().parse::<u64>()?;
        Ok(())
    });
    let report = worker.unwrap().drain(DrainOptions::default().waiting_keys(WaitingKeys::Wait)).wait();
    assert!(report.complete);

    let q = WorkQueue::<String>::builder().limiter(default_per_item()).build().unwrap();
    q.add_many(["1", "x"].map(String::from)).all().unwrap();
    let worker = Worker::of(&q).max_attempts(2).start_on(
        |task| smol::spawn(task).detach(),
        |run| async move {
            let n = parse(run.key()).await?;
            if n > 9 {
                return Ok(Outcome::GiveUp("too much".into()));
            }
            if n > 8 {
                return Err("more than eight".into());
            }
            Ok(Outcome::Done)
        },
    );
    assert!(worker.unwrap().drain(DrainOptions::default().waiting_keys(WaitingKeys::Wait)).wait().complete);

    async fn named(run: Run<String>) -> Result<(), BoxError> {
        parse(run.key()).await?;
        Ok(())
    }
    let q = WorkQueue::<String>::new();
    q.add_ref("1").unwrap();
    q.shut_down();
    assert_eq!(smol::block_on(Worker::of(&q).run(named).unwrap()).done, 1);
}

/// Lookups by `"a"` and by `&key`, for all kinds of keys and limiters.
#[test]
fn a_key_is_given_as_it_is_written_everywhere() {
    let shared = || Arc::new(Exponential::new(SEC, SEC).unwrap());
    for q in [WorkQueue::<String>::new(), WorkQueue::<String>::builder().limiter(shared()).build().unwrap()] {
        let key = "a".to_string();
        q.add_rate_limited(key.clone()).unwrap();
        assert_eq!((q.num_requeues("a"), q.num_requeues(&key)), (1, 1));
        assert!(q.state("a").is_some() && q.state(&key).is_some());
        q.forget("a");
        assert_eq!(q.num_requeues(&key), 0);
    }
    let key: &&str = &"a";
    let q = WorkQueue::<&str>::new();
    q.add_rate_limited("a").unwrap();
    assert_eq!((q.num_requeues("a"), q.num_requeues(key)), (1, 1));
    q.forget("a");
    assert_eq!(q.num_requeues("a"), 0);
    // a key that cannot be cloned
    #[derive(PartialEq, Eq, Hash)]
    struct Plain(u8);
    let q = WorkQueue::<Plain>::new();
    q.add_rate_limited(Plain(1)).unwrap();
    assert_eq!(q.num_requeues(&Plain(1)), 1);
    // the borrowed forms of slices, paths and shared strings
    let path = std::path::Path::new("a/b");
    assert_eq!(WorkQueue::<std::path::PathBuf>::new().num_requeues(path), 0);
    assert_eq!(WorkQueue::<Arc<str>>::new().num_requeues("a"), 0);
    assert_eq!(WorkQueue::<Vec<u8>>::new().num_requeues(&b"a"[..]), 0);
    assert_eq!(WorkQueue::<std::borrow::Cow<'static, str>>::new().num_requeues("a"), 0);
}

#[test]
fn add_rate_limited_tells_the_delay_whoever_counts() {
    let (q, clock) = fake::<u8>();
    assert_eq!(q.add_rate_limited(1).unwrap(), SEC);
    assert_eq!(q.add_rate_limited(1).unwrap(), SEC, "although the earlier timer stays");
    clock.advance(SEC);
    assert_eq!(q.len(), 1);
    q.close();
    assert_eq!(q.add_rate_limited(1).unwrap_err().reason, Refused::ShutDown);
}

#[test]
fn an_instant_that_has_come_is_now_and_one_that_never_comes_is_accepted() {
    let (q, clock) = fake();
    clock.advance(SEC);
    q.add_with("then", Add::at(Instant::ORIGIN)).unwrap();
    q.add_with("now", Add::at(clock.now())).unwrap();
    q.add_with("never", Add::at(Instant::NEVER)).unwrap();
    assert_eq!((q.len(), q.stats().waiting), (2, 1));
    assert_eq!(q.state("never").unwrap().waiting_until, Some(Instant::NEVER));
}

#[test]
fn keys_at_one_instant_come_in_the_order_of_the_calls_and_in_batches_too() {
    let (q, clock) = fake();
    let due = Instant::ORIGIN + SEC;
    q.add_with(1, Add::at(due)).unwrap();
    clock.advance(Duration::from_nanos(1));
    q.add_many_with([(2, Add::at(due)), (3, Add::at(due))]).all().unwrap();
    q.add_with(4, Add::after(SEC - Duration::from_nanos(1))).unwrap();
    clock.set(due);
    let keys: Vec<i32> = std::iter::from_fn(|| q.try_get().ok().map(|item| *item.key())).collect();
    assert_eq!(keys, [1, 2, 3, 4]);
}

#[test]
fn instants_of_std_are_instants_of_the_system_clock() {
    let (std, ours) = (std::time::Instant::now(), SystemClock.now());
    let theirs = SystemClock::from_std(std);
    assert!(theirs <= SystemClock.now());
    assert!(ours >= theirs);
    let later = std + SEC;
    assert_eq!(SystemClock::from_std(later), theirs + SEC);
    assert_eq!(SystemClock::to_std(theirs + SEC), Some(later));
    // before the clock's origin, which is not before the machine's start
    if let Some(before) = std.checked_sub(3_000_000_000 * SEC) {
        assert_eq!(SystemClock::from_std(before), Instant::ORIGIN);
    }
    assert_eq!(SystemClock::to_std(Instant::NEVER), None);
}

#[test]
fn dates_are_instants_of_the_system_clock_however_far_away() {
    let now = SystemClock.now();
    let hour = SystemClock::from_system_time(SystemTime::now() + 3600 * SEC);
    // the date and the clock are read one after the other, and a thread may stand still between that
    let took = SystemClock.now().saturating_since(now);
    assert!(hour + took >= now + 3599 * SEC, "unless the date was set meanwhile");
    assert_eq!(SystemClock::from_system_time(SystemTime::UNIX_EPOCH), Instant::ORIGIN);
    let far = SystemTime::now() + Duration::from_secs(1 << 35);
    assert_eq!(SystemClock::from_system_time(far), Instant::from_nanos(u64::MAX - 1));
    assert_eq!(SystemClock::to_system_time(Instant::NEVER), None);
    let date = SystemClock::to_system_time(hour).unwrap();
    assert!(date > SystemTime::now() + 3000 * SEC);
    assert!(SystemClock::to_system_time(Instant::ORIGIN).unwrap() <= SystemTime::now());
}

#[test]
fn a_getter_does_not_keep_the_queue_open_and_gets_what_is_left() {
    let q = WorkQueue::new();
    let getter = q.getter();
    q.add_many([1, 2, 3]).all().unwrap();
    drop(q);
    let other = getter.clone();
    assert_eq!(getter.get_blocking().map(|item| *item.key()), Some(1));
    assert_eq!(other.try_get().map(|item| *item.key()), Ok(2));
    assert_eq!(smol::block_on(other.get_many(8)).map(|items| items.len()), Some(1));
    assert_eq!(getter.try_get().err(), Some(GetError::ShutDown));
    assert!(smol::block_on(getter.get()).is_none());
    assert_eq!(getter.phase(), Phase::Over);
}

#[test]
fn a_getter_that_waits_is_told_when_the_last_handle_goes() {
    let q = WorkQueue::<u8>::new();
    let getter = q.getter();
    let waits = std::thread::spawn(move || getter.get_blocking().is_none());
    while q.stats().waiters == 0 {
        std::thread::yield_now();
    }
    drop(q);
    assert!(waits.join().unwrap());
}

#[test]
fn a_weak_handle_is_no_handle_and_does_not_bring_one_back() {
    let q = WorkQueue::new();
    let (weak, getter) = (q.downgrade(), q.getter());
    let second = weak.upgrade().expect("one is there");
    drop(q);
    second.add(1).expect("it keeps the queue open");
    assert!(weak.clone().upgrade().is_some());
    drop(second);
    let item = getter.try_get().expect("what was ready is still handed out");
    assert!(weak.upgrade().is_none(), "neither a getter nor a guard is a handle");
    item.done();
    assert_eq!(getter.phase(), Phase::Over);
}

#[test]
fn an_owned_get_that_was_polled_loses_neither_key_nor_wake_up() {
    let q = WorkQueue::new();
    let (first, second) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let (one, two) = (Waker::from(first.clone()), Waker::from(second.clone()));
    let mut get = q.get();
    let mut other = q.get();
    assert!(pin!(&mut get).poll(&mut Context::from_waker(&one)).is_pending());
    assert!(pin!(&mut other).poll(&mut Context::from_waker(&two)).is_pending());
    q.add(1).unwrap();
    assert_eq!(first.0.load(SeqCst) + second.0.load(SeqCst), 1);
    // whichever was woken: what becomes owned passes its wake-up on
    let (owned, stays, woken) =
        if first.0.load(SeqCst) == 1 { (get, other, second) } else { (other, get, first) };
    let mut owned = owned.into_owned();
    assert_eq!(woken.0.load(SeqCst), 1, "the one that stays is woken in its place");
    let mut stays = stays;
    let Poll::Ready(Some(item)) = pin!(&mut stays).poll(&mut Context::from_waker(&two)) else {
        panic!("it gets the key");
    };
    item.done();
    q.add(2).unwrap();
    let Poll::Ready(Some(item)) = pin!(&mut owned).poll(&mut Context::from_waker(&one)) else {
        panic!("and the owned one the next");
    };
    assert_eq!(*item.key(), 2);
}

#[test]
fn an_owned_get_ends_the_run_that_the_borrowed_one_was_to_end() {
    let q = WorkQueue::new();
    q.add_many([1, 2]).all().unwrap();
    let next = q.try_get().unwrap().next().into_owned();
    assert_eq!(q.stats().held, 1, "not before it is polled");
    assert_eq!(next.wait().map(|item| *item.key()), Some(2));
    q.add_many([3, 4]).all().unwrap();
    let next = q.try_get_many(1).unwrap().next(8).into_owned();
    assert_eq!(next.wait().map(|items| items.len()), Some(1));
    q.add(5).unwrap();
    drop(q.try_get().unwrap().next().into_owned());
    assert_eq!(q.stats().held, 0);
}

#[test]
fn items_are_taken_out_one_by_one_in_their_order_and_the_rest_ends_together() {
    let q = WorkQueue::new();
    q.add_many(0..5).all().unwrap();
    let mut items = q.try_get_many(5).unwrap();
    for key in 0..3 {
        let item = items.pop_front().expect("five were taken");
        assert_eq!((*item.key(), items.len()), (key, 4 - key));
        assert_eq!(q.stats().held, 5 - key);
        item.done();
    }
    assert!(items.iter().map(|item| *item.key()).eq([3, 4]));
    let next = items.next(8);
    drop(next);
    assert_eq!(q.stats().held, 0);
    q.add(9).unwrap();
    let mut items = q.try_get_many(5).unwrap();
    assert!(items.pop_front().is_some_and(|item| *item.key() == 9));
    assert!(items.pop_front().is_none() && items.is_empty());
}

#[test]
fn an_owned_drain_goes_on_where_the_borrowed_one_was() {
    let (q, clock) = fake();
    q.add(1).unwrap();
    let item = q.try_get().unwrap().into_owned();
    let options = DrainOptions::default().timeout(clock.now() + SEC);
    let mut drain = q.drain(options);
    assert!(pin!(&mut drain).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let drain = drain.into_owned();
    let waits = std::thread::spawn(move || drain.wait());
    clock.wait_for_alarms(1);
    clock.advance(SEC);
    let drained = waits.join().unwrap();
    assert_eq!((drained.complete, drained.held), (false, 1), "at the instant that was given");
    item.done();
}

#[test]
fn a_wait_for_tokens_gives_them_back_when_it_is_dropped() {
    let (bucket, clock) = (TokenBucket::new(1.0, 2).unwrap(), FakeClock::new());
    assert!(bucket.allow(2, clock.now()));
    let mut acquire = bucket.acquire(2, &clock);
    assert!(pin!(&mut acquire).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(bucket.tokens(clock.now()), -2.0);
    drop(acquire);
    assert_eq!(bucket.tokens(clock.now()), 0.0);
    let reservation = bucket.reserve(1, clock.now());
    assert_eq!(reservation.ready_at(), clock.now() + SEC);
    reservation.cancel(clock.now());
    assert_eq!(bucket.tokens(clock.now()), 0.0);
}

#[cfg(feature = "stream")]
#[test]
fn a_stream_hands_out_what_get_does_and_ends_with_the_queue() {
    use smol::stream::StreamExt;
    let q = WorkQueue::new();
    let mut items = q.getter().get().into_owned().into_stream();
    assert!(pin!(items.next()).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    q.add_many([1, 2]).all().unwrap();
    smol::block_on(async {
        assert_eq!(items.next().await.map(|item| *item.key()), Some(1));
        drop(q);
        assert_eq!(items.next().await.map(|item| *item.key()), Some(2));
        assert!(items.next().await.is_none());
        assert!(items.next().await.is_none(), "and says so again");
    });
}

#[test]
fn debug_output_tells_what_is_known_of_a_worker() {
    let q = WorkQueue::<u32>::new();
    let builder = Worker::of(&q).workers(2).time_limit(SEC).max_attempts(3);
    assert_eq!(
        format!("{builder:?}"),
        "WorkerBuilder { workers: 2, time_limit: Some(1s), max_attempts: 3, .. }"
    );
    let builder = builder.workers(0..=2);
    assert_eq!(
        format!("{builder:?}"),
        "WorkerBuilder { workers: 0..=2, time_limit: Some(1s), max_attempts: 3, .. }"
    );
    let builder = builder.workers(2);
    let (tell, told) = std::sync::mpsc::channel();
    let handler = move |run: Run<u32>| {
        tell.send(format!("{run:?}")).unwrap();
        std::future::ready(())
    };
    let workers = builder.run(handler).unwrap();
    let worker = workers.worker();
    assert_eq!(
        format!("{workers:?} {worker:?}"),
        "WorkerFuture { workers: 2, .. } Worker { workers: 2, .. }"
    );
    q.add(1).unwrap();
    q.shut_down();
    smol::block_on(workers);
    assert_eq!(told.recv().unwrap(), "Run { attempt: 1, cancelled: false, .. }");
    let stop = worker.stop(Duration::MAX);
    assert_eq!(format!("{stop:?}"), format!("Stop {{ deadline: {:?}, .. }}", Instant::NEVER));
}

#[test]
fn a_failure_says_what_happened_and_why() {
    let failure = Failure::Error(Box::new(Because(Failure::Cancelled)));
    assert_eq!(failure.to_string(), "because");
    let source = std::error::Error::source(&failure).map(ToString::to_string);
    assert_eq!(source.as_deref(), Some("the handler was cancelled before it had returned"));
    for (failure, text) in [
        (Failure::Panic("oh".to_string()), "the handler panicked: oh"),
        (Failure::TimeLimit(SEC), "the handler took longer than 1s"),
    ] {
        assert_eq!(failure.to_string(), text);
        assert!(std::error::Error::source(&failure).is_none());
    }
}

/// An error that has a cause.
#[derive(Debug)]
struct Because(Failure);

impl std::fmt::Display for Because {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("because")
    }
}

impl std::error::Error for Because {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn threads_of_workers_have_the_name_of_their_queue() {
    for (name, thread) in [("", "requeue-worker"), ("jobs", "requeue-jobs"), ("a\0b", "requeue-a?b")] {
        let q = WorkQueue::builder().name(name).build().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let worker = Worker::of(&q)
            .workers(1)
            .start_threads(move |_: Run<u32>| {
                tell.send(std::thread::current().name().map(str::to_string)).unwrap();
            })
            .unwrap();
        q.add(1).unwrap();
        assert_eq!(told.recv().unwrap().as_deref(), Some(thread));
        assert!(worker.stop(Duration::MAX).wait().complete);
    }
}

#[test]
fn a_value_that_a_handler_sets_goes_back_with_its_failed_run() {
    let clock = FakeClock::new();
    let q = WorkQueue::<u32, u32>::merging(|_, _| ()).clock(clock.clone()).build().unwrap();
    let mut workers = Worker::of(&q)
        .workers(1)
        .run(|mut run: Run<u32, u32>| {
            let old = run.set_value(6);
            assert_eq!((old, run.value()), (Some(5), Some(&6)));
            std::future::ready(Outcome::RetryAfter(SEC, "again".into()))
        })
        .unwrap();
    q.add_value(1, 5).unwrap();
    assert!(pin!(&mut workers).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(workers);
    clock.advance(SEC);
    assert_eq!(q.try_get().unwrap().take_value(), Some(6));
}

#[test]
fn the_last_batch_of_a_drain_that_waits_hears_of_the_end_whatever_it_asks_for_next() {
    for most in [0, 1] {
        let q = WorkQueue::new();
        q.add("a").unwrap();
        let drain = q.drain(DrainOptions::default().waiting_keys(WaitingKeys::Wait));
        let items = q.try_get_many(1).unwrap();
        assert!(items.next(most).wait().is_none());
        assert!(drain.wait().complete);
    }
}

//! Costs of each call: locks taken, keys looked up, readings of the clock and allocations, exactly. Time is
//! not measured, so the result is the same on every machine, and even a small increase is noticed.
//!
//! Built with `--cfg requeue_counted`, which adds the counters to the library: run `verify/costs.sh`. It is a
//! separate binary, because it counts allocations.
//!
//! When a change alters a cost on purpose, the failing test prints the table's new rows.
#![cfg(requeue_counted)]

use requeue::limiter::{default_controller, default_per_item};
use requeue::{Alarm, Builder, Clock, GetError, Instant, Metrics, Run, WorkQueue, Worker};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::{self, Write};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Locks, probes, readings of the clock, allocations.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cost(u64, u64, u64, u64);

struct Row {
    operation: &'static str,
    cost: Cost,
    /// Makes a queue and lets the operation pay [`ROUNDS`] times.
    pay: fn(&mut Till),
}

/// Costs in a steady state, after all growth.
#[rustfmt::skip]
const TABLE: &[Row] = &[
    //                                                          locks probes clock allocations
    row("add, a new key",                                       Cost(1, 1, 0, 0), add_new),
    row("add, a pending integer",                               Cost(0, 0, 0, 0), add_pending),
    row("add, a held key",                                      Cost(1, 1, 0, 0), add_held),
    row("add_ref, a new string",                                Cost(2, 2, 0, 1), add_ref_new),
    row("add_ref, a pending string",                            Cost(1, 1, 0, 0), add_ref_pending),
    row("add_value, a new key",                                 Cost(1, 1, 0, 0), add_value_new),
    row("add_value, a pending key",                             Cost(1, 1, 0, 0), add_value_pending),
    row("try_get",                                              Cost(1, 0, 0, 0), try_get),
    row("try_get, nothing ready",                               Cost(1, 0, 0, 0), try_get_empty),
    row("get_blocking, a ready key",                            Cost(1, 0, 0, 0), get_blocking),
    row("get, polled, a ready key",                             Cost(1, 0, 0, 0), get_polled),
    row("get, polled again by its task, nothing ready",         Cost(1, 0, 0, 0), get_polled_again),
    row("Item::done",                                           Cost(1, 1, 0, 0), done),
    row("Item::done, a dirty key",                              Cost(1, 0, 0, 0), done_dirty),
    row("an item is dropped",                                   Cost(1, 1, 0, 0), item_dropped),
    row("Item::succeed",                                        Cost(1, 1, 0, 0), succeed),
    row("Item::next",                                           Cost(1, 1, 0, 0), next),
    row("done, by key",                                         Cost(1, 2, 0, 0), done_by_key),
    row("add_many, 32 new keys",                                Cost(1, 32, 0, 1), add_many),
    row("add_many, 32 pending keys",                            Cost(1, 32, 0, 1), add_many_pending),
    row("try_get_many, 32 ready keys",                          Cost(1, 0, 0, 1), try_get_many),
    row("Items::done, of 32",                                   Cost(1, 32, 0, 0), items_done),
    row("Items::next, 32 for 32",                               Cost(1, 32, 0, 0), items_next),
    row("add_after, a new key",                                 Cost(1, 1, 1, 0), add_after_new),
    row("add_after, a waiting key",                             Cost(1, 1, 1, 0), add_after_waiting),
    row("add_rate_limited, counted per key, a new key",         Cost(1, 1, 1, 0), rate_limited_new),
    row("add_rate_limited, counted per key, a failed key",      Cost(1, 1, 1, 0), rate_limited_failed),
    row("add_rate_limited, the default, a new key",             Cost(2, 1, 1, 0), rate_limited_default),
    row("Item::retry, counted per key",                         Cost(1, 0, 1, 0), retry),
    row("forget, a failed key",                                 Cost(1, 2, 0, 0), forget),
    row("cancel, a ready key",                                  Cost(1, 2, 0, 0), cancel),
    row("cancel, a redundant integer",                          Cost(1, 2, 0, 0), cancel_published),
    row("cancel, a waiting key",                                Cost(1, 2, 1, 0), cancel_waiting),
    row("num_requeues",                                         Cost(1, 1, 1, 0), num_requeues),
    row("state",                                                Cost(1, 1, 1, 0), state),
    row("len",                                                  Cost(1, 0, 0, 0), len),
    row("a timer is set elsewhere: add, a new key",             Cost(1, 1, 0, 0), timed_add),
    row("a timer is set elsewhere: try_get",                    Cost(1, 0, 1, 0), timed_try_get),
    row("a timer is set elsewhere: Item::done",                 Cost(1, 1, 0, 0), timed_done),
    row("a timer is set elsewhere: Item::next",                 Cost(1, 1, 1, 0), timed_next),
    row("try_get, a timer has come",                            Cost(1, 0, 1, 0), try_get_due),
    row("a worker, 32 runs in one poll",                        Cost(35, 31, 0, 1), worker_runs),
    row("with a rate: add, a new key",                          Cost(1, 1, 0, 0), rated_add),
    row("with a rate: try_get",                                 Cost(1, 0, 1, 0), rated_try_get),
    row("with a rate: Item::done",                              Cost(1, 1, 0, 0), rated_done),
    row("with a bound: add, a new key",                         Cost(1, 1, 0, 0), bounded_add),
    row("with metrics: add, a new key",                         Cost(1, 1, 1, 0), metered_add),
    row("with metrics: add, a pending integer",                 Cost(0, 0, 0, 0), metered_add_pending),
    row("with metrics: try_get",                                Cost(1, 0, 1, 0), metered_try_get),
    row("with metrics: Item::done",                             Cost(1, 1, 1, 0), metered_done),
    row("with metrics: Item::next",                             Cost(1, 1, 1, 0), metered_next),
];

const fn row(operation: &'static str, cost: Cost, pay: fn(&mut Till)) -> Row {
    Row { operation, cost, pay }
}

#[test]
fn costs_each_call_takes_the_locks_probes_readings_and_allocations_of_the_table() {
    let mut wrong = String::new();
    for row in TABLE {
        let mut till = Till::new();
        (row.pay)(&mut till);
        assert_eq!(till.paid.len(), ROUNDS, "{}: paid in every round", row.operation);
        for paid in till.steady() {
            if paid != row.cost {
                writeln!(wrong, "{}: costs {paid}, not {}", row.operation, row.cost).unwrap();
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "what the calls cost has changed:\n{wrong}\nA cost that is meant belongs in TABLE."
    );
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(locks, probes, clock, allocations) = self;
        write!(f, "Cost({locks}, {probes}, {clock}, {allocations})")
    }
}

const ROUNDS: usize = 2_000;
/// Number of rounds after which all growth is over.
const WARM: usize = 1_000;

/// Counter of a call's costs.
struct Till {
    clock: Counted,
    paid: Vec<Cost>,
}

impl Till {
    fn new() -> Self {
        Self { clock: Counted::default(), paid: Vec::with_capacity(ROUNDS) }
    }

    fn read<K, V>(&self, q: &WorkQueue<K, V>) -> Cost {
        let (locks, probes) = q.counted();
        Cost(locks, probes, self.clock.readings.load(Ordering::Relaxed), ALLOCATIONS.get())
    }

    fn pays<K, V, R>(&mut self, q: &WorkQueue<K, V>, call: impl FnOnce() -> R) -> R {
        let before = self.read(q);
        let answer = call();
        let after = self.read(q);
        self.paid.push(Cost(after.0 - before.0, after.1 - before.1, after.2 - before.2, after.3 - before.3));
        answer
    }

    /// The costs that were paid once everything had grown.
    fn steady(&self) -> Vec<Cost> {
        let mut different = Vec::new();
        for &paid in &self.paid[WARM..] {
            if !different.contains(&paid) {
                different.push(paid);
            }
        }
        different
    }

    fn builder(&self) -> Builder<u64> {
        WorkQueue::builder().clock(self.clock.clone())
    }

    fn queue(&self) -> WorkQueue<u64> {
        self.builder().build().expect("a queue")
    }

    fn strings(&self) -> WorkQueue<String> {
        WorkQueue::builder().clock(self.clock.clone()).build().expect("a queue")
    }

    /// A queue with a payload of numbers that add up.
    fn sums(&self) -> WorkQueue<u64, u64> {
        WorkQueue::merging(|old, new| *old += new).clock(self.clock.clone()).build().expect("a queue")
    }

    fn counted_per_key(&self) -> WorkQueue<u64> {
        self.builder().limiter(default_per_item()).build().expect("a queue")
    }

    /// A queue in which some key waits for a moment that does not come.
    fn timed(&self) -> WorkQueue<u64> {
        let q = self.queue();
        q.add_after(NOT_A_ROUND, Duration::from_secs(1_000_000)).expect("open");
        q
    }

    /// A queue with a rate that holds nothing up.
    fn rated(&self) -> WorkQueue<u64> {
        self.builder().rate(1e9, u32::MAX).build().expect("a queue")
    }

    fn metered(&self) -> WorkQueue<u64> {
        struct Deaf;
        impl Metrics for Deaf {}
        self.builder().name("deaf").metrics(Deaf).build().expect("a queue")
    }
}

/// A key that no round has.
const NOT_A_ROUND: u64 = u64::MAX;

/// The keys of the rounds.
fn keys() -> impl Iterator<Item = u64> {
    0..ROUNDS as u64
}

fn work_off<K, V>(q: &WorkQueue<K, V>) {
    while let Ok(item) = q.try_get() {
        item.done();
    }
}

fn add_new(till: &mut Till) {
    let q = till.queue();
    add_new_to(till, &q);
}

fn add_new_to(till: &mut Till, q: &WorkQueue<u64>) {
    for key in keys() {
        till.pays(q, || q.add(key)).unwrap();
        work_off(q);
    }
}

/// Makes a hundred keys pending and adds them again and again.
fn add_pending(till: &mut Till) {
    let q = till.queue();
    add_pending_to(till, &q);
}

/// Number of keys: so few that no five of them share one of the filter's buckets of four, whatever the
/// hasher's seed. With a hundred keys that happens in one run of sixty.
const PENDING: u64 = 8;

fn add_pending_to(till: &mut Till, q: &WorkQueue<u64>) {
    for key in 0..PENDING {
        q.add(key).unwrap();
    }
    for key in keys() {
        till.pays(q, || q.add(key % PENDING)).unwrap();
    }
}

fn add_held(till: &mut Till) {
    let q = till.queue();
    for key in keys() {
        q.add(key).unwrap();
        let held = q.try_get().unwrap();
        till.pays(&q, || q.add(key)).unwrap();
        held.done();
        work_off(&q);
    }
}

fn add_ref_new(till: &mut Till) {
    let q = till.strings();
    for key in keys() {
        let key = format!("namespace/object-{key}");
        till.pays(&q, || q.add_ref(&key)).unwrap();
        work_off(&q);
    }
}

fn add_ref_pending(till: &mut Till) {
    let q = till.strings();
    let pending: Vec<String> = (0..PENDING).map(|key| format!("namespace/object-{key}")).collect();
    for key in &pending {
        q.add_ref(key).unwrap();
    }
    for key in pending.iter().cycle().take(ROUNDS) {
        till.pays(&q, || q.add_ref(key)).unwrap();
    }
}

fn add_value_new(till: &mut Till) {
    let q = till.sums();
    for key in keys() {
        till.pays(&q, || q.add_value(key, 1)).unwrap();
        work_off(&q);
    }
}

fn add_value_pending(till: &mut Till) {
    let q = till.sums();
    for key in keys() {
        q.add_value(key, 1).unwrap();
        till.pays(&q, || q.add_value(key, 1)).unwrap();
        work_off(&q);
    }
}

fn try_get(till: &mut Till) {
    let q = till.queue();
    try_get_from(till, &q);
}

fn try_get_from(till: &mut Till, q: &WorkQueue<u64>) {
    for key in keys() {
        q.add(key).unwrap();
        till.pays(q, || q.try_get()).unwrap().done();
    }
}

fn try_get_empty(till: &mut Till) {
    let q = till.queue();
    for _ in keys() {
        assert_eq!(till.pays(&q, || q.try_get()).err(), Some(GetError::Empty));
    }
}

fn get_blocking(till: &mut Till) {
    let q = till.queue();
    for key in keys() {
        q.add(key).unwrap();
        till.pays(&q, || q.get_blocking()).unwrap().done();
    }
}

fn get_polled(till: &mut Till) {
    let q = till.queue();
    let mut context = Context::from_waker(Waker::noop());
    for key in keys() {
        q.add(key).unwrap();
        let got = till.pays(&q, || pin!(q.get()).poll(&mut context));
        let Poll::Ready(Some(item)) = got else { panic!("{key} is ready") };
        item.done();
    }
}

fn get_polled_again(till: &mut Till) {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let q = till.queue();
    let (task, mut get) = (Waker::from(Arc::new(Task)), q.get());
    let mut context = Context::from_waker(&task);
    assert!(Pin::new(&mut get).poll(&mut context).is_pending());
    for _ in keys() {
        assert!(till.pays(&q, || Pin::new(&mut get).poll(&mut context)).is_pending());
    }
}

fn done(till: &mut Till) {
    let q = till.queue();
    done_in(till, &q);
}

fn done_in(till: &mut Till, q: &WorkQueue<u64>) {
    for key in keys() {
        q.add(key).unwrap();
        let item = q.try_get().unwrap();
        till.pays(q, || item.done());
    }
}

fn done_dirty(till: &mut Till) {
    let q = till.queue();
    for key in keys() {
        q.add(key).unwrap();
        let item = q.try_get().unwrap();
        q.add(key).unwrap();
        till.pays(&q, || item.done());
        work_off(&q);
    }
}

fn item_dropped(till: &mut Till) {
    let q = till.queue();
    for key in keys() {
        q.add(key).unwrap();
        let item = q.try_get().unwrap();
        till.pays(&q, || drop(item));
    }
}

fn succeed(till: &mut Till) {
    let q = till.queue();
    for key in keys() {
        q.add(key).unwrap();
        let item = q.try_get().unwrap();
        till.pays(&q, || item.succeed());
    }
}

fn next(till: &mut Till) {
    let q = till.queue();
    next_in(till, &q);
}

fn next_in(till: &mut Till, q: &WorkQueue<u64>) {
    q.add(NOT_A_ROUND - 1).unwrap();
    let mut item = q.try_get().unwrap();
    for key in keys() {
        q.add(key).unwrap();
        item = till.pays(q, || item.next().wait()).unwrap();
    }
    item.done();
}

/// Lets one worker, in a future that the test polls, run 32 keys that are in line.
fn worker_runs(till: &mut Till) {
    let q = till.queue();
    let mut workers = Worker::of(&q).workers(1).run(|run: Run<u64>| async move { drop(run) }).expect("one");
    let mut context = Context::from_waker(Waker::noop());
    for round in keys() {
        for key in batch(round) {
            q.add(key).unwrap();
        }
        // a poll ends so many runs: the next finds no key
        assert!(till.pays(&q, || Pin::new(&mut workers).poll(&mut context)).is_pending());
        assert!(Pin::new(&mut workers).poll(&mut context).is_pending());
        assert!(q.is_empty() && q.stats().held == 0);
    }
}

const BATCH: u64 = 32;

/// The keys of a round in which there are several.
fn batch(round: u64) -> impl Iterator<Item = u64> {
    round * BATCH..(round + 1) * BATCH
}

fn add_many(till: &mut Till) {
    let q = till.queue();
    for round in keys() {
        till.pays(&q, || q.add_many(batch(round))).all().unwrap();
        work_off(&q);
    }
}

fn add_many_pending(till: &mut Till) {
    let q = till.queue();
    for _ in keys() {
        till.pays(&q, || q.add_many(batch(0))).all().unwrap();
    }
}

fn try_get_many(till: &mut Till) {
    let q = till.queue();
    for round in keys() {
        q.add_many(batch(round)).all().unwrap();
        assert_eq!(till.pays(&q, || q.try_get_many(BATCH as usize)).unwrap().len(), BATCH as usize);
    }
}

fn items_done(till: &mut Till) {
    let q = till.queue();
    for round in keys() {
        q.add_many(batch(round)).all().unwrap();
        let items = q.try_get_many(BATCH as usize).unwrap();
        till.pays(&q, || items.done());
    }
}

fn items_next(till: &mut Till) {
    let q = till.queue();
    q.add_many(batch(ROUNDS as u64)).all().unwrap();
    let mut items = q.try_get_many(BATCH as usize).unwrap();
    for round in keys() {
        q.add_many(batch(round)).all().unwrap();
        items = till.pays(&q, || items.next(BATCH as usize).wait()).unwrap();
        assert_eq!(items.len(), BATCH as usize);
    }
}

fn done_by_key(till: &mut Till) {
    let q = till.queue();
    for key in keys() {
        q.add(key).unwrap();
        let (key, _) = q.try_get().unwrap().detach();
        till.pays(&q, || q.done(&key)).unwrap();
    }
}

/// A delay.
const MILLISECOND: Duration = Duration::from_millis(1);

fn add_after_new(till: &mut Till) {
    let q = till.queue();
    for key in keys() {
        till.pays(&q, || q.add_after(key, MILLISECOND)).unwrap();
        till.clock.advance(MILLISECOND);
        work_off(&q);
    }
}

fn add_after_waiting(till: &mut Till) {
    let q = till.queue();
    for key in keys() {
        q.add_after(key % 100, MILLISECOND * 2).unwrap();
        till.pays(&q, || q.add_after(key % 100, MILLISECOND)).unwrap();
    }
}

fn rate_limited_new(till: &mut Till) {
    let q = till.counted_per_key();
    rate_limited_in(till, &q);
}

/// The default bucket has its own lock.
fn rate_limited_default(till: &mut Till) {
    let q = till.builder().limiter(default_controller()).build().unwrap();
    rate_limited_in(till, &q);
}

fn rate_limited_in(till: &mut Till, q: &WorkQueue<u64>) {
    for key in keys() {
        till.pays(q, || q.add_rate_limited(key)).unwrap();
        till.clock.advance(Duration::from_secs(1));
        q.forget(&key);
        work_off(q);
    }
}

fn rate_limited_failed(till: &mut Till) {
    let q = till.counted_per_key();
    for key in keys() {
        till.pays(&q, || q.add_rate_limited(key % 100)).unwrap();
    }
}

fn retry(till: &mut Till) {
    let q = till.counted_per_key();
    for key in keys() {
        q.add(key).unwrap();
        let item = q.try_get().unwrap();
        till.pays(&q, || item.retry()).expect("open");
        till.clock.advance(Duration::from_secs(1));
        q.try_get().unwrap().succeed();
    }
}

/// The second probe takes the key away.
fn forget(till: &mut Till) {
    let q = till.counted_per_key();
    for key in keys() {
        q.add(key).unwrap();
        q.try_get().unwrap().retry().expect("open");
        till.clock.advance(Duration::from_secs(1));
        q.try_get().unwrap().done();
        till.pays(&q, || q.forget(&key));
    }
}

/// The second probe takes the key away, as in the two below.
fn cancel(till: &mut Till) {
    let q = till.queue();
    for key in keys() {
        q.add(key).unwrap();
        assert!(till.pays(&q, || q.cancel(&key)).is_some());
    }
}

fn cancel_published(till: &mut Till) {
    let q = till.queue();
    for key in keys() {
        q.add(key).unwrap();
        q.add(key).unwrap();
        assert!(till.pays(&q, || q.cancel(&key)).is_some());
    }
}

fn cancel_waiting(till: &mut Till) {
    let q = till.queue();
    for key in keys() {
        q.add_after(key, Duration::from_secs(9)).unwrap();
        assert!(till.pays(&q, || q.cancel(&key)).is_some());
    }
}

fn num_requeues(till: &mut Till) {
    let q = till.counted_per_key();
    q.add_rate_limited(7).unwrap();
    for _ in keys() {
        assert_eq!(till.pays(&q, || q.num_requeues(&7)), 1);
    }
}

fn state(till: &mut Till) {
    let q = till.queue();
    q.add(7).unwrap();
    for _ in keys() {
        assert!(till.pays(&q, || q.state(&7)).is_some());
    }
}

fn len(till: &mut Till) {
    let q = till.queue();
    for _ in keys() {
        assert_eq!(till.pays(&q, || q.len()), 0);
    }
}

fn timed_add(till: &mut Till) {
    let q = till.timed();
    add_new_to(till, &q);
}

fn timed_try_get(till: &mut Till) {
    let q = till.timed();
    try_get_from(till, &q);
}

fn timed_done(till: &mut Till) {
    let q = till.timed();
    done_in(till, &q);
}

fn timed_next(till: &mut Till) {
    let q = till.timed();
    next_in(till, &q);
}

fn try_get_due(till: &mut Till) {
    let q = till.queue();
    for key in keys() {
        q.add_after(key, MILLISECOND).unwrap();
        till.clock.advance(MILLISECOND);
        till.pays(&q, || q.try_get()).unwrap().done();
    }
}

fn rated_add(till: &mut Till) {
    let q = till.rated();
    add_new_to(till, &q);
}

fn rated_try_get(till: &mut Till) {
    let q = till.rated();
    try_get_from(till, &q);
}

fn rated_done(till: &mut Till) {
    let q = till.rated();
    done_in(till, &q);
}

fn bounded_add(till: &mut Till) {
    let q = till.builder().bound(usize::MAX).build().expect("a queue");
    add_new_to(till, &q);
}

fn metered_add(till: &mut Till) {
    let q = till.metered();
    add_new_to(till, &q);
}

fn metered_add_pending(till: &mut Till) {
    let q = till.metered();
    add_pending_to(till, &q);
}

fn metered_try_get(till: &mut Till) {
    let q = till.metered();
    try_get_from(till, &q);
}

fn metered_done(till: &mut Till) {
    let q = till.metered();
    done_in(till, &q);
}

fn metered_next(till: &mut Till) {
    let q = till.metered();
    next_in(till, &q);
}

/// A clock that stands still and counts its readings. It has no lock.
#[derive(Clone, Debug, Default)]
struct Counted {
    readings: Arc<AtomicU64>,
    nanoseconds: Arc<AtomicU64>,
}

impl Counted {
    fn advance(&self, by: Duration) {
        self.nanoseconds.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for Counted {
    fn now(&self) -> Instant {
        self.readings.fetch_add(1, Ordering::Relaxed);
        Instant::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    fn wake_at(&self, _: Instant, _: &Waker) -> Alarm {
        unreachable!("nobody waits in here")
    }
}

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts what each thread asks for: a block, or a block of another size.
struct Counting;

// SAFETY: every call is passed on to the system's allocator as it is; the
// counter beside it touches no memory that is handed out, and needs none.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps `realloc`'s contract.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

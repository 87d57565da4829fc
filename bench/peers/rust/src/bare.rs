//! Nothing but a wake-up: what a queue's own work is compared with in `wakeups`.

use requeue_bench::crew::runtime;
use requeue_bench::queues::{AsyncFifo, Fifo};
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::thread::{self, Thread};
use tokio::sync::Notify;

/// Far more than one consumer that is woken every 200 µs ever falls behind.
const PLACES: usize = 1 << 16;

/// A ring from one producer to one consumer, which never wait here.
#[derive(Debug)]
struct Ring {
    places: Box<[AtomicU64]>,
    added: AtomicU64,
    taken: AtomicU64,
    ended: AtomicBool,
}

/// Result of a pop from the ring.
enum Took {
    Key(u64),
    Nothing,
    End,
}

impl Ring {
    fn new() -> Self {
        Self {
            places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
            added: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        }
    }

    fn add(&self, key: u64) {
        let at = self.added.load(Relaxed);
        self.places[at as usize % PLACES].store(key, Relaxed);
        self.added.store(at + 1, Release);
    }

    fn take(&self) -> Took {
        let at = self.taken.load(Relaxed);
        // before the look at what was added, which the end comes after
        let ended = self.ended.load(Acquire);
        if at < self.added.load(Acquire) {
            self.taken.store(at + 1, Relaxed);
            return Took::Key(self.places[at as usize % PLACES].load(Relaxed));
        }
        if ended { Took::End } else { Took::Nothing }
    }
}

/// The ring, and `park` and `unpark`.
#[derive(Debug)]
pub struct Park {
    ring: Ring,
    consumer: OnceLock<Thread>,
}

impl Park {
    fn wake(&self) {
        if let Some(consumer) = self.consumer.get() {
            consumer.unpark();
        }
    }
}

impl Fifo for Park {
    const NAME: &'static str = "park";
    type Key = u64;
    type Item<'q> = u64;

    fn new() -> Self {
        Self { ring: Ring::new(), consumer: OnceLock::new() }
    }
    fn add(&self, key: u64) {
        self.ring.add(key);
        self.wake();
    }
    fn get(&self) -> Option<u64> {
        self.consumer.get_or_init(thread::current);
        loop {
            match self.ring.take() {
                Took::Key(key) => return Some(key),
                Took::End => return None,
                Took::Nothing => thread::park(),
            }
        }
    }
    fn key(item: &u64) -> &u64 {
        item
    }
    fn done(&self, _: u64) {}
    fn shut_down(&self, _: usize) {
        self.ring.ended.store(true, Release);
        self.wake();
    }
}

/// The ring, and Tokio's `Notify`.
#[derive(Debug)]
pub struct Notified {
    ring: Ring,
    notify: Notify,
}

impl Fifo for Notified {
    const NAME: &'static str = "notify";
    type Key = u64;
    type Item<'q> = u64;

    fn new() -> Self {
        Self { ring: Ring::new(), notify: Notify::new() }
    }
    fn add(&self, key: u64) {
        self.ring.add(key);
        self.notify.notify_one();
    }
    fn get(&self) -> Option<u64> {
        runtime().block_on(self.get_async())
    }
    fn key(item: &u64) -> &u64 {
        item
    }
    fn done(&self, _: u64) {}
    fn shut_down(&self, _: usize) {
        self.ring.ended.store(true, Release);
        self.notify.notify_one();
    }
}

impl AsyncFifo for Notified {
    async fn get_async(&self) -> Option<u64> {
        loop {
            match self.ring.take() {
                Took::Key(key) => return Some(key),
                Took::End => return None,
                Took::Nothing => self.notify.notified().await,
            }
        }
    }
}

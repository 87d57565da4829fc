//! The rules of engines on PostgreSQL. Those that concern many processes are in the crate's own
//! `tests/rules.rs`.

use requeue_engine::Status;
use requeue_postgres::{GroupRules, Postgres, Queue, QueueBuilder};
use requeue_verify::cluster::Cluster;
use requeue_verify::engines::{Engine, Grouped, State, group};

/// A database.
struct Database(String);

impl Database {
    fn builder(&self) -> QueueBuilder<String, Vec<u32>> {
        let pg = Postgres::connect(&self.0).wait().expect("it is up");
        pg.queue_with("orders", |old: &mut Vec<u32>, new| old.extend(new))
    }
}

impl Engine for Database {
    type Queue = Queue<String, Vec<u32>>;

    fn start() -> Option<Self> {
        let url = Cluster::shared()?.database();
        Postgres::connect(&url).wait().expect("it is up").migrate().wait().expect("a schema");
        Some(Self(url))
    }
    fn open(&self) -> Self::Queue {
        self.builder().open().wait().expect("the schema is there")
    }
    fn state(queue: &Self::Queue, key: &str) -> Option<State> {
        let known = queue.state(&key.to_owned()).wait().expect("it is up")?;
        Some(State {
            ready: known.status == Status::Ready,
            held: known.status == Status::Held,
            dirty: known.dirty,
            due_in: known.due_in,
            failures: known.failures,
            attempt: known.attempt,
            priority: known.priority,
        })
    }
    fn cancel(queue: &Self::Queue, key: &str) -> bool {
        queue.cancel(&key.to_owned()).wait().expect("it is up")
    }
    fn pause(queue: &Self::Queue, paused: bool) {
        let client = queue.client();
        let op = if paused { client.pause() } else { client.resume() };
        op.wait().expect("it is up");
    }
    fn shut_down(queue: &Self::Queue) {
        queue.shut_down();
    }
}

impl Grouped for Database {
    fn open_with_groups(&self, cap: usize, (named, weight): (&'static str, u32)) -> Self::Queue {
        let rules = GroupRules::new().cap(cap).weight(&named.to_owned(), weight);
        let queue = self.builder().group_by_with(|key| group(key), rules);
        queue.open().wait().expect("the schema is there")
    }
}

requeue_verify::engines!(Database);

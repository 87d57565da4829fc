//! The rules of engines on PostgreSQL. Those that concern many processes are in the crate's own
//! `tests/rules.rs`.

use requeue_engine::Status;
use requeue_postgres::{GroupRules, Postgres, PostgresStore, Queue, QueueBuilder};
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
    type Store = PostgresStore<String, Vec<u32>>;

    fn start() -> Option<Self> {
        let url = Cluster::shared()?.database();
        Postgres::connect(&url).wait().expect("it is up").migrate().wait().expect("a schema");
        Some(Self(url))
    }
    fn open(&self) -> Queue<String, Vec<u32>> {
        self.builder().open().wait().expect("the schema is there")
    }
    fn state(queue: &Queue<String, Vec<u32>>, key: &str) -> Option<State> {
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
    fn pause(queue: &Queue<String, Vec<u32>>, paused: bool) {
        let client = queue.client();
        let op = if paused { client.pause() } else { client.resume() };
        op.wait().expect("it is up");
    }
}

impl Grouped for Database {
    fn open_with_groups(&self, cap: usize, (named, weight): (&'static str, u32)) -> Queue<String, Vec<u32>> {
        let rules = GroupRules::new().cap(cap).weight(&named.to_owned(), weight);
        let queue = self.builder().group_by_with(|key| group(key), rules);
        queue.open().wait().expect("the schema is there")
    }
}

requeue_verify::engines!(Database);

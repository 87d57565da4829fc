//! The rules of engines on a file. Those that concern files alone are in the crate's own `tests/rules.rs`.

use requeue::Builder;
use requeue_sqlite::{Queue, Sqlite};
use requeue_verify::engines::{Engine, State};

struct File(tempfile::TempDir);

impl Default for File {
    fn default() -> Self {
        Self(requeue_verify::durable::folder())
    }
}

impl Engine for File {
    type Queue = Queue<String, Vec<u32>>;

    fn open(&self) -> Self::Queue {
        let file = Sqlite::open(self.0.path().join("q.db")).expect("nobody has it");
        let queue = file.queue_with("orders", |old: &mut Vec<u32>, new| old.extend(new));
        queue.front(Builder::priorities).open().expect("it is whole")
    }
    fn state(queue: &Self::Queue, key: &str) -> Option<State> {
        queue.state(&key.to_owned()).map(|known| State::of(queue, &known))
    }
    fn cancel(queue: &Self::Queue, key: &str) -> bool {
        queue.cancel(&key.to_owned()).wait().expect("it can be written").is_some()
    }
    fn pause(queue: &Self::Queue, paused: bool) {
        let op = if paused { queue.pause() } else { queue.resume() };
        op.wait().expect("it can be written");
    }
    fn shut_down(queue: &Self::Queue) {
        queue.shut_down();
    }
}

requeue_verify::engine_rules!(File);

//! The rules of engines on a file. Those about files only are in the crate's own `tests/rules.rs`.

#[path = "../../../crates/requeue-sqlite/tests/common/mod.rs"]
#[allow(dead_code)]
mod common;

use common::once_free;
use requeue::{Builder, GroupRules};
use requeue_sqlite::{Queue, Sqlite, SqliteStore};
use requeue_verify::engines::{Engine, Grouped, State, group};

struct File(tempfile::TempDir);

type Front = Builder<String, Vec<u32>>;

impl File {
    fn open_as(&self, front: impl FnOnce(Front) -> Front + Send + 'static) -> Queue<String, Vec<u32>> {
        let file = once_free(|| Sqlite::open(self.0.path().join("q.db"))).expect("nobody has it");
        let queue = file.queue_with("orders", |old: &mut Vec<u32>, new| old.extend(new));
        queue.front(front).open().expect("it is whole")
    }
}

impl Engine for File {
    type Store = SqliteStore<String, Vec<u32>>;

    fn start() -> Option<Self> {
        Some(Self(requeue_verify::durable::folder()))
    }
    fn open(&self) -> Queue<String, Vec<u32>> {
        self.open_as(Builder::priorities)
    }
    fn state(queue: &Queue<String, Vec<u32>>, key: &str) -> Option<State> {
        queue.in_memory().state(key).map(|known| State::of(queue, &known))
    }
    fn pause(queue: &Queue<String, Vec<u32>>, paused: bool) {
        let op = if paused { queue.pause() } else { queue.resume() };
        op.wait().expect("it can be written");
    }
}

impl Grouped for File {
    fn open_with_groups(&self, cap: usize, weight: (&'static str, u32)) -> Queue<String, Vec<u32>> {
        let rules = GroupRules::new().cap(cap).weight(move |it| if it == weight.0 { weight.1 } else { 1 });
        self.open_as(|front| front.priorities().group_by_with(|key: &String| group(key), rules))
    }
}

requeue_verify::engines!(File);

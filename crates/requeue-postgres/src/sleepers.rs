//! Who is woken when a queue has keys in line: at once where this process has added them, by a notification where another one has.

use crate::post::Post;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Wakes whoever sleeps on the server in one of these queues, the process `$2` excepted: that one knows. It is called when the triggers are committed.
/// Nothing is lost with it, so that it does not wait for the disk.
pub(crate) const WAKE: &str =
    "select set_config('synchronous_commit', 'off', true), requeue.wake(q, $2) from unnest($1::int[]) q";

pub(crate) struct Sleepers {
    /// The process's, as an owner of keys and in its notifications: its machine, its number there, a number of its own, and its
    /// application's name. `web-3 4711 0123456789abcdef shop`. The schema's views take it apart.
    pub(crate) name: String,
    of: Mutex<HashMap<i32, Vec<Arc<Post>>>>,
}

/// The machine's name as one word.
fn machine() -> String {
    let name = whoami::hostname().unwrap_or_default();
    let one_word = |letter: char| if letter.is_whitespace() || letter.is_control() { '-' } else { letter };
    let name: String = name.chars().take(255).map(one_word).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

impl Sleepers {
    pub(crate) fn new(application: &str) -> Self {
        // with a number that no other process has, on whatever machine
        let number = RandomState::new().build_hasher().finish();
        let application: String = application.chars().take(63).collect();
        let name = format!("{} {} {number:016x} {application}", machine(), std::process::id());
        Self { name, of: Mutex::default() }
    }

    fn of(&self) -> MutexGuard<'_, HashMap<i32, Vec<Arc<Post>>>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `who` is woken from now on.
    pub(crate) fn add(&self, queue: i32, who: Arc<Post>) {
        self.of().entry(queue).or_default().push(who);
    }

    pub(crate) fn remove(&self, queue: i32, who: &Arc<Post>) {
        if let Some(sleepers) = self.of().get_mut(&queue) {
            sleepers.retain(|it| !Arc::ptr_eq(it, who));
        }
    }

    pub(crate) fn wake(&self, queue: i32) {
        for sleeper in self.of().get(&queue).into_iter().flatten() {
            sleeper.tells();
        }
    }

    /// A notification: the queue's number, and the process's name if one has added through this library.
    pub(crate) fn hear(&self, payload: &str) {
        let (queue, name) = payload.split_once(' ').unwrap_or((payload, ""));
        match queue.parse() {
            Ok(queue) if name != self.name => {
                // of another queue this process may hear although others are meant
                let of = self.of();
                of.get(&queue).into_iter().flatten().filter(|it| it.listens()).for_each(|it| it.tells());
            }
            _ => {}
        }
    }
}

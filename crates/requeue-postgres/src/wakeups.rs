//! Wake-ups for queues with new keys: directly if this process has added them, by a notification if another
//! one has.

use crate::post::Post;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Wakes the processes that sleep in one of these queues, except the process `$2`, which knows. Called when
/// the triggers are committed. It may be lost without harm, so it does not wait for the disk.
pub(crate) const WAKE: &str =
    "select set_config('synchronous_commit', 'off', true), requeue.wake(q, $2) from unnest($1::int[]) q";

/// Pause after which triggers wake others in their own transaction.
///
/// PostgreSQL commits transactions that notify one after another, those of other programs and databases too. So a process
/// that adds all the time notifies apart from its triggers, in transactions that do not wait for the disk.
const QUIET: Duration = Duration::from_millis(20);

/// The queues that this process works on, and whether it has added lately.
pub(crate) struct Wakeups {
    /// The process's name as an owner of keys and in its notifications: its host, its number there, a random
    /// number, and its application's name. `web-3 4711 0123456789abcdef shop`. The schema's views split it.
    pub(crate) name: String,
    queues: Mutex<HashMap<i32, Vec<Arc<Post>>>>,
    /// When this process last wrote triggers.
    added: Mutex<Option<Instant>>,
}

/// The host's name as one word.
fn machine() -> String {
    let name = whoami::hostname().unwrap_or_default();
    let one_word = |letter: char| if letter.is_whitespace() || letter.is_control() { '-' } else { letter };
    let name: String = name.chars().take(255).map(one_word).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

impl Wakeups {
    pub(crate) fn new(application: &str) -> Self {
        // with a number that no other process has, on whatever machine
        let number = RandomState::new().build_hasher().finish();
        let application: String = application.chars().take(63).collect();
        let name = format!("{} {} {number:016x} {application}", machine(), std::process::id());
        Self { name, queues: Mutex::default(), added: Mutex::default() }
    }

    fn last_add(&self) -> MutexGuard<'_, Option<Instant>> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process has added nothing for a while: its next triggers may notify in their own transaction.
    pub(crate) fn is_quiet(&self) -> bool {
        self.last_add().is_none_or(|at| at.elapsed() >= QUIET)
    }

    /// Notes that triggers were written.
    pub(crate) fn note_add(&self) {
        *self.last_add() = Some(Instant::now());
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<i32, Vec<Arc<Post>>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers an opened queue, to be woken from now on.
    pub(crate) fn add(&self, queue: i32, post: Arc<Post>) {
        self.queues().entry(queue).or_default().push(post);
    }

    pub(crate) fn remove(&self, queue: i32, post: &Arc<Post>) {
        if let Some(posts) = self.queues().get_mut(&queue) {
            posts.retain(|it| !Arc::ptr_eq(it, post));
        }
    }

    /// Wakes this process's exchanges of a queue.
    pub(crate) fn wake(&self, queue: i32) {
        for post in self.queues().get(&queue).into_iter().flatten() {
            post.wake_to_look();
        }
    }

    /// Handles a notification: the queue's number, and the process's name if this library has added.
    pub(crate) fn hear(&self, payload: &str) {
        let (queue, name) = payload.split_once(' ').unwrap_or((payload, ""));
        match queue.parse() {
            Ok(queue) if name != self.name => {
                // a process that listens for one queue hears of all: wake only those for which it listens
                let queues = self.queues();
                queues
                    .get(&queue)
                    .into_iter()
                    .flatten()
                    .filter(|it| it.is_listening())
                    .for_each(|it| it.wake_to_look());
            }
            _ => {}
        }
    }
}

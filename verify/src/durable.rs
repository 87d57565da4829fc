//! The queue in a file behind the suite's adapter: the same tests, with every trigger and every end written.
//!
//! When a test drops its queue, the content of the file is compared with the queue in memory.

use crate::adapter::{
    Accepted, Adapter, Cancelled, Config, Counts, Down, Drained, Failed, Fallible, LeftOut, Nothing, Page,
    Policy, Polled, Rejected, Restored, Said, Seen, UnfinishedKey, Waiters, When, lacks,
};
use crate::fronts::{
    Bare, Guard, Guards, Manner, Threads, accepted, cancelled, configure, counts, down, drained, guard,
    guards, hands_out_and_looks, how, no_key, options, seen, unfinished,
};
use crate::probe::{Key, Value};
use requeue::{Added, GetError, Only, Phase, Refused, Scope, WorkQueue};
use requeue_engine::{AddFailed, EngineError, Op};
use requeue_sqlite::{Client, Queue, Sqlite, Status};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

impl requeue_sqlite::Key for Key {
    fn to_bytes(&self) -> Cow<'_, [u8]> {
        self.id.to_string().into_bytes().into()
    }
    fn from_bytes(bytes: Vec<u8>) -> Result<Self, requeue::BoxError> {
        Ok(<u64 as requeue_sqlite::Key>::from_bytes(bytes)?.into())
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.items.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Self::default();
        value.items = Vec::deserialize(deserializer)?;
        Ok(value)
    }
}

/// A temporary folder of one test, in memory if the system has such a file system.
///
/// # Panics
///
/// If the folder cannot be made.
#[must_use]
pub fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    folder.expect("a folder for the test's file")
}

/// A queue in a file, waited for in manner `M`.
#[derive(Clone)]
pub struct Durable<M>(Arc<InFile>, PhantomData<M>);

/// Threads.
pub type DurableThreads = Durable<Threads>;
/// Tasks, without a runtime.
pub type DurableTasks = Durable<Bare>;

impl<M> fmt::Debug for Durable<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.queue.fmt(f)
    }
}

/// The queue, and the folder of its file, which is removed after the queue.
struct InFile {
    queue: Queue<Key, Value>,
    folder: tempfile::TempDir,
}

impl Deref for InFile {
    type Target = Queue<Key, Value>;
    fn deref(&self) -> &Self::Target {
        &self.queue
    }
}

const NAME: &str = "under test";

impl Drop for InFile {
    /// Asserts that the file has each key that must run, with its failures, and no other key.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.queue.written().wait().expect("it can be written");
        let client = Client::open(self.folder.path().join("q.db")).expect("the file is there");
        // a key that gave up is kept with its reason until it is added again
        let listed = client.list(NAME).expect("it can be read").into_iter();
        let listed = listed.filter(|it| it.status != Status::Dead).map(|it| {
            let id = std::str::from_utf8(&it.key).ok().and_then(|id| id.parse::<u64>().ok());
            (id.expect("a number"), (it.status != Status::Idle, it.failures))
        });
        // a shutdown drops from memory what the next process is to run
        let over = matches!(self.queue.in_memory().phase(), Phase::ShutDown | Phase::Over);
        let mut in_file: BTreeMap<_, _> = listed.collect();
        for (key, state) in self.queue.in_memory().snapshot().flat_map(|page| page.keys) {
            let asked = state.ready || state.held || state.waiting_until.is_some();
            if !asked && (over || state.failures == 0) {
                continue;
            }
            // a running key is in the file as it was before its run
            let failures = |stored| if state.held { stored } else { state.failures };
            let stored = in_file.remove(&key.id);
            let stored = stored.unwrap_or_else(|| panic!("key {} is not in the file: {state:?}", key.id));
            assert_eq!(
                stored,
                (asked, failures(stored.1)),
                "key {}: in the file, in memory: {state:?}",
                key.id
            );
        }
        assert!(over || in_file.is_empty(), "memory does not know: {in_file:?}");
    }
}

/// The option of a trigger that a file does not keep, if there is one.
fn unkept(said: &Said) -> Option<&'static str> {
    match said.when.parts() {
        (When::RateLimited, _) => Some("trigger that a limiter delays"),
        (_, Some(_)) => Some("trigger that says what it does in a back-off"),
        (When::After(_, policy), _) if policy != Policy::Earliest => Some("timer but the earliest"),
        _ if said.debounce.is_some() => Some("debounce"),
        _ => None,
    }
}

fn answer(
    unkept: Option<&'static str>,
    answer: Result<Added, AddFailed<Key, Value>>,
) -> Fallible<Result<Accepted, Rejected>> {
    let AddFailed { key, value, error } = match answer {
        Ok(added) => return accepted(added).map(Ok),
        Err(failed) => failed,
    };
    match (&error, unkept) {
        (EngineError::ShutDown, _) => Ok(Err(Rejected { key, value, full: false })),
        (EngineError::NotApplied(why), _) if why.is::<Refused>() => {
            Ok(Err(Rejected { key, value, full: false }))
        }
        (EngineError::NotApplied(_), Some(what)) => lacks(what),
        _ => Err(failed(&error)),
    }
}

fn failed(error: &impl fmt::Display) -> Failed {
    Failed(error.to_string())
}

impl<M> Durable<M> {
    fn in_memory(&self) -> &WorkQueue<Key, Value> {
        self.0.in_memory()
    }

    fn begin(&self, said: Said) -> Op<Added, AddFailed<Key, Value>> {
        match said {
            Said { key, when: When::Now, value: None, priority: 0, debounce: None } => self.0.add(key),
            Said { key, when, value, priority, debounce } => {
                self.0.add_with(key, how(when, value, priority, debounce))
            }
        }
    }
}

impl<M: Manner> Adapter for Durable<M> {
    type Held<'q> = Guard<'q, M>;
    type Many<'q> = Guards<'q, M>;

    fn leaves_out() -> &'static [LeftOut] {
        LEFT_OUT
    }

    fn build(config: Config) -> Fallible<Self> {
        let folder = folder();
        let file = Sqlite::open(folder.path().join("q.db")).map_err(|error| failed(&error))?;
        let bound = config.bound.is_some();
        let retries = config.unfinished_retries;
        let queue = file.queue_with::<Key, Value>(NAME, Value::merge);
        let queue = queue.front(move |front| match configure(front, config) {
            Ok(front) => front.retry_dropped(retries),
            Err(failed) => panic!("{failed:?}"),
        });
        let queue = match queue.open() {
            Err(_) if bound => lacks("bound"),
            opened => opened.map_err(|error| failed(&error))?,
        };
        Ok(Self(Arc::new(InFile { queue, folder }), PhantomData))
    }

    fn trigger(&self, said: Said) -> Fallible<Result<Accepted, Rejected>> {
        let unkept = unkept(&said);
        answer(unkept, M::op(self.begin(said)))
    }

    /// Each trigger by itself, and then their answers: many share a transaction.
    fn trigger_many(&self, batch: Vec<Said>) -> Fallible<Vec<Result<Accepted, Rejected>>> {
        let begun: Vec<_> = batch.into_iter().map(|said| (unkept(&said), self.begin(said))).collect();
        begun.into_iter().map(|(unkept, op)| answer(unkept, M::op(op))).collect()
    }

    fn add_ref(&self, key: &Key) -> Fallible<Result<Accepted, ()>> {
        Ok(answer(None, M::op(self.0.add(key.clone())))?.map_err(drop))
    }

    fn forget(&self, key: &Key) -> Fallible<()> {
        M::op(self.0.forget(key)).map_err(|error| failed(&error))
    }

    fn restore(&self, _: Key, _: Restored, _: Option<Value>) -> Fallible<Result<Accepted, Rejected>> {
        lacks("restore, because opening it is one")
    }

    fn adding(&self, _: Said, _: Option<Duration>) -> Polled<'_, Result<Accepted, Rejected>> {
        lacks("bound")
    }

    fn add_wait(&self, _: Said, _: Option<Duration>) -> Fallible<Result<Accepted, Rejected>> {
        lacks("bound")
    }

    fn room(&self) -> Fallible<Option<usize>> {
        lacks("bound")
    }

    fn pause(&self, pause: bool) -> Fallible<bool> {
        M::op(if pause { self.0.pause() } else { self.0.resume() }).map_err(|error| failed(&error))
    }

    fn lift_rate(&self) -> Fallible<bool> {
        lacks("rate that is lifted")
    }

    fn pause_key(&self, _: Key) -> Fallible<bool> {
        lacks("keys that are paused")
    }

    fn resume_key(&self, _: &Key) -> Fallible<bool> {
        lacks("keys that are paused")
    }

    fn pause_group(&self, _: &Key, _: bool) -> Fallible<bool> {
        lacks("groups that are paused")
    }

    fn is_paused(&self) -> Fallible<bool> {
        Ok(self.in_memory().paused(Scope::Queue))
    }

    fn is_group_paused(&self, _: &Key) -> Fallible<bool> {
        lacks("groups that are paused")
    }

    fn cancel(&self, key: &Key, forget: bool) -> Fallible<Option<Cancelled>> {
        if forget {
            self.forget(key)?;
        }
        Ok(M::op(self.0.cancel(key)).map_err(|error| failed(&error))?.map(cancelled))
    }

    fn take_unfinished(&self) -> Fallible<Vec<UnfinishedKey>> {
        Ok(unfinished(self.0.in_memory().take_unfinished()))
    }

    hands_out_and_looks!();
}

/// The functions of the suite that do not apply to a durable queue although it offers what they call, by reason.
const LEFT_OUT: &[LeftOut] = &[
    LeftOut {
        why: "what a file does not keep is called in a thread of the test's own, or where the test catches panics",
        tests: &[
            "b5_a_merge_that_panics_resets_nothing",
            "r_the_count_is_exact_under_concurrent_calls",
            "unlocked_a_waker_may_call_the_queue",
            "unlocked_dropping_a_get_may_call_the_queue_through_the_drop_of_its_waker",
            "unlocked_the_drop_of_a_waiting_key_at_shut_down_may_call_the_queue",
            "unlocked_the_waker_of_a_drain_may_call_the_queue",
        ],
    },
    LeftOut {
        why: "users' code that panics does so when the trigger is written: the call says that its outcome is unknown",
        tests: &[
            "b9_a_merge_that_panics_leaves_the_triggers_before_it_accepted_and_no_other",
            "b9_an_eq_that_panics_leaves_the_triggers_before_it_accepted_and_no_other",
            "users_a_hash_that_panics_reaches_the_caller_and_the_trigger_is_not_accepted",
            "users_a_merge_that_panics_leaves_the_slot_as_merge_left_it_and_the_trigger_unaccepted",
            "users_an_eq_that_panics_reaches_the_caller_and_the_trigger_is_not_accepted",
            "users_an_order_that_panics_at_push_reaches_the_caller_and_the_trigger_is_not_accepted",
        ],
    },
    LeftOut {
        why: "a run whose end users' code prevents is in the file as it was before, for the next process",
        tests: &["users_a_panic_of_the_limiter_during_unwinding_is_caught"],
    },
    LeftOut {
        why: "what a queue says about back-offs holds in memory alone: the file still has the failures that it forgets",
        tests: &["b5_the_queues_say_is_about_adds_by_reference_too"],
    },
    LeftOut {
        why: "the end of a run tells the file of a timer that a shutdown has dropped: its value dies with the queue",
        tests: &[
            "b1_the_slot_dies_with_the_keys_last_reason_to_run",
            "unlocked_the_drop_of_a_value_whose_slot_died_may_call_the_queue",
        ],
    },
    LeftOut {
        why: "a batch is one trigger after the other, which share a transaction",
        tests: &["b9_a_hash_that_panics_leaves_a_batch_untouched"],
    },
    LeftOut {
        why: "a trigger is looked at, written, and given to memory: with metrics the clock is read for the first and the last; and with each image that has a timer",
        tests: &[
            "m_a_cycle_of_done_and_next_tells_all_and_reads_the_clock_twice",
            "rules_every_look_reads_the_clock_at_most_once",
            "rules_every_trigger_reads_the_clock_at_most_once",
            "rules_metrics_use_the_one_reading",
        ],
    },
    LeftOut {
        why: "the key is cloned for the answer of a call whose outcome is unknown, so drops are not to be counted",
        tests: &[
            "b7_a_clone_that_panics_leaves_the_queue_as_it_was",
            "b7_a_key_whose_last_run_ends_while_it_is_cloned_is_dropped_with_the_page",
            "b9_a_panic_during_unwinding_is_caught_for_each_of_a_batch",
            "b9_keys_and_values_of_a_batch_are_dropped_without_the_lock",
            "b9_users_code_that_panics_while_a_batch_is_dropped_ends_every_run",
            "x05_a_key_that_was_handed_out_is_referred_to_by_no_buffer",
            "x05_values_and_waiting_keys_that_were_dropped_are_referred_to_by_no_buffer",
        ],
    },
];

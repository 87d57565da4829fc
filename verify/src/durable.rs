//! The queue in a file behind the suite's adapter: the same tests, with every trigger and every end written.
//!
//! When a test drops its queue, the content of the file is compared with the queue in memory.

use crate::adapter::{
    Accepted, Adapter, Cancelled, Config, Counts, Down, Drained, Failed, Fallible, LeftOut, Nothing, Page,
    Polled, Rejected, Restored, Said, Seen, UnfinishedKey, Waiters, When,
};
use crate::fronts::{
    Bare, Guard, Guards, Manner, Threads, accepted, cancelled, configure, counts, down, drained, guard,
    guards, hands_out_and_looks, how, no_key, options, seen, unfinished,
};
use crate::probe::{Key, Value};
use requeue::{Added, Cursor, Only, Phase, Refused, TryGetError, Unfinished};
use requeue_engine::{AddFailed, EngineError};
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
        let listed = client.list(NAME).expect("it can be read").into_iter().map(|it| {
            let id = std::str::from_utf8(&it.key).ok().and_then(|id| id.parse::<u64>().ok());
            (id.expect("a number"), (it.status != Status::Idle, it.failures))
        });
        // a shutdown drops from memory what the next process is to run
        let over = matches!(self.queue.phase(), Phase::ShutDown | Phase::Over);
        let mut in_file: BTreeMap<_, _> = listed.collect();
        for (key, state) in self.queue.snapshot().flat_map(|page| page.keys) {
            let asked = state.ready || state.held || state.waiting_until.is_some();
            if !asked && (over || state.failures == 0) {
                continue;
            }
            // what runs is in the file as it was before
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

fn answer(answer: Result<Added, AddFailed<Key, Value>>) -> Fallible<Result<Accepted, Rejected>> {
    let AddFailed { key, value, error } = match answer {
        Ok(added) => return accepted(added).map(Ok),
        Err(failed) => failed,
    };
    let refused = match &error {
        EngineError::ShutDown => true,
        EngineError::NotApplied(why) => why.is::<Refused>(),
        _ => false,
    };
    if refused { Ok(Err(Rejected { key, value, full: false })) } else { Err(failed(&error)) }
}

fn failed(error: &impl fmt::Display) -> Failed {
    Failed(error.to_string())
}

/// Panics for a feature of the suite that a durable queue does not have.
fn lacks<T>(what: &str) -> Fallible<T> {
    Err(Failed(format!("a durable queue has no {what}")))
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
        let unfinished = if config.unfinished_retries { Unfinished::Retry } else { Unfinished::Done };
        let queue = file.queue_with::<Key, Value>(NAME, Value::merge);
        let queue = queue.front(move |front| match configure(front, config) {
            Ok(front) => front.unfinished(unfinished),
            Err(failed) => panic!("{failed:?}"),
        });
        let queue = queue.open().map_err(|error| failed(&error))?;
        Ok(Self(Arc::new(InFile { queue, folder }), PhantomData))
    }

    fn trigger(&self, said: Said) -> Fallible<Result<Accepted, Rejected>> {
        let Said { key, when, value, priority, debounce } = said;
        answer(M::op(match (when, value, priority, debounce) {
            (When::Now, None, 0, None) => self.0.add(key),
            (when, value, priority, debounce) => self.0.add_with(key, how(when, value, priority, debounce)),
        }))
    }

    /// Each trigger by itself, and then their answers: many share a transaction.
    fn trigger_many(&self, batch: Vec<Said>) -> Fallible<Vec<Result<Accepted, Rejected>>> {
        let begun = batch.into_iter().map(|said| {
            let Said { key, when, value, priority, debounce } = said;
            self.0.add_with(key, how(when, value, priority, debounce))
        });
        let begun: Vec<_> = begun.collect();
        begun.into_iter().map(|op| answer(M::op(op))).collect()
    }

    fn add_ref(&self, key: &Key) -> Fallible<Result<Accepted, ()>> {
        Ok(answer(M::op(self.0.add(key.clone())))?.map_err(drop))
    }

    fn forget(&self, key: &Key) -> Fallible<()> {
        M::op(self.0.forget(key)).map_err(|error| failed(&error))
    }

    fn restore(&self, _: Key, _: Restored, _: Option<Value>) -> Fallible<Result<Accepted, Rejected>> {
        lacks("restore: opening it is one")
    }

    fn adding(&self, _: Said, _: Option<Duration>) -> Polled<'_, Result<Accepted, Rejected>> {
        Box::pin(async { lacks("bound") })
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

    fn is_group_paused(&self, _: &Key) -> Fallible<bool> {
        lacks("groups that are paused")
    }

    fn cancel(&self, key: &Key, forget: bool) -> Fallible<Option<Cancelled>> {
        let took = M::op(if forget { self.0.cancel_and_forget(key) } else { self.0.cancel(key) });
        Ok(took.map_err(|error| failed(&error))?.map(cancelled))
    }

    fn take_unfinished(&self) -> Fallible<Vec<UnfinishedKey>> {
        Ok(unfinished(self.0.in_memory().take_unfinished()))
    }

    hands_out_and_looks!();
}

/// The functions of the suite that do not apply to a durable queue, by reason.
const LEFT_OUT: &[LeftOut] = &[
    LeftOut {
        why: "a file keeps no trigger that a limiter delays",
        fails: true,
        tests: &[
            "b1_every_accepted_trigger_merges_at_the_call_older_first",
            "b2_a_queue_without_priorities_refuses_any_but_0_and_nothing_changes",
            "b2_a_rate_limited_trigger_has_its_priority_too",
            "b2_a_trigger_without_a_priority_has_0",
            "b2_each_key_of_a_batch_has_a_priority_of_its_own",
            "b3_timers_and_retries_bring_a_key_to_its_group",
            "b4_all_triggers_for_now_are_debounced_and_no_others",
            "b5_a_queue_that_resets_still_backs_off_what_is_put_back_through_the_limiter",
            "b5_what_is_put_back_through_the_limiter_waits_out_a_failure",
            "b7_a_snapshot_tells_of_every_key_and_its_state",
            "b7_a_snapshot_tells_only_of_keys_that_are_so",
            "b7_cancel_and_forget_clears_the_failures_too",
            "b7_cancel_leaves_the_failures_on_record",
            "b7_the_totals_of_a_page_are_those_of_its_instant",
            "b9_a_batch_tells_the_metrics_of_each_key",
            "b9_a_limiter_of_ones_own_is_asked_once_for_each_in_order_and_without_the_lock",
            "b9_a_limiter_that_panics_leaves_the_triggers_before_it_accepted_and_no_other",
            "b9_a_refused_batch_gives_every_key_and_value_back_in_order",
            "b9_done_of_all_leaves_failures_and_succeed_forgets_them",
            "b9_every_batch_reads_the_clock_at_most_once",
            "b9_triggers_whose_limiter_is_asked_at_shut_down_are_dropped_and_counted",
            "d6_every_policy_may_be_used_for_a_rate_limited_key_that_waits",
            "m_each_end_of_a_run_tells_which_it_was",
            "m_retries_counts_every_accepted_add_after_and_add_rate_limited",
            "q10_triggers_after_shut_down_are_refused_visibly",
            "q14_add_rate_limited_on_the_queue_is_outside_also_for_the_key_that_one_holds",
            "q14_close_refuses_triggers_from_outside",
            "r_a_bucket_takes_a_token_for_each_accepted_call_and_ignores_the_key",
            "r_a_limiter_that_says_zero_is_add",
            "r_a_record_does_not_expire_while_its_delay_runs",
            "r_a_record_expires_after_a_time_since_the_end_of_the_last_delay_that_it_gave",
            "r_add_rate_limited_is_add_after_what_the_limiter_says",
            "r_by_default_records_never_expire",
            "r_every_accepted_call_asks_the_limiter_once_duplicates_too",
            "r_forget_clears_the_record_and_leaves_a_timer_alone",
            "r_never_as_a_delay_is_duration_max",
            "r_num_requeues_reads_the_record_which_done_leaves",
            "r_reading_does_not_extend_a_record",
            "r_records_are_the_keys_own",
            "r_the_count_is_exact_under_concurrent_calls",
            "r_the_earlier_of_two_rate_limited_calls_wins",
            "rules_a_drain_that_runs_now_runs_a_trigger_whose_limiter_is_asked",
            "rules_a_drain_that_waits_waits_for_a_trigger_whose_limiter_is_asked",
            "rules_a_refused_trigger_takes_no_token",
            "rules_a_trigger_whose_limiter_is_asked_at_shut_down_is_dropped_and_counted",
            "rules_a_trigger_whose_limiter_is_asked_when_a_drain_drops_is_counted_by_it",
            "rules_limiter_and_due_instant_use_the_one_reading",
            "unlocked_a_limiter_of_ones_own_may_call_the_queue",
            "users_a_limiter_that_panics_reaches_the_caller_and_the_trigger_is_not_accepted",
            "users_an_order_that_panics_under_a_delay_that_turns_out_to_be_none_leaves_nothing",
            "w_attempts_are_not_read_from_the_limiter",
            "x08_a_timer_is_set_relative_to_the_clock_of_its_call_although_it_moves",
        ],
    },
    LeftOut {
        why: "a file keeps no trigger that says what it does in a back-off",
        fails: true,
        tests: &[
            "b5_a_batch_says_it_key_by_key",
            "b5_a_batch_that_is_put_back_is_ready_whatever_came_meanwhile",
            "b5_a_delayed_trigger_during_a_run_that_does_not_fail_keeps_its_timer",
            "b5_a_delayed_trigger_that_resets_takes_the_place_of_the_back_off",
            "b5_a_drain_that_waits_waits_for_what_has_joined_a_back_off",
            "b5_a_key_that_has_not_failed_heeds_no_say",
            "b5_a_limiter_of_ones_own_forgets_without_the_lock_and_its_panic_is_nobodys",
            "b5_a_limiter_of_ones_own_is_told_of_a_reset_and_not_asked_for_the_retry",
            "b5_a_limiter_of_ones_own_is_told_of_a_reset_in_every_way_to_add",
            "b5_a_rate_limited_trigger_that_says_so_respects_or_resets_and_asks_once",
            "b5_a_refused_trigger_resets_nothing",
            "b5_a_reset_during_the_failed_run_makes_its_retry_a_fresh_start",
            "b5_a_respectful_trigger_gets_its_run_where_the_retry_is_refused",
            "b5_a_run_ends_the_back_off_before_it",
            "b5_a_run_that_a_trigger_brings_forward_and_that_fails_counts",
            "b5_a_timer_of_others_stays_where_a_respectful_trigger_joins",
            "b5_a_timer_that_fires_during_the_run_says_what_its_trigger_said",
            "b5_a_timer_that_run_has_moved_is_joined_too",
            "b5_a_value_of_a_trigger_that_resets_goes_to_the_fresh_start",
            "b5_a_value_that_joins_stands_behind_that_of_the_failed_run",
            "b5_an_immediate_trigger_reads_no_clock_whatever_it_says",
            "b5_attempts_go_on_where_a_trigger_respects_and_restart_where_it_does_not",
            "b5_by_default_a_trigger_in_a_back_off_runs_now_and_leaves_timer_and_failures",
            "b5_metrics_count_what_became_ready_or_dirty_and_each_retry",
            "b5_no_trigger_counts_as_a_failure_by_itself",
            "b5_of_several_during_the_run_the_strongest_wins",
            "b5_of_several_in_a_back_off_the_strongest_wins",
            "b5_reset_takes_the_timer_away_forgets_the_failures_and_runs_now",
            "b5_respect_during_the_run_of_a_retry_without_delay_gives_one_run",
            "b5_respect_during_the_run_that_fails_joins_its_back_off",
            "b5_respect_joins_the_back_offs_run_and_is_never_earlier",
            "b5_run_during_the_run_that_fails_runs_at_once",
            "b5_the_queue_has_a_say_and_the_trigger_has_the_last_word",
            "b5_timers_absorbed_go_with_their_back_off",
            "b5_under_respect_a_delayed_trigger_during_the_run_that_fails_joins_too",
            "b5_under_respect_a_delayed_trigger_joins_too_whatever_its_delay",
            "b5_what_comes_during_a_run_that_does_not_fail_gives_one_more_run_at_once",
            "b7_a_cancel_takes_back_what_triggers_said_of_a_back_off",
        ],
    },
    LeftOut {
        why: "a file keeps the earliest timer of a key, and no trigger that asks for another one",
        fails: true,
        tests: &[
            "b1_a_value_merges_whichever_timer_wins",
            "b2_adding_again_raises_a_ready_key_and_never_lowers_it",
            "b2_triggers_that_share_a_timer_raise_it_and_never_lower_it_under_every_policy",
            "b4_timers_are_not_moved_by_windows_nor_windows_by_timers",
            "b9_each_key_has_options_and_a_result_of_its_own",
            "d1_a_delay_of_zero_is_add_under_every_policy",
            "d1_a_delay_of_zero_leaves_a_timer_that_is_set_as_it_is",
            "d4_a_timer_that_was_moved_earlier_is_prompt_too",
            "d5_a_call_that_changes_the_instant_takes_a_new_place",
            "d5_a_call_that_does_not_change_the_instant_keeps_the_place",
            "d6_keep_leaves_what_is_there",
            "d6_latest_begins_a_new_window_after_the_run",
            "d6_latest_never_moves_a_timer_to_an_earlier_instant",
            "d6_latest_pushes_the_timer_back_up_to_its_maximum",
            "d6_replace_takes_the_new_instant_earlier_or_later",
            "d6_the_policy_belongs_to_the_call_and_not_to_the_key",
            "d8_any_duration_is_accepted_and_does_what_it_says",
            "r_other_triggers_ask_no_limiter",
            "rules_a_refused_trigger_changes_nothing",
            "unlocked_a_limiter_may_call_the_queue_when_a_guard_is_dropped",
            "unlocked_the_clone_of_a_detached_key_may_call_the_queue",
            "unlocked_the_drop_of_a_forgotten_key_may_call_the_queue",
            "unlocked_the_drop_of_a_key_or_value_that_is_done_may_call_the_queue",
            "unlocked_the_drop_of_a_redundant_key_may_call_the_queue",
            "w_attempts_go_on_when_a_trigger_with_a_later_timer_changes_nothing",
            "x15_the_first_keys_options_do_not_leak_into_the_rest_of_a_batch",
            "x20_a_key_does_not_stay_marked_as_scheduled",
            "x22_the_next_timer_is_prompt_when_the_soonest_is_replaced",
            "x24_a_debounce_with_a_maximum_fires_however_often_it_is_pushed_back",
        ],
    },
    LeftOut {
        why: "a file keeps no debounce",
        fails: true,
        tests: &[
            "b4_a_refused_trigger_opens_no_window",
            "b4_a_run_that_a_panic_puts_back_is_the_windows_too",
            "b4_a_run_that_comes_earlier_is_the_windows_too",
            "b4_a_trigger_says_itself_how_it_is_debounced",
            "b4_during_the_run_that_fails_each_trigger_does_what_it_says",
            "b4_in_a_back_off_each_trigger_does_what_it_says",
            "b4_nothing_of_quiet_or_of_maximum_is_no_debounce",
            "b4_the_end_closes_windows_and_their_keys_become_ready",
            "b4_the_priority_of_a_window_goes_to_the_fresh_start_and_to_no_timer_that_stays",
            "b4_triggers_for_a_held_key_open_a_window",
        ],
    },
    LeftOut {
        why: "a durable queue has no bound",
        fails: true,
        tests: &[
            "b4_a_key_with_an_open_window_has_its_place_in_a_bound",
            "b5_a_trigger_that_is_refused_makes_no_limiter_of_ones_own_forget",
            "b8_a_guard_whose_run_was_ended_does_not_count",
            "b8_a_key_counts_once_whatever_it_is",
            "b8_a_key_that_makes_room_goes_with_its_timer_and_keeps_its_failures",
            "b8_a_restore_needs_room_as_any_trigger",
            "b8_a_trigger_of_a_known_key_never_needs_room",
            "b8_a_trigger_of_one_key_too_many_is_refused_and_changes_nothing",
            "b8_a_trigger_that_does_not_wait_takes_room_when_there_is_some",
            "b8_a_trigger_that_finds_room_or_a_known_key_does_not_wait",
            "b8_a_wait_for_room_ends_at_its_deadline",
            "b8_a_wait_for_room_ends_when_there_is_some",
            "b8_a_wait_for_room_that_is_dropped_adds_nothing_and_passes_its_turn_on",
            "b8_each_trigger_of_a_batch_finds_room_or_does_not",
            "b8_failures_alone_do_not_count_and_such_a_key_needs_room",
            "b8_one_who_was_woken_for_a_key_that_is_dropped_gets_the_next",
            "b8_so_many_are_woken_as_there_is_room_for",
            "b8_the_end_refuses_those_who_wait_for_room",
            "b8_the_oldest_goes_whatever_its_priority",
            "b8_the_oldest_ready_key_makes_room_and_is_told_of",
            "b8_those_who_wait_for_room_are_let_in_in_their_order",
            "b8_what_a_holder_asks_for_needs_no_room",
            "b8_whatever_ends_a_keys_last_reason_makes_room",
            "b8_where_no_key_is_ready_none_is_dropped",
            "b8_who_waits_for_room_is_woken_when_a_key_is_ready_that_may_be_dropped",
            "b8_who_waits_for_room_is_woken_when_the_key_becomes_known",
            "m_keys_that_made_room_are_counted",
            "x26_a_bound_is_not_overshot_however_many_add_at_once",
        ],
    },
    LeftOut {
        why: "keys are paused in memory alone, so a durable queue does not offer it",
        fails: true,
        tests: &[
            "b3_a_paused_key_leaves_its_group_and_a_resumed_one_stands_at_its_back",
            "b7_a_batch_passes_paused_keys_by",
            "b7_a_close_lifts_no_pause_and_refuses_none",
            "b7_a_key_that_is_not_known_can_be_paused_and_is_known_until_it_is_resumed",
            "b7_a_pause_in_which_users_code_panics_changes_nothing",
            "b7_a_paused_key_keeps_its_priority_and_is_raised_by_what_comes",
            "b7_a_restored_key_may_be_paused",
            "b7_a_resumed_key_goes_to_the_back_of_the_line",
            "b7_a_snapshot_tells_only_of_keys_of_paused_groups",
            "b7_a_timer_of_a_paused_key_fires_and_the_key_does_not_stand_in_line",
            "b7_gets_pass_a_paused_key_by_and_it_counts_in_len",
            "b7_pauses_do_not_add_up",
            "b7_the_run_of_a_paused_key_goes_on_and_what_follows_from_it_waits",
            "b7_what_ends_the_queue_lifts_all_pauses_and_refuses_later_ones",
            "b7_who_waits_sleeps_through_a_pause_and_a_resume_wakes_as_many_as_there_are_keys",
            "b7_with_max_wait_a_resumed_key_ages_anew",
            "m_depth_by_priority_counts_paused_keys_that_are_ready",
            "m_depth_by_priority_is_told_of_more_priorities_than_a_lock_hold_looks_at",
            "m_groups_that_have_a_name_tell_how_many_of_their_keys_are_ready_and_held",
        ],
    },
    LeftOut {
        why: "groups are paused in memory alone, so a durable queue does not offer it",
        fails: true,
        tests: &[
            "b3_an_overdue_key_goes_by_its_age_and_not_by_when_it_entered_the_line",
            "b6_a_group_that_is_paused_and_without_a_token_waits_for_both",
            "b7_a_batch_and_priorities_and_ages_pass_a_paused_group_by",
            "b7_a_group_at_its_cap_that_is_paused_and_resumed_is_at_its_cap",
            "b7_a_group_without_known_keys_can_be_paused_and_is_until_it_is_resumed",
            "b7_a_paused_groups_keys_stay_ready_and_are_not_handed_out",
            "b7_a_pause_of_a_group_ages_none_of_its_keys",
            "b7_pauses_of_a_group_and_of_the_queue_that_overlap_count_once",
            "b7_a_queue_without_groups_pauses_none",
            "b7_a_resumed_group_comes_behind_those_that_wait",
            "b7_pauses_of_a_group_do_not_add_up",
            "b7_runs_of_a_paused_group_go_on_and_what_follows_from_them_waits",
            "b7_what_ends_the_queue_lifts_the_pauses_of_groups_and_refuses_later_ones",
            "b7_who_waits_is_woken_by_the_resume_of_a_group",
        ],
    },
    LeftOut {
        why: "a rate is lifted in memory alone, so a durable queue does not offer it",
        fails: true,
        tests: &[
            "b6_a_drain_keeps_to_the_rates_of_groups_and_to_lift_them_ends_that",
            "b6_a_rate_that_is_lifted_holds_nobody_up_any_more",
            "b6_to_lift_the_rates_of_many_groups_lets_all_of_them_go",
        ],
    },
    LeftOut {
        why: "a durable queue is restored by opening its file",
        fails: true,
        tests: &[
            "b3_a_restored_key_is_in_its_group",
            "b7_a_refused_restore_gives_key_and_value_back_and_changes_nothing",
            "b7_a_restore_in_which_users_code_panics_restores_nothing",
            "b7_a_restored_key_is_ready_with_its_failures_attempt_and_value",
            "b7_a_restored_key_waits_out_a_failure_if_it_has_failed",
            "b7_a_restored_key_waits_until_its_due_instant_and_keeps_its_attempt",
            "b7_a_restored_key_wakes_who_waits",
            "b7_a_trigger_for_a_restored_key_that_waits_out_a_failure_is_attempt_1",
            "b7_failures_are_not_restored_where_the_limiter_counts_them_itself",
            "b7_restored_failures_expire_like_others",
            "b7_to_a_key_that_is_known_a_restore_is_a_trigger_and_the_more_failures_stay",
            "q11_the_list_goes_on_in_another_queue_by_restore",
        ],
    },
    LeftOut {
        why: "users' code that panics does so when the trigger is written: the call says that its outcome is unknown",
        fails: false,
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
        fails: false,
        tests: &["users_a_panic_of_the_limiter_during_unwinding_is_caught"],
    },
    LeftOut {
        why: "what a queue says about back-offs holds in memory alone: the file still has the failures that it forgets",
        fails: false,
        tests: &["b5_the_queues_say_is_about_adds_by_reference_too"],
    },
    LeftOut {
        why: "the end of a run tells the file of a timer that a shutdown has dropped: its value dies with the queue",
        fails: true,
        tests: &[
            "b1_the_slot_dies_with_the_keys_last_reason_to_run",
            "unlocked_the_drop_of_a_value_whose_slot_died_may_call_the_queue",
        ],
    },
    LeftOut {
        why: "a batch is one trigger after the other, which share a transaction",
        fails: false,
        tests: &["b9_a_hash_that_panics_leaves_a_batch_untouched"],
    },
    LeftOut {
        why: "a trigger is looked at, written, and given to memory: with metrics the clock is read for the first and the last; and with each image that has a timer",
        fails: false,
        tests: &[
            "m_a_cycle_of_done_and_next_tells_all_and_reads_the_clock_twice",
            "rules_every_look_reads_the_clock_at_most_once",
            "rules_every_trigger_reads_the_clock_at_most_once",
            "rules_metrics_use_the_one_reading",
        ],
    },
    LeftOut {
        why: "the key is cloned for the answer of a call whose outcome is unknown, so drops are not to be counted",
        fails: false,
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

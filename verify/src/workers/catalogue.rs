//! The names of all tests of workers, so that each front can make a `#[test]` of each.
//! `tests/promises.rs` checks that none is missing.

/// Makes a `#[test]` of each named function of a file of this suite.
#[macro_export]
macro_rules! worker_tests {
    ($front:ty, $file:ident: $($name:ident,)*) => {$(
        #[test]
        fn $name() {
            $crate::watchdog::run(stringify!($name), $crate::workers::$file::$name::<$front>);
        }
    )*};
}

/// Runs, their outcomes and attempts.
#[macro_export]
macro_rules! w_runs {
    ($front:ty) => {
        $crate::worker_tests! {
            $front, w_runs:
            w_workers_take_keys_and_call_the_handler,
            w_n_workers_run_n_keys_at_once_and_no_more,
            b2_a_run_tells_its_priority_and_every_outcome_keeps_it,
            w_a_handler_may_call_the_queue,
            w_no_workers_are_a_pause,
            w_done_forgets_the_failures,
            w_again_is_not_a_failure_it_forgets_and_comes_back_after_its_delay,
            w_retry_comes_back_after_what_the_limiter_says,
            w_retry_with_its_own_delay_still_asks_the_limiter,
            w_give_up_is_reported_and_forgotten,
            w_give_up_of_a_dirty_key_still_gets_its_next_run_at_attempt_1,
            w_the_last_attempt_that_fails_gives_the_key_up,
            x27_attempts_are_not_exhausted_for_a_key_that_a_newer_trigger_made_dirty,
            w_a_trigger_for_a_key_that_waits_out_a_failure_runs_now_at_attempt_1,
            b5_a_workers_own_outcome_is_no_trigger_and_its_handlers_echo_joins_it,
            b5_attempts_of_a_worker_run_out_although_its_key_echoes_itself,
            b5_a_reset_during_a_workers_failed_run_is_a_fresh_start,
            w_a_panic_is_a_failure_of_that_key_and_ends_nothing_else,
            w_a_panic_of_the_handler_before_it_gives_its_future_is_a_failure_too,
            w_an_order_that_panics_as_a_key_is_taken_ends_no_worker,
            w_a_clock_that_panics_as_a_run_begins_or_ends_loses_neither_key_nor_outcome,
            w_a_panic_in_a_hook_ends_nothing,
            w_the_end_of_a_run_is_told_with_its_attempt_and_the_keys_fate,
            w_the_end_of_each_run_is_told_once_whatever_the_way_and_how_long_it_took,
            w_the_end_of_a_run_past_its_time_limit_is_told_when_its_handler_is_gone,
            w_a_key_that_is_given_up_because_the_limiter_panicked_is_forgotten,
            w_a_retry_in_which_merge_panics_is_a_retry_and_no_giving_up,
            w_payloads_of_failed_runs_go_back,
            w_a_run_that_its_handler_keeps_reads_its_key_while_the_worker_runs_others,
            w_a_handler_may_return_nothing_or_a_result,
            x07_ten_thousand_duplicate_triggers_take_one_token_a_run,
            r_the_worker_lets_records_expire,
            b7_a_cancel_during_a_run_takes_what_was_to_follow_and_not_the_run,
        }
    };
}

/// W, Q11: unfinished keys after a drain.
#[macro_export]
macro_rules! w_drains {
    ($front:ty) => {
        $crate::worker_tests! {
            $front, w_drains:
            w_a_drain_accounts_for_every_key_and_on_give_up_hears_of_the_unfinished_ones,
            w_a_drain_with_a_deadline_works_failed_keys_off,
            w_a_drain_of_the_queue_tells_its_workers_of_unfinished_keys,
        }
    };
}

/// Time limits, and how workers end.
#[macro_export]
macro_rules! w_ends {
    ($front:ty) => {
        $crate::worker_tests! {
            $front, w_ends:
            w_a_run_that_returns_within_its_time_limit_is_no_failure,
            w_a_run_that_returns_past_its_time_limit_is_a_failure_whatever_it_says,
            w_past_its_time_limit_a_run_that_says_again_or_give_up_has_failed_all_the_same,
            w_stop_takes_no_more_keys_leaves_the_ready_ones_and_reports_them,
            w_stop_ends_workers_that_wait_for_a_key,
            w_drain_works_the_ready_keys_off_and_shuts_the_queue_down,
            w_drain_is_complete_when_the_last_run_has_ended_whoever_has_it,
            w_past_its_deadline_a_drain_says_what_is_held_by_others,
            w_drain_that_waits_works_retries_off_too,
            w_a_stop_that_races_with_runs_loses_no_key,
            w_dropping_the_workers_handle_detaches_it_and_its_workers_end_with_the_queue,
            w_a_worker_is_not_a_handle_of_the_queue,
        }
    };
}

/// The number of workers is changed while they run.
#[macro_export]
macro_rules! w_resize {
    ($front:ty) => {
        $crate::worker_tests! {
            $front, w_resize:
            w_resized_up_more_keys_run_at_once,
            w_more_workers_than_there_can_be_are_an_error_of_resize,
            w_resized_down_surplus_workers_leave_after_their_run,
            w_resized_down_workers_that_wait_for_a_key_leave_at_once,
            w_resized_to_0_is_a_pause_until_the_next_resize,
            w_a_worker_that_begins_with_none_can_be_resized,
            w_resizing_to_and_fro_loses_no_key_and_leaves_the_last_number,
            w_a_worker_that_was_stopped_or_is_over_is_not_resized,
            w_a_worker_that_is_stopped_or_resized_while_it_looks_for_a_key_leaves,
            w_time_limits_hold_for_workers_that_come_later,
        }
    };
}

/// Workers on demand.
#[macro_export]
macro_rules! w_demand {
    ($front:ty) => {
        $crate::worker_tests! {
            $front, w_demand:
            w_on_demand_a_key_that_waits_brings_a_worker_and_nothing_else_does,
            w_on_demand_there_are_as_many_as_keys_wait_for_and_at_most_the_upper_end,
            w_on_demand_a_worker_that_waits_takes_the_key_and_no_other_comes,
            w_on_demand_idle_workers_leave_down_to_the_lower_end,
            w_on_demand_a_timer_that_comes_due_brings_a_worker,
            w_on_demand_a_retry_comes_back_although_all_have_left,
            w_on_demand_no_key_is_lost_however_workers_come_and_leave,
            w_on_demand_a_resize_takes_a_number_and_a_range,
            w_on_demand_stop_leaves_the_keys_and_nobody_comes_any_more,
            w_on_demand_a_drain_is_worked_off_by_those_who_come_for_it,
            w_on_demand_join_waits_for_those_who_may_still_come,
            w_on_demand_a_detached_worker_ends_with_the_queue_and_leaves_nothing_behind,
            w_on_demand_a_stopped_worker_leaves_nothing_behind,
            w_on_demand_a_range_that_cannot_be_is_an_error,
        }
    };
}

/// Async handlers that are dropped before they have returned.
#[macro_export]
macro_rules! w_dropped {
    ($front:ty) => {
        $crate::worker_tests! {
            $front, w_dropped:
            w_past_its_time_limit_an_async_handler_is_dropped_and_its_key_comes_back,
            w_past_the_deadline_of_stop_async_handlers_are_dropped_and_their_keys_go_back,
            w_past_the_deadline_of_drain_async_handlers_are_dropped_and_counted,
            w_past_the_deadline_of_a_drain_that_waits_async_handlers_are_dropped,
            w_the_last_attempt_that_is_dropped_gives_the_key_up,
            w_the_end_of_a_run_that_is_cancelled_is_told_once,
            w_a_handler_that_panics_as_it_is_dropped_ends_nothing,
            w_a_thousand_async_workers_run_a_thousand_keys_at_once_and_are_resized,
            w_handlers_that_never_end_hold_up_nobody_else,
            w_a_handler_may_stop_its_own_worker,
        }
    };
}

/// Tests that hold for every worker.
#[macro_export]
macro_rules! worker_conformance {
    ($front:ty) => {
        $crate::w_runs!($front);
        $crate::w_ends!($front);
        $crate::w_drains!($front);
        $crate::w_resize!($front);
        $crate::w_demand!($front);
    };
}

/// Tests for every worker whose handlers can be dropped.
#[macro_export]
macro_rules! async_worker_conformance {
    ($front:ty) => {
        $crate::worker_conformance!($front);
        $crate::w_dropped!($front);
    };
}

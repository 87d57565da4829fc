//! The names of all tests, so that each front can make a `#[test]` of each.
//! `tests/promises.rs` checks that none is missing.

/// Makes a `#[test]` of each named function of a file of the suite.
#[macro_export]
macro_rules! tests {
    ($adapter:ty, $file:ident: $($name:ident,)*) => {$(
        #[test]
        fn $name() {
            $crate::suite::run::<$adapter>(stringify!($name), $crate::suite::$file::$name::<$adapter>);
        }
    )*};
}

/// B5: triggers in a back-off.
#[macro_export]
macro_rules! b_backoff {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_backoff:
            b5_by_default_a_trigger_in_a_back_off_runs_now_and_leaves_timer_and_failures,
            b5_respect_joins_the_back_offs_run_and_is_never_earlier,
            b5_reset_takes_the_timer_away_forgets_the_failures_and_runs_now,
            b5_respect_during_the_run_that_fails_joins_its_back_off,
            b5_respect_during_the_run_of_a_retry_without_delay_gives_one_run,
            b5_run_during_the_run_that_fails_runs_at_once,
            b5_a_reset_during_the_failed_run_makes_its_retry_a_fresh_start,
            b5_what_comes_during_a_run_that_does_not_fail_gives_one_more_run_at_once,
            b5_of_several_during_the_run_the_strongest_wins,
            b5_of_several_in_a_back_off_the_strongest_wins,
            b5_the_queue_has_a_say_and_the_trigger_has_the_last_word,
            b5_the_queues_say_is_about_adds_by_reference_too,
            b5_under_respect_a_delayed_trigger_joins_too_whatever_its_delay,
            b5_under_respect_a_delayed_trigger_during_the_run_that_fails_joins_too,
            b5_a_timer_that_fires_during_the_run_says_what_its_trigger_said,
            b5_a_delayed_trigger_during_a_run_that_does_not_fail_keeps_its_timer,
            b5_a_timer_of_others_stays_where_a_respectful_trigger_joins,
            b5_a_delayed_trigger_that_resets_takes_the_place_of_the_back_off,
            b5_a_timer_that_run_has_moved_is_joined_too,
            b5_no_trigger_counts_as_a_failure_by_itself,
            b5_a_run_that_a_trigger_brings_forward_and_that_fails_counts,
            b5_a_key_that_has_not_failed_heeds_no_say,
            b5_a_run_ends_the_back_off_before_it,
            b5_a_value_that_joins_stands_behind_that_of_the_failed_run,
            b5_a_value_of_a_trigger_that_resets_goes_to_the_fresh_start,
            b5_attempts_go_on_where_a_trigger_respects_and_restart_where_it_does_not,
            b5_a_batch_says_it_key_by_key,
            b5_what_is_put_back_through_the_limiter_waits_out_a_failure,
            b5_a_queue_that_resets_still_backs_off_what_is_put_back_through_the_limiter,
            b5_a_rate_limited_trigger_that_says_so_respects_or_resets_and_asks_once,
            b5_a_refused_trigger_resets_nothing,
            b5_a_respectful_trigger_gets_its_run_where_the_retry_is_refused,
            b5_a_drain_that_waits_waits_for_what_has_joined_a_back_off,
            b5_a_batch_that_is_put_back_is_ready_whatever_came_meanwhile,
            b5_timers_absorbed_go_with_their_back_off,
            b5_a_key_that_fails_and_echoes_itself_runs_as_often_as_one_that_does_not,
            b5_twenty_events_in_200_ms_are_no_twenty_failures,
        }
    };
}

/// B5 with limiters of the user's own, metrics, the clock, users' code.
#[macro_export]
macro_rules! b_backoff_rules {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_backoff_rules:
            b5_a_limiter_of_ones_own_is_told_of_a_reset_and_not_asked_for_the_retry,
            b5_a_limiter_of_ones_own_is_told_of_a_reset_in_every_way_to_add,
            b5_a_trigger_that_is_refused_makes_no_limiter_of_ones_own_forget,
            b5_a_limiter_of_ones_own_forgets_without_the_lock_and_its_panic_is_nobodys,
            b5_a_merge_that_panics_resets_nothing,
            b5_metrics_count_what_became_ready_or_dirty_and_each_retry,
            b5_an_immediate_trigger_reads_no_clock_whatever_it_says,
        }
    };
}

/// B9: batches.
#[macro_export]
macro_rules! b_batch {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_batch:
            b9_keys_are_added_in_slice_order,
            b9_a_key_that_comes_twice_in_a_batch_coalesces_older_value_first,
            b9_each_key_has_options_and_a_result_of_its_own,
            b9_an_empty_batch_is_nothing,
            b9_a_refused_batch_gives_every_key_and_value_back_in_order,
            b9_get_up_to_n_takes_what_is_ready_and_no_more,
            b9_keys_that_were_taken_together_are_held_each,
            b9_get_up_to_n_waits_until_it_can_hand_out_a_key,
            b9_at_the_deadline_keys_come_before_shut_down_before_timed_out,
            b9_a_get_up_to_n_times_out_at_its_deadline,
            b9_timers_that_are_due_at_once_are_handed_out_together,
            b9_keys_are_taken_only_in_the_poll_that_returns_them,
            b9_items_are_ended_all_at_once_dropped_or_one_by_one,
            b9_done_of_all_leaves_failures_and_succeed_forgets_them,
            b9_items_that_are_dropped_retry_each_by_option,
            b9_done_and_get_the_next_hands_out_the_next,
            b9_done_and_get_the_next_ends_the_runs_at_the_first_poll_or_at_the_drop,
            b9_a_run_ended_by_key_is_ended_once_in_a_batch_too,
            b9_the_ends_of_a_batch_tell_who_waits,
            b9_shut_down_counts_a_batch_key_by_key,
        }
    };
}

/// B9 and the opening rules: clock, metrics, wake-ups, users' code.
#[macro_export]
macro_rules! b_batch_rules {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_batch_rules:
            b9_every_batch_reads_the_clock_at_most_once,
            b9_a_trigger_during_the_runs_of_a_batch_is_not_taken_for_redundant,
            b9_a_batch_tells_the_metrics_of_each_key,
            b9_a_batch_wakes_one_who_passes_on_what_it_leaves,
            b9_a_getter_of_many_that_leaves_passes_the_wake_up_on,
            b9_a_batch_goes_to_the_next_beside_one_that_does_not_come,
            b9_a_merge_that_panics_leaves_the_triggers_before_it_accepted_and_no_other,
            b9_an_eq_that_panics_leaves_the_triggers_before_it_accepted_and_no_other,
            b9_a_hash_that_panics_leaves_a_batch_untouched,
            b9_a_limiter_of_ones_own_is_asked_once_for_each_in_order_and_without_the_lock,
            b9_a_limiter_that_panics_leaves_the_triggers_before_it_accepted_and_no_other,
            b9_triggers_whose_limiter_is_asked_at_shut_down_are_dropped_and_counted,
            b9_an_order_that_panics_at_a_later_pop_hands_nothing_out_and_loses_no_key,
            b9_a_wrong_order_changes_the_order_of_a_batch_and_nothing_else,
            b9_users_code_that_panics_while_a_batch_is_dropped_ends_every_run,
            b9_a_panic_during_unwinding_is_caught_for_each_of_a_batch,
            b9_a_batch_that_is_put_back_tells_the_metrics_of_no_end_and_no_add,
            b9_a_batch_that_is_taken_and_dropped_while_another_panic_unwinds_is_done,
            b9_keys_and_values_of_a_batch_are_dropped_without_the_lock,
            b9_the_waker_that_a_batch_wakes_may_call_the_queue,
        }
    };
}

/// B2, B3 and B7: overdue keys.
#[macro_export]
macro_rules! b_overdue {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_overdue:
            b2_a_key_is_overdue_once_it_has_been_ready_for_max_wait,
            b2_one_of_every_8_hand_outs_goes_to_the_oldest_overdue_key,
            b2_a_setting_says_how_often_an_overdue_key_goes,
            b2_a_backlog_older_than_max_wait_does_not_turn_the_order_round,
            b2_an_overdue_key_with_m_older_ones_goes_within_n_times_m_plus_1_hand_outs,
            b2_a_batch_that_is_taken_ages_too,
            b2_a_raise_does_not_make_a_key_younger,
            b2_age_counts_from_when_the_key_became_ready,
            b2_with_a_max_wait_of_nothing_every_key_is_overdue_and_with_one_without_end_none,
            b2_hand_outs_that_find_no_key_do_not_count,
            b7_a_pause_of_the_queue_ages_no_key,
            b7_a_pause_of_a_group_ages_none_of_its_keys,
            b7_pauses_of_a_group_and_of_the_queue_that_overlap_count_once,
            b7_with_max_wait_a_resumed_key_ages_anew,
            b3_without_priorities_max_wait_changes_nothing,
            b3_with_max_wait_an_overdue_key_waits_for_the_turn_of_its_group,
            b3_with_priorities_within_groups_one_of_every_8_hand_outs_of_a_group_goes_to_its_oldest,
            b3_a_group_that_has_no_ready_key_begins_its_hand_outs_anew,
            b3_with_max_wait_a_group_at_its_cap_is_passed_over_and_the_oldest_of_the_others_goes,
            b3_an_overdue_key_goes_by_its_age_and_not_by_when_it_entered_the_line,
        }
    };
}

/// B2, and the mistakes about priorities.
#[macro_export]
macro_rules! b_priority {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_priority:
            b2_higher_priorities_go_first_and_equal_ones_in_the_order_of_becoming_ready,
            b2_a_trigger_without_a_priority_has_0,
            b2_a_queue_with_priorities_that_nobody_uses_is_first_in_first_out,
            b2_adding_again_raises_a_ready_key_and_never_lowers_it,
            b2_a_raised_key_keeps_its_age_and_goes_before_equals_that_became_ready_later,
            b2_a_timer_applies_its_priority_when_it_fires_and_not_before,
            b2_a_timer_that_fires_lowers_nothing,
            b2_triggers_that_share_a_timer_raise_it_and_never_lower_it_under_every_policy,
            b2_a_rate_limited_trigger_has_its_priority_too,
            b2_a_dirty_key_takes_the_highest_of_the_triggers_during_its_run,
            b2_a_retry_keeps_the_priority_of_its_run,
            b2_a_retry_of_a_dirty_key_raises_its_next_run_when_the_retry_is_due,
            b2_a_retry_joins_a_timer_that_is_set_and_raises_it,
            b2_a_guard_that_is_dropped_without_a_word_keeps_the_priority_by_option,
            b2_runs_that_a_panic_puts_back_keep_their_priorities,
            b2_the_item_tells_the_priority_of_its_run_whatever_comes_during_it,
            b2_each_key_of_a_batch_has_a_priority_of_its_own,
            b2_a_drain_hands_out_by_priority_and_timers_that_it_fires_have_theirs,
            b2_without_max_wait_a_key_is_passed_over_for_as_long_as_higher_ones_come,
            b2_a_queue_without_priorities_refuses_any_but_0_and_nothing_changes,
            x12_the_priority_that_is_handed_out_is_that_of_this_run_and_of_no_other,
            x13_an_urgent_ready_key_is_not_behind_less_urgent_ones_that_were_due_earlier,
            x16_raising_a_priority_keeps_the_order_within_the_level,
            x18_a_priority_is_not_lost_on_retry,
        }
    };
}

/// B8, and the mistake about it.
#[macro_export]
macro_rules! b_bound {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_bound:
            b8_a_trigger_of_one_key_too_many_is_refused_and_changes_nothing,
            b8_a_trigger_of_a_known_key_never_needs_room,
            b8_a_key_counts_once_whatever_it_is,
            b8_failures_alone_do_not_count_and_such_a_key_needs_room,
            b8_a_guard_whose_run_was_ended_does_not_count,
            b8_what_a_holder_asks_for_needs_no_room,
            b8_whatever_ends_a_keys_last_reason_makes_room,
            b8_each_trigger_of_a_batch_finds_room_or_does_not,
            b8_a_restore_needs_room_as_any_trigger,
            b8_a_wait_for_room_ends_when_there_is_some,
            b8_a_trigger_that_finds_room_or_a_known_key_does_not_wait,
            b8_those_who_wait_for_room_are_let_in_in_their_order,
            b8_so_many_are_woken_as_there_is_room_for,
            b8_a_wait_for_room_that_is_dropped_adds_nothing_and_passes_its_turn_on,
            b8_who_waits_for_room_is_woken_when_the_key_becomes_known,
            b8_who_waits_for_room_is_woken_when_a_key_is_ready_that_may_be_dropped,
            b8_the_end_refuses_those_who_wait_for_room,
            b8_a_wait_for_room_ends_at_its_deadline,
            b8_a_trigger_that_does_not_wait_takes_room_when_there_is_some,
            b8_the_oldest_ready_key_makes_room_and_is_told_of,
            b8_where_no_key_is_ready_none_is_dropped,
            b8_a_key_that_makes_room_goes_with_its_timer_and_keeps_its_failures,
            b8_the_oldest_goes_whatever_its_priority,
            b8_one_who_was_woken_for_a_key_that_is_dropped_gets_the_next,
            x26_a_bound_is_not_overshot_however_many_add_at_once,
        }
    };
}

/// B4: debounce.
#[macro_export]
macro_rules! b_debounce {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_debounce:
            b4_a_key_runs_once_no_trigger_has_come_for_the_quiet_time,
            b4_it_runs_at_the_latest_the_maximum_after_the_windows_first_trigger,
            b4_by_default_the_maximum_is_ten_times_the_quiet_time,
            b4_a_maximum_below_the_quiet_time_ends_each_window,
            b4_nothing_of_quiet_or_of_maximum_is_no_debounce,
            b4_a_trigger_says_itself_how_it_is_debounced,
            b4_all_triggers_for_now_are_debounced_and_no_others,
            b4_triggers_for_a_ready_key_coalesce,
            b4_triggers_for_a_held_key_open_a_window,
            b4_timers_are_not_moved_by_windows_nor_windows_by_timers,
            b4_a_timer_beside_a_window_keeps_its_place_among_equals,
            b4_a_run_that_comes_earlier_is_the_windows_too,
            b4_with_a_leading_edge_the_first_trigger_runs_at_once,
            b4_later_triggers_in_a_leading_window_give_one_trailing_run,
            b4_a_leading_trigger_for_a_ready_key_coalesces_and_pushes_nothing_back,
            b4_values_merge_at_each_trigger_of_a_window,
            b4_a_window_applies_its_highest_priority_at_its_end,
            b4_in_a_back_off_each_trigger_does_what_it_says,
            b4_during_the_run_that_fails_each_trigger_does_what_it_says,
            b4_an_open_window_is_waiting_and_a_cancel_takes_it,
            b4_the_end_closes_windows_and_their_keys_become_ready,
            b4_a_drain_that_waits_waits_until_windows_end,
            b4_the_priority_of_a_window_goes_to_the_fresh_start_and_to_no_timer_that_stays,
            b4_a_drain_waits_for_no_window_that_owes_no_run,
            b4_who_waits_is_woken_when_a_window_ends,
            b4_a_window_that_is_due_ends_before_a_trigger_for_its_key,
            b4_a_run_that_a_panic_puts_back_is_the_windows_too,
            b4_timers_absorbed_absorbs_no_window,
            b4_a_key_with_an_open_window_has_its_place_in_a_bound,
            b4_a_refused_trigger_opens_no_window,
            x24_a_debounce_fires_however_many_triggers_come,
        }
    };
}

/// B3.
#[macro_export]
macro_rules! b_groups {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_groups:
            b3_groups_take_turns_and_within_a_group_the_first_goes_first,
            b3_a_queue_whose_keys_are_one_group_is_first_in_first_out,
            b3_a_group_has_as_many_keys_in_its_turn_as_its_weight_says,
            b3_a_group_without_a_ready_key_loses_the_rest_of_its_turn,
            b3_no_more_keys_of_a_group_are_held_than_its_cap,
            b3_each_group_has_a_cap_of_its_own,
            b3_every_end_of_a_run_makes_room_under_the_cap,
            b3_a_detached_run_and_an_inert_guard_count_for_the_cap_as_long_as_the_run_goes_on,
            b3_a_group_that_leaves_its_cap_comes_behind_those_that_wait,
            b3_a_getter_that_waits_while_a_group_is_at_its_cap_is_woken_by_the_end_of_a_run,
            b3_threads_and_tasks_that_wait_share_what_the_caps_leave,
            b3_while_a_group_waits_each_other_is_served_at_most_its_weight,
            b3_what_groups_get_by_weight_never_drifts_apart_by_more_than_two,
            b3_a_noisy_group_delays_others_by_its_weight_and_not_by_its_keys,
            b3_by_default_the_highest_priority_goes_first_and_groups_take_turns_within_it,
            b3_priorities_within_groups_do_not_change_whose_turn_it_is,
            b3_a_group_at_its_cap_is_skipped_at_every_priority,
            b3_turns_and_caps_hold_within_a_batch,
            b3_a_dirty_key_goes_to_the_back_of_its_group_when_its_run_ends,
            b3_timers_and_retries_bring_a_key_to_its_group,
            b3_a_cancelled_key_leaves_its_group_and_frees_no_place_under_the_cap,
            b3_a_restored_key_is_in_its_group,
            b3_a_paused_key_leaves_its_group_and_a_resumed_one_stands_at_its_back,
            b3_runs_that_a_panic_puts_back_make_room_under_the_cap,
            b3_caps_hold_in_a_drain_and_it_is_complete_all_the_same,
            b3_after_shut_down_a_getter_waits_for_the_cap_and_is_told_the_end_at_last,
            b3_groups_come_and_go_and_a_group_that_comes_back_is_a_new_one,
            b3_a_queue_with_groups_alone_refuses_a_priority,
        }
    };
}

/// B7: cancel, restore, snapshot.
#[macro_export]
macro_rules! b_control {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_control:
            b7_cancel_takes_ready_waiting_and_the_value_and_tells_them,
            b7_cancel_takes_dirty_and_the_run_goes_on,
            b7_a_trigger_after_a_cancel_during_the_run_makes_the_key_dirty_again,
            b7_the_retry_of_a_run_whose_key_was_cancelled_is_taken,
            b7_a_cancel_takes_back_what_triggers_said_of_a_back_off,
            b7_cancel_leaves_the_failures_on_record,
            b7_cancel_and_forget_clears_the_failures_too,
            b7_there_is_nothing_to_cancel_of_an_unknown_or_a_clean_held_key,
            b7_a_cancelled_key_that_is_added_again_goes_to_the_back_at_attempt_1,
            b7_cancel_fires_what_is_due_before_it_answers,
            b7_cancel_takes_a_key_from_the_middle_of_the_line,
            b7_an_order_of_ones_own_hears_of_a_cancel,
            b7_a_drain_is_complete_when_a_cancel_takes_the_last_key,
            b7_a_cancel_of_the_last_key_tells_those_who_wait_that_it_is_over,
            b7_one_who_was_woken_for_a_key_that_is_cancelled_gets_the_next,
            b7_cancel_works_on_a_queue_that_takes_no_more_triggers,
            b7_a_restored_key_is_ready_with_its_failures_attempt_and_value,
            b7_a_restored_key_waits_until_its_due_instant_and_keeps_its_attempt,
            b7_a_trigger_for_a_restored_key_that_waits_out_a_failure_is_attempt_1,
            b7_a_restored_key_waits_out_a_failure_if_it_has_failed,
            b7_to_a_key_that_is_known_a_restore_is_a_trigger_and_the_more_failures_stay,
            b7_a_refused_restore_gives_key_and_value_back_and_changes_nothing,
            b7_a_restored_key_wakes_who_waits,
            b7_a_snapshot_tells_of_every_key_and_its_state,
            b7_a_snapshot_tells_only_of_keys_that_are_so,
            b7_the_totals_of_a_page_are_those_of_its_instant,
            b7_a_snapshot_fires_what_is_due_before_it_looks,
            b7_a_walk_meets_every_key_that_stays_known_although_those_that_it_has_met_go,
            b7_a_snapshot_of_an_empty_queue_is_one_page_without_keys,
            b7_a_walk_in_pages_tells_once_of_each_key_that_is_there_all_the_time,
        }
    };
}

/// B6: dispatch rate.
#[macro_export]
macro_rules! b_rate {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_rate:
            b6_the_burst_goes_at_once_and_then_a_key_as_often_as_the_rate_says,
            b6_no_rounding_is_carried_on,
            b6_ready_without_a_token_is_empty_and_not_shut_down,
            b6_a_duplicate_costs_nothing,
            b6_what_is_cancelled_or_waits_costs_nothing,
            b6_a_batch_gets_as_many_keys_as_there_are_tokens,
            b6_a_retry_and_what_is_put_back_take_a_token_each_time,
            b6_a_drain_keeps_to_the_rate,
            b6_the_next_token_is_for_whom_the_order_says,
            b6_every_order_keeps_to_the_rate,
            b6_a_rate_that_is_lifted_holds_nobody_up_any_more,
        }
    };
}

/// B6: wake-ups.
#[macro_export]
macro_rules! b_rate_rules {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_rate:
            b6_who_waits_is_woken_when_the_token_is_there,
            b6_a_key_that_comes_before_its_token_wakes_who_waits_at_the_token,
            b6_a_paused_queue_wakes_nobody_for_a_token,
        }
    };
}

/// B7: pause and resume.
#[macro_export]
macro_rules! b_pause {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_pause:
            b7_a_paused_queue_hands_nothing_out_and_counts_what_is_ready,
            b7_runs_go_on_and_timers_fire_while_the_queue_is_paused,
            b7_pauses_do_not_add_up,
            b7_gets_pass_a_paused_key_by_and_it_counts_in_len,
            b7_a_batch_passes_paused_keys_by,
            b7_a_key_that_is_not_known_can_be_paused_and_is_known_until_it_is_resumed,
            b7_the_run_of_a_paused_key_goes_on_and_what_follows_from_it_waits,
            b7_a_timer_of_a_paused_key_fires_and_the_key_does_not_stand_in_line,
            b7_a_resumed_key_goes_to_the_back_of_the_line,
            b7_a_paused_key_keeps_its_priority_and_is_raised_by_what_comes,
            b7_what_ends_the_queue_lifts_all_pauses_and_refuses_later_ones,
            b7_a_close_lifts_no_pause_and_refuses_none,
            b7_a_queue_with_paused_ready_keys_is_not_over,
            b7_a_restored_key_may_be_paused,
        }
    };
}

/// B7: a panic of users' code in a pause, and the wake-ups of a resume.
#[macro_export]
macro_rules! b_pause_rules {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_pause:
            b7_a_pause_in_which_users_code_panics_changes_nothing,
            b7_who_waits_sleeps_through_a_pause_and_a_resume_wakes_as_many_as_there_are_keys,
        }
    };
}

/// B7 and the opening rules: users' code.
#[macro_export]
macro_rules! b_control_rules {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_control_rules:
            b7_a_key_that_was_cancelled_is_not_handed_out_whatever_the_order_says,
            b7_a_cancelled_key_and_its_value_are_dropped_without_the_lock,
            b7_a_cancel_in_which_eq_or_hash_panics_changes_nothing,
            b7_a_cancel_over_which_the_order_panics_changes_nothing,
            b7_failures_are_not_restored_where_the_limiter_counts_them_itself,
            b7_restored_failures_expire_like_others,
            b7_a_restore_in_which_users_code_panics_restores_nothing,
            b7_keys_are_cloned_for_a_page_without_the_lock,
            b7_a_key_whose_last_run_ends_while_it_is_cloned_is_dropped_with_the_page,
            b7_a_run_that_begins_and_ends_while_its_key_is_cloned_is_as_any_other,
            b7_a_clone_that_panics_leaves_the_queue_as_it_was,
        }
    };
}

/// B1, B7's `state`, and of B10 FIFO, LIFO and the user's own order.
#[macro_export]
macro_rules! b_value {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_value:
            b1_a_trigger_may_carry_a_value_and_get_hands_it_out,
            b1_every_accepted_trigger_merges_at_the_call_older_first,
            b1_a_value_merges_whichever_timer_wins,
            b1_get_hands_key_and_value_out_together_and_leaves_an_empty_slot,
            b1_an_empty_slot_hands_out_none,
            b1_a_value_for_a_held_key_is_for_the_next_run,
            b1_a_retry_merges_the_old_value_in_front_of_what_came_meanwhile,
            b1_a_retry_puts_the_value_back_for_its_own_run,
            b1_a_value_that_was_taken_out_is_not_put_back,
            b1_again_is_no_failure_and_puts_no_value_back,
            b1_done_drops_the_value_of_its_run_and_keeps_the_next_ones,
            b1_the_slot_dies_with_the_keys_last_reason_to_run,
            b1_a_value_that_came_with_an_absorbed_timer_is_handed_out_with_the_run,
            b1_a_slot_lives_as_long_as_a_timer_is_left,
            b1_a_slot_of_a_dirty_key_survives_the_drop_of_its_timer,
            b1_detach_hands_key_and_value_out,
            b7_state_tells_what_is_known_of_a_key,
            b7_state_fires_what_is_due_before_it_looks,
            b10_fifo_is_the_default,
            b10_lifo_hands_out_what_became_ready_last,
            b10_lifo_puts_a_dirty_key_on_top_at_done,
            b10_an_order_of_ones_own_decides_what_comes_next,
            b10_an_order_of_ones_own_is_told_of_touches,
            b10_an_order_of_ones_own_hears_of_timers_and_dirty_keys,
            b10_a_wrong_order_changes_the_order_and_nothing_else,
            b1_values_are_dropped_once_each,
        }
    };
}

/// D1, D2, D3, D5, D6: when a waiting key becomes ready.
#[macro_export]
macro_rules! d_timers {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, d_timers:
            d1_a_delay_of_zero_is_add_under_every_policy,
            d1_a_delay_of_zero_leaves_a_timer_that_is_set_as_it_is,
            d2_a_second_timer_keeps_the_earlier_due_instant,
            d2_any_number_of_timers_for_one_key_are_one,
            d3_a_key_is_never_handed_out_before_its_due_instant,
            d3_the_due_instant_counts_from_the_call,
            d5_timers_become_ready_in_the_order_of_their_due_instants,
            d5_equal_due_instants_become_ready_in_the_order_of_the_calls,
            d5_equal_due_instants_set_at_different_times_keep_the_order_of_the_calls,
            d5_a_call_that_does_not_change_the_instant_keeps_the_place,
            d5_a_call_that_changes_the_instant_takes_a_new_place,
            d5_a_key_that_a_look_made_ready_stands_before_a_key_added_afterwards,
            d6_an_immediate_add_of_a_waiting_key_makes_it_ready_and_leaves_the_timer_armed,
            d6_a_timer_that_fires_for_a_ready_key_changes_nothing,
            d6_a_timer_that_fires_for_a_held_key_makes_it_dirty,
            d6_a_timer_that_fires_for_a_dirty_key_changes_nothing,
            d6_state_tells_every_combination_with_waiting,
            d6_by_default_a_run_leaves_earlier_timers_armed,
            d6_timers_absorbed_a_run_that_starts_absorbs_the_timers_set_before_it,
            d6_timers_absorbed_a_run_that_starts_absorbs_back_offs_too,
            d6_timers_absorbed_keeps_those_set_during_the_run,
            d6_timers_absorbed_absorbs_nothing_while_the_key_is_only_ready,
            d6_latest_pushes_the_timer_back_up_to_its_maximum,
            d6_latest_never_moves_a_timer_to_an_earlier_instant,
            d6_latest_begins_a_new_window_after_the_run,
            d6_replace_takes_the_new_instant_earlier_or_later,
            d6_keep_leaves_what_is_there,
            d6_the_policy_belongs_to_the_call_and_not_to_the_key,
            d6_every_policy_may_be_used_for_a_rate_limited_key_that_waits,
        }
    };
}

/// D4, D7-D10: promptness, sizes, shutdown, the clock.
#[macro_export]
macro_rules! d_wait {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, d_wait:
            d4_a_timer_wakes_a_waiting_get_at_its_due_instant_without_another_call,
            d4_a_timer_set_after_the_wait_began_is_prompt_too,
            d4_a_sooner_timer_set_after_the_wait_began_is_prompt_too,
            d4_a_timer_that_was_moved_earlier_is_prompt_too,
            d4_every_due_key_finds_a_getter_when_all_are_waiting,
            d4_a_worker_that_waits_in_its_own_manner_gets_the_key_at_its_due_instant,
            d4_a_sooner_timer_reaches_a_worker_that_waits_in_its_own_manner,
            d4_promotion_shows_wherever_one_looks,
            d7_add_after_never_waits_whatever_the_number_of_waiting_keys,
            d8_any_duration_is_accepted_and_does_what_it_says,
            d8_a_waiting_get_sleeps_through_a_far_future_delay,
            d8_requeue_and_retry_take_any_duration,
            d9_shut_down_drops_the_timers_and_counts_them,
            d9_shut_down_fires_what_is_due_before_it_drops_the_rest,
            d9_no_alarm_outlives_the_shut_down,
            d9_a_drain_drops_waiting_keys_by_default,
            d9_a_drain_can_run_waiting_keys_now_in_the_order_of_their_instants,
            d9_a_drain_that_runs_waiting_keys_now_wakes_a_getter,
            d9_a_drain_can_wait_for_waiting_keys,
            d10_all_time_comes_from_the_queues_clock,
            d10_a_clock_that_goes_back_makes_nothing_early,
            d10_a_step_over_many_instants_at_once_keeps_their_order,
        }
    };
}

/// M: metrics of the queue.
#[macro_export]
macro_rules! m_metrics {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, m_metrics:
            m_depth_is_the_number_of_ready_keys_and_not_of_dirty_ones,
            m_adds_counts_keys_that_became_ready_or_dirty,
            m_adds_counts_retries_when_they_become_ready,
            m_retries_counts_every_accepted_add_after_and_add_rate_limited,
            m_retries_counts_what_holders_put_back,
            m_queue_duration_runs_from_the_first_trigger_of_the_run,
            m_queue_duration_of_a_dirty_key_includes_the_run_that_it_waited_for,
            m_queue_duration_of_a_timer_begins_at_the_due_instant,
            m_work_duration_runs_from_the_hand_out_to_done,
            m_a_cycle_of_done_and_next_tells_all_and_reads_the_clock_twice,
            m_unfinished_and_longest_running_are_computed_when_they_are_read,
            m_longest_running_is_right_whichever_run_ends_first,
            m_gauges_equal_the_state_at_and_after_shutdown,
            m_gauges_are_gone_with_the_queue,
            m_nothing_ticks,
            m_metrics_are_the_queues_own,
            m_a_queue_without_metrics_and_timers_reads_no_clock,
            m_a_drain_and_its_drops_are_told_once,
            m_a_sink_may_call_the_queue,
            m_a_sink_that_panics_loses_no_key,
            m_coalesced_counts_accepted_triggers_that_changed_nothing,
            m_coalesced_counts_each_of_many_redundant_adds,
            m_each_end_of_a_run_tells_which_it_was,
            m_a_metered_queue_forgets_at_each_end_that_forgets,
            m_a_run_whose_retry_is_refused_is_done,
            m_lateness_runs_from_the_due_instant_to_who_looks,
            m_lateness_is_not_told_of_timers_that_a_drain_fires_or_drops,
            m_gauges_count_waiting_held_and_dirty_keys,
            m_the_oldest_ready_key_is_the_one_that_became_ready_first,
            m_the_oldest_ready_key_is_right_in_an_order_of_ones_own,
        }
    };
}

/// M: metrics of the queue's parts.
#[macro_export]
macro_rules! m_parts {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, m_parts:
            m_depth_by_priority_counts_the_ready_keys_of_each_priority,
            m_depth_by_priority_counts_paused_keys_that_are_ready,
            m_depth_by_priority_is_told_of_more_priorities_than_a_lock_hold_looks_at,
            m_a_queue_without_priorities_and_groups_tells_of_none,
            m_groups_that_have_a_name_tell_how_many_of_their_keys_are_ready_and_held,
            m_groups_are_told_of_that_are_more_than_a_lock_hold_looks_at,
            m_keys_that_made_room_are_counted,
        }
    };
}

/// B7: pause and resume of groups.
#[macro_export]
macro_rules! b_pause_group {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_pause_group:
            b7_a_paused_groups_keys_stay_ready_and_are_not_handed_out,
            b7_a_resumed_group_comes_behind_those_that_wait,
            b7_pauses_of_a_group_do_not_add_up,
            b7_a_group_without_known_keys_can_be_paused_and_is_until_it_is_resumed,
            b7_a_queue_without_groups_pauses_none,
            b7_runs_of_a_paused_group_go_on_and_what_follows_from_them_waits,
            b7_a_group_at_its_cap_that_is_paused_and_resumed_is_at_its_cap,
            b7_a_batch_and_priorities_and_ages_pass_a_paused_group_by,
            b7_a_snapshot_tells_only_of_keys_of_paused_groups,
            b7_what_ends_the_queue_lifts_the_pauses_of_groups_and_refuses_later_ones,
            b7_who_waits_is_woken_by_the_resume_of_a_group,
        }
    };
}

/// B6: the rate of each group.
#[macro_export]
macro_rules! b_rate_group {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, b_rate_group:
            b6_each_group_has_a_rate_of_its_own_and_one_without_a_token_is_passed_by,
            b6_a_group_that_leaves_and_comes_back_has_the_tokens_that_it_would_have,
            b6_no_group_has_more_than_its_burst_and_rate_however_it_comes_and_goes,
            b6_a_duplicate_costs_a_group_nothing,
            b6_a_getter_waits_for_the_token_of_a_group_and_is_woken_by_it,
            b6_a_batch_has_of_each_group_as_many_keys_as_it_has_tokens,
            b6_a_drain_keeps_to_the_rates_of_groups_and_to_lift_them_ends_that,
            b6_to_lift_the_rates_of_many_groups_lets_all_of_them_go,
            b6_a_group_that_is_paused_and_without_a_token_waits_for_both,
        }
    };
}

/// Q14: close, and drains that wait.
#[macro_export]
macro_rules! q_close {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, q_close:
            q14_close_refuses_triggers_from_outside,
            q14_close_takes_what_a_holder_asks_for_the_key_that_it_holds,
            q14_add_rate_limited_on_the_queue_is_outside_also_for_the_key_that_one_holds,
            q14_after_close_alone_getters_wait_and_shutting_down_is_true,
            q14_close_keeps_timers,
            q14_a_drain_that_waits_works_retries_off_too,
            q14_a_drain_that_waits_refuses_outside_triggers_at_once,
            q14_a_drain_that_waits_shuts_down_when_nothing_is_left_and_tells_the_getters,
            q14_a_drain_that_waits_shuts_down_although_nobody_polls_it,
            q14_a_drain_that_waits_shuts_down_at_its_deadline,
            q14_a_drain_that_waits_shuts_down_at_its_deadline_however_late_one_looks,
            q14_every_other_drain_refuses_a_holders_retry_tells_it_and_counts_it,
            q14_a_drain_that_waits_on_a_queue_that_is_shut_down_takes_no_retries,
            q14_a_close_after_shut_down_opens_nothing,
            q14_a_drain_that_waits_works_off_in_its_own_manner_of_waiting,
            q14_again_zero_by_a_holder_is_taken_after_close,
            q14_a_queue_that_is_not_closed_accepts,
        }
    };
}

/// Q12: an implicit done, and the explicit ends of a guard.
#[macro_export]
macro_rules! q_done {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, q_done:
            q12_dropping_the_guard_is_done,
            q12_dropping_the_guard_is_done_after_shut_down_and_during_drains,
            q12_dropping_the_guard_is_done_during_unwinding,
            q12_the_guard_may_be_dropped_on_another_thread_and_after_the_queue,
            q12_an_owned_guard_is_the_same_run,
            q12_by_option_a_guard_dropped_without_a_word_ends_as_retry_does,
            q12_by_option_an_unwinding_guard_retries_with_its_attempt_counted,
            q12_by_option_a_guard_that_says_done_is_done,
            q12_by_option_a_dropped_guard_whose_retry_is_refused_is_done_and_counted_as_left,
            q12_by_default_a_dropped_guard_asks_no_limiter,
            q12_a_refused_retry_gives_the_guard_back_with_its_payload,
            q12_done_and_get_the_next_hands_out_the_next,
            q12_done_and_get_the_next_of_a_dirty_key_may_be_the_same_key,
            q12_done_and_get_the_next_ends_the_run_at_the_first_poll,
            q12_done_and_get_the_next_ends_the_run_at_the_drop_of_the_future,
            q12_dropping_done_and_get_the_next_after_a_wake_up_loses_no_key,
            q12_done_for_a_key_that_is_not_held_is_an_error_value,
            q12_the_guard_free_pair_hands_out_the_key_and_done_ends_the_run,
            q12_a_guard_whose_run_was_ended_by_key_is_inert_and_its_key_stays_readable,
            q12_no_word_of_an_inert_guard_ends_another_run,
            q12_an_inert_guard_keeps_its_key_readable_after_the_queue_has_forgotten_it,
            q12_a_detached_run_holds_its_key_until_done_by_key,
        }
    };
}

/// Q12: a panic unwinds through a batch.
#[macro_export]
macro_rules! q_unwind {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, q_unwind:
            q12_items_inside_a_batch_are_put_back_when_a_panic_unwinds_through_it,
            q12_items_inside_the_iterator_of_a_batch_are_put_back_and_one_taken_out_ends_by_itself,
            q12_what_is_put_back_keeps_its_attempt_and_its_failures,
            q12_what_is_put_back_merges_its_payload_in_front_of_what_came_meanwhile,
            q12_what_is_put_back_leaves_a_timer_alone,
            q12_what_is_put_back_on_a_queue_that_is_over_is_in_line_and_gets_its_run,
            q12_a_getter_that_is_told_the_end_before_comes_again_for_what_is_put_back,
            q12_what_is_put_back_counts_as_no_run_that_was_done,
            q12_what_is_put_back_wakes_who_waits_for_keys,
            q12_a_run_that_was_ended_by_key_is_not_put_back,
        }
    };
}

/// Q11: keys that a drain leaves unfinished.
#[macro_export]
macro_rules! q_unfinished {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, q_unfinished:
            q11_a_drain_with_a_deadline_works_off_keys_that_wait_out_a_failure,
            q11_what_still_waits_out_a_failure_at_the_deadline_is_in_the_list,
            q11_timers_that_no_failure_set_are_dropped_and_in_the_list,
            q11_without_a_deadline_keys_that_wait_out_a_failure_are_dropped_too,
            q11_a_drain_that_is_told_to_drop_drops_keys_that_wait_out_a_failure,
            q11_a_refused_retry_is_in_the_list_unless_its_run_ends_well_all_the_same,
            q11_a_dropped_guard_whose_retry_is_refused_leaves_its_key_unfinished,
            q11_done_and_get_the_next_after_a_refused_retry_leaves_the_value_in_the_list,
            q11_where_a_key_is_dirty_its_next_run_decides_after_a_refused_retry,
            q11_a_drain_that_works_failed_keys_off_refuses_again_after_a_time,
            q11_a_key_that_is_ready_as_well_stays_in_the_list_until_its_run_has_ended,
            q11_a_timer_that_the_run_to_come_absorbs_is_not_in_the_list,
            q11_several_drains_have_one_list_which_is_handed_out_once,
            q11_shut_down_during_a_drain_lists_what_it_drops,
            q11_a_drain_that_nobody_waits_for_keeps_its_list_for_the_next,
            q11_a_cancelled_key_leaves_the_list_and_its_value_is_in_the_answer,
            q11_the_list_goes_on_in_another_queue_by_restore,
        }
    };
}

/// Q11: shut_down_with_drain.
#[macro_export]
macro_rules! q_drain {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, q_drain:
            q11_an_empty_queue_is_drained_at_once,
            q11_a_drain_refuses_outside_triggers_at_once_before_it_is_polled,
            q11_a_drain_waits_for_ready_keys,
            q11_a_drain_waits_for_held_keys,
            q11_a_drain_waits_for_the_run_of_a_dirty_key,
            q11_the_done_of_the_last_key_wakes_the_drain,
            q11_several_drains_return_together,
            q11_several_drains_return_together_in_their_own_manner_of_waiting,
            q11_the_latest_drain_decides_about_waiting_keys,
            q11_shut_down_called_later_drops_the_timers_and_releases_all_drains,
            q11_shut_down_releases_a_drain_that_waits_in_its_own_manner,
            q11_a_drain_has_a_deadline_past_which_the_queue_stays_shut_down,
            q11_the_deadline_ends_a_drain_that_waits_in_its_own_manner,
            q11_a_drain_that_is_complete_at_its_deadline_is_complete,
            q11_a_deadline_of_any_length_is_accepted,
            q11_the_answer_counts_what_was_done_dropped_and_refused_since_the_drain_began,
            q11_each_drain_counts_since_it_began_itself,
            q11_ready_keys_are_handed_out_during_a_drain_and_then_get_says_shut_down,
            q11_a_drain_after_shut_down_waits_for_what_is_left,
            q11_dropping_a_drain_leaves_the_others_and_the_queue_as_they_are,
        }
    };
}

/// Q5-Q8: freshness, many to many, the forms of get, cancellation.
#[macro_export]
macro_rules! q_get {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, q_get:
            q5_after_an_add_a_run_starts_that_sees_what_was_written_before_it,
            q5_an_add_during_a_run_is_not_satisfied_by_that_run,
            q6_many_producers_and_consumers_threads_and_tasks_share_one_queue,
            q7_get_waits_until_it_can_hand_out_a_key,
            q7_a_waiting_get_is_woken_by_an_add,
            q7_a_waiting_get_is_woken_by_the_done_of_a_dirty_key,
            q7_get_says_shut_down_when_the_queue_is_shut_down_and_nothing_is_left,
            q7_a_waiting_get_is_woken_by_shut_down_and_says_so,
            q7_get_does_not_say_shut_down_while_a_held_key_is_dirty,
            q7_the_done_of_the_last_dirty_key_tells_the_other_getters_of_the_end,
            q7_a_held_key_that_is_not_dirty_does_not_delay_the_end,
            q7_get_does_not_say_shut_down_while_a_key_waits_under_a_drain_that_waits,
            q8_try_get_does_not_wait,
            q8_a_get_with_a_deadline_times_out_at_its_deadline,
            q8_a_waiting_get_with_a_deadline_times_out_in_its_own_manner_of_waiting,
            q8_a_get_with_a_deadline_gets_a_key_that_comes_before_it,
            q8_at_the_deadline_a_key_comes_before_shut_down_before_timed_out,
            q8_a_timer_due_at_the_deadline_is_handed_out,
            q8_a_deadline_in_the_past_is_try_get,
            q8_a_deadline_of_any_length_is_accepted,
            q8_a_key_is_taken_only_in_the_poll_that_returns_it,
            q8_dropping_a_get_that_was_never_polled_loses_nothing,
            q8_dropping_a_get_that_was_woken_loses_no_key,
            q8_dropping_a_get_that_was_woken_passes_the_wake_up_on,
            q8_dropping_the_get_that_watches_the_clock_leaves_another_to_watch,
            q8_a_get_is_polled_with_another_waker_and_wakes_the_latest,
            q8_dropping_a_get_with_a_deadline_takes_its_alarm_back,
        }
    };
}

/// Q1-Q4 and Q9: the ready line, de-duplication, single flight.
#[macro_export]
macro_rules! q_line {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, q_line:
            q1_keys_are_handed_out_in_the_order_in_which_they_became_ready,
            q1_order_holds_across_keys_that_come_and_go,
            q1_a_key_that_becomes_ready_at_done_stands_behind_those_that_were_ready_before,
            q2_a_ready_key_that_is_added_again_gives_one_entry_and_one_run,
            q2_a_ready_key_that_is_added_again_stays_where_it_is_in_line,
            q2_a_key_that_is_done_may_be_added_anew,
            q2_add_by_reference_is_add,
            q3_a_held_key_is_not_handed_out_again_before_it_is_done,
            q3_no_two_workers_ever_hold_one_key,
            q4_a_trigger_for_a_held_key_makes_it_dirty_and_ready_at_done,
            q4_a_dirty_key_goes_to_the_back_of_the_line,
            q4_any_number_of_triggers_during_a_run_give_one_more_run,
            q4_every_run_that_is_triggered_gives_one_more_and_no_further,
            q4_an_untriggered_run_gives_no_further_run,
            q9_len_is_the_number_of_ready_keys_and_the_others_are_counted_apart,
            q9_len_counts_a_key_whose_due_instant_has_come,
            q9_a_key_that_is_waiting_and_ready_or_held_counts_as_both,
        }
    };
}

/// Q10: shut_down, from any thread, in any state, any number of times.
#[macro_export]
macro_rules! q_shut {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, q_shut:
            q10_triggers_after_shut_down_are_refused_visibly,
            q10_ready_keys_are_still_handed_out,
            q10_a_held_dirty_key_still_gets_its_run,
            q10_a_trigger_for_a_key_that_is_ready_or_held_is_refused_too,
            q10_any_number_of_calls_in_any_state_neither_panics_nor_hangs,
            q10_shut_down_from_many_threads_at_once,
            q10_shut_down_during_drains_and_closes_from_many_threads,
            q10_dropping_the_last_handle_is_shut_down,
            q10_a_guard_or_a_waiting_getter_is_not_a_handle,
            q10_dropping_a_handle_that_is_not_the_last_changes_nothing,
            q10_a_holders_retry_is_refused_and_the_guard_comes_back,
            q10_shut_down_counts_refused_triggers_and_apart_refused_retries,
            q10_shut_down_is_seen_by_a_get_that_waits_in_its_own_manner,
            q10_a_get_begun_before_and_polled_after_shut_down_ends,
        }
    };
}

/// R: add_rate_limited, forget and num_requeues of the queue, and how long
#[macro_export]
macro_rules! r_limit {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, r_limit:
            r_add_rate_limited_is_add_after_what_the_limiter_says,
            r_a_limiter_that_says_zero_is_add,
            r_never_as_a_delay_is_duration_max,
            r_every_accepted_call_asks_the_limiter_once_duplicates_too,
            r_other_triggers_ask_no_limiter,
            r_the_earlier_of_two_rate_limited_calls_wins,
            r_forget_clears_the_record_and_leaves_a_timer_alone,
            r_forget_of_an_unknown_key_is_nothing,
            r_num_requeues_reads_the_record_which_done_leaves,
            r_records_are_the_keys_own,
            r_retry_asks_once_and_succeed_forgets,
            r_retry_after_asks_once_and_again_and_give_up_forget,
            r_a_bucket_takes_a_token_for_each_accepted_call_and_ignores_the_key,
            r_the_count_is_exact_under_concurrent_calls,
            r_a_record_expires_after_a_time_since_the_end_of_the_last_delay_that_it_gave,
            r_reading_does_not_extend_a_record,
            r_by_default_records_never_expire,
            r_a_record_does_not_expire_while_its_delay_runs,
            r_an_expired_record_of_a_key_that_is_worked_on_counts_from_the_beginning,
        }
    };
}

/// The opening rules: one clock reading a call, and a refused trigger changes
#[macro_export]
macro_rules! rules {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, rules:
            rules_every_trigger_reads_the_clock_at_most_once,
            rules_every_look_reads_the_clock_at_most_once,
            rules_every_hand_out_reads_the_clock_at_most_once,
            rules_every_end_of_a_run_reads_the_clock_at_most_once,
            rules_every_shutdown_reads_the_clock_at_most_once,
            rules_a_waiting_get_reads_the_clock_once_a_poll_and_not_in_between,
            rules_limiter_and_due_instant_use_the_one_reading,
            rules_metrics_use_the_one_reading,
            rules_a_call_with_a_delay_takes_a_due_timer_of_its_own_key_as_fired_first,
            rules_an_add_or_the_end_of_a_run_fires_nothing,
            rules_timers_due_by_the_reading_fire_by_instant_then_by_call_before_any_look,
            rules_many_timers_due_at_once_fire_as_if_at_once,
            rules_a_refused_trigger_changes_nothing,
            rules_a_refused_trigger_takes_no_token,
            rules_a_refused_retry_asks_no_limiter_and_counts_no_retry,
            rules_a_trigger_whose_limiter_is_asked_at_shut_down_is_dropped_and_counted,
            rules_a_trigger_whose_limiter_is_asked_when_a_drain_drops_is_counted_by_it,
            rules_a_drain_that_waits_waits_for_a_trigger_whose_limiter_is_asked,
            rules_a_drain_that_runs_now_runs_a_trigger_whose_limiter_is_asked,
            rules_a_retry_whose_limiter_is_asked_at_shut_down_is_dropped_and_the_run_ends,
        }
    };
}

/// Tests of what runs outside the lock: wakers, limiters, drops, clones, the clock. Each
#[macro_export]
macro_rules! unlocked {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, unlocked:
            unlocked_a_waker_may_call_the_queue,
            unlocked_the_waker_of_a_drain_may_call_the_queue,
            unlocked_a_waker_may_take_the_key_that_it_was_woken_for,
            unlocked_dropping_a_get_may_call_the_queue_through_the_drop_of_its_waker,
            unlocked_a_limiter_of_ones_own_may_call_the_queue,
            unlocked_a_limiter_may_call_the_queue_when_a_guard_is_dropped,
            unlocked_the_drop_of_a_redundant_key_may_call_the_queue,
            unlocked_the_drop_of_a_key_or_value_that_is_done_may_call_the_queue,
            unlocked_the_drop_of_a_waiting_key_at_shut_down_may_call_the_queue,
            unlocked_the_drop_of_a_value_whose_slot_died_may_call_the_queue,
            unlocked_the_drop_of_a_forgotten_key_may_call_the_queue,
            unlocked_the_clone_of_a_detached_key_may_call_the_queue,
            unlocked_a_clock_may_call_the_queue,
        }
    };
}

/// Users' code that panics, in every place where it may run.
#[macro_export]
macro_rules! users {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, users:
            users_a_hash_that_panics_reaches_the_caller_and_the_trigger_is_not_accepted,
            users_an_eq_that_panics_reaches_the_caller_and_the_trigger_is_not_accepted,
            users_a_merge_that_panics_leaves_the_slot_as_merge_left_it_and_the_trigger_unaccepted,
            users_a_merge_that_panics_in_a_retry_still_ends_the_run,
            users_a_merge_that_panics_in_again_still_ends_the_run,
            users_an_order_that_panics_at_push_reaches_the_caller_and_the_trigger_is_not_accepted,
            users_an_order_that_panics_under_a_delay_that_turns_out_to_be_none_leaves_nothing,
            users_an_order_that_panics_at_touch_reaches_the_caller_and_changes_nothing,
            users_an_order_that_panics_at_pop_reaches_the_caller_and_loses_no_key,
            users_an_order_that_panics_when_a_run_ends_still_ends_it_and_loses_no_key,
            users_an_order_that_panics_when_a_timer_fires_loses_no_key,
            users_a_limiter_that_panics_reaches_the_caller_and_the_trigger_is_not_accepted,
            users_a_limiter_that_panics_in_a_retry_reaches_the_caller_and_holds_nothing_up,
            users_a_limiter_that_panics_at_forget_reaches_the_caller_and_the_run_ends,
            users_a_panic_of_the_limiter_during_unwinding_is_caught,
            users_a_panic_of_merge_during_unwinding_is_caught,
            users_a_panic_of_the_order_during_unwinding_is_caught,
            users_a_panic_of_a_drop_during_unwinding_is_caught,
            users_a_panic_of_a_waker_during_unwinding_is_caught,
            users_a_drop_that_panics_reaches_the_caller_and_the_run_has_ended,
            users_a_waker_that_panics_loses_no_key_and_no_other_wake_up,
        }
    };
}

/// The attempts of W, as the guards of the queue count them, and their outcomes.
#[macro_export]
macro_rules! w_attempts {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, w_attempts:
            w_attempts_count_the_runs_that_failed_in_a_row,
            w_attempts_are_the_keys_own,
            w_attempts_are_not_read_from_the_limiter,
            w_attempts_restart_when_a_trigger_makes_the_held_key_dirty,
            w_attempts_restart_when_a_timer_set_during_the_run_makes_the_key_dirty,
            w_attempts_restart_when_a_timer_set_before_the_hand_out_makes_the_key_dirty,
            w_attempts_restart_when_a_trigger_readies_a_key_that_waits_out_a_failure,
            w_attempts_restart_when_a_trigger_with_a_sooner_timer_readies_it,
            w_attempts_go_on_when_a_trigger_with_a_later_timer_changes_nothing,
            w_attempts_restart_when_a_timer_set_before_the_hand_out_readies_it,
            w_attempts_a_trigger_for_a_key_that_is_ready_changes_nothing,
            w_attempts_a_retry_at_once_is_the_next_attempt,
            w_attempts_again_after_is_not_a_failure_it_forgets,
            w_attempts_give_up_forgets_and_a_dirty_key_still_gets_its_next_run_at_attempt_1,
            w_retry_with_its_own_delay_still_asks_the_limiter_and_replaces_its_delay,
            w_retry_of_a_dirty_key_runs_now_and_after_the_back_off,
            w_attempts_of_a_back_off_that_outlives_another_run_restart,
            w_attempts_restart_when_an_older_back_off_readies_it,
            w_attempts_end_with_a_run_that_does_not_fail,
            w_attempts_survive_a_close_and_a_drain_that_waits,
        }
    };
}

/// X: mistakes of other queues, as far as they apply here.
#[macro_export]
macro_rules! x_mistakes {
    ($adapter:ty) => {
        $crate::tests! {
            $adapter, x_mistakes:
            x01_a_drain_does_not_return_while_ready_keys_are_left,
            x02_drains_and_getters_that_wait_together_all_wake_up,
            x02_shut_down_racing_two_drains_leaves_nobody_asleep,
            x03_done_without_get_duplicates_no_entry,
            x04_a_second_shutdown_does_not_panic,
            x05_a_key_that_was_handed_out_is_referred_to_by_no_buffer,
            x05_values_and_waiting_keys_that_were_dropped_are_referred_to_by_no_buffer,
            x06_a_drain_leaves_no_alarm_behind,
            x08_a_timer_is_set_relative_to_the_clock_of_its_call_although_it_moves,
            x09_get_after_shutdown_does_not_hang,
            x10_a_wake_up_at_shutdown_that_calls_the_queue_does_not_deadlock,
            x11_the_ready_order_may_change_while_it_is_worked_off,
            x14_the_depth_gauge_is_len_at_every_step,
            x15_the_first_keys_options_do_not_leak_into_the_rest_of_a_batch,
            x19_a_consumer_that_feeds_its_own_queue_does_not_deadlock,
            x20_a_key_does_not_stay_marked_as_scheduled,
            x21_a_far_future_delay_does_not_panic,
            x22_the_next_timer_is_prompt_when_the_soonest_is_replaced,
            x22_the_next_timer_is_prompt_when_the_soonest_is_absorbed,
            x22_the_next_timer_is_prompt_when_the_soonest_is_cancelled,
            x23_the_value_handed_out_is_not_stale,
            x24_under_overload_every_key_runs_in_the_order_in_which_it_was_due,
            x24_a_debounce_with_a_maximum_fires_however_often_it_is_pushed_back,
            x25_key_and_payload_do_not_race,
            x27_a_newer_trigger_gives_the_key_its_attempts_back,
            x28_an_exponential_delay_does_not_overflow,
            x29_a_drain_does_not_wait_for_a_timer_when_the_getters_have_left,
            x29_a_drain_that_waits_is_told_of_the_end_although_nobody_gets,
            x29_a_drain_ends_at_the_deadline_of_the_latest_although_that_one_has_left,
            x30_what_was_written_before_a_redundant_add_is_visible_to_the_run,
            x11_an_order_that_changes_at_every_step_loses_no_key,
        }
    };
}

/// Makes a `#[test]` of every function of the suite.
#[macro_export]
macro_rules! conformance {
    ($adapter:ty) => {
        $crate::b_backoff!($adapter);
        $crate::b_backoff_rules!($adapter);
        $crate::b_batch!($adapter);
        $crate::b_batch_rules!($adapter);
        $crate::b_bound!($adapter);
        $crate::b_debounce!($adapter);
        $crate::b_priority!($adapter);
        $crate::b_groups!($adapter);
        $crate::b_overdue!($adapter);
        $crate::b_pause_group!($adapter);
        $crate::b_rate_group!($adapter);
        $crate::b_control!($adapter);
        $crate::b_pause!($adapter);
        $crate::b_rate!($adapter);
        $crate::b_control_rules!($adapter);
        $crate::b_pause_rules!($adapter);
        $crate::b_rate_rules!($adapter);
        $crate::b_value!($adapter);
        $crate::d_timers!($adapter);
        $crate::d_wait!($adapter);
        $crate::m_metrics!($adapter);
        $crate::m_parts!($adapter);
        $crate::q_close!($adapter);
        $crate::q_done!($adapter);
        $crate::q_drain!($adapter);
        $crate::q_get!($adapter);
        $crate::q_line!($adapter);
        $crate::q_shut!($adapter);
        $crate::q_unfinished!($adapter);
        $crate::q_unwind!($adapter);
        $crate::r_limit!($adapter);
        $crate::rules!($adapter);
        $crate::unlocked!($adapter);
        $crate::users!($adapter);
        $crate::w_attempts!($adapter);
        $crate::x_mistakes!($adapter);
    };
}

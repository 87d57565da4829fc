//! The names of all tests, so that each front can make a `#[test]` of each.
//! `tests/promises.rs` checks that none is missing.

/// Makes a `#[test]` of each named function of a file of the suite.
#[macro_export]
macro_rules! tests {
    ($adapter:ty, $file:ident: $($name:ident,)*) => {$(
        #[test]
        fn $name() {
            $crate::watchdog::run(stringify!($name), $crate::suite::$file::$name::<$adapter>);
        }
    )*};
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

//! The suite against the reference model: what both know of the contract must
//! agree before either is believed.

use requeue_verify::reference::Reference;

requeue_verify::q_line!(Reference);
requeue_verify::q_get!(Reference);
requeue_verify::q_shut!(Reference);
requeue_verify::q_drain!(Reference);
requeue_verify::q_done!(Reference);
requeue_verify::q_unfinished!(Reference);
requeue_verify::q_unwind!(Reference);
requeue_verify::q_close!(Reference);
requeue_verify::d_timers!(Reference);
requeue_verify::d_wait!(Reference);
requeue_verify::b_backoff!(Reference);
requeue_verify::b_batch!(Reference);
requeue_verify::b_bound!(Reference);
requeue_verify::b_control!(Reference);
requeue_verify::b_debounce!(Reference);
requeue_verify::b_pause!(Reference);
requeue_verify::b_rate!(Reference);
requeue_verify::b_priority!(Reference);
requeue_verify::b_groups!(Reference);
requeue_verify::b_overdue!(Reference);
requeue_verify::b_pause_group!(Reference);
requeue_verify::b_rate_group!(Reference);
requeue_verify::b_value!(Reference);
requeue_verify::w_attempts!(Reference);

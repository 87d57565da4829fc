#!/usr/bin/env bash
# The models of waiting and waking, and of redundant adds that take no lock: see
# verify/LOOM.md. Then the latter once more with what their proof needs left out,
# part by part: a model that still passes shows nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="${RUSTFLAGS:-} --cfg requeue_loom"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
cargo test --profile loom --locked -p requeue-verify --test loom "$@"
cargo test --profile loom --locked -p requeue --lib loom_ "$@"

# fails PART MESSAGE MODEL...: each model fails without that part, and says so (the
# message is an extended regular expression)
fails() {
    local part=$1 message=$2 output
    local where=(-p requeue-verify --test loom)
    [[ $3 != lock::* ]] || where=(-p requeue --lib)
    shift 2
    for model in "$@"; do
        if output=$(REQUEUE_FAULT=$part cargo test --profile loom --locked "${where[@]}" \
            -- --exact "$model" 2>&1); then
            echo "$model passes without $part" >&2
            exit 1
        fi
        if ! grep -qE "$message" <<<"$output"; then
            echo "$model fails without $part, but not by \"$message\":" >&2
            echo "$output" >&2
            exit 1
        fi
        echo "$model fails without $part, as it must"
    done
}

stale="the last run saw less than was written"
late="accepted after the end"
fresh=(
    filter::loom_q5_what_is_written_before_an_add_without_the_lock_is_seen
    filter::loom_q5_what_is_written_before_an_add_of_a_held_key_without_the_lock_is_seen
    filter::loom_q5_what_is_written_before_an_add_is_seen_whose_entry_goes_to_another_key
)
fails adder_barrier "$stale" "${fresh[@]}"
fails getter_barrier "$stale" "${fresh[@]}"
missed="an add after the cancel was taken for redundant"
fails adder_barrier "$missed" filter::loom_b7_an_add_after_a_cancel_gives_a_run
fails getter_barrier "$missed" filter::loom_b7_an_add_after_a_cancel_gives_a_run
fails gate "$late" \
    filter::loom_q10_after_shut_down_the_filter_accepts_nothing \
    filter::loom_q10_after_close_the_filter_accepts_nothing \
    filter::loom_q10_after_a_drain_began_the_filter_accepts_nothing
asleep="deadlock"
sleepers=(
    lock::models::loom_who_sleeps_at_a_lock_is_woken
    lock::models::loom_who_sleeps_at_a_lock_gets_it_handed_over
    lock::models::loom_all_of_three_get_a_lock
)
fails light_barrier "$asleep" "${sleepers[@]}"
fails heavy_barrier "$asleep" "${sleepers[@]}" lock::models::loom_who_sleeps_at_a_lock_without_the_heavy_barrier_is_woken

#!/usr/bin/env bash
# The bounds of part B over random schedules, the long form: a million of them over all scenarios
# together, or as many as the first argument says; of other seeds than the tests with REQUEUE_SEED.
# A failure prints a trace that plays again: see the documentation of requeue-sim.
#
#     verify/schedules.sh [SCHEDULES]
set -euo pipefail
cd "$(dirname "$0")/.."
total=${1:-1000000}
scenarios=$(cat verify/tests/schedules/*.rs | grep -c '^ *play("')
export REQUEUE_SCHEDULES=$(((total + scenarios - 1) / scenarios))
cargo test --profile bench --locked -p requeue-verify --test schedules -- --nocapture

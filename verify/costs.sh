#!/usr/bin/env bash
# What each call costs in locks, probes, readings of the clock and allocations:
# see verify/tests/costs.rs.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="${RUSTFLAGS:-} --cfg requeue_counted"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/costs"
# without the cfg the file is empty, and no test of it fails
said=$(mktemp)
trap 'rm -f "$said"' EXIT
cargo test --locked -p requeue-verify --test costs "$@" | tee "$said"
grep -q '^test costs_' "$said" || { echo "costs.sh: no test was run" >&2; exit 1; }

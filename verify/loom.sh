#!/usr/bin/env bash
# The models of waiting and waking: see verify/LOOM.md. Arguments go to the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTFLAGS="${RUSTFLAGS:-} --cfg requeue_loom" exec cargo test --release --locked \
    -p requeue-verify --test loom --target-dir "${CARGO_TARGET_DIR:-target}/loom" -- "$@"

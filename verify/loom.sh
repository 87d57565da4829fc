#!/usr/bin/env bash
# The models of waiting and waking: see verify/LOOM.md.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUSTFLAGS="${RUSTFLAGS:-} --cfg requeue_loom"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
cargo test --release --locked -p requeue-verify --test loom "$@"
cargo test --release --locked -p requeue --lib loom_ "$@"

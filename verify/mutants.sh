#!/usr/bin/env bash
# Mutation testing of a package with one build; --help tells the options. See verify/MUTANTS.md.
# Needs cargo-mutants, which lists the mutants: cargo install cargo-mutants
set -euo pipefail
cd "$(dirname "$0")/.."
CARGO_TARGET_DIR=target/mutants/tool cargo build --quiet --locked --manifest-path verify/mutants/Cargo.toml
exec target/mutants/tool/debug/requeue-mutants "$@"

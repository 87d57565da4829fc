#!/usr/bin/env bash
# The least versions that the Cargo.toml files of the libraries promise are true: the
# libraries compile with exactly those versions of what they depend on directly. What metrics look like depends on the
# Prometheus client, of which two versions are promised: its tests run with the least here, and with the newest beside all others.
# (The command is not looked at: it is installed with the versions of its Cargo.lock,
# or with the newest ones.)
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/minimal

# A workspace of the libraries alone, with a lock file of its own.
rm -rf "$target/workspace"
mkdir -p "$target/workspace/crates"
for library in requeue-core requeue requeue-engine requeue-prometheus requeue-sim requeue-sqlite requeue-postgres requeue-watch; do
    cp -r "crates/$library" "$target/workspace/crates/"
done
sed 's/^members = .*/members = ["crates\/*"]/; /^exclude = /d' Cargo.toml >"$target/workspace/Cargo.toml"
cp README.md "$target/workspace/"
cp -r contrib "$target/workspace/"
cd "$target/workspace"

# `-Z` wants a nightly cargo or this variable, which only this one command gets: it
# chooses versions and compiles nothing.
if ! said=$(RUSTC_BOOTSTRAP=1 cargo update -Z direct-minimal-versions 2>&1); then
    if grep -q "failed to select a version" <<<"$said"; then
        echo "$said" >&2
        exit 1
    fi
    echo "SKIPPED: the least versions cannot be chosen here:"
    echo "$said"
    exit 0
fi
for feature in "" --all-features; do
    cargo check --workspace --locked --target-dir "$target" $feature
done
cargo test -p requeue-prometheus --locked --target-dir "$target"

#!/usr/bin/env bash
# Every crate that is published can be packaged, without a warning. (What each package
# holds, licences included, is checked by verify/tests/repository/packages.rs; that the sources
# compile is the business of the other steps.)
set -euo pipefail
cd "$(dirname "$0")/.."
published=()
for manifest in crates/*/Cargo.toml; do
    published+=(-p "$(basename "$(dirname "$manifest")")")
done
said=$(mktemp)
trap 'rm -f "$said"' EXIT
# --allow-dirty: it is of use before a commit too
cargo package "${published[@]}" --no-verify --allow-dirty --locked 2>&1 | tee "$said"
if grep -q '^warning' "$said"; then
    echo "package.sh: packaging warns" >&2
    exit 1
fi

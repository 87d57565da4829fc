#!/usr/bin/env bash
# Miri, which sees undefined behaviour, over everything that is `unsafe` here: the tests of
# the state machine, whose arena lends keys by address, and those of the filter, which reads
# keys without the lock. Arguments go to the test binaries: `verify/miri.sh arena::`.
# Needs a nightly compiler with Miri: rustup +nightly component add miri rust-src
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "SKIPPED verify/miri.sh: there is no nightly compiler with Miri here" \
        "(rustup toolchain install nightly; rustup +nightly component add miri rust-src)"
    exit 0
fi
# The keys that tests leave lent on purpose are leaks that the arena is to survive. The
# clock is real, because Miri's own one would make a wait of one minute one of days.
export MIRIFLAGS="${MIRIFLAGS:-} -Zmiri-disable-isolation"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri"
cargo +nightly miri test --locked -p requeue-core --lib --test machine "$@"
cargo +nightly miri test --locked -p requeue --lib filter:: "$@"

#!/usr/bin/env bash
# Miri, which sees undefined behaviour, over everything that is `unsafe` here: the state
# machine, whose arena lends keys by their address. REQUEUE_SEEDS is with how many
# interleavings the tests with threads run, 4 unless told. Needs a nightly compiler with Miri:
# rustup toolchain install nightly --component miri,rust-src
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "SKIPPED verify/miri.sh: there is no nightly compiler with Miri" \
        "(rustup toolchain install nightly --component miri,rust-src)"
    exit 0
fi
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri"
flags=${MIRIFLAGS:-}
seeds="-Zmiri-many-seeds=0..${REQUEUE_SEEDS:-4}"
# two of the arena's tests drop an arena whose keys are lent, which leaves their chunk alone
MIRIFLAGS="$flags -Zmiri-ignore-leaks" cargo +nightly miri test --locked -p requeue-core --lib --test machine
MIRIFLAGS="$flags $seeds" cargo +nightly miri test --locked -p requeue-core --test loans

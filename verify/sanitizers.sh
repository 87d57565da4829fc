#!/usr/bin/env bash
# The stress test under AddressSanitizer (memory that is read after it was freed, or leaks)
# and under ThreadSanitizer (data races). REQUEUE_STRESS makes it that many times as long as
# its short form. Arguments are the sanitizers; without any, both: `verify/sanitizers.sh address`.
# Needs a nightly compiler with the standard library's source, which is built with the
# sanitizer too: rustup +nightly component add rust-src
set -euo pipefail
cd "$(dirname "$0")/.."

if ! rustup +nightly component list --installed 2>/dev/null | grep -q '^rust-src'; then
    echo "SKIPPED verify/sanitizers.sh: there is no nightly compiler with rust-src here" \
        "(rustup toolchain install nightly; rustup +nightly component add rust-src)"
    exit 0
fi
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
export REQUEUE_STRESS="${REQUEUE_STRESS:-1}"
target=${CARGO_TARGET_DIR:-target}
[ $# -gt 0 ] || set -- address thread
for sanitizer in "$@"; do
    echo "== $sanitizer sanitizer, $REQUEUE_STRESS times the short form"
    # without --target the sanitizer would be in build scripts and macros too
    RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=$sanitizer" CARGO_TARGET_DIR="$target/$sanitizer-sanitizer" \
        cargo +nightly test --release --locked -Zbuild-std --target "$host" -p requeue-verify --test stress
done

#!/usr/bin/env bash
# The stress test under AddressSanitizer (memory that is used after it was freed, or is left
# over) and under ThreadSanitizer (data races). REQUEUE_STRESS makes it that many times as
# long as its short form. Arguments are the sanitizers; without any, both:
#   verify/sanitizers.sh thread
# Needs a nightly compiler with the standard library's source, because ThreadSanitizer must
# see what that does: rustup toolchain install nightly --component rust-src
set -euo pipefail
cd "$(dirname "$0")/.."

if ! rustup +nightly component list --installed 2>/dev/null | grep -q '^rust-src'; then
    echo "SKIPPED verify/sanitizers.sh: there is no nightly compiler with rust-src" \
        "(rustup toolchain install nightly --component rust-src)"
    exit 0
fi
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-target}
export REQUEUE_STRESS="${REQUEUE_STRESS:-1}"
[ $# -gt 0 ] || set -- address thread
for sanitizer in "$@"; do
    build_std=()
    [ "$sanitizer" = address ] || build_std=(-Zbuild-std)
    echo "== $sanitizer sanitizer, $REQUEUE_STRESS times the short form"
    # without --target the sanitizer would be in build scripts and macros too
    RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=$sanitizer" CARGO_TARGET_DIR="$target/$sanitizer-sanitizer" \
        cargo +nightly test --profile bench --locked "${build_std[@]}" --target "$host" -p requeue-verify --test stress
done

#!/usr/bin/env bash
# All tests and the examples of the documentation on a machine that stands still at random: each reading of the clock may take some
# milliseconds (verify/stalls.c). It finds tests that assume that a few milliseconds have not passed yet, which
# fail on a busy machine once in a hundred runs and here at once.
#
#   verify/stalls.sh [ROUNDS]        # 3 unless told; some 10 minutes each on 2 cores
#
# Linux with a C compiler. What is left out measures time or starts a compiler.
set -uo pipefail
cd "$(dirname "$0")/.."

if [ "$(uname)" != Linux ] || ! command -v cc >/dev/null; then
    echo "SKIPPED verify/stalls.sh: it needs Linux and a C compiler"
    exit 0
fi
export CARGO_INCREMENTAL=0 RUST_BACKTRACE=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -shared -fPIC -o "$work/stalls.so" verify/stalls.c || exit 1
cat >"$work/run" <<END
#!/bin/sh
case \$1 in
    */public_api-* | */packages-* | */examples-* | */measured-* | */loom-* | */requeue_bench-*) exit 0 ;;
esac
LD_PRELOAD=$work/stalls.so exec "\$@"
END
chmod +x "$work/run"
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
failed=0
for round in $(seq "${1:-3}"); do
    echo "=== round $round ($SECONDS s)"
    env "CARGO_TARGET_${host}_RUNNER=$work/run" \
        cargo test --workspace --all-features --locked --no-fail-fast >"$work/log" 2>&1 || failed=1
    grep -aE '^test .* FAILED$|panicked at|^error' "$work/log"
done
[ "$failed" = 0 ] && echo "no test minds a stall"
exit "$failed"

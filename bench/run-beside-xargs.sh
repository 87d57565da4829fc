#!/usr/bin/env bash
# Times `seq N | requeue run -j 2 true` beside `seq N | xargs -P2 -n1 true`, in
# turns, and prints each round, the medians and their ratio. Not a test: times
# depend on the machine and on what else it does.
#
#     bench/run-beside-xargs.sh [N] [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/.."
n=${1:-5000} rounds=${2:-5}
cargo build --quiet --release --locked -p requeue-cli
requeue=${CARGO_TARGET_DIR:-target}/release/requeue
times=$(mktemp -d)
trap 'rm -r "$times"' EXIT
seconds() { # command…: prints its wall time
    local TIMEFORMAT=%R
    { time "$@" >/dev/null 2>&1; } 2>&1
}
with_xargs() { seq "$n" | xargs -P2 -n1 true; }
with_requeue() { seq "$n" | "$requeue" run --quiet -j 2 true; }
for _ in $(seq "$rounds"); do
    seconds with_xargs >>"$times/xargs"
    seconds with_requeue >>"$times/requeue"
    echo "xargs $(tail -n 1 "$times/xargs") s, requeue $(tail -n 1 "$times/requeue") s"
done
median() { sort -n "$1" | sed -n "$(((rounds + 1) / 2))p"; }
echo "medians of $rounds rounds of $n keys: xargs $(median "$times/xargs") s," \
    "requeue $(median "$times/requeue") s, ratio" \
    "$(awk "BEGIN { printf \"%.2f\", $(median "$times/requeue") / $(median "$times/xargs") }")"

#!/usr/bin/env bash
# A queue on PostgreSQL, with a synchronous replica, and processes that work on two machines, while all sorts of things break: for
# an hour, or as long as is said. The machines are network namespaces of this one, so this needs root, and `ip`.
#
#     verify/soak.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."

export REQUEUE_SOAK=${1:-3600}
export REQUEUE_MACHINES=
names=()
gone() { for name in "${names[@]}"; do ip netns delete "$name"; done; }
trap gone EXIT
for n in 1 2; do
    name=requeue-$$-$n
    ip netns add "$name"
    names+=("$name")
    # the end of the wire that is here goes with the namespace
    ip link add "rq$$-$n" type veth peer name out netns "$name"
    ip address add "10.77.$n.1/30" dev "rq$$-$n"
    ip link set "rq$$-$n" up
    ip -n "$name" address add "10.77.$n.2/30" dev out
    ip -n "$name" link set out up
    REQUEUE_MACHINES+=" $name=10.77.$n.1"
done
cargo test --profile bench --locked -p requeue-postgres --all-features --test faults -- --ignored --exact --nocapture soak

#!/usr/bin/env bash
# A queue on PostgreSQL while a hundred thousand things break, or as many as are said: 70 of 100 on a server that crashes now and
# then, 10 each on one that fails over to its replica, one whose disk is full (that needs root), and one whose clock is an hour
# off (that needs `cc`). It prints how often each thing broke. $REQUEUE_FAULTS_LOAD is how many times as many processes
# there are as in CI, and $REQUEUE_FAULTS_CUTS how many of 10,000 messages of clients are cut.
#
#     verify/faults.sh [FAULTS]
set -euo pipefail
cd "$(dirname "$0")/.."

export REQUEUE_FAULTS=${1:-100000}
export REQUEUE_FAULTS_LOAD=${REQUEUE_FAULTS_LOAD:-4}
export REQUEUE_FAULTS_CUTS=${REQUEUE_FAULTS_CUTS:-60}
cargo test --profile bench --locked -p requeue-postgres --all-features --test faults -- --nocapture --test-threads=1 nothing_is_lost

#!/usr/bin/env bash
# A rolling upgrade on a PostgreSQL server, with the real programs (rule E43): the command of the version before works and adds, the schema
# is migrated beside it, both versions work and add, the old one is stopped. Every key that was added has run. Then a schema that serves
# only newer programs ends the worker, which says so.
#
#   verify/upgrade.sh [COMMIT | PROGRAM]
#
# of the version before: a commit, which is built, or a command that is there. Without it, the last commit with version 1 of the schema.
#
# The short form, by the calls that a program of the version before makes, is crates/requeue-postgres/tests/upgrade.rs.
set -euo pipefail
cd "$(dirname "$0")/.."
before=${1:-$(git log -1 --diff-filter=D --format=%h -- crates/requeue-postgres/src/schema.sql)^}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
folder=$(mktemp -d /tmp/requeue-upgrade.XXXXXX)
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
as=
[ "$(id -u)" != 0 ] || as="setpriv --reuid=nobody --regid=nogroup --clear-groups"
jobs_=()
finish() {
    for job in "${jobs_[@]}"; do kill -KILL "$job" 2>/dev/null || true; done
    $as "$bin/pg_ctl" -D "$folder/data" -m immediate stop >/dev/null 2>&1 || true
    git worktree remove --force "$folder/before" 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
fail() {
    echo "FAILED: $*" >&2
    tail -n 5 "$folder"/*.err >&2
    exit 1
}

if [ -x "$before" ]; then
    cp "$before" "$folder/old"
else
    # with a target of its own: cargo takes crates of two work trees for the same ones
    git worktree add --detach -q "$folder/before" "$before"
    cargo build -q -p requeue-cli --locked --manifest-path "$folder/before/Cargo.toml" --target-dir "$target/upgrade"
    cp "$target/upgrade/debug/requeue" "$folder/old"
fi
cargo build -q -p requeue-cli --locked
cp "$target/debug/requeue" "$folder/new"

[ -z "$as" ] || chown nobody:nogroup "$folder"
$as "$bin/initdb" -D "$folder/data" -U postgres -A trust --no-sync >/dev/null
printf "listen_addresses = ''\nunix_socket_directories = '%s'\nfsync = off\n" "$folder" >>"$folder/data/postgresql.conf"
$as "$bin/pg_ctl" -D "$folder/data" -l "$folder/server.log" -w start >/dev/null
sql() { "$bin/psql" -X -q -A -t -U postgres -h "$folder" -c "$1"; }
export REQUEUE_ENGINE="postgres://postgres@${folder//\//%2F}/postgres"

ran=$folder/ran
: >"$ran"
works() { # VERSION NUMBER
    "$folder/$1" work -j4 -- sh -c "echo \"\$1\" >>$ran" sh </dev/null >/dev/null 2>"$folder/$1-$2.err" &
    jobs_+=($!)
    worker=$!
}
adds() { # VERSION, until the file is gone
    n=0
    while [ -e "$folder/adding-$1" ]; do
        n=$((n + 1))
        "$folder/$1" add "$1-$n" 2>>"$folder/$1-add.err" || fail "an add of $1"
        echo "$1-$n" >>"$folder/added-$1"
    done
}
waits() { # for what, and a command
    for _ in $(seq 600); do
        if eval "$2"; then return; fi
        sleep 0.5
    done
    fail "it does not come: $1"
}
count() { wc -l <"$1"; }

"$folder/old" migrate
"$folder/old" add --after 5s later
"$folder/old" add --queue paused k
"$folder/old" pause --queue paused
works old 1 && old1=$worker
works old 2 && old2=$worker
touch "$folder/adding-old" "$folder/added-old" "$folder/adding-new" "$folder/added-new"
adds old &
jobs_+=($!)
old_adds=$!
waits "work of the old version" '[ "$(count "$ran")" -ge 20 ]'

"$folder/new" migrate || fail "migrate"
echo "migrated beside $(sql 'select count(*) from requeue.owner') processes, after $(count "$ran") runs"
[ "$(sql 'select newest > oldest from requeue.version()')" = t ] || fail "no version that serves the one before"
seen=$(count "$folder/added-old")
works new 1 && new1=$worker
adds new &
jobs_+=($!)
new_adds=$!
waits "adds of both versions" '[ "$(count "$folder/added-old")" -ge $((seen + 20)) ] && [ "$(count "$folder/added-new")" -ge 20 ]'
rm "$folder/adding-old"
wait "$old_adds" || fail "adds of the old version"
for job in "$old1" "$old2"; do
    kill -TERM "$job"
    wait "$job" || fail "a worker of the old version ended with $?"
done
waits "adds of the new version" '[ "$(count "$folder/added-new")" -ge 40 ]'
rm "$folder/adding-new"
wait "$new_adds" || fail "adds of the new version"
waits "the last run" '[ "$(sql "select count(*) from requeue.keys where queue = '"'default'"'")" = 0 ]'
missing=$(sort -u "$ran" | comm -13 - <(cat "$folder"/added-* <(echo later) | sort -u))
[ -z "$missing" ] || fail "these were added and have not run: $missing"
twice=$(sort "$ran" | uniq -d)
[ -z "$twice" ] || fail "these have run twice: $twice"
[ "$(sql "select paused and ready = 1 from requeue.queues where queue = 'paused'")" = t ] || fail "the paused queue is not as it was"
echo "$(count "$folder/added-old") keys of the old version and $(count "$folder/added-new") of the new one: each has run once"

# what a version does that serves no programs of this one
"$folder/new" add --after 1h k
sql "update requeue.meta set version = 1000"
status=0
wait "$new1" || status=$?
[ "$status" = 1 ] && grep -q "version 1000" "$folder/new-1.err" || fail "a worker that is too old ended with $status"
[ "$(sql 'select count(*) from requeue.owner')" = 0 ] || fail "it has kept its lease"
echo "a worker that is too old: $(grep "version 1000" "$folder/new-1.err")"

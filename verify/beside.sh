#!/usr/bin/env bash
# One file beside other processes (E31 to E35, E39): a runner that is killed again and again, 32 adders, lookers of another
# user, a second runner by a symbolic link, and a disk that is full now and then. From outside it is seen that nothing that
# was accepted is lost, that no key runs twice at once, and that no add is refused but while the disk is full.
#
#   verify/beside.sh [SECONDS]    600 without it; REQUEUE names the command, ADDERS how many adders there are
set -uo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600} adders=${ADDERS:-32}
if [ -z "${REQUEUE:-}" ]; then
    cargo build -q --release --locked -p requeue-cli || exit 1
    REQUEUE=${CARGO_TARGET_DIR:-$PWD/target}/release/requeue
fi
dir=$(mktemp -d) disk=
mkdir "$dir/d" "$dir/o" "$dir/o/locks"
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=32m,mode=755 tmpfs "$dir/d" 2>/dev/null; then
    disk=yes
else
    echo "SKIPPED: no disk can be mounted here, so that none is full"
fi
chmod 755 "$dir" "$dir/o"
other=()
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    other=(setpriv --reuid=65534 --regid=65534 --clear-groups)
else
    echo "SKIPPED: this is not root, so that the lookers are the same user"
fi
cp "$REQUEUE" "$dir/requeue" && chmod 755 "$dir/requeue"
requeue=$dir/requeue file=$dir/d/q.db out=$dir/o
export REQUEUE_ENGINE=sqlite:$file OUT=$out
children=() runner=
end() {
    touch "$out/stop"
    [ -z "$runner" ] || kill "$runner" 2>/dev/null
    wait
    [ -z "$disk" ] || umount "$dir/d" || umount -l "$dir/d"
    rm -rf "$dir"
}
trap end EXIT

# A key has a file that its run locks: who finds it locked runs it beside another.
cat >"$out/program" <<'PROGRAM'
exec 9>"$OUT/locks/$1"
flock -n 9 || echo "$1 ran twice at once" >>"$OUT/wrong"
echo "$1" >>"$OUT/ran"
PROGRAM

is_full() { [ -e "$out/full" ]; }
adder() {
    local n key said begun before
    for ((n = 0; ; n++)); do
        [ ! -e "$out/stop" ] && [ ! -e "$out/enough" ] || return
        key=a$1-$n before=$(is_full && echo full)
        begun=${EPOCHREALTIME/./}
        if said=$("$requeue" add "$key" 2>&1); then
            echo "$key" >>"$out/accepted.$1"
            # what waits for a disk is not compared
            [ -n "$before" ] || is_full || echo $((${EPOCHREALTIME/./} - begun)) >>"$out/times.$1"
            # what the machine itself takes to start a process, among all these, and to hear of its end
            begun=${EPOCHREALTIME/./}
            ((n % 16)) || { "$requeue" --version >/dev/null && echo $((${EPOCHREALTIME/./} - begun)) >>"$out/starts.$1"; }
        elif [ -z "$before" ] && ! is_full; then
            echo "add $key was refused: $said" >>"$out/wrong"
        fi
    done
}
looker() {
    local look said
    while [ ! -e "$out/stop" ]; do
        for look in stats ls "state a1-1" check "top --times 1"; do
            # nothing is known of a key that has run: status 1
            # shellcheck disable=SC2086
            said=$("${other[@]}" "$requeue" $look 2>&1 >/dev/null) || [ "$look" = "state a1-1" ] ||
                echo "$look: $said" >>"$out/wrong"
        done
        sleep 0.2
    done
}
# Bounded waits for what another process does.
until_true() {
    local tries
    for ((tries = 0; tries < 1200; tries++)); do
        "$@" && return 0
        sleep 0.1
    done
    echo "it does not come: $*" >>"$out/wrong"
    return 1
}
has_runner() { "$requeue" stats | grep -q "process $runner$"; }
is_idle() { [ "$("$requeue" stats --json | grep -c '"ready":0,"held":0,"waiting":0')" = 1 ]; }
start() {
    "$requeue" work -j4 --summary off -- sh "$out/program" >/dev/null 2>>"$out/runner.err" &
    runner=$!
}

"$requeue" add first && echo first >"$out/accepted.0" || exit 1
ln -s q.db "$dir/d/l.db"
for ((i = 1; i <= adders; i++)); do adder "$i" & children+=($!); done
for i in 1 2; do looker & children+=($!); done
kills=0 refused=0 fulls=0
while ((SECONDS < seconds)); do
    start
    if ! is_full; then until_true has_runner || break; fi
    said=$(timeout 60 "$requeue" work --engine "sqlite:$dir/d/l.db" -- sh "$out/program" 2>&1)
    case $? in
        2) refused=$((refused + 1)) ;;
        *) echo "a second runner: $said" >>"$out/wrong" ;;
    esac
    if [ -n "$disk" ] && ((kills % 3 == 2)); then
        touch "$out/full"
        dd if=/dev/zero of="$dir/d/fill" bs=64k 2>/dev/null
        sleep 2
        rm "$dir/d/fill"
        fulls=$((fulls + 1))
        # an add that was begun meanwhile has its answer
        (sleep 1 && rm "$out/full") & wait $!
    fi
    sleep 1
    kill -9 "$runner"
    wait "$runner" 2>/dev/null
    runner= kills=$((kills + 1))
done
touch "$out/enough"
wait "${children[@]:0:$adders}"
start
until_true is_idle
lost=$(sort -u "$out"/accepted.* | comm -23 - <(sort -u "$out/ran"))
[ -z "$lost" ] || echo "accepted and never run: $(wc -l <<<"$lost") keys, $(head -3 <<<"$lost" | tr '\n' ' ')" >>"$out/wrong"
# An add is a process, and waits for the processor as any of the others does: that part is told of beside it.
tell() {
    sort -n | awk -v what="$1" '{ t[NR] = $1 } END {
        m = t[int((NR + 1) / 2)]
        printf "%s: %d, median %.1f ms, p99 %.1f ms, slowest %.1f ms, %.1f times the median\n", what, NR,
            m / 1000, t[int(NR * 0.99 + 1)] / 1000, t[NR] / 1000, t[NR] / m
    }'
}
echo "$kills kills, $refused second runners refused, $fulls full disks"
cat "$out"/times.* | tell "adds"
cat "$out"/starts.* | tell "processes that do nothing"
if [ -s "$out/wrong" ]; then
    sort "$out/wrong" | uniq -c | sort -rn | head -20
    exit 1
fi
echo "nothing lost, nothing twice at once, nothing refused"

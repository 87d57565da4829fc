# A PostgreSQL of the caller's own, for the scripts beside this one, which read this by `source`. It ends with them, and its data with it.
# Its log goes to `$target`. It has its defaults but for the memory and a port that is free.
bin=${REQUEUE_POSTGRES:-$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)}
[ -x "${bin:=$(dirname "$(command -v initdb)")}/initdb" ] || { echo "PostgreSQL is missing" >&2; exit 1; }
folder=$(mktemp -d)
as=
if [ "$(id -u)" = 0 ]; then
    as="setpriv --reuid=nobody --regid=nogroup --clear-groups"
    chown nobody:nogroup "$folder"
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
LC_ALL=C $as "$bin/initdb" -D "$folder/data" -U postgres -A trust >/dev/null
# a library of the caller's that the server's processes load first, from where they may read it
[ -z "${preload:-}" ] || cp "$preload" "$folder/preload.so"
$as ${preload:+env LD_PRELOAD="$folder/preload.so"} "$bin/postgres" -D "$folder/data" -c listen_addresses=127.0.0.1 -c "port=$port" -c "unix_socket_directories=$folder" \
    -c shared_buffers=1GB -c max_wal_size=4GB -c max_connections=200 >"$target/postgres.log" 2>&1 &
server=$!
trap 'kill -INT $server; wait $server || true; rm -rf "$folder"' EXIT
sql() { "$bin/psql" -X -q -A -t -h 127.0.0.1 -p "$port" -U postgres -d "$1" -c "$2"; }
until "$bin/pg_isready" -q -h 127.0.0.1 -p "$port"; do sleep 0.1; done

# each figure on a new database
number=0
fresh() {
    [ $number = 0 ] || sql postgres "drop database b$number with (force)"
    number=$((number + 1))
    sql postgres "create database b$number"
    connect=postgres://postgres:none@127.0.0.1:$port/b$number
}

# $1 seconds from now a transaction that somebody has forgotten takes a snapshot of the database of `fresh`, for $2 seconds
snapshot() {
    (
        sleep "$1"
        sql "b$number" "begin isolation level repeatable read; select count(*) from pg_class; select pg_sleep($2)"
    ) >/dev/null 2>&1 &
}

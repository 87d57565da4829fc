"""How many durable adds a second the embedded queues of Python take, at one caller."""

# Each of them syncs each add: `strace -f -c -e trace=fdatasync` counts one a call.
import json
import os
import sys
import time

which, directory, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
path = os.path.join(directory, which + ".db")


def key(n):
    return f"namespace-{n % 317:03}/object-name-{n:08}"


if which == "litequeue":
    from litequeue import LiteQueue

    # its own default does not sync each commit
    queue = LiteQueue(path)
    queue.conn.execute("pragma synchronous=full")
    add = queue.put
elif which == "persist-queue":
    import persistqueue

    queue = persistqueue.UniqueAckQ(path)
    add = queue.put
elif which == "huey":
    from huey import SqliteHuey

    # fsync: each write is on the disk
    queue = SqliteHuey("bench", filename=path, fsync=True)
    storage = queue.storage
    add = lambda name: storage.enqueue(name.encode())
else:
    sys.exit("usage: peers.py litequeue|persist-queue|huey DIRECTORY SECONDS")

begun = time.monotonic()
took = []
while True:
    at = time.monotonic()
    if at - begun >= seconds:
        break
    add(key(len(took)))
    took.append(time.monotonic() - at)
took.sort()
print(
    json.dumps(
        {
            "queue": which,
            "callers": 1,
            "adds_per_s": round(len(took) / seconds),
            "p50_us": round(took[len(took) // 2] * 1e6),
            "p99_us": round(took[len(took) * 99 // 100] * 1e6),
        }
    )
)

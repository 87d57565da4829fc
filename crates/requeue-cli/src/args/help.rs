//! The long texts of the help.

pub(super) const FIRST: &str = "\
Examples:
  git ls-files | requeue run -j 4 --tag wc -c
  requeue plan bucket --rate 10 --burst 100 -n 1000 --plot";

pub(super) const ABOUT: &str = "\
Run PROGRAM once per key, never twice at a time for one key.

Keys are the lines of standard input, or with --watch the files of directories. A key that comes while it waits is run once; \
a key that comes while PROGRAM runs for it is run once more afterwards, however often \
it came. A key whose run fails comes back after a growing delay, until it succeeds or has used up \
its attempts. At the end of the input everything is worked off, retries included.";

pub(super) const MORE: &str = "\
The program:
  In an ARG these places become the key or a part of it, as in GNU parallel:
    {}    the key                            dir/pic.jpg
    {.}   the key without its extension      dir/pic
    {/}   its last name                      pic.jpg
    {/.}  its last name without extension    pic
    {//}  its directory                      dir
  Without any of them the key is the last argument. Options of requeue stand before
  PROGRAM; what follows PROGRAM belongs to it.
  In its environment: REQUEUE_KEY, REQUEUE_ATTEMPT (from 1; a trigger that comes during
  a run or a back-off starts again at 1), REQUEUE_FAILURES (failures in a row), and
  REQUEUE_FENCE (a number that grows from run to run of a key; with --state, over restarts).
  With --merge also REQUEUE_PAYLOAD, unless no trigger of the run had a value.
  With --state also REQUEUE_RUN, a text that no other run on this machine has.
  With --watch also REQUEUE_EVENT (initial, write or delete: what happened last) and
  REQUEUE_REL (the path below PATH).
  Its standard input is empty, and it runs in a process group of its own. One that reads
  or sets the terminal (a password prompt) has failed. One that somebody stopped (SIGSTOP)
  is told of, and is ended by --timeout or the first signal to requeue. A script without
  #! is run by sh.
  Its output is passed on line by line. A last line without newline gets one; a line
  longer than 1 MiB is cut into lines of that length. When nobody reads it the programs
  wait, as with any pipe; but a run that --timeout ends does not wait longer than 2s: the
  rest of its output is dropped, and the message says so.

What the end of a run means:
  exit status 0            done
  75 with --again-after    again after that time, with its values, not a failure
  one of --fatal-code      the key gives up
  anything else            failure: retry after base-delay x 2^failures
  A key that cannot be given to a program (it or its value holds a NUL, or is too long)
  gives up without a run.

Keeping:
  With --state FILE a line is accepted when it is on the disk, and what was accepted goes
  on after any end of requeue, also kill -9 and power cuts: with its failures, its delay,
  its priority and its values. A run whose end is not on the disk runs again. How far the
  input was read is yours to know: who begins again with the same lines runs them again.
  Other processes add, list and cancel meanwhile: requeue add --engine sqlite:FILE.
  At the end of the input what is ready is worked off, retries included; keys that wait
  for a time of their own stay in FILE. With --stay it goes on until a signal comes. The
  first signal begins no further run: the running programs may end, and what is ready stays
  in FILE. The summary says how many keys are left. With --stay that is the usual end, and
  the status is 0 unless a run failed for good, a second signal stopped programs, or input
  was unread.
  If requeue itself is killed (kill -9, out of memory) its programs get TERM, and KILL after
  --grace; until they have ended no other requeue works on FILE (on Linux). A process
  `run-reaper` does that. A program that has left its process group (a daemon) is not ended, nor is one that a
  program left behind whose run has ended.
  While FILE can't be written to (a full disk) runs go on, and no more input is read.

Watching:
  Keys are paths as find prints them: PATH as it was given, and what is below it. Files
  and symbolic links are keys, pipes, sockets and devices are not; links are not followed
  below PATH. A run begins when its key had no further event for 50ms, and at the latest
  1s after the first one. A run does not mean that something changed: the program looks
  for itself.
  A file that is gone before its first run has none. A run that fails when its file is
  gone is followed at once by one more, as delete, and then the key has ended, well or not.
  No change that the kernel reports is missed. When its queue of events overflows, every
  key is run again. The kernel does not report changes that are made by other machines on
  a network file system, through memory maps, or through another hard link: --resync finds
  them. If names may hold newlines, use -0 with --failed-to and --left-to.

Signals:
  first INT, TERM or HUP   stop reading, work off the ready keys (at --rate), drop waiting retries;
                           with --state begin no further run: what is ready stays in FILE
  second                   stop the programs (TERM, after --grace KILL) and leave
  third                    KILL at once

Files that are written:
  --failed-to gets the keys that gave up. --left-to gets the keys that were ready, waited
  for a retry or were running when a signal, --fail-fast or --drain-timeout ended the
  command, or whose output could not be passed on to its end, and the keys that had
  arrived on standard input by then. No key is in both: one that gave up and came again
  is in --left-to, with all its values, if it has a run to come, in neither if that run ended well. Each of the two files may be the one that the input
  comes from.
  --joblog gets a line when a run ends, so its lines are there after a kill -9 too. The
  column status is the exit status as a shell tells it: 128+n after signal n, 124 after
  --timeout, 126 where the program could not be started, 127 where the system had
  already forgotten it (or where the program itself ended with 127, as a shell does that
  does not find its command), 141 where it ended well but its output could not be passed
  on. Bytes of a key that are no printable text are written as \\t, \\n, \\r, \\\\ or
  \\xHH. If the file exists, lines are appended to it; with --resume it is read first.

Exit status:
  0     all keys ended well
  1     some gave up, were left by --drain-timeout, or something could not be read or written
  2     the command line is wrong, or names a file or an address that cannot be used, or standard input or output is closed
  126   PROGRAM cannot be executed
  127   PROGRAM is not found
  128+n stopped by signal n with work left, or before the end of the input; 141 (PIPE) when nobody reads the output any more

Examples:
  Fetch every address, four at a time, six attempts each, and keep those that failed:
    requeue run -j 4 --max-attempts 6 --failed-to failed.txt curl -sSfO < urls.txt
    requeue run --failed-to failed.txt curl -sSfO < failed.txt

  Make `site` when something in src changes, once more for all that changes meanwhile:
    inotifywait -mrq -e close_write --format site src | requeue run make

  Make everything when anything in src changes, once for all that changes meanwhile:
    requeue run --watch src --one make

  Make a thumbnail of every picture, now and whenever one changes:
    requeue run --watch pictures --glob '*.jpg' sh -c 'convert \"$REQUEUE_KEY\" -resize 200 \"thumbs/$REQUEUE_REL\"'

  Names with any character in them:
    find . -name '*.wav' -print0 | requeue run -0 sh -c 'flac -s \"$REQUEUE_KEY\"'

  Convert a thousand files, and go on after a crash where it came to:
    find . -name '*.wav' | requeue run --joblog jobs.tsv --resume flac -s -o {.}.flac {}

  Eight at a time, and of each host no more than two, however long its list is:
    requeue run -j 8 --group-by '/:\\/\\/([^/]*)/' --group-cap 2 curl -sSfO < urls.txt

  Ask again every 10 seconds until ready.sh exits with anything but 75:
    requeue run --again-after 10s ./ready.sh < hosts.txt";

pub(super) const WORK: &str = "\
Run PROGRAM for the keys of a durable queue, until a signal comes.

The queue is on a PostgreSQL server, where any number of processes on any number of machines work on it, each key in one of them \
at a time, or in a file, where one process works on each queue. Keys come by `requeue add`, from programs that use the library, or from \
transactions of your own: select requeue.add_tx('orders', 'order-4711').";

pub(super) const WORKING: &str = "\
The program, what the end of a run means, signals, files and the exit status are described in
`requeue run --help`.

What is special here:
  In its environment PROGRAM has REQUEUE_FENCE, a number that grows from run to run of a
  key: the system that PROGRAM writes to can use it to reject writes of older runs.
  REQUEUE_PAYLOAD has the values of the triggers as JSON, a line each, if they had any.
  REQUEUE_ENGINE is not in the environment of PROGRAM: there may be a password in it. One that
  adds keys itself is told the engine in another way, such as a file that only it can read.

  A process has a lease on a server. If it cannot extend it (the network is cut) its programs
  are ended before other processes get their keys, and what they end with is refused: TERM
  comes when two thirds of --lease are over, and KILL after --grace, but before the lease
  ends, however long --grace is. If requeue itself was not running that long (stopped, machine
  asleep), it cannot end its programs in time, and others may have its keys. If it was stopped,
  it kills its programs as soon as it goes on. If its machine was asleep, it does not notice,
  because its clock stood still. It hears of it when it next extends the lease, up to a third
  of --lease after it woke; then TERM comes, and KILL after --grace, or after a quarter of
  --lease if that is shorter.
  If requeue itself is killed (kill -9, out of memory) its programs get TERM, and KILL after
  --grace, or after a quarter of --lease if that is shorter. A process `run-reaper` does that. In a file
  no other process works on the queue until they have ended; on a server the lease is longer.
  A program that has left its process group (a daemon) is not ended, nor is one that a program
  left behind whose run has ended. If the machine kills both processes at once, or a program
  belongs to another user, use REQUEUE_FENCE.

  Back-off, rate and the cap of groups are stored with the queue on a server, for all processes,
  and `requeue stats` tells them. --rate and --group-cap hold at once; --rate none and --group-cap
  none take them back. --base-delay and --max-delay hold for processes that start after that: a
  running process keeps its delays until it is restarted. An option that is not given leaves the
  stored value unchanged; a new queue has 1s and 5m. Groups are those that
  `requeue add --group-by` gave the keys.

  At the end the keys that gave up are named. Without --failed-to no more than 10000 of them
  are kept, however long this goes on; what is beyond is counted, each time.
  At the first signal nothing more is claimed. On a server what is claimed is run; in a file
  only what runs goes on to its end, and the summary says how many keys are left. What is left is
  for other processes, or for the next one, and is no reason for another status than 0. The status is 1 if a run
  that ended after the signal had lost its lease: the server has refused what it ended with.

Examples:
  export REQUEUE_ENGINE=postgres://worker:PASSWORD@db/shop
  requeue migrate
  requeue add --queue orders order-4711
  requeue work --queue orders -j 8 ./ship

The password:
  Give it in REQUEUE_ENGINE: `ps` shows options to all users, and does not show the environment.
  Write special characters in it percent-encoded: %40 is @, %2F is /, %3A is :, %25 is %.
  PGPASSWORD is read, ~/.pgpass is not.";

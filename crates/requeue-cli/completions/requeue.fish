# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_requeue_global_optspecs
    string join \n h/help V/version
end

function __fish_requeue_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_requeue_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_requeue_using_subcommand
    set -l cmd (__fish_requeue_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c requeue -n "__fish_requeue_needs_command" -s h -l help -d 'Print help'
complete -c requeue -n "__fish_requeue_needs_command" -s V -l version -d 'Print version'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "run" -d 'Run PROGRAM once per key, never twice at a time for one key'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "plan" -d 'Show what a limiter does, before it is put in production'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "work" -d 'Run PROGRAM for the keys of a durable queue, beside other processes'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "add" -d 'Add keys to a durable queue'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "ls" -d 'List the keys of a durable queue, in the order of its line'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "state" -d 'Show the state of a key of a durable queue'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "cancel" -d 'Cancel the runs that keys wait for; a current run goes on'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "retry" -d 'Run a key now that waits or gave up'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "pause" -d 'Pause a durable queue: none of its keys runs until it is resumed'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "resume" -d 'End a pause'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "purge" -d 'Remove the keys of a durable queue that gave up, and print their number'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "stats" -d 'Count the keys of a durable queue'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "top" -d 'Show the durable queues of an engine, refreshed until an interrupt'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "migrate" -d 'Make the schema on a PostgreSQL server, or bring it to this version'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "check" -d 'Check the file of a durable queue'
complete -c requeue -n "__fish_requeue_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c requeue -n "__fish_requeue_using_subcommand run" -l max-wait -d 'With --priority, after D in line, run a key before others (oldest first), in one of every 8 runs' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l overdue-every -d 'With --max-wait, one of every N runs instead of every 8; 2 at least' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l group-by -d 'Divide keys into groups that take turns. The group of a key is the text before the first SEP (or the whole key, without one). With /REGEX/ it is the match, or its first group in parentheses; keys that do not match form one group' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l group-cap -d 'With --group-by, run at most N programs of each group at a time' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l group-rate -d 'With --group-by, start at most R runs of each group per second, or per minute or hour with R/m and R/h, retries included. While a group waits for this, others run' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l merge -d 'Read lines of a key, a tab and a value, and pass the values of a run\'s triggers in REQUEUE_PAYLOAD: last (the last one), concat (all, one per line), count (the number of triggers, with or without values). A run that comes after a failed one, or one that ended with 75 (--again-after), also gets its values' -r -f -a "last\t''
concat\t''
count\t''"
complete -c requeue -n "__fish_requeue_using_subcommand run" -l watch -d 'Watch PATH: first all files at and below it are keys, then each file that is written, created, moved or deleted; can be given several times' -r -F
complete -c requeue -n "__fish_requeue_using_subcommand run" -l glob -d 'Use only files that match GLOB (syntax of .gitignore) as keys; can be given several times' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l ignore -d 'Skip files and directories that match GLOB; can be given several times' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l on -d 'Run a key on these events, separated by commas: initial (it exists at the start), write (it is created or changed), delete' -r -f -a "initial\t''
write\t''
delete\t''"
complete -c requeue -n "__fish_requeue_using_subcommand run" -l resync -d 'Look at everything again and run every key again, every D' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l debounce -d 'Run a key when no trigger has come for it for QUIET, at the latest MAX after the first [default: 0s; with --watch 50ms]' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l debounce-max -d 'With a --debounce without MAX, run a key at the latest D after its first trigger [default: 1s]' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l bound -d 'Keep at most N keys that wait, are retried or run; read more input when some are done' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l state -d 'Keep the queue in FILE, which is created if needed: accepted keys, with their failures, delays, priorities and values, continue after any end, even kill -9' -r -F
complete -c requeue -n "__fish_requeue_using_subcommand run" -l queue -d 'With --state, the name of the queue in FILE [default: default]' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -s j -l workers -d 'Run at most N programs at a time [default: number of cores]' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l rate -d 'Start at most R runs per second, or per minute or hour with R/m and R/h, retries included. A key that comes again while it waits costs nothing' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l timeout -d 'Fail a run that takes longer than D: TERM, then KILL, to its process group' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l grace -d 'Time between TERM and KILL' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l base-delay -d 'Delay before the first retry; it doubles with every failure in a row [default: 1s]' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l max-delay -d 'Maximum delay before a retry [default: 5m]' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l jitter -d 'Lengthen each delay at random, by up to this fraction [default: 0.2]' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l limiter -d 'Retry by this limiter, instead of --base-delay, --max-delay, --jitter, --retry-rate and --retry-burst. LIMITER is a text as for `requeue plan`, such as fast-slow:fast=1s,slow=1m,after=3' -r -f -a "bucket\t'All keys at a rate, after a burst'
per-key-bucket\t'Each key at a rate, after a burst'
exponential\t'A delay that doubles with each failure of a key'
fast-slow\t'A few short delays of a key, then long ones'
window\t'So many keys in each window of time'
default\t'Controllers\' default: exponential, 5ms to 1000s, and a bucket of 10 a second, burst 100'
default-per-item\t'The default for single keys: exponential, 1ms to 1000s'
max-of\t'The longest delay of several limiters'
max-wait\t'Another limiter, whose delays are cut'
jitter\t'Another limiter, whose delays are lengthened at random'"
complete -c requeue -n "__fish_requeue_using_subcommand run" -l retry-rate -d 'Limit retries of all keys together to R per second (off by default)' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l retry-burst -d 'With --retry-rate, allow up to N retries at once [default: 1]' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l max-attempts -d 'Give a key up at its N-th failed attempt; 0: never [default: 5; with --watch 0, with --one 1]' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l in-backoff -d 'Set how a trigger acts on a key that waits for a retry, or whose current run fails: run (run it now), respect (wait for the retry), reset (run it now, and forget its failures)' -r -f -a "run\t''
respect\t''
reset\t''"
complete -c requeue -n "__fish_requeue_using_subcommand run" -l again-after -d 'Take exit status 75 as "run again after D, with the same values", not as a failure' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l fatal-code -d 'Do not retry a run with this exit status; can be given several times' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l drain-timeout -d 'After the end of the input, or the first signal, continue for at most D; then stop the programs and leave' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l failed-to -d 'At the end, write the keys that gave up to FILE (usable as input)' -r -F
complete -c requeue -n "__fish_requeue_using_subcommand run" -l left-to -d 'At the end, write unfinished keys (ready, waiting for a retry, or stopped) to FILE (usable as input)' -r -F
complete -c requeue -n "__fish_requeue_using_subcommand run" -l joblog -d 'Append a line for each run to FILE: key, attempt, start, seconds, status and signal, separated by tabs' -r -F
complete -c requeue -n "__fish_requeue_using_subcommand run" -l listen -d 'Serve /metrics (for Prometheus) and /healthz over HTTP: on a PORT of this machine, or an ADDRESS:PORT' -r
complete -c requeue -n "__fish_requeue_using_subcommand run" -l metrics-to -d 'At the end, write the metrics of --listen to FILE' -r -F
complete -c requeue -n "__fish_requeue_using_subcommand run" -l log -d 'Format of reports of failed runs on standard error [default: text]' -r -f -a "text\t''
json\t''
off\t''"
complete -c requeue -n "__fish_requeue_using_subcommand run" -l summary -d 'Format of the summary on standard error at the end [default: text]' -r -f -a "text\t''
json\t''
off\t''"
complete -c requeue -n "__fish_requeue_using_subcommand run" -s 0 -l null -d 'Keys end with a NUL, not with a newline, also in the files of --failed-to and --left-to'
complete -c requeue -n "__fish_requeue_using_subcommand run" -l priority -d 'Each line of the input starts with a priority, a number from -32768 to 32767, and a tab; higher priorities run first. A key that comes again with a higher priority is raised. Watched files have 0'
complete -c requeue -n "__fish_requeue_using_subcommand run" -l absorb -d 'Let a run replace the delayed runs (retries too) that its key had when it began. Without this each of them runs when it is due'
complete -c requeue -n "__fish_requeue_using_subcommand run" -l tag -d 'Prefix each line of output with the key and a tab'
complete -c requeue -n "__fish_requeue_using_subcommand run" -l group -d 'Print a run\'s output when it ends, in one piece'
complete -c requeue -n "__fish_requeue_using_subcommand run" -s k -l keep-order -d 'Print the output of each run in one piece, in the order in which keys were read. Output after a key that waits for a retry is kept until that key is done or gives up. A key that comes again after its run began goes to the end'
complete -c requeue -n "__fish_requeue_using_subcommand run" -l dry-run -d 'Print the commands, once for each key, and run nothing'
complete -c requeue -n "__fish_requeue_using_subcommand run" -l stdin -d 'With --watch, read keys from standard input too'
complete -c requeue -n "__fish_requeue_using_subcommand run" -l dirs -d 'Make directories keys too'
complete -c requeue -n "__fish_requeue_using_subcommand run" -l no-gitignore -d 'Ignore .gitignore files: the files that they hide, and .git, become keys too'
complete -c requeue -n "__fish_requeue_using_subcommand run" -l no-initial -d 'Run only for changes, not for files that exist at the start; same as --on write,delete'
complete -c requeue -n "__fish_requeue_using_subcommand run" -l one -d 'Treat all changes as one key: run PROGRAM once per batch of changes, without a path argument. The key is the first PATH'
complete -c requeue -n "__fish_requeue_using_subcommand run" -l stay -d 'With --state, continue after the end of the input until a signal: keys come from `requeue add`'
complete -c requeue -n "__fish_requeue_using_subcommand run" -l fail-fast -d 'When a key gives up, start no further run: current runs end, other keys are left'
complete -c requeue -n "__fish_requeue_using_subcommand run" -l resume -d 'Skip the keys whose last run in the file of --joblog succeeded (needs --joblog)'
complete -c requeue -n "__fish_requeue_using_subcommand run" -s q -l quiet -d 'Print no log, summary or progress line, unless --log or --summary asks for it'
complete -c requeue -n "__fish_requeue_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l rate -d 'Calls a second' -r
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l burst -d 'Calls that may come at once' -r
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l base -d 'The first delay of a key' -r
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l max -d 'The longest delay' -r
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l fast -d 'The delay at first' -r
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l slow -d 'The delay afterwards' -r
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l after -d 'So many fast delays come first' -r
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l period -d 'The length of a window' -r
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l quota -d 'Calls in a window' -r
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l fraction -d 'A delay is lengthened by a random part of it, up to this fraction' -r
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l seed -d 'Another seed gives other random parts' -r
complete -c requeue -n "__fish_requeue_using_subcommand plan" -s n -l calls -d 'Ask the limiter N times' -r
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l every -d 'Call every D; 0s: all at once' -r
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l keys -d 'Let N keys take turns' -r
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l svg -d 'Draw the delays into FILE, instead of the table' -r -F
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l plot -d 'Draw the delays in the terminal, instead of the table'
complete -c requeue -n "__fish_requeue_using_subcommand plan" -l json -d 'Print a line of JSON for each call, instead of the table'
complete -c requeue -n "__fish_requeue_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c requeue -n "__fish_requeue_using_subcommand work" -l engine -d 'Place of the queue: `sqlite:FILE`, or `postgres://USER:PASSWORD@HOST/DATABASE`. The default is $REQUEUE_ENGINE, which `ps` does not show: better for a password. Special characters are percent-encoded' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l lease -d 'On a server, how long this process may be silent before others get its keys [default: 30s]' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l max-wait -d 'One of every 8 runs is of the key that has been ready longest, once that is D; not with --group-by, as of each group the oldest key runs first anyway (not on a server)' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l overdue-every -d 'With --max-wait, one of every N runs instead of every 8; 2 at least (not on a server)' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l group-by -d 'In a file, keys belong to groups, and groups take turns: the group of a key is what stands before the first SEP (the whole key, where there is none). In slashes it is what REGEX matches, or its first group in parentheses; keys that it does not match are one group. On a server this option is needed only because --group-cap requires it; it does not change any key\'s group, which `requeue add --group-by` gave it' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l group-cap -d 'With --group-by, run at most N programs of each group at a time; on a server, in all processes together and from then on. `none` takes back a cap that a server has' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l group-rate -d 'With --group-by, at most R runs of each group start in a second, or in a minute or an hour with R/m and R/h, retries too; runs of the others go before those that wait for this (not on a server)' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l merge -d 'Read lines of a key, a tab and a value, and pass the values of a run\'s triggers in REQUEUE_PAYLOAD: last (the last one), concat (all, one per line), count (the number of triggers, with or without values). A run that comes after a failed one, or one that ended with 75 (--again-after), also gets its values' -r -f -a "last\t''
concat\t''
count\t''"
complete -c requeue -n "__fish_requeue_using_subcommand work" -l watch -d 'Watch PATH: first all files at and below it are keys, then each file that is written, created, moved or deleted; can be given several times' -r -F
complete -c requeue -n "__fish_requeue_using_subcommand work" -l glob -d 'Use only files that match GLOB (syntax of .gitignore) as keys; can be given several times' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l ignore -d 'Skip files and directories that match GLOB; can be given several times' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l on -d 'Run a key on these events, separated by commas: initial (it exists at the start), write (it is created or changed), delete' -r -f -a "initial\t''
write\t''
delete\t''"
complete -c requeue -n "__fish_requeue_using_subcommand work" -l resync -d 'Look at everything again and run every key again, every D' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l debounce -d 'Run a key when no trigger has come for it for QUIET, at the latest MAX after the first [default: 0s; with --watch 50ms]' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l debounce-max -d 'With a --debounce without MAX, run a key at the latest D after its first trigger [default: 1s]' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l bound -d 'Keep at most N keys that wait, are retried or run; read more input when some are done' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l state -d 'Keep the queue in FILE, which is created if needed: accepted keys, with their failures, delays, priorities and values, continue after any end, even kill -9' -r -F
complete -c requeue -n "__fish_requeue_using_subcommand work" -l queue -d 'The name of the queue [default: default]' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -s j -l workers -d 'Run at most N programs at a time [default: number of cores]' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l rate -d 'At most R runs start in a second, or in a minute or an hour with R/m and R/h, retries too; a key that comes again while it waits costs nothing. On a server in all processes together and from then on; `none` takes back a rate that a server has' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l timeout -d 'Fail a run that takes longer than D: TERM, then KILL, to its process group' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l grace -d 'Time between TERM and KILL' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l base-delay -d 'Delay before the first retry; it doubles with every failure in a row [default: 1s; on a server what its queue has, 1s at first]' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l max-delay -d 'The longest delay before a retry [default: 5m; on a server what its queue has, 5m at first]' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l jitter -d 'Lengthen each delay by a random part of it, up to this fraction (not on a server) [default: 0.2]' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l limiter -d 'Retry as this limiter says, instead of --base-delay, --max-delay, --jitter, --retry-rate and --retry-burst; a text as `requeue plan` takes it, such as fast-slow:fast=1s,slow=1m,after=3 (not on a server)' -r -f -a "bucket\t'All keys at a rate, after a burst'
per-key-bucket\t'Each key at a rate, after a burst'
exponential\t'A delay that doubles with each failure of a key'
fast-slow\t'A few short delays of a key, then long ones'
window\t'So many keys in each window of time'
default\t'Controllers\' default: exponential, 5ms to 1000s, and a bucket of 10 a second, burst 100'
default-per-item\t'The default for single keys: exponential, 1ms to 1000s'
max-of\t'The longest delay of several limiters'
max-wait\t'Another limiter, whose delays are cut'
jitter\t'Another limiter, whose delays are lengthened at random'"
complete -c requeue -n "__fish_requeue_using_subcommand work" -l retry-rate -d 'At most R retries a second over all keys (not on a server; off by default)' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l retry-burst -d 'Up to N retries at once under --retry-rate (not on a server) [default: 1]' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l max-attempts -d 'A key gives up at its N-th failed attempt; 0: never [default: 5]' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l in-backoff -d 'Set how a trigger acts on a key that waits for a retry, or whose current run fails: run (run it now), respect (wait for the retry), reset (run it now, and forget its failures)' -r -f -a "run\t''
respect\t''
reset\t''"
complete -c requeue -n "__fish_requeue_using_subcommand work" -l again-after -d 'Take exit status 75 as "run again after D, with the same values", not as a failure' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l fatal-code -d 'Do not retry a run with this exit status; can be given several times' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l drain-timeout -d 'After the first signal, go on for D at most: then stop the programs and leave' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l failed-to -d 'At the end, write the keys that gave up to FILE (usable as input)' -r -F
complete -c requeue -n "__fish_requeue_using_subcommand work" -l left-to -d 'At the end, write unfinished keys (ready, waiting for a retry, or stopped) to FILE (usable as input)' -r -F
complete -c requeue -n "__fish_requeue_using_subcommand work" -l joblog -d 'Append a line for each run to FILE: key, attempt, start, seconds, status and signal, separated by tabs' -r -F
complete -c requeue -n "__fish_requeue_using_subcommand work" -l listen -d 'Serve /metrics (for Prometheus) and /healthz over HTTP: on a PORT of this machine, or an ADDRESS:PORT' -r
complete -c requeue -n "__fish_requeue_using_subcommand work" -l metrics-to -d 'At the end, write the metrics of --listen to FILE' -r -F
complete -c requeue -n "__fish_requeue_using_subcommand work" -l log -d 'Format of reports of failed runs on standard error [default: text]' -r -f -a "text\t''
json\t''
off\t''"
complete -c requeue -n "__fish_requeue_using_subcommand work" -l summary -d 'Format of the summary on standard error at the end [default: text]' -r -f -a "text\t''
json\t''
off\t''"
complete -c requeue -n "__fish_requeue_using_subcommand work" -s 0 -l null -d 'Keys end with a NUL, not with a newline, in the file of --failed-to'
complete -c requeue -n "__fish_requeue_using_subcommand work" -l priority -d 'Each line of the input starts with a priority, a number from -32768 to 32767, and a tab; higher priorities run first. A key that comes again with a higher priority is raised. Watched files have 0'
complete -c requeue -n "__fish_requeue_using_subcommand work" -l absorb -d 'A run stands for the delayed runs that its key had before it began, retries too: their timers go. Without this each comes when it is due (not on a server)'
complete -c requeue -n "__fish_requeue_using_subcommand work" -l tag -d 'Prefix each line of output with the key and a tab'
complete -c requeue -n "__fish_requeue_using_subcommand work" -l group -d 'Print a run\'s output when it ends, in one piece'
complete -c requeue -n "__fish_requeue_using_subcommand work" -s k -l keep-order -d 'Print the output of each run in one piece, in the order in which keys were read. Output after a key that waits for a retry is kept until that key is done or gives up. A key that comes again after its run began goes to the end'
complete -c requeue -n "__fish_requeue_using_subcommand work" -l dry-run -d 'Print the commands, once for each key, and run nothing'
complete -c requeue -n "__fish_requeue_using_subcommand work" -l stdin -d 'With --watch, read keys from standard input too'
complete -c requeue -n "__fish_requeue_using_subcommand work" -l dirs -d 'Make directories keys too'
complete -c requeue -n "__fish_requeue_using_subcommand work" -l no-gitignore -d 'Ignore .gitignore files: the files that they hide, and .git, become keys too'
complete -c requeue -n "__fish_requeue_using_subcommand work" -l no-initial -d 'Run only for changes, not for files that exist at the start; same as --on write,delete'
complete -c requeue -n "__fish_requeue_using_subcommand work" -l one -d 'Treat all changes as one key: run PROGRAM once per batch of changes, without a path argument. The key is the first PATH'
complete -c requeue -n "__fish_requeue_using_subcommand work" -l stay -d 'With --state, continue after the end of the input until a signal: keys come from `requeue add`'
complete -c requeue -n "__fish_requeue_using_subcommand work" -l fail-fast -d 'When a key gives up, start no further run: current runs end, other keys are left'
complete -c requeue -n "__fish_requeue_using_subcommand work" -l resume -d 'Skip the keys whose last run in the file of --joblog succeeded (needs --joblog)'
complete -c requeue -n "__fish_requeue_using_subcommand work" -s q -l quiet -d 'Print no log, summary or progress line, unless --log or --summary asks for it'
complete -c requeue -n "__fish_requeue_using_subcommand work" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c requeue -n "__fish_requeue_using_subcommand add" -l engine -d 'Place of the queue: `sqlite:FILE`, or `postgres://USER:PASSWORD@HOST/DATABASE`. The default is $REQUEUE_ENGINE, which `ps` does not show: better for a password. Special characters are percent-encoded' -r
complete -c requeue -n "__fish_requeue_using_subcommand add" -l queue -d 'Name of the queue' -r
complete -c requeue -n "__fish_requeue_using_subcommand add" -l after -d 'Run after this delay' -r
complete -c requeue -n "__fish_requeue_using_subcommand add" -l at -d 'Run at this time: 18:00 or 18:00:00 (the next one, local time), 2031-12-24T18:00 (local time), 2031-12-24T18:00:00Z (RFC 3339), or 2031-12-24T18:00[Europe/Berlin]' -r
complete -c requeue -n "__fish_requeue_using_subcommand add" -l every -d 'Run again every DURATION, until the key is cancelled, also after restarts. With --at: at that time and every DURATION from then on, however long runs take; whole days are calendar days, so that 18:00 stays 18:00 when clocks change. Without --at: DURATION after the end of each run, the first one now or --after. Runs missed while nothing worked on the queue, or during a run, become one run' -r
complete -c requeue -n "__fish_requeue_using_subcommand add" -l cron -d 'Run at the times of this cron expression (minute, hour, day of the month, month, day of the week, and optionally a time zone), such as \'0 18 * * 1-5\', until the key is cancelled. A time that is skipped when clocks change comes later by the change, and one that occurs twice comes once; if minute or hour begin with * it comes whenever clocks show it' -r
complete -c requeue -n "__fish_requeue_using_subcommand add" -l priority -d 'Priority of the run, in a queue that has priorities; higher ones run first' -r
complete -c requeue -n "__fish_requeue_using_subcommand add" -l value -d 'Pass this JSON value to the runs of the keys; values of a key before its run are all passed to it' -r
complete -c requeue -n "__fish_requeue_using_subcommand add" -l group-by -d 'On a server, divide keys into groups that take turns. The group of a key is the text before the first SEP (or the whole key, without one). With /REGEX/ it is the match, or its first group in parentheses; keys that do not match form one group' -r
complete -c requeue -n "__fish_requeue_using_subcommand add" -l json -d 'Print one JSON object per line'
complete -c requeue -n "__fish_requeue_using_subcommand add" -l absorb -d 'The run stands for the delayed runs that the keys have by now, retries too: their timers go. Without this each comes when it is due'
complete -c requeue -n "__fish_requeue_using_subcommand add" -l values -d 'Read lines of a key, a tab and a JSON value from standard input. An invalid line is reported, and the others are added'
complete -c requeue -n "__fish_requeue_using_subcommand add" -l make -d 'On a server, create the queue if needed. Without this, a name that no process has worked on is an error; the queue `default` is always created'
complete -c requeue -n "__fish_requeue_using_subcommand add" -s 0 -l null -d 'Keys on standard input end with a NUL instead of a newline'
complete -c requeue -n "__fish_requeue_using_subcommand add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c requeue -n "__fish_requeue_using_subcommand ls" -l engine -d 'Place of the queue: `sqlite:FILE`, or `postgres://USER:PASSWORD@HOST/DATABASE`. The default is $REQUEUE_ENGINE, which `ps` does not show: better for a password. Special characters are percent-encoded' -r
complete -c requeue -n "__fish_requeue_using_subcommand ls" -l queue -d 'Name of the queue' -r
complete -c requeue -n "__fish_requeue_using_subcommand ls" -l json -d 'Print one JSON object per line'
complete -c requeue -n "__fish_requeue_using_subcommand ls" -l dead -d 'List only keys whose last run gave up'
complete -c requeue -n "__fish_requeue_using_subcommand ls" -l running -d 'List only running keys'
complete -c requeue -n "__fish_requeue_using_subcommand ls" -l queues -d 'List the names of the queues'
complete -c requeue -n "__fish_requeue_using_subcommand ls" -l groups -d 'On a server, list the groups that are paused or have a weight or a cap of their own'
complete -c requeue -n "__fish_requeue_using_subcommand ls" -s h -l help -d 'Print help'
complete -c requeue -n "__fish_requeue_using_subcommand state" -l engine -d 'Place of the queue: `sqlite:FILE`, or `postgres://USER:PASSWORD@HOST/DATABASE`. The default is $REQUEUE_ENGINE, which `ps` does not show: better for a password. Special characters are percent-encoded' -r
complete -c requeue -n "__fish_requeue_using_subcommand state" -l queue -d 'Name of the queue' -r
complete -c requeue -n "__fish_requeue_using_subcommand state" -l json -d 'Print one JSON object per line'
complete -c requeue -n "__fish_requeue_using_subcommand state" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c requeue -n "__fish_requeue_using_subcommand cancel" -l engine -d 'Place of the queue: `sqlite:FILE`, or `postgres://USER:PASSWORD@HOST/DATABASE`. The default is $REQUEUE_ENGINE, which `ps` does not show: better for a password. Special characters are percent-encoded' -r
complete -c requeue -n "__fish_requeue_using_subcommand cancel" -l queue -d 'Name of the queue' -r
complete -c requeue -n "__fish_requeue_using_subcommand cancel" -l prefix -d 'All keys that begin with PREFIX' -r
complete -c requeue -n "__fish_requeue_using_subcommand cancel" -l expect -d 'With --prefix or --all, cancel the keys if there are exactly N' -r
complete -c requeue -n "__fish_requeue_using_subcommand cancel" -l json -d 'Print one JSON object per line'
complete -c requeue -n "__fish_requeue_using_subcommand cancel" -l all -d 'All keys of the queue'
complete -c requeue -n "__fish_requeue_using_subcommand cancel" -s y -l yes -d 'With --prefix or --all, do not ask'
complete -c requeue -n "__fish_requeue_using_subcommand cancel" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c requeue -n "__fish_requeue_using_subcommand retry" -l engine -d 'Place of the queue: `sqlite:FILE`, or `postgres://USER:PASSWORD@HOST/DATABASE`. The default is $REQUEUE_ENGINE, which `ps` does not show: better for a password. Special characters are percent-encoded' -r
complete -c requeue -n "__fish_requeue_using_subcommand retry" -l queue -d 'Name of the queue' -r
complete -c requeue -n "__fish_requeue_using_subcommand retry" -l json -d 'Print one JSON object per line'
complete -c requeue -n "__fish_requeue_using_subcommand retry" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c requeue -n "__fish_requeue_using_subcommand pause" -l engine -d 'Place of the queue: `sqlite:FILE`, or `postgres://USER:PASSWORD@HOST/DATABASE`. The default is $REQUEUE_ENGINE, which `ps` does not show: better for a password. Special characters are percent-encoded' -r
complete -c requeue -n "__fish_requeue_using_subcommand pause" -l queue -d 'Name of the queue' -r
complete -c requeue -n "__fish_requeue_using_subcommand pause" -l group -d 'On a server, only the keys of this group' -r
complete -c requeue -n "__fish_requeue_using_subcommand pause" -l json -d 'Print one JSON object per line'
complete -c requeue -n "__fish_requeue_using_subcommand pause" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c requeue -n "__fish_requeue_using_subcommand resume" -l engine -d 'Place of the queue: `sqlite:FILE`, or `postgres://USER:PASSWORD@HOST/DATABASE`. The default is $REQUEUE_ENGINE, which `ps` does not show: better for a password. Special characters are percent-encoded' -r
complete -c requeue -n "__fish_requeue_using_subcommand resume" -l queue -d 'Name of the queue' -r
complete -c requeue -n "__fish_requeue_using_subcommand resume" -l group -d 'On a server, only the keys of this group' -r
complete -c requeue -n "__fish_requeue_using_subcommand resume" -l json -d 'Print one JSON object per line'
complete -c requeue -n "__fish_requeue_using_subcommand resume" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c requeue -n "__fish_requeue_using_subcommand purge" -l engine -d 'Place of the queue: `sqlite:FILE`, or `postgres://USER:PASSWORD@HOST/DATABASE`. The default is $REQUEUE_ENGINE, which `ps` does not show: better for a password. Special characters are percent-encoded' -r
complete -c requeue -n "__fish_requeue_using_subcommand purge" -l queue -d 'Name of the queue' -r
complete -c requeue -n "__fish_requeue_using_subcommand purge" -l json -d 'Print one JSON object per line'
complete -c requeue -n "__fish_requeue_using_subcommand purge" -s h -l help -d 'Print help'
complete -c requeue -n "__fish_requeue_using_subcommand stats" -l engine -d 'Place of the queue: `sqlite:FILE`, or `postgres://USER:PASSWORD@HOST/DATABASE`. The default is $REQUEUE_ENGINE, which `ps` does not show: better for a password. Special characters are percent-encoded' -r
complete -c requeue -n "__fish_requeue_using_subcommand stats" -l queue -d 'Name of the queue' -r
complete -c requeue -n "__fish_requeue_using_subcommand stats" -l json -d 'Print one JSON object per line'
complete -c requeue -n "__fish_requeue_using_subcommand stats" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c requeue -n "__fish_requeue_using_subcommand top" -l engine -d 'Place of the queue: `sqlite:FILE`, or `postgres://USER:PASSWORD@HOST/DATABASE`. The default is $REQUEUE_ENGINE, which `ps` does not show: better for a password. Special characters are percent-encoded' -r
complete -c requeue -n "__fish_requeue_using_subcommand top" -l every -d 'Interval between two looks' -r
complete -c requeue -n "__fish_requeue_using_subcommand top" -l times -d 'End after this number of looks' -r
complete -c requeue -n "__fish_requeue_using_subcommand top" -l json -d 'Print one JSON object per line'
complete -c requeue -n "__fish_requeue_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c requeue -n "__fish_requeue_using_subcommand migrate" -l engine -d 'Place of the queue: `sqlite:FILE`, or `postgres://USER:PASSWORD@HOST/DATABASE`. The default is $REQUEUE_ENGINE, which `ps` does not show: better for a password. Special characters are percent-encoded' -r
complete -c requeue -n "__fish_requeue_using_subcommand migrate" -l queue -d 'Name of the queue' -r
complete -c requeue -n "__fish_requeue_using_subcommand migrate" -l json -d 'Print one JSON object per line'
complete -c requeue -n "__fish_requeue_using_subcommand migrate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c requeue -n "__fish_requeue_using_subcommand check" -l engine -d 'Place of the queue: `sqlite:FILE`, or `postgres://USER:PASSWORD@HOST/DATABASE`. The default is $REQUEUE_ENGINE, which `ps` does not show: better for a password. Special characters are percent-encoded' -r
complete -c requeue -n "__fish_requeue_using_subcommand check" -l queue -d 'Name of the queue' -r
complete -c requeue -n "__fish_requeue_using_subcommand check" -l json -d 'Print one JSON object per line'
complete -c requeue -n "__fish_requeue_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "run" -d 'Run PROGRAM once per key, never twice at a time for one key'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "plan" -d 'Show what a limiter does, before it is put in production'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "work" -d 'Run PROGRAM for the keys of a durable queue, beside other processes'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "add" -d 'Add keys to a durable queue'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "ls" -d 'List the keys of a durable queue, in the order of its line'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "state" -d 'Show the state of a key of a durable queue'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "cancel" -d 'Cancel the runs that keys wait for; a current run goes on'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "retry" -d 'Run a key now that waits or gave up'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "pause" -d 'Pause a durable queue: none of its keys runs until it is resumed'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "resume" -d 'End a pause'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "purge" -d 'Remove the keys of a durable queue that gave up, and print their number'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "stats" -d 'Count the keys of a durable queue'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "top" -d 'Show the durable queues of an engine, refreshed until an interrupt'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "migrate" -d 'Make the schema on a PostgreSQL server, or bring it to this version'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "check" -d 'Check the file of a durable queue'
complete -c requeue -n "__fish_requeue_using_subcommand help; and not __fish_seen_subcommand_from run plan work add ls state cancel retry pause resume purge stats top migrate check help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c requeue -n "__fish_requeue_using_subcommand plan" -f -a "bucket" -d 'All keys at a rate, after a burst'
complete -c requeue -n "__fish_requeue_using_subcommand plan" -f -a "per-key-bucket" -d 'Each key at a rate, after a burst'
complete -c requeue -n "__fish_requeue_using_subcommand plan" -f -a "exponential" -d 'A delay that doubles with each failure of a key'
complete -c requeue -n "__fish_requeue_using_subcommand plan" -f -a "fast-slow" -d 'A few short delays of a key, then long ones'
complete -c requeue -n "__fish_requeue_using_subcommand plan" -f -a "window" -d 'So many keys in each window of time'
complete -c requeue -n "__fish_requeue_using_subcommand plan" -f -a "default" -d 'Controllers\' default: exponential, 5ms to 1000s, and a bucket of 10 a second, burst 100'
complete -c requeue -n "__fish_requeue_using_subcommand plan" -f -a "default-per-item" -d 'The default for single keys: exponential, 1ms to 1000s'
complete -c requeue -n "__fish_requeue_using_subcommand plan" -f -a "max-of" -d 'The longest delay of several limiters'
complete -c requeue -n "__fish_requeue_using_subcommand plan" -f -a "max-wait" -d 'Another limiter, whose delays are cut'
complete -c requeue -n "__fish_requeue_using_subcommand plan" -f -a "jitter" -d 'Another limiter, whose delays are lengthened at random'

//! Wrong invocations, with the whole message of each: what is wrong, and what would be
//! right.

use std::process::Command;

use crate::harness::run;

const RUN: &str = "requeue run [OPTIONS] [--] PROGRAM [ARG]...";
const PLAN: &str = "requeue plan LIMITER [PARAMETERS] [WITHIN]... [OPTIONS]";
const ALL: &str = "requeue run [OPTIONS] [--] PROGRAM [ARG]...\n       requeue plan LIMITER [PARAMETERS] [OPTIONS]\n       \
     requeue work|add|ls|state|cancel|retry|pause|resume|purge|stats|top|migrate|check [OPTIONS]...";

/// Each message is the text here; then the usage, where it is given; then where there is
/// more.
fn refused(cases: &[(&[&str], &str, Option<&str>)]) {
    for (args, message, usage) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
        command.args(*args);
        let done = run(command, b"a\n");
        let usage = usage.map_or_else(String::new, |usage| format!("Usage: {usage}\n\n"));
        let expected = format!("error: {message}\n\n{usage}For more information, try '--help'.\n");
        assert_eq!(done.err, expected, "{args:?}");
        assert_eq!((done.status, done.text()), (2, ""), "{args:?}");
    }
}

#[test]
fn of_the_command() {
    refused(&[
        (&["walk"], "unrecognized subcommand 'walk'", Some(ALL)),
        (
            &["plna"],
            "unrecognized subcommand 'plna'\n\n  tip: a similar subcommand exists: 'plan'",
            Some(ALL),
        ),
        (&["--bogus"], "unexpected argument '--bogus' found", Some(ALL)),
    ]);
}

#[test]
fn of_work() {
    const WORK: &str = "requeue work [OPTIONS] [--] PROGRAM [ARG]...";
    let server = "--engine=postgres://u:secret@h/d";
    refused(&[
        (&["work"], "the following required arguments were not provided:\n  <PROGRAM [ARG]>...", Some(WORK)),
        (
            &["work", "--engine", "redis://x", "echo"],
            "--engine redis://…: write sqlite:FILE or postgres://USER@HOST/DATABASE",
            Some(WORK),
        ),
        // in other programs that is a path from here
        (
            &["work", "--engine", "sqlite://queue.db", "echo"],
            "--engine sqlite://…: write sqlite:FILE, such as sqlite:queue.db or sqlite:/var/lib/queue.db",
            Some(WORK),
        ),
        // a part that may be a password is not repeated
        (
            &["work", "--engine", "pgsql://u:secret@h/d", "echo"],
            "--engine pgsql://…: write sqlite:FILE or postgres://USER@HOST/DATABASE",
            Some(WORK),
        ),
        (
            &["work", "--engine", "host=db password=s3://secret", "echo"],
            "--engine: write sqlite:FILE or postgres://USER@HOST/DATABASE",
            Some(WORK),
        ),
        (
            &["work", "--engine", "postgres:u:secret", "echo"],
            "--engine postgres: write postgres://USER@HOST/DATABASE",
            Some(WORK),
        ),
        (
            &["work", server, "--watch", ".", "echo"],
            "--watch has no meaning for work: keys come from the engine",
            Some(WORK),
        ),
        (
            &["work", "--engine=sqlite:q.db", "--state", "q.db", "echo"],
            "--state has no meaning for work: say --engine sqlite:FILE",
            Some(WORK),
        ),
        (
            &["work", server, "--limiter", "exponential", "echo"],
            "--limiter has no meaning for a server: the back-off is the queue's, for all processes: say --base-delay and --max-delay",
            Some(WORK),
        ),
        (
            &["work", "--engine=sqlite:q.db", "--max-delay", "1ms", "echo"],
            "--max-delay (1ms) is shorter than --base-delay, which is 1s where it is not given: give both",
            Some(WORK),
        ),
        (
            &["work", "--engine=sqlite:q.db", "--base-delay", "10m", "echo"],
            "--base-delay (10m) is longer than --max-delay, which is 5m where it is not given: give both",
            Some(WORK),
        ),
        (
            &["work", "--engine=sqlite:q.db", "--lease", "5s", "echo"],
            "--lease has no meaning for a file: one process works on each of its queues",
            Some(WORK),
        ),
        (&["run", "--queue", "x", "echo"], "--queue needs --state FILE", Some(RUN)),
    ]);
}

#[test]
fn of_run() {
    const DURATION: &str =
        "write a number with its unit, such as 5ms, 1.5s or 2h30m (units: d, h, m, s, ms, us, ns)";
    let no_unit =
        format!("invalid value '5' for '--base-delay <D>': the unit after 5 is missing; {DURATION}");
    let unit = format!("invalid value '5sec' for '--timeout <D>': there is no unit \"sec\"; {DURATION}");
    refused(&[
        (&["run"], "the following required arguments were not provided:\n  <PROGRAM [ARG]>...", Some(RUN)),
        (
            &["run", "--tags", "echo"],
            "unexpected argument '--tags' found\n\n  tip: a similar argument exists: '--tag'\n  tip: to pass '--tags' as a value, use '-- --tags'",
            Some(RUN),
        ),
        (
            &["run", "--odd", "echo"],
            "unexpected argument '--odd' found\n\n  tip: to pass '--odd' as a value, use '-- --odd'",
            Some(RUN),
        ),
        (
            &["run", "--debounce-max", "2s", "echo"],
            "the following required arguments were not provided:\n  <--watch <PATH>|--debounce <QUIET[:MAX]>>",
            Some(RUN),
        ),
        (
            &["run", "--max-wait", "2s", "echo"],
            "--max-wait needs --priority: where keys have no priorities the oldest one runs first anyway",
            Some(RUN),
        ),
        (&["run", "-j"], "a value is required for '--workers <N>' but none was supplied", None),
        (
            &["run", "-j0", "echo"],
            "invalid value '0' for '--workers <N>': give a number from 1 to 10000",
            None,
        ),
        (&["run", "--base-delay", "5", "echo"], &no_unit, None),
        (&["run", "--timeout", "5sec", "echo"], &unit, None),
        (
            &["run", "--timeout", "0s", "echo"],
            "invalid value '0s' for '--timeout <D>': it must be longer than nothing",
            None,
        ),
        (
            &["run", "--grace", "1m1h", "echo"],
            "invalid value '1m1h' for '--grace <D>': units go from large to small, each at most once, as in 2h30m",
            None,
        ),
        (
            &["run", "--base-delay", "2s", "--max-delay", "1s", "echo"],
            "--base-delay (2s) is longer than --max-delay (1s)",
            Some(RUN),
        ),
        (
            &["run", "--jitter", "2", "echo"],
            "invalid value '2' for '--jitter <F>': give a number from 0 to 1, such as 0.2",
            None,
        ),
        (
            &["run", "--retry-rate", "0", "echo"],
            "invalid value '0' for '--retry-rate <R>': give retries a second from 0.000001 to 1000000, such as 10 or 0.5",
            None,
        ),
        (
            &["run", "--retry-rate", "1", "--retry-burst", "0", "echo"],
            "invalid value '0' for '--retry-burst <N>': give a number from 1 to 4294967295",
            None,
        ),
        (
            &["run", "--max-attempts", "many", "echo"],
            "invalid value 'many' for '--max-attempts <N>': give a number from 1 to 4294967295, or 0 for no limit",
            None,
        ),
        (
            &["run", "--fatal-code", "256", "echo"],
            "invalid value '256' for '--fatal-code <CODE>': give an exit status from 1 to 255",
            None,
        ),
        (
            &["run", "--again-after", "1s", "--fatal-code", "75", "echo"],
            "--fatal-code 75 contradicts --again-after, which gives that exit status another meaning",
            Some(RUN),
        ),
        (
            &["run", "--log", "xml", "echo"],
            "invalid value 'xml' for '--log <FORM>'\n  [possible values: text, json, off]",
            None,
        ),
    ]);
}

#[test]
fn of_plan_a_limiter() {
    const DIGITS: &str = "give calls a second in digits, such as 10 or 0.001 (not 1e-3), or inf for no limit";
    const ABOVE: &str = "give more than 0 calls a second, such as 0.5, or inf for no limit";
    let digits = ["nan", "-1", "1e3", "1e-300", "-inf"].map(|rate| (rate, DIGITS));
    for (rate, why) in digits.into_iter().chain([("0", ABOVE), ("0.000", ABOVE)]) {
        let message = format!("invalid value '{rate}' for '--rate <R>': {why}");
        refused(&[(&["plan", "bucket", "--rate", rate], &message, None)]);
    }
    refused(&[
        (
            &["plan", "bukket"],
            "invalid value 'bukket' for '<LIMITER>': there is no limiter \"bukket\"; there are bucket, \
             per-key-bucket, exponential, fast-slow, window, default, default-per-item, max-of, max-wait, jitter",
            None,
        ),
        (
            &["plan", "bucket", "--rat", "5"],
            "unexpected argument '--rat' found\n\n  tip: a similar argument exists: '--rate'",
            Some(PLAN),
        ),
        (
            &["plan", "exponential", "--rate", "5"],
            "exponential has no --rate; it has --base and --max",
            Some(PLAN),
        ),
        (&["plan", "default", "--max", "5s"], "default has no --max; it has no parameters", Some(PLAN)),
        (
            &["plan", "bucket", "--burst", "0"],
            "invalid value '0' for '--burst <N>': give a whole number from 1 to 4294967295",
            None,
        ),
        (
            &["plan", "exponential", "--base", "2s", "--max", "1s"],
            "max=1s is shorter than base=2s: it must be at least as long",
            Some(PLAN),
        ),
        (
            &["plan", "fast-slow", "--fast", "1s"],
            "fast-slow needs --slow and --after, or as text fast-slow:slow=...,after=...",
            Some(PLAN),
        ),
        (
            &["plan", "bucket", "exponential"],
            "bucket takes no limiter; several go into max-of, as in max-of bucket exponential:base=1s (in one \
             text, with brackets: max-of(bucket,exponential(base=1s)))",
            Some(PLAN),
        ),
        (&["plan", "max-of"], "max-of needs limiters, as in max-of bucket exponential:base=1s", Some(PLAN)),
        (
            &["plan", "max-of", "bucket", "--rate", "5"],
            "max-of has no --rate; it has no parameters; a limiter within takes it in its text, as in bucket:rate=...",
            Some(PLAN),
        ),
        (
            &["plan", "jitter", "--fraction", "0.1"],
            "jitter needs another limiter, as in jitter exponential:base=1s",
            Some(PLAN),
        ),
        (
            &["plan", "jitter", "--fraction", "0.1", "bucket", "default"],
            "jitter takes one limiter; several go into max-of, as in jitter 'max-of(A,B)'",
            Some(PLAN),
        ),
        (
            &["plan", "jitter", "--fraction", "-0.1", "bucket"],
            "invalid value '-0.1' for '--fraction <F>': give a number from 0 on, such as 0.2",
            None,
        ),
    ]);
}

#[test]
fn of_plan_the_text_of_a_limiter() {
    refused(&[
        (
            &["plan", "max-of", "exponential:bsae=1s"],
            "invalid value 'exponential:bsae=1s' for '[WITHIN]...': exponential has no bsae; it has base and max",
            None,
        ),
        (
            &["plan", "max-of", "bucket:rate=0"],
            "invalid value 'bucket:rate=0' for '[WITHIN]...': rate=0: give more than 0 calls a second, \
             such as 0.5, or inf for no limit",
            None,
        ),
        (
            &["plan", "exponential(base=1s"],
            "invalid value 'exponential(base=1s' for '<LIMITER>': the ( after exponential is not closed: a ) is missing",
            None,
        ),
        (
            &["plan", "exponential:base="],
            "invalid value 'exponential:base=' for '<LIMITER>': the value of base is missing: write base=VALUE",
            None,
        ),
        (
            &["plan", "exponential:base=1s", "--base", "2s"],
            "base is given twice: as --base and in the text",
            Some(PLAN),
        ),
        (&["plan", "exponential:base=1s,base=2s"], "base is given twice", Some(PLAN)),
    ]);
}

#[test]
fn of_plan_calls_and_output() {
    refused(&[
        (
            &["plan", "bucket", "-n", "0"],
            "invalid value '0' for '--calls <N>': give a whole number from 1 to 1000000000",
            None,
        ),
        (
            &["plan", "bucket", "-n", "1000000001"],
            "invalid value '1000000001' for '--calls <N>': give a whole number from 1 to 1000000000",
            None,
        ),
        (
            &["plan", "bucket", "--keys", "-1"],
            "invalid value '-1' for '--keys <N>': give a whole number from 1 to 1000000",
            None,
        ),
        (
            &["plan", "bucket", "--every", "100000d"],
            "the last of 10 calls, one every 8640000000s, would come when the clock has ended, after 584 years: \
             ask for fewer calls, or for less time between them",
            Some(PLAN),
        ),
        (
            &["plan", "bucket", "--json", "--plot"],
            "the argument '--json' cannot be used with '--plot'",
            Some(PLAN),
        ),
        (&["plan", "bucket", "--svg"], "a value is required for '--svg <FILE>' but none was supplied", None),
    ]);
}

#[test]
fn without_arguments_plan_shows_its_help() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.arg("plan");
    let done = run(command, b"");
    assert_eq!(done.status, 2);
    assert!(
        done.err.contains("Usage: requeue plan LIMITER") && done.err.contains("Examples:"),
        "{}",
        done.err
    );
}

//! The environment of PROGRAM: arguments, variables, input, a group of its own.

use std::collections::BTreeSet;

use crate::harness::{Gate, dir, executable, read, requeue, run, script, start, until};

#[test]
fn the_key_is_appended_or_takes_its_places() {
    let done = run(requeue(&["echo", "-n", "x"]), b"k");
    assert_eq!(done.text(), "x k\n");
    let done = run(requeue(&["echo", "{}", "a{}b{}"]), b"k");
    assert_eq!(done.text(), "k akbk\n");
}

#[test]
fn a_dash_dash_before_the_program_is_optional() {
    for args in [&["-j1", "echo", "-e", "--tag"][..], &["-j1", "--", "echo", "-e", "--tag"]] {
        let done = run(requeue(args), b"k\n");
        assert_eq!(done.text().trim_end(), "--tag k");
    }
    let done = run(requeue(&["echo", "--", "-x", "{}", "--"]), b"k\n");
    assert_eq!(done.text(), "-- -x k --\n");
}

#[test]
fn the_environment_tells_key_attempt_and_failures() {
    let dir = dir();
    let done = run(
        script(
            &["--base-delay", "1ms"],
            dir.path(),
            "echo $REQUEUE_KEY $REQUEUE_ATTEMPT $REQUEUE_FAILURES >> $D/log; [ $REQUEUE_ATTEMPT = 3 ]",
        ),
        b"k\n",
    );
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!(read(dir.path().join("log")), "k 1 0\nk 2 1\nk 3 2\n");
    assert!(done.err.contains("3 runs, 0 coalesced, 2 retries"), "{}", done.err);
}

#[test]
fn the_help_names_the_variables_that_each_run_has_apart_from_those_of_options() {
    fn names(text: &str) -> BTreeSet<&str> {
        let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
        words.filter(|word| word.starts_with("REQUEUE_")).collect()
    }
    let mut help = requeue(&["--help"]);
    let help = String::from_utf8(help.output().unwrap().stdout).unwrap();
    let (_, variables) = help.split_once("In its environment: ").unwrap();
    let (of_each_run, _of_options) = variables.split_once("With --").unwrap();
    let mut env = requeue(&["env"]);
    env.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    let env = run(env, b"k=\n");
    assert_eq!(names(env.text()), names(of_each_run), "{env:?}");
}

#[test]
fn a_trigger_during_a_failing_run_starts_again_at_attempt_one() {
    let dir = dir();
    let gate = Gate::new(dir.path(), "gate");
    let mut job = start(script(
        &["-j2", "--absorb", "--base-delay", "1h", "--max-delay", "1h", "--max-attempts", "2"],
        dir.path(),
        "echo $REQUEUE_ATTEMPT $REQUEUE_FAILURES >> $D/log
         [ $REQUEUE_FAILURES = 1 ] && exit 0; cat $D/gate; exit 1",
    ));
    job.send(b"k\n");
    let waiting = gate.reached();
    job.put(b"k\n");
    drop(waiting);
    job.close();
    // The trigger's run comes at once, and takes the hour's delay with it.
    let done = job.done();
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!(read(dir.path().join("log")), "1 0\n1 1\n");
}

#[test]
fn with_absorb_a_success_is_not_run_again_by_an_old_back_off() {
    let dir = dir();
    let mut job = start(script(
        &["-j1", "--absorb", "--base-delay", "1h", "--max-delay", "1h", "--summary", "json"],
        dir.path(),
        "[ -e $D/now ]",
    ));
    job.send(b"k\n");
    job.said("again in 1h");
    std::fs::write(dir.path().join("now"), "").unwrap();
    job.send(b"k\n");
    job.close();
    let done = job.done();
    assert_eq!(done.status, 0, "{}", done.err);
    assert_eq!((done.number("runs"), done.number("left")), (2, 0));
}

#[test]
fn its_standard_input_is_empty() {
    let done = run(requeue(&["sh", "-c", "wc -c"]), b"a\n");
    assert_eq!(done.text().trim(), "0");
}

#[test]
fn it_runs_in_a_process_group_of_its_own() {
    let done = run(requeue(&["sh", "-c", "ps -o pgid= -p $$; echo $$"]), b"a\n");
    let text = done.text().to_owned();
    let mut lines = text.lines().map(str::trim);
    assert_eq!(lines.next(), lines.next(), "{text}");
}

#[test]
fn it_inherits_no_descriptor_of_ours() {
    // The program has the descriptors that we were started with, and no others.
    let plain = std::process::Command::new("ls").arg("/proc/self/fd").output().unwrap();
    let plain = String::from_utf8(plain.stdout).unwrap().repeat(4);
    let keys = b"/proc/self/fd\n/proc/self/fd/\n/proc/self//fd\n/proc//self/fd\n";
    let mut expected: Vec<_> = plain.lines().collect();
    expected.sort_unstable();
    assert_eq!(run(requeue(&["-j4", "ls"]), keys).lines(), expected);
}

#[test]
fn signals_that_we_handle_or_ignore_are_at_their_defaults_in_it() {
    let done =
        run(requeue(&["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status", "--"]), b"/proc/self/status\n");
    let text = done.text();
    // Only what the test's own environment had ignored may be; SIGPIPE (13) is not.
    let ignored = text.lines().find(|l| l.contains("SigIgn")).unwrap();
    let mask = u64::from_str_radix(ignored.split('\t').next_back().unwrap(), 16).unwrap();
    assert_eq!(mask & (1 << 12), 0, "{text}");
    let blocked = text.lines().find(|l| l.contains("SigBlk")).unwrap();
    assert!(blocked.ends_with("0000000000000000"), "{text}");
}

#[test]
fn many_workers_are_not_short_of_descriptors() {
    let dir = dir();
    let limited = "ulimit -Sn 64; exec \"$0\" run -j 60 --summary json sh -c '
        echo >> $D/begun; until [ -e $D/go ]; do sleep 0.05; done'";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_requeue")]).env("D", dir.path());
    let mut job = start(command);
    let keys: String = (0..60).map(|key| format!("{key}\n")).collect();
    job.send(keys.as_bytes());
    job.close();
    until("sixty at a time", || read(dir.path().join("begun")).len() == 60);
    std::fs::write(dir.path().join("go"), "").unwrap();
    let done = job.done();
    assert_eq!((done.status, done.number("runs")), (0, 60), "{}", done.err);
}

#[test]
fn a_script_without_a_first_line_for_the_system_is_run_by_sh() {
    let dir = dir();
    let path = dir.path().join("script");
    executable(&path, b"echo \"$0 $1 $2\"\n");
    let done = run(requeue(&["-j4", path.to_str().unwrap(), "x"]), b"a\nb\nc\nd\n");
    let expected = ["a", "b", "c", "d"].map(|key| format!("{} x {key}", path.display()));
    assert_eq!(
        (done.status, done.lines()),
        (0, expected.iter().map(String::as_str).collect()),
        "{}",
        done.err
    );
}

#[test]
fn a_line_for_a_shell_as_one_word_is_not_found_and_a_shell_is_proposed() {
    let done = run(requeue(&["echo hi"]), b"a\n");
    let expected =
        "requeue: 'echo hi': not found in PATH (no shell reads it; to have one, write: sh -c 'echo hi')\n";
    assert_eq!((done.status, done.err.as_str()), (127, expected));
}

//! Commands beside one another on one file: other runners, other users, a full disk, adders that all begin at once.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::harness::{dir, run, start, until};

fn requeue(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_requeue"));
    command.args(args).env("REQUEUE_ENGINE", format!("sqlite:{}", dir.join("q.db").display()));
    command
}

fn well(command: Command) -> String {
    let done = run(command, b"");
    assert_eq!((done.status, &*done.err), (0, ""));
    done.text().to_owned()
}

#[test]
fn e39_two_commands_work_on_two_queues_of_one_file_side_by_side() {
    let dir = dir();
    let dir = dir.path();
    let start = |queue: &str| start(requeue(dir, &["work", "--queue", queue, "--", "echo", queue]));
    let add = |queue: &str, key: &str| well(requeue(dir, &["add", "--queue", queue, key]));
    add("a", "one");
    add("b", "one");
    let (a, b) = (start("a"), start("b"));
    until("a run of each", || a.out_seen(b"a one\n") && b.out_seen(b"b one\n"));
    add("a", "two");
    add("b", "three");
    until("another run of each", || a.out_seen(b"a two\n") && b.out_seen(b"b three\n"));
    let third = run(requeue(dir, &["work", "--queue", "a", "--", "echo"]), b"");
    assert!(third.status == 2 && third.err.contains("works on it"), "{}", third.err);
    a.signal(Signal::TERM);
    assert_eq!(a.done().text(), "a one\na two\n");
    // the end of one is nothing to the other
    add("b", "four");
    until("its run", || b.out_seen(b"b four\n"));
    b.signal(Signal::TERM);
    let done = b.done();
    assert_eq!((done.status, done.text()), (0, "b one\nb three\nb four\n"), "{}", done.err);
}

#[test]
fn e34_none_is_refused_of_many_that_add_to_a_new_file_at_once() {
    for round in 0..4 {
        let dir = dir();
        let add = |n| requeue(dir.path(), &["add", &format!("k{n}")]).stderr(Stdio::piped()).spawn().unwrap();
        let adders: Vec<_> = (0..60).map(add).collect();
        for adder in adders {
            let ended = adder.wait_with_output().unwrap();
            assert!(ended.status.success(), "round {round}: {}", String::from_utf8_lossy(&ended.stderr));
        }
        assert_eq!(well(requeue(dir.path(), &["ls"])).lines().count(), 60, "round {round}");
    }
}

/// A disk that is unmounted when this is dropped.
struct Disk(PathBuf);

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

#[test]
fn e33_work_starts_on_a_full_disk_and_looks_go_on() {
    let dir = dir();
    let mount = dir.path().join("disk");
    std::fs::create_dir(&mount).unwrap();
    let mut tmpfs = Command::new("mount");
    tmpfs.args(["-t", "tmpfs", "-o", "size=4m,mode=755", "tmpfs"]).arg(&mount).stderr(Stdio::null());
    if !rustix::process::geteuid().is_root() || !tmpfs.status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no disk can be mounted here, so that none is full");
        return;
    }
    let disk = Disk(mount.clone());
    well(requeue(&mount, &["add", "a", "b"]));
    well(requeue(&mount, &["add", "--after", "1h", "later"]));
    let fill = mount.join("fill");
    let mut all = std::fs::File::create(&fill).unwrap();
    while std::io::Write::write_all(&mut all, &[0; 4096]).is_ok() {}
    let refused = run(requeue(&mount, &["add", &"long ".repeat(20_000)]), b"");
    assert!(refused.status == 1 && refused.err.contains("full"), "{}", refused.err);
    for look in [&["ls"][..], &["stats"], &["check"], &["state", "a"]] {
        well(requeue(&mount, look));
    }
    let works = || {
        let work = start(requeue(&mount, &["work", "-j1", "--", "echo", "ran"]));
        until("what is there runs", || work.out_seen(b"ran a\nran b\n"));
        work
    };
    // it can't write that these runs have ended, and says so
    let work = works();
    work.signal(Signal::TERM);
    let done = work.done();
    assert!(done.status == 1 && done.err.contains("their ends are not written"), "{}", done.err);
    assert!(done.err.contains("2 runs, 0 retries, 0 gave up, 3 left"), "{}", done.err);
    let work = works();
    drop(all);
    std::fs::remove_file(&fill).unwrap();
    until("the disk has room again", || run(requeue(&mount, &["add", "c"]), b"").status == 0);
    until("its run", || work.out_seen(b"ran c\n"));
    work.signal(Signal::TERM);
    let done = work.done();
    assert_eq!((done.status, done.text()), (0, "ran a\nran b\nran c\n"), "{}", done.err);
    well(requeue(&mount, &["cancel", "later"]));
    assert_eq!(well(requeue(&mount, &["ls"])), "");
    drop(disk);
}

#[test]
fn e33_another_user_reads_what_it_may_not_write() {
    let dir = dir();
    let path = dir.path();
    let setpriv = Command::new("setpriv").arg("--version").stdout(Stdio::null()).status();
    if !rustix::process::geteuid().is_root() || !setpriv.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: this is not root with `setpriv`, so that there is no other user");
        return;
    }
    // the command's own folder may be root's alone
    let command = path.join("requeue");
    std::fs::copy(env!("CARGO_BIN_EXE_requeue"), &command).unwrap();
    for (name, mode) in [("", 0o755), ("requeue", 0o755)] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path.join(name), mode).unwrap();
    }
    let other = |args: &[&str]| {
        let mut other = Command::new("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&command).args(args);
        other.env("REQUEUE_ENGINE", format!("sqlite:{}", path.join("q.db").display()));
        other
    };
    well(requeue(path, &["add", "a"]));
    let looks = |when: &str| {
        assert_eq!(well(other(&["ls"])), "ready   a\n", "{when}");
        assert!(well(other(&["stats"])).starts_with("ready    1\n"), "{when}");
        assert_eq!(well(other(&["check"])), "ok\n", "{when}");
        let refused = run(other(&["add", "b"]), b"");
        assert!(
            refused.status == 1 && refused.err.contains("can't be written to"),
            "{when}: {}",
            refused.err
        );
    };
    looks("after an add");
    let work = start(requeue(path, &["work", "--queue", "other", "--", "true"]));
    until("it works", || well(requeue(path, &["ls", "--queues"])).contains("other"));
    looks("beside one who works");
    work.signal(Signal::TERM);
    assert_eq!(work.done().status, 0);
    looks("when nobody has it open");
}

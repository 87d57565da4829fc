//! Files that become keys, and the program's input.

use super::*;

#[test]
fn keys_are_what_find_prints() {
    for root in [".", "./", "sub", "sub/", "./sub//", "sub/../sub", "sub/deep/c"] {
        let dir = tree(&["a", "sub/b", "sub/deep/c"]);
        let dry = command(&["--watch", root, "--dry-run"], dir.path(), "true").output().unwrap();
        assert!(dry.status.success());
        let printed = String::from_utf8(dry.stdout).unwrap();
        let mut ours: Vec<_> = printed.lines().filter_map(|line| line.rsplit(' ').next()).collect();
        let mut find = Command::new("find");
        find.args([root, "-type", "f"]).current_dir(dir.path().join("tree"));
        let find = String::from_utf8(find.output().unwrap().stdout).unwrap();
        let mut find: Vec<_> = find.lines().collect();
        ours.sort_unstable();
        find.sort_unstable();
        assert_eq!(ours, find, "{root}");
    }
}

#[test]
fn the_program_is_told_what_happened_and_where_below_the_root() {
    let w = watch(&["--watch", "."], &["old", "sub/gone"]);
    w.write("sub/new", "1");
    w.sees_one("./sub/new", "1");
    std::fs::remove_file(w.path("sub/gone")).unwrap();
    w.sees_one("./sub/gone", "GONE");
    let (_, runs) = w.ends_well();
    let told = |key: &str| {
        let of = runs.iter().filter(|run| run.key == Path::new(key));
        of.map(|run| (run.event.as_str(), run.relative.as_str())).collect::<Vec<_>>()
    };
    assert_eq!(told("./old"), [("initial", "old")]);
    assert_eq!(told("./sub/gone"), [("initial", "sub/gone"), ("delete", "sub/gone")]);
    assert_eq!(told("./sub/new").last(), Some(&("write", "sub/new")));
}

#[test]
fn a_program_that_only_reads_its_key_does_not_trigger_it() {
    let w = watch_with(&["--watch", "."], &["a"], "cat \"$1\" | tr a-z A-Z; ls . > /dev/null");
    until("the first run", || w.job.out_seen(b"OLD\n"));
    w.write("b", "new");
    until("the second run", || w.job.out_seen(b"NEW\n"));
    w.write("a", "end");
    until("the third run", || w.job.out_seen(b"END\n"));
    let (done, _) = w.ends_well();
    assert_eq!(done.text().matches("OLD").count(), 1, "{}", done.text());
}

#[test]
fn names_need_not_be_utf8_and_may_hold_anything() {
    let w = watch(&["--watch", "."], &[]);
    for name in [&b"\xff\xfe"[..], b"a\nb", b" ", b"-rf", b"{}", b"\\"] {
        let name = OsString::from_vec(name.to_vec());
        std::fs::write(w.dir.path().join("tree").join(&name), "here\n").unwrap();
        w.sees(&HashMap::from([(Path::new(".").join(name), "here".to_owned())]));
    }
    let inner = w.path("odd").join(OsString::from_vec(b"\x80dir".to_vec()));
    std::fs::create_dir_all(&inner).unwrap();
    std::fs::write(inner.join("file"), "deep\n").unwrap();
    let key = Path::new("./odd").join(OsString::from_vec(b"\x80dir".to_vec())).join("file");
    w.sees(&HashMap::from([(key, "deep".to_owned())]));
    w.ends_well();
}

#[test]
fn a_file_can_be_watched_alone() {
    let w = watch(&["--watch", "conf/app.toml"], &["conf/app.toml", "conf/other"]);
    w.sees_one("conf/app.toml", "old");
    w.write("conf/other", "noise");
    // As editors save: written beside it, then renamed over it.
    w.write("conf/.app.toml.swp", "new");
    std::fs::rename(w.path("conf/.app.toml.swp"), w.path("conf/app.toml")).unwrap();
    w.sees_one("conf/app.toml", "new");
    std::fs::remove_file(w.path("conf/app.toml")).unwrap();
    w.sees_one("conf/app.toml", "GONE");
    w.write("conf/app.toml", "again");
    w.sees_one("conf/app.toml", "again");
    let (_, runs) = w.ends_well();
    assert_eq!(keys_of(&runs), ["conf/app.toml"]);
    assert!(runs.iter().all(|run| run.relative == "app.toml"), "{runs:?}");
}

#[test]
fn what_a_watched_link_leads_to_is_looked_at() {
    let dir = tree(&["data/app.toml"]);
    let at = |name: &str| dir.path().join("tree").join(name);
    std::os::unix::fs::symlink("data/app.toml", at("link")).unwrap();
    let job = start(command(&["--watch", "link"], dir.path(), LOOK));
    job.said("watching ");
    let w = Watching { job, dir };
    w.sees_one("link", "old");
    w.write("data/app.toml", "written through");
    w.sees_one("link", "written through");
    w.ends_well();
}

#[test]
fn links_are_keys_and_not_followed_and_loops_do_no_harm() {
    let dir = tree(&["a", "sub/b"]);
    let at = |name: &str| dir.path().join("tree").join(name);
    for (to, name) in [("..", "sub/up"), (".", "self"), ("sub", "again"), ("nowhere", "dangling")] {
        std::os::unix::fs::symlink(to, at(name)).unwrap();
    }
    let job = start(command(&["--watch", "."], dir.path(), LOOK));
    job.said("watching 6 files in 2 directories");
    let w = Watching { job, dir };
    std::os::unix::fs::symlink("sub", w.path("later")).unwrap();
    w.sees_one("./later", "GONE");
    w.write("sub/b", "new");
    w.sees_one("./sub/b", "new");
    let (_, runs) = w.ends_well();
    let all = ["./a", "./again", "./dangling", "./later", "./self", "./sub/b", "./sub/up"];
    assert_eq!(keys_of(&runs), all);
}

#[test]
fn pipes_are_no_keys() {
    let dir = tree(&["a"]);
    let _gate = crate::harness::Gate::new(&dir.path().join("tree"), "pipe");
    let dry = command(&["--watch", ".", "--dry-run"], dir.path(), "true").output().unwrap();
    assert_eq!(String::from_utf8(dry.stdout).unwrap().lines().count(), 1);
}

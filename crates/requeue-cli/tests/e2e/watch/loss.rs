//! Nothing is missed.

use super::*;

#[test]
fn a_tree_that_is_made_in_one_burst() {
    let w = watch(&["--watch", "."], &[]);
    let mut last = HashMap::new();
    for n in 0..1000 {
        let name = format!("{}/{}/{n}", n % 10, n / 10 % 10);
        let path = w.path(&name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{n}\n")).unwrap();
        last.insert(Path::new(".").join(name), n.to_string());
    }
    w.sees(&last);
    w.ends_well();
}

#[test]
fn a_tree_that_is_moved_in_and_on() {
    let w = watch(&["--watch", "."], &[]);
    let outside = w.dir.path().join("outside");
    let mut last = HashMap::new();
    for n in 0..50 {
        let path = outside.join(format!("{}/x/{n}", n % 5));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{n}\n")).unwrap();
        last.insert(PathBuf::from(format!("./there/{}/x/{n}", n % 5)), n.to_string());
    }
    std::fs::rename(outside, w.path("here")).unwrap();
    std::fs::rename(w.path("here"), w.path("there")).unwrap();
    w.sees(&last);
    // Each of the directories is now known by its new name.
    std::fs::write(w.path("there/3/x/3"), "new\n").unwrap();
    w.sees_one("./there/3/x/3", "new");
    std::fs::rename(w.path("there"), w.dir.path().join("outside")).unwrap();
    w.sees(&last.into_keys().map(|key| (key, "GONE".to_owned())).collect());
    w.ends_well();
}

#[test]
fn more_events_at_once_than_the_kernel_keeps() {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let w = watch(&["--watch", "."], &["first", "doomed"]);
    w.sees_one("./first", "old");
    w.job.signal(Signal::STOP);
    let mut last = HashMap::new();
    // Each write is an event: the kernel merges only those that follow their like.
    for n in 0..limit.max(30_000) {
        let name = format!("f{}", n % 500);
        w.write(&name, &n.to_string());
        last.insert(Path::new(".").join(name), n.to_string());
    }
    std::fs::create_dir_all(w.path("new/deep")).unwrap();
    std::fs::remove_file(w.path("doomed")).unwrap();
    last.insert("./doomed".into(), "GONE".to_owned());
    for n in 0..100 {
        w.write(&format!("new/deep/{n}"), "lost");
        last.insert(format!("./new/deep/{n}").into(), "lost".to_owned());
    }
    w.job.signal(Signal::CONT);
    w.job.said("more changed at once than the kernel keeps");
    w.sees(&last);
    // And it goes on as before.
    w.write("new/deep/1", "later");
    w.sees_one("./new/deep/1", "later");
    w.ends_well();
}

#[test]
fn files_that_are_replaced_by_rename() {
    let w = watch(&["--watch", ".", "--ignore", "*.tmp"], &["a", "b"]);
    for n in 0..200 {
        for name in ["a", "b"] {
            w.write("x.tmp", &format!("{name}{n}"));
            std::fs::rename(w.path("x.tmp"), w.path(name)).unwrap();
        }
    }
    w.sees(&HashMap::from([("./a".into(), "a199".to_owned()), ("./b".into(), "b199".to_owned())]));
    let (_, runs) = w.ends_well();
    assert_eq!(keys_of(&runs), ["./a", "./b"]);
}

#[test]
fn a_root_that_is_renamed_removed_and_made_again() {
    let w = watch(&["--watch", "sub"], &["sub/a", "sub/deep/b"]);
    w.sees_one("sub/deep/b", "old");
    let gone = HashMap::from([("sub/a".into(), "GONE".to_owned()), ("sub/deep/b".into(), "GONE".into())]);
    std::fs::rename(w.path("sub"), w.path("elsewhere")).unwrap();
    w.job.said("sub is gone; looking for it every 1s");
    w.sees(&gone);
    // Not under the old name: that would be a key that is not there.
    w.write("elsewhere/unseen", "1");
    std::fs::create_dir(w.path("sub")).unwrap();
    w.write("sub/a", "made again");
    w.job.said("sub is back");
    w.sees_one("sub/a", "made again");
    w.write("sub/a", "and watched");
    w.sees_one("sub/a", "and watched");
    // Replaced at one stroke, by another directory.
    std::fs::remove_dir_all(w.path("sub")).unwrap();
    std::fs::rename(w.path("elsewhere"), w.path("sub")).unwrap();
    w.sees_one("sub/deep/b", "old");
    w.write("sub/deep/b", "last");
    w.sees_one("sub/deep/b", "last");
    let (_, runs) = w.ends_well();
    assert!(!runs.iter().any(|run| run.key.starts_with("elsewhere")), "{runs:?}");
}

#[test]
fn a_directory_above_the_root_is_renamed() {
    let w = watch(&["--watch", "above/sub"], &["above/sub/a"]);
    w.sees_one("above/sub/a", "old");
    // The kernel does not tell.
    std::fs::rename(w.path("above"), w.path("other")).unwrap();
    w.sees_one("above/sub/a", "GONE");
    std::fs::create_dir_all(w.path("above/sub")).unwrap();
    w.write("above/sub/a", "new");
    w.sees_one("above/sub/a", "new");
    w.ends_well();
}

#[test]
fn directories_that_come_and_go_and_change_places() {
    let w = watch(&["--watch", "."], &[]);
    let mut last = HashMap::new();
    for round in 0..20 {
        for name in ["a", "b", "c"] {
            let dir = w.path(name);
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(dir.join("in")).unwrap();
            w.write(&format!("{name}/in/file"), &format!("{name}{round}"));
        }
        for (from, to) in [("a", "x"), ("b", "a"), ("c", "b"), ("x", "c")] {
            std::fs::rename(w.path(from), w.path(to)).unwrap();
        }
    }
    for (name, origin) in [("a", "b19"), ("b", "c19"), ("c", "a19")] {
        last.insert(PathBuf::from(format!("./{name}/in/file")), origin.to_owned());
    }
    w.sees(&last);
    w.ends_well();
}

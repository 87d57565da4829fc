//! Rule E44: a silently cut connection is noticed.
//!
//! The test runs again in a network of its own, which it takes down: no packet arrives any more, and no side
//! is told. That needs Linux and root.

#![cfg(target_os = "linux")]

mod common;

use self::common::cluster::Cluster;
use self::common::until;
use requeue_postgres::Postgres;
use std::process::Command;

const INSIDE: &str = "REQUEUE_TEST_IN_A_NETWORK";

fn ip(state: &str) -> bool {
    Command::new("ip").args(["link", "set", "lo", state]).status().is_ok_and(|status| status.success())
}

/// Number of connections of this network's clients to the server.
fn connections() -> usize {
    let all = std::fs::read_to_string("/proc/self/net/tcp").expect("it is Linux");
    // the peer's port is 5439, and the connection is established
    all.lines()
        .filter(|line| line.split_whitespace().nth(2).is_some_and(|peer| peer.ends_with(":153F")))
        .filter(|line| line.split_whitespace().nth(3) == Some("01"))
        .count()
}

#[test]
fn e44_a_connection_that_is_silently_cut_is_noticed_while_nothing_is_sent_on_it() {
    if std::env::var_os(INSIDE).is_none() {
        let this = std::env::current_exe().expect("it runs");
        let name = "e44_a_connection_that_is_silently_cut_is_noticed_while_nothing_is_sent_on_it";
        let inside = Command::new("unshare")
            .arg("-n")
            .arg(this)
            .args(["--exact", name, "--nocapture"])
            .env(INSIDE, "1")
            .output();
        let may = Command::new("unshare").args(["-n", "true"]).status().is_ok_and(|status| status.success());
        if !may {
            eprintln!("SKIPPED: a network of its own cannot be made here (it needs Linux and root)");
            return;
        }
        let inside = inside.expect("it may");
        assert!(
            inside.status.success(),
            "{}{}",
            String::from_utf8_lossy(&inside.stdout),
            String::from_utf8_lossy(&inside.stderr)
        );
        return;
    }
    assert!(ip("up"), "there is no `ip`");
    let Some(cluster) = Cluster::start("listen_addresses = '127.0.0.1'\nport = 5439") else { return };
    let pg =
        Postgres::connect("host=127.0.0.1 port=5439 user=postgres dbname=postgres").wait().expect("it is up");
    pg.migrate().wait().expect("a schema");
    let q = pg.queue::<u32>("orders").open().wait().expect("a schema");
    q.add(1).wait().expect("it is up");
    assert!(connections() > 0, "that for triggers is one of them");
    assert!(ip("down"));
    // nothing is sent on that one: the server's end, and those that are used, do not matter
    until("all connections are given up", || connections() == 0);
    assert!(ip("up"));
    until("the queue goes on", || q.add(2).wait().is_ok());
    drop((q, pg, cluster));
}

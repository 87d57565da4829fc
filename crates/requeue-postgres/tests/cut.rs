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

/// Timers of the connections of this network's clients to the server: the kind, and the hundredths of a second left.
fn timers() -> Vec<(String, u32)> {
    let all = std::fs::read_to_string("/proc/self/net/tcp").expect("it is Linux");
    let timer = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // the peer's port is 5439, and the connection is established
        let is_ours = fields.get(2)?.ends_with(":153F") && fields.get(3) == Some(&"01");
        let (kind, left) = fields.get(5)?.split_once(':')?;
        is_ours.then(|| (kind.to_owned(), u32::from_str_radix(left, 16).expect("a number")))
    };
    all.lines().filter_map(timer).collect()
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
    // 02 is the timer of keepalive. A connection on which something was just sent has another one.
    until("each connection is probed when nothing was sent on it for four seconds", || {
        let timers = timers();
        timers.len() > 1 && timers.iter().all(|(kind, left)| kind == "02" && *left <= 400)
    });
    assert!(ip("down"));
    // nothing is sent on that one: the server's end, and those that are used, do not matter
    until("all connections are given up", || timers().is_empty());
    assert!(ip("up"));
    until("the queue goes on", || q.add(2).wait().is_ok());
    drop((q, pg, cluster));
}

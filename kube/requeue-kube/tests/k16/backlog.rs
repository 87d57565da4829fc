//! Backlogs that are older than `max_wait`, and long pauses.

use crate::world::{SECOND, World, config};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use requeue_kube::lease::Elector;
use requeue_kube::{Action, Config, Running, fake};
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

/// Changes an object that has run. Returns how many runs began before its own, and how long that took.
async fn change(world: &World, name: &str) -> (usize, Duration) {
    let (before, at) = (world.count(), world.now());
    world.write(name, json!({"takes_ms": "100"}));
    while !world.names_since(before).iter().any(|ran| ran == name) {
        assert!(world.now() - at < 100 * SECOND, "the change of {name} does not run");
        sleep(SECOND / 100).await;
    }
    let nth = world.names_since(before).iter().position(|ran| ran == name).unwrap();
    (nth, world.runs()[before + nth].at - at)
}

fn sweep(objects: usize) -> World {
    let world = World::of(fake::Server::new().with::<Lease>().with::<ConfigMap>().with::<Secret>());
    for n in 0..objects {
        world.write(&format!("m{n}"), json!({"takes_ms": "100"}));
    }
    world
}

/// Runs a controller for some time, in which there is always something that has changed.
async fn busy(world: &World, config: Config, time: Duration) -> Running<ConfigMap> {
    let running = world.start(world.maps().with_config(config));
    sleep(SECOND).await;
    let begin = world.now();
    while world.now() - begin < time {
        for n in 0..3 {
            world.write(&format!("busy{n}"), json!({"takes_ms": "100"}));
        }
        sleep(SECOND / 10).await;
    }
    running
}

/// Number of runs, of what was listed, that began in this time.
fn listed(world: &World, from: Duration, to: Duration) -> usize {
    world.runs().iter().filter(|run| run.name.starts_with('m') && (from..to).contains(&run.at)).count()
}

fn one_by_one() -> Config {
    config().concurrency(1)
}

#[tokio::test(start_paused = true)]
async fn k16_a_change_in_a_sweep_that_is_older_than_max_wait_runs_within_two_turns() {
    let world = sweep(620);
    let running = world.start(world.maps().with_config(one_by_one()));
    sleep(40 * SECOND).await;
    // 62 s of work, of which all that is left is older than the 30 s.
    let left = running.stats().ready;
    assert!((200..=230).contains(&left), "{left}");
    for n in 0..20 {
        let (runs, took) = change(&world, &format!("m{n}")).await;
        assert!(runs <= 1 && took <= SECOND / 10 * 2, "{runs} runs before it, after {took:?}");
    }
    sleep(60 * SECOND).await;
    // Some of the twenty had not run before.
    assert!((620..=640).contains(&world.count()) && running.stats().ready == 0);
}

#[tokio::test(start_paused = true)]
async fn k16_what_was_listed_has_one_turn_in_eight_when_it_is_older_than_max_wait() {
    let world = sweep(40);
    let running = busy(&world, one_by_one(), 120 * SECOND).await;
    let listed = |from, to| listed(&world, from, to);
    // Nothing of the list for its first 30 s, and then one run in eight until all of it has run.
    assert_eq!(listed(2 * SECOND, 29 * SECOND), 0);
    let turns = listed(31 * SECOND, 47 * SECOND);
    assert!((19..=21).contains(&turns), "{turns} of 160 runs");
    assert!(listed(31 * SECOND, 39 * SECOND) <= 11);
    assert_eq!(listed(Duration::ZERO, 62 * SECOND), 40, "each within 8 runs of the one before");
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn k16_the_share_of_what_was_listed_can_be_set() {
    let world = sweep(100);
    let running = busy(&world, one_by_one().overdue_every(2), 50 * SECOND).await;
    assert_eq!(listed(&world, 2 * SECOND, 29 * SECOND), 0);
    let turns = listed(&world, 31 * SECOND, 39 * SECOND);
    assert!((38..=42).contains(&turns), "{turns} of 80 runs");
    drop(running);
    let refused = world.maps().with_config(one_by_one().overdue_every(1));
    let error = refused.start(
        |_, _| async { Ok(Action::await_change()) },
        |_, _: &kube::Error, _| Action::backoff(),
        ().into(),
    );
    assert!(error.is_err_and(|error| error.to_string().contains("overdue_every")));
}

async fn after_a_wait(world: &World, running: &Running<ConfigMap>) {
    let listed = running.stats().ready;
    assert_eq!((listed, world.count()), (300, 0));
}

#[tokio::test(start_paused = true)]
async fn k16_a_takeover_after_long_standby_does_not_begin_with_the_backlog() {
    let world = sweep(300);
    let elector =
        |identity: &str| Elector::builder(&world.server.client(), "maps").identity(identity).start();
    let leads = elector("leads").unwrap();
    leads.leading().await;
    let stands_by = elector("stands-by").unwrap();
    let running = world.start(world.maps().with_config(one_by_one()).leader(&stands_by));
    sleep(600 * SECOND).await;
    after_a_wait(&world, &running).await;
    leads.release().await;
    stands_by.leading().await;
    sleep(SECOND / 2).await;
    for n in 0..20 {
        let (runs, took) = change(&world, &format!("m{}", 280 + n)).await;
        assert!(runs <= 1 && took <= SECOND / 10 * 2, "{runs} runs before it, after {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn k16_a_long_pause_makes_no_object_wait_longer_than_max_wait() {
    let world = sweep(300);
    let running = world.start(world.maps().with_config(one_by_one()));
    running.pause();
    sleep(600 * SECOND).await;
    after_a_wait(&world, &running).await;
    running.resume();
    // In the middle of a run.
    sleep(SECOND / 20 * 9).await;
    // None of them is overdue, so that changes have every turn.
    for n in 0..20 {
        let (runs, took) = change(&world, &format!("m{}", 280 + n)).await;
        assert!(runs == 0 && took <= SECOND / 10, "{runs} runs before it, after {took:?}");
    }
}

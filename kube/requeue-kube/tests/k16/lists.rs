//! Kinds that cannot be listed, and come back.

use crate::world::{SECOND, World, config, map_ref};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::utils::Backoff;
use requeue_kube::prometheus_client::encoding::text::encode;
use requeue_kube::prometheus_client::registry::Registry;
use requeue_kube::{Metrics, fake};
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

fn listed(registry: &Registry, kind: &str) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    let series = format!("requeue_kube_watch_listed{{controller=\"configmap\",kind=\"{kind}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or("missing").to_owned()
}

#[tokio::test(start_paused = true)]
async fn k16_a_kind_that_is_not_there_stops_only_what_needs_it_and_is_seen_when_it_comes() {
    // The kind is not installed yet.
    let server = fake::Server::new().with::<ConfigMap>();
    let world = World::of(server.clone());
    for n in 0..10 {
        world.write(&format!("m{n}"), json!({}));
    }
    world.write("user", json!({"wants": "s"}));
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let running = world.start(world.users().metrics(&metrics));
    sleep(29 * SECOND).await;
    let health = running.health();
    assert_eq!((world.count(), health.synced, health.unlisted), (0, false, vec!["Secret".to_owned()]));
    // After 30 s the rest runs, and health and metrics say what is missing.
    sleep(2 * SECOND).await;
    let health = running.health();
    assert_eq!((health.synced, health.unlisted), (true, vec!["Secret".to_owned()]));
    assert!(
        health.watch_error.as_ref().is_some_and(|e| e.starts_with("Secret: ")),
        "{:?}",
        health.watch_error
    );
    assert_eq!((listed(&registry, "Secret"), listed(&registry, "ConfigMap")), ("0".into(), "1".into()));
    let names = world.names_since(0);
    assert_eq!(names.iter().filter(|name| *name != "user").count(), 10, "{names:?}");
    world.write("m3", json!({}));
    sleep(SECOND).await;
    assert_eq!(world.names_since(0).iter().filter(|name| *name == "m3").count(), 2);

    // An hour later the kind is installed, and nothing is of it. What failed for want of it runs at once.
    sleep(3600 * SECOND).await;
    assert!(
        running.explain(&map_ref("user")).contains("backing off"),
        "{}",
        running.explain(&map_ref("user"))
    );
    let (runs, at) = (world.count(), world.now());
    let _server = server.with::<Secret>();
    sleep(3 * SECOND).await;
    let swept = world.runs().split_off(runs);
    assert_eq!(swept.len(), 11, "{swept:?}");
    assert!(swept.iter().all(|run| run.causes.ends_with("list of Secret") && run.at - at <= 2 * SECOND));
    assert!(running.health().unlisted.is_empty());
    assert_eq!(listed(&registry, "Secret"), "1");
    // From now on its watch tells of it.
    let runs = world.count();
    world.secret("s");
    sleep(SECOND).await;
    assert_eq!(world.names_since(runs), ["user"]);
}

#[tokio::test(start_paused = true)]
async fn k16_a_kind_that_may_not_be_listed_is_waited_for_as_long_as_was_said() {
    for (timeout, code) in [(0, 403), (5, 403), (5, 404), (120, 403)] {
        let world = World::new();
        world.server.refuse::<Secret>(code);
        world.write("a", json!({}));
        let running = world.start(world.users().with_config(config().list_timeout(timeout * SECOND)));
        sleep(600 * SECOND).await;
        let runs = world.runs();
        assert_eq!(runs.len(), 1, "{timeout} {code}");
        let at = runs[0].at;
        assert!((timeout * SECOND..timeout * SECOND + SECOND / 2).contains(&at), "{timeout} {code}: {at:?}");
        assert_eq!(running.health().unlisted, ["Secret"]);
    }
}

#[tokio::test(start_paused = true)]
async fn k16_without_the_list_of_its_own_objects_a_controller_waits_for_ever() {
    let world = World::new();
    world.server.refuse::<ConfigMap>(403);
    world.write("a", json!({}));
    let running = world.start(world.users());
    sleep(3600 * SECOND).await;
    let health = running.health();
    assert_eq!((world.count(), health.synced, health.unlisted), (0, false, vec!["ConfigMap".to_owned()]));
    world.server.refuse::<ConfigMap>(None);
    sleep(3 * SECOND).await;
    assert_eq!((world.count(), running.health().synced), (1, true));
}

#[tokio::test(start_paused = true)]
async fn k16_a_kind_that_is_taken_away_and_comes_back_is_seen_at_once() {
    for code in [403, 404] {
        let world = World::new();
        world.secret("s");
        for name in ["a", "b"] {
            world.write(name, json!({"wants": "s"}));
        }
        world.write("else", json!({}));
        let running = world.start(world.users());
        sleep(SECOND).await;
        assert_eq!(world.count(), 3);
        world.server.refuse::<Secret>(code);
        world.server.drop_watches();
        world.write("a", json!({"wants": "s"}));
        sleep(900 * SECOND).await;
        assert_eq!(running.health().unlisted, ["Secret"], "{code}");
        let (runs, at) = (world.count(), world.now());
        // "a" failed for want of it. The list is as it was before.
        world.server.refuse::<Secret>(None);
        sleep(3 * SECOND).await;
        let swept = world.runs().split_off(runs);
        assert!(swept.iter().all(|run| run.at - at <= 2 * SECOND), "{code}: {swept:?}");
        assert_eq!(swept.len(), 3, "{code}: {swept:?}");
        assert!(running.health().unlisted.is_empty(), "{code}");
        sleep(2000 * SECOND).await;
        assert_eq!(running.stats().waiting, 0, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn k16_refusals_of_some_seconds_run_nothing() {
    let world = World::new();
    world.secret("s");
    world.write("a", json!({"wants": "s"}));
    let running = world.start(world.users());
    sleep(SECOND).await;
    for (seconds, gone) in [(1, false), (5, true), (8, false)] {
        world.server.refuse::<Secret>(403);
        if gone {
            world.server.drop_watches_with_410();
        } else {
            world.server.drop_watches();
        }
        sleep(seconds * SECOND).await;
        world.server.refuse::<Secret>(None);
        sleep(60 * SECOND).await;
        assert_eq!((world.count(), running.health().unlisted.len()), (1, 0), "{seconds} {gone}");
    }
}

/// The back-off of kube's `trigger_backoff`.
#[derive(Clone)]
struct Each(Duration);

impl Iterator for Each {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.0)
    }
}

impl Backoff for Each {
    fn reset(&mut self) {}
}

#[tokio::test(start_paused = true)]
async fn k16_trigger_backoff_says_how_often_a_watch_that_fails_tries_again() {
    let world = World::new();
    world.server.refuse::<Secret>(404);
    world.write("a", json!({}));
    let running = world.start(world.users().trigger_backoff(Each(100 * SECOND)));
    sleep(1050 * SECOND).await;
    assert_eq!(world.server.requests::<Secret>("list"), 11);
    world.server.refuse::<Secret>(None);
    sleep(100 * SECOND).await;
    assert!(running.health().unlisted.is_empty());
}

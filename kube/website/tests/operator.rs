//! The operator on the fake API server, on paused time.

mod support;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt;
use std::time::Duration;
use support::{SECOND, World, site_ref};
use website::Website;

fn yes() -> Option<(String, String)> {
    Some(("True".to_owned(), "Applied".to_owned()))
}

#[tokio::test(start_paused = true)]
async fn a_new_website_has_its_children_and_its_status_by_one_run_of_four_writes() {
    let world = World::start().await;
    world.apply("a", "<h1>a</h1>");
    world.server.settled(SECOND).await;
    assert_eq!(world.page("a").as_deref(), Some("<h1>a</h1>"));
    let service = world.server.get::<Service>("default", "a").unwrap();
    assert_eq!(service.spec.unwrap().ports.unwrap()[0].port, 80);
    assert_eq!(service.metadata.owner_references.unwrap()[0].name, "a");
    let site = world.server.get::<Website>("default", "a").unwrap();
    assert_eq!(site.finalizers(), ["example.dev/website"]);
    assert_eq!(world.ready("a"), yes());
    assert_eq!(world.status("a").observed_generation, Some(1));
    // The finalizer, two children, the status. None of their events is a run.
    assert_eq!(world.server.writes(), 4);
    let (_, metrics) = world.get("/metrics").await;
    assert!(
        metrics.contains("controller_runtime_reconcile_total{controller=\"website\",result=\"success\"} 1\n")
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_spec_is_served_and_the_condition_keeps_its_time() {
    let world = World::start().await;
    world.apply("a", "one");
    world.server.settled(SECOND).await;
    let since = world.status("a").conditions[0].last_transition_time.clone();
    world.apply("a", "two");
    world.server.settled(SECOND).await;
    assert_eq!(world.page("a").as_deref(), Some("two"));
    assert_eq!(world.status("a").observed_generation, Some(2));
    assert_eq!(world.status("a").conditions[0].last_transition_time, since);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_true_is_not_written_again() {
    let world = World::start().await;
    world.apply("a", "one");
    world.server.settled(SECOND).await;
    let before = world.server.get::<Website>("default", "a").unwrap().resource_version();
    assert!(world.sites.reconcile_now(&site_ref("a")));
    world.server.settled(SECOND).await;
    assert_eq!(world.server.get::<Website>("default", "a").unwrap().resource_version(), before);
    // Only the two children were applied, which changed nothing.
    assert_eq!(world.server.writes(), 4 + 2);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_somebody_takes_comes_back() {
    let world = World::start().await;
    world.apply("a", "one");
    world.server.settled(SECOND).await;
    world.server.delete::<Service>("default", "a").unwrap();
    world.server.delete::<ConfigMap>("default", "a").unwrap();
    world.server.settled(SECOND).await;
    assert_eq!(world.page("a").as_deref(), Some("one"));
    assert!(world.server.get::<Service>("default", "a").is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_website_takes_its_children_along() {
    let world = World::start().await;
    for name in ["a", "b"] {
        world.apply(name, "one");
    }
    world.server.settled(SECOND).await;
    world.server.delete::<Website>("default", "a").unwrap();
    world.server.settled(SECOND).await;
    let names: Vec<_> = world.server.all::<Website>().iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["b"]);
    let names: Vec<_> = world.server.all::<ConfigMap>().iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["b"]);
    let names: Vec<_> = world.server.all::<Service>().iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_poison_website_delays_nobody_and_says_why() {
    let world = World::start().await;
    for n in 0..20 {
        world.apply(&format!("poison{n}"), "one");
    }
    for n in 0..100 {
        world.apply(&format!("site{n}"), "one");
    }
    let all_there = |world: &World| (0..100).all(|n| world.ready(&format!("site{n}")) == yes());
    assert!(world.until(all_there).await < Duration::from_millis(100));
    assert_eq!(world.ready("poison0"), Some(("False".to_owned(), "ApiServer".to_owned())));
    let (_, told) = world.get("/explain/default/poison0").await;
    assert!(told.contains("failure") && told.contains("the page is poison"), "{told}");
    // A change of another object is served at once.
    world.apply("site0", "two");
    let took = world.until(|world| world.page("site0").as_deref() == Some("two")).await;
    assert!(took < Duration::from_millis(100), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_no_config_map_takes_is_tried_again_when_it_is_another_one() {
    let world = World::start().await;
    world.apply("a", "x".repeat(1_000_001));
    world.server.settled(Duration::from_secs(3000)).await;
    assert_eq!(world.ready("a"), Some(("False".to_owned(), "TooLarge".to_owned())));
    let (_, metrics) = world.get("/metrics").await;
    assert!(
        metrics.contains("controller_runtime_terminal_reconcile_errors_total{controller=\"website\"} 1\n")
    );
    world.apply("a", "x".repeat(1_000_000));
    world.server.settled(SECOND).await;
    assert_eq!(world.ready("a"), yes());
}

#[tokio::test(start_paused = true)]
async fn probes_say_whether_it_has_its_lists_and_whether_it_has_ended() {
    let world = World::start().await;
    assert_eq!(world.get("/healthz").await.0, 200);
    assert_eq!(world.get("/readyz").await, (200, "ok, leads\n".to_owned()));
    let report = world.sites.drain(SECOND).await;
    assert_eq!((report.cancelled, report.left), (0, 0));
    assert_eq!(world.get("/healthz").await, (503, "ended\n".to_owned()));
    assert_eq!(world.get("/readyz").await.0, 503);
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_without_a_kind_that_it_may_not_list_any_more_and_names_it() {
    let world = World::start().await;
    world.server.refuse::<ConfigMap>(403);
    world.server.drop_watches();
    tokio::time::sleep(30 * SECOND).await;
    let (code, told) = world.get("/readyz").await;
    assert!(
        code == 200 && told.starts_with("ok, leads; not listed: ConfigMap; a watch failed: "),
        "{code} {told}"
    );
    world.server.refuse::<ConfigMap>(None);
    tokio::time::sleep(120 * SECOND).await;
    assert_eq!(world.get("/readyz").await, (200, "ok, leads\n".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_runs_at_the_end_ends_well() {
    let world = World::start().await;
    world.server.delay(SECOND);
    world.apply("a", "one");
    tokio::time::sleep(2 * SECOND).await;
    let report = world.sites.drain(website::GRACE).await;
    assert_eq!((report.done, report.cancelled), (1, 0));
    assert_eq!(world.ready("a"), yes());
}

#[tokio::test(start_paused = true)]
async fn of_two_replicas_one_reconciles_and_the_other_takes_over_at_once_when_it_ends() {
    let world = World::start().await;
    let other = world.join("pod-b").await;
    for n in 0..10 {
        world.apply(&format!("site{n}"), "one");
    }
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(world.ready("site9"), yes());
    let runs = r#"controller_runtime_reconcile_total{controller="website",result="success"}"#;
    let leads = r#"leader_election_master_status{name="website"}"#;
    assert_eq!((world.value(runs).await, world.value(leads).await), (10.0, 1.0));
    assert_eq!((other.value(runs).await, other.value(leads).await), (0.0, 0.0));
    // It is ready to take over, and says that it does not lead.
    assert_eq!(other.get("/readyz").await, (200, "ok, stands by\n".to_owned()));
    let (_, told) = other.get("/explain/default/site0").await;
    assert!(told.starts_with("this replica stands by"), "{told}");
    // Keys that wait there wait for no worker: the alert must not count them.
    assert!(other.value(r#"requeue_oldest_ready_seconds{name="website",controller="website"}"#).await > 60.0);

    // As `main` ends.
    let writes = world.server.writes();
    world.sites.drain(website::GRACE).await;
    world.elector.release().await;
    let took = world.until(|_| other.sites.is_leader()).await;
    assert!(took < 2 * SECOND, "{took:?}");
    tokio::time::sleep(SECOND).await;
    // Each site is looked at once: its two children are applied as they are, and its status is true.
    assert_eq!((other.value(runs).await, world.server.writes() - writes), (10.0, 20));
    world.apply("site0", "two");
    let took = world.until(|world| world.page("site0").as_deref() == Some("two")).await;
    assert!(took < Duration::from_millis(100), "{took:?}");
    assert_eq!((world.value(leads).await, other.value(leads).await), (0.0, 1.0));
}

//! s08: lists behind changes, also where the list is older than `max_wait`.

use crate::scenarios::{by_name, change, create, named};
use crate::website::{Ctx, Website, WebsiteSpec};
use crate::{World, figure, size, until};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use requeue_kube::{Action, Config, Running};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn s08_a_change_comes_before_the_list_of_a_start_and_nobody_waits_for_ever() {
    let Some(world) = World::new("s08").await else { return };
    let count = size(10_000, 500);
    let slow = WebsiteSpec { sleep_ms: 20, ..WebsiteSpec::default() };
    create(&world, named("s", count, &slow)).await;
    let cx = world.ctx();
    let began = Instant::now();
    let running = world.start(Config::default().concurrency(4).max_wait(Duration::from_secs(2)), &cx);
    until("the lists", || running.health().synced).await;
    until("some runs", || cx.count() > 20).await;
    let last = format!("s{}", count - 1);
    assert!(cx.runs_of(&last).is_empty());
    let at = change(&world, &last, json!({ "stamp": 1 })).await;
    until("the change", || cx.runs_of(&last).iter().any(|run| run.stamp == 1)).await;
    figure(
        "a change beside a list",
        cx.runs_of(&last)[0].began.saturating_duration_since(at),
        Duration::from_millis(100),
    );
    assert!(by_name(&cx).len() < count, "the list was through before");
    until("the rest of the list", || by_name(&cx).len() == count).await;
    let took: Duration = cx.runs.lock().unwrap().iter().map(|run| run.ended - run.began).sum();
    figure("the whole list", began.elapsed(), took / 4 + took / 20);
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s08_beside_endless_changes_a_list_that_has_waited_for_so_long_has_one_turn_in_eight() {
    let Some(world) = World::new("s08-endless").await else { return };
    let (count, hot, max_wait) = (size(500, 30), 8, Duration::from_secs(size(20, 2) as u64));
    let slow = WebsiteSpec { sleep_ms: 20, ..WebsiteSpec::default() };
    create(&world, named("s", count, &slow)).await;
    create(&world, named("hot", hot, &slow)).await;
    let cx = world.ctx();
    // A hot site is changed in each of its runs: more is always to be done than there are workers for.
    let (sites, changes) = (world.sites.clone(), Arc::new(AtomicUsize::new(0)));
    let reconcile = move |site: Arc<Website>, cx: Arc<Ctx>| {
        let (sites, changes) = (sites.clone(), changes.clone());
        async move {
            if site.name_any().starts_with("hot") {
                let patch = Patch::Merge(json!({"spec": {"stamp": changes.fetch_add(1, SeqCst) + 1}}));
                sites.patch(&site.name_any(), &PatchParams::default(), &patch).await.unwrap();
            }
            crate::website::reconcile(site, cx).await
        }
    };
    let config = Config::default().concurrency(4).max_wait(max_wait);
    let running = world
        .controller()
        .with_config(config)
        .start(reconcile, |_, _, _| Action::backoff(), cx.clone())
        .unwrap();
    until("the lists", || running.health().synced).await;
    let began = Instant::now();
    until("all of the list", || by_name(&cx).len() == count + hot).await;
    eprintln!("all of the list beside endless changes: {:.3?}", began.elapsed());
    let first = |name: String| cx.runs_of(&name)[0].began;
    let mut listed: Vec<_> = (0..count).map(|n| first(format!("s{n}"))).collect();
    listed.sort_unstable();
    // Of eight turns the oldest that is overdue has one. Workers may begin a little out of order.
    let from = began + max_wait + Duration::from_millis(500);
    listed.retain(|first| *first >= from);
    if let [from, .., to] = listed[..] {
        let runs = cx.runs.lock().unwrap();
        let others = runs.iter().filter(|run| run.stamp > 0 && (from..to).contains(&run.began)).count();
        eprintln!("{others} changes beside {} of the list", listed.len());
        assert!(others <= 8 * listed.len(), "{others} changes beside {} of the list", listed.len());
    }
    running.drain(Duration::from_secs(10)).await;
}

/// Changes the last site of a long list. Returns how many of the list began before that change, and how many
/// were left when it was written.
async fn overtakes(world: &World, cx: &Ctx, count: usize) -> (usize, usize) {
    let last = format!("s{}", count - 1);
    assert!(cx.runs_of(&last).is_empty(), "the list was through before");
    let left = count - by_name(cx).len();
    let at = change(world, &last, json!({ "stamp": 1 })).await;
    until("the change", || cx.runs_of(&last).iter().any(|run| run.stamp == 1)).await;
    let began = cx.runs_of(&last)[0].began;
    figure("a change beside an old list", began.saturating_duration_since(at), Duration::from_millis(100));
    let before = cx.runs.lock().unwrap().iter().filter(|run| run.began > at && run.began < began).count();
    (before, left)
}

fn slow(world: &World, cx: &Arc<Ctx>, max_wait: Duration) -> Running<Website> {
    world.start(Config::default().concurrency(4).max_wait(max_wait), cx)
}

#[tokio::test(flavor = "multi_thread")]
async fn s08_a_change_comes_before_a_list_that_has_waited_for_longer_than_max_wait() {
    let Some(world) = World::new("s08-old").await else { return };
    let (count, max_wait) = (size(10_000, 600), Duration::from_millis(300));
    create(&world, named("s", count, &WebsiteSpec { sleep_ms: 50, ..WebsiteSpec::default() })).await;
    let cx = world.ctx();
    let running = slow(&world, &cx, max_wait);
    until("the lists", || running.health().synced).await;
    tokio::time::sleep(2 * max_wait).await; // all that is left has waited for longer
    let (before, left) = overtakes(&world, &cx, count).await;
    // Behind the backlog it would have been the last of all.
    assert!(before < left / 2, "{before} of {left} that were left began before the change");
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s08_after_a_long_pause_a_change_comes_before_the_list() {
    let Some(world) = World::new("s08-pause").await else { return };
    let (count, max_wait) = (size(10_000, 600), Duration::from_millis(300));
    create(&world, named("s", count, &WebsiteSpec { sleep_ms: 50, ..WebsiteSpec::default() })).await;
    let cx = world.ctx();
    let running = slow(&world, &cx, max_wait);
    running.pause();
    until("the lists", || running.health().synced).await;
    tokio::time::sleep(4 * max_wait).await; // the pause
    assert_eq!(running.stats().ready, count);
    running.resume();
    let (before, left) = overtakes(&world, &cx, count).await;
    assert!(before < left / 2, "{before} of {left} that were left began before the change");
    running.drain(Duration::from_secs(10)).await;
}

//! Section 10 of the design: `s01_` to `s16_`.

use crate::website::{Ctx, Ran, Website, WebsiteSpec, site};
use crate::{World, figure, percentile, size, until};
use futures::{StreamExt, stream};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use requeue_kube::{Action, Config, Current};
use serde_json::json;
use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Creates these sites, some at a time, and returns them in the order of their creation with their instants.
pub(crate) async fn create(world: &World, sites: impl Iterator<Item = Website>) -> Vec<(Website, Instant)> {
    let mut made: Vec<_> = stream::iter(sites)
        .map(|site| async move {
            (world.sites.create(&PostParams::default(), &site).await.unwrap(), Instant::now())
        })
        .buffer_unordered(16)
        .collect()
        .await;
    made.sort_by_key(|(site, _)| site.resource_version().unwrap().parse::<u64>().unwrap());
    made
}

pub(crate) async fn change(world: &World, name: &str, spec: serde_json::Value) -> Instant {
    let patch = Patch::Merge(json!({ "spec": spec }));
    world.sites.patch(name, &PatchParams::default(), &patch).await.unwrap();
    Instant::now()
}

pub(crate) fn named(prefix: &str, count: usize, spec: &WebsiteSpec) -> impl Iterator<Item = Website> {
    (0..count).map(move |n| site(&format!("{prefix}{n}"), spec.clone()))
}

fn with_mode(mode: &str) -> WebsiteSpec {
    WebsiteSpec { mode: mode.into(), ..WebsiteSpec::default() }
}

/// The runs of each site.
pub(crate) fn by_name(cx: &Ctx) -> HashMap<String, Vec<Ran>> {
    let mut runs = HashMap::<_, Vec<_>>::new();
    for run in cx.runs.lock().unwrap().iter() {
        runs.entry(run.name.clone()).or_default().push(run.clone());
    }
    runs
}

fn gaps(runs: &[Ran]) -> Vec<Duration> {
    runs.windows(2).map(|two| two[1].began - two[0].ended).collect()
}

/// Similarity of two orders: 1 if they are equal, 0 if they are unrelated (Spearman).
fn rank_correlation(ranks: &[usize]) -> f64 {
    let n = ranks.len() as f64;
    let squares: f64 = ranks.iter().enumerate().map(|(a, b)| (a as f64 - *b as f64).powi(2)).sum();
    1.0 - 6.0 * squares / (n * (n * n - 1.0))
}

#[tokio::test(flavor = "multi_thread")]
async fn s01_many_objects_at_once_run_in_the_order_of_their_creation() {
    let Some(world) = World::new("s01").await else { return };
    let (cx, count) = (world.ctx(), size(2000, 300));
    let running = world.start(Config::default(), &cx);
    // The objects from before the first list are in it by name.
    until("the lists", || running.health().synced).await;
    let made = create(&world, named("s", count, &WebsiteSpec::default())).await;
    until("each run", || by_name(&cx).len() == count).await;
    until("rest", || running.stats().ready + running.stats().held == 0).await;
    let runs = by_name(&cx);
    let most = runs.values().map(Vec::len).max().unwrap();
    assert!(most <= 3, "an object ran {most} times");
    let total = cx.count() as f64 / count as f64;
    eprintln!("runs an object: {total:.3}");
    assert!(total < 1.2, "{total} runs an object");

    let mut first: Vec<_> =
        made.iter().enumerate().map(|(n, (site, _))| (runs[&site.name_any()][0].began, n)).collect();
    first.sort_unstable();
    let ranks: Vec<_> = first.into_iter().map(|(_, n)| n).collect();
    assert!(rank_correlation(&ranks) > 0.99, "{}", rank_correlation(&ranks));

    let delays: Vec<_> = made
        .iter()
        .map(|(site, made)| runs[&site.name_any()][0].began.saturating_duration_since(*made))
        .collect();
    let p50 = percentile(delays.clone(), 50);
    figure(
        "p99 of the time to the first run",
        percentile(delays, 99),
        (2 * p50).max(Duration::from_millis(100)),
    );

    // the finalizer, the child and the status
    for (site, _) in &made {
        let site = world.sites.get(&site.name_any()).await.unwrap();
        assert_eq!(site.status.unwrap().stamp, 0);
    }
    let writes = cx.writes.load(SeqCst) as f64 / count as f64;
    assert!(writes <= 3.2, "{writes} writes an object");
}

#[tokio::test(flavor = "multi_thread")]
async fn s02_many_changes_of_one_object_are_few_runs_and_the_last_is_seen() {
    let Some(world) = World::new("s02").await else { return };
    let cx = world.ctx();
    let _running = world.start(Config::default(), &cx);
    world.sites.create(&PostParams::default(), &site("one", WebsiteSpec::default())).await.unwrap();
    until("the first run", || cx.count() == 1).await;
    let (began, changes) = (Instant::now(), size(500, 200) as i64);
    for stamp in 1..=changes {
        change(&world, "one", json!({ "stamp": stamp })).await;
    }
    let took = began.elapsed();
    until("the last change", || cx.runs_of("one").last().is_some_and(|run| run.stamp == changes && run.well))
        .await;
    let runs = cx.runs_of("one");
    let shortest = runs.iter().map(|run| run.ended - run.began).min().unwrap();
    let most = took.as_secs_f64() / shortest.as_secs_f64() + 3.0;
    eprintln!("{changes} changes in {took:?}: {} runs", runs.len());
    assert!((runs.len() as f64) <= most && runs.len() as i64 <= changes + 1, "{} runs", runs.len());
    // single flight
    assert!(runs.windows(2).all(|two| two[0].ended <= two[1].began));
    let last = gaps(&runs).pop().unwrap();
    figure("from the end of the last run but one to the last", last, Duration::from_millis(50));
}

/// Number of runs that a failing object has had after this time: the first, and then after 5 ms, 10 ms, 20 ms
/// and so on.
fn due(after: Duration) -> usize {
    (0..).take_while(|n| Duration::from_millis(5) * (2_u32.pow(*n) - 1) <= after).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn s03_s04_s05_objects_that_fail_wait_longer_each_time_and_delay_nobody() {
    let Some(world) = World::new("s03").await else { return };
    assert_eq!(due(Duration::from_secs(12)), 12);
    let cx = world.ctx();
    let count = size(50, 20);
    let running = world.start(Config::default().concurrency(4).jitter(0.0), &cx);
    create(&world, named("fail", count, &with_mode("fail"))).await;
    create(&world, named("echo", count, &with_mode("fail-status"))).await;
    let healthy = size(40, 20);
    create(&world, named("fine", healthy, &WebsiteSpec::default())).await;
    until("the healthy", || (0..healthy).all(|n| !cx.runs_of(&format!("fine{n}")).is_empty())).await;
    // s05: changes of healthy objects among them
    let mut seen = Vec::new();
    for stamp in 1..=6 {
        let mut changed = Vec::new();
        for n in 0..healthy {
            changed.push((
                format!("fine{n}"),
                change(&world, &format!("fine{n}"), json!({ "stamp": stamp })).await,
            ));
        }
        let began =
            |name: &str| cx.runs_of(name).into_iter().find(|run| run.stamp >= stamp).map(|run| run.began);
        until("each change", || changed.iter().all(|(name, _)| began(name).is_some())).await;
        seen.extend(changed.iter().map(|(name, at)| began(name).unwrap().saturating_duration_since(*at)));
    }
    assert_eq!(seen.len(), 6 * healthy);
    figure(
        "p99 of a healthy change beside objects that fail",
        percentile(seen, 99),
        Duration::from_millis(200),
    );
    let tenth = |name: String| cx.runs_of(&name).len() >= 10;
    until("ten runs", || (0..count).all(|n| tenth(format!("fail{n}")) && tenth(format!("echo{n}")))).await;
    running.pause();
    until("rest", || running.stats().held == 0).await;
    for (name, runs) in by_name(&cx).into_iter().filter(|(name, _)| !name.starts_with("fine")) {
        for (n, gap) in gaps(&runs).into_iter().enumerate() {
            // s03, s04: never earlier than the back-off says, whatever their echoes
            let least = Duration::from_millis(5) * 2_u32.pow(n as u32);
            assert!(gap + Duration::from_millis(2) >= least, "{name}: {gap:?} after {} failures", n + 1);
        }
        for (n, run) in runs.iter().enumerate() {
            assert!(run.attempt as usize == n + 1, "{name}: {runs:?}");
            assert!(
                n == 0 || run.causes.starts_with(&format!("retry after {n} failures")),
                "{name}: {runs:?}"
            );
        }
    }
    for n in 0..count {
        // each failure is one run, and no run is an echo's
        let name = format!("echo{n}");
        let failures = world.sites.get(&name).await.unwrap().status.unwrap().failures;
        assert!(failures <= cx.runs_of(&name).len() as i64, "{name}: {failures}");
    }
    running.resume();
    // a change of what is asked for ends the back-off, and the failures count anew
    let before = cx.runs_of("fail0").len();
    let at = change(&world, "fail0", json!({ "stamp": 7 })).await;
    until("its runs", || cx.runs_of("fail0").len() >= before + 4).await;
    let runs = cx.runs_of("fail0").split_off(before);
    let fresh = runs.iter().position(|run| run.attempt == 1).expect("a fresh start");
    figure(
        "a change of one in back-off",
        runs[fresh].began.saturating_duration_since(at),
        Duration::from_millis(100),
    );
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s06_the_api_server_dies_and_comes_back_and_nothing_runs_for_it() {
    let Some(mut world) = World::new("s06").await else { return };
    let (cx, count) = (world.ctx(), size(2000, 300));
    let running = world.start(Config::default(), &cx);
    create(&world, named("s", count, &WebsiteSpec::default())).await;
    until("each run", || by_name(&cx).len() == count).await;
    until("rest", || running.stats().ready + running.stats().held == 0).await;
    tokio::time::sleep(Duration::from_millis(300)).await; // late echoes
    let before = cx.count();
    let server = world.server.as_mut().unwrap();
    server.kill();
    tokio::time::sleep(Duration::from_secs(3)).await; // the time that it is away
    server.restart().await;
    tracing::info!("the API server is ready");
    world.client = server.client();
    let ready = Instant::now();
    change(&world, "s0", json!({ "stamp": 1 })).await;
    until("the change", || cx.runs_of("s0").last().unwrap().stamp == 1).await;
    figure("a change after the API server is back", ready.elapsed(), Duration::from_secs(2));
    tokio::time::sleep(Duration::from_secs(2)).await; // the relist of the children too
    assert_eq!(cx.count(), before + 1, "{:?}", cx.runs.lock().unwrap().split_off(before));
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s06_what_is_in_work_when_the_api_server_dies_is_done_when_it_is_back() {
    let Some(mut world) = World::new("s06-work").await else { return };
    let (cx, count) = (world.ctx(), size(500, 100));
    let config = Config::default().backoff(Duration::from_millis(5), Duration::from_secs(5));
    let running = world.start(config, &cx);
    let slow = WebsiteSpec { sleep_ms: 100, ..WebsiteSpec::default() };
    create(&world, named("s", count, &slow)).await;
    until("work", || cx.count() > count / 10).await;
    let server = world.server.as_mut().unwrap();
    server.kill();
    tokio::time::sleep(Duration::from_secs(2)).await; // the time that it is away
    server.restart().await;
    let ready = Instant::now();
    let well = || by_name(&cx).values().filter(|runs| runs.last().is_some_and(|run| run.well)).count();
    until("all", || well() == count && running.stats().waiting == 0 && running.stats().ready == 0).await;
    figure("all done after the API server is back", ready.elapsed(), Duration::from_secs(10));
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s09_an_object_that_is_deleted_while_it_waits_is_cleaned_up_and_forgotten() {
    let Some(world) = World::new("s09").await else { return };
    let cx = world.ctx();
    let thousand = Duration::from_secs(1000);
    let running = world.start(Config::default().backoff(thousand, thousand), &cx);
    create(&world, named("s", 20, &with_mode("fail"))).await;
    until("the failures", || running.stats().waiting == 20).await;
    assert!(running.explain(&ObjectRef::new("s3").within("s09")).contains("poison"));
    let mut took = Vec::new();
    for n in 0..20 {
        let (name, at) = (format!("s{n}"), Instant::now());
        world.sites.delete(&name, &DeleteParams::default()).await.unwrap();
        while world.sites.get_opt(&name).await.unwrap().is_some() {
            assert!(at.elapsed() < Duration::from_secs(60), "{name} stays");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        took.push(at.elapsed());
    }
    figure("the clean-up of one that waits 1,000 s", percentile(took, 99), Duration::from_millis(200));
    until("no key", || {
        let stats = running.stats();
        stats.ready + stats.waiting + stats.held == 0
    })
    .await;
    assert!(!running.explain(&ObjectRef::new("s3").within("s09")).contains("failed"));
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s10_a_conflict_is_no_failure() {
    let Some(world) = World::new("s10").await else { return };
    let tries = Arc::new(Mutex::new(HashMap::<String, usize>::new()));
    let (sites, counted) = (world.sites.clone(), tries.clone());
    // Each first try writes what it has read, after somebody else has written.
    let reconcile = move |object: Arc<Website>, cx: Arc<Ctx>| {
        let (sites, counted) = (sites.clone(), counted.clone());
        async move {
            let (began, name) = (Instant::now(), object.name_any());
            let nth = {
                let mut counted = counted.lock().unwrap();
                let tries = counted.entry(name.clone()).or_default();
                *tries += 1;
                *tries
            };
            if nth == 1 {
                let other = Patch::Merge(json!({"metadata": {"labels": {"other": "1"}}}));
                sites.patch(&name, &PatchParams::default(), &other).await?;
            }
            let mut changed = (*object).clone();
            changed.spec.html = "written".into();
            let written = sites.replace(&name, &PostParams::default(), &changed).await?;
            Current::saw_if_any(&written);
            let attempt = Current::get().map_or(0, |current| current.attempt());
            let (ended, causes) = (Instant::now(), String::new());
            let run = Ran { name, stamp: 0, began, ended, well: true, causes, attempt };
            cx.runs.lock().unwrap().push(run);
            Ok::<_, kube::Error>(Action::await_change())
        }
    };
    let (cx, count) = (world.ctx(), size(200, 20));
    let running = world.controller().start(reconcile, |_, _, _| Action::backoff(), cx.clone()).unwrap();
    // One after the other, for what is measured is a conflict and no crowd.
    let mut seen = Vec::new();
    for n in 0..count {
        let name = format!("s{n}");
        world.sites.create(&PostParams::default(), &site(&name, WebsiteSpec::default())).await.unwrap();
        let at = Instant::now();
        until("a good run", || !cx.runs_of(&name).is_empty()).await;
        seen.push(at.elapsed());
        assert_eq!(cx.runs_of(&name)[0].attempt, 1, "a conflict counts as no failure");
        assert_eq!(world.sites.get(&name).await.unwrap().spec.html, "written");
    }
    figure("p99 of a run with a conflict", percentile(seen, 99), Duration::from_millis(200));
    assert_eq!(running.stats().waiting, 0);
    running.drain(Duration::from_secs(10)).await;
    let runs = by_name(&cx);
    let at_most_two = |(name, tries): (&String, &usize)| *tries <= 2 * runs[name].len();
    assert!(tries.lock().unwrap().iter().all(at_most_two), "{tries:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_at_the_end_what_runs_ends_and_nothing_begins() {
    let Some(world) = World::new("s11").await else { return };
    let cx = world.ctx();
    let running = world.start(Config::default().concurrency(50), &cx);
    running.pause(); // so that all begin together, however long it takes to make them
    create(&world, named("s", 50, &WebsiteSpec { sleep_ms: 3000, ..WebsiteSpec::default() })).await;
    until("fifty objects", || running.stats().ready == 50).await;
    running.resume();
    until("fifty runs", || running.stats().held == 50).await;
    create(&world, named("late", 10, &WebsiteSpec::default())).await;
    let at = Instant::now();
    let report = running.drain(Duration::from_secs(30)).await;
    figure("the end with 50 runs of 3 s", at.elapsed(), Duration::from_millis(3200));
    assert_eq!((report.done, report.cancelled), (50, 0), "{report:?}");
    assert_eq!(by_name(&cx).len(), 50);
    assert!(cx.runs.lock().unwrap().iter().all(|run| run.well));
    assert!(running.health().ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_a_run_that_hangs_is_dropped_when_the_grace_is_over() {
    let Some(world) = World::new("s11-hangs").await else { return };
    let cx = world.ctx();
    let running = world.start(Config::default(), &cx);
    create(&world, named("s", 1, &with_mode("hang"))).await;
    until("the run", || running.stats().held == 1).await;
    let at = Instant::now();
    let report = running.drain(Duration::from_secs(1)).await;
    assert!(at.elapsed() >= Duration::from_secs(1));
    figure("the end with a run that hangs", at.elapsed(), Duration::from_millis(1100));
    assert_eq!((report.done, report.cancelled), (0, 1), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_panics_and_runs_that_hang_delay_nobody_for_longer_than_the_time_limit() {
    let Some(world) = World::new("s12").await else { return };
    let cx = world.ctx();
    let limit = Duration::from_secs(1);
    let config = Config::default().concurrency(4).time_limit(limit);
    let running = world.start(config, &cx);
    create(&world, named("panic", 2, &with_mode("panic"))).await;
    create(&world, named("hang", 4, &with_mode("hang"))).await;
    let made = create(&world, named("fine", 20, &WebsiteSpec::default())).await;
    until("the healthy", || (0..20).all(|n| cx.runs_of(&format!("fine{n}")).iter().any(|run| run.well)))
        .await;
    let seen =
        made.iter().map(|(site, at)| cx.runs_of(&site.name_any())[0].began.saturating_duration_since(*at));
    figure("p99 of the healthy", percentile(seen.collect(), 99), limit + Duration::from_millis(100));
    let said = |name: &str, word: &str| running.explain(&ObjectRef::new(name).within("s12")).contains(word);
    until("the panic's message", || said("panic0", "a reconciler panics")).await;
    until("the limit's message", || said("hang0", "time limit") || said("hang0", "1s")).await;
    running.drain(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s13_a_tenant_with_many_objects_does_not_stop_another_with_few() {
    let Some(world) = World::new("s13-large").await else { return };
    let small = crate::website::install(&world.client, "s13-small").await;
    let count = size(10_000, 400);
    let spec = WebsiteSpec { sleep_ms: 30, ..WebsiteSpec::default() };
    let all = kube::Api::<Website>::all(world.client.clone());
    let cx = world.ctx();
    let running =
        requeue_kube::Controller::new(all, kube::runtime::watcher::Config::default().labels("tenant"))
            .group_by(requeue_kube::by_namespace)
            .with_config(Config::default().concurrency(4))
            .start(crate::website::reconcile, |_, _, _| Action::backoff(), cx.clone())
            .unwrap();
    let labelled = |mut site: Website| {
        site.labels_mut().insert("tenant".into(), "yes".into());
        site
    };
    // From the creation of a site of the small tenant to the end of its run.
    let one = async |name: String| {
        small.create(&PostParams::default(), &labelled(site(&name, spec.clone()))).await.unwrap();
        let at = Instant::now();
        until("its run", || !cx.runs_of(&name).is_empty()).await;
        cx.runs_of(&name)[0].ended.saturating_duration_since(at)
    };
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for n in 0..10 {
        alone.push(one(format!("alone{n}")).await);
    }
    create(&world, named("large", count, &spec).map(labelled)).await;
    for n in 0..10 {
        beside.push(one(format!("small{n}")).await);
    }
    figure("p99 of the small tenant", percentile(beside, 99), 2 * percentile(alone, 99));
    assert!(by_name(&cx).len() < count, "the large tenant was through before");
    running.drain(Duration::from_secs(10)).await;
}

//! The tests of kube-runtime 5.0: runner.rs, scheduler.rs, controller/mod.rs, controller/trigger.rs,
//! finalizer.rs, utils/predicate.rs and, for lists, watcher.rs.

use crate::world::{Do, SECOND, World, config, map, map_ref};
use futures::channel::mpsc;
use futures::{FutureExt, StreamExt, poll};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::watcher::{self, Event};
use requeue_kube::finalizer::{self, finalizer};
use requeue_kube::{Action, Cause, Controller, Error, ObjectKey};
use serde_json::json;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::time::{sleep, timeout};

// runner.rs

#[tokio::test(start_paused = true)]
async fn kube_runtime_runner_never_runs_an_object_twice_at_once() {
    let world = World::new();
    let _running = world.start(world.controller(), |_, _| Do::done().after(SECOND));
    world.write("a", "1");
    sleep(SECOND / 2).await;
    world.write("a", "2");
    sleep(5 * SECOND).await;
    // The second begins when the first has ended, and not earlier.
    assert_eq!(world.tenths("a"), [0, 10]);
    assert_eq!(world.at_once(), 1);
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_runner_wakes_for_what_comes_while_it_is_idle() {
    let world = World::new();
    let _running = world.start(world.controller(), |_, _| Do::done());
    sleep(3600 * SECOND).await;
    world.write("a", "1");
    sleep(SECOND).await;
    assert_eq!(world.tenths("a"), [36_000]);
}

/// Events that a test sends, and the controller that receives them.
fn by_hand() -> (impl Fn(Event<ConfigMap>), Controller<ConfigMap>) {
    let (send, events) = mpsc::unbounded();
    let controller = Controller::for_events(events.map(Ok)).with_config(config());
    (move |event| send.unbounded_send(event).unwrap(), controller)
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_runner_waits_for_readiness_and_merges_meanwhile() {
    let world = World::new();
    let (tell, controller) = by_hand();
    let (ask, asked) = mpsc::unbounded();
    let running = world.start(controller.reconcile_on(asked), |_, _| Do::done());
    tell(Event::Init);
    for name in ["a", "b"] {
        tell(Event::InitApply(map(name, "1")));
    }
    for name in ["a", "b", "a"] {
        ask.unbounded_send(map_ref(name)).unwrap();
    }
    sleep(60 * SECOND).await;
    assert_eq!((world.runs().len(), running.health().synced), (0, false));
    tell(Event::InitDone);
    sleep(60 * SECOND).await;
    assert_eq!(world.counts(), [("a".to_owned(), 1), ("b".to_owned(), 1)].into());
}

/// kube's stream ends with an error; ours continues, and reports that it has no list.
#[tokio::test(start_paused = true)]
async fn kube_runtime_runner_that_never_gets_ready_runs_nothing_and_says_so() {
    let world = World::new();
    let (tell, controller) = by_hand();
    let (ask, asked) = mpsc::unbounded();
    let running = world.start(controller.reconcile_on(asked), |_, _| Do::done());
    tell(Event::Init);
    tell(Event::InitApply(map("a", "1")));
    drop(tell);
    ask.unbounded_send(map_ref("a")).unwrap();
    sleep(60 * SECOND).await;
    assert_eq!((world.runs().len(), running.health().synced), (0, false));
    // It can still be ended.
    running.drain(SECOND).await;
    assert!(running.health().ended);

    // The same of a store that others keep, whether its writer goes or its stream ends first.
    for stream_ends in [true, false] {
        let world = World::new();
        let (store, writer) = reflector::store();
        let objects = futures::stream::iter([Ok(map("a", "1"))]);
        let objects = match stream_ends {
            true => objects.boxed(),
            false => objects.chain(futures::stream::pending()).boxed(),
        };
        let running = world.start(Controller::for_stream(objects, store), |_, _| Do::done());
        sleep(SECOND).await;
        drop(writer);
        sleep(60 * SECOND).await;
        assert_eq!((world.runs().len(), running.health().synced), (0, false), "{stream_ends}");
    }
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_runner_waits_for_a_store_that_is_ready_after_its_stream_has_ended() {
    let world = World::new();
    let (store, mut writer) = reflector::store();
    let objects = futures::stream::iter([Ok(map("a", "1"))]);
    let _running = world.start(Controller::for_stream(objects, store), |_, _| Do::done());
    sleep(SECOND).await;
    for event in [Event::Init, Event::InitApply(map("a", "1")), Event::InitDone] {
        writer.apply_watcher_event(&event);
    }
    sleep(SECOND).await;
    assert_eq!(world.names(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_runner_respects_the_bound_of_runs_at_once() {
    let world = World::new();
    let controller = world.controller().with_config(config().concurrency(2));
    let running = world.start(controller, |_, _| Do::done().after(2 * SECOND));
    for name in ["a", "b", "c"] {
        world.write(name, "1");
    }
    sleep(SECOND).await;
    assert_eq!(world.names(), ["a", "b"]);
    sleep(2 * SECOND).await;
    assert_eq!(world.names(), ["a", "b", "c"]);
    world.write("c", "2");
    sleep(3 * SECOND).await;
    assert_eq!(world.names(), ["a", "b", "c", "c"]);
    assert_eq!(world.at_once(), 2);
    // At the end what runs may end.
    world.write("a", "2");
    sleep(SECOND).await;
    let ending = running.drain(60 * SECOND);
    let mut ending = pin!(ending);
    assert!(poll!(&mut ending).is_pending());
    assert_eq!(ending.await.cancelled, 0);
    assert!(world.runs().iter().all(|run| run.ended.is_some()));
}

// scheduler.rs

#[tokio::test(start_paused = true)]
async fn kube_runtime_scheduler_merges_what_waits_and_lets_others_pass() {
    let world = World::new();
    let controller = world.controller().with_config(config().concurrency(2));
    let _running =
        world.start(controller, |name, _| Do::done().after(if name == "a" { 10 * SECOND } else { SECOND }));
    world.write("a", "1");
    sleep(SECOND).await;
    // "a" is held while it runs: four more triggers of it are one run, and it holds up no other key.
    for value in ["2", "3", "4", "5"] {
        world.write("a", value);
        sleep(SECOND / 2).await;
    }
    world.write("b", "1");
    sleep(30 * SECOND).await;
    assert_eq!((world.tenths("a"), world.tenths("b")), (vec![0, 100], vec![30]));
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_scheduler_runs_what_is_due_when_it_is_due() {
    let world = World::new();
    let _running = world.start(world.controller(), |name, nth| match (name, nth) {
        ("a", 1) => Do::end(Action::requeue(3 * SECOND)),
        ("b", 1 | 2) => Do::end(Action::requeue(SECOND)),
        ("c", 1) => Do::end(Action::requeue(2 * SECOND)),
        _ => Do::done(),
    });
    for name in ["a", "b", "c"] {
        world.write(name, "1");
    }
    sleep(60 * SECOND).await;
    assert_eq!((world.tenths("a"), world.tenths("c")), (vec![0, 30], vec![0, 20]));
    // A key that has run can be due again.
    assert_eq!(world.tenths("b"), [0, 10, 20]);
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_scheduler_an_earlier_reason_takes_the_place_of_a_later_one() {
    let world = World::new();
    let _running = world.start(world.controller(), |_, nth| match nth {
        1 => Do::end(Action::requeue(3 * SECOND)),
        _ => Do::done(),
    });
    world.write("a", "1");
    sleep(SECOND).await;
    world.write("a", "2");
    sleep(60 * SECOND).await;
    // The run at 1 s said nothing of a further one, so that none comes at 3 s.
    assert_eq!(world.tenths("a"), [0, 10]);
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_scheduler_a_later_reason_does_not_delay_an_earlier_one() {
    let world = World::new();
    let controller = world.controller().with_config(config().debounce(10 * SECOND, 60 * SECOND));
    let _running = world.start(controller, |_, nth| match nth {
        1 => Do::end(Action::requeue(3 * SECOND)),
        _ => Do::done(),
    });
    world.write("a", "1");
    sleep(11 * SECOND).await;
    assert_eq!(world.tenths("a"), [100]);
    // A change would run 10 s later; but the object is due at 13 s, and that run sees the change.
    world.write("a", "2");
    sleep(60 * SECOND).await;
    assert_eq!(world.tenths("a"), [100, 130]);
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_scheduler_debounce_waits_for_quiet_and_runs_once() {
    let world = World::new();
    let controller = world.controller().with_config(config().debounce(3 * SECOND, 60 * SECOND));
    let _running = world.start(controller, |_, _| Do::done());
    world.write("a", "1");
    sleep(SECOND).await;
    assert_eq!(world.runs().len(), 0);
    world.write("a", "2");
    sleep(60 * SECOND).await;
    assert_eq!(world.tenths("a"), [40]);
}

/// kube-rs/kube#1772: a timer of more than two years was a panic there.
#[tokio::test(start_paused = true)]
async fn kube_runtime_scheduler_a_requeue_in_centuries_is_as_good_as_another() {
    let world = World::new();
    let running = world.start(world.controller(), |name, _| match name {
        "centuries" => Do::end(Action::requeue(Duration::from_secs(3600 * 24 * 365 * 300))),
        "for-ever" => Do::end(Action::requeue(Duration::MAX)),
        _ => Do::done(),
    });
    for name in ["centuries", "for-ever", "b"] {
        world.write(name, "1");
    }
    sleep(60 * SECOND).await;
    world.write("centuries", "2");
    sleep(60 * SECOND).await;
    assert_eq!(world.counts(), [("b".into(), 1), ("centuries".into(), 2), ("for-ever".into(), 1)].into());
    assert!(!running.health().ended);
}

// controller/mod.rs

/// kube-rs/kube#926: 5,000 objects that come again at once, and a reader of the results.
#[tokio::test(start_paused = true)]
async fn kube_runtime_applier_does_not_stand_still_when_all_come_again_at_once() {
    let world = World::new();
    let events = (0..5_000).map(|n| Event::InitApply(map(&format!("m{n}"), "1")));
    let events = [Event::Init].into_iter().chain(events).chain([Event::InitDone]).map(Ok);
    let (stop, stopped) = futures::channel::oneshot::channel::<()>();
    let controller =
        Controller::<ConfigMap>::for_events(futures::stream::iter(events).chain(futures::stream::pending()))
            .graceful_shutdown_on(stopped.map(drop));
    let reconciler = |_, _| async { Ok::<_, std::io::Error>(Action::requeue(Duration::ZERO)) };
    let results = controller.run(reconciler, |_, _, _| Action::backoff(), Arc::new(()));
    let mut results = pin!(results);
    let three_each = results.as_mut().take(15_000).for_each(|result| async { drop(result.unwrap()) });
    timeout(600 * SECOND, three_each).await.expect("all run");
    drop(world);
    stop.send(()).unwrap();
    timeout(600 * SECOND, results.for_each(|_| async {})).await.expect("it ends");
}

/// This only needs to compile: the result of `run` can be spawned, and metadata alone can be reconciled.
#[tokio::test(start_paused = true)]
async fn kube_runtime_controller_is_send_and_takes_metadata_alone() {
    fn send<T: Send>(it: T) -> T {
        it
    }
    let world = World::new();
    world.write("a", "1");
    let api = Api::<PartialObjectMeta<ConfigMap>>::all(world.server.client());
    let runs = Arc::new(AtomicUsize::new(0));
    let reconciler = |map: Arc<PartialObjectMeta<ConfigMap>>, runs: Arc<AtomicUsize>| async move {
        assert_eq!(map.name_any(), "a");
        runs.fetch_add(1, SeqCst);
        Ok::<_, std::io::Error>(Action::await_change())
    };
    let controller = Controller::new(api, watcher::Config::default());
    let results = send(controller.run(reconciler, |_, _, _| Action::backoff(), runs.clone()));
    let task = tokio::spawn(results.for_each(|_| async {}));
    sleep(SECOND).await;
    task.abort();
    assert_eq!(runs.load(SeqCst), 1);
}

// controller/trigger.rs

#[tokio::test(start_paused = true)]
async fn kube_runtime_trigger_an_object_triggers_itself() {
    let world = World::new();
    world.write("a", "1");
    let running = world.start(world.controller(), |_, _| Do::done());
    sleep(SECOND).await;
    world.write("a", "2");
    sleep(SECOND).await;
    assert!(running.reconcile_now(&map_ref("a")));
    sleep(SECOND).await;
    let causes: Vec<_> = world.runs().into_iter().map(|run| run.causes).collect();
    assert_eq!(causes, [[Cause::Listed], [Cause::Changed], [Cause::Asked]]);
}

fn related(kind: &str, name: &str) -> Cause {
    Cause::Related { kind: kind.into(), key: ObjectKey::new(Some("default"), name) }
}

fn secret(name: &str, owners: &serde_json::Value) -> Secret {
    let metadata = json!({"name": name, "namespace": "default", "ownerReferences": owners});
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_trigger_owners_of_our_kind_alone_hear_of_a_child() {
    let world = World::new();
    world.write("a", "1");
    world.write("b", "1");
    let secrets = Api::<Secret>::all(world.server.client());
    let _running =
        world.start(world.controller().owns(secrets, watcher::Config::default()), |_, _| Do::done());
    sleep(SECOND).await;
    let owner = |api: &str, kind: &str, name: &str| json!({"apiVersion": api, "kind": kind, "name": name, "uid": format!("{name}-uid")});
    // One owner is ours; two have another kind, of which one has the name of one of ours; and an orphan.
    let owners =
        json!([owner("v1", "ConfigMap", "a"), owner("apps/v1", "Deployment", "b"), owner("v1", "Pod", "c")]);
    world.server.apply(&secret("child", &owners)).unwrap();
    world.server.apply(&secret("orphan", &json!([]))).unwrap();
    sleep(SECOND).await;
    assert_eq!(world.counts(), [("a".into(), 2), ("b".into(), 1)].into());
    assert_eq!(world.runs_of("a")[1].causes, [related("Secret", "child")]);
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_trigger_all_that_a_mapper_names_hear_of_it() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.write(name, "1");
    }
    let secrets = Api::<Secret>::all(world.server.client());
    let of = |_: Secret| [map_ref("a"), map_ref("c"), map_ref("not-there")];
    let controller = world.controller().watches(secrets, watcher::Config::default(), of);
    let _running = world.start(controller, |_, _| Do::done());
    sleep(SECOND).await;
    for made in [true, false] {
        match made {
            true => drop(world.server.apply(&secret("s", &json!([]))).unwrap()),
            false => world.server.delete::<Secret>("default", "s").unwrap(),
        }
        sleep(SECOND).await;
    }
    // Once in the list, once for a secret that is made, once for one that goes. What is not there does not run.
    assert_eq!(world.counts(), [("a".into(), 3), ("b".into(), 1), ("c".into(), 3)].into());
    assert_eq!(world.runs_of("c")[2].causes, [related("Secret", "s")]);
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_trigger_errors_of_a_watch_are_items_and_it_goes_on() {
    let world = World::new();
    let (tell, events) = mpsc::unbounded();
    let controller = Controller::<ConfigMap>::for_events(events);
    let results =
        controller.run(world.reconciler(|_, _| Do::done()), |_, _, _| Action::backoff(), Arc::new(()));
    let mut results = pin!(results);
    for event in
        [Ok(Event::Init), Err(watcher::Error::NoResourceVersion), Ok(Event::InitApply(map("a", "1")))]
    {
        tell.unbounded_send(event).unwrap();
    }
    tell.unbounded_send(Ok(Event::InitDone)).unwrap();
    assert!(matches!(results.next().await, Some(Err(Error::QueueError(watcher::Error::NoResourceVersion)))));
    let (object, action) = results.next().await.unwrap().unwrap();
    assert_eq!((object.name.as_str(), action), ("a", Action::await_change()));
}

// finalizer.rs: it has no tests; its documentation promises this.

fn finalized(world: &World, fails: Arc<AtomicUsize>) -> impl Fn() -> Vec<String> {
    let (log, client) = (Arc::new(std::sync::Mutex::new(Vec::new())), world.server.client());
    let (told, api) = (log.clone(), Api::<ConfigMap>::default_namespaced(client));
    let reconciler = move |map: Arc<ConfigMap>, _: Arc<()>| {
        let (api, log, fails) = (api.clone(), log.clone(), fails.clone());
        async move {
            finalizer(&api, "example.dev/ours", map, |event| async move {
                let (word, map) = match event {
                    finalizer::Event::Apply(map) => ("apply", map),
                    finalizer::Event::Cleanup(map) => ("cleanup", map),
                };
                let fail = word == "cleanup"
                    && fails.fetch_update(SeqCst, SeqCst, |fails| fails.checked_sub(1)).is_ok();
                log.lock().unwrap().push(format!("{word} {}", map.finalizers().join(" ")));
                if fail { Err(crate::world::Failed) } else { Ok(Action::await_change()) }
            })
            .await
        }
    };
    let controller = world.controller();
    drop(controller.start(reconciler, |_, _, _| Action::backoff(), Arc::new(())).unwrap());
    move || std::mem::take(&mut *told.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_finalizer_is_there_before_the_first_apply_and_goes_after_the_cleanup() {
    let world = World::new();
    let ran = finalized(&world, Arc::default());
    world.write("a", "1");
    sleep(SECOND).await;
    assert_eq!(ran(), ["apply example.dev/ours"]);
    world.write("a", "2");
    sleep(SECOND).await;
    assert_eq!(ran(), ["apply example.dev/ours"]);
    world.server.delete::<ConfigMap>("default", "a").unwrap();
    sleep(SECOND).await;
    assert_eq!(ran(), ["cleanup example.dev/ours"]);
    assert!(world.server.get::<ConfigMap>("default", "a").is_err());
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_finalizer_stays_while_the_cleanup_fails() {
    let world = World::new();
    let ran = finalized(&world, Arc::new(AtomicUsize::new(2)));
    world.write("a", "1");
    sleep(SECOND).await;
    world.server.delete::<ConfigMap>("default", "a").unwrap();
    sleep(2 * SECOND).await;
    assert_eq!(ran().len(), 3); // apply, and two times a cleanup that fails
    assert!(world.server.get::<ConfigMap>("default", "a").is_ok());
    sleep(60 * SECOND).await;
    assert_eq!(ran().len(), 1);
    assert!(world.server.get::<ConfigMap>("default", "a").is_err());
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_finalizer_leaves_those_of_others_alone() {
    let world = World::new();
    let ran = finalized(&world, Arc::default());
    let mut object = map("a", "1");
    object.finalizers_mut().push("example.dev/theirs".into());
    world.server.apply(&object).unwrap();
    sleep(SECOND).await;
    assert_eq!(ran(), ["apply example.dev/theirs example.dev/ours"]);
    world.server.delete::<ConfigMap>("default", "a").unwrap();
    sleep(60 * SECOND).await;
    // Ours is gone, and with it our interest: no second clean-up, and no new finalizer.
    assert_eq!(ran(), ["cleanup example.dev/theirs example.dev/ours"]);
    assert_eq!(world.server.get::<ConfigMap>("default", "a").unwrap().finalizers(), ["example.dev/theirs"]);
}

// utils/predicate.rs

fn deployment(replicas: u32) -> Deployment {
    let spec = json!({"replicas": replicas, "selector": {}, "template": {}});
    serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "default"}, "spec": spec})).unwrap()
}

/// kube's `predicates::generation` keeps a status from running the object. Here the reconciler reports that,
/// or a stream filters it; and a recreated object is another object, whatever its generation.
#[tokio::test(start_paused = true)]
async fn kube_runtime_predicate_an_object_made_anew_with_the_same_generation_runs() {
    let world = World::new();
    world.server.apply(&deployment(1)).unwrap();
    let api = Api::<Deployment>::all(world.server.client());
    let controller = Controller::new(api, watcher::Config::default()).with_config(config());
    let _running = world.start(controller, |_, _| Do::done());
    sleep(SECOND).await;
    let generation = || world.server.get::<Deployment>("default", "a").unwrap().metadata.generation;
    let before = generation();
    world.server.pause_watch_events();
    world.server.delete::<Deployment>("default", "a").unwrap();
    world.server.apply(&deployment(1)).unwrap();
    world.server.drop_watches_with_410();
    world.server.resume_watch_events();
    sleep(60 * SECOND).await;
    assert_eq!(generation(), before);
    let causes: Vec<_> = world.runs().into_iter().map(|run| run.causes).collect();
    assert_eq!(causes, [[Cause::Listed], [Cause::Changed]]);
}

/// A custom stream decides which events a controller sees.
#[tokio::test(start_paused = true)]
async fn kube_runtime_predicate_a_filter_before_the_controller_hides_a_status() {
    let world = World::new();
    let api = Api::<Deployment>::default_namespaced(world.server.client());
    let mut seen = std::collections::HashMap::new();
    let events = watcher::watcher(api.clone(), watcher::Config::default()).filter(move |event| {
        let passes = match event {
            Ok(Event::Apply(it)) => {
                let now = (it.uid(), it.metadata.generation);
                seen.insert(it.name_any(), now.clone()) != Some(now)
            }
            _ => true,
        };
        std::future::ready(passes)
    });
    let _running = world.start(Controller::for_events(events).with_config(config()), |_, _| Do::done());
    sleep(SECOND).await;
    world.server.apply(&deployment(1)).unwrap();
    sleep(SECOND).await;
    let status = Patch::Merge(json!({"status": {"replicas": 1}}));
    api.patch_status("a", &PatchParams::default(), &status).await.unwrap();
    sleep(SECOND).await;
    assert_eq!(world.runs().len(), 1);
    world.server.apply(&deployment(2)).unwrap();
    sleep(SECOND).await;
    assert_eq!(world.runs().len(), 2);
}

// watcher.rs

#[tokio::test(start_paused = true)]
async fn kube_runtime_watcher_of_a_list_that_breaks_off_nothing_is_left() {
    let world = World::new();
    let (tell, controller) = by_hand();
    let store = controller.store();
    let _running = world.start(controller, |_, _| Do::done());
    for list in [&["a", "b"][..], &["b"]] {
        tell(Event::Init);
        for name in list {
            tell(Event::InitApply(map(name, "1")));
        }
    }
    tell(Event::InitDone);
    sleep(SECOND).await;
    assert_eq!(world.names(), ["b"]);
    assert!(store.get(&ObjectRef::from_obj(&map("a", "1"))).is_none());
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_watcher_a_list_in_pages_is_one_list() {
    let world = World::new();
    for n in 0..10 {
        world.write(&format!("m{n}"), "1");
    }
    let api = Api::<ConfigMap>::all(world.server.client());
    let pages = watcher::Config::default().page_size(3);
    let running = world.start(Controller::new(api, pages).with_config(config()), |_, _| Do::done());
    sleep(SECOND).await;
    assert_eq!((world.runs().len(), world.server.requests::<ConfigMap>("list")), (10, 4));
    assert!(running.health().synced);
}

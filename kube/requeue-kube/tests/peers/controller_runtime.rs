//! The tests of controller-runtime 0.24.1 that concern a controller's user:
//! internal/controller/controller_test.go, controller/controller_test.go and
//! controller/priorityqueue/priorityqueue_test.go.

use crate::world::{Do, SECOND, World, config, map_ref};
use futures::channel::mpsc;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use requeue_kube::{Action, Cause, Controller};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::time::sleep;

/// Waits until the controller has its lists.
async fn begun() {
    sleep(SECOND / 10).await;
}

// internal/controller/controller_test.go

#[tokio::test(start_paused = true)]
async fn controller_runtime_a_channel_is_a_source_of_triggers() {
    let world = World::new();
    world.write("a", "1");
    let (ask, asked) = mpsc::unbounded();
    let _running = world.start(world.controller().reconcile_on(asked), |_, _| Do::done());
    begun().await;
    ask.unbounded_send(map_ref("a")).unwrap();
    begun().await;
    assert_eq!(world.runs_of("a")[1].causes, [Cause::Asked]);
}

#[tokio::test(start_paused = true)]
async fn controller_runtime_a_panic_is_an_error_of_that_object() {
    let world = World::new();
    let running = world.start(world.controller(), |name, nth| match (name, nth) {
        ("bad", 1) => Do::panic(),
        _ => Do::done(),
    });
    begun().await;
    world.write("bad", "1");
    world.write("good", "1");
    sleep(60 * SECOND).await;
    assert_eq!((world.attempts("bad"), world.attempts("good")), (vec![1, 2], vec![1]));
    assert!(!running.health().ended);
}

#[tokio::test(start_paused = true)]
async fn controller_runtime_a_run_over_its_time_limit_is_an_error_and_one_within_it_is_none() {
    let world = World::new();
    let controller = world.controller().with_config(config().time_limit(10 * SECOND));
    let _running = world.start(controller, |name, nth| match (name, nth) {
        ("slow", 1) => Do::done().after(3600 * SECOND),
        _ => Do::done().after(9 * SECOND),
    });
    begun().await;
    world.write("slow", "1");
    world.write("fine", "1");
    sleep(60 * SECOND).await;
    // at 10 s the run is dropped, and 1 s later is the retry
    assert_eq!((world.tenths("slow"), world.attempts("slow")), (vec![1, 111], vec![1, 2]));
    assert!(world.runs_of("slow")[0].ended.is_none());
    assert_eq!(world.attempts("fine"), [1]);
}

#[tokio::test(start_paused = true)]
async fn controller_runtime_an_error_comes_again_and_the_others_go_on() {
    let world = World::new();
    let controller = world.controller().with_config(config().concurrency(1));
    let running = world.start(controller, |name, nth| match (name, nth) {
        ("bad", 1) => Do::fail(),
        _ => Do::done(),
    });
    begun().await;
    world.write("bad", "1");
    world.write("good", "1");
    sleep(60 * SECOND).await;
    assert_eq!(world.names(), ["bad", "good", "bad"]);
    let stats = running.stats();
    assert_eq!((stats.ready, stats.waiting, stats.held), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn controller_runtime_a_terminal_error_does_not_come_again() {
    let world = World::new();
    let reconciler = world.reconciler(|_, _| Do::fail());
    let running = world.controller().start(reconciler, |_, _, _| Action::give_up(), Arc::new(())).unwrap();
    begun().await;
    world.write("a", "1");
    sleep(3600 * SECOND).await;
    assert_eq!((world.attempts("a"), running.stats().waiting), (vec![1], 0));
    assert!(running.explain(&map_ref("a")).contains("this run fails"), "{}", running.explain(&map_ref("a")));
    world.write("a", "2");
    sleep(3600 * SECOND).await;
    assert_eq!(world.attempts("a"), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn controller_runtime_the_back_off_grows_until_a_run_ends_well() {
    let world = World::new();
    let _running = world.start(world.controller(), |_, nth| match nth {
        1..=3 | 5 => Do::fail(),
        // An hour later it fails anew.
        4 => Do::end(Action::requeue(3600 * SECOND)),
        _ => Do::done(),
    });
    begun().await;
    world.write("a", "1");
    sleep(2 * 3600 * SECOND).await;
    assert_eq!(world.tenths("a"), [1, 11, 31, 71, 36_071, 36_081]);
    assert_eq!(world.attempts("a"), [1, 2, 3, 4, 1, 2]);
}

/// `Result{Requeue: true}` is `Action::backoff()`.
#[tokio::test(start_paused = true)]
async fn controller_runtime_a_requeue_without_a_time_is_limited_and_ends_with_a_run_that_asks_for_none() {
    let world = World::new();
    let running = world.start(world.controller(), |_, nth| match nth {
        1..=3 => Do::end(Action::backoff()),
        _ => Do::done(),
    });
    begun().await;
    world.write("a", "1");
    sleep(3600 * SECOND).await;
    assert_eq!(world.tenths("a"), [1, 11, 31, 71]);
    assert_eq!(running.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn controller_runtime_a_requeue_after_a_time_is_not_limited() {
    let world = World::new();
    let _running = world.start(world.controller(), |_, nth| match nth {
        1..=5 => Do::end(Action::requeue(SECOND / 2)),
        _ => Do::done(),
    });
    begun().await;
    world.write("a", "1");
    sleep(3600 * SECOND).await;
    assert_eq!(world.tenths("a"), [1, 6, 11, 16, 21, 26]);
    assert_eq!(world.attempts("a"), [1; 6]);
}

/// An object from a list fails at the priority of lists: its retries go behind changes.
#[tokio::test(start_paused = true)]
async fn controller_runtime_a_retry_and_a_requeue_keep_their_priority() {
    for again in [Do::fail(), Do::end(Action::backoff()), Do::end(Action::requeue(SECOND))] {
        let world = World::new();
        world.write("listed", "1");
        let said = again.clone();
        let controller = world.controller().with_config(config().concurrency(1));
        let _running = world.start(controller, move |name, nth| match (name, nth) {
            ("listed", 1) => said.clone(),
            ("long", _) => Do::done().after(5 * SECOND),
            _ => Do::done(),
        });
        begun().await;
        // While this runs, the listed object gets ready again, and then another one changes.
        world.write("long", "1");
        sleep(3 * SECOND).await;
        world.write("changed", "1");
        sleep(60 * SECOND).await;
        assert_eq!(world.names(), ["listed", "long", "changed", "listed"], "{again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn controller_runtime_a_controller_that_was_ended_takes_nothing() {
    let world = World::new();
    let running = world.start(world.controller(), |_, _| Do::done());
    begun().await;
    running.drain(SECOND).await;
    world.write("a", "1");
    running.reconcile_now(&map_ref("a"));
    sleep(60 * SECOND).await;
    assert_eq!(world.runs().len(), 0);
}

// controller/controller_test.go

#[tokio::test(start_paused = true)]
async fn controller_runtime_one_that_was_stopped_or_never_started_leaves_no_task() {
    let world = World::new();
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let client = world.server.client(); // it has a task
    let controller = || {
        let maps = || kube::Api::<ConfigMap>::all(client.clone());
        let none = watcher::Config::default;
        Controller::new(maps(), none()).owns(maps(), none()).reconcile_on(futures::stream::pending())
    };
    let before = tasks();
    let never_started = controller();
    assert_eq!(tasks(), before);
    let running = world.start(never_started, |_, _| Do::fail());
    begun().await;
    world.write("a", "1");
    begun().await;
    assert!(tasks() > before);
    running.drain(SECOND).await;
    begun().await;
    assert_eq!(tasks(), before);
}

/// Their default is 1; ours is 16, which is a bound as well.
#[tokio::test(start_paused = true)]
async fn controller_runtime_the_bound_of_runs_at_once_has_a_default() {
    let world = World::new();
    let maps = kube::Api::<ConfigMap>::all(world.server.client());
    let controller = Controller::new(maps, watcher::Config::default());
    for n in 0..40 {
        world.write(&format!("m{n}"), "1");
    }
    let _running = world.start(controller, |_, _| Do::done().after(SECOND));
    sleep(60 * SECOND).await;
    assert_eq!((world.runs().len(), world.at_once()), (40, 16));
}

// controller/priorityqueue/priorityqueue_test.go

#[tokio::test(start_paused = true)]
async fn controller_runtime_first_in_is_first_out() {
    let world = World::new();
    let _running = world.start(world.controller().with_config(config().concurrency(1)), |_, _| Do::done());
    begun().await;
    let names: Vec<_> = (0..50).map(|n| format!("m{}", n * 37 % 50)).collect();
    for name in &names {
        world.write(name, "1");
    }
    sleep(60 * SECOND).await;
    assert_eq!(world.names(), names);
}

#[tokio::test(start_paused = true)]
async fn controller_runtime_what_changes_goes_to_the_front_of_what_was_listed_and_stays_there() {
    let world = World::new();
    for n in 0..9 {
        world.write(&format!("m{n}"), "1");
    }
    let controller = world.controller().with_config(config().concurrency(1));
    let _running = world.start(controller, |_, _| Do::done().after(SECOND));
    begun().await;
    for name in ["m7", "m5", "new"] {
        world.write(name, "2");
    }
    // A list, of low priority, takes nothing back.
    world.server.drop_watches_with_410();
    sleep(60 * SECOND).await;
    // A raised key keeps its age: "m5" was listed before "m7". In controller-runtime it goes behind the keys
    // that have the priority already.
    assert_eq!(world.names(), ["m0", "m5", "m7", "new", "m1", "m2", "m3", "m4", "m6", "m8"]);
}

#[tokio::test(start_paused = true)]
async fn controller_runtime_what_gets_ready_meanwhile_passes_what_was_listed() {
    let world = World::new();
    let controller = world.controller().with_config(config().concurrency(1));
    let ask = |name: &str, nth: usize| match (name, nth) {
        ("due", 1) => Do::end(Action::requeue(3 * SECOND)),
        _ => Do::done().after(2 * SECOND),
    };
    let (all, wanted) = mpsc::unbounded();
    for n in 0..4 {
        world.write(&format!("m{n}"), "1");
    }
    let running = world.start(controller.reconcile_on(wanted), ask);
    begun().await;
    world.write("due", "1"); // at 2 s it runs, and is due at 5 s
    sleep(60 * SECOND).await;
    assert_eq!(world.names(), ["m0", "due", "m1", "m2", "due", "m3"]);
    drop((all, running));
}

#[tokio::test(start_paused = true)]
async fn controller_runtime_what_waits_for_a_time_is_not_ready_before_it() {
    let world = World::new();
    let running = world.start(world.controller(), |name, nth| match nth {
        1 => Do::end(Action::requeue(name.trim_start_matches('m').parse::<u32>().unwrap() * SECOND)),
        _ => Do::done(),
    });
    begun().await;
    for name in ["m3", "m1", "m2"] {
        world.write(name, "1");
    }
    sleep(SECOND / 2).await;
    let stats = running.stats();
    assert_eq!((stats.ready, stats.waiting), (0, 3));
    sleep(60 * SECOND).await;
    assert_eq!(world.names(), ["m3", "m1", "m2", "m1", "m2", "m3"]);
    assert_eq!(world.tenths("m3"), [1, 31]);
    // A change does not wait for that time.
    world.write("m1", "2");
    begun().await;
    assert_eq!(world.runs_of("m1").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn controller_runtime_the_back_off_of_one_object_is_none_of_another() {
    let world = World::new();
    let _running = world.start(world.controller(), |name, _| match name {
        "good" => Do::done(),
        _ => Do::fail(),
    });
    begun().await;
    world.write("a", "1");
    sleep(10 * SECOND).await;
    assert_eq!(world.tenths("a"), [1, 11, 31, 71]);
    world.write("b", "1");
    world.write("good", "1");
    sleep(4 * SECOND).await;
    assert_eq!((world.tenths("b"), world.tenths("good")), (vec![101, 111, 131], vec![101]));
}

#[tokio::test(start_paused = true)]
async fn controller_runtime_many_workers_that_wait_for_work_end_at_once() {
    let world = World::new();
    let running = world.start(world.controller().with_config(config().concurrency(100)), |_, _| Do::done());
    begun().await;
    let begin = tokio::time::Instant::now();
    let report = running.drain(60 * SECOND).await;
    assert_eq!((report.done, report.cancelled, report.left), (0, 0, 0));
    assert!(begin.elapsed() < SECOND);
}

//! Random events, broken watches and lists against one promise: each object's last change by another writer
//! is followed by a run that began after it. There is no API server: the events come from a cluster in this
//! file, on paused time.

use futures::channel::mpsc;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, Event};
use proptest::prelude::*;
use requeue_kube::{Action, Config, Controller, Current, Running};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Events = mpsc::UnboundedSender<watcher::Result<Event<ConfigMap>>>;

/// The state of an API server, and one watch of it.
#[derive(Default)]
struct Cluster {
    objects: BTreeMap<usize, Object>,
    version: i64,
    watch: Option<Events>,
    broken: bool,
    runs: Vec<Ran>,
}

#[derive(Clone)]
struct Object {
    uid: i64,
    version: i64,
    generation: i64,
    /// The generation that its last run has seen: its status.
    told: i64,
    /// The version of the last change by another writer than a run.
    changed: i64,
}

#[derive(Debug)]
struct Ran {
    name: usize,
    uid: String,
    saw: i64,
    attempt: u32,
}

fn object(name: usize, object: &Object) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(name.to_string()),
        namespace: Some("n".into()),
        uid: Some(object.uid.to_string()),
        resource_version: Some(object.version.to_string()),
        generation: Some(object.generation),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn named(name: usize) -> ObjectRef<ConfigMap> {
    ObjectRef::new(&name.to_string()).within("n")
}

impl Cluster {
    fn send(&self, event: Event<ConfigMap>) {
        if !self.broken {
            // The stream has no reader any more when the controller has ended.
            drop(self.watch.as_ref().unwrap().unbounded_send(Ok(event)));
        }
    }

    /// Writes an object as another writer: its desired state or, with no generation, its status.
    fn write(&mut self, name: usize, generations: i64) -> ConfigMap {
        self.update(name, |it, version| {
            it.generation += generations;
            it.changed = version;
            // A status by somebody else is not what the run said.
            it.told = if generations == 0 { 0 } else { it.told };
        })
    }

    /// A run writes the status of an object. As with the API server, a write that changes nothing makes no version, has
    /// no event, and returns the newest one.
    fn tell(&mut self, name: usize, generation: i64) -> ConfigMap {
        let it = &self.objects[&name];
        if it.told == generation { object(name, it) } else { self.update(name, |it, _| it.told = generation) }
    }

    /// Changes an object, and returns it as it is then.
    fn update(&mut self, name: usize, change: impl FnOnce(&mut Object, i64)) -> ConfigMap {
        self.version += 1;
        let version = self.version;
        let new = Object { uid: version, version, generation: 0, told: 0, changed: version };
        let entry = self.objects.entry(name).or_insert(new);
        entry.version = version;
        change(entry, version);
        let written = object(name, entry);
        self.send(Event::Apply(written.clone()));
        written
    }

    fn delete(&mut self, name: usize) {
        if let Some(mut gone) = self.objects.remove(&name) {
            self.version += 1;
            gone.version = self.version;
            self.send(Event::Delete(object(name, &gone)));
        }
    }

    /// Restores the watch, which begins with a list.
    fn mend(&mut self) {
        self.broken = false;
        let status = kube::core::Status { code: 410, ..kube::core::Status::default() };
        let gone = watcher::Error::WatchError(Box::new(status));
        drop(self.watch.as_ref().unwrap().unbounded_send(Err(gone)));
        self.send(Event::Init);
        self.objects.iter().for_each(|(name, it)| self.send(Event::InitApply(object(*name, it))));
        self.send(Event::InitDone);
    }
}

/// The reconciler. An object's name selects its behaviour.
async fn reconcile(map: Arc<ConfigMap>, cluster: Arc<Mutex<Cluster>>) -> Result<Action, std::io::Error> {
    let name: usize = map.name_any().parse().unwrap();
    let saw: i64 = map.resource_version().unwrap().parse().unwrap();
    let current = Current::get().unwrap();
    let ran = Ran { name, uid: map.uid().unwrap(), saw, attempt: current.attempt() };
    cluster.lock().unwrap().runs.push(ran);
    match name % 5 {
        1 => tokio::time::sleep(Duration::from_millis(30)).await,
        // It writes its status, also if that is there already, and says so before or after the event has come. Others may
        // have changed the object since the run began.
        2 | 3 => {
            if name % 5 == 3 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let written = {
                let mut cluster = cluster.lock().unwrap();
                let still =
                    cluster.objects.get(&name).is_some_and(|it| it.uid.to_string() == map.uid().unwrap());
                still.then(|| cluster.tell(name, map.metadata.generation.unwrap()))
            };
            if name % 5 == 3 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            if let Some(written) = written {
                current.wrote(&written);
            }
        }
        4 if current.attempt() < 3 => return Err(std::io::Error::other("not yet")),
        _ => {}
    }
    Ok(Action::await_change())
}

#[derive(Clone, Debug)]
enum Step {
    Change(usize),
    Status(usize),
    Delete(usize),
    /// The program requests a run, and another writer changes the object after this time.
    AskAndChange(usize, u64),
    Break,
    Mend,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..10_usize).prop_map(Step::Change),
        4 => (0..10_usize).prop_map(Step::Status),
        2 => (0..10_usize).prop_map(Step::Delete),
        3 => (0..10_usize, 0..15_u64).prop_map(|(name, ms)| Step::AskAndChange(name, ms)),
        1 => Just(Step::Break),
        1 => Just(Step::Mend),
        5 => (0..60_u64).prop_map(Step::Wait),
    ]
}

async fn rest(running: &Running<ConfigMap>) {
    // Longer than all back-offs together, in no time.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let stats = running.stats();
    assert_eq!((stats.ready, stats.waiting, stats.held), (0, 0, 0));
}

fn start(config: Config) -> (Arc<Mutex<Cluster>>, Running<ConfigMap>) {
    let (watch, events) = mpsc::unbounded();
    let cluster = Arc::new(Mutex::new(Cluster { watch: Some(watch), ..Cluster::default() }));
    let config = config.backoff(Duration::from_millis(5), Duration::from_secs(1));
    let running = Controller::for_events(events)
        .with_config(config)
        .start(reconcile, |_, _: &std::io::Error, _| Action::backoff(), cluster.clone())
        .unwrap();
    (cluster, running)
}

async fn play(steps: &[Step], config: Config) -> (Arc<Mutex<Cluster>>, Running<ConfigMap>) {
    let (cluster, running) = start(config);
    cluster.lock().unwrap().mend();
    for step in steps {
        match *step {
            Step::Change(name) => drop(cluster.lock().unwrap().write(name, 1)),
            Step::Status(name) if cluster.lock().unwrap().objects.contains_key(&name) => {
                drop(cluster.lock().unwrap().write(name, 0));
            }
            Step::Status(_) => {}
            Step::Delete(name) => cluster.lock().unwrap().delete(name),
            Step::AskAndChange(name, ms) => {
                running.reconcile_now(&named(name));
                tokio::time::sleep(Duration::from_millis(ms)).await;
                drop(cluster.lock().unwrap().write(name, 1));
            }
            Step::Break => cluster.lock().unwrap().broken = true,
            Step::Mend => cluster.lock().unwrap().mend(),
            Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
    }
    cluster.lock().unwrap().mend();
    rest(&running).await;
    (cluster, running)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn each_objects_last_change_is_followed_by_a_run_that_began_after_it(
        steps in prop::collection::vec(step(), 0..80),
        workers in 0..4_u16,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (cluster, running) = play(&steps, Config::default().concurrency(workers)).await;
            let cluster = cluster.lock().unwrap();
            for (name, it) in &cluster.objects {
                let seen = cluster.runs.iter().filter(|run| run.name == *name && run.uid == it.uid.to_string());
                let seen = seen.map(|run| run.saw).max();
                assert!(seen >= Some(it.changed), "{name} was changed at {} and seen at {seen:?}", it.changed);
            }
            let explained = |name: usize| running.explain(&named(name));
            // of what is gone nothing is known
            for name in (0..10).filter(|name| !cluster.objects.contains_key(name)) {
                assert!(!explained(name).contains("failed"), "{}", explained(name));
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_runs_what_differs_and_nothing_else() {
    let (cluster, running) = play(&[0, 5, 10].map(Step::Change), Config::default()).await;
    assert_eq!(cluster.lock().unwrap().runs.len(), 3);
    {
        let mut cluster = cluster.lock().unwrap();
        cluster.broken = true;
        cluster.write(5, 1);
        cluster.delete(10);
        cluster.mend();
        cluster.mend();
    }
    rest(&running).await;
    let runs = cluster.lock().unwrap().runs.split_off(3);
    assert_eq!(runs.iter().map(|run| run.name).collect::<Vec<_>>(), [5], "{runs:?}");
}

#[tokio::test(start_paused = true)]
async fn the_echo_of_what_a_run_wrote_is_no_reason_to_run() {
    // 2 says it at once, 3 after the event has come
    for name in [2, 3] {
        let (cluster, _running) = play(&[Step::Change(name)], Config::default()).await;
        assert_eq!(cluster.lock().unwrap().runs.len(), 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_by_others_between_a_runs_read_and_its_write_is_seen() {
    let (cluster, running) = play(&[Step::Change(3), Step::Wait(1000)], Config::default()).await;
    // while the run sleeps after its own write somebody else writes
    drop(cluster.lock().unwrap().write(3, 1));
    tokio::time::sleep(Duration::from_millis(5)).await;
    let changed = cluster.lock().unwrap().write(3, 0).resource_version().unwrap().parse().unwrap();
    rest(&running).await;
    assert!(cluster.lock().unwrap().runs.last().unwrap().saw >= changed);
}

#[tokio::test(start_paused = true)]
async fn a_status_waits_for_the_back_off_and_a_change_ends_it() {
    let (cluster, running) = start(Config::default().jitter(0.0));
    cluster.lock().unwrap().mend();
    drop(cluster.lock().unwrap().write(4, 1));
    tokio::time::sleep(Duration::from_millis(1)).await;
    // one run, which failed; the next is due at 5 ms
    drop(cluster.lock().unwrap().write(4, 0));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(cluster.lock().unwrap().runs.len(), 1);
    drop(cluster.lock().unwrap().write(4, 1));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let attempts: Vec<_> = cluster.lock().unwrap().runs.iter().map(|run| run.attempt).collect();
    assert_eq!(attempts, [1, 1]);
    rest(&running).await;
    let attempts: Vec<_> = cluster.lock().unwrap().runs.iter().map(|run| run.attempt).collect();
    assert_eq!(attempts, [1, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_before_the_lists_are_there() {
    let (cluster, running) = start(Config::default());
    {
        let cluster = cluster.lock().unwrap();
        cluster.send(Event::Init);
        cluster.send(Event::InitApply(object(
            0,
            &Object { uid: 1, version: 1, generation: 1, told: 0, changed: 1 },
        )));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!running.health().synced && cluster.lock().unwrap().runs.is_empty());
    cluster.lock().unwrap().send(Event::InitDone);
    rest(&running).await;
    assert!(running.health().synced);
    assert_eq!(cluster.lock().unwrap().runs.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_went_while_the_watch_was_broken_leaves_no_timer() {
    let (cluster, running) = start(Config::default().jitter(0.0));
    cluster.lock().unwrap().mend();
    drop(cluster.lock().unwrap().write(4, 1));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(running.stats().waiting, 1);
    {
        let mut cluster = cluster.lock().unwrap();
        cluster.broken = true;
        cluster.delete(4);
        cluster.mend();
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(running.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_ends_the_controller_and_drops_what_runs() {
    use futures::StreamExt;
    struct Ends(Arc<Mutex<Vec<&'static str>>>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.lock().unwrap().push("dropped");
        }
    }
    let (watch, events) = mpsc::unbounded();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let run = |_: Arc<ConfigMap>, seen: Arc<Mutex<Vec<&'static str>>>| async move {
        seen.lock().unwrap().push("begun");
        let _ends = Ends(seen.clone());
        std::future::pending::<()>().await;
        Ok::<_, std::io::Error>(Action::await_change())
    };
    let mut stream =
        Box::pin(Controller::for_events(events).run(run, |_, _, _| Action::backoff(), seen.clone()));
    let it = Object { uid: 1, version: 1, generation: 1, told: 0, changed: 1 };
    let list = || [Event::Init, Event::InitApply(object(0, &it)), Event::InitDone];
    list().into_iter().for_each(|event| watch.unbounded_send(Ok(event)).unwrap());
    let hour = Duration::from_secs(3600);
    assert!(tokio::time::timeout(hour, stream.next()).await.is_err(), "the run goes on");
    assert_eq!(*seen.lock().unwrap(), ["begun"]);
    drop(stream);
    tokio::time::sleep(hour).await;
    assert_eq!(*seen.lock().unwrap(), ["begun", "dropped"]);
    assert!(watch.is_closed(), "the watch is dropped too");
}

#[tokio::test(start_paused = true)]
async fn a_controller_whose_settings_contradict_each_other_says_so() {
    use futures::StreamExt;
    let bad = || Config::default().backoff(Duration::from_secs(2), Duration::from_secs(1));
    let run = |_: Arc<ConfigMap>, _: Arc<()>| async { Ok::<_, std::io::Error>(Action::await_change()) };
    let controller = || Controller::<ConfigMap>::for_events(futures::stream::pending()).with_config(bad());
    let error = controller().start(run, |_, _, _| Action::backoff(), Arc::new(())).unwrap_err();
    assert!(error.to_string().contains("can't start"), "{error}");
    let told: Vec<_> = controller().run(run, |_, _, _| Action::backoff(), Arc::new(())).collect().await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].as_ref().unwrap_err().to_string(), error.to_string());
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_triggers_that_panics_ends_the_controller() {
    let panics = futures::stream::poll_fn(|_| panic!("a stream panics"));
    let running = Controller::<ConfigMap>::for_events(futures::stream::pending())
        .reconcile_on(panics)
        .start(
            |_, _: Arc<()>| async { Ok::<_, std::io::Error>(Action::await_change()) },
            |_, _, _| Action::backoff(),
            Arc::new(()),
        )
        .unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(3600), running.ended()).await;
    assert!(ended.is_ok() && running.health().ended);
}

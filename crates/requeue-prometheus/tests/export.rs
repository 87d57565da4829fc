//! Scrapes of real queues, on a fake clock.

use requeue::engine::{EngineGauges, ReadEngine, StoreGauges};
use requeue::{Add, Added, FakeClock, Gauges, GroupRules, Metrics, Outcome, Source, WorkQueue, Worker};
use requeue_prometheus::prometheus_client::encoding::text::encode;
use requeue_prometheus::prometheus_client::registry::Registry;
use requeue_prometheus::{NameError, QueueMetrics};
use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A registry with the metrics of queues.
struct Scraped {
    registry: Registry,
    metrics: QueueMetrics,
    clock: FakeClock,
}

impl Scraped {
    fn new() -> Self {
        let mut registry = Registry::default();
        let metrics = QueueMetrics::register(&mut registry);
        Self { registry, metrics, clock: FakeClock::new() }
    }

    fn queue(&self, name: &str) -> WorkQueue<u64> {
        let sink = self.metrics.queue(name).expect("the name is free");
        let limiter = requeue::limiter::default_per_item();
        let builder = WorkQueue::builder().name(name).clock(self.clock.clone()).limiter(limiter);
        builder.metrics(sink).build().expect("it has a name")
    }

    fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes everything");
        text
    }

    /// The samples, by name and labels.
    fn samples(&self) -> BTreeMap<String, f64> {
        let text = self.text();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            (series.to_owned(), value.parse().expect("a number"))
        };
        lines.map(sample).collect()
    }

    fn sample(&self, series: &str) -> f64 {
        *self.samples().get(series).unwrap_or_else(|| panic!("no {series} in\n{}", self.text()))
    }

    /// The value of a metric of queue `q`.
    fn of_q(&self, metric: &str) -> f64 {
        self.sample(&format!("{metric}{{name=\"q\"}}"))
    }
}

/// A queue that has had one of everything.
fn busy(scraped: &Scraped) -> (WorkQueue<u64>, Arc<Engine>) {
    let q = scraped.queue("pods");
    let engine = Engine::of(&q);
    engine.set(|gauges| {
        (gauges.up, gauges.store) = (true, Some(store()));
        (gauges.lease.held, gauges.lease.length, gauges.lease.since_beat) = (true, 30_000 * MS, 4500 * MS);
        (gauges.leases_lost, gauges.ends_refused) = (8, 9);
    });
    q.add(1).unwrap();
    assert_eq!(q.add(1).unwrap(), Added::Coalesced);
    scraped.clock.advance(7 * MS);
    q.try_get().unwrap().done();
    q.add(2).unwrap();
    assert_eq!(q.try_get().unwrap().retry().ok(), Some(MS));
    scraped.clock.advance(3 * MS);
    q.try_get().unwrap().give_up("hopeless");
    q.add(3).unwrap();
    assert!(q.try_get().unwrap().again(Duration::from_secs(60)).is_ok());
    q.add(4).unwrap();
    let held = q.try_get().unwrap();
    q.add(4).unwrap();
    q.add(5).unwrap();
    scraped.clock.advance(1500 * MS);
    let _ = held.detach();
    (q, engine)
}

#[test]
fn the_text_is_exactly_this() {
    let scraped = Scraped::new();
    let busy = busy(&scraped);
    let expected = include_str!("export.txt");
    let text = scraped.text();
    for (line, expected) in text.lines().zip(expected.lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(text, expected);
    drop(busy);
}

#[test]
fn the_seven_names_of_kubernetes_are_there() {
    let scraped = Scraped::new();
    let _q = scraped.queue("q");
    for name in [
        "workqueue_depth",
        "workqueue_adds_total",
        "workqueue_queue_duration_seconds_bucket",
        "workqueue_work_duration_seconds_bucket",
        "workqueue_unfinished_work_seconds",
        "workqueue_longest_running_processor_seconds",
        "workqueue_retries_total",
    ] {
        let label = if name.ends_with("_bucket") { "{le=\"1e-8\",name=\"q\"}" } else { "{name=\"q\"}" };
        assert_eq!(scraped.sample(&format!("{name}{label}")), 0.0);
    }
}

#[test]
fn buckets_hold_what_they_say() {
    let scraped = Scraped::new();
    let q = scraped.queue("q");
    for (key, nanos) in [(0, 0), (1, 10), (2, 11), (3, 1_000_000_000), (4, 1_000_000_000_001)] {
        q.add(key).unwrap();
        scraped.clock.advance(Duration::from_nanos(nanos));
        q.try_get().unwrap().done();
    }
    let samples = scraped.samples();
    let of =
        |le: &str| samples[&format!("workqueue_queue_duration_seconds_bucket{{le=\"{le}\",name=\"q\"}}")];
    assert_eq!(
        [of("1e-8"), of("1e-7"), of("0.1"), of("1.0"), of("1000.0"), of("+Inf")],
        [2., 3., 3., 4., 4., 5.]
    );
    let buckets =
        samples.keys().filter(|series| series.starts_with("workqueue_queue_duration_seconds_bucket"));
    assert_eq!(buckets.count(), 13, "twelve bounds, and one without");
    assert_eq!(scraped.of_q("workqueue_queue_duration_seconds_count"), 5.0);
    assert_eq!(scraped.of_q("workqueue_work_duration_seconds_count"), 5.0);
}

#[test]
fn several_queues_are_in_one_registry() {
    let scraped = Scraped::new();
    let (one, two) = (scraped.queue("one"), scraped.queue("two"));
    one.add(1).unwrap();
    two.add(1).unwrap();
    two.add(2).unwrap();
    assert_eq!(scraped.sample("workqueue_depth{name=\"one\"}"), 1.0);
    assert_eq!(scraped.sample("workqueue_depth{name=\"two\"}"), 2.0);
    let text = scraped.text();
    let types: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
    assert_eq!(types.len(), 17, "each metric is described once: {types:?}");
    let first = text.find("requeue_runs_total{name=\"one\",outcome=\"done\"} 0").expect("one's");
    let second = text.find("requeue_runs_total{name=\"two\",outcome=\"done\"} 0").expect("two's");
    assert!(first < second, "by name");
}

#[test]
fn a_name_that_is_used_twice_is_an_error() {
    let scraped = Scraped::new();
    let q = scraped.queue("pods");
    assert_eq!(scraped.metrics.clone().queue("pods").unwrap_err(), NameError::Taken("pods".to_owned()));
    assert_eq!(scraped.metrics.queue("").unwrap_err(), NameError::Empty);
    q.add(1).unwrap();
    assert_eq!(scraped.sample("workqueue_depth{name=\"pods\"}"), 1.0, "and the first goes on");
    drop(q);
    assert!(!scraped.text().contains("name=\"pods\""), "a queue that is gone is not exported");
    assert_eq!(scraped.text().lines().filter(|line| !line.starts_with('#')).count(), 0);
    let again = scraped.queue("pods");
    assert_eq!(
        scraped.sample("workqueue_adds_total{name=\"pods\"}"),
        0.0,
        "the name is free, and begins anew"
    );
    drop(again);
}

#[test]
fn a_name_may_be_anything() {
    let scraped = Scraped::new();
    let _q = scraped.queue("a\"b\\c\nd é");
    assert_eq!(scraped.sample("workqueue_depth{name=\"a\\\"b\\\\c\\nd é\"}"), 0.0);
}

#[test]
fn constant_labels_stand_in_every_series_of_their_queue_and_in_no_other() {
    let scraped = Scraped::new();
    let sink = scraped.metrics.queue("q").unwrap();
    let builder = WorkQueue::<u64>::builder().name("q").label("cluster", "eu \"1\"").label("_2", "");
    let q = builder.clock(scraped.clock.clone()).metrics(sink).build().unwrap();
    let other = scraped.queue("other");
    q.add(1).unwrap();
    q.try_get().unwrap().done();
    q.add(2).unwrap();
    other.add(1).unwrap();
    let labels = r#"name="q",cluster="eu \"1\"",_2="""#;
    assert_eq!(scraped.sample(&format!("workqueue_depth{{{labels}}}")), 1.0);
    assert_eq!(scraped.sample(&format!("workqueue_adds_total{{{labels}}}")), 2.0);
    assert_eq!(scraped.sample(&format!("workqueue_work_duration_seconds_count{{{labels}}}")), 1.0);
    assert_eq!(scraped.sample(&format!("requeue_runs_total{{{labels},outcome=\"done\"}}")), 1.0);
    assert_eq!(scraped.sample(&format!("requeue_runs_total{{{labels},outcome=\"give_up\"}}")), 0.0);
    assert_eq!(scraped.sample("workqueue_depth{name=\"other\"}"), 1.0);
    for series in scraped.samples().into_keys() {
        assert_eq!(series.contains(labels), series.contains("name=\"q\""), "{series}");
        assert_eq!(series.contains("cluster"), series.contains("name=\"q\""), "{series}");
    }
}

#[test]
fn gauges_equal_the_state_also_after_shutdown() {
    let scraped = Scraped::new();
    let q = scraped.queue("q");
    let shows = |expected: [f64; 4]| {
        let stats = q.stats();
        let keys = ["workqueue_depth", "requeue_held_keys", "requeue_dirty_keys", "requeue_waiting_keys"];
        assert_eq!(keys.map(|metric| scraped.of_q(metric)), expected);
        assert_eq!([stats.ready, stats.held, stats.dirty, stats.waiting].map(|n| n as f64), expected);
    };
    shows([0., 0., 0., 0.]);
    q.add_many([1, 2, 3]).all().unwrap();
    q.add_after(9, Duration::from_secs(9)).unwrap();
    let one = q.try_get().unwrap();
    q.add(1).unwrap();
    shows([2., 1., 1., 1.]);
    scraped.clock.advance(250 * MS);
    q.shut_down();
    shows([2., 1., 1., 0.]);
    assert_eq!(scraped.of_q("workqueue_longest_running_processor_seconds"), 0.25);
    assert_eq!(scraped.of_q("workqueue_unfinished_work_seconds"), 0.25);
    assert_eq!(scraped.of_q("requeue_oldest_ready_seconds"), 0.25);
    one.done();
    shows([3., 0., 0., 0.]);
    for _ in 0..3 {
        q.try_get().unwrap().done();
    }
    shows([0., 0., 0., 0.]);
    assert_eq!(scraped.of_q("requeue_oldest_ready_seconds"), 0.0);
    assert_eq!(scraped.of_q("workqueue_work_duration_seconds_count"), 4.0);
}

#[test]
fn coalesced_triggers_are_counted_also_where_no_lock_is_taken() {
    let scraped = Scraped::new();
    let q = scraped.queue("q");
    q.add(1).unwrap();
    for _ in 0..1000 {
        q.add(1).unwrap();
        assert_eq!(q.add_ref(&1).unwrap(), Added::Coalesced);
    }
    q.add_many([1, 2, 2]).all().unwrap();
    assert_eq!(scraped.of_q("requeue_coalesced_triggers_total"), 2002.0);
    assert_eq!(scraped.of_q("workqueue_adds_total"), 2.0);
}

#[test]
fn counts_outlive_the_queue_where_the_sink_is_kept() {
    let scraped = Scraped::new();
    let sink = Arc::new(scraped.metrics.queue("q").unwrap());
    let queue = || WorkQueue::<u64>::builder().name("q").metrics(sink.clone()).build().unwrap();
    let (one, two) = (queue(), queue());
    one.add(1).unwrap();
    two.add(1).unwrap();
    assert_eq!((scraped.of_q("workqueue_adds_total"), scraped.of_q("workqueue_depth")), (2.0, 2.0));
    drop(one);
    drop(two);
    assert_eq!((scraped.of_q("workqueue_adds_total"), scraped.of_q("workqueue_depth")), (2.0, 0.0));
}

#[test]
fn workers_of_all_queues_of_a_name_are_counted_while_they_are_there() {
    let scraped = Scraped::new();
    let sink = Arc::new(scraped.metrics.queue("q").unwrap());
    let crew = |workers, busy| {
        let mut gauges = Gauges::default();
        (gauges.workers, gauges.busy_workers) = (workers, busy);
        let crew = Arc::new(gauges);
        let queue = Arc::downgrade(&crew);
        sink.attach("q", &[], Arc::new(move || queue.upgrade().map(Arc::unwrap_or_clone)));
        crew
    };
    let shows = || (scraped.of_q("requeue_workers"), scraped.of_q("requeue_busy_workers"));
    assert_eq!(shows(), (0.0, 0.0));
    let first = crew(4, 1);
    let second = crew(2, 2);
    assert_eq!(shows(), (6.0, 3.0));
    drop(first);
    assert_eq!(shows(), (2.0, 2.0));
    drop(second);
    assert_eq!(shows(), (0.0, 0.0));
}

#[test]
fn the_threads_of_a_worker_are_counted_and_so_are_its_outcomes() {
    let scraped = Scraped::new();
    let q = scraped.queue("q");
    let (began, begins) = mpsc::channel();
    // one for each key: a run must not take what another waits for
    let (go, goes): (Vec<_>, Vec<_>) = (0..3).map(|_| mpsc::channel()).unzip();
    let goes: Vec<_> = goes.into_iter().map(Mutex::new).collect();
    let worker = Worker::of(&q).workers(3).max_attempts(2).start_threads(move |run| {
        began.send(()).unwrap();
        goes[*run.key() as usize - 1].lock().unwrap().recv().unwrap();
        match run.key() {
            1 => Outcome::Done,
            2 => Outcome::Again(Duration::from_secs(3600)),
            _ => Outcome::RetryAfter(Duration::ZERO, "no".into()),
        }
    });
    let worker = worker.unwrap();
    let shows = || (scraped.of_q("requeue_workers"), scraped.of_q("requeue_busy_workers"));
    assert_eq!(shows(), (3.0, 0.0));
    q.add_many([1, 2]).all().unwrap();
    for _ in 0..2 {
        begins.recv().unwrap();
    }
    assert_eq!(shows(), (3.0, 2.0));
    q.add(3).unwrap();
    begins.recv().unwrap();
    assert_eq!(shows(), (3.0, 3.0));
    for go in &go {
        go.send(()).unwrap();
    }
    // the third failed and comes again at once; its last attempt gives up
    begins.recv().unwrap();
    // a drain refuses the others' outcomes, so they must be over before it begins
    while scraped.of_q("requeue_held_keys") > 1.0 {
        std::thread::yield_now();
    }
    go[2].send(()).unwrap();
    assert_eq!(worker.drain(Duration::MAX).wait().unfinished, 1, "the key that is to come again in an hour");
    assert_eq!(shows(), (0.0, 0.0));
    let runs =
        |outcome: &str| scraped.sample(&format!("requeue_runs_total{{name=\"q\",outcome=\"{outcome}\"}}"));
    assert_eq!(["done", "again", "retry", "give_up"].map(runs), [1.0; 4]);
    drop(worker);
}

/// An engine whose figures a test sets.
#[derive(Default)]
struct Engine(Mutex<EngineGauges>);

impl ReadEngine for Engine {
    fn engine(&self) -> EngineGauges {
        self.0.lock().unwrap().clone()
    }
}

impl Engine {
    fn set(&self, change: impl FnOnce(&mut EngineGauges)) {
        change(&mut self.0.lock().unwrap());
    }

    fn of(q: &WorkQueue<u64>) -> Arc<Self> {
        let engine = Arc::<Self>::default();
        let read: Arc<dyn ReadEngine> = engine.clone();
        assert!(q.front().attach_engine(&read));
        engine
    }
}

fn store() -> StoreGauges {
    let mut store = StoreGauges::default();
    (store.ready, store.held, store.waiting, store.inbox, store.dead) = (1, 2, 3, 4, 5);
    (store.oldest_ready, store.oldest_snapshot) = (1500 * MS, 2500 * MS);
    (store.owners, store.expired_owners, store.shortest_lease) = (6, 7, Some(3500 * MS));
    store
}

#[test]
fn what_an_engine_knows_is_exported_and_of_its_store_nothing_while_that_is_away() {
    let scraped = Scraped::new();
    let q = scraped.queue("q");
    let engines = || {
        let ours = |series: &String| {
            ["requeue_engine_", "requeue_lease", "requeue_ends_"].iter().any(|it| series.starts_with(it))
        };
        let samples = scraped.samples().into_iter().filter(|(series, _)| ours(series));
        samples.map(|(series, value)| (series.replace("{name=\"q\"}", ""), value)).collect::<Vec<_>>()
    };
    assert_eq!(engines(), [], "a queue in memory has none");
    assert!(!scraped.text().contains("requeue_engine"));
    let engine = Engine::of(&q);
    engine.set(|gauges| {
        (gauges.up, gauges.store) = (true, Some(store()));
        (gauges.lease.held, gauges.lease.length, gauges.lease.since_beat) = (true, 30_000 * MS, 4500 * MS);
        (gauges.leases_lost, gauges.ends_refused) = (8, 9);
    });
    let own = [
        ("requeue_ends_refused_total", 9.0),
        ("requeue_engine_up", 1.0),
        ("requeue_lease_beat_age_seconds", 4.5),
        ("requeue_lease_held", 1.0),
        ("requeue_lease_seconds", 30.0),
        ("requeue_leases_lost_total", 8.0),
    ];
    let of_store = [
        ("requeue_engine_dead_keys", 5.0),
        ("requeue_engine_expired_owners", 7.0),
        ("requeue_engine_held_keys", 2.0),
        ("requeue_engine_inbox_keys", 4.0),
        ("requeue_engine_oldest_ready_seconds", 1.5),
        ("requeue_engine_oldest_snapshot_seconds", 2.5),
        ("requeue_engine_owners", 6.0),
        ("requeue_engine_paused", 0.0),
        ("requeue_engine_ready_keys", 1.0),
        ("requeue_engine_shortest_lease_seconds", 3.5),
        ("requeue_engine_waiting_keys", 3.0),
    ];
    let expects = |parts: &[&[(&str, f64)]]| {
        let mut all: Vec<_> = parts.concat().into_iter().map(|(name, it)| (name.to_owned(), it)).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(engines(), all);
    };
    expects(&[&own, &of_store]);
    engine.set(|gauges| gauges.store.as_mut().unwrap().shortest_lease = None);
    let without: Vec<_> = of_store.into_iter().filter(|(name, _)| !name.contains("shortest")).collect();
    expects(&[&own, &without]);
    engine.set(|gauges| (gauges.up, gauges.store) = (false, None));
    let away = own.map(|(name, value)| (name, if name == "requeue_engine_up" { 0.0 } else { value }));
    expects(&[&away]);
    drop(engine);
    assert_eq!(engines(), [], "its engine is gone");
}

#[test]
fn of_two_engines_with_one_name_counts_are_added_up_and_the_worse_is_told() {
    let scraped = Scraped::new();
    let sink = Arc::new(scraped.metrics.queue("q").unwrap());
    let queue = || WorkQueue::<u64>::builder().name("q").metrics(sink.clone()).build().unwrap();
    let (one, two) = (queue(), queue());
    let (one, two) = (Engine::of(&one), Engine::of(&two));
    let tells = |engine: &Engine, times: u32| {
        engine.set(|gauges| {
            let mut store = store();
            (store.oldest_ready, store.shortest_lease) = (times * MS, Some(times * 1000 * MS));
            (gauges.up, gauges.store) = (true, Some(store));
            (gauges.lease.length, gauges.lease.since_beat) = (10_000 * MS, times * 1000 * MS);
            gauges.ends_refused = 1;
        });
    };
    tells(&one, 1);
    tells(&two, 2);
    let shows = |metric: &str| scraped.of_q(metric);
    assert_eq!((shows("requeue_engine_ready_keys"), shows("requeue_engine_owners")), (2.0, 12.0));
    assert_eq!(shows("requeue_engine_oldest_ready_seconds"), 0.002);
    assert_eq!(shows("requeue_engine_shortest_lease_seconds"), 1.0);
    assert_eq!(shows("requeue_lease_beat_age_seconds"), 2.0);
    assert_eq!((shows("requeue_engine_up"), shows("requeue_ends_refused_total")), (1.0, 2.0));
    two.set(|gauges| (gauges.up, gauges.store) = (false, None));
    assert_eq!(shows("requeue_engine_up"), 0.0);
    assert!(!scraped.text().contains("requeue_engine_ready_keys{"));
}

/// The dashboard and the alerts contain only names that are exported.
#[test]
fn dashboard_and_alerts_use_only_names_that_are_exported() {
    let scraped = Scraped::new();
    let q = scraped.queue("q");
    let engine = Engine::of(&q);
    engine.set(|gauges| (gauges.up, gauges.store) = (true, Some(store())));
    let exported: Vec<String> = scraped
        .samples()
        .into_keys()
        .map(|series| series.split('{').next().unwrap_or_default().to_owned())
        .collect();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/");
    let read = |file: &str| fs::read_to_string(format!("{folder}{file}")).expect(file);
    let dashboard = read("grafana-dashboard.json");
    let parsed: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    assert!(parsed["panels"].as_array().is_some_and(|panels| panels.len() > 5));
    for (file, text, least) in
        [("grafana-dashboard.json", dashboard, 12), ("alert-rules.yml", read("alert-rules.yml"), 4)]
    {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let mut names: Vec<&str> =
            words.filter(|word| word.starts_with("workqueue_") || word.starts_with("requeue_")).collect();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() >= least, "{file} shows something: {names:?}");
        for name in names {
            assert!(exported.iter().any(|known| known == name), "{file} has {name}, which is not exported");
        }
    }
}

#[test]
fn a_queue_with_priorities_has_a_depth_for_each_and_always_one_for_0() {
    let scraped = Scraped::new();
    let sink = Arc::new(scraped.metrics.queue("q").unwrap());
    let queue = || WorkQueue::<u64>::builder().name("q").clock(scraped.clock.clone()).metrics(sink.clone());
    let q = queue().priorities().build().unwrap();
    let depths = || {
        let samples = scraped.samples().into_iter();
        samples.filter(|(series, _)| series.starts_with("workqueue_depth")).collect::<Vec<_>>()
    };
    let of =
        |priority: &str, keys: f64| (format!("workqueue_depth{{name=\"q\",priority=\"{priority}\"}}"), keys);
    assert_eq!(depths(), [of("0", 0.)]);
    for (key, priority) in [(1, -100), (2, -100), (3, 5)] {
        q.add_with(key, Add::now().priority(priority)).unwrap();
    }
    assert_eq!(depths(), [of("-100", 2.), of("0", 0.), of("5", 1.)]);
    // a queue without priorities that shares the sink counts as 0
    let other = queue().build().unwrap();
    other.add(9).unwrap();
    assert_eq!(depths(), [of("-100", 2.), of("0", 1.), of("5", 1.)]);
}

#[test]
fn groups_that_have_a_name_are_exported_and_without_any_nothing_is() {
    let scraped = Scraped::new();
    let plain = scraped.queue("plain");
    plain.add(1).unwrap();
    assert!(!scraped.text().contains("requeue_group"));
    // each tenant below 10 is called by its number, the others together
    let name = |tenant: &u64| Some(if *tenant < 10 { tenant.to_string() } else { "other".to_owned() });
    let builder = WorkQueue::<u64>::builder().name("q").clock(scraped.clock.clone());
    let builder = builder.group_by_with(|key| key / 100, GroupRules::new().metrics(name));
    let q = builder.metrics(scraped.metrics.queue("q").unwrap()).build().unwrap();
    q.add_many([101, 102, 201, 1001, 2001]).all().unwrap();
    let _held = q.try_get().unwrap();
    let group = |metric: &str, group: &str| {
        scraped.sample(&format!("requeue_group_{metric}_keys{{name=\"q\",group=\"{group}\"}}"))
    };
    assert_eq!(["1", "2", "other"].map(|name| group("ready", name)), [1., 1., 2.]);
    assert_eq!(["1", "2", "other"].map(|name| group("held", name)), [1., 0., 0.]);
}

#[test]
fn keys_that_made_room_are_counted() {
    let scraped = Scraped::new();
    let builder = WorkQueue::<u64>::builder().name("q").bound(1).drop_oldest(|_, _| ());
    let q = builder.metrics(scraped.metrics.queue("q").unwrap()).build().unwrap();
    q.add_many([1, 2, 3]).all().unwrap();
    assert_eq!(scraped.of_q("requeue_dropped_keys_total"), 2.0);
}

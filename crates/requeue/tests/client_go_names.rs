//! Names from Go lead to their items: in the table, and in the search of the documentation.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The exported names of `k8s.io/client-go/util/workqueue`, as `go doc -all`
/// lists them for version 0.37.2: functions, types, methods, configuration fields.
const NAMES: &str = "
    Interface TypedInterface Add Len Get Done ShutDown ShutDownWithDrain ShuttingDown
    Queue Touch Push Pop DefaultQueue
    QueueConfig TypedQueueConfig Name MetricsProvider Clock Logger DelayingQueue
    Type Typed New NewTyped NewNamed NewWithConfig NewTypedWithConfig
    DelayingInterface TypedDelayingInterface AddAfter DelayingQueueConfig TypedDelayingQueueConfig
    NewDelayingQueue NewTypedDelayingQueue TypedNewDelayingQueue NewNamedDelayingQueue
    NewDelayingQueueWithConfig NewTypedDelayingQueueWithConfig
    NewDelayingQueueWithCustomClock NewDelayingQueueWithCustomQueue
    RateLimitingInterface TypedRateLimitingInterface AddRateLimited Forget NumRequeues
    RateLimitingQueueConfig TypedRateLimitingQueueConfig
    NewRateLimitingQueue NewTypedRateLimitingQueue NewNamedRateLimitingQueue
    NewRateLimitingQueueWithConfig NewTypedRateLimitingQueueWithConfig
    NewRateLimitingQueueWithDelayingInterface
    RateLimiter TypedRateLimiter When
    BucketRateLimiter TypedBucketRateLimiter
    ItemExponentialFailureRateLimiter TypedItemExponentialFailureRateLimiter
    NewItemExponentialFailureRateLimiter NewTypedItemExponentialFailureRateLimiter
    ItemFastSlowRateLimiter TypedItemFastSlowRateLimiter
    NewItemFastSlowRateLimiter NewTypedItemFastSlowRateLimiter
    MaxOfRateLimiter TypedMaxOfRateLimiter NewMaxOfRateLimiter NewTypedMaxOfRateLimiter
    WithMaxWaitRateLimiter TypedWithMaxWaitRateLimiter
    NewWithMaxWaitRateLimiter NewTypedWithMaxWaitRateLimiter
    DefaultControllerRateLimiter DefaultTypedControllerRateLimiter
    DefaultItemBasedRateLimiter DefaultTypedItemBasedRateLimiter
    SetProvider NewDepthMetric NewAddsMetric NewLatencyMetric NewWorkDurationMetric
    NewUnfinishedWorkSecondsMetric NewLongestRunningProcessorSecondsMetric NewRetriesMetric
    GaugeMetric SettableGaugeMetric CounterMetric SummaryMetric HistogramMetric
    Inc Dec Set Observe
    ParallelizeUntil DoWorkPieceFunc Options WithChunkSize
";

/// The exported names of `golang.org/x/time/rate` 0.15.
const RATE: &str = "
    Limit Inf Every Limiter NewLimiter Allow AllowN Reserve ReserveN Wait WaitN
    Burst SetBurst SetBurstAt SetLimit SetLimitAt Tokens TokensAt
    Reservation OK Delay DelayFrom Cancel CancelAt InfDuration
    Sometimes First Interval Do
";

/// The exported names of `k8s.io/utils/clock` and `k8s.io/utils/clock/testing`, which client-go's tests use.
const CLOCK: &str = "
    Clock PassiveClock WithTicker WithDelayedExecution WithTickerAndDelayedExecution
    RealClock Now Since After AfterFunc NewTimer Timer Stop Reset Tick NewTicker Ticker
    FakeClock FakePassiveClock NewFakeClock NewFakePassiveClock Step SetTime HasWaiters
    Waiters Sleep IntervalClock SimpleIntervalClock NewSimpleIntervalClock
";

fn names() -> impl Iterator<Item = &'static str> {
    [NAMES, RATE, CLOCK].into_iter().flat_map(str::split_whitespace)
}

#[test]
fn every_name_of_go_is_in_the_table() {
    let left: Vec<&str> = include_str!("../src/docs/client_go.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .collect();
    let missing: Vec<&str> =
        names().filter(|name| !left.iter().any(|cell| cell.contains(&format!("`{name}`")))).collect();
    assert!(missing.is_empty(), "the table says nothing of {missing:?}");
}

/// The sources of the items that users see.
fn sources(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// The name of the item that a line declares, if it declares one.
fn item(line: &str) -> Option<&str> {
    let words = line.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut words = words.skip_while(|word| ["pub", "const"].contains(word));
    let kind = words.next()?;
    if ["fn", "struct", "trait", "enum", "mod"].contains(&kind) { words.next() } else { None }
}

/// The search finds an item by its name, whatever the case, and without its underscores,
/// and by its aliases.
#[test]
fn every_name_of_go_is_found_by_the_search() {
    let mut text = String::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    sources(&here.join("src"), &mut text);
    sources(&here.join("../requeue-core/src"), &mut text);
    let found: BTreeSet<String> =
        text.lines().filter_map(item).map(|name| name.replace('_', "").to_lowercase()).collect();
    let aliases: BTreeSet<&str> = text
        .split("#[doc(alias(")
        .skip(1)
        .filter_map(|rest| rest.split("))]").next())
        .flat_map(|list| list.split(','))
        .map(|alias| alias.trim().trim_matches('"'))
        .collect();
    let missing: Vec<&str> =
        names().filter(|name| !aliases.contains(name) && !found.contains(&name.to_lowercase())).collect();
    assert!(missing.is_empty(), "nothing is found by the names {missing:?}");
}

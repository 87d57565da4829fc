//! The table that maps client-go's names to ours leaves none out.

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

#[test]
fn every_name_of_client_go_is_in_the_table() {
    let left: Vec<&str> = include_str!("../src/docs/client_go.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .collect();
    let missing: Vec<&str> = NAMES
        .split_whitespace()
        .filter(|name| !left.iter().any(|cell| cell.contains(&format!("`{name}`"))))
        .collect();
    assert!(missing.is_empty(), "the table says nothing of {missing:?}");
}

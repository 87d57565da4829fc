package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// measuredQueue has metrics that a server could scrape. client-go's go straight to
// prometheus' client, with the metrics and buckets of Kubernetes' own provider
// (k8s.io/component-base/metrics/prometheus/workqueue) but without its wrappers;
// controller-runtime's go to the provider that it brings and its users have.
func measuredQueue[K comparable](impl string) queue[K] {
	if impl == controllerRuntime {
		return namedPriorityQueue[K]()
	}
	return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{
		Name:            "bench",
		MetricsProvider: newProvider(prometheus.NewRegistry()),
	})
}

type provider struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, workDuration      *prometheus.HistogramVec
}

func newProvider(registry *prometheus.Registry) provider {
	const subsystem = "workqueue"
	label := []string{"name"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Subsystem: subsystem, Name: name, Help: help}, label)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, label)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Subsystem: subsystem, Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(10e-9, 10, 10),
		}, label)
	}
	p := provider{
		depth:        gauge("depth", "Current depth of workqueue"),
		unfinished:   gauge("unfinished_work_seconds", "Seconds of work in progress"),
		longest:      gauge("longest_running_processor_seconds", "Seconds the longest run has taken"),
		adds:         counter("adds_total", "Total number of adds handled by workqueue"),
		retries:      counter("retries_total", "Total number of retries handled by workqueue"),
		latency:      histogram("queue_duration_seconds", "Seconds an item stays in the queue"),
		workDuration: histogram("work_duration_seconds", "Seconds processing an item takes"),
	}
	registry.MustRegister(p.depth, p.unfinished, p.longest, p.adds, p.retries, p.latency, p.workDuration)
	return p
}

func (p provider) NewDepthMetric(name string) workqueue.GaugeMetric {
	return p.depth.WithLabelValues(name)
}

func (p provider) NewAddsMetric(name string) workqueue.CounterMetric {
	return p.adds.WithLabelValues(name)
}

func (p provider) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return p.latency.WithLabelValues(name)
}

func (p provider) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return p.workDuration.WithLabelValues(name)
}

func (p provider) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return p.unfinished.WithLabelValues(name)
}

func (p provider) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return p.longest.WithLabelValues(name)
}

func (p provider) NewRetriesMetric(name string) workqueue.CounterMetric {
	return p.retries.WithLabelValues(name)
}

package main

import (
	"time"

	"k8s.io/client-go/util/workqueue"
)

// queue is what both libraries' queues do.
type queue[K comparable] = workqueue.TypedInterface[K]

// plainQueue is the queue that adds, gets and is done with keys, without metrics:
// client-go's lowest layer; controller-runtime has one type for all.
func plainQueue[K comparable](impl string) queue[K] {
	if impl == controllerRuntime {
		return priorityQueue[K](nil)
	}
	return workqueue.NewTyped[K]()
}

func delayingQueue[K comparable](impl string) workqueue.TypedDelayingInterface[K] {
	if impl == controllerRuntime {
		return priorityQueue[K](nil)
	}
	return workqueue.NewTypedDelayingQueue[K]()
}

func rateLimitingQueue[K comparable](impl string, l workqueue.TypedRateLimiter[K]) workqueue.TypedRateLimitingInterface[K] {
	if impl == controllerRuntime {
		return priorityQueue(l)
	}
	return workqueue.NewTypedRateLimitingQueue(l)
}

// exponential is per item, 1 ms doubling up to 1,000 s.
func exponential[K comparable]() workqueue.TypedRateLimiter[K] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[K](time.Millisecond, 1000*time.Second)
}

// settle returns when what was added has arrived in the queue: controller-runtime's
// adds go into a buffer, which its Len flushes.
func settle[K comparable](impl string, q queue[K]) {
	if impl == controllerRuntime {
		q.Len()
	}
}

// settled stops the watch for n adds, whose processor time counts until they have
// arrived in the queue.
func settled[K comparable](watch stopwatch, impl string, q queue[K], n int) result {
	r := watch.stop(n)
	settle(impl, q)
	all := watch.stop(n)
	r.set("settled_ns_per_op", all.nsPerOp)
	r.set("cpu_seconds", all.more["cpu_seconds"])
	r.set("cpu_ns_per_op", all.more["cpu_ns_per_op"])
	return r
}

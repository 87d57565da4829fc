//go:build others

package main

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// priorityQueue has no name, which is how metrics are switched off.
func priorityQueue[K comparable](l workqueue.TypedRateLimiter[K]) workqueue.TypedRateLimitingInterface[K] {
	return priorityqueue.New("", func(o *priorityqueue.Opts[K]) {
		if l != nil {
			o.RateLimiter = l
		}
	})
}

func namedPriorityQueue[K comparable]() queue[K] {
	return priorityqueue.New[K]("bench")
}

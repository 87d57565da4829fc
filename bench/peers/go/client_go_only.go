//go:build !others

package main

import "k8s.io/client-go/util/workqueue"

// controller-runtime brings more than 500 packages with it, which a quick run does not
// build.

func priorityQueue[K comparable](workqueue.TypedRateLimiter[K]) workqueue.TypedRateLimitingInterface[K] {
	cannot("%s, which needs a program that was built with -tags others", controllerRuntime)
	return nil
}

func namedPriorityQueue[K comparable]() queue[K] {
	return priorityQueue[K](nil)
}

package main

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// workers is the loop of a controller whose reconciler does nothing: Get, Forget, Done. An operation is a run.
func workers(a args) result {
	if a.impl == controllerRuntime {
		cannot("controller-runtime's queue throws away what is in line when it is shut down")
	}
	if form := a.get("form"); form != "worker" {
		cannot("one loop is measured here: form=worker")
	}
	n, workers := a.num("n"), a.num("workers")
	keys := keysFrom(u64Key, 0, n)
	q := rateLimitingQueue(a.impl, workqueue.DefaultTypedControllerRateLimiter[uint64]())
	settledMemory()

	var running sync.WaitGroup
	start := func() {
		for range workers {
			running.Go(func() {
				for {
					k, shutdown := q.Get()
					if shutdown {
						return
					}
					q.Forget(k)
					q.Done(k)
				}
			})
		}
	}
	add := func() {
		for _, k := range keys {
			q.Add(k)
		}
		q.ShutDown() // what is in line is handed out
	}
	var watch stopwatch
	if a.get("shape") == "ready" {
		add()
		watch = startWatch()
		start()
	} else {
		start()
		time.Sleep(20 * time.Millisecond) // they wait before the first key comes
		watch = startWatch()
		add()
	}
	running.Wait()
	return watch.stop(n)
}

package main

import (
	"sync"
	"time"
)

// idle has many idle goroutines wait in Get, and then gives them n keys.
// rss_bytes_delta is what they take before a key has come.
func idle(a args) result {
	n, waiters := a.num("n"), a.num("waiters")
	keys := keysFrom(u64Key, 0, n)
	q := plainQueue[uint64](a.impl)
	done := newTally(waiters)
	before := settledMemory()
	var workers sync.WaitGroup
	for i := range waiters {
		workers.Go(func() {
			for {
				k, shutdown := q.Get()
				if shutdown {
					return
				}
				done.count(i)
				q.Done(k)
			}
		})
	}
	// until all wait: as long as they still change the memory, and then some
	for waiting := int64(0); waiting != residentBytes(); time.Sleep(500 * time.Millisecond) {
		waiting = residentBytes()
	}
	waiting := residentBytes()
	watch := startWatch()
	for _, k := range keys {
		q.Add(k)
	}
	done.waitFor(n)
	r := watch.stop(n)
	r.set("rss_bytes_delta", float64(waiting-before.rss))
	q.ShutDown()
	workers.Wait()
	return r
}

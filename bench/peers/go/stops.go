package main

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// stops looks for the worst single call: the worst add of n, the worst done while n
// keys are worked off, or the worst add of somebody else while n timers fall due
// within two seconds and two consumers work them off.
func stops(a args) result {
	switch a.get("what") {
	case "grow":
		return growing(a)
	case "shrink":
		return shrinking(a)
	}
	return fallingDue(a)
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func growing(a args) result {
	n := a.num("n")
	keys := keysFrom(u64Key, 0, n)
	q := plainQueue[uint64](a.impl)
	settledMemory()
	var worst time.Duration
	watch := startWatch()
	for _, k := range keys {
		before := time.Now()
		q.Add(k)
		worst = max(worst, time.Since(before))
	}
	r := watch.stop(n)
	r.set("max_us", micros(worst))
	runtime.KeepAlive(q)
	return r
}

func shrinking(a args) result {
	n := a.num("n")
	q := plainQueue[uint64](a.impl)
	for i := range n {
		q.Add(u64Key(i))
	}
	q.Len()
	settledMemory()
	var worst time.Duration
	watch := startWatch()
	for range n {
		k, _ := q.Get()
		before := time.Now()
		q.Done(k)
		worst = max(worst, time.Since(before))
	}
	r := watch.stop(n)
	r.set("max_us", micros(worst))
	return r
}

func fallingDue(a args) result {
	const rest = 20 * time.Microsecond
	n := a.num("n")
	keys, delays := keysFrom(u64Key, 0, n), delaysOf("uniform", n)
	q := delayingQueue[uint64](a.impl)
	done := newTally(consumers)
	settledMemory()
	var workers sync.WaitGroup
	for i := range consumers {
		workers.Go(func() {
			for {
				k, shutdown := q.Get()
				if shutdown {
					return
				}
				if unscramble(k) < uint64(n) { // the prober's keys are others
					done.count(i)
				}
				q.Done(k)
			}
		})
	}
	watch := startWatch()
	for i, k := range keys {
		q.AddAfter(k, delays[i])
	}
	var over atomic.Bool
	took := make([]int64, 0, 1<<20)
	var prober sync.WaitGroup
	prober.Go(func() {
		for i := n; len(took) == 0 || !over.Load(); i++ {
			k := u64Key(i)
			before := time.Now()
			q.Add(k)
			took = append(took, int64(time.Since(before)))
			time.Sleep(rest)
		}
	})
	done.waitFor(n)
	r := watch.stop(n)
	over.Store(true)
	prober.Wait()
	q.ShutDown()
	workers.Wait()
	r.set("probes", float64(len(took)))
	r.latencies(slices.Clone(took))
	return r
}

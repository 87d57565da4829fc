package main

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

func backoff(a args) result {
	if a.get("key") == "string" {
		return retried(a, stringKey)
	}
	return retried(a, u64Key)
}

// retried puts n distinct keys back through the limiter; nobody gets them.
func retried[K comparable](a args, key func(int) K) result {
	n := a.num("n")
	keys := keysFrom(key, 0, n)
	limiter := exponential[K]()
	if a.get("limiter") == "own" {
		limiter = &ownLimiter[K]{failures: map[K]int{}}
	}
	q := rateLimitingQueue(a.impl, limiter)
	settledMemory()
	watch := startWatch()
	for _, k := range keys {
		q.AddRateLimited(k)
	}
	return settled(watch, a.impl, q, n)
}

// ownLimiter is what a user writes who wants other delays: a map of counts.
type ownLimiter[K comparable] struct {
	lock     sync.Mutex
	failures map[K]int
}

func (l *ownLimiter[K]) When(k K) time.Duration {
	l.lock.Lock()
	defer l.lock.Unlock()
	failures := l.failures[k]
	l.failures[k] = failures + 1
	return time.Duration(math.Min(float64(time.Millisecond)*math.Pow(2, float64(failures)), float64(1000*time.Second)))
}

func (l *ownLimiter[K]) Forget(k K) {
	l.lock.Lock()
	defer l.lock.Unlock()
	delete(l.failures, k)
}

func (l *ownLimiter[K]) NumRequeues(k K) int {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.failures[k]
}

func limiterAlone(a args) result {
	if a.impl == controllerRuntime {
		cannot("controller-runtime's limiters are client-go's")
	}
	if a.get("key") == "string" {
		return when(a.num("n"), exponential[string](), stringKey)
	}
	return when(a.num("n"), exponential[uint64](), u64Key)
}

func when[K comparable](n int, limiter workqueue.TypedRateLimiter[K], key func(int) K) result {
	keys := keysFrom(key, 0, n)
	settledMemory()
	watch := startWatch()
	for _, k := range keys {
		limiter.When(k)
	}
	return watch.stop(n)
}

// bucket reserves from a bucket of which all goroutines take. x/time/rate itself is
// used as its callers in a hurry do, with one reading of the clock; client-go's
// limiter in front of it reads twice.
func bucket(a args) result {
	threads, n := a.num("threads"), a.num("n")
	bucket := rate.NewLimiter(1e6, 100)
	var reserve func(times int)
	switch a.impl {
	case xTimeRate:
		reserve = func(times int) {
			for range times {
				now := time.Now()
				bucket.ReserveN(now, 1).DelayFrom(now)
			}
		}
	case clientGo:
		var limiter workqueue.TypedRateLimiter[uint64] = &workqueue.TypedBucketRateLimiter[uint64]{Limiter: bucket}
		reserve = func(times int) {
			for i := range times {
				limiter.When(uint64(i))
			}
		}
	default:
		cannot("controller-runtime's limiters are client-go's")
	}
	settledMemory()
	var all sync.WaitGroup
	gate := make(chan struct{})
	for t := range threads {
		all.Go(func() {
			<-gate
			reserve(share(n, threads, t))
		})
	}
	watch := startWatch()
	close(gate)
	all.Wait()
	return watch.stop(n)
}

package main

import (
	"runtime"
	"sync"
	"syscall"
	"time"
)

const pause = 200 * time.Microsecond

// wakeups measures from an add to the get that it wakes. The producer is a thread of its
// own that sleeps in the system (producer=sleep) or spins between adds; or, with
// producer=task, a goroutine beside the consumer's that yields until it is time.
func wakeups(a args) result {
	n := a.num("n")
	keys := keysFrom(u64Key, 0, n)
	added, waited := make([]int64, n), make([]int64, n)
	q := plainQueue[uint64](a.impl)
	settledMemory()
	watch := startWatch()
	var consumer, producer sync.WaitGroup
	consumer.Go(func() {
		for range n {
			k, _ := q.Get()
			i := unscramble(k)
			waited[i] = int64(time.Since(watch.start)) - added[i]
			q.Done(k)
		}
	})
	rest := rests[a.get("producer")]
	producer.Go(func() {
		if a.get("producer") != "task" {
			runtime.LockOSThread()
		}
		for i, k := range keys {
			rest()
			added[i] = int64(time.Since(watch.start))
			q.Add(k)
		}
	})
	producer.Wait()
	consumer.Wait()
	r := watch.stop(n)
	r.latencies(waited)
	return r
}

// rests are the ways in which a producer lets time pass.
var rests = map[string]func(){
	"sleep": func() {
		ts := syscall.NsecToTimespec(pause.Nanoseconds())
		_ = syscall.Nanosleep(&ts, nil) // a signal only shortens the pause
	},
	"spin": func() {
		for until := time.Now().Add(pause); time.Now().Before(until); {
		}
	},
	"task": func() {
		for until := time.Now().Add(pause); time.Now().Before(until); {
			runtime.Gosched()
		}
	},
}

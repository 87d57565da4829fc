package main

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// delaysOf gives what each of n keys waits: uniformly 1 to 3 s, unless said otherwise.
func delaysOf(kind string, n int) []time.Duration {
	random := newRandom(4)
	delays := make([]time.Duration, n)
	for i := range delays {
		uniform := time.Second + time.Duration(random.below(uint64(2*time.Second)))
		switch {
		case kind == "equal90" && random.below(10) > 0:
			delays[i] = 2 * time.Second
		case kind == "month":
			delays[i] = 30*24*time.Hour + uniform
		default:
			delays[i] = uniform
		}
	}
	return delays
}

// timers sets n timers: part=insert looks at time and memory, nobody waits; in part=run
// two consumers wait from the start, ns_per_op is processor time for a key from
// insert to done, and the percentiles are of how late keys were handed out.
func timers(a args) result {
	if a.get("part") == "insert" {
		return setTimers(a)
	}
	if a.get("delays") == "month" {
		unknown("value \"month\" of delays where part=run: they are only inserted")
	}
	return serveTimers(a)
}

func setTimers(a args) result {
	n := a.num("n")
	keys, delays := keysFrom(u64Key, 0, n), delaysOf(a.get("delays"), n)
	q := delayingQueue[uint64](a.impl)
	before := settledMemory()
	watch := startWatch()
	for i, k := range keys {
		q.AddAfter(k, delays[i])
	}
	r := settled(watch, a.impl, q, n)
	r.live(before, n)
	runtime.KeepAlive(keys)
	runtime.KeepAlive(q)
	return r
}

// live reports what the process has taken since `before` for n keys: the resident
// memory as the system sees it, garbage included, as for every other program; and
// what of it is alive.
func (r *result) live(before memory, n int) {
	now := currentMemory()
	r.set("rss_bytes_delta", float64(now.rss-before.rss))
	r.set("bytes_per_key", float64(now.rss-before.rss)/float64(n))
	now = settledMemory()
	r.set("alloc_bytes_per_key", float64(now.alloc-before.alloc)/float64(n))
	r.set("collected_rss_bytes_per_key", float64(now.rss-before.rss)/float64(n))
}

// dues are the instants at which keys are due, by their numbers, in nanoseconds from
// the start. Each is written before its key is added and read by who gets it.
type dues struct {
	start time.Time
	at    []int64
}

func (d *dues) now() int64 { return int64(time.Since(d.start)) }

func (d *dues) set(i int, delay time.Duration) { d.at[i] = d.now() + int64(delay) }

// late is how late it is for the key.
func (d *dues) late(key uint64) int64 { return max(d.now()-d.at[unscramble(key)], 0) }

func serveTimers(a args) result {
	n := a.num("n")
	keys, delays := keysFrom(u64Key, 0, n), delaysOf(a.get("delays"), n)
	due := dues{time.Now(), make([]int64, n)}
	done := newTally(consumers)
	late := make([][]int64, consumers)
	q := delayingQueue[uint64](a.impl)
	var workers sync.WaitGroup
	for i := range late {
		mine := make([]int64, 0, n)
		workers.Go(func() {
			for {
				k, shutdown := q.Get()
				if shutdown {
					late[i] = mine
					return
				}
				mine = append(mine, due.late(k))
				done.count(i)
				q.Done(k)
			}
		})
	}
	settledMemory()
	time.Sleep(20 * time.Millisecond)
	watch := startWatch()
	for i, k := range keys {
		due.set(i, delays[i])
		q.AddAfter(k, delays[i])
	}
	inserted := time.Since(watch.start)
	// until all are due: who looks every 0.1 ms meanwhile takes processor time, too
	time.Sleep(slices.Max(delays))
	done.waitFor(n)
	r := watch.stop(n)
	q.ShutDown()
	workers.Wait()

	r.nsPerOp = r.more["cpu_ns_per_op"]
	r.set("insert_seconds", inserted.Seconds())
	r.latencies(append(late[0], late[1]...))
	return r
}

const (
	soonerTimers = 200
	soonerDelay  = 5 * time.Millisecond
)

// sooner has n keys wait for an hour and two consumers for them; then sooner timers
// are set, one after another.
func sooner(a args) result {
	n := a.num("n")
	keys := keysFrom(u64Key, 0, n)
	q := delayingQueue[uint64](a.impl)
	for _, k := range keys {
		q.AddAfter(k, time.Hour)
	}
	settle(a.impl, q)
	settledMemory()

	due := dues{time.Now(), make([]int64, n+soonerTimers)}
	told := make(chan int64, 1)
	var workers sync.WaitGroup
	for range consumers {
		workers.Go(func() {
			for {
				k, shutdown := q.Get()
				if shutdown {
					return
				}
				told <- due.late(k)
				q.Done(k)
			}
		})
	}
	late := make([]int64, soonerTimers)
	watch := startWatch()
	for i := range late {
		time.Sleep(2 * time.Millisecond) // so that both wait again
		due.set(n+i, soonerDelay)
		q.AddAfter(u64Key(n+i), soonerDelay)
		late[i] = <-told
	}
	r := watch.stop(soonerTimers)
	q.ShutDown()
	workers.Wait()
	r.latencies(late)
	runtime.KeepAlive(keys)
	return r
}

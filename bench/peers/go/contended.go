package main

import (
	"sync"
	"time"
)

const hotKeys = 10_000

// contended lets p producers add and c consumers work off what they add. An operation is a
// key where keys are distinct, and a call (an add, a get or a done) where they are hot.
func contended(a args) result {
	n, p, c := a.num("n"), a.num("p"), a.num("c")
	hot := a.get("keys") == "hot"
	distinct := n
	if hot {
		distinct = hotKeys
	}
	keys := keysFrom(u64Key, 0, distinct)
	q := plainQueue[uint64](a.impl)
	settledMemory()

	var producers, workers sync.WaitGroup
	handed := newTally(c)
	for i := range c {
		workers.Go(func() {
			for {
				k, shutdown := q.Get()
				if shutdown {
					return
				}
				handed.count(i)
				q.Done(k)
			}
		})
	}
	time.Sleep(20 * time.Millisecond) // they wait before the first key comes
	watch := startWatch()
	first := 0
	for i := range p {
		n := share(n, p, i)
		mine := keys
		if !hot {
			mine = keys[first : first+n]
			first += n
		}
		producers.Go(func() {
			if !hot {
				for _, k := range mine {
					q.Add(k)
				}
				return
			}
			walk := newRandom(uint64(i))
			for range n {
				q.Add(mine[walk.below(hotKeys)])
			}
		})
	}
	producers.Wait()
	if a.impl == controllerRuntime {
		// its shutdown throws away what is in the line. A key that is added while a
		// worker holds it is in the line at once.
		for q.Len() > 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
	q.ShutDown() // client-go's hands out what is in the line
	workers.Wait()
	r := watch.stop(n)

	got := handed.sum()
	if hot {
		r = r.of(n + 2*got)
	} else if got != n {
		panic("keys were lost")
	}
	r.set("handed_per_s", float64(got)/r.seconds)
	r.set("handed_out", float64(got))
	return r
}

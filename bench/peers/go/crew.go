package main

import (
	"sync/atomic"
	"time"
)

// consumers is how many wait for due keys.
const consumers = 2

// tally is how much each of several consumers has done: each writes a number of its
// own on a cache line of its own, and who waits for all of it looks now and then.
type tally []struct {
	done atomic.Int64
	_    [120]byte
}

func newTally(consumers int) tally { return make(tally, consumers) }

// count adds one to what this consumer has done.
func (t tally) count(consumer int) {
	mine := &t[consumer].done
	mine.Store(mine.Load() + 1)
}

func (t tally) sum() int {
	var sum int64
	for i := range t {
		sum += t[i].done.Load()
	}
	return int(sum)
}

// waitFor waits until they have done that much together, to 0.1 ms.
func (t tally) waitFor(n int) {
	for t.sum() < n {
		time.Sleep(100 * time.Microsecond)
	}
}

// share is how much of n the i-th of several has.
func share(n, of, i int) int {
	if i < n%of {
		return n/of + 1
	}
	return n / of
}

package main

import "slices"

const (
	fairKeys = 200
	fairRuns = 6000 // of 10 ms each, a minute
)

// fair gives one worker `load` times what it can do and counts how often each key was
// run: that many triggers of random keys come in the time of a run. Neither queue
// reads a clock for keys without a delay, so the minute passes without anybody
// waiting for it.
func fair(a args) result {
	load := a.num("load")
	q := plainQueue[uint64](a.impl)
	random := newRandom(1)
	runs := make([]int, fairKeys)
	trigger := func() {
		for range load {
			q.Add(u64Key(int(random.below(fairKeys))))
		}
		settle(a.impl, q)
	}
	watch := startWatch()
	trigger()
	for range fairRuns {
		k, _ := q.Get()
		runs[unscramble(k)]++
		trigger()
		q.Done(k)
	}
	r := watch.stop(fairRuns)
	never := 0
	for _, n := range runs {
		if n == 0 {
			never++
		}
	}
	r.set("never_run", float64(never))
	r.set("min_runs", float64(slices.Min(runs)))
	r.set("max_runs", float64(slices.Max(runs)))
	return r
}

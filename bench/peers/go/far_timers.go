package main

import "time"

// manyTimers is how many keys wait in timers=many.
const manyTimers = 10_000

// farTimers is the cycle on a queue that has timers set, none of which is due.
func farTimers(a args) result {
	a.plainOnly()
	if a.get("key") == "string" {
		return timed(a, stringKey)
	}
	return timed(a, u64Key)
}

func timed[K comparable](a args, key func(int) K) result {
	n := a.num("n")
	q := delayingQueue[K](a.impl)
	set := map[string]int{"one": 1, "many": manyTimers, "none": 0}[a.get("timers")]
	for i, k := range keysFrom(key, n, set) {
		// between one hour and two, as those of keys that fail for long
		q.AddAfter(k, time.Hour+time.Duration(i)*time.Hour/manyTimers)
	}
	settle(a.impl, q)
	return shaped("cycle", n, q, key)
}

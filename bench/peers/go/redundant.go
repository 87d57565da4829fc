package main

import (
	"sync"
)

const pendingKeys = 100

// redundantAdds adds keys that are pending already. pass=value and pass=ref are the same in Go,
// where a string is a pointer and a length either way.
func redundantAdds(a args) result {
	if a.get("key") == "string" {
		return redundant(a, stringKey)
	}
	return redundant(a, u64Key)
}

func redundant[K comparable](a args, key func(int) K) result {
	threads, n := a.num("threads"), a.num("n")
	keys := keysFrom(key, 0, pendingKeys)
	q := plainQueue[K](a.impl)
	for _, k := range keys {
		q.Add(k)
	}
	q.Len()
	settledMemory()
	var all sync.WaitGroup
	gate := make(chan struct{})
	for t := range threads {
		all.Go(func() {
			<-gate
			at := t * pendingKeys / threads
			for range share(n, threads, t) {
				q.Add(keys[at])
				if at++; at == pendingKeys {
					at = 0
				}
			}
		})
	}
	watch := startWatch()
	close(gate)
	all.Wait()
	settle(a.impl, q)
	return watch.stop(n)
}

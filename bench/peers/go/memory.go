package main

import (
	"runtime"
	"strings"
)

// memoryUse looks at the memory of n pending keys, and at what stays after the burst. A
// string is copied on its way in, so that the queue alone owns it; its bytes count.
// above_key_bytes leaves out those bytes (32, what Go allocates for 31) and the
// string's own 16.
func memoryUse(a args) result {
	if a.get("key") == "string" {
		return footprint(a, stringKey, strings.Clone, 32+16)
	}
	return footprint(a, u64Key, func(k uint64) uint64 { return k }, 0)
}

func footprint[K comparable](a args, key func(int) K, own func(K) K, keyBytes float64) result {
	n := a.num("n")
	keys := keysFrom(key, 0, n)
	q := plainQueue[K](a.impl)
	before := settledMemory()
	watch := startWatch()
	for _, k := range keys {
		q.Add(own(k))
	}
	q.Len()
	r := watch.stop(n)
	r.live(before, n)
	r.set("above_key_bytes", r.more["bytes_per_key"]-keyBytes)
	for range n {
		k, _ := q.Get()
		q.Done(k)
	}
	r.set("after_rss_bytes_per_key", float64(residentBytes()-before.rss)/float64(n))
	after := settledMemory()
	r.set("after_bytes_per_key", float64(after.alloc-before.alloc)/float64(n))
	r.set("after_collected_rss_bytes_per_key", float64(after.rss-before.rss)/float64(n))
	runtime.KeepAlive(keys)
	runtime.KeepAlive(q)
	return r
}

package main

// pendingBefore is how many keys stand in line already in shape=pending.
const pendingBefore = 100_000

func cycle(a args) result {
	a.plainOnly()
	if a.get("key") == "string" {
		return shaped(a.get("shape"), a.num("n"), plainQueue[string](a.impl), stringKey)
	}
	return shaped(a.get("shape"), a.num("n"), plainQueue[uint64](a.impl), u64Key)
}

func metered(a args) result {
	a.plainOnly()
	if a.get("key") == "string" {
		return shaped("cycle", a.num("n"), measuredIf[string](a), stringKey)
	}
	return shaped("cycle", a.num("n"), measuredIf[uint64](a), u64Key)
}

func measuredIf[K comparable](a args) queue[K] {
	if a.get("metrics") == "on" {
		return measuredQueue[K](a.impl)
	}
	return plainQueue[K](a.impl)
}

// shaped adds, gets and is done with n distinct keys on one goroutine.
func shaped[K comparable](shape string, n int, q queue[K], key func(int) K) result {
	keys := keysFrom(key, 0, n)
	if shape == "pending" {
		for _, k := range keysFrom(key, n, pendingBefore) {
			q.Add(k)
		}
		q.Len() // all of them are there
	}
	settledMemory()
	watch := startWatch()
	if shape == "bulk" {
		for _, k := range keys {
			q.Add(k)
		}
		for range keys {
			k, _ := q.Get()
			q.Done(k)
		}
	} else {
		for _, k := range keys {
			q.Add(k)
			k, _ := q.Get()
			q.Done(k)
		}
	}
	return watch.stop(n)
}

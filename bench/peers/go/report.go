package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// result is what one measurement found.
type result struct {
	ops     int
	seconds float64
	nsPerOp float64
	// what applies to this workload, by the names that all programs share
	// (rss_bytes_delta, p50_us, …), and what only this program tells
	more map[string]float64
}

// stopwatch times what it was started before.
type stopwatch struct {
	cpu   time.Duration
	start time.Time
}

func startWatch() stopwatch { return stopwatch{cpuTime(), time.Now()} }

// stop gives the result of `ops` operations that were done since.
func (w stopwatch) stop(ops int) result {
	// in the reverse order: reading the processor time is a system call
	wall := time.Since(w.start)
	cpu := cpuTime() - w.cpu
	r := result{ops, wall.Seconds(), float64(wall.Nanoseconds()) / float64(ops), map[string]float64{}}
	r.set("cpu_seconds", cpu.Seconds())
	r.set("cpu_ns_per_op", float64(cpu.Nanoseconds())/float64(ops))
	return r
}

// of is the same for another number of operations.
func (r result) of(ops int) result {
	r.ops, r.nsPerOp = ops, r.seconds*1e9/float64(ops)
	r.set("cpu_ns_per_op", r.more["cpu_seconds"]*1e9/float64(ops))
	return r
}

func (r *result) set(name string, value float64) { r.more[name] = value }

func (r *result) print(a args) {
	line := map[string]any{
		"impl": a.impl, "workload": a.workload, "params": a.params(),
		"ops": r.ops, "seconds": r.seconds, "ns_per_op": r.nsPerOp,
	}
	for name, value := range r.more {
		line[name] = value
	}
	data, err := json.Marshal(line)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(string(data))
}

// latencies sets the percentiles of what was waited, in nanoseconds.
func (r *result) latencies(ns []int64) {
	if len(ns) == 0 {
		return
	}
	slices.Sort(ns)
	at := func(q float64) float64 {
		return float64(ns[max(int(math.Ceil(q*float64(len(ns))))-1, 0)]) / 1e3
	}
	r.set("p50_us", at(0.5))
	r.set("p99_us", at(0.99))
	r.set("max_us", at(1))
}

// memory is what the process uses, the collector having done what it can.
type memory struct{ rss, alloc, inuse int64 }

// settledMemory is read where a measurement begins, and where live bytes are asked
// for: what is garbage is collected and given back to the system first.
func settledMemory() memory {
	runtime.GC()
	debug.FreeOSMemory()
	return currentMemory()
}

func currentMemory() memory {
	var s runtime.MemStats
	rss := residentBytes()
	runtime.ReadMemStats(&s)
	return memory{rss, int64(s.HeapAlloc), int64(s.HeapInuse)}
}

func residentBytes() int64 {
	data, err := os.ReadFile("/proc/self/statm")
	var size, resident int64
	if err == nil {
		_, err = fmt.Sscan(string(data), &size, &resident)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "resident memory:", err)
		os.Exit(1)
	}
	return resident * int64(os.Getpagesize())
}

// cpuTime is what all threads of the process have used, the collector's included.
func cpuTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		fmt.Fprintln(os.Stderr, "cpu time:", err)
		os.Exit(1)
	}
	return time.Duration(t.Nano())
}

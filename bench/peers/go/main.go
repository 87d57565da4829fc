// Command requeue-peers-go measures the work queues of the Go world with the same
// workloads, names and output as the Rust programs beside it:
//
//	requeue-peers-go <workload> [impl=client-go] [name=value ...]
//
// It prints one line of JSON; `version` prints what is measured. It exits with 2 for a workload, a parameter or a value
// that it does not know, and with 3 for a workload that the chosen peer cannot do.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
)

// workloads in the order in which a listing shows them.
var workloads = []struct {
	name string
	// spec holds "name=default" pairs, or "name=a|b|c" where the first is the
	// default and the rest are the only other values; "n=" takes any number.
	spec []string
	run  func(a args) result
}{
	{"cycle", []string{"key=u64|string", "shape=cycle|pending|bulk", "form=plain|next|batch32", "n=1000000"}, cycle},
	{"contended", []string{"keys=distinct|hot", "p=1", "c=1", "mode=goroutines|threads|tasks", "n=2000000"}, contended},
	{"redundant", []string{"key=u64|string", "pass=value|ref", "threads=1", "n=10000000"}, redundantAdds},
	{"timers", []string{"n=1000000", "delays=uniform|equal90|month", "part=insert|run"}, timers},
	{"sooner", []string{"n=1000000"}, sooner},
	{"backoff", []string{"key=u64|string", "limiter=builtin|own", "n=1000000"}, backoff},
	{"when", []string{"key=u64|string", "n=1000000"}, limiterAlone},
	{"bucket", []string{"threads=1", "n=4000000"}, bucket},
	{"wakeups", []string{"producer=sleep|spin|task", "mode=goroutines|threads|tasks", "n=5000"}, wakeups},
	{"memory", []string{"key=u64|string", "n=1000000"}, memoryUse},
	{"metrics", []string{"key=u64|string", "metrics=off|on", "form=plain|next|batch32", "n=1000000"}, metered},
	{"idle", []string{"waiters=10000", "mode=goroutines|threads|tasks", "n=1000000"}, idle},
	{"stops", []string{"what=grow|shrink|due", "n=1000000"}, stops},
	{"fartimers", []string{"key=u64|string", "timers=one|many|none", "form=plain|next|batch32", "n=1000000"}, farTimers},
	{"workers", []string{"shape=ready|producer", "workers=1", "mode=goroutines|threads|tasks", "form=worker|plain|next", "n=1000000"}, workers},
	{"fair", []string{"load=2"}, fair},
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: requeue-peers-go <workload> [impl=client-go|controller-runtime|x-time-rate] [name=value ...]")
		for _, w := range workloads {
			fmt.Fprintln(os.Stderr, "  ", w.name, w.spec)
		}
		os.Exit(2)
	}
	if os.Args[1] == "version" {
		versions()
		return
	}
	for _, w := range workloads {
		if w.name == os.Args[1] {
			a := parse(w.name, w.spec, os.Args[2:])
			if a.impl == xTimeRate && w.name != "bucket" {
				cannot("x-time-rate has no queue, only bucket is for it")
			}
			r := w.run(a)
			r.print(a)
			return
		}
	}
	unknown("workload %q", os.Args[1])
}

// versions prints what a figure must be quoted with.
func versions() {
	fmt.Println(runtime.Version(), runtime.GOOS, runtime.GOARCH, "GOMAXPROCS", runtime.GOMAXPROCS(0))
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	peers := []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "golang.org/x/time", "github.com/prometheus/client_golang"}
	for _, m := range build.Deps {
		if slices.Contains(peers, m.Path) {
			fmt.Println(m.Path, m.Version)
		}
	}
}

//go:build others

package main

import (
	"encoding/json"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// script is a scenario of requeue-beyond: triggers at instants, and what runs do. Times are milliseconds.
type script struct {
	Name     string   `json:"name"`
	Lasting  int64    `json:"lasting"`
	Run      int64    `json:"run"`
	Triggers [][3]int `json:"triggers"`
	Fails    bool     `json:"fails"`
	Echo     int64    `json:"echo"`
	Quiet    int64    `json:"quiet"`
}

type ran struct {
	Queue  string       `json:"queue"`
	Script string       `json:"script"`
	Runs   [][2]float64 `json:"runs"`
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// TestBeyond plays the scripts in the file that BEYOND_SCRIPTS names, in virtual time, and writes the runs
// of each queue to the file that BEYOND_RAN names.
func TestBeyond(t *testing.T) {
	in, out := os.Getenv("BEYOND_SCRIPTS"), os.Getenv("BEYOND_RAN")
	if in == "" {
		t.Skip("bench/peers/beyond/run says what to play")
	}
	data, err := os.ReadFile(in)
	if err != nil {
		t.Fatal(err)
	}
	var scripts []script
	if err := json.Unmarshal(data, &scripts); err != nil {
		t.Fatal(err)
	}
	var all []ran
	for _, s := range scripts {
		for _, impl := range []string{clientGo, controllerRuntime} {
			synctest.Test(t, func(*testing.T) { all = append(all, play(s, impl)) })
		}
	}
	data, err = json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(out, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// play is one worker, as both libraries' controllers write it, and one producer.
func play(s script, impl string) ran {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[int](5*time.Millisecond, 1000*time.Second)
	var queue workqueue.TypedRateLimitingInterface[int]
	var byPriority priorityqueue.PriorityQueue[int]
	if impl == controllerRuntime {
		byPriority = priorityqueue.New("", func(o *priorityqueue.Opts[int]) { o.RateLimiter = limiter })
		queue = byPriority
	} else {
		queue = workqueue.NewTypedRateLimitingQueue[int](limiter)
	}
	start, end := time.Now(), time.Now().Add(ms(s.Lasting))
	result := ran{Queue: impl, Script: s.Name, Runs: [][2]float64{}}
	go func() {
		for _, trigger := range s.Triggers {
			time.Sleep(time.Until(start.Add(ms(int64(trigger[0])))))
			switch {
			case s.Quiet > 0:
				// neither has a debounce: this is the nearest
				queue.AddAfter(trigger[1], ms(s.Quiet))
			case byPriority != nil:
				byPriority.AddWithOpts(priorityqueue.AddOpts{Priority: &trigger[2]}, trigger[1])
			default:
				queue.Add(trigger[1])
			}
		}
	}()
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		for {
			key, shutdown := queue.Get()
			if shutdown || !time.Now().Before(end) {
				return
			}
			result.Runs = append(result.Runs, [2]float64{float64(key), time.Since(start).Seconds() * 1e3})
			time.Sleep(ms(s.Run))
			if s.Fails {
				queue.AddRateLimited(key)
				time.AfterFunc(ms(s.Echo), func() { queue.Add(key) })
			} else {
				queue.Forget(key)
			}
			queue.Done(key)
		}
	}()
	time.Sleep(time.Until(end))
	queue.ShutDown()
	<-worked
	return result
}

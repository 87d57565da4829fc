// What River does on a server: a JSON line for each figure. Jobs are unique by their arguments, while they are not completed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

const usage = `usage: river CONNECT (one CALLERS SECONDS | many KEYS | fill KEYS | work | latency KEYS | semantics)`

var ctx = context.Background()

type args struct {
	Key string `json:"key" river:"unique"`
}

func (args) Kind() string { return "bench" }

func (args) InsertOpts() river.InsertOpts {
	return river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning,
		rivertype.JobStateRetryable, rivertype.JobStateScheduled,
	}}}
}

type worker struct {
	river.WorkerDefaults[args]
	run func(*river.Job[args])
}

func (w *worker) Work(_ context.Context, job *river.Job[args]) error {
	w.run(job)
	return nil
}

// A failed job is tried again at once.
type atOnce struct{}

func (atOnce) NextRetry(*rivertype.JobRow) time.Time { return time.Now() }

// As objects of a cluster are called.
func key(n int) string { return fmt.Sprintf("namespace-%03d/object-name-%08d", n%317, n) }

func main() {
	if len(os.Args) < 3 {
		check(errors.New(usage))
	}
	what := os.Args[2:]
	config, err := pgxpool.ParseConfig(os.Args[1])
	check(err)
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(ctx, config)
	check(err)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	check(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	check(err)
	switch {
	case what[0] == "one" && len(what) == 3:
		one(pool, number(what[1]), time.Duration(number(what[2]))*time.Second)
	case what[0] == "many" && len(what) == 2:
		begun := time.Now()
		fill(pool, number(what[1]))
		tell(map[string]any{"figure": "many", "per_s": int(float64(number(what[1])) / time.Since(begun).Seconds())})
	case what[0] == "fill" && len(what) == 2:
		fill(pool, number(what[1]))
	case what[0] == "work":
		work(pool)
	case what[0] == "latency" && len(what) == 2:
		latency(pool, number(what[1]))
	case what[0] == "semantics":
		semantics(pool)
	default:
		check(errors.New(usage))
	}
}

// With nothing of it, the client's defaults.
func client(pool *pgxpool.Pool, config river.Config, run func(*river.Job[args])) *river.Client[pgx.Tx] {
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{run: run})
	config.Workers = workers
	config.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	made, err := river.NewClient(riverpgxv5.New(pool), &config)
	check(err)
	return made
}

func one(pool *pgxpool.Pool, callers int, limit time.Duration) {
	inserts := client(pool, river.Config{}, nil)
	var all sync.WaitGroup
	var added atomic.Int64
	begun := time.Now()
	for caller := range callers {
		all.Go(func() {
			for n := 0; time.Since(begun) < limit; n++ {
				_, err := inserts.Insert(ctx, args{key(caller<<32 | n)}, nil)
				check(err)
				added.Add(1)
			}
		})
	}
	all.Wait()
	tell(map[string]any{"figure": "one", "per_s": int(float64(added.Load()) / time.Since(begun).Seconds())})
}

func fill(pool *pgxpool.Pool, keys int) {
	inserts := client(pool, river.Config{}, nil)
	for from := 0; from < keys; from += 200 {
		var some []river.InsertManyParams
		for n := from; n < min(from+200, keys); n++ {
			some = append(some, river.InsertManyParams{Args: args{key(n)}})
		}
		_, err := inserts.InsertMany(ctx, some)
		check(err)
	}
}

// With the figures of River's own benchmark, of `river bench`.
func work(pool *pgxpool.Pool) {
	var done, last atomic.Int64
	begun := time.Now()
	last.Store(begun.UnixMicro())
	works := client(pool, river.Config{
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
	}, func(*river.Job[args]) {
		done.Add(1)
		last.Store(time.Now().UnixMicro())
	})
	check(works.Start(ctx))
	for time.Now().UnixMicro()-last.Load() < 2_000_000 {
		time.Sleep(10 * time.Millisecond)
	}
	ended := float64(last.Load()) / 1e6
	check(works.Stop(ctx))
	tell(map[string]any{"figure": "work", "keys": done.Load(), "begun": float64(begun.UnixMicro()) / 1e6, "ended": ended})
}

func latency(pool *pgxpool.Pool, keys int) {
	told := make(chan time.Time, 100)
	works := client(pool, river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}},
	}, func(*river.Job[args]) { told <- time.Now() })
	check(works.Start(ctx))
	time.Sleep(time.Second)
	var took []time.Duration
	for n := range keys {
		time.Sleep(10 * time.Millisecond)
		begun := time.Now()
		_, err := works.Insert(ctx, args{key(n)}, nil)
		check(err)
		took = append(took, (<-told).Sub(begun))
	}
	check(works.Stop(ctx))
	slices.Sort(took)
	at := func(part float64) float64 { return took[int(float64(len(took)-1)*part)].Seconds() * 1e3 }
	tell(map[string]any{"figure": "latency", "p50_ms": at(0.5), "p99_ms": at(0.99)})
}

func semantics(pool *pgxpool.Pool) {
	var runs, now, most atomic.Int64
	gates := map[string]chan struct{}{"b": make(chan struct{}), "c1": make(chan struct{}), "c2": make(chan struct{})}
	config := river.Config{
		JobTimeout:           500 * time.Millisecond, // the handler does not hear of it: it is stuck
		RescueStuckJobsAfter: time.Second,
		RetryPolicy:          atOnce{},
		Queues:               map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
	}
	second := make(chan struct{})
	works := client(pool, config, func(job *river.Job[args]) {
		runs.Add(1)
		if n := now.Add(1); job.Args.Key == "b" && n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		name := job.Args.Key
		if name == "c" {
			name += strconv.Itoa(job.Attempt)
		}
		if name == "c2" {
			close(second)
		}
		if gate := gates[name]; gate != nil {
			<-gate
		}
	})
	add := func(key string) *rivertype.JobInsertResult {
		added, err := works.Insert(ctx, args{key}, nil)
		check(err)
		return added
	}
	wait := func() { time.Sleep(3 * time.Second) }
	for range 3 {
		add("a")
	}
	check(works.Start(ctx))
	wait()
	before := runs.Swap(0)
	add("b")
	wait()
	add("b")
	add("b")
	wait()
	close(gates["b"])
	wait()
	during := runs.Load() - 1

	id := add("c").Job.ID
	select {
	case <-second:
	case <-time.After(2 * time.Minute):
		check(errors.New("a stuck job was not rescued"))
	}
	close(gates["c1"])
	wait()
	job, err := works.JobGet(ctx, id)
	check(err)
	zombie := "refused"
	if job.State == rivertype.JobStateCompleted {
		zombie = "accepted"
	}
	close(gates["c2"])
	check(works.Stop(ctx))

	begin := func() pgx.Tx {
		tx, err := pool.Begin(ctx)
		check(err)
		return tx
	}
	one, two := begin(), begin()
	insert := func(tx pgx.Tx, key string) error {
		_, err := works.InsertTx(ctx, tx, args{key}, nil)
		return err
	}
	check(insert(one, "x"))
	check(insert(two, "y"))
	ended := make(chan error, 2)
	go func() { ended <- insert(one, "y") }()
	go func() { ended <- insert(two, "x") }()
	transactions := "both go on"
	for range 2 {
		select {
		case err := <-ended:
			if err != nil && strings.Contains(err.Error(), "40P01") {
				transactions = "deadlock"
			} else if err != nil {
				transactions = err.Error()
			}
		case <-time.After(5 * time.Second):
			if transactions == "both go on" {
				transactions = "they wait for each other"
			}
		}
	}
	tell(map[string]any{
		"figure": "semantics", "before": strconv.Itoa(int(before)), "during": strconv.Itoa(int(during)),
		"at_once": strconv.Itoa(int(most.Load())), "zombie": zombie, "transactions": transactions,
	})
	os.Exit(0) // a transaction may hang
}

func tell(figure map[string]any) {
	figure["queue"] = "River"
	check(json.NewEncoder(os.Stdout).Encode(figure))
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	check(err)
	return n
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

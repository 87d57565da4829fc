// How many durable adds a second goqite takes, with one, 16 and 256 callers.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	_ "github.com/mattn/go-sqlite3"
	"maragu.dev/goqite"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: goqite FILE CALLERS SECONDS SCHEMA")
		os.Exit(2)
	}
	callers, err := strconv.Atoi(os.Args[2])
	check(err)
	seconds, err := strconv.ParseFloat(os.Args[3], 64)
	check(err)
	// as its README opens a database, and with each commit on the disk
	db, err := sql.Open("sqlite3", os.Args[1]+"?_journal=WAL&_timeout=5000&_fk=true&_sync=FULL")
	check(err)
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	ctx := context.Background()
	schema, err := os.ReadFile(os.Args[4])
	check(err)
	_, err = db.Exec(string(schema))
	check(err)
	queue := goqite.New(goqite.NewOpts{DB: db, Name: "bench"})

	begun := time.Now()
	end := begun.Add(time.Duration(seconds * float64(time.Second)))
	took := make([][]time.Duration, callers)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				at := time.Now()
				body := fmt.Appendf(nil, "namespace-%03d/object-name-%08d", n%317, caller<<24|n)
				check(queue.Send(ctx, goqite.Message{Body: body}))
				took[caller] = append(took[caller], time.Since(at))
			}
		})
	}
	all.Wait()
	whole := time.Since(begun).Seconds()
	each := slices.Concat(took...)
	slices.Sort(each)
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"queue": "goqite", "callers": callers, "adds_per_s": int(float64(len(each)) / whole),
		"p50_us": each[len(each)/2].Microseconds(), "p99_us": each[len(each)*99/100].Microseconds(),
	}))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

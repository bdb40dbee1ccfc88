// What an acquire takes in Go: the same acquires as the example overhead of the Rust SDK, against the table that the
// environment names. `task bench:languages` runs all.
//
// Prints medians in microseconds, and the time that a client takes to be made in milliseconds.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"slices"
	"time"

	sluice "github.com/OWNER/sluice/bindings/go"
)

const warmUp = 500

func median(client *sluice.Client, dimension string, calls int) float64 {
	ctx := context.Background()
	times := make([]time.Duration, 0, calls)
	for call := range warmUp + calls {
		began := time.Now()
		grant, retry, err := client.Acquire(ctx, sluice.On(dimension))
		took := time.Since(began)
		if grant == nil {
			log.Fatal(retry, err)
		}
		if call >= warmUp {
			times = append(times, took)
		}
	}
	slices.Sort(times)
	return float64(times[calls/2].Nanoseconds()) / 1e3
}

func main() {
	began := time.Now()
	client, err := sluice.FromEnv(context.Background(), sluice.Config{Prefetch: []string{"overhead#rpm"}})
	if err != nil {
		log.Fatal(err)
	}
	start := time.Since(began)
	stock, write := median(client, "overhead#rpm", 20_000), median(client, "overhead#rps", 2_000)
	if _, err := client.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"stock_us": stock, "write_us": write, "start_ms": float64(start.Microseconds()) / 1e3,
	})
}

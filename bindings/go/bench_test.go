package sluice_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"sort"
	"testing"
	"time"

	"sluice"
)

// TestOverhead measures what the binding adds to the SDK of Rust: the same acquires in both. OVERHEAD names the example
// `overhead` of a release build, target/release/examples/overhead; link a release archive (README.md). It prints medians in
// microseconds.
func TestOverhead(t *testing.T) {
	program := os.Getenv("OVERHEAD")
	if program == "" {
		t.Skip("OVERHEAD names the program of Rust")
	}
	inRust := func() (figures struct {
		Stock float64 `json:"stock_us"`
		Write float64 `json:"write_us"`
	}) {
		output, err := exec.Command(program).Output()
		if err == nil {
			err = json.Unmarshal(output, &figures)
		}
		if err != nil {
			t.Fatal(err)
		}
		return figures
	}
	before := inRust()
	prefetching, err := sluice.FromEnv(t.Context(), sluice.Config{Prefetch: []string{"overhead#rpm"}})
	if err != nil {
		t.Fatal(err)
	}
	median := func(dimension string, calls int) float64 {
		times := make([]time.Duration, 0, calls)
		for call := range calls + 500 {
			began := time.Now()
			grant, retry, err := prefetching.Acquire(t.Context(), sluice.On(dimension))
			took := time.Since(began)
			if grant == nil {
				t.Fatal(retry, err)
			}
			if call >= 500 {
				times = append(times, took)
			}
		}
		sort.Slice(times, func(a, b int) bool { return times[a] < times[b] })
		return float64(times[calls/2].Nanoseconds()) / 1e3
	}
	stock, write := median("overhead#rpm", 20_000), median("overhead#rps", 2_000)
	after := inRust()
	t.Logf("median, us       from stock   one write")
	t.Logf("Rust, before   %12.1f%12.1f", before.Stock, before.Write)
	t.Logf("Go             %12.1f%12.1f", stock, write)
	t.Logf("Rust, after    %12.1f%12.1f", after.Stock, after.Write)
}
